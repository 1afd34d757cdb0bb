"""A call that is waited for no longer than so many seconds."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class OutOfTimeError(Exception):
    """The time was over before the call was; it goes on in its thread, as Python cannot stop it."""


def within(seconds: float | None, call: Callable[[], T]) -> T:
    """What a call returns or raises; without a limit it runs in this thread, else in one of its own.

    The thread sees the context variables of the caller.

    Raises:
        OutOfTimeError: the time was over first.
    """
    if seconds is None:
        return call()
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = call()
        except BaseException as error:  # noqa: BLE001  it is raised again where the call was made
            outcome["error"] = error

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), daemon=True, name="agentrag-timed-call")
    thread.start()
    thread.join(max(0.0, seconds))
    if thread.is_alive():
        raise OutOfTimeError(f"it took longer than {seconds:g} s")
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]  # type: ignore[no-any-return]
