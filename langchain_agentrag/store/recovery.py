"""Crash recovery: undo uncommitted work listed in the journal, finish committed work."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np

from langchain_agentrag.errors import StoreError
from langchain_agentrag.store.catalog import Catalog, JournalEntry, PartitionRow
from langchain_agentrag.store.failpoints import failpoint
from langchain_agentrag.store.indexes import PartitionIndexes, deleted_rows, is_index_name, live_rows, run_or_rebuild
from langchain_agentrag.store.protocols import Rows

logger = logging.getLogger(__name__)


class Recovery:
    """Processes the journal. The caller of every method holds the write lock.

    Args:
        catalog: The store's catalog.
        indexes: Its indexes.
    """

    def __init__(self, catalog: Catalog, indexes: PartitionIndexes) -> None:
        self._catalog, self._indexes = catalog, indexes

    def recover(self, *, thorough: bool = True) -> bool:
        """Finish what the journal lists. An entry that cannot be finished stays and is tried again later.

        Args:
            thorough: Also compare both indexes with the catalog row by row: after a kill or an error they may have lost
                more than the journal lists.

        Returns:
            Whether all of it is finished.
        """
        complete = True
        for entry in self._catalog.journal():
            try:
                self._finish(entry, thorough=thorough)
            except Exception as error:  # noqa: BLE001  (an index may fail in any way; the entry stays)
                logger.warning("the journal entry %d is left for later: %s", entry.id, error)
                complete = False
                continue
            self._catalog.clear_journal([entry.id])
            failpoint("journal-cleared")
        return complete

    def drop_orphans(self) -> None:
        """Delete indexes that belong to no partition."""
        folders, collections = self.orphans()
        for name in folders:
            self._indexes.drop(keyword=name)
        for name in collections:
            self._indexes.drop(collection=name)

    def orphans(self) -> tuple[set[str], set[str]]:
        """Return the names of keyword folders and of collections that belong to no partition."""
        partitions = self._catalog.partitions()
        parent = self._indexes.keyword_folder("")
        folders = {entry.name for entry in parent.iterdir()} if parent.is_dir() else set()
        try:
            collections = self._indexes.chroma.collection_names() if self._indexes.chroma.exists() else set()
        except StoreError:
            collections = set()  # reported, or rebuilt, with the partitions it holds
        return (
            folders - {partition.name for partition in partitions},
            collections - {partition.collection for partition in partitions},
        )

    def live_rows(self, partition: PartitionRow) -> Rows:
        """Return the live rows of a partition, ascending."""
        return live_rows(self._catalog, partition)

    def indexed_rows(self, partition: PartitionRow) -> Rows:
        """Return the live rows that the partition's collection has to hold, ascending."""
        return live_rows(self._catalog, partition, until=partition.indexed)

    def unpurged_rows(self, partition: PartitionRow) -> list[int]:
        """Return the deleted rows that the partition's collection may hold until they are purged."""
        entries = [entry for entry in self._catalog.purges() if entry.partition == partition.id]
        return [row for entry in entries if isinstance(entry.payload, dict) for row in entry.payload.get("rows", [])]

    def _finish(self, entry: JournalEntry, *, thorough: bool) -> None:
        partition = next((part for part in self._catalog.partitions() if part.id == entry.partition), None)
        match entry.state, entry.payload:
            case "dropping", dict(names) if _are_index_names(names):
                self._indexes.drop(names.get("keyword"), names.get("collection"))
                failpoint("forget-dropped")
            case "writing" | "handing" as state, _:
                if partition is None:
                    return
                if state == "writing":
                    self._remove_rows(partition, self._allocated(entry.rows), thorough=thorough)
                else:
                    self._remove_unconfirmed(partition, entry.rows, thorough=thorough)
            case "cleaning", [*rows] if all(isinstance(row, int) for row in rows):
                if partition is not None:
                    self._clean_keyword_index(partition, rows, thorough=thorough)
            case _:
                logger.warning("the journal entry %d cannot be read: checking everything", entry.id)
                for each in self._catalog.partitions():
                    self._remove_rows(each, [], thorough=True)
                self.drop_orphans()

    def _remove_rows(self, partition: PartitionRow, rows: Iterable[int], *, thorough: bool) -> None:
        """Delete dead rows from both indexes; an index that fails, or has lost rows, is rebuilt from the catalog."""
        dead = deleted_rows(self._catalog, rows)
        self._clean_keyword_index(partition, dead, thorough=thorough)
        if partition.in_chroma:
            self._clean_vector_index(partition, dead, thorough=thorough)

    def _clean_keyword_index(self, partition: PartitionRow, rows: Iterable[int], *, thorough: bool) -> None:
        """Delete dead rows from the keyword index; in the collection, the catalog hides them until they are purged."""
        dead = deleted_rows(self._catalog, rows)

        def clean() -> bool:
            keyword_index = self._indexes.keyword_index(partition)
            keyword_index.delete(dead)
            return not thorough or np.array_equal(keyword_index.rows(), self.live_rows(partition))

        run_or_rebuild(clean, lambda: self._indexes.rebuild_keyword_index(partition))
        failpoint("dead-rows-removed")

    def _remove_unconfirmed(self, partition: PartitionRow, rows: range, *, thorough: bool) -> None:
        """Delete rows of an unfinished slice from the collection; they are unindexed again."""
        if partition.in_chroma:
            unconfirmed = self._allocated(range(max(rows.start, partition.indexed + 1), rows.stop))
            self._clean_vector_index(partition, list(unconfirmed), thorough=thorough)

    def _clean_vector_index(self, partition: PartitionRow, dead: list[int], *, thorough: bool) -> None:
        def clean() -> bool:
            vector_index = self._indexes.open_vector_index(partition)
            vector_index.delete(dead)
            if not thorough:
                return True
            expected = self.indexed_rows(partition)
            vector_index.delete(self.unpurged_rows(partition))
            return np.array_equal(vector_index.rows(), expected) and not vector_index.unreachable(expected)

        run_or_rebuild(clean, lambda: self._indexes.rebuild_vector_index(partition))

    def _allocated(self, rows: range) -> range:
        """Cut a range at the last row id ever reserved: a damaged entry may list any number of rows."""
        return range(rows.start, min(rows.stop, self._catalog.counter("row")))


def _are_index_names(payload: dict[str, object]) -> bool:
    """Whether a payload names indexes, and nothing else: what it names is deleted."""
    return payload.keys() <= {"keyword", "collection"} and all(
        value is None or (isinstance(value, str) and is_index_name(value)) for value in payload.values()
    )
