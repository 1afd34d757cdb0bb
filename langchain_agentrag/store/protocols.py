"""The seams of the storage layer: what a keyword leg and a vector leg must do.

Both legs are derived data: they hold row ids and what is needed to rank them, and can be rebuilt from the catalog at
any time. Rows are integers that are never reused, so adding a row twice or deleting one that is absent is harmless
and must not raise. Neither leg decides visibility; the catalog and the scope do.
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
    """Postings of one partition."""

    def add(self, rows: Sequence[int], terms: Sequence[Terms]) -> None:
        """Make the rows findable by their terms; durable on return."""

    def delete(self, rows: Sequence[int]) -> None:
        """Make the rows unfindable; durable on return. Absent rows are ignored."""

    def doc_freqs(self, query: TermWeights) -> dict[str, dict[str, int]]:
        """Number of live rows that hold each term, deleted rows not counted: field → term → count."""

    def candidates(
        self, query: TermWeights, limit: int, allowed: Rows | None = None
    ) -> list[tuple[int, float]]:
        """Rows that hold at least one of the terms, best first, at most `limit`.

        Args:
            query: Weights that already hold the inverse document frequency.
            limit: Largest number of rows, > 0.
            allowed: Only these rows, or all.

        Returns:
            (row, score > 0) pairs. The score orders candidates; it is not the score users see.
        """

    def rows(self) -> Rows:
        """Every row the leg holds, ascending."""

    def count(self) -> int:
        """Number of rows the leg holds."""


@runtime_checkable
class VectorIndex(Protocol):
    """Vectors of one partition, searched approximately."""

    def add(self, rows: Sequence[int], vectors: Vectors) -> None:
        """Make the rows findable by their vectors, shape (len(rows), dimension); durable on return."""

    def delete(self, rows: Sequence[int]) -> None:
        """Make the rows unfindable. Absent rows are ignored."""

    def nearest(self, vector: Vectors, limit: int) -> list[tuple[int, float]]:
        """Up to `limit` rows with the largest cosine to the vector, best first, as (row, cosine) pairs."""

    def rows(self) -> Rows:
        """Every row the leg holds, ascending."""

    def count(self) -> int:
        """Number of rows the leg holds."""
