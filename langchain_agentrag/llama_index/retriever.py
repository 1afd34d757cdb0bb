"""`HybridRetriever`: the LlamaIndex retriever face of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Self, cast

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle

from langchain_agentrag.errors import EmbeddingError, ScopeError
from langchain_agentrag.filters import conjoin, time_range_filter
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.llama_index.filters import Filters, parse_filters
from langchain_agentrag.llama_index.nodes import BOOKKEEPING, from_hit
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.search.options import SearchOptions, check_option_names, check_request
from langchain_agentrag.types import Hit, Hits

OPTIONS = tuple(name for name in SearchOptions.__annotations__ if name not in {"filter", "vector"})
"""Options of the engine that the faces take by keyword."""


class HybridRetriever(BaseRetriever):
    """Retrieves passages as LlamaIndex nodes, best first, by meaning and by word.

    Scores are in [0, 1]. A node's `metadata["agentrag"]` tells its address (`doc_id`, `chunk_id`, `start`, `end`), rank
    and score in each leg and the matched words; it reaches no prompt and no embedding, and leaves the hash alone.

    Both legs obey the agent and the filters before anything is ranked. Without an agent it sees shared documents only.

    Args:
        indexer: The store.
        similarity_top_k: Nodes to return, >= 1.
        agent_id: On whose behalf.
        filters: Filter that every call obeys: `MetadataFilters`, or one of our language.
        explain: Whether nodes tell why they were found.
        hidden_metadata_keys: Metadata of connectors that reaches no prompt and no embedding: path, size, encoding … by
            default. Nodes that came from LlamaIndex have such lists of their own.
        callback_manager: As of any retriever.
        object_map: As of any retriever.
        objects: As of any retriever.
        verbose: As of any retriever.
        options: Options of the engine: mode ("hybrid", "vector", "keyword"), weights, fusion, fetch_k, score_threshold,
            max_per_document, diversity, reranker, rerank_timeout, collapse, neighbours, after, before, recency,
            history, rewriter. Unless a score_threshold is given, 0 included, nodes without any evidence are left out:
            no matched word, and no more likeness than unrelated texts have.

    Raises:
        InvalidQueryError: an option makes no sense, or there is no such option.
        FilterError: the filters cannot be parsed.
        ScopeError: the agent id is invalid.
    """

    def __init__(
        self,
        indexer: DualIndexer,
        similarity_top_k: int = 4,
        *,
        agent_id: str | None = None,
        filters: Filters = None,
        explain: bool = True,
        hidden_metadata_keys: Collection[str] = BOOKKEEPING,
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        objects: list[IndexNode] | None = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        check_option_names(options, dict.fromkeys(OPTIONS))
        check_request("", similarity_top_k, agent_id=agent_id, options=options)
        self._indexer, self._k = indexer, similarity_top_k
        self._agent, self._bound = check_agent_id(agent_id), parse_filters(filters)
        self._explain, self._hidden, self._options = explain, hidden_metadata_keys, options
        super().__init__(callback_manager, object_map, objects, verbose)

    def __repr__(self) -> str:
        return f"HybridRetriever({self._indexer!r}, {self._k}, agent_id={self._agent!r})"

    @property
    def indexer(self) -> DualIndexer:
        """The store."""
        return self._indexer

    @property
    def agent_id(self) -> str | None:
        """On whose behalf; None sees shared documents only."""
        return self._agent

    @property
    def similarity_top_k(self) -> int:
        """Nodes to return."""
        return self._k

    # -- clones ---------------------------------------------------------------------------------------------------

    def for_agent(self, agent_id: str) -> Self:
        """The same retriever on behalf of one agent; cheap, make one per request."""
        if check_agent_id(agent_id) is None:
            raise ScopeError("for_agent() needs the id of an agent.")
        return self._clone(agent_id=agent_id)

    def with_filters(self, filters: Filters) -> Self:
        """The same retriever that obeys these filters too."""
        return self._clone(filters=conjoin(self._bound, parse_filters(filters)))

    def within(self, after: Any = None, before: Any = None) -> Self:
        """The same retriever over documents whose time is `after` or later and earlier than `before`.

        A datetime, a date, ISO text, or how long ago ("36h", "7d"). What it is bound to beforehand goes on holding.
        """
        return self._clone(filters=conjoin(self._bound, time_range_filter(after, before)))

    def with_options(self, similarity_top_k: int | None = None, **options: Any) -> Self:
        """The same retriever with another number of nodes, or other options of the engine."""
        k = self._k if similarity_top_k is None else similarity_top_k
        return self._clone(similarity_top_k=k, **options)

    def _clone(self, **changes: Any) -> Self:
        settings: dict[str, Any] = {
            "similarity_top_k": self._k,
            "agent_id": self._agent,
            "filters": self._bound,
            "explain": self._explain,
            "hidden_metadata_keys": self._hidden,
            "callback_manager": self.callback_manager,
            "object_map": self.object_map,
            "verbose": self._verbose,
            **self._options,
        }
        return type(self)(self._indexer, **{**settings, **changes})

    # -- retrieving -----------------------------------------------------------------------------------------------

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        options = self._request(self._vector(query_bundle))
        return self._nodes(
            self._indexer.search(query_bundle.query_str, self._k, agent_id=self._agent, **options)
        )

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        options = self._request(await asyncio.to_thread(self._vector, query_bundle))
        hits = await self._indexer.asearch(query_bundle.query_str, self._k, agent_id=self._agent, **options)
        return self._nodes(hits)

    def _request(self, vector: Sequence[float] | None) -> SearchOptions:
        return cast("SearchOptions", {**self._options, "filter": self._bound, "vector": vector})

    def _vector(self, query: QueryBundle) -> Sequence[float] | None:
        """The query's own embedding, or that of its embedding strings, or None: then the engine embeds the query."""
        if self._options.get("mode") == "keyword":
            return None
        if query.embedding is not None:
            return query.embedding
        return embedding_of(self._indexer, query.custom_embedding_strs)

    def _nodes(self, hits: Hits) -> list[NodeWithScore]:
        kept = hits if self._options.get("score_threshold") is not None else filter(has_evidence, hits)
        return [
            from_hit(hit, explain=self._explain, degraded=hits.degraded, hidden=self._hidden) for hit in kept
        ]


def has_evidence(hit: Hit) -> bool:
    """Whether a word matched, or the meaning is nearer than that of unrelated texts."""
    legs = (hit.explanation.vector, hit.explanation.keyword)
    return any(leg is not None and leg.score > 0 for leg in legs)


def embedding_of(indexer: DualIndexer, texts: Sequence[str] | None) -> list[float] | None:
    """Mean of the embeddings of several strings that stand for one query; None without any, or when the model fails."""
    if not texts:
        return None
    try:
        mean: list[float] = np.mean([indexer.embedder.embed_query(text) for text in texts], axis=0).tolist()
    except EmbeddingError:
        return None  # the engine asks the model for the query itself, and says what is wrong
    return mean
