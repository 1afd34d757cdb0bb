"""The events that LlamaIndex dispatches, recorded in order."""

from __future__ import annotations

from llama_index.core.instrumentation.event_handlers import BaseEventHandler


class EventRecorder(BaseEventHandler):
    """Event handler that records each event."""

    events: list = []  # noqa: RUF012  pydantic copies it

    @classmethod
    def class_name(cls) -> str:
        return "EventRecorder"

    def handle(self, event, **_kwargs):
        self.events.append(event)
