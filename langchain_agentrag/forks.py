"""Locks of the process that a fork leaves usable in the child, and blocks that a fork waits for."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Final

_FORK_PATIENCE: Final = 5.0  # seconds that a fork waits for the blocks of `ForkGate` that run


def fork_safe_lock() -> threading.Lock:
    """Return a lock that is free in a forked child.

    A fork copies a lock that another thread holds, but not the thread that would release it. So a fork waits until the
    lock is free. For locks that are held for a moment, and never around a fork.
    """
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


class ForkGate:
    """Blocks during which no other thread forks, such as write transactions of SQLite.

    SQLite records the locks of a process in its memory, and a child gets a copy: one forked within a transaction
    of another thread would find its database locked for ever.
    """

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(before=self._close, after_in_parent=self._open, after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[int, int] = {}  # thread → its blocks
        self._forking = False

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Run a block that a fork waits for, at most 5 seconds; blocks of one thread may be nested."""
        thread = threading.get_ident()
        with self._changed:
            while self._forking and thread not in self._running:
                self._changed.wait()
            self._running[thread] = self._running.get(thread, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._running[thread] = self._running.get(thread, 1) - 1
                if self._running[thread] <= 0:
                    del self._running[thread]
                    self._changed.notify_all()

    def _close(self) -> None:
        deadline, own = time.monotonic() + _FORK_PATIENCE, threading.get_ident()
        with self._changed:
            self._forking = True
            while self._running.keys() - {own} and (remaining := deadline - time.monotonic()) > 0:
                self._changed.wait(remaining)

    def _open(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()
