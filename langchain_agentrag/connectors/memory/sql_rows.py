"""Rows of a database table by session: one pass tells what changed, a second reads what is asked for."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.memory.database import reported

if TYPE_CHECKING:
    from sqlalchemy import Engine, Select

_AT_ONCE: Final = 500
_AGENT: Final = "agent_id"


@dataclass(slots=True)
class RowGroup:
    """The rows of one session.

    Attributes:
        session: Name of the session.
        agent_id: What the column `agent_id` says, or None.
        first: Values of its first row, without the payload.
        ids: Primary keys of its rows, in order.
        hash: Digest of all that they hold.
    """

    session: str
    agent_id: str | None
    first: Mapping[str, Any]
    ids: array[int] | list[Any] = field(default_factory=lambda: array("q"))
    hash: Any = field(default_factory=hashlib.sha256)


class SessionRows:
    """A table whose rows belong to sessions. Session names are compared by us, not by the database's collation.

    Args:
        engine: The database.
        table: Name of the table, with its schema and a dot where it is not the default one.
        columns: Names of all its columns.
        key: Column of the primary key.
        session: Column of the session.
        payload: Column of the message, which `first` leaves out.
        order: Columns that rows are ordered by.
    """

    def __init__(
        self,
        engine: Engine,
        table: str,
        columns: Sequence[str],
        *,
        key: str,
        session: str,
        payload: str,
        order: Sequence[str],
    ) -> None:
        self.engine, self.table = engine, table
        self._columns, self._key, self._session, self._payload = list(columns), key, session, payload
        self._order = order

    def groups(self) -> list[RowGroup]:
        """The sessions, in order of their first rows.

        Raises:
            ConnectorError: the table cannot be read.
        """
        found: dict[tuple[str, str | None], RowGroup] = {}
        with reported(self.engine, f"read the table {self.table!r}"), self.engine.connect() as connection:
            rows = connection.execution_options(stream_results=True, yield_per=1_000).execute(self._query())
            for row in rows.mappings():
                name, agent = self._owner(row)
                group = found.get((name, agent))
                if group is None:
                    first = {key: value for key, value in row.items() if key != self._payload}
                    group = found[name, agent] = RowGroup(name, agent, first)
                group.hash.update(repr(tuple(row.values())).encode("utf-8", "surrogatepass"))
                _append(group, row[self._key])
        return list(found.values())

    def rows(self, group: RowGroup) -> Iterator[Mapping[str, Any]]:
        """Rows of a session that are still there, in order.

        Raises:
            ConnectorError: the table cannot be read.
        """
        for start in range(0, len(group.ids), _AT_ONCE):
            wanted = list(group.ids[start : start + _AT_ONCE])
            with reported(self.engine, f"read the table {self.table!r}"), self.engine.connect() as connection:
                found = connection.execute(self._query(wanted)).mappings().all()
            for row in found:
                if self._owner(row) == (group.session, group.agent_id):
                    yield {str(name): value for name, value in row.items()}

    def _query(self, wanted: list[Any] | None = None) -> Select[Any]:
        from sqlalchemy import column, select
        from sqlalchemy import table as named

        schema, _, name = self.table.rpartition(".")
        source = named(name, *map(column, self._columns), schema=schema or None)
        query = select(source).order_by(*(source.c[name] for name in self._order))
        return query if wanted is None else query.where(source.c[self._key].in_(wanted))

    def _owner(self, row: Mapping[Any, Any]) -> tuple[str, str | None]:
        session, agent = row[self._session], row.get(_AGENT)
        return "" if session is None else str(session), None if agent is None else str(agent)


def _append(group: RowGroup, key: object) -> None:
    if isinstance(group.ids, array):
        if isinstance(key, int) and -(2**63) <= key < 2**63:
            group.ids.append(key)
            return
        group.ids = list(group.ids)
    group.ids.append(key)
