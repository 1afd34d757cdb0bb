"""LangChain tools of an agent: `search` finds passages, `read` opens one. Errors become messages to the model."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, BaseToolkit, ToolException
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.agent.tool_arguments import Language, format_validation_error, read_arguments, search_arguments
from langchain_agentrag.agent.tool_replies import ToolReplies, hit_record, passage_record
from langchain_agentrag.errors import EmbeddingError, RetrievalError, StoreError, UsageError
from langchain_agentrag.filters import filter_keys, match, parse
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.langchain.identity import WhenMissing, check_agent_binding, resolve_agent_id
from langchain_agentrag.langchain.search_options import SearchType, engine_options
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.search.options import SearchOptions
from langchain_agentrag.store.columnar_cache import filter_view
from langchain_agentrag.types import Hit, Hits, Passage

logger = logging.getLogger(__name__)

_MIN_VECTOR_SCORE = 0.05  # calibrated cosine; passages below it without a matching word are left out


class StoreBinding(BaseModel):
    """Settings that the tools and the toolkit share.

    Attributes:
        indexer: The store.
        agent_id: The bound agent.
        agent_id_key: Key of the run's `configurable` or context that names the agent, instead of `agent_id`.
        when_missing: What a run that names no agent does: "error", or "shared" documents only.
        filter: Filter of every call.
        language: Language of descriptions and replies, "en" or "zh".
        about: What is searched, as a noun: "the product manuals".
        safety: Protection against prompt injection in replies; `PassageSafety.off()` turns it off. Artifacts have the
            passages unchanged in any case.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    indexer: DualIndexer = Field(repr=False, exclude=True)
    agent_id: str | None = None
    agent_id_key: str | None = None
    when_missing: WhenMissing = "error"
    filter: Any = None
    language: Language = "en"
    about: str = ""
    safety: PassageSafety = PassageSafety()

    def __init__(self, **fields: Any) -> None:
        check_indexer(fields.get("indexer"), type(self).__name__)
        super().__init__(**fields)


class StoreTool(StoreBinding, BaseTool):
    """Base of the tools over a store.

    Attributes:
        max_chars: Approximate maximum length of a reply in characters.
    """

    model_config = ConfigDict(extra="forbid")  # LangChain's tools ignore unknown settings

    max_chars: int = Field(default=6_000, ge=200)
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    handle_validation_error: Any = True

    _bound: Any = PrivateAttr(default=None)
    _replies: ToolReplies = PrivateAttr()

    @model_validator(mode="after")
    def _check(self) -> StoreTool:
        check_agent_binding(self.agent_id, self.agent_id_key)
        self._bound = parse(self.filter)
        if self.handle_validation_error is True:
            self.handle_validation_error = partial(format_validation_error, language=self.language)
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            f"The tool {self.name!r} holds an open store and cannot be pickled: pass the store's path and open it "
            "again there. A deep copy shares the store and works."
        )

    def _resolve_agent(self, config: RunnableConfig | None) -> str | None:
        return resolve_agent_id(self.agent_id, self.agent_id_key, self.when_missing, config)

    @contextmanager
    def _errors_as_messages(self) -> Iterator[None]:
        """Turn errors into `ToolException`: details only of those a model can act on, none that may quote data."""
        try:
            yield
        except (EmbeddingError, RetrievalError, StoreError) as error:
            logger.exception("the tool %s failed", self.name)
            raise ToolException(self._replies.internal_error(self.name, error)) from error
        except UsageError as error:
            raise ToolException(self._replies.error(self.name, error)) from error
        except Exception as error:
            logger.exception("the tool %s failed", self.name)
            raise ToolException(self._replies.internal_error(self.name, error)) from error

    def _describe(self, kind: str, **names: str) -> str:
        text = load_messages("langchain", "tools", self.language)[kind]
        return text.format(about=self._replies.about, **names)


class SearchTool(StoreTool):
    """Tool `search`: returns doc_id, chunk_id and snippet of the passages that answer a question.

    The agent is bound at construction or comes from the run. It is not an argument, so a model cannot choose one. The
    artifact is a list of JSON-safe records, one per hit, with the full text and metadata.

    Attributes:
        k: Default number of passages.
        search_type: "hybrid", "vector", "keyword" or "mmr".
        options: Further search options: weights, fusion, fetch_k, max_per_document, reranker, collapse, neighbours … A
            list under `history` is read at every call: append the turns of the conversation to it.
        snippet_chars: Approximate length of a snippet in characters.
        read_name: Name of the read tool that replies refer to.
    """

    name: str = "search"
    description: str = ""
    k: int = Field(default=5, ge=1, le=50)
    search_type: SearchType = "hybrid"
    options: dict[str, Any] = Field(default_factory=dict, repr=False)
    snippet_chars: int = Field(default=240, ge=20)
    read_name: str = "read"

    @model_validator(mode="after")
    def _set_defaults(self) -> SearchTool:
        self._replies = ToolReplies(self.language, self.about, self.read_name, self.safety)
        self.description = self.description or self._describe("search", read=self.read_name)
        self.args_schema = self.args_schema or search_arguments(self.language, self.k)
        self._options({})
        return self

    def _run(
        self,
        query: str,
        k: int | None = None,
        filter: dict[str, Any] | None = None,  # noqa: A002  (LangChain's name)
        after: str = "",
        before: str = "",
        *,
        config: RunnableConfig,
    ) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            call_options = _call_options(filter, after, before)
            agent, options = self._resolve_agent(config), self._options(call_options)
            return self._reply(self.indexer.search(query, k or self.k, agent_id=agent, **options), query, call_options)

    async def _arun(
        self,
        query: str,
        k: int | None = None,
        filter: dict[str, Any] | None = None,  # noqa: A002  (LangChain's name)
        after: str = "",
        before: str = "",
        *,
        config: RunnableConfig,
    ) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            call_options = _call_options(filter, after, before)
            agent, options = self._resolve_agent(config), self._options(call_options)
            hits = await self.indexer.asearch(query, k or self.k, agent_id=agent, **options)
            return self._reply(hits, query, call_options)

    def _options(self, call_options: Mapping[str, Any]) -> SearchOptions:
        where = call_options.get("filter")
        if "agent_id" in filter_keys(parse(where)):  # it can only narrow the results, but is worth a warning
            logger.warning("a model's filter for %s names an agent: %s", self.name, short_repr(where))
        defaults = {"search_type": self.search_type, **self.options}
        return engine_options(self._bound, defaults, call_options)

    def _reply(self, hits: Hits, query: str, call_options: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
        if not hits and not any(char.isalnum() for char in query):
            return self._replies.empty_query(), []
        hits = Hits(filter(has_evidence, hits), query=hits.query, mode=hits.mode, degraded=hits.degraded)
        bounds = {name: call_options[name] for name in ("after", "before") if name in call_options}
        condition = {**call_options.get("filter", {}), **bounds}
        text = self._replies.search_results(
            hits, snippet_size=self.snippet_chars, max_chars=self.max_chars, condition=condition
        )
        return text, [hit_record(hit) for hit in hits]


class ReadTool(StoreTool):
    """Tool `read`: returns the full text of a chunk, with neighbouring chunks on request, up to `max_chars`.

    The artifact is a list with one JSON-safe record.

    Attributes:
        search_name: Name of the search tool that the description refers to.
    """

    name: str = "read"
    description: str = ""
    search_name: str = "search"

    @model_validator(mode="after")
    def _set_defaults(self) -> ReadTool:
        self._replies = ToolReplies(self.language, self.about, self.name, self.safety)
        self.description = self.description or self._describe("read", search=self.search_name)
        self.args_schema = self.args_schema or read_arguments(self.language)
        return self

    def _run(
        self,
        doc_id: str,
        chunk_id: int = 0,
        before: int = 0,
        after: int = 0,
        offset: int = 0,
        *,
        config: RunnableConfig,
    ) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            agent = self._resolve_agent(config)
            passage = self.indexer.read(doc_id, chunk_id, before=before, after=after, agent_id=agent)
            return self._reply(passage, offset)

    async def _arun(
        self,
        doc_id: str,
        chunk_id: int = 0,
        before: int = 0,
        after: int = 0,
        offset: int = 0,
        *,
        config: RunnableConfig,
    ) -> tuple[str, list[dict[str, Any]]]:
        with self._errors_as_messages():
            agent = self._resolve_agent(config)
            passage = await self.indexer.aread(doc_id, chunk_id, before=before, after=after, agent_id=agent)
            return self._reply(passage, offset)

    def _reply(self, passage: Passage, offset: int) -> tuple[str, list[dict[str, Any]]]:
        fields = {**passage.locator, **filter_view(passage.agent_id, passage.doc_id, passage.metadata, "{}")}
        if not match(self._bound, fields):
            raise UsageError(
                f"There is no document {passage.doc_id!r} to read here: take doc_id and chunk_id from a search hit."
            )
        text = self._replies.passage(passage, offset=offset, max_chars=self.max_chars)
        return text, [passage_record(passage)]


class AgentRAGToolkit(StoreBinding, BaseToolkit):
    """Toolkit of `search` and `read` over one store; a prefix of the names allows several toolkits in one agent.

    Use one toolkit per clearly different source ("docs", "tickets", "memory"). Similar sources belong in one store: the
    search finds the right passages in it.

    Attributes:
        prefix: Prefix of the names: "docs" makes `docs_search` and `docs_read`.
        search_settings: Further settings of `SearchTool`: k, search_type, options, snippet_chars, max_chars.
        read_settings: Further settings of `ReadTool`: max_chars.
        searchers: Further search tools (`web_search`, `SQLTool`); returned with ours and marked as retrieval, so that
            budgets and safety checks cover them too.
        readers: Further tools that open search results (`read_url`).
    """

    prefix: str = ""
    search_settings: dict[str, Any] = Field(default_factory=dict)
    read_settings: dict[str, Any] = Field(default_factory=dict)
    searchers: Sequence[BaseTool] = ()
    readers: Sequence[BaseTool] = ()

    def get_tools(self) -> list[BaseTool]:
        """Return the search tools, then the read tools."""
        search_name, read_name = (f"{self.prefix}_{name}" if self.prefix else name for name in ("search", "read"))
        shared = {name: getattr(self, name) for name in StoreBinding.model_fields}
        search = SearchTool(name=search_name, read_name=read_name, **{**shared, **self.search_settings})
        read = ReadTool(name=read_name, search_name=search_name, **{**shared, **self.read_settings})
        return [
            *(mark_retrieval(tool, "search") for tool in (search, *self.searchers)),
            *(mark_retrieval(tool, "read") for tool in (read, *self.readers)),
        ]


def _call_options(where: dict[str, Any] | None, after: str, before: str) -> dict[str, Any]:
    """Return the non-empty arguments of a call as search options."""
    arguments = {"filter": where, "after": after, "before": before}
    return {name: value for name, value in arguments.items() if value}


def has_evidence(hit: Hit) -> bool:
    """Whether a word of the query matched or the vector score reaches `_MIN_VECTOR_SCORE`."""
    vector, keyword = hit.explanation.vector, hit.explanation.keyword
    return keyword is not None or (vector is not None and vector.score >= _MIN_VECTOR_SCORE)


def mark_retrieval(tool: BaseTool, kind: Literal["search", "read"]) -> BaseTool:
    """Mark a tool as one that searches or reads, and return it; budgets and safety go by the mark, not the name."""
    tool.metadata = {**(tool.metadata or {}), "agentrag": kind}
    return tool
