"""The write lock of a store: one writer at a time, across threads and processes, held per batch."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from langchain_agentrag.errors import StoreLockedError


class WriteLock:
    """A reentrant lock on a folder.

    The operating system releases it when its holder dies, so a killed writer never blocks the next one.

    Args:
        folder: The store's folder.
        timeout: Seconds to wait for another writer.
    """

    def __init__(self, folder: Path, timeout: float) -> None:
        self._timeout = timeout
        self._holder = folder / "write.lock.holder"
        self._file = FileLock(str(folder / "write.lock"), thread_local=False)
        self._thread = threading.RLock()
        self._depth = 0

    @contextlib.contextmanager
    def held(self, patience: float | None = None) -> Iterator[None]:
        """Hold the lock for the length of a `with` block.

        Args:
            patience: Seconds to wait at most, where the store's time-out is too long.

        Raises:
            StoreLockedError: another writer kept it for longer than the time-out.
        """
        timeout = self._timeout if patience is None else min(patience, self._timeout)
        started = time.monotonic()
        if not self._thread.acquire(timeout=timeout):
            raise StoreLockedError(self._explain(timeout))
        try:
            if self._depth == 0:
                self._acquire_file(timeout, max(0.0, timeout - (time.monotonic() - started)))
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._file.release()
        finally:
            self._thread.release()

    def _acquire_file(self, timeout: float, left: float) -> None:
        try:
            self._file.acquire(timeout=left, poll_interval=0.01)
        except Timeout as error:
            raise StoreLockedError(self._explain(timeout)) from error
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        # only a hint for the other side's error message: a full disk must not stop the write here
        with contextlib.suppress(OSError):
            self._holder.write_text(json.dumps(holder), encoding="utf-8")

    def _explain(self, timeout: float) -> str:
        try:
            known = json.loads(self._holder.read_text(encoding="utf-8"))
            holder = f"process {known['pid']} on {known['host']} (since {known['since']})"
        except (OSError, ValueError, KeyError):
            holder = "another writer"
        return (
            f"Could not write to {self._holder.parent} within {timeout:g} s: {holder} holds the write lock. "
            "Wait for it to finish, or open the store with a larger lock_timeout."
        )
