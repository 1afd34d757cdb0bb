"""Lossless JSON for document metadata.

Strict JSON has no dates, no NaN, no bytes; Chroma has no None, no nesting. Metadata is therefore kept as JSON
text in which every value JSON lacks is a tagged object::

    {"$t": "datetime", "v": "2024-05-01T08:00:00+08:00", "zone": "Asia/Shanghai"}

| given                                            | comes back as                       |
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
"""Deepest nesting of lists and dicts. Decoding recurses, so the limit keeps every stored value readable."""

Value = Any
"""A metadata value: what JSON has, and what the table above adds."""

_TAG = "$t"
_SIMPLE = frozenset({str, int, float, bool, type(None)})
_HUGE_INT_BITS = 14_000  # Python refuses to print integers above 4,300 digits (about 14,284 bits)

# Strict JSON (no NaN), and no \u escapes, so that Chinese metadata takes half the room.
_write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_write_sorted = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode


def encode(metadata: Mapping[str, Any]) -> str:
    """Metadata as strict JSON text that `decode` turns back into an equal dict.

    Raises:
        InvalidDocumentError: a value of another type, a key that is not a string, a cycle, nesting too deep.
    """
    return _encode(metadata, _write, ordered=True)


def decode(text: str) -> dict[str, Any]:
    """The dict that `encode` was given, with the conversions of the table above.

    Raises:
        StoreError: the text was not written by `encode`.
    """
    try:
        # Without a tag in the text no object needs a second look.
        value = json.loads(text, object_hook=_untag) if f'"{_TAG}"' in text else json.loads(text)
    except (ValueError, TypeError, KeyError, InvalidOperation, RecursionError) as error:
        msg = f"Stored metadata {short_repr(text)} cannot be decoded ({error}): it is damaged; run `repair`."
        raise StoreError(msg) from error
    if not isinstance(value, dict):
        msg = f"Stored metadata {short_repr(text)} is not a JSON object: it is damaged; run `repair`."
        raise StoreError(msg)
    return value


def normalise(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as it comes back from the store: `decode(encode(metadata))`."""
    return decode(encode(metadata))


def fingerprint(metadata: Mapping[str, Any]) -> str:
    """Digest that changes when a value changes, and not when the keys are in another order."""
    text = _encode(metadata, _write_sorted, ordered=False)
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


def _encode(metadata: Mapping[str, Any], write: Callable[[Any], str], *, ordered: bool) -> str:
    if type(metadata) is dict and _TAG not in metadata and all(map(_is_simple, metadata.items())):
        try:
            text = write(metadata)
            text.encode("utf-8")  # refuses surrogates, which only the tagged form keeps apart
        except ValueError:  # NaN, a huge integer, or a surrogate (UnicodeEncodeError is a ValueError)
            pass
        else:
            return text
    given: object = metadata
    if not isinstance(given, Mapping):
        msg = (
            f"Metadata must be a mapping of string keys to values, got {type(given).__name__} "
            f"{short_repr(given)}: pass a dict."
        )
        raise InvalidDocumentError(msg)
    return write(_Tagger(ordered=ordered).mapping(given, ()))


def _is_simple(item: tuple[Any, Any]) -> bool:
    return type(item[0]) is str and type(item[1]) in _SIMPLE


class _Tagger:
    """One walk over one metadata dict; `open` holds the containers on the way down, to notice cycles."""

    def __init__(self, *, ordered: bool) -> None:
        self.ordered = ordered
        self.open: set[int] = set()

    def value(self, value: Value, path: tuple[Any, ...]) -> Value:
        kind = type(value)
        if kind is bool or value is None:
            return value
        handler = _EXACT.get(kind)
        if handler is None:
            handler = self._handler(value, path)
        return handler(self, value, path)

    def _handler(self, value: Value, path: tuple[Any, ...]) -> _Handler:
        """Handler of a subclass, an Enum, a numpy value or an abstract collection."""
        if isinstance(value, Enum):
            return _Tagger.enum
        if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
            return _Tagger.numpy
        for base, handler in _BY_BASE:
            if isinstance(value, base):
                return handler
        raise self.refuse(
            path,
            value,
            "is not a kind of value that can be kept",
            "Use text, numbers, booleans, None, dates, Decimal, bytes, UUID, or lists and dicts of them; "
            "str(value) fits most other objects",
        )

    def refuse(self, path: tuple[Any, ...], value: Value, rule: str, remedy: str) -> InvalidDocumentError:
        where = _path(path) or "the top level"
        return InvalidDocumentError(
            f"Metadata at {where} {rule}: {type(value).__name__} {short_repr(value)}. {remedy}."
        )

    def enter(self, value: Value, path: tuple[Any, ...]) -> None:
        if id(value) in self.open:
            raise self.refuse(path, value, "contains itself", "Remove the cycle")
        if len(path) > MAX_DEPTH:
            raise self.refuse(path[:3], value, f"is nested deeper than {MAX_DEPTH} levels", "Flatten it")
        self.open.add(id(value))

    def enum(self, value: Enum, path: tuple[Any, ...]) -> Value:
        self.enter(value, path)  # a member whose value is another member must end somewhere
        result = self.value(value.value, path)
        self.open.discard(id(value))
        return result

    def numpy(self, value: Value, path: tuple[Any, ...]) -> Value:
        dated = value.dtype.kind in "mM"
        if dated and value.ndim:
            return self.sequence(list(value), path)
        plain = value.tolist()
        if dated and isinstance(plain, int):  # Python has microseconds, not nanoseconds
            plain = value.astype(f"{type(value).__name__}[us]").tolist()
        if value.dtype.str.endswith(("m8[M]", "m8[Y]")):  # months and years are no fixed duration
            plain = None
        if dated and (plain is None or isinstance(plain, int)):
            raise self.refuse(path, value, "is no date or duration that Python can hold", "Use None or text")
        if type(plain) is type(value):  # longdouble has no Python equivalent and returns itself
            plain = float(value)
        return self.value(plain, path)

    def integer(self, value: int, path: tuple[Any, ...]) -> Value:
        value = int(value)
        return _tagged("int", hex(value)) if value.bit_length() > _HUGE_INT_BITS else value

    def real(self, value: float, path: tuple[Any, ...]) -> Value:
        value = float(value)
        return value if math.isfinite(value) else _tagged("float", repr(value))

    def text(self, value: str, path: tuple[Any, ...]) -> Value:
        value = str.__str__(value)  # a subclass may print itself differently
        return value if _is_utf8(value) else _tagged("str", _base64(value.encode("utf-8", "surrogatepass")))

    def moment(self, value: Value, path: tuple[Any, ...]) -> Value:
        if value != value:  # noqa: PLR0124  pandas.NaT is a datetime that equals nothing
            raise self.refuse(path, value, "is no point in time", "Use None")
        name, base = ("datetime", datetime) if isinstance(value, datetime) else ("time", time)
        tagged = _tagged(name, base.isoformat(value))
        zone = getattr(value.tzinfo, "key", None)
        if isinstance(zone, str):
            tagged["zone"] = zone
        if value.fold:
            tagged["fold"] = 1
        return tagged

    def day(self, value: date, path: tuple[Any, ...]) -> Value:
        return _tagged("date", date.isoformat(value))

    def duration(self, value: timedelta, path: tuple[Any, ...]) -> Value:
        if value != value:  # noqa: PLR0124  pandas.NaT again
            raise self.refuse(path, value, "is no duration", "Use None")
        return _tagged("timedelta", [value.days, value.seconds, value.microseconds])

    def decimal(self, value: Decimal, path: tuple[Any, ...]) -> Value:
        return _tagged("decimal", str(value))

    def octets(self, value: bytes | bytearray | memoryview, path: tuple[Any, ...]) -> Value:
        return _tagged("bytes", _base64(bytes(value)))

    def uuid(self, value: UUID, path: tuple[Any, ...]) -> Value:
        return _tagged("uuid", str(value))

    def sequence(self, value: Sequence[Any], path: tuple[Any, ...]) -> Value:
        self.enter(value, path)
        result = [self.value(item, (*path, index)) for index, item in enumerate(value)]
        self.open.discard(id(value))
        return result

    def collection(self, value: set[Any] | frozenset[Any], path: tuple[Any, ...]) -> Value:
        self.enter(value, path)
        items = [self.value(item, (*path, "{}")) for item in value]
        self.open.discard(id(value))
        same = all(type(item) is str for item in items) or all(type(item) in {int, float} for item in items)
        return sorted(items) if same else sorted(items, key=_write_sorted)

    def mapping(self, value: Mapping[Any, Any], path: tuple[Any, ...]) -> Value:
        self.enter(value, path)
        result: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise self.refuse((*path, key), key, "has a key that is not a string", "Use str(key)")
            result[str.__str__(key)] = self.value(item, (*path, key))
        self.open.discard(id(value))
        if _TAG not in result and all(map(_is_utf8, result)):
            return result
        # As pairs, the escaped dict has no keys that could be taken for a tag or fail to encode.
        pairs = result.items() if self.ordered else sorted(result.items())
        return _tagged("dict", [[self.text(key, path), item] for key, item in pairs])


_Handler = Callable[[_Tagger, Any, tuple[Any, ...]], Any]

# datetime before date, and Sequence last: order matters for subclasses.
_BY_BASE: tuple[tuple[Any, _Handler], ...] = (
    (str, _Tagger.text),
    (int, _Tagger.integer),
    (float, _Tagger.real),
    (Mapping, _Tagger.mapping),
    ((list, tuple), _Tagger.sequence),
    ((set, frozenset), _Tagger.collection),
    (datetime, _Tagger.moment),
    (time, _Tagger.moment),
    (date, _Tagger.day),
    (timedelta, _Tagger.duration),
    (Decimal, _Tagger.decimal),
    ((bytes, bytearray, memoryview), _Tagger.octets),
    (UUID, _Tagger.uuid),
)
_EXACT: dict[type, _Handler] = {
    kind: handler
    for bases, handler in _BY_BASE
    for kind in (bases if isinstance(bases, tuple) else (bases,))
    if kind is not Mapping
} | {dict: _Tagger.mapping}


def _tagged(name: str, value: Value) -> dict[str, Any]:
    return {_TAG: name, "v": value}


def _untag(found: dict[str, Any]) -> Value:
    name = found.get(_TAG)
    return found if name is None else _READERS[name](found)


def _read_moment(found: dict[str, Any]) -> datetime | time:
    base = datetime if found[_TAG] == "datetime" else time
    moment: datetime | time = base.fromisoformat(found["v"]).replace(fold=found.get("fold", 0))
    if "zone" in found:
        try:
            zoned = moment.replace(tzinfo=ZoneInfo(found["zone"]))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return moment  # this machine does not know the zone: the offset still fixes the instant
        # Zone rules change; the stored offset is what was meant.
        return zoned if zoned.utcoffset() == moment.utcoffset() else moment
    return moment


_READERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "int": lambda found: int(found["v"], 16),
    "float": lambda found: float(found["v"]),
    "str": lambda found: _unbase64(found["v"]).decode("utf-8", "surrogatepass"),
    "datetime": _read_moment,
    "time": _read_moment,
    "date": lambda found: date.fromisoformat(found["v"]),
    "timedelta": lambda found: timedelta(*found["v"]),
    "decimal": lambda found: Decimal(found["v"]),
    "bytes": lambda found: _unbase64(found["v"]),
    "uuid": lambda found: UUID(found["v"]),
    "dict": lambda found: dict(found["v"]),
}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unbase64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _path(path: tuple[Any, ...]) -> str:
    """The way to a value, as one would write it in Python."""
    steps = [repr(path[0]) if path else ""]
    steps += [f"[{step!r}]" if step != "{}" else "{}" for step in path[1:]]
    return "".join(steps)


def short_repr(value: object) -> str:
    """Repr of a value, cut to fit an error message; a repr that fails must not hide the error."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  any object's __repr__ may raise anything
        return "(unprintable)"
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004


_EPOCH = datetime(1970, 1, 1)  # instants are counted as durations from here, in UTC
_SCALARS = frozenset(
    {str, int, float, bool, type(None), Decimal, datetime, date, time, timedelta, bytes, UUID}
)


def plain(value: object) -> object:
    """The value as the store would give it back, so that tuples, Enums and numpy values match as stored."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, list) and all(type(item) in _SCALARS for item in value):
        return value
    return normalise({"v": value})["v"]


def _instant(value: date) -> timedelta:
    """Time since 1970 in UTC: unlike datetimes, durations compare across zones and folds."""
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)  # midnight, UTC as all naive ones
    offset = value.utcoffset()
    since = value.replace(tzinfo=None) - _EPOCH
    return since if offset is None else since - offset


@lru_cache(maxsize=4096)
def _iso(text: str) -> timedelta | None:
    """Instant that an ISO date or datetime names, or None."""
    try:
        return _instant(datetime.fromisoformat(text))
    except ValueError:
        return None


def is_instant(text: str) -> bool:
    """Whether text, as an operand, names a date or a datetime."""
    return _iso(text) is not None


def _clock(value: time) -> tuple[str, Any]:
    offset = value.utcoffset()
    since = timedelta(
        hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
    )
    return ("clock", since) if offset is None else ("clock in zone", since - offset)


_FAMILIES: dict[type, Callable[[Any], tuple[str, Any]]] = {
    int: lambda value: ("number", value),
    float: lambda value: ("number", value),
    Decimal: lambda value: ("number", value),
    str: lambda value: ("text", value),
    datetime: lambda value: ("instant", _instant(value)),
    date: lambda value: ("instant", _instant(value)),
    time: _clock,
    timedelta: lambda value: ("duration", value),
}


_PLAIN = frozenset({int, str})


def sortable(value: object) -> bool:
    """Whether values of this kind have an order."""
    return type(value) in _FAMILIES


def order(value: object, operand: object) -> int | None:
    """-1, 0 or 1 as the value is below, at or above the operand; None when they are not comparable."""
    if type(value) is type(operand) and type(value) in _PLAIN:  # most values: no need to look further
        return int(value > operand) - int(value < operand)  # type: ignore[operator]
    left_family, right_family = _FAMILIES.get(type(value)), _FAMILIES.get(type(operand))
    if left_family is None or right_family is None:
        return None
    left, right = left_family(value), right_family(operand)
    if left[0] == "instant" and type(operand) is str:
        right = ("instant", _iso(operand))
    if left[0] != right[0] or right[1] is None:
        return None
    below, above = left[1], right[1]
    if left[0] == "number":
        if _is_nan(below) or _is_nan(above):
            return None
        below, above = _same_digits(below, above), _same_digits(above, below)
    return int(below > above) - int(below < above)


def _is_nan(number: Any) -> bool:  # noqa: ANN401
    # math.isnan cannot take a huge integer, and a signalling NaN cannot be compared.
    return number.is_nan() if type(number) is Decimal else bool(number != number)  # noqa: PLR0124


def _same_digits(number: Any, other: object) -> Any:  # noqa: ANN401
    """A float that meets a Decimal is taken at its printed digits: 1.1 is Decimal("1.1")."""
    return Decimal(repr(number)) if type(number) is float and type(other) is Decimal else number


def equal(value: object, operand: object) -> bool:
    """Whether a value equals an operand; lists and dicts are compared item by item under the same rules."""
    if isinstance(value, list) and isinstance(operand, list):
        return len(value) == len(operand) and all(map(equal, value, operand))
    if isinstance(value, dict) and isinstance(operand, dict):
        return value.keys() == operand.keys() and all(
            equal(item, operand[key]) for key, item in value.items()
        )
    place = order(value, operand)
    if place is None:
        # What has no order: None, booleans, bytes, UUID. Numbers get here only as NaN, which equals nothing.
        return type(value) is type(operand) and type(value) not in _FAMILIES and value == operand
    return place == 0
