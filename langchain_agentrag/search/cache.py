"""What was computed a moment ago: vectors of queries, and results of searches. In memory, per agent, thread-safe.

A result is given again only to the same agent, for exactly the same request, while nothing in what the agent may see
has changed: its key holds the generation of each partition in scope, which every commit of any process raises. Nothing
is ever found by resemblance, and no agent can tell by the time that a search takes what another one has asked.
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

Stamp = Hashable
"""What a scope holds at a moment: equal stamps, equal contents."""

V = TypeVar("V")


class _PerAgent(Generic[V]):
    """Values by agent and key; of the agents, and of the values of each, the last ones used are kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[str | None, OrderedDict[Hashable, V]] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, agent: str | None, key: Hashable) -> V | None:
        with self._guard:
            held = self._held.get(agent)
            if held is None or key not in held:
                return None
            self._held.move_to_end(agent)
            held.move_to_end(key)
            return held[key]

    def put(self, agent: str | None, key: Hashable, value: V) -> None:
        with self._guard:
            held = self._held.setdefault(agent, OrderedDict())
            held[key] = value
            held.move_to_end(key)
            self._held.move_to_end(agent)
            while len(held) > self._most:
                held.popitem(last=False)
            while len(self._held) > _AGENTS:
                self._held.popitem(last=False)

    def forget(self, agent: str | None) -> None:
        with self._guard:
            self._held.pop(agent, None)


class QueryVectors:
    """Vectors of the last queries of each agent.

    Args:
        most: Queries per agent; 0 keeps none.
    """

    def __init__(self, most: int) -> None:
        self._most, self._held = most, _PerAgent[Vectors](most)

    def get(self, agent: str | None, query: str) -> Vectors | None:
        """The vector of exactly this query, or None."""
        return self._held.get(agent, query) if self._most else None

    def put(self, agent: str | None, query: str, vector: Vectors) -> None:
        """Keep a vector."""
        if self._most:
            kept = vector.copy()
            kept.flags.writeable = False
            self._held.put(agent, query, kept)

    def forget(self, agent: str | None) -> None:
        """Forget what an agent has asked."""
        self._held.forget(agent)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that may be answered from the cache: whose it is, what it asks, and of what contents."""

    agent: str | None
    key: str
    scope_version: Stamp


class Results:
    """Results of the last searches of each agent, for a short time.

    Args:
        seconds: How long a result may be given again; 0 keeps none.
        clock: Seconds that only ever grow.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._held = _PerAgent[tuple[Stamp, float, Hits]](_RESULTS)

    def ticket(self, request: SearchRequest, stamp: Callable[[], Stamp]) -> Ticket | None:
        """What to ask for; None for a request whose answer depends on more than what the store holds."""
        depends = request.recency is not None or request.vector is not None or request.explain
        if not self._seconds or depends or request.reranker is not None or request.rewriter is not None:
            return None
        return Ticket(request.scope.agent_id, repr(replace(request, now=EPOCH)), stamp())

    def get(self, ticket: Ticket | None) -> Hits | None:
        """The result, as a copy, or None."""
        if ticket is None:
            return None
        found = self._held.get(ticket.agent, ticket.key)
        if found is None or found[0] != ticket.scope_version or self._clock() >= found[1]:
            return None
        return _copied(found[2])

    def keep(self, ticket: Ticket | None, hits: Hits, stamp: Callable[[], Stamp]) -> None:
        """Keep a result that is complete, unless something was written while it was found."""
        if ticket is not None and not hits.degraded and stamp() == ticket.scope_version:
            until = self._clock() + self._seconds
            self._held.put(ticket.agent, ticket.key, (ticket.scope_version, until, _copied(hits)))

    def forget(self, agent: str | None) -> None:
        """Forget what an agent was shown."""
        self._held.forget(agent)


def _copied(hits: Hits) -> Hits:
    """The same hits, with metadata of their own: what a caller changes is the caller's."""
    return Hits(
        map(_own, hits),
        query=hits.query,
        mode=hits.mode,
        degraded=hits.degraded,
        trail=hits.trace,
        searched=hits.searched,
    )


def _own(hit: Hit) -> Hit:
    return replace(hit, metadata=copy.deepcopy(hit.metadata), locator=copy.deepcopy(hit.locator))


_PASSAGES = 64  # remembered per caller
_CALLERS = 256


class RecentPassages:
    """Texts of the last hits and passages per caller, in memory only. Thread-safe; one caller never sees another's.

    Attributes:
        count: How many were shown so far; a mark for `to`.
    """

    def __init__(self) -> None:
        self._texts: OrderedDict[str | None, deque[tuple[int, str]]] = OrderedDict()
        self._guard = threading.Lock()
        self.count = 0

    def note(self, agent_id: str | None, texts: Iterable[str]) -> None:
        """Remember that an agent, or a caller without identity, was shown texts."""
        with self._guard:
            held = self._texts.setdefault(agent_id, deque(maxlen=_PASSAGES))
            for text in texts:
                self.count += 1
                held.append((self.count, text))
            self._texts.move_to_end(agent_id)
            while len(self._texts) > _CALLERS:
                self._texts.popitem(last=False)

    def to(self, agent_id: str | None, since: int = 0) -> list[str]:
        """What an agent was shown since a mark, and callers without identity: its retriever may be bound to nobody."""
        with self._guard:
            held = [self._texts.get(caller, ()) for caller in dict.fromkeys((agent_id, None))]
            return [text for texts in held for number, text in texts if number > since]

    def forget(self, agent_id: str) -> None:
        """Forget what an agent was shown."""
        with self._guard:
            self._texts.pop(agent_id, None)
