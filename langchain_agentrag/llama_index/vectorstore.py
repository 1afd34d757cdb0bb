"""`HybridVectorStore`: LlamaIndex vector store over a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self, cast

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from pydantic import ConfigDict, PrivateAttr

from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.errors import InvalidQueryError, UsageError
from langchain_agentrag.filters import Condition, Filter, conjoin, filter_keys
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.ingest.documents import as_doc_ids, documents_of_agent, require_doc_ids
from langchain_agentrag.llama_index.docstore import NO_RECORDS, RECORD_KEY
from langchain_agentrag.llama_index.filters import Filters, parse_filters
from langchain_agentrag.llama_index.ingestion import StoreEmbedding
from langchain_agentrag.llama_index.nodes import from_document, from_hit, from_passage, ref_doc_condition, to_document
from langchain_agentrag.llama_index.query_engine import FencedIndex
from langchain_agentrag.llama_index.retriever import RETRIEVER_OPTIONS
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.scope import check_agent_id, require_agent_id
from langchain_agentrag.search.options import check_option_names, check_request
from langchain_agentrag.types import Hit, SearchMode, split_reference

_MODES: Mapping[VectorStoreQueryMode, SearchMode] = {
    VectorStoreQueryMode.DEFAULT: "vector",
    VectorStoreQueryMode.MMR: "vector",
    VectorStoreQueryMode.SPARSE: "keyword",
    VectorStoreQueryMode.TEXT_SEARCH: "keyword",
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.SEMANTIC_HYBRID: "hybrid",
}
_ALLOWED_OPTIONS = tuple(name for name in RETRIEVER_OPTIONS if name not in {"mode", "weights", "diversity"})
_MMR_THRESHOLD = 0.5  # LlamaIndex's own default
_OVERFETCH_FACTOR = 4  # hits to fetch per hit to return where predicates drop some
_CHUNK_FETCH_K = 5_000  # chunks to fetch when node_ids name single chunks
_DELETE_ARGUMENTS = ("node_ids", "filters", "session", "after", "before")
_INDEX_OPTIONS = (
    *("embed_model", "use_async", "store_nodes_override", "insert_batch_size"),
    *("callback_manager", "transformations", "show_progress", "index_id"),
)
_PASSED_ON = ("index_id", "show_progress", "use_async", "insert_batch_size", "store_nodes_override", "batch_size")
"""Arguments of LlamaIndex's indexes and of other stores, which an index passes on to its vector store."""

_MATCH_ALL = {"doc_id": {"$exists": True}}


class HybridVectorStore(BasePydanticVectorStore):
    """LlamaIndex vector store over the store that `DualIndexer` writes and `HybridRetriever` searches.

    Nodes are stored unsplit under their own ids and returned equal, hash and relationships included; adding an id again
    replaces the node. Embeddings of nodes and queries are used where present, others are computed by the store's model:
    create indexes over it with `as_index()`, or with `embed_model=store.embed_model`.

    Query modes: default and mmr (vectors), sparse and text_search (words), hybrid and semantic_hybrid (both; `alpha` is
    the weight of the vectors). Other modes are an error. Scores are in [0, 1].

    It reads shared documents and those of its agent, and writes only the latter; without an agent it reads and writes
    shared documents.

    Attributes:
        agent_id: The bound agent.
        explain: Whether nodes of a query have an explanation; see `HybridRetriever`.

    Args:
        indexer: The store.
        agent_id: The bound agent.
        filters: Filter of every query.
        explain: See above.
        options: Options of every query: fusion, fetch_k, score_threshold, max_per_document, reranker.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid", frozen=True)

    stores_text: bool = True
    is_embedding_query: bool = True
    agent_id: str | None = None
    explain: bool = False

    _indexer: DualIndexer = PrivateAttr()
    _bound: Filter | None = PrivateAttr(default=None)
    _defaults: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(
        self,
        indexer: DualIndexer,
        *,
        agent_id: str | None = None,
        filters: Filters = None,
        explain: bool = False,
        **options: Any,
    ) -> None:
        check_indexer(indexer, "HybridVectorStore")
        check_option_names(options, dict.fromkeys(_ALLOWED_OPTIONS), count="similarity_top_k")
        check_request("", 1, agent_id=agent_id, options=options)
        super().__init__(stores_text=True, agent_id=check_agent_id(agent_id), explain=explain)
        self._indexer, self._bound, self._defaults = indexer, parse_filters(filters), options

    def __repr__(self) -> str:
        return f"HybridVectorStore({self._indexer!r}, agent_id={self.agent_id!r})"

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "A HybridVectorStore holds an open store and cannot be pickled: pass the store's path and open it there."
        )

    @classmethod
    def class_name(cls) -> str:
        """Return the name in LlamaIndex's serialised form."""
        return "AgentRAGHybridVectorStore"

    @property
    def client(self) -> DualIndexer:
        """The store."""
        return self._indexer

    @property
    def bound_filter(self) -> Filter | None:
        """The filter of every query."""
        return self._bound

    @property
    def embed_model(self) -> StoreEmbedding:
        """The store's embedding model as a LlamaIndex model."""
        return StoreEmbedding(self._indexer)

    def as_index(self, *, safety: PassageSafety | None = None, **options: Any) -> FencedIndex:
        """Return a `VectorStoreIndex` over this store and its embedding model.

        Args:
            safety: Protection against prompt injection in what its query and chat engines show to the model;
                `PassageSafety.off()` turns it off. Retrievers of the index return nodes unchanged.
            options: Arguments of `VectorStoreIndex`, such as transformations, callback_manager or show_progress, and
                index_id.

        Raises:
            UsageError: an unknown option, which LlamaIndex would ignore.
        """
        check_option_names(options, _INDEX_OPTIONS, "as_index()")
        index_id = options.pop("index_id", None)
        index = FencedIndex.from_vector_store(self, **{"embed_model": self.embed_model, **options})
        index = cast("FencedIndex", index)
        index.safety = safety or PassageSafety()
        if index_id is not None:
            index.set_index_id(index_id)
        return index

    def for_agent(self, agent_id: str) -> Self:
        """Return a copy bound to one agent; cheap enough to create per request."""
        return self._clone(agent_id=require_agent_id(agent_id, "for_agent()"))

    def with_filters(self, filters: Filters) -> Self:
        """Return a copy with further filters."""
        return self._clone(filters=conjoin(self._bound, parse_filters(filters)))

    def _clone(self, **changes: Any) -> Self:
        settings = {"agent_id": self.agent_id, "filters": self._bound, "explain": self.explain}
        return type(self)(self._indexer, **{**settings, **self._defaults, **changes})

    # -- writing --------------------------------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes, or replace those of the same id, and return the ids in order.

        Both indexes see a node as `MetadataMode.EMBED` shows it: its text, and the metadata that it does not exclude.
        An embedding that a node brings is kept. Arguments of a `VectorStoreIndex`, which it passes on, are ignored.

        Raises:
            InvalidDocumentError: a node cannot be stored.
            ScopeError: a node's metadata claims another agent; nothing was written.
            StoreMismatchError: the length of an embedding differs from that of the store's model.
        """
        check_option_names(kwargs, ["nodes", *_PASSED_ON], "add()")
        nodes = list(nodes)
        documents = documents_of_agent(map(to_document, nodes), self.agent_id)
        vectors = [node.embedding for node in nodes]
        self._indexer.index_documents(documents, self.agent_id, split=False, vectors=vectors)
        return [document.doc_id for document in documents]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """`add` in a worker thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete this agent's nodes of a source document, and the document itself; absent ones are ignored.

        Raises:
            UsageError: the id is no string, or there is another argument; nothing was deleted.
        """
        check_option_names(delete_kwargs, ["ref_doc_id", *_PASSED_ON], "delete()")
        if not isinstance(ref_doc_id, str):
            raise UsageError(f"Cannot delete the nodes of document {short_repr(ref_doc_id)}: pass its id, a string.")
        self._indexer.delete(filter=ref_doc_condition([ref_doc_id]), agent_id=self.agent_id)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """`delete` in a worker thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        *,
        session: Any = None,
        after: Any = None,
        before: Any = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete this agent's nodes that meet all conditions: id, filter, session, time; skip absent ones.

        Raises:
            UsageError: no condition is set (`clear()` deletes everything), an id is no string, or there is no such
                argument; nothing was deleted.
        """
        check_option_names(delete_kwargs, (*_DELETE_ARGUMENTS, *_PASSED_ON), "delete_nodes()")
        window = {"session": session, "after": after, "before": before}
        condition = parse_filters(filters)
        if filter_keys(condition):  # a filter without a key is refused
            condition = conjoin(condition, NO_RECORDS)
        self._indexer.delete(node_ids, filter=condition, agent_id=self.agent_id, **window)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """`delete_nodes` in a worker thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    def clear(self) -> None:
        """Delete all documents of this agent (without one, all shared documents), however they were indexed."""
        self._indexer.delete(filter=_MATCH_ALL, agent_id=self.agent_id)

    async def aclear(self) -> None:
        """`clear` in a worker thread."""
        await asyncio.to_thread(self.clear)

    # -- reading --------------------------------------------------------------------------------------------------

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return nodes by id (in that order), by filter, or by both; skip absent ones."""
        condition, node_ids = conjoin(self._bound, parse_filters(filters)), as_doc_ids(node_ids)
        documents = self._indexer.get(node_ids, filter=condition, agent_id=self.agent_id)
        if node_ids is None:
            return [from_document(document) for document in documents if RECORD_KEY not in document.metadata]
        nodes: dict[str, BaseNode] = {document.doc_id: from_document(document) for document in documents}
        for node_id in node_ids:
            if node_id not in nodes and (chunk := self._chunk(node_id, condition)) is not None:
                nodes[node_id] = chunk
        return [nodes[node_id] for node_id in node_ids if node_id in nodes]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """`get_nodes` in a worker thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    def _chunk(self, reference: str, condition: Filter | None) -> BaseNode | None:
        """Return a chunk of a split document by "doc_id#chunk_id", the node id of query results; else None."""
        address = split_reference(reference)
        if address is None:
            return None
        if not self._indexer.get([address[0]], filter=condition, agent_id=self.agent_id):
            return None
        try:
            return from_passage(self._indexer.read(*address, agent_id=self.agent_id))
        except InvalidQueryError:
            return None

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes for a query, best first, with scores in [0, 1].

        Args:
            query: The query. `doc_ids` of None and `node_ids` of None, or [] as a `VectorStoreIndex` passes, are no
                constraint; `doc_ids` of [] matches nothing.
            kwargs: Search options of this query, and `mmr_threshold`.

        Raises:
            InvalidQueryError: an unsupported mode, or an invalid option.
            UsageError: an id in `node_ids` or `doc_ids` is no string.
            FilterError: the filters cannot be parsed.
        """
        request = self._engine_query(query, kwargs)
        if not request.k:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        if request.filter_only:
            return self._list_by_filter(request)
        return self._result(request, self._indexer.search(request.text, request.fetch, **request.options))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """`query` without blocking the event loop."""
        request = self._engine_query(query, kwargs)
        if not request.k:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        if request.filter_only:
            return await asyncio.to_thread(self._list_by_filter, request)
        return self._result(request, await self._indexer.asearch(request.text, request.fetch, **request.options))

    def _engine_query(self, query: VectorStoreQuery, call: dict[str, Any]) -> _EngineQuery:
        call = {name: value for name, value in call.items() if name not in _PASSED_ON}
        check_option_names(call, dict.fromkeys((*_ALLOWED_OPTIONS, "mmr_threshold")), count="similarity_top_k")
        mode = _MODES.get(query.mode)
        if mode is None:
            raise InvalidQueryError(
                f"HybridVectorStore cannot answer mode {query.mode!r}: choose one of "
                f"{', '.join(supported.value for supported in _MODES)}."
            )
        condition = conjoin(self._bound, parse_filters(query.filters))
        if query.doc_ids is not None:
            condition = conjoin(condition, ref_doc_condition(query.doc_ids))
        call_options = {name: value for name, value in call.items() if name != "mmr_threshold"}
        options: dict[str, Any] = {**self._defaults, **call_options, "mode": mode, "agent_id": self.agent_id}
        predicates: list[Callable[[Hit], bool]] = []
        k = fetch = query.similarity_top_k
        if mode == "keyword":
            k = fetch = query.sparse_top_k or k
        else:
            options["vector"] = query.query_embedding
        if mode == "hybrid":
            options["weights"] = _weights(query.alpha)
            k = fetch = query.hybrid_top_k or k
            if query.sparse_top_k:
                predicates.append(_in_top_ranks(query.similarity_top_k, query.sparse_top_k))
                fetch = _OVERFETCH_FACTOR * (query.similarity_top_k + query.sparse_top_k)
        if query.mode == VectorStoreQueryMode.MMR:
            options["diversity"] = 1.0 - _check_mmr_threshold(call.get("mmr_threshold", query.mmr_threshold))
        if query.node_ids is not None and query.node_ids != []:
            node_ids = frozenset(require_doc_ids(query.node_ids))
            doc_ids = node_ids | {node_id.rpartition("#")[0] for node_id in node_ids if "#" in node_id}
            condition = conjoin(condition, Condition("doc_id", "$in", sorted(doc_ids)))
            if doc_ids != node_ids:
                predicates.append(lambda hit: hit.reference in node_ids)
                fetch = max(fetch, _CHUNK_FETCH_K)
        text = query.query_str or ""
        filter_only = mode != "keyword" and not text.strip() and query.query_embedding is None
        options["filter"] = condition
        return _EngineQuery(text, k, fetch, options, tuple(predicates), filter_only)

    def _result(self, request: _EngineQuery, hits: Sequence[Hit]) -> VectorStoreQueryResult:
        degraded = getattr(hits, "degraded", ())
        passing = [hit for hit in hits if all(test(hit) for test in request.predicates)][: request.k]
        scored = [from_hit(hit, explain=self.explain, degraded=degraded) for hit in passing]
        return VectorStoreQueryResult(
            nodes=[result.node for result in scored],
            similarities=[result.get_score() for result in scored],
            ids=[result.node_id for result in scored],
        )

    def _list_by_filter(self, request: _EngineQuery) -> VectorStoreQueryResult:
        """Return the nodes that match a filter; `VectorIndexAutoRetriever` sends such queries without a text."""
        condition = request.options.get("filter")
        documents = (
            []
            if condition is None
            else self._indexer.get(filter=conjoin(condition, NO_RECORDS), agent_id=self.agent_id)
        )
        nodes = [from_document(document) for document in documents[: request.k]]
        return VectorStoreQueryResult(
            nodes=nodes, similarities=[1.0] * len(nodes), ids=[node.node_id for node in nodes]
        )


@dataclass(frozen=True, slots=True)
class _EngineQuery:
    """LlamaIndex query translated to a search of the engine.

    Attributes:
        text: Text of the query.
        k: Nodes to return.
        fetch: Hits to fetch.
        options: Search options, the agent included.
        predicates: Predicates that a hit has to pass.
        filter_only: Whether the query has a filter but neither text nor vector.
    """

    text: str
    k: int
    fetch: int
    options: Mapping[str, Any]
    predicates: tuple[Callable[[Hit], bool], ...]
    filter_only: bool


def _weights(alpha: float | None) -> tuple[float, float] | None:
    if alpha is None:
        return None
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha <= 1:
        raise InvalidQueryError(f"alpha={alpha!r} must be a number from 0 (words only) to 1 (vectors only).")
    return (float(alpha), 1.0 - float(alpha))


def _check_mmr_threshold(value: float | None) -> float:
    """Return the value if it is set, else LlamaIndex's default."""
    threshold = _MMR_THRESHOLD if value is None else value
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise InvalidQueryError(f"mmr_threshold={threshold!r} must be a number from 0 (different) to 1 (relevant).")
    return float(threshold)


def _in_top_ranks(dense: int, sparse: int) -> Callable[[Hit], bool]:
    """Return a predicate: whether a hit is among the first `dense` vector or `sparse` keyword results."""

    def test(hit: Hit) -> bool:
        limits = ((hit.explanation.vector, dense), (hit.explanation.keyword, sparse))
        return any(
            evidence is not None and evidence.rank is not None and evidence.rank <= limit for evidence, limit in limits
        )

    return test
