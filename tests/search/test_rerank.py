"""The second opinion: who may give it, and what it may do to hits."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_agentrag import DualIndexer
from langchain_agentrag.errors import InvalidQueryError, MissingExtraError
from langchain_agentrag.search.rerank import check_reranker, rerank
from langchain_agentrag.types import Hit

HITS = [Hit(f"d{number}", number, f"文本 text {number}", 0.9 - number / 10) for number in range(4)]


class Compressor:
    """What LangChain calls a document compressor."""

    def __init__(self, answer):
        self.answer = answer

    def compress_documents(self, documents, query, callbacks=None):
        return self.answer(documents)


def timed_out():
    raise TimeoutError("the service is busy")


def scored(documents, score):
    return [Document("", metadata={**document.metadata, "relevance_score": score}) for document in documents]


def ids(hits):
    return [hit.doc_id for hit in hits]


@pytest.mark.parametrize("wrong", [5, "", Compressor, [1.0]])
def test_what_cannot_rerank_is_refused(wrong):
    with pytest.raises(InvalidQueryError, match="Cannot rerank"):
        check_reranker(wrong)


def test_scores_decide_and_ties_keep_the_order():
    assert ids(rerank(lambda query, texts: [0.1, 0.7, 0.7, 0.3], "q", HITS).hits) == ["d1", "d2", "d3", "d0"]


def test_logits_become_scores_between_0_and_1_in_the_same_order():
    ranked = rerank(lambda query, texts: [-800.0, 12.5, 0.0, -3.0], "q", HITS).hits
    assert ids(ranked) == ["d1", "d2", "d3", "d0"]
    assert all(0 <= hit.score <= 1 for hit in ranked)


def test_texts_stay_as_stored_whatever_a_compressor_does_to_them():
    def rewrite(documents):
        return [Document("rewritten", metadata=document.metadata) for document in reversed(documents)]

    ranked = rerank(Compressor(rewrite), "q", HITS).hits
    assert ids(ranked) == ["d3", "d2", "d1", "d0"]
    assert {hit.text for hit in ranked} == {hit.text for hit in HITS}


def test_a_compressor_that_cuts_a_passage_in_two_gives_one_hit():
    ranked = rerank(Compressor(lambda documents: [documents[2], documents[2], documents[0]]), "q", HITS).hits
    assert ids(ranked) == ["d2", "d0"]


@pytest.mark.parametrize(
    "broken",
    [
        lambda query, texts: 1 / 0,
        lambda query, texts: [1.0],
        lambda query, texts: timed_out(),
        Compressor(lambda documents: timed_out()),
        lambda query, texts: [float("nan")] * 4,
        lambda query, texts: ["high"] * 4,
        lambda query, texts: None,
        Compressor(lambda documents: 1 / 0),
        Compressor(lambda documents: [Document("from nowhere")]),
        Compressor(lambda documents: [Document("from nowhere", metadata={"agentrag_position": -1})]),
        Compressor(lambda documents: scored(documents, float("nan"))),
        Compressor(lambda documents: scored(documents, float("inf"))),
    ],
)
def test_a_broken_reranker_leaves_the_order_and_is_named(broken):
    for timeout in (None, 30):
        ranked = rerank(broken, "q", HITS, timeout)
        assert ranked.hits == HITS
        assert "reranker" in ranked.warning


def test_no_hits_are_not_sent_to_it():
    assert rerank(lambda query, texts: 1 / 0, "q", []).hits == []


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4))
def test_nothing_is_lost_or_made_up(scores):
    ranked = rerank(lambda query, texts: scores, "q", HITS).hits
    assert sorted(ids(ranked)) == sorted(ids(HITS))
    assert [scores[hit.chunk_id] for hit in ranked] == sorted(scores, reverse=True)


# ----- the time budget


def test_a_reranker_that_never_answers_costs_its_time_and_nothing_else():
    gate = threading.Event()
    ranked = rerank(lambda query, texts: gate.wait(60), "q", HITS, 0.05)
    gate.set()
    assert ranked.hits == HITS
    assert "0 of 4 hits within 0.05 s" in ranked.warning


def test_a_compressor_that_never_answers_is_not_waited_for():
    gate = threading.Event()
    ranked = rerank(Compressor(lambda documents: gate.wait(60)), "q", HITS, 0.05)
    gate.set()
    assert ranked.hits == HITS
    assert "0.05 s" in ranked.warning


def test_what_was_judged_in_time_is_put_in_order_and_the_rest_stays_behind():
    many = [Hit(f"d{number}", number, "text", 0.9 - number / 100) for number in range(20)]
    gate = threading.Event()

    def slower_and_slower(query, texts):
        if "d0" not in scored:
            scored.append("d0")
            return [float(number) / 10 for number in range(len(texts))]
        gate.wait(60)
        return [1.0] * len(texts)

    scored: list[str] = []
    ranked = rerank(slower_and_slower, "q", many, 0.5)
    gate.set()
    assert ids(ranked.hits) == [f"d{n}" for n in (7, 6, 5, 4, 3, 2, 1, 0, *range(8, 20))]
    scores = [hit.score for hit in ranked.hits]
    assert scores == sorted(scores, reverse=True)
    assert "8 of 20" in ranked.warning


def test_enough_time_gives_the_same_as_no_limit():
    many = [Hit(f"d{number}", number, f"text {number * 7 % 20}", 0.9 - number / 100) for number in range(20)]

    def judge(query, texts):
        return [float(text.split()[1]) - 10 for text in texts]

    assert rerank(judge, "q", many, 60) == rerank(judge, "q", many)


def test_a_search_names_the_reranker_that_was_too_slow(tmp_path: Path):
    gate = threading.Event()
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents(["油泵 pump one", "油泵 pump two"])
        plain = indexer.search("油泵 pump")
        hits = indexer.search("油泵 pump", reranker=lambda query, texts: gate.wait(60), rerank_timeout=0.05)
        gate.set()
        assert [hit.doc_id for hit in hits] == [hit.doc_id for hit in plain]
        assert hits.degraded[0].startswith("rerank: ")
        for wrong in (0, -1, True, "1", float("nan"), float("inf")):
            with pytest.raises(InvalidQueryError, match="rerank_timeout"):
                indexer.search("油泵", rerank_timeout=wrong)


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is not None, reason="sentence-transformers is installed"
)
@pytest.mark.parametrize(
    "second",
    [
        lambda query, texts: [0.1 if "油" in text else 0.9 for text in texts],
        lambda query, texts: [-4.0 if "油" in text else 4.0 for text in texts],
        Compressor(lambda documents: scored(documents, 0.1)),
        lambda query, texts: 1 / 0,
    ],
)
def test_no_hit_has_less_than_the_threshold_whoever_gave_the_score(second, tmp_path: Path):
    with DualIndexer(tmp_path, "hash") as indexer:
        indexer.index_documents([Document(f"pump 泵 {oil}", id=oil) for oil in ("油", "oil", "gas", "气")])
        hits = indexer.search("pump 泵", k=4, reranker=second, score_threshold=0.3, explain=True)
        assert all(hit.score >= 0.3 for hit in hits)
        assert hits.trace is not None
        assert {hit.doc_id for hit in hits} | {one.doc_id for one in hits.trace.dropped} == {"油", "oil", "gas", "气"}
        assert all("below the threshold" in one.reason for one in hits.trace.dropped)


def test_a_cross_encoder_by_name_needs_its_extra():
    with pytest.raises(MissingExtraError, match=r"langchain-agentrag\[rerank\]"):
        check_reranker("BAAI/bge-reranker-v2-m3")
