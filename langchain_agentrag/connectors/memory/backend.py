"""Items of a LangGraph store as documents: not what was said, but what was noted down. Pure."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.dialogue import Reading, Recorded
from langchain_agentrag.connectors.memory.messages import NotAMessageError, read_message
from langchain_agentrag.connectors.memory.turns import Entry, document_id, storable
from langchain_agentrag.types import SourceDocument

logger = logging.getLogger(__name__)

_LABELS: Final = frozenset({"kind", "type", "id", "schema"})
"""Fields that say what a value is and not what it tells."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One item of a store.

    Attributes:
        namespace: Its segments.
        key: Its key in the namespace.
        value: What is stored.
        created: When it was made.
        updated: When it was changed last.
        expires: When it ends, or None.
    """

    namespace: tuple[str, ...]
    key: str
    value: Mapping[str, Any]
    created: datetime | None = None
    updated: datetime | None = None
    expires: datetime | None = None


def item_document(item: StoredItem, source: str, agent_id: str | None) -> SourceDocument | None:
    """An item as a document, or None when it holds no text.

    A value with one text is that text; one with several reads `field: text`, a line each.
    """
    told = list(_told(item.value, ()))
    labelled = [(path, text) for path, text in told if path[-1:] != () and path[-1] not in _LABELS]
    shown = labelled or told
    text = shown[0][1] if len(shown) == 1 else "\n".join(f"{'.'.join(path)}: {text}" for path, text in shown)
    if not text.strip():
        return None
    namespace = ".".join(item.namespace)
    metadata: dict[str, Any] = {"type": "item", "namespace": namespace, "key": item.key, "value": item.value}
    times = {"time": item.updated, "created_at": item.created, "expires_at": item.expires}
    metadata |= {name: moment for name, moment in times.items() if moment is not None}
    doc_id = storable(document_id(source, namespace, item.key))
    return SourceDocument(doc_id, storable(text), metadata, agent_id)


def _told(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Texts and numbers in a value with the way to them."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _told(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _told(inner, path)
    elif value is not None and not isinstance(value, bytes):
        text = str(value)
        if text.strip():
            yield path, text


@dataclass(frozen=True, slots=True)
class MemorySession:
    """One conversation, thread or namespace, as a function that maps it to its agent sees it.

    Attributes:
        id: Session id, thread id, or `namespace/key` of an item.
        backend: Kind of memory it comes from, such as "langchain-sql".
        namespace: Segments of a LangGraph namespace; names of the nodes that lead to a subgraph.
        agent_id: The agent its records name in a column, field or metadata key `agent_id`; None when they name none.
        metadata: More that its records say: columns, fields, checkpoint metadata, the value of a stored item.
    """

    id: str
    backend: str
    namespace: tuple[str, ...] = ()
    agent_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


Loader = Callable[[list[str]], "list[Entry] | list[StoredItem]"]
"""Reads a session; takes a list for sentences about what could not be read."""


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session that a backend lists.

    Attributes:
        session: What is known of it.
        version: Changes with what it holds.
        load: Reads it, oldest first.
        group: Sessions of one group are synced together, and an entry that several of them hold is taken once: the
            subgraphs of a thread.
        within: File of a folder it is in: what cannot be read of such a file counts as unchanged.
    """

    session: MemorySession
    version: str
    load: Loader
    group: str | None = None
    within: str = ""


class Backend(Protocol):
    """A place where memory is kept."""

    @property
    def kind(self) -> str:
        """Kind of memory, as `AgentMemoryConnector(backend=…)` names it."""

    @property
    def place(self) -> str:
        """Where it is, equal in every process and different for every place."""

    @property
    def label(self) -> str:
        """First part of the documents' ids, unless a name is given; the place, unless a backend says otherwise."""
        return self.place

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession | Gap]:
        """Everything there is now.

        Args:
            reading: How to read messages.
            agent_id: The one agent that is wanted, or None; a backend whose records always name their agent
                lists only this one's.

        Raises:
            ConnectorError: the place cannot be read.
        """


def escaped(name: str) -> str:
    """A name that holds no "/" and no "@", which part the names in a key."""
    escapes = name.replace("%", "%25").replace("/", "%2F").replace("@", "%40")
    return escapes.encode("utf-8", "backslashreplace").decode()


def within(name: str) -> str:
    """First part of the keys of sessions in a file; as the key of a gap it keeps what was stored of them."""
    return f"{escaped(name)}/"


def digest(*parts: object) -> str:
    """A short digest of anything with a stable repr."""
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def recorded(
    raw: object,
    entry_id: str,
    problems: list[str],
    *,
    stamp: object = None,
    extra: Mapping[str, Any] | None = None,
) -> list[Recorded]:
    """A stored message as none or one that can be joined; one that cannot be read becomes a problem."""
    try:
        message = read_message(raw)
    except NotAMessageError as error:
        problems.append(f"entry {entry_id}: {error}")
        return []
    return [] if message is None else [Recorded(message, entry_id, stamp, extra or {})]
