"""Values of a database row: as metadata, as text, and as parts of a key. Pure."""

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
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from langchain_agentrag.connector import Gap, SourceItem
from langchain_agentrag.errors import ScopeError, UnreadableSourceError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import Section, SourceDocument

Convert = Callable[[Any], Any]

_KEPT: Final = frozenset(
    (
        type(None),
        bool,
        int,
        float,
        str,
        bytes,
        Decimal,
        UUID,
        dt.datetime,
        dt.date,
        dt.time,
        dt.timedelta,
    )
)
_SPECIAL: Final = re.compile(r"['0-9+\-]|(?:inf|nan|true|false)$")
_SCALE: Final = re.compile(r"(?:NUMERIC|DECIMAL)\s*\(\s*\d+\s*,\s*(\d+)\s*\)", re.IGNORECASE)


def plain(value: Any) -> Any:  # noqa: ANN401
    """A value of a driver as one that metadata can hold, of the same type where Python has it.

    Arrays become lists, JSON and structs dicts with text keys, and types of a driver's own (ranges, addresses)
    their text.
    """
    return value if type(value) in _KEPT else _first(_PLAIN, value)(value)


def text_of(value: Any) -> str:  # noqa: ANN401
    """A value as it stands in a document's text: nothing for NULL and bytes, no exponent, no trailing invention.

    Decimal("1.10") is 1.10, a time stamp 2024-05-01 08:00:00+08:00, a list its values with commas, JSON is JSON.
    """
    return value if type(value) is str else str(_first(_TEXTS, value)(value))


def _json(value: Any) -> str:  # noqa: ANN401
    return json.dumps(value, ensure_ascii=False, default=text_of)


def _list_text(value: Any) -> str:  # noqa: ANN401
    parts = list(value)
    if any(isinstance(part, Mapping | list | tuple) for part in parts):
        return _json(parts)
    return ", ".join(filter(None, map(text_of, parts)))


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


_OCTETS: Final = (bytes, bytearray, memoryview)
_PLAIN: Final[tuple[tuple[Any, Convert], ...]] = (
    (_OCTETS, bytes),
    (Mapping, lambda found: {_name(key): plain(part) for key, part in found.items()}),
    ((list, tuple), lambda found: [plain(part) for part in found]),
    ((set, frozenset), lambda found: sorted((plain(part) for part in found), key=repr)),
    (tuple(_KEPT), _same),  # subclasses of a driver's own
    (object, str),
)
_TEXTS: Final[tuple[tuple[Any, Convert], ...]] = (
    ((type(None), *_OCTETS), lambda _: ""),
    (bool, lambda found: "true" if found else "false"),
    (Decimal, lambda found: format(found, "f")),
    (dt.datetime, lambda found: found.isoformat(" ")),
    ((dt.date, dt.time), lambda found: found.isoformat()),
    (Mapping, lambda found: _json({_name(key): part for key, part in found.items()})),
    ((list, tuple, set, frozenset), _list_text),
    (object, str),
)


def _first(rules: tuple[tuple[Any, Convert], ...], value: Any) -> Convert:  # noqa: ANN401
    return next(rule for kinds, rule in rules if isinstance(value, kinds))


def _name(key: Any) -> str:  # noqa: ANN401
    return key if isinstance(key, str) else text_of(key)


# -- keys -------------------------------------------------------------------------------------------------------------


def key_text(values: tuple[Any, ...], *, typed: tuple[bool, ...] | None = None) -> str:
    r"""A row's key as text: different keys always give different texts.

    Parts are joined by "|", a "|" or "\" within a part is escaped. In a column of one type a text stays as it is. In
    a column that may hold numbers beside text (SQLite, unless the column is declared), a text that reads like a number
    gets an apostrophe in front, as in a spreadsheet, so that 1 and "1" are two keys. Equal instants of two zones are
    one key.

    Args:
        values: The key's values, none of them None.
        typed: For each whether its column holds one type only; None for no.
    """
    marks = typed or (False,) * len(values)
    return "|".join(_key_part(value, one_type) for value, one_type in zip(values, marks, strict=True))


def _key_part(given: Any, one_type: bool) -> str:  # noqa: ANN401, FBT001
    value = plain(given)
    if isinstance(value, str):
        escaped = _escaped(value)
        return f"'{escaped}" if not one_type and _SPECIAL.match(escaped) else escaped
    return str(_first(_KEYS, value)(value))


def _decimal_key(value: Decimal) -> str:
    """1.1 and 1.10 are one number, and one key to a database."""
    if not value.is_finite():
        return str(value)
    return format(value.normalize(), "f") if value else "0"


def _moment_key(value: dt.datetime) -> str:
    return (value if value.tzinfo is None else value.astimezone(dt.UTC)).isoformat()


def _packed_key(value: Any) -> str:  # noqa: ANN401
    return rf"\j{_escaped(json.dumps(value, ensure_ascii=False, sort_keys=True, default=repr))}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


_KEYS: Final[tuple[tuple[Any, Convert], ...]] = (
    (bytes, lambda found: rf"\x{found.hex()}"),
    (Decimal, _decimal_key),
    (dt.datetime, _moment_key),
    ((list, dict), _packed_key),
    (object, text_of),
)


# -- declared types that a driver does not apply ----------------------------------------------------------------------


def conversion(declared: str, dialect: str) -> Convert | None:
    """What turns a driver's value into the declared type, or None where the driver does that.

    SQLite stores dates as text and decimals as floats; MySQL gives JSON as text and a boolean as a small number. A
    value that does not fit its declaration stays as it is.
    """
    kind = declared.upper()
    if dialect in {"mysql", "mariadb"}:
        if kind in {"TINYINT(1)", "BOOL", "BOOLEAN"}:
            return _boolean
        return _lenient(json.loads, str) if kind == "JSON" else None
    if dialect != "sqlite":
        return None
    if kind.startswith(("NUMERIC", "DECIMAL")):
        scale = _SCALE.match(kind)
        step = None if scale is None else Decimal(1).scaleb(-int(scale[1]))
        return lambda value: _decimal(value, step)
    for prefix, convert in _SQLITE:
        if kind.startswith(prefix):
            return convert
    return None


def _lenient(convert: Convert, *kinds: type) -> Convert:
    def converted(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, kinds):
            return value
        try:
            return convert(value)
        except (ValueError, TypeError, RecursionError):
            return value

    return converted


def _boolean(value: Any) -> Any:  # noqa: ANN401
    return bool(value) if isinstance(value, int) and value in {0, 1} else value


def _decimal(value: Any, step: Decimal | None) -> Any:  # noqa: ANN401
    """Decimal('1.10') of the float 1.1 in a column of two places; never another number than was stored."""
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


_SQLITE: Final[tuple[tuple[str, Convert], ...]] = (
    ("DATETIME", _lenient(dt.datetime.fromisoformat, str)),
    ("TIMESTAMP", _lenient(dt.datetime.fromisoformat, str)),
    ("DATE", _lenient(dt.date.fromisoformat, str)),
    ("TIME", _lenient(dt.time.fromisoformat, str)),
    ("BOOL", _boolean),
    ("JSON", _lenient(json.loads, str)),
    ("UUID", _lenient(UUID, str)),
)


_READING: Final = "1"
"""Raised when rows are read differently, so that stored versions no longer count as equal."""
_LONGEST: Final = 1_000
"""Characters or bytes; a longer value is text, not metadata, unless it was asked for by name."""
_LONG_ROW: Final = 300
"""A text of more characters may be split, so that its first line goes along as context."""
_MOST_NAMED: Final = 100
"""Rows without an address that are named one by one."""
_CONVERSIONS: Final[Mapping[str, Callable[[Any], str]]] = {"s": str, "r": repr, "a": ascii}
_CLAIM: Final = "agent_id"

TextOf = Callable[[Mapping[str, Any]], str]
NoAgent = Literal["refuse", "skip", "shared"]


@dataclass(frozen=True, slots=True)
class Reading:
    """How the rows of a source become documents, as the caller said it; see `DatabaseConnector`."""

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


def unique_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names of a result's columns, told apart: the second "id" becomes "id_2"."""
    given = list(names)
    taken, found = set(given), []
    for place, name in enumerate(given):
        unique, number = name, 2
        if name in given[:place]:
            while (unique := f"{name}_{number}") in taken:
                number += 1
        taken.add(unique)
        found.append(unique)
    return tuple(found)


class RowReader:
    """Turns the rows of one result into items.

    Args:
        reading: What the caller asked for.
        columns: Names of the result's columns, told apart.
        typed: For each column whether it holds one type only.
        conversions: For each column what makes its declared type of the driver's value, or None.

    Raises:
        UsageError: a column that was named is not in the result, or a column's name cannot be metadata.
    """

    def __init__(
        self,
        reading: Reading,
        columns: Sequence[str],
        typed: Sequence[bool],
        conversions: Sequence[Convert | None],
    ) -> None:
        self._reading, self._columns = reading, tuple(columns)
        self._places = {name: place for place, name in enumerate(columns)}
        self._key = tuple(self._place(name, "key") for name in reading.key)
        self._typed = tuple(typed[place] for place in self._key)
        self._agent = (
            None if reading.agent_column is None else self._place(reading.agent_column, "agent_column")
        )
        self._version = (
            None if reading.version_column is None else self._place(reading.version_column, "version_column")
        )
        self._conversions = [(place, convert) for place, convert in enumerate(conversions) if convert]
        self._kept = self._metadata_places()
        self._text = self._writer()
        self._unnamed: Counter[tuple[str, bool]] = Counter()
        self._settings = "" if callable(reading.text) else self._fingerprint()

    def item(self, row: Sequence[Any], number: int) -> SourceItem | Gap | None:
        """The item of a row, or why it is none; None when too many have said so already, see `unnamed`.

        Args:
            row: Its values, as the driver gives them.
            number: Its place in the result, from 1.
        """
        values = [plain(value) for value in row]
        for place, convert in self._conversions:
            values[place] = convert(values[place])
        key = self._key_of(values)
        if isinstance(key, _Refusal):
            return self._counted(Gap(f"{self._reading.name}: row {number}", key.reason, skipped=False))
        doc_id = f"{self._reading.name}:{key}"
        if not _is_utf8(doc_id):
            shown = doc_id.encode("utf-8", "backslashreplace").decode()
            return Gap(shown, "its key is no valid UTF-8: correct it in the database", skipped=False)
        owner = self._owner(values)
        if isinstance(owner, _Refusal):
            gap = Gap(doc_id, owner.reason, skipped=owner.skipped)
            # one that failed is always named: what is stored under its key shall stay
            return self._counted(gap) if gap.skipped else gap
        version = self._version_of(values, owner)
        return SourceItem(doc_id, version, partial(self._load, doc_id, key, values, owner), size_of(values))

    def unnamed(self) -> Iterator[Gap]:
        """How many rows were left out without being named, for the end of the report."""
        for (why, skipped), count in self._unnamed.items():
            if count > _MOST_NAMED:
                yield Gap(f"{self._reading.name}: {count - _MOST_NAMED:,} more rows", why, skipped=skipped)

    def _counted(self, gap: Gap) -> Gap | None:
        self._unnamed[gap.reason, gap.skipped] += 1
        return gap if self._unnamed[gap.reason, gap.skipped] <= _MOST_NAMED else None

    # -- parts of a row -------------------------------------------------------------------------------------------

    def _key_of(self, values: Sequence[Any]) -> str | _Refusal:
        if self._reading.content_addressed:
            return _digest(repr(values))
        parts = tuple(values[place] for place in self._key)
        missing = [name for name, part in zip(self._reading.key, parts, strict=True) if part is None]
        if missing:
            return _Refusal(
                f"its key {', '.join(missing)} is NULL, so it has no address: choose key columns that every row has, "
                "or content_addressed=True"
            )
        return key_text(parts, typed=self._typed)

    def _owner(self, values: Sequence[Any]) -> str | _Refusal | None:
        if self._agent is None:
            return self._reading.agent_id
        given, column = values[self._agent], self._reading.agent_column
        if given is None:
            if self._reading.no_agent == "shared":
                return None
            return _Refusal(
                f"its {column} is NULL, so nobody owns it: give it an agent, or say no_agent='shared' (every agent "
                "sees such rows) or no_agent='skip'",
                skipped=self._reading.no_agent == "skip",
            )
        if isinstance(given, UUID) or (isinstance(given, int) and not isinstance(given, bool)):
            return str(given)
        try:
            return check_agent_id(given)
        except ScopeError as error:
            return _Refusal(f"its {column} {given!r} is no agent: {error}")

    def _version_of(self, values: Sequence[Any], owner: str | None) -> str | None:
        if callable(self._reading.text):
            return None  # nobody knows what the function says now
        marked = None if self._version is None else values[self._version]
        return _digest(repr((self._settings, owner, values if marked is None else marked)))

    def _load(self, doc_id: str, key: str, values: Sequence[Any], owner: str | None) -> list[SourceDocument]:
        metadata: dict[str, Any] = {"type": "row", "table": self._reading.name}
        for place in self._kept:
            value = values[place]
            if self._reading.metadata is not None or not _is_long(value):
                metadata[self._columns[place]] = value
        text = self._text(values, key)
        context = text.partition("\n")[0][:80] if len(text) > _LONG_ROW else ""
        locator = {"table": self._reading.name, "key": key}
        return [
            SourceDocument(doc_id, text, metadata, owner, "plain", (Section(0, len(text), locator, context),))
        ]

    # -- what is decided once -------------------------------------------------------------------------------------

    def _place(self, name: str, role: str) -> int:
        if name not in self._places:
            raise UsageError(
                f"DatabaseConnector({role}=…) names the column {name!r}, which {self._reading.name!r} does not have: "
                f"its columns are {', '.join(map(repr, self._columns))}."
            )
        return self._places[name]

    def _metadata_places(self) -> list[int]:
        asked = self._reading.metadata
        places = (
            list(range(len(self._columns)))
            if asked is None
            else [self._place(name, "metadata") for name in asked]
        )
        kept = [place for place in places if place != self._agent or self._columns[place] != _CLAIM]
        if any(self._columns[place] == _CLAIM for place in kept):
            raise UsageError(
                f"{self._reading.name!r} has a column 'agent_id', and whose rows they are is never guessed: pass "
                "agent_column='agent_id' to keep each agent's rows to itself, name another column in the query, or "
                "leave it out with metadata=[…]."
            )
        return kept

    def _writer(self) -> Callable[[Sequence[Any], str], str]:
        given = self._reading.text
        if given is None:
            return self._default_text
        if not isinstance(given, str):
            return lambda values, key: _told(given, dict(zip(self._columns, values, strict=True)))
        parts = []
        for literal, name, spec, conversion in template_parts(given):
            place = None if name is None else self._place(name, "text")
            parts.append((literal, place, spec, conversion))
        return lambda values, key: _filled(parts, values)

    def _default_text(self, values: Sequence[Any], key: str) -> str:
        """First "用户 7", then one line a column that says something: "姓名：张三", or "name: Ada"."""
        labels = self._reading.labels or {}
        shown = (
            ""
            if self._reading.content_addressed
            else ", ".join(text_of(values[place]) for place in self._key)
        )
        lines = [f"{self._reading.label} {shown}".strip()]
        for place, (name, value) in enumerate(zip(self._columns, values, strict=True)):
            text = text_of(value)
            if text.strip() and place not in self._key and place != self._agent:
                label = labels.get(name, name)
                lines.append(f"{label}：{text}" if not label.isascii() else f"{label}: {text}")
        return "\n".join(lines) if len(lines) > 1 or shown else ""

    def _fingerprint(self) -> str:
        reading = self._reading
        settings = (
            _READING,
            reading.label,
            reading.text,
            reading.metadata,
            sorted((reading.labels or {}).items()),
        )
        return _digest(repr((settings, self._columns)))


def template_parts(template: str) -> list[tuple[str, str | None, str, str | None]]:
    """(literal, column, format, conversion) of a template like "{姓名} lives in {city}".

    Raises:
        UsageError: its braces do not match.
    """
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(
            f"DatabaseConnector(text={template!r}) cannot be read: {error}. Write {{column}}, and {{{{ for a brace."
        ) from error
    return [(literal, name, spec or "", conversion) for literal, name, spec, conversion in parsed]


def _told(text: TextOf, row: Mapping[str, Any]) -> str:
    """What the caller's function says of a row.

    Raises:
        UnreadableSourceError: it fails, or gives something else than a text.
    """
    try:
        told = text(row)
    except Exception as error:
        raise UnreadableSourceError(
            f"DatabaseConnector(text=…) failed for it with {type(error).__name__}: {error}"
        ) from error
    if not isinstance(told, str):
        raise UnreadableSourceError(
            f"DatabaseConnector(text=…) gave a {type(told).__name__} for it: return a text, '' for a row to leave out"
        )
    return told


def _filled(parts: Iterable[tuple[str, int | None, str, str | None]], values: Sequence[Any]) -> str:
    written = []
    for literal, place, spec, conversion in parts:
        written.append(literal)
        if place is None or values[place] is None:
            continue
        value = values[place]
        if conversion:
            value = _CONVERSIONS[conversion](value)
        try:
            written.append(format(value, spec) if spec else text_of(value))
        except (ValueError, TypeError) as error:
            raise UnreadableSourceError(
                f"DatabaseConnector(text=…) cannot write {value!r} as {{:{spec}}}: {error}"
            ) from error
    return "".join(written)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a row becomes no document."""

    reason: str
    skipped: bool = False


def size_of(row: Sequence[Any]) -> int:
    """Characters that a row's values hold, roughly."""
    return sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)


def _is_long(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, str | bytes):
        return len(value) > _LONGEST
    return isinstance(value, list | dict) and len(repr(value)) > _LONGEST


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
