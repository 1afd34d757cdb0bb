"""Sources of documents: files, databases, agent memory."""

from langchain_agentrag.connector import BaseConnector, Gap, SourceItem

__all__ = ["BaseConnector", "Gap", "SourceItem"]
