"""Entries of the journal: work that was begun and is not finished."""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_agentrag.errors import NotAStoreError, StoreError, StoreMismatchError
from langchain_agentrag.store.schema import FORMAT, create, migrate

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One piece of unfinished work.

    Attributes:
        id: Key in the journal.
        partition: Partition it concerns.
        state: "writing": `rows` may be in the legs and are not live. "cleaning": `payload` lists dead rows that may
            still be in the legs. "handing": `rows` may be in the collection and are not counted to it. "dropping":
            `payload` names a keyword folder and a collection that belong to no partition. "purging": terms of deleted
            rows may still be in the partition's keyword index. "unreadable".
        rows: Rows reserved for a write, or handed over.
        payload: See `state`; None when it cannot be read.
    """

    id: int
    partition: int
    state: str
    rows: range
    payload: Any


def journal_entry(*values: Any) -> JournalEntry:  # noqa: ANN401
    """An entry from its row in the catalog, whatever has become of it."""
    key, partition, state, first, last, packed = values
    try:
        return JournalEntry(key, partition, state, range(first, last + 1), json.loads(packed))
    except (TypeError, ValueError):
        return JournalEntry(key, partition, "unreadable", range(0), None)


_BUSY_SECONDS = 30.0
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "secure_delete=ON",  # deleted text is overwritten, not only unlinked
    "cache_size=-32768",
    "mmap_size=1073741824",
)
_MANY = 500  # bound parameters per statement, well below SQLite's limit


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """State of one partition.

    Attributes:
        id: Key in the catalog.
        owner: Agent, or None for shared.
        name: Name of its keyword folder.
        collection: Name of its Chroma collection, or None while Chroma does not hold its vectors.
        indexed: The collection holds its live rows up to this one; those after it wait to be handed over.
        generation: Grows with every commit that touches it.
        removals: Rows that ever died.
        documents: Live documents.
        chunks: Live chunks.
        tokens: Total length of each analysed field.
    """

    id: int
    owner: str | None
    name: str
    collection: str | None
    indexed: int
    generation: int
    removals: int
    documents: int
    chunks: int
    tokens: tuple[int, ...]

    @property
    def in_chroma(self) -> bool:
        """Whether Chroma holds its vectors."""
        return self.collection is not None


_PARTITION = "id, owner, name, collection, indexed, generation, removals, documents, chunks, tokens"


class Catalog:
    """Connections to the catalog and its schema; statements about partitions, the manifest and the journal.

    Each thread has its own connection. A transaction takes SQLite's write lock at once (`BEGIN IMMEDIATE`).

    Args:
        path: The database file.
        readonly: Open without the right to write (a read-only folder).

    Raises:
        NotAStoreError: the file is no database, or not one of ours.
        StoreMismatchError: a newer version of the package wrote it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._open: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._guard = threading.Lock()
        self._prepare()

    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        held: _Held | None = getattr(self._local, "held", None)
        if held is None:
            held = _Held(self._connect())
            self._local.held = held
        return held.connection

    def _connect(self) -> _Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        with self._guard:
            self._open.add(connection)
        return connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed at the end of the block, rolled back when it raises.

        Raises:
            StoreError: the disk is full or the folder cannot be written.
        """
        connection = self.connection()
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise StoreError(
                f"Cannot write to the catalog {self._path}: {error}. The batch was rolled back and nothing of it is "
                "stored; check free space and permissions, then write it again."
            ) from error

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: all statements within see one state."""
        connection = self.connection()
        if connection.in_transaction:
            yield connection
            return
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("COMMIT")

    def version(self) -> int:
        """A number for this thread: another one as soon as another connection has committed anything."""
        found: int = self.connection().execute("PRAGMA data_version").fetchone()[0]
        return found

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._guard:
            for connection in list(self._open):
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
            self._open.clear()
        self._local = threading.local()

    def erase_free_space(self) -> bool:
        """Leave no deleted text in the write-ahead log either.

        Returns:
            Whether it was done; a reader that holds an old snapshot, or a full disk, leaves it to the next call.
        """
        try:
            busy = self.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            logger.warning("the write-ahead log of %s could not be emptied: %s", self._path, error)
            return False
        return not busy

    def check_integrity(self) -> list[str]:
        """Problems SQLite finds in the file; empty when it is sound."""
        try:
            found = [row[0] for row in self.connection().execute("PRAGMA quick_check(20)")]
        except sqlite3.Error as error:
            return [str(error)]
        return [problem for problem in found if problem != "ok"]

    # -- manifest -------------------------------------------------------------------------------------------------

    def manifest(self) -> dict[str, Any]:
        """What the store promises: format, model, analyzer."""
        return {
            key: json.loads(value)
            for key, value in self.connection().execute("SELECT key, value FROM manifest")
        }

    def manifest_value(self, key: str) -> Any:  # noqa: ANN401  (a JSON value)
        """One value of the manifest, or None."""
        found = self.connection().execute("SELECT value FROM manifest WHERE key = ?", (key,)).fetchone()
        return None if found is None else json.loads(found[0])

    def set_manifest(self, **values: object) -> None:
        """Write manifest values."""
        with self.transaction() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO manifest VALUES (?, ?)",
                [(key, json.dumps(value, ensure_ascii=False)) for key, value in values.items()],
            )

    # -- partitions -----------------------------------------------------------------------------------------------

    def partition(self, owner: str | None) -> PartitionRow | None:
        """The partition of an owner, or None while it has none."""
        found = (
            self.connection()
            .execute(f"SELECT {_PARTITION} FROM partitions WHERE owner IS ?", (owner,))
            .fetchone()
        )
        return None if found is None else _partition(found)

    def partitions(self) -> list[PartitionRow]:
        """All partitions, shared first."""
        return [
            _partition(row)
            for row in self.connection().execute(f"SELECT {_PARTITION} FROM partitions ORDER BY id")
        ]

    def add_partition(self, owner: str | None, name: str) -> PartitionRow:
        """Make a partition unless it is there."""
        with self.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO partitions(owner, name) VALUES (?, ?)", (owner, name))
        found = self.partition(owner)
        if found is None:
            raise StoreError(
                f"The partition of {owner!r} vanished while it was made: another process forgot it."
            )
        return found

    # -- journal --------------------------------------------------------------------------------------------------

    def reserve(self, sizes: dict[int, int]) -> dict[int, tuple[int, range]]:
        """Announce writes: partition id → number of rows in, partition id → (journal id, row ids) out."""
        with self.transaction() as connection:
            announced = {}
            for partition, size in sizes.items():
                first = connection.execute("SELECT value FROM counters WHERE name = 'row'").fetchone()[0]
                connection.execute("UPDATE counters SET value = value + ? WHERE name = 'row'", (size,))
                entry = connection.execute(
                    "INSERT INTO journal(partition, state, first, last) VALUES (?, 'writing', ?, ?)",
                    (partition, first, first + size - 1),
                ).lastrowid
                announced[partition] = (int(entry or 0), range(first, first + size))
            return announced

    def journal(self) -> list[JournalEntry]:
        """Unfinished work, oldest first."""
        found = self.connection().execute(
            "SELECT id, partition, state, first, last, dead FROM journal ORDER BY id"
        )
        return [journal_entry(*values) for values in found]

    def announce(self, partition: int, state: str, payload: object, rows: range = range(0)) -> int:
        """Note work that is about to begin; the entry's id."""
        with self.transaction() as connection:
            found = connection.execute(
                "INSERT INTO journal(partition, state, first, last, dead) VALUES (?, ?, ?, ?, ?)",
                (partition, state, rows.start, rows.stop - 1, json.dumps(payload)),
            )
            return int(found.lastrowid or 0)

    def clear_journal(self, entries: Iterable[int]) -> None:
        """Forget finished work."""
        with self.transaction() as connection:
            connection.executemany("DELETE FROM journal WHERE id = ?", [(entry,) for entry in entries])

    # -- Chroma ---------------------------------------------------------------------------------------------------

    def indexed(self, collection: str) -> int:
        """Last row that a collection holds; 0 for one of no partition."""
        found = (
            self.connection()
            .execute("SELECT indexed FROM partitions WHERE collection = ?", (collection,))
            .fetchone()
        )
        return 0 if found is None else int(found[0])

    def rows_after(self, partition: PartitionRow) -> int:
        """Number of live rows that the partition's collection does not hold yet."""
        if self.counter("row") <= partition.indexed + 1:
            return 0
        query = "SELECT count(*) FROM chunks WHERE partition = ? AND row > ?"
        return int(self.connection().execute(query, (partition.id, partition.indexed)).fetchone()[0])

    def counter(self, name: str) -> int:
        """Value of a counter."""
        found = self.connection().execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
        return int(found[0])

    def set_counter(self, name: str, value: int) -> None:
        """Set a counter."""
        with self.transaction() as connection:
            connection.execute("UPDATE counters SET value = ? WHERE name = ?", (value, name))

    # -- opening --------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        try:
            connection = self.connection()
            tables = {
                row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            if not tables:
                create(connection)
            elif {"documents", "partitions"} <= tables:
                migrate(connection)
        except sqlite3.DatabaseError as error:
            self.close()
            raise _cannot_open(self._path, error) from error
        if tables and not {"manifest", "partitions", "chunks"} <= tables:
            self.close()
            raise NotAStoreError(
                f"{self._path} is a database of something else (tables {sorted(tables)[:5]}). "
                "Pass the folder of a store, or a new folder."
            )
        found = self.manifest().get("format")
        if found != FORMAT:
            self.close()
            raise StoreMismatchError(
                f"The store {self._path.parent} has format {found}, this version reads format {FORMAT}. "
                "Upgrade langchain-agentrag, or index into a new folder."
            )


class _Connection(sqlite3.Connection):
    """A connection that can be referenced weakly."""


class _Held:
    """A thread's hold on its connection: when the thread ends, the connection is closed.

    Left to itself it would wait for the garbage collector, because a connection refers to itself.
    """

    def __init__(self, connection: _Connection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()


def _partition(row: Sequence[Any]) -> PartitionRow:
    values: list[Any] = [*row[:-1], tuple(json.loads(row[-1]))]
    return PartitionRow(*values)


def _cannot_open(path: Path, error: sqlite3.Error) -> StoreError:
    text = str(error)
    if "not a database" in text or "malformed" in text:
        return NotAStoreError(
            f"{path} is not a readable SQLite catalog ({text}). Pass the folder of a store."
        )
    return StoreError(
        f"Cannot open the catalog {path}: {text}. Check that the folder exists, can be written, and has free space."
    )


def batched(values: Sequence[int], size: int = _MANY) -> Iterator[Sequence[int]]:
    """Slices small enough for one statement's bound parameters."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
