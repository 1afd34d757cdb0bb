"""Exact scoring: the same cosine wherever a row stands, the true best rows, and columns that agree with conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.filters import Condition
from langchain_agentrag.store.columnar_cache import Column, cosines, filter_view, top_rows, unit_vectors, unpack_vectors

VALUES = [
    None,
    True,
    False,
    1,
    1.0,
    "1",
    0,
    0.0,
    -0.0,
    "",
    [1],
    [True],
    [1.0],
    {"a": 1},
    {"a": True},
    float("nan"),
    2**70,
]


def random_vectors(seed: int, rows: int, dimension: int = 24) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, dimension)).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 100])
def test_a_row_has_the_same_cosine_to_the_last_bit_whatever_stands_beside_it(rows: int):
    vectors, query = random_vectors(1, 100), random_vectors(2, 1)[0]
    together = cosines(vectors, query)
    for start in range(0, 100, rows):
        assert (cosines(vectors[start : start + rows], query) == together[start : start + rows]).all()


def test_cosines_stay_in_range_and_a_zero_vector_is_near_nothing():
    vectors = np.array([[3, 0], [-5, 0], [0, 0], [1e-30, 0], [1e30, 1e30]], dtype=np.float32)
    actual = cosines(vectors, np.array([2, 0], dtype=np.float32))
    assert actual.tolist() == pytest.approx([1, -1, 0, 1, 2**-0.5])
    assert cosines(vectors, np.zeros(2, dtype=np.float32)).tolist() == [0] * 5


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 70))
def test_the_best_rows_are_always_among_the_chosen(seed: int, rows: int, limit: int):
    vectors, query = unit_vectors(random_vectors(seed, rows, 5)), random_vectors(seed + 1, 1, 5)[0]
    ids = np.arange(10, 10 + rows)
    best_rows = [row for row, _ in top_rows(ids, vectors, query, limit)]
    truth = sorted(range(rows), key=lambda place: -cosines(vectors[place : place + 1], query)[0])[:limit]
    assert set(ids[truth]) <= set(best_rows)
    assert len(best_rows) >= min(limit, rows)
    assert len(best_rows) == len(set(best_rows))


def test_rows_that_tie_with_the_last_are_chosen_too():
    vectors = unit_vectors(np.array([[1, 0]] * 6 + [[0, 1]] * 3, dtype=np.float32))
    assert [row for row, _ in top_rows(np.arange(9), vectors, np.array([1, 0], dtype=np.float32), 2)] == list(range(6))


def test_no_rows_give_no_rows():
    assert (
        top_rows(np.empty(0, dtype=np.int64), np.empty((0, 3), dtype=np.float32), np.ones(3, dtype=np.float32), 5) == []
    )
    assert unpack_vectors([]).shape == (0, 0)


@given(
    st.lists(st.sampled_from(VALUES) | st.just(...), max_size=20), st.sampled_from(["$eq", "$ne", "$contains", "$gt"])
)
def test_a_column_gives_the_verdict_of_the_condition_for_every_row(values: list, op: str):
    """An Ellipsis stands for a row without the key."""
    column = Column()
    pairs = [(None, False) if value is ... else (value, True) for value in values]
    for half in (pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]):
        column.extend(iter(half))
    for operand in (1, "1"):
        condition = Condition("k", op, operand)
        assert column.test(condition).tolist() == [condition.test(*pair) for pair in pairs]
    exists = Condition("k", "$exists", True)
    assert column.test(exists).tolist() == [present for _, present in pairs]


def test_a_column_forgets_the_rows_that_die():
    column = Column()
    column.extend(iter([("a", True), ("b", True), ("a", True)]))
    column.keep(np.array([False, True, True]))
    assert column.test(Condition("k", "$eq", "a")).tolist() == [False, True]


def test_what_a_filter_sees_is_the_place_then_the_metadata_then_the_true_owner_and_id():
    view = filter_view("a", "d", {"page": 9, "agent_id": "b", "doc_id": "x", "k": 1}, '{"page":1,"line":2}')
    assert view == {"page": 9, "line": 2, "k": 1, "agent_id": "a", "doc_id": "d"}
    assert filter_view(None, "d", {"agent_id": "b"}, "{}")["agent_id"] is None
