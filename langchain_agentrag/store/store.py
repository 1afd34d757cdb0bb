"""Storage engine of one folder: catalog, keyword and vector indexes, and the write protocol."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from langchain_agentrag.errors import NotAStoreError, StoreError, StoreLockedError
from langchain_agentrag.scope import Scope
from langchain_agentrag.store.background_indexing import BackgroundIndexer
from langchain_agentrag.store.calls import RunningCalls
from langchain_agentrag.store.catalog import Catalog, PartitionRow, insert_journal_entry
from langchain_agentrag.store.commit import Batch, CommitResult, PreparedChunk, commit, pack_vector
from langchain_agentrag.store.failpoints import failpoint
from langchain_agentrag.store.fork import check_chroma_usable, keep_in_children
from langchain_agentrag.store.indexes import PartitionIndexes, new_index_name
from langchain_agentrag.store.lock import WriteLock
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.purging import NO_PARTITION, Purger, drop_partition, insert_purge_entry
from langchain_agentrag.store.queries import delete_names_of
from langchain_agentrag.store.recovery import Recovery
from langchain_agentrag.store.visibility import PartitionVisibility, VisiblePartition
from langchain_agentrag.times import to_utc
from langchain_agentrag.types import StoreStats

logger = logging.getLogger(__name__)


CLOSE_TIMEOUT = 30.0
"""Seconds that `close` waits for running calls, unless the caller says otherwise."""


def folder_size(folder: Path) -> int:
    """Return the size of a folder's files in bytes; files deleted meanwhile do not count."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(directory) / name).stat().st_size
    return total


def prepare_folder(folder: Path) -> None:
    """Create a store's folder unless it exists.

    Raises:
        NotAStoreError: It holds something else.
        StoreError: It cannot be created.
    """
    if folder.exists() and not folder.is_dir():
        raise NotAStoreError(f"{folder} is a file, not a folder. Pass the folder of a store, or a new folder.")
    if folder.is_dir() and not (folder / "catalog.sqlite").exists() and any(folder.iterdir()):
        raise NotAStoreError(
            f"{folder} holds files but no catalog.sqlite, so it is not a store. Pass a new or empty folder."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"Cannot create the store folder {folder}: {error}. Pass a folder that can be written."
        ) from error


T = TypeVar("T")

ChromaPolicy = Literal["auto", "always"]
"""Which partitions Chroma holds: those too large for exact search, or every one from its first row."""

_READ_THREADS = 8  # searches whose vector index is queried at the same time; further ones queue
_OPEN_LOCK_TIMEOUT = 2.0  # seconds that opening waits for a writer, which recovers the store itself


class Store:
    """Catalog, indexes and write protocol of a store. Thread-safe.

    A write reserves row ids in the journal, adds the rows to the indexes, and makes them live with one commit of the
    catalog. After a kill the journal tells what to undo or to finish.

    Args:
        folder: The store's folder; created when absent.
        exact_limit: Largest partition that is scored exactly.
        chroma: Which partitions Chroma holds.
        lock_timeout: Seconds to wait for another writer.
        clock: Returns the present, which decides what has expired; None for the system's clock.

    Raises:
        NotAStoreError: The folder holds something else.
        StoreMismatchError: A newer version wrote it.
        StoreError: It cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        *,
        exact_limit: int,
        chroma: ChromaPolicy,
        lock_timeout: float,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        folder = folder.absolute()  # the working directory may change
        prepare_folder(folder)
        self.folder, self.exact_limit = folder, exact_limit
        self._chroma_always = always = chroma == "always"
        self.catalog = Catalog(folder / "catalog.sqlite")
        self.calls = RunningCalls(folder, self.catalog.check_file)
        self.lock = WriteLock(folder, lock_timeout, self.catalog.check_file)
        self.indexes = PartitionIndexes(folder, self.catalog, self.lock)
        self.recovery = Recovery(self.catalog, self.indexes)
        self.visibility, self._clock = PartitionVisibility(self.catalog), clock or partial(datetime.now, UTC)
        self.purger = Purger(self.catalog, self.indexes)
        self.background_indexer = BackgroundIndexer(
            self.catalog,
            self.indexes,
            self.lock,
            self.calls,
            self.purger,
            self._recover_if_needed,
            exact_limit=exact_limit,
            always=always,
        )
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentrag-vectors")
        self._readers = ThreadPoolExecutor(max_workers=_READ_THREADS, thread_name_prefix="agentrag-search")
        keep_in_children(self)
        try:
            self.calls.run(self._recover_on_open)
        except BaseException:
            self.close()
            raise

    def close(self, timeout: float | None = CLOSE_TIMEOUT) -> bool:
        """Refuse later calls, wait for running ones, erase what was deleted and release every file; idempotent.

        What was deleted stays on disk while another process is writing. See `RunningCalls.close`.
        In a forked child nothing happens: the files are the parent's.
        """
        if self.calls.is_inherited:
            return True
        self.background_indexer.stop()
        return self.calls.close(self._release, timeout)

    def _release(self) -> None:
        with contextlib.suppress(RuntimeError):  # a destructor may close the store on one of these threads
            self.background_indexer.join()
        self._purge_on_close()
        for pool in (self._readers, self._pool):
            with contextlib.suppress(RuntimeError):
                pool.shutdown(cancel_futures=True)
        self.indexes.close()
        self.catalog.close()

    def now(self) -> datetime:
        """Return the present in UTC."""
        return to_utc(self._clock())

    def visible(self, owner: str | None, *, quarantined: bool = True) -> VisiblePartition | None:
        """Return the visible part of the owner's partition; None while it has none."""
        partition = self.catalog.partition(owner)
        if partition is None:
            return None
        return self.visibility.visible(partition, self.now(), quarantined=quarantined)

    def submit_read(self, call: Callable[[], T]) -> Future[T]:
        """Run a reading call on another thread: the native parts of both indexes release the GIL."""
        try:
            return self._readers.submit(self.calls.bind(call))
        except RuntimeError:  # the interpreter is ending and starts no threads any more
            future: Future[T] = Future()
            future.set_result(call())
            return future

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> CommitResult:
        """Write a batch atomically.

        Raises:
            StoreLockedError: Another process is writing.
            ForkedProcessError: Chroma, which holds one of the partitions, cannot be used in this process.
            StoreError: An index or the catalog failed; nothing of the batch is stored.
        """
        self.calls.check_open()
        self._check_chroma({put.document.agent_id for put in batch.puts} | {owner for owner, _ in batch.removes})
        with self.lock.acquire():
            self._recover_if_needed()
            if self._chroma_always:  # unindexed rows come before those of this batch
                self.background_indexer.index_pending({put.document.agent_id for put in batch.puts})
            try:
                result, owners = self._write_once(batch)
            except StoreError as error:
                # undoing the write has rebuilt a damaged index, so it may succeed now
                logger.warning("writing a batch again: %s", error)
                result, owners = self._write_once(batch)
            self.background_indexer.on_write(owners)
            return result

    def delete_partition(self, owner: str) -> CommitResult:
        """Delete an owner's partition and erase it from disk.

        Raises:
            StoreLockedError: Another process is writing.
            ForkedProcessError: Chroma holds it and cannot be used in this process; nothing was deleted.
            StoreError: It is deleted, but some of its files or pages could not be erased yet.
        """
        self.calls.check_open()
        self._check_chroma({owner})
        with self.lock.acquire():
            self._recover_if_needed()
            partition, documents = self.catalog.partition(owner), 0
            with self.catalog.transaction() as connection:
                names_deleted = delete_names_of(connection, owner)
                if partition is not None:
                    documents = self.visibility.visible(partition, self.now()).partition.documents
                    items = "SELECT source, item FROM documents WHERE partition = ?"
                    connection.execute(f"DELETE FROM items WHERE (source, item) IN ({items})", (partition.id,))
                    connection.execute("DELETE FROM journal WHERE partition = ?", (partition.id,))
                    drop_partition(connection, partition)
                if partition is not None or names_deleted:
                    insert_purge_entry(connection, NO_PARTITION)
            if partition is not None:
                self.indexes.close_partition(partition)
            failpoint("forget-committed")
            self._purge(f"agent {owner!r}")
            return CommitResult(deleted=documents)

    def purge(self) -> None:
        """Erase everything deleted so far from disk.

        Raises:
            StoreLockedError: Another process is writing.
            StoreError: Some could not be erased yet.
        """
        self.calls.check_open()
        with self.lock.acquire():
            self._purge("the deleted documents")

    def cache_embeddings(self, owner: str | None, vectors: Mapping[bytes, Vectors]) -> None:
        """Store vectors of a failed write in the embedding cache, so that they are not computed again; best effort."""
        if not vectors:
            return
        try:
            with self.lock.acquire():
                partition = self.ensure_partition(owner)
                rows = [(partition.id, key, pack_vector(vector)) for key, vector in vectors.items()]
                with self.catalog.transaction() as connection:
                    connection.executemany("INSERT OR IGNORE INTO embedding_cache VALUES (?, ?, ?)", rows)
        except StoreError as error:
            logger.warning("%d vectors could not be stored for the next attempt: %s", len(vectors), error)

    @property
    def dimension(self) -> int | None:
        """Dimension of the store's vectors; None before the first one."""
        dimension = self.catalog.manifest_value("dimension")
        return None if dimension is None else int(dimension)

    @dimension.setter
    def dimension(self, value: int) -> None:
        self.catalog.set_manifest(dimension=value)

    def stats(self, scope: Scope | None) -> StoreStats:
        """Return the counts of what a scope may see; of the whole store when it is None."""
        admitted = [part for part in self.catalog.partitions() if scope is None or scope.admits(part.owner)]
        now = self.now()
        partitions = [self.visibility.visible(part, now).partition for part in admitted]
        # an agent that sees no document must not learn from the model's name that others have written
        show_model = scope is None or any(part.documents for part in partitions)
        unpurged = self.purger.unpurged(None if scope is None else {part.id for part in admitted})
        return StoreStats(
            documents=sum(part.documents for part in partitions),
            chunks=sum(part.chunks for part in partitions),
            shared_documents=sum(part.documents for part in partitions if part.owner is None),
            agents=sum(part.owner is not None and part.documents > 0 for part in partitions),
            model=(self.catalog.manifest_value("embedding") or {}).get("name") if show_model else None,
            dimension=self.dimension if show_model else None,
            bytes_on_disk=0 if scope else folder_size(self.folder),
            unindexed=sum(map(self.background_indexer.unindexed, admitted)),
            unpurged=unpurged.documents,
            unpurged_since=unpurged.since,
        )

    def own_work(self, stats: StoreStats, owner: str) -> StoreStats:
        """Return an agent's stats with unfinished work of its own documents only: shared ones are written by others."""
        partition = self.catalog.partition(owner)
        unpurged = self.purger.unpurged(() if partition is None else (partition.id,))
        unindexed = 0 if partition is None else self.background_indexer.unindexed(partition)
        return replace(stats, unindexed=unindexed, unpurged=unpurged.documents, unpurged_since=unpurged.since)

    def ensure_partition(self, owner: str | None) -> PartitionRow:
        """Return the owner's partition; created when absent."""
        return self.catalog.partition(owner) or self.catalog.add_partition(owner, new_index_name(owner))

    def _check_chroma(self, owners: Iterable[str | None]) -> None:
        """Check that a write to these partitions does not need Chroma in a process that cannot use it."""
        partitions = map(self.catalog.partition, owners)
        if self._chroma_always or any(partition is not None and partition.in_chroma for partition in partitions):
            check_chroma_usable()

    def _write_once(self, batch: Batch) -> tuple[CommitResult, set[str | None]]:
        batch.now = self.now()
        owners = {put.document.agent_id for put in batch.puts}
        partitions = {owner: self.ensure_partition(owner) for owner in owners}
        for owner in {owner for owner, _ in batch.removes} - owners:
            if partition := self.catalog.partition(owner):
                partitions[owner] = partition
        batch.removes = [(owner, doc_id) for owner, doc_id in batch.removes if owner in partitions]
        return self._write_partitions(batch, partitions), set(partitions)

    def _write_partitions(self, batch: Batch, partitions: Mapping[str | None, PartitionRow]) -> CommitResult:
        new: dict[int, list[PreparedChunk]] = {}
        for put in batch.puts:
            new.setdefault(partitions[put.document.agent_id].id, []).extend(put.chunks)
        reserved = self.catalog.reserve_rows({key: len(chunks) for key, chunks in new.items()}) if new else {}
        failpoint("journal-written")
        rows = {key: ids for key, (_, ids) in reserved.items()}
        by_id = {partition.id: partition for partition in partitions.values()}
        indexed = {key for key in rows if self._chroma_always and by_id[key].in_chroma}
        try:
            for key, chunks in new.items():
                self._write_indexes(by_id[key], rows[key], chunks, with_vectors=key in indexed)
            failpoint("before-commit")
            ids = {owner: partition.id for owner, partition in partitions.items()}
            with self.catalog.transaction() as connection:
                result = commit(connection, batch, ids, rows)
                entries = [(entry,) for entry, _ in reserved.values()]
                connection.executemany("DELETE FROM journal WHERE id = ?", entries)
                last_rows = [(rows[key].stop - 1, key) for key in indexed]
                connection.executemany("UPDATE partitions SET indexed = ? WHERE id = ?", last_rows)
                for key, delta in result.deltas.items():
                    if delta.dead:
                        insert_journal_entry(connection, key, "cleaning", delta.dead)
                        insert_purge_entry(connection, key, delta.dead, delta.outdated)
                if result.names_deleted:
                    insert_purge_entry(connection, NO_PARTITION)
        except BaseException:
            self.recovery.recover()
            raise
        failpoint("committed")
        for key in indexed:
            self.indexes.chroma.mark_written(by_id[key].collection or "", rows[key].stop - 1)
        if any(delta.dead for delta in result.deltas.values()):
            self.recovery.recover(thorough=False)
        return result

    def _write_indexes(
        self, partition: PartitionRow, rows: range, chunks: list[PreparedChunk], *, with_vectors: bool
    ) -> None:
        """Add rows to the keyword index and, with `with_vectors`, to the vector index in parallel."""
        vector_write = None
        if with_vectors:
            vector_index = self.indexes.vector_index(partition)
            vectors = np.stack([chunk.vector for chunk in chunks])
            vector_write = self._pool.submit(self.calls.bind(partial(vector_index.add, rows, vectors)))
        try:
            self.indexes.keyword_index(partition).add(rows, [chunk.terms for chunk in chunks])
            failpoint("keyword-written")
        finally:
            if vector_write is not None:
                _wait(vector_write)  # an error must not leave it running
        if vector_write is not None:
            vector_write.result()
            self.indexes.chroma.zero_unused()
        failpoint("vectors-written")

    # -- recovery -------------------------------------------------------------------------------------------------

    def _recover_if_needed(self) -> None:
        if self.catalog.journal():
            self.recovery.recover()

    def _recover_on_open(self) -> None:
        """Recover from a crash and rebuild damaged indexes, unless a writer holds the lock."""
        partitions, unfinished, unpurged = self.catalog.partitions(), self.catalog.journal(), self.catalog.purges()
        if not partitions and not unfinished and not unpurged:
            return
        timeout = _OPEN_LOCK_TIMEOUT if unfinished else 0.0
        with contextlib.suppress(StoreLockedError), self.lock.acquire(timeout=timeout):
            crashed = bool(self.catalog.journal())
            try:
                self.indexes.rebuild_damaged(after_crash=crashed)  # before torn files are loaded
            except StoreError as error:  # such as a full disk: the other indexes can be searched
                logger.warning("an index could not be rebuilt yet: %s", error)
            if crashed:
                self.recovery.recover()
            self.purger.purge(patient=False)
        self.background_indexer.on_open()

    def _purge_on_close(self) -> None:
        """Erase what was deleted, best effort: what is left is erased when the store is opened again."""
        try:
            if self.catalog.purges():
                with self.lock.acquire(timeout=_OPEN_LOCK_TIMEOUT):
                    self._recover_if_needed()
                    self.purger.purge(stay_open=False)
        except Exception as error:  # noqa: BLE001  (closing must not fail because of it)
            logger.warning("deleted documents will be erased when the store is opened again: %s", error)

    def _purge(self, subject: str) -> None:
        finished = self.recovery.recover(thorough=False)
        if not self.purger.purge() or not finished:
            raise StoreError(
                f"No search finds {subject} any more, but {self.folder} still holds some of it on disk (see the log). "
                "Erasing is tried again in the background and when the store is opened; repair() does it at once."
            )


def _wait(future: Future[None]) -> None:
    """Wait for a future, also when interrupted; the interruption is raised afterwards."""
    interrupted: BaseException | None = None
    while not future.done():
        try:
            future.exception()
        except BaseException as error:  # noqa: BLE001  (KeyboardInterrupt)
            interrupted = error
    if interrupted is not None:
        raise interrupted
