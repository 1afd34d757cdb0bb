"""AgentMemoryConnector: existing memory of agents, wherever a framework keeps it, as a source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, tzinfo
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.connectors.memory.backend import (
    FoundSession,
    MemorySession,
    StoredItem,
    digest,
    escaped,
    item_document,
    within,
)
from langchain_agentrag.connectors.memory.detect import open_backend
from langchain_agentrag.connectors.memory.dialogue import Reading
from langchain_agentrag.connectors.memory.turns import as_document
from langchain_agentrag.errors import ScopeError, UnreadableSourceError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import SourceDocument

AgentOf = Callable[[MemorySession], str | None]
"""Maps a session to its agent."""

_READING: Final = "2"
"""Raised when memory is read differently, so that stored versions no longer count as equal."""
_PROBLEMS_SHOWN: Final = 5


class AgentMemoryConnector(BaseConnector):
    """Turns and tool calls of agents as documents, from the memory that frameworks write.

    | what is given | what is read |
    |---|---|
    | database URL, SQLAlchemy engine, SQLite file | tables of LangChain's `SQLChatMessageHistory` ("langchain-sql"), \
LlamaIndex's `SQLAlchemyChatStore` ("llamaindex-sql"), LangGraph checkpoints ("langgraph-checkpoints") and store \
("langgraph-store"), the package's own memory table ("agentrag") |
    | Redis URL or client | LangChain's chat histories ("langchain-redis"), LlamaIndex's `RedisChatStore` \
("llamaindex-redis") |
    | LangGraph checkpointer, store | every thread, walked through its history; every item |
    | file, folder of files | `SimpleChatStore`, `ChatMemoryBuffer`, message arrays, OpenAI-format JSON Lines ("json") |
    | LlamaIndex `SimpleChatStore`, `ChatMemoryBuffer`; `MemoryTable` | what it holds now |

    None of these formats says whose memory it is, so that has to be given: one agent, or a function of the session.
    A record that names another agent than the given one is left out and reported, never taken over.

    A turn has `type` "dialogue", a call joined with its result "tool_call", an item of a store "item"; with `role`,
    `session`, `position`, `time`, `tool`, `arguments`, `outcome`, `call_id` as far as they are known.
    """

    def __init__(
        self,
        source: Any,  # noqa: ANN401  (see the table)
        *,
        agent_id: str | AgentOf | None = None,
        shared: bool = False,
        backend: str | None = None,
        table: str | None = None,
        prefix: str | None = None,
        zone: tzinfo | str = UTC,
        system: bool = False,
        metadata: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Describe the source; nothing is read yet.

        Args:
            source: Where the memory is, see the table above.
            agent_id: Whose memory it is: one agent's id, or a function that gives the agent of a `MemorySession`.
                A session for which it gives None or "" is reported and not read.
            shared: Give everything to every agent instead. Only for memory that is meant for all of them.
            backend: Kind of memory, where a source holds several: one of the names in the table.
            table: Table in a database, where several could be meant.
            prefix: First part of the keys in Redis, by default `message_store:` and `chat:` for LangChain and none
                for LlamaIndex.
            zone: Zone of time stamps that name none: a tzinfo, or a name such as "Asia/Shanghai".
            system: Take system messages too.
            metadata: Added to every document.
            name: First part of every document id and identity of the source; by default made of the place. With a
                name of its own a source may move and keep its documents.

        Raises:
            UsageError: a setting is impossible.
            ScopeError: neither an agent nor `shared` is given, both are, or the agent is not valid.
        """
        self.agent_id = None if callable(agent_id) else check_agent_id(agent_id)
        self._agent_of = agent_id if callable(agent_id) else None
        if shared is (agent_id is not None):
            raise ScopeError(
                "AgentMemoryConnector needs agent_id=... (an id, or a function from a session to its agent), or "
                "shared=True for memory every agent may see, and not both: whose memory it is cannot be guessed."
            )
        self._shared = shared
        self.metadata = dict(metadata or {})
        if "agent_id" in self.metadata:
            raise UsageError(
                "AgentMemoryConnector(metadata=...) must not hold 'agent_id': pass agent_id=... instead."
            )
        if name is not None and (not isinstance(name, str) or not name):
            raise UsageError(f"AgentMemoryConnector(name={name!r}): a name must be a non-empty string.")
        self._reading = Reading(zone=_checked_zone(zone), system=system)
        self._backend = open_backend(
            source, backend=backend, table=table, prefix=prefix, named=name is not None
        )
        self._name = name

    def __repr__(self) -> str:
        whose = "shared" if self._shared else f"agent_id={self.agent_id!r}" if self.agent_id else "agent_id=…"
        return f"AgentMemoryConnector({self._backend!r}, {whose})"

    @property
    def name(self) -> str:
        """First part of the documents' ids."""
        return self._name or self._backend.label

    @property
    def connector_id(self) -> str:
        """Made of the name and whether one agent, a function or everybody owns what is read."""
        mode = "function" if self._agent_of else "shared" if self._shared else "agent"
        owner = json.dumps([self.agent_id, mode])
        return f"memory:{self._name or self._backend.place}:{hashlib.sha256(owner.encode()).hexdigest()[:12]}"

    def items(self) -> Iterator[SourceItem | Gap]:
        """One item per session, or per thread of LangGraph with its subgraphs.

        Raises:
            ConnectorError: the memory cannot be read.
        """
        grouped: dict[str, list[tuple[FoundSession, str | None]]] = {}
        strangers = 0
        for found in self._backend.sessions(self._reading, self.agent_id):
            if isinstance(found, Gap):
                yield found
            elif self._agent_of is None and found.session.agent_id not in {None, self.agent_id}:
                strangers += 1
            elif isinstance(owner := self._owner(found), Gap):
                yield owner
            elif found.group is None:
                yield self._item(_key(found), [(found, owner)])
            else:
                grouped.setdefault(found.group, []).append((found, owner))
        for group, members in grouped.items():
            yield self._item(escaped(group), members)
        if strangers:  # who they are is nothing this agent's report should tell
            reason = f"{strangers} session(s) name another agent in their records: map them with a function as agent_id"
            yield Gap(f"{self.name}: other agents", reason, skipped=True)

    def _owner(self, found: FoundSession) -> str | Gap | None:
        """The agent a session belongs to, None for shared, or why it has none."""
        if self._agent_of is None:
            return self.agent_id
        key = _key(found)
        try:
            owner = check_agent_id(self._agent_of(found.session))
        except ScopeError as error:
            return Gap(key, f"the mapping of sessions to agents gave no valid id: {error}", skipped=False)
        except Exception as error:  # noqa: BLE001  whatever the caller's function raises concerns this session only
            reason = f"the mapping of sessions to agents failed with {type(error).__name__}: {error}"
            return Gap(key, reason, skipped=False)
        if owner is None:
            return Gap(key, "the mapping of sessions to agents gave no agent for it", skipped=False)
        return owner

    def _item(self, key: str, members: list[tuple[FoundSession, str | None]]) -> SourceItem:
        settings = (
            _READING,
            self._reading.system,
            str(self._reading.zone),
            sorted(map(repr, self.metadata.items())),
        )
        content = [(found.session.namespace, found.version, owner) for found, owner in members]
        return SourceItem(key, digest(settings, self.name, content), partial(self._load, members))

    def _load(self, members: list[tuple[FoundSession, str | None]]) -> Iterator[SourceDocument]:
        """Documents of the sessions, then an error that tells of what could not be read, if anything."""
        problems: list[str] = []
        taken: set[tuple[str | None, str]] = set()
        for found, owner in members:
            for entry in found.load(problems):
                build = item_document if isinstance(entry, StoredItem) else as_document
                document = build(entry, self.name, owner)  # type: ignore[arg-type]
                if document is None or (owner, document.doc_id) in taken:
                    continue
                taken.add((owner, document.doc_id))
                yield self._finished(document)
        if problems:
            more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
            raise UnreadableSourceError(
                f"not all of it could be read, the rest was taken: {'; '.join(problems[:_PROBLEMS_SHOWN])}{more}"
            )

    def _finished(self, document: SourceDocument) -> SourceDocument:
        if not self.metadata:
            return document
        return SourceDocument(
            document.doc_id,
            document.text,
            {**self.metadata, **document.metadata},
            document.agent_id,
            document.kind,
            document.sections,
        )


def _checked_zone(zone: object) -> tzinfo:
    try:
        found = ZoneInfo(zone) if isinstance(zone, str) else zone
    except (ValueError, OSError, KeyError):
        found = None
    if not isinstance(found, tzinfo):
        raise UsageError(
            f'AgentMemoryConnector(zone={zone!r}): it must be a zone, such as "Asia/Shanghai" or datetime.UTC.'
        )
    return found


def _key(found: FoundSession) -> str:
    """Name of a session within its source."""
    session = found.session
    parts = [session.id, *session.namespace] if found.group is not None else [session.id]
    key = (within(found.within) if found.within else "") + ":".join(map(escaped, parts))
    return key if session.agent_id is None else f"{key}@{escaped(session.agent_id)}"
