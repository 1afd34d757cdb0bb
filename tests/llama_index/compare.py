"""What LlamaIndex offers today beside ours, check by check: `python -m tests.llama_index.compare`."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from langchain_agentrag import DualIndexer, HashingEmbeddings
from langchain_agentrag.llama_index import HybridRetriever, HybridVectorStore
from langchain_agentrag.testing.llama_index import RetrieverConformance, VectorStoreConformance, conformance_table
from tests.llama_index import upstream


class Stores:
    """A new folder per store."""

    def __init__(self, root: Path) -> None:
        self.root, self.count, self.opened = root, itertools.count(), []

    def new_indexer(self) -> DualIndexer:
        self.opened.append(DualIndexer(self.root / str(next(self.count)), HashingEmbeddings(64)))
        return self.opened[-1]

    def close(self) -> None:
        for indexer in self.opened:
            indexer.close()


class OurRetriever(Stores, RetrieverConformance):
    def make_retriever(self, nodes, k, filters=None):
        indexer = self.new_indexer()
        HybridVectorStore(indexer).add(nodes)
        return HybridRetriever(indexer, k, filters=filters)


class OurStore(Stores, VectorStoreConformance):
    def make_store(self):
        return HybridVectorStore(self.new_indexer())

    def embed(self, text):
        return HashingEmbeddings(64).embed_query(text)


class UpstreamBM25(RetrieverConformance):
    def make_retriever(self, nodes, k, filters=None):
        return upstream.bm25(nodes, k, filters)


class UpstreamFusion(RetrieverConformance):
    def make_retriever(self, nodes, k, filters=None):
        return upstream.fusion(nodes, k, filters)


class UpstreamSimple(VectorStoreConformance):
    def make_store(self):
        return upstream.simple_store()

    def embed(self, text):
        return HashingEmbeddings(64).embed_query(text)


@contextlib.contextmanager
def candidates() -> Iterator[tuple[dict[str, object], dict[str, object]]]:
    """Retrievers and vector stores by name, ours last."""
    with tempfile.TemporaryDirectory() as folder:
        ours = OurRetriever(Path(folder) / "r"), OurStore(Path(folder) / "s")
        retrievers = {"BM25Retriever": UpstreamBM25(), "QueryFusionRetriever over both": UpstreamFusion()}
        yield {**retrievers, "here": ours[0]}, {"SimpleVectorStore": UpstreamSimple(), "here": ours[1]}
        for suite in ours:
            suite.close()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with candidates() as tables:
        for table in tables:
            print(conformance_table(table), end="\n\n")  # noqa: T201
