"""Indexes of all partitions: open handles, rebuilding from the catalog, deletion.

Rebuilding needs neither analysis nor embedding: terms and vectors are stored in the catalog.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from langchain_agentrag.errors import StoreError, StoreLockedError
from langchain_agentrag.store.catalog import Catalog, PartitionRow, insert_journal_entry, select_in
from langchain_agentrag.store.chroma import READ_LOCK_TIMEOUT, ChromaFolder
from langchain_agentrag.store.columnar_cache import ColumnarCache, unpack_vectors
from langchain_agentrag.store.commit import pack_lengths, pack_terms, split_fields, unpack_terms
from langchain_agentrag.store.failpoints import failpoint
from langchain_agentrag.store.fork import check_chroma_usable
from langchain_agentrag.store.keyword_index import TantivyKeywordIndex
from langchain_agentrag.store.lock import WriteLock
from langchain_agentrag.store.protocols import KeywordIndex, Rows, VectorIndex
from langchain_agentrag.store.vector_index import ChromaVectorIndex
from langchain_agentrag.text import FIELDS, Analyzer

logger = logging.getLogger(__name__)

_PAGE = 2_000
_MAX_OPEN_PARTITIONS = 256
_MAX_UNSEEN_ROWS = 4_000  # indexed by other processes, unseen by the Chroma client, scanned exactly
_INDEX_NAME = re.compile(r"(shared|agent)-[0-9a-f]{32}")
_Handle = TypeVar("_Handle")


def fill_keyword_index(catalog: Catalog, partition: int, keyword_index: KeywordIndex) -> None:
    """Add all live rows of a partition to an empty keyword index."""
    query = "SELECT row, terms, lengths FROM chunks WHERE partition = ? AND row > ? ORDER BY row LIMIT ?"
    last = -1
    while page := catalog.connection().execute(query, (partition, last, _PAGE)).fetchall():
        terms = [unpack_terms(packed, lengths) for _, packed, lengths in page]
        keyword_index.add([row for row, _, _ in page], terms)
        last = page[-1][0]


def live_terms(catalog: Catalog, rows: Sequence[int]) -> list[tuple[int, dict[str, str]]]:
    """Return (row, terms of each field separated by spaces) of the live ones of the rows."""
    live = select_in(catalog.connection(), "SELECT row, terms FROM chunks WHERE row IN (...)", rows)
    return [(row, split_fields(packed)) for row, packed in live]


def fill_vector_index(catalog: Catalog, partition: int, vector_index: VectorIndex, until: int) -> None:
    """Add the live rows of a partition, up to the row `until`, to an empty vector index."""
    last = -1
    while page := vectors_after(catalog, partition, last, _PAGE, until):
        vector_index.add([row for row, _ in page], unpack_vectors([vector for _, vector in page]))
        last = page[-1][0]


def vectors_after(
    catalog: Catalog, partition: int, row: int, limit: int, until: int = sys.maxsize
) -> list[tuple[int, bytes]]:
    """Return the next live rows of a partition with their packed vectors, ascending."""
    query = (
        "SELECT row, vector FROM chunks JOIN vectors USING (row) "
        "WHERE partition = ? AND row > ? AND row <= ? ORDER BY row LIMIT ?"
    )
    return catalog.connection().execute(query, (partition, row, until, limit)).fetchall()


def live_rows(catalog: Catalog, partition: PartitionRow, *, until: int = sys.maxsize) -> Rows:
    """Return the live rows of a partition up to the row `until`, ascending."""
    query = "SELECT row FROM chunks WHERE partition = ? AND row <= ? ORDER BY row"
    rows = catalog.connection().execute(query, (partition.id, until))
    return np.fromiter((row for (row,) in rows), dtype=np.int64)


def deleted_rows(catalog: Catalog, rows: Iterable[int]) -> list[int]:
    """Return those of the rows that are not live, ascending."""
    wanted = np.unique(np.fromiter(rows, dtype=np.int64)).tolist()
    query = "SELECT row FROM chunks WHERE row IN (...)"
    live = {row for (row,) in select_in(catalog.connection(), query, wanted)}
    return [row for row in wanted if row not in live]


def run_or_rebuild(attempt: Callable[[], bool], rebuild: Callable[[], object]) -> None:
    """Work on an index; rebuild it when that fails, or returns that it differs from the catalog."""
    try:
        if attempt():
            return
        reason = "it differs from the catalog"
    except Exception as error:  # noqa: BLE001  (however an index fails, rebuilding it is the remedy)
        reason = str(error)
    logger.warning("rebuilding an index from the catalog: %s", reason)
    rebuild()


def reanalyze_chunks(catalog: Catalog, analyzer: Analyzer) -> None:
    """Analyse every stored text again; the keyword indexes have to be rebuilt afterwards."""
    query = "SELECT row, text, context FROM chunks WHERE partition = ? AND row > ? ORDER BY row LIMIT ?"
    with catalog.transaction() as connection:
        for partition in catalog.partitions():
            totals, last = [0] * len(FIELDS), -1
            while page := connection.execute(query, (partition.id, last, _PAGE)).fetchall():
                for row, text, context in page:
                    terms = analyzer.analyze(text, context)
                    lengths = [terms.lengths.get(name, 0) for name in FIELDS]
                    totals = [total + length for total, length in zip(totals, lengths, strict=True)]
                    values = pack_terms(terms), pack_lengths(terms), row
                    connection.execute("UPDATE chunks SET terms = ?, lengths = ? WHERE row = ?", values)
                last = page[-1][0]
            update = "UPDATE partitions SET tokens = ?, generation = generation + 1 WHERE id = ?"
            connection.execute(update, (json.dumps(totals), partition.id))


class PartitionIndexes:
    """Keyword and vector indexes of all partitions, with their open handles. Thread-safe.

    The write lock is always taken before `_guard`, never while it is held.

    Args:
        folder: The store's folder.
        catalog: Its catalog.
        lock: Its write lock.
    """

    def __init__(self, folder: Path, catalog: Catalog, lock: WriteLock) -> None:
        self._folder, self._catalog, self._lock = folder, catalog, lock
        self.chroma = ChromaFolder(folder / "chroma", catalog, lock)
        self._guard = threading.RLock()
        self._keyword_indexes: OrderedDict[int, tuple[str, int, TantivyKeywordIndex]] = OrderedDict()
        self._caches: OrderedDict[int, ColumnarCache] = OrderedDict()

    def close(self) -> None:
        """Release every file."""
        self.chroma.close()
        with self._guard:
            self._keyword_indexes.clear()
            self._caches.clear()

    def rebuild_damaged(self, *, after_crash: bool) -> None:
        """Rebuild indexes whose files are missing or damaged; the caller holds the write lock."""
        for partition in self._catalog.partitions():
            if partition.chunks and not (self.keyword_folder(partition.name) / "meta.json").exists():
                logger.warning("rebuilding the keyword index %s from the catalog", partition.name)
                self.rebuild_keyword_index(partition)
        partitions = {part.collection: part for part in self._catalog.partitions() if part.collection}
        if not partitions:
            return
        try:
            damaged = self.chroma.damaged_collections(partitions, after_crash=after_crash)
        except StoreError as error:
            logger.warning("rebuilding all of Chroma from the catalog: %s", error)
            self.rebuild_chroma()
            return
        for name in sorted(damaged):
            logger.warning("rebuilding the collection %s from the catalog: its files are damaged", name)
            self.rebuild_vector_index(self._catalog.partition(partitions[name].owner) or partitions[name])

    def close_partition(self, partition: PartitionRow) -> None:
        """Release the handles on a partition that was deleted."""
        with self._guard:
            self._keyword_indexes.pop(partition.id, None)
            self._caches.pop(partition.id, None)

    # -- handles --------------------------------------------------------------------------------------------------

    def keyword_index(self, partition: PartitionRow) -> TantivyKeywordIndex:
        """Return the keyword index of a partition, at least as new as `partition`; rebuilt when it is damaged."""
        with self._guard:
            name, generation, keyword_index = self._keyword_indexes.get(partition.id, ("", -1, None))
            if keyword_index is not None and name == partition.name:
                if generation == partition.generation or self._try_refresh(keyword_index):
                    handle = (name, partition.generation, keyword_index)
                    _cache_handle(self._keyword_indexes, partition.id, handle)
                    return keyword_index
                self._keyword_indexes.pop(partition.id, None)
        return self._open_keyword_index(partition)

    def vector_index(self, partition: PartitionRow) -> ChromaVectorIndex:
        """Return the vector index of a partition; rebuilt when it proves damaged at its first use.

        Raises:
            StoreLockedError: First use or rebuilding need the write lock, and a writer holds it.
            ForkedProcessError: Chroma cannot be used in this process.
            StoreError: The partition has no collection.
        """
        check_chroma_usable()
        if partition.collection is not None and self.chroma.last_visible_row(partition.collection) is not None:
            return self.open_vector_index(partition)  # the current client has opened it
        with self._lock.acquire(timeout=READ_LOCK_TIMEOUT):
            current = self._catalog.partition(partition.owner)
            if current is None or current.collection is None:
                raise StoreError("The partition has no Chroma collection any more: search again.")
            if not self._is_vector_index_intact(current):
                logger.warning("rebuilding the collection %s from the catalog", current.collection)
                current = self.rebuild_vector_index(current)
            return self.open_vector_index(current)

    def open_keyword_index(self, partition: PartitionRow) -> TantivyKeywordIndex:
        """Open the keyword index as it is on disk, without rebuilding it.

        Raises:
            StoreError: It cannot be opened.
        """
        return TantivyKeywordIndex(self.keyword_folder(partition.name), create=False)

    def open_vector_index(self, partition: PartitionRow) -> ChromaVectorIndex:
        """Return the vector index as it is on disk, without rebuilding it."""
        if partition.collection is None:
            raise StoreError("The partition has no Chroma collection.")
        return ChromaVectorIndex(self.chroma, partition.collection, partition.owner)

    def cache(self, partition: PartitionRow) -> ColumnarCache:
        """Return the in-memory cache of a partition."""
        with self._guard:
            cache = self._caches.get(partition.id) or ColumnarCache(self._catalog, partition)
            _cache_handle(self._caches, partition.id, cache)
            return cache

    def last_visible_row(self, partition: PartitionRow, rows: Rows) -> int:
        """Return the last row that Chroma finds; those after it are unindexed, or were indexed by another process.

        Chroma's client is opened again when there are many indexed rows that it does not see.

        Args:
            partition: The partition as the search sees it.
            rows: Its live rows, ascending.
        """
        last = self.chroma.last_visible_row(partition.collection or "")
        if last is not None and _count_between(rows, last, partition.indexed) > _MAX_UNSEEN_ROWS:
            self.chroma.close()
            self.vector_index(partition)
            last = self.chroma.last_visible_row(partition.collection or "")
        return partition.indexed if last is None else last

    def keyword_folder(self, name: str) -> Path:
        """Return the folder of the keyword index of that name."""
        return self._folder / "keyword" / name

    # -- building; the caller holds the write lock ----------------------------------------------------------------

    def rebuild_keyword_index(self, partition: PartitionRow) -> PartitionRow:
        """Rebuild a partition's keyword index from the catalog; return the partition with its new name."""
        name = new_index_name(partition.owner)
        entry = self._catalog.add_journal_entry(partition.id, "dropping", {"keyword": name})
        keyword_index = TantivyKeywordIndex(self.keyword_folder(name))
        fill_keyword_index(self._catalog, partition.id, keyword_index)
        failpoint("rebuild-filled")
        current = self._switch_index(partition, entry, "name", name, {"keyword": partition.name})
        with self._guard:
            _cache_handle(self._keyword_indexes, partition.id, (name, current.generation, keyword_index))
        self._drop_replaced(entry, {"keyword": partition.name})
        return current

    def rebuild_vector_index(self, partition: PartitionRow) -> PartitionRow:
        """Rebuild a partition's collection, or create its first one; return the partition with it.

        The new collection holds the rows that the old one held; a first one is empty. When all of Chroma's folder is
        unreadable, all collections are rebuilt.

        Raises:
            ForkedProcessError: Chroma cannot be used in this process; nothing was changed.
        """
        check_chroma_usable()
        try:
            return self._build_vector_index(partition)
        except StoreError as error:
            logger.warning("rebuilding all of Chroma from the catalog: %s", error)
            self.rebuild_chroma()
            current = self._catalog.partition(partition.owner) or partition
            return current if current.in_chroma else self._build_vector_index(current)

    def rebuild_chroma(self) -> None:
        """Delete Chroma's folder and rebuild every collection.

        Until a partition has its collection again, its vectors are scored exactly: a kill meanwhile costs time, not
        results.

        Raises:
            ForkedProcessError: Chroma cannot be used in this process; nothing was changed.
        """
        check_chroma_usable()
        partitions = [partition for partition in self._catalog.partitions() if partition.in_chroma]
        with self._catalog.transaction() as connection:
            for partition in partitions:
                insert_journal_entry(connection, partition.id, "dropping", {"collection": partition.collection})
            connection.execute("UPDATE partitions SET collection = NULL, generation = generation + 1")
        failpoint("chroma-given-up")
        self.chroma.delete_all()
        dropped = [
            entry.id
            for entry in self._catalog.journal()
            if entry.state == "dropping" and isinstance(entry.payload, dict) and not entry.payload.get("keyword")
        ]
        self._catalog.clear_journal(dropped)  # their collections were deleted with the folder
        failpoint("chroma-reset")
        for partition in partitions:
            self._build_vector_index(self._catalog.partition(partition.owner) or partition)

    def drop(self, keyword: str | None = None, collection: str | None = None) -> None:
        """Delete indexes by name, with all their files, unless a partition uses them.

        Args:
            keyword: Name of a keyword folder, or None.
            collection: Name of a collection, or None.

        Raises:
            StoreError: Some files could not be deleted.
        """
        partitions = self._catalog.partitions()
        if keyword is not None and keyword not in {partition.name for partition in partitions}:
            TantivyKeywordIndex.destroy(self.keyword_folder(keyword))
        if collection is None or collection in {partition.collection for partition in partitions}:
            return
        if not self.chroma.exists():
            return
        try:
            self.chroma.drop(collection)
        except StoreLockedError:
            raise
        except StoreError as error:
            logger.warning("rebuilding all of Chroma from the catalog: %s", error)
            self.rebuild_chroma()
            return
        self.chroma.delete_leftovers()

    def _build_vector_index(self, partition: PartitionRow) -> PartitionRow:
        name = new_index_name(partition.owner)
        entry = self._catalog.add_journal_entry(partition.id, "dropping", {"collection": name})
        vector_index = ChromaVectorIndex(self.chroma, name, partition.owner)
        vector_index.create()
        indexed = (self._catalog.partition(partition.owner) or partition).indexed
        fill_vector_index(self._catalog, partition.id, vector_index, indexed)
        self.chroma.zero_unused()
        failpoint("promotion-filled")
        old = {"collection": partition.collection}
        current = self._switch_index(partition, entry, "collection", name, old)
        self.chroma.mark_written(name, indexed)
        self._drop_replaced(entry, old)
        return current

    def _switch_index(
        self, partition: PartitionRow, entry: int, column: str, name: str, old: dict[str, str | None]
    ) -> PartitionRow:
        query = f"UPDATE partitions SET {column} = ?, generation = generation + 1 WHERE id = ?"
        with self._catalog.transaction() as connection:
            connection.execute(query, (name, partition.id))
            connection.execute("UPDATE journal SET dead = ? WHERE id = ?", (json.dumps(old), entry))
        failpoint("rebuild-swapped")
        current = self._catalog.partition(partition.owner)
        if current is None:
            raise StoreError("The partition vanished while it was rebuilt: another process deleted it. Search again.")
        return current

    def _drop_replaced(self, entry: int, old: dict[str, str | None]) -> None:
        """Delete a replaced index; when that fails, its journal entry stays."""
        try:
            self.drop(**old)
        except StoreError as error:
            logger.warning("a replaced index will be deleted at the next write: %s", error)
            return
        self._catalog.clear_journal([entry])

    # -- opening --------------------------------------------------------------------------------------------------

    def _open_keyword_index(self, partition: PartitionRow) -> TantivyKeywordIndex:
        keyword_index = self._open_if_intact(partition)
        if keyword_index is None:
            with self._lock.acquire():  # a writer may have been active: try again before rebuilding
                current = self._catalog.partition(partition.owner)
                if current is None:
                    raise StoreError("The partition was deleted by another process: search again.")
                keyword_index = self._open_if_intact(current, create=not current.chunks)
                if keyword_index is None:
                    current = self.rebuild_keyword_index(current)
                    return self._keyword_indexes[current.id][2]
                partition = current
        with self._guard:
            handle = (partition.name, partition.generation, keyword_index)
            _cache_handle(self._keyword_indexes, partition.id, handle)
        return keyword_index

    def _open_if_intact(self, partition: PartitionRow, *, create: bool = False) -> TantivyKeywordIndex | None:
        try:
            keyword_index = TantivyKeywordIndex(self.keyword_folder(partition.name), create=create)
            if keyword_index.count() >= partition.chunks and not keyword_index.damaged_files():
                return keyword_index  # it may also hold rows of a running write
            logger.warning("the keyword index %s has lost rows", partition.name)
        except StoreError as error:
            logger.info("%s", error)
        return None

    def _is_vector_index_intact(self, partition: PartitionRow) -> bool:
        vector_index = self.open_vector_index(partition)
        try:
            vector_index.probe()
            return vector_index.count() >= partition.chunks - self._catalog.count_unindexed(partition)
        except StoreLockedError:
            raise
        except StoreError as error:
            logger.warning("%s", error)
            return False

    @staticmethod
    def _try_refresh(keyword_index: TantivyKeywordIndex) -> bool:
        try:
            keyword_index.refresh()
        except StoreError as error:
            logger.info("opening the keyword index again: %s", error)
            return False
        return True


def new_index_name(owner: str | None) -> str:
    """Return a new unique name for an index. It does not contain the owner, because it may outlive a deleted agent."""
    return f"{'shared' if owner is None else 'agent'}-{secrets.token_hex(16)}"


def is_index_name(name: str) -> bool:
    """Whether a name has the form of `new_index_name`."""
    return _INDEX_NAME.fullmatch(name) is not None


def _count_between(rows: Rows, after: int, last: int) -> int:
    """Return how many of the ascending rows are after one row and up to another."""
    first, end = np.searchsorted(rows, [after, last], side="right")
    return max(int(end - first), 0)


def _cache_handle(handles: OrderedDict[int, _Handle], key: int, handle: _Handle) -> None:
    handles[key] = handle
    handles.move_to_end(key)
    while len(handles) > _MAX_OPEN_PARTITIONS:
        handles.popitem(last=False)
