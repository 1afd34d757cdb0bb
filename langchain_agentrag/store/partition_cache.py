"""The last rows of a partition in memory, to be scanned exactly."""

from __future__ import annotations

import datetime as dt
import sqlite3
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_agentrag import metadata as codec
from langchain_agentrag.filters import EXPIRES, TIME, And, Condition, Filter, Not, Or, filter_keys, lookup
from langchain_agentrag.store.catalog import Catalog, PartitionRow, batched
from langchain_agentrag.store.protocols import Rows, Vectors
from langchain_agentrag.times import EPOCH, EXPIRY_KEY, document_time, parse_time, to_microseconds


class VectorBuffer:
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


Mask = npt.NDArray[np.bool_]


_MASKS = 8  # filters whose rows are remembered per partition until something is written


class Column:
    """One metadata key, dictionary-encoded: `values[codes[i]]` is what row i holds.

    A condition is tested once per distinct value, so a filter costs as many `Condition.test` calls as there are
    distinct values and one numpy look-up per row.
    """

    def __init__(self) -> None:
        self.codes: npt.NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._values: list[tuple[Any, bool]] = []
        self._code_of: dict[Hashable, int] = {}

    def extend(self, found: Iterator[tuple[Any, bool]]) -> None:
        """Append one (value, present) pair per row."""
        new = np.fromiter((self._encode(value, present) for value, present in found), dtype=np.int32)
        self.codes = np.concatenate([self.codes, new])

    def keep(self, kept: Mask) -> None:
        """Drop the rows that are not kept."""
        self.codes = self.codes[kept]

    def test(self, condition: Condition) -> Mask:
        """Which rows satisfy the condition."""
        verdicts = np.fromiter(
            (condition.test(value, present) for value, present in self._values),
            dtype=np.bool_,
            count=len(self._values),
        )
        return verdicts[self.codes] if len(self._values) else np.zeros(0, dtype=np.bool_)

    def _encode(self, value: Any, present: bool) -> int:  # noqa: ANN401, FBT001
        # type and repr keep 1, 1.0, True and "1" apart, and make lists and dicts hashable
        key: Hashable = (
            (type(value), value) if isinstance(value, str) else (type(value), repr(value), present)
        )
        code = self._code_of.get(key)
        if code is None:
            code = self._code_of[key] = len(self._values)
            self._values.append((value, present))
        return code


_NEVER = np.iinfo(np.int64).min  # row without a moment


class TimeColumn:
    """Times or expiries, as microseconds since 1970: hardly two rows share one, so they are compared as an array."""

    def __init__(self) -> None:
        self.moments: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def extend(self, found: Iterator[tuple[Any, bool]]) -> None:
        """Append one (value, present) pair per row."""
        new = np.fromiter(
            (to_microseconds(value) if present else _NEVER for value, present in found), dtype=np.int64
        )
        self.moments = np.concatenate([self.moments, new])

    def keep(self, kept: Mask) -> None:
        """Drop the rows that are not kept."""
        self.moments = self.moments[kept]

    def test(self, condition: Condition) -> Mask:
        """Which rows satisfy the condition."""
        compare, bound = _COMPARISONS.get(condition.op), parse_time(condition.operand)
        if compare is not None and bound is not None:
            mask: Mask = compare(self.moments, to_microseconds(bound)) & (self.moments != _NEVER)
            return mask
        shown = (
            None if value == _NEVER else EPOCH + dt.timedelta(microseconds=value)
            for value in self.moments.tolist()
        )
        return np.fromiter((condition.test(value, value is not None) for value in shown), dtype=np.bool_)


_COMPARISONS: dict[str, Callable[..., Any]] = {
    "$gt": np.greater,
    "$gte": np.greater_equal,
    "$lt": np.less,
    "$lte": np.less_equal,
}


class PartitionCache:
    """What is kept in memory of one partition. Thread-safe.

    Args:
        catalog: Where to read from.
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
        self._masks: dict[Filter, Mask] = {}  # both legs of a search ask for the same one

    def select(self, state: PartitionRow, condition: Filter | None) -> Rows:
        """Live rows that the filter keeps, ascending, at least as new as `state`.

        Agrees with `filters.match` by construction: every leaf is the same `Condition.test`.
        """
        with self._guard:
            self._refresh(state)
            return self._rows if condition is None else self._rows[self._mask(condition)]

    def nearest(
        self, state: PartitionRow, vector: Vectors, limit: int, condition: Filter | None, *, after: int = -1
    ) -> list[tuple[int, float]]:
        """(row, cosine) of the kept rows nearest to `vector`, rounded, best first, ties at the end included.

        Args:
            state: The partition as the search sees it.
            vector: The query, any length.
            limit: Number of rows wanted.
            condition: The filter, or None.
            after: Only rows after this one, whose vectors alone are kept in memory then.
        """
        with self._guard:
            self._refresh(state)
            rows, matrix = self._load_vectors(after)
            if condition is not None:
                mask = self._mask(condition)  # may bring in new rows
                rows, matrix = self._load_vectors(after)
                mask = mask[len(mask) - len(rows) :]
                rows, matrix = rows[mask], matrix[mask]
        return top_rows(rows, matrix, vector, limit)

    # -- loading --------------------------------------------------------------------------------------------------

    def _refresh(self, state: PartitionRow) -> None:
        if state.generation > self._generation:
            with self._catalog.snapshot() as connection:
                self._advance(connection)

    def _advance(self, connection: sqlite3.Connection) -> None:
        """Bring rows, matrix and columns to the state this read transaction sees."""
        generation, removals = connection.execute(
            "SELECT generation, removals FROM partitions WHERE id = ?", (self._partition,)
        ).fetchone() or (sys.maxsize, -1)
        if generation == self._generation:
            return
        if removals != self._removals and len(self._rows):
            self._drop_dead(connection)
        last = int(self._rows[-1]) if len(self._rows) else -1
        found = connection.execute(
            "SELECT row FROM chunks WHERE partition = ? AND row > ? ORDER BY row", (self._partition, last)
        ).fetchall()
        if found:
            self._rows = np.concatenate([self._rows, np.array([row for (row,) in found], dtype=np.int64)])
            if self._vectors is not None:
                self._vectors.append(self._read_vectors(connection, last))
            self._fill(connection, self._columns, last)
        self._generation, self._removals, self._masks = generation, removals, {}

    def _drop_dead(self, connection: sqlite3.Connection) -> None:
        live = [
            row
            for (row,) in connection.execute("SELECT row FROM chunks WHERE partition = ?", (self._partition,))
        ]
        kept = np.isin(self._rows, np.array(live, dtype=np.int64))
        self._rows = self._rows[kept]
        if self._vectors is not None:
            self._vectors.keep(kept)
        for column in self._columns.values():
            column.keep(kept)

    def _load_vectors(self, after: int) -> tuple[Rows, Vectors]:
        """The rows after one of them, with their vectors."""
        first = int(np.searchsorted(self._rows, after, side="right"))
        if self._vectors is None or first < self._vectors.first:
            with self._catalog.snapshot() as connection:
                self._advance(connection)
                first = int(np.searchsorted(self._rows, after, side="right"))
                self._vectors = VectorBuffer(first, self._read_vectors(connection, after))
        return self._rows[first:], self._vectors.since(first)

    def _read_vectors(self, connection: sqlite3.Connection, after: int) -> Vectors:
        found = connection.execute(
            "SELECT v.vector FROM chunks c JOIN vectors v USING (row) WHERE c.partition = ? AND row > ? ORDER BY row",
            (self._partition, after),
        ).fetchall()
        return unit_vectors(unpack_vectors([packed for (packed,) in found]))

    # -- filters --------------------------------------------------------------------------------------------------

    def _mask(self, condition: Filter) -> Mask:
        self._load_columns(condition)
        mask = self._masks.get(condition)
        if mask is None:
            while len(self._masks) >= _MASKS:
                self._masks.pop(next(iter(self._masks)))
            mask = self._masks[condition] = self._evaluate(condition)
        return mask

    def _evaluate(self, condition: Filter) -> Mask:
        match condition:
            case Condition():
                return self._columns[condition.key].test(condition)
            case And(parts):
                return _combine(
                    np.logical_and, [self._evaluate(part) for part in parts], len(self._rows), empty=True
                )
            case Or(parts):
                return _combine(
                    np.logical_or, [self._evaluate(part) for part in parts], len(self._rows), empty=False
                )
            case Not(part):
                return ~self._evaluate(part)
        raise AssertionError(condition)

    def _load_columns(self, condition: Filter) -> None:
        for key in filter_keys(condition) - self._columns.keys():
            column = TimeColumn() if key in {TIME, EXPIRES} else Column()
            with self._catalog.snapshot() as connection:
                self._advance(connection)
                self._fill(connection, {key: column}, -1)
            self._columns[key] = column

    def _fill(
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
    """What a filter sees of a chunk: its place, the document's metadata, who owns it, its time and its expiry.

    The owner is the real one: a metadata key that happens to be called `agent_id` cannot pretend to be another's.
    """
    places = codec.decode(locator) if locator != "{}" else {}
    view = {**places, **metadata, "agent_id": owner, "doc_id": doc_id}
    for key, value in ((TIME, document_time(metadata)), (EXPIRES, parse_time(metadata.get(EXPIRY_KEY)))):
        if value is not None:
            view[key] = value
        else:
            view.pop(key, None)  # nor can metadata pretend to another time
    return view


def unit_vectors(vectors: Vectors) -> Vectors:
    """Rows scaled to length 1; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def cosines(vectors: Vectors, query: Vectors) -> npt.NDArray[np.float64]:
    """Cosine of each row to the query, in float64 and independent of how many rows there are.

    A matrix product may round a row differently depending on its neighbours; a sum along each row does not, so the
    same passage gets the same score in every store.
    """
    wide, target = vectors.astype(np.float64), query.astype(np.float64)
    lengths = np.sqrt((wide * wide).sum(axis=1)) * np.sqrt((target * target).sum())
    products = (wide * target).sum(axis=1)
    ratios: npt.NDArray[np.float64] = np.divide(
        products, lengths, out=np.zeros_like(products), where=lengths > 0
    )
    return ratios.clip(-1.0, 1.0)


_ROUNDING = 1e-5  # a float32 product of unit vectors is off by less


def top_rows(rows: Rows, unit_vectors: Vectors, query: Vectors, limit: int) -> list[tuple[int, float]]:
    """(row, cosine) of the nearest rows, rounded, best first; ties included, up to four times the limit."""
    if not len(rows):
        return []
    length = float(np.linalg.norm(query))
    # one product per row on this thread: a matrix product wakes BLAS threads, and waits for them on a busy machine
    products = np.vecdot(unit_vectors, query / length if length else query)
    if len(rows) > limit:
        edge = np.partition(products, len(rows) - limit)[len(rows) - limit] - _ROUNDING
        chosen = np.flatnonzero(products >= edge)
        if len(chosen) > 4 * limit:
            chosen = chosen[np.argsort(-products[chosen], kind="stable")[: 4 * limit]]
    else:
        chosen = np.arange(len(rows))
    chosen = chosen[np.argsort(-products[chosen], kind="stable")]
    return list(zip(rows[chosen].tolist(), products[chosen].tolist(), strict=True))


def unpack_vectors(packed: list[bytes]) -> Vectors:
    """Catalog blobs as a float32 matrix, one row each."""
    return np.frombuffer(b"".join(packed), dtype="<f4").reshape(len(packed), -1 if packed else 0)


def read_vectors(connection: sqlite3.Connection, rows: Rows) -> tuple[Rows, Vectors]:
    """Vectors of those of the given rows that are live: (rows found, matrix)."""
    found: list[tuple[int, bytes]] = []
    for part in batched(rows.tolist()):
        marks = ",".join("?" * len(part))
        found += connection.execute(
            f"SELECT row, vector FROM vectors WHERE row IN ({marks})", tuple(part)
        ).fetchall()
    return np.array([row for row, _ in found], dtype=np.int64), unpack_vectors(
        [packed for _, packed in found]
    )


def _combine(rule: Callable[[Mask, Mask], Mask], masks: list[Mask], size: int, *, empty: bool) -> Mask:
    total = np.full(size, empty, dtype=np.bool_)
    for mask in masks:
        total = rule(total, mask)
    return total
