"""Columnar cache of a partition in memory: metadata columns that filters are evaluated on, vectors for exact search."""

from __future__ import annotations

import datetime as dt
import sqlite3
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_agentrag import metadata as codec
from langchain_agentrag.filters import EXPIRES, TIME, And, Condition, Filter, Not, Or, filter_keys, lookup
from langchain_agentrag.store.catalog import Catalog, PartitionRow, select_in
from langchain_agentrag.store.protocols import Rows, Vectors
from langchain_agentrag.times import EPOCH, EXPIRY_KEY, document_time, parse_time, to_microseconds

Mask = npt.NDArray[np.bool_]

_MAX_CACHED_MASKS = 8  # filters per partition whose rows are cached until the next write


class VectorBuffer:
    """Vectors of the last rows of a partition, in one growing array.

    Args:
        first: Number of rows before them, whose vectors are not held.
        vectors: The vectors.
    """

    def __init__(self, first: int, vectors: Vectors) -> None:
        self.first = first
        self._buffer, self._size = vectors, len(vectors)

    def append(self, vectors: Vectors) -> None:
        """Add the vectors of new rows."""
        end = self._size + len(vectors)
        if not self._size:
            self._buffer = vectors
        elif end > len(self._buffer):  # with spare capacity, or every batch would copy all of them
            buffer = np.empty((end + end // 2, vectors.shape[1]), dtype=np.float32)
            buffer[: self._size] = self._buffer[: self._size]
            self._buffer = buffer
        self._buffer[self._size : end] = vectors
        self._size = end

    def keep(self, mask: Mask) -> None:
        """Drop the rows of the partition where the mask is false."""
        self._buffer = self._buffer[: self._size][mask[self.first :]]
        self.first, self._size = int(np.count_nonzero(mask[: self.first])), len(self._buffer)

    def from_row(self, first: int) -> Vectors:
        """Return the vectors from a row on; those before it are dropped once they are more than half."""
        skipped = first - self.first
        if 2 * skipped > self._size:
            self._buffer = self._buffer[skipped : self._size].copy()
            self.first, self._size, skipped = first, len(self._buffer), 0
        return self._buffer[skipped : self._size]


class Column:
    """Column of one metadata key, dictionary-encoded: row i holds `values[codes[i]]`.

    A filter costs one `Condition.test` call per distinct value and one numpy lookup per row.
    """

    def __init__(self) -> None:
        self.codes: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._values: list[tuple[Any, bool]] = []
        self._code_of: dict[Hashable, int] = {}

    def extend(self, values: Iterator[tuple[Any, bool]]) -> None:
        """Append one (value, present) pair per row."""
        new = np.fromiter((self._encode(value, present) for value, present in values), dtype=np.int32)
        self.codes = np.concatenate([self.codes, new])

    def keep(self, mask: Mask) -> None:
        """Drop the rows where the mask is false."""
        self.codes = self.codes[mask]

    def test(self, condition: Condition) -> Mask:
        """Return the mask of rows that satisfy a condition."""
        matches = np.array([condition.test(value, present) for value, present in self._values], dtype=np.bool_)
        return matches[self.codes]

    def present(self) -> Mask:
        """Return the mask of rows that have the key."""
        return np.array([present for _, present in self._values], dtype=np.bool_)[self.codes]

    def _encode(self, value: Any, present: bool) -> int:  # noqa: ANN401, FBT001
        # type and repr keep 1, 1.0, True and "1" apart, and make lists and dicts hashable
        key: Hashable = (type(value), value) if isinstance(value, str) else (type(value), repr(value), present)
        code = self._code_of.get(key)
        if code is None:
            code = self._code_of[key] = len(self._values)
            self._values.append((value, present))
        return code


_NO_TIME = np.iinfo(np.int64).min  # of a row without a time


class TimeColumn:
    """Column of times or expiries in microseconds since 1970. Few rows share one, so they are compared as an array."""

    def __init__(self) -> None:
        self.microseconds: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def extend(self, values: Iterator[tuple[Any, bool]]) -> None:
        """Append one (value, present) pair per row."""
        new = (to_microseconds(value) if present else _NO_TIME for value, present in values)
        self.microseconds = np.concatenate([self.microseconds, np.fromiter(new, dtype=np.int64)])

    def keep(self, mask: Mask) -> None:
        """Drop the rows where the mask is false."""
        self.microseconds = self.microseconds[mask]

    def test(self, condition: Condition) -> Mask:
        """Return the mask of rows that satisfy a condition."""
        compare, bound = _COMPARISONS.get(condition.op), parse_time(condition.operand)
        if compare is not None and bound is not None:
            mask: Mask = compare(self.microseconds, to_microseconds(bound)) & (self.microseconds != _NO_TIME)
            return mask
        times = (
            None if value == _NO_TIME else EPOCH + dt.timedelta(microseconds=value)
            for value in self.microseconds.tolist()
        )
        return np.fromiter((condition.test(value, value is not None) for value in times), dtype=np.bool_)


_COMPARISONS: dict[str, Callable[..., Any]] = {
    "$gt": np.greater,
    "$gte": np.greater_equal,
    "$lt": np.less,
    "$lte": np.less_equal,
}


class ColumnarCache:
    """Rows, vectors and filter columns of one partition in memory, loaded when needed. Thread-safe.

    Args:
        catalog: The store's catalog.
        partition: The partition.
    """

    def __init__(self, catalog: Catalog, partition: PartitionRow) -> None:
        self._catalog, self._partition = catalog, partition.id
        self._owner = partition.owner
        self._guard = threading.RLock()
        self._generation, self._removals = -1, -1
        self._rows: Rows = np.empty(0, dtype=np.int64)
        self._vectors: VectorBuffer | None = None
        self._columns: dict[str, Column | TimeColumn] = {}
        self._masks: dict[Filter, Mask] = {}  # both indexes of a search use the same one

    def select(self, state: PartitionRow, condition: Filter | None) -> Rows:
        """Return the live rows that match a filter, ascending, at least as new as `state`.

        Agrees with `filters.match` by construction: every leaf is the same `Condition.test`.
        """
        with self._guard:
            self._refresh(state)
            mask = None if condition is None else self._mask(condition)  # may load new rows
            return self._rows if mask is None else self._rows[mask]

    def has_key(self, state: PartitionRow, key: str, condition: Filter | None) -> bool:
        """Return whether a live row that matches a filter has a metadata key or dotted path."""
        with self._guard:
            self._refresh(state)
            self._load_columns(Condition(key, "$exists", True))  # noqa: FBT003  (a value of the filter language)
            mask = None if condition is None else self._mask(condition)  # may load new rows
            column = self._columns[key]
            return isinstance(column, TimeColumn) or bool(
                np.any(column.present() if mask is None else column.present() & mask)
            )

    def nearest(
        self, state: PartitionRow, vector: Vectors, limit: int, condition: Filter | None, *, after: int = -1
    ) -> list[tuple[int, float]]:
        """Return (row, cosine) of the nearest matching rows by exact search in float32, best first, with ties.

        Args:
            state: The partition as the search sees it.
            vector: Query vector of any length.
            limit: Number of rows.
            condition: The filter, or None.
            after: Search only rows after this one; then only their vectors are held in memory.
        """
        with self._guard:
            self._refresh(state)
            rows, matrix = self._load_vectors(after)
            if condition is not None:
                mask = self._mask(condition)  # may load new rows
                rows, matrix = self._load_vectors(after)
                mask = mask[len(mask) - len(rows) :]
                rows, matrix = rows[mask], matrix[mask]
        return top_rows(rows, matrix, vector, limit)

    # -- loading --------------------------------------------------------------------------------------------------

    def _refresh(self, state: PartitionRow) -> None:
        if state.generation > self._generation:
            with self._catalog.snapshot() as connection:
                self._update(connection)

    def _update(self, connection: sqlite3.Connection) -> None:
        """Update rows, vectors and columns to the state this read transaction sees."""
        generation, removals = connection.execute(
            "SELECT generation, removals FROM partitions WHERE id = ?", (self._partition,)
        ).fetchone() or (sys.maxsize, -1)
        if generation == self._generation:
            return
        if removals != self._removals and len(self._rows):
            self._drop_deleted(connection)
        last = int(self._rows[-1]) if len(self._rows) else -1
        query = "SELECT row FROM chunks WHERE partition = ? AND row > ? ORDER BY row"
        rows = connection.execute(query, (self._partition, last)).fetchall()
        if rows:
            self._rows = np.concatenate([self._rows, np.array([row for (row,) in rows], dtype=np.int64)])
            if self._vectors is not None:
                self._vectors.append(self._read_vectors(connection, last))
            self._append_values(connection, self._columns, last)
        self._generation, self._removals, self._masks = generation, removals, {}

    def _drop_deleted(self, connection: sqlite3.Connection) -> None:
        live = [row for (row,) in connection.execute("SELECT row FROM chunks WHERE partition = ?", (self._partition,))]
        mask = np.isin(self._rows, np.array(live, dtype=np.int64))
        self._rows = self._rows[mask]
        if self._vectors is not None:
            self._vectors.keep(mask)
        for column in self._columns.values():
            column.keep(mask)

    def _load_vectors(self, after: int) -> tuple[Rows, Vectors]:
        """Return the rows after one row, with their vectors."""
        first = int(np.searchsorted(self._rows, after, side="right"))
        if self._vectors is None or first < self._vectors.first:
            with self._catalog.snapshot() as connection:
                self._update(connection)
                first = int(np.searchsorted(self._rows, after, side="right"))
                self._vectors = VectorBuffer(first, self._read_vectors(connection, after))
        return self._rows[first:], self._vectors.from_row(first)

    def _read_vectors(self, connection: sqlite3.Connection, after: int) -> Vectors:
        query = "SELECT vector FROM chunks JOIN vectors USING (row) WHERE partition = ? AND row > ? ORDER BY row"
        vectors = connection.execute(query, (self._partition, after)).fetchall()
        return unit_vectors(unpack_vectors([packed for (packed,) in vectors]))

    # -- filters --------------------------------------------------------------------------------------------------

    def _mask(self, condition: Filter) -> Mask:
        self._load_columns(condition)
        mask = self._masks.get(condition)
        if mask is None:
            while len(self._masks) >= _MAX_CACHED_MASKS:
                self._masks.pop(next(iter(self._masks)))
            mask = self._masks[condition] = self._evaluate(condition)
        return mask

    def _evaluate(self, condition: Filter) -> Mask:
        match condition:
            case Condition():
                return self._columns[condition.key].test(condition)
            case And(parts):
                return reduce(np.logical_and, map(self._evaluate, parts), np.ones(len(self._rows), dtype=np.bool_))
            case Or(parts):
                return reduce(np.logical_or, map(self._evaluate, parts), np.zeros(len(self._rows), dtype=np.bool_))
            case Not(part):
                return ~self._evaluate(part)
        raise AssertionError(condition)

    def _load_columns(self, condition: Filter) -> None:
        for key in filter_keys(condition) - self._columns.keys():
            column = TimeColumn() if key in {TIME, EXPIRES} else Column()
            with self._catalog.snapshot() as connection:
                self._update(connection)
                self._append_values(connection, {key: column}, -1)
            self._columns[key] = column

    def _append_values(
        self, connection: sqlite3.Connection, columns: Mapping[str, Column | TimeColumn], after: int
    ) -> None:
        if not columns:
            return
        views = [
            filter_view(self._owner, doc_id, codec.decode(metadata), locator)
            for doc_id, metadata, locator in connection.execute(
                "SELECT d.doc_id, d.metadata, c.locator FROM chunks c JOIN documents d ON d.id = c.document "
                "WHERE c.partition = ? AND c.row > ? ORDER BY c.row",
                (self._partition, after),
            )
        ]
        for key, column in columns.items():
            column.extend(lookup(view, key) for view in views)


def filter_view(owner: str | None, doc_id: str, metadata: Mapping[str, Any], locator: str) -> dict[str, Any]:
    """Return the values a filter tests: locator and metadata of a chunk, its owner, time and expiry.

    `agent_id` is always the real owner: a metadata key of that name is overwritten.
    """
    location = codec.decode(locator) if locator != "{}" else {}
    view = {**location, **metadata, "agent_id": owner, "doc_id": doc_id}
    for key, value in ((TIME, document_time(metadata)), (EXPIRES, parse_time(metadata.get(EXPIRY_KEY)))):
        if value is not None:
            view[key] = value
        else:
            view.pop(key, None)  # a metadata key of that name is no time either
    return view


def unit_vectors(vectors: Vectors) -> Vectors:
    """Scale rows to length 1; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def cosines(vectors: Vectors, query: Vectors) -> npt.NDArray[np.float64]:
    """Return the cosine of each row to the query in float64, independent of the other rows.

    A matrix product may round a row differently depending on its neighbours; a sum along each row does not, so a chunk
    gets the same score in every store.
    """
    wide, target = vectors.astype(np.float64), query.astype(np.float64)
    lengths = np.sqrt((wide * wide).sum(axis=1)) * np.sqrt((target * target).sum())
    products = (wide * target).sum(axis=1)
    ratios: npt.NDArray[np.float64] = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    return ratios.clip(-1.0, 1.0)


_ROUNDING = 1e-5  # a float32 product of unit vectors is off by less


def top_rows(rows: Rows, unit_vectors: Vectors, query: Vectors, limit: int) -> list[tuple[int, float]]:
    """Return (row, cosine in float32) of the nearest rows, best first, with ties, up to four times the limit."""
    if not len(rows):
        return []
    length = float(np.linalg.norm(query))
    # one product per row on this thread: a matrix product starts BLAS threads, and waits for them on a busy machine
    products = np.vecdot(unit_vectors, query / length if length else query)
    if len(rows) > limit:
        edge = np.partition(products, len(rows) - limit)[len(rows) - limit] - _ROUNDING
        nearest = np.flatnonzero(products >= edge)
        if len(nearest) > 4 * limit:
            nearest = nearest[np.argsort(-products[nearest], kind="stable")[: 4 * limit]]
    else:
        nearest = np.arange(len(rows))
    nearest = nearest[np.argsort(-products[nearest], kind="stable")]
    return list(zip(rows[nearest].tolist(), products[nearest].tolist(), strict=True))


def unpack_vectors(packed: list[bytes]) -> Vectors:
    """Return packed vectors of the catalog as a float32 matrix, one row each."""
    return np.frombuffer(b"".join(packed), dtype="<f4").reshape(len(packed), -1 if packed else 0)


def read_vectors(connection: sqlite3.Connection, rows: Rows) -> tuple[Rows, Vectors]:
    """Return the live ones of the rows with their vectors: (rows, matrix)."""
    query = "SELECT row, vector FROM vectors WHERE row IN (...)"
    pairs: list[tuple[int, bytes]] = list(select_in(connection, query, rows.tolist()))
    live = np.array([row for row, _ in pairs], dtype=np.int64)
    return live, unpack_vectors([packed for _, packed in pairs])
