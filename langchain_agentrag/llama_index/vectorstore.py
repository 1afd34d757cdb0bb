"""`HybridVectorStore`: the LlamaIndex vector store face of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from pydantic import ConfigDict, PrivateAttr

from langchain_agentrag.errors import InvalidQueryError, ScopeError
from langchain_agentrag.filters import Condition, Filter, conjoin
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.llama_index.filters import Filters, parse_filters
from langchain_agentrag.llama_index.ingestion import StoreEmbedding
from langchain_agentrag.llama_index.nodes import (
    from_document,
    from_hit,
    from_passage,
    ref_doc_condition,
    to_document,
)
from langchain_agentrag.llama_index.retriever import OPTIONS
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.search.options import check_option_names, check_request
from langchain_agentrag.types import Hit, SearchMode

_MODES: Mapping[VectorStoreQueryMode, SearchMode] = {
    VectorStoreQueryMode.DEFAULT: "vector",
    VectorStoreQueryMode.MMR: "vector",
    VectorStoreQueryMode.SPARSE: "keyword",
    VectorStoreQueryMode.TEXT_SEARCH: "keyword",
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.SEMANTIC_HYBRID: "hybrid",
}
_TAKEN = tuple(name for name in OPTIONS if name not in {"mode", "weights", "diversity"})
_MMR_THRESHOLD = 0.5  # LlamaIndex's own default
_DEEPER = 4  # hits fetched per hit wanted where some are left out afterwards
_MANY = 5_000  # chunks fetched when single chunks of documents are named by id
_EVERYTHING = {"doc_id": {"$exists": True}}


class HybridVectorStore(BasePydanticVectorStore):
    """A LlamaIndex vector store over the same store that `DualIndexer` writes and `HybridRetriever` searches.

    Nodes are kept whole under their own ids and come back equal, hash and relationships included; adding an id again
    replaces it. Embeddings that nodes and queries bring along are used, others are made by the store's own model: build
    indexes over it with `as_index()`, or with `embed_model=store.embed_model`.

    Query modes: default and mmr (vectors), sparse and text_search (words), hybrid and semantic_hybrid (both; `alpha` is
    the share of the vectors). Other modes are an error. Scores are in [0, 1].

    It reads shared documents and one agent's own, and writes only the latter; unbound, it reads and writes shared ones.

    Attributes:
        agent_id: On whose behalf.
        explain: Whether nodes of a query tell why they were found; see `HybridRetriever`.

    Args:
        indexer: The store.
        agent_id: On whose behalf.
        filters: Filter that every query obeys.
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
        check_option_names(options, dict.fromkeys(_TAKEN))
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
        """Name in LlamaIndex's serialised form."""
        return "AgentRAGHybridVectorStore"

    @property
    def client(self) -> DualIndexer:
        """The store."""
        return self._indexer

    @property
    def embed_model(self) -> StoreEmbedding:
        """The store's own model behind LlamaIndex's interface."""
        return StoreEmbedding(self._indexer)

    def as_index(self, **options: Any) -> VectorStoreIndex:
        """A `VectorStoreIndex` over this store that embeds with the store's own model."""
        return VectorStoreIndex.from_vector_store(self, **{"embed_model": self.embed_model, **options})

    def for_agent(self, agent_id: str) -> Self:
        """The same vector store on behalf of one agent; cheap, make one per request."""
        if check_agent_id(agent_id) is None:
            raise ScopeError("for_agent() needs the id of an agent.")
        return self._clone(agent_id=agent_id)

    def with_filters(self, filters: Filters) -> Self:
        """The same vector store whose queries obey these filters too."""
        return self._clone(filters=conjoin(self._bound, parse_filters(filters)))

    def _clone(self, **changes: Any) -> Self:
        settings = {"agent_id": self.agent_id, "filters": self._bound, "explain": self.explain}
        return type(self)(self._indexer, **{**settings, **self._defaults, **changes})

    # -- writing --------------------------------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes, or replace those of the same id; their ids in order.

        Raises:
            InvalidDocumentError: a node cannot be stored.
            ScopeError: a node's metadata claims another agent; nothing was written.
            StoreMismatchError: an embedding has another length than the store's model makes.
        """
        check_option_names(kwargs, {})
        given = list(nodes)
        ready = list(as_source_documents(map(to_document, given), self.agent_id))
        for document in ready:
            if document.agent_id != self.agent_id:
                raise ScopeError(
                    f"Node {document.doc_id!r} claims agent {document.agent_id!r} in its metadata, and this vector "
                    "store is not bound to that agent, so it could never find it: add it through for_agent(…)."
                )
        vectors = [node.embedding for node in given]
        self._indexer.index_documents(ready, self.agent_id, split=False, vectors=vectors)
        return [document.doc_id for document in ready]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """`add` in a worker thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    def delete(self, ref_doc_id: str, **_delete_kwargs: Any) -> None:
        """Delete this agent's nodes of a source document, and the document itself; absent ones are ignored."""
        self._indexer.delete(filter=ref_doc_condition([ref_doc_id]), agent_id=self.agent_id)

    async def adelete(self, ref_doc_id: str, **_delete_kwargs: Any) -> None:
        """`delete` in a worker thread."""
        await asyncio.to_thread(self.delete, ref_doc_id)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        *,
        session: Any = None,
        after: Any = None,
        before: Any = None,
        **_delete_kwargs: Any,
    ) -> None:
        """Delete this agent's nodes by id, filter, session, time, or by what all agree on; absent ones are ignored.

        Raises:
            UsageError: neither was given; `clear()` deletes everything.
        """
        window = {"session": session, "after": after, "before": before}
        self._indexer.delete(node_ids, filter=parse_filters(filters), agent_id=self.agent_id, **window)

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """`delete_nodes` in a worker thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    def clear(self) -> None:
        """Delete everything this agent owns; unbound: every shared document, however it was indexed."""
        self._indexer.delete(filter=_EVERYTHING, agent_id=self.agent_id)

    async def aclear(self) -> None:
        """`clear` in a worker thread."""
        await asyncio.to_thread(self.clear)

    # -- reading --------------------------------------------------------------------------------------------------

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Nodes by id, in the order of the ids, by filter, or by what both agree on; absent ones are left out."""
        condition = conjoin(self._bound, parse_filters(filters))
        found = self._indexer.get(node_ids, filter=condition, agent_id=self.agent_id)
        if node_ids is None:
            return [from_document(document) for document in found]
        nodes: dict[str, BaseNode] = {document.doc_id: from_document(document) for document in found}
        for name in node_ids:
            if name not in nodes and (chunk := self._chunk(name, condition)) is not None:
                nodes[name] = chunk
        return [nodes[name] for name in dict.fromkeys(node_ids) if name in nodes]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """`get_nodes` in a worker thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    def _chunk(self, name: str, condition: Filter | None) -> BaseNode | None:
        """A chunk of a document that was indexed by other means, by the id that queries return."""
        doc_id, mark, number = name.rpartition("#")
        if not mark or not number.isdecimal():
            return None
        if not self._indexer.get([doc_id], filter=condition, agent_id=self.agent_id):
            return None
        try:
            return from_passage(self._indexer.read(doc_id, int(number), agent_id=self.agent_id))
        except InvalidQueryError:
            return None

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The best nodes for a query, best first, with scores in [0, 1].

        Args:
            query: The query; `node_ids` and `doc_ids` that are empty mean no constraint.
            kwargs: Options of the engine for this query, and `mmr_threshold`.

        Raises:
            InvalidQueryError: an unsupported mode, or an option that makes no sense.
            FilterError: the filters cannot be parsed.
        """
        plan = self._plan(query, kwargs)
        if plan.listed:
            return self._listed(plan)
        return self._result(plan, self._indexer.search(plan.text, plan.fetch, **plan.options))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """`query` without blocking the event loop."""
        plan = self._plan(query, kwargs)
        if plan.listed:
            return await asyncio.to_thread(self._listed, plan)
        return self._result(plan, await self._indexer.asearch(plan.text, plan.fetch, **plan.options))

    def _plan(self, query: VectorStoreQuery, call: dict[str, Any]) -> _Plan:
        check_option_names(call, dict.fromkeys((*_TAKEN, "mmr_threshold")))
        mode = _MODES.get(query.mode)
        if mode is None:
            raise InvalidQueryError(
                f"HybridVectorStore cannot answer mode {query.mode!r}: choose one of "
                f"{', '.join(known.value for known in _MODES)}."
            )
        condition = conjoin(self._bound, parse_filters(query.filters))
        if query.doc_ids:
            condition = conjoin(condition, ref_doc_condition(query.doc_ids))
        chosen = {name: value for name, value in call.items() if name != "mmr_threshold"}
        options: dict[str, Any] = {**self._defaults, **chosen, "mode": mode, "agent_id": self.agent_id}
        keep: list[Callable[[Hit], bool]] = []
        k = fetch = query.similarity_top_k
        if mode == "keyword":
            k = fetch = query.sparse_top_k or k
        else:
            options["vector"] = query.query_embedding
        if mode == "hybrid":
            options["weights"] = _weights(query.alpha)
            k = fetch = query.hybrid_top_k or k
            if query.sparse_top_k:
                keep.append(_within(query.similarity_top_k, query.sparse_top_k))
                fetch = _DEEPER * (query.similarity_top_k + query.sparse_top_k)
        if query.mode == VectorStoreQueryMode.MMR:
            options["diversity"] = 1.0 - _threshold(query.mmr_threshold, call.get("mmr_threshold"))
        if query.node_ids:
            names = frozenset(query.node_ids)
            documents = names | {name.rpartition("#")[0] for name in names if "#" in name}
            condition = conjoin(condition, Condition("doc_id", "$in", sorted(documents)))
            if documents != names:
                keep.append(lambda hit: hit.reference in names)
                fetch = max(fetch, _MANY)
        text = query.query_str or ""
        listed = mode != "keyword" and not text.strip() and query.query_embedding is None
        options["filter"] = condition
        return _Plan(text, k, fetch, options, tuple(keep), listed)

    def _result(self, plan: _Plan, hits: Sequence[Hit]) -> VectorStoreQueryResult:
        degraded = getattr(hits, "degraded", ())
        kept = [hit for hit in hits if all(test(hit) for test in plan.keep)][: plan.k]
        scored = [from_hit(hit, explain=self.explain, degraded=degraded) for hit in kept]
        return VectorStoreQueryResult(
            nodes=[found.node for found in scored],
            similarities=[found.get_score() for found in scored],
            ids=[found.node_id for found in scored],
        )

    def _listed(self, plan: _Plan) -> VectorStoreQueryResult:
        """What a filter alone keeps: `VectorIndexAutoRetriever` asks so when the question was all filter."""
        condition = plan.options.get("filter")
        found = (
            [] if condition is None else self._indexer.get(filter=condition, agent_id=self.agent_id)[: plan.k]
        )
        nodes = [from_document(document) for document in found]
        return VectorStoreQueryResult(
            nodes=nodes, similarities=[1.0] * len(nodes), ids=[node.node_id for node in nodes]
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """A LlamaIndex query in the engine's words.

    Attributes:
        text: The question.
        k: Nodes wanted.
        fetch: Hits to fetch.
        options: Options of the engine, the agent among them.
        keep: Tests that a hit has to pass.
        listed: Whether there is nothing to search for, only a filter.
    """

    text: str
    k: int
    fetch: int
    options: Mapping[str, Any]
    keep: tuple[Callable[[Hit], bool], ...]
    listed: bool


def _weights(alpha: float | None) -> tuple[float, float] | None:
    if alpha is None:
        return None
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha <= 1:
        raise InvalidQueryError(f"alpha={alpha!r} must be a number from 0 (words only) to 1 (vectors only).")
    return (float(alpha), 1.0 - float(alpha))


def _threshold(*given: float | None) -> float:
    threshold = next((value for value in given if value is not None), _MMR_THRESHOLD)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise InvalidQueryError(
            f"mmr_threshold={threshold!r} must be a number from 0 (different) to 1 (relevant)."
        )
    return float(threshold)


def _within(dense: int, sparse: int) -> Callable[[Hit], bool]:
    """Whether a hit is among the first of either leg."""

    def test(hit: Hit) -> bool:
        legs = ((hit.explanation.vector, dense), (hit.explanation.keyword, sparse))
        return any(leg is not None and leg.rank is not None and leg.rank <= most for leg, most in legs)

    return test
