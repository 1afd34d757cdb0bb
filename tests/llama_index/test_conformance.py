"""The conformance suite: ours passes, and what LlamaIndex offers today does not."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from llama_index.core.vector_stores import SimpleVectorStore

from langchain_agentrag import DualIndexer, HashingEmbeddings
from langchain_agentrag.llama_index import HybridRetriever, HybridVectorStore
from langchain_agentrag.llama_index.testing import (
    RetrieverConformance,
    VectorStoreConformance,
    conformance_table,
    outcomes,
)
from tests.llama_index import upstream

pytestmark = pytest.mark.filterwarnings(
    # upstream's own, told to whoever passes more nodes than there are
    "ignore:As bm25s k value:UserWarning",
    "ignore:Could not import:UserWarning",
)


class Folders:
    """A new folder per store."""

    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path: Path):
        self.root, self.count, self.opened = tmp_path, itertools.count(), []
        yield
        for indexer in self.opened:
            indexer.close()

    def new_indexer(self) -> DualIndexer:
        self.opened.append(DualIndexer(self.root / str(next(self.count)), HashingEmbeddings(64)))
        return self.opened[-1]


class TestHybridRetriever(Folders, RetrieverConformance):
    def make_retriever(self, nodes, k, filters=None):
        indexer = self.new_indexer()
        HybridVectorStore(indexer).add(nodes)
        return HybridRetriever(indexer, k, filters=filters)


class TestHybridRetrieverOfAnAgent(Folders, RetrieverConformance):
    def make_retriever(self, nodes, k, filters=None):
        indexer = self.new_indexer()
        HybridVectorStore(indexer).for_agent("别人").add(nodes)
        HybridVectorStore(indexer).for_agent("客服").add(nodes)
        return HybridRetriever(indexer, k, filters=filters).for_agent("客服")


class TestHybridVectorStore(Folders, VectorStoreConformance):
    def make_store(self):
        return HybridVectorStore(self.new_indexer())

    def embed(self, text):
        return HashingEmbeddings(64).embed_query(text)


class TestHybridVectorStoreOfAnAgent(TestHybridVectorStore):
    def make_store(self):
        return HybridVectorStore(self.new_indexer()).for_agent("客服-1")


class UpstreamBM25(RetrieverConformance):
    def make_retriever(self, nodes, k, filters=None):
        return upstream.bm25(nodes, k, filters)


class UpstreamFusion(RetrieverConformance):
    def make_retriever(self, nodes, k, filters=None):
        return upstream.fusion(nodes, k, filters)


class UpstreamSimple(VectorStoreConformance):
    def make_store(self):
        return SimpleVectorStore()

    def embed(self, text):
        return HashingEmbeddings(64).embed_query(text)


def failed(suite) -> set[str]:
    return {name.removeprefix("test_") for name, outcome in outcomes(suite).items() if outcome != "yes"}


def test_show():
    print(conformance_table({"bm25": UpstreamBM25(), "fusion": UpstreamFusion()}))
    print(conformance_table({"simple": UpstreamSimple()}))
