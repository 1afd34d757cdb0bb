"""In-memory caches per agent: query vectors, search results, passages returned lately. Thread-safe.

A result is returned again only to the same agent, for exactly the same request, while nothing in what the agent may see
has changed: its key holds the generation of each partition in scope, which every commit of any process raises. There is
no similarity cache, and no agent can tell from timing what another one has searched for.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.times import EPOCH
from langchain_agentrag.types import Hit, Hits

_AGENTS = 256
_RESULTS = 64  # per agent
_PASSAGES = 64  # per caller

ScopeVersion = Hashable
"""State of a scope: equal values, equal contents."""

V = TypeVar("V")


class _AgentLRU(Generic[V]):
    """LRU cache of values by agent and key, bounded in agents and in values per agent."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[str | None, OrderedDict[Hashable, V]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, agent: str | None, key: Hashable) -> V | None:
        with self._lock:
            values = self._values.get(agent)
            if values is None or key not in values:
                return None
            self._values.move_to_end(agent)
            values.move_to_end(key)
            return values[key]

    def put(self, agent: str | None, key: Hashable, value: V) -> None:
        with self._lock:
            values = self._values.setdefault(agent, OrderedDict())
            values[key] = value
            values.move_to_end(key)
            self._values.move_to_end(agent)
            while len(values) > self._size:
                values.popitem(last=False)
            while len(self._values) > _AGENTS:
                self._values.popitem(last=False)

    def forget(self, agent: str | None) -> None:
        with self._lock:
            self._values.pop(agent, None)


class QueryVectors:
    """Cache of query vectors per agent.

    Args:
        size: Queries per agent; 0 disables the cache.
    """

    def __init__(self, size: int) -> None:
        self._size, self._cache = size, _AgentLRU[Vectors](size)

    def get(self, agent: str | None, query: str) -> Vectors | None:
        """Return the vector of exactly this query, or None."""
        return self._cache.get(agent, query) if self._size else None

    def put(self, agent: str | None, query: str, vector: Vectors) -> None:
        """Cache a copy of a vector."""
        if self._size:
            copy = vector.copy()
            copy.flags.writeable = False
            self._cache.put(agent, query, copy)

    def forget(self, agent: str | None) -> None:
        """Drop the vectors of an agent."""
        self._cache.forget(agent)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Key of a cached result: agent, request, and the state of the scope."""

    agent: str | None
    key: str
    scope_version: ScopeVersion


class ResultCache:
    """Cache of search results per agent, for a short time.

    Args:
        seconds: Lifetime of a result; 0 disables the cache.
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._cache = _AgentLRU[tuple[ScopeVersion, float, Hits]](_RESULTS)

    def ticket(self, request: SearchRequest, scope_version: Callable[[], ScopeVersion]) -> Ticket | None:
        """Return the key of a request; None if its result depends on more than the contents of the store."""
        depends = request.recency is not None or request.vector is not None or request.explain
        if not self._seconds or depends or request.reranker is not None or request.rewriter is not None:
            return None
        return Ticket(request.scope.agent_id, repr(replace(request, now=EPOCH)), scope_version())

    def get(self, ticket: Ticket | None) -> Hits | None:
        """Return a copy of the cached result, or None."""
        if ticket is None:
            return None
        entry = self._cache.get(ticket.agent, ticket.key)
        if entry is None or entry[0] != ticket.scope_version or self._clock() >= entry[1]:
            return None
        return _copied(entry[2])

    def keep(self, ticket: Ticket | None, hits: Hits, scope_version: Callable[[], ScopeVersion]) -> None:
        """Cache a complete result, unless the scope has changed since the ticket was made."""
        if ticket is not None and not hits.degraded and scope_version() == ticket.scope_version:
            expires = self._clock() + self._seconds
            self._cache.put(ticket.agent, ticket.key, (ticket.scope_version, expires, _copied(hits)))

    def forget(self, agent: str | None) -> None:
        """Drop the results of an agent."""
        self._cache.forget(agent)


def _copied(hits: Hits) -> Hits:
    """A copy whose metadata the caller may change."""
    return Hits(
        map(_copied_hit, hits),
        query=hits.query,
        mode=hits.mode,
        degraded=hits.degraded,
        trace=hits.trace,
        searched=hits.searched,
    )


def _copied_hit(hit: Hit) -> Hit:
    return replace(hit, metadata=copy.deepcopy(hit.metadata), locator=copy.deepcopy(hit.locator))


class RecentPassages:
    """Texts of the last hits and passages per caller, in memory only, from which recorders recognise quotations.

    Attributes:
        count: Passages noted so far; a position for `to`.
    """

    def __init__(self) -> None:
        self._texts: OrderedDict[str | None, deque[tuple[int, str]]] = OrderedDict()
        self._lock = threading.Lock()
        self.count = 0

    def note(self, agent_id: str | None, texts: Iterable[str]) -> None:
        """Note passages that were returned to an agent, or to a caller without identity."""
        with self._lock:
            passages = self._texts.setdefault(agent_id, deque(maxlen=_PASSAGES))
            for text in texts:
                self.count += 1
                passages.append((self.count, text))
            self._texts.move_to_end(agent_id)
            while len(self._texts) > _AGENTS:
                self._texts.popitem(last=False)

    def to(self, agent_id: str | None, since: int = 0) -> list[str]:
        """Return passages returned to an agent after a position, and those to callers without identity.

        The latter because the agent's retriever may be bound to nobody.
        """
        with self._lock:
            passages = [self._texts.get(caller, ()) for caller in dict.fromkeys((agent_id, None))]
            return [text for texts in passages for number, text in texts if number > since]

    def forget(self, agent_id: str) -> None:
        """Drop the passages of an agent."""
        with self._lock:
            self._texts.pop(agent_id, None)
