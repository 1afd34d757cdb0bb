"""What every fusion rule must do; `rule(rankings, weights)` is one of them."""

from __future__ import annotations

import math
import random

import pytest

BOTH = (0.5, 0.5)


class FusionContract:
    """A rule on (vector, keyword) lists of (id, score), best first, and the same rule in plain Python."""

    def test_nothing_in_gives_nothing_out(self, rule, oracle):
        assert rule([[], []], BOTH) == {}

    def test_every_candidate_of_an_index_with_weight_comes_out_once(self, rule, oracle):
        fused = rule([[("a", 0.9), ("b", 0.4)], [("b", 0.8), ("c", 0.1)]], BOTH)
        assert set(fused) == {"a", "b", "c"}

    def test_scores_stay_between_zero_and_one(self, rule, oracle):
        for rankings in ([[("a", 1.0)], [("a", 1.0)]], [[("a", 1.0), ("b", 0.0)], [("b", 1.0), ("a", 0.0)]]):
            for weights in (BOTH, (0.9, 0.1), (3, 7)):
                assert all(0 <= score <= 1 for score in rule(rankings, weights).values())

    def test_a_candidate_that_leads_both_indexes_leads(self, rule, oracle):
        fused = rule([[("a", 0.9), ("b", 0.5), ("c", 0.1)], [("a", 0.8), ("c", 0.6), ("b", 0.2)]], BOTH)
        assert max(fused, key=fused.__getitem__) == "a"

    def test_an_index_of_weight_zero_is_the_same_as_an_absent_one(self, rule, oracle):
        near, words = [("a", 0.9), ("b", 0.5)], [("c", 0.9), ("b", 0.5)]
        assert rule([near, words], (1, 0)) == rule([near, []], (1, 0))
        assert rule([near, words], (0, 1)) == rule([[], words], (0, 1))
        assert "c" not in rule([near, words], (1, 0))

    def test_weights_decide_between_the_indexes(self, rule, oracle):
        rankings = [[("a", 0.9), ("b", 0.2)], [("b", 0.9), ("a", 0.2)]]
        for weights, first in (((0.9, 0.1), "a"), ((0.1, 0.9), "b")):
            fused = rule(rankings, weights)
            assert max(fused, key=fused.__getitem__) == first

    def test_a_missing_index_contributes_exactly_nothing(self, rule, oracle):
        fused = rule([[("v", 0.6), ("w", 0.3)], [("k", 0.9), ("l", 0.4)]], (0.3, 0.7))
        alone = rule([[("v", 0.6), ("w", 0.3)], []], (0.3, 0.7))
        assert {name: fused[name] for name in alone} == alone

    def test_a_single_match_of_an_index_is_never_scaled_to_zero(self, rule, oracle):
        fused = rule([[("a", 0.5), ("b", 0.4)], [("k", 0.7)]], BOTH)
        assert fused["k"] > 0

    def test_names_of_candidates_do_not_matter(self, rule, oracle):
        near, words = [("a", 0.9), ("b", 0.5)], [("b", 0.7), ("c", 0.2)]
        other = {"a": "z", "b": "m", "c": "a"}
        renamed = [[(other[name], score) for name, score in ranking] for ranking in (near, words)]
        assert rule(renamed, BOTH) == {other[name]: score for name, score in rule([near, words], BOTH).items()}

    def test_it_agrees_with_the_reference(self, rule, oracle):
        dice = random.Random(3)
        for _ in range(60):
            rankings = []
            for _ in range(2):
                names = dice.sample("abcdefgh", dice.randint(0, 8))
                scores = sorted((dice.choice([0.0, 0.25, 0.5, 1.0, dice.random()]) for _ in names), reverse=True)
                rankings.append(list(zip(names, scores, strict=True)))
            weights = dice.choice([BOTH, (1, 0), (0, 1), (0.7, 0.3), (2, 6)])
            ours, theirs = rule(rankings, weights), oracle(rankings, weights)
            assert ours.keys() == theirs.keys()
            assert all(math.isclose(ours[name], theirs[name], abs_tol=1e-12) for name in ours), (rankings, weights)

    def test_hand_computed(self, rule, oracle):
        rankings = [[("a", 0.8), ("b", 0.4)], [("b", 0.6)]]
        expected = {
            "convex": {"a": 0.4, "b": 0.5},
            "rrf": {"a": 0.5, "b": 0.5 * 61 / 62 + 0.5},
            "relative": {"a": 0.5, "b": 0.5},
            "adaptive": {"a": 0.4, "b": 0.5},
            # mean 0.6, sample deviation 0.2828: 0.5 +- 0.2 / (6 * 0.2828) = 0.6179 and 0.3821; a list of one is 0.5
            "dbsf": {"a": 0.308926, "b": 0.191074 + 0.25},
        }[rule.name]
        assert rule(rankings, BOTH) == pytest.approx(expected, abs=1e-6)
