"""Pure fusion of the two legs of a search: one function per rule, every result in [0, 1], higher is better.

A ranking is a list of (id, score), best first; an id counts once, at its best place. Ids are compared, never
texts. A leg without a candidate contributes exactly 0 to it, and a leg of weight 0 is as good as absent: it
brings no candidate in. The order of equal results is the caller's business.

| name       | uses   | score of a candidate in one leg                                             |
|------------|--------|-----------------------------------------------------------------------------|
| "adaptive" | scores | the evidence itself (`calibrate_cosine` from the lowest background, `telling_words`) |
| "convex"   | scores | the calibrated score itself (`calibrate_cosine`, `calibrate_bm25`)          |
| "rrf"      | ranks  | (k + 1) / (k + rank), rank from 1, k = 60                                   |
| "dbsf"     | scores | place between mean - 3 and mean + 3 standard deviations of the leg's list   |
| "relative" | scores | place between the lowest and the highest score of the leg's list            |

"adaptive" is the default: its weights, where the caller leaves them open, are chosen for each query by
`adaptive_weights`. The fused score is the sum over the legs of weight times that score, the weights summing to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import timedelta
from numbers import Real
from typing import Literal, TypeVar, cast, get_args

from langchain_agentrag.errors import InvalidQueryError

Id = TypeVar("Id", bound=Hashable)

FusionName = Literal["adaptive", "convex", "rrf", "dbsf", "relative"]
"""Names of the fusion rules."""

Ranking = Sequence[tuple[Id, float]]
"""Candidates of one leg with their scores, best first."""

Weights = tuple[float, float]
"""Share of each leg, (vector, keyword)."""

RANK_CONSTANT = 60
"""k of reciprocal rank fusion, as in the paper: how slowly a lower rank loses."""

_MEANING = 0.7  # the vector leg's share when nothing speaks against it
_HALF = 1.2  # rare words' worth of evidence that tell half of what words can tell
SCALED = 30
"""Nearest passages that make the spread of a list; fixed, so that it does not depend on k."""
_CROWDED = 0.12  # spread below which none of the nearest stands out, on the common scale
_NAMED = 0.8  # what a code that one passage holds adds, of what words leave open
_APART = 0.2  # spread above which the nearest stand out by themselves

_SPREAD = 3.0  # DBSF takes three standard deviations to each side as the whole range
_LEGS = 2


def check_weights(weights: object) -> Weights:
    """The weights of the legs, (vector, keyword), scaled to sum 1.

    Raises:
        InvalidQueryError: not two numbers, or one is negative, NaN or infinite, or both are zero.
    """
    remedy = "give two numbers of 0 or more, not both 0, such as (0.5, 0.5)"
    if isinstance(weights, str | bytes | Mapping) or not hasattr(weights, "__iter__"):
        msg = f"weights must be a pair (vector, keyword), got {weights!r}: {remedy}."
        raise InvalidQueryError(msg)
    pair = list(weights)
    if len(pair) != _LEGS:
        msg = f"weights must be one number per leg (vector, keyword), got {weights!r}: {remedy}."
        raise InvalidQueryError(msg)
    for weight in pair:
        if not _is_weight(weight):
            msg = f"weight {weight!r} in {weights!r} is no finite number of 0 or more: {remedy}."
            raise InvalidQueryError(msg)
    largest = max(pair)
    if largest == 0:
        msg = f"weights {weights!r} leave no leg: {remedy}."
        raise InvalidQueryError(msg)
    # Dividing by the larger one first keeps huge weights from overflowing in the sum.
    vector, keyword = (float(weight / largest) for weight in pair)
    return vector / (vector + keyword), keyword / (vector + keyword)


def _is_weight(number: object) -> bool:
    usable = isinstance(number, Real) and not isinstance(number, bool)
    return usable and 0 <= cast("float", number) < math.inf  # false for NaN as well


def check_fusion(name: object) -> FusionName:
    """The name of a fusion rule, unchanged.

    Raises:
        InvalidQueryError: there is no such rule.
    """
    for known in get_args(FusionName):
        if name == known:
            return known  # type: ignore[no-any-return]
    msg = f"fusion {name!r} is not known: use one of {', '.join(map(repr, get_args(FusionName)))}."
    raise InvalidQueryError(msg)


def fuse(rule: FusionName, rankings: Sequence[Ranking[Id]], weights: Weights) -> dict[Id, float]:
    """Fused score of every candidate under a rule.

    Args:
        rule: Name of the rule.
        rankings: (vector, keyword). "adaptive" and "convex" expect scores in [0, 1], the others take any.
        weights: (vector, keyword), any two weights `check_weights` accepts.

    Raises:
        InvalidQueryError: an unknown rule, or weights that cannot be.
    """
    rule = check_fusion(rule)
    if len(rankings) != _LEGS:
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
    theoretical minimum and maximum are here the calibration of each leg. "adaptive" is the same sum on other scores.
    """
    legs = [{name: _unit(score) for name, score in leg.items()} for leg in (vector, keyword)]
    return _weigh(legs, weights)


def keyword_evidence(strength: float, coverage: float, named: float = 0.0) -> float:
    """What matching words tell, in [0, 1]: x / (x + 1.2) of x = strength * coverage, then 0.8 named^2 of what is left.

    Either alone deceives. One rare word may stand in a passage on something else, which then holds little of what the
    question asks; and a passage that holds all of a question's everyday words has said nothing rare. Saturation keeps
    a long quotation from outweighing everything else. A code is no word among others: who names one means the passage
    that holds it.

    Args:
        strength: BM25 in units of one word that a single passage in scope holds.
        coverage: Share of the query's information that the passage matched, in [0, 1]; see `Scorer.coverage`.
        named: Rarity of the rarest code of the question that the passage holds, in [0, 1]; see `Scorer.rarity`.
    """
    words = strength * coverage
    told = words / (words + _HALF) if words > 0 else 0.0
    return told + (1.0 - told) * _NAMED * named**2


def adaptive_weights(near: Sequence[float], best: tuple[float, float] | None, named: float = 0.0) -> Weights:
    """Share of each leg for one query, when the caller leaves it open: (vector, keyword).

    Meaning has 0.7 to begin with. It loses when the legs contradict one another: the passage with the most matching
    words holds much of what was asked, yet lies far down the list of the nearest, and that list is a crowd in which
    nothing stands out. Then it is the vector leg that guesses (short turns of a dialogue that all sound alike). Words
    lose when the nearest stand far out, unless they name a code. Constants are round, chosen on ten collections and two
    embedding models together (`benchmarks/quality.py`, DECISIONS.md).

    Args:
        near: Cosines on the common scale (`calibrate_cosine`), nearest first.
        best: The same cosine of the best passage of the keyword leg, and its coverage; None where no word matched.
        named: Rarity of the rarest code of the question that any passage holds: meaning gains nothing over it.
    """
    if best is None or not near:
        return (1.0, 0.0) if near else (0.0, 1.0)
    nearness, coverage = best
    lowest = near[min(SCALED, len(near)) - 1]
    spread = near[0] - lowest
    place = _unit((nearness - lowest) / spread) if spread > 0 else 1.0
    crowd = min(1.0, _CROWDED / spread) ** 2 if spread > 0 else 1.0
    vector = _MEANING * (1.0 - _unit(coverage) * (1.0 - place) * crowd) ** 2
    apart = spread > _APART and len(near) >= SCALED  # to stand out from a handful says less
    keyword = (1.0 - _MEANING) * ((_APART / spread) ** 2 if apart else 1.0)
    keyword += (1.0 - _MEANING - keyword) * named
    return vector / (vector + keyword), keyword / (vector + keyword)


def confidence(words: float, place: float, lead: float) -> float:
    """How likely a passage answers the question, in (0, 1).

    A logistic of three signs, each of which can only raise it: what matching words tell, how far the passage stands
    out from the nearest thirty, and by how much it leads every other document. Coefficients are rounded from a fit, to
    first hits on nine collections and to questions whose answer lies in another collection, that were left out one by
    one (`benchmarks/quality.py --confidence`).

    Args:
        words: `telling_words` of the passage.
        place: Its cosine on the common scale above that of the 30th nearest.
        lead: Its evidence (0.7 of the cosine, 0.3 of the words) above that of the best other document, 0 if behind.
    """
    signs = 3.6 * _unit(words) + 2.6 * min(1.0, _unit(lead) / 0.2) + 2.2 * min(1.0, _unit(place) / 0.3)
    return 1.0 / (1.0 + math.exp(3.1 - signs))


def combined_evidence(near: float, words: float) -> float:
    """What both legs know of a passage, in [0, 1], before the question decides on their shares."""
    return _MEANING * near + (1.0 - _MEANING) * words


def reciprocal_rank(
    rankings: Sequence[Sequence[Id]], weights: Weights, k: float = RANK_CONSTANT
) -> dict[Id, float]:
    """Reciprocal rank fusion: the sum of w / (k + rank), rank from 1, divided by its maximum, 1 / (k + 1).

    Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual rank
    learning methods", SIGIR 2009, k = 60. A candidate that leads both lists gets 1.

    Args:
        rankings: Ids of each leg, best first.
        weights: (vector, keyword).
        k: 0 or more; the smaller, the more the first places count.
    """
    if not _is_weight(k):
        msg = f"the rank constant k must be a finite number of 0 or more, got {k!r}: the usual one is 60."
        raise InvalidQueryError(msg)
    legs = []
    for ranking in rankings:
        places = dict.fromkeys(ranking)  # an id listed twice keeps its first place
        legs.append({name: (k + 1) / (k + rank) for rank, name in enumerate(places, 1)})
    return _weigh(legs, weights)


def distribution_based(rankings: Sequence[Ranking[Id]], weights: Weights) -> dict[Id, float]:
    """Distribution-based score fusion: (s - (m - 3d)) / 6d per leg, clipped to [0, 1].

    m is the mean and d the sample standard deviation (n - 1) of the leg's own list; a list of one or of equal
    scores, gives 0.5, so it is never zeroed. After Mazzeschi, "Distribution-Based Score Fusion" (2023), with
    the choices of Qdrant 1.11; Qdrant sums the legs, here they are weighed.
    """
    return _weigh([_scale(_best(ranking), _deviations, tied=0.5) for ranking in rankings], weights)


def relative_score(rankings: Sequence[Ranking[Id]], weights: Weights) -> dict[Id, float]:
    """Relative score fusion: (s - min) / (max - min) per leg, over the leg's own list.

    A list of one, or of equal scores, gives 1: a lone exact match is never zeroed. The lowest of several
    gets 0 from that leg. Known from Weaviate's `relativeScoreFusion`.
    """
    return _weigh([_scale(_best(ranking), _extremes, tied=1.0) for ranking in rankings], weights)


def calibrate_cosine(cosine: float, background: float) -> float:
    """Cosine on the common scale: (c - b) / (1 - b), clipped to [0, 1].

    Args:
        cosine: Cosine of query and passage.
        background: Mean cosine b of unrelated pairs under the same model: 0.2 for one, 0.85 for another. What
            is no closer than unrelated text is no evidence, and gives 0.
    """
    if not background < 1:  # a model that cannot tell texts apart; equality is the only evidence left
        return 1.0 if cosine >= 1 else 0.0
    return _unit((cosine - background) / (1 - background))


def calibrate_bm25(score: float, reachable: float) -> float:
    """BM25 on the common scale: score / reachable, clipped to [0, 1].

    Args:
        score: BM25 of the passage.
        reachable: The most any passage could score for this query, sum over its terms of idf * (k1 + 1). It
            depends on the query, not on the other hits: a lone weak match does not look like a perfect one.
    """
    return _unit(score / reachable) if reachable > 0 else 0.0


MAX_RECENCY_BOOST = 0.1
"""Largest share of a score that being recent can add."""


def recency_boost(score: float, age: timedelta, half_life: timedelta) -> float:
    """What being recent adds to a score: `MOST_RECENCY * 2 ** (-age / half_life) * score * (1 - score)`.

    It reorders near-equals and nothing else: it is less than a tenth of the score, and nothing for what has no
    evidence or is certain, so scores stay in [0, 1]; of two documents of one age the better one stays ahead.

    Args:
        score: Fused score, in [0, 1].
        age: How long ago; what lies in the future counts as new.
        half_life: Age at which half of it is left, > 0.
    """
    halvings = min(max(age, timedelta(0)) / half_life, 1_000.0)
    return MAX_RECENCY_BOOST * float(0.5**halvings) * score * (1.0 - score)


def _unit(score: float) -> float:
    """Clipped to [0, 1]; NaN is no evidence."""
    return min(float(score), 1.0) if score > 0 else 0.0


def _best(ranking: Ranking[Id]) -> dict[Id, float]:
    """Finite scores by id; of an id listed twice the better one."""
    best: dict[Id, float] = {}
    for name, score in ranking:
        number = float(score) if math.isfinite(score) else -math.inf
        best[name] = max(number, best.get(name, -math.inf))
    return best


def _scale(
    leg: dict[Id, float], limits: Callable[[list[float]], tuple[float, float]], *, tied: float
) -> dict[Id, float]:
    """Scores of one leg between two limits drawn from its own scores; one that is not finite gets 0."""
    largest = max((abs(score) for score in leg.values() if math.isfinite(score)), default=0.0) or 1.0
    # Both rules are linear, so a common factor changes nothing but keeps squares of huge scores finite.
    scores = {name: score / largest for name, score in leg.items() if math.isfinite(score)}
    low, high = limits(list(scores.values())) if len(set(scores.values())) > 1 else (0.0, 0.0)
    scaled = dict.fromkeys(leg, 0.0)
    scaled |= {
        name: _unit((score - low) / (high - low)) if high > low else tied for name, score in scores.items()
    }
    return scaled


def _extremes(scores: list[float]) -> tuple[float, float]:
    return min(scores), max(scores)


def _deviations(scores: list[float]) -> tuple[float, float]:
    mean = math.fsum(scores) / len(scores)
    squares = math.fsum((score - mean) ** 2 for score in scores)
    spread = _SPREAD * math.sqrt(squares / max(1, len(scores) - 1))
    return mean - spread, mean + spread


def _weigh(legs: Sequence[Mapping[Id, float]], weights: Weights) -> dict[Id, float]:
    fused: dict[Id, float] = {}
    for leg, weight in zip(legs, check_weights(weights), strict=True):
        if weight > 0:
            for name, score in leg.items():
                fused[name] = fused.get(name, 0.0) + weight * score
    # Two rounded products may add up to a hair above 1.
    return {name: min(score, 1.0) for name, score in fused.items()}
