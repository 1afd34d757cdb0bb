"""What a LlamaIndex user has for hybrid search today: BM25Retriever and a vector index, fused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import MetadataFilters

from langchain_agentrag import HashingEmbeddings


class Hashed(BaseEmbedding):
    """The package's model without a model, behind LlamaIndex's interface."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return HashingEmbeddings(64).embed_query(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return HashingEmbeddings(64).embed_query(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def bm25_retriever() -> type[BaseRetriever]:
    """LlamaIndex's BM25Retriever; a test is skipped on a Python that it does not support."""
    return pytest.importorskip("llama_index.retrievers.bm25").BM25Retriever


def bm25(nodes: Sequence[TextNode], k: int, filters: MetadataFilters | None = None) -> BaseRetriever:
    return bm25_retriever().from_defaults(nodes=list(nodes), similarity_top_k=k, filters=filters)


def fusion(nodes: Sequence[TextNode], k: int, filters: MetadataFilters | None = None) -> BaseRetriever:
    """Both indexes with the filter, fused by reciprocal rank; the LLM is never asked, and still wanted."""
    index = VectorStoreIndex([node.model_copy() for node in nodes], embed_model=Hashed())
    dense = index.as_retriever(similarity_top_k=k, filters=filters)
    return QueryFusionRetriever(
        [bm25(nodes, k, filters), dense],
        llm=MockLLM(),
        mode="reciprocal_rerank",
        num_queries=1,
        similarity_top_k=k,
        use_async=False,
    )


def simple_store() -> SimpleVectorStore:
    return SimpleVectorStore()
