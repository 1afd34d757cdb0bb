"""Which metadata values are equal, and which come before which.

A value is brought to (family, key); two can be ordered when their families are the same.

- Numbers with numbers: 1 equals 1.0 and Decimal(1); a float meets a Decimal at its printed digits, so 1.1
  equals Decimal("1.1"); NaN equals nothing. A boolean is no number, and "3" is not 3.
- Text with text, by code point.
- Dates and datetimes are instants: a naive one is UTC, a date is its midnight. ISO text as the *operand*
  (in the filter, not in the document) compares with them.
- Durations with durations; clock times with clock times, with and without a zone apart.
- None, booleans, bytes, UUIDs, lists and dicts are equal or not; they have no order.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_agentrag.metadata import normalise

if TYPE_CHECKING:
    from collections.abc import Callable

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
