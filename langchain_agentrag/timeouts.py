"""Timeout for blocking calls: run a call in a daemon thread and stop waiting when the time is over."""

from __future__ import annotations

import atexit
import contextvars
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

EXIT_GRACE = 5.0
"""Seconds that all late calls together may still take at process exit. A thread that is cut off inside native code, a
model's say, crashes the whole process."""

_late_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class CallTimeoutError(TimeoutError):
    """The time limit of `run_with_timeout` was reached; the call goes on, as Python cannot stop a thread."""


def run_with_timeout(timeout: float | None, call: Callable[[], T], thread_name: str) -> T:
    """Run a call with a timeout and return its result.

    Without a timeout the call runs in this thread, else in one of its own that sees the caller's context variables.

    Args:
        timeout: Seconds to wait; None waits for ever, 0 or less does not start the call.
        call: The call; what it raises is raised here.
        thread_name: Name of the thread.

    Raises:
        CallTimeoutError: the time is over. A `TimeoutError` of the call itself is raised as it is.
    """
    if timeout is None:
        return call()
    if timeout > 0:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
                future.set_exception(error)

        context = contextvars.copy_context()
        # a daemon: a call that never ends must not keep the process from ending
        thread = threading.Thread(target=context.run, args=(run,), name=thread_name, daemon=True)
        thread.start()
        thread.join(timeout)
        if future.done():
            return future.result()
        _late_threads.add(thread)
    raise CallTimeoutError(f"it took longer than {timeout:g} s")


@atexit.register
def _wait_for_late_calls() -> None:
    deadline = time.monotonic() + EXIT_GRACE
    for thread in list(_late_threads):
        thread.join(max(0.0, deadline - time.monotonic()))
