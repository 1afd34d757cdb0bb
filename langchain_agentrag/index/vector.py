"""The vector leg on Chroma: one collection per partition, vectors only, text stays in the catalog."""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from langchain_agentrag.errors import StoreError
from langchain_agentrag.index.protocol import Rows, Vectors

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

logger = logging.getLogger(__name__)

_HNSW = {"space": "cosine", "ef_construction": 128, "ef_search": 160, "max_neighbors": 16}
_PAGE = 10_000
_handles = itertools.count()


class ChromaFolder:
    """Chroma's folder of a store, and which rows its open client can see.

    A Chroma client does not see vectors that another process writes after it was opened. Row ids are handed out in
    order, so what it cannot see is known: rows from the `horizon` on, and gaps between its own writes.

    Args:
        folder: Where Chroma persists; made when absent.
        horizon: Smallest row id that may not be written yet; asked just before the client is opened.
    """

    def __init__(self, folder: Path, horizon: Callable[[], int]) -> None:
        self._folder, self._ask_horizon = folder, horizon
        self._guard = threading.RLock()
        self._client: ClientAPI | None = None
        self._horizon = 0
        self._gaps: list[range] = []
        self.dropped = 0
        """Collections dropped so far: handles on them look again."""

    def collection(self, name: str, owner: str | None) -> ChromaVectors:
        """The collection of one partition, made when absent."""
        return ChromaVectors(self, name, owner)

    def drop(self, name: str) -> None:
        """Delete a collection and its files; absent ones are ignored."""
        from chromadb.errors import NotFoundError

        self.dropped += 1
        with translated(f"drop collection {name}"):
            try:
                self.client().delete_collection(name)
            except (NotFoundError, ValueError):
                logger.debug("collection %s was not there", name)

    def names(self) -> set[str]:
        """Names of all collections."""
        with translated("list collections"):
            return {collection.name for collection in self.client().list_collections(limit=1_000_000)}

    def unseen(self, rows: Rows) -> Rows:
        """Those of the rows that another process wrote and this client cannot see."""
        with self._guard:
            self.client()
            hidden = rows >= self._horizon
            for gap in self._gaps:
                hidden |= (rows >= gap.start) & (rows < gap.stop)
            return rows[hidden]

    def note_written(self, rows: range) -> None:
        """Remember that this client wrote these rows itself."""
        with self._guard:
            if self._client is None or rows.stop <= self._horizon:
                return
            if rows.start > self._horizon:
                self._gaps.append(range(self._horizon, rows.start))
            self._horizon = rows.stop

    def client(self) -> ClientAPI:
        """The open client."""
        with self._guard:
            if self._client is None:
                self._horizon, self._gaps = self._ask_horizon(), []
                self._client = self._connect()
            return self._client

    def close(self) -> None:
        """Release files and memory; the next use opens a client that sees everything written by then."""
        with self._guard:
            client, self._client = self._client, None
            if client is not None:
                client.close()  # type: ignore[attr-defined]

    def reset(self) -> None:
        """Delete everything Chroma holds, readable or not."""
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def exists(self) -> bool:
        """Whether anything was ever stored."""
        return (self._folder / "chroma.sqlite3").exists()

    def _connect(self) -> ClientAPI:
        import chromadb
        from chromadb.config import Settings

        # Chroma shares one engine per path string within a process, stale caches included. A spelling of the path
        # that nobody else uses gives this handle an engine of its own, which reopening really replaces.
        private_path = f"{self._folder}{'/.' * (next(_handles) % 200 + 1)}"
        with translated(f"open Chroma in {self._folder}"):
            self._folder.mkdir(parents=True, exist_ok=True)
            return chromadb.PersistentClient(private_path, settings=Settings(anonymized_telemetry=False))


class ChromaVectors:
    """One partition's vectors in one collection.

    Args:
        folder: The store's Chroma folder.
        name: Name of the collection.
        owner: Agent the partition belongs to, written into each row's metadata as a second lock; None for shared.
    """

    def __init__(self, folder: ChromaFolder, name: str, owner: str | None) -> None:
        self._folder, self._name, self._owner = folder, name, owner
        self._opened: tuple[ClientAPI, int, Collection] | None = None

    def add(self, rows: Sequence[int], vectors: Vectors) -> None:
        """See `VectorLeg.add`."""
        if not len(rows):
            return
        with translated(f"write {len(rows)} vectors"):
            collection, step = self._collection(), self._folder.client().get_max_batch_size()
            metadata = {"agent_id": self._owner} if self._owner is not None else {"shared": True}
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                collection.upsert(
                    ids=[str(row) for row in part],
                    embeddings=vectors[start : start + step],
                    metadatas=[metadata] * len(part),
                )

    def delete(self, rows: Sequence[int]) -> None:
        """See `VectorLeg.delete`."""
        if not len(rows):
            return
        with translated(f"delete {len(rows)} vectors"):
            collection, step = self._collection(), self._folder.client().get_max_batch_size()
            for start in range(0, len(rows), step):
                collection.delete(ids=[str(row) for row in rows[start : start + step]])

    def nearest(self, vector: Vectors, limit: int) -> list[tuple[int, float]]:
        """See `VectorLeg.nearest`."""
        try:
            return self._query(vector, limit)
        except StoreError as error:
            logger.info("looking again, another process may have rebuilt the collection: %s", error)
            self._folder.close()
            return self._query(vector, limit)

    def _query(self, vector: Vectors, limit: int) -> list[tuple[int, float]]:
        with translated(f"query {limit} neighbours"):
            found = self._collection().query(
                query_embeddings=vector.reshape(1, -1), n_results=limit, include=["distances", "metadatas"]
            )
        distances, metadatas = found["distances"], found["metadatas"]
        if distances is None or metadatas is None:
            return []
        return [
            (int(row), 1.0 - float(distance))
            for row, distance, metadata in zip(found["ids"][0], distances[0], metadatas[0], strict=True)
            if metadata is None or metadata.get("agent_id") == self._owner
        ]

    def rows(self) -> Rows:
        """See `VectorLeg.rows`."""
        rows: list[int] = []
        with translated("list vectors"):
            collection = self._collection()
            while True:
                page = collection.get(include=[], limit=_PAGE, offset=len(rows))["ids"]
                rows.extend(int(row) for row in page)
                if len(page) < _PAGE:
                    return np.sort(np.array(rows, dtype=np.int64))

    def count(self) -> int:
        """See `VectorLeg.count`."""
        with translated("count vectors"):
            return self._collection().count()

    def _collection(self) -> Collection:
        client = self._folder.client()
        dropped = self._folder.dropped
        if self._opened is None or self._opened[0] is not client or self._opened[1] != dropped:
            collection = client.get_or_create_collection(
                self._name,
                configuration={"hnsw": _HNSW},  # type: ignore[arg-type]
                embedding_function=None,
                metadata=None,
            )
            self._opened = (client, dropped, collection)
        return self._opened[2]


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Chroma's errors as ours, cause kept.

    Raises:
        StoreError: anything Chroma or its native part raised.
    """
    try:
        yield
    except (StoreError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # its native part raises PanicException, which is no Exception
        raise StoreError(
            f"Chroma could not {action}: {type(error).__name__}: {error}. "
            "The catalog still holds every vector; run repair() to rebuild the vector index."
        ) from error
