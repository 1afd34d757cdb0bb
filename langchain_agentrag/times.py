"""When: the time of a document, when it expires, and the moments a caller names.

One rule for all of them: whatever has no zone is UTC, on every machine and under every local zone, as in filters. A
date is its midnight. Connectors that know a zone give times that carry it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from langchain_agentrag.errors import InvalidDocumentError, InvalidQueryError
from langchain_agentrag.metadata import plain, short_repr

TIME_KEYS = ("time", "timestamp", "created_at", "mtime")
"""Metadata keys that may hold a document's time; the first that does is the document's time."""

EXPIRY_KEY = "expires_at"
"""Metadata key that holds the moment from which on a document is not there any more."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# A number is a time when it is large enough to be seconds since 1973; anything smaller is a count or a duration.
_LEAST_SECONDS = 1e8
_UNITS = ((1e11, 1), (1e14, 1_000), (1e17, 1_000_000), (1e20, 1_000_000_000))
_DIGITS = frozenset({10, 13, 16, 19})  # of epoch seconds, milli-, micro- and nanoseconds written as text
_WRITTEN = re.compile(
    r"(?P<year>\d{4})\s*[-/.年]\s*(?P<month>\d{1,2})(?:\s*[-/.月]\s*(?P<day>\d{1,2})\s*日?|月)?"
    r"(?:[\sT]*(?P<hour>\d{1,2})[:：时点](?P<minute>\d{1,2})?分?(?:[:：]?(?P<second>\d{1,2})秒?)?)?"
)
_DECIMAL_SECONDS = re.compile(r"[0-9]{10}\.[0-9]{1,9}")
_IN_UTC = re.compile(r"(?<=\d)\s*\b(?:UTC|GMT)$")
_MAILED = re.compile(
    r"(?:[A-Z][a-z]{2},\s*)?\d{1,2} [A-Z][a-z]{2} \d{4} \d{1,2}:\d{2}"
)  # RFC 5322, section 3.3
_AGO = re.compile(r"(?P<count>\d{1,6})\s*(?P<unit>min|m|h|d|w|分钟|小时|天|周)", re.IGNORECASE)
_SPANS = {
    **dict.fromkeys(("min", "m", "分钟"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "小时"), timedelta(hours=1)),
    **dict.fromkeys(("d", "天"), timedelta(days=1)),
    **dict.fromkeys(("w", "周"), timedelta(weeks=1)),
}
_FORMS = (
    "a datetime, a date, or text such as '2024-05-01', '2024-05-01T08:00:00+08:00'; without a zone it is UTC"
)


def parse_time(value: object, zone: tzinfo = UTC) -> datetime | None:
    """A metadata value as a moment in UTC, or None when it is no time; never raises.

    Datetimes and dates; text in ISO 8601, as in 2024/5/1 and 2024年5月1日, with or without a clock, or as in the head
    of a mail; numbers, and text of 10, 13, 16 or 19 digits, as seconds, milli-, micro- or nanoseconds since 1970, told
    apart by their size, seconds with or without decimals.

    Args:
        value: The value.
        zone: Zone of what names none.
    """
    try:
        value = plain(value)
    except InvalidDocumentError:
        return None
    if isinstance(value, datetime):
        return to_utc(value, zone)
    if isinstance(value, date):
        return to_utc(datetime(value.year, value.month, value.day), zone)
    if isinstance(value, str):
        return _written(value, zone)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _counted(value)
    return None


def document_time(metadata: Mapping[str, Any]) -> datetime | None:
    """The time of a document in UTC: the first of `TIME_KEYS` that holds one; None without any."""
    for key in TIME_KEYS:
        if key in metadata and (found := parse_time(metadata[key])) is not None:
            return found
    return None


def document_expiry(metadata: Mapping[str, Any]) -> datetime | None:
    """The moment in UTC from which on a document is not there any more, or None when it stays.

    Raises:
        InvalidDocumentError: `expires_at` is there and no time: a document must not stay for ever by a slip of the pen.
    """
    given = metadata.get(EXPIRY_KEY)
    if given is None:
        return None
    found = parse_time(given)
    if found is None:
        raise InvalidDocumentError(
            f"Metadata {EXPIRY_KEY!r} is {short_repr(given)}, which is no time: give {_FORMS}; leave it out, or set it "
            "to None, for a document that stays."
        )
    return found


def check_time(name: str, value: object, now: datetime | None = None) -> datetime:
    """A moment that a caller named, in UTC.

    Args:
        name: Name of the argument, for the message.
        value: What was given.
        now: Where it is known, a length of time such as "90min", "36h", "7d", "2w", "7天" means that long ago.

    Raises:
        InvalidQueryError: it is no time.
    """
    ago = _AGO.fullmatch(value.strip()) if isinstance(value, str) and now is not None else None
    if ago is not None and now is not None:
        try:
            return now - int(ago["count"]) * _SPANS[ago["unit"].lower()]
        except OverflowError:
            return _FIRST
    found = parse_time(value)
    if found is None:
        also = "" if now is None else "; or how long ago: '36h', '7d'"
        raise InvalidQueryError(f"{name}={short_repr(value)} is no time: give {_FORMS}{also}.")
    return found


def check_duration(name: str, value: object) -> timedelta:
    """A positive length of time; a number is seconds.

    Raises:
        InvalidQueryError: it is something else.
    """
    span = value
    if isinstance(span, int | float) and not isinstance(span, bool) and math.isfinite(span):
        try:
            span = timedelta(seconds=span)
        except OverflowError:
            span = timedelta.max
    if not isinstance(span, timedelta) or span <= timedelta(0):
        raise InvalidQueryError(
            f"{name}={short_repr(value)} must be a positive length of time, such as timedelta(days=7), or in seconds."
        )
    return span


def add_duration(start: datetime, span: timedelta) -> datetime:
    """The moment a length of time after another one; the last there is when that lies beyond the calendar."""
    try:
        return start + span
    except OverflowError:
        return _LAST


def to_microseconds(when: datetime) -> int:
    """Microseconds from 1970 to an aware moment."""
    return (when - EPOCH) // _MICROSECOND


def to_utc(value: datetime, zone: tzinfo = UTC) -> datetime:
    """The datetime in UTC; a naive one is taken to be of the zone."""
    if value.tzinfo is None or value.utcoffset() is None:
        value = value.replace(tzinfo=zone)
    try:
        return value.astimezone(UTC).replace(fold=0)
    except OverflowError:  # within a day of the calendar's ends
        return _FIRST if value.year == datetime.min.year else _LAST


@lru_cache(maxsize=4096)
def _written(text: str, zone: tzinfo) -> datetime | None:
    text = text.strip()
    if _DECIMAL_SECONDS.fullmatch(text):
        return _counted(Decimal(text))
    if text.isascii() and text.isdigit():
        if len(text) in _DIGITS:
            return _counted(int(text))
        if len(text) != 8:  # noqa: PLR2004  (20240501)
            return None
    named = _IN_UTC.sub("", text)
    if named != text:
        text, zone = named, UTC
    for read in (datetime.fromisoformat, _loosely, _mailed):
        try:
            return to_utc(read(text), zone)
        except (ValueError, OverflowError):
            continue
    return None


def _loosely(text: str) -> datetime:
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise ValueError(text)
    parts = {name: int(digits) for name, digits in found.groupdict().items() if digits}
    return datetime(**{"day": 1, **parts}, tzinfo=None)


def _mailed(text: str) -> datetime:
    if _MAILED.match(text) is None:  # the library reads more than is meant
        raise ValueError(text)
    return parsedate_to_datetime(text)


def _counted(number: float | Decimal) -> datetime | None:
    if isinstance(number, Decimal) and number.is_nan():
        return None
    for limit, per_second in _UNITS:
        if _LEAST_SECONDS <= number < limit:  # false for NaN
            whole = int(number * 1_000_000 // per_second) if per_second > 1 else round(number * 1_000_000)
            return EPOCH + whole * _MICROSECOND
    return None
