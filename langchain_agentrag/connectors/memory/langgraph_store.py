"""Items of LangGraph's `BaseStore`: of a store object, or of the table `store` that its SQL stores write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.backend import (
    Backend,
    FoundSession,
    MemorySession,
    StoredItem,
    digest,
)
from langchain_agentrag.connectors.memory.database import connected_to, identity, reported
from langchain_agentrag.connectors.memory.dialogue import Reading, when
from langchain_agentrag.connectors.memory.turns import document_id
from langchain_agentrag.connectors.sql.engine import shown
from langchain_agentrag.errors import ConnectorError

if TYPE_CHECKING:
    from sqlalchemy import Engine

KIND: Final = "langgraph-store"
COLUMNS: Final = frozenset({"prefix", "key", "value", "created_at", "updated_at"})
_PAGE: Final = 10_000  # few pages: an item that is changed between two of them moves to the other


class StoreItems(Backend):
    """Items of a store object."""

    kind = KIND

    def __init__(self, store: Any) -> None:  # noqa: ANN401  (any BaseStore)
        self._store = store

    def __repr__(self) -> str:
        return type(self._store).__name__

    @property
    def place(self) -> str:
        """Where the store's database is; "" when it cannot be told."""
        where = connected_to(getattr(self._store, "conn", None))
        return f"store:{digest(where)[:8]}" if where else ""

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession | Gap]:
        """One session per item."""
        del agent_id
        yield from _sessions(self._items(), reading)

    def _items(self) -> Iterator[Mapping[str, Any]]:
        offset = 0
        while True:
            try:
                # reading must not lengthen the life of an item
                page = self._store.search((), limit=_PAGE, offset=offset, refresh_ttl=False)
            except Exception as error:
                raise ConnectorError(
                    f"Cannot list the items of {self!r}: {type(error).__name__}: {error}. A store must be open, and an "
                    "asynchronous one is asked from another thread than that of its event loop."
                ) from error
            for item in page:
                times = {"created_at": item.created_at, "updated_at": item.updated_at}
                yield {"namespace": tuple(item.namespace), "key": item.key, "value": item.value, **times}
            if len(page) < _PAGE:
                return
            offset += _PAGE


class StoreTable(Backend):
    """Items in the table of `SqliteStore` or `PostgresStore`."""

    kind = KIND

    def __init__(self, engine: Engine, table: str, columns: list[str]) -> None:
        self._engine, self._table, self._columns = engine, table, columns

    def __repr__(self) -> str:
        return f"{self._table!r} of {shown(self._engine)}"

    @property
    def place(self) -> str:
        """Name of the table and digest of the database."""
        return f"{self._table}:{identity(self._engine)}"

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession | Gap]:
        """One session per item that has not expired."""
        del agent_id
        yield from _sessions(self._items(), reading)

    def _items(self) -> Iterator[Mapping[str, Any]]:
        from sqlalchemy import column, select
        from sqlalchemy import table as named

        schema, _, name = self._table.rpartition(".")
        read = [column for column in (*COLUMNS, "expires_at") if column in self._columns]
        source = named(name, *map(column, read), schema=schema or None)
        query = select(source).order_by(source.c.prefix, source.c.key)
        with reported(self._engine, f"read the table {self._table!r}"), self._engine.connect() as connection:
            rows = connection.execution_options(stream_results=True, yield_per=1_000).execute(query)
            for row in rows.mappings():
                yield {**row, "namespace": tuple(row["prefix"].split("."))}


def is_store(source: object) -> bool:
    """Whether something is a store of LangGraph."""
    return all(
        callable(getattr(source, name, None)) for name in ("search", "put", "list_namespaces", "batch")
    )


def _sessions(items: Iterator[Mapping[str, Any]], reading: Reading) -> Iterator[FoundSession | Gap]:
    now, seen = datetime.now(UTC), set()
    for row in items:
        key = document_id("", ".".join(row["namespace"]), row["key"])
        if key in seen:  # an item that was changed while the pages were read
            continue
        seen.add(key)
        try:
            item = _item(row, reading)
        except ValueError as error:
            yield Gap(key, str(error), skipped=False)
            continue
        if item.expires is not None and item.expires <= now:
            continue
        session = MemorySession(key.lstrip("/"), KIND, item.namespace, _agent(item), item.value)
        version = digest(item.value, item.updated, item.expires)
        yield FoundSession(session, version, partial(_given, item))


def _given(item: StoredItem, problems: list[str]) -> list[StoredItem]:
    del problems
    return [item]


def _item(row: Mapping[str, Any], reading: Reading) -> StoredItem:
    value = row["value"]
    if isinstance(value, str | bytes):
        value = json.loads(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"its value is a {type(value).__name__} and no mapping")  # noqa: TRY004  (stored data)
    moment: Callable[[str], datetime | None] = lambda name: when(row.get(name), reading.zone)  # noqa: E731
    return StoredItem(
        row["namespace"], row["key"], value, moment("created_at"), moment("updated_at"), moment("expires_at")
    )


def _agent(item: StoredItem) -> str | None:
    agent = item.value.get("agent_id")
    return agent if isinstance(agent, str) else None
