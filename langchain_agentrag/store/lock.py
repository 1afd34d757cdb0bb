"""Write lock of a store: one writer at a time, across threads and processes, held per batch."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from langchain_agentrag.errors import StoreError, StoreLockedError


class WriteLock:
    """Reentrant file lock on a store's folder.

    The operating system releases it when the process that holds it dies, so a killed writer never blocks the next one.

    Args:
        folder: The store's folder.
        timeout: Seconds to wait for another writer.
        check: Raises when the folder is not the one that was opened; called before and after acquiring the lock.
    """

    def __init__(self, folder: Path, timeout: float, check: Callable[[], None] = lambda: None) -> None:
        self._timeout, self._check = timeout, check
        self._holder_file = folder / "write.lock.holder"
        self._file = FileLock(str(folder / "write.lock"), thread_local=False)
        self._thread = threading.RLock()
        self._depth = 0

    @contextlib.contextmanager
    def acquire(self, timeout: float | None = None) -> Iterator[None]:
        """Hold the lock within a `with` block.

        Args:
            timeout: Seconds to wait; at most, and by default, the store's timeout.

        Raises:
            StoreLockedError: Another writer held it for longer than the timeout.
            StoreError: The folder cannot be written, or is not the one that was opened.
        """
        timeout = self._timeout if timeout is None else min(timeout, self._timeout)
        start = time.monotonic()
        if not self._thread.acquire(timeout=timeout):
            raise StoreLockedError(self._message(timeout))
        try:
            if self._depth == 0:
                self._acquire_file(timeout, max(0.0, timeout - (time.monotonic() - start)))
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._file.release()
        finally:
            self._thread.release()

    def _acquire_file(self, timeout: float, remaining: float) -> None:
        self._check()  # filelock would create a folder that is not there
        try:
            _check_descriptors()
            self._file.acquire(timeout=remaining, poll_interval=0.01)
        except Timeout as error:
            raise StoreLockedError(self._message(timeout)) from error
        except OSError as error:
            raise StoreError(
                f"Cannot lock {self._holder_file.parent} for writing: {error}. Nothing was written; check free space, "
                "open files (ulimit -n) and permissions, then write it again."
            ) from error
        try:
            self._check()
        except BaseException:
            self._file.release()
            raise
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        # only for the error message of another process: a full disk must not stop the write here
        with contextlib.suppress(OSError):
            self._holder_file.write_text(json.dumps(holder), encoding="utf-8")

    def _message(self, timeout: float) -> str:
        try:
            info = json.loads(self._holder_file.read_text(encoding="utf-8"))
            holder = f"process {info['pid']} on {info['host']} (since {info['since']})"
        except (OSError, ValueError, KeyError):
            holder = "another writer"
        return (
            f"Could not write to {self._holder_file.parent} within {timeout:g} s: {holder} holds the write lock. "
            "Wait for it to finish, or open the store with a larger lock_timeout."
        )


_DESCRIPTORS = 24  # a write opens about as many files at a time in SQLite, tantivy and Chroma


def _check_descriptors() -> None:
    """Check that enough files can be opened: an index that fails for want of them would look damaged and be rebuilt.

    Raises:
        OSError: The process may not open as many.
    """
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while len(opened) < _DESCRIPTORS:
            opened.append(os.dup(opened[0]))
    finally:
        for descriptor in opened:
            os.close(descriptor)
