"""What can be told of Chroma's files, and done about them, without loading Chroma."""

from __future__ import annotations

import itertools
import logging
import secrets
import shutil
import sqlite3
import struct
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_agentrag.errors import StoreError, native_errors
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.store.lock import WriteLock
from langchain_agentrag.store.vacuum import vacuumed

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

logger = logging.getLogger(__name__)

DATABASE = "chroma.sqlite3"
_SQLITE_HEADER = 100
_HNSW_HEADER = struct.Struct(
    "<i6Q"
)  # version, offset, capacity, elements, bytes per element, two more offsets
_HEADER = "header.bin"
_METADATA = "index_metadata.pickle"  # written last


def sweep(folder: Path) -> None:
    """Delete what dropped collections leave behind.

    Chroma keeps the HNSW folder of a dropped collection for ever, and the agent id and the vectors of its rows in free
    pages of its database.

    Raises:
        StoreError: the database is in use or unreadable.
    """
    try:
        known = vacuumed(folder / DATABASE)
        for entry in folder.iterdir():
            if entry.is_dir() and entry.name not in known:
                shutil.rmtree(entry)
        zero_unused(folder)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"What a dropped collection left in {folder} could not be deleted: {error}. "
            "It is tried again at the next write; repair() does it at once."
        ) from error


def zero_unused(folder: Path) -> None:
    """Zero what HNSW files hold beyond their elements.

    A new index is stored with room for 100 elements, and that room is whatever was in the process's memory: texts that
    were just indexed, of any agent. While it is too small to be stored in full, every client that opens it does so.

    Raises:
        StoreError: a file cannot be written.
    """
    try:
        for header in folder.glob(f"*/{_HEADER}"):
            content = header.read_bytes()[: _HNSW_HEADER.size]
            if len(content) == _HNSW_HEADER.size:
                _, _, _, elements, width, _, _ = _HNSW_HEADER.unpack(content)
                _zero_from(header.with_name("data_level0.bin"), elements * width)
                _zero_from(header.with_name("length.bin"), elements * 4)
    except OSError as error:
        raise StoreError(f"Cannot write to {folder}: {error}. Check its permissions.") from error


def _zero_from(path: Path, start: int) -> None:
    size = path.stat().st_size
    if size <= start:
        return
    with path.open("r+b") as file:
        file.seek(start)
        if any(file.read(size - start)):
            file.seek(start)
            file.write(bytes(size - start))


def damaged(folder: Path, names: set[str], *, after_kill: bool) -> set[str]:
    """Those of the collections that the files show to be lost.

    Chroma reads its HNSW files as they are: torn ones crash the process. So they are looked at before it does.

    Args:
        folder: Chroma's folder.
        names: Collections that should be there.
        after_kill: Also count files that were being written when their writer died. A copy of a store may look like
            that too, so this is asked only when the journal tells of a kill.

    Raises:
        StoreError: the database as a whole is lost.
    """
    path = folder / DATABASE
    try:
        with path.open("rb") as file:
            header = file.read(_SQLITE_HEADER)
        size, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
        if len(header) < _SQLITE_HEADER or path.stat().st_size < pages * (65_536 if size == 1 else size):
            raise StoreError(f"{path} is cut short.")
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            segments = dict(
                connection.execute(
                    "SELECT c.name, s.id FROM collections c JOIN segments s ON s.collection = c.id "
                    "WHERE s.scope = 'VECTOR'"
                )
            )
            stored = {key for (key,) in connection.execute("SELECT segment_id FROM max_seq_id")}
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path} cannot be read: {error}.") from error
    return {
        name
        for name in names
        if name not in segments
        or _is_torn(folder / segments[name], stored=segments[name] in stored, after_kill=after_kill)
    }


def _is_torn(folder: Path, *, stored: bool, after_kill: bool) -> bool:
    """Whether an HNSW index was not written in full: sizes disagree, or the last file to write is not the newest."""
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
    newest = max(found.st_mtime_ns for found in files.values())
    return torn or (after_kill and complete is not None and newest > complete)


def _are_link_lists(path: Path, elements: int) -> bool:
    """Whether a file is one list of links per element: its length in bytes as u32, then that many bytes.

    Chroma takes any length it reads for true: a file that was cut made it write one of 77 GB.
    """
    content = path.read_bytes()
    if len(content) < 4 * elements:
        return False
    place = 0
    for _ in range(elements):
        place += 4 + int.from_bytes(content[place : place + 4], "little")
    return place == len(content)


READER_PATIENCE = 1.0
"""Seconds a search waits for a writer before it scores exactly instead."""

_handles = itertools.count()


@dataclass(slots=True)
class OpenCollection:
    """A collection in use.

    Attributes:
        collection: The collection.
        horizon: Last row its client can see for certain: rows are handed over in order, and what others have handed
            over since it was opened stays hidden from it.
    """

    collection: Collection
    last_visible_row: int


@dataclass(slots=True, eq=False)
class Session:
    """An open client and what is known of it.

    Attributes:
        client: The client.
        file: Device and inode of Chroma's database: another one has taken its place when they differ.
        token: Put into the catalog by the last write through this client.
        fresh_for: The token that was in the catalog when the client was opened.
        collections: Collections it has used, by name.
        users: Calls that are under way.
        retired: To be closed by the last user.
    """

    client: ClientAPI
    file: tuple[int, int] | None
    token: int
    fresh_for: int
    collections: dict[str, OpenCollection] = field(default_factory=dict)
    users: int = 0
    retired: bool = False

    def close(self) -> None:
        """Release files and memory."""
        with suppress(Exception):  # nothing is buffered in it; a broken one has nothing left to lose
            self.client.close()  # type: ignore[attr-defined]


class ChromaFolder:
    """Chroma's folder of a store.

    Args:
        folder: Where Chroma persists; made when absent.
        catalog: The store's catalog, which knows who wrote last.
        lock: The store's write lock.
    """

    def __init__(self, folder: Path, catalog: Catalog, lock: WriteLock) -> None:
        self._folder, self._catalog, self._lock = folder, catalog, lock
        self._guard = threading.Lock()
        self._session: Session | None = None

    @staticmethod
    def load() -> None:
        """Import the library, which takes a second that nobody should hold the write lock for."""
        import chromadb  # noqa: F401

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A client that has seen every write so far; the caller holds the write lock."""
        self.refresh()
        session = self._current() or self._open()
        # a new one every time: a client that was opened after an earlier write of this one must notice this write
        session.token = secrets.randbits(53) | 1
        self._catalog.set_counter("chroma", session.token)
        try:
            with self._used(session):
                yield session
        except BaseException:
            self.close()  # after an error such as a full disk, the next call to the same client may never return
            raise

    def refresh(self) -> None:
        """Let go of a client that cannot see what others have written since; the caller holds the write lock."""
        session = self._current()
        if session is not None and self._catalog.counter("chroma") not in {session.token, session.fresh_for}:
            self.close()

    @contextmanager
    def reading(self, name: str) -> Iterator[Session]:
        """A client that may use the collection; opened, and shown the collection, when it was not before.

        Raises:
            StoreLockedError: that would take the write lock, and a writer has it.
        """
        session = self._current()
        if session is None or name not in session.collections:
            with self._lock.held(patience=READER_PATIENCE):
                session = self._current() or self._open()
                with self._used(session):
                    self.use(session, name)
        with self._used(session):
            yield session

    def drop(self, name: str) -> None:
        """Delete a collection; absent ones are ignored. The caller holds the write lock."""
        from chromadb.errors import NotFoundError

        with native_errors("Chroma", f"drop the collection {name}"), self.writing() as session:
            session.collections.pop(name, None)
            with suppress(NotFoundError, ValueError):
                session.client.delete_collection(name)

    def names(self) -> set[str]:
        """Names of all collections; the caller holds the write lock."""
        with native_errors("Chroma", "list collections"):
            session = self._current() or self._open()
            with self._used(session):
                return {found.name for found in session.client.list_collections(limit=1_000_000)}

    def use(self, session: Session, name: str) -> Collection:
        """The collection within a session; the caller holds the write lock when it is the first time."""
        opened = session.collections.get(name)
        if opened is None:
            horizon = self._catalog.indexed(name)
            opened = OpenCollection(session.client.get_collection(name, embedding_function=None), horizon)
            opened.collection.count()  # lets Chroma bring the collection up to date while nobody writes
            self.zero_unused()  # which makes it store a small index anew
            session.collections[name] = opened
        return opened.collection

    def has_opened(self, name: str) -> bool:
        """Whether the open client has used the collection."""
        session = self._current()
        return session is not None and name in session.collections

    def mark_written(self, name: str, last: int) -> None:
        """Note that this client has written everything the collection holds up to a row."""
        with self._guard:
            opened = None if self._session is None else self._session.collections.get(name)
            if opened is not None:
                opened.last_visible_row = max(opened.last_visible_row, last)

    def last_visible_row(self, name: str) -> int | None:
        """Last row that the open client can see for certain; None when it has not used the collection yet."""
        session = self._current()
        opened = None if session is None else session.collections.get(name)
        return None if opened is None else opened.last_visible_row

    def close(self) -> None:
        """Let go of the client; calls that are under way finish first. The next use opens one that sees everything."""
        with self._guard:
            session, self._session = self._session, None
            if session is None:
                return
            session.retired = True
            idle = not session.users
        if idle:
            session.close()

    def reset(self) -> None:
        """Delete everything Chroma holds, readable or not; the caller holds the write lock.

        Raises:
            StoreError: the files cannot be deleted.
        """
        self.close()
        try:
            if self._folder.exists():
                shutil.rmtree(self._folder)
        except OSError as error:
            raise StoreError(
                f"Cannot delete {self._folder} to rebuild it: {error}. Check its permissions, then run repair()."
            ) from error

    def sweep(self) -> None:
        """Delete what dropped collections leave behind; the caller holds the write lock.

        The client is closed first: two SQLite libraries in one process do not see each other's file locks, and only
        the holder of the write lock ever writes.

        Raises:
            StoreError: the database is in use or unreadable.
        """
        self.close()
        sweep(self._folder)

    def zero_unused(self) -> None:
        """Take what Chroma copied from memory out of its files; the caller holds the write lock.

        Raises:
            StoreError: a file cannot be written.
        """
        zero_unused(self._folder)

    def damaged(self, names: Iterable[str], *, after_kill: bool = False) -> set[str]:
        """Those of the collections whose files show that they are lost; the caller holds the write lock.

        Looks at files only, without loading Chroma.

        Raises:
            StoreError: the database as a whole is lost.
        """
        return damaged(self._folder, set(names), after_kill=after_kill)

    def exists(self) -> bool:
        """Whether anything was ever stored."""
        return (self._folder / DATABASE).exists()

    # -- the client -----------------------------------------------------------------------------------------------

    def _current(self) -> Session | None:
        """The open client, unless the files it has open are no longer those in the folder."""
        with self._guard:
            session = self._session
        if session is not None and session.file != self._file():
            self.close()
            return None
        return session

    def _open(self) -> Session:
        import chromadb
        from chromadb.config import Settings

        # Chroma shares one engine per path string within a process, stale caches included. A spelling of the path
        # that nobody else uses gives this handle an engine of its own, which reopening really replaces.
        private_path = f"{self._folder}{'/.' * (next(_handles) % 200 + 1)}"
        with native_errors("Chroma", f"open {self._folder}"):
            self._folder.mkdir(parents=True, exist_ok=True)
            fresh_for = self._catalog.counter("chroma")
            client = chromadb.PersistentClient(private_path, settings=Settings(anonymized_telemetry=False))
        session = Session(client, self._file(), secrets.randbits(53) | 1, fresh_for)
        with self._guard:
            self._session = session
        return session

    def _file(self) -> tuple[int, int] | None:
        try:
            found = (self._folder / DATABASE).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    @contextmanager
    def _used(self, session: Session) -> Iterator[None]:
        with self._guard:
            session.users += 1
        try:
            yield
        finally:
            with self._guard:
                session.users -= 1
                last = session.retired and not session.users
            if last:
                session.close()
