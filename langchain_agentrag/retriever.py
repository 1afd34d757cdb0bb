"""`HybridRetriever`: the LangChain retriever face of a store."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from pydantic import ConfigDict, Field, PrivateAttr, field_validator, model_validator

from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.filters import conjoin, parse
from langchain_agentrag.fusion import FusionName, check_weights
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.records import Hit, SearchMode
from langchain_agentrag.scope import check_agent_id

SearchType = Literal["hybrid", "vector", "keyword", "similarity", "bm25"]
_MODES: dict[str, SearchMode] = {
    "hybrid": "hybrid",
    "vector": "vector",
    "similarity": "vector",
    "keyword": "keyword",
    "bm25": "keyword",
}
_PER_CALL = frozenset({"k", "filter", "weights", "search_type", "fusion"})
_TRACING = frozenset({"verbose", "run_name", "run_id", "tags", "metadata", "callbacks"})


class HybridRetriever(BaseRetriever):
    """Retrieves passages as LangChain documents, best first.

    Bound to one agent at construction; a caller cannot name another one, and a `filter` given at call time is and-ed
    with the bound one. Without an agent it sees shared documents only.

    The document's metadata comes back as it was stored, plus `doc_id`, `chunk_id` and the place (`page`, `line` …)
    where the metadata has no such key. `Document.id` is "doc_id#chunk_id".

    Attributes:
        indexer: The store.
        k: Documents to return, >= 1.
        agent_id: On whose behalf.
        filter: Filter that every call obeys.
        search_type: "hybrid", "vector" (or "similarity"), "keyword" (or "bm25").
        weights: Share of (vector, keyword).
        fusion: Fusion rule.
        score_key: Metadata key for the score, or None to leave it out (wrappers that compare whole documents, such
            as MultiQueryRetriever, need that).
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    indexer: DualIndexer = Field(repr=False, exclude=True)
    k: int = Field(default=4, ge=1)
    agent_id: str | None = None
    filter: Any = None
    search_type: SearchType = "hybrid"
    weights: tuple[float, float] | None = None
    fusion: FusionName = "convex"
    score_key: str | None = "score"

    _bound: Any = PrivateAttr(default=None)

    @field_validator("agent_id")
    @classmethod
    def _valid_agent(cls, value: str | None) -> str | None:
        return check_agent_id(value)

    @field_validator("weights")
    @classmethod
    def _valid_weights(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        return None if value is None else check_weights(value)

    @model_validator(mode="after")
    def _parse_filter(self) -> HybridRetriever:
        self._bound = parse(self.filter)
        return self

    def for_agent(self, agent_id: str) -> HybridRetriever:
        """The same retriever on behalf of another agent; cheap, make one per request."""
        settings = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**settings, "agent_id": agent_id})

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        hits = self.indexer.search(query, **self._options(kwargs))
        return [self._document(hit) for hit in hits]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        hits = await self.indexer.asearch(query, **self._options(kwargs))
        return [self._document(hit) for hit in hits]

    def _options(self, given: dict[str, Any]) -> dict[str, Any]:
        unknown = given.keys() - _PER_CALL - _TRACING
        if unknown:
            raise InvalidQueryError(
                f"Unknown retrieval option(s) {sorted(unknown)}: a call takes {', '.join(sorted(_PER_CALL))}; "
                "the agent is bound at construction or with for_agent()."
            )
        search_type = given.get("search_type", self.search_type)
        if search_type not in _MODES:
            raise InvalidQueryError(
                f"Unknown search_type {search_type!r}: choose one of {', '.join(_MODES)}."
            )
        return {
            "k": given.get("k", self.k),
            "agent_id": self.agent_id,
            "filter": conjoin(self._bound, parse(given.get("filter"))),
            "mode": _MODES[search_type],
            "weights": given.get("weights", self.weights),
            "fusion": given.get("fusion", self.fusion),
        }

    def _document(self, hit: Hit) -> Document:
        metadata = {**hit.locator, "doc_id": hit.doc_id, "chunk_id": hit.chunk_id, **hit.metadata}
        if self.score_key is not None:
            metadata[self.score_key] = hit.score
        return Document(id=f"{hit.doc_id}#{hit.chunk_id}", page_content=hit.text, metadata=metadata)

    def _get_ls_params(self, **kwargs: Any) -> LangSmithRetrieverParams:
        return LangSmithRetrieverParams(
            ls_retriever_name="agentrag",
            ls_vector_store_provider="chroma",
            ls_embedding_provider=self.indexer.embedder.name.partition(":")[0],
            ls_embedding_model=self.indexer.embedder.name,
        )
