"""Chat histories in SQL tables, one JSON message per row: LangChain's and LlamaIndex's.

One pass over the table computes the version of each session, a second reads the rows of the changed ones.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.memory.backend import ListedSession, MemorySession
from langchain_agentrag.connectors.memory.database import TableBackend
from langchain_agentrag.connectors.memory.dialogue import ReadOptions, entries_from_messages, stored_message

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from langchain_agentrag.connectors.memory.turns import Entry

LANGCHAIN: Final = "langchain-sql"
LLAMAINDEX: Final = "llamaindex-sql"
LLAMAINDEX_COLUMNS: Final = frozenset({"id", "key", "timestamp", "role", "status", "data"})
_BATCH_SIZE: Final = 500
_AGENT: Final = "agent_id"


@dataclass(slots=True)
class _SessionRows:
    """The rows of one session."""

    session: str
    agent_id: str | None  # value of the column `agent_id`
    metadata: Mapping[str, Any]  # of the session, from its first row
    ids: array[int] | list[Any] = field(default_factory=lambda: array("q"))  # primary keys, in order
    hash: Any = field(default_factory=hashlib.sha256)  # of all values

    def append(self, key: object) -> None:
        if isinstance(self.ids, array) and not (isinstance(key, int) and -(2**63) <= key < 2**63):
            self.ids = list(self.ids)
        self.ids.append(key)  # type: ignore[arg-type]


class ChatTable(TableBackend):
    """A table whose rows are messages of sessions, with the primary key `id`.

    Session names are compared in Python, not by the database's collation.
    """

    kind: str
    _session: str  # column of the session
    _message: str  # column of the message
    _timestamps: Sequence[str]  # columns of the time, the first that is not NULL
    _order: Sequence[str]  # columns that rows are ordered by
    _session_metadata: Sequence[str] = ()  # columns that become metadata of the session
    _extra: Sequence[str] = ()  # columns that become metadata of an entry

    def __init__(self, engine: Engine, table: str, columns: Sequence[str]) -> None:
        super().__init__(engine, table)
        self._columns = list(columns)

    def sessions(self, options: ReadOptions, agent_id: str | None) -> Iterator[ListedSession]:
        """List one session per value of the session column, and of `agent_id` where the table has that column.

        Raises:
            ConnectorError: the table cannot be read.
        """
        del agent_id
        for rows in self._grouped():
            session = MemorySession(rows.session, self.kind, (), rows.agent_id, rows.metadata)
            yield ListedSession(session, rows.hash.hexdigest(), partial(self._load, rows, options))

    def _grouped(self) -> list[_SessionRows]:
        """Return the sessions, in order of their first rows."""
        sessions: dict[tuple[str, str | None], _SessionRows] = {}
        with self._connect() as connection:
            streaming = connection.execution_options(stream_results=True, yield_per=1_000)
            for row in streaming.execute(self._select(self._columns, self._order)).mappings():
                name, agent = self._owner(row)
                session = sessions.get((name, agent))
                if session is None:
                    metadata = {name: row[name] for name in self._session_metadata}
                    session = sessions[name, agent] = _SessionRows(name, agent, metadata)
                session.hash.update(repr(tuple(row.values())).encode("utf-8", "surrogatepass"))
                session.append(row["id"])
        return list(sessions.values())

    def _load(self, session: _SessionRows, options: ReadOptions, problems: list[str]) -> list[Entry]:
        messages = []
        for row in self._rows(session):
            timestamp = next((row[name] for name in self._timestamps if row.get(name) is not None), None)
            extra = {name: row[name] for name in self._extra}
            messages += stored_message(
                row[self._message], str(row["id"]), problems, encoded=True, timestamp=timestamp, extra=extra
            )
        return entries_from_messages(session.session, messages, options, problems)

    def _rows(self, session: _SessionRows) -> Iterator[Mapping[Any, Any]]:
        """Yield the rows of a session that still exist, in order."""
        for start in range(0, len(session.ids), _BATCH_SIZE):
            ids = list(session.ids[start : start + _BATCH_SIZE])
            with self._connect() as connection:
                query = self._select(self._columns, self._order)
                rows = connection.execute(query.where(query.selected_columns["id"].in_(ids))).mappings().all()
            yield from (row for row in rows if self._owner(row) == (session.session, session.agent_id))

    def _owner(self, row: Mapping[Any, Any]) -> tuple[str, str | None]:
        session, agent = row[self._session], row.get(_AGENT)
        return "" if session is None else str(session), None if agent is None else str(agent)


class LangChainTable(ChatTable):
    """Table of LangChain's `SQLChatMessageHistory` or `PostgresChatMessageHistory`."""

    kind = LANGCHAIN
    _message = "message"
    _timestamps = ("created_at", "timestamp", "time")
    _order = ("id",)

    def __init__(self, engine: Engine, table: str, columns: Sequence[str]) -> None:
        super().__init__(engine, table, columns)
        self._session = langchain_session_column(columns) or "session_id"
        used = {"id", self._message, self._session}
        self._session_metadata = [name for name in columns if name not in used]
        self._extra = [name for name in self._session_metadata if name not in self._timestamps]


class LlamaIndexTable(ChatTable):
    """Table of LlamaIndex's `SQLAlchemyChatStore`, which `Memory` writes: active and archived messages alike."""

    kind = LLAMAINDEX
    _session = "key"
    _message = "data"
    _timestamps = ("timestamp",)
    _order = ("timestamp", "id")

    def __init__(self, engine: Engine, table: str, columns: Sequence[str]) -> None:
        # without `status`: a message that moves from active to archived is unchanged
        super().__init__(engine, table, [name for name in columns if name != "status"])


def langchain_session_column(columns: Sequence[str]) -> str | None:
    """Return the session column of a LangChain table, or None when the columns are not those of one."""
    if not {"id", "message"} <= set(columns):
        return None
    candidates = [name for name in columns if "session" in name.lower()]
    return "session_id" if "session_id" in candidates else candidates[0] if len(candidates) == 1 else None
