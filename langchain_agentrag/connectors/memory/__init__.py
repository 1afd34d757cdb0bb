"""Agent memory as a source: turns and tool calls from where frameworks keep them, one module per backend.

`turns.py` holds the two records and how they read as documents, `table.py` the package's own table of them.
"""

from langchain_agentrag.connectors.memory.backend import MemorySession
from langchain_agentrag.connectors.memory.connector import AgentMemoryConnector
from langchain_agentrag.connectors.memory.table import MemoryTable
from langchain_agentrag.connectors.memory.turns import Entry, ToolCall, Turn, as_document, document_id

__all__ = [
    "AgentMemoryConnector",
    "Entry",
    "MemorySession",
    "MemoryTable",
    "ToolCall",
    "Turn",
    "as_document",
    "document_id",
]
