"""BM25 on counts: hand-computed values, bounds, and an order of summation that never moves a score."""

from __future__ import annotations

import math
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.search.bm25 import DEFAULT_PARAMETERS, FieldStats, Parameters, Scorer, idf, score
from tests.contracts.bm25_reference import reachable_maximum, term_score

PLAIN = {"words": Parameters(k1=1.2, b=0.75)}


def test_idf_is_lucenes_value():
    assert idf(10, 1) == pytest.approx(math.log(1 + 9.5 / 1.5))


def test_idf_is_never_negative_even_for_a_term_in_every_chunk():
    assert idf(10, 10) == pytest.approx(math.log(1 + 0.5 / 10.5))
    assert idf(10, 10) > 0


def test_a_document_frequency_beyond_the_chunks_is_cut_to_them():
    assert idf(5, 9) == idf(5, 5)
    assert idf(0, 3) == idf(0, 0)


def test_term_score_of_an_average_chunk_is_the_plain_saturation():
    assert term_score(2, 7, 7, 1.2, 0.75) == pytest.approx(2 * 2.2 / (2 + 1.2))


def test_a_term_that_is_absent_scores_nothing():
    assert term_score(0, 7, 7, 1.2, 0.75) == 0.0


def test_score_of_a_chunk_computed_by_hand():
    query = {"words": {"a": 2.0, "b": 1.0}, "grams": {"x": 0.5}}
    stats = {"words": FieldStats(4, 40), "grams": FieldStats(4, 80)}
    frequencies = {"words": {"a": 1, "b": 2}, "grams": {"x": 4}}
    parameters = {"words": Parameters(1.2, 0.75), "grams": Parameters(2.0, 0.0)}
    actual = Scorer(query, stats, frequencies, parameters).score(
        {"words": {"a": 3, "c": 9}, "grams": {"x": 1}}, {"words": 20, "grams": 5}
    )
    by_hand = 2 * math.log(1 + 3.5 / 1.5) * 3 * 2.2 / (3 + 1.2 * (0.25 + 0.75 * 2))
    by_hand += 0.5 * math.log(1 + 0.5 / 4.5) * 1 * 3 / (1 + 2)
    assert actual == pytest.approx(by_hand)


def test_empty_query_empty_scope_and_unknown_field_score_nothing():
    assert score({}, {"words": {"a": 1}}, {"words": 1}, {"words": FieldStats(1, 1)}, {}) == 0.0
    assert score({"other": {"a": 1.0}}, {"other": {"a": 1}}, {}, {"words": FieldStats(1, 1)}, {}) == 0.0
    empty = Scorer({"words": {"a": 1.0}}, {"words": FieldStats(0, 0)}, {})
    assert empty.score({"words": {}}, {"words": 0}) == 0.0
    assert FieldStats(0, 0).average_length == 1.0


def test_statistics_of_partitions_add_up():
    assert FieldStats(2, 10) + FieldStats(3, 5) == FieldStats(5, 15)


@pytest.mark.parametrize("k1", [0.0, 1.2, 2.0])
def test_the_maximum_is_approached_and_never_exceeded(k1):
    query, stats, frequencies = ({"words": {"a": 1.5, "b": 0.5}}, {"words": FieldStats(100, 1000)}, {"words": {"a": 3}})
    parameters = {"words": Parameters(k1, 0.75)}
    bound = reachable_maximum(query, stats, frequencies, parameters)
    close = score(query, {"words": {"a": 10**9, "b": 10**9}}, {"words": 1}, stats, frequencies, parameters=parameters)
    assert close <= bound
    assert close == pytest.approx(bound)
    assert Scorer(query, stats, frequencies, parameters).maximum == bound


def test_a_query_word_no_chunk_holds_lowers_what_a_partial_answer_is_worth():
    stats, frequencies = {"words": FieldStats(100, 1000)}, {"words": {"a": 3}}
    assert reachable_maximum({"words": {"a": 1.0, "b": 1.0}}, stats, frequencies) > 2 * reachable_maximum(
        {"words": {"a": 1.0}}, stats, frequencies
    )


COUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 50), max_size=8)


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0.01, 3), min_size=1),
    COUNTS,
    COUNTS,
    st.integers(1, 500),
    st.randoms(),
)
def test_order_of_counts_and_query_terms_never_moves_a_score(query, counts, frequencies, length, dice):
    stats = {"words": FieldStats(60, 6000), "context": FieldStats(60, 600)}

    def shuffled(table: dict[str, float]) -> dict[str, float]:
        items = list(table.items())
        dice.shuffle(items)
        return dict(items)

    first = Scorer({"words": query}, stats, {"words": frequencies}, PLAIN).score({"words": counts}, {"words": length})
    again = Scorer({"words": shuffled(query)}, stats, {"words": shuffled(frequencies)}, PLAIN)
    assert again.score({"words": shuffled(counts)}, {"words": length}) == first
    assert 0 <= first < again.maximum
    assert (first > 0) == bool(set(query) & set(counts))


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 1000))
def test_more_occurrences_score_more_and_longer_chunks_less(tf, length, average):
    k1, b = DEFAULT_PARAMETERS.k1, DEFAULT_PARAMETERS.b
    actual = term_score(tf, length, average, k1, b)
    assert actual < term_score(tf + 1, length, average, k1, b)
    assert actual > term_score(tf, length + 1, average, k1, b)
    assert 0 < actual < k1 + 1


def test_a_chunk_is_scored_in_microseconds():
    dice = random.Random(1)
    names = [f"t{n}" for n in range(8)]
    query = {field: dict.fromkeys(names, 1.0) for field in ("words", "grams", "context")}
    stats = dict.fromkeys(query, FieldStats(10_000, 500_000))
    scorer = Scorer(query, stats, {field: dict.fromkeys(names, 20) for field in query})
    chunks = [
        {field: {name: dice.randint(1, 5) for name in dice.sample(names, 4)} for field in query} for _ in range(5_000)
    ]
    lengths = dict.fromkeys(query, 60)
    started = time.process_time()
    for counts in chunks:
        scorer.score(counts, lengths)
    assert (time.process_time() - started) / len(chunks) < 50e-6  # measured: about 4 µs
