"""Persistent cache of embedding vectors in SQLite, so that a repeated evaluation embeds nothing again."""

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
_KEYS_PER_QUERY = 500


def cached_embedder(spec: object, folder: str | Path) -> Embedder:
    """Return the embedder of a spec, as `resolve_embedder` does, with a vector cache in a folder.

    It has the fingerprint of the uncached embedder, so a store built with either can be opened with the other. The file
    holds vectors under hashes of model and text, no text. It is meant for test collections: a store keeps its vectors
    itself, each agent's apart.
    """
    inner = resolve_embedder(spec)
    return Embedder(_CachingBackend(inner.backend, inner.fingerprint, Path(folder)), inner.prefixes)


class _CachingBackend:
    """Embedding backend that calls another one only for texts that are not in the cache."""

    def __init__(self, inner: Backend, fingerprint: str, folder: Path) -> None:
        self._inner, self._fingerprint = inner, fingerprint
        self.name, self.identity, self.prefixes = inner.name, inner.identity, inner.prefixes
        self.batch_size = inner.batch_size
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE_NAME
        try:
            with closing(self._connect()) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID"
                )
        except sqlite3.DatabaseError as error:
            raise UsageError(
                f"Cannot keep vectors in {self._path}: {error}. Choose another folder, or delete the file."
            ) from error

    def documents(self, texts: list[str], prefix: str) -> object:
        keys = [self._key("passage", prefix, text) for text in texts]
        cached = self._read(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in cached}
        if missing:
            vectors = self._inner.documents(list(missing.values()), prefix)
            cached |= self._write(dict(zip(missing, list(vectors), strict=True)))  # type: ignore[call-overload]
        return [cached[key] for key in keys]

    def query(self, text: str, prefix: str) -> object:
        key = self._key("query", prefix, text)
        cached = self._read([key]) or self._write({key: self._inner.query(text, prefix)})
        return cached[key]

    async def aquery(self, text: str, prefix: str) -> object:
        return await asyncio.to_thread(self.query, text, prefix)

    def count_truncated(self, texts: list[str], prefix: str) -> int:
        return self._inner.count_truncated(texts, prefix)

    def _key(self, kind: str, prefix: str, text: str) -> bytes:
        return hashlib.sha256("\x00".join((self._fingerprint, kind, prefix, text)).encode()).digest()

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        vectors = {}
        with closing(self._connect()) as connection:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                part = keys[start : start + _KEYS_PER_QUERY]
                placeholders = ",".join("?" * len(part))
                rows = connection.execute(f"SELECT key, vector FROM vectors WHERE key IN ({placeholders})", part)
                vectors.update({bytes(key): np.frombuffer(data, dtype=np.float32) for key, data in rows})
        return vectors

    def _write(self, outputs: dict[bytes, object]) -> dict[bytes, NDArray[np.float32]]:
        vectors: dict[bytes, NDArray[np.float32]] = {
            key: np.asarray(vector, dtype=np.float32).reshape(-1) for key, vector in outputs.items()
        }
        # `Embedder` rejects invalid vectors later; they must not be cached
        rows = [(key, vector.tobytes()) for key, vector in vectors.items() if np.isfinite(vector).all()]
        with closing(self._connect()) as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        return vectors

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=60)
