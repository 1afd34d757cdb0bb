"""What one run over a source has met so far, kept on disk: a source may have more items than fit into memory."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

_BUFFERED = 1_000

_SCHEMA = """
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
CREATE TABLE items(key BLOB PRIMARY KEY, version BLOB) WITHOUT ROWID;
CREATE TABLE addresses(key BLOB PRIMARY KEY) WITHOUT ROWID;
"""


class Visits:
    """Items a source has listed and documents it has given. Use as a context manager, in one thread.

    It lives in a temporary database without a name, which SQLite keeps in memory while it is small. Texts are kept as
    digests of 16 bytes.
    """

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.executescript(_SCHEMA)
        self._addresses: set[bytes] = set()  # not written yet

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def note_items(self, versions: Mapping[str, str | None]) -> None:
        """The source has listed these items, of these versions."""
        rows = [
            (_digest(key), None if version is None else _digest(version)) for key, version in versions.items()
        ]
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT OR IGNORE INTO items VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def met_items(self, keys: Sequence[str]) -> set[str]:
        """Those of at most 1,000 items that were listed before."""
        return set(self._find(keys))

    def met_as(self, key: str, version: str | None) -> bool:
        """Whether an item was listed before in this very version; without a version nobody can say."""
        return version is not None and self._find([key]).get(key) == _digest(version)

    def note_address(self, owner: str | None, doc_id: str) -> None:
        """The source has given this document."""
        self._addresses.add(_address(owner, doc_id))
        if len(self._addresses) >= _BUFFERED:
            self._connection.execute("BEGIN")
            self._connection.executemany(
                "INSERT OR IGNORE INTO addresses VALUES (?)", [(key,) for key in self._addresses]
            )
            self._connection.execute("COMMIT")
            self._addresses.clear()

    def met_address(self, owner: str | None, doc_id: str) -> bool:
        """Whether the source has given this document."""
        key = _address(owner, doc_id)
        found = "SELECT 1 FROM addresses WHERE key = ?"
        return key in self._addresses or self._connection.execute(found, (key,)).fetchone() is not None

    def _find(self, keys: Sequence[str]) -> dict[str, bytes | None]:
        digests = {_digest(key): key for key in keys}
        marks = ",".join("?" * len(digests))
        found = self._connection.execute(
            f"SELECT key, version FROM items WHERE key IN ({marks})", tuple(digests)
        )
        return {digests[digest]: version for digest, version in found}


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _address(owner: str | None, doc_id: str) -> bytes:
    return _digest(doc_id if owner is None else f"{len(owner)}:{owner}{doc_id}") + bytes([owner is not None])
