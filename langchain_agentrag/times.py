"""Times and durations: the time of a document, its expiry, and time arguments of calls.

Everything without a time zone is UTC, on every machine and under every local zone, as in filters. A date is its
midnight. Connectors that know a zone give times that carry it.
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
from langchain_agentrag.metadata import short_repr, stored_value

TIME_KEYS = ("time", "timestamp", "created_at", "mtime")
"""Metadata keys that may hold a document's time; the first that does is the document's time."""

EXPIRY_KEY = "expires_at"
"""Metadata key of the time at which a document expires."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# A number is a time when it is large enough to be seconds since 1973; anything smaller is a count or a duration.
_MIN_EPOCH_SECONDS = 1e8
_EPOCH_UNITS = ((1e11, 1), (1e14, 1_000), (1e17, 1_000_000), (1e20, 1_000_000_000))
_EPOCH_DIGITS = frozenset({10, 13, 16, 19})  # of epoch seconds, milli-, micro- and nanoseconds as text
_LOOSE_DATE = re.compile(
    r"(?P<year>\d{4})\s*[-/.年]\s*(?P<month>\d{1,2})(?:\s*[-/.月]\s*(?P<day>\d{1,2})\s*日?|月)?"
    r"(?:[\sT]*(?P<hour>\d{1,2})[:：时点](?P<minute>\d{1,2})?分?(?:[:：]?(?P<second>\d{1,2})秒?)?)?"
)
_EPOCH_DECIMAL = re.compile(r"[0-9]{10}\.[0-9]{1,9}")
_UTC_SUFFIX = re.compile(r"(?<=\d)\s*\b(?:UTC|GMT)$")
# RFC 5322, section 3.3
_MAIL_DATE = re.compile(r"(?:[A-Z][a-z]{2},\s*)?\d{1,2} [A-Z][a-z]{2} \d{4} \d{1,2}:\d{2}")
_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds", "秒", "秒钟"), timedelta(seconds=1)),
    **dict.fromkeys(("min", "m", "minute", "minutes", "分", "分钟"), timedelta(minutes=1)),
    **dict.fromkeys(("h", "hour", "hours", "小时", "个小时"), timedelta(hours=1)),
    **dict.fromkeys(("d", "day", "days", "天"), timedelta(days=1)),
    **dict.fromkeys(("w", "week", "weeks", "周", "星期", "个星期"), timedelta(weeks=1)),
}
_DURATION = re.compile(rf"(?P<count>[0-9]{{1,6}})\s*(?P<unit>{'|'.join(_UNITS)})", re.IGNORECASE)
_TIME_FORMATS = (
    "a datetime, a date, or text such as '2024-05-01', '2024-05-01T08:00:00+08:00'; without a zone it is UTC"
)


def parse_time(value: object, zone: tzinfo = UTC) -> datetime | None:
    """Parse a metadata value as a time in UTC; None when it is not a time. Never raises.

    Accepts datetimes and dates; text in ISO 8601, like 2024/5/1 and 2024年5月1日, with or without a time of day, or in
    the format of mail headers; numbers, and text of 10, 13, 16 or 19 digits, as seconds, milli-, micro- or nanoseconds
    since 1970, distinguished by their size, seconds with or without decimals.

    Args:
        value: The value.
        zone: Time zone of values without one.
    """
    try:
        value = stored_value(value)
    except InvalidDocumentError:
        return None
    if isinstance(value, datetime):
        return to_utc(value, zone)
    if isinstance(value, date):
        return to_utc(datetime(value.year, value.month, value.day), zone)
    if isinstance(value, str):
        return _parse_text(value, zone)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return _parse_epoch(value)
    return None


def document_time(metadata: Mapping[str, Any]) -> datetime | None:
    """Return the time of a document in UTC: the first of `TIME_KEYS` that holds one; None without any."""
    times = (parse_time(metadata[key]) for key in TIME_KEYS if key in metadata)
    return next((time for time in times if time is not None), None)


def document_expiry(metadata: Mapping[str, Any]) -> datetime | None:
    """Return the time in UTC at which a document expires, or None when it does not.

    Raises:
        InvalidDocumentError: `expires_at` is not a time; by a typing error the document would else stay forever.
    """
    value = metadata.get(EXPIRY_KEY)
    if value is None:
        return None
    expiry = parse_time(value)
    if expiry is None:
        raise InvalidDocumentError(
            f"Metadata {EXPIRY_KEY!r} is {short_repr(value)}, which is not a time: use {_TIME_FORMATS}; leave it out, "
            "or set it to None, for a document that does not expire."
        )
    return expiry


def check_time(name: str, value: object, now: datetime | None = None) -> datetime:
    """Return a time argument in UTC.

    Args:
        name: Name of the argument, for the message.
        value: Its value.
        now: When set, a duration ("90min", "36h", "7d", "2 weeks", "7天", a timedelta) is a time that long before it.

    Raises:
        InvalidQueryError: the value is not a time.
    """
    ago = value if isinstance(value, timedelta) else _parse_duration(value)
    if ago is not None and now is not None:
        try:
            return now - ago
        except OverflowError:
            return _FIRST
    time = parse_time(value)
    if time is None:
        relative_formats = "" if now is None else "; or how long ago: '36h', '7d', timedelta(days=7)"
        raise InvalidQueryError(f"{name}={short_repr(value)} is not a time: use {_TIME_FORMATS}{relative_formats}.")
    return time


def check_duration(name: str, value: object) -> timedelta:
    """Return a positive duration argument: a timedelta, a number of seconds, or text like "90s", "36h", "7d", "7天".

    Raises:
        InvalidQueryError: the value is anything else.
    """
    duration = _parse_duration(value) or value
    if isinstance(duration, int | float) and not isinstance(duration, bool) and -math.inf < duration < math.inf:
        seconds = duration
        try:
            duration = timedelta(seconds=seconds)
        except OverflowError:
            duration = timedelta.max if seconds > 0 else timedelta.min
    if not isinstance(duration, timedelta) or duration <= timedelta(0):
        raise InvalidQueryError(
            f"{name}={short_repr(value)} must be a positive duration: timedelta(days=7), '7d', or a number of seconds."
        )
    return duration


def _parse_duration(value: object) -> timedelta | None:
    """Return the duration of a text such as "36h"; None when it is something else."""
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return None
    try:
        return int(match["count"]) * _UNITS[match["unit"].lower()]
    except OverflowError:
        return timedelta.max


def add_duration(start: datetime, duration: timedelta) -> datetime:
    """Return a time plus a duration; the last possible time when the sum is past the calendar's end."""
    try:
        return start + duration
    except OverflowError:
        return _LAST


def to_microseconds(time: datetime) -> int:
    """Return the microseconds from 1970 to an aware datetime."""
    return (time - EPOCH) // _MICROSECOND


def to_utc(value: datetime, zone: tzinfo = UTC) -> datetime:
    """Convert a datetime to UTC; a naive one is in `zone`."""
    if value.tzinfo is None or value.utcoffset() is None:
        value = value.replace(tzinfo=zone)
    try:
        return value.astimezone(UTC).replace(fold=0)
    except OverflowError:  # within a day of the calendar's ends
        return _FIRST if value.year == datetime.min.year else _LAST


@lru_cache(maxsize=4096)
def _parse_text(text: str, zone: tzinfo) -> datetime | None:
    text = text.strip()
    if _EPOCH_DECIMAL.fullmatch(text):
        return _parse_epoch(Decimal(text))
    if text.isascii() and text.isdigit():
        if len(text) in _EPOCH_DIGITS:
            return _parse_epoch(int(text))
        if len(text) != 8:  # noqa: PLR2004  (20240501)
            return None
    without_utc = _UTC_SUFFIX.sub("", text)
    if without_utc != text:
        text, zone = without_utc, UTC
    for parse in (datetime.fromisoformat, _parse_loose_date, _parse_mail_date):
        try:
            return to_utc(parse(text), zone)
        except (ValueError, OverflowError):
            continue
    return None


def _parse_loose_date(text: str) -> datetime:
    match = _LOOSE_DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    parts = {name: int(digits) for name, digits in match.groupdict().items() if digits}
    return datetime(**{"day": 1, **parts}, tzinfo=None)


def _parse_mail_date(text: str) -> datetime:
    if _MAIL_DATE.match(text) is None:  # the library accepts more than RFC 5322
        raise ValueError(text)
    return parsedate_to_datetime(text)


def _parse_epoch(number: float | Decimal) -> datetime | None:
    if isinstance(number, Decimal) and number.is_nan():
        return None
    for limit, per_second in _EPOCH_UNITS:
        if _MIN_EPOCH_SECONDS <= number < limit:  # false for NaN
            whole = int(number * 1_000_000 // per_second) if per_second > 1 else round(number * 1_000_000)
            return EPOCH + whole * _MICROSECOND
    return None
