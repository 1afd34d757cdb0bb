"""From the exact scores of both legs to one order: fusion, who speaks, recency, and the best of a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_agentrag.search.bm25 import Scorer
from langchain_agentrag.search.diversity import cap_per_group
from langchain_agentrag.search.fusion import Weights, recency_lift
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.search.scoring import Leg, fused_scores, leg_weights
from langchain_agentrag.search.speakers import OTHERS_SHARE, said_by_others
from langchain_agentrag.store.queries import ScoringRow, document_speakers, document_times

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the legs found, scored exactly by both.

    Attributes:
        live: Each candidate by its row.
        vector: What the vector leg says of them.
        keyword: What the keyword leg says of them.
        scorer: BM25 over the scope; None where the keyword leg did not answer.
    """

    live: Mapping[int, ScoringRow]
    vector: Leg
    keyword: Leg
    scorer: Scorer | None


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates in one order.

    Attributes:
        weights: Share of each leg.
        scores: What each row comes to.
        lifts: Of that, what being recent added; empty when it was not asked for.
        others: Row → who was asked for, of the rows that another speaker says.
        order: All rows, best first.
        best: Those that reach the threshold, capped per document, as many as are wanted.
    """

    weights: Weights
    scores: Mapping[int, float]
    lifts: Mapping[int, float]
    others: Mapping[int, str]
    order: list[int]
    best: list[int]


def rank(connection: sqlite3.Connection, request: SearchRequest, found: Candidates) -> Ranking:
    """Put the candidates in order; ties by cosine, then in document order."""
    live, near = found.live, found.vector.raw
    weights = request.weights or leg_weights(found.vector, found.keyword)
    scores = fused_scores(request, weights, found.vector, found.keyword)
    others = _said_by_others(connection, request, live)
    scores |= {row: scores[row] * OTHERS_SHARE for row in others.keys() & scores.keys()}
    lifts = _lifts(connection, request, live, scores)
    scores |= {row: min(1.0, scores[row] + lift) for row, lift in lifts.items()}
    order = sorted(
        scores,
        # what is no closer than unrelated text scores 0, yet of two such passages the nearer one comes first
        key=lambda row: (-scores[row], -near.get(row, -1.0), live[row].document, live[row].ordinal),
    )
    good = ((row, live[row].document) for row in order if scores[row] >= request.threshold)
    best = cap_per_group(good, request.cap)[: request.pool]
    return Ranking(weights, scores, lifts, others, order, best)


def _said_by_others(
    connection: sqlite3.Connection, request: SearchRequest, live: Mapping[int, ScoringRow]
) -> dict[int, str]:
    told = {row: stored.document for row, stored in live.items() if not stored.terms.endswith("\n")}
    if not told:  # no candidate has a context, so nobody speaks
        return {}
    speakers = document_speakers(connection, list(set(told.values())))
    rows = {row: speakers[document] for row, document in told.items() if document in speakers}
    return said_by_others(request.searched, rows)


def _lifts(
    connection: sqlite3.Connection,
    request: SearchRequest,
    live: Mapping[int, ScoringRow],
    scores: Mapping[int, float],
) -> dict[int, float]:
    if request.recency is None:
        return {}
    times = document_times(connection, list({live[row].document for row in scores}))
    return {
        row: recency_lift(score, request.now - times[live[row].document], request.recency)
        for row, score in scores.items()
        if live[row].document in times
    }
