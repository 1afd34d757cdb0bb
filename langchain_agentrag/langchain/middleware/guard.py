"""`ToolGuardMiddleware`: tool calls of a LangChain agent that are validated, recorded and made at most once."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from langchain_agentrag.errors import AgentRagError, ScopeError, UsageError
from langchain_agentrag.guard.operations import AgentOperations, Operations
from langchain_agentrag.guard.tool_rules import GuardedTool, Outcome, Proposal, RiskName, ToolRule
from langchain_agentrag.guard.validation import pydantic_check, require_jsonschema
from langchain_agentrag.langchain.identity import check_agent_binding, resolve_agent_id
from langchain_agentrag.langchain.middleware.messages import calling_message, messages_of

logger = logging.getLogger(__name__)

Response = ToolMessage | Command[Any]
ScopeOf = Callable[[ToolCallRequest], str]


class ToolGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Calls of declared tools are validated, recorded before they are made, and never made twice.

    A call that is refused, or whose outcome is unknown, is answered with a `ToolMessage` of status "error" that says
    what to do next; `additional_kwargs["agentrag"]` holds its status and operation id for the program. This survives a
    resumed checkpoint and a killed process: the same call of the same agent in the same conversation is answered from
    its record. Put it last in the list of middleware: one before it, such as a retry, then calls the guard again and
    not the tool.

    Args:
        operations: Log of the calls, highest risk level, approval, and language of the replies.
        tools: Name of each tool and its risk level, or its `ToolRule`. Tools of level "read" are validated only.
        agent_id: The agent on whose behalf the calls are made.
        agent_id_key: Key of the run's `configurable` or context that names the agent, instead of `agent_id`.
        scope: Returns the task a call belongs to, within which an equal call is the same operation. By default the
            conversation (`thread_id`), or without one the turn: the last message of the user.
        undeclared: Whether tools that are not declared are refused or passed on. Our own retrieval tools always pass.
        interrupt_for_approval: Whether calls from `operations.approve_from` up interrupt the run until it is resumed
            with True, {"type": "approve"}, or a reason against it.

    Raises:
        ScopeError: no agent is named, or both ways to name one are used.
        UsageError: a risk level that does not exist.
        MissingExtraError: jsonschema is not installed (extra `guard`).
    """

    def __init__(
        self,
        operations: Operations,
        tools: Mapping[str, RiskName | ToolRule],
        *,
        agent_id: str | None = None,
        agent_id_key: str | None = None,
        scope: ScopeOf | None = None,
        undeclared: Literal["refuse", "pass"] = "refuse",
        interrupt_for_approval: bool = False,
    ) -> None:
        super().__init__()
        require_jsonschema()
        check_agent_binding(agent_id, agent_id_key)
        if agent_id is None and agent_id_key is None:
            raise ScopeError("Calls with side effects need an agent: pass agent_id=… or agent_id_key=….")
        if undeclared not in {"refuse", "pass"}:
            raise UsageError(f"undeclared={undeclared!r}: say 'refuse' or 'pass'.")
        self._operations, self._scope, self._undeclared = operations, scope or _default_scope, undeclared
        self._agent_id, self._agent_id_key = agent_id, agent_id_key
        self._approval = _ask_by_interrupt if interrupt_for_approval else None
        self._rules = {name: rule if isinstance(rule, ToolRule) else ToolRule(rule) for name, rule in tools.items()}
        self._guarded_tools: dict[str, tuple[BaseTool, GuardedTool]] = {}

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Response]) -> Response:
        """Make the call, unless it is invalid, refused, or was made before."""
        if self._is_exempt(request):
            return handler(request)
        call = _GuardedCall(request)
        try:
            tool, operations, scope = self._resolve(request)
            outcome = operations.call(
                tool,
                request.tool_call["args"],
                lambda arguments: call.run(lambda: handler(call.with_arguments(arguments))),
                scope=scope,
                approval=self._approval,
                paused_by=(GraphBubbleUp,),
            )
        except AgentRagError as error:
            return self._refuse(request, error)
        return call.response(outcome)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Response]]
    ) -> Response:
        """`wrap_tool_call` without blocking the event loop."""
        if self._is_exempt(request):
            return await handler(request)
        call = _GuardedCall(request)
        try:
            tool, operations, scope = self._resolve(request)
            outcome = await operations.acall(
                tool,
                request.tool_call["args"],
                lambda arguments: call.arun(handler(call.with_arguments(arguments))),
                scope=scope,
                approval=self._approval,
                paused_by=(GraphBubbleUp,),
            )
        except AgentRagError as error:
            return self._refuse(request, error)
        return call.response(outcome)

    def _is_exempt(self, request: ToolCallRequest) -> bool:
        if request.tool_call["name"] in self._rules:
            return False
        metadata = (request.tool.metadata if request.tool is not None else None) or {}
        return metadata.get("agentrag") in {"search", "read"} or self._undeclared == "pass"

    def _resolve(self, request: ToolCallRequest) -> tuple[GuardedTool, AgentOperations, str]:
        """Return the tool, the agent's operations and the scope of a call."""
        name = request.tool_call["name"]
        if name not in self._rules:
            raise _UndeclaredError(self._operations.replies.undeclared(name))
        if request.tool is None:
            raise UsageError(
                f"the agent has no tool {name!r} whose arguments could be checked: pass it to create_agent."
            )
        config = getattr(request.runtime, "config", None)
        agent = resolve_agent_id(self._agent_id, self._agent_id_key, "error", config)
        operations = self._operations.for_agent(agent or "")
        scope = self._scope(request)
        tool = self._guarded_tool(request.tool)
        if tool.rule.repeatable:
            message = calling_message(request.state, request.tool_call["id"])
            message_id = message.id if message is not None else None
            scope = f"{scope} call:{message_id}:{request.tool_call['id']}"
        return tool, operations, scope

    def _guarded_tool(self, tool: BaseTool) -> GuardedTool:
        known = self._guarded_tools.get(tool.name)
        if known is None or known[0] is not tool:
            schema = _schema_of(tool)
            check = pydantic_check(tool.args_schema, schema.get("properties", {}))
            known = (tool, GuardedTool(tool.name, schema, self._rules[tool.name], check))
            self._guarded_tools[tool.name] = known
        return known[1]

    def _refuse(self, request: ToolCallRequest, error: AgentRagError) -> ToolMessage:
        name, text = request.tool_call["name"], str(error)
        logger.warning("the call of tool %s was refused: %s", name, error)
        if not isinstance(error, _UndeclaredError):
            text = self._operations.replies.unable(name, text)
        return _error_message(request, Outcome("refused", text))


class _UndeclaredError(UsageError):
    """The called tool is not declared; the message is for the model."""


class _FailedError(Exception):
    """The tool answered with a message of status "error": what it did until then is unknown."""


class _GuardedCall:
    """A request and the response of its tool: the response goes to the agent, its JSON form into the record."""

    def __init__(self, request: ToolCallRequest) -> None:
        self._request = request
        self._response: Response | None = None
        self._jump: ParentCommand | None = None

    def with_arguments(self, arguments: dict[str, Any]) -> ToolCallRequest:
        return self._request.override(tool_call={**self._request.tool_call, "args": arguments})

    def run(self, handler: Callable[[], Response]) -> dict[str, Any]:
        try:
            return self._to_record(handler())
        except ParentCommand as jump:  # the tool is done, and the graph goes on elsewhere
            self._jump = jump
            return {"content": ""}

    async def arun(self, response: Awaitable[Response]) -> dict[str, Any]:
        try:
            return self._to_record(await response)
        except ParentCommand as jump:
            self._jump = jump
            return {"content": ""}

    def response(self, outcome: Outcome) -> Response:
        """Return the response to the agent.

        Raises:
            ParentCommand: the tool ended with it.
        """
        if outcome.status == "done" and self._jump is not None:
            raise self._jump
        if self._response is not None and outcome.status in {"done", "not_done"}:
            return self._response
        if outcome.status != "replayed":
            return _error_message(self._request, outcome)
        recorded = outcome.result if isinstance(outcome.result, dict) else {"content": str(outcome.result)}
        return ToolMessage(
            _prepend(outcome.message, recorded.get("content")),
            artifact=recorded.get("artifact"),
            name=self._request.tool_call["name"],
            tool_call_id=self._request.tool_call["id"],
            additional_kwargs=_status_of(outcome),
        )

    def _to_record(self, response: Response) -> dict[str, Any]:
        self._response = response
        messages = list(_tool_messages(response))
        failed = next((message for message in messages if message.status == "error"), None)
        if failed is not None:
            raise _FailedError(str(failed.content))
        if len(messages) == 1:
            return {"content": messages[0].content, "artifact": _json_or_none(messages[0].artifact)}
        return {"content": "\n".join(str(message.content) for message in messages)}


def _default_scope(request: ToolCallRequest) -> str:
    """Return the conversation a call belongs to, or without a checkpointer the last message of the user.

    Raises:
        UsageError: neither is known.
    """
    config = getattr(request.runtime, "config", None) or {}
    thread = (config.get("configurable") or {}).get("thread_id")
    if thread is not None:
        return f"thread:{thread}"
    for message in reversed(messages_of(request.state)):
        if isinstance(message, HumanMessage) and message.id is not None:
            return f"turn:{message.id}"
    raise UsageError(
        "the task of the call is unknown: pass a thread_id in the run's configurable, or scope=… to the guard."
    )


def _schema_of(tool: BaseTool) -> dict[str, Any]:
    schema: Any = tool.tool_call_schema  # without the arguments that the framework injects
    if isinstance(schema, dict):
        return schema
    return dict(schema.model_json_schema() if issubclass(schema, BaseModel) else schema.schema())


def _ask_by_interrupt(proposal: Proposal) -> bool | str:
    answer = interrupt({"type": "approve_tool_call", **asdict(proposal)})
    if isinstance(answer, Mapping) and isinstance(answer.get("decisions"), list) and answer["decisions"]:
        answer = answer["decisions"][0]
    if isinstance(answer, Mapping):
        return answer.get("type") == "approve" or str(answer.get("message") or "")
    return answer is True or (answer if isinstance(answer, str) else False)


def _tool_messages(response: object) -> Iterator[ToolMessage]:
    if isinstance(response, ToolMessage):
        yield response
    elif isinstance(response, list | tuple):
        for part in response:
            yield from _tool_messages(part)
    elif isinstance(response, Command):
        update = response.update
        yield from _tool_messages(update.get("messages") if isinstance(update, Mapping) else update)


def _prepend(note: str, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": note}, *content]
    return f"{note}\n{content}" if content else note


def _json_or_none(artifact: Any) -> Any:
    """Return the artifact if it is JSON; a replayed call has none otherwise."""
    try:
        json.dumps(artifact, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return artifact


def _status_of(outcome: Outcome) -> dict[str, Any]:
    return {"agentrag": {"status": outcome.status, "operation_id": outcome.operation_id}}


def _error_message(request: ToolCallRequest, outcome: Outcome) -> ToolMessage:
    return ToolMessage(
        outcome.message,
        name=request.tool_call["name"],
        tool_call_id=request.tool_call["id"],
        status="error",
        additional_kwargs=_status_of(outcome),
    )
