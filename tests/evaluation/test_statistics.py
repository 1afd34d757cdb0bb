"""Intervals and significance: known values, laws, and no claim where there is only noise."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_agentrag.evaluation.runner import measure
from langchain_agentrag.evaluation.statistics import compare, interval, permutation_p

values = st.lists(st.floats(0, 1), min_size=1, max_size=40)


@given(values)
@example([0.740580270157775] * 2)
def test_the_mean_lies_in_its_interval_and_the_interval_in_the_range(sample: list[float]):
    estimate = interval(sample)
    assert min(sample) - 1e-9 <= estimate.low <= estimate.high <= max(sample) + 1e-9
    assert estimate.mean == pytest.approx(sum(sample) / len(sample))
    assert interval(sample) == estimate, "the same values give the same interval"


def test_an_interval_covers_the_true_value_at_its_nominal_rate():
    chance = random.Random(7)
    inside = 0
    for _ in range(120):
        estimate = interval([float(chance.random() < 0.4) for _ in range(60)])
        inside += estimate.low <= 0.4 <= estimate.high
    assert inside >= 0.88 * 120


def test_more_questions_make_it_narrower():
    few, many = interval([0.0, 1.0] * 10), interval([0.0, 1.0] * 250)
    assert many.high - many.low < 0.5 * (few.high - few.low)


@pytest.mark.parametrize(
    ("deltas", "p"),
    [([], 1.0), ([0.0, 0.0], 1.0), ([0.5], 1.0), ([0.1] * 5, 2 / 32), ([0.1, -0.1], 1.0), ([3, 2, -1], 0.5)],
)
def test_permutation_is_exact_on_few_differences(deltas: list[float], p: float):
    # [3, 2, -1]: of eight sign patterns the sums with |sum| >= 4 are ±6 and ±4
    assert permutation_p(deltas) == pytest.approx(p)


def test_many_questions_agree_with_the_exact_test():
    chance = random.Random(3)
    deltas = [chance.uniform(-0.3, 0.5) for _ in range(13)]
    exact = permutation_p(deltas)
    # zeros change nothing, and a fourteenth tiny difference switches to sampling
    assert permutation_p([*deltas, 1e-9]) == pytest.approx(exact, abs=0.02)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_a_reversed_comparison_has_the_opposite_sign(pairs: list[tuple[float, float]]):
    new, old = [a for a, _ in pairs], [b for _, b in pairs]
    forth, back = compare(new, old), compare(old, new)
    assert forth.mean == pytest.approx(-back.mean)
    assert forth.p == pytest.approx(back.p)
    assert (forth.better, forth.worse) == (back.worse, back.better)


def test_a_real_difference_is_seen_and_noise_is_not():
    chance = random.Random(11)
    old = [chance.random() * 0.6 for _ in range(200)]
    assert compare([value + 0.1 for value in old], old).significant
    wrong = 0
    for _ in range(60):
        wrong += compare([min(1, value + chance.uniform(-0.2, 0.2)) for value in old], old).significant
    assert wrong <= 9, "about one in twenty may look significant by chance"


def test_pairs_must_pair():
    with pytest.raises(ValueError, match="same questions"):
        compare([1.0], [1.0, 0.0])


def test_measures_follow_the_ranking_and_not_the_names():
    qrels = {"q": {"z": 1}, "nothing": {"x": 1}}
    measured = measure({"q": ["a", "z", "b"], "nothing": []}, qrels, ["RR@10", "nDCG@10", "Success@1", "R@2"])
    assert measured["RR@10"] == {"q": 0.5, "nothing": 0.0}
    assert measured["nDCG@10"]["q"] == pytest.approx(0.6309, abs=1e-4)  # 1 / log2(3)
    assert measured["Success@1"]["q"] == 0
    assert measured["R@2"]["q"] == 1


def test_grades_count():
    qrels = {"q": {"good": 3, "fair": 1}}
    first = measure({"q": ["good", "fair"]}, qrels, ["nDCG@10"])["nDCG@10"]["q"]
    second = measure({"q": ["fair", "good"]}, qrels, ["nDCG@10"])["nDCG@10"]["q"]
    assert first == pytest.approx(1.0)
    assert second < first
