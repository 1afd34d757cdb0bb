"""Middleware for LangChain agents (`create_agent`): what a loop of model and tools needs around it.

They need the extra `langchain`, which is loaded when a name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from langchain_agentrag.errors import MissingExtraError

if TYPE_CHECKING:
    from langchain_agentrag.langchain.middleware.budget import RetrievalBudgetMiddleware
    from langchain_agentrag.langchain.middleware.guard import ToolGuardMiddleware
    from langchain_agentrag.langchain.middleware.recorder import MemoryRecorderMiddleware

_HOMES = {
    "MemoryRecorderMiddleware": "recorder",
    "RetrievalBudgetMiddleware": "budget",
    "ToolGuardMiddleware": "guard",
}

__all__ = [
    "MemoryRecorderMiddleware",
    "RetrievalBudgetMiddleware",
    "ToolGuardMiddleware",
]


def __getattr__(name: str) -> Any:
    """The names above, loaded on first use.

    Raises:
        MissingExtraError: langchain is not installed.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        importlib.import_module("langchain.agents.middleware")
    except ImportError as error:
        if (error.name or "").split(".")[0] != "langchain":
            raise
        raise MissingExtraError("Middleware", "langchain") from error
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
