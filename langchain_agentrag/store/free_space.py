"""Overwriting the unallocated space of a SQLite file, where `secure_delete` leaves copies of deleted rows.

When SQLite moves rows between b-tree pages, the old page keeps their bytes between its cell pointers and its first
cell. `secure_delete` overwrites a row where it is when it is deleted, not such copies: of 60,000 deleted rows, 36 were
still readable. `VACUUM` would remove them, but writes the whole file twice; reading it once is enough.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from pathlib import Path

from langchain_agentrag.forks import fork_safe_lock

_BLOCK_BYTES = 1 << 22
_MAGIC = b"SQLite format 3\x00"
_FILE_HEADER_BYTES = 100
_PAGE_HEADER_BYTES = {2: 12, 5: 12, 10: 8, 13: 8}  # by the page type: interior and leaf pages of indexes and tables


_users: Counter[tuple[int, int]] = Counter()
_descriptors: dict[tuple[int, int], int] = {}
_guard = fork_safe_lock()


class SharedFile:
    """Catalog file opened once per process, to be read and written beside SQLite.

    On POSIX, closing any descriptor of a file releases the process's locks on it, those of SQLite included. So the
    descriptor is closed with the last user of the file, who has closed all SQLite connections to it before.

    Args:
        path: The file.
        identity: Its device and inode.
    """

    def __init__(self, path: Path, identity: tuple[int, int]) -> None:
        self._path, self._identity, self._closed = path, identity, False
        with _guard:
            _users[identity] += 1

    def descriptor(self) -> int:
        """Return a descriptor of the file, open for reading and writing.

        Raises:
            OSError: The file cannot be opened, or the path names another file by now.
        """
        with _guard:
            if self._identity not in _descriptors:
                descriptor = os.open(self._path, os.O_RDWR | getattr(os, "O_BINARY", 0))
                stat = os.fstat(descriptor)
                _descriptors[stat.st_dev, stat.st_ino] = descriptor  # kept for another file, too: SQLite may use it
                if (stat.st_dev, stat.st_ino) != self._identity:
                    raise OSError(f"{self._path} was replaced by another file")
            return _descriptors[self._identity]

    def close(self) -> None:
        """Note that one user has closed its connections; close the descriptor with the last user. Idempotent."""
        with _guard:
            if self._closed:
                return
            self._closed = True
            _users[self._identity] -= 1
            if not _users[self._identity]:
                del _users[self._identity]
                if (descriptor := _descriptors.pop(self._identity, None)) is not None:
                    os.close(descriptor)


def overwrite_free_space(descriptor: int) -> int:
    """Overwrite the unallocated space of all b-tree pages of a SQLite file with zeros.

    The caller holds SQLite's write lock, the write-ahead log is empty, and no connection writes pages it read before.
    Readers are not disturbed: no byte is changed that has a meaning. Format: https://sqlite.org/fileformat2.html,
    sections 1.3 and 1.6.

    Args:
        descriptor: The file, open for reading and writing.

    Returns:
        Number of pages that were changed.

    Raises:
        OSError: The file cannot be read or written.
        ValueError: It is no SQLite file.
    """
    header = _read_at(descriptor, 0, _FILE_HEADER_BYTES)
    if not header.startswith(_MAGIC):
        raise ValueError("not a SQLite file")
    (page_bytes,) = struct.unpack_from(">H", header, 16)
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    usable_bytes = page_bytes - header[20]  # the rest is reserved
    step = _BLOCK_BYTES // page_bytes * page_bytes
    changed = offset = 0
    while len(block := _read_at(descriptor, offset, step)) >= page_bytes:
        for start in range(0, len(block) - page_bytes + 1, page_bytes):
            first = start if offset + start else _FILE_HEADER_BYTES
            page_header_bytes = _PAGE_HEADER_BYTES.get(block[first])
            if page_header_bytes is None:
                continue  # an overflow page or one of the free list
            cells, content = struct.unpack_from(">HH", block, first + 3)
            free = first + page_header_bytes + 2 * cells
            stop = start + (content or 65536)
            if free < stop <= start + usable_bytes and block.count(0, free, stop) != stop - free:
                os.lseek(descriptor, offset + free, os.SEEK_SET)
                os.write(descriptor, bytes(stop - free))
                changed += 1
        offset += len(block) // page_bytes * page_bytes
    if changed:
        os.fsync(descriptor)
    return changed


def _read_at(descriptor: int, offset: int, count: int) -> bytes:
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, count)
