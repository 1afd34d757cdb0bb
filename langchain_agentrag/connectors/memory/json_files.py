"""OpenAI-format logs, one JSON object per line: a message, a message in an envelope, or a whole conversation."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.backend import (
    Backend,
    FoundSession,
    MemorySession,
    digest,
    recorded,
    within,
)
from langchain_agentrag.connectors.memory.dialogue import Reading, Recorded, entries_of
from langchain_agentrag.connectors.memory.messages import looks_like_message
from langchain_agentrag.errors import ConnectorError, UsageError

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
            yield FoundSession(session, found.hash.hexdigest(), partial(_load_lines, name, found, reading))

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


def _load_lines(session: str, found: _Session, reading: Reading, problems: list[str]) -> list[Entry]:
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


KIND: Final = "json"
_LINES: Final = (".jsonl", ".ndjson")
_SUFFIXES: Final = (".json", *_LINES)
_WRAPPINGS: Final = ("chat_store", "value", "state", "state_data", "_data", "memory")
"""What a dumped chat store may sit in: a buffer, a component, the context of a workflow."""


class JsonHistories(Backend):
    """Histories in a file, or in the JSON files of a folder and those below it."""

    kind = KIND

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def __repr__(self) -> str:
        return repr(str(self._path))

    @property
    def place(self) -> str:
        """Name of the file or folder, and digest of where it is."""
        return f"{self._path.stem or 'root'}:{digest(str(self._path.resolve()))[:8]}"

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession | Gap]:
        """Sessions of every file; lines of several files that name one session belong together.

        Raises:
            ConnectorError: the file or folder cannot be read.
        """
        del agent_id
        lines = Lines()
        for name, path in self._files():
            try:
                yield from self._file(name, path, lines, reading)
            except OSError as error:
                raise ConnectorError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error
        yield from lines.sessions(reading)

    def _files(self) -> Iterator[tuple[str, Path]]:
        if not self._path.is_dir():
            yield self._path.stem, self._path
            return
        for path in sorted(self._path.rglob("*")):
            if path.suffix.lower() in _SUFFIXES and path.is_file():
                yield path.relative_to(self._path).with_suffix("").as_posix(), path

    def _file(self, name: str, path: Path, lines: Lines, reading: Reading) -> Iterator[FoundSession | Gap]:
        if _is_lines(path):
            reason = yield from lines.add(name, path)
            if reason and path == self._path:
                raise self._unreadable(f"holds nothing that can be read: {reason}")
            return
        try:
            content = json.loads(path.read_bytes().decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            # it may be half written: what was stored of it stays
            yield self._unread(name, f"holds no JSON: {error}", skipped=False)
            return
        histories = _histories(content, name)
        if histories is None:
            yield self._unread(name, "holds no chat history of a known form", skipped=True)
            return
        agent = agent_of(content) if isinstance(content, Mapping) else None
        for key, messages in histories:
            if path == self._path:
                yield given_session(key, messages, reading, agent)
            else:
                session = key if key == name else f"{name}/{key}"
                yield given_session(session, messages, reading, agent, within=name)

    def _unread(self, name: str, reason: str, *, skipped: bool) -> Gap:
        if not self._path.is_dir():
            raise self._unreadable(reason)
        return Gap(name if skipped else within(name), reason, skipped=skipped)

    def _unreadable(self, reason: str) -> ConnectorError:
        return ConnectorError(
            f"Cannot read memory from {str(self._path)!r}: it {reason}. Nothing was deleted on its account. Known "
            "are chat stores and buffers of LlamaIndex, arrays of messages and OpenAI-format JSON Lines."
        )


class GivenHistories:
    """Histories of a LlamaIndex object: a `SimpleChatStore`, or what holds one."""

    kind = KIND
    place = label = ""  # in memory: it has no name of its own

    def __init__(self, source: Any) -> None:  # noqa: ANN401  (see is_given)
        self._source = source

    def __repr__(self) -> str:
        return type(self._source).__name__

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession | Gap]:
        """One session per key of the store."""
        del agent_id
        store = getattr(self._source, "chat_store", self._source)
        for key, messages in list(store.store.items()):
            yield given_session(str(key), list(messages), reading, None)


def is_given(source: object) -> bool:
    """Whether something is a `SimpleChatStore`, or a memory buffer over one."""
    return isinstance(getattr(getattr(source, "chat_store", source), "store", None), dict)


def check_file(path: Path) -> None:
    """Refuse a path that is neither a folder nor a file.

    Raises:
        UsageError: there is nothing there.
    """
    if not path.exists():
        raise UsageError(
            f"Cannot read memory from {str(path)!r}: there is no such file or folder. A database needs a URL, such as "
            "'sqlite:///memory.db'."
        )


def given_session(
    name: str, messages: list[Any], reading: Reading, agent: str | None, *, within: str = ""
) -> FoundSession:
    """A session whose messages are at hand."""
    session = MemorySession(name, KIND, (), agent)
    return FoundSession(session, digest(messages), partial(_load, name, messages, reading), within=within)


def _load(session: str, messages: list[Any], reading: Reading, problems: list[str]) -> list[Entry]:
    found: list[Recorded] = []
    for place, raw in enumerate(messages):
        found += recorded(raw, str(place), problems)
    return entries_of(session, found, reading, problems)


def _is_lines(path: Path) -> bool:
    """Whether a file holds one JSON object per line rather than one document."""
    if path.suffix.lower() in _LINES:
        return True
    with path.open("rb") as file:
        told = [line for line in (file.readline(), file.readline()) if line.strip()]
    try:
        first = json.loads(told[0].decode("utf-8-sig")) if told else None
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and (len(told) > 1 or looks_like_message(first) or is_record(first))


def _histories(content: object, name: str) -> list[tuple[str, list[Any]]] | None:
    """Session and messages of a dumped document; None when it is of no known form."""
    content = _decoded(content)
    if isinstance(content, list):
        return [(name, content)] if all(isinstance(raw, Mapping) for raw in content) else None
    if not isinstance(content, Mapping):
        return None
    if isinstance(content.get("store"), Mapping):
        return [(str(key), held) for key, held in content["store"].items() if isinstance(held, list)]
    if isinstance(content.get("chat_history"), list):
        return [("chat_history", content["chat_history"])]
    if isinstance(content.get("messages"), list):
        return [(name, content["messages"])]
    inner = next((content[key] for key in _WRAPPINGS if key in content), None)
    return None if inner is None else _histories(inner, name)


def _decoded(content: object) -> object:
    """A document that was encoded twice, as older versions did, once more decoded."""
    try:
        return json.loads(content) if isinstance(content, str) else content
    except (ValueError, RecursionError):
        return None
