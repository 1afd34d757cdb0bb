"""Choosing among ranked candidates: caps and maximal marginal relevance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.search.postprocess import maximal_marginal_relevance
from langchain_agentrag.search.ranking import cap_per_group

EYE = np.eye(4, dtype=np.float32)


def test_a_cap_keeps_the_best_of_each_group_in_order():
    rows = [("a1", "a"), ("b1", "b"), ("a2", "a"), ("a3", "a"), ("c1", "c")]
    assert cap_per_group(rows, 1) == ["a1", "b1", "c1"]
    assert cap_per_group(rows, 2) == ["a1", "b1", "a2", "c1"]
    assert cap_per_group(rows, None) == ["a1", "b1", "a2", "a3", "c1"]


def test_without_diversity_the_order_stays():
    assert maximal_marginal_relevance([0.9, 0.5, 0.5, 0.1], EYE, 3, 0.0) == [0, 1, 2]


def test_of_two_that_say_the_same_one_waits():
    vectors = EYE[[0, 0, 1, 2]]
    assert maximal_marginal_relevance([0.9, 0.89, 0.5, 0.4], vectors, 3, 0.5) == [0, 2, 3]
    assert maximal_marginal_relevance([0.9, 0.89, 0.5, 0.4], vectors, 4, 0.5) == [0, 2, 3, 1]


def test_likeness_counts_from_the_models_background():
    """Cosines of .85 are as good as unrelated where unrelated texts have .85."""
    near = np.array([[1, 0], [0.85, np.sqrt(1 - 0.85**2)], [0.0, 1.0]], dtype=np.float32)
    assert maximal_marginal_relevance([0.9, 0.8, 0.3], near, 2, 0.5, background=0.85) == [0, 1]
    assert maximal_marginal_relevance([0.9, 0.8, 0.3], near, 2, 0.5, background=0.0) == [0, 2]


def test_zero_vectors_and_no_candidates_raise_no_error():
    assert maximal_marginal_relevance([0.5, 0.4], np.zeros((2, 3), dtype=np.float32), 2, 0.7) == [0, 1]
    assert maximal_marginal_relevance([], np.zeros((0, 3), dtype=np.float32), 5, 0.7) == []


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12), st.integers(1, 15), st.floats(0, 1), st.integers(0, 2**32 - 1)
)
def test_exactly_k_different_places_the_best_first(scores, k, diversity, seed):
    ranked = sorted(scores, reverse=True)
    vectors = np.random.default_rng(seed).normal(size=(len(ranked), 5)).astype(np.float32)
    chosen = maximal_marginal_relevance(ranked, vectors, k, diversity)
    assert len(chosen) == len(set(chosen)) == min(k, len(ranked))
    assert chosen[0] == 0 or diversity == 1 or ranked[chosen[0]] == pytest.approx(ranked[0], abs=1e-9)
