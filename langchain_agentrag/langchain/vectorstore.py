"""`HybridVectorStore`: the LangChain vector store face of a store."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

from langchain_agentrag.embedding import Embedder
from langchain_agentrag.errors import InvalidDocumentError, InvalidQueryError, ScopeError, UsageError
from langchain_agentrag.filters import parse
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.langchain.identity import WhenMissing, caller, calling, check_identity
from langchain_agentrag.langchain.record_manager import HybridRecordManager
from langchain_agentrag.langchain.search_types import MODES, PER_CALL, engine_options, narrowed
from langchain_agentrag.search.options import SearchOptions, check_option_names
from langchain_agentrag.types import Hit, Hits

_K = 4  # LangChain's default


class HybridVectorStore(VectorStore):
    """A LangChain vector store over the same store that `DualIndexer` writes and `HybridRetriever` searches.

    Documents are kept in one piece under their own ids, with their metadata exactly as given. Searches take both legs
    unless told otherwise; scores are in [0, 1], higher is better. It reads shared documents and one agent's own, and
    writes only the latter; unbound, it reads and writes shared documents only.

    Args:
        indexer: The store.
        agent_id: On whose behalf.
        agent_id_key: Key of the run's `configurable` or context that names the agent, instead of `agent_id`.
        when_missing: What a call without that key does: "error", or "shared" documents only.
        filter: Filter that every search obeys; one given at call time is and-ed with it.
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
        check_identity(agent_id, agent_id_key)
        self.indexer, self._bound = indexer, parse(filter)
        self._identity = (agent_id, agent_id_key, when_missing)
        engine_options(None, {}, defaults)
        self._defaults = defaults

    def __repr__(self) -> str:
        return f"HybridVectorStore({self.indexer!r}, agent_id={self._identity[0]!r})"

    @property
    def embeddings(self) -> Embeddings:
        """The store's embedding model as LangChain sees it."""
        return _StoreEmbeddings(self.indexer)

    # -- other ways to make one -----------------------------------------------------------------------------------

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
        """A vector store that holds these texts.

        Args:
            texts: The texts.
            embedding: Whatever `DualIndexer` takes as `embeddings`.
            metadatas: One per text.
            ids: One per text.
            path: Folder of the store; None makes a temporary one that lives as long as the vector store.
            options: As of the constructor.
        """
        path = options.pop("persist_directory", path)
        temporary = tempfile.TemporaryDirectory(prefix="agentrag-") if path is None else None
        indexer = DualIndexer(temporary.name if temporary else str(path), embedding)
        made = cls(indexer, **options)
        if temporary:
            weakref.finalize(made, _discard, indexer, temporary)
        made.add_texts(texts, metadatas, ids=ids)
        return made

    @classmethod
    def from_chroma(cls, source: Any, path: str | Path, *, embeddings: Any = None, **options: Any) -> Self:
        """A vector store with everything a Chroma collection holds: texts, metadata and vectors; nothing is embedded.

        Args:
            source: A langchain-chroma `Chroma`, a chromadb collection, or the path of a Chroma folder.
            path: Folder of the new store.
            embeddings: The model the vectors were made with; None takes that of a `Chroma`.
            options: As of the constructor; `agent_id` also says whose the documents become.
        """
        owner = options.get("agent_id")
        return cls(DualIndexer.from_chroma(source, path, embeddings, agent_id=owner), **options)

    def for_agent(self, agent_id: str) -> Self:
        """The same vector store on behalf of one agent; cheap, make one per request."""
        if agent_id is None:
            raise ScopeError("for_agent() needs the id of an agent.")
        return type(self)(self.indexer, agent_id=agent_id, filter=self._bound, **self._defaults)

    def record_manager(self, namespace: str = "default") -> HybridRecordManager:
        """Persistent records for `langchain_core.indexing.index` over this vector store, of the same agent."""
        return HybridRecordManager(self.indexer, namespace, agent_id=self._caller())

    def as_retriever(self, **kwargs: Any) -> HybridVectorStoreRetriever:
        """A LangChain retriever; search options may be given directly or as `search_kwargs`.

        Raises:
            InvalidQueryError: an unknown option.
        """
        own = HybridVectorStoreRetriever.model_fields.keys()
        given = {name: value for name, value in kwargs.items() if name not in own}
        check_option_names(given, dict.fromkeys(("k", *PER_CALL)))
        fields = {name: value for name, value in kwargs.items() if name in own}
        fields["search_kwargs"] = {**given, **(fields.get("search_kwargs") or {})}
        fields["tags"] = [*(fields.get("tags") or []), type(self).__name__]
        return HybridVectorStoreRetriever(vectorstore=self, **fields)

    # -- writing --------------------------------------------------------------------------------------------------

    def add_documents(
        self, documents: Iterable[Document], *, ids: Sequence[str | None] | None = None, **kwargs: Any
    ) -> list[str]:
        """Add documents, or replace those of the same id; ids in order. One without an id is addressed by its content.

        Args:
            documents: The documents; they are not changed.
            ids: One per document, before the documents' own.
            kwargs: `batch_size` is accepted and not needed: batches are sized by the store.

        Raises:
            InvalidDocumentError: a document cannot be stored, or the number of ids differs.
            ScopeError: a document's metadata claims another agent; nothing was written.
        """
        check_option_names(kwargs, {"batch_size": None})
        given = list(documents)
        if ids is not None:
            if len(ids) != len(given):
                raise InvalidDocumentError(
                    f"Got {len(given)} documents and {len(ids)} ids: give one id per document."
                )
            given = [
                Document(
                    id=own or document.id, page_content=document.page_content, metadata=document.metadata
                )
                for own, document in zip(ids, given, strict=True)
            ]
        owner = self._caller()
        ready = list(as_source_documents(given, owner))
        for document in ready:
            if document.agent_id != owner:
                raise ScopeError(
                    f"Document {document.doc_id!r} claims agent {document.agent_id!r} in its metadata, and this vector "
                    "store is not bound to that agent, so it could never find it: add it through for_agent(…)."
                )
        self.indexer.index_documents(ready, owner, split=False)
        return [document.doc_id for document in ready]

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts, any iterable of them; see `add_documents`."""
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
        **_kwargs: Any,
    ) -> bool:
        """Delete this agent's documents (unbound: shared ones) by id, filter, session or time; absent ids are ignored.

        Raises:
            UsageError: none of them was given.
        """
        agent = self._caller()
        self.indexer.delete(ids, filter=filter, session=session, after=after, before=before, agent_id=agent)
        return True

    # -- reading --------------------------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Documents and passages by the ids that searches return, in the order of the ids; unknown ones left out."""
        agent = self._caller()
        found = {
            document.doc_id: Document(
                id=document.doc_id, page_content=document.text, metadata=dict(document.metadata)
            )
            for document in self.indexer.get(ids, agent_id=agent)
        }
        passages = ((name, found.get(name) or self._passage(name, agent)) for name in dict.fromkeys(ids))
        return [document for _, document in passages if document is not None]

    def similarity_search(self, query: str, k: int = _K, **kwargs: Any) -> list[Document]:
        """The k best documents; options of this call by keyword: filter, search_type, weights and others."""
        return _documents(self._search(query, k, kwargs))

    async def asimilarity_search(self, query: str, k: int = _K, **kwargs: Any) -> list[Document]:
        """`similarity_search` without blocking the event loop."""
        return _documents(await self._asearch(query, k, kwargs))

    def similarity_search_with_score(
        self, query: str, k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """The k best documents with scores in [0, 1], higher is better."""
        return [(_document(hit), hit.score) for hit in self._search(query, k, kwargs)]

    async def asimilarity_search_with_score(
        self, query: str, k: int = _K, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """`similarity_search_with_score` without blocking the event loop."""
        return [(_document(hit), hit.score) for hit in await self._asearch(query, k, kwargs)]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = _K, **kwargs: Any
    ) -> list[Document]:
        """The k documents nearest to an embedding."""
        return _documents(self._search_vector(embedding, k, kwargs))

    def max_marginal_relevance_search(
        self, query: str, k: int = _K, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Relevant and different documents, in the order they were chosen."""
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
        """Documents near to an embedding and different."""
        options = {**kwargs, "fetch_k": fetch_k, "lambda_mult": lambda_mult}
        return _documents(self._search_vector(embedding, k, options))

    def search(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Documents by search type: LangChain's own three, or "hybrid", "vector", "keyword"."""
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

    # -- the engine -----------------------------------------------------------------------------------------------

    def _caller(self) -> str | None:
        return caller(*self._identity)

    def _options(self, kwargs: dict[str, Any]) -> SearchOptions:
        return engine_options(self._bound, self._defaults, kwargs)

    def _search(self, query: str, k: int, kwargs: dict[str, Any]) -> Hits:
        return self.indexer.search(query, k, agent_id=self._caller(), **self._options(kwargs))

    async def _asearch(self, query: str, k: int, kwargs: dict[str, Any]) -> Hits:
        return await self.indexer.asearch(query, k, agent_id=self._caller(), **self._options(kwargs))

    def _search_vector(self, embedding: Sequence[float], k: int, kwargs: dict[str, Any]) -> Hits:
        options = self._options({**kwargs, "search_type": "vector"})
        options["vector"] = embedding
        return self.indexer.search("", k, agent_id=self._caller(), **options)

    def _passage(self, name: str, agent: str | None) -> Document | None:
        doc_id, mark, number = name.rpartition("#")
        if not mark or not number.isdecimal():
            return None
        try:
            passage = self.indexer.read(doc_id, int(number), agent_id=agent)
        except InvalidQueryError:
            return None
        return Document(id=name, page_content=passage.text, metadata={**passage.locator, **passage.metadata})


class HybridVectorStoreRetriever(VectorStoreRetriever):
    """LangChain's retriever over a vector store, where a filter of the call cannot replace the bound one."""

    allowed_search_types: ClassVar[Sequence[str]] = (
        "similarity",
        "similarity_score_threshold",
        *(name for name in MODES if name != "similarity"),
    )

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:  # noqa: A002
        """Documents for a query; options of this call by keyword."""
        with calling(config):
            return super().invoke(input, config, **kwargs)

    async def ainvoke(
        self,
        input: str,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """`invoke` without blocking the event loop."""
        with calling(config):
            return await super().ainvoke(input, config, **kwargs)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return self.vectorstore.search(query, self.search_type, **self._both(kwargs))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        return await self.vectorstore.asearch(query, self.search_type, **self._both(kwargs))

    def _both(self, call: dict[str, Any]) -> dict[str, Any]:
        return narrowed(self.search_kwargs, call)


class _StoreEmbeddings(Embeddings):
    """The store's model behind LangChain's interface."""

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


def _discard(indexer: DualIndexer, folder: tempfile.TemporaryDirectory[str]) -> None:
    indexer.close()
    folder.cleanup()
