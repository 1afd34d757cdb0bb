"""AgentMemoryConnector: chat histories, checkpoints and stores of agent frameworks as a source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, tzinfo
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.connectors.memory.backend import (
    ListedSession,
    MemorySession,
    digest,
    escape_key,
    file_key_prefix,
)
from langchain_agentrag.connectors.memory.detect import open_backend
from langchain_agentrag.connectors.memory.dialogue import ReadOptions
from langchain_agentrag.connectors.memory.turns import LangGraphItem, as_document, item_document
from langchain_agentrag.errors import ScopeError, UnreadableSourceError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import SourceDocument

AgentOf = Callable[[MemorySession], str | None]
"""Function from a session to its agent."""

_FORMAT_VERSION: Final = "2"
"""Part of every version; increase it when memory is read differently, so that everything is indexed again."""
_MAX_PROBLEMS: Final = 5


class AgentMemoryConnector(BaseConnector):
    """Turns and tool calls of agents as documents, from the memory that agent frameworks write.

    | source | what is read |
    |---|---|
    | database URL, SQLAlchemy engine, SQLite file | tables of LangChain's `SQLChatMessageHistory` ("langchain-sql"), \
LlamaIndex's `SQLAlchemyChatStore` ("llamaindex-sql"), LangGraph checkpoints ("langgraph-checkpoints") and store \
("langgraph-store"), the package's own memory table ("agentrag") |
    | Redis URL or client | LangChain's chat histories ("langchain-redis"), LlamaIndex's `RedisChatStore` \
("llamaindex-redis") |
    | LangGraph checkpointer, store | the whole history of every thread; every item |
    | file, folder of files | `SimpleChatStore`, `ChatMemoryBuffer`, message arrays, OpenAI-format JSON Lines ("json") |
    | LlamaIndex `SimpleChatStore`, `ChatMemoryBuffer`; `MemoryTable` | its present content |

    None of these formats states its owner, so it must be passed: one agent, or a function of the session. A record
    that names another agent than the one passed is skipped and reported.

    A turn has the metadata `type` "dialogue", a call joined with its result "tool_call", an item of a store "item";
    with `role`, `session`, `position`, `time`, `tool`, `arguments`, `outcome`, `call_id` as far as they are known.
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
        """Configure the source; nothing is read yet.

        Args:
            source: The memory; see the table above.
            agent_id: Owner of the memory: one agent's id, or a function from a session to its agent, such as
                `lambda session: session.id.partition(":")[0]`. A session has `id` (session or thread id), `namespace`,
                `metadata` (further columns or fields), `backend`, and `agent_id`, which is None unless its records
                have a column or key of that name; those of `SQLChatMessageHistory` have none. A session for which the
                function returns None or "" is reported and not read.
            shared: Share everything with every agent instead.
            backend: Kind of memory, where a source holds several: one of the names in the table.
            table: Table in a database, where several match.
            prefix: First part of the keys in Redis, by default `message_store:` and `chat:` for LangChain and none
                for LlamaIndex.
            zone: Zone of timestamps without one: a tzinfo, or a name such as "Asia/Shanghai".
            system: Include system messages.
            metadata: Added to every document.
            name: First part of every document id and identity of the source; by default derived from the place.
                A source with a name can be moved and keeps its documents.

        Raises:
            UsageError: a setting is invalid.
            ScopeError: neither an agent nor `shared` is passed, both are, or the agent is not valid.
        """
        self.agent_id = None if callable(agent_id) else check_agent_id(agent_id)
        self._agent_of = agent_id if callable(agent_id) else None
        if shared is (agent_id is not None):
            raise ScopeError(
                "AgentMemoryConnector needs agent_id=... (an id, or a function from a session to its agent), or "
                "shared=True for memory every agent may see, and not both: the owner of memory is never guessed."
            )
        self._shared = shared
        self.metadata = dict(metadata or {})
        if "agent_id" in self.metadata:
            raise UsageError(
                "AgentMemoryConnector(metadata=...) must not contain 'agent_id': pass agent_id=... instead."
            )
        if name is not None and (not isinstance(name, str) or not name):
            raise UsageError(f"AgentMemoryConnector(name={name!r}): a name must be a non-empty string.")
        self._options = ReadOptions(zone=_checked_zone(zone), system=system)
        self._backend = open_backend(source, backend=backend, table=table, prefix=prefix, has_name=name is not None)
        self._name = name

    def __repr__(self) -> str:
        owner = "shared" if self._shared else f"agent_id={self.agent_id!r}" if self.agent_id else "agent_id=…"
        return f"AgentMemoryConnector({self._backend!r}, {owner})"

    @property
    def name(self) -> str:
        """First part of the document ids."""
        return self._name or self._backend.label

    @property
    def connector_id(self) -> str:
        """Name of the source, and digest of its owner: one agent, a function, or shared."""
        mode = "function" if self._agent_of else "shared" if self._shared else "agent"
        owner = json.dumps([self.agent_id, mode])
        return f"memory:{self._name or self._backend.place}:{hashlib.sha256(owner.encode()).hexdigest()[:12]}"

    def items(self) -> Iterator[SourceItem | Gap]:
        """List one item per session, or per thread of LangGraph with its subgraphs.

        Raises:
            ConnectorError: the memory cannot be read.
        """
        groups: dict[str, list[tuple[ListedSession, str | None]]] = {}
        of_other_agents = 0
        for listed in self._backend.sessions(self._options, self.agent_id):
            if isinstance(listed, Gap):
                yield listed
            elif self._agent_of is None and listed.session.agent_id not in {None, self.agent_id}:
                of_other_agents += 1
            elif isinstance(owner := self._owner(listed), Gap):
                yield owner
            elif listed.group is None:
                yield self._item(_key(listed), [(listed, owner)])
            else:
                groups.setdefault(listed.group, []).append((listed, owner))
        for group, members in groups.items():
            yield self._item(escape_key(group), members)
        if of_other_agents:  # only a count: this agent's report must not name other agents
            reason = (
                f"{of_other_agents} session(s) name another agent in their records: "
                "map them with a function as agent_id"
            )
            yield Gap(f"{self.name}: other agents", reason, skipped=True)

    def _owner(self, listed: ListedSession) -> str | Gap | None:
        """Return the agent of a session, None for shared, or a gap when it has none."""
        if self._agent_of is None:
            return self.agent_id
        key = _key(listed)
        try:
            owner = check_agent_id(self._agent_of(listed.session))
        except ScopeError as error:
            return Gap(key, f"the agent_id function returned an invalid id: {error}", skipped=False)
        except Exception as error:  # noqa: BLE001  an error of the caller's function concerns this session only
            reason = f"the agent_id function failed with {type(error).__name__}: {error}"
            return Gap(key, f"{reason}; {_describe(listed.session)}", skipped=False)
        if owner is None:
            reason = f"the agent_id function returned no agent for it; {_describe(listed.session)}"
            return Gap(key, reason, skipped=False)
        return owner

    def _item(self, key: str, members: list[tuple[ListedSession, str | None]]) -> SourceItem:
        options, metadata = self._options, sorted(map(repr, self.metadata.items()))
        settings = (_FORMAT_VERSION, options.system, str(options.zone), metadata)
        content = [(listed.session.namespace, listed.version, owner) for listed, owner in members]
        return SourceItem(key, digest(settings, self.name, content), partial(self._load, members))

    def _load(self, members: list[tuple[ListedSession, str | None]]) -> Iterator[SourceDocument]:
        """Yield the documents of sessions, then raise UnreadableSourceError if some records were unreadable."""
        problems: list[str] = []
        seen: set[tuple[str | None, str]] = set()
        for listed, owner in members:
            for entry in listed.load(problems):
                if isinstance(entry, LangGraphItem):
                    document = item_document(entry, self.name, owner)
                else:
                    document = as_document(entry, self.name, owner)
                if document is None or (owner, document.doc_id) in seen:
                    continue
                seen.add((owner, document.doc_id))
                yield replace(document, metadata={**self.metadata, **document.metadata})
        if problems:
            more = f"; and {len(problems) - _MAX_PROBLEMS} more" if len(problems) > _MAX_PROBLEMS else ""
            raise UnreadableSourceError(
                f"parts of it could not be read, the rest was indexed: {'; '.join(problems[:_MAX_PROBLEMS])}{more}"
            )


def _describe(session: MemorySession) -> str:
    """Return the attributes of a session that a function can choose its agent by; of the metadata only the keys."""
    values = f"id={session.id!r}, namespace={session.namespace!r}, agent_id={session.agent_id!r}"
    keys = f"metadata with {', '.join(map(repr, session.metadata)) or 'no keys'}"
    unnamed = "" if session.agent_id is not None else ", whose records name no agent; often its id tells it"
    return f"the function is passed the session: {values}, backend={session.backend!r}, {keys}{unnamed}"


def _checked_zone(zone: object) -> tzinfo:
    try:
        checked = ZoneInfo(zone) if isinstance(zone, str) else zone
    except (ValueError, OSError, KeyError):
        checked = None
    if not isinstance(checked, tzinfo):
        raise UsageError(
            f'AgentMemoryConnector(zone={zone!r}): it must be a zone, such as "Asia/Shanghai" or datetime.UTC.'
        )
    return checked


def _key(listed: ListedSession) -> str:
    """Return the key of a session within its source."""
    session = listed.session
    parts = [session.id, *session.namespace] if listed.group is not None else [session.id]
    key = (file_key_prefix(listed.file) if listed.file else "") + ":".join(map(escape_key, parts))
    return key if session.agent_id is None else f"{key}@{escape_key(session.agent_id)}"
