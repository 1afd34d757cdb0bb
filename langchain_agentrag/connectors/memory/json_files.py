"""Chat histories in JSON: LlamaIndex's chat stores and buffers, arrays of messages, OpenAI-format JSON Lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
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
from langchain_agentrag.connectors.memory.json_lines import Lines, agent_of, is_record
from langchain_agentrag.connectors.memory.messages import looks_like_message
from langchain_agentrag.errors import ConnectorError, UsageError

if TYPE_CHECKING:
    from langchain_agentrag.connectors.memory.turns import Entry

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
