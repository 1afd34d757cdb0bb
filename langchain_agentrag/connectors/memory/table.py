"""The package's own memory table: turns and tool calls of any number of agents, in any SQLAlchemy database.

Rows are looked up by digests of the exact agent and session ids: databases compare text by their own rules (MariaDB
treats `a`, `A` and `a ` as equal), and not all of them can store every string.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Self

from langchain_agentrag import metadata as codec
from langchain_agentrag.connectors.memory.backend import ListedSession, MemorySession
from langchain_agentrag.connectors.memory.database import (
    database_digest,
    database_errors,
    is_write_conflict,
    open_memory_engine,
)
from langchain_agentrag.connectors.memory.dialogue import ReadOptions
from langchain_agentrag.connectors.memory.turns import Entry, ToolCall, Turn, as_document
from langchain_agentrag.connectors.sql.engine import masked_url
from langchain_agentrag.errors import ConnectorError, ScopeError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.times import to_microseconds

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Engine, Table

    from langchain_agentrag.types import SourceDocument

KIND: Final = "agentrag"
DEFAULT_TABLE: Final = "agentrag_memory"
COLUMNS: Final = frozenset({"entry_key", "agent_key", "session_key", "names", "data"})
_SOURCE: Final = "memory"  # first part of the document ids, the same for the recorder and the connector
_BATCH_SIZE: Final = 200  # keys looked up in one statement
_RETRIES: Final = 9  # of a write that conflicts with that of another process


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session of one agent in the table; `version` changes when an entry is added, changed or deleted."""

    agent_id: str
    session: str
    version: str


class MemoryTable:
    """Entries of agents in a database table, which is created on the first write.

    Every method that reads or changes entries takes one agent, whose id is compared exactly; it raises `ScopeError` for
    None or an invalid id, and `ConnectorError` when the database cannot be reached or refuses. Safe to use from several
    threads and processes.

    Args:
        source: A database URL, or a SQLAlchemy engine.
        table: Name of the table.

    Attributes:
        table_name: Name of the table.
    """

    def __init__(self, source: Any, *, table: str = DEFAULT_TABLE) -> None:  # noqa: ANN401  (see Args)
        if not isinstance(table, str) or not table:
            raise UsageError(f"MemoryTable(table={table!r}): it must be the name of a table.")
        self.engine: Engine = open_memory_engine(source, pooled=True)
        self._owns_engine = self.engine is not source
        self.table_name = table
        self._known_to_exist = False

    def __repr__(self) -> str:
        return f"MemoryTable({masked_url(self.engine.url)!r}, table={self.table_name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless an engine was passed; the table stays usable and reopens them."""
        if self._owns_engine:
            self.engine.dispose()

    @property
    def identity(self) -> str:
        """Name of the table and digest of the database, equal in every process."""
        return f"{self.table_name}:{database_digest(self.engine)}"

    # -- writing --------------------------------------------------------------------------------------------------

    def append(self, agent_id: str, entries: Iterable[Entry]) -> list[Entry]:
        """Store entries of an agent, and return those that are new or have changed, as they are stored.

        An entry is identified by agent, session and entry id: one that is stored already is written again only when it
        differs. An entry without a position gets the next one of its session.

        Raises:
            InvalidDocumentError: an entry holds a value that cannot be stored.
        """
        from sqlalchemy.exc import DBAPIError

        agent = _checked_agent(agent_id)
        unique = list({(entry.session, entry.entry_id): entry for entry in entries}.values())
        if not unique:
            return []
        self._create()
        with self._errors("write to"):
            for _ in range(_RETRIES):
                try:
                    return self._write(agent, unique)
                except DBAPIError as error:
                    if not is_write_conflict(error):
                        raise
            return self._write(agent, unique)

    def known(self, agent_id: str, session: str, entry_ids: Iterable[str]) -> set[str]:
        """Return those entry ids of one session of an agent that are in the table."""
        keys = {_digest(_checked_agent(agent_id), session, entry_id): entry_id for entry_id in entry_ids}
        if not keys or not self._exists():
            return set()
        with self._errors("read"), self.engine.connect() as connection:
            return {keys[key] for key in self._stored_rows(connection, list(keys))}

    def delete(
        self,
        agent_id: str,
        *,
        session: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
    ) -> int:
        """Delete entries of one agent and return how many.

        Args:
            agent_id: The agent; no other rows are touched.
            session: Only this session.
            after: Only entries of this time or later; entries without a time stay.
            before: Only entries before this time; entries without a time stay.

        Raises:
            UsageError: a time has no zone, or the session is no string.
        """
        agent = _checked_agent(agent_id)
        conditions = self._conditions(agent, session, after, before)
        if not self._exists():
            return 0
        with self._errors("delete from"), self.engine.begin() as connection:
            if self.engine.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA secure_delete = ON")  # overwrite the bytes in the file
            return connection.execute(self._table.delete().where(*conditions)).rowcount

    def _write(self, agent: str, entries: Sequence[Entry]) -> list[Entry]:
        table, written = self._table, []
        with self.engine.begin() as connection:
            stored_rows = self._stored_rows(connection, [_digest(agent, e.session, e.entry_id) for e in entries])
            next_positions: dict[str, int] = {}
            for unplaced in entries:
                key = _digest(agent, unplaced.session, unplaced.entry_id)
                stored = stored_rows.get(key)
                entry = self._with_position(connection, agent, unplaced, stored, next_positions)
                values = _row(agent, key, entry)
                if stored is None:
                    connection.execute(table.insert().values(values))
                elif stored.data != values["data"]:
                    connection.execute(table.update().where(table.c.entry_key == key).values(values))
                else:
                    continue
                written.append(entry)
        return written

    def _stored_rows(self, connection: Connection, keys: Sequence[str]) -> dict[str, Any]:
        from sqlalchemy import select

        columns = self._table.c
        rows: dict[str, Any] = {}
        for start in range(0, len(keys), _BATCH_SIZE):
            condition = columns.entry_key.in_(keys[start : start + _BATCH_SIZE])
            query = select(columns.entry_key, columns.position, columns.data).where(condition)
            rows.update((row.entry_key, row) for row in connection.execute(query))
        return rows

    def _with_position(
        self,
        connection: Connection,
        agent: str,
        entry: Entry,
        stored: Any,  # noqa: ANN401  (a row, or None)
        next_positions: dict[str, int],
    ) -> Entry:
        """Return the entry with its own position, the stored one, or the next of its session."""
        from sqlalchemy import func, select

        if entry.position is None and stored is not None:
            return replace(entry, position=stored.position)
        if entry.session not in next_positions:
            in_session = self._table.c.session_key == _digest(agent, entry.session)
            last = connection.execute(select(func.max(self._table.c.position)).where(in_session)).scalar()
            next_positions[entry.session] = 0 if last is None else last + 1
        position = next_positions[entry.session] if entry.position is None else entry.position
        next_positions[entry.session] = max(next_positions[entry.session], position + 1)
        return replace(entry, position=position)

    # -- reading --------------------------------------------------------------------------------------------------

    def read(
        self,
        agent_id: str,
        *,
        session: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
        last: int | None = None,
    ) -> list[Entry]:
        """Return entries of one agent: sessions in order of their first entry, each in order of its positions.

        Args:
            agent_id: The agent.
            session: Only this session.
            after: Only entries of this time or later.
            before: Only entries before this time.
            last: Only this many, the ones written last.

        Raises:
            UsageError: a time has no zone.
        """
        from sqlalchemy import select

        agent = _checked_agent(agent_id)
        conditions = self._conditions(agent, session, after, before)
        if not self._exists():
            return []
        columns = self._table.c
        query = select(columns.id, columns.names, columns.data).where(*conditions).order_by(columns.id.desc())
        if last is not None:
            query = query.limit(last)
        with self._errors("read"), self.engine.connect() as connection:
            rows = list(reversed(connection.execute(query).all()))
        entries = [_entry(row.data) for row in rows if _names(row.names)[0] == agent]  # a second check
        first = {entry.session: number for number, entry in reversed(list(enumerate(entries)))}
        return sorted(entries, key=lambda entry: (first[entry.session], entry.position or 0))

    def sessions(self, agent_id: str | None = None) -> list[StoredSession]:
        """Return the sessions of one agent, or of all agents for None, which is meant for maintenance."""
        from sqlalchemy import select

        agent = check_agent_id(agent_id)
        if not self._exists():
            return []
        columns = self._table.c
        query = select(columns.data_key, columns.session_key, columns.names).order_by(columns.id)
        if agent is not None:
            query = query.where(columns.agent_key == _digest(agent))
        digests: dict[str, Any] = {}
        names: dict[str, tuple[str, str]] = {}
        with self._errors("read"), self.engine.connect() as connection:
            for row in connection.execution_options(yield_per=5_000).execute(query):
                if row.session_key not in digests:
                    digests[row.session_key] = hashlib.sha256()
                    names[row.session_key] = _names(row.names)
                digests[row.session_key].update(row.data_key.encode())
        return [StoredSession(*names[key], digest.hexdigest()) for key, digest in digests.items()]

    def document(self, agent_id: str, entry: Entry) -> SourceDocument | None:
        """Convert an entry to the document of its agent, or return None when it holds no text."""
        return as_document(entry, _SOURCE, _checked_agent(agent_id))

    # -- the table ------------------------------------------------------------------------------------------------

    @cached_property
    def _table(self) -> Table:
        from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, Text
        from sqlalchemy.dialects.mysql import LONGTEXT

        serial = BigInteger().with_variant(Integer(), "sqlite")
        long = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
        return Table(
            self.table_name,
            MetaData(),
            Column("id", serial, primary_key=True, autoincrement=True),
            Column("entry_key", String(64), nullable=False, unique=True),
            Column("agent_key", String(64), nullable=False, index=True),
            Column("session_key", String(64), nullable=False, index=True),
            Column("data_key", String(64), nullable=False),
            Column("position", BigInteger, nullable=False),
            Column("happened_at", BigInteger),  # microseconds since 1970, UTC
            # The ids behind the digests, for people and for the connector; as JSON they can be any string.
            Column("names", long, nullable=False),
            Column("data", long, nullable=False),
            mysql_charset="utf8mb4",
            mariadb_charset="utf8mb4",
        )

    def _create(self) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        if self._exists():
            return
        try:
            with self._errors("create"):
                self._table.create(self.engine)
        except (ConnectorError, SQLAlchemyError):
            if not self._exists():  # otherwise another process created it meanwhile
                raise
        self._known_to_exist = True

    def _exists(self) -> bool:
        from sqlalchemy import inspect

        if not self._known_to_exist:
            with self._errors("look for"):
                self._known_to_exist = inspect(self.engine).has_table(self.table_name)
        return self._known_to_exist

    def _conditions(
        self, agent: str, session: str | None, after: datetime | None, before: datetime | None
    ) -> list[ColumnElement[bool]]:
        columns = self._table.c
        conditions = [columns.agent_key == _digest(agent)]
        if session is not None:
            if not isinstance(session, str):
                raise UsageError(f"session={session!r}: it is the id of one session, a string.")
            conditions.append(columns.session_key == _digest(agent, session))
        if after is not None:
            conditions.append(columns.happened_at >= _microseconds("after", after))
        if before is not None:
            conditions.append(columns.happened_at < _microseconds("before", before))
        return conditions

    def _errors(self, action: str) -> AbstractContextManager[None]:
        return database_errors(self.engine, f"{action} the memory table {self.table_name!r}")


class MemoryTableBackend:
    """A memory table as a backend of `AgentMemoryConnector`; each of its entries names its agent."""

    kind = KIND
    label = _SOURCE  # the document ids of the recorder

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def __repr__(self) -> str:
        return repr(self._table)

    @property
    def place(self) -> str:
        """Name of the table and digest of the database."""
        return self._table.identity

    def sessions(self, options: ReadOptions, agent_id: str | None) -> Iterator[ListedSession]:
        """List the sessions of one agent, or of all agents for None."""
        del options  # entries are stored as they are read
        for stored in self._table.sessions(agent_id):
            session = MemorySession(stored.session, KIND, (), stored.agent_id)
            yield ListedSession(session, stored.version, partial(self._load, stored))

    def _load(self, stored: StoredSession, problems: list[str]) -> list[Entry]:
        del problems
        return self._table.read(stored.agent_id, session=stored.session)


def _checked_agent(agent_id: object) -> str:
    agent = check_agent_id(agent_id)
    if agent is None:
        raise ScopeError("A memory table holds no shared entries: pass the agent's id.")
    return agent


def _digest(*names: str) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def _microseconds(name: str, time: datetime) -> int:
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise UsageError(f"{name}={time!r} must be a datetime with a zone, such as datetime.now(timezone.utc).")
    return to_microseconds(time)


def _row(agent: str, key: str, entry: Entry) -> dict[str, Any]:
    values = {field.name: getattr(entry, field.name) for field in fields(entry)}
    data = codec.encode({"kind": "turn" if isinstance(entry, Turn) else "call"} | values)
    return {
        "entry_key": key,
        "agent_key": _digest(agent),
        "session_key": _digest(agent, entry.session),
        "data_key": hashlib.sha256(data.encode()).hexdigest(),
        "position": entry.position,
        "happened_at": None if entry.time is None else _microseconds("time", entry.time),
        "names": codec.encode({"agent_id": agent, "session": entry.session}),
        "data": data,
    }


def _entry(data: str) -> Entry:
    values = codec.decode(data)
    cls = Turn if values.pop("kind") == "turn" else ToolCall
    return cls(**values | {"parts": tuple(values["parts"])})


def _names(data: str) -> tuple[str, str]:
    values = codec.decode(data)
    return values["agent_id"], values["session"]
