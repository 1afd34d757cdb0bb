"""Conversion of a session's stored messages to turns and tool calls, each call joined with its result; no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from langchain_agentrag.connectors.memory.messages import Message, NotAMessageError, ToolResult, read_message
from langchain_agentrag.connectors.memory.turns import Entry, ToolCall, Turn
from langchain_agentrag.times import parse_time


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with what its storage adds to it.

    Attributes:
        message: The message.
        entry_id: Its name within the session.
        timestamp: When it was stored, for a message without a time of its own.
        extra: Further metadata of its entries.
    """

    message: Message
    entry_id: str
    timestamp: object = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading messages.

    Attributes:
        zone: Zone of times without one.
        system: Whether system messages are included.
    """

    zone: tzinfo = UTC
    system: bool = False


def stored_message(
    raw: object,
    entry_id: str,
    problems: list[str],
    *,
    encoded: bool = False,
    timestamp: object = None,
    extra: Mapping[str, Any] | None = None,
) -> list[StoredMessage]:
    """Read one stored message.

    Args:
        raw: The message.
        entry_id: Its name within the session.
        problems: Receives a sentence when it cannot be read.
        encoded: Whether it is JSON text, unless the driver has decoded it already.
        timestamp: When it was stored.
        extra: Further metadata.

    Returns:
        A list of one; empty for an unreadable message and for an instruction to remove one.
    """
    try:
        message = read_message(_decode(raw) if encoded else raw)
    except NotAMessageError as error:
        problems.append(f"entry {entry_id}: {error}")
        return []
    return [] if message is None else [StoredMessage(message, entry_id, timestamp, extra or {})]


def _decode(stored: Any) -> object:  # noqa: ANN401  (text, bytes, or decoded by the driver)
    if isinstance(stored, Mapping):
        return stored
    try:
        raw = json.loads(stored)
        return json.loads(raw) if isinstance(raw, str) else raw  # some are encoded twice
    except (ValueError, TypeError, RecursionError) as error:
        raise NotAMessageError(f"it is not JSON: {error}") from error


def entries_from_messages(
    session: str, messages: Iterable[StoredMessage], options: ReadOptions, problems: list[str] | None = None
) -> list[Entry]:
    """Convert messages to turns and tool calls in stored order, numbered from 0.

    A message with text and tool calls gives a turn and one tool call each; one without text or parts gives no turn. A
    result belongs to the last message with an open call of its id, one without an id to the last with an open call of
    its tool, and of several such calls in it to the first. A result whose call is lost is an entry of its own.

    Args:
        session: Name of the session.
        messages: Its messages, oldest first.
        options: How to read them.
        problems: Receives a sentence for each time that cannot be read.
    """
    builder = _EntryBuilder(session, options, [] if problems is None else problems)
    for message in messages:
        builder.add(message)
    return [replace(entry, position=position) for position, entry in enumerate(builder.entries)]


def parse_timestamp(timestamp: object, zone: tzinfo = UTC) -> datetime | None:
    """Parse a timestamp of any format of `times.parse_time`, in UTC; None or "" gives None.

    Raises:
        ValueError: it is not a time.
    """
    if timestamp is None or timestamp == "":
        return None
    time = parse_time(timestamp, zone)
    if time is None:
        raise ValueError(f"{str(timestamp)[:60]!r} is not a time")
    return time


class _EntryBuilder:
    """Entries so far, and the positions of the calls without a result."""

    def __init__(self, session: str, options: ReadOptions, problems: list[str]) -> None:
        self.entries: list[Entry] = []
        self._session, self._options, self._problems = session, options, problems
        self._open_calls: list[int] = []

    def add(self, stored: StoredMessage) -> None:
        message = stored.message
        common: dict[str, Any] = {
            "session": self._session,
            "time": self._time(stored),
            "extra": {**stored.extra, **message.extra},
        }
        has_content = message.text.strip() or any(part != "thinking" for part in message.parts)
        if has_content and (message.role != "system" or self._options.system):
            content: dict[str, Any] = {"role": message.role, "text": message.text, "parts": message.parts}
            turn = Turn(entry_id=stored.entry_id, speaker=message.speaker, **content, **common)
            self.entries.append(turn)
        for number, request in enumerate(message.calls):
            self._open_calls.append(len(self.entries))
            entry_id = f"{stored.entry_id}:call:{number}"
            call: dict[str, Any] = {"tool": request.tool, "arguments": request.arguments, "call_id": request.call_id}
            self.entries.append(ToolCall(entry_id=entry_id, **call, **common))
        for number, result in enumerate(message.results):
            self._add_result(result, f"{stored.entry_id}:result:{number}", common)

    def _add_result(self, result: ToolResult, entry_id: str, common: Mapping[str, Any]) -> None:
        completed: dict[str, Any] = {"result": result.text, "outcome": result.outcome, "parts": result.parts}
        position = self._matching_call(result)
        if position is not None:
            call: Any = self.entries[position]
            self.entries[position] = replace(call, tool=call.tool or result.tool, **completed)
            self._open_calls.remove(position)
            return
        lost = ToolCall(entry_id=entry_id, tool=result.tool, call_id=result.call_id, **completed, **common)
        self.entries.append(lost)

    def _matching_call(self, result: ToolResult) -> int | None:
        """Return the position of the call a result answers; results of one message are in the order of its calls."""
        matching = [position for position in self._open_calls if _answers(result, self.entries[position])]
        if not matching:
            return None
        last = _message_id(self.entries[matching[-1]])
        return next(position for position in matching if _message_id(self.entries[position]) == last)

    def _time(self, stored: StoredMessage) -> datetime | None:
        for timestamp in (stored.message.timestamp, stored.timestamp):
            try:
                time = parse_timestamp(timestamp, self._options.zone)
            except ValueError as error:
                self._problems.append(f"the time of entry {stored.entry_id}: {error}")
            else:
                if time is not None:
                    return time
        return None


def _message_id(call: Entry) -> str:
    return call.entry_id.rpartition(":call:")[0]


def _answers(result: ToolResult, call: Entry) -> bool:
    if not isinstance(call, ToolCall):
        return False
    if result.call_id is not None:
        return call.call_id == result.call_id
    return not result.tool or call.tool == result.tool
