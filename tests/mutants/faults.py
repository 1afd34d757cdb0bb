"""Faults: patches that replace one function of the engine by a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

Fault = Callable[[], AbstractContextManager[Any]]
FAULTS: dict[str, tuple[Fault, dict[str, Any]]] = {}
ON_CHROMA = {"chroma": "always", "exact_limit": 0}
BEHIND = {"chroma": "auto", "exact_limit": 1}  # some rows in the graph, some unindexed


def fault(title: str, **options: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Register a context manager, or a function that returns one."""

    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        FAULTS[title] = (make, options)
        return make

    return register


def around(target: Any, name: str, wrong: Callable[..., Any]) -> AbstractContextManager[Any]:
    """`wrong(original, *arguments)` in the place of a function."""
    original = getattr(target, name)

    def replaced(*arguments: Any, **options: Any) -> Any:
        return wrong(original, *arguments, **options)

    return patch.object(target, name, replaced)
