"""Messages in the state of a LangChain agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage


def messages_of(state: Any) -> list[Any]:
    """Return the messages of a state: a mapping, an object with `messages`, or the list of messages itself."""
    messages = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", state)
    return list(messages) if isinstance(messages, list | tuple) else []


def calling_message(state: Any, call_id: str | None) -> AIMessage | None:
    """Return the model's last message that makes a tool call of this id: some models reuse ids in later messages."""
    for message in reversed(messages_of(state)):
        if isinstance(message, AIMessage) and any(call["id"] == call_id for call in message.tool_calls):
            return message
    return None
