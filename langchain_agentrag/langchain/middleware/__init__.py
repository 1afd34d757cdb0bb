"""Middleware for LangChain agents (`create_agent`): what a loop of model and tools needs around it.

They need the extra `langchain`, which is loaded when a name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_agentrag.lazy_imports import lazy_getattr

if TYPE_CHECKING:
    from langchain_agentrag.langchain.middleware.budget import RetrievalBudgetMiddleware
    from langchain_agentrag.langchain.middleware.guard import ToolGuardMiddleware
    from langchain_agentrag.langchain.middleware.recorder import MemoryRecorderMiddleware

__all__ = ["MemoryRecorderMiddleware", "RetrievalBudgetMiddleware", "ToolGuardMiddleware"]

__getattr__ = lazy_getattr(
    __name__,
    {
        "budget": ["RetrievalBudgetMiddleware"],
        "guard": ["ToolGuardMiddleware"],
        "recorder": ["MemoryRecorderMiddleware"],
    },
    requires="langchain.agents.middleware",
    feature="Middleware",
    extra="langchain",
)


def __dir__() -> list[str]:
    return __all__
