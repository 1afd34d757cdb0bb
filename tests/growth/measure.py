"""Measurement of how the processing time of a call grows with the length of its text."""

from __future__ import annotations

import contextlib
import gc
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from langchain_agentrag.connector import NotIndexableError
from langchain_agentrag.connectors.memory.messages import NotAMessageError
from langchain_agentrag.errors import AgentRagError
from tests.growth.patterns import Pattern

Call = Callable[[str], object]

ENOUGH = 0.4
"""Seconds from which on a longer text need not be measured."""

LIMIT = 2.0
"""Seconds of processor time after which a call is broken off."""

ABOVE_NOISE = 0.004
"""Seconds; shorter calls say nothing about growth."""

SUSPICIOUS = 6 * ABOVE_NOISE
"""Seconds up to which a call is quick enough, however it grows; `python -m tests.growth` measures longer texts."""

MAX_EXPONENT = 1.4
"""Largest growth: n log n has 1.1 between 10,000 and 100,000 characters, and a cache that overflows adds a little."""

MAX_PER_CHARACTER = 60e-6
"""Seconds per character, at any length."""


class TooSlowError(BaseException):
    """A call was broken off after `LIMIT`."""


@contextlib.contextmanager
def _limit(seconds: float) -> Iterator[None]:
    def stop(_signal: int, _frame: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass(frozen=True)
class Growth:
    """Measured growth of one call on one pattern.

    Attributes:
        points: (length, seconds), ascending.
        error: An error that the call raised and may not raise.
    """

    points: tuple[tuple[int, float], ...]
    error: str = ""

    @property
    def exponent(self) -> float:
        """Slope of log seconds over log length, over the last doublings that are above noise; 0 below noise."""
        clear = [(n, seconds) for n, seconds in self.points if seconds >= ABOVE_NOISE]
        if len(clear) < 2:
            return 0.0 if not clear or len(self.points) < 2 else self._slope(self.points[-2], self.points[-1])
        return self._slope(clear[max(-len(clear), -3)], clear[-1])

    @staticmethod
    def _slope(first: tuple[int, float], last: tuple[int, float]) -> float:
        return math.log(last[1] / max(first[1], ABOVE_NOISE / 4)) / math.log(last[0] / first[0])

    @property
    def seconds_at_most(self) -> float:
        """Seconds of the last measurement, per character."""
        return self.longest[1] / self.longest[0]

    @property
    def longest(self) -> tuple[int, float]:
        """Length and seconds of the last measurement."""
        return self.points[-1]

    @property
    def fault(self) -> str:
        """What is wrong; "" if nothing is."""
        if self.error:
            return self.error
        n, seconds = self.longest
        if seconds == math.inf:
            return f"more than {LIMIT} s for {n:,} characters"
        if seconds > SUSPICIOUS and self.exponent > MAX_EXPONENT:
            return f"grows with the power {self.exponent:.2f}: {seconds:.2f} s for {n:,} characters"
        if seconds > ENOUGH / 2 and seconds / n > MAX_PER_CHARACTER:
            return f"{seconds / n * 1e6:.0f} µs per character"
        return ""


def seconds_of(call: Call, text: str) -> float:
    """Return the processor seconds of one call; infinite if it was broken off."""
    started = time.process_time()
    try:
        with _limit(LIMIT):
            call(text)
    except TooSlowError:
        return math.inf
    return time.process_time() - started


def measure(call: Call, pattern: Pattern, lengths: Sequence[int], repeats: int = 1) -> Growth:
    """Measure a call on a pattern at ascending lengths, with a new text for each repetition because of caches."""
    points: list[tuple[int, float]] = []
    gc.disable()
    try:
        for n in lengths:
            try:
                seconds = min(seconds_of(call, pattern(n + 7 * repeat)) for repeat in range(repeats))
            except Exception as error:
                return Growth((*points, (n, 0.0)), f"{type(error).__name__} at {n:,} characters: {str(error)[:150]}")
            points.append((n, seconds))
            if seconds > ENOUGH:
                break
    finally:
        gc.enable()
    return Growth(tuple(points))


def growth_of(call: Call, pattern: Pattern, last: int, *, again: bool = True) -> Growth:
    """Measure a call at a length, and at a quarter of it if it is slow; what looks like a fault, at doubling lengths too.

    A fault counts if it is there in each of three measurements, since the machine may be busy with other things.
    """
    growth = measure(call, pattern, (last,))
    if not growth.error and growth.longest[1] <= SUSPICIOUS:
        return growth
    growth = measure(call, pattern, (last // 4, last))
    for repeats in (1, 2, 3) if again else ():
        if not growth.fault or growth.error:
            break
        growth = measure(call, pattern, [n for n in (last >> place for place in range(6, -1, -1)) if n >= 250], repeats)
    return growth


def refused_or_done(call: Call) -> Call:
    """Return the call with errors of this package counting as an answer; any other error is a fault."""

    def checked(text: str) -> object:
        try:
            return call(text)
        except (AgentRagError, NotAMessageError, NotIndexableError):
            return None

    return checked
