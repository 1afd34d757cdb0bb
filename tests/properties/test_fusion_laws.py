"""Laws that hold for every fusion rule, any rankings and any weights."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.search.fusion import calibrate_bm25, calibrate_cosine, check_weights, fuse, reciprocal_rank

RULES = ("convex", "rrf", "dbsf", "relative")
finite = st.floats(-1e300, 1e300)
unit = st.integers(0, 1000).map(lambda n: n / 1000)  # coarse, so that strictly better is better after rounding


def rankings_of(scores):
    ranking = st.dictionaries(st.integers(0, 12), scores, max_size=8)
    return st.lists(ranking, min_size=2, max_size=2).map(lambda pair: [ranked(one) for one in pair])


def ranked(ranking):
    return sorted(ranking.items(), key=lambda item: (-item[1], item[0]))


positive = st.floats(1e-3, 1e3)
weights = st.tuples(positive, positive)
each_rule = pytest.mark.parametrize("rule", RULES)


@each_rule
@given(rankings=rankings_of(st.floats()), shares=weights)
def test_every_candidate_gets_a_score_in_the_unit_range(rule, rankings, shares):
    fused = fuse(rule, rankings, shares)
    assert set(fused) == {name for ranking in rankings for name, _ in ranking}
    assert all(0 <= score <= 1 for score in fused.values())


@each_rule
@given(rankings=rankings_of(finite), shares=weights)
def test_swapping_indexes_and_weights_changes_nothing(rule, rankings, shares):
    assert fuse(rule, rankings, shares) == pytest.approx(fuse(rule, rankings[::-1], shares[::-1]), abs=1e-9)


@pytest.mark.parametrize("rule", ["convex", "dbsf", "relative"])
@given(rankings=rankings_of(unit), shares=weights, data=st.data())
def test_order_of_the_input_is_irrelevant_to_rules_on_scores(rule, rankings, shares, data):
    shuffled = [data.draw(st.permutations(ranking)) for ranking in rankings]
    assert fuse(rule, shuffled, shares) == pytest.approx(fuse(rule, rankings, shares), abs=1e-12)


@each_rule
@given(rankings=rankings_of(unit), keyword=rankings_of(unit))
def test_weight_zero_is_the_same_as_an_absent_index(rule, rankings, keyword):
    assert fuse(rule, [rankings[0], keyword[1]], (1, 0)) == fuse(rule, [rankings[0], []], (1, 0))
    assert fuse(rule, [keyword[0], rankings[1]], (0, 1)) == fuse(rule, [[], rankings[1]], (0, 1))


@each_rule
@given(rankings=rankings_of(unit), shares=weights)
def test_better_in_both_indexes_is_never_lower(rule, rankings, shares):
    fused = fuse(rule, rankings, shares)
    places = [{name: (score, -place) for place, (name, score) in enumerate(ranking)} for ranking in rankings]
    for first in places[0].keys() & places[1].keys():
        for second in places[0].keys() & places[1].keys():
            if all(
                ranking[first][0] >= ranking[second][0] and ranking[first][1] >= ranking[second][1]
                for ranking in places
            ):
                assert fused[first] >= fused[second] - 1e-12


@each_rule
@given(rankings=rankings_of(unit), shares=weights)
def test_the_leader_of_both_lists_stays_first(rule, rankings, shares):
    pair = [[("best", 1.0), *ranking] for ranking in rankings]
    fused = fuse(rule, pair, shares)
    assert fused["best"] >= max(fused.values()) - 1e-12


@each_rule
@given(rankings=rankings_of(unit), factor=st.floats(0.01, 100), shares=weights)
def test_common_factor_on_both_weights_changes_nothing(rule, rankings, factor, shares):
    scaled = tuple(share * factor for share in shares)
    assert fuse(rule, rankings, scaled) == pytest.approx(fuse(rule, rankings, shares), abs=1e-9)


@each_rule
@given(rankings=rankings_of(unit), shares=weights)
def test_names_of_candidates_are_irrelevant(rule, rankings, shares):
    renamed = [[(f"doc-{name}", score) for name, score in ranking] for ranking in rankings]
    expected = {f"doc-{name}": score for name, score in fuse(rule, rankings, shares).items()}
    assert fuse(rule, renamed, shares) == expected


@pytest.mark.parametrize("rule", ["dbsf", "relative"])
@given(rankings=rankings_of(unit), shares=weights, factor=st.floats(0.5, 1000), shift=st.integers(-50, 50))
def test_rules_that_scale_ignore_unit_and_zero_point_of_an_index(rule, rankings, shares, factor, shift):
    moved = [[(name, score * factor + shift) for name, score in ranking] for ranking in rankings]
    assert fuse(rule, moved, shares) == pytest.approx(fuse(rule, rankings, shares), abs=1e-6)


@given(st.lists(st.integers(), unique=True, min_size=2, max_size=50), st.floats(0, 1000))
def test_reciprocal_rank_falls_strictly_with_rank(ranking, k):
    scores = [reciprocal_rank([ranking, []], (1, 0), k)[name] for name in ranking]
    assert scores[0] == 1
    assert all(before > after for before, after in pairwise(scores))


@given(st.floats(0, 1e308), st.floats(0, 1e308))
def test_accepted_weights_sum_to_one(vector, keyword):
    if vector or keyword:
        assert sum(check_weights((vector, keyword))) == pytest.approx(1)


@given(st.floats(), st.floats(), st.floats())
def test_calibration_stays_in_range_and_is_monotone(first, second, reference):
    for calibrate in (calibrate_cosine, calibrate_bm25):
        low, high = calibrate(min(first, second), reference), calibrate(max(first, second), reference)
        assert 0 <= low <= 1
        assert 0 <= high <= 1
        if not (math.isnan(first) or math.isnan(second)):
            assert low <= high
