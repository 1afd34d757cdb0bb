"""Purging: what was deleted is erased from disk.

A delete hides documents with its commit and notes in the journal what is left of them on disk: vectors in Chroma and in
the embedding cache, terms in the keyword index, texts and names in the write-ahead log. Purging removes that, for all
documents deleted so far at once, since it rewrites parts of files that hold other documents too. It runs in the
background (`background_indexing.py`), when the store is closed or opened, and at once for `erase` and `forget`.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from langchain_agentrag.store.catalog import Catalog, JournalEntry, PartitionRow, insert_journal_entry
from langchain_agentrag.store.failpoints import failpoint
from langchain_agentrag.store.indexes import PartitionIndexes, deleted_rows, live_rows, live_terms, run_or_rebuild
from langchain_agentrag.store.queries import has_names_of

logger = logging.getLogger(__name__)

NO_PARTITION = 0
"""Partition of entries of names that belong to no partition, such as that of a file without a document."""

_ANY_ROW = 0  # no row has this id: it has the files of a collection purged
_BACKGROUND_PATIENCE = 0.5  # seconds to wait for readers of old snapshots in the background


@dataclass(frozen=True, slots=True)
class Unpurged:
    """What waits to be erased from disk: deleted and replaced documents, and since when."""

    documents: int = 0
    since: datetime | None = None


@dataclass(slots=True)
class _Work:
    """What is to be purged of one partition."""

    rows: list[int] = field(default_factory=list)
    cached: int = 0


def insert_purge_entry(
    connection: sqlite3.Connection, partition: int, rows: Sequence[int] = (), documents: int = 0
) -> None:
    """Note within a transaction that something deleted is still on disk.

    Args:
        connection: The open transaction.
        partition: The partition.
        rows: Deleted rows that its collection may hold.
        documents: Number of documents that were deleted or replaced.
    """
    # vectors cached before this moment may be of the deleted documents; later ones are of failed writes
    query = "SELECT max(rowid) FROM embedding_cache WHERE partition = ?"
    cached = connection.execute(query, (partition,)).fetchone()[0] or 0
    payload = {"rows": list(rows), "documents": documents, "since": time.time(), "cached": cached}
    insert_journal_entry(connection, partition, "purging", payload)


class Purger:
    """Erases deleted documents from disk.

    Args:
        catalog: The store's catalog.
        indexes: Its indexes.
    """

    def __init__(self, catalog: Catalog, indexes: PartitionIndexes) -> None:
        self._catalog, self._indexes = catalog, indexes

    def unpurged(self, partitions: Collection[int] | None = None) -> Unpurged:
        """Return what waits to be erased, of some partitions or of the whole store."""
        entries = [entry for entry in self._entries() if partitions is None or entry.partition in partitions]
        payloads = [_payload(entry) for entry in entries]
        since = min((payload["since"] for payload in payloads), default=None)
        documents = sum(payload["documents"] for payload in payloads)
        return Unpurged(documents, None if since is None else datetime.fromtimestamp(since, UTC))

    def request_all(self) -> None:
        """Note that every partition is to be purged, also of what earlier versions of the package left on disk."""
        with self._catalog.transaction() as connection:
            for partition in self._catalog.partitions():
                insert_purge_entry(connection, partition.id, [_ANY_ROW])

    def rewrite_terms(self, limit: int) -> bool:
        """Begin to purge keyword indexes, so that `purge` takes less time; the caller holds the write lock.

        Args:
            limit: Number of rows to rewrite at most.

        Returns:
            Whether there was something to do.
        """
        waiting = {entry.partition for entry in self._entries()}
        for partition in self._catalog.partitions():
            if partition.id in waiting and partition.documents:
                keyword_index = self._indexes.keyword_index(partition)
                if not keyword_index.purge(lambda rows: live_terms(self._catalog, rows), limit):
                    return True
        return False

    def purge(self, *, patient: bool = True, stay_open: bool = True) -> bool:
        """Erase everything deleted so far; the caller holds the write lock and has finished the rest of the journal.

        Args:
            patient: Whether to wait for readers that hold an old snapshot of the catalog.
            stay_open: Whether Chroma is opened again for the next search.

        Returns:
            Whether nothing is left; what could not be erased is tried again later.
        """
        entries = self._entries()
        if not entries:
            return True
        failpoint("purge-started")
        work = _by_partition(entries)
        partitions = [partition for partition in self._catalog.partitions() if partition.id in work]
        try:
            current = [each for each in partitions if not self._dropped_empty(each)]
            for partition in current:
                self._purge_cache(partition, work[partition.id].cached)
                self._purge_terms(partition)
            self._purge_vectors([(each, work[each.id].rows) for each in current if each.in_chroma], stay_open)
            self._note_purged(entries)
        except Exception as error:  # noqa: BLE001  (an index may fail in any way; the entries stay)
            logger.warning("deleted documents could not be erased yet: %s", error)
            return False
        failpoint("indexes-purged")
        if not self._catalog.truncate_wal(None if patient else _BACKGROUND_PATIENCE):
            return False
        if not self._catalog.finish_purge([entry.id for entry in entries]):
            return False
        failpoint("erased")
        return not self._entries()

    def _entries(self) -> list[JournalEntry]:
        return self._catalog.purges()

    def _dropped_empty(self, partition: PartitionRow) -> bool:
        """Drop an agent's partition without documents: its name is all that is left of the agent."""
        if partition.owner is None or partition.documents or has_names_of(self._catalog.connection(), partition.owner):
            return False
        with self._catalog.transaction() as connection:
            entry = drop_partition(connection, partition)
        self._indexes.close_partition(partition)
        self._indexes.drop(partition.name, partition.collection)
        self._catalog.clear_journal([entry])
        return True

    def _purge_cache(self, partition: PartitionRow, cached: int) -> None:
        with self._catalog.transaction() as connection:
            query = "DELETE FROM embedding_cache WHERE partition = ? AND rowid <= ?"
            connection.execute(query, (partition.id, cached))

    def _purge_terms(self, partition: PartitionRow) -> None:
        def purge() -> bool:
            self._indexes.keyword_index(partition).purge(lambda rows: live_terms(self._catalog, rows))
            return True

        run_or_rebuild(purge, lambda: self._indexes.rebuild_keyword_index(partition))
        failpoint("purged")

    def _purge_vectors(self, work: Sequence[tuple[PartitionRow, list[int]]], stay_open: bool) -> None:  # noqa: FBT001
        """Delete rows from their collections and erase them from Chroma's files."""
        if not any(rows for _, rows in work):
            return
        # a kill while Chroma writes its files may tear them: this entry has them checked at the next opening
        entry = self._catalog.add_journal_entry(work[0][0].id, "handing", None)
        live = {}
        for partition, rows in work:
            dead = deleted_rows(self._catalog, rows)
            current = self._delete_vectors(partition, dead) if dead else partition
            if dead and current.collection is not None:
                live[current.collection] = live_rows(self._catalog, current, until=current.indexed)
        failpoint("vectors-deleted")
        unknown = self._indexes.chroma.delete_leftovers(live, stay_open=stay_open)
        for partition, _ in work:
            if partition.collection in unknown:
                self._indexes.rebuild_vector_index(partition)
        failpoint("vectors-erased")
        self._catalog.clear_journal([entry])

    def _delete_vectors(self, partition: PartitionRow, rows: list[int]) -> PartitionRow:
        """Delete rows from a collection; return the partition, with a new collection if the old one was damaged."""

        def delete() -> bool:
            self._indexes.open_vector_index(partition).delete(rows)
            return True

        run_or_rebuild(delete, lambda: self._indexes.rebuild_vector_index(partition))
        return self._catalog.partition(partition.owner) or partition

    def _note_purged(self, entries: Iterable[JournalEntry]) -> None:
        """Note that only the write-ahead log is left to be emptied."""
        with self._catalog.transaction() as connection:
            for entry in entries:
                payload = json.dumps({**_payload(entry), "rows": [], "cached": 0})
                connection.execute("UPDATE journal SET dead = ? WHERE id = ?", (payload, entry.id))


def drop_partition(connection: sqlite3.Connection, partition: PartitionRow) -> int:
    """Delete a partition from the catalog within a transaction, with all its documents.

    Returns:
        The id of the journal entry that names its indexes, which have to be deleted.
    """
    rows = "(SELECT row FROM chunks WHERE partition = ?)"
    connection.execute(f"DELETE FROM vectors WHERE row IN {rows}", (partition.id,))
    for table in ("expiry", "quarantine", "chunks", "documents", "embedding_cache"):
        connection.execute(f"DELETE FROM {table} WHERE partition = ?", (partition.id,))
    connection.execute("DELETE FROM partitions WHERE id = ?", (partition.id,))
    names = {"keyword": partition.name, "collection": partition.collection}
    return insert_journal_entry(connection, partition.id, "dropping", names)


def _by_partition(entries: Iterable[JournalEntry]) -> dict[int, _Work]:
    work: dict[int, _Work] = {}
    for entry in entries:
        each = work.setdefault(entry.partition, _Work())
        payload = _payload(entry)
        each.rows += payload["rows"]
        each.cached = max(each.cached, payload["cached"])
    return work


def _payload(entry: JournalEntry) -> dict[str, Any]:
    """Return the payload of an entry; one of an earlier version is a list of rows."""
    defaults = {"rows": [], "documents": 0, "since": 0.0, "cached": 0}
    return defaults | (entry.payload if isinstance(entry.payload, dict) else {"rows": entry.payload or []})
