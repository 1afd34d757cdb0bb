"""A thread that sweeps now and then."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from langchain_agentrag.errors import UsageError

logger = logging.getLogger(__name__)


class Sweeper:
    """Calls a function every so often until it is stopped; a failure is logged and tried again at the next turn.

    Args:
        sweep: What to call; it says how much it removed.
    """

    def __init__(self, sweep: Callable[[], int]) -> None:
        self._sweep = sweep
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, minutes: float) -> None:
        """Begin, unless it has begun.

        Raises:
            UsageError: the interval is no positive number.
        """
        if not minutes > 0:
            raise UsageError(f"Cannot sweep every {minutes!r} minutes: pass a positive number.")
        if self._thread is None or not self._thread.is_alive():
            self._ended.clear()
            self._thread = threading.Thread(
                target=self._run, args=(minutes * 60,), daemon=True, name="agentrag-sweeper"
            )
            self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """End; whether the thread did within so many seconds."""
        self._ended.set()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            try:
                logger.info("swept %d expired items", self._sweep())
            except Exception:
                logger.exception("a sweep failed; the next one tries again")
