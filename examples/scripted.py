"""Models that answer from a script instead of a network, and the printing of conversations. Replace them with yours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

Step = AIMessage | Callable[[Sequence[BaseMessage]], AIMessage]


class ScriptedModel(BaseChatModel):
    """A LangChain chat model that takes one step of a script per call: a message, or a function of the conversation."""

    steps: list[Any]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_options: Any) -> ScriptedModel:
        """Return the model unchanged: the script knows its tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *_args: Any, **_options: Any) -> ChatResult:
        step = self.steps.pop(0)
        return ChatResult(generations=[ChatGeneration(message=step(messages) if callable(step) else step)])


def call(tool: str, **arguments: Any) -> AIMessage:
    """Return a message in which the model calls a tool."""
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": f"call-{tool}", "type": "tool_call"}])


def answer_from_tool(messages: Sequence[BaseMessage]) -> AIMessage:
    """Return an answer that repeats what the last tool replied."""
    reply = messages[-1]
    assert isinstance(reply, ToolMessage), reply
    return AIMessage(f"Answer 回答: {reply.text}")


def show(title: str, messages: Sequence[BaseMessage]) -> None:
    """Print a conversation, one message per paragraph."""
    print(f"\n== {title} ==")
    for message in messages:
        for request in getattr(message, "tool_calls", []):
            print(f"[{message.type}] → {request['name']}({request['args']})")
        if message.text:
            print(f"[{message.type}] {message.text}")
