"""Items of LangGraph's `BaseStore`: of a store object, or of the table `store` that its SQL stores write."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.backend import Backend, ListedSession, MemorySession, digest
from langchain_agentrag.connectors.memory.database import TableBackend, connection_target
from langchain_agentrag.connectors.memory.dialogue import ReadOptions, parse_timestamp
from langchain_agentrag.connectors.memory.turns import LangGraphItem, document_id
from langchain_agentrag.errors import ConnectorError

if TYPE_CHECKING:
    from sqlalchemy import Engine

KIND: Final = "langgraph-store"
COLUMNS: Final = frozenset({"prefix", "key", "value", "created_at", "updated_at"})
_PAGE: Final = 10_000  # large pages: an item that changes between two of them moves to the other


class _StoreBackend(Backend):
    """Sessions of the items that a subclass reads."""

    kind = KIND

    def sessions(self, options: ReadOptions, agent_id: str | None) -> Iterator[ListedSession | Gap]:
        """List one session per item that has not expired."""
        del agent_id
        now, seen = datetime.now(UTC), set()
        for row in self._rows():
            key = document_id("", ".".join(row["namespace"]), row["key"])
            if key in seen:  # an item that was changed while the pages were read
                continue
            seen.add(key)
            try:
                item = _item(row, options)
            except ValueError as error:
                yield Gap(key, str(error), skipped=False)
                continue
            if item.expires is not None and item.expires <= now:
                continue
            agent = item.value.get("agent_id")
            session = MemorySession(
                key.lstrip("/"), KIND, item.namespace, agent if isinstance(agent, str) else None, item.value
            )
            yield ListedSession(session, digest(item.value, item.updated, item.expires), partial(_load, item))

    @abstractmethod
    def _rows(self) -> Iterator[Mapping[str, Any]]:
        """Yield namespace, key, value and times of every item."""


class StoreItems(_StoreBackend):
    """Items of a store object."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401  (any BaseStore)
        self._store = store

    def __repr__(self) -> str:
        return type(self._store).__name__

    @property
    def place(self) -> str:
        """Digest of the store's database; "" when it is unknown."""
        target = connection_target(getattr(self._store, "conn", None))
        return f"store:{digest(target)[:8]}" if target else ""

    def _rows(self) -> Iterator[Mapping[str, Any]]:
        offset = 0
        while True:
            try:
                # reading must not extend the lifetime of an item
                page = self._store.search((), limit=_PAGE, offset=offset, refresh_ttl=False)
            except Exception as error:
                raise ConnectorError(
                    f"Cannot list the items of {self!r}: {type(error).__name__}: {error}. A store must be open, and an "
                    "asynchronous one must be called from another thread than that of its event loop."
                ) from error
            for item in page:
                times = {"created_at": item.created_at, "updated_at": item.updated_at}
                yield {"namespace": tuple(item.namespace), "key": item.key, "value": item.value, **times}
            if len(page) < _PAGE:
                return
            offset += _PAGE


class StoreTable(TableBackend, _StoreBackend):
    """Items in the table of `SqliteStore` or `PostgresStore`."""

    def __init__(self, engine: Engine, table: str, columns: list[str]) -> None:
        super().__init__(engine, table)
        self._columns = [name for name in (*COLUMNS, "expires_at") if name in columns]

    def _rows(self) -> Iterator[Mapping[str, Any]]:
        with self._connect() as connection:
            streaming = connection.execution_options(stream_results=True, yield_per=1_000)
            for row in streaming.execute(self._select(self._columns, ("prefix", "key"))).mappings():
                yield {**row, "namespace": tuple(row["prefix"].split("."))}


def is_store(source: object) -> bool:
    """Return whether a value is a store of LangGraph."""
    names = ("search", "put", "list_namespaces", "batch")
    return all(callable(getattr(source, name, None)) for name in names)


def _load(item: LangGraphItem, problems: list[str]) -> list[LangGraphItem]:
    del problems
    return [item]


def _item(row: Mapping[str, Any], options: ReadOptions) -> LangGraphItem:
    value = row["value"]
    if isinstance(value, str | bytes):
        value = json.loads(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"its value is a {type(value).__name__}, not a mapping")  # noqa: TRY004  (stored data)
    time: Callable[[str], datetime | None] = lambda name: parse_timestamp(row.get(name), options.zone)  # noqa: E731
    return LangGraphItem(
        row["namespace"], row["key"], value, time("created_at"), time("updated_at"), time("expires_at")
    )
