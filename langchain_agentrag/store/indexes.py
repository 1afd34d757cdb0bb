"""Both legs from the catalog: no analysis, no embedding, only what is stored there."""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from langchain_agentrag.errors import StoreError, StoreLockedError
from langchain_agentrag.store.catalog import Catalog, PartitionRow, batched
from langchain_agentrag.store.chroma import READER_PATIENCE, ChromaFolder
from langchain_agentrag.store.commit import pack_lengths, pack_terms, unpack_terms
from langchain_agentrag.store.failpoints import failpoint
from langchain_agentrag.store.keyword_index import TantivyKeywordIndex
from langchain_agentrag.store.lock import WriteLock
from langchain_agentrag.store.partition_cache import PartitionCache, unpack_vectors
from langchain_agentrag.store.protocols import KeywordIndex, Rows, VectorIndex
from langchain_agentrag.store.vector_index import ChromaVectorIndex
from langchain_agentrag.text import FIELDS, Analyzer, Terms

logger = logging.getLogger(__name__)

_PAGE = 2_000


def fill_keyword_index(catalog: Catalog, partition: int, leg: KeywordIndex) -> None:
    """Add every live row of a partition to an empty keyword leg."""
    last = -1
    while (
        page := catalog.connection()
        .execute(
            "SELECT row, terms, lengths FROM chunks WHERE partition = ? AND row > ? ORDER BY row LIMIT ?",
            (partition, last, _PAGE),
        )
        .fetchall()
    ):
        leg.add([row for row, _, _ in page], [unpack_terms(terms, lengths) for _, terms, lengths in page])
        last = page[-1][0]


def terms_of(catalog: Catalog, rows: Sequence[int]) -> list[tuple[int, Terms]]:
    """(row, terms) of those of the rows that are live."""
    found: list[tuple[int, Terms]] = []
    for part in batched(rows):
        marks = ",".join("?" * len(part))
        found += [
            (row, unpack_terms(terms, lengths))
            for row, terms, lengths in catalog.connection().execute(
                f"SELECT row, terms, lengths FROM chunks WHERE row IN ({marks})", tuple(part)
            )
        ]
    return found


def fill_vector_index(catalog: Catalog, partition: int, leg: VectorIndex, until: int) -> None:
    """Add the live rows of a partition up to one of them to an empty vector leg."""
    last = -1
    while page := vectors_after(catalog, partition, last, _PAGE, until):
        leg.add([row for row, _ in page], unpack_vectors([vector for _, vector in page]))
        last = page[-1][0]


def vectors_after(
    catalog: Catalog, partition: int, row: int, limit: int, until: int = sys.maxsize
) -> list[tuple[int, bytes]]:
    """The next live rows of a partition with their packed vectors, ascending."""
    return (
        catalog.connection()
        .execute(
            "SELECT row, vector FROM chunks JOIN vectors USING (row) "
            "WHERE partition = ? AND row > ? AND row <= ? ORDER BY row LIMIT ?",
            (partition, row, until, limit),
        )
        .fetchall()
    )


def reanalyze_chunks(catalog: Catalog, analyzer: Analyzer) -> None:
    """Analyse every stored text again; the keyword legs have to be rebuilt afterwards."""
    with catalog.transaction() as connection:
        for partition in catalog.partitions():
            totals, last = [0] * len(FIELDS), -1
            while page := connection.execute(
                "SELECT row, text, context FROM chunks WHERE partition = ? AND row > ? ORDER BY row LIMIT ?",
                (partition.id, last, _PAGE),
            ).fetchall():
                for row, text, context in page:
                    terms = analyzer.analyze(text, context)
                    lengths = [terms.lengths.get(name, 0) for name in FIELDS]
                    totals = [total + length for total, length in zip(totals, lengths, strict=True)]
                    connection.execute(
                        "UPDATE chunks SET terms = ?, lengths = ? WHERE row = ?",
                        (pack_terms(terms), pack_lengths(terms), row),
                    )
                last = page[-1][0]
            connection.execute(
                "UPDATE partitions SET tokens = ?, generation = generation + 1 WHERE id = ?",
                (json.dumps(totals), partition.id),
            )


_OPEN_PARTITIONS = 256
_UNSEEN_LIMIT = 4_000
_NAME = re.compile(r"(shared|agent)-[0-9a-f]{32}")
_Handle = TypeVar("_Handle")


class PartitionIndexes:
    """Open handles on both legs. Thread-safe.

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
        self._keywords: OrderedDict[int, tuple[str, int, TantivyKeywordIndex]] = OrderedDict()
        self._caches: OrderedDict[int, PartitionCache] = OrderedDict()

    def close(self) -> None:
        """Release every file."""
        self.chroma.close()
        with self._guard:
            self._keywords.clear()
            self._caches.clear()

    def heal(self, *, after_kill: bool) -> None:
        """Build anew what the files show to be lost; the caller holds the write lock."""
        for partition in self._catalog.partitions():
            if partition.chunks and not (self.keyword_folder(partition.name) / "meta.json").exists():
                logger.warning("rebuilding the keyword index %s from the catalog", partition.name)
                self.rebuild_keyword_index(partition)
        held = {
            found.collection: found for found in self._catalog.partitions() if found.collection is not None
        }
        if not held:
            return
        try:
            damaged = self.chroma.damaged(held, after_kill=after_kill)
        except StoreError as error:
            logger.warning("rebuilding all of Chroma from the catalog: %s", error)
            self.reset_chroma()
            return
        for name in sorted(damaged):
            logger.warning("rebuilding the collection %s from the catalog: its files are torn or gone", name)
            self.rebuild_vector_index(self._catalog.partition(held[name].owner) or held[name])

    def forget(self, partition: PartitionRow) -> None:
        """Let go of the handles on a partition that is dropped."""
        with self._guard:
            self._keywords.pop(partition.id, None)
            self._caches.pop(partition.id, None)

    # -- handles --------------------------------------------------------------------------------------------------

    def keyword_index(self, partition: PartitionRow) -> TantivyKeywordIndex:
        """The keyword leg of a partition, as new as `partition`; built anew when it is damaged."""
        with self._guard:
            name, generation, leg = self._keywords.get(partition.id, ("", -1, None))
            if leg is not None and name == partition.name:
                if generation == partition.generation or self._refreshed(leg):
                    _remember(self._keywords, partition.id, (name, partition.generation, leg))
                    return leg
                self._keywords.pop(partition.id, None)
        return self._open_keyword_index(partition)

    def vector_index(self, partition: PartitionRow) -> ChromaVectorIndex:
        """The Chroma collection of a partition; built anew when it turns out damaged at its first use.

        Raises:
            StoreLockedError: that would take the write lock, and a writer has it.
            StoreError: Chroma does not hold the partition.
        """
        if partition.collection is not None and self.chroma.has_opened(partition.collection):
            return self.open_vector_index(partition)
        with self._lock.held(patience=READER_PATIENCE):
            current = self._catalog.partition(partition.owner)
            if current is None or current.collection is None:
                raise StoreError("Chroma does not hold this partition any more: search again.")
            if not self._sound_vector_index(current):
                logger.warning("rebuilding the collection %s from the catalog", current.collection)
                current = self.rebuild_vector_index(current)
            return self.open_vector_index(current)

    def open_keyword_index(self, partition: PartitionRow) -> TantivyKeywordIndex:
        """The keyword index as it is on disk, healed by nobody.

        Raises:
            StoreError: it cannot be opened.
        """
        return TantivyKeywordIndex(self.keyword_folder(partition.name), create=False)

    def open_vector_index(self, partition: PartitionRow) -> ChromaVectorIndex:
        """The collection as it is, healed by nobody."""
        if partition.collection is None:
            raise StoreError("Chroma does not hold this partition.")
        return ChromaVectorIndex(self.chroma, partition.collection, partition.owner)

    def cache(self, partition: PartitionRow) -> PartitionCache:
        """What is kept in memory of a partition."""
        with self._guard:
            cache = self._caches.get(partition.id) or PartitionCache(self._catalog, partition)
            _remember(self._caches, partition.id, cache)
            return cache

    def last_visible_row(self, partition: PartitionRow, rows: Rows) -> int:
        """Last row that Chroma can be asked for; those after it wait, or were handed over by another process.

        Chroma's client is opened anew when it does not see many of the rows that were handed over.

        Args:
            partition: The partition as the search sees it.
            rows: Its live rows, ascending.
        """
        seen = self.chroma.last_visible_row(partition.collection or "")
        if seen is not None and _between(rows, seen, partition.indexed) > _UNSEEN_LIMIT:
            self.chroma.close()
            self.vector_index(partition)
            seen = self.chroma.last_visible_row(partition.collection or "")
        return partition.indexed if seen is None else seen

    def keyword_folder(self, name: str) -> Path:
        """Where the keyword leg of that name lives."""
        return self._folder / "keyword" / name

    # -- building; the caller holds the write lock ----------------------------------------------------------------

    def rebuild_keyword_index(self, partition: PartitionRow) -> PartitionRow:
        """Make a partition's keyword leg anew from the catalog; the partition with its new name."""
        name = fresh_name(partition.owner)
        entry = self._catalog.announce(partition.id, "dropping", {"keyword": name})
        leg = TantivyKeywordIndex(self.keyword_folder(name))
        fill_keyword_index(self._catalog, partition.id, leg)
        failpoint("rebuild-filled")
        current = self._swap(partition, entry, "name", name, {"keyword": partition.name})
        with self._guard:
            _remember(self._keywords, partition.id, (name, current.generation, leg))
        self._finish(entry, {"keyword": partition.name})
        return current

    def rebuild_vector_index(self, partition: PartitionRow) -> PartitionRow:
        """Make a partition's collection anew, or its first one; the partition with its new collection.

        It gets the rows that were handed over to the old one; a first one gets none.
        When Chroma's folder is unreadable as a whole, everything in it is built anew.
        """
        try:
            return self._build_vector_index(partition)
        except StoreError as error:
            logger.warning("rebuilding all of Chroma from the catalog: %s", error)
            self.reset_chroma()
            current = self._catalog.partition(partition.owner) or partition
            return current if current.in_chroma else self._build_vector_index(current)

    def reset_chroma(self) -> None:
        """Delete Chroma's folder and build every collection anew.

        Until a partition has its collection again, its vectors are scored exactly: a kill on the way costs time, not
        results.
        """
        held = [partition for partition in self._catalog.partitions() if partition.in_chroma]
        with self._catalog.transaction() as connection:
            connection.executemany(
                "INSERT INTO journal(partition, state, first, last, dead) VALUES (?, 'dropping', 0, -1, ?)",
                [(partition.id, json.dumps({"collection": partition.collection})) for partition in held],
            )
            connection.execute("UPDATE partitions SET collection = NULL, generation = generation + 1")
        failpoint("chroma-given-up")
        self.chroma.reset()
        gone = [
            entry.id
            for entry in self._catalog.journal()
            if entry.state == "dropping"
            and isinstance(entry.payload, dict)
            and not entry.payload.get("keyword")
        ]
        self._catalog.clear_journal(gone)  # collections that were to be dropped went with the folder
        failpoint("chroma-reset")
        for partition in held:
            self._build_vector_index(self._catalog.partition(partition.owner) or partition)

    def drop(self, keyword: str | None = None, collection: str | None = None) -> None:
        """Delete indexes that belong to no partition, with everything they leave behind.

        Raises:
            StoreError: something of them could not be deleted.
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
            self.reset_chroma()
            return
        self.chroma.sweep()

    def _build_vector_index(self, partition: PartitionRow) -> PartitionRow:
        name = fresh_name(partition.owner)
        entry = self._catalog.announce(partition.id, "dropping", {"collection": name})
        leg = ChromaVectorIndex(self.chroma, name, partition.owner)
        leg.create()
        indexed = (self._catalog.partition(partition.owner) or partition).indexed
        fill_vector_index(self._catalog, partition.id, leg, indexed)
        self.chroma.zero_unused()
        failpoint("promotion-filled")
        old = {"collection": partition.collection}
        current = self._swap(partition, entry, "collection", name, old)
        self.chroma.mark_written(name, indexed)
        self._finish(entry, old)
        return current

    def _swap(
        self, partition: PartitionRow, entry: int, column: str, name: str, old: dict[str, str | None]
    ) -> PartitionRow:
        with self._catalog.transaction() as connection:
            connection.execute(
                f"UPDATE partitions SET {column} = ?, generation = generation + 1 WHERE id = ?",
                (name, partition.id),
            )
            connection.execute("UPDATE journal SET dead = ? WHERE id = ?", (json.dumps(old), entry))
        failpoint("rebuild-swapped")
        current = self._catalog.partition(partition.owner)
        if current is None:
            raise StoreError(f"The partition of {partition.owner!r} vanished while it was rebuilt.")
        return current

    def _finish(self, entry: int, old: dict[str, str | None]) -> None:
        """Drop what was replaced; when that fails, the journal still knows it."""
        try:
            self.drop(**old)
        except StoreError as error:
            logger.warning("an index that was replaced is deleted at the next write: %s", error)
            return
        self._catalog.clear_journal([entry])

    # -- opening --------------------------------------------------------------------------------------------------

    def _open_keyword_index(self, partition: PartitionRow) -> TantivyKeywordIndex:
        leg = self._sound_keyword_index(partition)
        if leg is None:
            with self._lock.held():  # a writer may have been at work: look again before rebuilding
                current = self._catalog.partition(partition.owner)
                if current is None:
                    raise StoreError("The partition was forgotten by another process: search again.")
                leg = self._sound_keyword_index(current, create=not current.chunks)
                if leg is None:
                    current = self.rebuild_keyword_index(current)
                    return self._keywords[current.id][2]
                partition = current
        with self._guard:
            _remember(self._keywords, partition.id, (partition.name, partition.generation, leg))
        return leg

    def _sound_keyword_index(
        self, partition: PartitionRow, *, create: bool = False
    ) -> TantivyKeywordIndex | None:
        try:
            leg = TantivyKeywordIndex(self.keyword_folder(partition.name), create=create)
            if leg.count() >= partition.chunks and not leg.damaged_files():
                return leg  # rows of a write that is under way may come on top
            logger.warning("the keyword index %s has lost rows", partition.name)
        except StoreError as error:
            logger.info("%s", error)
        return None

    def _sound_vector_index(self, partition: PartitionRow) -> bool:
        leg = self.open_vector_index(partition)
        try:
            leg.probe()
            return leg.count() >= partition.chunks - self._catalog.rows_after(partition)
        except StoreLockedError:
            raise
        except StoreError as error:
            logger.warning("%s", error)
            return False

    @staticmethod
    def _refreshed(leg: TantivyKeywordIndex) -> bool:
        try:
            leg.refresh()
        except StoreError as error:
            logger.info("opening the keyword index again: %s", error)
            return False
        return True


def fresh_name(owner: str | None) -> str:
    """A name for an index, never used before, that does not tell whose it is: it outlives a forgotten agent."""
    return f"{'shared' if owner is None else 'agent'}-{secrets.token_hex(16)}"


def is_index_name(name: str) -> bool:
    """Whether `fresh_name` may have made it."""
    return _NAME.fullmatch(name) is not None


def _between(rows: Rows, after: int, last: int) -> int:
    """How many of the ascending rows come after one row, up to another."""
    first, end = np.searchsorted(rows, [after, last], side="right")
    return max(int(end - first), 0)


def _remember(handles: OrderedDict[int, _Handle], key: int, handle: _Handle) -> None:
    handles[key] = handle
    handles.move_to_end(key)
    while len(handles) > _OPEN_PARTITIONS:
        handles.popitem(last=False)
