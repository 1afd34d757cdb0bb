"""Sources of documents: what a connector is (`base.py`) and the connectors that come with the package."""

from langchain_agentrag.connectors.base import BaseConnector, Gap, SourceItem

__all__ = ["BaseConnector", "Gap", "SourceItem"]
