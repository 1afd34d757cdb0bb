"""SQLite catalog of a store: connections, transactions, manifest, partitions and journal."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_agentrag.errors import NotAStoreError, StoreClosedError, StoreError, StoreMismatchError
from langchain_agentrag.forks import ForkGate
from langchain_agentrag.store.fork import keep_for_ever
from langchain_agentrag.store.free_space import SharedFile, overwrite_free_space
from langchain_agentrag.store.schema import FORMAT, create, migrate

logger = logging.getLogger(__name__)

_transactions = ForkGate()


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Journal entry: one piece of unfinished work.

    Attributes:
        id: Key in the journal.
        partition: Id of the partition.
        state: "writing": `rows` may be in the indexes and are not live. "cleaning": `payload` lists dead rows that may
            still be in the keyword index. "handing": `rows` may be in the collection although the catalog counts them
            as unindexed. "dropping": `payload` names a keyword folder and a collection that belong to no partition.
            "purging": what was deleted is hidden and may still be on disk, see `purging.py`. "unreadable": the entry is
            damaged.
        rows: Rows reserved for a write, or being added to the collection.
        payload: See `state`; None when the entry is damaged.
    """

    id: int
    partition: int
    state: str
    rows: range
    payload: Any


def journal_entry(*values: Any) -> JournalEntry:  # noqa: ANN401
    """Return a journal entry from its row in the catalog; a damaged row gives state "unreadable"."""
    key, partition, state, first, last, packed = values
    try:
        return JournalEntry(key, partition, state, range(first, last + 1), json.loads(packed))
    except (TypeError, ValueError):
        return JournalEntry(key, partition, "unreadable", range(0), None)


def insert_journal_entry(
    connection: sqlite3.Connection, partition: int, state: str, payload: object, rows: range = range(0)
) -> int:
    """Insert an entry into the journal within a transaction; return its id."""
    query = "INSERT INTO journal(partition, state, first, last, dead) VALUES (?, ?, ?, ?, ?)"
    values = partition, state, rows.start, rows.stop - 1, json.dumps(payload)
    return int(connection.execute(query, values).lastrowid or 0)


_BUSY_SECONDS = 30.0
_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "secure_delete=ON",  # deleted text is overwritten
    "cache_size=-32768",
    "mmap_size=1073741824",
)
_MAX_PARAMETERS = 500  # bound parameters per statement, well below SQLite's limit


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """Partition as stored in the catalog.

    Attributes:
        id: Key in the catalog.
        owner: Agent, or None for shared.
        name: Name of its keyword folder.
        collection: Name of its Chroma collection; None while it has none.
        indexed: The collection holds the live rows up to this one; those after it are unindexed.
        generation: Grows with every commit that changes the partition.
        removals: Number of rows ever deleted.
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
        """Whether the partition has a Chroma collection."""
        return self.collection is not None


_PARTITION_COLUMNS = "id, owner, name, collection, indexed, generation, removals, documents, chunks, tokens"


class Catalog:
    """SQLite database of a store: documents, chunks and vectors, partitions, manifest and journal. Thread-safe.

    Each thread has its own connection. A transaction takes SQLite's write lock at once (`BEGIN IMMEDIATE`).

    Args:
        path: The database file.

    Raises:
        NotAStoreError: The file is no database, or a database of something else.
        StoreMismatchError: A newer version of the package wrote it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._name = path, str(path)
        self._local = threading.local()
        self._connections: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._guard = threading.Lock()
        self._file: tuple[int, int] | None = None  # device and inode
        self._shared_file: SharedFile | None = None
        self._closed = False
        self._open_database()

    def connection(self) -> sqlite3.Connection:
        """Return this thread's connection.

        Raises:
            StoreClosedError: The catalog is closed.
        """
        owner: _ThreadConnection | None = getattr(self._local, "owner", None)
        if owner is None:
            owner = self._local.owner = _ThreadConnection(self._connect())
        return owner.connection

    def _connect(self) -> _Connection:
        if self._closed:
            raise StoreClosedError(f"The catalog {self._path} is closed: open the store again to use it.")
        # after the first connection the file exists: a folder that was moved must not get a new, empty one
        mode = "rwc" if self._file is None else "rw"
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        try:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            self._file = self._file or self._file_identity()
            self.check_file()
        except BaseException:
            connection.close()
            raise
        with self._guard:
            self._connections.add(connection)
            if self._shared_file is None and self._file is not None:
                self._shared_file = SharedFile(self._path, self._file)
                arguments = self._connections, self._shared_file, os.getpid()
                weakref.finalize(self, _close_dropped, *arguments).atexit = False
        return connection

    def check_file(self) -> None:
        """Check that the path still names the file that was opened.

        Raises:
            StoreError: The folder was moved or removed, or the file replaced.
        """
        identity = self._file_identity()
        if identity != self._file:
            folder = self._path.parent
            what = "was moved, renamed or removed" if identity is None else "was replaced by another"
            raise StoreError(
                f"{self._path} {what} while the store was open. Nothing was read or written there. Move it back to "
                f"{folder} and go on, or close this store and open the folder where it is now."
            )

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            stat = os.stat(self._name)  # noqa: PTH116  (before every call, at half the time of Path.stat)
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    def fetch_value(self, query: str, parameters: Sequence[Any] = ()) -> Any:  # noqa: ANN401
        """Return the first column of the first row of a query, or None."""
        row = self.connection().execute(query, parameters).fetchone()
        return None if row is None else row[0]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run a write transaction: committed at the end of the block, rolled back when it raises.

        Raises:
            StoreError: The disk is full or the folder cannot be written.
        """
        connection = self.connection()
        try:
            with _transactions.block():
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
        """Run a read transaction: all statements of the block see one state."""
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
        """Return SQLite's data_version of this thread's connection: it changes when another connection commits."""
        return int(self.fetch_value("PRAGMA data_version"))

    def close(self) -> None:
        """Close the catalog for good; idempotent."""
        self._closed = True
        self.close_connections()
        if self._shared_file is not None:
            self._shared_file.close()

    def close_connections(self) -> None:
        """Close the connections of all threads; a thread that uses the catalog again opens a new one."""
        replaced = self._file_identity() not in {None, self._file}
        with self._guard:
            for connection in list(self._connections):
                if replaced:  # the last connection to close would delete the write-ahead log of the new file
                    keep_for_ever(connection)
                    continue
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
            self._connections.clear()
        self._local = threading.local()

    def truncate_wal(self, patience: float | None = None) -> bool:
        """Empty the write-ahead log, so that it holds no deleted text.

        Args:
            patience: Seconds to wait for readers of old snapshots; as long as for other locks by default.

        Returns:
            Whether it succeeded; it fails while a reader holds an old snapshot, and on a full disk.
        """
        connection = self.connection()
        try:
            connection.execute(f"PRAGMA busy_timeout={int(1000 * (_BUSY_SECONDS if patience is None else patience))}")
            try:
                with _transactions.block():
                    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                connection.execute(f"PRAGMA busy_timeout={int(1000 * _BUSY_SECONDS)}")
        except sqlite3.Error as error:
            logger.warning("the write-ahead log of %s could not be emptied: %s", self._path, error)
            return False
        return not busy

    def finish_purge(self, entries: Sequence[int]) -> bool:
        """Overwrite copies of deleted rows that SQLite has left in the file, and remove entries from the journal.

        See `free_space.py`. The caller holds the store's write lock and has emptied the write-ahead log.

        Args:
            entries: Ids of the journal entries; there is at least one.

        Returns:
            Whether it succeeded; it fails when another program has written meanwhile, and on an unreadable file.
        """
        try:
            # a new connection has no old page cached, and its commit has the others drop theirs: none writes a copy
            with contextlib.closing(self._connect()) as connection, _transactions.block():
                connection.execute("BEGIN IMMEDIATE")
                if self._wal_bytes() or self._shared_file is None:
                    return False
                overwrite_free_space(self._shared_file.descriptor())
                connection.executemany("DELETE FROM journal WHERE id = ?", [(entry,) for entry in entries])
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError, ValueError) as error:
            logger.warning("copies of deleted rows in %s could not be overwritten: %s", self._path, error)
            return False
        return True

    def _wal_bytes(self) -> int:
        try:
            return self._path.with_name(f"{self._path.name}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def check_integrity(self) -> list[str]:
        """Return the problems SQLite finds in the file; empty when there are none."""
        try:
            messages = [row[0] for row in self.connection().execute("PRAGMA quick_check(20)")]
        except sqlite3.Error as error:
            return [str(error)]
        return [message for message in messages if message != "ok"]

    # -- manifest -------------------------------------------------------------------------------------------------

    def manifest_value(self, key: str) -> Any:  # noqa: ANN401  (a JSON value)
        """Return one value of the manifest, or None."""
        value = self.fetch_value("SELECT value FROM manifest WHERE key = ?", (key,))
        return None if value is None else json.loads(value)

    def set_manifest(self, **values: object) -> None:
        """Write manifest values."""
        rows = [(key, json.dumps(value, ensure_ascii=False)) for key, value in values.items()]
        with self.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO manifest VALUES (?, ?)", rows)

    # -- partitions -----------------------------------------------------------------------------------------------

    def partition(self, owner: str | None) -> PartitionRow | None:
        """Return the partition of an owner, or None."""
        query = f"SELECT {_PARTITION_COLUMNS} FROM partitions WHERE owner IS ?"
        row = self.connection().execute(query, (owner,)).fetchone()
        return None if row is None else _partition_row(row)

    def partitions(self) -> list[PartitionRow]:
        """Return all partitions, in the order they were created."""
        query = f"SELECT {_PARTITION_COLUMNS} FROM partitions ORDER BY id"
        return [_partition_row(row) for row in self.connection().execute(query)]

    def add_partition(self, owner: str | None, name: str) -> PartitionRow:
        """Create a partition unless it exists."""
        with self.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO partitions(owner, name) VALUES (?, ?)", (owner, name))
        partition = self.partition(owner)
        if partition is None:
            raise StoreError(f"The partition of {owner!r} vanished while it was created: another process deleted it.")
        return partition

    # -- journal --------------------------------------------------------------------------------------------------

    def reserve_rows(self, sizes: dict[int, int]) -> dict[int, tuple[int, range]]:
        """Reserve row ids and note the writes in the journal.

        Args:
            sizes: Partition id → number of rows.

        Returns:
            Partition id → (id of the journal entry, row ids).
        """
        with self.transaction() as connection:
            reserved = {}
            for partition, size in sizes.items():
                first = connection.execute("SELECT value FROM counters WHERE name = 'row'").fetchone()[0]
                connection.execute("UPDATE counters SET value = value + ? WHERE name = 'row'", (size,))
                rows = range(first, first + size)
                reserved[partition] = insert_journal_entry(connection, partition, "writing", [], rows), rows
            return reserved

    def journal(self) -> list[JournalEntry]:
        """Return the entries of unfinished work, oldest first; without those of purging."""
        return self._journal_entries("state <> 'purging'")

    def purges(self) -> list[JournalEntry]:
        """Return the entries of purging, oldest first: what is deleted and may still be on disk."""
        return self._journal_entries("state = 'purging'")

    def _journal_entries(self, condition: str) -> list[JournalEntry]:
        query = f"SELECT id, partition, state, first, last, dead FROM journal WHERE {condition} ORDER BY id"
        return [journal_entry(*values) for values in self.connection().execute(query)]

    def add_journal_entry(self, partition: int, state: str, payload: object, rows: range = range(0)) -> int:
        """Note work that is about to start in the journal; return the entry's id."""
        with self.transaction() as connection:
            return insert_journal_entry(connection, partition, state, payload, rows)

    def clear_journal(self, entries: Iterable[int]) -> None:
        """Delete entries of finished work from the journal."""
        with self.transaction() as connection:
            connection.executemany("DELETE FROM journal WHERE id = ?", [(entry,) for entry in entries])

    # -- Chroma ---------------------------------------------------------------------------------------------------

    def last_indexed_row(self, collection: str) -> int:
        """Return the last row a collection holds; 0 for one that belongs to no partition."""
        return int(self.fetch_value("SELECT indexed FROM partitions WHERE collection = ?", (collection,)) or 0)

    def count_unindexed(self, partition: PartitionRow) -> int:
        """Return the number of live rows that the partition's collection does not hold yet."""
        if self.counter("row") <= partition.indexed + 1:
            return 0
        query = "SELECT count(*) FROM chunks WHERE partition = ? AND row > ?"
        return int(self.fetch_value(query, (partition.id, partition.indexed)))

    def counter(self, name: str) -> int:
        """Return the value of a counter."""
        return int(self.fetch_value("SELECT value FROM counters WHERE name = ?", (name,)))

    def set_counter(self, name: str, value: int) -> None:
        """Set a counter."""
        with self.transaction() as connection:
            connection.execute("UPDATE counters SET value = ? WHERE name = ?", (value, name))

    # -- opening --------------------------------------------------------------------------------------------------

    def _open_database(self) -> None:
        try:
            connection = self.connection()
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
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
        version = self.manifest_value("format")
        if version != FORMAT:
            self.close()
            raise StoreMismatchError(
                f"The store {self._path.parent} has format {version}, this version reads format {FORMAT}. "
                "Upgrade langchain-agentrag, or index into a new folder."
            )


class _Connection(sqlite3.Connection):
    """SQLite connection that supports weak references."""


class _ThreadConnection:
    """Owner of a thread's connection: closes it when the thread ends.

    The connection refers to itself and would stay open until the next garbage collection.
    """

    def __init__(self, connection: _Connection) -> None:
        self.connection, self._pid = connection, os.getpid()

    def __del__(self) -> None:
        if self._pid != os.getpid():  # a fork ends the threads of the parent in the child
            keep_for_ever(self.connection)
            return
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()


def _close_dropped(connections: Iterable[_Connection], file: SharedFile, pid: int) -> None:
    """Close the connections of a catalog that was dropped without `close`, then its file."""
    if pid == os.getpid():  # a forked child keeps what it has inherited
        for connection in list(connections):
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        file.close()


def _partition_row(row: Sequence[Any]) -> PartitionRow:
    values: list[Any] = [*row[:-1], tuple(json.loads(row[-1]))]
    return PartitionRow(*values)


def _cannot_open(path: Path, error: sqlite3.Error) -> StoreError:
    text = str(error)
    if "not a database" in text or "malformed" in text:
        return NotAStoreError(f"{path} is not a readable SQLite catalog ({text}). Pass the folder of a store.")
    return StoreError(
        f"Cannot open the catalog {path}: {text}. Check that the folder exists, can be written, and has free space."
    )


def select_in(
    connection: sqlite3.Connection,
    query: str,
    values: Sequence[Any],
    *,
    before: Sequence[Any] = (),
    after: Sequence[Any] = (),
) -> Iterator[Any]:
    """Run a query with `IN (...)` for any number of values, in batches, and yield its rows.

    Args:
        connection: A connection to the catalog.
        query: The statement; `...` stands for the values.
        values: The values.
        before: Parameters before them.
        after: Parameters after them.
    """
    for start in range(0, len(values), _MAX_PARAMETERS):
        batch = values[start : start + _MAX_PARAMETERS]
        statement = query.replace("...", ",".join("?" * len(batch)))
        yield from connection.execute(statement, (*before, *batch, *after))


_MODEL_KEYS = ("embedding", "dimension", "background")  # of the manifest


def clear_model(catalog: Catalog) -> bool:
    """Remove the embedding model from the manifest of a store without chunks; the caller holds the write lock.

    So a first attempt with a wrong model, which stored nothing, does not make the folder useless.

    Returns:
        Whether it was removed: False while there is a chunk.
    """
    with catalog.transaction() as connection:
        if connection.execute("SELECT 1 FROM chunks LIMIT 1").fetchone():
            return False
        connection.execute("DELETE FROM embedding_cache")
        connection.executemany("DELETE FROM manifest WHERE key = ?", [(key,) for key in _MODEL_KEYS])
        return True
