"""The fusion rules from their formulas: the oracle of `fusion`."""

from __future__ import annotations

import statistics


def reference_fusion(
    name: str, rankings: list[list[tuple[str, float]]], weights: tuple[float, float]
) -> dict[str, float]:
    """The rules from their formulas, for short lists without odd numbers."""
    shares = [weight / sum(weights) for weight in weights]
    fused: dict[str, float] = {}
    for share, ranking in zip(shares, rankings, strict=True):
        if not share:
            continue
        scores = [value for _, value in ranking]
        for rank, (candidate, value) in enumerate(ranking, 1):
            fused[candidate] = fused.get(candidate, 0.0) + share * _own_scale(name, value, rank, scores)
    return fused


def _own_scale(name: str, value: float, rank: int, scores: list[float]) -> float:
    if name in {"convex", "adaptive"}:
        return value
    if name == "rrf":
        return 61 / (60 + rank)
    if len(set(scores)) == 1:
        return 0.5 if name == "dbsf" else 1.0
    if name == "relative":
        return (value - min(scores)) / (max(scores) - min(scores))
    spread = 3 * statistics.stdev(scores)
    return min(max((value - statistics.mean(scores) + spread) / (2 * spread), 0.0), 1.0)
