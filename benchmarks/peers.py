"""The peers of `quality.py`, on the chunks of the store, the vectors of its model, and the same depth.

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
from langchain_core.embeddings import Embeddings

from langchain_agentrag import Chunking, DualIndexer
from langchain_agentrag.text.chunking import chunk_document

DEPTH = 30
Ask = Callable[[dict], list[str]]


class SameVectors(Embeddings):
    """The store's own embedder, as LangChain calls one."""

    def __init__(self, indexer: DualIndexer) -> None:
        self.embedder = indexer.embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embedder.embed_documents(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return self.embedder.embed_query(text).tolist()


def chunks_by_owner(task) -> dict[str | None, list[tuple[str, str]]]:
    """Owner → (document id, text) of every chunk it may see."""
    found: dict[str | None, list[tuple[str, str]]] = defaultdict(list)
    for document in task.documents:
        for chunk in chunk_document(document, Chunking()):
            found[document.agent_id].append((document.doc_id, chunk.text))
    shared = found.get(None, [])
    return {owner: chunks if owner is None else [*shared, *chunks] for owner, chunks in found.items()}


def per_owner(task, make: Callable[[list[tuple[str, str]]], Callable[[str], list[str]]]) -> Ask:
    """Asks the retriever of the query's agent, made when it is first needed."""
    owned, made = chunks_by_owner(task), {}

    def ask(query: dict) -> list[str]:
        agent = query.get("metadata", {}).get("agent_id")
        owner = agent if agent in owned else None
        if owner not in made:
            made[owner] = make(owned[owner])
        return list(dict.fromkeys(made[owner](query["text"])))

    return ask


def langchain(tokenise: Callable[[str], list[str]] | None):
    def peer(task, indexer: DualIndexer) -> Ask:
        from chromadb import EphemeralClient
        from langchain_chroma import Chroma
        from langchain_classic.retrievers import EnsembleRetriever
        from langchain_community.retrievers import BM25Retriever
        from langchain_core.documents import Document

        model = SameVectors(indexer)

        def make(chunks: list[tuple[str, str]]) -> Callable[[str], list[str]]:
            documents = [Document(text, metadata={"doc_id": name}) for name, text in chunks]
            given = {"preprocess_func": tokenise} if tokenise else {}
            words = BM25Retriever.from_documents(documents, k=DEPTH, **given)
            store = Chroma(
                "p" + uuid.uuid4().hex,
                model,
                client=EphemeralClient(),
                collection_metadata={"hnsw:space": "cosine"},
            )
            for start in range(0, len(documents), 1000):
                store.add_documents(documents[start : start + 1000])
            both = EnsembleRetriever(
                retrievers=[words, store.as_retriever(search_kwargs={"k": DEPTH})], weights=[0.5, 0.5]
            )
            return lambda text: [found.metadata["doc_id"] for found in both.invoke(text)]

        return per_owner(task, make)

    return peer


def llama_index(mode: str):
    def peer(task, indexer: DualIndexer) -> Ask:
        from llama_index.core import VectorStoreIndex
        from llama_index.core.base.embeddings.base import BaseEmbedding
        from llama_index.core.llms import MockLLM
        from llama_index.core.retrievers import QueryFusionRetriever
        from llama_index.core.schema import TextNode
        from llama_index.retrievers.bm25 import BM25Retriever

        logging.getLogger("bm25s").setLevel(logging.ERROR)
        model = SameVectors(indexer)

        class Asking(BaseEmbedding):
            def _get_query_embedding(self, query: str) -> list[float]:
                return model.embed_query(query)

            async def _aget_query_embedding(self, query: str) -> list[float]:
                return model.embed_query(query)

            def _get_text_embedding(self, text: str) -> list[float]:
                return model.embed_documents([text])[0]

        def make(chunks: list[tuple[str, str]]) -> Callable[[str], list[str]]:
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
            near = VectorStoreIndex(nodes, embed_model=Asking()).as_retriever(similarity_top_k=depth)
            bare = [TextNode(id_=node.id_, text=node.text, metadata={}) for node in nodes]
            words = BM25Retriever.from_defaults(nodes=bare, similarity_top_k=depth)
            both = QueryFusionRetriever(
                [near, words],
                llm=MockLLM(),
                mode=mode,
                similarity_top_k=DEPTH,
                num_queries=1,
                use_async=False,
                retriever_weights=[0.5, 0.5],
            )
            names = {node.id_: node.metadata["doc_id"] for node in nodes}
            return lambda text: [names[found.node.node_id] for found in both.retrieve(text)]

        return per_owner(task, make)

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
