"""Vectors kept in a file, so that evaluating again embeds nothing again."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from langchain_agentrag.embedding import Embedder, resolve_embedder
from langchain_agentrag.embedding.embedder import Backend
from langchain_agentrag.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FILE_NAME = "vectors.sqlite"
_PART = 500  # keys in one statement


def cached_embedder(spec: object, folder: str | Path) -> Embedder:
    """The embedder of a spec, as `resolve_embedder` makes it, that remembers what it embedded in a folder.

    It has the fingerprint of the one it stands for, so a store built with either can be opened with the other. The
    file holds vectors under hashes of model and text, no text; it is made for test collections. A store of your own
    keeps its vectors itself, each agent's apart.
    """
    inner = resolve_embedder(spec)
    return Embedder(_Remembering(inner.backend, inner.fingerprint, Path(folder)), inner.prefixes)


class _Remembering:
    """A backend that asks another one only for what is not in the file yet."""

    def __init__(self, inner: Backend, fingerprint: str, folder: Path) -> None:
        self._inner, self._fingerprint = inner, fingerprint
        self.name, self.identity, self.prefixes = inner.name, inner.identity, inner.prefixes
        self.batch_size = inner.batch_size
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE_NAME
        try:
            with closing(self._open()) as file:
                file.execute("PRAGMA journal_mode=WAL")
                file.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID"
                )
        except sqlite3.DatabaseError as error:
            raise UsageError(
                f"Cannot keep vectors in {self._path}: {error}. Name another folder, or delete the file."
            ) from error

    def documents(self, texts: list[str], prefix: str) -> object:
        keys = [self._key("passage", prefix, text) for text in texts]
        known = self._read(keys)
        fresh = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if fresh:
            made = self._inner.documents(list(fresh.values()), prefix)
            known |= self._keep(dict(zip(fresh, list(made), strict=True)))  # type: ignore[call-overload]
        return [known[key] for key in keys]

    def query(self, text: str, prefix: str) -> object:
        key = self._key("query", prefix, text)
        known = self._read([key])
        if not known:
            known = self._keep({key: self._inner.query(text, prefix)})
        return known[key]

    async def aquery(self, text: str, prefix: str) -> object:
        return await asyncio.to_thread(self.query, text, prefix)

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        return self._inner.count_truncated(texts, prefix)

    def _key(self, kind: str, prefix: str, text: str) -> bytes:
        return hashlib.sha256("\x00".join((self._fingerprint, kind, prefix, text)).encode()).digest()

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        found = {}
        with closing(self._open()) as file:
            for start in range(0, len(keys), _PART):
                part = keys[start : start + _PART]
                marks = ",".join("?" * len(part))
                rows = file.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", part)
                found.update({bytes(key): np.frombuffer(packed, dtype=np.float32) for key, packed in rows})
        return found

    def _keep(self, made: dict[bytes, object]) -> dict[bytes, NDArray[np.float32]]:
        vectors: dict[bytes, NDArray[np.float32]] = {
            key: np.asarray(vector, dtype=np.float32).reshape(-1) for key, vector in made.items()
        }
        # what is no vector is for `Embedder` to refuse, and must not be remembered
        usable = [(key, vector.tobytes()) for key, vector in vectors.items() if np.isfinite(vector).all()]
        with closing(self._open()) as file, file:
            file.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", usable)
        return vectors

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60)
