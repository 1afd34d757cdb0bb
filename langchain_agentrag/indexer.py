"""`DualIndexer`, a store in one folder, and `AgentView`, the same store bound to one agent."""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, get_args

from langchain_agentrag.connector import BaseConnector
from langchain_agentrag.embedding import Embedder, check_embedder_spec
from langchain_agentrag.errors import ScopeError, StoreMismatchError, UsageError
from langchain_agentrag.ingest.documents import (
    EXPIRY_SWEEP_THRESHOLD,
    as_doc_ids,
    as_source_documents,
    build_filter,
    delete_matching,
    refuse_unbounded_delete,
    with_expiry,
    with_precomputed_vectors,
)
from langchain_agentrag.ingest.pipeline import Pipeline
from langchain_agentrag.ingest.sources import as_connector, documents_of_loop
from langchain_agentrag.ingest.sync import sync as run_sync
from langchain_agentrag.isolation_check import verify_deep
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.scope import Scope, check_agent_id
from langchain_agentrag.search.cache import ResultCache
from langchain_agentrag.search.engine import SearchEngine, Searcher
from langchain_agentrag.search.options import SearchOptions, SearchRequest, check_request
from langchain_agentrag.search.query_embedding import QueryEmbedder
from langchain_agentrag.store import verify as verification
from langchain_agentrag.store.calls import store_call
from langchain_agentrag.store.indexes import reanalyze_chunks
from langchain_agentrag.store.queries import (
    OwnedDocuments,
    list_documents,
    passage_rows,
    read_documents,
    read_passage,
    read_passages,
    row_of,
)
from langchain_agentrag.store.record_keys import RecordKeys
from langchain_agentrag.store.store import CLOSE_TIMEOUT, ChromaPolicy, Store
from langchain_agentrag.store.verify import VerifyReport
from langchain_agentrag.text import Analyzer
from langchain_agentrag.text.chunking import Chunking
from langchain_agentrag.times import add_duration, check_duration
from langchain_agentrag.types import (
    DocumentEntry,
    Hit,
    Hits,
    Passage,
    Progress,
    SourceDocument,
    StoredPassage,
    StoreStats,
    SyncReport,
)

if TYPE_CHECKING:
    from langchain_agentrag.ingest.chroma_import import Owner

T = TypeVar("T")

ProgressCallback = Callable[[Progress], None]
"""Called as items of a long write are done."""


class DualIndexer:
    """A hybrid search index in one folder: index documents, search them by word and by meaning, keep agents apart.

    Whoever holds it administers the store, for any agent; give an agent `for_agent(agent_id)`, or a bound retriever.
    Methods that begin with "a" are the same for asyncio: they do not block the event loop.

    Args:
        path: Folder of the store; created if absent.
        embeddings: A LangChain `Embeddings`, a LlamaIndex embedding, "local", "hash", a sentence-transformers model
            name or folder, or "openai:text-embedding-3-small" and other names of LangChain's `init_embeddings`. None
            takes what the store was built with if it was named by a string, else "local".
        chunking: Size of the chunks.
        analyzer: Analyzer of the keyword index; None takes that of the last time. A different one is an error.
        reanalyze: Accept a different analyzer and analyse everything again (nothing is embedded again).
        exact_limit: Largest partition, in chunks, scored exactly instead of by HNSW.
        chroma: Which partitions Chroma holds: those above exact_limit ("auto"), or every one ("always").
        lock_timeout: Seconds a write waits for another process.
        embed_timeout: Seconds a query may take to embed before the search goes on without the vector index.
        clock: Returns the present time, for expiry and `recency`; the system's clock by default.
        query_cache: Queries per agent whose vectors are cached in memory; 0 for none.
        result_cache: Seconds an equal search of the same agent may be answered from memory while nothing was written.

    Raises:
        UsageError: an option is invalid, or `embeddings` is no model; no folder was created.
        NotAStoreError: the folder holds something else.
        StoreMismatchError: it was built with another model or analyzer, or by a newer version.
    """

    def __init__(
        self,
        path: str | Path,
        embeddings: Any = None,  # noqa: ANN401  (see Args)
        *,
        chunking: Chunking | None = None,
        analyzer: Analyzer | None = None,
        reanalyze: bool = False,
        exact_limit: int = 20_000,
        chroma: ChromaPolicy = "auto",
        lock_timeout: float = 30.0,
        embed_timeout: float | None = None,
        clock: Callable[[], datetime] | None = None,
        query_cache: int = 256,
        result_cache: float = 0.0,
    ) -> None:
        _check_store_options(exact_limit, chroma, lock_timeout, embed_timeout, query_cache, result_cache)
        check_embedder_spec(embeddings)
        self._chunking = chunking or Chunking()
        self._store = Store(Path(path), exact_limit=exact_limit, chroma=chroma, lock_timeout=lock_timeout, clock=clock)
        self._calls = self._store.calls
        try:
            self._analyzer = self._calls.run(_resolve_analyzer, self._store, analyzer, reanalyze=reanalyze)
            self._embedder = self._calls.run(QueryEmbedder, self._store, embeddings, embed_timeout, query_cache)
        except BaseException:
            self._store.close()
            raise
        searcher = Searcher(self._store, self._analyzer)
        self._engine = SearchEngine(searcher, self._embedder, ResultCache(result_cache))
        self.recent_passages = searcher.recent_passages  # recorders recognise quotations by them

    @classmethod
    def from_chroma(
        cls,
        source: Any,  # noqa: ANN401  (see Args)
        path: str | Path,
        embeddings: Any = None,  # noqa: ANN401
        *,
        collection_name: str | None = None,
        agent_id: Owner = None,
        on_progress: ProgressCallback | None = None,
        **options: Any,  # noqa: ANN401
    ) -> Self:
        """Create a store from a Chroma collection: texts, metadata and vectors; nothing is embedded or chunked.

        Ids become doc_ids. A call after an interrupted one does not write again what is there.

        Args:
            source: A chromadb collection, a langchain-chroma `Chroma`, or the path of a Chroma folder.
            path: Folder of the store.
            embeddings: The model the vectors were made with; None takes that of a `Chroma`.
            collection_name: Which collection of the folder, if there are several.
            agent_id: Owner of all of it, or a function of a record's metadata that returns the owner.
            on_progress: Called as records are done.
            options: Options of the store, as of `DualIndexer`.

        Raises:
            StoreMismatchError: the vectors have another length than the model's.
            UsageError: the source is no collection, or it is not clear which one is meant.
        """
        from langchain_agentrag.ingest.chroma_import import import_collection, open_collection

        with open_collection(source, collection_name) as collection:
            indexer = cls(path, collection.embeddings if embeddings is None else embeddings, **options)

            def copy() -> None:
                with indexer._pipeline(on_progress, collection.count()) as pipeline:
                    import_collection(collection, pipeline, indexer.embedder, agent_id)

            try:
                indexer._calls.run(copy)
            except BaseException:
                indexer.close()
                raise
        return indexer

    def __repr__(self) -> str:
        return f"DualIndexer({str(self._store.folder)!r})"

    def __enter__(self) -> Self:
        self._calls.check_open()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a handle: a copied retriever or graph state goes on using the same open store

    def __reduce__(self) -> Any:  # noqa: ANN401
        raise TypeError(
            "A DualIndexer holds open files and cannot be pickled or copied: pass its path and open it again there."
        )

    @property
    def path(self) -> Path:
        """Folder of the store."""
        return self._store.folder

    @property
    @store_call
    def embedder(self) -> Embedder:
        """The store's embedding model, loaded on first use."""
        return self._embedder.embedder

    @property
    @store_call
    def model_name(self) -> str | None:
        """Name of the embedding model the store was built with; None before the first write. Loads no model."""
        embedding = self._store.catalog.manifest_value("embedding")
        return None if embedding is None else str(embedding["name"])

    def close(self, timeout: float | None = CLOSE_TIMEOUT) -> bool:
        """Wait for the calls that run, then release every file; idempotent.

        Calls that come later raise `StoreClosedError`. Nothing is interrupted: where a call still runs after `timeout`,
        or the call to `close` comes from within one (a progress callback, say), the files are released when the last
        one ends.

        Args:
            timeout: Seconds to wait for running calls; None waits until they end.

        Returns:
            Whether the files are released.

        Raises:
            UsageError: the timeout is no number of seconds; nothing was closed.
        """
        number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if timeout is not None and not (number and timeout >= 0):
            raise UsageError(
                f"close(timeout={timeout!r}): give seconds, 0 for no waiting, or None to wait for all calls."
            )
        return self._store.close(None if timeout == math.inf else timeout)

    def for_agent(self, agent_id: str) -> AgentView:
        """Return the store as one agent may use it; cheap, make one per request."""
        self._calls.check_open()
        return AgentView(self, agent_id)

    # -- writing --------------------------------------------------------------------------------------------------

    @store_call
    def index_documents(
        self,
        documents: Iterable[Any],
        agent_id: str | None = None,
        *,
        split: bool = True,
        vectors: Iterable[Sequence[float] | None] | None = None,
        ttl: timedelta | float | str | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> SyncReport:
        """Add documents, or replace those of the same id; unchanged ones cost nothing.

        Args:
            documents: LangChain `Document`, LlamaIndex node, `SourceDocument` or str, any number, in order. Ids come
                from the documents; without one, the id is made from the content.
            agent_id: Owner of all of them; None leaves shared what does not name an owner in its metadata.
            split: Whether documents are chunked; False keeps each in one piece, empty ones too.
            vectors: With split=False: vectors of the documents by the store's model, None where it has to embed.
            ttl: Lifetime, a timedelta, seconds, or text such as "7d"; documents whose metadata has `expires_at` expire
                then. Expired documents are never found, read or counted; `expire` removes them from disk.
            on_progress: Called as documents are done.

        Raises:
            InvalidDocumentError: a document cannot be stored; the message says which, batches before it are stored.
            EmbeddingError: the model failed; batches before are stored, and computed vectors are kept.
        """
        expires = None if ttl is None else add_duration(self._store.now(), check_duration("ttl", ttl))
        sources = with_expiry(as_source_documents(documents, check_agent_id(agent_id)), expires)
        total = len(documents) if isinstance(documents, Sequence) else None
        with self._pipeline(on_progress, total) as pipeline:
            pairs = with_precomputed_vectors(sources, vectors, lambda: self.embedder, split=split)
            for document, vector in pipeline.prefetch(pairs):
                pipeline.put(document, split=split, vector=vector)
                pipeline.advance(document.doc_id)
        self.expire(at_least=EXPIRY_SWEEP_THRESHOLD)
        return pipeline.report

    async def aindex_documents(
        self,
        documents: Iterable[Any],
        agent_id: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> SyncReport:
        """`index_documents` in a worker thread."""
        return await asyncio.to_thread(self.index_documents, documents, agent_id, **options)

    @store_call
    def sync(
        self,
        source: Any,  # noqa: ANN401  (see Args)
        *,
        name: str | None = None,
        agent_id: str | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> SyncReport:
        """Bring the store in step with a source: index what is new or changed, delete what is gone.

        Args:
            source: A connector; the path of a folder or file; a LangChain loader or LlamaIndex reader; an iterable of
                documents, as for `index_documents`.
            name: Identity of the source, for documents and loaders: a sync deletes what the last one of the same name
                and agent had and this one has not. Optional for a path, where it begins the document ids.
            agent_id: Owner of the documents, or None for shared; a connector has its own.
            on_progress: Called as documents are done.

        Raises:
            UsageError: it is no source, or has no name.
            ConnectorError: the source cannot be listed; nothing was deleted.
            InvalidDocumentError: a document cannot be stored; nothing was deleted.
        """
        connector = as_connector(source, name=name, agent_id=agent_id, store=self.path)
        check_agent_id(connector.agent_id)
        with self._pipeline(on_progress, getattr(connector, "total", None)) as pipeline:
            run_sync(self._store, connector, pipeline)
        self.expire(at_least=EXPIRY_SWEEP_THRESHOLD)
        return pipeline.report

    async def async_sync(self, source: Any, **options: Any) -> SyncReport:  # noqa: ANN401
        """`sync` in a worker thread; the documents may also be an asynchronous iterable."""
        if hasattr(source, "__aiter__"):
            source = documents_of_loop(source, asyncio.get_running_loop())
        return await asyncio.to_thread(self.sync, source, **options)

    @store_call
    def delete(
        self,
        doc_ids: str | Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401  (LangChain's name)
        agent_id: str | None = None,
        session: object = None,
        after: Any = None,  # noqa: ANN401
        before: Any = None,  # noqa: ANN401
    ) -> SyncReport:
        """Delete documents of one owner that match all arguments given.

        Nothing finds them from then on. Their bytes are erased from disk within 30 seconds, at the latest by `close`;
        `stats` says what is left, and `erase` waits for it.

        Args:
            doc_ids: One id or several; absent ones are ignored.
            filter: Filter over the documents' metadata.
            agent_id: Owner; None deletes shared documents only.
            session: Only documents whose metadata has this `session`.
            after: Only documents whose time is this or later; see `SearchOptions`.
            before: Only documents whose time is earlier than this.

        Raises:
            UsageError: neither ids nor a condition on a key (`forget_agent` deletes everything of an agent), or an id
                that is no string; nothing was deleted.
        """
        return self._delete(doc_ids, filter, agent_id, session, after, before)

    async def adelete(self, doc_ids: str | Iterable[str] | None = None, **options: Any) -> SyncReport:  # noqa: ANN401
        """`delete` in a worker thread."""
        return await asyncio.to_thread(self.delete, doc_ids, **options)

    @store_call
    def erase(
        self,
        doc_ids: str | Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401  (LangChain's name)
        agent_id: str | None = None,
        session: object = None,
        after: Any = None,  # noqa: ANN401
        before: Any = None,  # noqa: ANN401
    ) -> SyncReport:
        """Delete documents as `delete` does, and erase them from disk before it returns.

        No file of the store holds their texts, words, vectors, metadata or ids then, nor those of anything else that
        was deleted before, documents that were replaced and names of files that a sync found gone included. What is in
        scope but was not deleted stays.

        Raises:
            UsageError: as for `delete`.
            StoreError: nothing finds them any more, but they could not be erased yet, for example because another
                process holds an old snapshot; erasing is tried again in the background.
        """
        return self._delete(doc_ids, filter, agent_id, session, after, before, purge=True)

    async def aerase(self, doc_ids: str | Iterable[str] | None = None, **options: Any) -> SyncReport:  # noqa: ANN401
        """`erase` in a worker thread."""
        return await asyncio.to_thread(self.erase, doc_ids, **options)

    def _delete(
        self,
        doc_ids: str | Iterable[str] | None,
        where: Any,  # noqa: ANN401
        agent_id: str | None,
        session: object,
        after: Any,  # noqa: ANN401
        before: Any,  # noqa: ANN401
        *,
        purge: bool = False,
    ) -> SyncReport:
        owner = check_agent_id(agent_id)
        ids = as_doc_ids(doc_ids)
        condition = build_filter(self._store.now(), where, session=session, after=after, before=before)
        refuse_unbounded_delete(ids, condition)
        with self._pipeline(None, None, keep_vectors=False, purge=purge) as pipeline:
            delete_matching(self._store, pipeline, owner, ids, condition)
        return pipeline.report

    @store_call
    def forget_agent(self, agent_id: str) -> SyncReport:
        """Remove everything of an agent from disk, before it returns, and nothing of anybody else.

        Its documents with their vectors and words, its caches, the names that its sources and record managers have
        left, its id.
        """
        owner = check_agent_id(agent_id)
        if owner is None:
            raise ScopeError("forget_agent() needs the id of an agent: erase() removes shared documents.")
        self._engine.forget(owner)
        return SyncReport(deleted=self._store.delete_partition(owner).deleted)

    async def aforget_agent(self, agent_id: str) -> SyncReport:
        """`forget_agent` in a worker thread."""
        return await asyncio.to_thread(self.forget_agent, agent_id)

    @store_call
    def record_keys(self, namespace: str, *, agent_id: str | None = None) -> RecordKeys:
        """Return the keys that LangChain's `index()` has recorded for one owner; see `HybridRecordManager`."""
        owner, on_delete = check_agent_id(agent_id), self._store.background_indexer.on_delete
        return RecordKeys(self._store.catalog, self._calls, owner, namespace, self._store.now, on_delete)

    @store_call
    def owned_documents(self, agent_id: str | None = None, *, expired: bool = False) -> OwnedDocuments:
        """Return the documents of exactly one owner, found by prefixes of their ids; see `HybridStore`.

        Args:
            agent_id: The owner; None for shared documents.
            expired: Whether expired documents that are still on disk are included.
        """
        owner, now = check_agent_id(agent_id), self._store.now()
        return OwnedDocuments(self._store.catalog, self._calls, owner, now, expired=expired)

    def run_call(self, call: Callable[[], T]) -> T:
        """Run a function as one call of the store, which closing waits for; see `HybridStore`."""
        return self._calls.run(call)

    def _pipeline(self, on_progress: ProgressCallback | None, total: int | None, **options: bool) -> Pipeline:
        settings: dict[str, Any] = {"on_progress": on_progress, "total": total, **options}
        return Pipeline(self._store, self._analyzer, self._chunking, lambda: self.embedder, **settings)

    # -- reading --------------------------------------------------------------------------------------------------

    @store_call
    def search(self, query: str, k: int = 5, *, agent_id: str | None = None, **options: Unpack[SearchOptions]) -> Hits:
        """Return the k best chunks for a question, best first.

        Args:
            query: The question; one without a letter, digit or symbol returns nothing.
            k: Hits wanted, >= 1; fewer are returned only when there are fewer.
            agent_id: Agent on whose behalf to search; None sees shared documents only.
            options: filter, after, before, mode ("hybrid", "vector", "keyword"), weights, fusion, recency and others;
                see `SearchOptions`.

        Returns:
            Hits with scores in [0, 1]; `degraded` names an index that failed.

        Raises:
            InvalidQueryError: k or an option is invalid, or there is no such option.
            FilterError: the filter cannot be parsed.
            RetrievalError: no index could answer.
        """
        return self._engine.search(self._request(query, k, agent_id, options))

    async def asearch(
        self, query: str, k: int = 5, *, agent_id: str | None = None, **options: Unpack[SearchOptions]
    ) -> Hits:
        """`search` through the model's own async method; the indexes are searched in a worker thread."""
        return await self._engine.asearch(self._request(query, k, agent_id, options))

    def vector_search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` with the vector index alone."""
        return self.search(query, k, mode="vector", **options)

    def keyword_search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` with the keyword index alone; needs no embedding model."""
        return self.search(query, k, mode="keyword", **options)

    def _request(self, query: str, k: int, agent_id: str | None, options: SearchOptions) -> SearchRequest:
        return check_request(query, k, agent_id=agent_id, options=options, present=self._store.now())

    @store_call
    def read(
        self, doc_id: str, chunk_id: int = 0, *, before: int = 0, after: int = 0, agent_id: str | None = None
    ) -> Passage:
        """Return a chunk by its address, with neighbours on request, exactly as written in the document.

        Args:
            doc_id: The document; the agent's own comes before a shared one of the same id.
            chunk_id: Ordinal of the chunk.
            before: Chunks before it to include, >= 0.
            after: Chunks after it to include, >= 0.
            agent_id: Agent on whose behalf to read.

        Raises:
            InvalidQueryError: there is no such chunk in what the agent may see; the message says what there is.
        """
        scope = Scope(check_agent_id(agent_id))
        passage = read_passage(self._store.catalog, self._store.now(), scope, doc_id, chunk_id, before, after)
        self.recent_passages.note(scope.agent_id, [passage.text])
        return passage

    async def aread(self, doc_id: str, chunk_id: int = 0, **options: Any) -> Passage:  # noqa: ANN401
        """`read` in a worker thread."""
        return await asyncio.to_thread(self.read, doc_id, chunk_id, **options)

    @store_call
    def get(
        self,
        doc_ids: str | Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401  (LangChain's name)
        agent_id: str | None = None,
        after: Any = None,  # noqa: ANN401
        before: Any = None,  # noqa: ANN401
    ) -> list[SourceDocument]:
        """Return documents by id, filter and time; those that match all arguments given, in the order of the ids.

        The agent's own document comes before a shared one of the same id; without an agent only shared ones are seen.

        Raises:
            UsageError: an id is no string.
        """
        condition = build_filter(self._store.now(), filter, after=after, before=before)
        scope = Scope(check_agent_id(agent_id))
        return read_documents(self._store.catalog, self._store.now(), scope, as_doc_ids(doc_ids), condition)

    @store_call
    def list_documents(
        self,
        *,
        agent_id: str | None = None,
        filter: Any = None,  # noqa: A002, ANN401  (LangChain's name)
        own: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> tuple[list[DocumentEntry], int]:
        """Return one page of the documents that an agent may see, without their texts, and how many there are in all.

        Shared documents come first, then those of the agent, each in the order in which they were first indexed.

        Args:
            agent_id: Agent on whose behalf to list; without it only shared documents are listed.
            filter: Condition on the metadata.
            own: Only what belongs to `agent_id` itself, or, without an agent, what is shared.
            limit: Most documents to return, >= 0; all by default.
            offset: Documents to leave out before the first, >= 0.

        Raises:
            UsageError: an argument is invalid.
        """
        for name, count in (("limit", limit), ("offset", offset)):
            if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
                raise UsageError(f"list_documents({name}={count!r}): it must be a number of documents, 0 or more.")
        scope = Scope(check_agent_id(agent_id))
        owners = [scope.agent_id] if own else scope.owners
        condition = build_filter(self._store.now(), filter)
        return list_documents(self._store.catalog, self._store.now(), owners, condition, limit, offset)

    @store_call
    def passages(
        self,
        doc_ids: str | Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401  (LangChain's name)
        agent_id: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        vectors: bool = False,
    ) -> list[StoredPassage]:
        """Return the passages an agent may see, its own before the shared ones, in the order they were stored.

        Args:
            doc_ids: Ids of documents, or of passages ("doc_id#chunk_id"); None for all.
            filter: Filter of the passages.
            agent_id: Agent on whose behalf to read; None sees shared documents only.
            limit: Most passages to return.
            offset: Passages to skip.
            vectors: Whether to return their embeddings as well.

        Raises:
            UsageError: an id is no string, or limit or offset is no whole number >= 0.
            FilterError: the filter cannot be parsed.
        """
        for name, value in (("limit", limit), ("offset", offset)):
            if isinstance(value, bool) or not isinstance(value, int | None) or (value or 0) < 0:
                raise UsageError(f"Cannot list passages with {name}={short_repr(value)}: it is a whole number >= 0.")
        scope, references = Scope(check_agent_id(agent_id)), as_doc_ids(doc_ids)
        condition = build_filter(self._store.now(), filter)
        with self._store.catalog.snapshot() as connection:
            matching = passage_rows(connection, self._store.now(), scope, references, condition)
            stop = None if limit is None else min(offset + limit, sys.maxsize)
            rows = list(itertools.islice(matching, min(offset, sys.maxsize), stop))
            return read_passages(connection, scope, rows, vectors=vectors)

    @store_call
    def count(self, *, filter: Any = None, agent_id: str | None = None) -> int:  # noqa: A002, ANN401
        """Return the number of passages that `passages` would return."""
        scope, condition = Scope(check_agent_id(agent_id)), build_filter(self._store.now(), filter)
        with self._store.catalog.snapshot() as connection:
            return sum(1 for _ in passage_rows(connection, self._store.now(), scope, None, condition))

    @store_call
    def passages_of(self, hits: Iterable[Hit], *, agent_id: str | None = None) -> list[StoredPassage | None]:
        """Return the passage of each hit with its vector; None where it is gone or the agent may not see it."""
        scope, now = Scope(check_agent_id(agent_id)), self._store.now()
        with self._store.catalog.snapshot() as connection:
            rows = [
                row_of(connection, now, hit.agent_id, hit.doc_id, hit.chunk_id) if scope.admits(hit.agent_id) else None
                for hit in hits
            ]
            found = read_passages(connection, scope, [row for row in rows if row is not None], vectors=True)
        passages = iter(found)
        return [None if row is None else next(passages) for row in rows]

    # -- maintenance ----------------------------------------------------------------------------------------------

    @store_call
    def stats(self, agent_id: str | None = None) -> StoreStats:
        """Return counts of the whole store, or of what one agent may see."""
        return self._store.stats(None if agent_id is None else Scope(agent_id))

    @store_call
    def _stats_of_view(self, agent_id: str) -> StoreStats:
        return self._store.own_work(self._store.stats(Scope(agent_id)), agent_id)

    @store_call
    def expire(self, *, at_least: int = 1, owners: Iterable[str | None] | None = None) -> SyncReport:
        """Remove expired documents; `deleted` counts them.

        No search, read or count sees them from the moment they expire on, whether this is called or not. Their bytes
        are erased from disk in the background, as after `delete`.

        Args:
            at_least: Do nothing when fewer have expired.
            owners: Only documents of these owners, None for shared ones; by default of all.
        """
        if isinstance(owners, str):
            raise UsageError(f"expire(owners={owners!r}): pass a list of agent ids, even of one.")
        only = None if owners is None else {check_agent_id(owner) for owner in owners}
        expired = self._store.visibility.expired(self._store.now(), at_least)
        expired = [(owner, doc_id) for owner, doc_id in expired if only is None or owner in only]
        if not expired or len(expired) < at_least:
            return SyncReport()
        with self._pipeline(None, None, keep_vectors=False, sweep=True) as pipeline:
            for owner, doc_id in expired:
                pipeline.remove(owner, doc_id)
        return pipeline.report

    async def aexpire(self, **options: Any) -> SyncReport:  # noqa: ANN401
        """`expire` in a worker thread."""
        return await asyncio.to_thread(self.expire, **options)

    @store_call
    def verify(self, *, deep: bool = False) -> VerifyReport:
        """Compare both indexes with the catalog; `deep` also checks every chunk and looks for leaks between agents."""
        return verify_deep(self, self._store, self._analyzer) if deep else verification.verify(self._store)

    @store_call
    def optimize(self) -> int:
        """Add all unindexed vectors (`StoreStats.unindexed`) to the vector index now; return how many were added."""
        return self._store.background_indexer.index_pending()

    @store_call
    def repair(self) -> VerifyReport:
        """Rebuild what differs from the catalog, without embedding anything; then verify."""
        return verification.repair(self._store)


class AgentView:
    """A `DualIndexer` bound to one agent: it sees shared documents and the agent's own, and writes only the latter.

    None of its methods takes an agent, so nothing that comes from a model or a request can name another one.

    Args:
        indexer: The store.
        agent_id: The agent.

    Raises:
        ScopeError: the id is invalid.
    """

    def __init__(self, indexer: DualIndexer, agent_id: str) -> None:
        owner = check_agent_id(agent_id)
        if owner is None:
            raise ScopeError("for_agent() needs the id of an agent: use the indexer itself for shared documents.")
        self._indexer, self._agent = check_indexer(indexer, "AgentView"), owner

    def __repr__(self) -> str:
        return f"AgentView({self._agent!r})"

    @property
    def agent_id(self) -> str:
        """The agent this view is bound to."""
        return self._agent

    def index_documents(
        self,
        documents: Iterable[Any],
        *,
        split: bool = True,
        ttl: timedelta | float | str | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> SyncReport:
        """Add or replace documents of this agent; see `DualIndexer.index_documents`."""
        return self._indexer.index_documents(documents, self._agent, split=split, ttl=ttl, on_progress=on_progress)

    def sync(
        self,
        source: Any,  # noqa: ANN401
        *,
        name: str | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> SyncReport:
        """Bring this agent's documents in step with a source of its own; see `DualIndexer.sync`.

        Raises:
            ScopeError: the source has documents for another owner.
        """
        if not isinstance(source, BaseConnector):
            return self._indexer.sync(source, name=name, agent_id=self._agent, on_progress=on_progress)
        if source.agent_id != self._agent:
            raise ScopeError(
                f"A view of agent {self._agent!r} cannot sync a connector of {source.agent_id!r}: "
                f"make the connector with agent_id={self._agent!r}."
            )
        return self._indexer.sync(source, name=name, on_progress=on_progress)

    async def async_sync(self, source: Any, **options: Any) -> SyncReport:  # noqa: ANN401
        """`sync` in a worker thread; the documents may also be an asynchronous iterable."""
        if hasattr(source, "__aiter__"):
            source = documents_of_loop(source, asyncio.get_running_loop())
        return await asyncio.to_thread(self.sync, source, **options)

    def delete(
        self,
        doc_ids: str | Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401
        session: object = None,
        after: Any = None,  # noqa: ANN401
        before: Any = None,  # noqa: ANN401
    ) -> SyncReport:
        """Delete documents of this agent; see `DualIndexer.delete`."""
        return self._indexer.delete(
            doc_ids, filter=filter, session=session, after=after, before=before, agent_id=self._agent
        )

    def erase(
        self,
        doc_ids: str | Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401
        session: object = None,
        after: Any = None,  # noqa: ANN401
        before: Any = None,  # noqa: ANN401
    ) -> SyncReport:
        """Delete documents of this agent and erase them from disk; see `DualIndexer.erase`."""
        return self._indexer.erase(
            doc_ids, filter=filter, session=session, after=after, before=before, agent_id=self._agent
        )

    def forget(self) -> SyncReport:
        """Remove everything this agent owns; see `DualIndexer.forget_agent`."""
        return self._indexer.forget_agent(self._agent)

    def search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """Search what this agent may see; options as of `DualIndexer.search`, without the agent."""
        return self._indexer.search(query, k, agent_id=self._agent, **options)

    async def asearch(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` without blocking the event loop."""
        return await self._indexer.asearch(query, k, agent_id=self._agent, **options)

    def vector_search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` with the vector index alone."""
        return self.search(query, k, mode="vector", **options)

    def keyword_search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` with the keyword index alone."""
        return self.search(query, k, mode="keyword", **options)

    def read(self, doc_id: str, chunk_id: int = 0, *, before: int = 0, after: int = 0) -> Passage:
        """Read a passage this agent may see; see `DualIndexer.read`."""
        return self._indexer.read(doc_id, chunk_id, before=before, after=after, agent_id=self._agent)

    async def aread(self, doc_id: str, chunk_id: int = 0, *, before: int = 0, after: int = 0) -> Passage:
        """`read` in a worker thread."""
        return await self._indexer.aread(doc_id, chunk_id, before=before, after=after, agent_id=self._agent)

    def get(
        self,
        doc_ids: str | Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401
        after: Any = None,  # noqa: ANN401
        before: Any = None,  # noqa: ANN401
    ) -> list[SourceDocument]:
        """Return documents this agent may see, by id, filter or time; see `DualIndexer.get`."""
        return self._indexer.get(doc_ids, filter=filter, after=after, before=before, agent_id=self._agent)

    def list_documents(
        self,
        *,
        filter: Any = None,  # noqa: A002, ANN401
        own: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> tuple[list[DocumentEntry], int]:
        """Return one page of the documents this agent may see, and how many there are; see the indexer's."""
        options: dict[str, Any] = {"filter": filter, "own": own, "limit": limit, "offset": offset}
        return self._indexer.list_documents(agent_id=self._agent, **options)

    def passages(
        self,
        doc_ids: str | Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401
        limit: int | None = None,
        offset: int = 0,
        vectors: bool = False,
    ) -> list[StoredPassage]:
        """Return passages this agent may see; see `DualIndexer.passages`."""
        return self._indexer.passages(
            doc_ids, filter=filter, limit=limit, offset=offset, vectors=vectors, agent_id=self._agent
        )

    def count(self, *, filter: Any = None) -> int:  # noqa: A002, ANN401
        """Return the number of passages this agent may see."""
        return self._indexer.count(filter=filter, agent_id=self._agent)

    def stats(self) -> StoreStats:
        """Return counts of what this agent may see; `unindexed` and `unpurged` count its own documents only."""
        return self._indexer._stats_of_view(self._agent)  # noqa: SLF001  (the view belongs to the store)


def check_indexer(indexer: object, user: str) -> DualIndexer:
    """Return an open store unchanged; `user` is what needs it, for the error message.

    Raises:
        UsageError: it is something else, such as the path of a store or the view of an agent.
    """
    if isinstance(indexer, DualIndexer):
        return indexer
    if isinstance(indexer, str | Path):
        value, remedy = f"the path {str(indexer)!r}", f"open it first, and pass DualIndexer({str(indexer)!r})"
    elif isinstance(indexer, AgentView):
        value, remedy = repr(indexer), f"pass the DualIndexer it was made from and agent_id={indexer.agent_id!r}"
    else:
        value, remedy = f"{short_repr(indexer)} ({type(indexer).__name__})", "pass a DualIndexer(path)"
    raise UsageError(f"{user} needs an open store, a DualIndexer, got {value}: {remedy}.")


def _resolve_analyzer(store: Store, analyzer: Analyzer | None, *, reanalyze: bool) -> Analyzer:
    """Return the analyzer of a store, and write its settings to the manifest for later opens.

    Args:
        store: The store.
        analyzer: The analyzer to open it with; None for the one of the last open. Its user words decide by which terms
            texts are indexed; its stop words and synonyms change queries only.
        reanalyze: Accept other user words and analyse all texts again.

    Raises:
        StoreMismatchError: The analyzer indexes texts otherwise than the store was built, and `reanalyze` is off.
    """
    stored_settings = store.catalog.manifest_value("analyzer_settings") or Analyzer().settings
    analyzer = analyzer or Analyzer(**stored_settings)
    fingerprint = store.catalog.manifest_value("analyzer")
    if fingerprint == analyzer.fingerprint and stored_settings == analyzer.settings:
        return analyzer
    with store.lock.acquire():
        if fingerprint not in {None, analyzer.fingerprint}:
            if not reanalyze:
                raise StoreMismatchError(
                    f"The store {store.folder} was built with the analyzer {fingerprint}, not {analyzer.fingerprint}: "
                    "its terms would not match the query's. Open it with the settings it was built with, or with "
                    "reanalyze=True to analyse its texts again (nothing is embedded again)."
                )
            # until all of it is done, neither analyzer fits
            store.catalog.set_manifest(analyzer=f"{analyzer.fingerprint}, unfinished")
            reanalyze_chunks(store.catalog, analyzer)
            for partition in store.catalog.partitions():
                store.indexes.rebuild_keyword_index(partition)
        store.catalog.set_manifest(analyzer=analyzer.fingerprint, analyzer_settings=analyzer.settings)
    return analyzer


def _check_store_options(
    exact_limit: object,
    chroma: object,
    lock_timeout: object,
    embed_timeout: object,
    query_cache: object = 0,
    result_cache: object = 0.0,
) -> None:
    """Refuse invalid options before a folder is created.

    Raises:
        UsageError: the message names the option, the value and the rule.
    """
    if isinstance(exact_limit, bool) or not isinstance(exact_limit, int) or exact_limit < 0:
        raise UsageError(f"exact_limit={exact_limit!r}: give a number of rows, 0 for always HNSW.")
    if chroma not in get_args(ChromaPolicy):
        raise UsageError(f"chroma={chroma!r}: choose one of {', '.join(get_args(ChromaPolicy))}.")
    if not isinstance(lock_timeout, int | float) or not lock_timeout >= 0:
        raise UsageError(f"lock_timeout={lock_timeout!r}: give seconds, 0 for no waiting.")
    if embed_timeout is not None and (not isinstance(embed_timeout, int | float) or not embed_timeout > 0):
        raise UsageError(f"embed_timeout={embed_timeout!r}: give seconds above 0, or None to wait for the model.")
    if isinstance(query_cache, bool) or not isinstance(query_cache, int) or query_cache < 0:
        raise UsageError(f"query_cache={query_cache!r}: give a number of queries, 0 for none.")
    seconds = isinstance(result_cache, int | float) and not isinstance(result_cache, bool)
    if not seconds or not 0 <= result_cache < math.inf:  # type: ignore[operator]
        raise UsageError(f"result_cache={result_cache!r}: give seconds, 0 for none.")
