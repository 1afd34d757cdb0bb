"""Conversion of database rows to documents: keys, texts and metadata values. No I/O."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from langchain_agentrag.connector import Gap, SourceItem
from langchain_agentrag.errors import ScopeError, UnreadableSourceError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import Section, SourceDocument

Convert = Callable[[Any], Any]
TextOf = Callable[[Mapping[str, Any]], str]
"""Function from a row as a dict to its text."""
NoAgent = Literal["refuse", "skip", "shared"]
"""Treatment of rows whose agent is NULL."""

_FORMAT_VERSION: Final = "2"
"""Part of every version; increase it when rows are read differently, so that everything is indexed again."""
_MAX_METADATA: Final = 1_000
"""Characters or bytes; a longer value is text only, unless its column is named in `metadata`."""
_LONG_TEXT: Final = 300
"""A text of more characters may be split, so its first line becomes context of every chunk."""
_MAX_NAMED_GAPS: Final = 100  # gaps of one reason that are reported one by one; further ones are only counted
_CONVERSIONS: Final[Mapping[str, Callable[[Any], str]]] = {"s": str, "r": repr, "a": ascii}
_OWNER_KEY: Final = "agent_id"


# -- values -----------------------------------------------------------------------------------------------------------

_METADATA_TYPES: Final = frozenset(
    (type(None), bool, int, float, str, bytes, Decimal, UUID, dt.datetime, dt.date, dt.time, dt.timedelta)
)
_BYTES: Final = (bytes, bytearray, memoryview)


def to_metadata(value: Any) -> Any:  # noqa: ANN401
    """Convert a driver's value to a metadata value, of the same type where Python has it.

    Arrays become lists, JSON and structs dicts with text keys, a driver's own types (ranges, addresses) text.
    """
    try:
        return value if type(value) in _METADATA_TYPES else _converter(_TO_METADATA, value)(value)
    except RecursionError:
        raise UnreadableSourceError("a value is nested too deep: read a part of it in the query") from None


def value_text(value: Any) -> str:  # noqa: ANN401
    """Return a value as it appears in a document's text: "" for NULL and bytes, decimals without exponent.

    Decimal("1.10") is 1.10, a timestamp 2024-05-01 08:00:00+08:00, a list its values with commas, JSON is JSON.
    """
    try:
        return value if type(value) is str else str(_converter(_TO_TEXT, value)(value))
    except RecursionError:
        raise UnreadableSourceError("a value is nested too deep: read a part of it in the query") from None


def _converter(rules: tuple[tuple[Any, Convert], ...], value: Any) -> Convert:  # noqa: ANN401
    return next(convert for types, convert in rules if isinstance(value, types))


def _json(value: Any) -> str:  # noqa: ANN401
    return json.dumps(value, ensure_ascii=False, default=value_text)


def _list_text(value: Any) -> str:  # noqa: ANN401
    parts = list(value)
    if any(isinstance(part, Mapping | list | tuple) for part in parts):
        return _json(parts)
    return ", ".join(filter(None, map(value_text, parts)))


def _key_name(key: Any) -> str:  # noqa: ANN401
    return key if isinstance(key, str) else value_text(key)


_TO_METADATA: Final[tuple[tuple[Any, Convert], ...]] = (
    (_BYTES, bytes),
    (Mapping, lambda value: {_key_name(key): to_metadata(part) for key, part in value.items()}),
    ((list, tuple), lambda value: [to_metadata(part) for part in value]),
    ((set, frozenset), lambda value: sorted((to_metadata(part) for part in value), key=repr)),
    (tuple(_METADATA_TYPES), lambda value: value),  # a driver's own subclasses
    (Enum, lambda value: value.name),  # as SQLAlchemy stores it
    (object, str),
)
_TO_TEXT: Final[tuple[tuple[Any, Convert], ...]] = (
    ((type(None), *_BYTES), lambda _: ""),
    (bool, lambda value: "true" if value else "false"),
    (Decimal, lambda value: format(value, "f")),
    (dt.datetime, lambda value: value.isoformat(" ")),
    ((dt.date, dt.time), lambda value: value.isoformat()),
    (Mapping, lambda value: _json({_key_name(key): part for key, part in value.items()})),
    ((list, tuple, set, frozenset), _list_text),
    (object, str),
)


# -- keys -------------------------------------------------------------------------------------------------------------

_NUMBER_LIKE: Final = re.compile(r"['0-9+\-]|(?:inf|nan|true|false)$")


def key_text(values: tuple[Any, ...], *, single_typed: tuple[bool, ...] | None = None) -> str:
    r"""Return a row's key as text; different keys always give different texts.

    Parts are joined by "|"; "|" and "\" within a part are escaped. In a column of a single type a text stays as it is.
    In a column that may hold numbers and text (SQLite, unless the column is declared), a text that looks like a number
    gets an apostrophe in front, as in a spreadsheet, so that 1 and "1" are different keys. Equal instants in different
    zones are one key.

    Args:
        values: The key's values, none of them None.
        single_typed: For each whether its column holds one type only; None for no.
    """
    flags = single_typed or (False,) * len(values)
    return "|".join(map(_key_part, values, flags))


def _key_part(raw: Any, single_typed: bool) -> str:  # noqa: ANN401, FBT001
    value = to_metadata(raw)
    if isinstance(value, str):
        escaped = _escape(value)
        return f"'{escaped}" if not single_typed and _NUMBER_LIKE.match(escaped) else escaped
    return str(_converter(_TO_KEY, value)(value))


def _decimal_key(value: Decimal) -> str:
    """Return the same text for 1.1 and 1.10, which are one key to a database."""
    if not value.is_finite():
        return str(value)
    return format(value.normalize(), "f") if value else "0"


def _datetime_key(value: dt.datetime) -> str:
    return (value if value.tzinfo is None else value.astimezone(dt.UTC)).isoformat()


def _json_key(value: Any) -> str:  # noqa: ANN401
    return rf"\j{_escape(json.dumps(value, ensure_ascii=False, sort_keys=True, default=repr))}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


_TO_KEY: Final[tuple[tuple[Any, Convert], ...]] = (
    (bytes, lambda value: rf"\x{value.hex()}"),
    (Decimal, _decimal_key),
    (dt.datetime, _datetime_key),
    ((list, dict), _json_key),
    (object, value_text),
)


# -- declared types that a driver does not apply ----------------------------------------------------------------------

_SCALE: Final = re.compile(r"(?:NUMERIC|DECIMAL)\s*\(\s*\d+\s*,\s*(\d+)\s*\)", re.IGNORECASE)


def converter(declared: str, dialect: str) -> Convert | None:
    """Return the conversion of a driver's value to the declared type, or None where the driver does it.

    SQLite stores dates as text and decimals as floats; MySQL returns JSON as text and booleans as small integers. A
    value that does not fit its declaration stays as it is.
    """
    kind = declared.upper()
    if dialect in {"mysql", "mariadb"}:
        if kind in {"TINYINT(1)", "BOOL", "BOOLEAN"}:
            return _boolean
        return _parsed(json.loads) if kind == "JSON" else None
    if dialect != "sqlite":
        return None
    if kind.startswith(("NUMERIC", "DECIMAL")):
        scale = _SCALE.match(kind)
        step = None if scale is None else Decimal(1).scaleb(-int(scale[1]))
        return lambda value: _decimal(value, step)
    return next((convert for prefix, convert in _SQLITE_TYPES if kind.startswith(prefix)), None)


def _parsed(parse: Convert) -> Convert:
    """Return a conversion that parses texts and leaves other values and unparsable texts as they are."""

    def convert(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, str):
            return value
        try:
            return parse(value)
        except (ValueError, TypeError, RecursionError):
            return value

    return convert


def _boolean(value: Any) -> Any:  # noqa: ANN401
    return bool(value) if isinstance(value, int) and value in {0, 1} else value


def _decimal(value: Any, step: Decimal | None) -> Any:  # noqa: ANN401
    """Return Decimal('1.10') for the float 1.1 in a column of scale 2; never another number than the stored one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    try:
        number = Decimal(str(value))
        if step is None or not number.is_finite():
            return number
        rounded = number.quantize(step)
    except InvalidOperation:
        return value
    return rounded if rounded == number else number


_SQLITE_TYPES: Final[tuple[tuple[str, Convert], ...]] = (
    ("DATETIME", _parsed(dt.datetime.fromisoformat)),
    ("TIMESTAMP", _parsed(dt.datetime.fromisoformat)),
    ("DATE", _parsed(dt.date.fromisoformat)),
    ("TIME", _parsed(dt.time.fromisoformat)),
    ("BOOL", _boolean),
    ("JSON", _parsed(json.loads)),
    ("UUID", _parsed(UUID)),
)


# -- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How the rows of a source become documents; see the parameters of `DatabaseConnector`."""

    name: str
    label: str
    key: tuple[str, ...]
    content_addressed: bool = False
    text: str | TextOf | None = None
    metadata: tuple[str, ...] | None = None
    labels: Mapping[str, str] | None = None
    agent_id: str | None = None
    agent_column: str | None = None
    no_agent: NoAgent = "refuse"
    version_column: str | None = None
    table: str = ""  # its name in the database; by default the name of the source


@dataclass(frozen=True, slots=True)
class _Rejection:
    """Why a row gives no document."""

    reason: str
    skipped: bool = False


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """Make the column names of a result unique: the second "id" becomes "id_2"."""
    originals = list(names)
    taken, result = set(originals), []
    for index, name in enumerate(originals):
        unique, number = name, 2
        if name in originals[:index]:
            while (unique := f"{name}_{number}") in taken:
                number += 1
        taken.add(unique)
        result.append(unique)
    return tuple(result)


class RowReader:
    """Converts the rows of one result to source items.

    Args:
        options: The options of the connector, completed by the table's key.
        columns: Unique names of the result's columns.
        single_typed: For each column whether it holds one type only.
        converters: For each column the conversion to its declared type, or None.

    Raises:
        UsageError: a column named in the options is not in the result, or a column's name cannot be metadata.
    """

    def __init__(
        self,
        options: RowOptions,
        columns: Sequence[str],
        single_typed: Sequence[bool],
        converters: Sequence[Convert | None],
    ) -> None:
        self._options, self._columns = options, tuple(columns)
        self._index_by_name = {name: index for index, name in enumerate(columns)}
        self._key = tuple(self._index(name, "key") for name in options.key)
        self._key_single_typed = tuple(single_typed[index] for index in self._key)
        agent, version = options.agent_column, options.version_column
        self._agent = None if agent is None else self._index(agent, "agent_column")
        self._version = None if version is None else self._index(version, "version_column")
        self._converters = [(index, convert) for index, convert in enumerate(converters) if convert]
        self._metadata_columns = self._metadata_indexes()
        self._text = self._text_function()
        self._gap_counts: Counter[tuple[str, bool]] = Counter()
        self._settings = "" if callable(options.text) else self._settings_digest()

    def item(self, row: Sequence[Any], number: int) -> SourceItem | Gap | None:
        """Convert a row to an item, or to a gap; None for a gap that is only counted, see `gap_summaries`.

        Args:
            row: Its values, as the driver returns them.
            number: Its position in the result, from 1.
        """
        values = [to_metadata(value) for value in row]
        for index, convert in self._converters:
            values[index] = convert(values[index])
        key = self._key_of(values)
        if isinstance(key, _Rejection):
            return self._count(Gap(f"{self._options.name}: row {number}", key.reason, skipped=False))
        doc_id = f"{self._options.name}:{key}"
        escaped = doc_id.encode("utf-8", "backslashreplace").decode()
        if escaped != doc_id:
            return Gap(escaped, "its key is not valid UTF-8: correct it in the database", skipped=False)
        owner = self._owner(values)
        if isinstance(owner, _Rejection):
            gap = Gap(doc_id, owner.reason, skipped=owner.skipped)
            # a failed one is always named, so that the document stored under its key stays
            return self._count(gap) if gap.skipped else gap
        version = self._version_of(values, owner)
        return SourceItem(doc_id, version, partial(self._load, doc_id, key, values, owner), row_size(values))

    def gap_summaries(self) -> Iterator[Gap]:
        """Yield a gap for each reason with more gaps than are named, with the number of the others."""
        for (reason, skipped), count in self._gap_counts.items():
            if count > _MAX_NAMED_GAPS:
                key = f"{self._options.name}: {count - _MAX_NAMED_GAPS:,} more rows"
                yield Gap(key, reason, skipped=skipped)

    def _count(self, gap: Gap) -> Gap | None:
        self._gap_counts[gap.reason, gap.skipped] += 1
        return gap if self._gap_counts[gap.reason, gap.skipped] <= _MAX_NAMED_GAPS else None

    # -- parts of a row -------------------------------------------------------------------------------------------

    def _key_of(self, values: Sequence[Any]) -> str | _Rejection:
        if self._options.content_addressed:
            return _digest(repr(values))
        parts = tuple(values[index] for index in self._key)
        null_columns = [name for name, part in zip(self._options.key, parts, strict=True) if part is None]
        if null_columns:
            return _Rejection(
                f"its key {', '.join(null_columns)} is NULL, so it has no id: choose key columns that every row has, "
                "or content_addressed=True"
            )
        return key_text(parts, single_typed=self._key_single_typed)

    def _owner(self, values: Sequence[Any]) -> str | _Rejection | None:
        if self._agent is None:
            return self._options.agent_id
        agent, column = values[self._agent], self._options.agent_column
        if agent is None:
            if self._options.no_agent == "shared":
                return None
            return _Rejection(
                f"its {column} is NULL, so it has no owner: set its agent, or pass no_agent='shared' (every agent "
                "sees such rows) or no_agent='skip'",
                skipped=self._options.no_agent == "skip",
            )
        if isinstance(agent, UUID) or (isinstance(agent, int) and not isinstance(agent, bool)):
            return str(agent)
        try:
            return check_agent_id(agent)
        except ScopeError as error:
            return _Rejection(f"its {column} {agent!r} is not a valid agent: {error}")

    def _version_of(self, values: Sequence[Any], owner: str | None) -> str | None:
        if callable(self._options.text):
            return None  # the function may return another text for the same row
        marker = None if self._version is None else values[self._version]
        return _digest(repr((self._settings, owner, values if marker is None else marker)))

    def _load(self, doc_id: str, key: str, values: Sequence[Any], owner: str | None) -> list[SourceDocument]:
        table = self._options.table or self._options.name
        metadata: dict[str, Any] = {"type": "row", "table": table}
        for index in self._metadata_columns:
            value = values[index]
            if self._options.metadata is not None or not _is_long(value):
                metadata[self._columns[index]] = value
        text = self._text(values, key)
        context = text.partition("\n")[0][:80] if len(text) > _LONG_TEXT else ""
        section = Section(0, len(text), {"table": table, "key": key}, context)
        return [SourceDocument(doc_id, text, metadata, owner, "plain", (section,))]

    # -- preparation ----------------------------------------------------------------------------------------------

    def _index(self, name: str, parameter: str) -> int:
        if name not in self._index_by_name:
            raise UsageError(
                f"DatabaseConnector({parameter}=…) names the column {name!r}, which {self._options.name!r} does not "
                f"have: its columns are {', '.join(map(repr, self._columns))}."
            )
        return self._index_by_name[name]

    def _metadata_indexes(self) -> list[int]:
        names = self._columns if self._options.metadata is None else self._options.metadata
        indexes = [self._index(name, "metadata") for name in names]
        indexes = [index for index in indexes if index != self._agent or self._columns[index] != _OWNER_KEY]
        if any(self._columns[index] == _OWNER_KEY for index in indexes):
            raise UsageError(
                f"{self._options.name!r} has a column 'agent_id', and the owner of rows is never guessed: pass "
                "agent_column='agent_id' to give each agent its own rows, rename the column in the query, or "
                "omit it with metadata=[…]."
            )
        return indexes

    def _text_function(self) -> Callable[[Sequence[Any], str], str]:
        """Return the function from a row's values and key to its text."""
        text = self._options.text
        if text is None:
            return self._default_text
        if not isinstance(text, str):
            return lambda values, key: _call_text(text, dict(zip(self._columns, values, strict=True)))
        parts = [
            (literal, None if name is None else self._index(name, "text"), spec, conversion)
            for literal, name, spec, conversion in template_parts(text)
        ]
        return lambda values, key: _fill_template(parts, values)

    def _default_text(self, values: Sequence[Any], key: str) -> str:
        """Return label and key ("用户 7"), then a line per non-empty column: "姓名：张三", or "name: Ada"."""
        labels = self._options.labels or {}
        keys = "" if self._options.content_addressed else ", ".join(value_text(values[i]) for i in self._key)
        lines = [f"{self._options.label} {keys}".strip()]
        for index, (name, value) in enumerate(zip(self._columns, values, strict=True)):
            text = value_text(value)
            if text.strip() and index not in self._key and index != self._agent:
                label = labels.get(name, name)
                lines.append(f"{label}：{text}" if not label.isascii() else f"{label}: {text}")
        return "\n".join(lines) if len(lines) > 1 or keys else ""

    def _settings_digest(self) -> str:
        options, labels = self._options, sorted((self._options.labels or {}).items())
        settings = (_FORMAT_VERSION, options.table, options.label, options.text, options.metadata, labels)
        return _digest(repr((settings, self._columns)))


def template_parts(template: str) -> list[tuple[str, str | None, str, str | None]]:
    """Parse a template like "{姓名} lives in {city}" to tuples (literal, column, format, conversion).

    Raises:
        UsageError: its braces do not match.
    """
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(
            f"DatabaseConnector(text={template!r}) cannot be parsed: {error}. Write {{column}}, and {{{{ for a brace."
        ) from error
    return [(literal, name, spec or "", conversion) for literal, name, spec, conversion in parsed]


def _call_text(function: TextOf, row: Mapping[str, Any]) -> str:
    """Return the text of the caller's function for a row.

    Raises:
        UnreadableSourceError: it fails, or returns something else than text.
    """
    try:
        text = function(row)
    except Exception as error:
        raise UnreadableSourceError(
            f"DatabaseConnector(text=…) failed for it with {type(error).__name__}: {error}"
        ) from error
    if not isinstance(text, str):
        raise UnreadableSourceError(
            f"DatabaseConnector(text=…) returned a {type(text).__name__} for it: return a text, '' to omit the row"
        )
    return text


def _fill_template(parts: Iterable[tuple[str, int | None, str, str | None]], values: Sequence[Any]) -> str:
    texts = []
    for literal, index, spec, conversion in parts:
        texts.append(literal)
        if index is None or values[index] is None:
            continue
        value = _CONVERSIONS[conversion](values[index]) if conversion else values[index]
        try:
            texts.append(format(value, spec) if spec else value_text(value))
        except (ValueError, TypeError) as error:
            raise UnreadableSourceError(
                f"DatabaseConnector(text=…) cannot format {value!r} as {{:{spec}}}: {error}"
            ) from error
    return "".join(texts)


def row_size(row: Sequence[Any]) -> int:
    """Return the approximate number of characters of a row's values."""
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)


def _is_long(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, str | bytes):
        return len(value) > _MAX_METADATA
    return isinstance(value, list | dict) and len(repr(value)) > _MAX_METADATA


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
