"""Which backend reads what is given: by the kind of object, by the tables of a database, by the content of a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.memory import (
    json_files,
    langchain_sql,
    langgraph,
    langgraph_store,
    llamaindex_sql,
    own,
    redis_store,
)
from langchain_agentrag.connectors.memory.backend import Backend
from langchain_agentrag.connectors.memory.database import check_there, open_engine, reported
from langchain_agentrag.connectors.memory.table import DEFAULT_TABLE, MemoryTable
from langchain_agentrag.connectors.sql.engine import shown
from langchain_agentrag.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine

_SQLITE: Final = b"SQLite format 3\x00"
_TABLES: Final[tuple[tuple[str, Callable[[list[str]], object]], ...]] = (
    (own.KIND, own.COLUMNS.issubset),
    (langchain_sql.KIND, langchain_sql.session_column),
    (llamaindex_sql.KIND, llamaindex_sql.COLUMNS.issubset),
    (langgraph.KIND, langgraph.COLUMNS.issubset),
    (langgraph_store.KIND, langgraph_store.COLUMNS.issubset),
)
"""Kinds of memory in a database, each with a test of a table's columns."""
KINDS: Final = (
    *(kind for kind, _ in _TABLES),
    redis_store.LANGCHAIN,
    redis_store.LLAMAINDEX,
    json_files.KIND,
)


def open_backend(
    source: Any,  # noqa: ANN401  (see AgentMemoryConnector)
    *,
    backend: str | None,
    table: str | None,
    prefix: str | None,
    named: bool,
) -> Backend:
    """The backend for a source; a database is looked at when its sessions are asked for, not before.

    Args:
        source: What was given.
        backend: Kind of memory, or None.
        table: Table of a database, or None.
        prefix: First part of keys in Redis, or None.
        named: Whether the source was given a name, which one that is only in memory needs.

    Raises:
        UsageError: nothing known reads this source, or a setting does not go with it.
    """
    if backend is not None and backend not in KINDS:
        raise UsageError(f"backend={backend!r} is unknown: it is one of {', '.join(KINDS)}.")
    found = _opened(source, backend, table, prefix)
    kinds = (*(kind for kind, _ in _TABLES),) if isinstance(found, _Database) else (found.kind,)
    if backend is not None and backend not in kinds:
        raise UsageError(f"backend={backend!r} does not read a {type(source).__name__}: {found.kind!r} does.")
    if table is not None and not isinstance(found, _Database):
        raise UsageError(f"table={table!r} goes with a database, and this is none.")
    if prefix is not None and not isinstance(found, redis_store.RedisHistories):
        raise UsageError(f"prefix={prefix!r} goes with Redis, and this is none.")
    if not named and not isinstance(found, _Database) and not found.place:
        raise UsageError(
            f"A {found!r} that is only in memory has no identity of its own, and two of them would delete each other's "
            "documents: pass name=..., a different one for each."
        )
    return found


def _opened(source: Any, backend: str | None, table: str | None, prefix: str | None) -> Backend:  # noqa: ANN401
    if redis_store.is_url(source) or redis_store.is_client(source):
        asked = backend if backend in {redis_store.LANGCHAIN, redis_store.LLAMAINDEX} else None
        return redis_store.RedisHistories(source, asked, prefix)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "://" not in source):
        return _file(Path(source), backend, table)
    if (found := _object(source)) is not None:
        return found
    if isinstance(source, str) or hasattr(source, "url") or hasattr(source, "drivername"):
        return _Database(open_engine(source), backend, table)
    raise UsageError(
        f"Cannot read memory from a {type(source).__name__}: pass a database or Redis URL, a SQLAlchemy engine, a "
        "Redis client, a LangGraph checkpointer or store, a MemoryTable, a LlamaIndex SimpleChatStore or "
        "ChatMemoryBuffer, or the path of a JSON or JSON Lines file. What is asynchronous, or holds one session of a "
        "database, is read by the URL of that database."
    )


def _object(source: Any) -> Backend | None:  # noqa: ANN401
    if isinstance(source, MemoryTable):
        return own.OwnTable(source)
    if langgraph.is_saver(source):
        return langgraph.SaverCheckpoints(source)
    if langgraph_store.is_store(source):
        return langgraph_store.StoreItems(source)
    return json_files.GivenHistories(source) if json_files.is_given(source) else None


def _file(path: Path, backend: str | None, table: str | None) -> Backend:
    json_files.check_file(path)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                return _Database(open_engine(f"sqlite:///{path}"), backend, table)
    return json_files.JsonHistories(path)


class _Database:
    """A database whose tables tell what kind of memory it holds.

    It is looked at only when its sessions are asked for, so that a connector can be made before the database is there.
    """

    def __init__(self, engine: Engine, backend: str | None, table: str | None) -> None:
        self._engine, self._asked, self._table = engine, backend, table
        self._found: Backend | None = None

    def __repr__(self) -> str:
        return shown(self._engine)

    @property
    def _backend(self) -> Backend:
        if self._found is None:
            self._found = self._look()
        return self._found

    @property
    def kind(self) -> str:
        """Kind of memory it holds."""
        return self._backend.kind

    @property
    def place(self) -> str:
        """Where it is."""
        return self._backend.place

    @property
    def label(self) -> str:
        """First part of the documents' ids."""
        return self._backend.label

    @property
    def sessions(self) -> Any:  # noqa: ANN401  (the method of whatever is behind)
        """Everything there is now; see `Backend`."""
        return self._backend.sessions

    def _look(self) -> Backend:
        if self._asked != own.KIND:
            check_there(self._engine)
        tables = _columns(self._engine, self._table)
        candidates = [
            (kind, name)
            for name, columns in tables.items()
            for kind, fits in _TABLES
            if fits(columns) and self._asked in {None, kind}
        ]
        if not candidates and self._asked == own.KIND:  # nothing was recorded yet
            return own.OwnTable(MemoryTable(self._engine, table=self._table or DEFAULT_TABLE))
        if len(candidates) == 1:
            kind, name = candidates[0]
            return _reading(self._engine, kind, name, tables[name])
        wanted = f" as {self._asked!r}" if self._asked else ""
        if not candidates:
            raise UsageError(
                f"Found no agent memory{wanted} in {shown(self._engine)}: its tables are "
                f"{', '.join(sorted(tables)) or 'none'}. Known are {', '.join(kind for kind, _ in _TABLES)}; for other "
                "tables use DatabaseConnector."
            )
        several = ", ".join(f"{name!r} ({kind})" for kind, name in sorted(candidates))
        raise UsageError(
            f"Several tables of {shown(self._engine)} hold agent memory{wanted}: {several}. Name one with "
            "table=... or backend=..., and make a connector for each of those you want."
        )


def _columns(engine: Engine, wanted: str | None) -> dict[str, list[str]]:
    """Table → its columns."""
    from sqlalchemy import inspect

    with reported(engine, "list the tables"):
        inspector = inspect(engine)
        if wanted is None:
            names = inspector.get_table_names()
        else:
            schema, _, name = wanted.rpartition(".")
            names = [wanted] if inspector.has_table(name, schema=schema or None) else []
        found = {}
        for full in names:
            schema, _, name = full.rpartition(".") if wanted else ("", "", full)
            found[full] = [column["name"] for column in inspector.get_columns(name, schema=schema or None)]
        return found


def _reading(engine: Engine, kind: str, table: str, columns: list[str]) -> Backend:
    if kind == own.KIND:
        return own.OwnTable(MemoryTable(engine, table=table))
    if kind == langchain_sql.KIND:
        return langchain_sql.LangChainTable(engine, table, columns)
    if kind == llamaindex_sql.KIND:
        return llamaindex_sql.LlamaIndexTable(engine, table, columns)
    if kind == langgraph.KIND:
        return langgraph.DatabaseCheckpoints(engine)
    return langgraph_store.StoreTable(engine, table, columns)
