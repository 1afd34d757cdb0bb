"""Conformance tests of LangGraph stores, to inherit from: the contract of `BaseStore`, and owners that are apart.

class TestOurStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _store(self, tmp_path):
        with DualIndexer(tmp_path, "hash") as self.indexer:
            yield

    def make_store(self, agent_id):
        return HybridStore(self.indexer, agent_id=agent_id)
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

from langgraph.store.base import BaseStore, GetOp, InvalidNamespaceError, Item, ListNamespacesOp, Op, PutOp, SearchOp

from langchain_agentrag.testing.conformance import expect, expect_equal

_PLACE = ("users", "wang", "memories")
_MEMORIES: dict[str, dict[str, Any]] = {
    "tea": {"text": "王工喝乌龙茶，不加糖", "kind": "taste", "n": 1},
    "server": {"text": "the staging server is heron-7", "kind": "fact", "n": 2},
    "键": {"text": "gateway-42 在周五上线 🚀", "kind": "fact", "n": 3, "nested": {"list": [1, None, "二"]}},
}
_QUERIES = {"tea": "喝什么茶", "server": "staging server", "键": "gateway-42 上线"}


class StoreConformance(ABC):
    """Conformance tests of a `BaseStore`.

    Attributes:
        owners: Whether `make_store` gives each agent a store of its own; the tests of isolation pass without a check if
            not.
        words: Whether a query finds items by their words; a store without a text search only returns items.
    """

    owners: ClassVar[bool] = True
    words: ClassVar[bool] = True

    @abstractmethod
    def make_store(self, agent_id: str) -> BaseStore:
        """Return the store of an agent; both calls of a test for one agent return the same items, at first none."""

    # -- items --------------------------------------------------------------------------------------------------------

    def test_what_was_put_is_returned_as_it_was(self) -> None:
        """Values, keys and namespaces of any script are kept, and both times are set."""
        store = self._filled()
        for key, value in _MEMORIES.items():
            item = _item(store.get(_PLACE, key))
            expect_equal((item.namespace, item.key, item.value), (_PLACE, key, value), f"the item {key!r}")
            expect(item.created_at <= item.updated_at, f"the item {key!r} was updated before it was created")

    def test_what_is_absent_is_none(self) -> None:
        """Another key, a longer and a shorter namespace hold nothing."""
        store = self._filled()
        for place, key in ((_PLACE, "TEA"), ((*_PLACE, "tea"), "tea"), (_PLACE[:2], "tea"), (("users",), "tea")):
            expect_equal(store.get(place, key), None, f"the item {key!r} of {place!r}")

    def test_a_put_replaces_the_whole_value_and_keeps_its_creation(self) -> None:
        """Values are not merged."""
        store = self._filled()
        first = _item(store.get(_PLACE, "tea"))
        store.put(_PLACE, "tea", {"text": "绿茶 green tea"})
        second = _item(store.get(_PLACE, "tea"))
        expect_equal(second.value, {"text": "绿茶 green tea"}, "the value")
        expect_equal(second.created_at, first.created_at, "the time of creation")
        expect(second.updated_at >= first.updated_at, "the time of the update went back")
        expect_equal(len(store.search(_PLACE)), len(_MEMORIES), "the number of items")

    def test_what_was_deleted_is_gone_at_once(self) -> None:
        """From reads, searches and namespaces; deleting an absent item does nothing."""
        store = self._filled()
        store.search(_PLACE, query=_QUERIES["tea"])
        store.delete(_PLACE, "tea")
        store.delete(_PLACE, "tea")
        store.delete(("nowhere",), "tea")
        expect_equal(store.get(_PLACE, "tea"), None, "the deleted item")
        expect_equal(_keys(store.search(_PLACE)), {"server", "键"}, "the items left")
        expect_equal(_keys(store.search(_PLACE, query=_QUERIES["tea"])) & {"tea"}, set(), "deleted items found")
        for key in ("server", "键"):
            store.delete(_PLACE, key)
        expect_equal(store.list_namespaces(), [], "the namespaces of an emptied store")

    def test_invalid_namespaces_are_refused(self) -> None:
        """Empty ones, empty labels, dots, the reserved root, labels that are no text."""
        store = self._filled()
        places: tuple[tuple[Any, ...], ...] = ((), ("",), ("a", ""), ("a.b",), ("langgraph",), ("a", 7))
        for place in places:
            _expect_error(InvalidNamespaceError, partial(store.put, place, "k", {}), f"put into {place!r}")

    # -- searching ----------------------------------------------------------------------------------------------------

    def test_a_search_covers_the_namespaces_below_a_prefix(self) -> None:
        """By whole labels: `("users",)` is no prefix of `("users2",)`."""
        store = self._filled()
        store.put(("users2",), "other", {"text": "x"})
        store.put(("users", "wang2"), "near", {"text": "x"})
        for prefix, expected in ((_PLACE, set(_MEMORIES)), (("users", "wang"), set(_MEMORIES)), (("user",), set())):
            expect_equal(_keys(store.search(prefix, limit=20)), expected, f"the items below {prefix!r}")
        expect_equal(_keys(store.search(("users",), limit=20)), {*_MEMORIES, "near"}, "the items below users")
        expect_equal(len(store.search((), limit=20)), len(_MEMORIES) + 2, "the number of all items")

    def test_filters_compare_values(self) -> None:
        """Equality and the operators of LangGraph."""
        store = self._filled()
        for where, expected in (
            ({"kind": "fact"}, {"server", "键"}),
            ({"kind": "fact", "n": 3}, {"键"}),
            ({"n": {"$gt": 1}}, {"server", "键"}),
            ({"n": {"$gte": 1, "$lt": 3}}, {"tea", "server"}),
            ({"kind": {"$ne": "fact"}}, {"tea"}),
            ({"kind": "nothing"}, set()),
        ):
            expect_equal(_keys(store.search(_PLACE, filter=where)), expected, f"what {where!r} keeps")
            with_query = store.search(_PLACE, query=_QUERIES["server"], filter=where)
            expect(_keys(with_query) <= expected, f"a query found items that {where!r} excludes")

    def test_pages_hold_each_item_once(self) -> None:
        """`limit` and `offset` cut one order."""
        store = self.make_store("lina")
        for number in range(7):
            store.put(("pages",), f"k{number}", {"text": f"报告 report {number}"})
        for query in (None, "报告 report"):
            pages = [store.search(("pages",), query=query, limit=3, offset=offset) for offset in (0, 3, 6, 9)]
            expect_equal([len(page) for page in pages], [3, 3, 1, 0], f"the sizes of the pages of {query!r}")
            expect_equal(len({item.key for page in pages for item in page}), 7, f"the items of the pages of {query!r}")

    def test_an_item_is_found_by_its_words(self) -> None:
        """In Chinese, English and mixed text, best first."""
        store = self._filled()
        for key, query in _QUERIES.items() if self.words else ():
            found = store.search(_PLACE, query=query, limit=1)
            expect_equal([item.key for item in found], [key], f"the best item of {query!r}")

    def test_namespaces_are_listed_by_prefix_suffix_and_depth(self) -> None:
        """Each once; `*` stands for one label."""
        store = self._filled()
        store.put(("users", "li", "memories"), "a", {"n": 1})
        store.put(("docs", "a", "b", "c"), "a", {"n": 1})
        both = {_PLACE, ("users", "li", "memories")}
        expect_equal(set(store.list_namespaces(prefix=("users",))), both, "the namespaces below users")
        expect_equal(set(store.list_namespaces(prefix=("users", "*", "memories"))), both, "those of a wildcard")
        expect_equal(set(store.list_namespaces(suffix=("memories",))), both, "the namespaces that end in memories")
        expect_equal(
            set(store.list_namespaces(max_depth=2)), {_PLACE[:2], ("users", "li"), ("docs", "a")}, "two levels"
        )
        expect_equal(len(store.list_namespaces(limit=2)), 2, "the number of namespaces of a limit")

    # -- batches ------------------------------------------------------------------------------------------------------

    def test_a_batch_answers_each_operation_in_its_place(self) -> None:
        """Also through the asynchronous methods."""
        store = self._filled()
        reads: list[Op] = [
            GetOp(_PLACE, "tea"),
            SearchOp(_PLACE, limit=10),
            ListNamespacesOp(),
            GetOp(_PLACE, "absent"),
        ]

        def shape(results: list[Any]) -> list[Any]:
            item, found, namespaces, absent = results
            return [item.value, _keys(found), namespaces, absent]

        expected = [_MEMORIES["tea"], set(_MEMORIES), [_PLACE], None]
        expect_equal(shape(store.batch(reads)), expected, "the results of batch")
        expect_equal(shape(asyncio.run(store.abatch(reads))), expected, "the results of abatch")

    def test_of_two_puts_of_a_key_in_a_batch_the_last_counts(self) -> None:
        """A put of None deletes."""
        store = self._filled()
        store.batch([PutOp(_PLACE, "tea", {"n": 8}), PutOp(_PLACE, "tea", {"n": 9}), PutOp(_PLACE, "server", None)])
        expect_equal(_item(store.get(_PLACE, "tea")).value, {"n": 9}, "the value")
        expect_equal(store.get(_PLACE, "server"), None, "the item that was put as None")

    # -- owners -------------------------------------------------------------------------------------------------------

    def test_no_other_agent_reads_finds_or_lists_an_item(self) -> None:
        """Not with the same namespace, an agent of a similar name included."""
        self._filled()
        for agent in ("otto", "lin", "lina2", "LINA") if self.owners else ():
            other = self.make_store(agent)
            expect_equal(other.list_namespaces(), [], f"the namespaces that {agent} sees")
            expect_equal(other.get(_PLACE, "tea"), None, f"what {agent} reads")
            expect_equal(other.search((), limit=50), [], f"what {agent} finds")
            expect_equal(other.search(_PLACE, query=_QUERIES["tea"]), [], f"what {agent} finds by words")

    def test_no_other_agent_changes_or_deletes_an_item(self) -> None:
        """Two agents may use one namespace and key for two items."""
        store = self._filled()
        if self.owners:
            other = self.make_store("otto")
            other.put(_PLACE, "tea", {"text": "咖啡 coffee"})
            expect_equal(_item(store.get(_PLACE, "tea")).value, _MEMORIES["tea"], "lina's item after otto's put")
            other.delete(_PLACE, "tea")
            other.delete(_PLACE, "server")
            expect_equal(_keys(store.search(_PLACE)), set(_MEMORIES), "lina's items after otto's deletes")

    def test_another_store_of_the_agent_has_its_items(self) -> None:
        """Items belong to the agent, not to the object."""
        self._filled()
        expect_equal(_keys(self.make_store("lina").search(_PLACE)), set(_MEMORIES), "the items")

    def _filled(self) -> BaseStore:
        store = self.make_store("lina")
        for key, value in _MEMORIES.items():
            store.put(_PLACE, key, value)
        return store


def _item(item: Item | None) -> Item:
    expect(item is not None, "an item that was put is absent")
    assert item is not None  # noqa: S101  for the type checker
    return item


def _keys(items: Iterable[Item]) -> set[str]:
    return {item.key for item in items}


def _expect_error(kind: type[Exception], call: Callable[[], object], what: str) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{what} should raise {kind.__name__}")
