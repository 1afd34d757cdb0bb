"""A chat model that follows a script, for agents without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

Step = AIMessage | Callable[[Sequence[BaseMessage]], AIMessage]


class ScriptedModel(BaseChatModel):
    """Answers with the next step of a script: a message, or a function of the conversation so far.

    Attributes:
        steps: The script.
    """

    steps: list[Any]
    _at: int = PrivateAttr(default=0)
    _tools: list[Any] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def tools(self) -> list[Any]:
        """The tools the agent offered."""
        return self._tools

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> ScriptedModel:
        self._tools = list(tools)
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        step = self.steps[min(self._at, len(self.steps) - 1)]
        self._at += 1
        message = step(messages) if callable(step) else step
        return ChatResult(generations=[ChatGeneration(message=message)])


def calls(name: str, number: int = 1, **arguments: Any) -> AIMessage:
    """A message that calls one tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call-{number}", "type": "tool_call"}])
