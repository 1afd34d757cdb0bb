"""`HybridStore`: LangGraph's long-term memory over a store. Needs the extra `langgraph`, loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from langchain_agentrag.errors import MissingExtraError

if TYPE_CHECKING:
    from langchain_agentrag.langgraph.store import HybridStore

__all__ = ["HybridStore"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use.

    Raises:
        MissingExtraError: langgraph is not installed.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        importlib.import_module("langgraph.store.base")
    except ImportError as error:
        if (error.name or "").split(".")[0] != "langgraph":
            raise
        raise MissingExtraError("LangGraph's store", "langgraph") from error
    return getattr(importlib.import_module(f"{__name__}.store"), name)


def __dir__() -> list[str]:
    return __all__
