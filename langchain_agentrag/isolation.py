"""Does anything of one agent reach another? Asked through the public methods, judged by the catalog.

Nothing is written. Secrets are drawn at random from what agents have; outsiders then ask for them in their very words,
in every mode, with filters that try to reach further, and by address. What they are shown must be theirs or shared, and
their keyword scores must follow from what they may see alone.
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

_QUERY = 120  # characters of a secret that its outsider asks for
_HITS = 10
_COUNTED = 5_000  # chunks in scope up to which keyword scores are computed again
_SECRETS = 40  # drawn per agent at most
_ROUNDING = 1e-9


class Indexer(Protocol):
    """The methods of a `DualIndexer` that an outsider can reach."""

    def search(
        self, query: str, k: int = 5, *, agent_id: str | None = None, **options: Unpack[SearchOptions]
    ) -> Hits:
        """See `DualIndexer.search`."""

    def read(self, doc_id: str, chunk_id: int = 0, *, agent_id: str | None = None) -> Passage:
        """See `DualIndexer.read`."""

    def get(self, doc_ids: Iterable[str], *, agent_id: str | None = None) -> list[SourceDocument]:
        """See `DualIndexer.get`."""

    def stats(self, agent_id: str | None = None) -> StoreStats:
        """See `DualIndexer.stats`."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """One outsider who asks for one chunk of somebody else."""

    owner: str
    outsider: str | None
    secret: Address


def verify_deep(indexer: Indexer, store: Store, analyzer: Analyzer) -> VerifyReport:
    """`verify`, then every chunk looked into, then agents sent to find what is not theirs. Changes nothing."""
    report = verify(store)
    check = IsolationCheck(indexer, store, analyzer)
    problems = (*report.problems, *check_chunks(store, analyzer), *check.run())
    return replace(report, problems=problems, probes=check.probes)


class IsolationCheck:
    """A bounded search for leaks in one store.

    Args:
        indexer: The store.
        store: Its engine.
        analyzer: Its analyzer.
        agents: Agents to check; None for all that the store knows.
        sample: Most pairs of an outsider and a secret; each costs about six searches and two reads.
        seed: Of the choice.
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
        self._dice = random.Random(seed)  # noqa: S311  a sample, not a secret
        known = [
            part.owner for part in store.catalog.partitions() if part.owner is not None and part.documents
        ]
        given = known if agents is None else list(dict.fromkeys(agents))
        for agent in given:
            check_agent_id(agent)
        self._agents: list[str] = [agent for agent in given if agent]
        self._sample = sample
        self._leaks: dict[str, None] = {}
        self.probes = 0

    def run(self) -> list[str]:
        """One sentence per leak, naming what reached whom; no text is quoted."""
        for probe in self._probes():
            self._search(probe)
            self._read(probe)
            self.probes += 1
        for outsider in [None, *self._agents][: self._sample]:
            self._count(outsider)
        return list(self._leaks)

    def _probes(self) -> Iterator[_Probe]:
        """Pairs in random order, every agent's turn coming as often as the others'."""
        decks = []
        with self._store.catalog.snapshot() as connection:
            for owner in self._dice.sample(self._agents, min(len(self._agents), self._sample)):
                secrets = chunk_addresses(connection, sample_rows(connection, owner, _SECRETS, self._dice))
                outsiders = [None, *(other for other in self._agents if other != owner), *_lookalikes(owner)]
                deck = [
                    _Probe(owner, outsider, secret) for outsider in outsiders for secret in secrets[:_SECRETS]
                ]
                decks.append(self._dice.sample(deck, min(len(deck), self._sample)))
        for turn in range(self._sample):
            for deck in decks:
                if turn < len(deck) and self.probes < self._sample:
                    yield deck[turn]

    # -- searching ------------------------------------------------------------------------------------------------

    def _search(self, probe: _Probe) -> None:
        doc_id, _, text = probe.secret
        start = self._dice.randrange(max(1, len(text) - _QUERY))
        query = text[start : start + _QUERY]
        filters = [
            {"agent_id": probe.owner},
            {"agent_id": {"$ne": probe.outsider}},
            {"$or": [{"agent_id": probe.owner}, {"agent_id": {"$exists": True}}]},
            {"$not": {"agent_id": {"$in": [probe.outsider, None]}}},
            {"doc_id": doc_id},
        ]
        for mode in get_args(SearchMode):
            for where in (None, self._dice.choice(filters)):
                how = f"search(mode={mode!r}, filter={where!r})"
                hits = self._ask(probe.outsider, query, mode, where)
                for hit in hits:
                    self._judge(probe.outsider, (hit.doc_id, hit.chunk_id, hit.text), hit.agent_id, how)
                if mode == "keyword" and where is None and hits:
                    self._recount(probe.outsider, query, hits)

    def _ask(self, outsider: str | None, query: str, mode: SearchMode, where: Any) -> Sequence[Hit]:  # noqa: ANN401
        try:
            return self._indexer.search(query, _HITS, agent_id=outsider, mode=mode, filter=where)
        except UsageError:
            return []  # a refusal tells nothing

    def _judge(self, outsider: str | None, shown: Address, said: str | None, how: str) -> None:
        with self._store.catalog.snapshot() as connection:
            owners = {owner for owner in {None, outsider} if has_chunk(connection, owner, shown)}
            true = owners or chunk_owners(connection, shown)
        place = f"chunk {shown[1]} of document {shown[0]!r}"
        if not true:
            self._note(f"{_name(outsider)} was shown {place}, which the catalog does not hold, by {how}")
        elif not owners:
            self._note(f"{_name(outsider)} was shown {place} of {_name(next(iter(true)))} by {how}")
        elif said not in owners:
            self._note(f"{_name(outsider)} was told a wrong owner of {place} by {how}")

    def _recount(self, outsider: str | None, query: str, hits: Sequence[Hit]) -> None:
        """BM25 of the hits from what the outsider may see and nothing else."""
        scope = {None, outsider}
        partitions = [part for part in self._store.catalog.partitions() if part.owner in scope]
        if sum(part.chunks for part in partitions) > _COUNTED:
            return
        asked = self._analyzer.analyze_query(query)
        lengths: Counter[str] = Counter()
        frequencies: dict[str, Counter[str]] = {field: Counter() for field in asked}
        with self._store.catalog.snapshot() as connection:
            held = stored_terms(connection, scope, self._store.now())
        for terms in held.values():
            lengths.update(terms.lengths)
            for field, wanted in asked.items():
                frequencies[field].update(set(getattr(terms, field)) & wanted.keys())
        stats = {field: FieldStats(len(held), lengths[field]) for field in FIELDS}
        for hit in hits:
            terms_of = held.get((hit.agent_id, hit.doc_id, hit.chunk_id))
            told = hit.explanation.keyword
            if terms_of is None or told is None:
                continue
            counts = {field: Counter(getattr(terms_of, field)) for field in asked}
            alone = score(asked, counts, terms_of.lengths, stats, frequencies)
            if abs(alone - told.raw) > _ROUNDING * max(1.0, alone):
                self._note(f"the keyword scores of {_name(outsider)} depend on documents it may not see")
                return

    # -- reading --------------------------------------------------------------------------------------------------

    def _read(self, probe: _Probe) -> None:
        doc_id, ordinal, _ = probe.secret
        with self._store.catalog.snapshot() as connection:
            visible = any(
                find_document(connection, owner, doc_id, self._store.now())
                for owner in {None, probe.outsider}
            )
        given = self._indexer.get([doc_id], agent_id=probe.outsider)
        if given and not visible:
            self._note(
                f"{_name(probe.outsider)} was given document {doc_id!r} of {_name(probe.owner)} by get()"
            )
        try:
            passage = self._indexer.read(doc_id, ordinal, agent_id=probe.outsider)
        except InvalidQueryError as error:
            # a document of somebody else must be refused in the words used for one that does not exist
            absent = f"absent-{self._dice.getrandbits(64):016x}"
            expected = self._refusal(absent, ordinal, probe.outsider).replace(repr(absent), repr(doc_id))
            if not visible and str(error) != expected:
                self._note(
                    f"a refusal tells {_name(probe.outsider)} that {_name(probe.owner)} has document {doc_id!r}"
                )
        else:
            self._judge(probe.outsider, (doc_id, ordinal, passage.text), passage.agent_id, "read()")

    def _refusal(self, doc_id: str, ordinal: int, outsider: str | None) -> str:
        try:
            self._indexer.read(doc_id, ordinal, agent_id=outsider)
        except InvalidQueryError as error:
            return str(error)
        return ""

    def _count(self, outsider: str | None) -> None:
        if outsider is None:
            return  # the counts of nobody in particular are the administrator's
        scope = {None, outsider}
        living = (self._store.visible(owner) for owner in scope)
        seen = [found.partition for found in living if found is not None]
        told = self._indexer.stats(outsider)
        if (told.documents, told.chunks) != (sum(p.documents for p in seen), sum(p.chunks for p in seen)):
            self._note(f"stats() tells {_name(outsider)} of documents it may not see")

    def _note(self, leak: str) -> None:
        self._leaks[leak] = None


def _lookalikes(agent: str) -> list[str]:
    """Ids that a careless comparison would take for this one."""
    made = [
        agent.upper(),
        agent.lower(),
        f"{agent} ",
        agent.strip(),
        agent[:-1],
        f"{agent}%",
        f"{agent}*",
        "*",
        "%",
    ]
    return [other for other in dict.fromkeys(made) if other and other != agent]


def _name(owner: str | None) -> str:
    return "nobody" if owner is None else f"agent {owner!r}"
