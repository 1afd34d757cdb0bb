"""What was begun and not finished: undone when it was not committed, completed when it was."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import numpy as np

from langchain_agentrag.errors import StoreError
from langchain_agentrag.store.catalog import Catalog, JournalEntry, PartitionRow
from langchain_agentrag.store.failpoints import failpoint
from langchain_agentrag.store.indexes import PartitionIndexes, is_index_name, terms_of
from langchain_agentrag.store.protocols import Rows

logger = logging.getLogger(__name__)


class Recovery:
    """Works off the journal; every method wants the write lock held.

    Args:
        catalog: The store's catalog.
        legs: Its legs.
    """

    def __init__(self, catalog: Catalog, legs: PartitionIndexes) -> None:
        self._catalog, self._indexes = catalog, legs

    def recover(self, *, thorough: bool = True, purge: bool = True) -> bool:
        """Finish what the journal lists. What cannot be finished stays listed and is tried again later.

        Args:
            thorough: Check both legs row by row against the catalog as well: after a kill or an error they may have
                lost more than the journal knows.
            purge: Also erase the terms of deleted rows.

        Returns:
            Whether the journal is empty now.
        """
        done, purged = True, []
        for entry in self._catalog.journal():
            if entry.state == "purging" and not purge:
                continue
            try:
                self._finish(entry, thorough=thorough)
            except Exception as error:  # noqa: BLE001  (a leg may fail in any way; the entry is kept)
                logger.warning("the journal entry %d is left for later: %s", entry.id, error)
                done = False
                continue
            if entry.state in {"purging", "dropping"}:
                purged.append(entry.id)
            else:
                self._catalog.clear_journal([entry.id])
                failpoint("journal-cleared")
        if purged and self._catalog.erase_free_space():
            self._catalog.clear_journal(purged)
            failpoint("erased")
        return done and not self._catalog.journal()

    def sweep(self) -> None:
        """Delete indexes that belong to no partition."""
        folders, collections = self.orphans()
        for name in folders:
            self._indexes.drop(keyword=name)
        for name in collections:
            self._indexes.drop(collection=name)

    def orphans(self) -> tuple[set[str], set[str]]:
        """Names of keyword folders and of collections that belong to no partition."""
        partitions = self._catalog.partitions()
        home = self._indexes.keyword_folder("")
        folders = {entry.name for entry in home.iterdir()} if home.is_dir() else set()
        try:
            collections = self._indexes.chroma.names() if self._indexes.chroma.exists() else set()
        except StoreError:
            collections = set()  # reported, or mended, with the partitions it holds
        return (
            folders - {partition.name for partition in partitions},
            collections - {partition.collection for partition in partitions},
        )

    def _finish(self, entry: JournalEntry, *, thorough: bool) -> None:
        partition = self._partition(entry.partition)
        match entry.state, entry.payload:
            case "dropping", dict(names) if _are_names(names):
                self._indexes.drop(names.get("keyword"), names.get("collection"))
                failpoint("forget-dropped")
            case "purging" | "writing" | "handing" as state, _:
                if partition is not None:
                    self._tidy(state, partition, entry.rows, thorough=thorough)
            case "cleaning", [*rows] if all(isinstance(row, int) for row in rows):
                if partition is not None:
                    self._remove(partition, rows, thorough=thorough)
            case _:
                logger.warning("the journal entry %d cannot be read: checking everything", entry.id)
                for each in self._catalog.partitions():
                    self._remove(each, [], thorough=True)
                self.sweep()

    def _tidy(self, state: str, partition: PartitionRow, rows: range, *, thorough: bool) -> None:
        match state:
            case "purging":
                self._purge(partition)
            case "writing":
                self._remove(partition, rows, thorough=thorough)
            case "handing":
                self._take_back(partition, rows, thorough=thorough)

    def _partition(self, key: int) -> PartitionRow | None:
        return next((found for found in self._catalog.partitions() if found.id == key), None)

    def _remove(self, partition: PartitionRow, rows: Iterable[int], *, thorough: bool) -> None:
        """Take rows out of both legs; a leg that cannot do it, or has lost rows, is rebuilt from the catalog."""
        live = self.live(partition)
        if isinstance(rows, range):
            rows = self._plausible(rows)
        dead = np.setdiff1d(np.fromiter(rows, dtype=np.int64), live).tolist()

        def clean_keywords() -> bool:
            leg = self._indexes.keyword_index(partition)
            leg.delete(dead)
            return not thorough or np.array_equal(leg.rows(), live)

        self._healed(clean_keywords, lambda: self._indexes.rebuild_keyword_index(partition))
        if partition.in_chroma:
            self._clean_vectors(partition, dead, thorough=thorough)
        failpoint("dead-rows-removed")

    def _take_back(self, partition: PartitionRow, rows: range, *, thorough: bool) -> None:
        """Take rows out of the collection that were not handed over in full; they wait again."""
        if partition.in_chroma:
            rows = self._plausible(range(max(rows.start, partition.indexed + 1), rows.stop))
            self._clean_vectors(partition, list(rows), thorough=thorough)

    def _clean_vectors(self, partition: PartitionRow, gone: list[int], *, thorough: bool) -> None:
        def clean() -> bool:
            leg, held = self._indexes.open_vector_index(partition), self.held(partition)
            leg.delete(gone)
            return not thorough or (np.array_equal(leg.rows(), held) and not leg.unreachable(held))

        self._healed(clean, lambda: self._indexes.rebuild_vector_index(partition))

    def _plausible(self, rows: range) -> range:
        """A damaged entry may claim any number of rows."""
        return range(rows.start, min(rows.stop, self._catalog.counter("row")))

    def _purge(self, partition: PartitionRow) -> None:
        def purge() -> bool:
            self._indexes.keyword_index(partition).purge(lambda rows: terms_of(self._catalog, rows))
            return True

        self._healed(purge, lambda: self._indexes.rebuild_keyword_index(partition))
        self._indexes.chroma.zero_unused()
        failpoint("purged")

    def live(self, partition: PartitionRow) -> Rows:
        """Live rows of a partition, ascending."""
        found = self._catalog.connection().execute(
            "SELECT row FROM chunks WHERE partition = ? ORDER BY row", (partition.id,)
        )
        return np.array([row for (row,) in found], dtype=np.int64)

    def held(self, partition: PartitionRow) -> Rows:
        """Live rows that were handed over to the partition's collection, ascending."""
        live = self.live(partition)
        return live[live <= partition.indexed]

    @staticmethod
    def _healed(attempt: Callable[[], bool], rebuild: Callable[[], object]) -> None:
        try:
            if attempt():
                return
            reason = "it differs from the catalog"
        except Exception as error:  # noqa: BLE001  (however a leg fails, the remedy is the same)
            reason = str(error)
        logger.warning("rebuilding an index from the catalog: %s", reason)
        rebuild()


def _are_names(payload: dict[str, object]) -> bool:
    """Whether a payload names indexes, and nothing else: what it names is deleted."""
    return payload.keys() <= {"keyword", "collection"} and all(
        value is None or (isinstance(value, str) and is_index_name(value)) for value in payload.values()
    )
