"""Connectors as LlamaIndex readers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document

from langchain_agentrag.connector import BaseConnector


class ConnectorReader(BaseReader):
    """Reads whatever a connector reads: files, SQL rows, dialogues, tool calls.

    Document ids are those of the engine, equal in every run. A document of an agent says so in its metadata, so a
    store that is not bound to that agent refuses it. To keep a store in step with a source use `DualIndexer.sync`.

    Args:
        connector: The source.
    """

    def __init__(self, connector: BaseConnector) -> None:
        self._connector = connector

    def __repr__(self) -> str:
        return f"ConnectorReader({self._connector.connector_id!r})"

    def lazy_load_data(self, *_args: Any, **_options: Any) -> Iterator[Document]:
        """Documents one by one; what cannot be read is logged and passed over."""
        for found in self._connector.lazy_load():
            bookkeeping = [key for key in ("doc_id", "agent_id") if key in found.metadata]
            yield Document(
                id_=str(found.id),
                text=found.page_content,
                metadata=found.metadata,
                excluded_embed_metadata_keys=bookkeeping,
                excluded_llm_metadata_keys=bookkeeping,
            )
