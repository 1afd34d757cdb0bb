"""LlamaIndex integration: retriever, vector store, query engine, tools, memories, readers, sentence splitter.

Without an agent they see shared documents only. They need the extra `llama-index` (llama-index-core), which is imported
on first use of a name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from langchain_agentrag.errors import MissingExtraError

if TYPE_CHECKING:
    from langchain_agentrag.llama_index.budget import budgeted_tools
    from langchain_agentrag.llama_index.filters import parse_filters
    from langchain_agentrag.llama_index.guard import guarded_tool
    from langchain_agentrag.llama_index.ingestion import (
        ConnectorReader,
        StoreEmbedding,
        chinese_sentence_splitter,
    )
    from langchain_agentrag.llama_index.memory import HybridMemoryBlock
    from langchain_agentrag.llama_index.query_engine import (
        AgentQueryEngine,
        Citation,
        check_response,
        citations,
    )
    from langchain_agentrag.llama_index.recorder import RecordingMemory
    from langchain_agentrag.llama_index.retriever import HybridRetriever
    from langchain_agentrag.llama_index.tools import as_query_engine_tool
    from langchain_agentrag.llama_index.vectorstore import HybridVectorStore

_HOMES = {
    "AgentQueryEngine": "query_engine",
    "Citation": "query_engine",
    "ConnectorReader": "ingestion",
    "HybridMemoryBlock": "memory",
    "HybridRetriever": "retriever",
    "HybridVectorStore": "vectorstore",
    "RecordingMemory": "recorder",
    "StoreEmbedding": "ingestion",
    "as_query_engine_tool": "tools",
    "budgeted_tools": "budget",
    "check_response": "query_engine",
    "chinese_sentence_splitter": "ingestion",
    "citations": "query_engine",
    "guarded_tool": "guard",
    "parse_filters": "filters",
}

__all__ = [
    "AgentQueryEngine",
    "Citation",
    "ConnectorReader",
    "HybridMemoryBlock",
    "HybridRetriever",
    "HybridVectorStore",
    "RecordingMemory",
    "StoreEmbedding",
    "as_query_engine_tool",
    "budgeted_tools",
    "check_response",
    "chinese_sentence_splitter",
    "citations",
    "guarded_tool",
    "parse_filters",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use.

    Raises:
        MissingExtraError: llama-index-core is not installed.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        importlib.import_module("llama_index.core")
    except ImportError as error:
        if (error.name or "").split(".")[0] != "llama_index":
            raise
        raise MissingExtraError("LlamaIndex", "llama-index") from error
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return __all__
