"""Results of queries and their limits: rows, seconds, bytes of a cell and of a whole result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_agentrag.errors import UsageError


class QueryRefusedError(Exception):
    """A database refused a statement; the message is its own."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of a query.

    Attributes:
        max_rows: Largest number of rows of a result.
        timeout: Seconds a query may take.
        max_cell_bytes: Largest size of a value; longer texts and bytes are cut, other values become text that is cut.
        max_result_bytes: Largest size of all values together; the rows after that are omitted.
    """

    max_rows: int = 50
    timeout: float = 10.0
    max_cell_bytes: int = 64_000
    max_result_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        for name in ("max_rows", "timeout", "max_cell_bytes", "max_result_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise UsageError(f"{name} must be a number above 0, got {value!r}.")


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result of a query.

    Attributes:
        columns: Names of the columns.
        rows: At most the limit, as plain values.
        more: Whether rows are missing, because there are more than the limit or they are larger than a result may be.
        truncated: Names of the columns in which values were cut.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool
    truncated: tuple[str, ...] = ()


def read_result(
    fetch: Callable[[int], Sequence[Sequence[Any]]], columns: Sequence[str], limits: QueryLimits
) -> QueryResult:
    """Read rows up to the limits, cutting values that are too long.

    Args:
        fetch: Returns up to n further rows.
        columns: Names of the columns.
        limits: The limits.
    """
    rows: list[tuple[Any, ...]] = []
    truncated: dict[str, None] = {}
    size = 0
    while batch := fetch(min(8, limits.max_rows + 1 - len(rows))):  # few: a row can be large
        for row in batch:
            cells = []
            for name, value in zip(columns, row, strict=True):
                cell, cell_size, is_cut = limit_cell(value, limits.max_cell_bytes)
                cells.append(cell)
                size += cell_size
                if is_cut:
                    truncated[name] = None
            if len(rows) == limits.max_rows or (rows and size > limits.max_result_bytes):
                return QueryResult(tuple(columns), tuple(rows), more=True, truncated=tuple(truncated))
            rows.append(tuple(cells))
        if len(rows) > limits.max_rows:
            break
    return QueryResult(tuple(columns), tuple(rows), more=False, truncated=tuple(truncated))


def limit_cell(value: Any, max_bytes: int) -> tuple[Any, int, bool]:  # noqa: ANN401  a value of any type
    """Return a value within a limit of bytes, its size, and whether it was cut."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value[:max_bytes]), min(len(value), max_bytes), len(value) > max_bytes
    if isinstance(value, str):
        data = value[: max_bytes + 1].encode("utf-8", "replace")  # without half characters (surrogates)
        return data[:max_bytes].decode("utf-8", "ignore"), min(len(data), max_bytes), len(data) > max_bytes
    if isinstance(value, int) and (size := value.bit_length() // 8) > max_bytes:
        return hex(value)[:max_bytes], max_bytes, True
    if isinstance(value, Mapping | list | tuple | set | frozenset) and (size := _nested_size(value, max_bytes)):
        return (value, size, False) if size <= max_bytes else (_nested_text(value, max_bytes), max_bytes, True)
    return value, 32, False  # a number, a date, a Decimal, a UUID


def _nested_size(value: Any, max_bytes: int) -> int:  # noqa: ANN401
    """Return the approximate size of a list or a mapping in bytes; it stops counting above the limit."""
    size, stack = 0, [value]
    while stack and size <= max_bytes:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            size += 2 * len(item)
            stack.extend(item if size <= max_bytes else ())
        else:
            size += len(item) if isinstance(item, str | bytes) else 8
    return size


def _nested_text(value: Any, max_bytes: int) -> str:  # noqa: ANN401
    """Return the beginning of a large list or mapping as text."""
    import reprlib

    shortener = reprlib.Repr()
    shortener.maxlist = shortener.maxtuple = shortener.maxdict = shortener.maxset = shortener.maxfrozenset = 100
    shortener.maxstring = shortener.maxother = shortener.maxlong = 100
    return str(limit_cell(shortener.repr(value), max_bytes)[0])
