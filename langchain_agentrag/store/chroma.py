"""Chroma's folder of a store: its client, shared between threads and processes, and checks and repairs of its files."""

from __future__ import annotations

import inspect
import itertools
import logging
import secrets
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_agentrag.errors import StoreError, native_errors
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.store.fork import check_chroma_usable, note_chroma_used
from langchain_agentrag.store.lock import WriteLock

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

logger = logging.getLogger(__name__)

DATABASE = "chroma.sqlite3"
_SQLITE_HEADER = 100
# version, offset, capacity, elements, bytes per element, two more offsets
_HNSW_HEADER = struct.Struct("<i6Q")
_HEADER = "header.bin"
_METADATA = "index_metadata.pickle"  # written last


def _vacuum(path: str) -> list[str]:
    """Vacuum a Chroma database, which overwrites its deleted rows, and return the ids of its segments."""
    import sqlite3  # this function also runs alone, see `_vacuum_in_subprocess`
    from contextlib import closing

    with closing(sqlite3.connect(path, timeout=10.0)) as connection:
        segments = [str(segment) for (segment,) in connection.execute("SELECT id FROM segments")]
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("VACUUM")
    return segments


def _vacuum_in_subprocess(path: Path) -> set[str]:
    """`_vacuum` in an interpreter of its own, without site packages.

    SQLite's file locks do not work between two SQLite libraries of one process, and Chroma brings its own: a search
    running in this process would read pages while they move, and report a malformed database.

    Raises:
        OSError: The database is in use or unreadable.
    """
    try:
        source = inspect.getsource(_vacuum)
    except OSError:
        source = ""
    if not source or not sys.executable or getattr(sys, "frozen", False):  # no source, or no interpreter to start
        return set(_vacuum(str(path)))
    script = f"import sys\n\n{source}\nsys.stdout.write('\\n'.join(_vacuum(sys.argv[1])))"
    command = [sys.executable, "-I", "-S", "-c", script, str(path)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (our own script)
    if completed.returncode:
        raise OSError(completed.stderr.strip().rpartition("\n")[2])
    return set(completed.stdout.split())


def _zero_from(path: Path, start: int) -> None:
    size = path.stat().st_size
    if size <= start:
        return
    with path.open("r+b") as file:
        file.seek(start)
        if any(file.read(size - start)):
            file.seek(start)
            file.write(bytes(size - start))


def _is_torn(folder: Path, *, stored: bool, after_crash: bool) -> bool:
    """Whether an HNSW index was not written in full: sizes disagree, or the file written last is not the newest."""
    names = (_HEADER, "data_level0.bin", "length.bin", "link_lists.bin")
    try:
        files = {name: (folder / name).stat() for name in names}
        header = (folder / names[0]).read_bytes()[: _HNSW_HEADER.size]
        _, _, capacity, elements, width, _, _ = _HNSW_HEADER.unpack(header)
        complete = (folder / _METADATA).stat().st_mtime_ns if (folder / _METADATA).exists() else None
    except FileNotFoundError:
        return stored or folder.is_dir()
    except (OSError, struct.error):
        return True
    torn = (
        files["data_level0.bin"].st_size not in {capacity * width, elements * width}
        or files["length.bin"].st_size not in {capacity * 4, elements * 4}
        or not _are_link_lists(folder / "link_lists.bin", elements)
        or (complete is None and (stored or elements > 0))
    )
    newest = max(file.st_mtime_ns for file in files.values())
    return torn or (after_crash and complete is not None and newest > complete)


def _are_link_lists(path: Path, elements: int) -> bool:
    """Whether a file holds one list of links per element: its length in bytes as u32, then that many bytes.

    Chroma does not check the lengths it reads: from a truncated file it wrote one of 77 GB.
    """
    content = path.read_bytes()
    if len(content) < 4 * elements:
        return False
    position = 0
    for _ in range(elements):
        position += 4 + int.from_bytes(content[position : position + 4], "little")
    return position == len(content)


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
        with self._guard:
            session, self._session = self._session, None
            if session is None:
                return
            session.retired = True
            idle = not session.users
        if idle:
            session.close()

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

    def delete_leftovers(self) -> None:
        """Delete the files and database pages of dropped collections; the caller holds the write lock.

        Chroma never deletes the HNSW folder of a dropped collection, and keeps the agent id and the vectors of its rows
        in free pages of its database. The client is closed first: two SQLite libraries in one process do not see each
        other's file locks, and only the holder of the write lock ever writes.

        Raises:
            StoreError: The database is in use or unreadable.
        """
        self.close()
        try:
            segments = _vacuum_in_subprocess(self._folder / DATABASE)
            for entry in self._folder.iterdir():
                if entry.is_dir() and entry.name not in segments:
                    shutil.rmtree(entry)
            self.zero_unused()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"The files of a dropped collection in {self._folder} could not be deleted: {error}. "
                "It is tried again at the next write; repair() does it at once."
            ) from error

    def zero_unused(self) -> None:
        """Zero the unused space of HNSW files; the caller holds the write lock.

        Chroma stores a new index with space for 100 elements and fills it with uninitialised memory of the process,
        which may hold texts that were just indexed, of any agent. Every client that opens an index of fewer elements
        stores it again in the same way.

        Raises:
            StoreError: A file cannot be written.
        """
        try:
            for header in self._folder.glob(f"*/{_HEADER}"):
                content = header.read_bytes()[: _HNSW_HEADER.size]
                if len(content) == _HNSW_HEADER.size:
                    _, _, _, elements, width, _, _ = _HNSW_HEADER.unpack(content)
                    _zero_from(header.with_name("data_level0.bin"), elements * width)
                    _zero_from(header.with_name("length.bin"), elements * 4)
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
            or _is_torn(self._folder / segments[name], stored=segments[name] in stored, after_crash=after_crash)
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
        session = Session(client, self._database_identity(), secrets.randbits(53) | 1, catalog_token)
        with self._guard:
            self._session = session
        return session

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
