"""One search: candidates of both legs, exact scores for all of them, fusion, the best k with their reasons."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from langchain_agentrag.errors import RetrievalError, StoreError
from langchain_agentrag.scope import Scope
from langchain_agentrag.search.account import address, filtered_out
from langchain_agentrag.search.bm25 import Scorer
from langchain_agentrag.search.candidates import keyword_rows, keyword_scorer, vector_rows
from langchain_agentrag.search.explain import Spans
from langchain_agentrag.search.followup import with_supplement
from langchain_agentrag.search.hits import left_behind, shown_hits
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.search.planner import candidates_wanted
from langchain_agentrag.search.postprocess import Pool, choose
from langchain_agentrag.search.ranking import Candidates, rank
from langchain_agentrag.search.scoring import Leg, read_words, score_vectors, score_words
from langchain_agentrag.search.shown import Shown
from langchain_agentrag.store.expiry import Living
from langchain_agentrag.store.protocols import TermWeights
from langchain_agentrag.store.queries import scoring_rows
from langchain_agentrag.store.store import Store
from langchain_agentrag.text import Analyzer
from langchain_agentrag.types import Hits

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)

_WIDER = 4  # factor by which the candidates grow while a cap per document leaves too few
_ATTEMPTS = 4  # a search is repeated when a write changed what it was looking at


class _Worded(NamedTuple):
    """What the keyword leg answered; no scorer where it was not asked, or failed."""

    scorer: Scorer | None
    rows: Sequence[int] = ()
    troubles: Sequence[str] = ()


class _Nearest(NamedTuple):
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
        """One look at so many candidates of each leg: asked, scored, ranked, shown."""
        nearest = self._start_vectors(request, partitions, wanted)
        words = self._ask_keywords(request, partitions, wanted)
        with self._store.catalog.snapshot() as connection:
            found, troubles = self._scored(connection, request, wanted, words, nearest)
            ranking = rank(connection, request, found)
            find = partial(self._spans, request)
            hits = shown_hits(connection, request, found, ranking, find)
            vectors = {address(hit): found.live[row].vector for row, hit in hits.items()}
            pool = Pool(list(hits.values()), vectors, troubles, find)
            if request.explain:
                pool.considered = len(found.live)
                pool.dropped = left_behind(connection, request, ranking)
        return pool

    # -- the legs -------------------------------------------------------------------------------------------------

    def _start_vectors(
        self, request: SearchRequest, partitions: list[Living], wanted: int
    ) -> Callable[[], _Nearest]:
        """Ask the vector leg; where Chroma answers, beside the keyword leg, and what is returned waits for it."""
        ask = partial(self._ask_vectors, request, partitions, wanted)
        if request.asks_keywords and any(living.partition.in_chroma for living in partitions):
            return self._store.beside(ask).result
        found = ask()  # an exact scan is done before a thread has started
        return lambda: found

    def _ask_keywords(self, request: SearchRequest, partitions: list[Living], wanted: int) -> _Worded:
        if not request.asks_keywords:
            return _Worded(None)
        try:
            asked, own = self._asked(request)
            scorer = keyword_scorer(self._store, partitions, asked, own)
            return _Worded(scorer, keyword_rows(self._store, partitions, scorer, wanted, request.condition))
        except (StoreError, OSError, ValueError) as error:
            logger.warning("the keyword leg failed: %s", error)
            return _Worded(None, troubles=[f"keyword: {error}"])

    def _ask_vectors(self, request: SearchRequest, partitions: list[Living], wanted: int) -> _Nearest:
        if request.vector is None:
            return _Nearest(None)
        try:
            rows, notes = vector_rows(self._store, partitions, request.vector, wanted, request.condition)
        except (StoreError, OSError, ValueError) as error:
            logger.warning("the vector leg failed: %s", error)
            return _Nearest(None, [f"vector: {error}"])
        return _Nearest(rows, [f"vector: {note}" for note in notes])

    def _scored(
        self,
        connection: sqlite3.Connection,
        request: SearchRequest,
        wanted: int,
        words: _Worded,
        nearest: Callable[[], _Nearest],
    ) -> tuple[Candidates, list[str]]:
        """Exact scores of what either leg found, and what went wrong in them; the vector leg may still be looking.

        Raises:
            RetrievalError: neither leg could answer.
        """
        scorer, rows, troubles = words
        live = {row.row: row for row in scoring_rows(connection, rows)}
        codes = self._analyzer.codes(request.searched)
        read = read_words(scorer, codes, live.values()) if scorer is not None else {}
        near, said = nearest()
        troubles = [*request.troubles, *troubles, *said]
        if scorer is None and near is None:
            raise RetrievalError(
                f"Cannot search for {request.query[:80]!r}: no leg could answer ({'; '.join(troubles)}). "
                "Run verify() to see what is broken, and repair() to rebuild it."
            )
        added = scoring_rows(connection, list(dict.fromkeys(row for row in near or () if row not in live)))
        live |= {row.row: row for row in added}
        vector = Leg() if near is None else score_vectors(request, live, wanted)
        keyword = Leg()
        if scorer is not None:
            read |= read_words(scorer, codes, added)
            keyword = score_words(request, scorer, self._analyzer.word_weight, read, live, wanted)
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
        hits = choose(self._store, request, pool)
        if hits.trail is not None and request.condition is not None:
            without = self.search(replace(request, condition=None, explain=False))
            hits.trail = filtered_out(hits.trail, hits, without)
        return hits


def _generations(partitions: Sequence[Living]) -> list[tuple[int, int]]:
    return [(living.partition.id, living.partition.generation) for living in partitions]
