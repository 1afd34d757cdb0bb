"""Days, weeks, months and years of a calendar as stretches of time, and numbers in words. Pure."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, datetime, timedelta, tzinfo

Stretch = tuple[datetime, datetime]
"""From a moment until before another one."""

_DAY = timedelta(days=1)

_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "俩": 2}
ENGLISH_NUMBERS = {
    word: value
    for value, words in enumerate(
        (
            "zero",
            "one a an",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        )
    )
    for word in words.split()
} | {"couple of": 2, "a couple of": 2, "few": 3, "a few": 3}


def number_of(text: str) -> int:
    """The number that digits or a Chinese or English word up to ninety-nine write."""
    text = text.lower()
    if text.isdecimal():
        return int(text)
    if text in ENGLISH_NUMBERS:
        return ENGLISH_NUMBERS[text]
    if "十" in text:
        tens, _, ones = text.partition("十")
        return 10 * (_DIGITS.get(tens, 1)) + _DIGITS.get(ones, 0)
    return _DIGITS.get(text, 1)


def _midnight(day: date, zone: tzinfo | None) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def days(first: date, count: int, now: datetime) -> Stretch:
    """So many days, from midnight."""
    return _midnight(first, now.tzinfo), _midnight(first + count * _DAY, now.tzinfo)


def week(now: datetime, back: int) -> Stretch:
    """The calendar week so many weeks back."""
    monday = now.date() - timedelta(days=now.weekday() + 7 * back)
    return days(monday, 7, now)


def months(year: int, month: int, count: int, now: datetime) -> Stretch:
    """So many calendar months; the month may lie outside of 1 to 12."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    last_year, last_month = year + (month - 1 + count) // 12, (month - 1 + count) % 12 + 1
    return _midnight(date(year, month, 1), now.tzinfo), _midnight(date(last_year, last_month, 1), now.tzinfo)


def month(now: datetime, back: int) -> Stretch:
    """The calendar month so many months back."""
    return months(now.year, now.month - back, 1, now)


def year_of(number: int, now: datetime) -> Stretch:
    """A calendar year."""
    return months(number, 1, 12, now)


def day_of(year: int, month: int, day: int, now: datetime) -> Stretch | None:
    """A day, or None where the calendar has none."""
    if not (1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]):  # noqa: PLR2004
        return None
    return days(date(year, month, day), 1, now)


def weekday_of(now: datetime, weekday: int, weeks_back: int) -> Stretch:
    """A weekday, Monday is 0, of the week so many weeks back."""
    monday = now.date() - timedelta(days=now.weekday() + 7 * weeks_back)
    return days(monday + timedelta(days=weekday), 1, now)


def latest_weekday(now: datetime, weekday: int, *, today: bool) -> Stretch:
    """The latest such day before today, or today where that counts."""
    back = (now.weekday() - weekday) % 7 or (0 if today else 7)
    return days(now.date() - timedelta(days=back), 1, now)


def latest_month(now: datetime, month: int, year: int | None) -> Stretch:
    """The latest such month that has begun, unless a year is given."""
    return months(year or (now.year if month <= now.month else now.year - 1), month, 1, now)


def latest_day(now: datetime, month: int, day: int, year: int | None) -> Stretch | None:
    """The latest such day that has begun, unless a year is given; None where the calendar has none."""
    found = day_of(year or now.year, month, day, now)
    if found is not None and year is None and found[0] > now:
        return day_of(now.year - 1, month, day, now)
    return found


def ago(now: datetime, count: int, unit: str) -> Stretch:
    """The day, week, month … that lies so far back."""
    if unit in {"minute", "hour"}:
        step = timedelta(minutes=1) if unit == "minute" else timedelta(hours=1)
        return now - (count + 0.5) * step, now - (count - 0.5) * step
    if unit == "day":
        return days(now.date() - count * _DAY, 1, now)
    if unit == "week":
        return week(now, count)
    return month(now, count) if unit == "month" else year_of(now.year - count, now)


def past(now: datetime, count: int, unit: str) -> Stretch:
    """The so many days, weeks … up to now."""
    if unit == "month":
        begin, _ = month(now, count)
        day = min(now.day, monthrange(begin.year, begin.month)[1])
        return begin.replace(day=day, hour=now.hour, minute=now.minute), now
    if unit == "year":
        return past(now, 12 * count, "month")
    return now - count * timedelta(**{f"{unit}s": 1}), now


def calendar(now: datetime, unit: str, back: int) -> Stretch:
    """The calendar week, month, quarter or year so many back."""
    if unit.lower() == "week":
        return week(now, back)
    if unit.lower() == "quarter":
        first = 3 * ((now.month - 1) // 3) + 1 - 3 * back
        return months(now.year, first, 3, now)
    return month(now, back) if unit.lower() == "month" else year_of(now.year - back, now)


def third(stretch: Stretch, number: int) -> Stretch:
    """Days 1 to 10 of a month, 11 to 20, or the rest."""
    begin, end = stretch
    tenth, twentieth = begin + 10 * _DAY, begin + 20 * _DAY
    return ((begin, tenth), (tenth, twentieth), (twentieth, end))[number]


def day_in_any_order(year: int, one: int, two: int, now: datetime) -> Stretch | None:
    """The day that 12/24 or 24/12 writes; None where both orders make sense (3/4) or neither."""
    found = {day_of(year, month, day, now) for month, day in ((one, two), (two, one))} - {None}
    return found.pop() if len(found) == 1 else None
