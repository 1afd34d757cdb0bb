"""How a leg finds its candidates: exactly, among selected rows, or approximately. Pure decisions on counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

SELECTED_LIMIT = 12_000
"""Rows left by a filter up to which reading their vectors and scoring them exactly beats widening an HNSW search."""

_SLACK = 1.3  # an approximate neighbourhood is not evenly spread over the rows a filter keeps
_LEAST = 30  # candidates per leg, so that fusion has something to choose from at small k


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """How to find nearest neighbours in one partition.

    Attributes:
        how: "exact" over the whole partition in memory, "selected" over the filtered rows only, or "approximate".
        fetch: Neighbours to ask the approximate index for.
    """

    how: Literal["exact", "selected", "approximate"]
    fetch: int = 0


def candidates_wanted(k: int, available: int) -> int:
    """Candidates each leg contributes to a search for k hits among `available` rows."""
    return max(1, min(max(_LEAST, 3 * k), available))


def plan_vectors(
    *, chunks: int, in_chroma: bool, exact_limit: int, matching: int | None, wanted: int
) -> VectorPlan:
    """Plan for one partition.

    Args:
        chunks: Live rows of the partition.
        in_chroma: Whether there is an approximate index at all.
        exact_limit: Largest partition that is scored exactly.
        matching: Rows the filter keeps, or None without a filter.
        wanted: Candidates wanted.
    """
    if chunks <= exact_limit or not in_chroma:
        return VectorPlan("exact")
    if matching is None:
        return VectorPlan("approximate", wanted)
    if matching <= max(SELECTED_LIMIT, wanted):
        return VectorPlan("selected")
    return VectorPlan("approximate", math.ceil(wanted * _SLACK * chunks / matching))


def keyword_fetch(*, chunks: int, matching: int, wanted: int) -> int | None:
    """How many keyword candidates to fetch and filter afterwards; None: let the index filter.

    Filtering afterwards wins while the filter keeps a good part of the rows, because a set of row ids has to be
    handed to the index one by one (5 ms for 10,000 rows).
    """
    if matching * 5 < chunks:
        return None
    return math.ceil(wanted * _SLACK * chunks / max(matching, 1))
