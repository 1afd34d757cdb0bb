"""The account of a search that was asked to explain itself: what was considered, and why it is not in the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from langchain_agentrag.search.bm25 import Scorer
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.store.commit import unpack_lengths
from langchain_agentrag.store.queries import ScoringRow, StoredRow
from langchain_agentrag.text import FIELDS
from langchain_agentrag.types import Dropped, Hit, Hits, Trail

MOST_DROPPED = 50
"""Candidates an account names; those behind them are only counted."""

Address = tuple[str | None, str, int]
"""Owner, document and chunk of a hit."""


def address(hit: Hit | Dropped) -> Address:
    """What tells a hit from every other."""
    return hit.agent_id, hit.doc_id, hit.chunk_id


def shares(scorer: Scorer, row: ScoringRow) -> tuple[tuple[str, float], ...]:
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


def drop(hit: Hit, reason: str) -> Dropped:
    """A candidate that is not in the answer, and why."""
    return Dropped(hit.doc_id, hit.chunk_id, hit.agent_id, hit.score, reason)


def dropped_row(row: StoredRow, score: float, request: SearchRequest, *, behind: bool) -> Dropped:
    """A candidate that never was a hit: below the threshold, behind the pool, or one too many of its document."""
    if score < request.threshold:
        reason = f"below the threshold of {request.threshold:g}"
    elif behind or request.cap is None:
        reason = f"behind the first {request.k}"
    else:
        reason = f"more than {request.cap} of the same document"
    return Dropped(row.doc_id, row.ordinal, row.owner, score, reason)


def account(
    request: SearchRequest,
    considered: int,
    hits: Sequence[Hit],
    chosen: Sequence[Hit],
    dropped: list[Dropped],
) -> Trail:
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
        drop(
            hit,
            "part of another hit's passage" if address(hit) in inside else f"behind the first {request.k}",
        )
        for hit in hits
        if address(hit) not in known
    ]
    ordered = sorted([*late, *dropped], key=lambda one: -one.score)
    return Trail(
        searched=request.searched,
        added=request.supplement,
        filter=request.restricted,
        considered=considered,
        dropped=tuple(ordered[:MOST_DROPPED]),
    )


def filtered_out(trail: Trail, hits: Hits, without: Hits) -> Trail:
    """The account with what the same search finds without its filter."""
    known = {address(one) for one in (*hits, *trail.dropped)}
    out = tuple(drop(hit, "the filter leaves it out") for hit in without if address(hit) not in known)
    return replace(trail, dropped=(*out, *trail.dropped))
