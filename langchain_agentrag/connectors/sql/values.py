"""Values of a database row: as metadata, as text, and as parts of a key. Pure."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

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
