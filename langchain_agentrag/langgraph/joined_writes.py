"""Writes of a store that wait for each other are joined: many callers, one commit."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from langgraph.store.base import Result

from langchain_agentrag.errors import StoreError
from langchain_agentrag.indexer import DualIndexer


class WriteCall:
    """Operations of one caller, run in the caller's context: that may name the agent.

    Args:
        ops: The operations.
    """

    def __init__(self, ops: Sequence[Any]) -> None:
        self.ops, self._context = ops, contextvars.copy_context()
        self._results: list[Result] | None = None
        self._error: BaseException | None = None

    def run_in_context(self, function: Callable[..., list[Result]], *arguments: Any) -> list[Result]:
        """Call a function in the caller's context."""
        return self._context.run(function, *arguments)

    def succeed(self, results: list[Result]) -> None:
        """Set the results of the operations."""
        self._results = results

    def fail(self, error: BaseException) -> None:
        """Set the error that the caller gets."""
        self._error = error

    @property
    def is_done(self) -> bool:
        """Whether results or an error are set."""
        return self._results is not None or self._error is not None

    def result(self) -> list[Result]:
        """Return the results, or raise the error."""
        if self._error is not None:
            raise self._error
        if self._results is None:
            raise RuntimeError("the operations were not executed")
        return self._results


def write_calls(write: Callable[[Sequence[WriteCall]], None], calls: Sequence[WriteCall]) -> None:
    """Write calls as one batch; what that raises is the outcome of all that have none yet."""
    try:
        write(calls)
    except BaseException as error:  # also an interrupt, or the other callers would get no answer
        for call in calls:
            if not call.is_done:
                call.fail(error)
        if not isinstance(error, Exception):
            raise


class JoinedWrites:
    """Queue of writes, in order: while one batch is written, later calls gather, and are the next batch.

    Callers may be threads and tasks of any event loop. No thread of its own: each caller's thread writes what has
    gathered. Closing the store waits for what is queued, once a thread has started on it.

    Args:
        indexer: The store.
        write: Writes the calls of one batch and sets the outcome of each, or raises what all others get.
    """

    def __init__(self, indexer: DualIndexer, write: Callable[[Sequence[WriteCall]], None]) -> None:
        self._indexer, self._write = indexer, write
        self._queue: deque[WriteCall] = deque()
        self._turn = threading.RLock()  # reentrant: a model that embeds may itself put

    def run(self, ops: Sequence[Any]) -> list[Result]:
        """Execute the operations of one caller and return their results."""
        call = WriteCall(ops)
        self._queue.append(call)
        self._finish(call)
        return call.result()

    async def arun(self, ops: Sequence[Any]) -> list[Result]:
        """`run` in a worker thread. When it is cancelled before that started, nothing is written."""
        call = WriteCall(ops)
        self._queue.append(call)
        try:
            await asyncio.to_thread(self._finish, call)
        except asyncio.CancelledError:
            self._withdraw(call)
            raise
        return call.result()

    def _finish(self, call: WriteCall) -> None:
        """Return when the call is done: written here, or by another thread, whose turn this one waits for."""
        if call.is_done:
            return
        try:
            self._indexer.run_call(self._write_queued)
        except StoreError as error:  # the store is closed, or its folder gone
            if self._withdraw(call):
                call.fail(error)
            else:
                with self._turn:  # another thread writes it
                    pass

    def _write_queued(self) -> None:
        with self._turn:
            calls: list[WriteCall] = []
            while self._queue:
                calls.append(self._queue.popleft())
            write_calls(self._write, calls)

    def _withdraw(self, call: WriteCall) -> bool:
        """Remove a call from the queue; return whether it was still there."""
        try:
            self._queue.remove(call)
        except ValueError:
            return False
        return True
