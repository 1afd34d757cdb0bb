"""The store: one folder with a catalog and two legs, and the protocol that writes them as one.

Write protocol: (1) announce the write in the journal and reserve row ids, (2) write the new rows to both legs,
(3) one catalog transaction makes them live and the old ones dead: the commit point, (4) take dead rows out of the legs
and clear the journal. Whatever is left in the journal when a store is opened or written is undone (before the commit
point) or completed (after it).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from langchain_agentrag.analysis import Analyzer
from langchain_agentrag.errors import NotAStoreError, StoreClosedError, StoreError, StoreMismatchError
from langchain_agentrag.index.batch import Batch, Outcome, PreparedChunk, commit, pack_vector
from langchain_agentrag.index.catalog import Catalog, PartitionRow
from langchain_agentrag.index.exact import PartitionCache
from langchain_agentrag.index.faults import reach
from langchain_agentrag.index.keyword import TantivyKeywords
from langchain_agentrag.index.lock import WriteLock
from langchain_agentrag.index.protocol import Rows, Vectors
from langchain_agentrag.index.rebuild import fill_keywords, fill_vectors, reanalyze_chunks
from langchain_agentrag.index.vector import ChromaFolder, ChromaVectors
from langchain_agentrag.records import StoreStats
from langchain_agentrag.scope import Scope

logger = logging.getLogger(__name__)

ChromaPolicy = Literal["auto", "always", "large"]
"""Which partitions Chroma holds: shared and large ones, every one from its first row, or large ones only."""

_OPEN_PARTITIONS = 256
_UNSEEN_LIMIT = 2_000
_Handle = TypeVar("_Handle")


class Store:
    """Catalog, legs and write protocol of one folder.

    Args:
        folder: The store's folder; made when absent.
        exact_limit: Largest partition that is scored exactly.
        chroma: Which partitions Chroma holds.
        lock_timeout: Seconds to wait for another writer.

    Raises:
        NotAStoreError: the folder holds something else.
        StoreMismatchError: a newer version wrote it.
        StoreError: it cannot be opened.
    """

    def __init__(self, folder: Path, *, exact_limit: int, chroma: ChromaPolicy, lock_timeout: float) -> None:
        _check_folder(folder)
        self.folder, self.exact_limit, self._policy = folder, exact_limit, chroma
        self.catalog = Catalog(folder / "catalog.sqlite")
        self.lock = WriteLock(folder, lock_timeout)
        self.chroma = ChromaFolder(folder / "chroma", self._horizon)
        self._pid, self._closed = os.getpid(), False
        self._guard = threading.RLock()
        self._keywords: OrderedDict[int, tuple[int, TantivyKeywords]] = OrderedDict()
        self._vectors: OrderedDict[int, ChromaVectors] = OrderedDict()
        self._caches: OrderedDict[int, PartitionCache] = OrderedDict()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentrag-vectors")
        if self.catalog.journal():
            with self.lock.held():
                self.recover()

    def close(self) -> None:
        """Release every file; idempotent."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._pool.shutdown()
        self.chroma.close()
        self._keywords.clear()
        self._caches.clear()
        self.catalog.close()

    def check_open(self) -> None:
        """Refuse to work on a closed store, or on one that a fork has copied.

        Raises:
            StoreClosedError: it is closed, or this is a forked child.
        """
        if self._pid != os.getpid():
            raise StoreClosedError(
                f"The store {self.folder} was opened by process {self._pid} and used in its forked child "
                f"{os.getpid()}: open it again in the child (database handles do not survive a fork)."
            )
        if self._closed:
            raise StoreClosedError(f"The store {self.folder} is closed: open it again to use it.")

    # -- handles --------------------------------------------------------------------------------------------------

    def keywords(self, partition: PartitionRow) -> TantivyKeywords:
        """The keyword leg of a partition, as new as `partition`; rebuilt when it was lost."""
        with self._guard:
            generation, leg = self._keywords.get(partition.id, (-1, None))
            if leg is None:
                leg = self._open_keywords(partition)
            elif generation != partition.generation:
                leg.refresh()
            _remember(self._keywords, partition.id, (partition.generation, leg))
            return leg

    def vectors(self, partition: PartitionRow) -> ChromaVectors:
        """The Chroma collection of a partition."""
        with self._guard:
            leg = self._vectors.get(partition.id) or self.chroma.collection(partition.name, partition.owner)
            _remember(self._vectors, partition.id, leg)
            return leg

    def cache(self, partition: PartitionRow) -> PartitionCache:
        """What is kept in memory of a partition."""
        with self._guard:
            cache = self._caches.get(partition.id) or PartitionCache(self.catalog, partition)
            _remember(self._caches, partition.id, cache)
            return cache

    def unseen(self, rows: Rows) -> Rows:
        """Rows that other processes wrote and Chroma's open client cannot see; reopens it when they are many."""
        hidden = self.chroma.unseen(rows)
        if len(hidden) > _UNSEEN_LIMIT:
            self.chroma.close()
            hidden = self.chroma.unseen(rows)
        return hidden

    def keyword_folder(self, name: str) -> Path:
        """Where the keyword leg of that name lives."""
        return self.folder / "keyword" / name

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> Outcome:
        """Write a batch, all of it or nothing.

        Raises:
            StoreLockedError: another process is writing.
            StoreError: a leg or the catalog failed; nothing of the batch is stored.
        """
        self.check_open()
        with self.lock.held():
            if self.catalog.journal():
                self.recover()
            owners = {put.document.agent_id for put in batch.puts}
            partitions = {owner: self.ensure_partition(owner) for owner in owners}
            for owner in {owner for owner, _ in batch.removes} - owners:
                if found := self.catalog.partition(owner):
                    partitions[owner] = found
            batch.removes = [(owner, doc_id) for owner, doc_id in batch.removes if owner in partitions]
            outcome = self._write_locked(batch, partitions)
            self._promote(partition.owner for partition in partitions.values())
            return outcome

    def forget(self, owner: str) -> Outcome:
        """Drop an owner's partition: afterwards nothing of it is on disk."""
        self.check_open()
        with self.lock.held():
            if self.catalog.journal():
                self.recover()
            partition = self.catalog.partition(owner)
            if partition is None:
                return Outcome()
            with self.catalog.transaction() as connection:
                connection.execute(
                    "DELETE FROM items WHERE (source, item) IN "
                    "(SELECT source, item FROM documents WHERE partition = ?)",
                    (partition.id,),
                )
                rows = "(SELECT row FROM chunks WHERE partition = ?)"
                connection.execute(f"DELETE FROM vectors WHERE row IN {rows}", (partition.id,))
                for table in ("chunks", "documents", "embedding_cache"):
                    connection.execute(f"DELETE FROM {table} WHERE partition = ?", (partition.id,))
                connection.execute("DELETE FROM partitions WHERE id = ?", (partition.id,))
                connection.execute(
                    "INSERT INTO journal(partition, state, first, last, dead) VALUES (?, 'dropping', 0, -1, ?)",
                    (partition.id, json.dumps([partition.name, partition.in_chroma])),
                )
            reach("forget-committed")
            self.recover()
            self.catalog.erase_free_space()
            return Outcome(deleted=partition.documents)

    def remember_vectors(self, owner: str | None, vectors: Mapping[bytes, Vectors]) -> None:
        """Keep vectors that were paid for though their batch could not be written; best effort."""
        if not vectors:
            return
        try:
            with self.lock.held():
                partition = self.ensure_partition(owner)
                with self.catalog.transaction() as connection:
                    connection.executemany(
                        "INSERT OR IGNORE INTO embedding_cache(partition, hash, vector) VALUES (?, ?, ?)",
                        [(partition.id, key, pack_vector(vector)) for key, vector in vectors.items()],
                    )
        except StoreError as error:
            logger.warning("%d vectors could not be kept for the next attempt: %s", len(vectors), error)

    @property
    def dimension(self) -> int | None:
        """Length of the store's vectors, or None before the first one."""
        found = self.catalog.manifest().get("dimension")
        return None if found is None else int(found)

    @dimension.setter
    def dimension(self, value: int) -> None:
        self.catalog.promise(dimension=value)

    def stats(self, scope: Scope | None) -> StoreStats:
        """Counts over what a scope may see, or over everything for whoever administers the store."""
        partitions = [part for part in self.catalog.partitions() if scope is None or scope.admits(part.owner)]
        manifest = self.catalog.manifest()
        return StoreStats(
            documents=sum(part.documents for part in partitions),
            chunks=sum(part.chunks for part in partitions),
            shared_documents=sum(part.documents for part in partitions if part.owner is None),
            agents=sum(part.owner is not None and part.documents > 0 for part in partitions),
            model=(manifest.get("embedding") or {}).get("name"),
            dimension=self.dimension,
            bytes_on_disk=0
            if scope
            else sum(f.stat().st_size for f in self.folder.rglob("*") if f.is_file()),
        )

    def promise_analyzer(self, analyzer: Analyzer, *, reanalyze: bool) -> None:
        """Hold the store to one analyzer.

        Raises:
            StoreMismatchError: it was built with another one and `reanalyze` is off.
        """
        promised = self.catalog.manifest().get("analyzer")
        if promised == analyzer.fingerprint:
            return
        with self.lock.held():
            if promised is not None:
                if not reanalyze:
                    raise StoreMismatchError(
                        f"The store {self.folder} was built with the analyzer {promised}, not {analyzer.fingerprint}: "
                        "its terms would not meet the query's. Open it with the settings it was built with, or with "
                        "reanalyze=True to analyse its texts again (nothing is embedded again)."
                    )
                reanalyze_chunks(self.catalog, analyzer)
                for partition in self.catalog.partitions():
                    self.rebuild_keywords(partition)
            self.catalog.promise(analyzer=analyzer.fingerprint)

    def ensure_partition(self, owner: str | None) -> PartitionRow:
        """The owner's partition, made when absent."""
        found = self.catalog.partition(owner)
        if found is not None:
            return found
        # the suffix keeps a forgotten agent's name from coming back while another process still has it open
        digest = hashlib.blake2b((owner or "").encode("utf-8"), digest_size=12).hexdigest()
        kind = "shared" if owner is None else "agent"
        return self.catalog.add_partition(owner, f"{kind}-{digest}-{secrets.token_hex(3)}")

    def _write_locked(self, batch: Batch, partitions: Mapping[str | None, PartitionRow]) -> Outcome:
        fresh: dict[int, list[PreparedChunk]] = {}
        for put in batch.puts:
            fresh.setdefault(partitions[put.document.agent_id].id, []).extend(put.chunks)
        reserved = self.catalog.reserve({key: len(chunks) for key, chunks in fresh.items()}) if fresh else {}
        reach("journal-written")
        rows = {key: span for key, (_, span) in reserved.items()}
        by_id = {partition.id: partition for partition in partitions.values()}
        try:
            for key, chunks in fresh.items():
                self._write_legs(by_id[key], rows[key], chunks)
            reach("before-commit")
            ids = {owner: partition.id for owner, partition in partitions.items()}
            with self.catalog.transaction() as connection:
                outcome = commit(connection, batch, ids, rows)
                entries = [entry for entry, _ in reserved.values()]
                connection.executemany("DELETE FROM journal WHERE id = ?", [(entry,) for entry in entries])
                connection.executemany(
                    "INSERT INTO journal(partition, state, first, last, dead) VALUES (?, 'cleaning', 0, -1, ?)",
                    [(key, json.dumps(tally.dead)) for key, tally in outcome.tallies.items() if tally.dead],
                )
        except BaseException:
            self._undo()
            raise
        reach("committed")
        for span in rows.values():
            self.chroma.note_written(span)
        if any(tally.dead for tally in outcome.tallies.values()):
            self._undo()
        if not batch.keep_vectors:
            self.catalog.erase_free_space()
        return outcome

    def _write_legs(self, partition: PartitionRow, rows: range, chunks: list[PreparedChunk]) -> None:
        """Both legs at once: their native parts release the GIL."""
        vectors = None
        if partition.in_chroma:
            matrix = np.stack([part.vector for part in chunks])
            vectors = self._pool.submit(self.vectors(partition).add, rows, matrix)
        try:
            self.keywords(partition).add(rows, [part.terms for part in chunks])
            reach("keyword-written")
        finally:
            if vectors is not None:
                vectors.result()  # never leave a write running behind an error
        reach("vectors-written")

    def _promote(self, owners: Iterable[str | None]) -> None:
        for owner in owners:
            partition = self.catalog.partition(owner)
            if partition is None or partition.in_chroma or not self._belongs_in_chroma(partition):
                continue
            reach("promotion-started")
            self.rebuild_vectors(partition)
            reach("promotion-filled")
            with self.catalog.transaction() as connection:
                connection.execute("UPDATE partitions SET in_chroma = 1 WHERE id = ?", (partition.id,))

    def _belongs_in_chroma(self, partition: PartitionRow) -> bool:
        if self._policy == "always" or (self._policy == "auto" and partition.owner is None):
            return partition.chunks > 0
        return partition.chunks > self.exact_limit

    # -- recovery -------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Undo what was not committed, complete what was; the caller holds the write lock.

        Raises:
            StoreError: a leg can neither be cleaned nor rebuilt.
        """
        partitions = {partition.id: partition for partition in self.catalog.partitions()}
        for entry, key, state, reserved, dead in self.catalog.journal():
            if state == "dropping":
                self._drop(*dead)
            elif key in partitions:
                self._remove(
                    partitions[key],
                    list(reserved) if state == "writing" else dead,
                    suspect=state == "writing",
                )
            self.catalog.clear_journal([entry])
            reach("journal-cleared")

    def _undo(self) -> None:
        """Clean up now if possible; what is left in the journal is cleaned up before the next write."""
        try:
            self.recover()
        except (StoreError, OSError) as error:
            logger.warning("cleaning up %s is postponed to the next write: %s", self.folder, error)

    def _remove(self, partition: PartitionRow, rows: list[int], *, suspect: bool) -> None:
        """Take rows out of both legs; a leg that cannot do it, or has lost rows, is rebuilt from the catalog."""
        self._healed(
            lambda: _cleaned(self.keywords(partition), rows, partition.chunks if suspect else None),
            lambda: self.rebuild_keywords(partition),
        )
        if partition.in_chroma:
            self._healed(
                lambda: _cleaned(self.vectors(partition), rows, partition.chunks if suspect else None),
                lambda: self.rebuild_vectors(partition),
            )
        reach("dead-rows-removed")

    @staticmethod
    def _healed(attempt: Callable[[], bool], rebuild: Callable[[], None]) -> None:
        try:
            if attempt():
                return
            reason = "it has lost rows"
        except StoreError as error:
            reason = str(error)
        logger.warning("rebuilding an index from the catalog: %s", reason)
        rebuild()

    def _drop(self, name: str, in_chroma: bool) -> None:  # noqa: FBT001  (unpacked from the journal)
        TantivyKeywords.destroy(self.keyword_folder(name))
        if in_chroma and self.chroma.exists():
            self.chroma.drop(name)
        reach("forget-dropped")

    def rebuild_keywords(self, partition: PartitionRow) -> None:
        """Make a partition's keyword leg anew from the catalog; the caller holds the write lock."""
        with self._guard:
            self._keywords.pop(partition.id, None)
            TantivyKeywords.destroy(self.keyword_folder(partition.name))
            leg = TantivyKeywords(self.keyword_folder(partition.name))
            fill_keywords(self.catalog, partition.id, leg)
            _remember(self._keywords, partition.id, (partition.generation, leg))

    def rebuild_vectors(self, partition: PartitionRow) -> None:
        """Make a partition's collection anew from the catalog; the caller holds the write lock.

        When Chroma's folder is unreadable as a whole, everything in it is rebuilt.
        """
        try:
            self.chroma.drop(partition.name)
            fill_vectors(self.catalog, partition.id, self.vectors(partition))
        except StoreError as error:
            logger.warning("rebuilding all of Chroma from the catalog: %s", error)
            self.chroma.reset()
            for other in self.catalog.partitions():
                if other.in_chroma or other.id == partition.id:
                    fill_vectors(self.catalog, other.id, self.vectors(other))

    def _open_keywords(self, partition: PartitionRow) -> TantivyKeywords:
        leg = self._sound_keywords(partition)
        if leg is not None:
            return leg
        with self.lock.held():  # a writer may have been at work: look again before rebuilding
            current = self.catalog.partition(partition.owner) or partition
            leg = self._sound_keywords(current)
            if leg is None:
                self.rebuild_keywords(current)
                leg = self._keywords[partition.id][1]
            return leg

    def _sound_keywords(self, partition: PartitionRow) -> TantivyKeywords | None:
        try:
            leg = TantivyKeywords(self.keyword_folder(partition.name))
            if leg.count() >= partition.chunks:  # rows of a write that is under way may come on top
                return leg
            logger.warning("the keyword index %s has lost rows", partition.name)
        except StoreError as error:
            logger.warning("%s", error)
        return None

    def _horizon(self) -> int:
        with self.catalog.snapshot() as connection:
            following = connection.execute("SELECT value FROM counters WHERE name = 'row'").fetchone()[0]
            pending = connection.execute("SELECT min(first) FROM journal WHERE state = 'writing'").fetchone()[
                0
            ]
        return int(following if pending is None else pending)


def _cleaned(leg: TantivyKeywords | ChromaVectors, rows: list[int], expected: int | None) -> bool:
    leg.delete(rows)
    return expected is None or leg.count() == expected


def _remember(handles: OrderedDict[int, _Handle], key: int, handle: _Handle) -> None:
    handles[key] = handle
    handles.move_to_end(key)
    while len(handles) > _OPEN_PARTITIONS:
        handles.popitem(last=False)


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotAStoreError(
            f"{folder} is a file, not a folder. Pass the folder of a store, or a new folder."
        )
    if folder.is_dir() and not (folder / "catalog.sqlite").exists() and any(folder.iterdir()):
        raise NotAStoreError(
            f"{folder} holds files but no catalog.sqlite, so it is not a store. Pass a new or empty folder."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"Cannot make the store folder {folder}: {error}. Pass a folder that can be written."
        ) from error
