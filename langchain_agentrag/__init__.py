"""Hybrid search for AI agents over files, SQL rows, dialogues and tool calls, in Chinese and English.

Names are loaded on first use: importing the package loads none of chromadb, tantivy, torch or llama_index.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_agentrag.agent.budget import RetrievalBudget
    from langchain_agentrag.agent.citations import CitedSource, check_citations, model_judge
    from langchain_agentrag.agent.prompt_injection import PassageSafety
    from langchain_agentrag.agent.quarantine import quarantined
    from langchain_agentrag.connector import BaseConnector
    from langchain_agentrag.connectors.files import FileSystemConnector
    from langchain_agentrag.connectors.memory import AgentMemoryConnector
    from langchain_agentrag.connectors.sql.connector import DatabaseConnector
    from langchain_agentrag.connectors.sql.query import ReadOnlyDatabase
    from langchain_agentrag.connectors.sql.schema import DatabaseSchemaConnector
    from langchain_agentrag.embedding import HashingEmbeddings
    from langchain_agentrag.guard.loop import run_agent
    from langchain_agentrag.guard.operations import Operations
    from langchain_agentrag.guard.tool_rules import GuardedTool, NothingDone, ToolRule
    from langchain_agentrag.indexer import AgentView, DualIndexer
    from langchain_agentrag.langchain.middleware import (
        MemoryRecorderMiddleware,
        RetrievalBudgetMiddleware,
        ToolGuardMiddleware,
    )
    from langchain_agentrag.langchain.record_manager import HybridRecordManager
    from langchain_agentrag.langchain.retriever import HybridRetriever
    from langchain_agentrag.langchain.sql_tool import SQLTool
    from langchain_agentrag.langchain.tools import AgentRAGToolkit, ReadTool, SearchTool
    from langchain_agentrag.langchain.translator import HybridTranslator
    from langchain_agentrag.langchain.vectorstore import HybridVectorStore
    from langchain_agentrag.langgraph import HybridStore
    from langchain_agentrag.query.router import QueryUnderstandingRouter
    from langchain_agentrag.text import Analyzer
    from langchain_agentrag.text.chunking import Chunking
    from langchain_agentrag.types import Hit, Hits, SourceDocument

_HOMES = {
    "AgentMemoryConnector": "connectors.memory",
    "AgentRAGToolkit": "langchain.tools",
    "AgentView": "indexer",
    "Analyzer": "text",
    "BaseConnector": "connector",
    "Chunking": "text.chunking",
    "CitedSource": "agent.citations",
    "DatabaseConnector": "connectors.sql.connector",
    "DatabaseSchemaConnector": "connectors.sql.schema",
    "DualIndexer": "indexer",
    "FileSystemConnector": "connectors.files",
    "GuardedTool": "guard.tool_rules",
    "HashingEmbeddings": "embedding",
    "Hit": "types",
    "Hits": "types",
    "HybridRecordManager": "langchain.record_manager",
    "HybridRetriever": "langchain.retriever",
    "HybridStore": "langgraph",
    "HybridTranslator": "langchain.translator",
    "HybridVectorStore": "langchain.vectorstore",
    "MemoryRecorderMiddleware": "langchain.middleware",
    "NothingDone": "guard.tool_rules",
    "Operations": "guard.operations",
    "PassageSafety": "agent.prompt_injection",
    "QueryUnderstandingRouter": "query.router",
    "ReadOnlyDatabase": "connectors.sql.query",
    "ReadTool": "langchain.tools",
    "RetrievalBudget": "agent.budget",
    "RetrievalBudgetMiddleware": "langchain.middleware",
    "SQLTool": "langchain.sql_tool",
    "SearchTool": "langchain.tools",
    "SourceDocument": "types",
    "ToolGuardMiddleware": "langchain.middleware",
    "ToolRule": "guard.tool_rules",
    "check_citations": "agent.citations",
    "model_judge": "agent.citations",
    "quarantined": "agent.quarantine",
    "run_agent": "guard.loop",
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
    "MemoryRecorderMiddleware",
    "NothingDone",
    "Operations",
    "PassageSafety",
    "QueryUnderstandingRouter",
    "ReadOnlyDatabase",
    "ReadTool",
    "RetrievalBudget",
    "RetrievalBudgetMiddleware",
    "SQLTool",
    "SearchTool",
    "SourceDocument",
    "ToolGuardMiddleware",
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
