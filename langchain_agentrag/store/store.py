"""What a store takes on disk."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from langchain_agentrag.errors import NotAStoreError, StoreClosedError, StoreError, StoreLockedError
from langchain_agentrag.scope import Scope
from langchain_agentrag.store.background_indexing import BackgroundIndexer
from langchain_agentrag.store.catalog import Catalog, PartitionRow
from langchain_agentrag.store.commit import Batch, CommitResult, PreparedChunk, commit, pack_vector
from langchain_agentrag.store.failpoints import failpoint
from langchain_agentrag.store.indexes import PartitionIndexes, fresh_name
from langchain_agentrag.store.keyword_index import TantivyKeywordIndex
from langchain_agentrag.store.lock import WriteLock
from langchain_agentrag.store.partition_cache import PartitionCache
from langchain_agentrag.store.protocols import Rows, Vectors
from langchain_agentrag.store.queries import PartitionVisibility, VisiblePartition
from langchain_agentrag.store.recovery import Recovery
from langchain_agentrag.store.vector_index import ChromaVectorIndex
from langchain_agentrag.times import to_utc
from langchain_agentrag.types import StoreStats

logger = logging.getLogger(__name__)


def folder_size(folder: Path) -> int:
    """Size of a folder's files; those that a writer removes meanwhile do not count."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).stat().st_size
    return total


def prepare_folder(folder: Path) -> None:
    """Make a store's folder unless it is there.

    Raises:
        NotAStoreError: it holds something else.
        StoreError: it cannot be made.
    """
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


T = TypeVar("T")

ChromaPolicy = Literal["auto", "always"]
"""Which partitions Chroma holds: those too large to be scored exactly, or every one from its first row."""

_READERS = 8  # searches that may wait for both legs at once; further ones queue
_OPENING_PATIENCE = 2.0  # seconds that opening waits for a writer: whoever writes recovers as well


class Store:
    """Catalog, legs and write protocol of one folder.

    Args:
        folder: The store's folder; made when absent.
        exact_limit: Largest partition that is scored exactly.
        chroma: Which partitions Chroma holds.
        lock_timeout: Seconds to wait for another writer.
        clock: What time it is; decides what has expired.

    Raises:
        NotAStoreError: the folder holds something else.
        StoreMismatchError: a newer version wrote it.
        StoreError: it cannot be opened.
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
        prepare_folder(folder)
        self.folder, self.exact_limit, self._always = folder, exact_limit, chroma == "always"
        self.catalog = Catalog(folder / "catalog.sqlite")
        self.lock = WriteLock(folder, lock_timeout)
        self.indexes = PartitionIndexes(folder, self.catalog, self.lock)
        self.recovery = Recovery(self.catalog, self.indexes)
        self.visibility, self._clock = PartitionVisibility(self.catalog), clock or _utc_now
        self.background_indexer = BackgroundIndexer(
            self.catalog,
            self.indexes,
            self.lock,
            self._recover_if_needed,
            exact_limit=exact_limit,
            always=self._always,
        )
        self._pid, self._closed = os.getpid(), False
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentrag-vectors")
        self._readers = ThreadPoolExecutor(max_workers=_READERS, thread_name_prefix="agentrag-search")
        try:
            self._heal()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release every file; idempotent."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self.background_indexer.stop()
        self._readers.shutdown()
        self._pool.shutdown()
        self.indexes.close()
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

    def now(self) -> datetime:
        """The present, in UTC."""
        return to_utc(self._clock())

    def visible(self, owner: str | None, *, quarantined: bool = True) -> VisiblePartition | None:
        """The owner's partition without what has expired, or what is quarantined; None while it has none."""
        partition = self.catalog.partition(owner)
        if partition is None:
            return None
        return self.visibility.visible(partition, self.now(), quarantined=quarantined)

    # -- handles --------------------------------------------------------------------------------------------------

    def keyword_index(self, partition: PartitionRow) -> TantivyKeywordIndex:
        """See `PartitionIndexes.keywords`."""
        return self.indexes.keyword_index(partition)

    def vector_index(self, partition: PartitionRow) -> ChromaVectorIndex:
        """See `PartitionIndexes.vectors`."""
        return self.indexes.vector_index(partition)

    def cache(self, partition: PartitionRow) -> PartitionCache:
        """See `PartitionIndexes.cache`."""
        return self.indexes.cache(partition)

    def last_visible_row(self, partition: PartitionRow, rows: Rows) -> int:
        """See `PartitionIndexes.horizon`."""
        return self.indexes.last_visible_row(partition, rows)

    def submit_read(self, call: Callable[[], T]) -> Future[T]:
        """Start a reading call on another thread: the native parts of the legs release the GIL."""
        self.check_open()
        return self._readers.submit(call)

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self, batch: Batch) -> CommitResult:
        """Write a batch, all of it or nothing.

        Raises:
            StoreLockedError: another process is writing.
            StoreError: a leg or the catalog failed; nothing of the batch is stored.
        """
        self.check_open()
        with self.lock.held():
            self._recover_if_needed()
            if self._always:  # the rows of this batch go after those that wait
                self.background_indexer.finish({put.document.agent_id for put in batch.puts})
            try:
                outcome, owners = self._attempt(batch)
            except StoreError as error:
                # undoing it has rebuilt what was broken: a leg that was damaged from outside is no reason to fail
                logger.warning("writing a batch once more: %s", error)
                outcome, owners = self._attempt(batch)
            self.background_indexer.after_write(owners)
            return outcome

    def forget(self, owner: str) -> CommitResult:
        """Drop an owner's partition: afterwards nothing of it is on disk.

        Raises:
            StoreLockedError: another process is writing.
            StoreError: nobody can find anything of it any more, but something could not be deleted yet.
        """
        self.check_open()
        with self.lock.held():
            self._recover_if_needed()
            partition = self.catalog.partition(owner)
            if partition is None:
                return CommitResult()
            living = self.visibility.visible(partition, self.now()).partition
            with self.catalog.transaction() as connection:
                connection.execute(
                    "DELETE FROM items WHERE (source, item) IN "
                    "(SELECT source, item FROM documents WHERE partition = ?)",
                    (partition.id,),
                )
                rows = "(SELECT row FROM chunks WHERE partition = ?)"
                connection.execute(f"DELETE FROM vectors WHERE row IN {rows}", (partition.id,))
                for table in ("expiry", "quarantine", "chunks", "documents", "embedding_cache", "journal"):
                    connection.execute(f"DELETE FROM {table} WHERE partition = ?", (partition.id,))
                connection.execute("DELETE FROM partitions WHERE id = ?", (partition.id,))
                connection.execute(
                    "INSERT INTO journal(partition, state, first, last, dead) VALUES (?, 'dropping', 0, -1, ?)",
                    (
                        partition.id,
                        json.dumps({"keyword": partition.name, "collection": partition.collection}),
                    ),
                )
            failpoint("forget-committed")
            self.indexes.forget(partition)
            self._erase(f"agent {owner!r}")
            return CommitResult(deleted=living.documents)

    def erase(self) -> None:
        """Remove from disk what deleted documents have left in the keyword indexes and in the write-ahead log.

        Raises:
            StoreLockedError: another process is writing.
            StoreError: it could not be done yet.
        """
        self.check_open()
        with self.lock.held():
            if self.catalog.journal():
                self._erase("the deleted documents")

    def cache_embeddings(self, owner: str | None, vectors: Mapping[bytes, Vectors]) -> None:
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
        found = self.catalog.manifest_value("dimension")
        return None if found is None else int(found)

    @dimension.setter
    def dimension(self, value: int) -> None:
        self.catalog.set_manifest(dimension=value)

    def stats(self, scope: Scope | None) -> StoreStats:
        """Counts over what a scope may see, or over everything for whoever administers the store."""
        admitted = [part for part in self.catalog.partitions() if scope is None or scope.admits(part.owner)]
        now = self.now()
        partitions = [self.visibility.visible(part, now).partition for part in admitted]
        # an agent that sees no document must not learn from the model's name that others have written
        told = scope is None or any(part.documents for part in partitions)
        return StoreStats(
            documents=sum(part.documents for part in partitions),
            chunks=sum(part.chunks for part in partitions),
            shared_documents=sum(part.documents for part in partitions if part.owner is None),
            agents=sum(part.owner is not None and part.documents > 0 for part in partitions),
            model=(self.catalog.manifest().get("embedding") or {}).get("name") if told else None,
            dimension=self.dimension if told else None,
            bytes_on_disk=0 if scope else folder_size(self.folder),
            unindexed=sum(map(self.background_indexer.unindexed, admitted)),
        )

    def ensure_partition(self, owner: str | None) -> PartitionRow:
        """The owner's partition, made when absent."""
        found = self.catalog.partition(owner)
        if found is not None:
            return found
        return self.catalog.add_partition(owner, fresh_name(owner))

    def _attempt(self, batch: Batch) -> tuple[CommitResult, set[str | None]]:
        batch.now = self.now()
        owners = {put.document.agent_id for put in batch.puts}
        partitions = {owner: self.ensure_partition(owner) for owner in owners}
        for owner in {owner for owner, _ in batch.removes} - owners:
            if found := self.catalog.partition(owner):
                partitions[owner] = found
        batch.removes = [(owner, doc_id) for owner, doc_id in batch.removes if owner in partitions]
        return self._write_locked(batch, partitions), set(partitions)

    def _write_locked(self, batch: Batch, partitions: Mapping[str | None, PartitionRow]) -> CommitResult:
        fresh: dict[int, list[PreparedChunk]] = {}
        for put in batch.puts:
            fresh.setdefault(partitions[put.document.agent_id].id, []).extend(put.chunks)
        reserved = self.catalog.reserve({key: len(chunks) for key, chunks in fresh.items()}) if fresh else {}
        failpoint("journal-written")
        rows = {key: span for key, (_, span) in reserved.items()}
        by_id = {partition.id: partition for partition in partitions.values()}
        through = {
            key for key, partition in by_id.items() if self._always and partition.in_chroma
        } & rows.keys()
        try:
            for key, chunks in fresh.items():
                self._write_indexes(by_id[key], rows[key], chunks, through=key in through)
            failpoint("before-commit")
            ids = {owner: partition.id for owner, partition in partitions.items()}
            with self.catalog.transaction() as connection:
                outcome = commit(connection, batch, ids, rows)
                entries = [entry for entry, _ in reserved.values()]
                connection.executemany("DELETE FROM journal WHERE id = ?", [(entry,) for entry in entries])
                connection.executemany(
                    "UPDATE partitions SET indexed = ? WHERE id = ?",
                    [(rows[key].stop - 1, key) for key in through],
                )
                for key, tally in outcome.deltas.items():
                    states = ["cleaning", *([] if batch.keep_vectors else ["purging"])] if tally.dead else []
                    connection.executemany(
                        "INSERT INTO journal(partition, state, first, last, dead) VALUES (?, ?, 0, -1, ?)",
                        [(key, state, json.dumps(tally.dead)) for state in states],
                    )
        except BaseException:
            self.recovery.recover(purge=False)
            raise
        failpoint("committed")
        for key in through:
            self.indexes.chroma.mark_written(by_id[key].collection or "", rows[key].stop - 1)
        if any(tally.dead for tally in outcome.deltas.values()):
            self.recovery.recover(thorough=False, purge=False)
        return outcome

    def _write_indexes(
        self, partition: PartitionRow, rows: range, chunks: list[PreparedChunk], *, through: bool
    ) -> None:
        """Both legs at once, where Chroma is to hold every row: their native parts release the GIL."""
        vectors = None
        if through:
            leg = self.indexes.vector_index(partition)
            matrix = np.stack([part.vector for part in chunks])
            vectors = self._pool.submit(leg.add, rows, matrix)
        try:
            self.indexes.keyword_index(partition).add(rows, [part.terms for part in chunks])
            failpoint("keyword-written")
        finally:
            if vectors is not None:
                _wait(vectors)  # never leave a write running behind an error
        if vectors is not None:
            vectors.result()
        failpoint("vectors-written")

    # -- recovery -------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Finish what was interrupted; the caller holds the write lock."""
        self.recovery.recover()

    def _recover_if_needed(self) -> None:
        if any(entry.state != "purging" for entry in self.catalog.journal()):
            self.recovery.recover(purge=False)

    def _heal(self) -> None:
        """Finish what was interrupted and rebuild what is plainly lost, unless somebody is writing right now."""
        partitions, unfinished = self.catalog.partitions(), self.catalog.journal()
        if not partitions and not unfinished:
            return
        patience = _OPENING_PATIENCE if unfinished else 0.0
        with contextlib.suppress(StoreLockedError), self.lock.held(patience=patience):
            killed = bool(self.catalog.journal())
            try:
                self.indexes.heal(after_kill=killed)  # before anything loads what a kill may have torn
            except StoreError as error:  # a full disk, say: what is there can still be searched
                logger.warning("an index could not be rebuilt yet: %s", error)
            if killed:
                self.recovery.recover()
        self.background_indexer.after_opening()

    def _erase(self, what: str) -> None:
        if not self.recovery.recover(thorough=False):
            raise StoreError(
                f"No search finds {what} any more, but not every trace could be deleted from {self.folder} yet (see "
                "the log). It is tried again at the next write and when the store is opened; repair() does it at once."
            )


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _wait(future: Future[None]) -> None:
    """Until it is done, however often the waiting is interrupted; the interruption comes through afterwards."""
    interrupted: BaseException | None = None
    while not future.done():
        try:
            future.exception()
        except BaseException as error:  # noqa: BLE001  (KeyboardInterrupt)
            interrupted = error
    if interrupted is not None:
        raise interrupted
