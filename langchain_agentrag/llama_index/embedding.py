"""`StoreEmbedding`: the store's own model behind LlamaIndex's interface, for indexes and pipelines over the store."""

from __future__ import annotations

from typing import Any, NoReturn

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from langchain_agentrag.indexer import DualIndexer


class StoreEmbedding(BaseEmbedding):
    """Embeds with the model of a store, so that what LlamaIndex embeds and what the engine embeds can be compared.

    Args:
        indexer: The store.
    """

    _indexer: DualIndexer = PrivateAttr()

    def __init__(self, indexer: DualIndexer, **fields: Any) -> None:
        super().__init__(
            **{"model_name": indexer.model_name or "agentrag", "embed_batch_size": 256, **fields}
        )
        self._indexer = indexer

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "A StoreEmbedding holds an open store and cannot be pickled: pass the store's path and open it there."
        )

    @classmethod
    def class_name(cls) -> str:
        """Name in LlamaIndex's serialised form."""
        return "AgentRAGStoreEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        row: list[float] = self._indexer.embedder.embed_query(query).tolist()
        return row

    async def _aget_query_embedding(self, query: str) -> list[float]:
        row: list[float] = (await self._indexer.embedder.aembed_query(query)).tolist()
        return row

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._indexer.embedder.embed_documents(texts).tolist()
        return rows
