"""What the checks are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


def expect(holds: object, message: str) -> None:
    """Fail a check.

    Raises:
        AssertionError: it does not hold.
    """
    if not holds:
        raise AssertionError(message)


async def watched(work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """What a coroutine returns, and how often another one had its turn meanwhile."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    async def timed() -> tuple[T, int]:
        result = await work()
        return result, ticks

    running = asyncio.ensure_future(
        timed()
    )  # first in line: whoever never yields is done before the first tick
    ticker = asyncio.ensure_future(tick())
    try:
        return await running
    finally:
        ticker.cancel()
