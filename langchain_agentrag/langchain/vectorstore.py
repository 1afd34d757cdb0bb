"""`HybridVectorStore`: LangChain vector store over a store, and its retriever."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
from pydantic import ConfigDict, field_validator

from langchain_agentrag.embedding import Embedder
from langchain_agentrag.errors import InvalidDocumentError, InvalidQueryError, UsageError
from langchain_agentrag.filters import parse
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
from langchain_agentrag.langchain.search_options import CALL_OPTIONS, MODES, engine_options, merge_options
from langchain_agentrag.scope import require_agent_id
from langchain_agentrag.search.options import SearchOptions, check_count, check_option_names
from langchain_agentrag.types import Hit, Hits, split_reference

_K = 4  # LangChain's default
_DELETE_ARGUMENTS = ("ids", "filter", "session", "after", "before")


class HybridVectorStore(VectorStore):
    """LangChain vector store over the store that `DualIndexer` writes and `HybridRetriever` searches.

    Documents are stored unsplit under their own ids, with their metadata unchanged. Searches use both indexes by
    default; scores are in [0, 1], higher is better. It reads shared documents and those of its agent, and writes only
    the latter; without an agent it reads and writes shared documents only.

    Args:
        indexer: The store.
        agent_id: The bound agent.
        agent_id_key: Key of the run's `configurable` or context that names the agent, instead of `agent_id`.
        when_missing: What a call without that key does: "error", or "shared" documents only.
        filter: Filter of every search; a filter of the call is combined with it by AND.
        defaults: Options of every search: search_type ("hybrid", "vector", "keyword", "mmr"), weights, fusion, fetch_k,
            score_threshold, max_per_document, lambda_mult, reranker, rerank_timeout, collapse, neighbours.
    """

    def __init__(
        self,
        indexer: DualIndexer,
        *,
        agent_id: str | None = None,
        agent_id_key: str | None = None,
        when_missing: WhenMissing = "error",
        filter: Any = None,  # noqa: A002  (LangChain's name)
        **defaults: Any,
    ) -> None:
        settings: dict[str, Any] = {"agent_id": agent_id, "agent_id_key": agent_id_key, "when_missing": when_missing}
        self._check_settings(**settings, filter=filter, **defaults)
        self.indexer, self._bound = check_indexer(indexer, "HybridVectorStore"), parse(filter)
        self._identity = (agent_id, agent_id_key, when_missing)
        self._defaults = defaults

    def __repr__(self) -> str:
        return f"HybridVectorStore({self.indexer!r}, agent_id={self._identity[0]!r})"

    @staticmethod
    def _check_settings(
        *,
        agent_id: str | None = None,
        agent_id_key: str | None = None,
        when_missing: WhenMissing = "error",
        filter: Any = None,  # noqa: A002
        **defaults: Any,
    ) -> None:
        """Check the arguments of the constructor other than the store, before one is opened or filled.

        Raises:
            ScopeError: the agent is invalid, or set in two ways.
            UsageError: an argument is unknown or invalid.
        """
        check_agent_binding(agent_id, agent_id_key)
        check_when_missing(when_missing)
        engine_options(parse(filter), {}, defaults)

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
        indexer = DualIndexer(temporary.name if temporary else str(path), embedding)
        vectorstore = cls(indexer, **options)
        if temporary:
            weakref.finalize(vectorstore, _close_and_delete, indexer, temporary)
        vectorstore.add_texts(texts, metadatas, ids=ids)
        return vectorstore

    @classmethod
    def from_chroma(cls, source: Any, path: str | Path, *, embeddings: Any = None, **options: Any) -> Self:
        """Copy texts, metadata and vectors of a Chroma collection without embedding; see `migration.migrate_chroma`."""
        cls._check_settings(**options)
        return cls(**migrate_chroma(source, path, embeddings=embeddings, options=options))

    def for_agent(self, agent_id: str) -> Self:
        """Return a copy bound to one agent; cheap enough to create per request."""
        require_agent_id(agent_id, "for_agent()")
        return type(self)(self.indexer, agent_id=agent_id, filter=self._bound, **self._defaults)

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
        check_option_names(options, dict.fromkeys(("k", *CALL_OPTIONS)))
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
        if ids is not None:
            if len(ids) != len(documents):
                raise InvalidDocumentError(
                    f"Got {len(documents)} documents and {len(ids)} ids: give one id per document."
                )
            documents = [
                Document(id=new_id or document.id, page_content=document.page_content, metadata=document.metadata)
                for new_id, document in zip(ids, documents, strict=True)
            ]
        owner = self._resolve_agent()
        sources = documents_of_agent(documents, owner)
        self.indexer.index_documents(sources, owner, split=False)
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
        if isinstance(texts, str):
            raise UsageError("add_texts takes several texts: pass a list, even of one.")
        return super().add_texts(list(texts), metadatas, ids=ids, **kwargs)

    def delete(
        self,
        ids: list[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002
        session: Any = None,
        after: Any = None,
        before: Any = None,
        **kwargs: Any,
    ) -> bool:
        """Delete documents of this agent (without one, shared ones) by id, filter, session or time; skip absent ids.

        Raises:
            UsageError: no condition is set, an id is no string, or there is no such argument; nothing was deleted.
        """
        check_option_names(kwargs, _DELETE_ARGUMENTS, "delete()")
        agent = self._resolve_agent()
        self.indexer.delete(ids, filter=filter, session=session, after=after, before=before, agent_id=agent)
        return True

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

    def similarity_search(self, query: str, k: int = _K, **kwargs: Any) -> list[Document]:
        """Return the k best documents; search options by keyword: filter, search_type, weights and others."""
        return _documents(self._search(query, k, kwargs))

    async def asimilarity_search(self, query: str, k: int = _K, **kwargs: Any) -> list[Document]:
        """`similarity_search` without blocking the event loop."""
        return _documents(await self._asearch(query, k, kwargs))

    def similarity_search_with_score(self, query: str, k: int = _K, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return the k best documents with scores in [0, 1], higher is better."""
        return [(_document(hit), hit.score) for hit in self._search(query, k, kwargs)]

    async def asimilarity_search_with_score(
        self, query: str, k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`similarity_search_with_score` without blocking the event loop."""
        return [(_document(hit), hit.score) for hit in await self._asearch(query, k, kwargs)]

    def similarity_search_by_vector(self, embedding: list[float], k: int = _K, **kwargs: Any) -> list[Document]:
        """Return the k documents nearest to an embedding."""
        return _documents(self._search_vector(embedding, k, kwargs))

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

    def _select_relevance_score_fn(self) -> Any:
        return lambda score: score  # scores are in [0, 1] already

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
        options = self._options({**kwargs, "search_type": "vector"})
        options["vector"] = embedding
        return self.indexer.search("", k, agent_id=self._resolve_agent(), **options)

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


def _close_and_delete(indexer: DualIndexer, folder: tempfile.TemporaryDirectory[str]) -> None:
    indexer.close()
    folder.cleanup()
