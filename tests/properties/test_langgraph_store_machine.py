"""`HybridStore` beside LangGraph's `InMemoryStore`: the same calls, the same answers, the same errors.

The model is put right where it answers by accident: namespaces that hold nothing are dropped (its reads make them),
vectors of a value that was replaced are dropped, and of several texts that are equal, in one batch, it can embed none,
so each text here is unique. Where LangGraph's stores differ, it answers as `SqliteStore` and `PostgresStore` do: the
last put comes first, and what cannot be ordered does not match.
"""

from __future__ import annotations

import operator
import os
import shutil
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore, _compare_values

from langchain_agentrag import DualIndexer, HashingEmbeddings, HybridStore
from tests.contracts.world import fresh_folder

PROOF = os.environ.get("HYPOTHESIS_PROFILE") == "proof"

LABELS = [
    "agent1",
    "agent10",
    "agent",
    "A",
    "a_b",
    "a-b",
    "a%",
    "%",
    "*",
    "智能体",
    "a/b",
    '"',
    "\\",
    "[",
    "a,b",
    "a b",
]
BAD_LABELS = ["", "a.b", "a\x00b", 7]
KEYS = ["k", "k1", "k10", "K", "%", "*", "a.b", "键", '"],["', "\x00", ""]
WORDS = ["乌龙茶", "oolong", "tea", "咖啡", "coffee", "E1102", "退款", "refund", "周五", "Friday", "🚀"]

labels = st.sampled_from(LABELS[:4]) | st.sampled_from(LABELS)
namespaces = st.lists(labels, min_size=1, max_size=3).map(tuple)
prefixes = st.lists(labels, max_size=2).map(tuple)
keys = st.sampled_from(KEYS[:3]) | st.sampled_from(KEYS)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
numbers = st.sampled_from([0, 1, 2, 2.5, -1, True, "3", "x", None, [1, 2], {"a": 1, "b": {"c": 2}}])
extras = st.dictionaries(st.sampled_from(["n", "kind", "tags"]), numbers | st.sampled_from(WORDS), max_size=3)
fields = st.sampled_from([None, None, None, False, ["text"], ["text", "kind"], ["tags[*]"], ["nothing"], ["n.b.c"]])
wheres = st.none() | st.dictionaries(
    st.sampled_from(["n", "kind", "tags"]),
    numbers
    | st.builds(lambda op, value: {op: value}, st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), numbers)
    | st.just({"$gt": 0, "$lt": 2.5})
    | st.just({"$in": [1]}),
    max_size=2,
)  # fmt: skip
limits, offsets = st.sampled_from([1, 2, 3, 10, 0]), st.sampled_from([0, 0, 1, 2])
patterns = st.none() | st.lists(labels | st.just("*"), min_size=1, max_size=2).map(tuple)


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the kind of error it ends with."""
    try:
        return call()
    except ValueError as error:
        # ours are special cases of ValueError; LangGraph's own kind of it must be the same
        return "InvalidNamespaceError" if type(error).__name__ == "InvalidNamespaceError" else "ValueError"
    except TypeError:
        return "TypeError"


def comparable(result: Any) -> Any:
    """An answer without times and scores, which are each store's own."""
    if isinstance(result, list):
        return [comparable(one) for one in result]
    if hasattr(result, "namespace"):
        return (result.namespace, result.key, result.value)
    return result


class OrderedReference(InMemoryStore):
    """LangGraph's store, where the last put comes first, and a value that cannot be compared does not match."""

    __slots__ = ("born", "puts", "stamps")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.puts = 0
        self.born: dict[Any, int] = {}
        self.stamps: dict[Any, int] = {}

    def _prepare_ops(self, ops: Any) -> Any:
        ops = list(ops)
        for op in ops:
            if isinstance(op, SearchOp):
                refuse_unknown_operators(op.filter)
        prepared = super()._prepare_ops(ops)
        for namespace in [namespace for namespace, items in self._data.items() if not items]:
            del self._data[namespace]
        return prepared

    def _apply_put_ops(self, put_ops: Any) -> None:
        self.puts += 1
        for number, (place, op) in enumerate(put_ops.items()):
            if op.value is None:
                self.born.pop(place, None)
            else:
                self.born.setdefault(place, self.puts * 1000 + number)
                self.stamps[place] = self.puts
        super()._apply_put_ops(put_ops)

    def _filter_items(self, op: SearchOp) -> Any:
        found = super()._filter_items(op._replace(filter=None, limit=10**9))
        found = [one for one in found if all(fits(one[0].value, *part) for part in (op.filter or {}).items())]
        places = {id(one): (one[0].namespace, one[0].key) for one in found}
        return sorted(found, key=lambda one: (-self.stamps[places[id(one)]], -self.born[places[id(one)]]))


def fits(value: dict[str, Any], key: str, condition: Any) -> bool:
    """LangGraph's rule for one key of a filter, where an error stands for no match."""
    try:
        return _compare_values(value.get(key), condition)
    except (TypeError, ValueError):
        texts = isinstance(condition, dict) and all(
            isinstance(one, str) for one in (value.get(key), *condition.values())
        )
        return texts and all(ORDERINGS[name](value[key], operand) for name, operand in condition.items())


def refuse_unknown_operators(where: Any) -> None:
    for condition in (where or {}).values():
        if isinstance(condition, dict) and any(name.startswith("$") for name in condition):
            for name in condition:
                if name not in {"$eq", "$ne", *ORDERINGS}:
                    raise ValueError(name)


ORDERINGS = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


class Stores(RuleBasedStateMachine):
    """Both stores through the same calls."""

    @initialize()
    def open(self) -> None:
        self.folder = fresh_folder()
        embeddings = HashingEmbeddings(64)
        self.indexer = DualIndexer(self.folder / "store", embeddings)
        self.store = HybridStore(self.indexer, agent_id="lina", fields=["text"], search={"mode": "vector"})
        self.model = OrderedReference(index={"dims": 64, "embed": embeddings, "fields": ["text"]})
        self.places: list[tuple[tuple[str, ...], str]] = []
        self.count = 0

    def teardown(self) -> None:
        if hasattr(self, "indexer"):
            self.indexer.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def both(self, call: Callable[[Any], Any]) -> tuple[Any, Any]:
        self.tidy()
        expected = outcome(lambda: call(self.model))
        actual = outcome(lambda: call(self.store))
        self.tidy()
        return actual, expected

    def same(self, call: Callable[[Any], Any]) -> None:
        actual, expected = self.both(call)
        assert comparable(actual) == comparable(expected)

    def tidy(self) -> None:
        data, vectors = self.model._data, self.model._vectors
        for ns in [ns for ns, items in data.items() if not items]:
            del data[ns]
        self.places = sorted((ns, key) for ns, items in data.items() for key in items)
        for ns in list(vectors):
            for key in list(vectors[ns]):
                if (ns, key) not in self.places:
                    del vectors[ns][key]

    def value(self, text: str, more: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        return {"text": f"{text} nr{self.count}", **more}

    @rule(ns=namespaces, key=keys, text=texts, more=extras, index=fields)
    def put(self, ns, key, text, more, index) -> None:
        self.model._vectors[ns].pop(key, None)
        value = self.value(text, more)
        self.same(lambda store: store.put(ns, key, value, index=index))

    @rule(ns=namespaces, key=keys)
    def get(self, ns, key) -> None:
        self.same(lambda store: store.get(ns, key))

    @rule(ns=namespaces, key=keys)
    def delete(self, ns, key) -> None:
        self.same(lambda store: store.delete(ns, key))

    @rule(data=st.data())
    def delete_one_there(self, data) -> None:
        if self.places:
            ns, key = data.draw(st.sampled_from(self.places))
            self.same(lambda store: store.delete(ns, key))

    @rule(ns=prefixes, where=wheres, limit=limits, offset=offsets)
    def search(self, ns, where, limit, offset) -> None:
        self.same(lambda store: store.search(ns, filter=where, limit=limit, offset=offset))

    @rule(ns=prefixes, where=wheres, query=texts, limit=limits)
    def search_by_meaning(self, ns, where, query, limit) -> None:
        actual, expected = self.both(lambda store: store.search(ns, query=query, filter=where, limit=limit))
        if isinstance(expected, str):
            assert actual == expected
            return
        likeness = {
            comparable(one)[:2]: one.score for one in self.model.search(ns, query=query, filter=where, limit=1000)
        }
        assert [one.score is None for one in actual] == [one.score is None for one in expected]
        # equals may change places: what counts is how near the item in each place is
        near = [likeness[comparable(one)[:2]] for one in actual if one.score is not None]
        assert all(
            abs(mine - theirs.score) < 1e-6
            for mine, theirs in zip(near, expected, strict=False)
            if theirs.score is not None
        )
        tail = [comparable(one) for one in actual if one.score is None]
        assert tail == [comparable(one) for one in expected if one.score is None]
        stored = {comparable(one)[:2]: comparable(one) for one in self.model.search(ns, limit=1000)}
        assert all(comparable(one) == stored[comparable(one)[:2]] for one in actual)

    @rule(prefix=patterns, suffix=patterns, depth=st.sampled_from([None, 1, 2]), limit=limits, offset=offsets)
    def list_namespaces(self, prefix, suffix, depth, limit, offset) -> None:
        self.same(
            lambda store: store.list_namespaces(
                prefix=prefix, suffix=suffix, max_depth=depth, limit=limit, offset=offset
            )
        )

    @rule(ns=prefixes, bad=st.sampled_from(BAD_LABELS), key=keys)
    def refuse(self, ns, bad, key) -> None:
        place = (*ns, bad)
        self.same(lambda store: store.get(place, key))
        self.same(lambda store: store.put(place, key, {"text": "x"}))
        self.same(lambda store: store.search(place))
        self.same(lambda store: store.list_namespaces(prefix=place))
        self.same(lambda store: store.put((), key, {"text": "x"}))
        self.same(lambda store: store.put(("langgraph", *ns), key, {"text": "x"}))

    @rule(data=st.data())
    def batch(self, data) -> None:
        """Reads see the state before; of two puts of one key the last counts; an unknown operation undoes all."""
        ops: list[Any] = []
        for _ in range(data.draw(st.integers(1, 5))):
            ns, key = data.draw(namespaces), data.draw(st.sampled_from(KEYS[:2]))
            value = data.draw(st.none() | st.builds(self.value, texts, extras))
            ops.append(
                data.draw(
                    st.sampled_from(
                        [
                            PutOp(ns, key, value),
                            PutOp(ns, key, value, index=False),
                            GetOp(ns, key),
                            SearchOp(ns[:1], limit=3),
                            ListNamespacesOp(match_conditions=(MatchCondition("prefix", ns[:1]),)),
                        ]
                    )
                )
            )
        if data.draw(st.integers(0, 7)) == 0:
            ops.append("nonsense")
        ops.sort(key=lambda op: not isinstance(op, ListNamespacesOp))  # a get before would make a namespace
        for op in ops:
            if isinstance(op, PutOp):
                self.model._vectors[op.namespace].pop(op.key, None)
        before = comparable(self.store.search((), limit=1000))
        actual, expected = self.both(lambda store: store.batch(ops))
        assert comparable(actual) == comparable(expected)
        if "nonsense" in ops:
            assert comparable(self.store.search((), limit=1000)) == before

    @rule()
    def everything(self) -> None:
        self.same(lambda store: store.search((), limit=1000))
        self.same(lambda store: store.list_namespaces())
        assert self.indexer.verify().ok


TestStores = Stores.TestCase
TestStores.settings = settings(
    max_examples=300 if PROOF else 25,
    stateful_step_count=40 if PROOF else 25,
    deadline=None,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
