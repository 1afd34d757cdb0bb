"""Hybrid search for AI agents over files, SQL rows, dialogues and tool calls, in Chinese and English.

Names are loaded on first use: importing the package loads none of chromadb, tantivy, torch or llama_index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_agentrag.lazy_imports import lazy_getattr, provide

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
    from langchain_agentrag.langchain.memory_tools import create_memory_tools
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
    "create_memory_tools",
    "model_judge",
    "quarantined",
    "run_agent",
]

__getattr__ = lazy_getattr(
    __name__,
    {
        "agent.budget": ["RetrievalBudget"],
        "agent.citations": ["CitedSource", "check_citations", "model_judge"],
        "agent.prompt_injection": ["PassageSafety"],
        "agent.quarantine": ["quarantined"],
        "connector": ["BaseConnector"],
        "connectors.files": ["FileSystemConnector"],
        "connectors.memory": ["AgentMemoryConnector"],
        "connectors.sql.connector": ["DatabaseConnector"],
        "connectors.sql.query": ["ReadOnlyDatabase"],
        "connectors.sql.schema": ["DatabaseSchemaConnector"],
        "embedding": ["HashingEmbeddings"],
        "guard.loop": ["run_agent"],
        "guard.operations": ["Operations"],
        "guard.tool_rules": ["GuardedTool", "NothingDone", "ToolRule"],
        "indexer": ["AgentView", "DualIndexer"],
        "langchain.memory_tools": ["create_memory_tools"],
        "langchain.middleware": ["MemoryRecorderMiddleware", "RetrievalBudgetMiddleware", "ToolGuardMiddleware"],
        "langchain.record_manager": ["HybridRecordManager"],
        "langchain.retriever": ["HybridRetriever"],
        "langchain.sql_tool": ["SQLTool"],
        "langchain.tools": ["AgentRAGToolkit", "ReadTool", "SearchTool"],
        "langchain.translator": ["HybridTranslator"],
        "langchain.vectorstore": ["HybridVectorStore"],
        "langgraph": ["HybridStore"],
        "query.router": ["QueryUnderstandingRouter"],
        "text": ["Analyzer"],
        "text.chunking": ["Chunking"],
        "types": ["Hit", "Hits", "SourceDocument"],
    },
)

provide("connector of a path", "langchain_agentrag.connectors.files", "FileSystemConnector")  # for `DualIndexer.sync`


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
