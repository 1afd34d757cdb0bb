"""Side effects of a LangChain agent under guard: `ToolGuardMiddleware` around the calls of its tools."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from langchain_agentrag.errors import AgentRagError, ScopeError, UsageError
from langchain_agentrag.guard.operations import AgentOperations, Operations
from langchain_agentrag.guard.tool_rules import GuardedTool, Outcome, Proposal, RiskName, ToolRule
from langchain_agentrag.guard.validation import validators_of
from langchain_agentrag.langchain.identity import check_agent_binding, resolve_agent_id

logger = logging.getLogger(__name__)

Response = ToolMessage | Command[Any]
ScopeOf = Callable[[ToolCallRequest], str]


class ToolGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Calls of declared tools are checked, written down before they are made, and never made twice.

    What is refused, or whose outcome is unknown, comes back as a `ToolMessage` of status "error" that says what to do
    next; `additional_kwargs["agentrag"]` holds its status and operation id for the program. It survives a resumed
    checkpoint and a killed process: the same call of the same agent in the same conversation is answered from its
    record. Put it last in the list of middleware: what stands before it, such as a retry, then calls the guard again
    and not the tool.

    Args:
        operations: Where records are kept, what is delegated, and in which language is answered.
        tools: Name of each tool and its level of risk, or its `ToolRule`. Tools of level "read" are checked only.
        agent_id: On whose behalf.
        agent_id_key: Key of the run's `configurable` or context that names the agent, instead of `agent_id`.
        scope: Names the task a call belongs to, within which an equal call is the same operation. By default the
            conversation (`thread_id`), or without one the turn: the last message of the user.
        undeclared: Whether tools that are not declared are refused or passed on. Our own retrieval tools always pass.
        interrupt_for_approval: Whether calls from `operations.approve_from` up interrupt the run until somebody resumes
            it with True, {"type": "approve"}, or a reason against it.

    Raises:
        ScopeError: no agent is named, or both ways to name one are used.
        UsageError: a level of risk that does not exist.
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
        check_agent_binding(agent_id, agent_id_key)
        if agent_id is None and agent_id_key is None:
            raise ScopeError("Calls with side effects need an agent: pass agent_id=… or agent_id_key=….")
        if undeclared not in {"refuse", "pass"}:
            raise UsageError(f"undeclared={undeclared!r}: say 'refuse' or 'pass'.")
        self._operations, self._scope, self._undeclared = (
            operations,
            scope or conversation_or_turn,
            undeclared,
        )
        self._agent_id, self._agent_id_key = agent_id, agent_id_key
        self._approval = _ask_by_interrupt if interrupt_for_approval else None
        self._rules = {
            name: rule if isinstance(rule, ToolRule) else ToolRule(rule) for name, rule in tools.items()
        }
        self._known: dict[str, tuple[BaseTool, GuardedTool]] = {}

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Response]
    ) -> Response:
        """Make the call, unless something stands against it."""
        if self._passes(request):
            return handler(request)
        kept = _Kept(request)
        try:
            tool, mine, scope = self._guarded(request)
            outcome = mine.call(
                tool,
                request.tool_call["args"],
                lambda arguments: kept.keep(lambda: handler(kept.with_arguments(arguments))),
                scope=scope,
                approval=self._approval,
                paused_by=(GraphBubbleUp,),
            )
        except AgentRagError as error:
            return self._unable(request, error)
        return kept.answer(outcome)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Response]]
    ) -> Response:
        """`wrap_tool_call` without blocking the event loop."""
        if self._passes(request):
            return await handler(request)
        kept = _Kept(request)
        try:
            tool, mine, scope = self._guarded(request)
            outcome = await mine.acall(
                tool,
                request.tool_call["args"],
                lambda arguments: kept.akeep(handler(kept.with_arguments(arguments))),
                scope=scope,
                approval=self._approval,
                paused_by=(GraphBubbleUp,),
            )
        except AgentRagError as error:
            return self._unable(request, error)
        return kept.answer(outcome)

    def _passes(self, request: ToolCallRequest) -> bool:
        if request.tool_call["name"] in self._rules:
            return False
        marked = request.tool is not None and (request.tool.metadata or {}).get("agentrag") in {
            "search",
            "read",
        }
        return marked or self._undeclared == "pass"

    def _guarded(self, request: ToolCallRequest) -> tuple[GuardedTool, AgentOperations, str]:
        name = request.tool_call["name"]
        if name not in self._rules:
            raise _UndeclaredError(self._operations.replies.undeclared(name))
        if request.tool is None:
            raise UsageError(
                f"the agent has no tool {name!r} whose arguments could be checked: pass it to create_agent."
            )
        config = getattr(request.runtime, "config", None)
        agent = resolve_agent_id(self._agent_id, self._agent_id_key, "error", config)
        mine = self._operations.for_agent(agent or "")
        scope = self._scope(request)
        tool = self._tool(request.tool)
        if tool.rule.repeatable:
            scope = f"{scope} call:{_message_id(request)}:{request.tool_call['id']}"
        return tool, mine, scope

    def _tool(self, tool: BaseTool) -> GuardedTool:
        known = self._known.get(tool.name)
        if known is None or known[0] is not tool:
            schema = _schema_of(tool)
            guarded = GuardedTool(
                tool.name,
                schema,
                self._rules[tool.name],
                validators_of(tool.args_schema, schema.get("properties", {})),
            )
            known = self._known[tool.name] = (tool, guarded)
        return known[1]

    def _unable(self, request: ToolCallRequest, error: AgentRagError) -> ToolMessage:
        name = request.tool_call["name"]
        logger.warning("the call of tool %s was refused: %s", name, error)
        text = str(error) if isinstance(error, _UndeclaredError) else None
        return _refusal(
            request, Outcome("refused", text or self._operations.replies.unable(name, str(error)))
        )


class _UndeclaredError(UsageError):
    """A tool that nobody declared was called; the message is for the model."""


class _FailedError(Exception):
    """The tool answered with a message of status "error": what it did until then is unknown."""


class _Kept:
    """One request and what its tool answered: the answer itself goes to the agent, its JSON form into the record."""

    def __init__(self, request: ToolCallRequest) -> None:
        self._request = request
        self._response: Response | None = None
        self._jump: ParentCommand | None = None

    def with_arguments(self, arguments: dict[str, Any]) -> ToolCallRequest:
        return self._request.override(tool_call={**self._request.tool_call, "args": arguments})

    def keep(self, answer: Callable[[], Response]) -> dict[str, Any]:
        try:
            return self._recorded(answer())
        except ParentCommand as jump:  # the tool is done, and the graph goes on elsewhere
            self._jump = jump
            return {"content": ""}

    async def akeep(self, answer: Awaitable[Response]) -> dict[str, Any]:
        try:
            return self._recorded(await answer)
        except ParentCommand as jump:
            self._jump = jump
            return {"content": ""}

    def answer(self, outcome: Outcome) -> Response:
        """What the agent gets.

        Raises:
            ParentCommand: the tool ended with it.
        """
        if outcome.status == "done" and self._jump is not None:
            raise self._jump
        if self._response is not None and outcome.status in {"done", "not_done"}:
            return self._response
        if outcome.status != "replayed":
            return _refusal(self._request, outcome)
        recorded = outcome.result if isinstance(outcome.result, dict) else {"content": str(outcome.result)}
        return ToolMessage(
            _with_note(outcome.message, recorded.get("content")),
            artifact=recorded.get("artifact"),
            name=self._request.tool_call["name"],
            tool_call_id=self._request.tool_call["id"],
            additional_kwargs=_mark(outcome),
        )

    def _recorded(self, response: Response) -> dict[str, Any]:
        self._response = response
        messages = list(_messages_of(response))
        failed = next((message for message in messages if message.status == "error"), None)
        if failed is not None:
            raise _FailedError(str(failed.content))
        if len(messages) == 1:
            return {"content": messages[0].content, "artifact": _json_or_none(messages[0].artifact)}
        return {"content": "\n".join(str(message.content) for message in messages)}


def conversation_or_turn(request: ToolCallRequest) -> str:
    """The task a call belongs to: its conversation, or without a checkpointer the last message of the user.

    Raises:
        UsageError: neither is known.
    """
    config = getattr(request.runtime, "config", None) or {}
    thread = (config.get("configurable") or {}).get("thread_id")
    if thread is not None:
        return f"thread:{thread}"
    asked = next(
        (m.id for m in reversed(_history(request)) if isinstance(m, HumanMessage) and m.id is not None), None
    )
    if asked is None:
        raise UsageError(
            "the task of the call is unknown: pass a thread_id in the run's configurable, or scope=… to the guard."
        )
    return f"turn:{asked}"


def _history(request: ToolCallRequest) -> list[Any]:
    state = request.state
    found = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", state)
    return list(found) if isinstance(found, list | tuple) else []


def _message_id(request: ToolCallRequest) -> str | None:
    """Id of the model's message that makes the call: some models number their calls anew in each message."""
    wanted = request.tool_call["id"]
    for message in reversed(_history(request)):
        if isinstance(message, AIMessage) and any(call["id"] == wanted for call in message.tool_calls):
            return message.id
    return None


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


def _messages_of(response: object) -> Iterator[ToolMessage]:
    if isinstance(response, ToolMessage):
        yield response
    elif isinstance(response, list | tuple):
        for part in response:
            yield from _messages_of(part)
    elif isinstance(response, Command):
        update = response.update
        yield from _messages_of(update.get("messages") if isinstance(update, Mapping) else update)


def _with_note(note: str, content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": note}, *content]
    return f"{note}\n{content}" if content else note


def _json_or_none(artifact: Any) -> Any:
    """The artifact where a record can keep it; a replayed call has none otherwise."""
    try:
        json.dumps(artifact, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return artifact


def _mark(outcome: Outcome) -> dict[str, Any]:
    return {"agentrag": {"status": outcome.status, "operation_id": outcome.operation_id}}


def _refusal(request: ToolCallRequest, outcome: Outcome) -> ToolMessage:
    return ToolMessage(
        outcome.message,
        name=request.tool_call["name"],
        tool_call_id=request.tool_call["id"],
        status="error",
        additional_kwargs=_mark(outcome),
    )
