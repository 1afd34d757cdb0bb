"""OpenAI-format logs, one JSON object per line: a message, a message in an envelope, or a whole conversation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.backend import FoundSession, MemorySession, recorded
from langchain_agentrag.connectors.memory.dialogue import Reading, Recorded, entries_of
from langchain_agentrag.connectors.memory.messages import looks_like_message

if TYPE_CHECKING:
    from langchain_agentrag.connectors.memory.turns import Entry

_SESSIONS: Final = ("session_id", "sessionId", "session", "thread_id", "conversation_id", "chat_id")
_STAMPS: Final = ("timestamp", "created_at", "created", "time", "ts")
_ASKED: Final[tuple[tuple[str, ...], ...]] = (
    ("messages",),
    ("body", "messages"),
    ("request", "messages"),
    ("request", "body", "messages"),
    ("input",),
)
"""Where a record keeps the messages of a conversation."""
_ANSWERED: Final[tuple[tuple[str | int, ...], ...]] = (
    ("choices", 0, "message"),
    ("response", "choices", 0, "message"),
    ("response", "body", "choices", 0, "message"),
)
"""Where it keeps the answer."""


@dataclass(slots=True)
class _Session:
    """Where the lines of a session are: file, offset and number."""

    metadata: Mapping[str, Any]
    hash: Any = field(default_factory=hashlib.sha256)
    lines: list[tuple[str, Path, int, int]] = field(default_factory=list)


class Lines:
    """Sessions of the lines of any number of files; texts are read again when they are asked for."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str | None], _Session] = {}

    def add(self, name: str, path: Path) -> Generator[Gap, None, str]:
        """Take in a file; what cannot be read of it is given as gaps. Returns why, when that is all there is.

        Raises:
            OSError: the file cannot be read.
        """
        foreign, offset, taken, reason = 0, 0, 0, ""
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                start, offset = offset, offset + len(line)
                if not line.strip():
                    continue
                try:
                    record = _parsed(line)
                except (ValueError, RecursionError) as error:
                    unfinished = not line.endswith(b"\n")
                    reason = "is still being written" if unfinished else f"holds no JSON: {error}"
                    yield Gap(f"{name}:{number}", reason, skipped=unfinished)
                    continue
                if not isinstance(record, Mapping) or not (_wrapped(record) or is_record(record)):
                    foreign += 1
                    continue
                self._note(record, name, path, start, number, line)
                taken += 1
        if foreign:
            reason = f"{foreign} line(s) hold neither a message nor a conversation"
            yield Gap(name, reason, skipped=True)
        return "" if taken else reason

    def sessions(self, reading: Reading) -> Iterator[FoundSession]:
        """The sessions, in order of their first lines."""
        for (name, agent), found in self._found.items():
            session = MemorySession(name, "json", (), agent, found.metadata)
            yield FoundSession(session, found.hash.hexdigest(), partial(_load, name, found, reading))

    def _note(
        self, record: Mapping[str, Any], name: str, path: Path, start: int, number: int, line: bytes
    ) -> None:
        session = _named(record, _SESSIONS)
        if session is None and is_record(record):
            session = _named(record, ("custom_id", "id")) or f"{name}:{number}"
        known = self._found.setdefault((session or name, agent_of(record)), _Session(_metadata(record)))
        known.hash.update(line)
        known.lines.append((name, path, start, number))


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether a line holds a conversation."""
    return bool(_asked(record)) or any(_at(record, way) for way in _ANSWERED)


def agent_of(record: Mapping[str, Any]) -> str | None:
    """The agent a record names, or None."""
    return _named(record, ("agent_id",))


def _load(session: str, found: _Session, reading: Reading, problems: list[str]) -> list[Entry]:
    messages: list[Recorded] = []
    said: list[Any] = []  # of conversations, which repeat what was said before
    for name, path, start, number in found.lines:
        with path.open("rb") as file:
            file.seek(start)
            record = _parsed(file.readline())
        stamp = next((record[key] for key in _STAMPS if record.get(key) is not None), None)
        if is_record(record):
            for raw in _new(said, _conversation(record)):
                messages += recorded(raw, f"{len(said)}", problems, stamp=stamp)
                said.append(raw)
        else:
            messages += recorded(_wrapped(record), f"{name}:{number}", problems, stamp=stamp)
    return entries_of(session, messages, reading, problems)


def _new(said: list[Any], conversation: list[Any]) -> list[Any]:
    """What a conversation adds to what was said: all but its longest beginning that is the end of it."""
    if said:
        conversation = [
            raw for raw in conversation if not (_role(raw) in {"system", "developer"} and raw in said)
        ]
    before = [raw for raw in said if _role(raw) not in {"system", "developer"}]
    for length in range(min(len(before), len(conversation)), 0, -1):
        if before[-length:] == conversation[:length]:
            return conversation[length:]
    return conversation


def _conversation(record: Mapping[str, Any]) -> list[Any]:
    answers = [answer for way in _ANSWERED if (answer := _at(record, way))]
    return [*_asked(record), *answers[:1]]


def _asked(record: Mapping[str, Any]) -> list[Any]:
    for way in _ASKED:
        found = _at(record, way)
        if isinstance(found, list) and found and all(isinstance(raw, Mapping) for raw in found):
            return found
    return []


def _wrapped(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The message a line is, or the one it holds."""
    inner = record.get("message")
    if isinstance(inner, Mapping) and looks_like_message(inner):
        return inner
    return record if looks_like_message(record) else None


def _at(record: object, way: tuple[str | int, ...]) -> Any:  # noqa: ANN401  (whatever is there)
    for step in way:
        if isinstance(step, str):
            record = record.get(step) if isinstance(record, Mapping) else None
        else:
            record = record[step] if isinstance(record, list) and len(record) > step else None
    return record


def _role(raw: object) -> object:
    return raw.get("role") if isinstance(raw, Mapping) else None


def _named(record: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of some fields that names something, in a record or in its `metadata`."""
    inner = record.get("metadata")
    for place in (record, inner if isinstance(inner, Mapping) else {}):
        for key in keys:
            if isinstance(value := place.get(key), str | int) and not isinstance(value, bool) and value != "":
                return str(value)
    return None


def _metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a record that say something about it, and not what was said."""
    inner = record.get("metadata")
    plain = {key: value for key, value in record.items() if isinstance(value, str | int | float | bool)}
    plain.pop("content", None)
    return {**(inner if isinstance(inner, Mapping) else {}), **plain}


def _parsed(line: bytes) -> Any:  # noqa: ANN401  (whatever JSON holds)
    return json.loads(line.decode("utf-8-sig"))
