"""Non-interference: whatever agents do, in whatever order, each sees its own world and nothing of the others'.

Every search is compared with a plain-Python model and with a second store, built fresh from only what the agent may
see: same hits, same order, same scores to the last bit, same explanations. After deletes and updates that also says
that keyword statistics are those of the live documents.

`HYPOTHESIS_PROFILE=proof` runs it long; the reasons a run was cheap or dear are in `tests/contracts/world.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from langchain_agentrag import SourceDocument, quarantined
from tests.contracts.reference import is_quarantined
from tests.contracts.world import START, World

PROOF = os.environ.get("HYPOTHESIS_PROFILE") == "proof"

LOOKALIKES = [
    "a", "A", "a1", "a10", "a_b", "a-b", "a%", "*", "%", "_", "智能体", "智能體", "caf\u00e9", "cafe\u0301", "a" * 300,
    "a" * 299, "a ", " a", "a\t", "a\n", "a\x00", "a\x00b", "None", "null", "shared", "' OR 1=1 --", "a/b", "../a", "ａ", "🤖",
]  # fmt: skip
WORDS = [
    "数据库", "连接", "超时", "报错", "E1102", "alpha", "beta", "gamma", "alphas", "v2.10.3", "密码", "退款", "refund", "the",
    "的", "机器学习", "機器學習", "データ", "🚀", "C++", "password", "10.20.30.40",
]  # fmt: skip
MODES = ["hybrid", "vector", "keyword"]
FUSIONS = ["adaptive", "convex", "rrf", "dbsf", "relative"]
DOC_IDS = ["d1", "d2", "d3", "D1", "d1 ", "文档", "a#0"]

# Short enough that what one caller sees stays below 50 chunks, where no index cuts its candidates off.
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=14).map(" ".join) | st.sampled_from(
    ["", "   ", "。。。", "same line", "第一段。\n\n第二段，连接超时。\n\n第三段：退款。" * 2]
)
values = st.sampled_from([1, 2, 1.0, "1", "manual", True, None, ["x", "y"], {"lat": 1}])
plain_metadata = st.dictionaries(st.sampled_from(["type", "n", "tags", "a.b", "owner"]), values, max_size=3)
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join) | st.sampled_from(
    ["same line", "", "的", "。！", "量子纠缠", "*", "words:alpha"]
)
origins = st.sampled_from([{"type": "web"}, {"type": "tool_call"}, {"source": "https://a.example/1"}])
places = st.sampled_from([("n1",), ("n10",), ("n1", "a"), ("%",)])
sessions = st.sampled_from(["s", "S", "s/1", "%"])
item_keys = st.sampled_from(["k", "k1", "*"])
weights = st.sampled_from([None, (0.5, 0.5), (0.7, 0.3), (1.0, 0.0), (0.0, 1.0)])


hours = st.integers(-3, 8)
windows = st.tuples(st.none() | hours, st.none() | hours)
of_time = st.sampled_from([{}, {"session": "s1"}, {"session": "s10"}])


def moments(window: tuple[int | None, int | None]) -> tuple[datetime | None, datetime | None]:
    """Hours after the start, as moments."""
    after, before = (None if hour is None else START + timedelta(hours=hour) for hour in window)
    return after, before


def hostile(agents: list[str]) -> st.SearchStrategy[object]:
    """Filters that try to reach beyond the scope, next to honest ones."""
    owner = st.sampled_from([*agents, None, "", "*"])
    reaching = st.one_of(
        owner.map(lambda name: {"agent_id": name}),
        owner.map(lambda name: {"agent_id": {"$ne": name}}),
        owner.map(lambda name: {"$not": {"agent_id": name}}),
        owner.map(lambda name: {"$or": [{"agent_id": name}, {"agent_id": {"$exists": True}}]}),
        st.just({"agent_id": {"$in": [*agents, None]}}),
        st.sampled_from(DOC_IDS).map(lambda name: {"doc_id": name}),
        owner.map(lambda name: {"$or": [{"owner": name}, {"doc_id": {"$ne": "x"}}]}),
    )
    honest = st.one_of(
        st.dictionaries(
            st.sampled_from(["type", "n", "a.b"]), values.filter(lambda v: type(v) is not dict), min_size=1, max_size=2
        ),
        values.map(lambda value: {"n": {"$ne": value}}),
        st.just({"n": {"$gte": 1}}),
        st.just({"tags": {"$contains": "x"}}),
        st.just({"type": {"$in": []}}),
        st.sampled_from([{"quarantined": True}, {"quarantined": {"$ne": True}}]),
        st.just({"$or": [{"n": 1}, {"type": "manual"}]}),
    )
    return st.none() | honest | reaching


class Agents(RuleBasedStateMachine):
    """Several agents at work on one store."""

    options: Mapping[str, object] = MappingProxyType({})

    @initialize(
        agents=st.lists(st.sampled_from(LOOKALIKES), min_size=2, max_size=4, unique=True),
        first=st.lists(texts.filter(str.strip), min_size=6, max_size=6),
    )
    def open(self, agents: list[str], first: list[str]) -> None:
        self.agents, self.turn = agents, 0
        self.world = World(result_cache=600, **self.options)
        for place, agent in enumerate([None, *agents]):
            mine = [first[place], first[0], first[-1]][: 2 + (agent is None)]
            self.world.put(agent, [SourceDocument(DOC_IDS[i], text, {"n": i}) for i, text in enumerate(mine)])

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()

    def probe(self) -> None:
        """After every write each observer asks once more; mode, rule, question and filter take turns."""
        for agent in [None, *self.agents]:
            turn = self.turn = self.turn + 1
            other = self.agents[turn % len(self.agents)]
            filters = [
                None,
                {"agent_id": other},
                {"agent_id": {"$ne": agent}},
                {"n": {"$gte": 1}},
                {"agent_id": {"$exists": True}},
                {"quarantined": True},
            ]
            self.world.search(
                agent,
                WORDS[turn % len(WORDS)] + " " + WORDS[turn * 7 % len(WORDS)],
                k=(1, 5, 100)[turn % 3],
                mode=MODES[turn % len(MODES)],
                fusion=FUSIONS[turn % len(FUSIONS)],
                where=filters[turn % len(filters)],
                quarantined=turn % 4 == 0,
            )

    def who(self, data: st.DataObject) -> str | None:
        return data.draw(st.sampled_from([None, *self.agents]), label="agent")

    @rule(data=st.data(), count=st.integers(1, 3))
    def put(self, data: st.DataObject, count: int) -> None:
        self.put_some(data, count)

    @rule(data=st.data())
    def put_many(self, data: st.DataObject) -> None:
        self.put_some(data, 6)

    def put_some(self, data: st.DataObject, count: int) -> None:
        agent = self.who(data)
        documents = []
        for _ in range(count):
            metadata = data.draw(plain_metadata)
            if agent is not None and data.draw(st.booleans(), label="claims its owner"):
                metadata["agent_id"] = agent
            if data.draw(st.booleans(), label="has a time"):
                metadata |= data.draw(of_time)
                metadata["time"] = START + timedelta(hours=data.draw(hours))
            if data.draw(st.integers(0, 3), label="expires") == 0:
                metadata["expires_at"] = self.world.now + timedelta(hours=data.draw(st.integers(1, 4)))
            documents.append(SourceDocument(data.draw(st.sampled_from(DOC_IDS)), data.draw(texts), metadata))
        self.world.put(agent, documents)
        self.probe()

    @rule(data=st.data())
    def copy_from_another(self, data: st.DataObject) -> None:
        """The same id and text under another owner: the closest two documents can be."""
        documents = self.world.everything()
        if documents:
            twin = data.draw(st.sampled_from(documents))
            metadata = {key: value for key, value in twin.metadata.items() if key != "agent_id"}
            if data.draw(st.booleans(), label="as if it were of today"):
                metadata |= {"time": self.world.now, "expires_at": None}
            self.world.put(self.who(data), [SourceDocument(twin.doc_id, twin.text, metadata)])
            self.probe()

    @rule(data=st.data(), doc_id=st.sampled_from(DOC_IDS), text=texts, origin=origins)
    def hold_back(self, data: st.DataObject, doc_id: str, text: str, origin: dict[str, object]) -> None:
        """What comes from outside is quarantined by the rule, new or in the place of what was not."""
        agent, metadata = self.who(data), data.draw(plain_metadata) | origin
        documents = [SourceDocument(doc_id, text, metadata), SourceDocument("own words", text, {"n": 1})]
        self.world.put(agent, list(quarantined(documents)))
        document = self.world.model.read(agent, doc_id)
        assert document is None or document.agent_id != agent or is_quarantined(document)
        self.probe()

    @precondition(lambda self: self.world.model.quarantined())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Indexed again by its owner without the key, it is found again."""
        quarantined = data.draw(st.sampled_from(self.world.model.quarantined()))
        metadata = {key: value for key, value in quarantined.metadata.items() if key != "quarantined"}
        self.world.put(quarantined.agent_id, [SourceDocument(quarantined.doc_id, quarantined.text, metadata)])
        self.world.search(quarantined.agent_id, quarantined.text, 100)
        self.probe()

    @precondition(lambda self: self.world.model.quarantined())
    @rule(data=st.data())
    def hunt(self, data: st.DataObject) -> None:
        """Everybody asks for what is held back, in its own words."""
        quarantined = data.draw(st.sampled_from(self.world.model.quarantined()))
        for agent in [None, *self.agents]:
            self.world.hunt(quarantined, agent, data.draw(st.sampled_from(MODES)))

    @rule(data=st.data())
    def delete_by_id(self, data: st.DataObject) -> None:
        self.world.delete(self.who(data), data.draw(st.lists(st.sampled_from(DOC_IDS), max_size=3)))
        self.probe()

    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        """Erased documents are gone from disk before the call returns, and nobody else's."""
        where = data.draw(st.none() | hostile(self.agents).filter(lambda condition: condition is not None))
        ids = data.draw((st.just(None) if where else st.nothing()) | st.lists(st.sampled_from(DOC_IDS), max_size=3))
        self.world.delete(self.who(data), ids, where, erase=True)
        self.probe()

    @rule(data=st.data())
    def sweep_own(self, data: st.DataObject) -> None:
        self.world.sweep_own(self.who(data))
        self.probe()

    @rule(data=st.data())
    def delete_by_filter(self, data: st.DataObject) -> None:
        where = data.draw(hostile(self.agents).filter(lambda condition: condition is not None))
        ids = data.draw(st.none() | st.lists(st.sampled_from(DOC_IDS), max_size=3))
        self.world.delete(self.who(data), ids, where)
        self.probe()

    @rule(data=st.data(), window=windows, session=st.sampled_from([None, "s1", "s10"]))
    def delete_by_time_or_session(
        self, data: st.DataObject, window: tuple[int | None, int | None], session: str | None
    ) -> None:
        if session is not None or window != (None, None):
            ids = data.draw(st.none() | st.lists(st.sampled_from(DOC_IDS), max_size=3))
            self.world.delete(self.who(data), ids, None, moments(window), session)
            self.probe()

    @rule(count=st.integers(1, 3))
    def time_goes_by(self, count: int) -> None:
        self.world.tick(count)
        self.probe()

    @rule()
    def sweep(self) -> None:
        self.world.sweep()
        self.probe()

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        self.world.forget(data.draw(st.sampled_from(self.agents)))
        self.probe()

    @rule(data=st.data(), query=queries, k=st.sampled_from([1, 2, 5, 100]), share=weights)
    def search(self, data: st.DataObject, query: str, k: int, share: tuple[float, float] | None) -> None:
        where = data.draw(st.none() | hostile(self.agents))
        window = data.draw(st.just((None, None)) | windows)
        half_life = data.draw(st.sampled_from([None, None, timedelta(hours=2)]))
        asks = data.draw(st.booleans(), label="asks for what is quarantined")
        for agent in [None, *self.agents]:
            mode, fusion = data.draw(st.sampled_from(MODES)), data.draw(st.sampled_from(FUSIONS))
            self.world.search(
                agent,
                query,
                k,
                mode=mode,
                fusion=fusion,
                weights=share,
                where=where,
                window=moments(window),
                recency=half_life,
                quarantined=asks,
            )

    @rule(data=st.data(), doc_id=st.sampled_from(DOC_IDS), place=st.integers(0, 3), around=st.integers(0, 2))
    def read(self, data: st.DataObject, doc_id: str, place: int, around: int) -> None:
        self.world.read(self.who(data), doc_id, place, before=around, after=around)

    @rule(data=st.data(), limit=st.integers(1, 4), own=st.booleans())
    def list_documents(self, data: st.DataObject, limit: int, own: bool) -> None:
        where = data.draw(st.none() | hostile(self.agents))
        self.world.list_documents(self.who(data), limit, own=own, where=where)

    @rule(data=st.data(), doc_ids=st.none() | st.lists(st.sampled_from(DOC_IDS), max_size=3))
    def list_passages(self, data: st.DataObject, doc_ids: list[str] | None) -> None:
        self.world.passages(self.who(data), doc_ids, data.draw(hostile(self.agents)))

    @rule(data=st.data())
    def count(self, data: st.DataObject) -> None:
        self.world.stats(self.who(data))

    @rule(data=st.data(), place=places, key=item_keys, text=texts)
    def keep(self, data: st.DataObject, place: tuple[str, ...], key: str, text: str) -> None:
        self.world.keep(self.who(data), place, key, {"text": text})
        self.probe()

    @rule(data=st.data(), place=places, key=item_keys)
    def drop(self, data: st.DataObject, place: tuple[str, ...], key: str) -> None:
        self.world.drop(self.who(data), place, key)
        self.probe()

    @rule(data=st.data(), session=sessions, entry=item_keys, text=texts)
    def record(self, data: st.DataObject, session: str, entry: str, text: str) -> None:
        self.world.record(data.draw(st.sampled_from(self.agents)), session, entry, text)
        self.probe()

    @rule(data=st.data(), session=sessions)
    def unrecord(self, data: st.DataObject, session: str) -> None:
        self.world.unrecord(data.draw(st.sampled_from(self.agents)), session)
        self.probe()

    @rule(place=places | st.just(()), query=st.none() | queries)
    def recall(self, place: tuple[str, ...], query: str | None) -> None:
        for agent in [None, *self.agents]:
            self.world.recall(agent, place, query)

    @rule()
    def refuse_the_empty_id(self) -> None:
        self.world.refuse_empty_agent()

    @precondition(lambda self: self.world.searches)
    @rule()
    def reopen(self) -> None:
        self.world.reopen()
        self.probe()

    @invariant()
    def indexes_agree_with_the_catalog(self) -> None:
        if hasattr(self, "world"):
            self.world.verify()


class AgentsOnChroma(Agents):
    """The same with every vector search through HNSW."""

    options = MappingProxyType({"exact_limit": 0, "chroma": "always"})


class AgentsBehind(Agents):
    """The same with vectors that reach HNSW some time after their commit: part of a partition waits at any moment."""

    options = MappingProxyType({"exact_limit": 1, "chroma": "auto"})


def profile(*, short: tuple[int, int], long: tuple[int, int]) -> settings:
    examples, steps = long if PROOF else short
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        # a shrunk failure is worth minutes, a commented one is not: each step here costs as much as a small test
        phases=[Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if PROOF else [])],
        suppress_health_check=list(HealthCheck),
    )


TestAgents = Agents.TestCase
TestAgents.settings = profile(short=(20, 20), long=(400, 50))
TestAgentsOnChroma = AgentsOnChroma.TestCase
TestAgentsOnChroma.settings = profile(short=(4, 12), long=(40, 30))
TestAgentsBehind = AgentsBehind.TestCase
TestAgentsBehind.settings = profile(short=(4, 12), long=(40, 30))
if PROOF:
    TestAgents = pytest.mark.timeout(7200)(TestAgents)
    TestAgentsOnChroma = pytest.mark.timeout(7200)(TestAgentsOnChroma)
    TestAgentsBehind = pytest.mark.timeout(7200)(TestAgentsBehind)
