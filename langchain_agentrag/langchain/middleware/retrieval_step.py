"""Retrieval calls among the messages of a LangChain agent: read, answered, cut, accounted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool

from langchain_agentrag.agent.budget import Call, Kind, Ledger, Limit, RetrievalBudget, Verdict
from langchain_agentrag.agent.budget_replies import BudgetReplies
from langchain_agentrag.agent.evidence import Evidence, call_of, evidence_of
from langchain_agentrag.agent.prompt_injection import closed

MARK = "agentrag_retrieval"
"""Where the account is kept in the state, and on each answer what it was."""


class RetrievalStep:
    """A retrieval call within its step."""

    def __init__(
        self,
        request: ToolCallRequest,
        kind: Kind,
        ledger: Ledger,
        verdict: Verdict,
        budget: RetrievalBudget,
        together: int,
    ) -> None:
        self.kind, self.ledger, self.verdict = kind, ledger, verdict
        self._request, self._closed = request, budget.closed(ledger)
        left = budget.left(ledger).get("characters")
        self.room = None if left is None else left // together

    def call(self, found: Evidence) -> Call:
        """The record of the call."""
        call = self._request.tool_call
        return call_of(self.kind, call["args"], call["name"], found, call["id"] or "")

    @property
    def remembered(self) -> ToolMessage | None:
        """What the equal call before answered, where it is still in the conversation."""
        before = self.verdict.of
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

    def unmade(self, replies: BudgetReplies) -> ToolMessage:
        """The answer to a call that is not made."""
        verdict, artifact = self.verdict, None
        if verdict.what == "over":
            text = replies.over(self.kind, self._closed or {self.kind: verdict.limit or "idle"})
        elif verdict.of is not None:
            text, before = replies.repeat(verdict.of), self.remembered
            artifact = before.artifact if before is not None else []
        else:
            text, artifact = replies.twin(), []
        return ToolMessage(
            text,
            artifact=artifact,
            name=self._request.tool_call["name"],
            tool_call_id=self._request.tool_call["id"],
            status="error" if verdict.what == "over" else "success",
            additional_kwargs={MARK: {"what": verdict.what}},
        )


def accounted(ledger: Ledger, kind: Kind, call: Mapping[str, Any], answer: ToolMessage) -> Ledger:
    """The ledger after a call and its answer."""
    mark, text = answer.additional_kwargs.get(MARK) or {"what": "made"}, text_of(answer)
    if mark["what"] == "repeat":
        return replace(ledger.with_use(len(text)), idle=ledger.idle + 1)
    if mark["what"] != "made":
        return ledger.with_use(len(text))
    found = Evidence() if answer.status == "error" else evidence_of(text, answer.artifact)
    made = call_of(kind, call["args"], call["name"], found, call["id"] or "")
    if "refs" in mark:
        made = replace(made, refs=tuple(mark["refs"]), heads=tuple(mark["heads"]))
    told = tuple(mark.get("told", ()))
    if len(told) == len(ledger.told):
        told = tuple(map(max, told, ledger.told))
    ledger = ledger.with_call(made, len(text), 0.0, same=bool(mark.get("same")))
    return replace(ledger, told=told or ledger.told)


def ledger_of(state: Any) -> Ledger:
    """The account that a state holds; an empty one for none."""
    return Ledger.from_json(state.get(MARK) if isinstance(state, Mapping) else getattr(state, MARK, None))


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
    return f"{closed(content[:room])}\n{mark}"  # a passage stays within its fence


def with_line(content: Any, line: str) -> Any:
    """The content with a line behind it."""
    if not line:
        return content
    if isinstance(content, list):
        return [*content, {"type": "text", "text": line}]
    return f"{content}\n{line}" if content else line
