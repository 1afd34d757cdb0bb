"""Files and folders as a source: walking, decoding, and one module per family of formats."""

from langchain_agentrag.connectors.files.connector import FileSystemConnector

__all__ = ["FileSystemConnector"]
