"""From what people have: a BM25 retriever, an ensemble, a Chroma collection. One call each, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from langchain_agentrag.errors import UsageError
from langchain_agentrag.indexer import DualIndexer

_LEGS = 2


def adopt_bm25(
    retriever: Any,
    store: DualIndexer | str | Path,
    *,
    embeddings: Any = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Settings of a `HybridRetriever` over the documents of a `BM25Retriever`.

    Args:
        retriever: It has the documents in `docs` and the number of results in `k`.
        store: An open store, or a folder.
        embeddings: Model for a folder; None takes "local" where it is installed.
        options: Settings that go first; `agent_id` also says whose the documents are.
    """
    documents = getattr(retriever, "docs", None)
    if not isinstance(documents, Iterable):
        raise UsageError(f"A {type(retriever).__name__} holds no documents in `docs`: pass a BM25Retriever.")
    chosen = dict(options or {})
    indexer = _opened(store, embeddings)
    indexer.index_documents(list(documents), chosen.get("agent_id"), split=False)
    return {"indexer": indexer, "k": getattr(retriever, "k", 4), **chosen}


def adopt_ensemble(
    ensemble: Any,
    store: DualIndexer | str | Path,
    *,
    embeddings: Any = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Settings of a `HybridRetriever` over the documents of an `EnsembleRetriever`, with its weights and fusion.

    A part with `docs` is the keyword leg, a part with `vectorstore` the vector leg. The same text in both parts is one
    document.

    Args:
        ensemble: It has `retrievers` and `weights`.
        store: An open store, or a folder.
        embeddings: Model for a folder; None takes the vector store's own.
        options: Settings that go first.
    """
    parts = list(getattr(ensemble, "retrievers", ()))
    words = [place for place, part in enumerate(parts) if hasattr(part, "docs")]
    vectors = [place for place, part in enumerate(parts) if hasattr(part, "vectorstore")]
    if not parts or len(words) + len(vectors) != len(parts):
        raise UsageError(
            "from_ensemble() takes over BM25 retrievers and vector store retrievers; this ensemble holds "
            f"{[type(part).__name__ for part in parts]}. Index their documents with index_documents() instead."
        )
    chosen = dict(options or {})
    owner = chosen.get("agent_id")
    stores = [parts[place].vectorstore for place in vectors]
    if embeddings is None and stores:
        embeddings = stores[0].embeddings
    held = {document.page_content: document for found in map(stored_documents, stores) for document in found}
    if len(stores) == 1 and hasattr(stores[0], "_collection") and not isinstance(store, DualIndexer):
        indexer = DualIndexer.from_chroma(stores[0], store, embeddings, agent_id=owner)  # keeps its vectors
        new: dict[str, Any] = {}
    else:
        indexer, new = _opened(store, embeddings), dict(held)
    for place in words:
        new.update({d.page_content: d for d in parts[place].docs if d.page_content not in held})
    indexer.index_documents(list(new.values()), owner, split=False)
    shares = list(getattr(ensemble, "weights", None) or [1 / len(parts)] * len(parts))
    weights = (sum(shares[place] for place in vectors), sum(shares[place] for place in words))
    sizes = [getattr(part, "k", None) or getattr(part, "search_kwargs", {}).get("k", 4) for part in parts]
    return {"indexer": indexer, "k": max(sizes), "weights": weights, **chosen}


def stored_documents(vectorstore: Any) -> list[Any]:
    """All documents of a LangChain vector store that can list them: Chroma, InMemoryVectorStore.

    Raises:
        UsageError: it cannot list what it holds.
    """
    from langchain_core.documents import Document

    if hasattr(vectorstore, "get") and hasattr(vectorstore, "_collection"):
        found = vectorstore.get(include=["documents", "metadatas"])
        return [
            Document(id=name, page_content=text or "", metadata=metadata or {})
            for name, text, metadata in zip(found["ids"], found["documents"], found["metadatas"], strict=True)
        ]
    held = getattr(vectorstore, "store", None)
    if isinstance(held, Mapping):
        return [
            Document(id=entry["id"], page_content=entry["text"], metadata=entry["metadata"])
            for entry in held.values()
        ]
    raise UsageError(
        f"A {type(vectorstore).__name__} cannot list its documents: read them out and pass them to index_documents()."
    )


def _opened(store: DualIndexer | str | Path, embeddings: Any) -> DualIndexer:
    return store if isinstance(store, DualIndexer) else DualIndexer(store, embeddings)
