"""One search: candidates of both legs, exact scores for all of them, fusion, the best k with their reasons."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from langchain_agentrag import metadata as codec
from langchain_agentrag.analysis import Analyzer
from langchain_agentrag.bm25 import Scorer
from langchain_agentrag.errors import RetrievalError, StoreError
from langchain_agentrag.fusion import Weights, recency_lift
from langchain_agentrag.index.expiry import Living
from langchain_agentrag.index.protocol import TermWeights
from langchain_agentrag.index.reading import (
    ScoringRow,
    document_speakers,
    document_times,
    parse_locator,
    scoring_rows,
    stored_rows,
)
from langchain_agentrag.index.store import Store
from langchain_agentrag.records import Dropped, Hit, Hits
from langchain_agentrag.scope import Scope
from langchain_agentrag.search.account import MOST_DROPPED, address, dropped_row, filtered_out, shares
from langchain_agentrag.search.candidates import keyword_rows, keyword_scorer, vector_rows
from langchain_agentrag.search.choosing import Pool, choose
from langchain_agentrag.search.context import with_supplement
from langchain_agentrag.search.diversity import cap_per_group
from langchain_agentrag.search.explain import LateExplanation, Spans, note
from langchain_agentrag.search.planner import candidates_wanted
from langchain_agentrag.search.request import SearchRequest
from langchain_agentrag.search.scoring import (
    Leg,
    confidences,
    fused_scores,
    leg_weights,
    read_words,
    score_vectors,
    score_words,
)
from langchain_agentrag.search.shown import Shown
from langchain_agentrag.search.speakers import OTHERS_SHARE, said_by_others

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)

_WIDER = 4  # factor by which the candidates grow while a cap per document leaves too few
_ATTEMPTS = 4  # a search is repeated when a write changed what it was looking at


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
        self.shown = Shown()

    def worth_asking(self, request: SearchRequest) -> bool:
        """Whether the query says something and there is something to find."""
        self._store.check_open()
        return not request.is_blank and bool(self._partitions(request.scope))

    def stamp(self, scope: Scope) -> Hashable:
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
                self.shown.note(request.scope.agent_id, (hit.text for hit in hits))
                return hits
        raise AssertionError  # the loop returns

    def _partitions(self, scope: Scope, *, quarantined: bool = True) -> list[Living]:
        found = (self._store.living(owner, quarantined=quarantined) for owner in scope.owners)
        return [living for living in found if living is not None and living.partition.chunks]

    def _is_unchanged(self, request: SearchRequest, partitions: Sequence[Living], version: int) -> bool:
        """Whether the partitions are still what they were; almost always nobody has written anything at all."""
        if version == self._store.catalog.version():
            return True
        now = self._partitions(request.scope, quarantined=request.quarantined)
        return _generations(partitions) == _generations(now)

    def _attempt(self, request: SearchRequest, partitions: list[Living]) -> Pool:
        available = sum(living.partition.chunks for living in partitions)
        wanted = candidates_wanted(request.pool, available)
        while True:
            pool = self._gather(request, partitions, wanted)
            # a cap per document may leave too few although there are more to find
            if request.cap is None or len(pool.hits) >= request.pool or wanted >= available:
                return pool
            wanted = min(wanted * _WIDER, available)

    def _gather(self, request: SearchRequest, partitions: list[Living], wanted: int) -> Pool:
        said: list[str] = []
        near = self._start_vectors(request, partitions, wanted, said)
        troubles = list(request.troubles)
        words, rows = self._ask_keywords(request, partitions, wanted, troubles)
        with self._store.catalog.snapshot() as connection:
            live = {row.row: row for row in scoring_rows(connection, rows)}
            codes = self._analyzer.codes(request.searched)
            read = (
                read_words(words, codes, live.values()) if words else {}
            )  # the vector leg may still be looking
            near_rows = near()
            troubles += said
            if words is None and near_rows is None:
                raise RetrievalError(
                    f"Cannot search for {request.query[:80]!r}: no leg could answer ({'; '.join(troubles)}). "
                    "Run verify() to see what is broken, and repair() to rebuild it."
                )
            more = list(dict.fromkeys(row for row in near_rows or () if row not in live))
            added = scoring_rows(connection, more)
            live |= {row.row: row for row in added}
            vector = Leg() if near_rows is None else score_vectors(request, live, wanted)
            keyword = Leg()
            if words is not None:
                read |= read_words(words, codes, added)
                keyword = score_words(request, words, self._analyzer.word_weight, read, live, wanted)
            weights = request.weights or leg_weights(vector, keyword)
            fused = fused_scores(request, weights, vector, keyword)
            others = _said_by_others(connection, request, live)
            fused |= {row: fused[row] * OTHERS_SHARE for row in others.keys() & fused.keys()}
            lifts = _lifts(connection, request, live, fused)
            fused |= {row: min(1.0, fused[row] + lift) for row, lift in lifts.items()}
            ranked = sorted(
                fused,
                # what is no closer than unrelated text scores 0, yet of two such passages the nearer one comes first
                key=lambda row: (
                    -fused[row],
                    -vector.raw.get(row, -1.0),
                    live[row].document,
                    live[row].ordinal,
                ),
            )
            good = ((row, live[row].document) for row in ranked if fused[row] >= request.threshold)
            best = cap_per_group(good, request.cap)[: request.pool]
            likely = confidences(best, vector, keyword, live, others)
            hits = self._show(
                connection, request, best, fused, likely, lifts, weights, vector, keyword, words, live
            )
            for row in others.keys() & hits.keys():
                note(hits[row].explanation, f"less for not being said by {others[row]}")
            vectors = {address(hits[row]): live[row].vector for row in hits}
            pool = Pool(list(hits.values()), vectors, troubles, partial(self._spans, request))
            if request.explain:
                pool.considered = len(rows) + len(more)
                pool.dropped = self._dropped(connection, request, ranked, best, fused)
        return pool

    # -- the legs -------------------------------------------------------------------------------------------------

    def _start_vectors(
        self, request: SearchRequest, partitions: list[Living], wanted: int, troubles: list[str]
    ) -> Callable[[], list[int] | None]:
        """Ask the vector leg; where Chroma answers, beside the keyword leg, and what is returned waits for it."""
        ask = partial(self._ask_vectors, request, partitions, wanted, troubles)
        if request.asks_keywords and any(living.partition.in_chroma for living in partitions):
            return self._store.beside(ask).result
        found = ask()  # an exact scan is done before a thread has started
        return lambda: found

    def _ask_keywords(
        self, request: SearchRequest, partitions: list[Living], wanted: int, troubles: list[str]
    ) -> tuple[Scorer | None, list[int]]:
        if not request.asks_keywords:
            return None, []
        try:
            asked, own = self._asked(request)
            scorer = keyword_scorer(self._store, partitions, asked, own)
            return scorer, keyword_rows(self._store, partitions, scorer, wanted, request.condition)
        except (StoreError, OSError, ValueError) as error:
            logger.warning("the keyword leg failed: %s", error)
            troubles.append(f"keyword: {error}")
            return None, []

    def _ask_vectors(
        self, request: SearchRequest, partitions: list[Living], wanted: int, troubles: list[str]
    ) -> list[int] | None:
        if request.vector is None:
            return None
        try:
            rows, notes = vector_rows(self._store, partitions, request.vector, wanted, request.condition)
        except (StoreError, OSError, ValueError) as error:
            logger.warning("the vector leg failed: %s", error)
            troubles.append(f"vector: {error}")
            return None
        troubles.extend(f"vector: {note}" for note in notes)
        return rows

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
        hits = choose(self._store, request, pool)
        if hits.trail is not None and request.condition is not None:
            without = self.search(replace(request, condition=None, explain=False))
            hits.trail = filtered_out(hits.trail, hits, without)
        return hits

    def _dropped(
        self,
        connection: sqlite3.Connection,
        request: SearchRequest,
        ranked: Sequence[int],
        best: Sequence[int],
        fused: Mapping[int, float],
    ) -> list[Dropped]:
        """Candidates that the threshold, the cap per document or the size of the pool kept out."""
        taken = set(best)
        out = [row for row in ranked if row not in taken][:MOST_DROPPED]
        full = len(best) >= request.pool
        last = ranked.index(best[-1]) if full else len(ranked)
        stored = stored_rows(connection, out)
        return [
            dropped_row(stored[row], fused[row], request, behind=ranked.index(row) > last)
            for row in out
            if row in stored and request.scope.admits(stored[row].owner)
        ]

    def _show(
        self,
        connection: sqlite3.Connection,
        request: SearchRequest,
        best: Sequence[int],
        fused: Mapping[int, float],
        likely: Mapping[int, float],
        lifts: Mapping[int, float],
        weights: Weights,
        vector: Leg,
        keyword: Leg,
        scorer: Scorer | None,
        live: Mapping[int, ScoringRow],
    ) -> dict[int, Hit]:
        stored = stored_rows(connection, best)
        vector_ranks = {row: rank for rank, row in enumerate(vector.ranking, 1)}
        keyword_ranks = {row: rank for rank, row in enumerate(keyword.ranking, 1)}
        hits = {}
        for row in best:
            shown = stored[row]
            if not request.scope.admits(
                shown.owner
            ):  # the second lock; the first is which partitions were asked
                logger.error(
                    "a row outside the scope reached the end of a search and was dropped; run verify()"
                )
                continue
            evidence = keyword.said_of(row, keyword_ranks)
            why = LateExplanation(
                shown.text,
                partial(self._spans, request) if evidence else _nothing,
                partial(shares, scorer, live[row]) if evidence and scorer else tuple,
                vector=vector.said_of(row, vector_ranks),
                keyword=evidence,
                fusion=request.fusion if request.mode == "hybrid" else request.mode,
                weights=weights,
                recency=lifts.get(row, 0.0),
            )
            hits[row] = Hit(
                doc_id=shown.doc_id,
                chunk_id=shown.ordinal,
                text=shown.text,
                score=fused[row],
                confidence=likely[row],
                metadata=codec.decode(shown.metadata),
                agent_id=shown.owner,
                start=shown.start,
                end=shown.stop,
                context=shown.context,
                locator=parse_locator(shown.locator),
                explanation=why,
                whole=shown.whole,
            )
        return hits


def _generations(partitions: Sequence[Living]) -> list[tuple[int, int]]:
    return [(living.partition.id, living.partition.generation) for living in partitions]


def _nothing(_text: str) -> Spans:
    return ()


def _said_by_others(
    connection: sqlite3.Connection, request: SearchRequest, live: Mapping[int, ScoringRow]
) -> dict[int, str]:
    """Row → who was asked for, of the candidates that another speaker says."""
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
    fused: Mapping[int, float],
) -> dict[int, float]:
    """What being recent adds to the score of each row; empty when it is not asked for."""
    if request.recency is None:
        return {}
    times = document_times(connection, list({live[row].document for row in fused}))
    return {
        row: recency_lift(score, request.now - times[live[row].document], request.recency)
        for row, score in fused.items()
        if live[row].document in times
    }
