"""`as_query_engine_tool`: a query engine as a tool of agents; base class of tools in an `AgentWorkflow`."""

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
    """Base of tools that receive the context of a workflow, which passes it to a `FunctionTool` only.

    The function properties return `call` or `acall`, so that no caller can bypass them.
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
        """`acall`: agents that write code run it in an event loop."""
        return self.acall


MAX_DESCRIPTION_CHARS = 1024
"""Maximum length of a tool description that model providers accept."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CONTEXT_PARAM = "ctx"
_MIN_CHARS = 200
_FENCE_END_CHARS = 24  # room for the mark that closes a fence
_CUT_NOTICE = "\n… (cut here: ask for less at a time. 内容过长，已截断，请缩小范围再检索。)"
_DESCRIPTION = (
    "Search the documents available to you by meaning and by exact words (codes, names, error messages), in English "
    "and Chinese. Returns numbered passages. Ask one thing at a time; search again with what you have learnt. "
    "按意思和确切的词检索资料，中英文都可以，返回带编号的段落；一次问一件事，得到新信息后再检索。"
)

AgentSource = str | Callable[[], str | None] | None


class SearchInput(BaseModel):
    """Arguments of the search tool."""

    query: str = Field(description="What to look for, in Chinese or English. 要查找的内容。")


class DatedSearchInput(SearchInput):
    """Arguments of a search tool with a time range."""

    after: str = Field(
        default="", description="Only from this moment on: 2024-05-01, or how long ago, 7d. 只查这一时刻及以后的内容。"
    )
    before: str = Field(default="", description="Only what is earlier than this moment. 只查这一时刻以前的内容。")


class SourceNodes(list[NodeWithScore]):
    """Source nodes of a tool's answer; `response` is the complete response of the query engine."""

    def __init__(self, response: RESPONSE_TYPE) -> None:
        super().__init__(response.source_nodes)
        self.response = response

    @property
    def source_nodes(self) -> list[NodeWithScore]:
        """The nodes, under the attribute name of responses."""
        return list(self)


class AgentQueryEngineTool(QueryEngineTool):
    """`QueryEngineTool` whose engine is bound to an agent at each call; see `as_query_engine_tool`."""

    def __init__(
        self, engine: BaseQueryEngine, metadata: ToolMetadata, max_chars: int, agent: AgentSource = None
    ) -> None:
        QueryEngineTool.__init__(self, engine, metadata, resolve_input_errors=False)
        self._agent, self._max_chars = agent, max_chars

    @property
    def query_engine(self) -> BaseQueryEngine:
        """The engine bound to the current agent; routers and sub-question engines query it directly."""
        return self._engine_of(self._agent() if callable(self._agent) else self._agent)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Search; the nodes are in `raw_output`."""
        query, window = self._parse_arguments(args, kwargs)
        return self._output(query, _engine_for_call(self.query_engine, window).query(query))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """`call` without blocking the event loop."""
        query, window = self._parse_arguments(args, kwargs)
        return self._output(query, await _engine_for_call(self.query_engine, window).aquery(query))

    def _parse_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """Return the query and, where the tool is dated, the time range of a call."""
        arguments, window = dict(kwargs), {}
        if self.metadata.fn_schema is DatedSearchInput:
            bounds = {name: arguments.pop(name, None) or "" for name in ("after", "before")}
            window = {name: point_in_time(name, bound) for name, bound in bounds.items() if bound}
        return _parse_query(args, arguments), window

    def _engine_of(self, agent: str | None) -> BaseQueryEngine:
        if callable(self._agent) and agent is None:
            raise ScopeError("No agent is known at this moment, and this tool does not search without one.")
        if agent is None:
            return self._query_engine
        return _require_bindable(self._query_engine).for_agent(agent)

    def _output(self, query: str, response: RESPONSE_TYPE) -> ToolOutput:
        return ToolOutput(
            tool_name=self.metadata.get_name(),
            content=_truncate(str(response), self._max_chars),
            raw_input={"query": query},
            raw_output=SourceNodes(response),
        )


class WorkflowQueryEngineTool(AgentQueryEngineTool, WorkflowTool):  # type: ignore[misc]  # two from_defaults
    """Tool bound at each call to the current agent of an `AgentWorkflow`."""

    requires_context = True
    ctx_param_name = _CONTEXT_PARAM
    partial_params: dict[str, Any] = {}  # noqa: RUF012  LlamaIndex's own attribute

    def __init__(self, engine: BaseQueryEngine, metadata: ToolMetadata, max_chars: int) -> None:
        AgentQueryEngineTool.__init__(self, _require_bindable(engine), metadata, max_chars)

    @property
    def query_engine(self) -> BaseQueryEngine:
        """Raises ScopeError: outside of a workflow there is no current agent."""
        raise ScopeError(
            "This tool takes the agent from the running AgentWorkflow: call it from there, or bind an agent_id=…"
        )

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Search for the workflow's current agent."""
        context = kwargs.pop(_CONTEXT_PARAM, None)
        query, window = self._parse_arguments(args, kwargs)
        agent = await context.store.get("current_agent_name", default=None) if isinstance(context, Context) else None
        if agent is None:
            raise ScopeError(
                "No AgentWorkflow names its current agent here (a single FunctionAgent does not): bind agent_id=… to "
                "the tool instead."
            )
        engine = _engine_for_call(self._engine_of(check_agent_id(agent)), window)
        return self._output(query, await engine.aquery(query))


def as_query_engine_tool(
    source: BaseQueryEngine | BaseRetriever,
    *,
    name: str = "search",
    description: str = _DESCRIPTION,
    agent_id: AgentSource = None,
    from_workflow: bool = False,
    dated: bool = False,
    max_chars: int = 6_000,
    return_direct: bool = False,
) -> AgentQueryEngineTool:
    """Create a tool for agents, routers and sub-question engines from a query engine or a retriever.

    The tool has one argument, the query, which reaches the engine unchanged, and with `dated` also `after` and
    `before`; other arguments are an error. The agent comes from the source, from `agent_id`, or from the workflow,
    never from the model.

    Args:
        source: An `AgentQueryEngine` or a `HybridRetriever`; another one only without binding an agent.
        name: Name of the tool: up to 64 ASCII letters, digits, _ and -.
        description: Purpose of the tool, up to 1,024 characters.
        agent_id: The agent, or a function that returns it at each call (from a request, for example); None keeps the
            binding of the source.
        from_workflow: Whether the agent is the `AgentWorkflow`'s current one, by name.
        dated: Whether a model may limit the time range; needs a `HybridRetriever` behind the engine.
        max_chars: Maximum length of the content in characters; the nodes are complete in any case.
        return_direct: Whether the tool's answer ends the run.

    Raises:
        UsageError: model providers would reject the name or the description.
        ScopeError: the source cannot be bound to an agent, or both `agent_id` and `from_workflow` are set.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"A tool cannot be named {name!r}: use up to 64 ASCII letters, digits, _ and -; other characters may be "
            "in the description."
        )
    if not description.strip() or len(description) > MAX_DESCRIPTION_CHARS:
        raise UsageError(
            f"The description of tool {name!r} has {len(description)} characters: it must have 1 to "
            f"{MAX_DESCRIPTION_CHARS}, the maximum of model providers."
        )
    engine = source if isinstance(source, BaseQueryEngine) else AgentQueryEngine.from_args(source)
    if isinstance(max_chars, bool) or not isinstance(max_chars, int) or max_chars < _MIN_CHARS:
        raise UsageError(f"max_chars={max_chars!r} must be a whole number >= {_MIN_CHARS}.")
    if dated and not isinstance(getattr(engine, "retriever", None), HybridRetriever):
        raise UsageError(
            f"A {type(engine).__name__} cannot limit the time range: dated=True needs a HybridRetriever behind it."
        )
    metadata = ToolMetadata(description, name, DatedSearchInput if dated else SearchInput, return_direct)
    if from_workflow:
        if agent_id is not None:
            raise ScopeError(
                "agent_id=… and from_workflow=True were both given: a bound agent is no default for the workflow's."
            )
        return WorkflowQueryEngineTool(engine, metadata, max_chars)
    if agent_id is not None and not callable(agent_id):
        engine = _require_bindable(engine).for_agent(agent_id)
        agent_id = None
    if agent_id is not None:
        _require_bindable(engine)
    return AgentQueryEngineTool(engine, metadata, max_chars, agent_id)


def _require_bindable(engine: BaseQueryEngine) -> AgentQueryEngine:
    if not isinstance(engine, AgentQueryEngine) or not hasattr(engine.retriever, "for_agent"):
        raise ScopeError(
            f"A {type(engine).__name__} cannot be bound to an agent: pass an AgentQueryEngine over a HybridRetriever."
        )
    return engine


def _engine_for_call(engine: BaseQueryEngine, window: dict[str, str]) -> BaseQueryEngine:
    """Return the engine limited to a time range; engines of others unchanged."""
    if window and isinstance(engine, AgentQueryEngine) and isinstance(engine.retriever, HybridRetriever):
        return engine.with_retriever(engine.retriever.within(**window))
    return engine


def _parse_query(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the query unchanged; routers pass it as `input`."""
    arguments = dict(kwargs)
    if len(args) == 1 and not arguments:
        return _check_query(args[0])
    query = arguments.pop("query", arguments.pop("input", None))
    if args or arguments:
        unknown = ", ".join(sorted(map(repr, arguments))) or "more than one value"
        raise InvalidQueryError(
            f"The tool takes one argument, `query`, not {unknown}. On whose behalf it searches cannot be chosen."
        )
    return _check_query(query)


def _truncate(text: str, max_chars: int) -> str:
    return (
        text
        if len(text) <= max_chars
        else close_fence(text[: max_chars - len(_CUT_NOTICE) - _FENCE_END_CHARS]) + _CUT_NOTICE
    )


def _check_query(query: object) -> str:
    if not isinstance(query, str):
        raise InvalidQueryError(f"`query` must be a text, got {type(query).__name__}.")
    return query
