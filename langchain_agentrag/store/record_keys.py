"""Keys of LangChain's indexing API (record manager), stored in the catalog beside the documents.

A record counts only while its document is in the store, so that an emptied store is filled again instead of being
reported as up to date.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from langchain_agentrag.store.calls import RunningCalls, store_call
from langchain_agentrag.store.catalog import Catalog, select_in
from langchain_agentrag.store.purging import NO_PARTITION, insert_purge_entry
from langchain_agentrag.store.queries import NOT_EXPIRED
from langchain_agentrag.times import to_microseconds


class RecordKeys:
    """Record keys of one owner in one namespace; those of other owners are out of reach.

    Args:
        catalog: The store's catalog.
        calls: Its running calls.
        owner: Agent, or None for shared.
        namespace: Distinguishes several sources of one owner.
        clock: Returns the present; an expired document counts as absent.
        on_delete: Called after records were deleted, so that they are purged from disk.
    """

    def __init__(
        self,
        catalog: Catalog,
        calls: RunningCalls,
        owner: str | None,
        namespace: str,
        clock: Callable[[], datetime],
        on_delete: Callable[[], None],
    ) -> None:
        self._catalog, self._calls, self._clock, self._on_delete = catalog, calls, clock, on_delete
        self._owner, self._namespace = owner, namespace
        self._key = (owner or "", namespace)

    @store_call
    def now(self) -> float:
        """Return the present as a timestamp, never earlier than that of any record of the owner."""
        query = "SELECT max(updated) FROM records WHERE owner = ?"
        return max(time.time(), self._catalog.fetch_value(query, (self._owner or "",)) or 0.0)

    @store_call
    def put(self, keys: Sequence[str], groups: Sequence[str | None], updated: float) -> None:
        """Insert or update records."""
        records = [(*self._key, key, group, updated) for key, group in zip(keys, groups, strict=True)]
        with self._catalog.transaction() as connection:
            stored = dict(
                select_in(
                    connection,
                    "SELECT key, grp FROM records WHERE owner = ? AND namespace = ? AND key IN (...)",
                    keys,
                    before=self._key,
                )
            )
            connection.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)", records)
            renamed = any(stored.get(key) not in {None, group} for key, group in zip(keys, groups, strict=True))
            if renamed:
                insert_purge_entry(connection, NO_PARTITION)
        if renamed:
            self._on_delete()

    @store_call
    def existing(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are recorded and whose document is in the store."""
        query = (
            "SELECT r.key FROM records r JOIN partitions p ON p.owner IS ? "
            "JOIN documents d ON d.partition = p.id AND d.doc_id = r.key "
            f"WHERE r.owner = ? AND r.namespace = ? AND r.key IN (...) AND {NOT_EXPIRED}"
        )
        before, after = (self._owner, *self._key), (to_microseconds(self._clock()),)
        connection = self._catalog.connection()
        return {key for (key,) in select_in(connection, query, keys, before=before, after=after)}

    @store_call
    def keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        groups: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return recorded keys, oldest first, filtered by time of the last update and by group."""
        query = "SELECT updated, key FROM records WHERE owner = ? AND namespace = ? AND updated < ? AND updated > ?"
        values = (*self._key, math.inf if before is None else before, -math.inf if after is None else after)
        connection = self._catalog.connection()
        if groups is None:
            records = connection.execute(query, values).fetchall()
        else:
            records = list(select_in(connection, f"{query} AND grp IN (...)", groups, before=values))
        return [key for _, key in sorted(records)][:limit]

    @store_call
    def remove(self, keys: Sequence[str]) -> None:
        """Delete records; absent ones are ignored."""
        query = "DELETE FROM records WHERE owner = ? AND namespace = ? AND key = ?"
        with self._catalog.transaction() as connection:
            deleted = connection.executemany(query, [(*self._key, key) for key in keys]).rowcount
            if deleted > 0:  # groups are names of sources, which may be as private as texts
                insert_purge_entry(connection, NO_PARTITION)
        if deleted > 0:
            self._on_delete()
