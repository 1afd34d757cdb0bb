"""Hybrid search for AI agents over files, SQL rows, dialogues and tool calls, in Chinese and English.

Names are loaded on first use: importing the package loads none of chromadb, tantivy, torch or llama_index.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_agentrag.agent.budget import RetrievalBudget
    from langchain_agentrag.agent.citations import CitedSource, check_citations, model_judge
    from langchain_agentrag.agent.loop import run_agent
    from langchain_agentrag.agent.operations import Operations
    from langchain_agentrag.agent.tool_rules import GuardedTool, NothingDone, ToolRule
    from langchain_agentrag.agent.untrusted import PassageSafety
    from langchain_agentrag.analysis import Analyzer
    from langchain_agentrag.chunking import Chunking
    from langchain_agentrag.connectors.base import BaseConnector
    from langchain_agentrag.connectors.files import FileSystemConnector
    from langchain_agentrag.connectors.memory import AgentMemoryConnector
    from langchain_agentrag.connectors.sql import DatabaseConnector
    from langchain_agentrag.connectors.sql_query import ReadOnlyDatabase
    from langchain_agentrag.connectors.sql_schema import DatabaseSchemaConnector
    from langchain_agentrag.embedding import HashingEmbeddings
    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.ingest.quarantine import quarantined
    from langchain_agentrag.langgraph_store import HybridStore
    from langchain_agentrag.record_manager import HybridRecordManager
    from langchain_agentrag.records import Hit, Hits, SourceDocument
    from langchain_agentrag.retriever import HybridRetriever
    from langchain_agentrag.search.router import QueryUnderstandingRouter
    from langchain_agentrag.sql_tool import SQLTool
    from langchain_agentrag.structured import HybridTranslator
    from langchain_agentrag.tools import AgentRAGToolkit, ReadTool, SearchTool
    from langchain_agentrag.vectorstore import HybridVectorStore
    from langchain_agentrag.view import AgentView

_HOMES = {
    "AgentMemoryConnector": "connectors.memory",
    "AgentRAGToolkit": "tools",
    "AgentView": "view",
    "Analyzer": "analysis",
    "BaseConnector": "connectors.base",
    "Chunking": "chunking",
    "CitedSource": "agent.citations",
    "DatabaseConnector": "connectors.sql",
    "DatabaseSchemaConnector": "connectors.sql_schema",
    "DualIndexer": "indexer",
    "FileSystemConnector": "connectors.files",
    "GuardedTool": "agent.tool_rules",
    "HashingEmbeddings": "embedding",
    "Hit": "records",
    "Hits": "records",
    "HybridRecordManager": "record_manager",
    "HybridRetriever": "retriever",
    "HybridStore": "langgraph_store",
    "HybridTranslator": "structured",
    "HybridVectorStore": "vectorstore",
    "NothingDone": "agent.tool_rules",
    "Operations": "agent.operations",
    "PassageSafety": "agent.untrusted",
    "QueryUnderstandingRouter": "search.router",
    "ReadOnlyDatabase": "connectors.sql_query",
    "ReadTool": "tools",
    "RetrievalBudget": "agent.budget",
    "SQLTool": "sql_tool",
    "SearchTool": "tools",
    "SourceDocument": "records",
    "ToolRule": "agent.tool_rules",
    "check_citations": "agent.citations",
    "model_judge": "agent.citations",
    "quarantined": "ingest.quarantine",
    "run_agent": "agent.loop",
}

__version__ = "0.1.0"
__all__ = [
    "AgentMemoryConnector",
    "AgentRAGToolkit",
    "AgentView",
    "Analyzer",
    "BaseConnector",
    "Chunking",
    "CitedSource",
    "DatabaseConnector",
    "DatabaseSchemaConnector",
    "DualIndexer",
    "FileSystemConnector",
    "GuardedTool",
    "HashingEmbeddings",
    "Hit",
    "Hits",
    "HybridRecordManager",
    "HybridRetriever",
    "HybridStore",
    "HybridTranslator",
    "HybridVectorStore",
    "NothingDone",
    "Operations",
    "PassageSafety",
    "QueryUnderstandingRouter",
    "ReadOnlyDatabase",
    "ReadTool",
    "RetrievalBudget",
    "SQLTool",
    "SearchTool",
    "SourceDocument",
    "ToolRule",
    "check_citations",
    "model_judge",
    "quarantined",
    "run_agent",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
