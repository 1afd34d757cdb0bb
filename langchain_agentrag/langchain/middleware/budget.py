"""Retrieval calls among the messages of a LangChain agent: read, answered, cut, accounted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import (
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
    ToolCallRequest,
)
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime
from langgraph.types import Command

from langchain_agentrag.agent.budget import Decision, Limit, RetrievalBudget, RetrievalHistory
from langchain_agentrag.agent.budget_messages import BudgetMessages
from langchain_agentrag.agent.prompt_injection import close_fence
from langchain_agentrag.agent.retrieval_calls import (
    Evidence,
    Kind,
    RetrievalCall,
    call_key,
    extract_evidence,
    preview,
)
from langchain_agentrag.agent.sufficiency import SufficiencyJudge, check_sufficiency, uncovered_parts
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import UsageError

MARK = "agentrag_retrieval"
"""Where the account is kept in the state, and on each answer what it was."""


class RetrievalStep:
    """A retrieval call within its step."""

    def __init__(
        self,
        request: ToolCallRequest,
        kind: Kind,
        history: RetrievalHistory,
        verdict: Decision,
        budget: RetrievalBudget,
        together: int,
    ) -> None:
        self.kind, self.history, self.verdict = kind, history, verdict
        self._request, self._closed = request, budget.closed(history)
        left = budget.left(history).get("characters")
        self.room = None if left is None else left // together

    def call(self, found: Evidence) -> RetrievalCall:
        """The record of the call."""
        call = self._request.tool_call
        return RetrievalCall.from_tool_call(self.kind, call["name"], call["args"], found, call["id"] or "")

    @property
    def remembered(self) -> ToolMessage | None:
        """What the equal call before answered, where it is still in the conversation."""
        before = self.verdict.earlier
        return next(
            (
                message
                for message in reversed(_messages(self._request.state))
                if before is not None
                and isinstance(message, ToolMessage)
                and message.tool_call_id == before.call_id
            ),
            None,
        )

    def unmade(self, replies: BudgetMessages) -> ToolMessage:
        """The answer to a call that is not made."""
        verdict, artifact = self.verdict, None
        if verdict.action == "over":
            text = replies.refused_call(self.kind, self._closed or {self.kind: verdict.limit or "idle"})
        elif verdict.earlier is not None:
            text, before = replies.repeated_call(verdict.earlier), self.remembered
            artifact = before.artifact if before is not None else []
        else:
            text, artifact = replies.duplicate_call(), []
        return ToolMessage(
            text,
            artifact=artifact,
            name=self._request.tool_call["name"],
            tool_call_id=self._request.tool_call["id"],
            status="error" if verdict.action == "over" else "success",
            additional_kwargs={MARK: {"what": verdict.action}},
        )


def accounted(
    history: RetrievalHistory, kind: Kind, call: Mapping[str, Any], answer: ToolMessage
) -> RetrievalHistory:
    """The history after a call and its answer."""
    mark, text = answer.additional_kwargs.get(MARK) or {"what": "made"}, text_of(answer)
    if mark["what"] == "repeat":
        return replace(history.with_usage(characters=len(text)), idle=history.idle + 1)
    if mark["what"] != "made":
        return history.with_usage(characters=len(text))
    found = Evidence() if answer.status == "error" else extract_evidence(text, answer.artifact)
    made = RetrievalCall.from_tool_call(kind, call["name"], call["args"], found, call["id"] or "")
    if "refs" in mark:
        made = replace(made, passage_ids=tuple(mark["refs"]), previews=tuple(mark["heads"]))
    told = tuple(mark.get("told", ()))
    if len(told) == len(history.coverage):
        told = tuple(map(max, told, history.coverage))
    history = history.with_call(made, len(text), 0.0, same=bool(mark.get("same")))
    return replace(history, coverage=told or history.coverage)


def history_of(state: Any) -> RetrievalHistory:
    """The account that a state holds; an empty one for none."""
    return RetrievalHistory.from_json(
        state.get(MARK) if isinstance(state, Mapping) else getattr(state, MARK, None)
    )


def _messages(state: Any) -> Sequence[Any]:
    found = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", state)
    return found if isinstance(found, list | tuple) else []


def calls_beside(request: ToolCallRequest) -> list[Any]:
    """The calls of the message that this call belongs to."""
    wanted = request.tool_call["id"]
    for message in reversed(_messages(request.state)):
        if isinstance(message, AIMessage) and any(call["id"] == wanted for call in message.tool_calls):
            return list(message.tool_calls)
    return []


def without_calls(message: Any, late: Mapping[str | None, Limit], last: str) -> Any:
    """A model's message without some of its calls; the last words of the run where none is left."""
    if not isinstance(message, AIMessage) or not any(call["id"] in late for call in message.tool_calls):
        return message
    left = [call for call in message.tool_calls if call["id"] not in late]
    if not left:
        return AIMessage(last, id=message.id, usage_metadata=message.usage_metadata)
    content = message.content
    if isinstance(content, list):  # some providers repeat the calls there
        content = [part for part in content if not (isinstance(part, dict) and part.get("id") in late)]
    return AIMessage(content, id=message.id, tool_calls=left, usage_metadata=message.usage_metadata)


def name_of(tool: Any) -> str | None:
    """Name of a tool, also of a provider's own one, which is a dict."""
    if isinstance(tool, Mapping):
        name = tool.get("name") or (tool.get("function") or {}).get("name")
        return name if isinstance(name, str) else None
    return getattr(tool, "name", None)


def kind_of(tool: Any) -> Kind | None:
    """What a tool is marked as."""
    kind = (tool.metadata or {}).get("agentrag") if isinstance(tool, BaseTool) else None
    return kind if kind in {"search", "read"} else None


def forces(choice: Any, gone: set[str]) -> bool:
    """Whether a choice of tool would force a call of one that is gone, or of any."""
    if isinstance(choice, Mapping):
        name = choice.get("name") or (choice.get("function") or {}).get("name")
        return name in gone or choice.get("type") in {"any", "required"}
    return choice in {"any", "required", *gone}


def text_of(message: ToolMessage) -> str:
    """The text of a message."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part if isinstance(part, str) else str(part.get("text", "")) for part in message.content)


def cut(content: Any, room: int | None, mark: str) -> Any:
    """The content, cut after `room` characters, with a mark there; one that is no plain text stays whole."""
    if room is None or not isinstance(content, str) or len(content) <= room:
        return content
    return f"{close_fence(content[:room])}\n{mark}"  # a passage stays within its fence


def with_line(content: Any, line: str) -> Any:
    """The content with a line behind it."""
    if not line:
        return content
    if isinstance(content, list):
        return [*content, {"type": "text", "text": line}]
    return f"{content}\n{line}" if content else line


_REFUSALS = 1  # calls after the end of retrieval that are answered before the run is ended

Response = ToolMessage | Command[Any]
Answer = ModelResponse[Any] | ExtendedModelResponse[Any] | AIMessage


class BudgetState(AgentState[Any]):
    """The state of an agent, with what it has retrieved."""

    agentrag_retrieval: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class RetrievalBudgetMiddleware(AgentMiddleware[BudgetState, Any, Any]):
    """Limits what an agent retrieves per run and per conversation, and tells it when to stop.

        create_agent(model, tools, middleware=[RetrievalBudgetMiddleware(RetrievalBudget(searches=8))])

    A search that was made before in this run, in other order, width or punctuation, is answered from the run's own
    record. One that finds what the search before found is answered with what was already found and the advice to answer
    or to change the angle. Past the budget the tools are no longer offered and the model is asked to answer; one that
    goes on calling them all the same is answered once, then the run ends with a message that lists what was found.

    What was used is part of the agent's state: it survives a checkpoint, starts anew with each run, and calls of one
    step that run in parallel count each other. Retrieval tools are known by the mark of this package's tools.

    Args:
        budget: The limits; `RetrievalBudget()` by default.
        tools: Further retrieval tools by name, and whether each is a "search" or a "read".
        restate: Whether the question and what is left stand beside each result.
        sufficiency: Whether the parts of the question without evidence do as well: "rules", a model (a function prompt
            -> text, a chat model of LangChain or LlamaIndex) that is asked after each result, or None.
        language: Language of what the model is told; the last message is in that of the question.

    Raises:
        UsageError: a tool is declared as something else, or the model is of no known kind.
    """

    state_schema = BudgetState

    def __init__(
        self,
        budget: RetrievalBudget | None = None,
        *,
        tools: Mapping[str, Kind] | None = None,
        restate: bool = True,
        sufficiency: Any = "rules",
        language: Language = "en",
    ) -> None:
        super().__init__()
        self._budget, self._restate = budget or RetrievalBudget(), restate
        self._sufficiency: SufficiencyJudge | None = check_sufficiency(sufficiency)
        self._replies = BudgetMessages(language)
        self._declared: dict[str, Kind] = dict(tools or {})
        unknown = [name for name, kind in self._declared.items() if kind not in {"search", "read"}]
        if unknown:
            raise UsageError(
                f"The tool {unknown[0]!r} is declared {self._declared[unknown[0]]!r}: say 'search' or 'read'."
            )
        self._known: dict[str, Kind] = {}  # tools that were met, for the time when they are no longer offered

    # -- a run and its steps ------------------------------------------------------------------------------------------

    def before_agent(self, state: BudgetState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Begin anew, with the question that the run is about."""
        asked = next((m for m in reversed(state["messages"]) if isinstance(m, HumanMessage)), None)
        history = self._settled(state, self._kinds(())).new_run(str(asked.text) if asked is not None else "")
        return {MARK: history.as_json()}

    async def abefore_agent(self, state: BudgetState, runtime: Runtime[Any]) -> dict[str, Any]:
        """`before_agent`."""
        return self.before_agent(state, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> Answer:
        """Account the calls of the last step, and ask the model without the tools that are over."""
        kinds = self._kinds(request.tools)
        history = self._settled(request.state, kinds)
        closed = self._budget.closed(history)
        began = time.perf_counter()
        response = handler(self._narrowed(request, kinds, closed))
        return self._kept(response, history, kinds, closed, time.perf_counter() - began)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> Answer:
        """`wrap_model_call` without blocking the event loop."""
        kinds = self._kinds(request.tools)
        history = self._settled(request.state, kinds)
        closed = self._budget.closed(history)
        began = time.perf_counter()
        response = await handler(self._narrowed(request, kinds, closed))
        return self._kept(response, history, kinds, closed, time.perf_counter() - began)

    # -- a call -------------------------------------------------------------------------------------------------------

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Response]
    ) -> Response:
        """Make the call, or answer it from the record, or refuse it."""
        step = self._step(request)
        if step is None:
            return handler(request)
        if step.verdict.action != "make":
            return step.unmade(self._replies)
        began = time.perf_counter()
        response = handler(request)
        return self._told(step, response, time.perf_counter() - began)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Response]]
    ) -> Response:
        """`wrap_tool_call` without blocking the event loop."""
        step = self._step(request)
        if step is None:
            return await handler(request)
        if step.verdict.action != "make":
            return step.unmade(self._replies)
        began = time.perf_counter()
        response = await handler(request)
        seconds = time.perf_counter() - began
        if self._sufficiency is not None and self._sufficiency.calls_model:
            return await asyncio.to_thread(self._told, step, response, seconds)
        return self._told(step, response, seconds)

    # -- the parts of it ----------------------------------------------------------------------------------------------

    def _narrowed(
        self, request: ModelRequest[Any], kinds: Mapping[str, Kind], closed: Mapping[Kind, Limit]
    ) -> ModelRequest[Any]:
        if not closed:
            return request
        gone = {name for name, kind in kinds.items() if kind in closed}
        changes: dict[str, Any] = {"tools": [tool for tool in request.tools if name_of(tool) not in gone]}
        if forces(request.tool_choice, gone):
            changes["tool_choice"] = None
        told = self._replies.instruction(closed)
        if told:
            before = request.system_message
            changes["system_message"] = SystemMessage(
                f"{before.text}\n\n{told}" if before is not None else told
            )
        return request.override(**changes)

    def _kept(
        self,
        response: ModelResponse[Any],
        history: RetrievalHistory,
        kinds: Mapping[str, Kind],
        closed: Mapping[Kind, Limit],
        seconds: float,
    ) -> Answer:
        """The response with the account beside it; without the calls of a model that goes on with what is over."""
        history = history.with_usage(seconds=seconds)
        late = {
            call["id"]: closed[kinds[call["name"]]]
            for message in response.result
            if isinstance(message, AIMessage)
            for call in message.tool_calls
            if kinds.get(call["name"]) in closed
        }
        if late and history.refused_calls >= _REFUSALS:
            missing = (
                uncovered_parts(history.question, history.coverage) if self._sufficiency is not None else []
            )
            last = self._replies.end_of_run(history, next(iter(late.values())), missing)
            result = [without_calls(message, late, last) for message in response.result]
            response = replace(response, result=result)
        elif late:
            history = replace(history, refused_calls=history.refused_calls + 1)
        kept: Command[Any] = Command(update={MARK: history.as_json()})
        return ExtendedModelResponse(model_response=response, command=kept)

    def _kinds(self, tools: Iterable[Any]) -> dict[str, Kind]:
        """Names of the tools that retrieve: of these, of those that were met before, and of those that were declared.

        One that was met before, with another agent, and is here no retrieval tool is none.
        """
        here = {name: kind_of(tool) for tool in tools if (name := name_of(tool)) is not None}
        self._known.update({name: kind for name, kind in here.items() if kind is not None})
        kinds = {**self._known, **here, **self._declared}
        return {name: kind for name, kind in kinds.items() if kind is not None}

    def _step(self, request: ToolCallRequest) -> RetrievalStep | None:
        """This call among those of its step; None for a tool that does not retrieve."""
        kinds = self._kinds((*(getattr(request.runtime, "tools", None) or ()), request.tool))
        call = request.tool_call
        kind = kinds.get(call["name"])
        if kind is None:
            return None
        siblings = [other for other in calls_beside(request) if other["name"] in kinds] or [call]
        place = next((n for n, other in enumerate(siblings) if other["id"] == call["id"]), None)
        if place is None:
            siblings, place = [call], 0
        keys = [call_key(kinds[other["name"]], other["name"], other["args"]) for other in siblings]
        history = history_of(request.state)
        verdict = self._budget.plan(history, keys)[place]
        step = RetrievalStep(request, kind, history, verdict, self._budget, len(siblings))
        if kind == "read" and verdict.action == "repeat" and step.remembered is None:
            step.verdict = Decision("make")  # the text is gone from the conversation: it may be opened again
        return step

    def _told(self, step: RetrievalStep, response: Response, seconds: float) -> Response:
        """The answer with what the model should know beside it, and marked for the account."""
        if not isinstance(response, ToolMessage):
            return response
        history, text = step.history, text_of(response)
        found = Evidence() if response.status == "error" else extract_evidence(text, response.artifact)
        told = history.coverage
        if self._sufficiency is not None and history.question and found.texts:
            told = self._sufficiency.judge(history.question, found.texts, told)
        note, same = "", None
        if step.kind == "search":
            same = self._budget.same_as(history, found.passage_ids)
        if same is not None and not history.has_new("search", found.passage_ids):
            response = response.model_copy(update={"content": self._replies.nothing_new(same, history)})
        elif same is not None:
            note = self._replies.little_new(same)
        mark = {
            "what": "made",
            "kind": step.kind,
            "same": same is not None,
            "seconds": seconds,
            "told": list(told),
            "refs": list(found.passage_ids),
            "heads": [preview(one) for one in found.texts],
        }
        missing = uncovered_parts(history.question, told) if self._sufficiency is not None else []
        left = self._budget.left(history.with_call(step.call(found), 0, 0.0))
        left.pop("characters", None)
        beside = self._replies.status(history, missing, left) if self._restate else ""
        content = cut(response.content, step.room, self._replies.truncated())
        for line in (note, beside):
            content = with_line(content, line)
        return response.model_copy(
            update={"content": content, "additional_kwargs": {**response.additional_kwargs, MARK: mark}}
        )

    def _settled(self, state: Mapping[str, Any], kinds: Mapping[str, Kind]) -> RetrievalHistory:
        """The history with the calls of the last step, in their order."""
        history, messages = history_of(state), state["messages"]
        place = next(
            (n for n in range(len(messages) - 1, -1, -1) if isinstance(messages[n], AIMessage)), None
        )
        if place is None or not messages[place].id or messages[place].id == history.last_message_id:
            return history
        answers = {m.tool_call_id: m for m in messages[place + 1 :] if isinstance(m, ToolMessage)}
        slowest = 0.0
        for call in messages[place].tool_calls:
            kind, answer = kinds.get(call["name"]), answers.get(call["id"])
            if answer is None or (kind is None and MARK not in answer.additional_kwargs):
                continue
            mark = answer.additional_kwargs.get(MARK) or {}
            slowest = max(slowest, mark.get("seconds", 0.0))
            # another process that goes on with the conversation has not met the tool yet: the answer knows
            history = accounted(history, mark.get("kind") or kind or "search", call, answer)
        return replace(history.with_usage(seconds=slowest), last_message_id=messages[place].id or "")
