"""Fusion rules against tables computed by hand."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.search.fusion import (
    adaptive_weights,
    calibrate_bm25,
    calibrate_cosine,
    check_fusion,
    check_weights,
    convex,
    distribution_based,
    fuse,
    keyword_evidence,
    reciprocal_rank,
    relative_score,
)
from langchain_agentrag.search.ranking import confidence

RULES = ("convex", "rrf", "dbsf", "relative")


def order(fused):
    return sorted(fused, key=lambda name: (-fused[name], name))


def test_convex_is_the_weighted_sum_and_a_missing_index_is_zero():
    fused = convex({"v": 0.8, "both": 0.5}, {"both": 0.4, "k": 1.0}, (0.75, 0.25))
    assert fused == pytest.approx({"v": 0.6, "both": 0.475, "k": 0.25})


def test_convex_clips_to_the_unit_range_and_takes_nan_as_nothing():
    assert convex({"a": 1.5, "b": -0.2, "c": math.nan}, {}, (1, 0)) == {"a": 1.0, "b": 0.0, "c": 0.0}


def test_reciprocal_rank_matches_the_paper_over_its_maximum():
    fused = reciprocal_rank([["a", "b"], ["b", "c"]], (0.5, 0.5))
    # a: .5/61, b: .5/62 + .5/61, c: .5/62; the maximum is 1/61
    assert fused == pytest.approx({"a": 0.5, "b": 0.5 * 61 / 62 + 0.5, "c": 0.5 * 61 / 62})


def test_reciprocal_rank_with_other_constant_and_weights():
    fused = reciprocal_rank([["a", "b"], ["b"]], (3, 1), k=0)
    assert fused == pytest.approx({"a": 0.75, "b": 0.75 / 2 + 0.25})


def test_leading_both_lists_is_one():
    for rule in ("rrf", "relative"):
        assert fuse(rule, [[("a", 9), ("b", 1)], [("a", 5), ("c", 2)]], (0.3, 0.7))["a"] == pytest.approx(1.0)


def test_distribution_based_matches_a_table_by_hand():
    # scores 1, 2, 3: mean 2, sample deviation 1, limits -1 and 5
    fused = distribution_based([[("a", 3), ("b", 2), ("c", 1)], [("d", 7)]], (0.5, 0.5))
    assert fused == pytest.approx({"a": 0.5 * 4 / 6, "b": 0.5 * 3 / 6, "c": 0.5 * 2 / 6, "d": 0.25})


def test_distribution_based_clips_outliers():
    scores = [(n, 0.0) for n in range(30)] + [("far", 1.0)]
    assert distribution_based([scores, []], (1, 0))["far"] == 1.0


def test_relative_score_matches_a_table_by_hand():
    fused = relative_score([[("a", 10), ("b", 4), ("c", 2)], [("b", 0.5), ("d", 0.25)]], (0.5, 0.5))
    assert fused == pytest.approx({"a": 0.5, "b": 0.5 * 0.25 + 0.5, "c": 0.0, "d": 0.0})


def test_lone_or_tied_scores_are_never_scaled_to_zero():
    assert relative_score([[], [("exact", 7.3)]], (0.5, 0.5)) == {"exact": 0.5}
    assert relative_score([[("a", 2), ("b", 2)], []], (1, 0)) == {"a": 1.0, "b": 1.0}
    assert relative_score([[("a", 0), ("b", 0)], []], (1, 0)) == {"a": 1.0, "b": 1.0}
    assert distribution_based([[("a", 2), ("b", 2)], []], (1, 0)) == {"a": 0.5, "b": 0.5}
    assert fuse("rrf", [[], [("exact", 0.1)]], (0, 1)) == {"exact": 1.0}


def test_worst_keyword_hit_adds_nothing_negative_to_its_vector_score():
    rankings = [[("v", 0.9), ("k1", 0.3)], [("k2", 2.0), ("k1", 1.0)]]
    for rule in RULES:
        alone = fuse(rule, [rankings[0], []], (0.5, 0.5))
        both = fuse(rule, rankings, (0.5, 0.5))
        assert both["v"] == alone["v"]
        assert both["k1"] >= alone["k1"]


@pytest.mark.parametrize("rule", RULES)
def test_weights_change_the_order_as_stated(rule):
    rankings = [[("B", 0.9), ("A", 0.6)], [("A", 0.9), ("B", 0.6)]]
    assert order(fuse(rule, rankings, (0, 1))) == ["A", "B"]
    assert order(fuse(rule, rankings, (1, 0))) == ["B", "A"]
    even = fuse(rule, rankings, (0.5, 0.5))
    assert even["A"] == pytest.approx(even["B"])


@pytest.mark.parametrize("rule", RULES)
def test_an_index_of_weight_zero_adds_no_candidates(rule):
    rankings = [[("v", 0.9), ("both", 0.5)], [("both", 0.8), ("k", 0.2)]]
    assert set(fuse(rule, rankings, (1, 0))) == {"v", "both"}
    assert set(fuse(rule, rankings, (0, 1))) == {"both", "k"}


@pytest.mark.parametrize("rule", RULES)
def test_nothing_found_is_an_empty_result(rule):
    assert fuse(rule, [[], []], (0.5, 0.5)) == {}


@pytest.mark.parametrize("rule", RULES)
def test_id_listed_twice_counts_once_at_its_best(rule):
    twice = fuse(rule, [[("a", 0.9), ("b", 0.5), ("a", 0.1)], []], (1, 0))
    assert twice == fuse(rule, [[("a", 0.9), ("b", 0.5)], []], (1, 0))


@pytest.mark.parametrize("rule", RULES)
def test_ids_not_texts_are_the_identity(rule):
    rankings = [[(("a.md", 0), 0.9), (("b.md", 0), 0.9)], [(("b.md", 0), 0.4)]]
    assert set(fuse(rule, rankings, (0.5, 0.5))) == {("a.md", 0), ("b.md", 0)}


@pytest.mark.parametrize("rule", ["dbsf", "relative", "convex"])
def test_scores_that_are_not_finite_are_no_evidence(rule):
    fused = fuse(rule, [[("a", 0.9), ("nan", math.nan), ("inf", math.inf), ("b", 0.1)], []], (1, 0))
    assert fused["nan"] == fused["inf"] == 0
    assert fused["a"] > fused["b"] >= 0
    assert fuse(rule, [[("nan", math.nan)], []], (1, 0)) == {"nan": 0.0}


@pytest.mark.parametrize(
    "weights",
    [
        (0.5, 0.5),
        [1, 1],
        (3, 3.0),
        np.array([2, 2]),
        (1e308, 1e308),
        (10**400, 10**400),
        (Fraction(1, 3), Fraction(1, 3)),
    ],
    ids=lambda weights: repr(weights)[:30],
)
def test_weights_are_scaled_to_sum_one(weights):
    assert check_weights(weights) == (0.5, 0.5)
    assert check_weights((3, 1)) == (0.75, 0.25)
    assert check_weights((0, 5)) == (0.0, 1.0)


@pytest.mark.parametrize(
    "weights",
    [
        (-1, 2),
        (math.nan, 1),
        (math.inf, 1),
        (0, 0),
        ("0.5", "0.5"),
        (1, 1, 1),
        (1,),
        (),
        (True, False),
        (None, 1),
        (1j, 1),
        (Decimal(1), 1),
        "11",
        b"ab",
        0.5,
        None,
        {0.3: 1, 0.7: 2},
    ],
    ids=repr,
)
def test_impossible_weights_are_refused_by_value(weights):
    with pytest.raises(InvalidQueryError) as caught:
        check_weights(weights)
    assert repr(weights) in str(caught.value)
    assert "0.5, 0.5" in str(caught.value)


def test_offending_weight_is_named():
    with pytest.raises(InvalidQueryError, match="weight -1 in"):
        fuse("convex", [[], []], (-1, 2))


@pytest.mark.parametrize("name", ["RRF", "", None, 3, "linear"])
def test_unknown_rule_is_refused_with_the_list(name):
    with pytest.raises(InvalidQueryError, match="'convex', 'rrf', 'dbsf', 'relative'"):
        check_fusion(name)


def test_wrong_number_of_rankings_or_constant_is_refused():
    with pytest.raises(InvalidQueryError, match="two rankings"):
        fuse("rrf", [[("a", 1)]], (0.5, 0.5))
    for k in (-1, math.nan, math.inf, "60", True):
        with pytest.raises(InvalidQueryError, match="rank constant"):
            reciprocal_rank([["a"], []], (0.5, 0.5), k)


@pytest.mark.parametrize(
    ("cosine", "background", "expected"),
    [
        (1, 0.8, 1),
        (0.9, 0.8, 0.5),
        (0.8, 0.8, 0),
        (0.5, 0.8, 0),
        (0.5, 0, 0.5),
        (-1, 0, 0),
        (0.5, -0.5, 2 / 3),
        (1.0000001, 0.2, 1),
        (1, 1, 1),
        (0.99, 1, 0),
        (math.nan, 0.5, 0),
        (0.5, math.nan, 0),
    ],
)
def test_cosine_is_measured_from_the_background(cosine, background, expected):
    assert calibrate_cosine(cosine, background) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("score", "reachable", "expected"),
    [
        (3, 12, 0.25),
        (12, 12, 1),
        (13, 12, 1),
        (0, 12, 0),
        (-1, 12, 0),
        (5, 0, 0),
        (0, 0, 0),
        (5, -1, 0),
        (math.nan, 5, 0),
        (5, math.inf, 0),
    ],
)
def test_bm25_is_measured_against_what_the_query_can_reach(score, reachable, expected):
    assert calibrate_bm25(score, reachable) == pytest.approx(expected)


class TestTellingWords:
    @pytest.mark.parametrize(
        ("strength", "coverage", "expected"), [(0, 0.5, 0), (2.4, 0.5, 0.5), (2.4, 1, 2 / 3), (9, 0, 0), (-1, 1, 0)]
    )
    def test_half_of_the_evidence_is_one_word_and_a_fifth_of_coverage(self, strength, coverage, expected):
        assert keyword_evidence(strength, coverage) == pytest.approx(expected)

    def test_a_unique_code_is_strong_evidence_and_a_common_one_hardly_more_than_a_word(self):
        assert keyword_evidence(0.6, 1, 1.0) == pytest.approx(1 / 3 + 0.8 * 2 / 3)
        assert keyword_evidence(0.6, 1, 0.3) == pytest.approx(1 / 3 + 0.072 * 2 / 3)

    @given(st.floats(0, 1e6), *[st.floats(0, 1)] * 3)
    def test_a_rarer_code_is_never_weaker_evidence(self, strength, coverage, one, other):
        rare, common = max(one, other), min(one, other)
        assert keyword_evidence(strength, coverage, common) <= keyword_evidence(strength, coverage, rare) <= 1

    @given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1), st.floats(0, 1))
    def test_more_strength_or_more_coverage_is_never_weaker_evidence(self, weak, strong, little, much):
        weak, strong = sorted((weak, strong))
        little, much = sorted((little, much))
        assert 0 <= keyword_evidence(weak, little) <= keyword_evidence(strong, much) <= 1


class TestConfidence:
    def test_no_sign_is_hardly_any_and_all_of_them_are_nearly_certain(self):
        assert confidence(0, 0, 0) == pytest.approx(0.0431, abs=1e-4)
        assert confidence(1, 1, 1) > 0.99

    def test_what_lies_behind_counts_as_no_lead(self):
        assert confidence(0.4, -0.2, -0.3) == confidence(0.4, 0, 0)

    @given(*[st.tuples(st.floats(-1, 2), st.floats(-1, 2))] * 3)
    def test_more_of_a_sign_never_lowers_it(self, words, place, lead):
        low, high = (confidence(*(pick(pair) for pair in (words, place, lead))) for pick in (min, max))
        assert 0 < low <= high < 1


class TestAdaptiveWeights:
    crowd = tuple(0.5 - 0.003 * number for number in range(30))
    lead = (0.9, *crowd[1:])

    def test_an_index_without_a_ranking_gets_no_vote(self):
        assert adaptive_weights([], (0.3, 0.9)) == (0.0, 1.0)
        assert adaptive_weights(self.crowd, None) == (1.0, 0.0)

    def test_indexes_that_agree_leave_the_vector_index_its_weight(self):
        assert adaptive_weights(self.crowd, (0.5, 1.0)) == pytest.approx((0.7, 0.3))

    def test_a_chance_word_takes_nothing_from_meaning(self):
        assert adaptive_weights(self.crowd, (0.1, 0.05))[0] > 0.67

    def test_words_that_answer_in_full_lead_where_the_nearest_are_a_crowd(self):
        assert adaptive_weights(self.crowd, (0.1, 0.9))[0] < 0.05

    def test_a_clear_lead_is_believed(self):
        assert adaptive_weights(self.lead, (0.1, 0.9))[0] > 0.65

    def test_the_nearest_that_stand_far_out_gain_over_words_but_not_over_a_code(self):
        far = (0.9, *(0.5 - 0.003 * number for number in range(29)))
        spread = far[0] - far[-1]
        words = 0.3 * (0.2 / spread) ** 2
        assert adaptive_weights(far, (0.9, 1.0)) == pytest.approx((0.7 / (0.7 + words), words / (0.7 + words)))
        assert adaptive_weights(far, (0.9, 1.0), 1.0) == pytest.approx((0.7, 0.3))

    def test_standing_out_from_a_handful_gains_nothing(self):
        assert adaptive_weights((0.9, 0.5, 0.1), (0.9, 1.0)) == pytest.approx((0.7, 0.3))

    def test_more_contradiction_never_gives_meaning_more(self):
        shares = [adaptive_weights(self.crowd, (0.41, coverage / 10))[0] for coverage in range(11)]
        assert shares == sorted(shares, reverse=True)
        shares = [adaptive_weights(self.crowd, (nearness / 20, 0.8))[0] for nearness in range(11)]
        assert shares == sorted(shares)

    @pytest.mark.parametrize("near", [(0.5,), (0.5, 0.5, 0.5), (0.0, 0.0)])
    def test_a_list_of_one_or_of_equals_contradicts_nothing(self, near):
        assert adaptive_weights(near, (near[0], 1.0)) == pytest.approx((0.7, 0.3))

    def test_the_weights_do_not_depend_on_how_many_were_fetched(self):
        longer = (*self.crowd, *(0.1 - 0.001 * number for number in range(60)))
        assert adaptive_weights(longer, (0.3, 0.6)) == adaptive_weights(self.crowd, (0.3, 0.6))
