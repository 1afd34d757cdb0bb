"""`HybridStore`: LangGraph's long-term memory over a store. Needs the extra `langgraph`, loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_agentrag.lazy_imports import lazy_getattr

if TYPE_CHECKING:
    from langchain_agentrag.langgraph.memory_text import memory_text
    from langchain_agentrag.langgraph.store import HybridStore

__all__ = ["HybridStore", "memory_text"]

__getattr__ = lazy_getattr(
    __name__,
    {"memory_text": ["memory_text"], "store": ["HybridStore"]},
    requires="langgraph.store.base",
    feature="LangGraph's store",
    extra="langgraph",
)


def __dir__() -> list[str]:
    return __all__
