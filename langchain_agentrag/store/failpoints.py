"""Named points of the write protocol where a test may kill the process; nothing at all otherwise.

`AGENTRAG_FAILPOINT=name` or `name:n` kills the process the n-th time it reaches the point of that name.
"""

from __future__ import annotations

import os
import signal

FAILPOINTS = (
    "journal-written",
    "keyword-written",
    "vectors-written",
    "before-commit",
    "committed",
    "dead-rows-removed",
    "journal-cleared",
    "promotion-started",
    "promotion-filled",
    "handover-announced",
    "handover-written",
    "handed-over",
    "rebuild-filled",
    "rebuild-swapped",
    "chroma-given-up",
    "chroma-reset",
    "forget-committed",
    "forget-dropped",
    "purged",
    "erased",
)
"""Every point, in the order a write reaches them."""

_wanted, _, _times = os.environ.get("AGENTRAG_FAILPOINT", "").partition(":")
_left = int(_times or 1)

if _wanted:

    def failpoint(point: str) -> None:
        """Die here when this is the point asked for."""
        global _left  # noqa: PLW0603  (a counter of a process that is about to be killed)
        if point == _wanted:
            _left -= 1
            if _left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

else:

    def failpoint(point: str) -> None:
        """Nothing: no fault was asked for when the process started."""
