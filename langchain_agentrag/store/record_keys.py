"""What an outside indexing run has written: LangChain's record of keys, kept in the catalog beside the documents.

A record counts only while its document is there, so that a store that was emptied is filled again instead of being
reported as up to date.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.times import to_microseconds

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records(
    owner TEXT NOT NULL,                    -- '' for shared: no agent id is empty
    namespace TEXT NOT NULL, key TEXT NOT NULL, grp TEXT, updated REAL NOT NULL,
    PRIMARY KEY(owner, namespace, key)
) WITHOUT ROWID
"""


class RecordKeys:
    """Records of one owner in one namespace; no other owner's are reachable.

    Args:
        catalog: The store's catalog.
        owner: Agent, or None for shared.
        namespace: Tells several sources of one owner apart.
        clock: The present; a document that has expired is not there.
    """

    def __init__(
        self, catalog: Catalog, owner: str | None, namespace: str, clock: Callable[[], datetime]
    ) -> None:
        self._catalog, self._clock = catalog, clock
        self._owner, self._namespace = owner, namespace
        self._place = (owner or "", namespace)

    def prepare(self) -> None:
        """Make the table unless it is there."""
        if not _has_table(self._catalog):
            with self._catalog.transaction() as connection:
                connection.execute(_SCHEMA)

    def now(self) -> float:
        """The time, never earlier than any record."""
        self.prepare()
        latest = self._catalog.connection().execute("SELECT max(updated) FROM records").fetchone()[0]
        return max(time.time(), latest or 0.0)

    def put(self, keys: Sequence[str], groups: Sequence[str | None], updated: float) -> None:
        """Add or renew records."""
        self.prepare()
        with self._catalog.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)",
                [(*self._place, key, group, updated) for key, group in zip(keys, groups, strict=True)],
            )

    def living(self, keys: Sequence[str]) -> set[str]:
        """Those of the keys that are recorded and whose document is in the store."""
        self.prepare()
        found: set[str] = set()
        for part in _parts(keys):
            marks = ",".join("?" * len(part))
            found.update(
                key
                for (key,) in self._catalog.connection().execute(
                    "SELECT r.key FROM records r JOIN partitions p ON p.owner IS ? "
                    "JOIN documents d ON d.partition = p.id AND d.doc_id = r.key "
                    f"WHERE r.owner = ? AND r.namespace = ? AND r.key IN ({marks}) "
                    "AND NOT EXISTS (SELECT 1 FROM expiry e WHERE e.document = d.id AND e.at <= ?)",
                    (self._owner, *self._place, *part, to_microseconds(self._clock())),
                )
            )
        return found

    def keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        groups: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Recorded keys, oldest first, last renewed before or after a time, of some groups."""
        self.prepare()
        wanted: list[Any] = [None] if groups is None else list(_parts(groups))
        found: list[tuple[float, str]] = []
        for part in wanted:
            conditions = ["owner = ?", "namespace = ?"]
            values: list[Any] = [*self._place]
            for clause, value in (("updated < ?", before), ("updated > ?", after)):
                if value is not None:
                    conditions.append(clause)
                    values.append(value)
            if part is not None:
                conditions.append(f"grp IN ({','.join('?' * len(part))})")
                values += part
            query = f"SELECT updated, key FROM records WHERE {' AND '.join(conditions)}"
            found += self._catalog.connection().execute(query, values).fetchall()
        return [key for _, key in sorted(found)][:limit]

    def remove(self, keys: Sequence[str]) -> None:
        """Remove records; absent ones are ignored."""
        self.prepare()
        with self._catalog.transaction() as connection:
            connection.executemany(
                "DELETE FROM records WHERE owner = ? AND namespace = ? AND key = ?",
                [(*self._place, key) for key in keys],
            )


def delete_record_keys(catalog: Catalog, owner: str) -> None:
    """Remove every record of an owner: groups are names of sources, which may tell as much as the texts."""
    if _has_table(catalog):
        with catalog.transaction() as connection:
            connection.execute("DELETE FROM records WHERE owner = ?", (owner,))


def _parts(values: Sequence[str], size: int = 500) -> Iterator[Sequence[str]]:
    """Slices small enough for one statement's bound parameters."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _has_table(catalog: Catalog) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = 'records'"
    return catalog.connection().execute(query).fetchone() is not None
