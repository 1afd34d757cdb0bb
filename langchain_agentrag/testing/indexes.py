"""Conformance tests of index backends, to inherit from: what `store.protocols` demands of every implementation.

class TestMyVectorIndex(VectorIndexConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    def make_index(self):
        return MyVectorIndex(self.folder)

    def reopen(self, index):
        index.close()
        return MyVectorIndex(self.folder)
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from langchain_agentrag.store.protocols import KeywordIndex, Rows, TermWeights, VectorIndex, Vectors
from langchain_agentrag.testing.conformance import expect, expect_close, expect_equal
from langchain_agentrag.text import Terms

_VOCABULARY = ["数据", "据库", "alpha", "c++", "10.20.30.40", "🚀", "の", "ora-00942", "beta", "gamma"]
_FIELDS = ("words", "grams", "context")
_ALPHA: TermWeights = {"words": {"alpha": 1.0}}


class KeywordIndexConformance(ABC):
    """Conformance tests of a `KeywordIndex`: one per sentence of the protocol."""

    @abstractmethod
    def make_index(self) -> KeywordIndex:
        """Create an empty index; called once per test."""

    @abstractmethod
    def reopen(self, index: KeywordIndex) -> KeywordIndex:
        """Close the index and return it as another process would open it."""

    def test_it_has_the_methods_of_the_protocol(self) -> None:
        """The index is a `KeywordIndex`."""
        expect(isinstance(self.make_index(), KeywordIndex), "the index lacks a method of KeywordIndex")

    def test_an_empty_index_answers_everything_with_nothing(self) -> None:
        """Nothing raises where nothing is stored."""
        index = self.make_index()
        index.add([], [])
        index.delete([])
        index.delete([7])
        expect_equal((index.count(), list(index.rows())), (0, []), "count and rows")
        expect_equal(index.candidates(_ALPHA, 5), [], "the candidates")
        frequencies = {"words": {"alpha": 0}, "grams": {}}
        expect_equal(index.doc_freqs({"words": {"alpha": 1.0}, "grams": {}}), frequencies, "the frequencies")

    def test_rows_with_one_of_the_terms_are_found_and_no_others(self) -> None:
        """A row needs one of the terms, not all."""
        index = self.make_index()
        index.add([1, 2, 3, 4], [_terms("alpha"), _terms("beta"), _terms("alpha beta"), _terms("gamma")])
        expect_equal(_matching(index, _ALPHA), {1, 3}, "rows with alpha")
        expect_equal(_matching(index, {"words": {"alpha": 1.0, "beta": 1.0}}), {1, 2, 3}, "rows with alpha or beta")
        expect_equal(_matching(index, {"words": {"nowhere": 1.0}}), set(), "rows with an unknown term")

    def test_a_field_answers_only_for_itself(self) -> None:
        """A term of one field is not found in another."""
        index = self.make_index()
        index.add([1, 2, 3], [_terms("alpha"), _terms(grams="alpha"), _terms(context="alpha")])
        for row, field in enumerate(_FIELDS, 1):
            expect_equal(_matching(index, {field: {"alpha": 1.0}}), {row}, f"rows with alpha in {field}")
        frequencies = {"words": {"alpha": 1}, "grams": {"alpha": 1}}
        query = {"words": {"alpha": 1.0}, "grams": {"alpha": 1.0}}
        expect_equal(index.doc_freqs(query), frequencies, "the frequencies")

    def test_terms_match_as_they_are(self) -> None:
        """The index analyses nothing: no case folding, no prefixes, any script."""
        index = self.make_index()
        index.add(list(range(1, 11)), [_terms(word) for word in _VOCABULARY])
        for row, word in enumerate(_VOCABULARY, 1):
            expect_equal(_matching(index, {"words": {word: 1.0}}), {row}, f"rows with {word}")
        for other in ("Alpha", "alph"):
            expect_equal(_matching(index, {"words": {other: 1.0}}), set(), f"rows with {other}")

    def test_candidates_come_best_first_with_scores_above_zero(self) -> None:
        """Scores fall and are positive."""
        index = self.make_index()
        index.add([1, 2, 3, 4], [_terms("alpha"), _terms("alpha beta"), _terms("beta"), _terms("gamma")])
        pairs = index.candidates({"words": {"alpha": 2.0, "beta": 1.0}}, 10)
        scores = [score for _, score in pairs]
        expect_equal([row for row, _ in pairs], [2, 1, 3], "the candidates")
        expect_equal(scores, sorted(scores, reverse=True), "the scores")
        expect(min(scores) > 0, f"a candidate has the score {min(scores)}, which is not above 0")

    def test_weights_decide_the_order(self) -> None:
        """The row with the heavier term comes first."""
        index = self.make_index()
        index.add([1, 2, 3], [_terms("alpha"), _terms("beta"), _terms("gamma")])
        for heavy, light, first, second in (("alpha", "beta", 1, 2), ("beta", "alpha", 2, 1)):
            pairs = index.candidates({"words": {heavy: 5.0, light: 1.0}}, 10)
            expect_equal([row for row, _ in pairs], [first, second], f"the candidates when {heavy} weighs more")

    def test_a_term_that_is_repeated_counts_more(self) -> None:
        """Of two rows of one length, that with more occurrences comes first."""
        index = self.make_index()
        index.add([1, 2], [_terms("alpha beta beta beta"), _terms("alpha alpha alpha beta")])
        expect_equal(index.candidates(_ALPHA, 10)[0][0], 2, "the best row")

    def test_never_more_than_the_limit_and_never_fewer_when_there_are(self) -> None:
        """The limit is exact."""
        index = self.make_index()
        index.add(list(range(1, 41)), [_terms("alpha" if row % 2 else "beta") for row in range(1, 41)])
        for limit in (1, 3, 20, 100):
            expect_equal(len(index.candidates(_ALPHA, limit)), min(limit, 20), f"the candidates of limit {limit}")

    def test_only_allowed_rows_are_found_in_the_same_order(self) -> None:
        """`allowed` filters before the limit, and changes no score."""
        index = self.make_index()
        index.add(list(range(1, 9)), [_terms("alpha " * row + "beta " * (9 - row)) for row in range(1, 9)])
        everything = index.candidates(_ALPHA, 10)
        allowed = [pair for pair in everything if pair[0] in {2, 5}]
        expect_equal(len(everything), 8, "the number of candidates")
        expect_equal(index.candidates(_ALPHA, 10, _rows([2, 5, 99])), allowed, "the allowed candidates")
        expect_equal(index.candidates(_ALPHA, 1, _rows([2, 5, 99])), allowed[:1], "the best allowed candidate")
        expect_equal(index.candidates(_ALPHA, 10, _rows([])), [], "the candidates when none is allowed")
        nowhere = index.candidates({"words": {"nowhere": 1.0}}, 10, _rows([1, 2]))
        expect_equal(nowhere, [], "the allowed candidates of an unknown term")

    def test_what_is_deleted_is_gone_and_the_rest_stays(self) -> None:
        """Absent rows are ignored."""
        index = self.make_index()
        index.add([1, 2, 3], [_terms("alpha")] * 3)
        index.delete([2, 99])
        index.delete([2])
        expect_equal(_matching(index, _ALPHA), {1, 3}, "rows with alpha")
        expect_equal((list(index.rows()), index.count()), ([1, 3], 2), "rows and count")

    def test_document_frequencies_count_live_rows_only(self) -> None:
        """Deleted rows leave the statistics at once, and occurrences are not rows."""
        index, query = self.make_index(), {"words": {"alpha": 1.0, "beta": 1.0}}
        for row in range(1, 13):
            index.add([row], [_terms("alpha alpha" + (" beta" if row % 3 == 0 else ""))])
        index.delete([1, 2, 3, 6])
        expect_equal(index.doc_freqs(query), {"words": {"alpha": 8, "beta": 2}}, "the frequencies after a delete")
        index.add([20], [_terms("beta")])
        expect_equal(index.doc_freqs(query), {"words": {"alpha": 8, "beta": 3}}, "the frequencies after an add")
        index.delete(list(index.rows()))
        expect_equal(index.doc_freqs(_ALPHA), {"words": {"alpha": 0}}, "the frequencies of an emptied index")

    def test_rows_without_terms_are_stored_but_never_candidates(self) -> None:
        """A row counts even if nothing can find it."""
        index = self.make_index()
        index.add([1, 2], [_terms(), _terms("alpha")])
        expect_equal(list(index.rows()), [1, 2], "the rows")
        expect_equal(_matching(index, _ALPHA), {2}, "rows with alpha")

    def test_large_row_ids_survive(self) -> None:
        """Row ids are 64-bit integers."""
        index = self.make_index()
        index.add([2**40, 3], [_terms("alpha"), _terms("alpha")])
        expect_equal((list(index.rows()), index.rows().dtype), ([3, 2**40], np.dtype(np.int64)), "rows and their type")
        expect_equal(_matching(index, _ALPHA), {3, 2**40}, "rows with alpha")

    def test_writes_are_durable(self) -> None:
        """Another process finds what was added, and not what was deleted."""
        index = self.make_index()
        index.add([1, 2], [_terms("alpha"), _terms("beta")])
        index.delete([2])
        again = self.reopen(index)
        expect_equal(list(again.rows()), [1], "the rows after reopening")
        expect_equal(_matching(again, {"words": {"alpha": 1.0, "beta": 1.0}}), {1}, "what is found after reopening")

    def test_it_agrees_with_a_plain_reference_through_a_random_life(self) -> None:
        """Adds, deletes, filters and frequencies agree with a dict of rows."""
        dice, index, stored = random.Random(5), self.make_index(), dict[int, Terms]()  # noqa: S311
        following = 1
        for _ in range(12):
            fresh = list(range(following, following + dice.randint(0, 6)))
            following += len(fresh)
            added = [
                _terms(*(" ".join(dice.choices(_VOCABULARY, k=dice.randint(0, 5))) for _ in _FIELDS)) for _ in fresh
            ]
            dead = dice.sample(range(1, following + 1), k=min(following, dice.randint(0, 4)))
            index.add(fresh, added)
            index.delete(dead)
            stored = {
                row: terms for row, terms in (stored | dict(zip(fresh, added, strict=True))).items() if row not in dead
            }
            query = {field: dict.fromkeys(dice.sample(_VOCABULARY, k=3), 1.0) for field in _FIELDS}
            allowed = dice.sample(range(1, following + 5), k=min(10, following))
            found = {row for row, terms in stored.items() if any(_holds(terms, f, t) for f in query for t in query[f])}
            frequencies = {f: {t: sum(_holds(s, f, t) for s in stored.values()) for t in query[f]} for f in query}
            expect_equal(index.doc_freqs(query), frequencies, "the frequencies")
            expect_equal((list(index.rows()), index.count()), (sorted(stored), len(stored)), "rows and count")
            expect_equal(_matching(index, query, 1000), found, "the candidates")
            expect_equal(_matching(index, query, 1000, allowed), found & set(allowed), "the allowed candidates")


class VectorIndexConformance(ABC):
    """Conformance tests of a `VectorIndex`: one per sentence of the protocol."""

    @abstractmethod
    def make_index(self) -> VectorIndex:
        """Create an empty index; called once per test."""

    @abstractmethod
    def reopen(self, index: VectorIndex) -> VectorIndex:
        """Close the index and return it as another process would open it."""

    def test_it_has_the_methods_of_the_protocol(self) -> None:
        """The index is a `VectorIndex`."""
        expect(isinstance(self.make_index(), VectorIndex), "the index lacks a method of VectorIndex")

    def test_an_empty_index_answers_everything_with_nothing(self) -> None:
        """Nothing raises where nothing is stored."""
        index = self.make_index()
        index.add([], _vectors())
        index.delete([])
        index.delete([7])
        expect_equal((index.count(), list(index.rows())), (0, []), "count and rows")
        expect_equal(index.nearest(_vector(1, 0), 3), [], "the nearest")

    def test_the_nearest_come_first_with_their_cosine(self) -> None:
        """Scores are cosines, not distances."""
        index = self.make_index()
        index.add([1, 2, 3], _vectors([1, 0], [1, 1], [-1, 0]))
        _expect_nearest(index, _vector(1, 0), [(1, 1.0), (2, 0.5**0.5), (3, -1.0)], 1e-5)

    def test_lengths_of_vectors_do_not_matter(self) -> None:
        """Short and long vectors are compared by direction."""
        index = self.make_index()
        index.add([1, 2], _vectors([0.01, 0.001], [90, 100]))
        for scale in (0.01, 1, 100):
            _expect_nearest(index, _vector(scale, 0), [(1, 0.99504), (2, 0.66896)], 1e-4)

    def test_never_more_than_the_limit_and_never_fewer_when_there_are(self) -> None:
        """The limit is exact."""
        index = self.make_index()
        index.add(list(range(1, 21)), _random_vectors(1, 20, 8))
        for limit in (1, 7, 20, 50):
            found = index.nearest(np.ones(8, dtype=np.float32), limit)
            expect_equal(len(found), min(limit, 20), f"the number of rows of limit {limit}")

    def test_what_is_deleted_is_gone_and_the_rest_stays(self) -> None:
        """Absent rows are ignored."""
        index = self.make_index()
        index.add([1, 2, 3], _vectors([1, 0], [0.9, 0.1], [0, 1]))
        index.delete([1, 99])
        index.delete([1])
        expect_equal([row for row, _ in index.nearest(_vector(1, 0), 3)], [2, 3], "the nearest")
        expect_equal((list(index.rows()), index.count()), ([2, 3], 2), "rows and count")

    def test_adding_a_row_twice_is_harmless(self) -> None:
        """A row that is added again is stored once."""
        index = self.make_index()
        index.add([1, 2], _vectors([1, 0], [0, 1]))
        index.add([2], _vectors([0, 1]))
        expect_equal(index.count(), 2, "the count")
        expect_equal([row for row, _ in index.nearest(_vector(0, 1), 5)], [2, 1], "the nearest")

    def test_equal_vectors_of_two_rows_are_two_results(self) -> None:
        """Equal vectors are not merged."""
        index = self.make_index()
        index.add([4, 9], _vectors([1, 0], [1, 0]))
        expect_equal({row for row, _ in index.nearest(_vector(1, 0), 5)}, {4, 9}, "the rows")

    def test_a_zero_vector_is_stored(self) -> None:
        """A vector without a direction is a row like any other."""
        index = self.make_index()
        index.add([1, 2], _vectors([0, 0], [1, 0]))
        expect_equal(list(index.rows()), [1, 2], "the rows")
        expect_equal(index.nearest(_vector(1, 0), 1)[0][0], 2, "the nearest")

    def test_large_row_ids_survive(self) -> None:
        """Row ids are 64-bit integers."""
        index = self.make_index()
        index.add([2**40, 3], _vectors([1, 0], [0, 1]))
        expect_equal((list(index.rows()), index.rows().dtype), ([3, 2**40], np.dtype(np.int64)), "rows and their type")

    def test_batches_of_any_size_are_taken(self) -> None:
        """Limits of a library on the size of a batch do not show."""
        index = self.make_index()
        index.add(list(range(6_000)), _random_vectors(2, 6_000, 2))
        expect_equal(index.count(), 6_000, "the count")
        index.delete(list(range(5_990)))
        expect_equal(list(index.rows()), list(range(5_990, 6_000)), "the rows")

    def test_writes_are_durable(self) -> None:
        """Another process finds what was added, and not what was deleted."""
        index = self.make_index()
        index.add([1, 2], _vectors([1, 0], [0, 1]))
        index.delete([2])
        again = self.reopen(index)
        expect_equal(list(again.rows()), [1], "the rows after reopening")
        expect_equal([row for row, _ in again.nearest(_vector(1, 0), 5)], [1], "what is found after reopening")

    def test_it_agrees_with_a_plain_reference_through_a_random_life(self) -> None:
        """Adds, deletes and neighbours agree with a dict of vectors."""
        dice, numbers, index = random.Random(6), np.random.default_rng(6), self.make_index()  # noqa: S311
        stored: dict[int, Vectors] = {}
        following = 1
        for _ in range(8):
            fresh = list(range(following, following + dice.randint(0, 15)))
            following += len(fresh)
            drawn = numbers.normal(size=(len(fresh), 16)).astype(np.float32)
            dead = dice.sample(range(1, following + 1), k=min(following, dice.randint(0, 6)))
            index.add(fresh, drawn)
            index.delete(dead)
            stored = {
                row: vector
                for row, vector in (stored | dict(zip(fresh, drawn, strict=True))).items()
                if row not in dead
            }
            query = numbers.normal(size=16).astype(np.float32)
            expect_equal(list(index.rows()), sorted(stored), "the rows")
            ranking = sorted(
                ((row, _cosine(vector, query)) for row, vector in stored.items()), key=lambda pair: -pair[1]
            )
            _expect_nearest(index, query, ranking[:5], 1e-4)


def _terms(words: str = "", grams: str = "", context: str = "") -> Terms:
    lists: Mapping[str, list[str]] = {"words": words.split(), "grams": grams.split(), "context": context.split()}
    return Terms(**lists, lengths={field: len(terms) for field, terms in lists.items()})


def _holds(terms: Terms, field: str, term: str) -> bool:
    return term in getattr(terms, field)


def _rows(rows: Iterable[int]) -> Rows:
    return np.array(sorted(rows), dtype=np.int64)


def _matching(
    index: KeywordIndex, query: TermWeights, limit: int = 100, allowed: Iterable[int] | None = None
) -> set[int]:
    return {row for row, _ in index.candidates(query, limit, None if allowed is None else _rows(allowed))}


def _vectors(*rows: Sequence[float]) -> Vectors:
    return np.array(rows, dtype=np.float32)


def _vector(*values: float) -> Vectors:
    return np.array(values, dtype=np.float32)


def _random_vectors(seed: int, count: int, dimension: int) -> Vectors:
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


def _cosine(one: Vectors, other: Vectors) -> float:
    return float(np.dot(one, other)) / math.sqrt(float(np.dot(one, one)) * float(np.dot(other, other)))


def _expect_nearest(
    index: VectorIndex, query: Vectors, expected: Sequence[tuple[int, float]], tolerance: float
) -> None:
    found = index.nearest(query, max(1, len(expected)))
    expect_equal([row for row, _ in found], [row for row, _ in expected], "the nearest")
    for (row, cosine), (_, wanted) in zip(found, expected, strict=True):
        expect_close(cosine, wanted, tolerance, f"the cosine of row {row}")
