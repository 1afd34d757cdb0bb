"""CSV, TSV and Excel files: each row is a section, with the column names before its values."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
from itertools import islice
from typing import TYPE_CHECKING

from langchain_agentrag.connectors.files.content import Content, TextBuilder, check_zip, decoded_metadata, one_line
from langchain_agentrag.connectors.files.encodings import decode
from langchain_agentrag.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_DELIMITERS = ",;\t|"
_SAMPLE_ROWS = 50  # rows that are read to detect the delimiter
_LONG_ROW = 300  # a row of more characters may be split, so its first text becomes context of every chunk
_MAX_LABEL = 80
_NUMBER = re.compile(r"[-+]?[\d.,]+%?$|\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?")
_YEAR = re.compile(r"(?:19|20)\d\d$")
_MAX_CELL_LINES = 100


def read_csv(data: bytes, delimiter: str = "") -> Content:
    """Read a CSV file; without `delimiter` it is detected."""
    decoded = decode(data)
    text = decoded.text.replace("\x00", "")
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    builder = TextBuilder()
    numbered = enumerate(_csv_rows(text, delimiter or _detect_delimiter(text)), 1)
    columns = _add_rows(builder, numbered)
    return builder.content(metadata=decoded_metadata(decoded) | ({"columns": columns} if columns else {}))


def _csv_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    cell_lines = max((cell.count("\n") for row in rows for cell in row), default=0)
    if cell_lines > max(_MAX_CELL_LINES, text.count("\n") // 2):  # an unmatched quote spans half of the file
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=csv.QUOTE_NONE))
    yield from rows


def _detect_delimiter(text: str) -> str:
    """Return the delimiter that splits most of the first rows into the same number of cells."""

    def agreement(delimiter: str) -> tuple[int, int]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        widths = [len(row) for row in islice(reader, _SAMPLE_ROWS) if row]
        return max(((widths.count(width), width) for width in set(widths) if width > 1), default=(0, 0))

    return max(_DELIMITERS, key=lambda delimiter: (agreement(delimiter), -_DELIMITERS.index(delimiter)))


def _add_rows(builder: TextBuilder, rows: Iterable[tuple[int, Sequence[str]]], sheet: str = "") -> list[str]:
    """Append numbered rows as sections, with the header's names before the values.

    Returns:
        The column names, empty when the table has no header.
    """
    filled = ((number, [cell.strip() for cell in row]) for number, row in rows if any(cell.strip() for cell in row))
    first = next(filled, None)
    if first is None:
        builder.add(sheet, {"sheet": sheet})
        return []
    second = next(filled, None)
    names = first[1] if second is not None and _is_header(first[1]) else []
    locator = {"sheet": sheet} if sheet else {}
    if sheet:
        builder.add(f"{sheet}\n{' | '.join(name for name in names if name)}", locator, joinable=False)
    for number, row in (*(() if names else (first,)), *(() if second is None else (second,)), *filled):
        text = _row_text(row, names)
        label = next((one_line(cell) for cell in row if cell and not _NUMBER.match(cell)), "")
        context = " > ".join(filter(None, (sheet, label[:_MAX_LABEL] if len(text) > _LONG_ROW else "")))
        builder.add(text, {**locator, "row": number}, context=context, joinable=False)
    return [name for name in names if name]


def _row_text(row: list[str], names: list[str]) -> str:
    """Format a row as `name: value` lines, or as `value | value` without names."""
    if not names:
        return " | ".join(one_line(cell) for cell in row if cell)
    padded = [*names, *[""] * (len(row) - len(names))]
    return "\n".join(
        f"{one_line(name)}: {cell}" if name else cell for name, cell in zip(padded, row, strict=False) if cell
    )


def _is_header(row: list[str]) -> bool:
    """Return whether a first row is a header: short, distinct names, no numbers except years."""
    names = [cell for cell in row if cell]
    numbers = [name for name in names if _NUMBER.match(name) and not _YEAR.match(name)]
    are_short = all(len(name) <= _MAX_LABEL and "\n" not in name for name in names)
    has_word = any(not _NUMBER.match(name) for name in names)
    return are_short and has_word and not numbers and len(set(names)) == len(names) and len(names) * 2 >= len(row)


def read_xlsx(data: bytes) -> Content:
    """Read the sheets of an Excel workbook: values, not formulas."""
    check_zip(data)
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError("Excel files", "files") from error
    workbook = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    builder = TextBuilder()
    sheets: list[str] = []
    for sheet in workbook.worksheets:
        sheets.append(sheet.title)
        if hasattr(sheet, "reset_dimensions"):
            sheet.reset_dimensions()  # some programs write wrong ones, which would truncate the sheet
        rows = (list(map(_cell_text, row)) for row in sheet.iter_rows(values_only=True))
        _add_rows(builder, enumerate(rows, 1), sheet=sheet.title)
    workbook.close()
    return builder.content(metadata={"sheets": sheets})


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else value.isoformat(" ", "seconds")
    return str(value)
