"""A tool with side effects under guard, for `FunctionAgent`, `AgentWorkflow` and everything else that calls tools."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from llama_index.core.tools import BaseTool, ToolMetadata, ToolOutput
from llama_index.core.tools.types import adapt_to_async_tool

from langchain_agentrag.errors import AgentRagError, ScopeError
from langchain_agentrag.guard.operations import AgentOperations, Operations
from langchain_agentrag.guard.tool_rules import GuardedTool, Outcome, RiskName, ToolRule
from langchain_agentrag.guard.validation import pydantic_check
from langchain_agentrag.llama_index.tools import WorkflowTool
from langchain_agentrag.scope import check_agent_id

logger = logging.getLogger(__name__)

Text = str | Callable[[], str]


def guarded_tool(
    tool: BaseTool,
    operations: Operations,
    *,
    agent_id: Text,
    scope: Text,
    rule: RiskName | ToolRule = "high",
) -> GuardedFunctionTool:
    """The tool, whose calls are checked, written down before they are made, and never made twice.

    What is refused, or whose outcome is unknown, is a `ToolOutput` with `is_error` that tells the model what to do.

    Args:
        tool: Any tool of LlamaIndex.
        operations: Where records are kept, what is delegated, and in which language is answered.
        agent_id: On whose behalf, or a function that says it at each call; no model can.
        scope: The task within which an equal call is the same operation (a session's id, say), or a function.
        rule: Its level of risk, or its `ToolRule`. A `repeatable` tool is called each time.

    Raises:
        ScopeError: the agent id is invalid.
        UsageError: a level of risk that does not exist, or arguments that have no usable schema.
    """
    if not callable(agent_id) and check_agent_id(agent_id) is None:
        raise ScopeError("Calls with side effects need an agent: pass agent_id=….")
    schema = tool.metadata.get_parameters_dict()
    guarded = GuardedTool(
        tool.metadata.get_name(),
        schema,
        rule if isinstance(rule, ToolRule) else ToolRule(rule),
        pydantic_check(tool.metadata.fn_schema, schema.get("properties", {})),
    )
    return GuardedFunctionTool(tool, operations, guarded, list(schema.get("properties", {})), agent_id, scope)


class GuardedFunctionTool(WorkflowTool):
    """Made by `guarded_tool`."""

    def __init__(
        self,
        tool: BaseTool,
        operations: Operations,
        guarded: GuardedTool,
        names: list[str],
        agent_id: Text,
        scope: Text,
    ) -> None:
        self._tool, self._operations, self._guarded = adapt_to_async_tool(tool), operations, guarded
        self._names, self._agent_id, self._scope = names, agent_id, scope
        self.requires_context = bool(getattr(tool, "requires_context", False))
        self.ctx_param_name = getattr(tool, "ctx_param_name", None)
        self.partial_params = {}

    @property
    def metadata(self) -> ToolMetadata:
        """That of the tool."""
        return self._tool.metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Make the call, unless something stands against it."""
        arguments, context = self._given(args, kwargs)
        kept = _Kept(self.metadata.get_name(), arguments)
        try:
            outcome = self._mine().call(
                self._guarded,
                arguments,
                lambda given: kept.keep(self._tool.call(**given, **context)),
                scope=self._task(),
                paused_by=_pauses(),
            )
        except AgentRagError as error:
            return self._unable(kept, error)
        return kept.output(outcome)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """`call` without blocking the event loop."""
        arguments, context = self._given(args, kwargs)
        kept = _Kept(self.metadata.get_name(), arguments)
        try:
            outcome = await self._mine().acall(
                self._guarded,
                arguments,
                lambda given: kept.akeep(self._tool.acall(**given, **context)),
                scope=self._task(),
                paused_by=_pauses(),
            )
        except AgentRagError as error:
            return self._unable(kept, error)
        return kept.output(outcome)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments by name, and what the framework adds to them."""
        named = dict(kwargs)
        named.update(
            zip([*self._names, *(f"argument {n + 1}" for n in range(len(args)))], args, strict=False)
        )
        name = self.ctx_param_name if self.requires_context else None
        context = {name: named.pop(name)} if name in named else {}
        return named, context

    def _mine(self) -> AgentOperations:
        agent = self._agent_id() if callable(self._agent_id) else self._agent_id
        return self._operations.for_agent(agent)

    def _task(self) -> str:
        scope = self._scope() if callable(self._scope) else self._scope
        return f"{scope} call:{uuid.uuid4().hex}" if self._guarded.rule.repeatable else scope

    def _unable(self, kept: _Kept, error: AgentRagError) -> ToolOutput:
        name = self.metadata.get_name()
        logger.warning("the call of tool %s was refused: %s", name, error)
        return kept.output(Outcome("refused", self._operations.replies.unable(name, str(error))))


class _FailedError(Exception):
    """The tool answered with an error: what it did until then is unknown."""


class _Kept:
    """What a tool answered: the answer itself goes to the agent, its text into the record."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self._name, self._arguments = name, arguments
        self._output: ToolOutput | None = None

    def keep(self, output: ToolOutput) -> dict[str, Any]:
        self._output = output
        if output.is_error:
            raise _FailedError(output.content)
        return {"content": output.content}

    async def akeep(self, output: Awaitable[ToolOutput]) -> dict[str, Any]:
        return self.keep(await output)

    def output(self, outcome: Outcome) -> ToolOutput:
        if self._output is not None and outcome.status in {"done", "not_done"}:
            return self._output
        replayed = outcome.status == "replayed"
        recorded = outcome.result.get("content") if isinstance(outcome.result, dict) else outcome.result
        return ToolOutput(
            tool_name=self._name,
            content=f"{outcome.message}\n{recorded}" if replayed and recorded else outcome.message,
            raw_input={"args": (), "kwargs": self._arguments},
            raw_output={
                "status": outcome.status,
                "operation_id": outcome.operation_id,
                "result": outcome.result,
            },
            is_error=not replayed,
        )


def _pauses() -> tuple[type[BaseException], ...]:
    """What a tool raises when it waits for an event of its workflow; it is called again when the event is there."""
    try:
        from workflows.runtime.types.results import WaitingForEvent
    except ImportError:
        return ()
    return (WaitingForEvent,)
