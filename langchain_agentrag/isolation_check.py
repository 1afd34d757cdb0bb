"""Isolation check: try to reach one agent's documents as another, through the public methods of a store.

Nothing is written. Chunks of agents are drawn at random; other agents then search for their exact words, in every mode
and with filters that try to reach further, and read them by address. What they get must be their own or shared by the
catalog, and their keyword scores must follow from the documents in their scope expected.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Unpack, get_args

from langchain_agentrag.errors import InvalidQueryError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.search.bm25 import FieldStats, score
from langchain_agentrag.store.queries import find_document
from langchain_agentrag.store.verify import (
    Address,
    VerifyReport,
    check_chunks,
    chunk_addresses,
    chunk_owners,
    has_chunk,
    sample_rows,
    stored_terms,
    verify,
)
from langchain_agentrag.text import FIELDS
from langchain_agentrag.types import Hit, SearchMode

if TYPE_CHECKING:
    from langchain_agentrag.search.options import SearchOptions
    from langchain_agentrag.store.store import Store
    from langchain_agentrag.text import Analyzer
    from langchain_agentrag.types import Hits, Passage, SourceDocument, StoreStats

_QUERY_LENGTH = 120  # characters of a chunk that are searched for
_HITS = 10
_MAX_RESCORED_CHUNKS = 5_000  # chunks in scope up to which keyword scores are computed again
_CHUNKS_PER_AGENT = 40
_TOLERANCE = 1e-9  # relative, of keyword scores


class Indexer(Protocol):
    """Methods of a `DualIndexer` that are open to an agent."""

    def search(self, query: str, k: int = 5, *, agent_id: str | None = None, **options: Unpack[SearchOptions]) -> Hits:
        """See `DualIndexer.search`."""

    def read(self, doc_id: str, chunk_id: int = 0, *, agent_id: str | None = None) -> Passage:
        """See `DualIndexer.read`."""

    def get(self, doc_ids: Iterable[str], *, agent_id: str | None = None) -> list[SourceDocument]:
        """See `DualIndexer.get`."""

    def stats(self, agent_id: str | None = None) -> StoreStats:
        """See `DualIndexer.stats`."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """Attempt of one agent, the outsider, to reach one chunk of another."""

    owner: str
    outsider: str | None
    chunk: Address


def verify_deep(indexer: Indexer, store: Store, analyzer: Analyzer) -> VerifyReport:
    """Run `verify`, check every chunk by content, and check the isolation of agents. Changes nothing."""
    report = verify(store)
    check = IsolationCheck(indexer, store, analyzer)
    problems = (*report.problems, *check_chunks(store, analyzer), *check.run())
    return replace(report, problems=problems, probes=check.probes)


class IsolationCheck:
    """Randomised search for leaks between the agents of a store.

    Args:
        indexer: The indexer.
        store: Its store.
        analyzer: Its analyzer.
        agents: Agents to check; None for all.
        sample: Maximum number of (outsider, chunk) pairs; each costs about six searches and two reads.
        seed: Seed of the random choice.
    """

    def __init__(
        self,
        indexer: Indexer,
        store: Store,
        analyzer: Analyzer,
        agents: Iterable[str] | None = None,
        *,
        sample: int = 200,
        seed: int = 0,
    ) -> None:
        self._indexer, self._store, self._analyzer = indexer, store, analyzer
        self._rng = random.Random(seed)  # noqa: S311  (a sample, not a secret)
        if agents is None:
            agents = [part.owner for part in store.catalog.partitions() if part.owner and part.documents]
        self._agents = [agent for agent in dict.fromkeys(agents) if check_agent_id(agent)]
        self._sample = sample
        self._leaks: dict[str, None] = {}
        self.probes = 0

    def run(self) -> list[str]:
        """Return one sentence per leak, with chunk and agents and without any text."""
        for probe in self._probes():
            self._search(probe)
            self._read(probe)
            self.probes += 1
        for agent in self._agents[: self._sample]:  # without an agent stats() counts the whole store
            self._check_stats(agent)
        return list(self._leaks)

    def _probes(self) -> Iterator[_Probe]:
        """Yield probes in random order, in turn for each agent."""
        shuffled = []
        with self._store.catalog.snapshot() as connection:
            for owner in self._rng.sample(self._agents, min(len(self._agents), self._sample)):
                chunks = chunk_addresses(connection, sample_rows(connection, owner, _CHUNKS_PER_AGENT, self._rng))
                outsiders = [None, *(other for other in self._agents if other != owner), *_lookalikes(owner)]
                probes = [_Probe(owner, outsider, chunk) for outsider in outsiders for chunk in chunks]
                shuffled.append(self._rng.sample(probes, min(len(probes), self._sample)))
        for turn in range(self._sample):
            for probes in shuffled:
                if turn < len(probes) and self.probes < self._sample:
                    yield probes[turn]

    # -- searching ------------------------------------------------------------------------------------------------

    def _search(self, probe: _Probe) -> None:
        doc_id, _, text = probe.chunk
        start = self._rng.randrange(max(1, len(text) - _QUERY_LENGTH))
        query = text[start : start + _QUERY_LENGTH]
        filters = [
            {"agent_id": probe.owner},
            {"agent_id": {"$ne": probe.outsider}},
            {"$or": [{"agent_id": probe.owner}, {"agent_id": {"$exists": True}}]},
            {"$not": {"agent_id": {"$in": [probe.outsider, None]}}},
            {"doc_id": doc_id},
        ]
        for mode in get_args(SearchMode):
            for where in (None, self._rng.choice(filters)):
                call = f"search(mode={mode!r}, filter={where!r})"
                hits = self._search_as(probe.outsider, query, mode, where)
                for hit in hits:
                    self._check_chunk(probe.outsider, (hit.doc_id, hit.chunk_id, hit.text), hit.agent_id, call)
                if mode == "keyword" and where is None and hits:
                    self._check_scores(probe.outsider, query, hits)

    def _search_as(self, outsider: str | None, query: str, mode: SearchMode, where: Any) -> Sequence[Hit]:  # noqa: ANN401
        try:
            return self._indexer.search(query, _HITS, agent_id=outsider, mode=mode, filter=where)
        except UsageError:
            return []  # an error reveals nothing

    def _check_chunk(self, outsider: str | None, chunk: Address, reported_owner: str | None, call: str) -> None:
        with self._store.catalog.snapshot() as connection:
            owners = {owner for owner in {None, outsider} if has_chunk(connection, owner, chunk)}
            true_owners = owners or chunk_owners(connection, chunk)
        reader, chunk_name = _owner_name(outsider), f"chunk {chunk[1]} of document {chunk[0]!r}"
        if not true_owners:
            self._add_leak(f"{reader} was shown {chunk_name}, which the catalog does not hold, by {call}")
        elif not owners:
            true_owner = _owner_name(next(iter(true_owners)))
            self._add_leak(f"{reader} was shown {chunk_name} of {true_owner} by {call}")
        elif reported_owner not in owners:
            self._add_leak(f"{reader} got a wrong owner of {chunk_name} by {call}")

    def _check_scores(self, outsider: str | None, query: str, hits: Sequence[Hit]) -> None:
        """Compare the BM25 scores of hits with those computed from the documents in the outsider's scope."""
        scope = {None, outsider}
        partitions = [part for part in self._store.catalog.partitions() if part.owner in scope]
        if sum(part.chunks for part in partitions) > _MAX_RESCORED_CHUNKS:
            return
        query_terms = self._analyzer.analyze_query(query)
        lengths: Counter[str] = Counter()
        doc_freqs: dict[str, Counter[str]] = {field: Counter() for field in query_terms}
        with self._store.catalog.snapshot() as connection:
            terms_by_chunk = stored_terms(connection, scope, self._store.now())
        for terms in terms_by_chunk.values():
            lengths.update(terms.lengths)
            for field, weights in query_terms.items():
                doc_freqs[field].update(set(getattr(terms, field)) & weights.keys())
        stats = {field: FieldStats(len(terms_by_chunk), lengths[field]) for field in FIELDS}
        for hit in hits:
            chunk_terms = terms_by_chunk.get((hit.agent_id, hit.doc_id, hit.chunk_id))
            evidence = hit.explanation.keyword
            if chunk_terms is None or evidence is None:
                continue
            counts = {field: Counter(getattr(chunk_terms, field)) for field in query_terms}
            expected = score(query_terms, counts, chunk_terms.lengths, stats, doc_freqs)
            if abs(expected - evidence.raw) > _TOLERANCE * max(1.0, expected):
                self._add_leak(f"the keyword scores of {_owner_name(outsider)} depend on documents it may not see")
                return

    # -- reading --------------------------------------------------------------------------------------------------

    def _read(self, probe: _Probe) -> None:
        (doc_id, ordinal, _), outsider = probe.chunk, probe.outsider
        reader, owner_name = _owner_name(outsider), _owner_name(probe.owner)
        with self._store.catalog.snapshot() as connection:
            now = self._store.now()
            visible = any(find_document(connection, owner, doc_id, now) for owner in {None, outsider})
        if self._indexer.get([doc_id], agent_id=outsider) and not visible:
            self._add_leak(f"{reader} was given document {doc_id!r} of {owner_name} by get()")
        passage = self._read_as(outsider, doc_id, ordinal)
        if isinstance(passage, str):
            # the message must be the same as for a document that does not exist
            absent = f"absent-{self._rng.getrandbits(64):016x}"
            expected = str(self._read_as(outsider, absent, ordinal)).replace(repr(absent), repr(doc_id))
            if not visible and passage != expected:
                self._add_leak(f"an error tells {reader} that {owner_name} has document {doc_id!r}")
        else:
            self._check_chunk(outsider, (doc_id, ordinal, passage.text), passage.agent_id, "read()")

    def _read_as(self, outsider: str | None, doc_id: str, ordinal: int) -> Passage | str:
        """Return the passage, or the message of the error."""
        try:
            return self._indexer.read(doc_id, ordinal, agent_id=outsider)
        except InvalidQueryError as error:
            return str(error)

    def _check_stats(self, outsider: str) -> None:
        visible = map(self._store.visible, (None, outsider))
        partitions = [part.partition for part in visible if part is not None]
        stats = self._indexer.stats(outsider)
        documents = sum(part.documents for part in partitions)
        if (stats.documents, stats.chunks) != (documents, sum(part.chunks for part in partitions)):
            self._add_leak(f"stats() tells {_owner_name(outsider)} of documents it may not see")

    def _add_leak(self, leak: str) -> None:
        self._leaks[leak] = None


def _lookalikes(agent: str) -> list[str]:
    """Return ids that a careless comparison would take for this one."""
    similar = [agent.upper(), agent.lower(), f"{agent} ", agent.strip(), agent[:-1], f"{agent}%", f"{agent}*"]
    similar += ["*", "%"]
    return [other for other in dict.fromkeys(similar) if other and other != agent]


def _owner_name(owner: str | None) -> str:
    return "nobody" if owner is None else f"agent {owner!r}"
