"""Protocols of the storage layer: keyword index and vector index of a partition.

Both indexes are derived data: they hold row ids and what is needed to rank them, and can be rebuilt from the catalog
at any time. Row ids are integers that are never reused, so adding a row twice or deleting an absent one is harmless and
must not raise. Indexes do not decide visibility; the catalog and the scope do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from langchain_agentrag.text import Terms

Rows = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
TermWeights = Mapping[str, Mapping[str, float]]
"""field → term → weight > 0."""


@runtime_checkable
class KeywordIndex(Protocol):
    """Inverted index of one partition."""

    def add(self, rows: Sequence[int], terms: Sequence[Terms]) -> None:
        """Index rows by their terms; durable on return."""

    def delete(self, rows: Sequence[int]) -> None:
        """Delete rows; durable on return. Absent rows are ignored."""

    def doc_freqs(self, query: TermWeights) -> dict[str, dict[str, int]]:
        """Return the number of live rows that hold each term, without deleted rows: field → term → count."""

    def candidates(self, query: TermWeights, limit: int, allowed: Rows | None = None) -> list[tuple[int, float]]:
        """Return up to `limit` rows that hold at least one of the terms, best first.

        Args:
            query: Weights that already include the inverse document frequency.
            limit: Maximum number of rows, > 0.
            allowed: Only these rows; None for all.

        Returns:
            (row, score > 0) pairs. The score orders candidates; it is not the score of a hit.
        """

    def rows(self) -> Rows:
        """Return all indexed rows, ascending."""

    def count(self) -> int:
        """Return the number of indexed rows."""


@runtime_checkable
class VectorIndex(Protocol):
    """Approximate nearest-neighbour index of one partition."""

    def add(self, rows: Sequence[int], vectors: Vectors) -> None:
        """Index rows by their vectors, shape (len(rows), dimension); durable on return."""

    def delete(self, rows: Sequence[int]) -> None:
        """Delete rows. Absent rows are ignored."""

    def nearest(self, vector: Vectors, limit: int) -> list[tuple[int, float]]:
        """Return up to `limit` rows with the largest cosine to the vector, best first, as (row, cosine) pairs."""

    def rows(self) -> Rows:
        """Return all indexed rows, ascending."""

    def count(self) -> int:
        """Return the number of indexed rows."""
