"""Somebody else's work within a time: what takes longer is not waited for, nor does it keep a process from ending."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

GRACE = 5.0
"""Seconds that all late work together may still take when the process ends. A thread that is cut off inside native
code, a model's say, brings the whole process down with it."""

_late: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def run_with_timeout(timeout: float | None, work: Callable[[], T], name: str) -> T:
    """What the work gives; without a limit in this thread, else in one of its own that is left alone when time is over.

    Args:
        timeout: Seconds to wait, or None.
        work: What to do; what it raises is raised here.
        name: Name of the thread.

    Raises:
        TimeoutError: the time is over.
    """
    if timeout is None:
        return work()
    if timeout <= 0:
        raise TimeoutError
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:  # noqa: BLE001  raised again where it is waited for
            answer.set_exception(error)

    # a daemon: work that never ends must not keep the process from ending
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        return answer.result(timeout)
    except TimeoutError:
        if not answer.done():  # else the work itself raised it
            _late.add(thread)
        raise


@atexit.register
def _let_finish() -> None:
    until = time.monotonic() + GRACE
    for thread in list(_late):
        thread.join(max(0.0, until - time.monotonic()))
