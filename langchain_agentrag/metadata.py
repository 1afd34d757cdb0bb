"""Metadata values: lossless JSON, and the equality and order of values.

Strict JSON has no dates, no NaN, no bytes; Chroma has no None, no nesting. Metadata is therefore stored as JSON text
in which every value JSON lacks is a tagged object::

    {"$t": "datetime", "v": "2024-05-01T08:00:00+08:00", "zone": "Asia/Shanghai"}

| value                                            | decoded as                          |
|--------------------------------------------------|-------------------------------------|
| None, bool, int of any size, str                 | itself (also NUL, lone surrogates)  |
| float, NaN, infinities, -0.0                     | itself                              |
| dict and other mappings with string keys         | dict, same order of keys            |
| list; tuple; set (sorted)                        | list                                |
| datetime, date, time, timedelta, Decimal, UUID   | itself                              |
| bytes, bytearray, memoryview                     | bytes                               |
| Enum member                                      | its value                           |
| numpy scalar, numpy array                        | Python value, list                  |

Everything else is an `InvalidDocumentError` that names the place. A user's dict with a `"$t"` key is escaped.

Numbers are compared by value, dates and datetimes as instants (without a zone, UTC), text by code points; values of
different kinds are neither equal nor ordered. ISO text as a filter's operand is compared with a date as an instant.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from langchain_agentrag.errors import InvalidDocumentError, StoreError

MAX_DEPTH = 100
"""Deepest nesting of lists and dicts. Decoding is recursive, so the limit keeps every stored value readable."""

Value = Any
"""A metadata value: a JSON value or one of the other types in the table above."""

_TAG = "$t"
_JSON_SCALARS = frozenset({str, int, float, bool, type(None)})
_HUGE_INT_BITS = 14_000  # Python refuses to print integers above 4,300 digits (about 14,284 bits)

# Strict JSON (no NaN), and no \u escapes, so that Chinese metadata takes half the space.
_dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_dump_sorted = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode


def encode(metadata: Mapping[str, Any]) -> str:
    """Return metadata as strict JSON text that `decode` turns back into an equal dict.

    Raises:
        InvalidDocumentError: a value of another type, a key that is not a string, a cycle, nesting too deep.
    """
    return _encode(metadata, _dump, ordered=True)


def decode(text: str) -> dict[str, Any]:
    """Return the metadata of a JSON text written by `encode`, with the conversions of the table above.

    Raises:
        StoreError: the text was not written by `encode`.
    """
    try:
        # Without a tag in the text no object needs decoding.
        value = json.loads(text, object_hook=_untag) if f'"{_TAG}"' in text else json.loads(text)
    except (ValueError, TypeError, KeyError, InvalidOperation, RecursionError) as error:
        raise StoreError(
            f"Stored metadata {short_repr(text)} cannot be decoded ({error}): it is damaged; run `repair`."
        ) from error
    if not isinstance(value, dict):
        raise StoreError(f"Stored metadata {short_repr(text)} is not a JSON object: it is damaged; run `repair`.")
    return value


def normalise(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as the store returns it: `decode(encode(metadata))`."""
    return decode(encode(metadata))


def fingerprint(metadata: Mapping[str, Any]) -> str:
    """Return a digest that changes when a value changes, and not when the order of the keys changes."""
    text = _encode(metadata, _dump_sorted, ordered=False)
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


def _encode(metadata: Mapping[str, Any], dump: Callable[[Any], str], *, ordered: bool) -> str:
    if type(metadata) is dict and _TAG not in metadata and all(map(_is_json_scalar, metadata.items())):
        try:
            text = dump(metadata)
            text.encode("utf-8")  # refuses surrogates, which need the tagged form
        except ValueError:  # NaN, a huge integer, or a surrogate (UnicodeEncodeError is a ValueError)
            pass
        else:
            return text
    value: object = metadata
    if not isinstance(value, Mapping):
        raise InvalidDocumentError(
            f"Metadata must be a mapping of string keys to values, got {type(value).__name__} "
            f"{short_repr(value)}: pass a dict."
        )
    return dump(_Encoder(ordered=ordered).mapping(value, ()))


def _is_json_scalar(item: tuple[Any, Any]) -> bool:
    return type(item[0]) is str and type(item[1]) in _JSON_SCALARS


class _Encoder:
    """Encodes one metadata dict; `open` holds the ids of the enclosing containers, to detect cycles."""

    def __init__(self, *, ordered: bool) -> None:
        self.ordered = ordered
        self.open: set[int] = set()

    def value(self, value: Value, path: tuple[Any, ...]) -> Value:
        kind = type(value)
        if kind is bool or value is None:
            return value
        handler = _EXACT.get(kind) or self._handler(value, path)
        return handler(self, value, path)

    def _handler(self, value: Value, path: tuple[Any, ...]) -> _Handler:
        """Return the handler of a subclass, an Enum, a numpy value or an abstract collection."""
        if isinstance(value, Enum):
            return _Encoder.enum
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            return _Encoder.numpy
        for base, handler in _BY_BASE:
            if isinstance(value, base):
                return handler
        types = "text, numbers, booleans, None, dates, Decimal, bytes, UUID, or lists and dicts of them"
        remedy = f"Use {types}; str(value) works for most other objects"
        raise self.error(path, value, "has a type that cannot be stored", remedy)

    def error(self, path: tuple[Any, ...], value: Value, rule: str, remedy: str) -> InvalidDocumentError:
        steps = [repr(path[0]) if path else "the top level"]  # the path as a Python expression
        steps += [f"[{step!r}]" if step != "{}" else "{}" for step in path[1:]]
        kind = type(value).__name__
        return InvalidDocumentError(f"Metadata at {''.join(steps)} {rule}: {kind} {short_repr(value)}. {remedy}.")

    def enter(self, value: Value, path: tuple[Any, ...]) -> None:
        if id(value) in self.open:
            raise self.error(path, value, "contains itself", "Remove the cycle")
        if len(path) > MAX_DEPTH:
            raise self.error(path[:3], value, f"is nested deeper than {MAX_DEPTH} levels", "Flatten it")
        self.open.add(id(value))

    def enum(self, value: Enum, path: tuple[Any, ...]) -> Value:
        self.enter(value, path)  # the value of a member can be another member, in a cycle
        result = self.value(value.value, path)
        self.open.discard(id(value))
        return result

    def numpy(self, value: Value, path: tuple[Any, ...]) -> Value:
        is_time = value.dtype.kind in "mM"
        if is_time and value.ndim:
            return self.sequence(list(value), path)
        result = value.tolist()
        if is_time and isinstance(result, int):  # nanoseconds, which Python lacks: use microseconds
            result = value.astype(f"{type(value).__name__}[us]").tolist()
        if value.dtype.str.endswith(("m8", "m8[M]", "m8[Y]")):  # no unit; months and years have no fixed length
            result = None
        if is_time and (result is None or isinstance(result, int)):
            raise self.error(path, value, "is not a date or duration that Python can represent", "Use None or text")
        if type(result) is type(value):  # longdouble has no Python equivalent and returns itself
            result = float(value)
        return self.value(result, path)

    def integer(self, value: int, path: tuple[Any, ...]) -> Value:
        value = int(value)
        return _tagged("int", hex(value)) if value.bit_length() > _HUGE_INT_BITS else value

    def number(self, value: float, path: tuple[Any, ...]) -> Value:
        value = float(value)
        return value if math.isfinite(value) else _tagged("float", repr(value))

    def text(self, value: str, path: tuple[Any, ...]) -> Value:
        value = str.__str__(value)  # a subclass may print itself differently
        return value if is_storable(value) else _tagged("str", _base64(value.encode("utf-8", "surrogatepass")))

    def date_or_time(self, value: Value, path: tuple[Any, ...]) -> Value:
        if value != value:  # noqa: PLR0124  pandas.NaT is a datetime that equals nothing
            raise self.error(path, value, "is not a point in time", "Use None")
        name, base = ("datetime", datetime) if isinstance(value, datetime) else ("time", time)
        tagged = _tagged(name, base.isoformat(value))
        zone = getattr(value.tzinfo, "key", None)
        if isinstance(zone, str):
            tagged["zone"] = zone
        if value.fold:
            tagged["fold"] = 1
        return tagged

    def duration(self, value: timedelta, path: tuple[Any, ...]) -> Value:
        if value != value:  # noqa: PLR0124  pandas.NaT again
            raise self.error(path, value, "is not a duration", "Use None")
        return _tagged("timedelta", [value.days, value.seconds, value.microseconds])

    def sequence(self, value: Sequence[Any], path: tuple[Any, ...]) -> Value:
        self.enter(value, path)
        result = [self.value(item, (*path, index)) for index, item in enumerate(value)]
        self.open.discard(id(value))
        return result

    def collection(self, value: set[Any] | frozenset[Any], path: tuple[Any, ...]) -> Value:
        self.enter(value, path)
        items = [self.value(item, (*path, "{}")) for item in value]
        self.open.discard(id(value))
        same_kind = all(type(item) is str for item in items) or all(type(item) in {int, float} for item in items)
        return sorted(items) if same_kind else sorted(items, key=_dump_sorted)

    def mapping(self, value: Mapping[Any, Any], path: tuple[Any, ...]) -> Value:
        self.enter(value, path)
        result: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise self.error((*path, key), key, "has a key that is not a string", "Use str(key)")
            result[str.__str__(key)] = self.value(item, (*path, key))
        self.open.discard(id(value))
        if _TAG not in result and all(map(is_storable, result)):
            return result
        # As pairs, the escaped dict has no keys that could be read as a tag or fail to encode.
        pairs = result.items() if self.ordered else sorted(result.items())
        return _tagged("dict", [[self.text(key, path), item] for key, item in pairs])


_Handler = Callable[[_Encoder, Any, tuple[Any, ...]], Any]

# Order matters for subclasses: datetime before date.
_BY_BASE: tuple[tuple[Any, _Handler], ...] = (
    (str, _Encoder.text),
    (int, _Encoder.integer),
    (float, _Encoder.number),
    (Mapping, _Encoder.mapping),
    ((list, tuple), _Encoder.sequence),
    ((set, frozenset), _Encoder.collection),
    (datetime, _Encoder.date_or_time),
    (time, _Encoder.date_or_time),
    (date, lambda _, value, path: _tagged("date", date.isoformat(value))),
    (timedelta, _Encoder.duration),
    (Decimal, lambda _, value, path: _tagged("decimal", str(value))),
    ((bytes, bytearray, memoryview), lambda _, value, path: _tagged("bytes", _base64(bytes(value)))),
    (UUID, lambda _, value, path: _tagged("uuid", str(value))),
)
_EXACT: dict[type, _Handler] = {
    kind: handler
    for bases, handler in _BY_BASE
    for kind in (bases if isinstance(bases, tuple) else (bases,))
    if kind is not Mapping
} | {dict: _Encoder.mapping}


def _tagged(name: str, value: Value) -> dict[str, Any]:
    return {_TAG: name, "v": value}


def _untag(tagged: dict[str, Any]) -> Value:
    name = tagged.get(_TAG)
    return tagged if name is None else _DECODERS[name](tagged)


def _decode_datetime(tagged: dict[str, Any]) -> datetime | time:
    base = datetime if tagged[_TAG] == "datetime" else time
    value: datetime | time = base.fromisoformat(tagged["v"]).replace(fold=tagged.get("fold", 0))
    if "zone" in tagged:
        try:
            zoned = value.replace(tzinfo=ZoneInfo(tagged["zone"]))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return value  # the zone is unknown on this machine: the offset still defines the instant
        # Zone rules change; the stored offset takes precedence.
        return zoned if zoned.utcoffset() == value.utcoffset() else value
    return value


_DECODERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "int": lambda tagged: int(tagged["v"], 16),
    "float": lambda tagged: float(tagged["v"]),
    "str": lambda tagged: _unbase64(tagged["v"]).decode("utf-8", "surrogatepass"),
    "datetime": _decode_datetime,
    "time": _decode_datetime,
    "date": lambda tagged: date.fromisoformat(tagged["v"]),
    "timedelta": lambda tagged: timedelta(*tagged["v"]),
    "decimal": lambda tagged: Decimal(tagged["v"]),
    "bytes": lambda tagged: _unbase64(tagged["v"]),
    "uuid": lambda tagged: UUID(tagged["v"]),
    "dict": lambda tagged: dict(tagged["v"]),
}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unbase64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


def is_storable(text: str) -> bool:
    """Whether SQLite and JSON can store a text: a lone surrogate has no UTF-8 form."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def short_repr(value: object) -> str:
    """Return the repr of a value, cut to fit an error message; a repr that fails must not hide the error."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  any object's __repr__ may raise anything
        return "(unprintable)"
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004


# ---- Equality and order ----

_EPOCH = datetime(1970, 1, 1)  # UTC
_STORED_TYPES = frozenset({str, int, float, bool, type(None), Decimal, datetime, date, time, timedelta, bytes, UUID})


def stored_value(value: object) -> object:
    """Return a value as the store returns it, so that tuples, Enums and numpy values match as stored."""
    if type(value) in _STORED_TYPES:
        return value
    if isinstance(value, list) and all(type(item) in _STORED_TYPES for item in value):
        return value
    return normalise({"v": value})["v"]


def _instant(value: date) -> timedelta:
    """Return the time since 1970 in UTC: unlike datetimes, durations compare across zones and folds."""
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # midnight; naive ones are UTC
    offset = value.utcoffset()
    since = value.replace(tzinfo=None) - _EPOCH
    return since if offset is None else since - offset


@lru_cache(maxsize=4096)
def _parse_instant(text: str) -> timedelta | None:
    try:
        return _instant(datetime.fromisoformat(text))
    except ValueError:
        return None


def is_date_text(text: str) -> bool:
    """Return whether text is an ISO date or datetime, which as an operand is compared with dates."""
    return _parse_instant(text) is not None


def _time_of_day(value: time) -> tuple[str, Any]:
    offset = value.utcoffset()
    since = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    return ("time", since) if offset is None else ("time in zone", since - offset)


_SORT_KEYS: dict[type, Callable[[Any], tuple[str, Any]]] = {
    int: lambda value: ("number", value),
    float: lambda value: ("number", value),
    Decimal: lambda value: ("number", value),
    str: lambda value: ("text", value),
    datetime: lambda value: ("instant", _instant(value)),
    date: lambda value: ("instant", _instant(value)),
    time: _time_of_day,
    timedelta: lambda value: ("duration", value),
}
"""Kind and sort key of a value; only values of one kind are ordered."""


def has_order(value: object) -> bool:
    """Return whether values of this type are ordered."""
    return type(value) in _SORT_KEYS


def compare(value: object, operand: object) -> int | None:
    """Return -1, 0 or 1 as the value is below, equal to or above the operand; None when they are not ordered."""
    # most values
    if type(value) is type(operand) and (type(value) is str or type(value) is int):
        return int(value > operand) - int(value < operand)  # type: ignore[operator]
    value_key, operand_key = _SORT_KEYS.get(type(value)), _SORT_KEYS.get(type(operand))
    if value_key is None or operand_key is None:
        return None
    (kind, left), (operand_kind, right) = value_key(value), operand_key(operand)
    if kind == "instant" and isinstance(operand, str):
        operand_kind, right = "instant", _parse_instant(operand)
    if kind != operand_kind or right is None:
        return None
    if kind == "number":
        if _is_nan(left) or _is_nan(right):
            return None
        left, right = _as_decimal(left, right), _as_decimal(right, left)
    return int(left > right) - int(left < right)


def _is_nan(number: Any) -> bool:  # noqa: ANN401
    # math.isnan fails on a huge integer, and a signalling NaN cannot be compared.
    return number.is_nan() if type(number) is Decimal else bool(number != number)  # noqa: PLR0124


def _as_decimal(number: Any, other: object) -> Any:  # noqa: ANN401
    """Convert a float that is compared with a Decimal by its printed digits: 1.1 equals Decimal("1.1")."""
    return Decimal(repr(number)) if type(number) is float and type(other) is Decimal else number


def equal(value: object, operand: object) -> bool:
    """Return whether a value equals an operand; lists and dicts are compared item by item by the same rules."""
    if isinstance(value, list) and isinstance(operand, list):
        return len(value) == len(operand) and all(map(equal, value, operand))
    if isinstance(value, dict) and isinstance(operand, dict):
        return value.keys() == operand.keys() and all(equal(item, operand[key]) for key, item in value.items())
    result = compare(value, operand)
    if result is None:
        # Values without order: None, booleans, bytes, UUID. Of numbers only NaN gets here, which equals nothing.
        return type(value) is type(operand) and not has_order(value) and value == operand
    return result == 0
