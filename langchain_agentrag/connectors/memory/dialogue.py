"""Messages of a session to its turns and tool calls: each call joined with its result, order as stored. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from langchain_agentrag.connectors.memory.messages import Message, Result
from langchain_agentrag.connectors.memory.turns import Entry, ToolCall, Turn
from langchain_agentrag.times import parse_time


@dataclass(frozen=True, slots=True)
class Recorded:
    """A message as it is stored.

    Attributes:
        message: What was said.
        entry_id: Its name within the session.
        stamp: When it was stored, for a message that does not say when it was said.
        extra: More metadata of its entries.
    """

    message: Message
    entry_id: str
    stamp: object = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """How messages are read.

    Attributes:
        zone: Zone of times without one.
        system: Whether system messages are memories too.
    """

    zone: tzinfo = UTC
    system: bool = False


def entries_of(
    session: str, messages: Iterable[Recorded], reading: Reading, problems: list[str] | None = None
) -> list[Entry]:
    """Turns and tool calls in stored order, numbered from 0.

    A message that speaks and calls tools is a turn and one tool call each; one that says nothing gives no turn. A
    result belongs to the last message with an open call of its id, one without an id with an open call of its tool,
    and of several such calls in it to the first; a result whose call is lost stands for itself.

    Args:
        session: Name of the session.
        messages: Its messages, oldest first.
        reading: How to read them.
        problems: Takes a sentence for each time that cannot be read.
    """
    joined = _Joined(session, reading, [] if problems is None else problems)
    for recorded in messages:
        joined.take(recorded)
    return [replace(entry, position=place) for place, entry in enumerate(joined.entries)]


def when(stamp: object, zone: tzinfo = UTC) -> datetime | None:
    """A time stamp of any make as a moment in UTC, None when there is none.

    Args:
        stamp: See `moments.moment`.
        zone: Zone of a stamp that does not say its own.

    Raises:
        ValueError: it is something, but no time.
    """
    if stamp is None or stamp == "":
        return None
    found = parse_time(stamp, zone)
    if found is None:
        raise ValueError(f"{str(stamp)[:60]!r} is no time")
    return found


class _Joined:
    """Entries so far, and where the calls are that still wait for a result."""

    def __init__(self, session: str, reading: Reading, problems: list[str]) -> None:
        self.entries: list[Entry] = []
        self._session, self._reading, self._problems = session, reading, problems
        self._open: list[int] = []

    def take(self, recorded: Recorded) -> None:
        message = recorded.message
        common: dict[str, Any] = {
            "session": self._session,
            "time": self._time(recorded),
            "extra": {**recorded.extra, **message.extra},
        }
        said = message.text.strip() or any(part != "thinking" for part in message.parts)
        if said and (message.role != "system" or self._reading.system):
            turn: dict[str, Any] = {
                "role": message.role,
                "text": message.text,
                "speaker": message.speaker,
                "parts": message.parts,
            }
            self.entries.append(Turn(entry_id=recorded.entry_id, **turn, **common))
        for number, call in enumerate(message.calls):
            self._open.append(len(self.entries))
            name = f"{recorded.entry_id}:call:{number}"
            made: dict[str, Any] = {"tool": call.tool, "arguments": call.arguments, "call_id": call.call_id}
            self.entries.append(ToolCall(entry_id=name, **made, **common))
        for number, result in enumerate(message.results):
            self._answer(result, f"{recorded.entry_id}:result:{number}", common)

    def _answer(self, result: Result, entry_id: str, common: Mapping[str, Any]) -> None:
        brought: dict[str, Any] = {"result": result.text, "outcome": result.outcome, "parts": result.parts}
        place = self._asked(result)
        if place is not None:
            call: Any = self.entries[place]
            self.entries[place] = replace(call, tool=call.tool or result.tool, **brought)
            self._open.remove(place)
            return
        lost = ToolCall(entry_id=entry_id, tool=result.tool, call_id=result.call_id, **brought, **common)
        self.entries.append(lost)

    def _asked(self, result: Result) -> int | None:
        """Where the call is that a result answers: results of one message's calls come in the order of the calls."""
        fitting = [place for place in self._open if _answers(result, self.entries[place])]
        if not fitting:
            return None
        last = _message_of(self.entries[fitting[-1]])
        return next(place for place in fitting if _message_of(self.entries[place]) == last)

    def _time(self, recorded: Recorded) -> datetime | None:
        for stamp in (recorded.message.stamp, recorded.stamp):
            try:
                found = when(stamp, self._reading.zone)
            except ValueError as error:
                self._problems.append(f"the time of entry {recorded.entry_id}: {error}")
            else:
                if found is not None:
                    return found
        return None


def _message_of(call: Entry) -> str:
    return call.entry_id.rpartition(":call:")[0]


def _answers(result: Result, call: Entry) -> bool:
    if not isinstance(call, ToolCall):
        return False
    if result.call_id is not None:
        return call.call_id == result.call_id
    return not result.tool or call.tool == result.tool
