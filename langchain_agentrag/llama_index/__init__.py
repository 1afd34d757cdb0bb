"""LlamaIndex integration: retriever, stores, query engine, tools, memories, readers, sentence splitter.

Without an agent they see shared documents only. They need the extra `llama-index` (llama-index-core), which is imported
on first use of a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_agentrag.lazy_imports import lazy_getattr

if TYPE_CHECKING:
    from langchain_agentrag.llama_index.budget import budgeted_tools
    from langchain_agentrag.llama_index.docstore import HybridDocumentStore
    from langchain_agentrag.llama_index.filters import parse_filters
    from langchain_agentrag.llama_index.guard import guarded_tool
    from langchain_agentrag.llama_index.ingestion import ConnectorReader, StoreEmbedding, chinese_sentence_splitter
    from langchain_agentrag.llama_index.memory import HybridMemoryBlock
    from langchain_agentrag.llama_index.query_engine import (
        AgentQueryEngine,
        Citation,
        FencePassages,
        check_response,
        citations,
    )
    from langchain_agentrag.llama_index.recorder import RecordingMemory
    from langchain_agentrag.llama_index.retriever import HybridRetriever
    from langchain_agentrag.llama_index.tools import as_query_engine_tool
    from langchain_agentrag.llama_index.vectorstore import HybridVectorStore

__all__ = [
    "AgentQueryEngine",
    "Citation",
    "ConnectorReader",
    "FencePassages",
    "HybridDocumentStore",
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

__getattr__ = lazy_getattr(
    __name__,
    {
        "budget": ["budgeted_tools"],
        "docstore": ["HybridDocumentStore"],
        "filters": ["parse_filters"],
        "guard": ["guarded_tool"],
        "ingestion": ["ConnectorReader", "StoreEmbedding", "chinese_sentence_splitter"],
        "memory": ["HybridMemoryBlock"],
        "query_engine": ["AgentQueryEngine", "Citation", "FencePassages", "check_response", "citations"],
        "recorder": ["RecordingMemory"],
        "retriever": ["HybridRetriever"],
        "tools": ["as_query_engine_tool"],
        "vectorstore": ["HybridVectorStore"],
    },
    requires="llama_index.core",
    feature="LlamaIndex",
    extra="llama-index",
)


def __dir__() -> list[str]:
    return __all__
