"""Selection of the memory backend, by the type of the source, the tables of a database, or the content of a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.memory import chat_json, chat_redis, chat_sql, langgraph_checkpoints, langgraph_store
from langchain_agentrag.connectors.memory import table as memory_table
from langchain_agentrag.connectors.memory.backend import Backend
from langchain_agentrag.connectors.memory.database import check_sqlite_file, database_errors, open_memory_engine
from langchain_agentrag.connectors.sql.engine import masked_url
from langchain_agentrag.connectors.sql.sources import is_sqlite_file
from langchain_agentrag.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine

_BackendFactory = Callable[["Engine", str, list[str]], Backend]
_TABLE_KINDS: Final[dict[str, tuple[Callable[[list[str]], object], _BackendFactory]]] = {
    memory_table.KIND: (memory_table.COLUMNS.issubset, lambda engine, name, _: _own_table(engine, name)),
    chat_sql.LANGCHAIN: (chat_sql.langchain_session_column, chat_sql.LangChainTable),
    chat_sql.LLAMAINDEX: (chat_sql.LLAMAINDEX_COLUMNS.issubset, chat_sql.LlamaIndexTable),
    langgraph_checkpoints.KIND: (
        langgraph_checkpoints.COLUMNS.issubset,
        lambda engine, *_: langgraph_checkpoints.CheckpointTables(engine),
    ),
    langgraph_store.KIND: (langgraph_store.COLUMNS.issubset, langgraph_store.StoreTable),
}
"""Kind of memory in a database → predicate over the columns of a table, and the backend of a matching table."""
_KINDS: Final = (*_TABLE_KINDS, chat_redis.LANGCHAIN, chat_redis.LLAMAINDEX, chat_json.KIND)


def _own_table(engine: Engine, name: str) -> Backend:
    return memory_table.MemoryTableBackend(memory_table.MemoryTable(engine, table=name))


def open_backend(
    source: Any,  # noqa: ANN401  (see AgentMemoryConnector)
    *,
    backend: str | None,
    table: str | None,
    prefix: str | None,
    has_name: bool,
) -> Backend:
    """Return the backend for a source; a database is not connected to before its sessions are listed.

    The parameters are those of `AgentMemoryConnector`; `has_name` is whether it has a name, which a source that is only
    in memory needs.

    Raises:
        UsageError: no backend reads this source, or a setting does not apply to it.
    """
    if backend is not None and backend not in _KINDS:
        raise UsageError(f"backend={backend!r} is unknown: it is one of {', '.join(_KINDS)}.")
    selected = _backend(source, backend, table, prefix)
    is_database = isinstance(selected, _Database)
    if backend is not None and backend not in (_TABLE_KINDS if is_database else {selected.kind}):
        raise UsageError(f"backend={backend!r} does not read a {type(source).__name__}: {selected.kind!r} does.")
    if table is not None and not is_database:
        raise UsageError(f"table={table!r} applies to a database only, and the source is not one.")
    if prefix is not None and not isinstance(selected, chat_redis.RedisHistories):
        raise UsageError(f"prefix={prefix!r} applies to Redis only, and the source is not one.")
    if not has_name and not is_database and not selected.place:
        raise UsageError(
            f"A {selected!r} that is only in memory has no identity, and two of them would delete each other's "
            "documents: pass name=..., a different one for each."
        )
    return selected


def _backend(source: Any, backend: str | None, table: str | None, prefix: str | None) -> Backend:  # noqa: ANN401
    if chat_redis.is_url(source) or chat_redis.is_client(source):
        redis_kind = backend if backend in {chat_redis.LANGCHAIN, chat_redis.LLAMAINDEX} else None
        return chat_redis.RedisHistories(source, redis_kind, prefix)
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "://" not in source):
        path = Path(source)
        if not path.exists():
            raise UsageError(
                f"Cannot read memory from {str(path)!r}: there is no such file or folder. A database needs a URL, "
                "such as 'sqlite:///memory.db'."
            )
        if is_sqlite_file(path):
            return _Database(open_memory_engine(f"sqlite:///{path}"), backend, table)
        return chat_json.JsonHistories(path)
    if (selected := _object_backend(source)) is not None:
        return selected
    if isinstance(source, str) or hasattr(source, "url") or hasattr(source, "drivername"):
        return _Database(open_memory_engine(source), backend, table)
    raise UsageError(
        f"Cannot read memory from a {type(source).__name__}: pass a database or Redis URL, a SQLAlchemy engine, a "
        "Redis client, a LangGraph checkpointer or store, a MemoryTable, a LlamaIndex SimpleChatStore or "
        "ChatMemoryBuffer, or the path of a JSON or JSON Lines file. For an asynchronous object, or one that holds a "
        "single session of a database, pass the URL of that database."
    )


def _object_backend(source: Any) -> Backend | None:  # noqa: ANN401
    if isinstance(source, memory_table.MemoryTable):
        return memory_table.MemoryTableBackend(source)
    if langgraph_checkpoints.is_checkpointer(source):
        return langgraph_checkpoints.CheckpointerHistory(source)
    if langgraph_store.is_store(source):
        return langgraph_store.StoreItems(source)
    return chat_json.LlamaIndexHistories(source) if chat_json.is_llama_index_store(source) else None


class _Database:
    """A database, whose tables decide which backend reads it.

    It is inspected when its sessions are listed, so that a connector can be created before the database.
    """

    def __init__(self, engine: Engine, kind: str | None, table: str | None) -> None:
        self._engine, self._requested_kind, self._table_name = engine, kind, table

    def __repr__(self) -> str:
        return masked_url(self._engine.url)

    @property
    def kind(self) -> str:
        """Kind of memory it holds."""
        return self._backend.kind

    @property
    def place(self) -> str:
        """Identity of the table."""
        return self._backend.place

    @property
    def label(self) -> str:
        """First part of the document ids."""
        return self._backend.label

    @property
    def sessions(self) -> Any:  # noqa: ANN401  (a method)
        """See `Backend.sessions`."""
        return self._backend.sessions

    @cached_property
    def _backend(self) -> Backend:
        engine, requested = self._engine, self._requested_kind
        if requested != memory_table.KIND:
            check_sqlite_file(engine)
        columns = self._columns()
        candidates = [
            (kind, name)
            for name in columns
            for kind, (matches, _) in _TABLE_KINDS.items()
            if matches(columns[name]) and requested in {None, kind}
        ]
        if len(candidates) == 1:
            kind, name = candidates[0]
            return _TABLE_KINDS[kind][1](engine, name, columns[name])
        if not candidates and requested == memory_table.KIND:  # nothing was recorded yet
            return _own_table(engine, self._table_name or memory_table.DEFAULT_TABLE)
        as_kind = f" as {requested!r}" if requested else ""
        if not candidates:
            raise UsageError(
                f"Found no agent memory{as_kind} in {masked_url(engine.url)}: its tables are "
                f"{', '.join(sorted(columns)) or 'none'}. Known kinds are {', '.join(_TABLE_KINDS)}; for other "
                "tables use DatabaseConnector."
            )
        several = ", ".join(f"{name!r} ({kind})" for kind, name in sorted(candidates))
        raise UsageError(
            f"Several tables of {masked_url(engine.url)} hold agent memory{as_kind}: {several}. Select one with "
            "table=... or backend=..., and create one connector for each table to read."
        )

    def _columns(self) -> dict[str, list[str]]:
        """Return table → columns, of the requested table or all of the default schema."""
        from sqlalchemy import inspect

        with database_errors(self._engine, "list the tables"):
            inspector = inspect(self._engine)
            if self._table_name is None:
                schema, names = None, inspector.get_table_names()
            else:
                prefix, _, name = self._table_name.rpartition(".")
                schema = prefix or None
                names = [name] if inspector.has_table(name, schema=schema) else []
            return {
                self._table_name or name: [column["name"] for column in inspector.get_columns(name, schema=schema)]
                for name in names
            }
