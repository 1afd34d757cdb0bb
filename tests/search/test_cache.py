"""Caches of query vectors and of results: given again only to the same agent, for the same request, of the same contents."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from langchain_agentrag import DualIndexer, HashingEmbeddings, SourceDocument
from langchain_agentrag.errors import UsageError
from langchain_agentrag.search.cache import QueryVectors


class Counting(HashingEmbeddings):
    def __init__(self):
        super().__init__()
        self.queries = []

    def embed_query(self, text):
        self.queries.append(text)
        if text == "down":
            raise RuntimeError("model is down")
        return super().embed_query(text)


@pytest.fixture
def model():
    return Counting()


@pytest.fixture
def indexer(tmp_path, model):
    with DualIndexer(tmp_path / "store", model, result_cache=60) as opened:
        opened.index_documents(["退款流程见第三章", "refund within a week"])
        opened.search("warm up")
        model.queries.clear()
        yield opened


def ids(hits):
    return [(hit.doc_id, hit.score, hit.agent_id) for hit in hits]


@pytest.fixture(params=["sync", "async"])
def ask(request):
    def run(indexer, query, **options):
        if request.param == "sync":
            return indexer.search(query, **options)
        return asyncio.run(indexer.asearch(query, **options))

    return run


def test_an_equal_search_is_answered_from_memory_with_the_same_hits(indexer, model, ask, monkeypatch):
    first = ask(indexer, "退款")
    monkeypatch.setattr(indexer._engine._searcher, "search", lambda request: pytest.fail("it was searched again"))
    again = ask(indexer, "退款")
    assert again == first
    assert [hit.explanation.matched for hit in again] == [hit.explanation.matched for hit in first]
    assert (again.query, again.mode, again.degraded) == (first.query, first.mode, first.degraded)
    assert len(model.queries) == 1


def test_a_query_is_embedded_once_per_agent_and_never_for_another(indexer, model, ask):
    for agent in (None, "lina", "lina", "otto", None, "Lina"):
        ask(indexer, "退款", agent_id=agent, k=2, mode="vector")
        ask(indexer, "退款", agent_id=agent, k=3)
    assert len(model.queries) == 4  # None, lina, otto, Lina
    ask(indexer, "退款？", agent_id="lina")
    assert len(model.queries) == 5  # another text is another query


def test_every_part_of_a_request_makes_another_result(indexer):
    requests = [
        {}, {"k": 1}, {"mode": "keyword"}, {"mode": "vector"}, {"filter": {"x": 1}}, {"filter": {"x": True}}, {"filter": {"x": "1"}},
        {"filter": {"x": 1.5}}, {"weights": (0.2, 0.8)}, {"fusion": "rrf"}, {"score_threshold": 0.5}, {"max_per_document": 1},
        {"agent_id": "a"}, {"agent_id": "A"}, {"after": datetime(2020, 1, 1, tzinfo=UTC)}, {"history": ["退款"]}, {"diversity": 0.5},
    ]  # fmt: skip
    tickets = []
    results = indexer._engine._results
    for options in requests:
        request = indexer._request("退款", options.get("k", 5), options.get("agent_id"), {k: v for k, v in options.items() if k not in {"k", "agent_id"}})  # fmt: skip
        tickets.append(results.ticket(request, lambda: ()))
    assert all(tickets)
    assert len({(ticket.agent, ticket.key) for ticket in tickets}) == len(requests)


@pytest.mark.parametrize("write", ["add", "replace", "delete", "other process", "private"])
def test_a_write_is_seen_by_the_next_search(indexer, tmp_path, write):
    agent = "lina"
    before = ids(indexer.search("退款", agent_id=agent))
    if write == "add":
        indexer.index_documents([SourceDocument("new", "退款 退款")])
    elif write == "replace":
        indexer.index_documents([SourceDocument(before[0][0], "退款已经取消")])
    elif write == "delete":
        indexer.delete(before[0][0])
    elif write == "private":
        indexer.index_documents([SourceDocument("new", "退款 退款")], agent_id=agent)
    else:
        code = (
            "import sys; from langchain_agentrag import DualIndexer, SourceDocument\n"
            "from tests.search.test_cache import Counting\n"
            "with DualIndexer(sys.argv[1], Counting()) as i: i.index_documents([SourceDocument('new', '退款 退款')])"
        )
        subprocess.run([sys.executable, "-c", code, str(indexer.path)], check=True, timeout=60)
    after = ids(indexer.search("退款", agent_id=agent))
    assert after != before
    if write != "delete":
        assert any(doc_id in {"new", before[0][0]} for doc_id, _, _ in after)


def test_what_a_caller_does_to_a_result_stays_with_the_caller(indexer):
    indexer.index_documents([SourceDocument("m", "退款 元数据", metadata={"tags": ["a"]})])
    for _ in range(3):
        hits = indexer.search("元数据", k=1)
        assert hits[0].metadata["tags"] == ["a"]
        hits[0].metadata["tags"].append("b")
        hits.clear()


def test_a_result_ends_with_its_time_and_with_what_expires_in_it(tmp_path, monkeypatch):
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with DualIndexer(tmp_path / "s", "hash", clock=lambda: now[0], result_cache=30) as indexer:
        indexer.index_documents([SourceDocument("gone", "退款 甲")], ttl=timedelta(seconds=10))
        indexer.index_documents([SourceDocument("stays", "退款 乙")])
        assert len(indexer.search("退款")) == 2
        now[0] += timedelta(seconds=11)
        assert [hit.doc_id for hit in indexer.search("退款")] == ["stays"]
        calls = []
        search = indexer._engine._searcher.search
        monkeypatch.setattr(indexer._engine._searcher, "search", lambda request: calls.append(1) or search(request))
        indexer.search("退款")
        assert calls == []
        results = indexer._engine._results
        started = results._clock()
        monkeypatch.setattr(results, "_clock", lambda: started + 31)
        indexer.search("退款")
        assert calls == [1]


def test_what_is_incomplete_or_depends_on_the_moment_is_not_kept(indexer, model, monkeypatch):
    calls = []
    search = indexer._engine._searcher.search
    monkeypatch.setattr(indexer._engine._searcher, "search", lambda request: calls.append(1) or search(request))
    for options in (
        {"recency": 60}, {"explain": True}, {"vector": [1.0] * len(HashingEmbeddings().embed_query("x"))},
        {"reranker": lambda query, texts: [1.0] * len(texts)}, {"after": "7d"},
    ):  # fmt: skip
        calls.clear()
        indexer.search("退款", **options)
        indexer.search("退款", **options)
        assert len(calls) == 2, options
    calls.clear()
    assert indexer.search("down").degraded
    assert indexer.search("down").degraded
    assert len(calls) == 2
    vector = [0.0] * (len(HashingEmbeddings().embed_query("x")) - 1) + [1.0]
    indexer.search("向量", vector=vector, mode="vector")
    model.queries.clear()
    indexer.search("向量", mode="vector")
    assert model.queries == ["向量"]  # a vector that a caller gave is not what the model says


def test_forgetting_an_agent_removes_its_cached_queries_and_results(indexer, model):
    indexer.index_documents(["lina 的退款"], agent_id="lina")
    indexer.search("退款", agent_id="lina")
    indexer.forget_agent("lina")
    caches = (indexer._engine._results._cache._values, indexer._embedder._cache._cache._values)
    assert all("lina" not in one for one in caches)
    assert all(hit.agent_id is None for hit in indexer.search("退款", agent_id="lina"))


def test_off_is_off(tmp_path, model):
    with DualIndexer(tmp_path / "s", model, query_cache=0) as indexer:
        indexer.index_documents(["退款"])
        indexer.search("退款")
        model.queries.clear()
        for _ in range(3):
            indexer.search("退款")
        assert len(model.queries) == 3


@pytest.mark.parametrize("wrong", [{"query_cache": -1}, {"query_cache": True}, {"query_cache": 1.5}, {"result_cache": -1}, {"result_cache": "x"}, {"result_cache": float("inf")}])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(tmp_path, wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        DualIndexer(tmp_path / "s", "hash", **wrong)


def test_the_last_queries_are_kept_and_their_vectors_cannot_be_changed():
    vectors = QueryVectors(2)
    for query in ("a", "b", "a", "c"):
        vectors.put("lina", query, np.ones(3, dtype=np.float32))
        assert vectors.get("lina", "a") is not None
    assert vectors.get("lina", "b") is None
    assert vectors.get("otto", "a") is None
    with pytest.raises(ValueError, match="read-only"):
        vectors.get("lina", "a")[0] = 5


AGENTS = st.sampled_from([None, "a", "A", "ab", "a%", "é", "e\u0301"])
QUERIES = st.sampled_from(["退款", "退款 ", "refund", "口令 secret", "退款流程"])


class CachedAndPlain(RuleBasedStateMachine):
    """A store with caches answers every search of every agent as the same folder without them."""

    def __init__(self):
        super().__init__()
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.cached = DualIndexer(f"{self.folder.name}/s", "hash", result_cache=600)
        self.plain = DualIndexer(f"{self.folder.name}/s", "hash", query_cache=0)
        self.count = 0

    @rule(agent=AGENTS, word=QUERIES, by=st.booleans())
    def write(self, agent, word, by):
        self.count += 1
        document = SourceDocument(
            f"d{self.count % 4}", f"{word} {self.count} of {agent}", metadata={"n": self.count % 3}
        )
        (self.cached if by else self.plain).index_documents([document], agent_id=agent)

    @rule(agent=AGENTS, number=st.integers(0, 3), by=st.booleans())
    def delete(self, agent, number, by):
        (self.cached if by else self.plain).delete(f"d{number}", agent_id=agent)

    @rule(agent=st.sampled_from(["a", "A", "é"]))
    def forget(self, agent):
        self.plain.forget_agent(agent)

    @rule(agent=AGENTS, query=QUERIES, k=st.integers(1, 3), n=st.none() | st.integers(0, 2), mode=st.sampled_from(["hybrid", "keyword", "vector"]))  # fmt: skip
    def search(self, agent, query, k, n, mode):
        options = {"mode": mode, **({} if n is None else {"filter": {"n": n}})}
        for _ in range(2):
            hits = self.cached.search(query, k, agent_id=agent, **options)
            assert all(hit.agent_id in {None, agent} for hit in hits)
            assert [(h.agent_id, h.doc_id, h.text, h.score) for h in hits] == [
                (h.agent_id, h.doc_id, h.text, h.score) for h in self.plain.search(query, k, agent_id=agent, **options)
            ]

    @invariant()
    def an_agents_results_hold_nothing_of_others(self):
        for agent, cached in self.cached._engine._results._cache._values.items():
            for _, _, hits in cached.values():
                assert all(hit.agent_id in {None, agent} for hit in hits)

    def teardown(self):
        self.cached.close()
        self.plain.close()
        self.folder.cleanup()


TestCachedAndPlain = CachedAndPlain.TestCase
TestCachedAndPlain.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
