"""LangGraph checkpoints: the messages of every thread, also those that were summarised, trimmed or removed since.

The last checkpoint holds only what survived, so the history is walked from its beginning and united by message id.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.memory.backend import Backend, FoundSession, MemorySession, digest
from langchain_agentrag.connectors.memory.database import connected_to, identity, reported
from langchain_agentrag.connectors.memory.dialogue import Reading, Recorded, entries_of
from langchain_agentrag.connectors.memory.messages import NotAMessageError, looks_like_message, read_message
from langchain_agentrag.connectors.sql.engine import shown
from langchain_agentrag.errors import ConnectorError, MissingExtraError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from langchain_agentrag.connectors.memory.turns import Entry

KIND: Final = "langgraph-checkpoints"
COLUMNS: Final = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint", "metadata"})
_LISTING: Final = "SELECT thread_id, checkpoint_ns, checkpoint_id, metadata FROM checkpoints"
_RESERVED: Final = ("__", "branch:")

logger = logging.getLogger(__name__)

_Namespaces = dict[str, dict[str, Mapping[str, Any]]]
"""Namespace → id of a checkpoint, which grows with time → its metadata."""


class SaverCheckpoints(Backend):
    """Threads of a checkpointer, through its public `list`: the tables behind it change between versions."""

    kind = KIND

    def __init__(self, saver: Any) -> None:  # noqa: ANN401  (any BaseCheckpointSaver)
        self._saver = saver

    def __repr__(self) -> str:
        return type(self._saver).__name__

    @property
    def place(self) -> str:
        """Where the saver's database is; "" for one in memory."""
        where = connected_to(getattr(self._saver, "conn", None))
        return f"checkpoints:{digest(where)[:8]}" if where else ""

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession | Gap]:
        """A session per thread and chain of nodes that leads to a subgraph, the main graph first."""
        del agent_id
        with _explained(self):
            threads = _threads(self._saver)
        for thread, namespaces in sorted(threads.items()):
            yield from self._thread(thread, namespaces, reading)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        yield self._saver

    def _thread(self, thread: str, namespaces: _Namespaces, reading: Reading) -> Iterator[FoundSession]:
        chains: dict[tuple[str, ...], _Namespaces] = defaultdict(dict)
        for namespace, checkpoints in sorted(namespaces.items()):
            chains[_nodes(namespace)][namespace] = dict(sorted(checkpoints.items()))
        for nodes, members in sorted(chains.items()):
            told: dict[str | None, Mapping[str, Any]] = {}
            for metadata in (
                metadata for checkpoints in members.values() for metadata in checkpoints.values()
            ):
                told[_agent(metadata)] = metadata
            version = digest([(namespace, list(checkpoints)) for namespace, checkpoints in members.items()])
            for agent, metadata in told.items():
                session = MemorySession(thread, KIND, nodes, agent, metadata)
                load = partial(self._load, session, members, reading)
                yield FoundSession(session, version, load, group=thread)

    def _load(
        self, session: MemorySession, members: _Namespaces, reading: Reading, problems: list[str]
    ) -> list[Entry]:
        """What first appeared in a run of the session's agent."""
        found: list[Recorded] = []
        with _explained(self), self._opened() as saver:
            for namespace, checkpoints in members.items():
                walk = _Walk(namespace, problems)
                for checkpoint, metadata in checkpoints.items():
                    keys = {"thread_id": session.id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
                    if (tuple_ := saver.get_tuple({"configurable": keys})) is not None:
                        walk.take(tuple_, mine=_agent(metadata) == session.agent_id)
                found += walk.found
        return entries_of(session.id, found, reading, problems)


class DatabaseCheckpoints(SaverCheckpoints):
    """Threads in the tables of `SqliteSaver` or `PostgresSaver`, read without changing them."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(None)
        self._engine = engine

    def __repr__(self) -> str:
        return f"'checkpoints' of {shown(self._engine)}"

    @property
    def place(self) -> str:
        """Digest of the database."""
        return f"checkpoints:{identity(self._engine)}"

    def sessions(self, reading: Reading, agent_id: str | None) -> Iterator[FoundSession | Gap]:
        """A session per thread and chain of nodes that leads to a subgraph, the main graph first."""
        del agent_id
        with reported(self._engine, "read the table 'checkpoints'"), self._engine.connect() as connection:
            threads = _by_thread(connection.exec_driver_sql(_LISTING).all())
        for thread, namespaces in sorted(threads.items()):
            yield from self._thread(thread, namespaces, reading)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        if self._engine.dialect.name == "sqlite":
            with reported(self._engine, "read the checkpoints"), self._engine.connect() as connection:
                yield _sqlite_saver(connection.connection.driver_connection)
        else:
            with _postgres_saver(self._engine) as saver:
                yield saver


def is_saver(source: object) -> bool:
    """Whether something is a checkpointer of LangGraph."""
    return all(callable(getattr(source, name, None)) for name in ("get_tuple", "list", "put_writes"))


# -- savers -----------------------------------------------------------------------------------------------------------


def _sqlite_saver(connection: Any) -> Any:  # noqa: ANN401
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError as error:
        raise _missing("langgraph-checkpoint-sqlite") from error
    saver = SqliteSaver(connection)
    saver.is_setup = True  # it would create tables and turn the journal mode
    return saver


@contextmanager
def _postgres_saver(engine: Engine) -> Iterator[Any]:
    if engine.dialect.name != "postgresql":
        raise ConnectorError(
            f"Cannot read LangGraph checkpoints from {shown(engine)} by its URL, which works for SQLite and "
            "PostgreSQL: pass the checkpointer itself."
        )
    try:
        from langgraph.checkpoint.postgres import PostgresSaver
    except ImportError as error:
        raise _missing("langgraph-checkpoint-postgres") from error
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with PostgresSaver.from_conn_string(url) as saver:
        yield saver


def _missing(package: str) -> ConnectorError:
    return ConnectorError(
        f"Cannot read LangGraph checkpoints: {package}, which wrote them, is not installed. "
        f"Install it with: pip install {package}"
    )


@contextmanager
def _explained(backend: SaverCheckpoints) -> Iterator[None]:
    """Whatever a saver raises, as an error that says what was attempted."""
    try:
        yield
    except (ConnectorError, MissingExtraError):
        raise
    except Exception as error:
        raise ConnectorError(
            f"Cannot read the checkpoints of {backend!r}: {type(error).__name__}: {error}. A saver must be open, and "
            "an asynchronous one is asked from another thread than that of its event loop; a database URL always works."
        ) from error


def _threads(saver: Any) -> dict[str, _Namespaces]:  # noqa: ANN401
    """Ids of all checkpoints: without decoding them where a saver allows that."""
    storage = getattr(saver, "storage", None)
    if isinstance(storage, Mapping):  # InMemorySaver
        return _by_thread(
            (thread, namespace, checkpoint, saver.serde.loads_typed(stored[1]))
            for thread, namespaces in list(storage.items())
            for namespace, checkpoints in list(namespaces.items())
            for checkpoint, stored in list(checkpoints.items())
        )
    for name, options in (("cursor", {"transaction": False}), ("_cursor", {})):
        cursor = getattr(saver, name, None)
        if callable(cursor) and not type(saver).__name__.startswith("Async"):
            try:
                with cursor(**options) as opened:
                    opened.execute(_LISTING)
                    return _by_thread(map(_values, opened.fetchall()))
            except Exception:  # other savers may call other things a cursor
                logger.debug("%s has no cursor over its checkpoints", type(saver).__name__, exc_info=True)
    listed = ((found.config["configurable"], found.metadata) for found in saver.list(None))
    return _by_thread((c["thread_id"], c.get("checkpoint_ns", ""), c["checkpoint_id"], m) for c, m in listed)


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
        read = json.loads(stored) if isinstance(stored, str | bytes) else {}
    except ValueError:  # an old saver packed it in a form of its own
        return {}
    return read if isinstance(read, dict) else {}


def _agent(metadata: Mapping[str, Any]) -> str | None:
    agent = metadata.get("agent_id")
    return agent if isinstance(agent, str) else None


def _nodes(namespace: str) -> tuple[str, ...]:
    """Nodes that lead to a subgraph: `planner:uuid|tools:uuid` is ("planner", "tools")."""
    return tuple(part.partition(":")[0] for part in namespace.split("|")) if namespace else ()


# -- messages ---------------------------------------------------------------------------------------------------------


class _Walk:
    """Messages of one namespace of a thread in order of their first appearance."""

    def __init__(self, namespace: str, problems: list[str]) -> None:
        self._namespace, self._problems = namespace, problems
        self._taken: list[
            tuple[str | None, Recorded]
        ] = []  # with the channel, for what was only written to it
        self._seen: set[str] = set()  # in values
        self._written: set[str] = set()  # in writes
        self._whole: set[str] = set()  # channels whose value the checkpoints hold
        self._mine = True

    @property
    def found(self) -> list[Recorded]:
        """The messages of the wanted agent."""
        return [recorded for channel, recorded in self._taken if channel not in self._whole]

    def take(self, checkpoint: Any, *, mine: bool) -> None:  # noqa: ANN401  (a CheckpointTuple)
        """Note what a checkpoint has that those before it had not, and keep it when it is of the wanted agent."""
        self._mine = mine
        stamp, place = checkpoint.checkpoint.get("ts"), checkpoint.checkpoint["id"]
        for channel, value in (checkpoint.checkpoint.get("channel_values") or {}).items():
            snapshot = hasattr(value, "value")  # of a delta channel: it repeats what was written before
            listed = _messages(value.value if snapshot else value)
            if listed and not channel.startswith(_RESERVED):
                if not snapshot:
                    self._whole.add(channel)
                known = self._written if snapshot else frozenset()
                self._add(channel, listed, stamp, self._seen, known, None)
        for number, (_, channel, value, *_) in enumerate(checkpoint.pending_writes or ()):
            # the value of a delta channel is nowhere, but everything that was written to it is
            if not channel.startswith(_RESERVED) and channel not in self._whole:
                listed = _messages(value)
                self._add(f"{place}:{number}", listed, stamp, self._written, self._seen, channel)

    def _add(
        self,
        place: str,
        raws: list[Any],
        stamp: object,
        seen: set[str],
        known: Container[str],
        channel: str | None,
    ) -> None:
        for position, raw in enumerate(raws):
            if getattr(raw, "id", None) in seen:
                continue  # most of them, and reading one takes a while
            try:
                message = read_message(raw)
            except NotAMessageError as error:
                self._problems.append(f"a message of {place}: {error}")
                continue
            if message is None:
                continue
            name = message.message_id
            if name is None:  # told by its place, and by what it says when another one takes that place
                said = (message.role, message.text, message.calls, message.results)
                name = f"{self._namespace}{place}:{position}:{digest(said)[:8]}"
            if name not in seen:
                seen.add(name)
                if self._mine and name not in known:
                    self._taken.append((channel, Recorded(message, name, stamp)))


def _messages(value: object) -> list[Any]:
    """The messages in a channel's value: a list of them, or a single one."""
    listed = list(value) if isinstance(value, list | tuple) else [value]
    return listed if listed and all(map(looks_like_message, listed)) else []
