"""A `sum` that the package must not call on floats while tests run.

From Python 3.12 on, `sum` corrects the rounding errors of floats; before, it does not. A score or a mean computed with
it differs by one unit in the last place between Pythons, and so can a ranking. `math.fsum`, NumPy or a loop round the
same everywhere.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from typing import Any

_builtin_sum = builtins.sum


def checked_sum(values: Iterable[Any], /, start: Any = 0) -> Any:
    """The sum of the values; an AssertionError where a module of the package adds floats."""
    total = _builtin_sum(values, start)
    if isinstance(total, float):
        caller = sys._getframe(1)
        module = str(caller.f_globals.get("__name__", ""))
        if module.partition(".")[0] == "langchain_agentrag":
            place = f"{module}, line {caller.f_lineno}"
            raise AssertionError(
                f"sum() adds floats in {place}: it rounds differently from Python 3.12 on. Use math.fsum."
            )
    return total


def install() -> None:
    """Make every later call of `sum` a checked one."""
    builtins.sum = checked_sum  # type: ignore[assignment]
