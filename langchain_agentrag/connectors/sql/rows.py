"""A database row as a document: its key, its text, its metadata, its owner, its version. Pure."""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from langchain_agentrag.connector import Gap, SourceItem
from langchain_agentrag.connectors.sql.values import Convert, key_text, plain, text_of
from langchain_agentrag.errors import ScopeError, UnreadableSourceError, UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import Section, SourceDocument

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
