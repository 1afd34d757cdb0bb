"""Chroma's folder of a store: its client, shared between threads and processes, and checks and repairs of its files."""

from __future__ import annotations

import inspect
import itertools
import json
import logging
import secrets
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_agentrag.errors import StoreError, native_errors
from langchain_agentrag.store import hnsw_files
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.store.fork import check_chroma_usable, note_chroma_used
from langchain_agentrag.store.lock import WriteLock
from langchain_agentrag.store.protocols import Rows

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

logger = logging.getLogger(__name__)

DATABASE = "chroma.sqlite3"
_SQLITE_HEADER = 100


def _scrub(path: str) -> dict[str, object]:
    """Overwrite what was deleted from a Chroma database; return the ids of its segments, and that of each collection.

    A deleted row may still have its vector in the queue, which Chroma empties only every so many rows: records before
    a deletion of the same row (operation 3) can go. Later ones stay, a slice may have been undone and indexed again.
    """
    import sqlite3  # this function also runs alone, see `_scrub_in_subprocess`
    from contextlib import closing

    collections = "SELECT c.name, s.id FROM collections c JOIN segments s ON s.collection = c.id WHERE s.scope = ?"
    with closing(sqlite3.connect(path, timeout=10.0)) as connection:
        connection.execute("PRAGMA secure_delete=ON")
        with connection:
            connection.execute("CREATE TEMP TABLE deleted(topic, id, seq_id, PRIMARY KEY(topic, id))")
            connection.execute(
                "INSERT INTO deleted SELECT topic, id, max(seq_id) FROM embeddings_queue WHERE operation = 3 "
                "GROUP BY topic, id"
            )
            connection.execute(
                "DELETE FROM embeddings_queue AS q WHERE vector IS NOT NULL AND EXISTS "
                "(SELECT 1 FROM deleted d WHERE d.topic = q.topic AND d.id = q.id AND d.seq_id > q.seq_id)"
            )
        connection.execute("VACUUM")
        return {
            "segments": [segment for (segment,) in connection.execute("SELECT id FROM segments")],
            "collections": dict(connection.execute(collections, ("VECTOR",))),
        }


def _scrub_in_subprocess(path: Path) -> dict[str, Any]:
    """`_scrub` in an interpreter of its own, without site packages.

    SQLite's file locks do not work between two SQLite libraries of one process, and Chroma brings its own: a search
    running in this process would read pages while they move, and report a malformed database.

    Raises:
        OSError: The database is in use or unreadable.
    """
    script = f"import json, sys\n\n{inspect.getsource(_scrub)}\njson.dump(_scrub(sys.argv[1]), sys.stdout)"
    command = [sys.executable, "-I", "-S", "-c", script, str(path)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (our own script)
    if completed.returncode:
        raise OSError(completed.stderr.strip().rpartition("\n")[2])
    return dict(json.loads(completed.stdout))


def _can_start_interpreter() -> bool:
    try:
        inspect.getsource(_scrub)
    except OSError:
        return False
    return bool(sys.executable) and not getattr(sys, "frozen", False)


READ_LOCK_TIMEOUT = 1.0
"""Seconds a search waits for a writer before it scores exactly instead."""

_clients = itertools.count()


@dataclass(slots=True)
class OpenCollection:
    """Collection opened by a client.

    Attributes:
        collection: The collection.
        last_visible_row: Last row the client is certain to see. Rows are indexed in order, and the client does not see
            rows that other processes have indexed since it was opened.
    """

    collection: Collection
    last_visible_row: int


@dataclass(slots=True, eq=False)
class Session:
    """Open Chroma client with its state.

    Attributes:
        client: The client.
        file: Device and inode of the database it has open; they differ once the database was replaced.
        write_token: Number put into the catalog by the last write through this client.
        catalog_token: Number that was in the catalog when the client was opened.
        collections: Collections it has opened, by name.
        users: Number of running calls.
        retired: Whether the last user closes the client.
    """

    client: ClientAPI
    file: tuple[int, int] | None
    write_token: int
    catalog_token: int
    collections: dict[str, OpenCollection] = field(default_factory=dict)
    users: int = 0
    retired: bool = False

    def close(self) -> None:
        """Release files and memory."""
        with suppress(Exception):  # it buffers nothing, so an error loses nothing
            self.client.close()  # type: ignore[attr-defined]


class ChromaFolder:
    """Chroma folder of a store, with one client at a time. Thread-safe.

    Args:
        folder: Chroma's persistence folder; created when absent.
        catalog: The store's catalog; it records which client wrote last.
        lock: The store's write lock.
    """

    def __init__(self, folder: Path, catalog: Catalog, lock: WriteLock) -> None:
        self._folder, self._catalog, self._lock = folder, catalog, lock
        self._guard = threading.Lock()
        self._session: Session | None = None
        self._zeroed: dict[str, int] = {}  # folder of an index → when the files were stored that were zeroed last

    @staticmethod
    def import_chromadb() -> None:
        """Import chromadb, which takes a second: call it before acquiring the write lock."""
        import chromadb  # noqa: F401

    @contextmanager
    def write_session(self) -> Iterator[Session]:
        """Use a client that sees every write so far; the caller holds the write lock."""
        self.discard_stale_client()
        session = self._current_session() or self._open()
        # a new token per write: a client opened after an earlier write of this one has to notice this write too
        session.write_token = secrets.randbits(53) | 1
        self._catalog.set_counter("chroma", session.write_token)
        try:
            with self._in_use(session):
                yield session
        except BaseException:
            self.close()  # after an error such as a full disk the next call to the same client may never return
            raise

    def discard_stale_client(self) -> None:
        """Close a client that does not see later writes of other clients; the caller holds the write lock."""
        session = self._current_session()
        if session and self._catalog.counter("chroma") not in {session.write_token, session.catalog_token}:
            self.close()

    @contextmanager
    def read_collection(self, name: str) -> Iterator[Collection]:
        """Use a collection for reading, with a client that has opened it.

        Raises:
            StoreLockedError: Client or collection have to be opened, which needs the write lock, and a writer holds it.
        """
        session = self._current_session()
        if session is None or name not in session.collections:
            with self._lock.acquire(timeout=READ_LOCK_TIMEOUT):
                session = self._current_session() or self._open()
                with self._in_use(session):
                    self.collection(session, name)
        with self._in_use(session):
            yield self.collection(session, name)

    def drop(self, name: str) -> None:
        """Delete a collection; an absent one is ignored. The caller holds the write lock."""
        from chromadb.errors import NotFoundError

        with native_errors("Chroma", f"drop the collection {name}"), self.write_session() as session:
            session.collections.pop(name, None)
            with suppress(NotFoundError, ValueError):
                session.client.delete_collection(name)

    def collection_names(self) -> set[str]:
        """Return the names of all collections; the caller holds the write lock."""
        with native_errors("Chroma", "list collections"):
            session = self._current_session() or self._open()
            with self._in_use(session):
                return {entry.name for entry in session.client.list_collections(limit=1_000_000)}

    def collection(self, session: Session, name: str) -> Collection:
        """Return a collection of a session; the caller holds the write lock when the session has not opened it yet."""
        opened = session.collections.get(name)
        if opened is None:
            last_row = self._catalog.last_indexed_row(name)
            opened = OpenCollection(session.client.get_collection(name, embedding_function=None), last_row)
            opened.collection.count()  # makes Chroma load the collection while nobody writes
            self.zero_unused()  # loading stores a small index again
            session.collections[name] = opened
        return opened.collection

    def mark_written(self, name: str, last: int) -> None:
        """Record that this client has written all rows of the collection up to `last`."""
        with self._guard:
            if self._session and (opened := self._session.collections.get(name)):
                opened.last_visible_row = max(opened.last_visible_row, last)

    def last_visible_row(self, name: str) -> int | None:
        """Return the last row the current client is certain to see; None when it has not opened the collection."""
        session = self._current_session()
        opened = session and session.collections.get(name)
        return opened.last_visible_row if opened else None

    def close(self) -> None:
        """Close the client after its running calls; the next use opens one that sees every write."""
        self._publish(None)

    def _publish(self, session: Session | None) -> None:
        """Make this the client from now on; the one before is closed after its running calls."""
        with self._guard:
            old, self._session = self._session, session
            if old is None or old is session:
                return
            old.retired = True
            idle = not old.users
        if idle:
            old.close()

    def _replace_client(self, names: Sequence[str]) -> None:
        """Open a client that has loaded these collections, and let searches use it from then on."""
        if not names:
            self.close()
            return
        try:
            session = self._new_session()
            for name in names:
                self.collection(session, name)
        except Exception as error:  # noqa: BLE001  (the next search opens one, or repairs what is damaged)
            logger.warning("Chroma will be opened again by the next search: %s", error)
            self.close()
            return
        self._publish(session)

    def delete_all(self) -> None:
        """Delete Chroma's folder, readable or not; the caller holds the write lock.

        Raises:
            StoreError: The files cannot be deleted.
        """
        self.close()
        try:
            if self._folder.exists():
                shutil.rmtree(self._folder)
        except OSError as error:
            raise StoreError(
                f"Cannot delete {self._folder} to rebuild it: {error}. Check its permissions, then run repair()."
            ) from error

    def delete_leftovers(self, live: Mapping[str, Rows] | None = None, *, stay_open: bool = True) -> list[str]:
        """Erase deleted rows and dropped collections from Chroma's files; the caller holds the write lock.

        Chroma keeps the vectors and the agent id of deleted rows in its queue and in free pages of its database, the
        vectors in its HNSW files, and never deletes the HNSW folder of a dropped collection. Searches go on with the
        client they have until a new one has loaded the cleaned files; the old one must not store its graph again.

        Args:
            live: Collection → its live rows, ascending, for every collection that rows were deleted from.
            stay_open: Whether a client that was open is replaced, or only closed.

        Returns:
            Names of the collections whose HNSW files have an unknown layout: rebuild them.

        Raises:
            StoreError: The database is in use or unreadable.
        """
        session = self._current_session()
        opened = list(session.collections) if session is not None and stay_open else []
        try:
            if _can_start_interpreter():
                scrubbed = _scrub_in_subprocess(self._folder / DATABASE)
            else:
                self.close()
                scrubbed = _scrub(str(self._folder / DATABASE))
            for entry in self._folder.iterdir():
                if entry.is_dir() and entry.name not in scrubbed["segments"]:
                    shutil.rmtree(entry)
            unknown = [
                name
                for name, rows in (live or {}).items()
                if not hnsw_files.erase_vectors(self._folder / scrubbed["collections"].get(name, ""), rows)
            ]
            self.zero_unused()
        except (sqlite3.Error, OSError) as error:
            self.close()
            raise StoreError(
                f"Deleted rows could not be erased from {self._folder}: {error}. "
                "It is tried again at the next write; repair() does it at once."
            ) from error
        self._catalog.set_counter("chroma", secrets.randbits(53) | 1)  # clients of other processes have the old graph
        self._replace_client([name for name in opened if name in scrubbed["collections"]])
        return unknown

    def zero_unused(self) -> None:
        """Zero the unused space of HNSW files stored since the last call; the caller holds the write lock.

        Chroma stores an index with space for more elements and fills it with uninitialised memory of the process,
        which may hold texts that were just indexed or deleted, of any agent. Every client that opens an index of less
        than 100 elements stores it again in the same way.

        Raises:
            StoreError: A file cannot be written.
        """
        try:
            for header in self._folder.glob(f"*/{hnsw_files.HEADER}"):
                stored = header.stat().st_mtime_ns
                if self._zeroed.get(header.parent.name) != stored:
                    hnsw_files.zero_unused(header.parent)
                    self._zeroed[header.parent.name] = stored
        except OSError as error:
            raise StoreError(f"Cannot write to {self._folder}: {error}. Check its permissions.") from error

    def damaged_collections(self, names: Iterable[str], *, after_crash: bool) -> set[str]:
        """Return those of the collections whose files are missing or damaged; the caller holds the write lock.

        Chroma reads its HNSW files without a check, and torn ones crash the process. So they are checked before Chroma
        is loaded.

        Args:
            names: Collections that should be there.
            after_crash: Also report files that were being written when their writer was killed. The files of a copied
                store may look the same, so set this only when the journal shows that a writer was killed.

        Raises:
            StoreError: The whole database is damaged.
        """
        path = self._folder / DATABASE
        try:
            with path.open("rb") as file:
                header = file.read(_SQLITE_HEADER)
            size, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
            if len(header) < _SQLITE_HEADER or path.stat().st_size < pages * (65_536 if size == 1 else size):
                raise StoreError(f"{path} is cut short.")
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                query = "SELECT c.name, s.id FROM collections c JOIN segments s ON s.collection = c.id"
                segments = dict(connection.execute(f"{query} WHERE s.scope = 'VECTOR'"))
                stored = {segment for (segment,) in connection.execute("SELECT segment_id FROM max_seq_id")}
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} cannot be read: {error}.") from error
        return {
            name
            for name in names
            if name not in segments
            or hnsw_files.is_torn(
                self._folder / segments[name], stored=segments[name] in stored, after_crash=after_crash
            )
        }

    def exists(self) -> bool:
        """Whether Chroma has a database."""
        return (self._folder / DATABASE).exists()

    # -- the client -----------------------------------------------------------------------------------------------

    def _current_session(self) -> Session | None:
        """Return the open client, unless its database file was replaced."""
        with self._guard:
            session = self._session
        if session is not None and session.file != self._database_identity():
            self.close()
            return None
        return session

    def _open(self) -> Session:
        session = self._new_session()
        self._publish(session)
        return session

    def _new_session(self) -> Session:
        check_chroma_usable()
        note_chroma_used()
        import chromadb
        from chromadb.config import Settings

        # Chroma shares one engine per path string within a process, with its stale caches. A spelling of the path that
        # nobody else uses gives this client an engine of its own.
        unique_path = f"{self._folder}{'/.' * (next(_clients) % 200 + 1)}"
        with native_errors("Chroma", f"open {self._folder}"):
            self._folder.mkdir(exist_ok=True)  # not the folder of the store: it may have been moved
            catalog_token = self._catalog.counter("chroma")
            client = chromadb.PersistentClient(unique_path, settings=Settings(anonymized_telemetry=False))
        return Session(client, self._database_identity(), secrets.randbits(53) | 1, catalog_token)

    def _database_identity(self) -> tuple[int, int] | None:
        try:
            stat = (self._folder / DATABASE).stat()
        except OSError:
            return None
        return stat.st_dev, stat.st_ino

    @contextmanager
    def _in_use(self, session: Session) -> Iterator[None]:
        with self._guard:
            session.users += 1
        try:
            yield
        finally:
            with self._guard:
                session.users -= 1
                idle = session.retired and not session.users
            if idle:
                session.close()
