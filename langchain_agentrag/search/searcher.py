"""How a leg finds its candidates: exactly, among selected rows, or approximately. Pure decisions on counts."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from langchain_agentrag.errors import RetrievalError, StoreError, StoreLockedError
from langchain_agentrag.filters import Filter, conjoin
from langchain_agentrag.scope import Scope
from langchain_agentrag.search.bm25 import FieldStats, Scorer
from langchain_agentrag.search.cache import RecentPassages
from langchain_agentrag.search.explain import Spans
from langchain_agentrag.search.followup import with_supplement
from langchain_agentrag.search.hits import address, build_hits, dropped_candidates, filtered_out
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.search.postprocess import Pool, postprocess
from langchain_agentrag.search.ranking import (
    Candidates,
    IndexScores,
    match_rows,
    rank,
    score_keywords,
    score_vectors,
)
from langchain_agentrag.store.catalog import PartitionRow
from langchain_agentrag.store.partition_cache import read_vectors, top_rows, unit_vectors
from langchain_agentrag.store.protocols import Rows, TermWeights, Vectors
from langchain_agentrag.store.queries import VisiblePartition, scoring_rows
from langchain_agentrag.store.store import Store
from langchain_agentrag.text import FIELDS, Analyzer
from langchain_agentrag.types import Hits

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)

SELECTED_LIMIT = 12_000
"""Rows left by a filter up to which reading their vectors and scoring them exactly beats widening an HNSW search."""

_SLACK = 1.3  # an approximate neighbourhood is not evenly spread over the rows a filter keeps
_LEAST = 30  # candidates per leg, so that fusion has something to choose from at small k


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """How to find nearest neighbours in one partition.

    Attributes:
        how: "exact" over the whole partition in memory, "selected" over the filtered rows only, or "approximate".
        fetch: Neighbours to ask the approximate index for.
    """

    how: Literal["exact", "selected", "approximate"]
    fetch: int = 0


def candidates_wanted(k: int, available: int) -> int:
    """Candidates each leg contributes to a search for k hits among `available` rows."""
    return max(1, min(max(_LEAST, 3 * k), available))


def plan_vectors(
    *, chunks: int, in_chroma: bool, exact_limit: int, matching: int | None, wanted: int
) -> VectorPlan:
    """Plan for one partition.

    Args:
        chunks: Live rows of the partition.
        in_chroma: Whether there is an approximate index at all.
        exact_limit: Largest partition that is scored exactly.
        matching: Rows the filter keeps, or None without a filter.
        wanted: Candidates wanted.
    """
    if chunks <= exact_limit or not in_chroma:
        return VectorPlan("exact")
    if matching is None:
        return VectorPlan("approximate", wanted)
    if matching <= max(SELECTED_LIMIT, wanted):
        return VectorPlan("selected")
    return VectorPlan("approximate", math.ceil(wanted * _SLACK * chunks / matching))


def keyword_fetch(*, chunks: int, matching: int, wanted: int) -> int | None:
    """How many keyword candidates to fetch and filter afterwards; None: let the index filter.

    Filtering afterwards wins while the filter keeps a good part of the rows, because a set of row ids has to be
    handed to the index one by one (5 ms for 10,000 rows).
    """
    if matching * 5 < chunks:
        return None
    return math.ceil(wanted * _SLACK * chunks / max(matching, 1))


_WIDER = 4  # factor by which an approximate search that found too little is widened
_WIDEST = 8_192  # neighbours beyond which an exact scan is quicker
_TIES = 4  # candidates may be this many times what is wanted when scores are too close to call
_VECTOR_ROUNDING = 1e-5  # between a leg's cosine in float32 and the exact one
_KEYWORD_ROUNDING = 0.03  # between tantivy's score, with lengths in one byte, and the exact one

ScoredRow = tuple[int, float]
"""A row and its leg's own, rounded score."""


def keyword_scorer(
    store: Store,
    partitions: Sequence[VisiblePartition],
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
        for field, counts in store.indexes.keyword_index(living.partition).doc_freqs(query).items():
            gone = living.excluded_doc_freqs.get(field, {})
            for term, count in counts.items():
                totals[field][term] += count - gone.get(term, 0)
    return Scorer(query, stats, totals, own=own)


def keyword_rows(
    store: Store,
    partitions: Sequence[VisiblePartition],
    scorer: Scorer,
    wanted: int,
    condition: Filter | None,
) -> list[int]:
    """Rows that share a term with the query, the best `wanted` of the scope at least."""
    found: list[ScoredRow] = []
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
) -> list[ScoredRow]:
    leg, limit = store.indexes.keyword_index(partition), _TIES * wanted
    if condition is None:
        return leg.candidates(weighted, limit)
    allowed = store.indexes.cache(partition).select(partition, condition)
    fetch = keyword_fetch(chunks=partition.chunks, matching=len(allowed), wanted=limit)
    if fetch is not None:
        found = leg.candidates(weighted, fetch)
        kept = _members(found, allowed)
        if len(kept) >= wanted or len(found) < fetch:
            return kept
    return leg.candidates(weighted, limit, allowed)


def vector_rows(
    store: Store, partitions: Sequence[VisiblePartition], vector: Vectors, wanted: int, asked: Filter | None
) -> tuple[list[int], list[str]]:
    """Rows nearest to the query, the best `wanted` of the scope at least, and what went wrong on the way."""
    found: list[ScoredRow] = []
    troubles: list[str] = []
    for living in partitions:
        partition, condition = living.partition, conjoin(living.condition, asked)
        cache = store.indexes.cache(partition)
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
) -> list[ScoredRow]:
    """From the graph what it holds, and an exact scan of the rows after that."""
    leg = store.indexes.vector_index(partition)
    last = store.indexes.last_visible_row(
        partition, allowed
    )  # before the graph is asked: what it gets meanwhile is scanned
    graphed = allowed[: np.searchsorted(allowed, last, side="right")]
    found: list[ScoredRow] = []
    if len(graphed) < len(allowed):
        found = store.indexes.cache(partition).nearest(partition, vector, wanted, condition, after=last)
    while len(graphed):
        kept = _members(leg.nearest(vector, fetch), graphed)
        if len(kept) >= min(wanted, len(graphed)):
            return found + kept
        if fetch >= min(_WIDEST, partition.chunks):
            return found + _scan(store, graphed, vector, wanted)
        fetch = min(fetch * _WIDER, _WIDEST)
    return found


def _scan(store: Store, rows: Rows, vector: Vectors, wanted: int) -> list[ScoredRow]:
    if not len(rows):
        return []
    found, vectors = read_vectors(store.catalog.connection(), rows)
    return top_rows(found, unit_vectors(vectors), vector, wanted)


def _best(found: Sequence[ScoredRow], wanted: int, rounding: float) -> list[int]:
    """The rows of the best scores, with those that rounding may have put behind the last one."""
    if len(found) <= wanted:
        return [row for row, _ in found]
    ordered = sorted(found, key=lambda pair: (-pair[1], pair[0]))
    edge = ordered[wanted - 1][1]
    edge -= rounding * max(1.0, abs(edge))
    return [row for place, (row, score) in enumerate(ordered) if place < _TIES * wanted and score >= edge]


def _members(found: Sequence[ScoredRow], allowed: Rows) -> list[ScoredRow]:
    """Those of the rows that are in the ascending array."""
    if not found or not len(allowed):
        return []
    asked = np.array([row for row, _ in found], dtype=np.int64)
    places = np.minimum(np.searchsorted(allowed, asked), len(allowed) - 1)
    return [pair for pair, inside in zip(found, allowed[places] == asked, strict=True) if inside]


_ATTEMPTS = 4  # a search is repeated when a write changed what it was looking at


class KeywordResult(NamedTuple):
    """What the keyword leg answered; no scorer where it was not asked, or failed."""

    scorer: Scorer | None
    rows: Sequence[int] = ()
    troubles: Sequence[str] = ()


class VectorResult(NamedTuple):
    """What the vector leg answered; None where it was not asked, or failed."""

    rows: list[int] | None
    troubles: Sequence[str] = ()


class Searcher:
    """Searches a store.

    Args:
        store: The store.
        analyzer: The analyzer it was built with.

    Attributes:
        shown: What it lately found, per caller.
    """

    def __init__(self, store: Store, analyzer: Analyzer) -> None:
        self._store, self._analyzer = store, analyzer
        self.recent_passages = RecentPassages()

    def can_answer(self, request: SearchRequest) -> bool:
        """Whether the query says something and there is something to find."""
        self._store.check_open()
        return not request.is_blank and bool(self._partitions(request.scope))

    def scope_version(self, scope: Scope) -> Hashable:
        """What a scope holds at this moment; another one after any commit that touches it or when something expires."""
        parts = self._partitions(scope)
        return tuple((part.partition.id, part.partition.generation, repr(part.condition)) for part in parts)

    def search(self, request: SearchRequest) -> Hits:
        """The best k chunks in scope, best first; ties by cosine, then in document order.

        Raises:
            RetrievalError: every leg that was asked for failed.
        """
        self._store.check_open()
        for attempt in range(_ATTEMPTS):
            version = self._store.catalog.version()
            partitions = self._partitions(request.scope, quarantined=request.quarantined)
            pool = self._attempt(request, partitions)
            if attempt == _ATTEMPTS - 1 or self._is_unchanged(request, partitions, version):
                hits = self._answer(request, pool)
                self.recent_passages.note(request.scope.agent_id, (hit.text for hit in hits))
                return hits
        raise AssertionError  # the loop returns

    def _partitions(self, scope: Scope, *, quarantined: bool = True) -> list[VisiblePartition]:
        found = (self._store.visible(owner, quarantined=quarantined) for owner in scope.owners)
        return [living for living in found if living is not None and living.partition.chunks]

    def _is_unchanged(
        self, request: SearchRequest, partitions: Sequence[VisiblePartition], version: int
    ) -> bool:
        """Whether the partitions are still what they were; almost always nobody has written anything at all."""
        if version == self._store.catalog.version():
            return True
        now = self._partitions(request.scope, quarantined=request.quarantined)
        return _generations(partitions) == _generations(now)

    def _attempt(self, request: SearchRequest, partitions: list[VisiblePartition]) -> Pool:
        available = sum(living.partition.chunks for living in partitions)
        wanted = candidates_wanted(request.pool, available)
        while True:
            pool = self._gather(request, partitions, wanted)
            # a cap per document may leave too few although there are more to find
            if request.max_per_document is None or len(pool.hits) >= request.pool or wanted >= available:
                return pool
            wanted = min(wanted * _WIDER, available)

    def _gather(self, request: SearchRequest, partitions: list[VisiblePartition], wanted: int) -> Pool:
        """One look at so many candidates of each leg: asked, scored, ranked, shown."""
        nearest = self._start_vectors(request, partitions, wanted)
        words = self._ask_keywords(request, partitions, wanted)
        with self._store.catalog.snapshot() as connection:
            found, troubles = self._scored(connection, request, wanted, words, nearest)
            ranking = rank(connection, request, found)
            find = partial(self._spans, request)
            hits = build_hits(connection, request, found, ranking, find)
            vectors = {address(hit): found.live[row].vector for row, hit in hits.items()}
            pool = Pool(list(hits.values()), vectors, troubles, find)
            if request.explain:
                pool.considered = len(found.live)
                pool.dropped = dropped_candidates(connection, request, ranking)
        return pool

    # -- the legs -------------------------------------------------------------------------------------------------

    def _start_vectors(
        self, request: SearchRequest, partitions: list[VisiblePartition], wanted: int
    ) -> Callable[[], VectorResult]:
        """Ask the vector leg; where Chroma answers, beside the keyword leg, and what is returned waits for it."""
        ask = partial(self._ask_vectors, request, partitions, wanted)
        if request.uses_keyword_index and any(living.partition.in_chroma for living in partitions):
            return self._store.submit_read(ask).result
        found = ask()  # an exact scan is done before a thread has started
        return lambda: found

    def _ask_keywords(
        self, request: SearchRequest, partitions: list[VisiblePartition], wanted: int
    ) -> KeywordResult:
        if not request.uses_keyword_index:
            return KeywordResult(None)
        try:
            asked, own = self._asked(request)
            scorer = keyword_scorer(self._store, partitions, asked, own)
            return KeywordResult(
                scorer, keyword_rows(self._store, partitions, scorer, wanted, request.condition)
            )
        except (StoreError, OSError, ValueError) as error:
            logger.warning("the keyword leg failed: %s", error)
            return KeywordResult(None, troubles=[f"keyword: {error}"])

    def _ask_vectors(
        self, request: SearchRequest, partitions: list[VisiblePartition], wanted: int
    ) -> VectorResult:
        if request.vector is None:
            return VectorResult(None)
        try:
            rows, notes = vector_rows(self._store, partitions, request.vector, wanted, request.condition)
        except (StoreError, OSError, ValueError) as error:
            logger.warning("the vector leg failed: %s", error)
            return VectorResult(None, [f"vector: {error}"])
        return VectorResult(rows, [f"vector: {note}" for note in notes])

    def _scored(
        self,
        connection: sqlite3.Connection,
        request: SearchRequest,
        wanted: int,
        words: KeywordResult,
        nearest: Callable[[], VectorResult],
    ) -> tuple[Candidates, list[str]]:
        """Exact scores of what either leg found, and what went wrong in them; the vector leg may still be looking.

        Raises:
            RetrievalError: neither leg could answer.
        """
        scorer, rows, troubles = words
        live = {row.row: row for row in scoring_rows(connection, rows)}
        codes = self._analyzer.codes(request.searched)
        read = match_rows(scorer, codes, live.values()) if scorer is not None else {}
        near, said = nearest()
        troubles = [*request.troubles, *troubles, *said]
        if scorer is None and near is None:
            raise RetrievalError(
                f"Cannot search for {request.query[:80]!r}: no leg could answer ({'; '.join(troubles)}). "
                "Run verify() to see what is broken, and repair() to rebuild it."
            )
        added = scoring_rows(connection, list(dict.fromkeys(row for row in near or () if row not in live)))
        live |= {row.row: row for row in added}
        vector = IndexScores() if near is None else score_vectors(request, live, wanted)
        keyword = IndexScores()
        if scorer is not None:
            read |= match_rows(scorer, codes, added)
            keyword = score_keywords(request, scorer, self._analyzer.word_weight, read, live, wanted)
        return Candidates(live, vector, keyword, scorer), troubles

    # -- the answer -----------------------------------------------------------------------------------------------

    def _spans(self, request: SearchRequest, text: str) -> Spans:
        """Where the words that matched stand; character pairs count only where no word did."""
        asked, _ = self._asked(request)
        words = self._analyzer.match_spans(text, asked.get("words", {}).keys())
        return words or self._analyzer.match_spans(text, asked.get("grams", {}).keys())

    def _asked(self, request: SearchRequest) -> tuple[TermWeights, TermWeights]:
        """Terms of the question with what stands for them, and without; those of the conversation at less weight."""
        text = request.query if request.supplement else request.searched
        asked, own = self._widened(text)
        if not request.supplement:
            return asked, own
        more, said = self._widened(request.supplement)
        return with_supplement(asked, more), with_supplement(own, said)

    def _widened(self, text: str) -> tuple[TermWeights, TermWeights]:
        own = self._analyzer.analyze_query(text, widen=False)
        return self._analyzer.widen(own, text), own

    def _answer(self, request: SearchRequest, pool: Pool) -> Hits:
        hits = postprocess(self._store, request, pool)
        if hits.trace is not None and request.condition is not None:
            without = self.search(replace(request, condition=None, explain=False))
            hits.trace = filtered_out(hits.trace, hits, without)
        return hits


def _generations(partitions: Sequence[VisiblePartition]) -> list[tuple[int, int]]:
    return [(living.partition.id, living.partition.generation) for living in partitions]
