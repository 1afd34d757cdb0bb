"""Messages of LangGraph checkpoints, including those that were summarised, trimmed or removed since.

The last checkpoint holds only the remaining messages, so the whole history of a thread is read and merged by message
id.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict, namedtuple
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.backend import Backend, ListedSession, MemorySession, digest
from langchain_agentrag.connectors.memory.database import TableBackend, connection_target
from langchain_agentrag.connectors.memory.dialogue import ReadOptions, StoredMessage, entries_from_messages
from langchain_agentrag.connectors.memory.messages import Message, NotAMessageError, looks_like_message, read_message
from langchain_agentrag.connectors.sql.engine import masked_url
from langchain_agentrag.errors import ConnectorError, MissingExtraError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from langchain_agentrag.connectors.memory.turns import Entry

KIND: Final = "langgraph-checkpoints"
COLUMNS: Final = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint", "metadata"})
_LIST_QUERY: Final = "SELECT thread_id, checkpoint_ns, checkpoint_id, metadata FROM checkpoints"
_RESERVED_CHANNELS: Final = ("__", "branch:")

logger = logging.getLogger(__name__)

_Namespaces = dict[str, dict[str, Mapping[str, Any]]]
"""Namespace → checkpoint id, which grows with time → metadata of the checkpoint."""


class CheckpointerHistory(Backend):
    """Threads of a checkpointer object, read through its public `list`: its tables change between versions."""

    kind = KIND

    def __init__(self, saver: Any) -> None:  # noqa: ANN401  (any BaseCheckpointSaver)
        self._saver = saver

    def __repr__(self) -> str:
        return type(self._saver).__name__

    @property
    def place(self) -> str:
        """Digest of the saver's database; "" for one in memory."""
        target = connection_target(getattr(self._saver, "conn", None))
        return f"checkpoints:{digest(target)[:8]}" if target else ""

    def sessions(self, options: ReadOptions, agent_id: str | None) -> Iterator[ListedSession | Gap]:
        """List a session per thread and chain of nodes that leads to a subgraph, the main graph first."""
        del agent_id
        for thread, namespaces in sorted(self._threads().items()):
            yield from self._thread_sessions(thread, namespaces, options)

    def _threads(self) -> dict[str, _Namespaces]:
        with self._saver_errors():
            return _list_checkpoints(self._saver)

    @contextmanager
    def _open_saver(self) -> Iterator[Any]:
        yield self._saver

    def _thread_sessions(self, thread: str, namespaces: _Namespaces, options: ReadOptions) -> Iterator[ListedSession]:
        chains: dict[tuple[str, ...], _Namespaces] = defaultdict(dict)
        for namespace, checkpoints in sorted(namespaces.items()):
            chains[_nodes(namespace)][namespace] = dict(sorted(checkpoints.items()))
        for nodes, members in sorted(chains.items()):
            version = digest([(namespace, list(checkpoints)) for namespace, checkpoints in members.items()])
            last_metadata = {
                _agent(metadata): metadata for checkpoints in members.values() for metadata in checkpoints.values()
            }
            for agent, metadata in last_metadata.items():
                session = MemorySession(thread, KIND, nodes, agent, metadata)
                load = partial(self._load, session, members, options)
                yield ListedSession(session, version, load, group=thread)

    def _load(
        self, session: MemorySession, members: _Namespaces, options: ReadOptions, problems: list[str]
    ) -> list[Entry]:
        """Load the messages that first appeared in a checkpoint of the session's agent."""
        messages: list[StoredMessage] = []
        with self._saver_errors(), self._open_saver() as saver:
            for namespace, checkpoints in members.items():
                history = _MessageHistory(namespace, problems)
                for checkpoint_id, metadata in checkpoints.items():
                    config = {"thread_id": session.id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
                    if (checkpoint := saver.get_tuple({"configurable": config})) is not None:
                        history.add(checkpoint, collect=_agent(metadata) == session.agent_id)
                messages += history.messages
        return entries_from_messages(session.id, messages, options, problems)

    @contextmanager
    def _saver_errors(self) -> Iterator[None]:
        """Convert any error of a saver to ConnectorError."""
        try:
            yield
        except (ConnectorError, MissingExtraError):
            raise
        except Exception as error:
            raise ConnectorError(
                f"Cannot read the checkpoints of {self!r}: {type(error).__name__}: {error}. A saver must be open, and "
                "an asynchronous one must be called from another thread than that of its event loop; a database URL "
                "always works."
            ) from error


class CheckpointTables(TableBackend, CheckpointerHistory):
    """Threads in the tables of `SqliteSaver` or `PostgresSaver`, read without changing them."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, "checkpoints")

    def _threads(self) -> dict[str, _Namespaces]:
        with self._connect() as connection:
            return _by_thread(connection.exec_driver_sql(_LIST_QUERY).all())

    @contextmanager
    def _open_saver(self) -> Iterator[Any]:
        if self._engine.dialect.name == "sqlite":
            with self._connect() as connection:
                yield _sqlite_saver(connection.connection.driver_connection)
        else:
            with _postgres_saver(self._engine) as saver:
                yield saver


def is_checkpointer(source: object) -> bool:
    """Return whether a value is a checkpointer of LangGraph."""
    return all(callable(getattr(source, name, None)) for name in ("get_tuple", "list", "put_writes"))


# -- savers -----------------------------------------------------------------------------------------------------------


def _sqlite_saver(connection: Any) -> Any:  # noqa: ANN401
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError as error:
        raise _missing_package("langgraph-checkpoint-sqlite") from error
    saver = SqliteSaver(connection)
    saver.is_setup = True  # else it would create tables and change the journal mode
    return saver


@contextmanager
def _postgres_saver(engine: Engine) -> Iterator[Any]:
    if engine.dialect.name != "postgresql":
        raise ConnectorError(
            f"Cannot read LangGraph checkpoints from {masked_url(engine.url)} by its URL, which works for SQLite and "
            "PostgreSQL: pass the checkpointer itself."
        )
    try:
        from langgraph.checkpoint.postgres import PostgresSaver
    except ImportError as error:
        raise _missing_package("langgraph-checkpoint-postgres") from error
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with PostgresSaver.from_conn_string(url) as saver:
        yield saver


def _missing_package(package: str) -> ConnectorError:
    return ConnectorError(
        f"Cannot read LangGraph checkpoints: {package}, which wrote them, is not installed. "
        f"Install it with: pip install {package}"
    )


def _list_checkpoints(saver: Any) -> dict[str, _Namespaces]:  # noqa: ANN401
    """Return the ids of all checkpoints, without decoding them where a saver allows that."""
    storage = getattr(saver, "storage", None)
    if isinstance(storage, Mapping):  # InMemorySaver
        return _by_thread(
            (thread, namespace, checkpoint, saver.serde.loads_typed(stored[1]))
            for thread, namespaces in list(storage.items())
            for namespace, checkpoints in list(namespaces.items())
            for checkpoint, stored in list(checkpoints.items())
        )
    for name, options in (("cursor", {"transaction": False}), ("_cursor", {})):
        open_cursor = getattr(saver, name, None)
        if callable(open_cursor) and not type(saver).__name__.startswith("Async"):
            try:
                with open_cursor(**options) as cursor:
                    cursor.execute(_LIST_QUERY)
                    return _by_thread(map(_values, cursor.fetchall()))
            except Exception:  # other savers may use the name for something else
                logger.debug("%s has no cursor over its checkpoints", type(saver).__name__, exc_info=True)
    tuples = ((checkpoint.config["configurable"], checkpoint.metadata) for checkpoint in saver.list(None))
    return _by_thread((c["thread_id"], c.get("checkpoint_ns", ""), c["checkpoint_id"], m) for c, m in tuples)


def _values(row: Any) -> tuple[Any, ...]:  # noqa: ANN401  (a tuple, or a dict in the order of the query)
    return tuple(row.values()) if isinstance(row, Mapping) else tuple(row)


def _by_thread(rows: Iterable[Any]) -> dict[str, _Namespaces]:
    threads: dict[str, _Namespaces] = {}
    for thread, namespace, checkpoint, metadata in rows:
        checkpoints = threads.setdefault(str(thread), {}).setdefault(str(namespace), {})
        checkpoints[str(checkpoint)] = _metadata(metadata)
    return threads


def _metadata(stored: object) -> Mapping[str, Any]:
    if isinstance(stored, Mapping):
        return stored
    try:
        metadata = json.loads(stored) if isinstance(stored, str | bytes) else {}
    except (ValueError, RecursionError):  # an old saver used a format of its own
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _agent(metadata: Mapping[str, Any]) -> str | None:
    agent = metadata.get("agent_id")
    return agent if isinstance(agent, str) else None


def _nodes(namespace: str) -> tuple[str, ...]:
    """Return the nodes that lead to a subgraph: `planner:uuid|tools:uuid` is ("planner", "tools")."""
    return tuple(part.partition(":")[0] for part in namespace.split("|")) if namespace else ()


# -- messages ---------------------------------------------------------------------------------------------------------


class _MessageHistory:
    """Messages of one namespace of a thread, in order of their first appearance."""

    def __init__(self, namespace: str, problems: list[str]) -> None:
        self._namespace, self._problems = namespace, problems
        # each with the channel it was only written to, or None for one in a channel's value
        self._collected: list[tuple[str | None, StoredMessage]] = []
        self._in_values: set[str] = set()  # names of messages
        self._in_writes: set[str] = set()
        self._complete_channels: set[str] = set()  # whose value is in the checkpoints
        self._collect = True

    @property
    def messages(self) -> list[StoredMessage]:
        """The collected messages."""
        return [message for channel, message in self._collected if channel not in self._complete_channels]

    def add(self, checkpoint: Any, *, collect: bool) -> None:  # noqa: ANN401  (a CheckpointTuple)
        """Register the messages that are new in a checkpoint, and collect them when it is of the wanted agent."""
        self._collect = collect
        timestamp, checkpoint_id = checkpoint.checkpoint.get("ts"), checkpoint.checkpoint["id"]
        for channel, value in (checkpoint.checkpoint.get("channel_values") or {}).items():
            is_snapshot = hasattr(value, "value")  # of a delta channel: it repeats earlier writes
            messages = _messages(value.value if is_snapshot else value)
            if messages and not channel.startswith(_RESERVED_CHANNELS):
                if not is_snapshot:
                    self._complete_channels.add(channel)
                skip = self._in_writes if is_snapshot else frozenset()
                self._add_messages(channel, messages, timestamp, self._in_values, skip, None)
        for number, (_, channel, value, *_) in enumerate(checkpoint.pending_writes or ()):
            # the value of a delta channel is not stored, but all writes to it are
            if not channel.startswith(_RESERVED_CHANNELS) and channel not in self._complete_channels:
                place = f"{checkpoint_id}:{number}"
                self._add_messages(place, _messages(value), timestamp, self._in_writes, self._in_values, channel)

    def _add_messages(
        self,
        place: str,
        raw_messages: list[Any],
        timestamp: object,
        seen: set[str],
        skip: Container[str],
        channel: str | None,
    ) -> None:
        for position, raw in enumerate(raw_messages):
            if getattr(raw, "id", None) in seen:
                continue  # true of most, and converting one takes a while
            try:
                message = read_message(raw)
            except NotAMessageError as error:
                self._problems.append(f"a message of {place}: {error}")
                continue
            if message is None:
                continue
            name = message.message_id
            if name is None:  # by position, and by content in case another message takes that position
                name = f"{self._namespace}{place}:{position}:{_content_digest(message)}"
            if name not in seen:
                seen.add(name)
                if self._collect and name not in skip:
                    self._collected.append((channel, StoredMessage(message, name, timestamp)))


def _messages(value: object) -> list[Any]:
    """Return the messages in a channel's value: a list of them, or a single one."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values if values and all(map(looks_like_message, values)) else []


# The repr of these two is part of the ids of stored documents: their names and fields must not change.
_DigestedCall = namedtuple("Call", "tool arguments call_id")  # type: ignore[name-match]
_DigestedResult = namedtuple(  # type: ignore[name-match]
    "Result", "call_id tool text parts outcome"
)


def _content_digest(message: Message) -> str:
    calls = tuple(_DigestedCall(call.tool, call.arguments, call.call_id) for call in message.calls)
    results = tuple(
        _DigestedResult(result.call_id, result.tool, result.text, result.parts, result.outcome)
        for result in message.results
    )
    return digest((message.role, message.text, calls, results))[:8]
