"""Vectors on their way into Chroma's graph, which takes longer to build than everything else a write does.

A write ends with its commit: from then on its rows are found, by an exact scan beside the graph. They are handed over
in row order and in slices, each under the write lock and noted in the journal: when nobody writes, in the background of
the process that wrote or opened the store; at once where more wait than a search should scan. So a partition needs one
number, the last row that its collection holds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from langchain_agentrag.errors import StoreError, StoreLockedError
from langchain_agentrag.store.catalog import Catalog, PartitionRow
from langchain_agentrag.store.failpoints import failpoint
from langchain_agentrag.store.indexes import PartitionIndexes, vectors_after
from langchain_agentrag.store.lock import WriteLock
from langchain_agentrag.store.partition_cache import unpack_vectors

logger = logging.getLogger(__name__)

_SLICE = 1_024  # rows handed over under one hold of the lock
_SMALL = 256  # in the background: a search of the graph waits while Chroma takes a slice in, some .1 s
_MOST = 5  # times the exact limit: so many rows of a partition may wait
_PATIENCE = 0.05  # seconds to wait for the lock in the background
_QUIET, _AT_OPENING = 0.3, 2.0  # seconds without a write, or after opening, before the background begins
_PAUSE, _ELSEWHERE = (
    0.03,
    1.0,
)  # seconds between two slices: for others to get the lock; while another process does it


class BackgroundIndexer:
    """Brings a store's vectors into Chroma.

    Args:
        catalog: The store's catalog.
        legs: Its legs.
        lock: Its write lock.
        recover: Finishes what the journal lists; wants the lock held.
        exact_limit: Largest partition that is scored exactly as a whole.
        always: Whether Chroma holds every partition, every row at once.
    """

    def __init__(
        self,
        catalog: Catalog,
        legs: PartitionIndexes,
        lock: WriteLock,
        recover: Callable[[], None],
        *,
        exact_limit: int,
        always: bool,
    ) -> None:
        self._catalog, self._indexes, self._lock, self._recover = catalog, legs, lock, recover
        self._always, self._limit = always, exact_limit
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentrag-graph")
        self._guard, self._stopping = threading.Lock(), threading.Event()
        self._at_work, self._asked, self._due = False, 0, 0.0
        self._marks: dict[int, int] = {}

    def unindexed(self, partition: PartitionRow) -> int:
        """Chunks that are found by an exact scan until they are handed over."""
        if not self._belongs(partition):
            return 0
        return self._catalog.rows_after(partition) if partition.in_chroma else partition.chunks

    def finish(self, owners: Iterable[str | None] | None = None, *, most: int = 0) -> int:
        """Hand over until at most `most` rows of each owner's partition wait; rows handed over.

        The lock is taken slice by slice, so that others can write meanwhile.

        Raises:
            StoreLockedError: another process is writing.
            StoreError: Chroma failed; what was not handed over still waits.
        """
        done = 0
        for owner in [found.owner for found in self._catalog.partitions()] if owners is None else owners:
            while not self._stopping.is_set():
                with self._lock.held():
                    partition = self._ready(owner)
                    if partition is None or (left := self.unindexed(partition)) <= most:
                        break
                    self._hand_over(partition, _SLICE)
                    done += min(left, _SLICE)
        return done

    def after_write(self, owners: Iterable[str | None]) -> None:
        """Keep few enough waiting, and see to the others later; the caller holds the write lock."""
        try:
            self.finish(owners, most=0 if self._always else _MOST * self._limit)
        except StoreError as error:  # the batch is stored; its vectors are scored exactly until this succeeds
            logger.warning("vectors are handed over to Chroma at the next write: %s", error)
        self._due = time.monotonic() + _QUIET
        found = map(self._catalog.partition, owners)
        self._begin(partition for partition in found if partition is not None)

    def after_opening(self) -> None:
        """See to what waits once the opening process has had its first answers."""
        self._due = time.monotonic() + _AT_OPENING
        self._begin(self._catalog.partitions())

    def stop(self) -> None:
        """End the background work, after the slice that is under way; what waits goes on at the next opening."""
        self._stopping.set()
        self._pool.shutdown(cancel_futures=True)

    # -- slices; the caller holds the write lock ------------------------------------------------------------------

    def _belongs(self, partition: PartitionRow) -> bool:
        return partition.chunks > (0 if self._always else self._limit)

    def _ready(self, owner: str | None) -> PartitionRow | None:
        """The owner's partition with a collection, if Chroma is to hold it."""
        partition = self._catalog.partition(owner)
        if partition is None or not self._belongs(partition) or partition.in_chroma:
            return partition
        failpoint("promotion-started")
        return self._indexes.rebuild_vector_index(partition)

    def _hand_over(self, partition: PartitionRow, size: int) -> None:
        page = vectors_after(self._catalog, partition.id, partition.indexed, size)
        if not page:
            raise StoreError("There are chunks without a vector in the catalog: run verify().")
        rows = [row for row, _ in page]
        entry = self._catalog.announce(partition.id, "handing", None, range(rows[0], rows[-1] + 1))
        failpoint("handover-announced")
        try:
            leg = self._indexes.open_vector_index(partition)
            leg.add(rows, unpack_vectors([packed for _, packed in page]))
            if not partition.indexed:
                self._indexes.chroma.zero_unused()  # a first index is stored with whatever was in memory
        except BaseException:
            self._recover()
            raise
        failpoint("handover-written")
        with self._catalog.transaction() as connection:
            connection.execute("UPDATE partitions SET indexed = ? WHERE id = ?", (rows[-1], partition.id))
            connection.execute("DELETE FROM journal WHERE id = ?", (entry,))
        failpoint("handed-over")
        self._indexes.chroma.mark_written(partition.collection or "", rows[-1])
        self._marks[partition.id] = rows[-1]

    # -- the background -------------------------------------------------------------------------------------------

    def _begin(self, partitions: Iterable[PartitionRow]) -> None:
        if not any(map(self.unindexed, partitions)):
            return
        with self._guard:
            self._asked += 1
            if self._at_work:
                return
            self._at_work = True
        self._submit()

    def _submit(self) -> None:
        try:
            self._pool.submit(self._work)
        except RuntimeError:  # closed, or the interpreter is about to end: it goes on at the next opening
            self._at_work = False

    def _work(self) -> None:
        """One slice, then the next one as a task of its own, so that nothing keeps the interpreter from ending."""
        asked = self._asked
        try:
            pause = self._step()
        except StoreLockedError:
            pause = _QUIET
        except Exception as error:  # noqa: BLE001  (whatever it is, searches go on; the next write tries again)
            logger.warning("handing vectors over to Chroma stopped until the next write: %s", error)
            pause = None
        if pause is not None:
            if not self._stopping.wait(pause):
                self._submit()
            return
        with self._guard:
            self._at_work = asked != self._asked  # a write came just after nothing was found
        if self._at_work:
            self._submit()

    def _step(self) -> float | None:
        """Seconds until the next one, or None when nothing waits any more."""
        early = self._due - time.monotonic()
        if early > 0:
            return early
        found = next((each for each in self._catalog.partitions() if self.unindexed(each)), None)
        if found is None:
            return None
        known = self._marks.setdefault(found.id, found.indexed)
        if found.indexed != known:  # two that take turns would each have to load the graph again every time
            self._marks[found.id] = found.indexed
            return _ELSEWHERE
        self._indexes.chroma.load()
        with self._lock.held(patience=_PATIENCE):
            self._recover()
            partition = self._ready(found.owner)
            if partition is not None and self.unindexed(partition):
                self._hand_over(partition, _SMALL)
        return _PAUSE
