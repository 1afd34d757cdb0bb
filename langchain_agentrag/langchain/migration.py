"""Migration from other LangChain retrievers and stores: BM25 retriever, ensemble, Chroma.

Each function indexes what the source holds and returns constructor settings of our retriever or vector store.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langchain_agentrag.errors import UsageError
from langchain_agentrag.indexer import DualIndexer


def migrate_bm25(
    retriever: Any, store: DualIndexer | str | Path, *, embeddings: Any = None, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Index the documents of a `BM25Retriever` and return the settings of a `HybridRetriever` over them.

    Args:
        retriever: A retriever with its documents in `docs` and the number of results in `k`.
        store: An open store, or a folder.
        embeddings: Model for a folder; None takes "local" where it is installed.
        options: Settings that override the derived ones; `agent_id` also becomes the owner of the documents.
    """
    documents = getattr(retriever, "docs", None)
    if not isinstance(documents, Iterable):
        raise UsageError(f"A {type(retriever).__name__} holds no documents in `docs`: pass a BM25Retriever.")
    overrides = dict(options or {})
    indexer = _open_store(store, embeddings)
    indexer.index_documents(list(documents), overrides.get("agent_id"), split=False)
    return {"indexer": indexer, "k": getattr(retriever, "k", 4), **overrides}


def migrate_ensemble(
    ensemble: Any, store: DualIndexer | str | Path, *, embeddings: Any = None, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Index the documents of an `EnsembleRetriever` and return the settings of a `HybridRetriever`, weights included.

    A member with `docs` counts as keyword search, one with `vectorstore` as vector search. A text that occurs in both
    is indexed once.

    Args:
        ensemble: A retriever with `retrievers` and `weights`.
        store: An open store, or a folder.
        embeddings: Model for a folder; None takes that of the vector store.
        options: Settings that override the derived ones; `agent_id` also becomes the owner of the documents.
    """
    members = list(getattr(ensemble, "retrievers", ()))
    keyword = [index for index, member in enumerate(members) if hasattr(member, "docs")]
    vector = [index for index, member in enumerate(members) if hasattr(member, "vectorstore")]
    if not members or len(keyword) + len(vector) != len(members):
        raise UsageError(
            "from_ensemble() takes over BM25 retrievers and vector store retrievers; this ensemble holds "
            f"{[type(member).__name__ for member in members]}. Index their documents with index_documents() instead."
        )
    overrides = dict(options or {})
    owner = overrides.get("agent_id")
    vector_stores = [members[index].vectorstore for index in vector]
    if embeddings is None and vector_stores:
        embeddings = vector_stores[0].embeddings
    stored = {document.page_content: document for source in vector_stores for document in _list_documents(source)}
    if len(vector_stores) == 1 and _is_chroma(vector_stores[0]) and not isinstance(store, DualIndexer):
        # the vectors are copied
        indexer = DualIndexer.from_chroma(vector_stores[0], store, embeddings, agent_id=owner)
        remaining: dict[str, Any] = {}
    else:
        indexer, remaining = _open_store(store, embeddings), dict(stored)
    for index in keyword:
        remaining.update({d.page_content: d for d in members[index].docs if d.page_content not in stored})
    indexer.index_documents(list(remaining.values()), owner, split=False)
    shares = list(getattr(ensemble, "weights", None) or [1 / len(members)] * len(members))
    weights = (math.fsum(shares[index] for index in vector), math.fsum(shares[index] for index in keyword))
    sizes = [getattr(member, "k", None) or getattr(member, "search_kwargs", {}).get("k", 4) for member in members]
    return {"indexer": indexer, "k": max(sizes), "weights": weights, **overrides}


def migrate_chroma(
    source: Any, path: str | Path, *, embeddings: Any = None, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Copy a Chroma collection with its vectors and return the settings of a `HybridVectorStore` over the copy.

    Args:
        source: A langchain-chroma `Chroma`, a chromadb collection, or the path of a Chroma folder.
        path: Folder of the new store.
        embeddings: The model the vectors were made with; None takes that of a `Chroma`.
        options: Settings of the vector store; `agent_id` also becomes the owner of the documents.
    """
    settings = dict(options or {})
    indexer = DualIndexer.from_chroma(source, path, embeddings, agent_id=settings.get("agent_id"))
    return {"indexer": indexer, **settings}


def _list_documents(vectorstore: Any) -> list[Document]:
    """Return all documents of a vector store that can list them: Chroma, InMemoryVectorStore.

    Raises:
        UsageError: the vector store cannot list its documents.
    """
    if _is_chroma(vectorstore):
        records = vectorstore.get(include=["documents", "metadatas"])
        return [
            Document(id=doc_id, page_content=text or "", metadata=metadata or {})
            for doc_id, text, metadata in zip(records["ids"], records["documents"], records["metadatas"], strict=True)
        ]
    entries = getattr(vectorstore, "store", None)
    if isinstance(entries, Mapping):
        return [
            Document(id=entry["id"], page_content=entry["text"], metadata=entry["metadata"])
            for entry in entries.values()
        ]
    raise UsageError(
        f"A {type(vectorstore).__name__} cannot list its documents: read them out and pass them to index_documents()."
    )


def _is_chroma(vectorstore: Any) -> bool:
    return hasattr(vectorstore, "get") and hasattr(vectorstore, "_collection")


def _open_store(store: DualIndexer | str | Path, embeddings: Any) -> DualIndexer:
    return store if isinstance(store, DualIndexer) else DualIndexer(store, embeddings)
