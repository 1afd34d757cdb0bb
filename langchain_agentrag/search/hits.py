"""Rows of a ranking as people see them: hits with their reasons, and candidates that stayed behind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from langchain_agentrag import metadata as codec
from langchain_agentrag.search.account import MOST_DROPPED, dropped_row, shares
from langchain_agentrag.search.explain import LateExplanation, Spans, note
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.search.ranking import Candidates, Ranking
from langchain_agentrag.search.scoring import confidences
from langchain_agentrag.store.queries import StoredRow, parse_locator, stored_rows
from langchain_agentrag.types import Dropped, Hit

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)


def shown_hits(
    connection: sqlite3.Connection,
    request: SearchRequest,
    found: Candidates,
    ranking: Ranking,
    find: Callable[[str], Spans],
) -> dict[int, Hit]:
    """Row → hit of the best of a ranking, best first.

    Args:
        connection: The catalog as it was ranked.
        request: What was asked.
        found: The candidates.
        ranking: Their order.
        find: Spans of the matched words in a text; called only when somebody reads the explanation.
    """
    likely = confidences(ranking.best, found.vector, found.keyword, found.live, ranking.others)
    stored = stored_rows(connection, ranking.best)
    explanations = _Explanations(request, found, ranking, find)
    hits = {}
    for row in ranking.best:
        shown = stored[row]
        if not request.scope.admits(shown.owner):
            # the second lock; the first is which partitions were asked
            logger.error("a row outside the scope reached the end of a search and was dropped; run verify()")
            continue
        hits[row] = _hit(shown, ranking.scores[row], likely[row], explanations.of(row, shown.text))
    return hits


def left_behind(connection: sqlite3.Connection, request: SearchRequest, ranking: Ranking) -> list[Dropped]:
    """Candidates that the threshold, the cap per document or the size of the pool kept out."""
    order, best = ranking.order, ranking.best
    taken = set(best)
    out = [row for row in order if row not in taken][:MOST_DROPPED]
    full = len(best) >= request.pool
    last = order.index(best[-1]) if full else len(order)
    stored = stored_rows(connection, out)
    return [
        dropped_row(stored[row], ranking.scores[row], request, behind=order.index(row) > last)
        for row in out
        if row in stored and request.scope.admits(stored[row].owner)
    ]


def _hit(shown: StoredRow, score: float, confidence: float, why: LateExplanation) -> Hit:
    return Hit(
        doc_id=shown.doc_id,
        chunk_id=shown.ordinal,
        text=shown.text,
        score=score,
        confidence=confidence,
        metadata=codec.decode(shown.metadata),
        agent_id=shown.owner,
        start=shown.start,
        end=shown.stop,
        context=shown.context,
        locator=parse_locator(shown.locator),
        explanation=why,
        whole=shown.whole,
    )


class _Explanations:
    """Why each row of a ranking is where it is."""

    def __init__(
        self, request: SearchRequest, found: Candidates, ranking: Ranking, find: Callable[[str], Spans]
    ) -> None:
        self._found, self._ranking, self._find = found, ranking, find
        self._fusion = request.fusion if request.mode == "hybrid" else request.mode
        self._vector_ranks = {row: rank for rank, row in enumerate(found.vector.ranking, 1)}
        self._keyword_ranks = {row: rank for rank, row in enumerate(found.keyword.ranking, 1)}

    def of(self, row: int, text: str) -> LateExplanation:
        found, ranking = self._found, self._ranking
        evidence = found.keyword.said_of(row, self._keyword_ranks)
        why = LateExplanation(
            text,
            self._find if evidence else _nothing,
            partial(shares, found.scorer, found.live[row]) if evidence and found.scorer else tuple,
            vector=found.vector.said_of(row, self._vector_ranks),
            keyword=evidence,
            fusion=self._fusion,
            weights=ranking.weights,
            recency=ranking.lifts.get(row, 0.0),
        )
        if row in ranking.others:
            note(why, f"less for not being said by {ranking.others[row]}")
        return why


def _nothing(_text: str) -> Spans:
    return ()
