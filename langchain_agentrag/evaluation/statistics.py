"""What a difference between two runs is worth: intervals by bootstrap, significance by permutation. Pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2_000
"""Bootstrap samples; the ends of an interval move by less than a tenth of its width from one seed to another."""

PERMUTATIONS = 10_000
_EXACT = 13  # differing questions up to which every one of the 2^n flips is tried
_SEED = 20_240_607
_LEVEL = 0.05
_BLOCK = 2_000_000  # numbers drawn at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence interval.

    Attributes:
        mean: Mean over the questions.
        low: Lower end, 95 % by default.
        high: Upper end.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """How two runs differ on the same questions.

    Attributes:
        mean: Mean of new - old.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p: Probability of a mean at least as far from 0 if the two were alike.
        better: Questions on which the new one is better.
        worse: Questions on which it is worse.
        questions: Questions compared.
    """

    mean: float
    low: float
    high: float
    p: float
    better: int
    worse: int
    questions: int

    @property
    def significant(self) -> bool:
        """Whether it is hardly chance: p below .05, and the interval on one side of 0."""
        return self.p < _LEVEL and (self.low > 0 or self.high < 0)


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean and percentile bootstrap interval over questions; all 0 without values.

    Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3. The same values give the same
    interval: the seed is fixed.
    """
    sample = np.asarray(values, dtype=np.float64)
    if not len(sample):
        return Interval(0.0, 0.0, 0.0)
    means = _resampled_means(sample)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(sample.mean()), float(low), float(high))


def compare(new: Sequence[float], old: Sequence[float]) -> Difference:
    """The paired difference of two runs, question by question.

    The interval is a bootstrap over questions, the probability a two-sided sign-flip permutation test, exact where few
    questions differ: Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information
    Retrieval Evaluation", CIKM 2007.

    Raises:
        ValueError: the two do not hold the same number of values.
    """
    deltas = np.asarray(new, dtype=np.float64) - np.asarray(old, dtype=np.float64)
    if len(new) != len(old):
        raise ValueError(f"cannot pair {len(new)} values with {len(old)}: compare the same questions.")
    found = interval(deltas.tolist())
    return Difference(
        mean=found.mean,
        low=found.low,
        high=found.high,
        p=permutation_p(deltas.tolist()),
        better=int((deltas > 0).sum()),
        worse=int((deltas < 0).sum()),
        questions=len(deltas),
    )


def permutation_p(deltas: Sequence[float]) -> float:
    """Two-sided p of a mean difference of 0, by flipping signs; 1 where nothing differs."""
    moved = np.asarray([delta for delta in deltas if delta], dtype=np.float64)
    if not len(moved):
        return 1.0
    seen = abs(moved.sum()) - 1e-12  # of equal sums none is beyond the other by rounding
    if len(moved) <= _EXACT:
        signs = 1 - 2 * ((np.arange(2 ** len(moved))[:, None] >> np.arange(len(moved))) & 1)
        return float((np.abs(signs @ moved) >= seen).mean())
    random, extreme, left = np.random.default_rng(_SEED), 0, PERMUTATIONS
    while left:
        rows = min(left, max(1, _BLOCK // len(moved)))
        flips = random.integers(0, 2, size=(rows, len(moved))) * 2 - 1
        extreme += int((np.abs(flips @ moved) >= seen).sum())
        left -= rows
    return (extreme + 1) / (PERMUTATIONS + 1)


def _resampled_means(
    sample: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    random, means, left = np.random.default_rng(_SEED), [], RESAMPLES
    while left:
        rows = min(left, max(1, _BLOCK // len(sample)))
        means.append(sample[random.integers(0, len(sample), size=(rows, len(sample)))].mean(axis=1))
        left -= rows
    return np.concatenate(means)
