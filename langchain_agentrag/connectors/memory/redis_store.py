"""Chat histories in Redis: LangChain's lists and JSON documents, LlamaIndex's lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.backend import (
    Backend,
    FoundSession,
    MemorySession,
    digest,
    recorded,
)
from langchain_agentrag.connectors.memory.dialogue import Reading, entries_of
from langchain_agentrag.connectors.memory.langchain_sql import opened
from langchain_agentrag.errors import ConnectorError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from langchain_agentrag.connectors.memory.turns import Entry

LANGCHAIN: Final = "langchain-redis"
LLAMAINDEX: Final = "llamaindex-redis"
_LIST_PREFIX, _JSON_PREFIX = "message_store:", "chat:"
_Form = Literal["langchain list", "langchain json", "llamaindex list"]
_KINDS: Final[dict[_Form, str]] = {
    "langchain list": LANGCHAIN,
    "langchain json": LANGCHAIN,
    "llamaindex list": LLAMAINDEX,
}


class RedisHistories(Backend):
    """Histories below a prefix. Keys that hold something else, of which a Redis is full, are passed over.

    Args:
        source: A URL, or a client.
        backend: Which of the two formats, or None for the one that is there.
        prefix: First part of the keys, or None for the usual ones.
    """

    def __init__(self, source: Any, backend: str | None, prefix: str | None) -> None:  # noqa: ANN401  (see Args)
        self._client, self._prefix = _client(source), prefix
        self._asked = backend

    def __repr__(self) -> str:
        return f"Redis {self._address()}"

    @property
    def kind(self) -> str:
        """The format that is asked for, or LangChain's."""
        return self._asked or LANGCHAIN

    @property
    def place(self) -> str:
        """Digest of the server, the database and the prefix."""
        return f"redis:{digest(self._address(), self._prefix)[:8]}"

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession | Gap]:
        """One session per history.

        Raises:
            ConnectorError: the server does not answer.
            UsageError: it holds histories of both frameworks, and none was named.
        """
        del agent_id
        with _answering(self):
            yield from self._sessions(reading)

    def _sessions(self, reading: Reading) -> Iterator[FoundSession | Gap]:
        found: dict[tuple[_Form, str], dict[str, str]] = {}
        for key in sorted(map(_text, self._client.scan_iter(match=f"{_literal(self._prefix or '')}*"))):
            form, stored = self._read(key)
            if form is not None:
                found.setdefault((form, self._session(key, form, stored)), {})[key] = digest(stored)
        if len({_KINDS[form] for form, _ in found}) > 1:
            raise UsageError(
                f"{self!r} holds histories of LangChain and of LlamaIndex: pass backend={LANGCHAIN!r} or "
                f"backend={LLAMAINDEX!r}, or the prefix of the keys you mean."
            )
        for (form, name), keys in sorted(found.items()):
            load = partial(self._load, form, name, list(keys), reading)
            yield FoundSession(MemorySession(name, _KINDS[form]), digest(form, keys), load)

    def _load(
        self, form: _Form, name: str, keys: list[str], reading: Reading, problems: list[str]
    ) -> list[Entry]:
        with _answering(self):
            parts = [(key, stored) for key in keys if (stored := self._read(key)[1])]
        messages = []
        for place, stored in _ordered(form, parts):
            raw = opened(stored, f"message {place}", problems)
            if raw is not None:
                messages += recorded(raw, place, problems)
        return entries_of(name, messages, reading, problems)

    def _read(self, key: str) -> tuple[_Form | None, list[Any]]:
        """What a key holds, if it is a history that is asked for."""
        kind = _text(self._client.type(key))
        if kind == "list":
            first = _parsed(self._client.lindex(key, 0))
            form: _Form | None = None
            if isinstance(first, dict) and "data" in first and "type" in first:
                form = "langchain list" if key.startswith(self._prefix or _LIST_PREFIX) else None
            elif isinstance(first, dict) and "role" in first:
                form = "llamaindex list"
            if form is None or not self._wanted(form):
                return None, []
            return form, [_text(element) for element in self._client.lrange(key, 0, -1)]
        if (
            kind == "ReJSON-RL"
            and key.startswith(self._prefix or _JSON_PREFIX)
            and self._wanted("langchain json")
        ):
            document = self._client.json().get(key)
            if isinstance(document, dict) and {"session_id", "type", "data"} <= document.keys():
                return "langchain json", [document]
        return None, []

    def _wanted(self, form: _Form) -> bool:
        return self._asked is None or self._asked == _KINDS[form]

    def _session(self, key: str, form: _Form, stored: list[Any]) -> str:
        if form == "langchain json":
            return str(stored[0]["session_id"])
        prefix = (
            self._prefix if self._prefix is not None else _LIST_PREFIX if form == "langchain list" else ""
        )
        return key.removeprefix(prefix)

    def _address(self) -> str:
        """Server and database, without a password."""
        options = self._client.get_connection_kwargs()
        place = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        return f"{place}/{options.get('db') or 0}"


def is_client(source: object) -> bool:
    """Whether something is a synchronous Redis client."""
    return all(
        callable(getattr(source, name, None)) for name in ("lrange", "scan_iter", "get_connection_kwargs")
    )


def is_url(source: object) -> bool:
    """Whether something is a URL of a Redis server."""
    return isinstance(source, str) and source.startswith(("redis://", "rediss://", "unix://"))


def _client(source: Any) -> Any:  # noqa: ANN401
    if is_client(source):
        return source
    try:
        from redis import Redis
    except ImportError as error:
        raise MissingExtraError("Memory in Redis", "memory") from error
    try:
        return Redis.from_url(source)
    except ValueError as error:
        raise UsageError(f"Cannot read a Redis URL from what was given: {error}.") from error


class _answering:  # noqa: N801  (used as a function)
    """Errors of Redis as ConnectorError."""

    def __init__(self, histories: RedisHistories) -> None:
        self._histories = histories

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and type(error).__module__.startswith("redis"):
            raise ConnectorError(
                f"Cannot read {self._histories!r}: {type(error).__name__}: {error}. Check that it runs, and the URL."
            ) from error


def _ordered(form: str, parts: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    """The stored messages of a session, oldest first, each with its name."""
    if (
        form == "langchain json"
    ):  # one key per message, named by a ULID, which grows with time as the stamp does
        return [
            (key.rpartition(":")[2], document)
            for key, (document,) in sorted(
                parts, key=lambda part: (part[1][0].get("timestamp") or 0, part[0])
            )
        ]
    stored = [element for _, elements in parts for element in elements]
    if form == "langchain list":
        stored.reverse()  # it pushes to the left, so the newest comes first
    return [(str(place), element) for place, element in enumerate(stored)]


def _parsed(stored: object) -> object:
    try:
        return json.loads(stored) if isinstance(stored, str | bytes) else None
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> str:  # noqa: ANN401  (bytes, unless the client decodes)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _literal(prefix: str) -> str:
    """A prefix as a pattern that matches nothing but itself."""
    return "".join(f"\\{sign}" if sign in "*?[]\\^" else sign for sign in prefix)
