"""Retrieval tools of a LlamaIndex agent within a budget: what `RetrievalBudgetMiddleware` is for LangChain."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from llama_index.core.tools import BaseTool, ToolMetadata, ToolOutput
from llama_index.core.tools.types import adapt_to_async_tool
from llama_index.core.workflow import Context

from langchain_agentrag.agent.retrieval_calls import Kind
from langchain_agentrag.agent.retrieval_meter import RetrievalMeter, SubstituteReply
from langchain_agentrag.llama_index.tools import WorkflowTool

_CONTEXT = "ctx"
_MARK = "agentrag_retrieval"


def budgeted_tools(
    tools: Iterable[BaseTool], meter: RetrievalMeter, *, kind: Kind = "search"
) -> list[BaseTool]:
    """The tools, whose calls are accounted, answered from the record when they repeat, and refused past the budget.

    LlamaIndex cannot take tools from a running agent, so a call past the budget is refused once, and the next one ends
    the run with a message that lists what was found. A run begins with a new question of the agent's workflow; outside
    of one call `meter.begin(question)`. Agents do not share a meter.

    Args:
        tools: Tools that search, or that read.
        meter: The account of this agent's conversation.
        kind: Which of both they do.
    """
    return [BudgetedTool(tool, meter, kind) for tool in tools]


class BudgetedTool(WorkflowTool):
    """Made by `budgeted_tools`."""

    def __init__(self, tool: BaseTool, meter: RetrievalMeter, kind: Kind) -> None:
        self._tool, self._meter, self._kind = adapt_to_async_tool(tool), meter, kind
        self._inner = (
            getattr(tool, "ctx_param_name", None) if getattr(tool, "requires_context", False) else None
        )
        self.requires_context = True
        self.ctx_param_name = self._inner or _CONTEXT
        self.partial_params = {}
        self._ended = False

    @property
    def metadata(self) -> ToolMetadata:
        """That of the tool; once the run has to end, its answer is the run's."""
        metadata = self._tool.metadata
        if not self._ended:
            return metadata
        return ToolMetadata(metadata.description, metadata.name, metadata.fn_schema, return_direct=True)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Make the call, or answer it from the record, or refuse it."""
        given = {name: value for name, value in kwargs.items() if name != self.ctx_param_name}
        arguments = self._named(args, given)
        instead = self._meter.before(self._kind, self.metadata.get_name(), arguments)
        if instead is not None:
            return self._unmade(arguments, instead)
        began = time.perf_counter()
        try:
            output = self._tool.call(*args, **(kwargs if self._inner else given))
        except BaseException:
            self._failed(arguments, began)
            raise
        return self._told(arguments, output, time.perf_counter() - began)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """`call` without blocking the event loop."""
        context = kwargs.get(self.ctx_param_name or _CONTEXT)
        given = {name: value for name, value in kwargs.items() if name != self.ctx_param_name}
        await self._begin(context)
        arguments = self._named(args, given)
        instead = self._meter.before(self._kind, self.metadata.get_name(), arguments)
        if instead is not None:
            return self._unmade(arguments, instead)
        began = time.perf_counter()
        try:
            output = await self._tool.acall(*args, **(kwargs if self._inner else given))
        except BaseException:
            self._failed(arguments, began)
            raise
        return self._told(arguments, output, time.perf_counter() - began)

    async def _begin(self, context: object) -> None:
        """Begin a run of the meter with each run of the workflow, which marks itself in its context."""
        if not isinstance(context, Context):
            return
        question = str(await context.store.get("user_msg_str", default="") or "")
        step = int(await context.store.get("num_iterations", default=0) or 0)
        async with context.store.edit_state() as state:  # calls of one step come at once
            fresh = state.get(_MARK) != self._meter.name
            state[_MARK] = self._meter.name
        if self._meter.follows(question, step, fresh=fresh):
            self._ended = False

    def _named(self, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
        names = list(self.metadata.get_parameters_dict().get("properties", {}))
        return {**dict(zip(names, args, strict=False)), **given}

    def _failed(self, arguments: dict[str, Any], began: float) -> None:
        self._meter.failed(self._kind, self.metadata.get_name(), arguments, time.perf_counter() - began)

    def _unmade(self, arguments: dict[str, Any], instead: SubstituteReply) -> ToolOutput:
        self._ended = self._ended or instead.ends_run
        return self._output(arguments, instead.text, {"made": False, "over": instead.ends_run})

    def _told(self, arguments: dict[str, Any], output: ToolOutput, seconds: float) -> ToolOutput:
        if output.is_error:
            self._meter.failed(self._kind, self.metadata.get_name(), arguments, seconds)
            return output
        raw = output.raw_output
        found = raw if isinstance(raw, list | tuple) else getattr(raw, "source_nodes", None)
        text = self._meter.after(
            self._kind, self.metadata.get_name(), arguments, output.content, found, seconds
        )
        return self._output(arguments, text, raw)

    def _output(self, arguments: dict[str, Any], text: str, raw: Any) -> ToolOutput:
        return ToolOutput(
            tool_name=self.metadata.get_name(), content=text, raw_input=dict(arguments), raw_output=raw
        )
