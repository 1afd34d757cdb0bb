"""`RetrievalBudgetMiddleware`: limits the searches and reads of a LangChain agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
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
from langchain_agentrag.agent.retrieval_calls import Evidence, Kind, RetrievalCall, call_key, extract_evidence, preview
from langchain_agentrag.agent.sufficiency import SufficiencyJudge, check_sufficiency, uncovered_parts
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import UsageError
from langchain_agentrag.langchain.middleware.messages import calling_message, messages_of

MARK = "agentrag_retrieval"
"""Key of the history in the agent's state, and of the record of its call on each tool message."""


class _RetrievalCall:
    """Retrieval call within a step of the agent; `max_characters` is its share of the characters that are left."""

    def __init__(
        self,
        request: ToolCallRequest,
        kind: Kind,
        history: RetrievalHistory,
        decision: Decision,
        budget: RetrievalBudget,
        together: int,
    ) -> None:
        self.kind, self.history, self.decision = kind, history, decision
        self._request, self._closed = request, budget.closed(history)
        left = budget.left(history).get("characters")
        self.max_characters = None if left is None else left // together

    def call(self, evidence: Evidence) -> RetrievalCall:
        """Return the record of the call."""
        call = self._request.tool_call
        return RetrievalCall.from_tool_call(self.kind, call["name"], call["args"], evidence, call["id"] or "")

    @property
    def earlier_answer(self) -> ToolMessage | None:
        """The answer of the equal earlier call, where it is still in the conversation."""
        before = self.decision.earlier
        if before is not None:
            for message in reversed(messages_of(self._request.state)):
                if isinstance(message, ToolMessage) and message.tool_call_id == before.call_id:
                    return message
        return None

    def answer_without_call(self, replies: BudgetMessages) -> ToolMessage:
        """Return the answer to a call that is not made."""
        decision, artifact = self.decision, None
        if decision.action == "over":
            text = replies.refused_call(self.kind, self._closed or {self.kind: decision.limit or "idle"})
        elif decision.earlier is not None:
            text, before = replies.repeated_call(decision.earlier), self.earlier_answer
            artifact = before.artifact if before is not None else []
        else:
            text, artifact = replies.duplicate_call(), []
        return ToolMessage(
            text,
            artifact=artifact,
            name=self._request.tool_call["name"],
            tool_call_id=self._request.tool_call["id"],
            status="error" if decision.action == "over" else "success",
            additional_kwargs={MARK: {"what": decision.action}},
        )


def _add_call(history: RetrievalHistory, kind: Kind, call: Mapping[str, Any], answer: ToolMessage) -> RetrievalHistory:
    """Return the history after a call and its answer."""
    mark, text = answer.additional_kwargs.get(MARK) or {"what": "made"}, _text_of(answer)
    if mark["what"] == "repeat":
        return replace(history.with_usage(characters=len(text)), idle=history.idle + 1)
    if mark["what"] != "made":
        return history.with_usage(characters=len(text))
    evidence = Evidence() if answer.status == "error" else extract_evidence(text, answer.artifact)
    call_record = RetrievalCall.from_tool_call(kind, call["name"], call["args"], evidence, call["id"] or "")
    if "refs" in mark:
        call_record = replace(call_record, passage_ids=tuple(mark["refs"]), previews=tuple(mark["heads"]))
    coverage = tuple(mark.get("told", ()))
    if len(coverage) == len(history.coverage):
        coverage = tuple(map(max, coverage, history.coverage))
    history = history.with_call(call_record, len(text), 0.0, same=bool(mark.get("same")))
    return replace(history, coverage=coverage or history.coverage)


def _history_of(state: Any) -> RetrievalHistory:
    """Return the history in a state; an empty one for none."""
    return RetrievalHistory.from_json(state.get(MARK) if isinstance(state, Mapping) else getattr(state, MARK, None))


def _without_calls(message: Any, late: Mapping[str | None, Limit], last: str) -> Any:
    """Return a model's message without the `late` calls, or the `last` message of the run where none is left."""
    if not isinstance(message, AIMessage) or not any(call["id"] in late for call in message.tool_calls):
        return message
    left = [call for call in message.tool_calls if call["id"] not in late]
    if not left:
        return AIMessage(last, id=message.id, usage_metadata=message.usage_metadata)
    content = message.content
    if isinstance(content, list):  # some providers repeat the calls there
        content = [part for part in content if not (isinstance(part, dict) and part.get("id") in late)]
    return AIMessage(content, id=message.id, tool_calls=left, usage_metadata=message.usage_metadata)


def _name_of(tool: Any) -> str | None:
    """Return the name of a tool, also of a provider's own one, which is a dict."""
    if isinstance(tool, Mapping):
        name = tool.get("name") or (tool.get("function") or {}).get("name")
        return name if isinstance(name, str) else None
    return getattr(tool, "name", None)


def _kind_of(tool: Any) -> Kind | None:
    """Return the kind of a tool that is marked as one of this package's retrieval tools."""
    kind = (tool.metadata or {}).get("agentrag") if isinstance(tool, BaseTool) else None
    return kind if kind in {"search", "read"} else None


def _forces_call(choice: Any, removed: set[str]) -> bool:
    """Return whether a tool choice would force a call of a removed tool, or of any tool."""
    if isinstance(choice, Mapping):
        name = choice.get("name") or (choice.get("function") or {}).get("name")
        return name in removed or choice.get("type") in {"any", "required"}
    return choice in {"any", "required", *removed}


def _text_of(message: ToolMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part if isinstance(part, str) else str(part.get("text", "")) for part in message.content)


def _cut(content: Any, max_characters: int | None, mark: str) -> Any:
    """Return the content cut after `max_characters`, with a mark there; content that is no plain text stays whole."""
    if max_characters is None or not isinstance(content, str) or len(content) <= max_characters:
        return content
    return f"{close_fence(content[:max_characters])}\n{mark}"  # a passage stays within its fence


def _with_line(content: Any, line: str) -> Any:
    if not line:
        return content
    if isinstance(content, list):
        return [*content, {"type": "text", "text": line}]
    return f"{content}\n{line}" if content else line


_REFUSALS = 1  # calls after the end of retrieval that are answered before the run is ended

_Response = ToolMessage | Command[Any]
_ModelAnswer = ModelResponse[Any] | ExtendedModelResponse[Any] | AIMessage


class BudgetState(AgentState[Any]):
    """State of an agent with the history of its retrieval."""

    agentrag_retrieval: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class RetrievalBudgetMiddleware(AgentMiddleware[BudgetState, Any, Any]):
    """Limits what an agent retrieves per run and per conversation, and asks it to answer when the budget is used up.

        create_agent(model, tools, middleware=[RetrievalBudgetMiddleware(RetrievalBudget(searches=8))])

    A search that repeats an earlier one of this run, in other order, width or punctuation, is answered from the run's
    record. One with the same hits as the search before it is answered with these and the advice to answer or to change
    the angle. When the budget is used up the tools are no longer offered and the model is asked to answer; a model that
    still calls them is answered once, then the run ends with a message that lists what was found.

    The history is part of the agent's state: it survives a checkpoint, each run starts a new one that keeps the
    conversation's use, and parallel calls of one step count each other. This package's retrieval tools are recognized
    by their metadata.

    Args:
        budget: The limits; `RetrievalBudget()` by default.
        tools: Further retrieval tools by name, and whether each is a "search" or a "read".
        restate: Whether the question and the rest of the budget are appended to each result.
        sufficiency: Whether the parts of the question without evidence are appended as well: "rules", a model (a
            function prompt -> text, a chat model of LangChain or LlamaIndex) that judges each result, or None.
        language: Language of the texts for the model; the last message is in that of the question.

    Raises:
        UsageError: a tool is declared as another kind, or the model is of no known type.
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
        self._known: dict[str, Kind] = {}  # tools of earlier requests, which may no longer be offered

    # -- a run and its steps ------------------------------------------------------------------------------------------

    def before_agent(self, state: BudgetState, runtime: Runtime[Any]) -> dict[str, Any]:
        """Start the history of a run with its question."""
        question = next((m for m in reversed(state["messages"]) if isinstance(m, HumanMessage)), None)
        history = self._add_last_step(state, self._kinds(())).new_run(
            str(question.text) if question is not None else ""
        )
        return {MARK: history.as_json()}

    async def abefore_agent(self, state: BudgetState, runtime: Runtime[Any]) -> dict[str, Any]:
        """`before_agent` for asynchronous runs."""
        return self.before_agent(state, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> _ModelAnswer:
        """Add the last step to the history, and call the model without the tools whose budget is used up."""
        kinds = self._kinds(request.tools)
        history = self._add_last_step(request.state, kinds)
        closed = self._budget.closed(history)
        began = time.perf_counter()
        response = handler(self._without_closed_tools(request, kinds, closed))
        return self._with_history(response, history, kinds, closed, time.perf_counter() - began)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> _ModelAnswer:
        """`wrap_model_call` without blocking the event loop."""
        kinds = self._kinds(request.tools)
        history = self._add_last_step(request.state, kinds)
        closed = self._budget.closed(history)
        began = time.perf_counter()
        response = await handler(self._without_closed_tools(request, kinds, closed))
        return self._with_history(response, history, kinds, closed, time.perf_counter() - began)

    # -- a call -------------------------------------------------------------------------------------------------------

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], _Response]) -> _Response:
        """Make the call, answer it from the record, or refuse it."""
        step = self._plan_call(request)
        if step is None:
            return handler(request)
        if step.decision.action != "make":
            return step.answer_without_call(self._replies)
        began = time.perf_counter()
        response = handler(request)
        return self._annotate(step, response, time.perf_counter() - began)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[_Response]]
    ) -> _Response:
        """`wrap_tool_call` without blocking the event loop."""
        step = self._plan_call(request)
        if step is None:
            return await handler(request)
        if step.decision.action != "make":
            return step.answer_without_call(self._replies)
        began = time.perf_counter()
        response = await handler(request)
        seconds = time.perf_counter() - began
        if self._sufficiency is not None and self._sufficiency.calls_model:
            return await asyncio.to_thread(self._annotate, step, response, seconds)
        return self._annotate(step, response, seconds)

    def _without_closed_tools(
        self, request: ModelRequest[Any], kinds: Mapping[str, Kind], closed: Mapping[Kind, Limit]
    ) -> ModelRequest[Any]:
        if not closed:
            return request
        removed = {name for name, kind in kinds.items() if kind in closed}
        changes: dict[str, Any] = {"tools": [tool for tool in request.tools if _name_of(tool) not in removed]}
        if _forces_call(request.tool_choice, removed):
            changes["tool_choice"] = None
        instruction = self._replies.instruction(closed)
        if instruction:
            before = request.system_message
            changes["system_message"] = SystemMessage(
                f"{before.text}\n\n{instruction}" if before is not None else instruction
            )
        return request.override(**changes)

    def _with_history(
        self,
        response: ModelResponse[Any],
        history: RetrievalHistory,
        kinds: Mapping[str, Kind],
        closed: Mapping[Kind, Limit],
        seconds: float,
    ) -> _ModelAnswer:
        """Return the response with the history, and without calls whose budget is used up once one was refused."""
        history = history.with_usage(seconds=seconds)
        late = {
            call["id"]: closed[kinds[call["name"]]]
            for message in response.result
            if isinstance(message, AIMessage)
            for call in message.tool_calls
            if kinds.get(call["name"]) in closed
        }
        if late and history.refused_calls >= _REFUSALS:
            missing = uncovered_parts(history.question, history.coverage) if self._sufficiency is not None else []
            last = self._replies.end_of_run(history, next(iter(late.values())), missing)
            result = [_without_calls(message, late, last) for message in response.result]
            response = replace(response, result=result)
        elif late:
            history = replace(history, refused_calls=history.refused_calls + 1)
        update: Command[Any] = Command(update={MARK: history.as_json()})
        return ExtendedModelResponse(model_response=response, command=update)

    def _kinds(self, tools: Iterable[Any]) -> dict[str, Kind]:
        """Return the kinds of the retrieval tools by name: of `tools`, of earlier requests, and of declared ones.

        A name from an earlier request that stands for another tool in `tools` is left out.
        """
        current = {name: _kind_of(tool) for tool in tools if (name := _name_of(tool)) is not None}
        self._known.update({name: kind for name, kind in current.items() if kind is not None})
        kinds = {**self._known, **current, **self._declared}
        return {name: kind for name, kind in kinds.items() if kind is not None}

    def _plan_call(self, request: ToolCallRequest) -> _RetrievalCall | None:
        """Plan a call among those of its step; None for a tool that does not retrieve."""
        kinds = self._kinds((*(getattr(request.runtime, "tools", None) or ()), request.tool))
        call = request.tool_call
        kind = kinds.get(call["name"])
        if kind is None:
            return None
        message = calling_message(request.state, call["id"])
        siblings = [other for other in message.tool_calls if other["name"] in kinds] if message is not None else []
        siblings = siblings or [call]
        place = next((n for n, other in enumerate(siblings) if other["id"] == call["id"]), None)
        if place is None:
            siblings, place = [call], 0
        keys = [call_key(kinds[other["name"]], other["name"], other["args"]) for other in siblings]
        history = _history_of(request.state)
        decision = self._budget.plan(history, keys)[place]
        step = _RetrievalCall(request, kind, history, decision, self._budget, len(siblings))
        if kind == "read" and decision.action == "repeat" and step.earlier_answer is None:
            step.decision = Decision("make")  # the text is gone from the conversation: it may be opened again
        return step

    def _annotate(self, step: _RetrievalCall, response: _Response, seconds: float) -> _Response:
        """Return the answer with notes for the model, and with the record of its call for the history."""
        if not isinstance(response, ToolMessage):
            return response
        history, text = step.history, _text_of(response)
        evidence = Evidence() if response.status == "error" else extract_evidence(text, response.artifact)
        coverage = history.coverage
        if self._sufficiency is not None and history.question and evidence.texts:
            coverage = self._sufficiency.judge(history.question, evidence.texts, coverage)
        note, same = "", None
        if step.kind == "search":
            same = self._budget.same_as(history, evidence.passage_ids)
        if same is not None and not history.has_new("search", evidence.passage_ids):
            response = response.model_copy(update={"content": self._replies.nothing_new(same, history)})
        elif same is not None:
            note = self._replies.little_new(same)
        mark = {
            "what": "made",
            "kind": step.kind,
            "same": same is not None,
            "seconds": seconds,
            "told": list(coverage),
            "refs": list(evidence.passage_ids),
            "heads": [preview(one) for one in evidence.texts],
        }
        missing = uncovered_parts(history.question, coverage) if self._sufficiency is not None else []
        left = self._budget.left(history.with_call(step.call(evidence), 0, 0.0))
        left.pop("characters", None)
        beside = self._replies.status(history, missing, left) if self._restate else ""
        content = _cut(response.content, step.max_characters, self._replies.truncated())
        for line in (note, beside):
            content = _with_line(content, line)
        return response.model_copy(
            update={"content": content, "additional_kwargs": {**response.additional_kwargs, MARK: mark}}
        )

    def _add_last_step(self, state: Mapping[str, Any], kinds: Mapping[str, Kind]) -> RetrievalHistory:
        """Return the history after the calls of the last step, in their order."""
        history, messages = _history_of(state), state["messages"]
        place = next((n for n in range(len(messages) - 1, -1, -1) if isinstance(messages[n], AIMessage)), None)
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
            # a process that resumes the conversation may not know the tool yet: the record names its kind
            history = _add_call(history, mark.get("kind") or kind or "search", call, answer)
        return replace(history.with_usage(seconds=slowest), last_message_id=messages[place].id or "")
