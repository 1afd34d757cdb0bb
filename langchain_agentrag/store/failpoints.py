"""Failpoints: named points of the write protocol where a test may kill the process.

`AGENTRAG_FAILPOINT=name` or `name:n` kills the process the n-th time it reaches that point. Without the variable a
failpoint does nothing.
"""

from __future__ import annotations

import os
import signal

FAILPOINTS = tuple(
    """
    journal-written keyword-written vectors-written before-commit committed dead-rows-removed journal-cleared
    promotion-started promotion-filled background-announced background-written background-committed
    rebuild-filled rebuild-swapped chroma-given-up chroma-reset forget-committed forget-dropped
    purge-started purged vectors-deleted vectors-erased indexes-purged erased
    """.split()  # noqa: SIM905
)
"""Names of all failpoints, in the order a write reaches them."""

_name, _, _times = os.environ.get("AGENTRAG_FAILPOINT", "").partition(":")
_remaining = int(_times or 1)

if _name:

    def failpoint(point: str) -> None:
        """Kill the process when this is the configured point."""
        global _remaining  # noqa: PLW0603  (a counter of a process that is about to be killed)
        if point == _name:
            _remaining -= 1
            if _remaining <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

else:

    def failpoint(point: str) -> None:
        """Do nothing: no failpoint was configured when the process started."""
