"""`HybridRetriever`: LlamaIndex retriever over a store."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self, cast

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.schema import BaseNode, IndexNode, NodeWithScore, QueryBundle
from llama_index.core.storage.docstore.types import BaseDocumentStore

from langchain_agentrag.errors import EmbeddingError, UsageError
from langchain_agentrag.filters import conjoin, time_range_filter
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.ingest.documents import documents_of_agent
from langchain_agentrag.llama_index.filters import Filters, parse_filters
from langchain_agentrag.llama_index.nodes import HIDDEN_METADATA_KEYS, from_hit, to_document
from langchain_agentrag.scope import check_agent_id, require_agent_id
from langchain_agentrag.search.options import OPTIONS, SearchOptions, check_option_names, check_request
from langchain_agentrag.types import Hit, Hits

RETRIEVER_OPTIONS = tuple(name for name in OPTIONS if name not in {"filter", "vector"})
"""Search options of the engine that are taken by keyword."""

_OWN_OPTIONS = ("filters", "explain", "hidden_metadata_keys", "callback_manager", "object_map", "objects", "verbose")


class HybridRetriever(BaseRetriever):
    """Retriever of passages as LlamaIndex nodes, best first, by meaning and by words.

    Scores are in [0, 1]. `metadata["agentrag"]` of a node holds its address (`doc_id`, `chunk_id`, `start`, `end`),
    rank and score in each index and the matched words; it is excluded from prompts, embeddings and the hash.

    Both indexes apply the agent and the filters before ranking. Without an agent it sees shared documents only.

    Args:
        indexer: The store.
        similarity_top_k: Nodes to return; 0 for none.
        agent_id: The bound agent.
        filters: Filter of every call: `MetadataFilters`, or a filter of the engine.
        explain: Whether to add `metadata["agentrag"]`.
        hidden_metadata_keys: Metadata keys of connectors to exclude from prompts and embeddings; by default path, size,
            encoding … Nodes stored through LlamaIndex have their own lists.
        callback_manager: As of any retriever.
        object_map: As of any retriever.
        objects: As of any retriever.
        verbose: As of any retriever.
        options: Search options of the engine (`RETRIEVER_OPTIONS`), such as mode, weights, reranker, after or history;
            see `search.options.OPTIONS`. Without a score_threshold, nodes without evidence (no matched word and no more
            similarity than unrelated texts have) are left out; score_threshold=0 includes them.

    Raises:
        UsageError: `indexer` is no open store.
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
        hidden_metadata_keys: Collection[str] = HIDDEN_METADATA_KEYS,
        callback_manager: CallbackManager | None = None,
        object_map: dict[str, Any] | None = None,
        objects: list[IndexNode] | None = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        check_indexer(indexer, "HybridRetriever")
        check_option_names(options, dict.fromkeys(RETRIEVER_OPTIONS), count="similarity_top_k")
        check_request("", nodes_wanted(similarity_top_k), agent_id=agent_id, options=options)
        self._indexer, self._k = indexer, similarity_top_k
        self._agent, self._bound = check_agent_id(agent_id), parse_filters(filters)
        self._explain, self._hidden, self._options = explain, hidden_metadata_keys, options
        self._temporary: _TemporaryStore | None = None
        super().__init__(callback_manager, object_map, objects, verbose)

    @classmethod
    def from_defaults(
        cls,
        index: VectorStoreIndex | None = None,
        nodes: Sequence[BaseNode] | None = None,
        docstore: BaseDocumentStore | None = None,
        *,
        path: str | Path | None = None,
        embeddings: Any = None,
        similarity_top_k: int = 4,
        agent_id: str | None = None,
        **options: Any,
    ) -> Self:
        """Create a retriever of nodes, or of the nodes of an index or document store, as `BM25Retriever` has it.

        An index over a `HybridVectorStore` is searched where it is, on behalf of its agent. Any other nodes are stored,
        shared unless there is an agent; embeddings they have are not used.

        Args:
            index: The index.
            nodes: The nodes.
            docstore: The document store.
            path: Folder of the store; None creates a temporary one that is deleted with the retriever.
            embeddings: Model of the store, as of `DualIndexer`.
            similarity_top_k: Nodes to return; 0 for none.
            agent_id: The bound agent.
            options: Further arguments of `HybridRetriever`.

        Raises:
            UsageError: not exactly one source is given, it holds no node, or there is no such argument.
        """
        check_option_names(options, [*_OWN_OPTIONS, *RETRIEVER_OPTIONS], "from_defaults()")
        given = [name for name, one in (("index", index), ("nodes", nodes), ("docstore", docstore)) if one is not None]
        if len(given) != 1:
            passed = " and ".join(given) or "none"
            raise UsageError(f"from_defaults() got {passed}: pass exactly one of index, nodes and docstore.")
        check_agent_id(agent_id)
        options["similarity_top_k"] = similarity_top_k
        store: Any = None if index is None else index.vector_store
        if isinstance(getattr(store, "client", None), DualIndexer):  # a HybridVectorStore
            if path is not None or embeddings is not None or agent_id not in {None, store.agent_id}:
                raise UsageError(
                    f"The index has a store, bound to agent {store.agent_id!r}: leave out path, embeddings, agent_id."
                )
            filters = conjoin(store.bound_filter, parse_filters(options.pop("filters", None)))
            return cls(store.client, agent_id=store.agent_id, filters=filters, **options)
        docstore = index.docstore if index is not None else docstore
        nodes = list(docstore.docs.values() if docstore is not None else nodes or ())
        if index is not None and not nodes:
            raise UsageError(
                f"The index keeps its nodes in its {type(index.vector_store).__name__}, not in its docstore: pass "
                "nodes=…, or build it with store_nodes_override=True."
            )
        if not nodes:
            raise UsageError(f"from_defaults({given[0]}=…) got no node to search: pass at least one.")
        folder = TemporaryDirectory(prefix="agentrag-") if path is None else None
        indexer = DualIndexer(folder.name if folder else str(path), embeddings)
        retriever = cls(indexer, agent_id=agent_id, **options)
        retriever._temporary = _TemporaryStore(indexer, folder) if folder else None
        indexer.index_documents(documents_of_agent(map(to_document, nodes), agent_id), agent_id, split=False)
        return retriever

    def __repr__(self) -> str:
        return f"HybridRetriever({self._indexer!r}, {self._k}, agent_id={self._agent!r})"

    @property
    def indexer(self) -> DualIndexer:
        """The store."""
        return self._indexer

    @property
    def agent_id(self) -> str | None:
        """The bound agent; None sees shared documents only."""
        return self._agent

    @property
    def similarity_top_k(self) -> int:
        """Nodes to return."""
        return self._k

    # -- clones ---------------------------------------------------------------------------------------------------

    def for_agent(self, agent_id: str) -> Self:
        """Return a copy bound to one agent; cheap enough to create per request."""
        return self._clone(agent_id=require_agent_id(agent_id, "for_agent()"))

    def with_filters(self, filters: Filters) -> Self:
        """Return a copy with further filters."""
        return self._clone(filters=conjoin(self._bound, parse_filters(filters)))

    def within(self, after: Any = None, before: Any = None) -> Self:
        """Return a copy limited to documents whose time is `after` or later and earlier than `before`.

        A datetime, a date, ISO text, or an age ("36h", "7d"). Earlier limits and filters remain.
        """
        return self._clone(filters=conjoin(self._bound, time_range_filter(after, before)))

    def with_options(self, similarity_top_k: int | None = None, **options: Any) -> Self:
        """Return a copy with another number of nodes, or other search options."""
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
        clone = type(self)(self._indexer, **{**settings, **changes})
        clone._temporary = self._temporary  # noqa: SLF001  (of the same class)
        return clone

    # -- retrieving -----------------------------------------------------------------------------------------------

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if not self._k:
            return []
        options = self._search_options(self._query_vector(query_bundle))
        return self._to_nodes(self._indexer.search(query_bundle.query_str, self._k, agent_id=self._agent, **options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if not self._k:
            return []
        options = self._search_options(await asyncio.to_thread(self._query_vector, query_bundle))
        hits = await self._indexer.asearch(query_bundle.query_str, self._k, agent_id=self._agent, **options)
        return self._to_nodes(hits)

    def _search_options(self, vector: Sequence[float] | None) -> SearchOptions:
        return cast("SearchOptions", {**self._options, "filter": self._bound, "vector": vector})

    def _query_vector(self, query: QueryBundle) -> Sequence[float] | None:
        """Return the query's embedding, or that of its embedding strings; None lets the engine embed the query."""
        if self._options.get("mode") == "keyword":
            return None
        if query.embedding is not None:
            return query.embedding
        return _mean_embedding(self._indexer, query.custom_embedding_strs)

    def _to_nodes(self, hits: Hits) -> list[NodeWithScore]:
        unfiltered = self._options.get("score_threshold") is not None
        return [
            from_hit(hit, explain=self._explain, degraded=hits.degraded, hidden=self._hidden)
            for hit in hits
            if unfiltered or has_evidence(hit)
        ]


class _TemporaryStore:
    """Keeps a temporary store open; it is closed and deleted with the last retriever that holds this object."""

    def __init__(self, indexer: DualIndexer, folder: TemporaryDirectory[str]) -> None:
        weakref.finalize(self, _close_and_delete, indexer, folder)


def _close_and_delete(indexer: DualIndexer, folder: TemporaryDirectory[str]) -> None:
    indexer.close()
    folder.cleanup()


def nodes_wanted(similarity_top_k: int) -> int:
    """Return the number of nodes for the check of a request, where 0 stands for a search that is left out."""
    return 1 if type(similarity_top_k) is int and similarity_top_k == 0 else similarity_top_k


def has_evidence(hit: Hit) -> bool:
    """Whether a word of the query matched, or the similarity exceeds that of unrelated texts."""
    evidence = (hit.explanation.vector, hit.explanation.keyword)
    return any(one is not None and one.score > 0 for one in evidence)


def _mean_embedding(indexer: DualIndexer, texts: Sequence[str] | None) -> list[float] | None:
    """Return the mean embedding of several strings for one query; None without strings, or when the model fails."""
    if not texts:
        return None
    try:
        mean: list[float] = np.mean([indexer.embedder.embed_query(text) for text in texts], axis=0).tolist()
    except EmbeddingError:
        return None  # the engine then embeds the query itself, and reports the error
    return mean
