"""What a search may be asked, and what is refused before any work is done."""

from __future__ import annotations

import math

import numpy as np
import pytest

from langchain_agentrag.errors import FilterError, InvalidQueryError, ScopeError
from langchain_agentrag.search.options import check_request


def request(query="word", k=5, agent_id=None, **options):
    return check_request(query, k, agent_id=agent_id, options=options)


def test_what_is_left_out_has_a_documented_value():
    options = request()
    assert (options.mode, options.weights, options.fusion, options.fetch_k, options.score_threshold) == (
        "hybrid",
        None,
        "adaptive",
        5,
        None,
    )
    assert (options.max_per_document, options.diversity, options.condition, options.vector, options.scope.agent_id) == (
        None,
        0.0,
        None,
        None,
        None,
    )
    nothing = dict.fromkeys(
        ("filter", "weights", "fetch_k", "score_threshold", "max_per_document", "diversity", "vector")
    )
    assert request(**nothing) == options


@pytest.mark.parametrize(
    ("mode", "weights", "vectors", "keywords"),
    [
        ("hybrid", (0.5, 0.5), True, True),
        ("hybrid", (1, 0), True, False),
        ("hybrid", (0, 1), False, True),
        ("vector", (0, 1), True, False),
        ("keyword", (1, 0), False, True),
    ],
)
def test_an_index_is_searched_when_its_weight_is_not_zero(mode, weights, vectors, keywords):
    options = request(mode=mode, weights=weights)
    assert (options.uses_vector_index, options.uses_keyword_index) == (vectors, keywords)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k=0"),
        ({"k": np.bool_(True)}, "k="),
        ({"fetch_k": 0}, "fetch_k=0"),
        ({"max_per_document": -1}, "max_per_document=-1"),
        ({"score_threshold": 1.5}, r"score_threshold=1\.5.*score=\"cosine\""),
        ({"score_threshold": -0.1}, r"score_threshold=-0\.1"),
        ({"score": "cosine", "score_threshold": 1.5}, "from -1 to 1"),
        ({"score": "bm25", "score_threshold": -1}, ">= 0"),
        ({"score": "distance"}, "fused, cosine, bm25"),
        ({"score": "cosine", "mode": "keyword"}, "without the vector index"),
        ({"score": "cosine", "weights": (0, 1)}, "without the vector index"),
        ({"score": "bm25", "mode": "vector"}, "without the keyword index"),
        ({"score": "bm25", "weights": (1, 0)}, "without the keyword index"),
        ({"score_threshold": math.nan}, "score_threshold=nan"),
        ({"diversity": True}, "diversity=True"),
        ({"diversity": "much"}, "diversity='much'"),
        ({"vector": "abc"}, "vector"),
        ({"vector": []}, "vector"),
        ({"vector": [math.nan]}, "vector"),
        ({"vector": [[1.0]]}, "vector"),
        ({"mode": "semantic"}, "semantic"),
        ({"weights": (0, 0)}, "weights"),
        ({"fusion": "magic"}, "magic"),
        ({"top_k": 3}, "top_k"),
        ({"filters": {}}, "Did you mean 'filter'"),
        ({"agent": "b"}, "for_agent"),
        ({"query": None}, "NoneType"),
    ],
    ids=repr,
)
def test_an_impossible_option_is_refused_with_its_name(options: dict, message: str):
    with pytest.raises(InvalidQueryError, match=message):
        request(**options)


def test_filters_and_agents_are_checked_too():
    with pytest.raises(FilterError):
        request(filter={"$nope": 1})
    with pytest.raises(ScopeError):
        request(agent_id="")


def test_more_is_fetched_where_there_is_a_choice_to_make():
    assert request(k=5, diversity=0.5).fetch_k == 20
    assert request(k=5, diversity=0.5, fetch_k=7).fetch_k == 7
    assert request(k=5, fetch_k=2).fetch_k == 5


@pytest.mark.parametrize("query", ["", " ", "\u3000", "？？？", "\u200b", "——", "()"])
def test_a_query_without_words_is_blank_unless_it_has_a_vector(query: str):
    assert request(query).is_blank
    assert not request(query, vector=[1.0]).is_blank
    assert not request(query + "x").is_blank


def test_a_stage_is_run_for_its_option_and_for_a_reranker_without_length():
    class EmptyReranker(list):
        def __call__(self, query, texts):
            return [1.0 for _ in texts]

    stages = [{"reranker": EmptyReranker()}, {"collapse": True}, {"diversity": 0.5}, {"neighbours": 1}]
    assert all(request(**options).needs_postprocessing for options in stages)
    neutral = {"collapse": False, "diversity": 0, "neighbours": 0, "reranker": None}
    assert not request(**neutral).needs_postprocessing
