"""Running calls of a store: closing waits for them, and whatever comes later is refused.

SQLite, tantivy and Chroma crash the process when a handle is closed under a running call. So every call that uses the
store's files goes through `RunningCalls.run`, also on the worker threads of a call and in the background.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from langchain_agentrag.errors import StoreClosedError, StoreError
from langchain_agentrag.store.fork import inherited_store_error

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class _Call:
    """One running call: the store, the call it was made within, and its thread."""

    __slots__ = ("parent", "store", "thread")

    def __init__(self, store: RunningCalls, parent: _Call | None) -> None:
        self.store, self.parent, self.thread = store, parent, threading.get_ident()


_current: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("agentrag-call", default=None)
"""The innermost call of this context; a worker thread that runs in a copy of the context works for the same call."""


class RunningCalls:
    """The calls that run on one store. Thread-safe, also when a destructor closes the store in the middle of a call.

    A call within a call belongs to it and is admitted while the store is being closed. A call registers itself before
    it looks whether the store is being closed, and `close` first says so and then looks for calls: either the call sees
    the closing, or `close` sees the call. So a call takes no lock.

    Args:
        folder: The store's folder, for messages.
        check: Raises when the folder is not the one that was opened; runs before each call that is not within another.
    """

    def __init__(self, folder: Path, check: Callable[[], None]) -> None:
        self._folder, self._check, self._pid = folder, check, os.getpid()
        self._running: set[_Call] = set()
        self._closing = self._released = False
        self._changed = threading.Condition()  # reentrant: a destructor may close the store at any point
        self._waiting = 0  # closers that wait for running calls
        self._release: Callable[[], None] | None = None
        self._releasing: int | None = None  # the thread that releases the files

    @property
    def is_inherited(self) -> bool:
        """Whether the store was opened by the parent of this process."""
        return self._pid != os.getpid()

    def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call and return its result; the files stay open until it ends.

        Raises:
            StoreClosedError: The store is closed or being closed, or was opened by the parent of this process.
            StoreError: SQLite failed within the store, or the folder was moved, removed or replaced.
        """
        if self._pid != os.getpid():
            raise inherited_store_error(self._folder, self._pid)
        parent = _current.get()
        running = _Call(self, parent)
        try:
            self._running.add(running)
            if self._closing and not self._is_within_running_call(running):
                raise self._closed_error()
            if parent is None or parent.store is not self:
                self._check()
            token = _current.set(running)
            try:
                return call(*args, **kwargs)
            except sqlite3.Error as error:
                if not _is_from_store(error):
                    raise
                raise StoreError(
                    f"The catalog of {self._folder} could not be read or written: {error}. Nothing that was "
                    "acknowledged is lost: check free space, open files (ulimit -n) and permissions, then run verify()."
                ) from error
            finally:
                _current.reset(token)
        finally:
            self._running.discard(running)
            if self._closing:
                self._on_end_while_closing()

    def bind(self, call: Callable[P, T]) -> Callable[P, T]:
        """Return the call for a worker thread of the present call: it belongs to it, and is counted itself."""
        context = contextvars.copy_context()

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            return context.run(self.run, call, *args, **kwargs)

        return run

    def check_open(self) -> None:
        """Check that the files are open in this process.

        Raises:
            StoreClosedError: They are not.
        """
        if self._pid != os.getpid():
            raise inherited_store_error(self._folder, self._pid)
        if self._released:
            raise self._closed_error()

    def close(self, release: Callable[[], None], timeout: float | None) -> bool:
        """Refuse later calls, wait for running ones, and release the files once; idempotent.

        The last running call releases them instead when nobody waits any more: `close` was called within a call, was
        interrupted, or the time was over.

        Args:
            release: Closes the files; may be called again when it raised.
            timeout: Seconds to wait for running calls; None waits until they end.

        Returns:
            Whether the files are released.
        """
        self._release = release
        self._closing = True
        if self._is_within_running_call(None):
            return self._released
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._waiting += 1
            try:
                while not self._released:
                    if self._releasing == threading.get_ident():  # a destructor, in the middle of releasing
                        return False
                    if not self._running and self._releasing is None:
                        break
                    remaining = None if deadline is None else deadline - time.monotonic()
                    if remaining is not None and remaining <= 0:
                        logger.warning(
                            "%s: %d calls still run %g s after close(). No other call is admitted; the files are "
                            "released when the last of them ends.",
                            self._folder,
                            len(self._running),
                            timeout,
                        )
                        return False
                    self._changed.wait(remaining)
            finally:
                self._waiting -= 1
        self._release_files()
        return self._released

    def _is_within_running_call(self, call: _Call | None) -> bool:
        """Whether this thread, or the call that this context works for, is within another running call."""
        running = self._running.copy()
        if call is not None:
            running.discard(call)
        if not running:
            return False
        thread = threading.get_ident()
        if any(other.thread == thread for other in running):
            return True
        parent = _current.get()
        while parent is not None:
            if parent in running:
                return True
            parent = parent.parent
        return False

    def _on_end_while_closing(self) -> None:
        with self._changed:
            self._changed.notify_all()
            if self._running or self._waiting or self._release is None:
                return
        try:
            self._release_files()
        except Exception as error:  # noqa: BLE001  (the call that happens to be the last has succeeded)
            logger.warning("%s could not be closed: %s", self._folder, error)

    def _release_files(self) -> None:
        with self._changed:
            if self._released or self._releasing is not None or self._release is None:
                return
            self._releasing = threading.get_ident()
        try:
            self._release()
            self._released = True
        finally:
            with self._changed:
                self._releasing = None
                self._changed.notify_all()

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"The store {self._folder} is closed: open it again to use it.")


class _HasCalls(Protocol):
    _calls: RunningCalls


Holder = TypeVar("Holder", bound=_HasCalls)


def store_call(method: Callable[Concatenate[Holder, P], T]) -> Callable[Concatenate[Holder, P], T]:
    """Make a method a call of the store that its object has as `_calls`; see `RunningCalls.run`."""

    def run(self: Holder, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._calls.run(method, self, *args, **kwargs)

    functools.update_wrapper(run, method)
    return run


_PACKAGES = tuple(f"langchain_agentrag.{name}" for name in ("store.", "ingest.", "search.", "indexer"))


def _is_from_store(error: BaseException) -> bool:
    """Whether an error was raised by a statement of the store, not by a database of the caller's own code."""
    trace: Any = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(_PACKAGES)
