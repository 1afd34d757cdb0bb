"""Agent memory as a source: one module per backend of the agent frameworks, and the package's own memory table.

`turns.py` defines the records and their documents, `detect.py` selects the backend of a source.
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
