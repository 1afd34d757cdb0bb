"""What every keyword index must do: one check per sentence of `store.protocols.KeywordIndex`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from langchain_agentrag.store.protocols import KeywordIndex, Rows
from langchain_agentrag.text import Terms
from tests.contracts.reference import MemoryKeywords

VOCABULARY = ["数据", "据库", "alpha", "c++", "10.20.30.40", "🚀", "の", "ora-00942", "beta", "gamma"]


def as_rows(rows) -> Rows:
    """Row ids as a sorted array."""
    return np.array(sorted(rows), dtype=np.int64)


def terms(words: str = "", grams: str = "", context: str = "") -> Terms:
    lists = {"words": words.split(), "grams": grams.split(), "context": context.split()}
    return Terms(**lists, lengths={name: len(ranked) for name, ranked in lists.items()})


def matching_rows(index: Any, query: dict[str, dict[str, float]], limit: int = 100, allowed: Any = None) -> set[int]:
    return {row for row, _ in index.candidates(query, limit, None if allowed is None else as_rows(allowed))}


class KeywordIndexContract:
    """`make()` gives an empty index, `reopen(index)` the same index as another process would open it."""

    def test_it_has_the_methods_of_the_protocol(self, make, reopen):
        assert isinstance(make(), KeywordIndex)

    def test_an_empty_index_answers_everything_with_nothing(self, make, reopen):
        index = make()
        index.add([], [])
        index.delete([])
        index.delete([7])
        assert (index.count(), list(index.rows())) == (0, [])
        assert index.candidates({"words": {"alpha": 1.0}}, 5) == []
        assert index.doc_freqs({"words": {"alpha": 1.0}, "grams": {}}) == {"words": {"alpha": 0}, "grams": {}}

    def test_rows_with_one_of_the_terms_are_found_and_no_others(self, make, reopen):
        index = make()
        index.add([1, 2, 3, 4], [terms("alpha"), terms("beta"), terms("alpha beta"), terms("gamma")])
        assert matching_rows(index, {"words": {"alpha": 1.0}}) == {1, 3}
        assert matching_rows(index, {"words": {"alpha": 1.0, "beta": 1.0}}) == {1, 2, 3}
        assert matching_rows(index, {"words": {"nowhere": 1.0}}) == set()

    def test_a_field_answers_only_for_itself(self, make, reopen):
        index = make()
        index.add([1, 2, 3], [terms("alpha"), terms(grams="alpha"), terms(context="alpha")])
        assert [matching_rows(index, {field: {"alpha": 1.0}}) for field in ("words", "grams", "context")] == [
            {1},
            {2},
            {3},
        ]
        assert index.doc_freqs({"words": {"alpha": 1.0}, "grams": {"alpha": 1.0}}) == {
            "words": {"alpha": 1},
            "grams": {"alpha": 1},
        }

    def test_terms_match_as_they_are(self, make, reopen):
        index = make()
        index.add(list(range(1, 11)), [terms(word) for word in VOCABULARY])
        for row, word in enumerate(VOCABULARY, 1):
            assert matching_rows(index, {"words": {word: 1.0}}) == {row}, word
        assert matching_rows(index, {"words": {"Alpha": 1.0}}) == set()
        assert matching_rows(index, {"words": {"alph": 1.0}}) == set()

    def test_candidates_come_best_first_with_scores_above_zero(self, make, reopen):
        index = make()
        index.add([1, 2, 3, 4], [terms("alpha"), terms("alpha beta"), terms("beta"), terms("gamma")])
        pairs = index.candidates({"words": {"alpha": 2.0, "beta": 1.0}}, 10)
        scores = [score for _, score in pairs]
        assert [row for row, _ in pairs] == [2, 1, 3]
        assert scores == sorted(scores, reverse=True)
        assert min(scores) > 0

    def test_weights_decide_the_order(self, make, reopen):
        index = make()
        index.add([1, 2, 3], [terms("alpha"), terms("beta"), terms("gamma")])
        for heavy, light, first in (("alpha", "beta", 1), ("beta", "alpha", 2)):
            pairs = index.candidates({"words": {heavy: 5.0, light: 1.0}}, 10)
            assert pairs[0][0] == first
            assert len(pairs) == 2

    def test_a_term_that_is_repeated_counts_more(self, make, reopen):
        index = make()
        index.add([1, 2], [terms("alpha beta beta beta"), terms("alpha alpha alpha beta")])
        assert index.candidates({"words": {"alpha": 1.0}}, 10)[0][0] == 2

    def test_never_more_than_the_limit_and_never_fewer_when_there_are(self, make, reopen):
        index = make()
        index.add(list(range(1, 41)), [terms("alpha" if row % 2 else "beta") for row in range(1, 41)])
        for limit in (1, 3, 20, 100):
            assert len(index.candidates({"words": {"alpha": 1.0}}, limit)) == min(limit, 20)

    def test_only_allowed_rows_are_found_in_the_same_order(self, make, reopen):
        index = make()
        index.add(list(range(1, 9)), [terms("alpha " * row + "beta " * (9 - row)) for row in range(1, 9)])
        query = {"words": {"alpha": 1.0}}
        everything = index.candidates(query, 10)
        some = index.candidates(query, 10, as_rows([2, 5, 99]))
        assert some == [pair for pair in everything if pair[0] in {2, 5}]
        assert len(some) == 2 < len(everything)
        assert index.candidates(query, 10, as_rows([])) == []
        assert matching_rows(index, {"words": {"nowhere": 1.0}}, allowed=[1, 2]) == set()

    def test_what_is_deleted_is_gone_and_the_rest_stays(self, make, reopen):
        index = make()
        index.add([1, 2, 3], [terms("alpha")] * 3)
        index.delete([2, 99])
        index.delete([2])
        assert matching_rows(index, {"words": {"alpha": 1.0}}) == {1, 3}
        assert (list(index.rows()), index.count()) == ([1, 3], 2)

    def test_document_frequencies_count_live_rows_only(self, make, reopen):
        index = make()
        for row in range(1, 13):
            index.add([row], [terms("alpha alpha" + (" beta" if row % 3 == 0 else ""))])
        index.delete([1, 2, 3, 6])
        assert index.doc_freqs({"words": {"alpha": 1.0, "beta": 1.0}}) == {"words": {"alpha": 8, "beta": 2}}
        index.add([20], [terms("beta")])
        assert index.doc_freqs({"words": {"alpha": 1.0, "beta": 1.0}}) == {"words": {"alpha": 8, "beta": 3}}
        index.delete(list(index.rows()))
        assert index.doc_freqs({"words": {"alpha": 1.0}}) == {"words": {"alpha": 0}}

    def test_rows_without_terms_are_stored_but_never_candidates(self, make, reopen):
        index = make()
        index.add([1, 2], [terms(), terms("alpha")])
        assert list(index.rows()) == [1, 2]
        assert matching_rows(index, {"words": {"alpha": 1.0}}) == {2}

    def test_large_row_ids_survive(self, make, reopen):
        index = make()
        index.add([2**40, 3], [terms("alpha"), terms("alpha")])
        assert list(index.rows()) == [3, 2**40]
        assert index.rows().dtype == np.int64
        assert matching_rows(index, {"words": {"alpha": 1.0}}) == {3, 2**40}

    def test_writes_are_durable(self, make, reopen):
        index = make()
        index.add([1, 2], [terms("alpha"), terms("beta")])
        index.delete([2])
        again = reopen(index)
        assert list(again.rows()) == [1]
        assert matching_rows(again, {"words": {"alpha": 1.0, "beta": 1.0}}) == {1}

    def test_it_agrees_with_the_reference_through_a_random_life(self, make, reopen):
        dice, index, oracle = random.Random(5), make(), MemoryKeywords()
        following = 1
        for _ in range(12):
            fresh = list(range(following, following + dice.randint(0, 6)))
            following += len(fresh)
            chunk_terms = [
                terms(*(" ".join(dice.choices(VOCABULARY, k=dice.randint(0, 5))) for _ in range(3))) for _ in fresh
            ]
            dead = dice.sample(range(1, following + 1), k=min(following, dice.randint(0, 4)))
            for one in (index, oracle):
                one.add(fresh, chunk_terms)
                one.delete(dead)
            query = {field: dict.fromkeys(dice.sample(VOCABULARY, k=3), 1.0) for field in ("words", "grams", "context")}
            allowed = as_rows(dice.sample(range(1, following + 5), k=min(10, following)))
            assert index.doc_freqs(query) == oracle.doc_freqs(query)
            assert list(index.rows()) == list(oracle.rows())
            assert index.count() == oracle.count()
            for rows in (None, allowed):
                answers = [{row for row, _ in one.candidates(query, 1000, rows)} for one in (index, oracle)]
                assert answers[0] == answers[1]


Make = Callable[[], Any]
