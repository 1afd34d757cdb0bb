"""Chat histories in JSON: files of LlamaIndex and LangChain, OpenAI-format logs, and LlamaIndex objects in memory.

A log is a JSON Lines file; each line is a message, a message in an envelope, or a conversation (the messages of a
request and its answer).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.backend import Backend, ListedSession, MemorySession, digest, file_key_prefix
from langchain_agentrag.connectors.memory.dialogue import (
    ReadOptions,
    StoredMessage,
    entries_from_messages,
    stored_message,
)
from langchain_agentrag.connectors.memory.messages import looks_like_message
from langchain_agentrag.errors import ConnectorError

if TYPE_CHECKING:
    from langchain_agentrag.connectors.memory.turns import Entry

KIND: Final = "json"
_LINES_SUFFIXES: Final = (".jsonl", ".ndjson")
_SUFFIXES: Final = (".json", *_LINES_SUFFIXES)
_CONTAINER_FIELDS: Final = ("chat_store", "value", "state", "state_data", "_data", "memory")
"""Fields that a dumped chat store may be nested in: of a buffer, a component, the context of a workflow."""
_SESSION_FIELDS: Final = ("session_id", "sessionId", "session", "thread_id", "conversation_id", "chat_id")
_TIMESTAMP_FIELDS: Final = ("timestamp", "created_at", "created", "time", "ts")
_REQUEST_PATHS: Final[tuple[tuple[str, ...], ...]] = (
    ("messages",),
    ("body", "messages"),
    ("request", "messages"),
    ("request", "body", "messages"),
    ("input",),
)
"""Where a line holds the messages of a conversation."""
_ANSWER_PATHS: Final[tuple[tuple[str | int, ...], ...]] = (
    ("choices", 0, "message"),
    ("response", "choices", 0, "message"),
    ("response", "body", "choices", 0, "message"),
)
"""Where a line holds the answer to it."""


class JsonHistories(Backend):
    """Histories in a file, or in the JSON files below a folder."""

    kind = KIND

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return repr(str(self._path))

    @property
    def place(self) -> str:
        """Name of the file or folder, and digest of its path."""
        return f"{self._path.stem or 'root'}:{digest(str(self._path.resolve()))[:8]}"

    def sessions(self, options: ReadOptions, agent_id: str | None) -> Iterator[ListedSession | Gap]:
        """List the sessions of every file; lines of several files with the same session are one session.

        Raises:
            ConnectorError: the file or folder cannot be read.
        """
        del agent_id
        logs = _Logs()
        for name, path in self._files():
            try:
                yield from self._file_sessions(name, path, logs, options)
            except OSError as error:
                raise ConnectorError(f"Cannot read {str(path)!r}: {error.strerror or error}.") from error
        yield from logs.sessions(options)

    def _files(self) -> Iterator[tuple[str, Path]]:
        if not self._path.is_dir():
            yield self._path.stem, self._path
            return
        for path in sorted(self._path.rglob("*")):
            if path.suffix.lower() in _SUFFIXES and path.is_file():
                yield path.relative_to(self._path).with_suffix("").as_posix(), path

    def _file_sessions(self, name: str, path: Path, logs: _Logs, options: ReadOptions) -> Iterator[ListedSession | Gap]:
        if _is_json_lines(path):
            reason = yield from logs.add(name, path)
            if reason and path == self._path:
                raise self._error(f"holds nothing that can be read: {reason}")
            return
        try:
            content = json.loads(path.read_bytes().decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            # it may be half written: what is stored of it must stay
            yield self._gap(name, f"is not JSON: {error}", skipped=False)
            return
        histories = _histories(content, name)
        if histories is None:
            yield self._gap(name, "holds no chat history of a known format", skipped=True)
            return
        agent = _agent(content) if isinstance(content, Mapping) else None
        for key, messages in histories:
            if path == self._path:
                yield _listed_session(key, messages, options, agent)
            else:
                session = key if key == name else f"{name}/{key}"
                yield _listed_session(session, messages, options, agent, file=name)

    def _gap(self, name: str, reason: str, *, skipped: bool) -> Gap:
        if not self._path.is_dir():
            raise self._error(reason)
        return Gap(name if skipped else file_key_prefix(name), reason, skipped=skipped)

    def _error(self, reason: str) -> ConnectorError:
        return ConnectorError(
            f"Cannot read memory from {str(self._path)!r}: it {reason}. Nothing was deleted. Known formats "
            "are chat stores and buffers of LlamaIndex, arrays of messages and OpenAI-format JSON Lines."
        )


class LlamaIndexHistories:
    """Histories of a LlamaIndex object: a `SimpleChatStore`, or a memory buffer over one."""

    kind = KIND
    place = label = ""  # in memory: it has no identity

    def __init__(self, source: Any) -> None:  # noqa: ANN401  (see is_llama_index_store)
        self._source = source

    def __repr__(self) -> str:
        return type(self._source).__name__

    def sessions(self, options: ReadOptions, agent_id: str | None) -> Iterator[ListedSession | Gap]:
        """List one session per key of the store."""
        del agent_id
        store = getattr(self._source, "chat_store", self._source)
        for key, messages in list(store.store.items()):
            yield _listed_session(str(key), list(messages), options, None)


def is_llama_index_store(source: object) -> bool:
    """Return whether a value is a `SimpleChatStore`, or a memory buffer over one."""
    return isinstance(getattr(getattr(source, "chat_store", source), "store", None), dict)


# -- one document per file --------------------------------------------------------------------------------------------


def _listed_session(
    name: str, messages: list[Any], options: ReadOptions, agent: str | None, *, file: str = ""
) -> ListedSession:
    session = MemorySession(name, KIND, (), agent)
    return ListedSession(session, digest(messages), partial(_load, name, messages, options), file=file)


def _load(session: str, raw_messages: list[Any], options: ReadOptions, problems: list[str]) -> list[Entry]:
    messages: list[StoredMessage] = []
    for position, raw in enumerate(raw_messages):
        messages += stored_message(raw, str(position), problems)
    return entries_from_messages(session, messages, options, problems)


def _is_json_lines(path: Path) -> bool:
    """Return whether a file holds one JSON object per line rather than one document."""
    if path.suffix.lower() in _LINES_SUFFIXES:
        return True
    with path.open("rb") as file:
        lines = [line for line in (file.readline(), file.readline()) if line.strip()]
    try:
        first = _parse_line(lines[0]) if lines else None
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and (len(lines) > 1 or looks_like_message(first) or _is_conversation(first))


def _histories(content: object, name: str) -> list[tuple[str, list[Any]]] | None:
    """Return the sessions of a document with their messages; None when its format is unknown."""
    try:
        content = json.loads(content) if isinstance(content, str) else content  # older versions encode it twice
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, list):
        return [(name, content)] if all(isinstance(raw, Mapping) for raw in content) else None
    if not isinstance(content, Mapping):
        return None
    if isinstance(content.get("store"), Mapping):
        return [(str(key), value) for key, value in content["store"].items() if isinstance(value, list)]
    if isinstance(content.get("chat_history"), list):
        return [("chat_history", content["chat_history"])]
    if isinstance(content.get("messages"), list):
        return [(name, content["messages"])]
    inner = next((content[key] for key in _CONTAINER_FIELDS if key in content), None)
    return None if inner is None else _histories(inner, name)


# -- one record per line ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _LogSession:
    """Metadata, digest and lines of a session; a line is the file's name and path, its offset and its number."""

    metadata: Mapping[str, Any]
    hash: Any = field(default_factory=hashlib.sha256)
    lines: list[tuple[str, Path, int, int]] = field(default_factory=list)


class _Logs:
    """Sessions of the lines of any number of files; the lines are read again when a session is loaded."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str | None], _LogSession] = {}

    def add(self, name: str, path: Path) -> Generator[Gap, None, str]:
        """Add the lines of a file and yield those that cannot be read as gaps.

        Returns:
            Why nothing in it can be read, or "".

        Raises:
            OSError: the file cannot be read.
        """
        unknown, offset, added, reason = 0, 0, 0, ""
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                start, offset = offset, offset + len(line)
                if not line.strip():
                    continue
                try:
                    record = _parse_line(line)
                except (ValueError, RecursionError) as error:
                    unfinished = not line.endswith(b"\n")
                    reason = "is still being written" if unfinished else f"is not JSON: {error}"
                    yield Gap(f"{name}:{number}", reason, skipped=unfinished)
                    continue
                if not isinstance(record, Mapping) or not (_message(record) or _is_conversation(record)):
                    unknown += 1
                    continue
                session = self._session(record, name, number)
                session.hash.update(line)
                session.lines.append((name, path, start, number))
                added += 1
        if unknown:
            reason = f"{unknown} line(s) hold neither a message nor a conversation"
            yield Gap(name, reason, skipped=True)
        return "" if added else reason

    def sessions(self, options: ReadOptions) -> Iterator[ListedSession]:
        """List the sessions, in order of their first lines."""
        for (name, agent), log in self._sessions.items():
            session = MemorySession(name, KIND, (), agent, log.metadata)
            yield ListedSession(session, log.hash.hexdigest(), partial(_load_lines, name, log, options))

    def _session(self, record: Mapping[str, Any], name: str, number: int) -> _LogSession:
        session = _first_name(record, _SESSION_FIELDS)
        if session is None and _is_conversation(record):
            session = _first_name(record, ("custom_id", "id")) or f"{name}:{number}"
        return self._sessions.setdefault((session or name, _agent(record)), _LogSession(_metadata(record)))


def _load_lines(session: str, log: _LogSession, options: ReadOptions, problems: list[str]) -> list[Entry]:
    messages: list[StoredMessage] = []
    history: list[Any] = []  # raw messages of earlier conversations, which later ones repeat
    for name, path, start, number in log.lines:
        with path.open("rb") as file:
            file.seek(start)
            record = _parse_line(file.readline())
        timestamp = next((record[key] for key in _TIMESTAMP_FIELDS if record.get(key) is not None), None)
        if _is_conversation(record):
            for raw in _new_messages(history, _conversation(record)):
                messages += stored_message(raw, f"{len(history)}", problems, timestamp=timestamp)
                history.append(raw)
        else:
            messages += stored_message(_message(record), f"{name}:{number}", problems, timestamp=timestamp)
    return entries_from_messages(session, messages, options, problems)


def _new_messages(history: list[Any], conversation: list[Any]) -> list[Any]:
    """Return the messages a conversation adds: all behind its longest beginning that is the end of the history."""
    if history:
        conversation = [raw for raw in conversation if not (_is_system(raw) and raw in history)]
    before = [raw for raw in history if not _is_system(raw)]
    for length in range(min(len(before), len(conversation)), 0, -1):
        if before[-length:] == conversation[:length]:
            return conversation[length:]
    return conversation


def _is_conversation(record: Mapping[str, Any]) -> bool:
    return bool(_request(record)) or any(_value_at(record, path) for path in _ANSWER_PATHS)


def _conversation(record: Mapping[str, Any]) -> list[Any]:
    answers = [answer for path in _ANSWER_PATHS if (answer := _value_at(record, path))]
    return [*_request(record), *answers[:1]]


def _request(record: Mapping[str, Any]) -> list[Any]:
    for path in _REQUEST_PATHS:
        messages = _value_at(record, path)
        if isinstance(messages, list) and messages and all(isinstance(raw, Mapping) for raw in messages):
            return messages
    return []


def _message(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the message in an envelope, or the record when it is a message itself."""
    inner = record.get("message")
    if isinstance(inner, Mapping) and looks_like_message(inner):
        return inner
    return record if looks_like_message(record) else None


def _value_at(record: object, path: tuple[str | int, ...]) -> Any:  # noqa: ANN401  (any JSON value)
    for step in path:
        if isinstance(step, str):
            record = record.get(step) if isinstance(record, Mapping) else None
        else:
            record = record[step] if isinstance(record, list) and len(record) > step else None
    return record


def _is_system(raw: object) -> bool:
    return isinstance(raw, Mapping) and raw.get("role") in {"system", "developer"}


def _agent(record: Mapping[str, Any]) -> str | None:
    return _first_name(record, ("agent_id",))


def _first_name(record: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """Return the first non-empty text or integer under one of the keys, in a record or in its `metadata`."""
    inner = record.get("metadata")
    for fields in (record, inner if isinstance(inner, Mapping) else {}):
        for key in keys:
            if isinstance(value := fields.get(key), str | int) and not isinstance(value, bool) and value != "":
                return str(value)
    return None


def _metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `metadata` and the scalar fields of a record, without the content of a message."""
    inner = record.get("metadata")
    scalars = {key: value for key, value in record.items() if isinstance(value, str | int | float | bool)}
    scalars.pop("content", None)
    return {**(inner if isinstance(inner, Mapping) else {}), **scalars}


def _parse_line(line: bytes) -> Any:  # noqa: ANN401  (any JSON value)
    return json.loads(line.decode("utf-8-sig"))
