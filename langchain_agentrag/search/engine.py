"""Search engine: from a checked request to hits. `SearchEngine` is the entry, `Searcher` searches the store."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from langchain_agentrag.errors import ForkedProcessError, RetrievalError, StoreError, StoreLockedError
from langchain_agentrag.filters import Filter, conjoin, wanted_keys
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.scope import Scope
from langchain_agentrag.search.bm25 import FieldStats, Scorer
from langchain_agentrag.search.cache import RecentPassages, ResultCache, Ticket
from langchain_agentrag.search.followup import add_context_terms, resolve_followup
from langchain_agentrag.search.hits import RankedHits, Spans, add_filtered_out, build_trace, explain, rank_hits
from langchain_agentrag.search.options import PreparedQuery, SearchRequest
from langchain_agentrag.search.postprocess import postprocess
from langchain_agentrag.search.query_embedding import QueryEmbedder
from langchain_agentrag.search.ranking import Candidates, IndexScores, match_rows, rank, score_keywords, score_vectors
from langchain_agentrag.store.catalog import PartitionRow
from langchain_agentrag.store.columnar_cache import read_vectors, top_rows, unit_vectors
from langchain_agentrag.store.protocols import Rows, TermWeights, Vectors
from langchain_agentrag.store.queries import scoring_rows
from langchain_agentrag.store.store import Store
from langchain_agentrag.store.visibility import VisiblePartition
from langchain_agentrag.text import FIELDS, Analyzer
from langchain_agentrag.types import Hits

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)

_WIDENING = 4  # factor by which the candidates grow when a limit per document leaves too few
_MAX_NAMED_KEYS = 5  # of a filter, that are looked for when it matches nothing
_MAX_LOGGED_NOTES = 100
_ATTEMPTS = 4  # a search is repeated when a write changed what it was reading


class SearchEngine:
    """Entry of every search: result cache, follow-up completion, query embedding, then `Searcher`.

    Args:
        searcher: Searches the store.
        embedder: Embeds queries.
        results: Cache of recent results.
    """

    def __init__(self, searcher: Searcher, embedder: QueryEmbedder, results: ResultCache) -> None:
        self._searcher, self._embedder, self._results = searcher, embedder, results

    def search(self, request: SearchRequest) -> Hits:
        """Return the hits of a request; a blank query, an empty scope or a cached result needs no model."""
        hits, ticket = self._cached(request)
        if hits is None:
            hits = self._searcher.search(self._embedder.embed(_complete_followup(request)))
            self._keep(ticket, hits, request)
        return hits

    async def asearch(self, request: SearchRequest) -> Hits:
        """`search` without blocking the event loop: the model's own async method, the engine in a worker thread.

        Each part on a worker thread is a call of the store: it goes on when the task is cancelled. While the model is
        asked no call runs, so that closing the store does not wait for a task that cannot go on.
        """
        run = self._searcher.calls.run
        hits, ticket = await asyncio.to_thread(run, self._cached, request)
        if hits is None:
            query = (
                await asyncio.to_thread(_complete_followup, request) if request.history else _complete_followup(request)
            )
            hits = await asyncio.to_thread(run, self._searcher.search, await self._embedder.aembed(query))
            await asyncio.to_thread(run, self._keep, ticket, hits, request)
        return hits

    def forget(self, agent_id: str) -> None:
        """Drop everything cached for an agent: query vectors, results, returned passages."""
        self._searcher.recent_passages.forget(agent_id)
        self._results.forget(agent_id)
        self._embedder.forget(agent_id)

    def _cached(self, request: SearchRequest) -> tuple[Hits | None, Ticket | None]:
        if not self._searcher.can_answer(request):
            return Hits(query=request.query, mode=request.mode, degraded=request.degraded), None
        ticket = self._results.ticket(request, lambda: self._searcher.scope_version(request.scope))
        hits = self._results.get(ticket)
        if hits is not None:
            self._searcher.recent_passages.note(request.scope.agent_id, (hit.text for hit in hits))
        return hits, ticket

    def _keep(self, ticket: Ticket | None, hits: Hits, request: SearchRequest) -> None:
        if ticket is not None:
            self._results.keep(ticket, hits, lambda: self._searcher.scope_version(request.scope))


def _complete_followup(request: SearchRequest) -> PreparedQuery:
    """Return the request as a query, completed from the conversation if it is a follow-up question."""
    for note in request.degraded:
        logger.warning("%s", note)
    if not request.history:
        return PreparedQuery(request, request.query, degraded=request.degraded)
    resolved = resolve_followup(request.query, request.history, request.rewriter, request.rewrite_timeout)
    degraded = (f"rewriter: {resolved.warning}",) if resolved.warning else ()
    return PreparedQuery(request, resolved.query, resolved.added, degraded=(*request.degraded, *degraded))


# -- search of the store --------------------------------------------------------------------------------------------


class KeywordResult(NamedTuple):
    """Candidates of the keyword index; no scorer when it was not used or failed."""

    scorer: Scorer | None
    rows: Sequence[int] = ()
    errors: Sequence[str] = ()


class VectorResult(NamedTuple):
    """Candidates of the vector index; None when it was not used or failed."""

    rows: list[int] | None
    errors: Sequence[str] = ()


class Searcher:
    """Searches a store.

    Args:
        store: The store.
        analyzer: The analyzer it was built with.

    Attributes:
        calls: The running calls of the store.
        recent_passages: Passages returned lately, per caller.
    """

    def __init__(self, store: Store, analyzer: Analyzer) -> None:
        self._store, self._analyzer = store, analyzer
        self.calls, self.recent_passages = store.calls, RecentPassages()
        self._logged_notes: set[str] = set()  # each is logged once

    def can_answer(self, request: SearchRequest) -> bool:
        """Whether the query is not blank and the scope holds documents."""
        return not request.is_blank and bool(self._partitions(request.scope))

    def scope_version(self, scope: Scope) -> Hashable:
        """Return a value that changes with any commit to the scope and when something in it expires."""
        return tuple(
            (visible.partition.id, visible.partition.generation, repr(visible.condition))
            for visible in self._partitions(scope)
        )

    def search(self, query: PreparedQuery) -> Hits:
        """Return the best k chunks in scope, best first; ties by cosine, then in document order.

        Raises:
            RetrievalError: every index that was to be searched failed.
        """
        request = query.request
        for attempt in range(_ATTEMPTS):
            version = self._store.catalog.version()
            partitions = self._partitions(request.scope, quarantined=request.quarantined)
            ranked = self._ranked(query, partitions)
            if attempt == _ATTEMPTS - 1 or self._is_unchanged(request, partitions, version):
                hits = self._finished(ranked)
                if not hits and request.condition is not None:
                    hits.degraded += self._unknown_keys(request.condition, partitions)
                self.recent_passages.note(request.scope.agent_id, (hit.text for hit in hits))
                return hits
        raise AssertionError  # the loop returns

    def _partitions(self, scope: Scope, *, quarantined: bool = True) -> list[VisiblePartition]:
        partitions = (self._store.visible(owner, quarantined=quarantined) for owner in scope.owners)
        return [visible for visible in partitions if visible is not None and visible.partition.chunks]

    def _is_unchanged(self, request: SearchRequest, partitions: Sequence[VisiblePartition], version: int) -> bool:
        """Whether nobody has written to the partitions since; almost always nobody has written at all."""
        if version == self._store.catalog.version():
            return True
        current = self._partitions(request.scope, quarantined=request.quarantined)
        return _generations(partitions) == _generations(current)

    def _ranked(self, query: PreparedQuery, partitions: list[VisiblePartition]) -> RankedHits:
        request = query.request
        available = sum(visible.partition.chunks for visible in partitions)
        wanted = candidates_wanted(request.fetch_k, available)
        while True:
            ranked = self._attempt(query, partitions, wanted)
            enough = request.max_per_document is None or len(ranked.hits) >= request.fetch_k
            if enough or wanted >= available:
                return ranked
            wanted = min(wanted * _WIDENING, available)

    def _attempt(self, query: PreparedQuery, partitions: list[VisiblePartition], wanted: int) -> RankedHits:
        """Fetch `wanted` candidates of each index, score and rank them."""
        vector_result = self._start_vectors(query, partitions, wanted)
        keyword_result = self._search_keywords(query, partitions, wanted)
        with self._store.catalog.snapshot() as connection:
            candidates, degraded = self._scored(connection, query, wanted, keyword_result, vector_result)
            ranking = rank(connection, query, candidates)
            locate = partial(self._spans, query)
            return rank_hits(connection, query, candidates, ranking, locate, degraded)

    # -- candidates -----------------------------------------------------------------------------------------------

    def _start_vectors(
        self, query: PreparedQuery, partitions: list[VisiblePartition], wanted: int
    ) -> Callable[[], VectorResult]:
        """Search the vector index; on another thread where Chroma answers. The returned function waits for it."""
        search = partial(self._search_vectors, query, partitions, wanted)
        if query.request.uses_keyword_index and any(visible.partition.in_chroma for visible in partitions):
            return self._store.submit_read(search).result
        result = search()  # an exact scan is done before a thread has started
        return lambda: result

    def _search_keywords(self, query: PreparedQuery, partitions: list[VisiblePartition], wanted: int) -> KeywordResult:
        if not query.request.uses_keyword_index:
            return KeywordResult(None)
        try:
            terms, own_terms = self._query_terms(query)
            scorer = keyword_scorer(self._store, partitions, terms, own_terms)
            rows = keyword_rows(self._store, partitions, scorer, wanted, query.request.condition)
        except (StoreError, OSError, ValueError) as error:
            logger.warning("the keyword index failed: %s", error)
            return KeywordResult(None, errors=[f"keyword: {error}"])
        return KeywordResult(scorer, rows)

    def _search_vectors(self, query: PreparedQuery, partitions: list[VisiblePartition], wanted: int) -> VectorResult:
        if query.vector is None:
            return VectorResult(None)
        try:
            rows, errors = vector_rows(self._store, partitions, query.vector, wanted, query.request.condition)
        except (StoreError, OSError, ValueError) as error:
            logger.warning("the vector index failed: %s", error)
            return VectorResult(None, [f"vector: {error}"])
        return VectorResult(rows, [f"vector: {error}" for error in errors])

    def _scored(
        self,
        connection: sqlite3.Connection,
        query: PreparedQuery,
        wanted: int,
        keyword_result: KeywordResult,
        vector_result: Callable[[], VectorResult],
    ) -> tuple[Candidates, list[str]]:
        """Score all candidates exactly in both indexes; the vector index may still be searching.

        Raises:
            RetrievalError: neither index could answer.
        """
        scorer, rows, keyword_errors = keyword_result
        live = {row.row: row for row in scoring_rows(connection, rows)}
        codes = self._analyzer.codes(query.text)
        matches = match_rows(scorer, codes, live.values()) if scorer is not None else {}
        nearest, vector_errors = vector_result()
        degraded = [*query.degraded, *keyword_errors, *vector_errors]
        if scorer is None and nearest is None:
            raise RetrievalError(
                f"Cannot search for {query.request.query[:80]!r}: no index could answer ({'; '.join(degraded)}). "
                "Run verify() to see what is broken, and repair() to rebuild it."
            )
        added = scoring_rows(connection, list(dict.fromkeys(row for row in nearest or () if row not in live)))
        live |= {row.row: row for row in added}
        vector = IndexScores() if nearest is None else score_vectors(query, live, wanted)
        keyword = IndexScores()
        if scorer is not None:
            matches |= match_rows(scorer, codes, added)
            keyword = score_keywords(query, scorer, self._analyzer.word_weight, matches, live, wanted)
        return Candidates(live, vector, keyword, scorer), degraded

    # -- terms of the query ---------------------------------------------------------------------------------------

    def _spans(self, query: PreparedQuery, text: str) -> Spans:
        """Spans of the matching words in a text; character bigrams count only when no word matches."""
        terms, _ = self._query_terms(query)
        words = self._analyzer.match_spans(text, terms.get("words", {}).keys())
        return words or self._analyzer.match_spans(text, terms.get("grams", {}).keys())

    def _unknown_keys(self, condition: Filter, partitions: Sequence[VisiblePartition]) -> tuple[str, ...]:
        """Return a note on the keys that a filter asks for and no visible document has; other agents' do not count."""

        def known(key: str) -> bool:
            return any(
                self._store.indexes.cache(visible.partition).has_key(visible.partition, key, visible.condition)
                for visible in partitions
            )

        wanted = sorted(key for key in wanted_keys(condition) if not key.startswith("$"))[:_MAX_NAMED_KEYS]
        unknown = [key for key in wanted if not known(key)]
        if not unknown or not partitions:
            return ()
        rests = [rest for key in unknown if (rest := key.partition(".")[2]) and known(rest)]  # "metadata.type"
        hint = f"; did you mean {', '.join(map(short_repr, rests))}?" if rests else ""
        note = f"filter: no document here has the metadata key {', '.join(map(short_repr, unknown))}{hint}"
        if note not in self._logged_notes:
            self._logged_notes = {*list(self._logged_notes)[-_MAX_LOGGED_NOTES:], note}
            logger.warning("%s", note)
        return (note,)

    def _query_terms(self, query: PreparedQuery) -> tuple[TermWeights, TermWeights]:
        """Weighted terms of the query with and without synonyms; terms of the conversation at less weight."""
        text = query.request.query if query.added else query.text
        terms, own_terms = self._analyzed(text)
        if not query.added:
            return terms, own_terms
        added, own_added = self._analyzed(query.added)
        return add_context_terms(terms, added), add_context_terms(own_terms, own_added)

    def _analyzed(self, text: str) -> tuple[TermWeights, TermWeights]:
        own_terms = self._analyzer.analyze_query(text, widen=False)
        return self._analyzer.widen(own_terms, text), own_terms

    # -- the answer -----------------------------------------------------------------------------------------------

    def _finished(self, ranked: RankedHits) -> Hits:
        """Run the later stages, and build explanations and the trace."""
        query, request = ranked.query, ranked.query.request
        last_stage, chosen = ranked.hits, ranked.hits[: request.k]
        if request.needs_postprocessing:
            last_stage, chosen = postprocess(self._store, ranked)
        hits = Hits(
            explain(ranked, chosen),
            query=request.query,
            mode=request.mode,
            degraded=tuple(ranked.degraded),
            trace=build_trace(ranked, last_stage, chosen) if request.explain else None,
            searched=query.text,
        )
        if hits.trace is not None and request.condition is not None:
            unfiltered = self.search(replace(query, request=replace(request, condition=None, explain=False)))
            hits.trace = add_filtered_out(hits.trace, hits, unfiltered)
        return hits


def _generations(partitions: Sequence[VisiblePartition]) -> list[tuple[int, int]]:
    return [(visible.partition.id, visible.partition.generation) for visible in partitions]


# -- how many candidates, and how to find them ----------------------------------------------------------------------

SELECTED_LIMIT = 12_000
"""Rows left by a filter up to which reading their vectors and scoring them exactly beats widening an HNSW search."""

_FILTER_SLACK = 1.3  # the nearest neighbours are not evenly spread over the rows a filter keeps
_MIN_CANDIDATES = 30  # per index, so that fusion has something to choose from at small k
_ANN_WIDENING = 4  # factor by which an approximate search that returned too few rows is widened
_MAX_NEIGHBOURS = 8_192  # beyond that an exact scan is quicker
_TIES = 4  # candidates may be this many times what is wanted when scores are too close to call
_VECTOR_ROUNDING = 1e-5  # between a cosine in float32 and the exact one
_KEYWORD_ROUNDING = 0.03  # between tantivy's score, with lengths in one byte, and the exact one

ScoredRow = tuple[int, float]
"""A row and its rounded score in one index."""


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """How to find nearest neighbours in one partition.

    Attributes:
        how: "exact" over the whole partition in memory, "selected" over the filtered rows only, or "approximate".
        fetch: Neighbours to fetch from the approximate index.
    """

    how: Literal["exact", "selected", "approximate"]
    fetch: int = 0


def candidates_wanted(k: int, available: int) -> int:
    """Return the number of candidates each index contributes to a search for k hits among `available` rows."""
    return max(1, min(max(_MIN_CANDIDATES, 3 * k), available))


def plan_vectors(*, chunks: int, in_chroma: bool, exact_limit: int, matching: int | None, wanted: int) -> VectorPlan:
    """Plan the vector search of one partition.

    Args:
        chunks: Live rows of the partition.
        in_chroma: Whether there is an approximate index.
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
    return VectorPlan("approximate", math.ceil(wanted * _FILTER_SLACK * chunks / matching))


def keyword_fetch(*, chunks: int, matching: int, wanted: int) -> int | None:
    """Return how many keyword candidates to fetch and filter afterwards; None to let the index filter.

    Filtering afterwards wins while the filter keeps a good part of the rows, because a set of row ids has to be passed
    to the index one by one (5 ms for 10,000 rows).
    """
    if matching * 5 < chunks:
        return None
    return math.ceil(wanted * _FILTER_SLACK * chunks / max(matching, 1))


def keyword_scorer(
    store: Store, partitions: Sequence[VisiblePartition], terms: TermWeights, own_terms: TermWeights
) -> Scorer:
    """Return BM25 for the query over the scope: counts are summed over its visible partitions and nothing else."""
    stats = {
        name: FieldStats(
            docs=sum(visible.partition.chunks for visible in partitions),
            tokens=sum(visible.partition.tokens[place] for visible in partitions if visible.partition.tokens),
        )
        for place, name in enumerate(FIELDS)
    }
    totals: dict[str, dict[str, int]] = {field: dict.fromkeys(weights, 0) for field, weights in terms.items()}
    for visible in partitions:
        doc_freqs = store.indexes.keyword_index(visible.partition).doc_freqs(terms)
        for field, counts in doc_freqs.items():
            excluded = visible.excluded_doc_freqs.get(field, {})
            for term, count in counts.items():
                totals[field][term] += count - excluded.get(term, 0)
    return Scorer(terms, stats, totals, own=own_terms)


def keyword_rows(
    store: Store, partitions: Sequence[VisiblePartition], scorer: Scorer, wanted: int, condition: Filter | None
) -> list[int]:
    """Return rows that share a term with the query: at least the best `wanted` of the scope."""
    scored: list[ScoredRow] = []
    for visible in partitions:
        combined = _combined(visible.condition, condition)
        scored += _keyword_rows(store, visible.partition, scorer.gains, wanted, combined)
    return _best(scored, wanted, _KEYWORD_ROUNDING)


def _keyword_rows(
    store: Store,
    partition: PartitionRow,
    weights: Mapping[str, Mapping[str, float]],
    wanted: int,
    condition: Filter | None,
) -> list[ScoredRow]:
    index, limit = store.indexes.keyword_index(partition), _TIES * wanted
    if condition is None:
        return index.candidates(weights, limit)
    allowed = store.indexes.cache(partition).select(partition, condition)
    fetch = keyword_fetch(chunks=partition.chunks, matching=len(allowed), wanted=limit)
    if fetch is not None:
        scored = index.candidates(weights, fetch)
        kept = _members(scored, allowed)
        if len(kept) >= wanted or len(scored) < fetch:
            return kept
    return index.candidates(weights, limit, allowed)


def vector_rows(
    store: Store, partitions: Sequence[VisiblePartition], vector: Vectors, wanted: int, condition: Filter | None
) -> tuple[list[int], list[str]]:
    """Return the rows nearest to the query, at least the best `wanted` of the scope, and errors on the way."""
    scored: list[ScoredRow] = []
    errors: list[str] = []
    for visible in partitions:
        partition, combined = visible.partition, _combined(visible.condition, condition)
        cache = store.indexes.cache(partition)
        small = partition.chunks <= store.exact_limit or not partition.in_chroma
        allowed = None if small else cache.select(partition, combined)
        plan = plan_vectors(
            chunks=partition.chunks,
            in_chroma=partition.in_chroma,
            exact_limit=store.exact_limit,
            matching=None if combined is None or allowed is None else len(allowed),
            wanted=wanted,
        )
        if allowed is None or plan.how == "exact":
            scored += cache.nearest(partition, vector, wanted, combined)
        elif plan.how == "selected":
            scored += _scan(store, allowed, vector, wanted)
        else:
            try:
                scored += _approximate(store, partition, vector, wanted, plan.fetch, allowed, combined)
            except (StoreLockedError, ForkedProcessError):
                # Chroma cannot be opened while somebody writes, nor in some forks; the exact scan is slower, not worse
                scored += cache.nearest(partition, vector, wanted, combined)
            except StoreError as error:
                logger.warning("scoring %d vectors exactly instead: %s", len(allowed), error)
                errors.append(f"scored exactly, the approximate index failed ({error})")
                scored += cache.nearest(partition, vector, wanted, combined)
    return _best(scored, wanted, _VECTOR_ROUNDING), errors


def _approximate(
    store: Store,
    partition: PartitionRow,
    vector: Vectors,
    wanted: int,
    fetch: int,
    allowed: Rows,
    condition: Filter | None,
) -> list[ScoredRow]:
    """Search the HNSW graph for the rows it holds, and scan the rows after that exactly."""
    index = store.indexes.vector_index(partition)
    # read before the graph is searched: rows it gets meanwhile are scanned
    last = store.indexes.last_visible_row(partition, allowed)
    indexed = allowed[: np.searchsorted(allowed, last, side="right")]
    scored: list[ScoredRow] = []
    if len(indexed) < len(allowed):
        scored = store.indexes.cache(partition).nearest(partition, vector, wanted, condition, after=last)
    while len(indexed):
        kept = _members(index.nearest(vector, fetch), indexed)
        if len(kept) >= min(wanted, len(indexed)):
            return scored + kept
        if fetch >= min(_MAX_NEIGHBOURS, partition.chunks):
            return scored + _scan(store, indexed, vector, wanted)
        fetch = min(fetch * _ANN_WIDENING, _MAX_NEIGHBOURS)
    return scored


def _scan(store: Store, rows: Rows, vector: Vectors, wanted: int) -> list[ScoredRow]:
    if not len(rows):
        return []
    live, vectors = read_vectors(store.catalog.connection(), rows)
    return top_rows(live, unit_vectors(vectors), vector, wanted)


def _best(scored: Sequence[ScoredRow], wanted: int, rounding: float) -> list[int]:
    """Rows with the best scores, and those that rounding may have put behind the last of them."""
    if len(scored) <= wanted:
        return [row for row, _ in scored]
    ordered = sorted(scored, key=lambda pair: (-pair[1], pair[0]))
    edge = ordered[wanted - 1][1]
    edge -= rounding * max(1.0, abs(edge))
    return [row for place, (row, score) in enumerate(ordered) if place < _TIES * wanted and score >= edge]


def _members(scored: Sequence[ScoredRow], allowed: Rows) -> list[ScoredRow]:
    """Scored rows that are in the ascending array."""
    if not scored or not len(allowed):
        return []
    rows = np.array([row for row, _ in scored], dtype=np.int64)
    places = np.minimum(np.searchsorted(allowed, rows), len(allowed) - 1)
    return [pair for pair, inside in zip(scored, allowed[places] == rows, strict=True) if inside]


def _combined(first: Filter | None, second: Filter | None) -> Filter | None:
    return conjoin(first, second) if first is not None and second is not None else first or second
