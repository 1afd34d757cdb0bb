"""The account of a search that was asked to explain itself: what was considered, and why it is not in the answer."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from langchain_agentrag import metadata as codec
from langchain_agentrag.search.bm25 import Scorer
from langchain_agentrag.search.explain import LateExplanation, Spans, note
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.search.ranking import Candidates, Ranking, confidences
from langchain_agentrag.store.commit import unpack_lengths
from langchain_agentrag.store.queries import ScoringRow, StoredRow, parse_locator, stored_rows
from langchain_agentrag.text import FIELDS
from langchain_agentrag.types import Dropped, Hit, Hits, Trace

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)

MOST_DROPPED = 50
"""Candidates an account names; those behind them are only counted."""

Address = tuple[str | None, str, int]
"""Owner, document and chunk of a hit."""


def address(hit: Hit | Dropped) -> Address:
    """What tells a hit from every other."""
    return hit.agent_id, hit.doc_id, hit.chunk_id


def term_scores(scorer: Scorer, row: ScoringRow) -> tuple[tuple[str, float], ...]:
    """What each matching term adds to a row's BM25 score, most first."""
    held = dict(zip(FIELDS, (line.split(" ") for line in row.terms.split("\n")), strict=True))
    lengths = unpack_lengths(row.lengths)
    points: dict[str, float] = {}
    for name, gains in scorer.gains.items():
        counts = Counter(held.get(name, ()))
        for term in gains:
            if counts[term]:
                points[term] = points.get(term, 0.0) + scorer.score({name: {term: counts[term]}}, lengths)
    return tuple(sorted(points.items(), key=lambda pair: (-pair[1], pair[0])))


def dropped_hit(hit: Hit, reason: str) -> Dropped:
    """A candidate that is not in the answer, and why."""
    return Dropped(hit.doc_id, hit.chunk_id, hit.agent_id, hit.score, reason)


def dropped_row(row: StoredRow, score: float, request: SearchRequest, *, behind: bool) -> Dropped:
    """A candidate that never was a hit: below the threshold, behind the pool, or one too many of its document."""
    if score < request.score_threshold:
        reason = f"below the threshold of {request.score_threshold:g}"
    elif behind or request.max_per_document is None:
        reason = f"behind the first {request.k}"
    else:
        reason = f"more than {request.max_per_document} of the same document"
    return Dropped(row.doc_id, row.ordinal, row.owner, score, reason)


def build_trace(
    request: SearchRequest,
    considered: int,
    hits: Sequence[Hit],
    chosen: Sequence[Hit],
    dropped: list[Dropped],
) -> Trace:
    """How an answer came about, from the candidates of its last stage and those that dropped out before."""
    taken = {address(hit) for hit in chosen}
    inside = {
        (hit.agent_id, hit.doc_id, chunk)
        for hit in chosen
        if hit.covers is not None
        for chunk in range(hit.covers[0], hit.covers[1] + 1)
    }
    known = {address(one) for one in dropped} | taken
    late = [
        dropped_hit(
            hit,
            "part of another hit's passage" if address(hit) in inside else f"behind the first {request.k}",
        )
        for hit in hits
        if address(hit) not in known
    ]
    ordered = sorted([*late, *dropped], key=lambda one: -one.score)
    return Trace(
        searched=request.searched,
        added=request.supplement,
        filter=request.filter_text,
        considered=considered,
        dropped=tuple(ordered[:MOST_DROPPED]),
    )


def filtered_out(trail: Trace, hits: Hits, without: Hits) -> Trace:
    """The account with what the same search finds without its filter."""
    known = {address(one) for one in (*hits, *trail.dropped)}
    out = tuple(dropped_hit(hit, "the filter leaves it out") for hit in without if address(hit) not in known)
    return replace(trail, dropped=(*out, *trail.dropped))


def build_hits(
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
    likely = confidences(ranking.best, found.vector, found.keyword, found.live, ranking.other_speakers)
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


def dropped_candidates(
    connection: sqlite3.Connection, request: SearchRequest, ranking: Ranking
) -> list[Dropped]:
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
            partial(term_scores, found.scorer, found.live[row]) if evidence and found.scorer else tuple,
            vector=found.vector.said_of(row, self._vector_ranks),
            keyword=evidence,
            fusion=self._fusion,
            weights=ranking.weights,
            recency=ranking.recency_boosts.get(row, 0.0),
        )
        if row in ranking.other_speakers:
            note(why, f"less for not being said by {ranking.other_speakers[row]}")
        return why


def _nothing(_text: str) -> Spans:
    return ()
