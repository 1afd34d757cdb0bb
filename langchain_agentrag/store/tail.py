"""The last rows of a partition in memory, to be scanned exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from langchain_agentrag.store.protocols import Vectors


class Tail:
    """Vectors of a partition's rows from one of them to the last: those that are scanned exactly.

    Args:
        first: Number of rows before them.
        vectors: Their vectors.
    """

    def __init__(self, first: int, vectors: Vectors) -> None:
        self.first = first
        self._room, self._size = vectors, len(vectors)

    def append(self, added: Vectors) -> None:
        """Add the vectors of new rows."""
        end = self._size + len(added)
        if not self._size:
            self._room = added
        elif end > len(self._room):  # with room to spare, or every batch would copy all of them
            room = np.empty((end + end // 2, added.shape[1]), dtype=np.float32)
            room[: self._size] = self._room[: self._size]
            self._room = room
        self._room[self._size : end] = added
        self._size = end

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop the rows of the partition that are not kept."""
        ours = kept[self.first :]
        self._room = self._room[: self._size][ours]
        self.first, self._size = int(np.count_nonzero(kept[: self.first])), len(self._room)

    def since(self, first: int) -> Vectors:
        """Vectors from a row on; those before it are given up once they are most of all."""
        skipped = first - self.first
        if 2 * skipped > self._size:
            self._room = self._room[skipped : self._size].copy()
            self.first, self._size, skipped = first, len(self._room), 0
        return self._room[skipped : self._size]
