"""What every tool of ours is to an `AgentWorkflow`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.schema import NodeWithScore
from llama_index.core.tools import FunctionTool, QueryEngineTool, ToolMetadata, ToolOutput
from llama_index.core.workflow import Context
from pydantic import BaseModel, Field

from langchain_agentrag.agent.prompt_injection import close_fence
from langchain_agentrag.agent.tool_arguments import point_in_time
from langchain_agentrag.errors import InvalidQueryError, ScopeError, UsageError
from langchain_agentrag.llama_index.query_engine import AgentQueryEngine
from langchain_agentrag.llama_index.retriever import HybridRetriever
from langchain_agentrag.scope import check_agent_id


class WorkflowTool(FunctionTool):
    """A tool that a workflow hands its context, which it does to a `FunctionTool` only.

    Whoever takes the function out of it gets `call` or `acall`, so that nothing goes past them.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """`call`."""
        return self.call(*args, **kwargs)

    @property
    def fn(self) -> Callable[..., Any]:
        """The tool as a function."""
        return self.call

    @property
    def async_fn(self) -> Callable[..., Awaitable[Any]]:
        """The tool as an asynchronous function."""
        return self.acall

    @property
    def real_fn(self) -> Callable[..., Any]:
        """The asynchronous one: agents that write code are given it, and run it in an event loop."""
        return self.acall


LONGEST_DESCRIPTION = 1024
"""Characters a model provider takes as a tool's description."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CONTEXT = "ctx"
_LEAST = 200
_CLOSING = 24  # characters of the mark that ends a fence
_CUT = "\n… (cut here: ask for less at a time. 内容过长，已截断，请缩小范围再检索。)"
_DESCRIPTION = (
    "Search the documents available to you by meaning and by exact words (codes, names, error messages), in English "
    "and Chinese. Returns numbered passages. Ask one thing at a time; search again with what you have learnt. "
    "按意思和确切的词检索资料，中英文都可以，返回带编号的段落；一次问一件事，得到新信息后再检索。"
)

Agent = str | Callable[[], str | None] | None


class SearchInput(BaseModel):
    """Arguments of the tool."""

    query: str = Field(description="What to look for, in Chinese or English. 要查找的内容。")


class DatedSearchInput(SearchInput):
    """Arguments of a tool that can also be asked about a stretch of time."""

    after: str = Field(
        default="",
        description="Only from this moment on: 2024-05-01, or how long ago, 7d. 只查这一时刻及以后的内容。",
    )
    before: str = Field(
        default="", description="Only what is earlier than this moment. 只查这一时刻以前的内容。"
    )


class SourceNodes(list[NodeWithScore]):
    """The nodes a tool's answer rests on; `response` is the query engine's whole response."""

    def __init__(self, response: RESPONSE_TYPE) -> None:
        super().__init__(response.source_nodes)
        self.response = response

    @property
    def source_nodes(self) -> list[NodeWithScore]:
        """The nodes, under the name that responses use."""
        return list(self)


class AgentQueryEngineTool(QueryEngineTool):
    """A `QueryEngineTool` whose engine is bound to an agent at each call; see `as_query_engine_tool`."""

    def __init__(
        self, engine: BaseQueryEngine, metadata: ToolMetadata, max_chars: int, agent: Agent = None
    ) -> None:
        QueryEngineTool.__init__(self, engine, metadata, resolve_input_errors=False)
        self._agent, self._max_chars = agent, max_chars

    @property
    def query_engine(self) -> BaseQueryEngine:
        """The engine, bound to the agent of this moment; routers and sub-question engines ask it directly."""
        return self._engine_of(self._agent() if callable(self._agent) else self._agent)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Search; the nodes are in `raw_output`."""
        query, window = self._asked(args, kwargs)
        return self._output(query, _for_model(_within(self.query_engine, window)).query(query))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """`call` without blocking the event loop."""
        query, window = self._asked(args, kwargs)
        return self._output(query, await _for_model(_within(self.query_engine, window)).aquery(query))

    def _asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """The query and the stretch of time a model asked for; the latter only where the tool is dated."""
        given, window = dict(kwargs), {}
        if self.metadata.fn_schema is DatedSearchInput:
            bounds = {name: given.pop(name, None) or "" for name in ("after", "before")}
            window = {name: point_in_time(name, bound) for name, bound in bounds.items() if bound}
        return _query_of(args, given), window

    def _engine_of(self, agent: str | None) -> BaseQueryEngine:
        if callable(self._agent) and agent is None:
            raise ScopeError("No agent is known at this moment, and this tool does not search without one.")
        if agent is None:
            return self._query_engine
        return _bindable(self._query_engine).for_agent(agent)

    def _output(self, query: str, response: RESPONSE_TYPE) -> ToolOutput:
        return ToolOutput(
            tool_name=self.metadata.get_name(),
            content=_shortened(str(response), self._max_chars),
            raw_input={"query": query},
            raw_output=SourceNodes(response),
        )


class WorkflowQueryEngineTool(AgentQueryEngineTool, WorkflowTool):  # type: ignore[misc]  # two from_defaults
    """The same for an `AgentWorkflow`: the agent is the one that is running."""

    requires_context = True
    ctx_param_name = _CONTEXT
    partial_params: dict[str, Any] = {}  # noqa: RUF012  LlamaIndex's own attribute

    def __init__(self, engine: BaseQueryEngine, metadata: ToolMetadata, max_chars: int) -> None:
        AgentQueryEngineTool.__init__(self, _bindable(engine), metadata, max_chars)

    @property
    def query_engine(self) -> BaseQueryEngine:
        """Refused: outside of a workflow nobody knows on whose behalf."""
        raise ScopeError(
            "This tool takes the agent from the running AgentWorkflow: call it from there, or bind an agent_id=…"
        )

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Search on behalf of the workflow's current agent."""
        context = kwargs.pop(_CONTEXT, None)
        query, window = self._asked(args, kwargs)
        agent = (
            await context.store.get("current_agent_name", default=None)
            if isinstance(context, Context)
            else None
        )
        if agent is None:
            raise ScopeError(
                "No AgentWorkflow names its current agent here (a single FunctionAgent does not): bind agent_id=… to "
                "the tool instead."
            )
        engine = _within(self._engine_of(check_agent_id(agent)), window)
        return self._output(query, await _for_model(engine).aquery(query))


def as_query_engine_tool(
    source: BaseQueryEngine | BaseRetriever,
    *,
    name: str = "search",
    description: str = _DESCRIPTION,
    agent_id: Agent = None,
    from_workflow: bool = False,
    dated: bool = False,
    max_chars: int = 6_000,
    return_direct: bool = False,
) -> AgentQueryEngineTool:
    """A query engine, or a retriever on its own, as a tool for agents, routers and sub-question engines.

    The tool has one argument, the query, which reaches the engine unchanged, and where it is `dated` also `after` and
    `before`; anything else a model passes is refused.
    On whose behalf it searches is decided here: by the retriever it is given, by `agent_id`, or by the workflow.

    Args:
        source: An `AgentQueryEngine`, or a `HybridRetriever`; another one where no agent is to be bound.
        name: Name of the tool: up to 64 ASCII letters, digits, _ and -.
        description: What the tool is good for, up to 1,024 characters.
        agent_id: The agent, or a function that names it at each call (from a request, say); None keeps what the
            source is bound to.
        from_workflow: Whether the agent is the `AgentWorkflow`'s current one, by name.
        dated: Whether a model may ask about a stretch of time; the engine needs a `HybridRetriever` for it.
        max_chars: Longest content; the nodes are whole in any case.
        return_direct: Whether the tool's answer ends the run.

    Raises:
        UsageError: the name or the description is not what model providers take.
        ScopeError: the source cannot be bound to an agent, or two ways of binding were given.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"A tool cannot be called {name!r}: use up to 64 ASCII letters, digits, _ and -; say the rest in the "
            "description, in any language."
        )
    if not description.strip() or len(description) > LONGEST_DESCRIPTION:
        raise UsageError(
            f"The description of tool {name!r} has {len(description)} characters: it must have 1 to "
            f"{LONGEST_DESCRIPTION}, more is refused by model providers."
        )
    engine = AgentQueryEngine.from_args(source) if isinstance(source, BaseRetriever) else source
    if isinstance(max_chars, bool) or not isinstance(max_chars, int) or max_chars < _LEAST:
        raise UsageError(f"max_chars={max_chars!r} must be a whole number >= {_LEAST}.")
    if dated and not isinstance(getattr(engine, "retriever", None), HybridRetriever):
        raise UsageError(
            f"A {type(engine).__name__} knows no times: dated=True needs a HybridRetriever behind it."
        )
    metadata = ToolMetadata(description, name, DatedSearchInput if dated else SearchInput, return_direct)
    if from_workflow:
        if agent_id is not None:
            raise ScopeError(
                "agent_id=… and from_workflow=True were both given: a bound agent is no default for the workflow's."
            )
        return WorkflowQueryEngineTool(engine, metadata, max_chars)
    if agent_id is not None and not callable(agent_id):
        engine = _bindable(engine).for_agent(agent_id)
        agent_id = None
    if agent_id is not None:
        _bindable(engine)
    return AgentQueryEngineTool(engine, metadata, max_chars, agent_id)


def _bindable(engine: BaseQueryEngine) -> AgentQueryEngine:
    if not isinstance(engine, AgentQueryEngine) or not hasattr(engine.retriever, "for_agent"):
        raise ScopeError(
            f"A {type(engine).__name__} cannot be bound to an agent: pass an AgentQueryEngine over a HybridRetriever."
        )
    return engine


def _within(engine: BaseQueryEngine, window: dict[str, str]) -> BaseQueryEngine:
    """The engine over what lies in a stretch of time."""
    if (
        not window
        or not isinstance(engine, AgentQueryEngine)
        or not isinstance(engine.retriever, HybridRetriever)
    ):
        return engine
    return engine.with_retriever(engine.retriever.within(**window))


def _query_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The query exactly as given; `input` is the name routers use for it."""
    given = dict(kwargs)
    if len(args) == 1 and not given:
        return _text(args[0])
    query = given.pop("query", given.pop("input", None))
    if args or given:
        unknown = ", ".join(sorted(map(repr, given))) or "more than one value"
        raise InvalidQueryError(
            f"The tool takes one argument, `query`, not {unknown}. On whose behalf it searches cannot be chosen."
        )
    return _text(query)


def _for_model(engine: BaseQueryEngine) -> BaseQueryEngine:
    """The engine whose answer a model will read."""
    return engine.for_model() if isinstance(engine, AgentQueryEngine) else engine


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else close_fence(text[: most - len(_CUT) - _CLOSING]) + _CUT


def _text(query: object) -> str:
    if not isinstance(query, str):
        raise InvalidQueryError(f"`query` must be a text, got {type(query).__name__}.")
    return query
