"""Chat histories in Redis: LangChain's lists and JSON documents, LlamaIndex's lists."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.backend import Backend, ListedSession, MemorySession, digest
from langchain_agentrag.connectors.memory.dialogue import ReadOptions, entries_from_messages, stored_message
from langchain_agentrag.errors import ConnectorError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from langchain_agentrag.connectors.memory.turns import Entry

LANGCHAIN: Final = "langchain-redis"
LLAMAINDEX: Final = "llamaindex-redis"
_LIST_PREFIX, _JSON_PREFIX = "message_store:", "chat:"
_Format = Literal["langchain list", "langchain json", "llamaindex list"]
_KINDS: Final[dict[_Format, str]] = {
    "langchain list": LANGCHAIN,
    "langchain json": LANGCHAIN,
    "llamaindex list": LLAMAINDEX,
}


class RedisHistories(Backend):
    """Chat histories under a key prefix; keys that hold anything else are ignored.

    Args:
        source: A URL, or a client.
        backend: Which of the two kinds, or None for the one that is present.
        prefix: First part of the keys, or None for the frameworks' defaults.
    """

    def __init__(self, source: Any, backend: str | None, prefix: str | None) -> None:  # noqa: ANN401  (see Args)
        self._client, self._backend, self._prefix = _client(source), backend, prefix

    def __repr__(self) -> str:
        return f"Redis {self._address()}"

    @property
    def kind(self) -> str:
        """The requested kind, by default LangChain's."""
        return self._backend or LANGCHAIN

    @property
    def place(self) -> str:
        """Digest of the server, the database and the prefix."""
        return f"redis:{digest(self._address(), self._prefix)[:8]}"

    def sessions(self, options: ReadOptions, agent_id: str | None) -> Iterator[ListedSession | Gap]:
        """List one session per history.

        Raises:
            ConnectorError: the server does not answer.
            UsageError: it holds histories of both frameworks, and no backend was named.
        """
        del agent_id
        with self._redis_errors():
            yield from self._sessions(options)

    def _sessions(self, options: ReadOptions) -> Iterator[ListedSession | Gap]:
        versions: dict[tuple[_Format, str], dict[str, str]] = {}  # format and session → key → digest
        for key in sorted(map(_text, self._client.scan_iter(match=f"{_escape_pattern(self._prefix or '')}*"))):
            form, stored = self._read(key)
            if form is not None:
                versions.setdefault((form, self._session(key, form, stored)), {})[key] = digest(stored)
        if len({_KINDS[form] for form, _ in versions}) > 1:
            raise UsageError(
                f"{self!r} holds histories of LangChain and of LlamaIndex: pass backend={LANGCHAIN!r} or "
                f"backend={LLAMAINDEX!r}, or the prefix of the keys to read."
            )
        for (form, name), keys in sorted(versions.items()):
            load = partial(self._load, form, name, list(keys), options)
            yield ListedSession(MemorySession(name, _KINDS[form]), digest(form, keys), load)

    def _load(
        self, form: _Format, name: str, keys: list[str], options: ReadOptions, problems: list[str]
    ) -> list[Entry]:
        with self._redis_errors():
            stored_by_key = [(key, stored) for key in keys if (stored := self._read(key)[1])]
        messages = []
        for entry_id, stored in _in_order(form, stored_by_key):
            messages += stored_message(stored, entry_id, problems, encoded=True)
        return entries_from_messages(name, messages, options, problems)

    def _read(self, key: str) -> tuple[_Format | None, list[Any]]:
        """Return format and messages of a key; (None, []) when it holds no history of the requested kind."""
        redis_type = _text(self._client.type(key))
        form: _Format | None = None
        if redis_type == "list":
            first = _json_or_none(self._client.lindex(key, 0))
            if isinstance(first, dict) and "data" in first and "type" in first:
                form = "langchain list" if key.startswith(self._prefix or _LIST_PREFIX) else None
            elif isinstance(first, dict) and "role" in first:
                form = "llamaindex list"
            if form is not None and self._is_requested(form):
                return form, [_text(element) for element in self._client.lrange(key, 0, -1)]
        elif redis_type == "ReJSON-RL" and key.startswith(self._prefix or _JSON_PREFIX):
            form = "langchain json"
            if self._is_requested(form):
                document = self._client.json().get(key)
                if isinstance(document, dict) and {"session_id", "type", "data"} <= document.keys():
                    return form, [document]
        return None, []

    def _is_requested(self, form: _Format) -> bool:
        return self._backend is None or self._backend == _KINDS[form]

    def _session(self, key: str, form: _Format, stored: list[Any]) -> str:
        if form == "langchain json":
            return str(stored[0]["session_id"])
        default = _LIST_PREFIX if form == "langchain list" else ""
        return key.removeprefix(default if self._prefix is None else self._prefix)

    def _address(self) -> str:
        """Return server and database, without a password."""
        options = self._client.get_connection_kwargs()
        place = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        return f"{place}/{options.get('db') or 0}"

    @contextmanager
    def _redis_errors(self) -> Iterator[None]:
        """Convert errors of Redis to ConnectorError."""
        try:
            yield
        except Exception as error:
            if not type(error).__module__.startswith("redis"):
                raise
            raise ConnectorError(
                f"Cannot read {self!r}: {type(error).__name__}: {error}. Check that it runs, and the URL."
            ) from error


def is_client(source: object) -> bool:
    """Return whether a value is a synchronous Redis client."""
    return all(callable(getattr(source, name, None)) for name in ("lrange", "scan_iter", "get_connection_kwargs"))


def is_url(source: object) -> bool:
    """Return whether a value is the URL of a Redis server."""
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
        raise UsageError(f"Cannot parse the Redis URL: {error}.") from error


def _in_order(form: _Format, stored_by_key: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    """Return the messages of a session, oldest first, each with its entry id."""
    if form == "langchain json":
        # one key per message, named by a ULID, which grows with time as the timestamp does
        by_time = sorted(stored_by_key, key=lambda part: (part[1][0].get("timestamp") or 0, part[0]))
        return [(key.rpartition(":")[2], document) for key, (document,) in by_time]
    messages = [message for _, stored in stored_by_key for message in stored]
    if form == "langchain list":
        messages.reverse()  # LangChain pushes to the left, so the newest comes first
    return [(str(position), message) for position, message in enumerate(messages)]


def _json_or_none(stored: object) -> object:
    try:
        return json.loads(stored) if isinstance(stored, str | bytes) else None
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> str:  # noqa: ANN401  (bytes, unless the client decodes)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _escape_pattern(prefix: str) -> str:
    """Escape a prefix for Redis' MATCH, so that it matches only itself."""
    return "".join(f"\\{sign}" if sign in "*?[]\\^" else sign for sign in prefix)
