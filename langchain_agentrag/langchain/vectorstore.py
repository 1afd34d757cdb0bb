"""`HybridVectorStore`: LangChain vector store over a store, and its retriever."""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables.config import run_in_executor
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import ConfigDict, field_validator

from langchain_agentrag.embedding import Embedder
from langchain_agentrag.errors import InvalidDocumentError, InvalidQueryError, NotAStoreError, UsageError
from langchain_agentrag.filters import conjoin, parse
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.ingest.documents import documents_of_agent, require_doc_ids
from langchain_agentrag.langchain.identity import (
    ConfiguredRetriever,
    WhenMissing,
    check_agent_binding,
    check_when_missing,
    resolve_agent_id,
)
from langchain_agentrag.langchain.migration import migrate_chroma
from langchain_agentrag.langchain.record_manager import HybridRecordManager
from langchain_agentrag.langchain.search_options import CALL_ARGUMENTS, MODES, engine_options, filter_of, merge_options
from langchain_agentrag.scope import require_agent_id
from langchain_agentrag.search.options import SearchOptions, check_count, check_option_names, check_request
from langchain_agentrag.types import Hit, Hits, split_reference

_K = 4  # LangChain's default
_DELETE_ARGUMENTS = ("ids", "filter", "where", "session", "after", "before")
_RELEASE_TIMEOUT = 2.0  # seconds
_INCLUDABLE = ("embeddings", "metadatas", "documents")  # in the answer of `get`


class HybridVectorStore(VectorStore):
    """LangChain vector store over the store that `DualIndexer` writes and `HybridRetriever` searches.

    Documents are stored unsplit under their own ids, with their metadata unchanged. Searches use both indexes by
    default; scores are in [0, 1], higher is better, or cosines with `score="cosine"`. It reads shared documents and
    those of its agent, and writes only the latter; without an agent it reads and writes shared documents only.

    Args:
        indexer: The store, or the path of its folder, which is created if absent.
        embedding: With a path: whatever `DualIndexer` takes as `embeddings`.
        agent_id: The bound agent.
        agent_id_key: Key of the run's `configurable` or context that names the agent, instead of `agent_id`.
        when_missing: What a call without that key does: "error", or "shared" documents only.
        filter: Filter of every search and of `get` and `count`; a filter of the call is combined with it by AND.
        relevance_score_fn: Turns the score of a hit into what `similarity_search_with_relevance_scores` returns and
            compares with its threshold.
        defaults: Options of every search: search_type ("hybrid", "vector", "keyword", "mmr"), score ("fused", "cosine",
            "bm25"), weights, fusion, fetch_k, score_threshold, max_per_document, lambda_mult, reranker, rerank_timeout,
            collapse, neighbours.
    """

    def __init__(
        self,
        indexer: DualIndexer | str | Path | _OpenedStore,
        *,
        embedding: Any = None,
        agent_id: str | None = None,
        agent_id_key: str | None = None,
        when_missing: WhenMissing = "error",
        filter: Any = None,  # noqa: A002  (LangChain's name)
        relevance_score_fn: Callable[[float], float] | None = None,
        **defaults: Any,
    ) -> None:
        settings: dict[str, Any] = {"agent_id": agent_id, "agent_id_key": agent_id_key, "when_missing": when_missing}
        self._check_settings(**settings, filter=filter, relevance_score_fn=relevance_score_fn, **defaults)
        if isinstance(indexer, str | Path):
            indexer = _OpenedStore(DualIndexer(indexer, embedding))
        elif embedding is not None:
            raise UsageError(
                "HybridVectorStore(embedding=…) goes with the path of a store: an open store has its model already."
            )
        self._opened = indexer if isinstance(indexer, _OpenedStore) else None  # held as long as it is used
        opened = indexer.indexer if isinstance(indexer, _OpenedStore) else indexer
        self.indexer = check_indexer(opened, "HybridVectorStore")
        self._bound = filter_of({"filter": filter, "where": defaults.pop("where", None)})
        self._identity = (agent_id, agent_id_key, when_missing)
        self._defaults, self._relevance_score_fn = defaults, relevance_score_fn

    def __repr__(self) -> str:
        return f"HybridVectorStore({self.indexer!r}, agent_id={self._identity[0]!r})"

    @staticmethod
    def _check_settings(
        *,
        agent_id: str | None = None,
        agent_id_key: str | None = None,
        when_missing: WhenMissing = "error",
        filter: Any = None,  # noqa: A002
        relevance_score_fn: object = None,
        **defaults: Any,
    ) -> None:
        """Check the arguments of the constructor other than the store, before one is opened or filled.

        Raises:
            ScopeError: the agent is invalid, or set in two ways.
            UsageError: an argument is unknown or invalid.
        """
        check_agent_binding(agent_id, agent_id_key)
        check_when_missing(when_missing)
        if relevance_score_fn is not None and not callable(relevance_score_fn):
            raise UsageError(f"relevance_score_fn={relevance_score_fn!r} must be a function of one score.")
        check_request("", _K, agent_id=None, options=engine_options(parse(filter), {}, defaults))

    @property
    def embeddings(self) -> Embeddings:
        """The store's embedding model as LangChain `Embeddings`."""
        return _StoreEmbeddings(self.indexer)

    # -- other constructors ---------------------------------------------------------------------------------------

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Any,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        path: str | Path | None = None,
        **options: Any,
    ) -> Self:
        """Create a vector store from texts.

        Args:
            texts: The texts.
            embedding: Whatever `DualIndexer` takes as `embeddings`.
            metadatas: One per text.
            ids: One per text.
            path: Folder of the store; None creates a temporary one that is deleted with the vector store.
            options: Arguments of the constructor.
        """
        path = options.pop("persist_directory", path)
        cls._check_settings(**options)
        temporary = tempfile.TemporaryDirectory(prefix="agentrag-") if path is None else None
        opened = _OpenedStore(DualIndexer(temporary.name if temporary else str(path), embedding), temporary)
        vectorstore = cls(opened, **options)
        vectorstore.add_texts(texts, metadatas, ids=ids)
        return vectorstore

    @classmethod
    def from_existing(cls, path: str | Path, embedding: Any = None, **options: Any) -> Self:
        """Open the store in a folder.

        Args:
            path: Folder of the store.
            embedding: The model it was built with, unless that was named by a string.
            options: Arguments of the constructor.

        Raises:
            NotAStoreError: there is no store; nothing was created.
        """
        cls._check_settings(**options)
        folder = Path(path)
        if not folder.is_file() and not (folder.is_dir() and any(folder.iterdir())):
            raise NotAStoreError(
                f"There is no store at {str(path)!r}: make one with from_texts(…, path=…), or pass the path of one."
            )
        return cls(folder, embedding=embedding, **options)

    @classmethod
    def from_chroma(cls, source: Any, path: str | Path, *, embeddings: Any = None, **options: Any) -> Self:
        """Copy texts, metadata and vectors of a Chroma collection without embedding; see `migration.migrate_chroma`."""
        cls._check_settings(**options)
        return cls(**migrate_chroma(source, path, embeddings=embeddings, options=options))

    def for_agent(self, agent_id: str) -> Self:
        """Return a copy bound to one agent; cheap enough to create per request."""
        require_agent_id(agent_id, "for_agent()")
        settings = {"filter": self._bound, "relevance_score_fn": self._relevance_score_fn, **self._defaults}
        return type(self)(self._opened or self.indexer, agent_id=agent_id, **settings)

    def record_manager(self, namespace: str = "default") -> HybridRecordManager:
        """Return the record manager for `langchain_core.indexing.index` over this vector store and agent."""
        return HybridRecordManager(self.indexer, namespace, agent_id=self._resolve_agent())

    def as_retriever(self, **kwargs: Any) -> HybridVectorStoreRetriever:
        """Return a LangChain retriever; search options may be passed directly or as `search_kwargs`.

        Raises:
            InvalidQueryError: an unknown option, also in `search_kwargs`.
        """
        own = HybridVectorStoreRetriever.model_fields.keys() - {"k"}
        options = {name: value for name, value in kwargs.items() if name not in own}
        check_option_names(options, CALL_ARGUMENTS)
        fields = {name: value for name, value in kwargs.items() if name in own}
        fields["search_kwargs"] = {**options, **(fields.get("search_kwargs") or {})}
        engine_options(self._bound, self._defaults, fields["search_kwargs"])
        fields["tags"] = [*(fields.get("tags") or []), type(self).__name__]
        return HybridVectorStoreRetriever(vectorstore=self, **fields)

    # -- writing --------------------------------------------------------------------------------------------------

    def add_documents(
        self, documents: Iterable[Document], *, ids: Sequence[str | None] | None = None, **kwargs: Any
    ) -> list[str]:
        """Add documents, or replace those of the same id, and return the ids in order.

        The id of a document without one is a hash of its content.

        Args:
            documents: The documents; they are not modified.
            ids: One per document; they take precedence over the documents' own.
            kwargs: `batch_size` is accepted and ignored: the store chooses its batches.

        Raises:
            InvalidDocumentError: a document cannot be stored, or the number of ids differs.
            ScopeError: a document's metadata claims another agent; nothing was written.
        """
        check_option_names(kwargs, {"batch_size": None})
        documents = list(documents)
        return self._add(documents if ids is None else _with_ids(documents, ids))

    def add_embeddings(
        self,
        texts: Iterable[str],
        embeddings: Sequence[Sequence[float]],
        metadatas: list[dict[str, Any]] | None = None,
        ids: list[str] | None = None,
    ) -> list[str]:
        """Add texts with their embeddings, which the store's model has made, or replace those of the same id.

        Args:
            texts: The texts.
            embeddings: One per text.
            metadatas: One per text.
            ids: One per text.

        Raises:
            InvalidDocumentError: the numbers differ, or an embedding is no list of finite numbers.
            StoreMismatchError: an embedding has another length than the model's.
        """
        texts = _several(texts, "add_embeddings")
        for name, values in (("embeddings", embeddings), ("metadatas", metadatas)):
            if values is not None and len(values) != len(texts):
                raise InvalidDocumentError(f"Got {len(texts)} texts and {len(values)} {name}: give one per text.")
        documents = [
            Document(text, metadata=metadata)
            for text, metadata in zip(texts, metadatas or [{}] * len(texts), strict=True)
        ]
        return self._add(documents if ids is None else _with_ids(documents, ids), embeddings)

    async def aadd_embeddings(
        self,
        texts: Iterable[str],
        embeddings: Sequence[Sequence[float]],
        metadatas: list[dict[str, Any]] | None = None,
        ids: list[str] | None = None,
    ) -> list[str]:
        """`add_embeddings` in a worker thread."""
        return await run_in_executor(None, self.add_embeddings, texts, embeddings, metadatas, ids)

    def update_document(self, document_id: str, document: Document) -> None:
        """Replace a document; see `update_documents`."""
        self.update_documents([document_id], [document])

    async def aupdate_document(self, document_id: str, document: Document) -> None:
        """`update_document` in a worker thread."""
        await run_in_executor(None, self.update_document, document_id, document)

    def update_documents(self, ids: list[str], documents: list[Document]) -> None:
        """Replace documents of this agent (without one, shared ones) by id, text and metadata.

        Raises:
            InvalidDocumentError: an id has no document to replace, or the number of ids differs; nothing was written.
        """
        renamed, agent = _with_ids(documents, ids), self._resolve_agent()
        present = {document.doc_id for document in self.indexer.owned_documents(agent).find(ids)}
        absent = [doc_id for doc_id in ids if doc_id not in present]
        if absent:
            raise InvalidDocumentError(
                f"Cannot update {absent[0]!r}: there is no such document of this agent. Add new ones by add_documents."
            )
        self._add(renamed)

    async def aupdate_documents(self, ids: list[str], documents: list[Document]) -> None:
        """`update_documents` in a worker thread."""
        await run_in_executor(None, self.update_documents, ids, documents)

    def _add(self, documents: Sequence[Document], embeddings: Sequence[Sequence[float]] | None = None) -> list[str]:
        owner = self._resolve_agent()
        sources = documents_of_agent(documents, owner)
        self.indexer.index_documents(sources, owner, split=False, vectors=embeddings)
        return [document.doc_id for document in sources]

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts from any iterable; see `add_documents`."""
        return super().add_texts(_several(texts, "add_texts"), metadatas, ids=ids, **kwargs)

    def delete(
        self,
        ids: list[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002
        where: Any = None,
        session: Any = None,
        after: Any = None,
        before: Any = None,
        **kwargs: Any,
    ) -> bool:
        """Delete documents of this agent (without one, shared ones) by id, filter, session or time; skip absent ids.

        `where` is Chroma's name of `filter`.

        Raises:
            UsageError: no condition is set, an id is no string, or there is no such argument; nothing was deleted.
        """
        check_option_names(kwargs, _DELETE_ARGUMENTS, "delete()")
        agent, condition = self._resolve_agent(), filter_of({"filter": filter, "where": where})
        self.indexer.delete(ids, filter=condition, session=session, after=after, before=before, agent_id=agent)
        return True

    def reset_collection(self) -> None:
        """Delete all documents of this agent; without an agent, all shared ones."""
        self.indexer.delete(filter={"doc_id": {"$exists": True}}, agent_id=self._resolve_agent())

    async def areset_collection(self) -> None:
        """`reset_collection` in a worker thread."""
        await run_in_executor(None, self.reset_collection)

    delete_collection, adelete_collection = reset_collection, areset_collection  # there is one, which stays

    # -- reading --------------------------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents and passages by the ids of search results, in the order of the ids, without unknown ones.

        Raises:
            UsageError: an id is no string, or there is no list of ids.
        """
        agent, ids = self._resolve_agent(), require_doc_ids(ids)
        documents = {
            document.doc_id: Document(id=document.doc_id, page_content=document.text, metadata=dict(document.metadata))
            for document in self.indexer.get(ids, agent_id=agent)
        }
        results = (documents.get(doc_id) or self._passage(doc_id, agent) for doc_id in ids)
        return [document for document in results if document is not None]

    def get(
        self,
        ids: str | list[str] | None = None,
        where: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        include: Sequence[str] = ("metadatas", "documents"),
        *,
        filter: Any = None,  # noqa: A002
    ) -> dict[str, Any]:
        """Return stored passages in the form of Chroma's `get`: lists by name, of equal length.

        Documents that were added here are one passage each. Documents of this agent come before shared ones.

        Args:
            ids: Ids of documents or of search results.
            where: Filter.
            limit: Most passages to return.
            offset: Passages to skip.
            include: Any of "embeddings", "metadatas", "documents"; the others are None.
            filter: The same as `where`.

        Raises:
            UsageError: `include`, `limit` or `offset` is invalid.
        """
        if isinstance(include, str) or not set(include) <= set(_INCLUDABLE):
            raise UsageError(f"Cannot get include={include!r}: give a list of {', '.join(_INCLUDABLE)}.")
        passages = self.indexer.passages(
            ids,
            filter=conjoin(self._bound, filter_of({"filter": filter, "where": where})),
            agent_id=self._resolve_agent(),
            limit=limit,
            offset=0 if offset is None else offset,
            vectors="embeddings" in include,
        )
        vectors = [passage.vector for passage in passages if passage.vector is not None]
        columns: dict[str, Any] = {
            "embeddings": np.array(vectors, dtype=np.float32).reshape(len(vectors), -1 if vectors else 0),
            "metadatas": [{**passage.locator, **passage.metadata} for passage in passages],
            "documents": [passage.text for passage in passages],
        }
        return {
            "ids": [passage.reference for passage in passages],
            **{name: column if name in include else None for name, column in columns.items()},
            "uris": None,
            "data": None,
            "included": list(include),
        }

    async def aget(
        self,
        ids: str | list[str] | None = None,
        where: Any = None,
        limit: int | None = None,
        offset: int | None = None,
        include: Sequence[str] = ("metadatas", "documents"),
        *,
        filter: Any = None,  # noqa: A002
    ) -> dict[str, Any]:
        """`get` in a worker thread."""
        return await run_in_executor(None, self.get, ids, where, limit, offset, include, filter=filter)

    def count(self) -> int:
        """Return the number of passages that `get` returns."""
        return self.indexer.count(filter=self._bound, agent_id=self._resolve_agent())

    async def acount(self) -> int:
        """`count` in a worker thread."""
        return await run_in_executor(None, self.count)

    def similarity_search(self, query: str, k: int = _K, **kwargs: Any) -> list[Document]:
        """Return the k best documents; search options by keyword: filter, search_type, weights and others."""
        return _documents(self._search(query, k, kwargs))

    async def asimilarity_search(self, query: str, k: int = _K, **kwargs: Any) -> list[Document]:
        """`similarity_search` without blocking the event loop."""
        return _documents(await self._asearch(query, k, kwargs))

    def similarity_search_with_score(self, query: str, k: int = _K, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return the k best documents with scores, higher is better: in [0, 1], or what the option `score` names."""
        return _scored(self._search(query, k, kwargs))

    async def asimilarity_search_with_score(
        self, query: str, k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`similarity_search_with_score` without blocking the event loop."""
        return _scored(await self._asearch(query, k, kwargs))

    def similarity_search_by_vector(self, embedding: list[float], k: int = _K, **kwargs: Any) -> list[Document]:
        """Return the k documents nearest to an embedding."""
        return _documents(self._search_vector(embedding, k, kwargs))

    async def asimilarity_search_by_vector(self, embedding: list[float], k: int = _K, **kwargs: Any) -> list[Document]:
        """`similarity_search_by_vector` without blocking the event loop."""
        return _documents(await self._asearch_vector(embedding, k, kwargs))

    def similarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k documents nearest to an embedding, with scores; higher is better."""
        return _scored(self._search_vector(embedding, k, kwargs))

    async def asimilarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`similarity_search_with_score_by_vector` without blocking the event loop."""
        return _scored(await self._asearch_vector(embedding, k, kwargs))

    # names of other vector stores
    similarity_search_by_vector_with_score = similarity_search_with_score_by_vector
    asimilarity_search_by_vector_with_score = asimilarity_search_with_score_by_vector

    def similarity_search_by_vector_with_relevance_scores(
        self, embedding: list[float], k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return the k documents nearest to an embedding, with scores passed through `relevance_score_fn`."""
        return self._relevant(self._search_vector(embedding, k, kwargs))

    async def asimilarity_search_by_vector_with_relevance_scores(
        self, embedding: list[float], k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`similarity_search_by_vector_with_relevance_scores` without blocking the event loop."""
        return self._relevant(await self._asearch_vector(embedding, k, kwargs))

    def similarity_search_with_vectors(
        self, query: str, k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, npt.NDArray[np.float32]]]:
        """Return the k best documents with their embeddings."""
        return self._with_vectors(self._search(query, k, kwargs))

    async def asimilarity_search_with_vectors(
        self, query: str, k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, npt.NDArray[np.float32]]]:
        """`similarity_search_with_vectors` without blocking the event loop."""
        return await run_in_executor(None, self._with_vectors, await self._asearch(query, k, kwargs))

    def max_marginal_relevance_search(
        self, query: str, k: int = _K, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return relevant and different documents, in the order of selection."""
        return _documents(self._search(query, k, {**kwargs, "fetch_k": fetch_k, "lambda_mult": lambda_mult}))

    async def amax_marginal_relevance_search(
        self, query: str, k: int = _K, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """`max_marginal_relevance_search` without blocking the event loop."""
        options = {**kwargs, "fetch_k": fetch_k, "lambda_mult": lambda_mult}
        return _documents(await self._asearch(query, k, options))

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = _K, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return documents near an embedding and different from each other."""
        options = {**kwargs, "fetch_k": fetch_k, "lambda_mult": lambda_mult}
        return _documents(self._search_vector(embedding, k, options))

    async def amax_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = _K, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """`max_marginal_relevance_search_by_vector` without blocking the event loop."""
        options = {**kwargs, "fetch_k": fetch_k, "lambda_mult": lambda_mult}
        return _documents(await self._asearch_vector(embedding, k, options))

    def max_marginal_relevance_search_with_score(
        self, query: str, k: int = _K, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return relevant and different documents with scores, in the order of selection."""
        return _scored(self._search(query, k, {**kwargs, "fetch_k": fetch_k, "lambda_mult": lambda_mult}))

    async def amax_marginal_relevance_search_with_score(
        self, query: str, k: int = _K, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`max_marginal_relevance_search_with_score` without blocking the event loop."""
        return _scored(await self._asearch(query, k, {**kwargs, "fetch_k": fetch_k, "lambda_mult": lambda_mult}))

    def max_marginal_relevance_search_with_score_by_vector(
        self, embedding: list[float], k: int = _K, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return documents near an embedding and different from each other, with scores."""
        options = {**kwargs, "fetch_k": fetch_k, "lambda_mult": lambda_mult}
        return _scored(self._search_vector(embedding, k, options))

    async def amax_marginal_relevance_search_with_score_by_vector(
        self, embedding: list[float], k: int = _K, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`max_marginal_relevance_search_with_score_by_vector` without blocking the event loop."""
        options = {**kwargs, "fetch_k": fetch_k, "lambda_mult": lambda_mult}
        return _scored(await self._asearch_vector(embedding, k, options))

    def search(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Return documents by search type: LangChain's three, or "hybrid", "vector", "keyword"."""
        if search_type in MODES and search_type not in {"similarity", "mmr"}:
            return self.similarity_search(query, search_type=search_type, **kwargs)
        return super().search(query, search_type, **kwargs)

    async def asearch(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """`search` without blocking the event loop."""
        if search_type in MODES and search_type not in {"similarity", "mmr"}:
            return await self.asimilarity_search(query, search_type=search_type, **kwargs)
        return await super().asearch(query, search_type, **kwargs)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self._relevance_score_fn or (lambda score: score)  # scores are in [0, 1] already

    # -- calls of the engine --------------------------------------------------------------------------------------

    def _resolve_agent(self) -> str | None:
        return resolve_agent_id(*self._identity)

    def _options(self, kwargs: dict[str, Any]) -> SearchOptions:
        return engine_options(self._bound, self._defaults, kwargs)

    def _search(self, query: str, k: int, kwargs: dict[str, Any]) -> Hits:
        return self.indexer.search(query, k, agent_id=self._resolve_agent(), **self._options(kwargs))

    async def _asearch(self, query: str, k: int, kwargs: dict[str, Any]) -> Hits:
        return await self.indexer.asearch(query, k, agent_id=self._resolve_agent(), **self._options(kwargs))

    def _search_vector(self, embedding: Sequence[float], k: int, kwargs: dict[str, Any]) -> Hits:
        return self.indexer.search("", k, agent_id=self._resolve_agent(), **self._vector_options(embedding, kwargs))

    async def _asearch_vector(self, embedding: Sequence[float], k: int, kwargs: dict[str, Any]) -> Hits:
        options = self._vector_options(embedding, kwargs)
        return await self.indexer.asearch("", k, agent_id=self._resolve_agent(), **options)

    def _vector_options(self, embedding: Sequence[float], kwargs: dict[str, Any]) -> SearchOptions:
        options = self._options({**kwargs, "search_type": "vector"})
        options["vector"] = embedding
        return options

    def _relevant(self, hits: Hits) -> list[tuple[Document, float]]:
        relevance = self._select_relevance_score_fn()
        return [(_document(hit), relevance(hit.score)) for hit in hits]

    def _with_vectors(self, hits: Hits) -> list[tuple[Document, npt.NDArray[np.float32]]]:
        passages = self.indexer.passages_of(hits, agent_id=self._resolve_agent())
        return [
            (_document(hit), passage.vector)
            for hit, passage in zip(hits, passages, strict=True)
            if passage is not None and passage.vector is not None
        ]

    def _passage(self, reference: str, agent: str | None) -> Document | None:
        """Return a chunk by "doc_id#chunk_id"; None when there is none."""
        address = split_reference(reference)
        if address is None:
            return None
        try:
            passage = self.indexer.read(*address, agent_id=agent)
        except InvalidQueryError:
            return None
        return Document(id=reference, page_content=passage.text, metadata={**passage.locator, **passage.metadata})


class HybridVectorStoreRetriever(ConfiguredRetriever, VectorStoreRetriever):
    """LangChain's vector store retriever; a filter of the call narrows the bound one instead of replacing it.

    Documents whose metadata has no `source` get the id of their document as one: chains with sources need it.

    Attributes:
        k: Documents to return, >= 1, instead of the `k` of `search_kwargs`; a configurable field may set it.
    """

    model_config = ConfigDict(extra="forbid")

    k: int | None = None

    allowed_search_types: ClassVar[Sequence[str]] = (
        "similarity",
        "similarity_score_threshold",
        *(name for name in MODES if name != "similarity"),
    )

    @field_validator("k", mode="before")
    @classmethod
    def _valid_k(cls, value: Any) -> int | None:
        return None if value is None else check_count("k", value)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return _with_sources(self.vectorstore.search(query, self.search_type, **self._call_options(kwargs)))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return _with_sources(await self.vectorstore.asearch(query, self.search_type, **self._call_options(kwargs)))

    def _call_options(self, call: dict[str, Any]) -> dict[str, Any]:
        return merge_options(self.search_kwargs if self.k is None else {**self.search_kwargs, "k": self.k}, call)

    def _option(self, name: str) -> Any:
        return self.search_kwargs.get(name) if getattr(self, name, None) is None else getattr(self, name)


def _with_sources(documents: list[Document]) -> list[Document]:
    for document in documents:
        if "source" not in document.metadata and document.id is not None:
            address = split_reference(document.id)
            document.metadata["source"] = document.id if address is None else address[0]
    return documents


class _StoreEmbeddings(Embeddings):
    """Embedding model of a store as LangChain `Embeddings`."""

    def __init__(self, indexer: DualIndexer) -> None:
        self._indexer = indexer

    @property
    def _model(self) -> Embedder:
        return self._indexer.embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._model.embed_documents(texts).tolist()
        return rows

    def embed_query(self, text: str) -> list[float]:
        row: list[float] = self._model.embed_query(text).tolist()
        return row

    async def aembed_query(self, text: str) -> list[float]:
        row: list[float] = (await self._model.aembed_query(text)).tolist()
        return row


def _document(hit: Hit) -> Document:
    return Document(id=hit.reference, page_content=hit.text, metadata={**hit.locator, **hit.metadata})


def _documents(hits: Hits) -> list[Document]:
    return [_document(hit) for hit in hits]


def _scored(hits: Hits) -> list[tuple[Document, float]]:
    return [(_document(hit), hit.score) for hit in hits]


def _several(texts: Iterable[str], method: str) -> list[str]:
    if isinstance(texts, str):
        raise UsageError(f"{method} takes several texts: pass a list, even of one.")
    return list(texts)


def _with_ids(documents: Sequence[Document], ids: Sequence[str | None]) -> list[Document]:
    """Return copies of documents with these ids; None leaves a document its own.

    Raises:
        InvalidDocumentError: there are more or fewer ids than documents.
    """
    if len(ids) != len(documents):
        raise InvalidDocumentError(f"Got {len(documents)} documents and {len(ids)} ids: give one id per document.")
    return [
        Document(id=new_id or document.id, page_content=document.page_content, metadata=document.metadata)
        for new_id, document in zip(ids, documents, strict=True)
    ]


class _OpenedStore:
    """Store that a vector store has opened: closed, and its temporary folder deleted, when nothing uses it any more.

    The vector stores made from it by `for_agent` or by copying hold it as well.
    """

    def __init__(self, indexer: DualIndexer, folder: tempfile.TemporaryDirectory[str] | None = None) -> None:
        self.indexer = indexer
        weakref.finalize(self, _release, indexer, folder)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def _release(indexer: DualIndexer, folder: tempfile.TemporaryDirectory[str] | None) -> None:
    """Close a store that nothing uses any more, on another thread.

    The garbage collector may call this on a thread that holds a lock, such as one of `concurrent.futures`, that closing
    needs: waiting is therefore limited, and the thread goes on by itself.
    """
    if not threading.main_thread().is_alive():  # the program ends: no thread would go on
        _close_and_delete(indexer, folder)
        return
    thread = threading.Thread(target=_close_and_delete, args=(indexer, folder), daemon=True)
    thread.start()
    thread.join(_RELEASE_TIMEOUT)


def _close_and_delete(indexer: DualIndexer, folder: tempfile.TemporaryDirectory[str] | None) -> None:
    indexer.close()
    if folder is not None:
        folder.cleanup()
