"""What every vector index must do: one check per sentence of `store.protocols.VectorIndex`."""

from __future__ import annotations

import random

import numpy as np
import pytest

from langchain_agentrag.store.protocols import VectorIndex
from tests.contracts.reference import MemoryVectors


def vectors(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=np.float32)


class VectorIndexContract:
    """`make()` gives an empty index, `reopen(index)` the same index as another process would open it."""

    def test_it_has_the_methods_of_the_protocol(self, make, reopen):
        assert isinstance(make(), VectorIndex)

    def test_an_empty_index_answers_everything_with_nothing(self, make, reopen):
        index = make()
        index.add([], vectors())
        index.delete([])
        index.delete([7])
        assert (index.count(), list(index.rows())) == (0, [])
        assert index.nearest(vectors([1, 0])[0], 3) == []

    def test_the_nearest_come_first_with_their_cosine(self, make, reopen):
        index = make()
        index.add([1, 2, 3], vectors([1, 0], [1, 1], [-1, 0]))
        pairs = index.nearest(vectors([1, 0])[0], 3)
        assert [row for row, _ in pairs] == [1, 2, 3]
        assert [cosine for _, cosine in pairs] == pytest.approx([1, 0.5**0.5, -1], abs=1e-5)

    def test_lengths_of_vectors_do_not_matter(self, make, reopen):
        index = make()
        index.add([1, 2], vectors([0.01, 0.001], [90, 100]))
        for scale in (0.01, 1, 100):
            pairs = index.nearest(vectors([scale, 0])[0], 2)
            assert [row for row, _ in pairs] == [1, 2]
            assert pairs[0][1] == pytest.approx(0.99504, abs=1e-4)

    def test_never_more_than_the_limit_and_never_fewer_when_there_are(self, make, reopen):
        index = make()
        index.add(list(range(1, 21)), np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32))
        for limit in (1, 7, 20, 50):
            assert len(index.nearest(np.ones(8, dtype=np.float32), limit)) == min(limit, 20)

    def test_what_is_deleted_is_gone_and_the_rest_stays(self, make, reopen):
        index = make()
        index.add([1, 2, 3], vectors([1, 0], [0.9, 0.1], [0, 1]))
        index.delete([1, 99])
        index.delete([1])
        assert [row for row, _ in index.nearest(vectors([1, 0])[0], 3)] == [2, 3]
        assert (list(index.rows()), index.count()) == ([2, 3], 2)

    def test_adding_a_row_twice_is_harmless(self, make, reopen):
        index = make()
        index.add([1, 2], vectors([1, 0], [0, 1]))
        index.add([2], vectors([0, 1]))
        assert index.count() == 2
        assert [row for row, _ in index.nearest(vectors([0, 1])[0], 5)] == [2, 1]

    def test_equal_vectors_of_two_rows_are_two_results(self, make, reopen):
        index = make()
        index.add([4, 9], vectors([1, 0], [1, 0]))
        assert {row for row, _ in index.nearest(vectors([1, 0])[0], 5)} == {4, 9}

    def test_a_zero_vector_is_stored(self, make, reopen):
        index = make()
        index.add([1, 2], vectors([0, 0], [1, 0]))
        assert list(index.rows()) == [1, 2]
        assert index.nearest(vectors([1, 0])[0], 1)[0][0] == 2

    def test_large_row_ids_survive(self, make, reopen):
        index = make()
        index.add([2**40, 3], vectors([1, 0], [0, 1]))
        assert list(index.rows()) == [3, 2**40]
        assert index.rows().dtype == np.int64

    def test_batches_of_any_size_are_taken(self, make, reopen):
        index = make()
        index.add(list(range(6_000)), np.random.default_rng(2).normal(size=(6_000, 2)).astype(np.float32))
        assert index.count() == 6_000
        index.delete(list(range(5_990)))
        assert list(index.rows()) == list(range(5_990, 6_000))

    def test_writes_are_durable(self, make, reopen):
        index = make()
        index.add([1, 2], vectors([1, 0], [0, 1]))
        index.delete([2])
        again = reopen(index)
        assert list(again.rows()) == [1]
        assert [row for row, _ in again.nearest(vectors([1, 0])[0], 5)] == [1]

    def test_it_agrees_with_the_reference_through_a_random_life(self, make, reopen):
        dice, numbers = random.Random(6), np.random.default_rng(6)
        index, oracle, following = make(), MemoryVectors(), 1
        for _ in range(8):
            fresh = list(range(following, following + dice.randint(0, 15)))
            following += len(fresh)
            drawn = numbers.normal(size=(len(fresh), 16)).astype(np.float32)
            dead = dice.sample(range(1, following + 1), k=min(following, dice.randint(0, 6)))
            for one in (index, oracle):
                one.add(fresh, drawn)
                one.delete(dead)
            query = numbers.normal(size=16).astype(np.float32)
            assert list(index.rows()) == list(oracle.rows())
            ours, theirs = index.nearest(query, 5), oracle.nearest(query, 5)
            assert [row for row, _ in ours] == [row for row, _ in theirs]
            assert [cosine for _, cosine in ours] == pytest.approx([c for _, c in theirs], abs=1e-4)
