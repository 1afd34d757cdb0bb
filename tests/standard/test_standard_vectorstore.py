"""The vector store suite of langchain-tests."""

from __future__ import annotations

import pytest
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from langchain_agentrag import DualIndexer, HybridVectorStore


class TestHybridVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path):
        with DualIndexer(tmp_path / "store", self.get_embeddings()) as indexer:
            yield HybridVectorStore(indexer)


class TestHybridVectorStoreOfAnAgent(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path):
        with DualIndexer(tmp_path / "store", self.get_embeddings()) as indexer:
            yield HybridVectorStore(indexer).for_agent("客服-1")
