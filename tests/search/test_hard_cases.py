"""Ranking and fusion: what may come back, in which order, with which score, and the warning when an index fails."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer, HybridRetriever, SourceDocument
from langchain_agentrag.errors import RetrievalError, StoreError
from tests.fakes import FailingEmbeddings, GivenVectors, RecordingEmbeddings, SlowEmbeddings

MODES = ("hybrid", "vector", "keyword")
FUSIONS = ("convex", "rrf", "dbsf", "relative")
PATHS = {"exact": {"chroma": "auto"}, "approximate": {"chroma": "always", "exact_limit": 0}}


def ids(hits) -> list[str]:
    return [hit.doc_id for hit in hits]


def documents(*texts: str) -> list[SourceDocument]:
    return [SourceDocument(f"d{number}", text) for number, text in enumerate(texts)]


@pytest.fixture
def store(tmp_path: Path):
    with DualIndexer(tmp_path / "store", "hash", chroma="auto") as indexer:
        yield indexer


# -- keyword index ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "corpus", [["alpha"], ["alpha beta", "gamma"], ["alpha a", "alpha b", "gamma", "delta"], ["alpha"] * 5]
)
def test_a_match_scores_above_zero_however_common_its_word_is(store: DualIndexer, corpus):
    store.index_documents(documents(*corpus))
    matching = {f"d{i}" for i, text in enumerate(corpus) if "alpha" in text}
    hits = store.search("alpha", 10, mode="keyword")
    assert set(ids(hits)) == matching
    assert all(hit.score > 0 for hit in hits)
    for fusion in FUSIONS:
        both = store.search("alpha", 10, fusion=fusion)
        assert set(ids(both)[: len(matching)]) == matching


def test_the_keyword_index_is_not_padded(store: DualIndexer):
    store.index_documents(documents("苹果", "香蕉", "橙", "葡萄", "梨"))
    assert store.search("量子纠缠", mode="keyword") == []
    for fusion in FUSIONS:
        hits = store.search("量子纠缠", 5, fusion=fusion)
        assert len(hits) == 5, "the vector index still answers"
        assert all(hit.explanation.keyword is None for hit in hits)


def test_a_text_indexed_again_and_again_counts_once_and_scores_as_if_it_were_new(tmp_path: Path):
    def result(folder: str, *versions: str):
        with DualIndexer(tmp_path / folder, "hash", chroma="always") as indexer:
            indexer.index_documents([SourceDocument("other", "无关 内容")])
            for text in versions:
                indexer.index_documents([SourceDocument("d", text)])
            assert indexer.search("苹果", mode="keyword") == []
            assert indexer.stats().documents == 2
            assert indexer.verify().problems == ()
            return [(hit.doc_id, hit.text, hit.score) for mode in MODES for hit in indexer.search("价格", mode=mode)]

    assert result("edited", "苹果 价格", "香蕉 价格", "香蕉 价格", "香蕉 价格") == result("fresh", "香蕉 价格")


# -- fusion ---------------------------------------------------------------------------------------------------------


def test_equal_texts_of_two_documents_stay_two_hits_with_their_own_metadata(store: DualIndexer):
    store.index_documents([SourceDocument(name, "same line", {"source": name}) for name in ("a.md", "b.md")])
    for fusion in FUSIONS:
        hits = store.search("same line", fusion=fusion)
        assert [hit.metadata["source"] for hit in hits] == ["a.md", "b.md"]
        assert all(hit.explanation.vector and hit.explanation.keyword for hit in hits)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_weights_decide_the_order_and_an_index_of_weight_zero_has_no_effect(tmp_path: Path, fusion):
    vectors = {
        "alpha alpha alpha": [0.2, 1, 0],
        "alpha beta gamma": [1, 0.2, 0],
        "delta": [0.9, 0.3, 0],
        "alpha": [1, 0, 0],
    }
    with DualIndexer(tmp_path / "s", GivenVectors(vectors), chroma="auto") as store:
        store.index_documents(documents("alpha alpha alpha", "alpha beta gamma", "delta"))
        assert ids(store.search("alpha", weights=(1, 0), fusion=fusion)) == ["d1", "d2", "d0"]
        assert ids(store.search("alpha", weights=(0, 1), fusion=fusion)) == ["d0", "d1"]
        assert ids(store.search("alpha", 1, weights=(0.99, 0.01), fusion=fusion)) == ["d1"]


@pytest.mark.parametrize("fusion", FUSIONS)
def test_scores_stay_in_their_range_and_a_missing_index_adds_nothing(store: DualIndexer, fusion):
    store.index_documents(documents("alpha beta", "alpha", "gamma delta", "", "epsilon 中文 内容"))
    for query in ("alpha", "alpha beta", "zeta", "中文 alpha"):
        for weights in ((0.5, 0.5), (0.9, 0.1), (0.1, 0.9)):
            for hit in store.search(query, 10, fusion=fusion, weights=weights):
                assert 0 <= hit.score <= 1
                vector, keyword = hit.explanation.vector, hit.explanation.keyword
                if fusion == "convex":
                    parts = weights[0] * (vector.score if vector else 0) + weights[1] * (
                        keyword.score if keyword else 0
                    )
                    assert hit.score == pytest.approx(parts)


def test_the_length_of_vectors_does_not_matter_and_a_threshold_parts_good_from_bad(tmp_path: Path):
    vectors = {"good": [50, 1, 0], "bad": [0, 0.001, 0.02], "query": [3, 0, 0]}
    for name, options in PATHS.items():
        with DualIndexer(tmp_path / name, GivenVectors(vectors), **options) as store:
            store.index_documents(documents("bad", "good"))
            good, bad = store.search("query", mode="vector")
            assert (good.text, bad.text) == ("good", "bad")
            assert 0 <= bad.score < 0.2 < good.score <= 1
            assert ids(store.search("query", mode="vector", score_threshold=0.5)) == ["d1"]


def test_texts_without_direction_break_neither_path(tmp_path: Path):
    for name, options in PATHS.items():
        with DualIndexer(tmp_path / name, GivenVectors({"zero": [0, 0], "null": [0, 0]}, [1, 0]), **options) as store:
            store.index_documents(documents("zero", "one", "null"))
            assert len(store.search("something", 3, mode="vector")) == 3
            assert len(store.search("zero", 3, mode="vector")) == 3
            assert len(store.search("zero", 3)) == 3
            assert store.verify().problems == ()


# -- exactly k, ties ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", PATHS.values(), ids=PATHS.keys())
def test_exactly_k_come_back_when_k_exist_over_both_partitions(tmp_path: Path, options):
    with DualIndexer(tmp_path / "s", "hash", **options) as store:
        store.index_documents([SourceDocument(f"s{i}", f"common word {i}") for i in range(130)])
        store.index_documents([SourceDocument(f"p{i}", f"common word private {i}") for i in range(70)], "a")
        for k in (1, 7, 69, 70, 71, 130, 199, 200, 201, 10_000):
            for mode in MODES:
                assert len(store.search("common", k, mode=mode, agent_id="a")) == min(k, 200)
                assert len(store.search("common", k, mode=mode)) == min(k, 130)
                hits = store.search("common", k, mode=mode, agent_id="a", filter={"agent_id": "a"})
                assert len(hits) == min(k, 70)
        assert len(set(ids(store.search("common", 200, agent_id="a")))) == 200


@pytest.mark.parametrize("mode", MODES)
def test_ties_come_in_document_order_whatever_was_written_since(tmp_path: Path, mode):
    with DualIndexer(tmp_path / "s", "hash", chroma="auto") as store:
        for start in range(0, 100, 20):
            store.index_documents([SourceDocument(f"d{i:03}", "equal words") for i in range(start, start + 20)])
        assert ids(store.search("equal words", 5, mode=mode)) == [f"d{i:03}" for i in range(5)]
        store.index_documents([SourceDocument(f"d{i:03}", "equal words", {"edited": True}) for i in (3, 1)])
        assert ids(store.search("equal words", 5, mode=mode)) == [f"d{i:03}" for i in range(5)]
        assert ids(store.search("equal words", 100, mode=mode)) == [f"d{i:03}" for i in range(100)]


def test_of_passages_no_closer_than_unrelated_text_the_nearer_comes_first(tmp_path: Path):
    vectors = {"far": [0.1, 1], "near": [0.7, 0.7], "nearer": [0.8, 0.6], "query": [1, 0]}
    with DualIndexer(tmp_path / "s", GivenVectors(vectors, [0.01, 1]), chroma="auto") as store:
        store.index_documents(documents("far", "near", "nearer"))
        assert store._embedder._model.background.mean > 0.99, "the model finds everything alike"
        for mode in ("vector", "hybrid"):
            hits = store.search("query", mode=mode)
            assert [hit.text for hit in hits] == ["nearer", "near", "far"]
            assert {hit.score for hit in hits} == {0.0}


def test_the_order_of_writing_changes_no_score(tmp_path: Path):
    texts = [
        f"{a} {b} {c}"
        for a in ("alpha", "beta")
        for b in ("gamma", "delta", "中文")
        for c in ("epsilon", "检索", "zeta")
    ]
    results = []
    for seed in range(3):
        shuffled = documents(*texts)
        random.Random(seed).shuffle(shuffled)
        with DualIndexer(tmp_path / f"s{seed}", "hash", chroma="auto") as store:
            for start in range(0, len(shuffled), 5):
                store.index_documents(shuffled[start : start + 5])
            results.append(
                {
                    (mode, hit.doc_id, hit.score)
                    for mode in MODES
                    for hit in store.search("alpha 中文 zeta", 99, mode=mode)
                }
            )
    assert results[0] == results[1] == results[2]


# -- filters and agents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("k", [1, 5, 100])
@pytest.mark.parametrize("options", PATHS.values(), ids=PATHS.keys())
def test_no_hit_is_outside_the_filter_or_the_agent_whatever_k(tmp_path: Path, mode, k, options):
    with DualIndexer(tmp_path / "s", "hash", **options) as store:
        for agent, count in (("a1", 2), ("a2", 50)):
            store.index_documents(
                [
                    SourceDocument(f"{agent}-{i}", f"same words {i}", {"lang": "zh" if i % 2 else "en"})
                    for i in range(count)
                ],
                agent,
            )
        hits = store.search("same words", k, mode=mode, agent_id="a1", filter={"lang": "zh"})
        assert ids(hits) == ["a1-1"]
        assert ids(store.search("same words", k, mode=mode, agent_id="a1", filter={"lang": {"$in": []}})) == []


# -- degraded indexes --------------------------------------------------------------------------------------------------


def break_keywords(store: DualIndexer, monkeypatch) -> None:
    def broken(partition):
        raise StoreError("the keyword index is broken")

    monkeypatch.setattr(store._store.indexes, "keyword_index", broken)


def test_a_failing_model_leaves_the_keyword_index_and_is_reported(tmp_path: Path, caplog):
    model = FailingEmbeddings()
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        store.index_documents(documents("apple pie", "unrelated"))
        store.search("warm up")
        model.queries_fail = True
        hits = store.search("apple")
        assert ids(hits) == ["d0"]
        assert len(hits.degraded) == 1
        assert hits.degraded[0].startswith("vector: ")
        assert "the model is gone" in hits.degraded[0]
        assert "without the vector index" in caplog.text
        assert store.search("apple", mode="keyword").degraded == ()
        assert store.search("apple", weights=(0, 1)).degraded == ()
        with pytest.raises(RetrievalError, match="the model is gone"):
            store.search("apple", mode="vector")
        with pytest.raises(RetrievalError):
            store.search("apple", weights=(1, 0))
        model.queries_fail = False
        assert store.search("apple").degraded == ()


def test_a_model_that_exceeds_its_timeout_leaves_the_keyword_index(tmp_path: Path):
    model = SlowEmbeddings()
    with DualIndexer(tmp_path / "s", model, chroma="auto", embed_timeout=0.2) as store:
        store.index_documents(documents("apple pie"))
        store.search("warm up")
        model.seconds = 1.0
        started = time.monotonic()
        hits = store.search("apple")
        assert time.monotonic() - started < 0.9
        assert ids(hits) == ["d0"]
        assert hits.degraded == ("vector: timeout after 0.2 s",)
        assert asyncio.run(store.asearch("apple")).degraded == ("vector: timeout after 0.2 s",)
        with pytest.raises(RetrievalError, match="timeout"):
            store.search("apple", mode="vector")


def test_a_failing_keyword_index_leaves_the_vector_index_and_is_reported(store: DualIndexer, monkeypatch):
    store.index_documents(documents("apple pie", "apple"))
    break_keywords(store, monkeypatch)
    hits = store.search("apple")
    assert len(hits) == 2
    assert hits.degraded == ("keyword: the keyword index is broken",)
    with pytest.raises(RetrievalError, match="the keyword index is broken"):
        store.search("apple", mode="keyword")


@pytest.mark.parametrize("mode", ["search", "asearch", "invoke"])
def test_when_both_indexes_fail_it_is_an_error_and_not_an_empty_list(tmp_path: Path, monkeypatch, mode):
    model = FailingEmbeddings()
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        store.index_documents(documents("apple pie"))
        model.queries_fail = True
        break_keywords(store, monkeypatch)
        faces = {
            "search": lambda: store.search("apple"),
            "asearch": lambda: asyncio.run(store.asearch("apple")),
            "invoke": lambda: HybridRetriever(indexer=store).invoke("apple"),
        }
        with pytest.raises(RetrievalError, match=r"the model is gone.*the keyword index is broken.*repair\(\)"):
            faces[mode]()


def test_a_model_that_is_down_at_the_first_search_is_measured_when_it_is_back(tmp_path: Path):
    """Its background similarity is not assumed for good on account of one bad moment."""
    model = FailingEmbeddings(after=2)
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        store.index_documents(documents("apple pie", "apple"))
        assert len(store.search("apple")) == 2
        assert store._store.catalog.manifest_value("background") is None
    model.after = None
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        store.search("apple")
        assert store._store.catalog.manifest_value("background") is not None


# -- async ----------------------------------------------------------------------------------------------------------


async def test_async_search_gives_what_search_gives(store: DualIndexer):
    store.index_documents(documents("apple pie", "apple", "pear 中文"), "a")
    for mode in MODES:
        assert await store.asearch("apple 中文", 2, mode=mode, agent_id="a") == store.search(
            "apple 中文", 2, mode=mode, agent_id="a"
        )
    assert await store.asearch("") == []
    assert await store.for_agent("a").asearch("apple") == store.for_agent("a").search("apple")
    assert await store.aread("d0", agent_id="a") == store.read("d0", agent_id="a")
    assert (await store.aindex_documents(["more"])).added == 1
    assert (await store.adelete("d2", agent_id="a")).deleted == 1
    assert (await store.aforget_agent("a")).deleted == 2


async def test_a_slow_search_does_not_block_the_event_loop(tmp_path: Path):
    model = SlowEmbeddings()
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        await store.aindex_documents(documents("apple pie"))
        await store.asearch("warm up")
        model.seconds = 0.5
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.02)
                ticks += 1

        ticking = asyncio.create_task(tick())
        results = await asyncio.gather(*(store.asearch("apple") for _ in range(4)))
        ticking.cancel()
        assert all(ids(hits) == ["d0"] for hits in results)
        assert ticks >= 5


def test_threads_may_search_and_write_at_once(tmp_path: Path):
    from concurrent.futures import ThreadPoolExecutor

    with DualIndexer(tmp_path / "s", RecordingEmbeddings(), chroma="always") as store:
        store.index_documents(documents("apple zero"))

        def work(number: int) -> int:
            if number % 4 == 0:
                store.index_documents([SourceDocument(f"w{number}", f"apple {number}")])
            hits = store.search("apple", 50)
            assert hits.degraded == ()
            return len(hits)

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(work, range(40)))
        assert min(results) >= 1
        assert len(store.search("apple", 50)) == 11
        assert store.verify().problems == ()
