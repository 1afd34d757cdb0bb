"""`guarded_tool`: tools with side effects, checked and executed at most once, for LlamaIndex agents."""

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

TextSource = str | Callable[[], str]


def guarded_tool(
    tool: BaseTool,
    operations: Operations,
    *,
    agent_id: TextSource,
    scope: TextSource,
    rule: RiskName | ToolRule = "high",
) -> GuardedFunctionTool:
    """Wrap a tool so that its calls are validated, logged before execution, and executed at most once.

    A refused call, or one whose outcome is unknown, returns a `ToolOutput` with `is_error` and instructions for the
    model.

    Args:
        tool: Any tool of LlamaIndex.
        operations: Operation log, delegations and language of the replies.
        agent_id: The agent, or a function that returns it at each call; a model cannot choose it.
        scope: The task within which equal calls are the same operation (a session id, for example), or a function.
        rule: Risk level of the tool, or its `ToolRule`. A `repeatable` tool is executed at each call.

    Raises:
        ScopeError: the agent id is invalid.
        UsageError: an unknown risk level, or a tool without a usable argument schema.
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
    """Guarded tool; created by `guarded_tool`."""

    def __init__(
        self,
        tool: BaseTool,
        operations: Operations,
        guarded: GuardedTool,
        parameters: list[str],
        agent_id: TextSource,
        scope: TextSource,
    ) -> None:
        self._tool, self._operations, self._guarded = adapt_to_async_tool(tool), operations, guarded
        self._parameters, self._agent_id, self._scope = parameters, agent_id, scope
        self.requires_context = bool(getattr(tool, "requires_context", False))
        self.ctx_param_name = getattr(tool, "ctx_param_name", None)
        self.partial_params = {}

    @property
    def metadata(self) -> ToolMetadata:
        """Metadata of the tool."""
        return self._tool.metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Execute the call if the rules allow it."""
        arguments, context = self._split_arguments(args, kwargs)
        recorder = _OutputRecorder(self.metadata.get_name(), arguments)
        try:
            outcome = self._agent_operations().call(
                self._guarded,
                arguments,
                lambda checked: recorder.record(self._tool.call(**checked, **context)),
                scope=self._scope_of_call(),
                paused_by=_pause_exceptions(),
            )
        except AgentRagError as error:
            return self._refusal(recorder, error)
        return recorder.output(outcome)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """`call` without blocking the event loop."""
        arguments, context = self._split_arguments(args, kwargs)
        recorder = _OutputRecorder(self.metadata.get_name(), arguments)
        try:
            outcome = await self._agent_operations().acall(
                self._guarded,
                arguments,
                lambda checked: recorder.arecord(self._tool.acall(**checked, **context)),
                scope=self._scope_of_call(),
                paused_by=_pause_exceptions(),
            )
        except AgentRagError as error:
            return self._refusal(recorder, error)
        return recorder.output(outcome)

    def _split_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments by name, and the context that the framework adds."""
        named = dict(kwargs)
        named.update(zip([*self._parameters, *(f"argument {n + 1}" for n in range(len(args)))], args, strict=False))
        name = self.ctx_param_name if self.requires_context else None
        context = {name: named.pop(name)} if name in named else {}
        return named, context

    def _agent_operations(self) -> AgentOperations:
        agent = self._agent_id() if callable(self._agent_id) else self._agent_id
        return self._operations.for_agent(agent)

    def _scope_of_call(self) -> str:
        scope = self._scope() if callable(self._scope) else self._scope
        return f"{scope} call:{uuid.uuid4().hex}" if self._guarded.rule.repeatable else scope

    def _refusal(self, recorder: _OutputRecorder, error: AgentRagError) -> ToolOutput:
        name = self.metadata.get_name()
        logger.warning("the call of tool %s was refused: %s", name, error)
        return recorder.output(Outcome("refused", self._operations.replies.unable(name, str(error))))


class _FailedError(Exception):
    """The tool returned an error, so its side effects are unknown."""


class _OutputRecorder:
    """Output of a tool: the agent receives the output itself, the operation log its text."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self._name, self._arguments = name, arguments
        self._output: ToolOutput | None = None

    def record(self, output: ToolOutput) -> dict[str, Any]:
        self._output = output
        if output.is_error:
            raise _FailedError(output.content)
        return {"content": output.content}

    async def arecord(self, output: Awaitable[ToolOutput]) -> dict[str, Any]:
        return self.record(await output)

    def output(self, outcome: Outcome) -> ToolOutput:
        if self._output is not None and outcome.status in {"done", "not_done"}:
            return self._output
        replayed = outcome.status == "replayed"
        recorded = outcome.result.get("content") if isinstance(outcome.result, dict) else outcome.result
        return ToolOutput(
            tool_name=self._name,
            content=f"{outcome.message}\n{recorded}" if replayed and recorded else outcome.message,
            raw_input={"args": (), "kwargs": self._arguments},
            raw_output={"status": outcome.status, "operation_id": outcome.operation_id, "result": outcome.result},
            is_error=not replayed,
        )


def _pause_exceptions() -> tuple[type[BaseException], ...]:
    """Return the exceptions of a tool that waits for a workflow event; it is called again when the event arrives."""
    try:
        from workflows.runtime.types.results import WaitingForEvent
    except ImportError:
        return ()
    return (WaitingForEvent,)
