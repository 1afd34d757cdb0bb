"""`budgeted_tools`: retrieval budget of a LlamaIndex agent, as `RetrievalBudgetMiddleware` for LangChain."""

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

_CONTEXT_PARAM = "ctx"
_RUN_KEY = "agentrag_retrieval"


def budgeted_tools(tools: Iterable[BaseTool], meter: RetrievalMeter, *, kind: Kind = "search") -> list[BaseTool]:
    """Wrap tools so that calls are counted, repeated calls answered from the record, and calls past the budget refused.

    LlamaIndex cannot remove tools from a running agent. So the first call past the budget is refused, and the next one
    ends the run with a message that lists the passages found. A run begins with a new question of the agent's workflow;
    outside of a workflow call `meter.begin(question)`. Each agent needs its own meter.

    Args:
        tools: Tools that all search, or that all read.
        meter: Budget and record of the agent's conversation.
        kind: Whether the tools search or read.
    """
    return [BudgetedTool(tool, meter, kind) for tool in tools]


class BudgetedTool(WorkflowTool):
    """Tool with a retrieval budget; created by `budgeted_tools`."""

    def __init__(self, tool: BaseTool, meter: RetrievalMeter, kind: Kind) -> None:
        self._tool, self._meter, self._kind = adapt_to_async_tool(tool), meter, kind
        self._inner_context_param = (
            getattr(tool, "ctx_param_name", None) if getattr(tool, "requires_context", False) else None
        )
        self.requires_context = True
        self.ctx_param_name = self._inner_context_param or _CONTEXT_PARAM
        self.partial_params = {}
        self._ended = False

    @property
    def metadata(self) -> ToolMetadata:
        """Metadata of the tool; `return_direct` once the run has to end."""
        metadata = self._tool.metadata
        if not self._ended:
            return metadata
        return ToolMetadata(metadata.description, metadata.name, metadata.fn_schema, return_direct=True)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool, answer from the record, or refuse the call."""
        own_kwargs = {name: value for name, value in kwargs.items() if name != self.ctx_param_name}
        arguments = self._arguments_by_name(args, own_kwargs)
        refusal = self._meter.before(self._kind, self.metadata.get_name(), arguments)
        if refusal is not None:
            return self._refusal(arguments, refusal)
        start = time.perf_counter()
        try:
            output = self._tool.call(*args, **(kwargs if self._inner_context_param else own_kwargs))
        except BaseException:
            self._record_failure(arguments, time.perf_counter() - start)
            raise
        return self._record_output(arguments, output, time.perf_counter() - start)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """`call` without blocking the event loop."""
        context = kwargs.get(self.ctx_param_name or _CONTEXT_PARAM)
        own_kwargs = {name: value for name, value in kwargs.items() if name != self.ctx_param_name}
        await self._begin(context)
        arguments = self._arguments_by_name(args, own_kwargs)
        refusal = self._meter.before(self._kind, self.metadata.get_name(), arguments)
        if refusal is not None:
            return self._refusal(arguments, refusal)
        start = time.perf_counter()
        try:
            output = await self._tool.acall(*args, **(kwargs if self._inner_context_param else own_kwargs))
        except BaseException:
            self._record_failure(arguments, time.perf_counter() - start)
            raise
        return self._record_output(arguments, output, time.perf_counter() - start)

    async def _begin(self, context: object) -> None:
        """Start a run of the meter with each run of the workflow, recognised by a key in its context."""
        if not isinstance(context, Context):
            return
        question = str(await context.store.get("user_msg_str", default="") or "")
        step = int(await context.store.get("num_iterations", default=0) or 0)
        async with context.store.edit_state() as state:  # calls of one step run concurrently
            fresh = state.get(_RUN_KEY) != self._meter.name
            state[_RUN_KEY] = self._meter.name
        if self._meter.follows(question, step, fresh=fresh):
            self._ended = False

    def _arguments_by_name(self, args: tuple[Any, ...], own_kwargs: dict[str, Any]) -> dict[str, Any]:
        names = list(self.metadata.get_parameters_dict().get("properties", {}))
        return {**dict(zip(names, args, strict=False)), **own_kwargs}

    def _record_failure(self, arguments: dict[str, Any], seconds: float) -> None:
        self._meter.failed(self._kind, self.metadata.get_name(), arguments, seconds)

    def _refusal(self, arguments: dict[str, Any], refusal: SubstituteReply) -> ToolOutput:
        self._ended = self._ended or refusal.ends_run
        return self._output(arguments, refusal.text, {"made": False, "over": refusal.ends_run})

    def _record_output(self, arguments: dict[str, Any], output: ToolOutput, seconds: float) -> ToolOutput:
        if output.is_error:
            self._record_failure(arguments, seconds)
            return output
        raw = output.raw_output
        nodes = raw if isinstance(raw, list | tuple) else getattr(raw, "source_nodes", None)
        text = self._meter.after(self._kind, self.metadata.get_name(), arguments, output.content, nodes, seconds)
        return self._output(arguments, text, raw)

    def _output(self, arguments: dict[str, Any], text: str, raw: Any) -> ToolOutput:
        return ToolOutput(tool_name=self.metadata.get_name(), content=text, raw_input=dict(arguments), raw_output=raw)
