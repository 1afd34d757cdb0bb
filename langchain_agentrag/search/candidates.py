"""Candidates of both legs: rows worth scoring, found through the store's indexes within one scope."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from langchain_agentrag.errors import StoreError, StoreLockedError
from langchain_agentrag.filters import Filter, conjoin
from langchain_agentrag.search.bm25 import FieldStats, Scorer
from langchain_agentrag.search.planner import keyword_fetch, plan_vectors
from langchain_agentrag.store.catalog import PartitionRow
from langchain_agentrag.store.expiry import Living
from langchain_agentrag.store.partition_cache import normalised, read_vectors, top_rows
from langchain_agentrag.store.protocols import Rows, Vectors
from langchain_agentrag.store.store import Store
from langchain_agentrag.text import FIELDS

logger = logging.getLogger(__name__)

_WIDER = 4  # factor by which an approximate search that found too little is widened
_WIDEST = 8_192  # neighbours beyond which an exact scan is quicker
_TIES = 4  # candidates may be this many times what is wanted when scores are too close to call
_VECTOR_ROUNDING = 1e-5  # between a leg's cosine in float32 and the exact one
_KEYWORD_ROUNDING = 0.03  # between tantivy's score, with lengths in one byte, and the exact one

Scored = tuple[int, float]
"""A row and its leg's own, rounded score."""


def keyword_scorer(
    store: Store,
    partitions: Sequence[Living],
    query: Mapping[str, Mapping[str, float]],
    own: Mapping[str, Mapping[str, float]],
) -> Scorer:
    """BM25 over everything in scope and nothing else: counts are summed over what lives in the scope's partitions."""
    stats = {
        name: FieldStats(
            docs=sum(living.partition.chunks for living in partitions),
            tokens=sum(living.partition.tokens[place] for living in partitions if living.partition.tokens),
        )
        for place, name in enumerate(FIELDS)
    }
    totals: dict[str, dict[str, int]] = {field: dict.fromkeys(terms, 0) for field, terms in query.items()}
    for living in partitions:
        for field, counts in store.keywords(living.partition).doc_freqs(query).items():
            gone = living.gone.get(field, {})
            for term, count in counts.items():
                totals[field][term] += count - gone.get(term, 0)
    return Scorer(query, stats, totals, own=own)


def keyword_rows(
    store: Store,
    partitions: Sequence[Living],
    scorer: Scorer,
    wanted: int,
    condition: Filter | None,
) -> list[int]:
    """Rows that share a term with the query, the best `wanted` of the scope at least."""
    found: list[Scored] = []
    for living in partitions:
        kept = conjoin(living.condition, condition)
        found += _keyword_rows(store, living.partition, scorer.gains, wanted, kept)
    return _best(found, wanted, _KEYWORD_ROUNDING)


def _keyword_rows(
    store: Store,
    partition: PartitionRow,
    weighted: Mapping[str, Mapping[str, float]],
    wanted: int,
    condition: Filter | None,
) -> list[Scored]:
    leg, limit = store.keywords(partition), _TIES * wanted
    if condition is None:
        return leg.candidates(weighted, limit)
    allowed = store.cache(partition).select(partition, condition)
    fetch = keyword_fetch(chunks=partition.chunks, matching=len(allowed), wanted=limit)
    if fetch is not None:
        found = leg.candidates(weighted, fetch)
        kept = _members(found, allowed)
        if len(kept) >= wanted or len(found) < fetch:
            return kept
    return leg.candidates(weighted, limit, allowed)


def vector_rows(
    store: Store, partitions: Sequence[Living], vector: Vectors, wanted: int, asked: Filter | None
) -> tuple[list[int], list[str]]:
    """Rows nearest to the query, the best `wanted` of the scope at least, and what went wrong on the way."""
    found: list[Scored] = []
    troubles: list[str] = []
    for living in partitions:
        partition, condition = living.partition, conjoin(living.condition, asked)
        cache = store.cache(partition)
        small = partition.chunks <= store.exact_limit or not partition.in_chroma
        allowed = None if small else cache.select(partition, condition)
        plan = plan_vectors(
            chunks=partition.chunks,
            in_chroma=partition.in_chroma,
            exact_limit=store.exact_limit,
            matching=None if condition is None or allowed is None else len(allowed),
            wanted=wanted,
        )
        if allowed is None or plan.how == "exact":
            found += cache.nearest(partition, vector, wanted, condition)
        elif plan.how == "selected":
            found += _scan(store, allowed, vector, wanted)
        else:
            try:
                found += _approximate(store, partition, vector, wanted, plan.fetch, allowed, condition)
            except (
                StoreLockedError
            ):  # Chroma cannot be opened while somebody writes; this is slower, not worse
                found += cache.nearest(partition, vector, wanted, condition)
            except StoreError as error:
                logger.warning("scoring %d vectors exactly instead: %s", len(allowed), error)
                troubles.append(f"scored exactly, the approximate index failed ({error})")
                found += cache.nearest(partition, vector, wanted, condition)
    return _best(found, wanted, _VECTOR_ROUNDING), troubles


def _approximate(
    store: Store,
    partition: PartitionRow,
    vector: Vectors,
    wanted: int,
    fetch: int,
    allowed: Rows,
    condition: Filter | None,
) -> list[Scored]:
    """From the graph what it holds, and an exact scan of the rows after that."""
    leg = store.vectors(partition)
    last = store.horizon(partition, allowed)  # before the graph is asked: what it gets meanwhile is scanned
    graphed = allowed[: np.searchsorted(allowed, last, side="right")]
    found: list[Scored] = []
    if len(graphed) < len(allowed):
        found = store.cache(partition).nearest(partition, vector, wanted, condition, after=last)
    while len(graphed):
        kept = _members(leg.nearest(vector, fetch), graphed)
        if len(kept) >= min(wanted, len(graphed)):
            return found + kept
        if fetch >= min(_WIDEST, partition.chunks):
            return found + _scan(store, graphed, vector, wanted)
        fetch = min(fetch * _WIDER, _WIDEST)
    return found


def _scan(store: Store, rows: Rows, vector: Vectors, wanted: int) -> list[Scored]:
    if not len(rows):
        return []
    found, vectors = read_vectors(store.catalog.connection(), rows)
    return top_rows(found, normalised(vectors), vector, wanted)


def _best(found: Sequence[Scored], wanted: int, rounding: float) -> list[int]:
    """The rows of the best scores, with those that rounding may have put behind the last one."""
    if len(found) <= wanted:
        return [row for row, _ in found]
    ordered = sorted(found, key=lambda pair: (-pair[1], pair[0]))
    edge = ordered[wanted - 1][1]
    edge -= rounding * max(1.0, abs(edge))
    return [row for place, (row, score) in enumerate(ordered) if place < _TIES * wanted and score >= edge]


def _members(found: Sequence[Scored], allowed: Rows) -> list[Scored]:
    """Those of the rows that are in the ascending array."""
    if not found or not len(allowed):
        return []
    asked = np.array([row for row, _ in found], dtype=np.int64)
    places = np.minimum(np.searchsorted(allowed, asked), len(allowed) - 1)
    return [pair for pair, inside in zip(found, allowed[places] == asked, strict=True) if inside]
