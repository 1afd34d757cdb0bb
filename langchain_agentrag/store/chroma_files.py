"""What can be told of Chroma's files, and done about them, without loading Chroma."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

from langchain_agentrag.errors import StoreError
from langchain_agentrag.store.vacuum import vacuumed

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
        scrub(folder)
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"What a dropped collection left in {folder} could not be deleted: {error}. "
            "It is tried again at the next write; repair() does it at once."
        ) from error


def scrub(folder: Path) -> None:
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
