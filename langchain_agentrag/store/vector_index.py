"""Vector index on Chroma: one collection per partition. It holds vectors only; texts stay in the catalog."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from langchain_agentrag.errors import StoreError, StoreLockedError, native_errors
from langchain_agentrag.store.chroma import ChromaFolder
from langchain_agentrag.store.protocols import Rows, Vectors

logger = logging.getLogger(__name__)

HNSW = {
    "space": "cosine",
    # 64 builds half as fast again as Chroma's 100; with 128 at search, recall@10 on 8,600 passages under
    # multilingual-e5-small is .995 (.997 with twice the effort in both)
    "ef_construction": 64,
    "ef_search": 128,
    "max_neighbors": 16,
    "sync_threshold": 2_000,  # rows between two writes of the whole graph; at most as many are replayed at opening
}
_PAGE = 5_000


class ChromaVectorIndex:
    """Vector index of one partition in one Chroma collection.

    Args:
        folder: The store's Chroma folder.
        name: Name of the collection.
        owner: Agent the partition belongs to; None for shared. Written into each row's metadata for users of other
            tools only: searches check owners against the catalog.
    """

    def __init__(self, folder: ChromaFolder, name: str, owner: str | None) -> None:
        self._folder, self._name, self._owner = folder, name, owner

    def create(self) -> None:
        """Create the collection; the caller holds the write lock."""
        with native_errors("Chroma", f"create the collection {self._name}"), self._folder.write_session() as session:
            settings: Any = {"hnsw": HNSW}
            session.client.get_or_create_collection(self._name, configuration=settings, embedding_function=None)

    def add(self, rows: Sequence[int], vectors: Vectors) -> None:
        """See `VectorIndex.add`; the caller holds the write lock."""
        if not len(rows):
            return
        with native_errors("Chroma", f"write {len(rows)} vectors"), self._folder.write_session() as session:
            collection = self._folder.collection(session, self._name)
            step = session.client.get_max_batch_size()
            metadata = {"agent_id": self._owner} if self._owner is not None else {"shared": True}
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                collection.upsert(
                    ids=[str(row) for row in part],
                    embeddings=vectors[start : start + step],
                    metadatas=[metadata] * len(part),
                )

    def delete(self, rows: Sequence[int]) -> None:
        """See `VectorIndex.delete`; the caller holds the write lock."""
        if not len(rows):
            return
        with native_errors("Chroma", f"delete {len(rows)} vectors"), self._folder.write_session() as session:
            collection = self._folder.collection(session, self._name)
            step = session.client.get_max_batch_size()
            for start in range(0, len(rows), step):
                collection.delete(ids=[str(row) for row in rows[start : start + step]])

    def nearest(self, vector: Vectors, limit: int) -> list[tuple[int, float]]:
        """See `VectorIndex.nearest`."""
        try:
            return self._query(vector, limit)
        except StoreLockedError:
            raise
        except StoreError as error:
            logger.info("searching again, another process may have changed the collection: %s", error)
            self._folder.close()
            return self._query(vector, limit)

    def rows(self) -> Rows:
        """See `VectorIndex.rows`."""
        rows: list[int] = []
        with native_errors("Chroma", "list vectors"), self._folder.read_collection(self._name) as collection:
            while True:
                page = collection.get(include=[], limit=_PAGE, offset=len(rows))["ids"]
                rows.extend(int(row) for row in page)
                if len(page) < _PAGE:
                    return np.sort(np.array(rows, dtype=np.int64))

    def count(self) -> int:
        """See `VectorIndex.count`."""
        with native_errors("Chroma", "count vectors"), self._folder.read_collection(self._name) as collection:
            return collection.count()

    def probe(self) -> None:
        """Load the graph and run one query: a collection damaged by a kill fails here.

        Raises:
            StoreError: It cannot be read.
        """
        with native_errors("Chroma", "read the collection"), self._folder.read_collection(self._name) as collection:
            vectors = collection.get(limit=1, include=["embeddings"])["embeddings"]
            if vectors is not None and len(vectors):
                collection.query(query_embeddings=np.asarray(vectors), n_results=10, include=[])

    def unreachable(self, rows: Rows) -> int:
        """Return how many of the rows the graph has lost, though Chroma may still list them.

        Reads every vector, 10,000 a second: for recovery and verify().
        """
        lost = 0
        for start in range(0, len(rows), _PAGE):
            part = [str(row) for row in rows[start : start + _PAGE]]
            try:
                with native_errors("Chroma", "read vectors"), self._folder.read_collection(self._name) as collection:
                    lost += len(part) - len(collection.get(ids=part, include=["embeddings"])["ids"])
            except StoreError:
                lost += len(part)
        return lost

    def stored(self, rows: Sequence[int]) -> dict[int, Vectors]:
        """Return the stored vectors of rows, each of shape (1, dimension); Chroma may scale them to length 1."""
        with native_errors("Chroma", "read vectors"), self._folder.read_collection(self._name) as collection:
            result = collection.get(ids=[str(row) for row in rows], include=["embeddings"])
        vectors = result["embeddings"] if result["embeddings"] is not None else []
        return {
            int(row): np.asarray(vector, dtype=np.float32).reshape(1, -1)
            for row, vector in zip(result["ids"], vectors, strict=True)
        }

    def _query(self, vector: Vectors, limit: int) -> list[tuple[int, float]]:
        """Return (row, cosine) pairs, without the owners.

        Reading the metadata of 30 rows doubles the time of a query. Owners are checked against the catalog, twice: only
        live rows of the partition are kept, and the scope checks every hit.
        """
        action = f"query {limit} neighbours"
        with native_errors("Chroma", action), self._folder.read_collection(self._name) as collection:
            result = collection.query(query_embeddings=vector.reshape(1, -1), n_results=limit, include=["distances"])
        distances = result["distances"]
        if distances is None:
            return []
        return [(int(row), 1.0 - float(distance)) for row, distance in zip(result["ids"][0], distances[0], strict=True)]
