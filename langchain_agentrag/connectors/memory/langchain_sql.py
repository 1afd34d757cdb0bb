"""Tables of LangChain's `SQLChatMessageHistory` and `PostgresChatMessageHistory`: one JSON message per row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.memory.backend import Backend, FoundSession, MemorySession, recorded
from langchain_agentrag.connectors.memory.database import identity
from langchain_agentrag.connectors.memory.dialogue import Reading, entries_of
from langchain_agentrag.connectors.memory.sql_rows import RowGroup, SessionRows
from langchain_agentrag.connectors.sql.engine import shown

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from langchain_agentrag.connectors.memory.turns import Entry

KIND: Final = "langchain-sql"
_KEY, _MESSAGE = "id", "message"
_STAMPS: Final = ("created_at", "timestamp", "time")


def session_column(columns: Sequence[str]) -> str | None:
    """The column that names the session, or None when these are not columns of such a table."""
    if not {_KEY, _MESSAGE} <= set(columns):
        return None
    named = [name for name in columns if "session" in name.lower()]
    return "session_id" if "session_id" in named else named[0] if len(named) == 1 else None


class LangChainTable(Backend):
    """Chat histories in a table."""

    kind = KIND

    def __init__(self, engine: Engine, table: str, columns: Sequence[str]) -> None:
        self._session = session_column(columns) or "session_id"
        self._rows = SessionRows(
            engine, table, columns, key=_KEY, session=self._session, payload=_MESSAGE, order=(_KEY,)
        )

    def __repr__(self) -> str:
        return f"{self._rows.table!r} of {shown(self._rows.engine)}"

    @property
    def place(self) -> str:
        """Name of the table and digest of the database."""
        return f"{self._rows.table}:{identity(self._rows.engine)}"

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession]:
        """One session per value of the session column, and of `agent_id` where the table has such a column."""
        del agent_id
        for group in self._rows.groups():
            told = {key: value for key, value in group.first.items() if key not in {_KEY, self._session}}
            session = MemorySession(group.session, KIND, (), group.agent_id, told)
            yield FoundSession(session, group.hash.hexdigest(), partial(self._load, group, reading))

    def _load(self, group: RowGroup, reading: Reading, problems: list[str]) -> list[Entry]:
        messages = []
        for row in self._rows.rows(group):
            stamp = next((row[name] for name in _STAMPS if row.get(name) is not None), None)
            extra = {
                key: value
                for key, value in row.items()
                if key not in {_KEY, _MESSAGE, self._session, *_STAMPS}
            }
            raw = opened(row[_MESSAGE], f"row {row[_KEY]}", problems)
            if raw is not None:
                messages += recorded(raw, str(row[_KEY]), problems, stamp=stamp, extra=extra)
        return entries_of(group.session, messages, reading, problems)


def opened(stored: Any, place: str, problems: list[str]) -> Mapping[str, Any] | None:  # noqa: ANN401  (text, bytes or read already)
    """A stored message as a mapping; None, and a sentence among the problems, when it is none."""
    if isinstance(stored, Mapping):
        return stored
    try:
        raw = json.loads(stored)
        if isinstance(raw, str):
            raw = json.loads(raw)  # encoded twice
    except (ValueError, TypeError, RecursionError) as error:
        problems.append(f"{place} holds no JSON: {error}")
        return None
    if isinstance(raw, Mapping):
        return raw
    problems.append(f"{place} holds JSON that is no message")
    return None
