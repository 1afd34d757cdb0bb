"""`HybridStore`: LangGraph's long-term memory over a store. Needs the extra `langgraph`, loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_agentrag.lazy_imports import lazy_getattr

if TYPE_CHECKING:
    from langchain_agentrag.langgraph.store import HybridStore

__all__ = ["HybridStore"]

__getattr__ = lazy_getattr(
    __name__,
    {"store": ["HybridStore"]},
    requires="langgraph.store.base",
    feature="LangGraph's store",
    extra="langgraph",
)


def __dir__() -> list[str]:
    return __all__
