"""Interface of a memory backend: the sessions it lists and how each is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.dialogue import ReadOptions
from langchain_agentrag.connectors.memory.turns import Entry, LangGraphItem


@dataclass(frozen=True, slots=True)
class MemorySession:
    """One conversation, thread or store item, as passed to a function that maps it to its agent.

    Attributes:
        id: Session id, thread id, or `namespace/key` of an item.
        backend: Kind of memory it comes from, such as "langchain-sql".
        namespace: Segments of a LangGraph namespace; names of the nodes that lead to a subgraph.
        agent_id: The agent named by a column, field or metadata key `agent_id` of its records, or None.
        metadata: Further columns, fields, checkpoint metadata, or the value of a stored item.
    """

    id: str
    backend: str
    namespace: tuple[str, ...] = ()
    agent_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


Loader = Callable[[list[str]], "list[Entry] | list[LangGraphItem]"]
"""Loads a session; appends a sentence to the list for each record that cannot be read."""


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session listed by a backend, not loaded yet.

    Attributes:
        session: Its description.
        version: Changes with its content.
        load: Loads it, oldest entry first.
        group: Sessions of one group are synced as one item, and an entry that several of them contain is taken once:
            the subgraphs of a thread.
        file: Name of the file it is in, for a folder of files: the sessions of an unreadable file count as unchanged.
    """

    session: MemorySession
    version: str
    load: Loader
    group: str | None = None
    file: str = ""


class Backend(Protocol):
    """A place where memory is stored."""

    @property
    def kind(self) -> str:
        """Kind of memory, a value of `AgentMemoryConnector(backend=…)`."""

    @property
    def place(self) -> str:
        """Identity of the place, equal in every process and unique to the place; "" for one in memory."""

    @property
    def label(self) -> str:
        """First part of the document ids unless the connector has a name; by default the place."""
        return self.place

    def sessions(self, options: ReadOptions, agent_id: str | None) -> Iterator[ListedSession | Gap]:
        """List all sessions.

        Args:
            options: How to read messages.
            agent_id: The agent to list, or None for all; only backends whose records always name their agent use it.

        Raises:
            ConnectorError: the place cannot be read.
        """


def escape_key(name: str) -> str:
    """Escape "/" and "@", which separate the names in an item's key."""
    escapes = name.replace("%", "%25").replace("/", "%2F").replace("@", "%40")
    return escapes.encode("utf-8", "backslashreplace").decode()


def file_key_prefix(name: str) -> str:
    """Return the key prefix of the sessions of a file; a gap with this key keeps what is stored of them."""
    return f"{escape_key(name)}/"


def digest(*parts: object) -> str:
    """Return a short digest of values with a stable repr."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
