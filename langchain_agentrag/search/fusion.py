"""Score fusion of the vector and the keyword index: pure functions, one per rule, scores in [0, 1], higher is better.

A ranking is a list of (id, score), best first; an id that occurs twice counts once, with its better score or rank. A
candidate that an index did not return gets 0 from it, and an index of weight 0 adds no candidates. Ties are left to
the caller.

| rule       | input  | score of a candidate in one index                                               |
|------------|--------|---------------------------------------------------------------------------------|
| "adaptive" | scores | the evidence (`calibrate_cosine` with the lowest background, `keyword_evidence`) |
| "convex"   | scores | the calibrated score (`calibrate_cosine`, `calibrate_bm25`)                     |
| "rrf"      | ranks  | (k + 1) / (k + rank), rank from 1, k = 60                                       |
| "dbsf"     | scores | position between mean - 3 and mean + 3 standard deviations of the list          |
| "relative" | scores | position between the lowest and the highest score of the list                   |

The fused score is the weighted sum over both indexes, with weights that sum to 1. "adaptive" is the default; unless the
caller sets weights, `adaptive_weights` chooses them for each query. A new rule is a branch of `fuse`; a rule that needs
the scores of all candidates instead of rankings gets them from `ranking.fuse_scores`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from numbers import Real
from typing import Literal, TypeVar, cast, get_args

from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.metadata import short_repr

Id = TypeVar("Id", bound=Hashable)

FusionName = Literal["adaptive", "convex", "rrf", "dbsf", "relative"]
"""Names of the fusion rules."""

Ranking = Sequence[tuple[Id, float]]
"""Candidates of one index with their scores, best first."""

Weights = tuple[float, float]
"""Weight of each index, (vector, keyword)."""

RANK_CONSTANT = 60
"""k of reciprocal rank fusion, from the paper: the larger, the flatter the decay with rank."""

SPREAD_DEPTH = 30
"""Nearest passages that the spread of cosines is measured over; fixed, so that it does not depend on k."""

VECTOR_SHARE = 0.7
"""Default weight of the vector index."""
_HALF_SATURATION = 1.2  # keyword strength, in rarest terms, at which keyword evidence reaches one half
_NARROW_SPREAD = 0.12  # spread of cosines below which no passage stands out
_WIDE_SPREAD = 0.2  # spread of cosines above which the nearest passages stand out
_CODE_SHARE = 0.8  # largest share of the remaining evidence that a matching code adds
_DEVIATIONS = 3.0  # DBSF: half of the range, in standard deviations
_INDEXES = 2


def check_weights(weights: object) -> Weights:
    """Validate the weights of the two indexes, (vector, keyword), and scale them to sum 1.

    Raises:
        InvalidQueryError: not two numbers, or one is negative, NaN or infinite, or both are zero.
    """
    remedy = "give two numbers of 0 or more, not both 0, such as (0.5, 0.5)"
    if isinstance(weights, str | bytes | Mapping) or not hasattr(weights, "__iter__"):
        msg = f"weights must be a pair (vector, keyword), got {short_repr(weights)}: {remedy}."
        raise InvalidQueryError(msg)
    pair = list(weights)
    if len(pair) != _INDEXES:
        msg = f"weights must be one number per index (vector, keyword), got {short_repr(weights)}: {remedy}."
        raise InvalidQueryError(msg)
    for weight in pair:
        if not _is_weight(weight):
            msg = f"weight {short_repr(weight)} in {short_repr(weights)} is not a finite number of 0 or more: {remedy}."
            raise InvalidQueryError(msg)
    largest = max(pair)
    if largest == 0:
        msg = f"weights {short_repr(weights)} leave no index to search: {remedy}."
        raise InvalidQueryError(msg)
    # Dividing by the larger one first keeps huge weights from overflowing in the sum.
    try:
        vector, keyword = (float(weight / largest) for weight in pair)
    except OverflowError:  # a whole number that is no float, and a float
        vector, keyword = (float(Fraction(weight) / Fraction(largest)) for weight in pair)
    return vector / (vector + keyword), keyword / (vector + keyword)


def _is_weight(number: object) -> bool:
    usable = isinstance(number, Real) and not isinstance(number, bool)
    return usable and 0 <= cast("float", number) < math.inf  # false for NaN as well


def check_fusion(name: object) -> FusionName:
    """Validate the name of a fusion rule.

    Raises:
        InvalidQueryError: there is no such rule.
    """
    for known in get_args(FusionName):
        if name == known:
            return known  # type: ignore[no-any-return]
    msg = f"fusion {name!r} is not known: use one of {', '.join(map(repr, get_args(FusionName)))}."
    raise InvalidQueryError(msg)


def fuse(rule: FusionName, rankings: Sequence[Ranking[Id]], weights: Weights) -> dict[Id, float]:
    """Fuse two rankings with a named rule: the fused score of every candidate.

    Args:
        rule: Name of the rule.
        rankings: (vector, keyword). "adaptive" and "convex" expect scores in [0, 1] of all candidates, the others take
            any scores of the best candidates of each index.
        weights: (vector, keyword), any two weights `check_weights` accepts.

    Raises:
        InvalidQueryError: unknown rule or invalid weights.
    """
    rule = check_fusion(rule)
    if len(rankings) != _INDEXES:
        msg = f"fusion takes two rankings (vector, keyword), got {len(rankings)}: pass [] for a missing one."
        raise InvalidQueryError(msg)
    if rule == "rrf":
        return reciprocal_rank([[name for name, _ in ranking] for ranking in rankings], weights)
    if rule == "dbsf":
        return distribution_based(rankings, weights)
    if rule == "relative":
        return relative_score(rankings, weights)
    vector, keyword = map(_best, rankings)
    return convex(vector, keyword, weights)


def convex(vector: Mapping[Id, float], keyword: Mapping[Id, float], weights: Weights) -> dict[Id, float]:
    """Convex combination: w * vector + (1 - w) * keyword, on scores already in [0, 1]; a missing one is 0.

    Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS 2023: it beats
    reciprocal rank fusion in and out of domain, since ranks throw away how much better a candidate is. Their
    theoretical minimum and maximum are here the calibration of each index. "adaptive" is the same sum of other scores.
    """
    return _weighted_sum(
        [{name: clip(score) for name, score in scores.items()} for scores in (vector, keyword)], weights
    )


def keyword_evidence(strength: float, coverage: float, code_rarity: float = 0.0) -> float:
    """Calibrated keyword score of a passage, in [0, 1]: how strongly its matching terms support it.

    It is e = x / (x + 1.2) with x = strength * coverage, plus (1 - e) * 0.8 * code_rarity^2. Strength alone overrates a
    passage that shares one rare term; coverage alone overrates one that shares only common terms. The saturation limits
    long quotations. A matching code (an order number, a model name) counts extra, since a query that names a code asks
    for the passages that contain it.

    Args:
        strength: BM25 score divided by the idf of a term that a single passage in scope contains.
        coverage: Share of the query's information that the passage matched, in [0, 1]; see `Scorer.coverage`.
        code_rarity: Rarity of the rarest code of the query that the passage contains, in [0, 1]; see `Scorer.rarity`.
    """
    product = strength * coverage
    evidence = product / (product + _HALF_SATURATION) if product > 0 else 0.0
    return evidence + (1.0 - evidence) * _CODE_SHARE * code_rarity**2


def adaptive_weights(
    cosines: Sequence[float], best_keyword: tuple[float, float] | None, code_rarity: float = 0.0
) -> Weights:
    """Weights (vector, keyword) chosen for one query from its candidates, when the caller sets none.

    The vector index starts with 0.7. It loses weight when the two indexes disagree: the best keyword candidate covers
    much of the query but is far down the vector ranking, and the cosines in that ranking hardly differ (as for short
    turns of a dialogue). The keyword index loses weight when the nearest passages stand out clearly, unless the query
    contains a code. The constants are round numbers chosen on ten collections and two embedding models together
    (`benchmarks/quality.py`, DECISIONS.md).

    Args:
        cosines: Calibrated cosines of the vector ranking (`calibrate_cosine`), highest first.
        best_keyword: Calibrated cosine and coverage of the best keyword candidate; None if no term matched.
        code_rarity: Rarity of the rarest code of the query that any passage contains, in [0, 1].
    """
    if best_keyword is None or not cosines:
        return (1.0, 0.0) if cosines else (0.0, 1.0)
    cosine, coverage = best_keyword
    lowest = cosines[min(SPREAD_DEPTH, len(cosines)) - 1]
    spread = cosines[0] - lowest
    position = clip((cosine - lowest) / spread) if spread > 0 else 1.0
    narrowness = min(1.0, _NARROW_SPREAD / spread) ** 2 if spread > 0 else 1.0
    vector = VECTOR_SHARE * (1.0 - clip(coverage) * (1.0 - position) * narrowness) ** 2
    stands_out = spread > _WIDE_SPREAD and len(cosines) >= SPREAD_DEPTH  # a spread of few passages says less
    keyword = (1.0 - VECTOR_SHARE) * ((_WIDE_SPREAD / spread) ** 2 if stands_out else 1.0)
    keyword += (1.0 - VECTOR_SHARE - keyword) * code_rarity
    return vector / (vector + keyword), keyword / (vector + keyword)


def reciprocal_rank(rankings: Sequence[Sequence[Id]], weights: Weights, k: float = RANK_CONSTANT) -> dict[Id, float]:
    """Reciprocal rank fusion: the sum of w / (k + rank), rank from 1, divided by its maximum, 1 / (k + 1).

    Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual rank
    learning methods", SIGIR 2009, k = 60. A candidate that leads both lists gets 1.

    Args:
        rankings: Ids of each index, best first.
        weights: (vector, keyword).
        k: 0 or more; the smaller, the more the first ranks count.
    """
    if not _is_weight(k):
        msg = f"the rank constant k must be a finite number of 0 or more, got {k!r}: the usual one is 60."
        raise InvalidQueryError(msg)
    by_index = []
    for ranking in rankings:
        unique = dict.fromkeys(ranking)  # an id listed twice keeps its first rank
        by_index.append({name: (k + 1) / (k + rank) for rank, name in enumerate(unique, 1)})
    return _weighted_sum(by_index, weights)


def distribution_based(rankings: Sequence[Ranking[Id]], weights: Weights) -> dict[Id, float]:
    """Distribution-based score fusion: (s - (m - 3d)) / 6d per index, clipped to [0, 1].

    m is the mean and d the sample standard deviation (n - 1) of the ranking; a ranking of one candidate, or of equal
    scores, gives 0.5. Mazzeschi, "Distribution-Based Score Fusion" (2023), as in Qdrant 1.11, except that Qdrant adds
    the indexes without weights.
    """
    return _weighted_sum([_scale(_best(ranking), _deviations, tied=0.5) for ranking in rankings], weights)


def relative_score(rankings: Sequence[Ranking[Id]], weights: Weights) -> dict[Id, float]:
    """Relative score fusion: (s - min) / (max - min) per index, over its ranking.

    A ranking of one candidate, or of equal scores, gives 1; otherwise the lowest gets 0. As Weaviate's
    `relativeScoreFusion`.
    """
    return _weighted_sum([_scale(_best(ranking), _extremes, tied=1.0) for ranking in rankings], weights)


def calibrate_cosine(cosine: float, background: float) -> float:
    """Calibrate a cosine against the background of its model: (c - b) / (1 - b), clipped to [0, 1].

    Args:
        cosine: Cosine of query and passage.
        background: Mean cosine b of unrelated pairs under the same model: 0.2 for one, 0.85 for another. A passage
            that is no closer than unrelated text gets 0.
    """
    if not background < 1:  # the model does not tell texts apart: only equal vectors count
        return 1.0 if cosine >= 1 else 0.0
    return clip((cosine - background) / (1 - background))


def calibrate_bm25(score: float, reachable: float) -> float:
    """Calibrate a BM25 score by its upper bound: score / reachable, clipped to [0, 1].

    Args:
        score: BM25 of the passage.
        reachable: Upper bound of the score for this query, the sum over its terms of idf * (k1 + 1)
            (`Scorer.maximum`). It depends on the query and not on the other hits.
    """
    return clip(score / reachable) if reachable > 0 else 0.0


def clip(score: float) -> float:
    """Clip to [0, 1]; NaN becomes 0."""
    return min(float(score), 1.0) if score > 0 else 0.0


def _best(ranking: Ranking[Id]) -> dict[Id, float]:
    """Score of each id; the better one of an id listed twice, and -inf for a score that is not finite."""
    best: dict[Id, float] = {}
    for name, score in ranking:
        number = float(score) if math.isfinite(score) else -math.inf
        best[name] = max(number, best.get(name, -math.inf))
    return best


def _scale(
    ranking: dict[Id, float], limits: Callable[[list[float]], tuple[float, float]], *, tied: float
) -> dict[Id, float]:
    """Scale the scores of a ranking to the range that `limits` derives from them; one that is not finite gets 0."""
    largest = max((abs(score) for score in ranking.values() if math.isfinite(score)), default=0.0) or 1.0
    # Both rules are linear: a common factor changes nothing but keeps the squares of huge scores finite.
    scores = {name: score / largest for name, score in ranking.items() if math.isfinite(score)}
    low, high = limits(list(scores.values())) if len(set(scores.values())) > 1 else (0.0, 0.0)
    scaled = dict.fromkeys(ranking, 0.0)
    scaled |= {name: clip((score - low) / (high - low)) if high > low else tied for name, score in scores.items()}
    return scaled


def _extremes(scores: list[float]) -> tuple[float, float]:
    return min(scores), max(scores)


def _deviations(scores: list[float]) -> tuple[float, float]:
    mean = math.fsum(scores) / len(scores)
    squares = math.fsum((score - mean) ** 2 for score in scores)
    spread = _DEVIATIONS * math.sqrt(squares / max(1, len(scores) - 1))
    return mean - spread, mean + spread


def _weighted_sum(by_index: Sequence[Mapping[Id, float]], weights: Weights) -> dict[Id, float]:
    fused: dict[Id, float] = {}
    for scores, weight in zip(by_index, check_weights(weights), strict=True):
        if weight > 0:
            for name, score in scores.items():
                fused[name] = fused.get(name, 0.0) + weight * score
    # Two rounded products may add up to a hair above 1.
    return {name: min(score, 1.0) for name, score in fused.items()}
