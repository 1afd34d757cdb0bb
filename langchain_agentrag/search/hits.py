"""Hits of a ranking, their explanations, and the trace of a search."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from langchain_agentrag import metadata as codec
from langchain_agentrag.search.bm25 import Scorer
from langchain_agentrag.search.options import PreparedQuery, SearchRequest
from langchain_agentrag.search.ranking import Candidates, Ranking, confidences
from langchain_agentrag.store.commit import unpack_lengths
from langchain_agentrag.store.queries import ScoringRow, StoredRow, parse_locator, stored_rows
from langchain_agentrag.text import FIELDS
from langchain_agentrag.types import Dropped, Explanation, Hit, Hits, QueryMatches, Trace

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)

MAX_DROPPED = 50
"""Dropped candidates that a trace lists; further ones are only counted."""

Address = tuple[str | None, str, int]
"""Owner, document and chunk of a hit."""

Spans = Sequence[tuple[int, int]]
"""Character spans in a text."""


def address(hit: Hit | Dropped) -> Address:
    """Return the address of a hit, unique in a store."""
    return hit.agent_id, hit.doc_id, hit.chunk_id


@dataclass(slots=True)
class RankedHits:
    """The best hits of a ranking on their way through the later stages; explanations are built at the end.

    Attributes:
        query: The prepared query.
        candidates: All candidates with their scores.
        ranking: Their order.
        hits: Best first, without explanations.
        rows: Address → row.
        locate: Returns the spans of the query's words in a text.
        degraded: "index: reason" of what failed.
        steps: Address → what later stages did with the hit, for its explanation.
        dropped: Candidates that are out; filled when a trace was asked for.
    """

    query: PreparedQuery
    candidates: Candidates
    ranking: Ranking
    hits: list[Hit]
    rows: dict[Address, int]
    locate: Callable[[str], Spans]
    degraded: list[str]
    steps: dict[Address, list[str]] = field(default_factory=lambda: defaultdict(list))
    dropped: list[Dropped] = field(default_factory=list)

    def note(self, hit: Hit, step: str) -> None:
        """Add a step to the explanation of a hit."""
        self.steps[address(hit)].append(step)

    def drop(self, hit: Hit, reason: str) -> None:
        """Add a hit to the dropped candidates."""
        self.dropped.append(Dropped(hit.doc_id, hit.chunk_id, hit.agent_id, hit.score, reason))

    def vector(self, hit: Hit) -> bytes:
        """Return the packed vector of a hit."""
        return self.candidates.live[self.rows[address(hit)]].vector


def rank_hits(
    connection: sqlite3.Connection,
    query: PreparedQuery,
    candidates: Candidates,
    ranking: Ranking,
    locate: Callable[[str], Spans],
    degraded: list[str],
) -> RankedHits:
    """Return the best hits of a ranking, best first.

    Args:
        connection: The catalog as it was ranked.
        query: The prepared query.
        candidates: All candidates.
        ranking: Their order.
        locate: Returns the spans of the query's words in a text; called when an explanation is read.
        degraded: "index: reason" of what failed.
    """
    request = query.request
    confidence = confidences(ranking.best, candidates, ranking.other_speakers)
    stored = stored_rows(connection, ranking.best)
    hits: dict[int, Hit] = {}
    for row in ranking.best:
        chunk = stored[row]
        if not request.scope.admits(chunk.owner):
            # the second check; the first is which partitions were searched
            logger.error("a row outside the scope reached the end of a search and was dropped; run verify()")
            continue
        hits[row] = _hit(chunk, ranking.scores[row], confidence[row])
    rows = {address(hit): row for row, hit in hits.items()}
    dropped = _dropped_candidates(connection, request, ranking) if request.explain else []
    return RankedHits(query, candidates, ranking, list(hits.values()), rows, locate, degraded, dropped=dropped)


def explain(ranked: RankedHits, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits with their explanations and the score asked for.

    Words, spans and term scores are computed when first read.
    """
    request, ranking, scorer = ranked.query.request, ranked.ranking, ranked.candidates.scorer
    vector, keyword = ranked.candidates.vector, ranked.candidates.keyword
    vector_ranks = {row: rank for rank, row in enumerate(vector.ranking, 1)}
    keyword_ranks = {row: rank for rank, row in enumerate(keyword.ranking, 1)}
    explained = []
    for hit in hits:
        row = ranked.rows[address(hit)]
        evidence = keyword.evidence_of(row, keyword_ranks)
        steps = list(ranked.steps.get(address(hit), ()))
        if row in ranking.other_speakers:
            steps.insert(0, f"lower score: not said by {ranking.other_speakers[row]}")
        matches = QueryMatches()
        if evidence is not None and scorer is not None:
            matches = QueryMatches(
                hit.text, partial(ranked.locate, hit.text), partial(term_scores, scorer, ranked.candidates.live[row])
            )
        explanation = Explanation(
            vector=vector.evidence_of(row, vector_ranks),
            keyword=evidence,
            fusion=request.fusion if request.mode == "hybrid" else request.mode,
            weights=ranking.weights,
            recency=ranking.recency_boosts.get(row, 0.0),
            steps=tuple(steps),
            matches=matches,
        )
        score = hit.score if request.score == "fused" else ranking.returned[row]
        explained.append(replace(hit, explanation=explanation, score=score))
    return explained


def term_scores(scorer: Scorer, row: ScoringRow) -> tuple[tuple[str, float], ...]:
    """Return (term, its part of the row's BM25 score), highest first."""
    terms_by_field = dict(zip(FIELDS, (line.split(" ") for line in row.terms.split("\n")), strict=True))
    lengths = unpack_lengths(row.lengths)
    scores: dict[str, float] = {}
    for name, gains in scorer.gains.items():
        counts = Counter(terms_by_field.get(name, ()))
        for term in gains:
            if counts[term]:
                scores[term] = scores.get(term, 0.0) + scorer.score({name: {term: counts[term]}}, lengths)
    return tuple(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


def build_trace(ranked: RankedHits, hits: Sequence[Hit], chosen: Sequence[Hit]) -> Trace:
    """Return the trace of a search.

    Args:
        ranked: The ranking, with the candidates dropped so far.
        hits: Hits of the last stage.
        chosen: Those that are returned.
    """
    request = ranked.query.request
    covered = {
        (hit.agent_id, hit.doc_id, chunk)
        for hit in chosen
        if hit.covers is not None
        for chunk in range(hit.covers[0], hit.covers[1] + 1)
    }
    known = {address(one) for one in chosen} | {address(one) for one in ranked.dropped}
    for hit in hits:
        if address(hit) not in known:
            inside = address(hit) in covered
            ranked.drop(hit, "part of another hit's passage" if inside else f"behind the first {request.k}")
    ordered = sorted(ranked.dropped, key=lambda one: -one.score)
    return Trace(
        searched=ranked.query.text,
        added=ranked.query.added,
        filter=request.filter_text,
        considered=len(ranked.candidates.live),
        dropped=tuple(ordered[:MAX_DROPPED]),
    )


def add_filtered_out(trace: Trace, hits: Hits, unfiltered: Hits) -> Trace:
    """Return the trace with the hits that only the search without the filter has."""
    known = {address(one) for one in (*hits, *trace.dropped)}
    out = tuple(
        Dropped(hit.doc_id, hit.chunk_id, hit.agent_id, hit.score, "excluded by the filter")
        for hit in unfiltered
        if address(hit) not in known
    )
    return replace(trace, dropped=(*out, *trace.dropped))


def _dropped_candidates(connection: sqlite3.Connection, request: SearchRequest, ranking: Ranking) -> list[Dropped]:
    """Candidates below the threshold, over the limit per document, or behind the first `fetch_k`."""
    order, best = ranking.order, ranking.best
    taken = set(best)
    out = [row for row in order if row not in taken][:MAX_DROPPED]
    last = order.index(best[-1]) if len(best) >= request.fetch_k else len(order)
    place = {row: position for position, row in enumerate(order)}
    stored = stored_rows(connection, out)
    dropped = []
    for row in out:
        if row not in stored or not request.scope.admits(stored[row].owner):
            continue
        chunk, score = stored[row], ranking.scores[row]
        if request.score_threshold is not None and ranking.returned[row] < request.score_threshold:
            reason = f"below the threshold of {request.score_threshold:g}"
        elif place[row] > last or request.max_per_document is None:
            reason = f"behind the first {request.k}"
        else:
            reason = f"more than {request.max_per_document} of the same document"
        dropped.append(Dropped(chunk.doc_id, chunk.ordinal, chunk.owner, score, reason))
    return dropped


def _hit(chunk: StoredRow, score: float, confidence: float) -> Hit:
    return Hit(
        doc_id=chunk.doc_id,
        chunk_id=chunk.ordinal,
        text=chunk.text,
        score=score,
        confidence=confidence,
        metadata=codec.decode(chunk.metadata),
        agent_id=chunk.owner,
        start=chunk.start,
        end=chunk.stop,
        context=chunk.context,
        locator=parse_locator(chunk.locator),
        whole=chunk.whole,
    )
