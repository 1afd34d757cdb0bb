"""The bonus for being recent: bounded, monotone, and the score stays a score."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.search.ranking import MAX_RECENCY_BOOST, recency_boost

scores = st.floats(0, 1)
ages = st.timedeltas(min_value=timedelta(0))
halves = st.timedeltas(min_value=timedelta(microseconds=1), max_value=-timedelta.min)  # so that -half is a duration


def lifted(score: float, age: timedelta, half: timedelta) -> float:
    return score + recency_boost(score, age, half)


@given(scores, st.timedeltas(), halves)
def test_a_score_stays_in_its_range_and_gains_less_than_a_tenth(score, age, half):
    lift = recency_boost(score, age, half)
    assert 0 <= lift <= MAX_RECENCY_BOOST * score
    assert score + lift <= 1
    assert lift == 0 or 0 < score < 1


@given(scores, ages, ages, halves)
def test_it_never_grows_with_age(score, one, other, half):
    young, old = sorted((one, other))
    assert recency_boost(score, young, half) >= recency_boost(score, old, half)


@given(scores, scores, ages, halves)
def test_of_one_age_the_better_stays_ahead(one, other, age, half):
    worse, better = sorted((one, other))
    assert lifted(worse, age, half) <= lifted(better, age, half) + 1e-15


@given(scores, scores, ages, ages, halves)
def test_a_clear_difference_is_never_turned(one, other, first, second, half):
    worse, better = sorted((one, other))
    if better >= worse * (1 + MAX_RECENCY_BOOST):
        assert lifted(worse, first, half) <= lifted(better, second, half)


@given(st.floats(0.01, 0.99), halves)
def test_it_halves_with_the_half_life_and_the_future_is_new(score, half):
    new = recency_boost(score, timedelta(0), half)
    assert recency_boost(score, -half, half) == new
    assert recency_boost(score, half, half) == new / 2
