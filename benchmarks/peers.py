"""Peers of `quality.py` (LangChain, LlamaIndex) on the chunks of the store, the vectors of its model, the same depth.

LangChain: `EnsembleRetriever` of `BM25Retriever`, as it comes and with jieba as `preprocess_func`, and Chroma.
LlamaIndex: `QueryFusionRetriever` of its `BM25Retriever` and a vector index, in each mode that merges two rankings.
Each agent's memory is a collection of its own, searched on that agent's behalf.
"""

from __future__ import annotations

import logging
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable

import numpy as np
from beir_collections import DEPTH, Query, Search, Task, agent_of
from langchain_core.embeddings import Embeddings

from langchain_agentrag import Chunking, DualIndexer
from langchain_agentrag.text.chunking import chunk_document

ChunkSearch = Callable[[str], list[str]]
"""Text of a query → ids of documents, best first, one per chunk."""


class StoreEmbeddings(Embeddings):
    """The embedder of the store as LangChain embeddings."""

    def __init__(self, indexer: DualIndexer) -> None:
        self.embedder = indexer.embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embedder.embed_documents(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embedder.embed_query(text).tolist()


def chunks_by_owner(task: Task) -> dict[str | None, list[tuple[str, str]]]:
    """Return owner → (document id, text) of every chunk it may see."""
    owned: dict[str | None, list[tuple[str, str]]] = defaultdict(list)
    for document in task.documents:
        for chunk in chunk_document(document, Chunking()):
            owned[document.agent_id].append((document.doc_id, chunk.text))
    shared = owned.get(None, [])
    return {owner: chunks if owner is None else [*shared, *chunks] for owner, chunks in owned.items()}


def search_per_owner(task: Task, build: Callable[[list[tuple[str, str]]], ChunkSearch]) -> Search:
    """Return a search with one retriever per agent, built when it is first needed."""
    owned, searches = chunks_by_owner(task), {}

    def search(query: Query) -> list[str]:
        agent = agent_of(query)
        owner = agent if agent in owned else None
        if owner not in searches:
            searches[owner] = build(owned[owner])
        return list(dict.fromkeys(searches[owner](query["text"])))

    return search


def langchain(tokenise: Callable[[str], list[str]] | None):
    def peer(task: Task, indexer: DualIndexer) -> Search:
        from chromadb import EphemeralClient
        from langchain_chroma import Chroma
        from langchain_classic.retrievers import EnsembleRetriever
        from langchain_community.retrievers import BM25Retriever
        from langchain_core.documents import Document

        model = StoreEmbeddings(indexer)

        def build(chunks: list[tuple[str, str]]) -> ChunkSearch:
            documents = [Document(text, metadata={"doc_id": name}) for name, text in chunks]
            options = {"preprocess_func": tokenise} if tokenise else {}
            keyword = BM25Retriever.from_documents(documents, k=DEPTH, **options)
            store = Chroma(
                "p" + uuid.uuid4().hex, model, client=EphemeralClient(), collection_metadata={"hnsw:space": "cosine"}
            )
            for start in range(0, len(documents), 1000):
                store.add_documents(documents[start : start + 1000])
            hybrid = EnsembleRetriever(
                retrievers=[keyword, store.as_retriever(search_kwargs={"k": DEPTH})], weights=[0.5, 0.5]
            )
            return lambda text: [document.metadata["doc_id"] for document in hybrid.invoke(text)]

        return search_per_owner(task, build)

    return peer


def llama_index(mode: str):
    def peer(task: Task, indexer: DualIndexer) -> Search:
        from llama_index.core import VectorStoreIndex
        from llama_index.core.base.embeddings.base import BaseEmbedding
        from llama_index.core.llms import MockLLM
        from llama_index.core.retrievers import QueryFusionRetriever
        from llama_index.core.schema import TextNode
        from llama_index.retrievers.bm25 import BM25Retriever

        logging.getLogger("bm25s").setLevel(logging.ERROR)
        model = StoreEmbeddings(indexer)

        class StoreEmbedding(BaseEmbedding):
            def _get_query_embedding(self, query: str) -> list[float]:
                return model.embed_query(query)

            async def _aget_query_embedding(self, query: str) -> list[float]:
                return model.embed_query(query)

            def _get_text_embedding(self, text: str) -> list[float]:
                return model.embed_documents([text])[0]

        def build(chunks: list[tuple[str, str]]) -> ChunkSearch:
            vectors = np.concatenate(
                [
                    model.embedder.embed_documents([text for _, text in chunks[start : start + 1000]])
                    for start in range(0, len(chunks), 1000)
                ]
            ).tolist()
            nodes = [
                TextNode(id_=str(place), text=text, metadata={"doc_id": name}, embedding=vector)
                for place, ((name, text), vector) in enumerate(zip(chunks, vectors, strict=True))
            ]
            depth = min(DEPTH, len(nodes))
            vector = VectorStoreIndex(nodes, embed_model=StoreEmbedding()).as_retriever(similarity_top_k=depth)
            bare = [TextNode(id_=node.id_, text=node.text, metadata={}) for node in nodes]
            keyword = BM25Retriever.from_defaults(nodes=bare, similarity_top_k=depth)
            hybrid = QueryFusionRetriever(
                [vector, keyword],
                llm=MockLLM(),
                mode=mode,
                similarity_top_k=DEPTH,
                num_queries=1,
                use_async=False,
                retriever_weights=[0.5, 0.5],
            )
            names = {node.id_: node.metadata["doc_id"] for node in nodes}
            return lambda text: [names[result.node.node_id] for result in hybrid.retrieve(text)]

        return search_per_owner(task, build)

    return peer


def jieba_words(text: str) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba

    jieba.setLogLevel(logging.ERROR)
    return jieba.lcut(text)


PEERS = {
    "LangChain": langchain(None),
    "LangChain, jieba": langchain(jieba_words),
    "LlamaIndex RRF": llama_index("reciprocal_rerank"),
    "LlamaIndex relative": llama_index("relative_score"),
    "LlamaIndex dist": llama_index("dist_based_score"),
}
