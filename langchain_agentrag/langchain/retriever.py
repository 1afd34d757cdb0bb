"""`HybridRetriever`: LangChain retriever over a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever, LangSmithRetrieverParams
from langchain_core.runnables import RunnableSerializable
from pydantic import ConfigDict, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.errors import RetrievalError, ScopeError
from langchain_agentrag.filters import parse
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.langchain.identity import (
    ConfiguredRetriever,
    WhenMissing,
    check_agent_binding,
    resolve_agent_id,
)
from langchain_agentrag.langchain.migration import migrate_bm25, migrate_ensemble
from langchain_agentrag.langchain.search_options import (
    CALL_OPTIONS,
    ENGINE_OPTIONS,
    SearchType,
    engine_options,
    option_field,
)
from langchain_agentrag.scope import check_agent_id, require_agent_id
from langchain_agentrag.search.fusion import FusionName
from langchain_agentrag.search.options import OPTIONS, SearchOptions, check_count, check_option_names, check_request
from langchain_agentrag.types import Hit, Hits, ScoreName, hit_explanation

if TYPE_CHECKING:
    from langchain_core.runnables.utils import AnyConfigurableField


class HybridRetriever(ConfiguredRetriever):
    """Retriever of passages as LangChain documents, best first.

    It searches for one agent, bound at construction or named by each run under `agent_id_key`; no argument of a call
    can change it. Without either it sees shared documents only. A `filter` of a call is combined with the bound one by
    AND.

    `invoke`, `ainvoke` and `batch` take `k` and the options of `CALL_OPTIONS` for one call. An unknown option is an
    error. `history`, which is given per call only, is the conversation before the question, from which a follow-up
    question is completed ("and its price?", "第二个呢").

    Metadata is returned as it was stored, plus `doc_id`, `chunk_id`, `source` (the `doc_id`) and the location (`page`,
    `line` …), where the metadata has no such key. `Document.id` is the document's id when the passage is the whole
    document, else "doc_id#chunk_id".

    Attributes:
        indexer: The store.
        k: Documents to return, >= 1.
        agent_id: The bound agent.
        agent_id_key: Key of the run's `configurable` or context that names the agent, instead of `agent_id`.
        when_missing: What a run that names no agent does: "error", or "shared" documents only.
        filter: Filter of every call; `where` is taken as well.
        search_type: "hybrid", "vector" (or "similarity"), "keyword" (or "bm25"), "mmr".
        lambda_mult: 1 takes the best hits, 0 the most different ones; .5 for "mmr" by default.
        score_key: Metadata key of the score; by default it is left out, so that a passage that two queries find is the
            same document (MultiQueryRetriever compares whole documents).
        explain: Whether to add `explanation` to the metadata: rank and score in each index, matched words.
        trace_indexes: Whether tracers also see each index as a run within the search, with its hits in its own order.
        safety: Fences the `page_content` of the returned documents, for code that gives it to a model as it is, such as
            LangChain's `create_retriever_tool` and `as_tool`. None, the default, returns texts as they are stored, for
            programs.

    The other attributes are search options of the engine, with its defaults; see `search.options.OPTIONS`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    indexer: DualIndexer = Field(repr=False, exclude=True)
    k: int = Field(default=4, ge=1)
    agent_id: str | None = None
    agent_id_key: str | None = None
    when_missing: WhenMissing = "error"
    filter: Any = option_field("filter")
    search_type: SearchType = "hybrid"
    lambda_mult: float | None = Field(default=None, ge=0, le=1)
    weights: tuple[float, float] | None = option_field("weights")
    fusion: FusionName | None = option_field("fusion")
    fetch_k: int | None = option_field("fetch_k")
    score: ScoreName | None = option_field("score")
    score_threshold: float | None = option_field("score_threshold")
    max_per_document: int | None = option_field("max_per_document")
    reranker: Any = option_field("reranker", repr=False, exclude=True)
    rerank_timeout: float | None = option_field("rerank_timeout")
    collapse: bool | float | None = option_field("collapse")
    neighbours: int | None = option_field("neighbours")
    rewriter: Any = option_field("rewriter", repr=False, exclude=True)
    rewrite_timeout: float | None = option_field("rewrite_timeout")
    after: Any = option_field("after")
    before: Any = option_field("before")
    recency: Any = option_field("recency")
    quarantined: bool = option_field("quarantined", default=False)
    score_key: str | None = None
    explain: bool = False
    trace_indexes: bool = False
    safety: PassageSafety | None = Field(default=None, repr=False, exclude=True)

    _bound: Any = PrivateAttr(default=None)

    def __init__(self, indexer: DualIndexer | None = None, /, **fields: Any) -> None:
        fields = fields if indexer is None else {"indexer": indexer, **fields}
        check_indexer(fields.get("indexer"), type(self).__name__)
        if "where" in fields:
            parts = [part for part in (fields.get("filter"), fields.pop("where")) if part is not None]
            fields["filter"] = {"$and": parts} if len(parts) > 1 else next(iter(parts), None)
        check_option_names(fields, type(self).model_fields, f"{type(self).__name__}()")
        super().__init__(**fields)

    @field_validator("agent_id")
    @classmethod
    def _valid_agent(cls, value: str | None) -> str | None:
        return check_agent_id(value)

    @field_validator("k", mode="before")
    @classmethod
    def _valid_k(cls, value: Any) -> int:
        return check_count("k", value)  # pydantic would take True and "3"

    @field_validator(*(name for name in ENGINE_OPTIONS if name != "history"), mode="before")
    @classmethod
    def _valid_option(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        checked = None if value is None else OPTIONS[name].check(name, value)
        return checked if name in {"weights", "reranker"} else value

    @model_validator(mode="after")
    def _check(self) -> HybridRetriever:
        check_agent_binding(self.agent_id, self.agent_id_key)
        self._bound = parse(self.filter)
        k, options = self._options({})
        check_request("", k, agent_id=None, options=options)
        return self

    # -- other constructors ---------------------------------------------------------------------------------------

    def for_agent(self, agent_id: str) -> Self:
        """Return a copy bound to one agent; cheap enough to create per request."""
        require_agent_id(agent_id, "for_agent()")
        settings = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**settings, "agent_id": agent_id, "agent_id_key": None})

    @classmethod
    def from_bm25_retriever(
        cls, retriever: BaseRetriever, store: DualIndexer | str | Path, *, embeddings: Any = None, **options: Any
    ) -> Self:
        """Index the documents of a langchain-community `BM25Retriever`; see `migration.migrate_bm25`."""
        check_option_names(options, cls.model_fields, "from_bm25_retriever()")
        return cls(**migrate_bm25(retriever, store, embeddings=embeddings, options=options))

    @classmethod
    def from_ensemble(
        cls, ensemble: BaseRetriever, store: DualIndexer | str | Path, *, embeddings: Any = None, **options: Any
    ) -> Self:
        """Index the documents of an `EnsembleRetriever` and keep its weights; see `migration.migrate_ensemble`."""
        check_option_names(options, cls.model_fields, "from_ensemble()")
        return cls(**migrate_ensemble(ensemble, store, embeddings=embeddings, options=options))

    def configurable_fields(self, **kwargs: AnyConfigurableField) -> RunnableSerializable[str, list[Document]]:
        """Make fields configurable, except for those of the agent.

        Raises:
            ScopeError: the agent would be configurable; a wrapper that drops the configuration would use the default.
        """
        if {"agent_id", "agent_id_key", "when_missing"} & kwargs.keys():
            raise ScopeError(
                "agent_id cannot be a configurable field: a wrapper that drops the configuration would fall back to "
                "the default agent. Set agent_id_key='agent_id', which fails when no agent arrives."
            )
        return super().configurable_fields(**kwargs)

    # -- retrieving -----------------------------------------------------------------------------------------------

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        k, options = self._options(kwargs)
        hits = self.indexer.search(query, k, agent_id=self._resolve_agent(), **options)
        if self.trace_indexes:
            _trace_index_runs(run_manager, hits, self._document)
        return self._documents(hits)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        k, options = self._options(kwargs)
        hits: Hits = await self.indexer.asearch(query, k, agent_id=self._resolve_agent(), **options)
        if self.trace_indexes:
            await _atrace_index_runs(run_manager, hits, self._document)
        return self._documents(hits)

    def _resolve_agent(self) -> str | None:
        return resolve_agent_id(self.agent_id, self.agent_id_key, self.when_missing)

    def _options(self, call: dict[str, Any]) -> tuple[int, SearchOptions]:
        defaults = {name: getattr(self, name) for name in CALL_OPTIONS if name not in {"filter", "history"}}
        return call.get("k", self.k), engine_options(self._bound, defaults, call)

    def _documents(self, hits: Hits) -> list[Document]:
        documents = [self._document(hit) for hit in hits]
        if self.safety is not None:
            fence = self.safety.fence("both")
            for document in documents:
                document.page_content = fence.wrap(document.page_content, document.metadata, block=True)
        return documents

    def _document(self, hit: Hit) -> Document:
        added: dict[str, Any] = {
            **hit.locator,
            "doc_id": hit.doc_id,
            "chunk_id": hit.chunk_id,
            "source": hit.doc_id,  # LangChain's chains with sources need one
        }
        if self.score_key is not None:
            added[self.score_key] = hit.score
        if hit.also_in:
            added["also_in"] = [f"{source.doc_id}#{source.chunk_id}" for source in hit.also_in]
        if self.explain:
            added["explanation"] = hit_explanation(hit)
        # the document's own keys take precedence, so no metadata is lost
        return Document(id=hit.reference, page_content=hit.text, metadata={**added, **hit.metadata})

    def _get_ls_params(self, **_kwargs: Any) -> LangSmithRetrieverParams:
        model = self.indexer.model_name or ""
        return LangSmithRetrieverParams(
            ls_retriever_name="agentrag",
            ls_vector_store_provider="agentrag",
            ls_embedding_provider=model.partition(":")[0],
            ls_embedding_model=model,
        )


# -- child runs per index -----------------------------------------------------------------------------------------


def _trace_index_runs(run: CallbackManagerForRetrieverRun, hits: Hits, to_document: Callable[[Hit], Document]) -> None:
    """Report each index that was searched as a child run, with its hits in its own order, or why it failed."""
    if not run.inheritable_handlers:
        return
    for index, ranked, failure in _hits_per_index(hits):
        name = f"agentrag {index} index"
        child = run.get_child(index).on_retriever_start({"name": index}, hits.query, name=name)
        if failure:
            child.on_retriever_error(RetrievalError(failure))
        else:
            child.on_retriever_end([to_document(hit) for hit in ranked])


async def _atrace_index_runs(
    run: AsyncCallbackManagerForRetrieverRun, hits: Hits, to_document: Callable[[Hit], Document]
) -> None:
    """`_trace_index_runs` for asynchronous runs."""
    if not run.inheritable_handlers:
        return
    for index, ranked, failure in _hits_per_index(hits):
        name = f"agentrag {index} index"
        child = await run.get_child(index).on_retriever_start({"name": index}, hits.query, name=name)
        if failure:
            await child.on_retriever_error(RetrievalError(failure))
        else:
            await child.on_retriever_end([to_document(hit) for hit in ranked])


def _hits_per_index(hits: Hits) -> list[tuple[str, list[Hit], str]]:
    """Return (index, its hits by its own rank, reason of its failure or "") for each index that was searched."""
    runs = []
    for index in ("vector", "keyword"):
        if hits.mode not in {"hybrid", index}:
            continue
        ranked = []
        for hit in hits:
            evidence = hit.explanation.vector if index == "vector" else hit.explanation.keyword
            if evidence is not None and evidence.rank is not None:
                ranked.append((evidence.rank, hit))
        ranked.sort(key=lambda pair: pair[0])
        failure = next((note for note in hits.degraded if note.startswith(f"{index}: ") and not ranked), "")
        runs.append((index, [hit for _, hit in ranked], failure))
    return runs
