"""Tables of LlamaIndex's `SQLAlchemyChatStore`, which `Memory` writes: active and archived messages alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from langchain_agentrag.connectors.memory.backend import Backend, FoundSession, MemorySession, recorded
from langchain_agentrag.connectors.memory.database import identity
from langchain_agentrag.connectors.memory.dialogue import Reading, entries_of
from langchain_agentrag.connectors.memory.langchain_sql import opened
from langchain_agentrag.connectors.memory.sql_rows import RowGroup, SessionRows
from langchain_agentrag.connectors.sql.engine import shown

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from langchain_agentrag.connectors.memory.turns import Entry

KIND: Final = "llamaindex-sql"
COLUMNS: Final = frozenset({"id", "key", "timestamp", "role", "status", "data"})


class LlamaIndexTable(Backend):
    """Chat histories in a table."""

    kind = KIND

    def __init__(self, engine: Engine, table: str, columns: Sequence[str]) -> None:
        # `status` is left out: a message that moves from active to archived is the same memory
        read = [name for name in columns if name != "status"]
        order = ("timestamp", "id")
        self._rows = SessionRows(engine, table, read, key="id", session="key", payload="data", order=order)

    def __repr__(self) -> str:
        return f"{self._rows.table!r} of {shown(self._rows.engine)}"

    @property
    def place(self) -> str:
        """Name of the table and digest of the database."""
        return f"{self._rows.table}:{identity(self._rows.engine)}"

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession]:
        """One session per key, and per `agent_id` where the table has such a column."""
        del agent_id
        for group in self._rows.groups():
            session = MemorySession(group.session, KIND, (), group.agent_id)
            yield FoundSession(session, group.hash.hexdigest(), partial(self._load, group, reading))

    def _load(self, group: RowGroup, reading: Reading, problems: list[str]) -> list[Entry]:
        messages = []
        for row in self._rows.rows(group):
            raw = opened(row["data"], f"row {row['id']}", problems)
            if raw is not None:
                messages += recorded(raw, str(row["id"]), problems, stamp=row["timestamp"])
        return entries_of(group.session, messages, reading, problems)
