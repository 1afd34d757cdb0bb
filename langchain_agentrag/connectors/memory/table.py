"""The package's own memory table: turns and tool calls of any number of agents, in any database SQLAlchemy knows.

Who owns a row is told by digests of the exact ids, since databases compare text by rules of their own (MariaDB takes
`a`, `A` and `a ` for one) and not every one of them can hold every string.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from langchain_agentrag import metadata as codec
from langchain_agentrag.connectors.memory.database import identity, met_a_writer, open_engine, reported
from langchain_agentrag.connectors.memory.turns import Entry, ToolCall, Turn, as_document
from langchain_agentrag.connectors.sql.engine import shown
from langchain_agentrag.errors import ConnectorError, ScopeError, UsageError
from langchain_agentrag.scope import check_agent_id

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Engine, Table

    from langchain_agentrag.types import SourceDocument

DEFAULT_TABLE: Final = "agentrag_memory"
SOURCE: Final = "memory"
"""First part of the ids of documents made of rows, so that recorder and connector name one entry alike."""
_AT_ONCE: Final = 200  # keys looked up, or rows read, in one statement
_ATTEMPTS: Final = 9  # to write what another process writes at the same time
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One session of one agent in the table.

    Attributes:
        agent_id: Whose it is, exactly as it was written.
        session: Its name.
        version: Changes whenever an entry of it is added, changed or deleted.
    """

    agent_id: str
    session: str
    version: str


class MemoryTable:
    """Entries of agents in a database table, made when first written to.

    Every method that touches entries names one agent, whose id is compared exactly. Safe to use from several threads
    and processes.

    Args:
        source: A database URL, or a SQLAlchemy engine.
        table: Name of the table.

    Attributes:
        table_name: Name of the table.
    """

    def __init__(self, source: Any, *, table: str = DEFAULT_TABLE) -> None:  # noqa: ANN401  (see Args)
        if not isinstance(table, str) or not table:
            raise UsageError(f"MemoryTable(table={table!r}): it must be the name of a table.")
        self.engine: Engine = open_engine(source, keep=True)
        self._own_engine = self.engine is not source
        self.table_name = table
        self._made = False

    def __repr__(self) -> str:
        return f"MemoryTable({shown(self.engine)!r}, table={self.table_name!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless the engine was given; the table can still be used and opens them anew."""
        if self._own_engine:
            self.engine.dispose()

    @property
    def identity(self) -> str:
        """Name of the table, equal in every process."""
        return f"{self.table_name}:{identity(self.engine)}"

    # -- writing --------------------------------------------------------------------------------------------------

    def append(self, agent_id: str, entries: Iterable[Entry]) -> list[Entry]:
        """Store entries of an agent; those that are new or have changed, as they are stored.

        An entry is told by agent, session and entry id: one that is there already is written again only when it
        differs. An entry without a position is given the next one of its session.

        Raises:
            ScopeError: no valid agent is named.
            InvalidDocumentError: an entry holds a value that cannot be stored.
            ConnectorError: the database cannot be reached or refuses.
        """
        from sqlalchemy.exc import DBAPIError

        agent = _one_agent(agent_id)
        given = list({(entry.session, entry.entry_id): entry for entry in entries}.values())
        if not given:
            return []
        self._make()
        with self._errors("write to"):
            for _ in range(_ATTEMPTS):
                try:
                    return self._write(agent, given)
                except DBAPIError as error:
                    if not met_a_writer(error):
                        raise
            return self._write(agent, given)

    def known(self, agent_id: str, session: str, entry_ids: Iterable[str]) -> set[str]:
        """Those of the entries of one session of an agent that are in the table.

        Raises:
            ScopeError: no valid agent is named.
            ConnectorError: the database cannot be reached or refuses.
        """
        keys = {_digest(_one_agent(agent_id), session, entry_id): entry_id for entry_id in entry_ids}
        if not keys or not self._exists():
            return set()
        with self._errors("read"), self.engine.connect() as connection:
            return {keys[key] for key in self._stored(connection, list(keys))}

    def delete(
        self,
        agent_id: str,
        *,
        session: str | None = None,
        after: datetime | None = None,
        before: datetime | None = None,
    ) -> int:
        """Delete entries of one agent; how many.

        Args:
            agent_id: Whose; nothing else of the table is touched.
            session: Only of this session.
            after: Only what happened at this time or later; entries without a time are left.
            before: Only what happened before this time; likewise.

        Raises:
            ScopeError: no valid agent is named.
            UsageError: a time has no zone.
            ConnectorError: the database cannot be reached or refuses.
        """
        agent = _one_agent(agent_id)
        if not self._exists():
            return 0
        conditions = self._conditions(agent, session, after, before)
        with self._errors("delete from"), self.engine.begin() as connection:
            if self.engine.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA secure_delete = ON")  # no byte of it stays in the file
            return connection.execute(self._table.delete().where(*conditions)).rowcount

    def _write(self, agent: str, entries: Sequence[Entry]) -> list[Entry]:
        table, written = self._table, []
        with self.engine.begin() as connection:
            stored = self._stored(connection, [_digest(agent, e.session, e.entry_id) for e in entries])
            following: dict[str, int] = {}
            for entry in entries:
                key = _digest(agent, entry.session, entry.entry_id)
                known = stored.get(key)
                placed = self._placed(connection, agent, entry, known, following)
                values = _row(agent, key, placed)
                if known is None:
                    connection.execute(table.insert().values(values))
                elif known.data != values["data"]:
                    connection.execute(table.update().where(table.c.entry_key == key).values(values))
                else:
                    continue
                written.append(placed)
        return written

    def _stored(self, connection: Connection, keys: Sequence[str]) -> dict[str, Any]:
        from sqlalchemy import select

        columns = self._table.c
        found: dict[str, Any] = {}
        for start in range(0, len(keys), _AT_ONCE):
            wanted = columns.entry_key.in_(keys[start : start + _AT_ONCE])
            query = select(columns.entry_key, columns.position, columns.data).where(wanted)
            found.update((row.entry_key, row) for row in connection.execute(query))
        return found

    def _placed(
        self,
        connection: Connection,
        agent: str,
        entry: Entry,
        known: Any,  # noqa: ANN401  (a row, or None)
        following: dict[str, int],
    ) -> Entry:
        """The entry with its position: the one it has, the one it had, or the next of its session."""
        from sqlalchemy import func, select

        if entry.position is None and known is not None:
            return replace(entry, position=known.position)
        if entry.session not in following:
            mine = self._table.c.session_key == _digest(agent, entry.session)
            last = connection.execute(select(func.max(self._table.c.position)).where(mine)).scalar()
            following[entry.session] = 0 if last is None else last + 1
        position = following[entry.session] if entry.position is None else entry.position
        following[entry.session] = max(following[entry.session], position + 1)
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
        """Entries of one agent, those of one session in order of their positions, sessions by their first entry.

        Args:
            agent_id: Whose.
            session: Only of this session.
            after: Only what happened at this time or later.
            before: Only what happened before this time.
            last: Only this many, the ones written last.

        Raises:
            ScopeError: no valid agent is named.
            UsageError: a time has no zone.
            ConnectorError: the database cannot be reached or refuses.
        """
        from sqlalchemy import select

        agent = _one_agent(agent_id)
        conditions = self._conditions(agent, session, after, before)
        if not self._exists():
            return []
        columns = self._table.c
        query = select(columns.id, columns.names, columns.data).where(*conditions).order_by(columns.id.desc())
        if last is not None:
            query = query.limit(last)
        with self._errors("read"), self.engine.connect() as connection:
            rows = list(reversed(connection.execute(query).all()))
        entries = [_entry(row.data) for row in rows if _names(row.names)[0] == agent]  # the second lock
        first = {entry.session: place for place, entry in reversed(list(enumerate(entries)))}
        return sorted(entries, key=lambda entry: (first[entry.session], entry.position or 0))

    def sessions(self, agent_id: str | None = None) -> list[StoredSession]:
        """Sessions of one agent, or of all of them for None, which is for those who maintain the table.

        Raises:
            ScopeError: the agent is not valid.
            ConnectorError: the database cannot be reached or refuses.
        """
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
        """An entry as the document of its agent, or None when it holds nothing to find."""
        return as_document(entry, SOURCE, _one_agent(agent_id))

    # -- the table ------------------------------------------------------------------------------------------------

    @cached_property
    def _table(self) -> Table:
        from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, Text
        from sqlalchemy.dialects.mysql import LONGTEXT

        long = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
        return Table(
            self.table_name,
            MetaData(),
            Column(
                "id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True
            ),
            Column("entry_key", String(64), nullable=False, unique=True),
            Column("agent_key", String(64), nullable=False, index=True),
            Column("session_key", String(64), nullable=False, index=True),
            Column("data_key", String(64), nullable=False),
            Column("position", BigInteger, nullable=False),
            Column("happened_at", BigInteger),  # microseconds since 1970, UTC
            # What the keys stand for, for people and for the connector; the ids as JSON hold any string.
            Column("names", long, nullable=False),
            Column("data", long, nullable=False),
            mysql_charset="utf8mb4",
            mariadb_charset="utf8mb4",
        )

    def _make(self) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        if self._exists():
            return
        try:
            with self._errors("make"):
                self._table.create(self.engine)
        except (ConnectorError, SQLAlchemyError):
            if not self._exists():  # else another process made it meanwhile
                raise
        self._made = True

    def _exists(self) -> bool:
        from sqlalchemy import inspect

        if not self._made:
            with self._errors("look for"):
                self._made = inspect(self.engine).has_table(self.table_name)
        return self._made

    def _conditions(
        self, agent: str, session: str | None, after: datetime | None, before: datetime | None
    ) -> list[ColumnElement[bool]]:
        columns = self._table.c
        found = [columns.agent_key == _digest(agent)]
        if session is not None:
            found.append(columns.session_key == _digest(agent, session))
        if after is not None:
            found.append(columns.happened_at >= _microseconds("after", after))
        if before is not None:
            found.append(columns.happened_at < _microseconds("before", before))
        return found

    def _errors(self, attempt: str) -> AbstractContextManager[None]:
        return reported(self.engine, f"{attempt} the memory table {self.table_name!r}")


def _one_agent(agent_id: object) -> str:
    agent = check_agent_id(agent_id)
    if agent is None:
        raise ScopeError("A memory table holds no shared entries: name the agent whose memory it is.")
    return agent


def _digest(*names: str) -> str:
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()


def _microseconds(name: str, moment: datetime) -> int:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise UsageError(
            f"{name}={moment!r} must be a datetime with a zone, such as datetime.now(timezone.utc)."
        )
    elapsed = moment - _EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def _row(agent: str, key: str, entry: Entry) -> dict[str, Any]:
    named = {field.name: getattr(entry, field.name) for field in fields(entry)}
    data = codec.encode({"kind": "turn" if isinstance(entry, Turn) else "call"} | named)
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
    found = codec.decode(data)
    kind = Turn if found.pop("kind") == "turn" else ToolCall
    return kind(**found | {"parts": tuple(found["parts"])})


def _names(data: str) -> tuple[str, str]:
    found = codec.decode(data)
    return found["agent_id"], found["session"]
