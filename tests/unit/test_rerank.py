"""The second opinion: who may give it, and what it may do to hits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_agentrag.errors import InvalidQueryError, RetrievalError
from langchain_agentrag.records import Hit
from langchain_agentrag.search.rerank import check_reranker, rerank

HITS = [Hit(f"d{number}", number, f"文本 text {number}", 0.9 - number / 10) for number in range(4)]


class Compressor:
    """What LangChain calls a document compressor."""

    def __init__(self, answer):
        self.answer = answer

    def compress_documents(self, documents, query, callbacks=None):
        return self.answer(documents)


def ids(hits):
    return [hit.doc_id for hit in hits]


@pytest.mark.parametrize("wrong", [5, "bge-reranker", Compressor, [1.0]])
def test_what_cannot_rerank_is_refused(wrong):
    with pytest.raises(InvalidQueryError, match="Cannot rerank"):
        check_reranker(wrong)


def test_scores_decide_and_ties_keep_the_order():
    assert ids(rerank(lambda query, texts: [0.1, 0.7, 0.7, 0.3], "q", HITS)) == ["d1", "d2", "d3", "d0"]


def test_logits_become_scores_between_0_and_1_in_the_same_order():
    ranked = rerank(lambda query, texts: [-800.0, 12.5, 0.0, -3.0], "q", HITS)
    assert ids(ranked) == ["d1", "d2", "d3", "d0"]
    assert all(0 <= hit.score <= 1 for hit in ranked)


def test_texts_stay_as_stored_whatever_a_compressor_does_to_them():
    def rewrite(documents):
        return [Document("rewritten", metadata=document.metadata) for document in reversed(documents)]

    ranked = rerank(Compressor(rewrite), "q", HITS)
    assert ids(ranked) == ["d3", "d2", "d1", "d0"]
    assert {hit.text for hit in ranked} == {hit.text for hit in HITS}


def test_a_compressor_that_cuts_a_passage_in_two_gives_one_hit():
    ranked = rerank(Compressor(lambda documents: [documents[2], documents[2], documents[0]]), "q", HITS)
    assert ids(ranked) == ["d2", "d0"]


@pytest.mark.parametrize(
    "broken",
    [
        lambda query, texts: 1 / 0,
        lambda query, texts: [1.0],
        lambda query, texts: [float("nan")] * 4,
        lambda query, texts: ["high"] * 4,
        lambda query, texts: None,
        Compressor(lambda documents: 1 / 0),
        Compressor(lambda documents: [Document("from nowhere")]),
    ],
)
def test_a_broken_reranker_is_one_kind_of_error(broken):
    with pytest.raises(RetrievalError, match="reranker"):
        rerank(broken, "q", HITS)


def test_no_hits_are_not_sent_to_it():
    assert rerank(lambda query, texts: 1 / 0, "q", []) == []


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4))
def test_nothing_is_lost_or_made_up(scores):
    ranked = rerank(lambda query, texts: scores, "q", HITS)
    assert sorted(ids(ranked)) == sorted(ids(HITS))
    assert [scores[hit.chunk_id] for hit in ranked] == sorted(scores, reverse=True)
