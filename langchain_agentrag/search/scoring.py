"""Exact scores of candidates in each leg, and what they come to together. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from langchain_agentrag.search.bm25 import Scorer
from langchain_agentrag.search.fusion import (
    SCALED,
    Weights,
    adaptive_weights,
    calibrate_bm25,
    calibrate_cosine,
    confidence,
    convex,
    evidence,
    fuse,
    telling_words,
)
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.store.partition_cache import cosines, unpack_vectors
from langchain_agentrag.store.queries import ScoringRow
from langchain_agentrag.text import FIELDS
from langchain_agentrag.types import LegEvidence

_OTHERS_LIKELY = 0.3  # of such hits that came first 1 in 20 was right, of the others one in two


@dataclass(slots=True)
class Leg:
    """Evidence of one leg.

    Attributes:
        raw: Cosine or BM25 of each row; a row without a matching word is not in it.
        score: The same on the common scale.
        ranking: The leg's own list, best first.
        evidence: What the row's raw score tells by itself, in [0, 1], whatever rule fuses the legs.
        coverage: Share of the query's information each row matched; of the keyword leg only.
        named: Rarity of the rarest code of the question that each row holds; of the keyword leg only.
    """

    raw: dict[int, float] = field(default_factory=dict)
    score: dict[int, float] = field(default_factory=dict)
    ranking: list[int] = field(default_factory=list)
    evidence: dict[int, float] = field(default_factory=dict)
    coverage: dict[int, float] = field(default_factory=dict)
    named: dict[int, float] = field(default_factory=dict)

    def said_of(self, row: int, ranks: Mapping[int, int]) -> LegEvidence | None:
        """What the leg says of a row, if anything."""
        if row not in self.raw:
            return None
        return LegEvidence(rank=ranks.get(row), raw=self.raw[row], score=self.score[row])


class Words(NamedTuple):
    """What a row holds of the question's words; see the fields of the same names of `Leg`."""

    raw: float
    coverage: float
    named: float


def read_words(scorer: Scorer, codes: Collection[str], rows: Iterable[ScoringRow]) -> dict[int, Words]:
    """What each of the rows holds of the question's words; rows without any are left out.

    Args:
        scorer: BM25 over the scope.
        codes: Terms of the codes that the question names.
        rows: Candidates.
    """
    rarities = [(rarity, f" {code} ") for code in codes if (rarity := scorer.rarity("words", code))]
    rarities.sort(reverse=True)
    found = {}
    for stored in rows:
        lines = dict(zip(FIELDS, stored.terms.split("\n"), strict=True))
        value, held = scorer.score_lines(lines, dict(zip(FIELDS, stored.lengths.split(" "), strict=True)))
        if value > 0:
            line = f" {lines['words']} "
            named = next((rarity for rarity, code in rarities if code in line), 0.0) if rarities else 0.0
            found[stored.row] = Words(value, scorer.coverage(held), named)
    return found


def score_words(
    request: SearchRequest,
    scorer: Scorer,
    word: float,
    read: Mapping[int, Words],
    live: Mapping[int, ScoringRow],
    wanted: int,
) -> Leg:
    """The keyword leg's evidence.

    Args:
        request: What was asked.
        scorer: BM25 over the scope.
        word: Query weight of one plain word.
        read: What each row holds of the words.
        live: The candidates.
        wanted: Length of the leg's list.
    """
    raw = {row: found.raw for row, found in read.items()}
    unit = word * scorer.rarest
    told = {
        row: telling_words(found.raw / unit, found.coverage, found.named) if unit else 0.0
        for row, found in read.items()
    }
    score = told
    if not request.adapts:
        score = {row: calibrate_bm25(value, scorer.maximum) for row, value in raw.items()}
    coverage = {row: found.coverage for row, found in read.items()}
    named = {row: found.named for row, found in read.items() if found.named}
    return Leg(raw, score, _ranked(raw, live, wanted), told, coverage, named)


def score_vectors(request: SearchRequest, live: Mapping[int, ScoringRow], wanted: int) -> Leg:
    """The vector leg's evidence."""
    if not live or request.vector is None:
        return Leg()
    measured = cosines(unpack_vectors([row.vector for row in live.values()]), request.vector)
    raw = dict(zip(live, measured.tolist(), strict=True))
    near = {row: calibrate_cosine(value, request.lowest) for row, value in raw.items()}
    score = {row: calibrate_cosine(value, request.background) for row, value in raw.items()}
    return Leg(raw, score, _ranked(raw, live, wanted), near)


def leg_weights(vector: Leg, keyword: Leg) -> Weights:
    """Share of each leg, chosen for this query."""
    best = keyword.ranking[0] if keyword.ranking else None
    near = [vector.evidence[row] for row in vector.ranking]
    return adaptive_weights(
        near,
        None if best is None else (vector.evidence.get(best, 0.0), keyword.coverage[best]),
        max(keyword.named.values(), default=0.0),
    )


def fused_scores(request: SearchRequest, weights: Weights, vector: Leg, keyword: Leg) -> dict[int, float]:
    """What the legs come to together, by row."""
    if request.mode == "vector":
        return {row: vector.score[row] for row in vector.ranking}
    if request.mode == "keyword":
        return {row: keyword.score[row] for row in keyword.ranking}
    if request.fusion == "adaptive":  # every candidate was scored by both legs: no list is cut
        return convex(vector.evidence, keyword.evidence, weights)
    if request.fusion == "convex":
        return convex(vector.score, keyword.score, weights)
    lists = [[(row, leg.score[row]) for row in leg.ranking] for leg in (vector, keyword)]
    return fuse(request.fusion, lists, weights)


def confidences(
    rows: Sequence[int],
    vector: Leg,
    keyword: Leg,
    live: Mapping[int, ScoringRow],
    others: Collection[int] = (),
) -> dict[int, float]:
    """How likely each of the rows answers the question; see `fusion.confidence`.

    What others say counts in full as a rival: words that fit better, of somebody who was not asked for, are a sign that
    the question has no answer.

    Args:
        rows: The rows wanted.
        vector: The vector leg.
        keyword: The keyword leg.
        live: The candidates.
        others: Those of the candidates that somebody else says than the one who was asked for.
    """
    tells = {row: evidence(vector.evidence.get(row, 0.0), keyword.evidence.get(row, 0.0)) for row in live}
    best: dict[int, float] = {}
    for row, stored in live.items():
        best[stored.document] = max(tells[row], best.get(stored.document, 0.0))
    leaders = sorted(best.values(), reverse=True)[:2]
    crowd = vector.ranking[:SCALED]
    lowest = vector.evidence[crowd[-1]] if crowd else 0.0
    found = {}
    for row in rows:
        near, words = vector.evidence.get(row, 0.0), keyword.evidence.get(row, 0.0)
        rival = leaders[-1] if best[live[row].document] == leaders[0] else leaders[0]
        lead = tells[row] - rival if len(leaders) > 1 else 0.0
        apart = (near - lowest) * len(crowd) / SCALED  # to stand out from a handful says less
        likely = confidence(words, apart, lead) if near or words else 0.0
        found[row] = likely * _OTHERS_LIKELY if row in others else likely
    return found


def _ranked(raw: Mapping[int, float], live: Mapping[int, ScoringRow], wanted: int) -> list[int]:
    return sorted(raw, key=lambda row: (-raw[row], live[row].document, live[row].ordinal))[:wanted]
