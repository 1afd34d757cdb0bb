"""The package's own memory table as a backend."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from langchain_agentrag.connectors.memory.backend import FoundSession, MemorySession
from langchain_agentrag.connectors.memory.dialogue import Reading
from langchain_agentrag.connectors.memory.table import SOURCE, MemoryTable, StoredSession

if TYPE_CHECKING:
    from langchain_agentrag.connectors.memory.turns import Entry

KIND: Final = "agentrag"
COLUMNS: Final = frozenset({"entry_key", "agent_key", "session_key", "names", "data"})


class OwnTable:
    """Turns and tool calls that were recorded by this package; each of them names its agent."""

    kind = KIND
    label = SOURCE  # entries have the ids that the recorder gives them

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def __repr__(self) -> str:
        return repr(self._table)

    @property
    def place(self) -> str:
        """Name of the table and digest of the database."""
        return self._table.identity

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession]:
        """Sessions of the wanted agent, or of every one."""
        del reading  # nothing in it is left to be read in one way or another
        for stored in self._table.sessions(agent_id):
            session = MemorySession(stored.session, KIND, (), stored.agent_id)
            yield FoundSession(session, stored.version, partial(self._load, stored))

    def _load(self, stored: StoredSession, problems: list[str]) -> list[Entry]:
        del problems
        return self._table.read(stored.agent_id, session=stored.session)
