"""Confidence intervals and significance of differences between runs, computed by scipy.stats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from langchain_agentrag.errors import MissingExtraError

RESAMPLES = 2_000
"""Bootstrap samples; the ends of an interval move by less than a tenth of its width from one seed to another."""

PERMUTATIONS = 10_000
"""Sign flips of a significance test; up to 13 differing questions every one of the 2^n is tried."""

_SEED = 20_240_607
_LEVEL = 0.05
_BATCH = 2_000_000  # random numbers drawn at once


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
    """Paired difference of two runs on the same questions.

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
        """Whether p is below .05 and the interval lies on one side of 0."""
        return self.p < _LEVEL and (self.low > 0 or self.high < 0)


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean and its percentile bootstrap interval over questions; all 0 without values.

    Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3. The same values give the same
    interval: the seed is fixed.

    Raises:
        MissingExtraError: scipy is not installed.
    """
    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean()) if len(sample) else 0.0
    if len(sample) <= 1:  # scipy needs two
        return Interval(mean, mean, mean)
    resampled = _scipy_stats().bootstrap(
        (sample,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=level,
        method="percentile",
        batch=max(1, _BATCH // len(sample)),
        rng=np.random.default_rng(_SEED),
    )
    low, high = map(float, resampled.confidence_interval)
    return Interval(mean, min(low, mean), max(high, mean))  # interpolating equal means can round past them


def compare(new: Sequence[float], old: Sequence[float]) -> Difference:
    """Return the paired difference of two runs, question by question.

    The interval is a bootstrap over questions, the probability a two-sided sign-flip permutation test, exact where few
    questions differ: Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information
    Retrieval Evaluation", CIKM 2007.

    Raises:
        ValueError: the two do not hold the same number of values.
        MissingExtraError: scipy is not installed.
    """
    if len(new) != len(old):
        raise ValueError(f"Cannot pair {len(new)} values with {len(old)}: compare the same questions.")
    deltas = np.asarray(new, dtype=np.float64) - np.asarray(old, dtype=np.float64)
    mean = interval(deltas.tolist())
    return Difference(
        mean=mean.mean,
        low=mean.low,
        high=mean.high,
        p=permutation_p(deltas.tolist()),
        better=int((deltas > 0).sum()),
        worse=int((deltas < 0).sum()),
        questions=len(deltas),
    )


def permutation_p(deltas: Sequence[float]) -> float:
    """Return the two-sided p of a mean difference of 0, by flipping signs; 1 where at most one question differs."""
    differing = np.asarray([delta for delta in deltas if delta], dtype=np.float64)
    if len(differing) <= 1:  # both signs are equally far from 0
        return 1.0
    test = _scipy_stats().permutation_test(
        (differing,),
        lambda sample, axis: np.abs(sample.sum(axis=axis)),
        permutation_type="samples",
        n_resamples=PERMUTATIONS,
        batch=max(1, _BATCH // len(differing)),
        alternative="greater",
        rng=np.random.default_rng(_SEED),
    )
    return float(test.pvalue)


def _scipy_stats() -> Any:  # noqa: ANN401  (a module)
    try:
        from scipy import stats  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("Evaluation", "eval") from error
    return stats
