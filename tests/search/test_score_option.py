"""The option `score`: hits carry the cosine or the BM25 of the passage, a threshold means it, the order stays."""

from __future__ import annotations

import pytest

from langchain_agentrag import DualIndexer, SourceDocument
from tests.fakes import GivenVectors

VECTORS = {"泵 pump": [1, 0, 0], "same": [0.8, 0.6, 0], "far pump": [0, 0, 1], "against": [-1, 0, 0]}
QUERY = "泵 pump"


@pytest.fixture(params=[{"chroma": "auto"}, {"chroma": "always", "exact_limit": 0}], ids=["exact", "approximate"])
def indexer(request, tmp_path):
    with DualIndexer(tmp_path / "s", GivenVectors(VECTORS, [0, 1, 1]), **request.param) as opened:
        opened.index_documents([SourceDocument(text, text) for text in VECTORS])
        yield opened


def scores(hits):
    return {hit.doc_id: hit.score for hit in hits}


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_cosine_is_that_of_the_vectors_and_the_order_is_that_of_the_search(indexer, mode):
    fused, cosine = (indexer.search(QUERY, 9, mode=mode, score=score) for score in ("fused", "cosine"))
    assert [hit.doc_id for hit in cosine] == [hit.doc_id for hit in fused]
    assert scores(cosine) == pytest.approx({"泵 pump": 1.0, "same": 0.8, "far pump": 0.0, "against": -1.0})
    assert all(hit.score == hit.explanation.vector.raw for hit in cosine)


@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
def test_bm25_is_that_of_the_words_and_0_without_one(indexer, mode):
    found = scores(indexer.search(QUERY, 9, mode=mode, score="bm25"))
    assert found.pop("泵 pump") > found.pop("far pump") > 0
    assert set(found.values()) <= {0.0}


def test_a_threshold_means_the_score_asked_for(indexer):
    def ids(**options):
        return [hit.doc_id for hit in indexer.search(QUERY, 9, **options)]

    for mode in ("hybrid", "vector"):
        assert ids(mode=mode, score="cosine", score_threshold=0.99) == ["泵 pump"]
        assert ids(mode=mode, score="cosine", score_threshold=0.79) == ["泵 pump", "same"]
        assert len(ids(mode=mode, score="cosine", score_threshold=-1)) == len(ids(mode=mode, score="cosine")) == 4
    lowest = scores(indexer.search(QUERY, 9, mode="keyword", score="bm25"))["far pump"]
    assert ids(score="bm25", score_threshold=lowest) == ids(mode="keyword", score="bm25")
    assert ids(score="bm25", score_threshold=lowest * 1.01) == ["泵 pump"]


def test_later_stages_keep_the_score_and_a_reranker_cannot_hide_a_hit_that_reached_the_threshold(indexer):
    def backwards(query, texts):
        return [-float(place == texts.index(QUERY)) for place in range(len(texts))]

    options = {"score": "cosine", "score_threshold": 0.5, "explain": True}
    hits = indexer.search(QUERY, 9, reranker=backwards, **options)
    assert [(hit.doc_id, round(hit.score, 3)) for hit in hits] == [("same", 0.8), ("泵 pump", 1.0)]
    assert {dropped.doc_id: dropped.reason for dropped in hits.trace.dropped} == dict.fromkeys(
        ["far pump", "against"], "below the threshold of 0.5"
    )
    for later in ({"diversity": 0.5}, {"collapse": True}, {"neighbours": 1}):
        assert scores(indexer.search(QUERY, 9, **options, **later)) == pytest.approx({"泵 pump": 1.0, "same": 0.8})
