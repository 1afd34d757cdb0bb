"""Background work: vectors go into Chroma's HNSW graph after the commit that wrote them; what was deleted is purged.

Building the graph takes longer than all other work of a write. A write ends with its commit; its rows are found from
then on, by an exact scan beside the graph. They are added to the graph in row order and in slices, each under the write
lock and noted in the journal: in the background of the process that wrote or opened the store while nobody writes, and
at once where more rows are unindexed than a search should scan. So the catalog needs one number per partition: the last
row that its collection holds.

Purging (`purging.py`) runs once nobody has written for a second, and under constant writing every 15 seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from langchain_agentrag.errors import StoreError, StoreLockedError
from langchain_agentrag.store.calls import RunningCalls
from langchain_agentrag.store.catalog import Catalog, PartitionRow
from langchain_agentrag.store.columnar_cache import unpack_vectors
from langchain_agentrag.store.failpoints import failpoint
from langchain_agentrag.store.fork import check_chroma_usable
from langchain_agentrag.store.indexes import PartitionIndexes, vectors_after
from langchain_agentrag.store.lock import WriteLock
from langchain_agentrag.store.purging import Purger

logger = logging.getLogger(__name__)

_SLICE_ROWS = 1_024  # rows indexed per acquisition of the lock
_BACKGROUND_SLICE_ROWS = 256  # a search of the graph waits while Chroma indexes a slice, about 0.1 s
_MAX_UNINDEXED_FACTOR = 5  # a partition may have this many times `exact_limit` unindexed rows after a write
_LOCK_TIMEOUT = 0.05  # seconds to wait for the lock in the background
_WRITE_DELAY = 0.3  # seconds without a write before the background starts
_OPEN_DELAY = 2.0  # the same after opening the store: the first searches come first
_SLICE_PAUSE = 0.03  # seconds between two slices, so that others get the lock
_OTHER_PROCESS_PAUSE = 1.0  # seconds to wait while another process indexes the partition
_PURGE_DELAY = 1.0  # seconds without a write before what was deleted is purged
_MAX_PURGE_DELAY = 15.0  # the same while others write all the time
_REWRITTEN_ROWS = 8_000  # rows of a keyword index rewritten per acquisition of the lock
_PURGE_RETRY = 2.0  # seconds after a purge that could not finish
_PURGE_LOCK_TIMEOUT = 5.0  # seconds to wait for the lock of an overdue purge


class BackgroundIndexer:
    """Adds a store's unindexed vectors to Chroma.

    Args:
        catalog: The store's catalog.
        indexes: Its indexes.
        lock: Its write lock.
        calls: Its running calls: each step in the background is one.
        purger: Erases what was deleted.
        recover: Finishes what the journal lists; called with the lock held.
        exact_limit: Largest partition that is scored exactly as a whole.
        always: Whether Chroma holds every partition, and every row as soon as it is written.
    """

    def __init__(
        self,
        catalog: Catalog,
        indexes: PartitionIndexes,
        lock: WriteLock,
        calls: RunningCalls,
        purger: Purger,
        recover: Callable[[], None],
        *,
        exact_limit: int,
        always: bool,
    ) -> None:
        self._catalog, self._indexes, self._lock = catalog, indexes, lock
        self._calls, self._purger, self._recover = calls, purger, recover
        self._always, self._exact_limit = always, exact_limit
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentrag-graph")
        self._guard, self._stopping = threading.Lock(), threading.Event()
        self._running, self._requests, self._not_before, self._no_purge_before = False, 0, 0.0, 0.0
        self._last_indexed: dict[int, int] = {}  # partition id → last row indexed by this process

    def unindexed(self, partition: PartitionRow) -> int:
        """Return the number of chunks that are scanned exactly until they are indexed."""
        if not self._uses_chroma(partition):
            return 0
        return self._catalog.count_unindexed(partition) if partition.in_chroma else partition.chunks

    def index_pending(self, owners: Iterable[str | None] | None = None, *, max_unindexed: int = 0) -> int:
        """Index until each owner's partition has at most `max_unindexed` unindexed rows.

        The lock is acquired per slice, so that others can write meanwhile.

        Args:
            owners: Owners of the partitions; None for all.
            max_unindexed: Rows that may stay unindexed per partition.

        Returns:
            The number of rows indexed.

        Raises:
            StoreLockedError: Another process is writing.
            StoreError: Chroma failed; the remaining rows stay unindexed.
        """
        indexed = 0
        for owner in [part.owner for part in self._catalog.partitions()] if owners is None else owners:
            while True:
                with self._lock.acquire():
                    partition = self._ensure_collection(owner)
                    if partition is None or (pending := self.unindexed(partition)) <= max_unindexed:
                        break
                    self._index_slice(partition, _SLICE_ROWS)
                    indexed += min(pending, _SLICE_ROWS)
        return indexed

    def on_write(self, owners: Iterable[str | None]) -> None:
        """Index rows above the limit now and schedule the rest; the caller holds the write lock."""
        try:
            limit = 0 if self._always else _MAX_UNINDEXED_FACTOR * self._exact_limit
            self.index_pending(owners, max_unindexed=limit)
        except StoreError as error:  # the batch is stored; its vectors are scored exactly until this succeeds
            logger.warning("vectors will be indexed by Chroma at the next write: %s", error)
        self._not_before = time.monotonic() + _WRITE_DELAY
        partitions = map(self._catalog.partition, owners)
        self._schedule(partition for partition in partitions if partition is not None)

    def on_delete(self) -> None:
        """Schedule the purge of what was deleted outside of a write."""
        self._not_before = time.monotonic() + _WRITE_DELAY
        self._schedule([])

    def on_open(self) -> None:
        """Schedule unindexed rows for after the first searches of the process."""
        self._not_before = time.monotonic() + _OPEN_DELAY
        self._schedule(self._catalog.partitions())

    def stop(self) -> None:
        """End background indexing after the current slice; the rest is indexed when the store is opened again."""
        self._stopping.set()

    def join(self) -> None:
        """Wait for the thread of the background, which has been stopped."""
        self._pool.shutdown(cancel_futures=True)

    # -- slices; the caller holds the write lock ------------------------------------------------------------------

    def _uses_chroma(self, partition: PartitionRow) -> bool:
        return partition.chunks > (0 if self._always else self._exact_limit)

    def _ensure_collection(self, owner: str | None) -> PartitionRow | None:
        """Return the owner's partition; it has a collection if Chroma has to hold it."""
        partition = self._catalog.partition(owner)
        if partition is None or not self._uses_chroma(partition) or partition.in_chroma:
            return partition
        failpoint("promotion-started")
        return self._indexes.rebuild_vector_index(partition)

    def _index_slice(self, partition: PartitionRow, size: int) -> None:
        check_chroma_usable()
        page = vectors_after(self._catalog, partition.id, partition.indexed, size)
        if not page:
            raise StoreError("There are chunks without a vector in the catalog: run verify().")
        rows = [row for row, _ in page]
        entry = self._catalog.add_journal_entry(partition.id, "handing", None, range(rows[0], rows[-1] + 1))
        failpoint("background-announced")
        try:
            vector_index = self._indexes.open_vector_index(partition)
            vector_index.add(rows, unpack_vectors([packed for _, packed in page]))
            self._indexes.chroma.zero_unused()  # Chroma may have stored the graph, with whatever was in memory
        except BaseException:
            self._recover()
            raise
        failpoint("background-written")
        with self._catalog.transaction() as connection:
            connection.execute("UPDATE partitions SET indexed = ? WHERE id = ?", (rows[-1], partition.id))
            connection.execute("DELETE FROM journal WHERE id = ?", (entry,))
        failpoint("background-committed")
        self._indexes.chroma.mark_written(partition.collection or "", rows[-1])
        self._last_indexed[partition.id] = rows[-1]

    # -- the background -------------------------------------------------------------------------------------------

    def _schedule(self, partitions: Iterable[PartitionRow]) -> None:
        if not any(map(self.unindexed, partitions)) and not self._catalog.purges():
            return
        with self._guard:
            self._requests += 1
            if self._running:
                return
            self._running = True
        self._submit()

    def _submit(self) -> None:
        try:
            self._pool.submit(self._run_step)
        except RuntimeError:  # closed, or the interpreter is ending: continued when the store is opened again
            self._running = False

    def _run_step(self) -> None:
        """Run one step and submit the next as a task of its own, so that the interpreter can end in between."""
        requests = self._requests
        try:
            pause = self._calls.run(self._step)
        except StoreLockedError:
            pause = _WRITE_DELAY
        except Exception as error:  # noqa: BLE001  (searches work without it; the next write tries again)
            logger.warning("background work stopped until the next write: %s", error)
            pause = None
        if pause is not None:
            if not self._stopping.wait(pause):
                self._submit()
            return
        with self._guard:
            self._running = requests != self._requests  # a write came just after nothing was unindexed
        if self._running:
            self._submit()

    def _step(self) -> float | None:
        """Index one slice, or purge; return the seconds until the next step, or None when nothing is left to do."""
        purge_delay = self._seconds_until_purge()
        if purge_delay is not None and purge_delay <= 0:
            return self._purge()
        delay = self._not_before - time.monotonic()
        if delay > 0:
            return delay if purge_delay is None else min(delay, purge_delay)
        pending = next((part for part in self._catalog.partitions() if self.unindexed(part)), None)
        if pending is None:
            return purge_delay
        last_indexed = self._last_indexed.setdefault(pending.id, pending.indexed)
        if pending.indexed != last_indexed:  # two processes taking turns would reload the graph each time
            self._last_indexed[pending.id] = pending.indexed
            return _OTHER_PROCESS_PAUSE
        self._indexes.chroma.import_chromadb()
        with self._lock.acquire(timeout=_LOCK_TIMEOUT):
            self._recover()
            partition = self._ensure_collection(pending.owner)
            if partition is not None and self.unindexed(partition):
                self._index_slice(partition, _BACKGROUND_SLICE_ROWS)
        return _SLICE_PAUSE

    def _seconds_until_purge(self) -> float | None:
        """Return the seconds until what was deleted should be purged; None when nothing was."""
        since = self._purger.unpurged().since
        if since is None:
            return None
        now = time.monotonic()
        idle = self._not_before + _PURGE_DELAY - now
        overdue = since.timestamp() + _MAX_PURGE_DELAY - time.time()
        return max(min(idle, overdue), self._no_purge_before - now)

    def _purge(self) -> float:
        if any(partition.in_chroma for partition in self._catalog.partitions()):
            self._indexes.chroma.import_chromadb()
        since = self._purger.unpurged().since
        late = since is not None and time.time() > since.timestamp() + _MAX_PURGE_DELAY
        with self._lock.acquire(timeout=_PURGE_LOCK_TIMEOUT if late else _LOCK_TIMEOUT):
            self._recover()
            if not late and self._purger.rewrite_terms(_REWRITTEN_ROWS):
                return _SLICE_PAUSE
            if not self._purger.purge(patient=False):
                self._no_purge_before = time.monotonic() + _PURGE_RETRY
        return _SLICE_PAUSE
