"""The retriever suite of langchain-tests."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langchain_agentrag import DualIndexer, HybridRetriever

CORPUS = [
    Document("Alarm E1102: the spindle overheats; clean the filter and restart."),
    Document("报警 E1102：主轴过热，清洁滤网后重启。"),
    Document("Leave is granted by the team leader."),
    Document("年假由班组长批准。"),
    Document("The canteen opens at 11:30."),
]


class TestHybridRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _store(self, tmp_path):
        with DualIndexer(tmp_path / "store", "hash") as self.indexer:
            self.indexer.index_documents(CORPUS)
            yield

    @property
    def retriever_constructor(self) -> type[HybridRetriever]:
        return HybridRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"indexer": self.indexer}

    @property
    def retriever_query_example(self) -> str:
        return "主轴 E1102 overheats"
