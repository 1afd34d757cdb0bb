"""The embeddings suites of langchain-tests."""

from __future__ import annotations

from typing import Any

from langchain_tests.integration_tests import EmbeddingsIntegrationTests
from langchain_tests.unit_tests import EmbeddingsUnitTests

from langchain_agentrag import HashingEmbeddings


class TestHashingEmbeddings(EmbeddingsUnitTests):
    @property
    def embeddings_class(self) -> type[HashingEmbeddings]:
        return HashingEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"dim": 64}


class TestHashingEmbeddingsInUse(EmbeddingsIntegrationTests):
    @property
    def embeddings_class(self) -> type[HashingEmbeddings]:
        return HashingEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"dim": 64}
