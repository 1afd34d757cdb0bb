"""Calendar ranges that the words of a time expression stand for: a week ago, late March, the second quarter. Pure."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, timedelta, tzinfo
from typing import NamedTuple

from langchain_agentrag.text.numerals import ENGLISH_NUMBERS, read_chinese_strictly

Interval = tuple[datetime, datetime]
"""Start, included, and end, not included."""

Reader = Callable[[re.Match[str], datetime], Interval | None]
"""Match of a pattern and the present: the range it names, or None for a match that names no time."""

DAY = timedelta(days=1)


class Rule(NamedTuple):
    """A pattern and the function that reads a match of it.

    Attributes:
        pattern: Its matches name a time.
        read: Returns the range of a match.
        relative: Whether it counts from the present (yesterday); False for a date that a document may name as well.
    """

    pattern: re.Pattern[str]
    read: Reader
    relative: bool


def rule(pattern: str, read: Reader, *, relative: bool = True) -> Rule:
    """Return a rule whose pattern ignores the case."""
    return Rule(re.compile(pattern, re.IGNORECASE), read, relative)


# -- days, months and years -------------------------------------------------------------------------------------------


def _midnight(day: date, zone: tzinfo | None) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def days(first: date, count: int, now: datetime) -> Interval:
    """Return that many days."""
    return _midnight(first, now.tzinfo), _midnight(first + count * DAY, now.tzinfo)


def days_ago(now: datetime, count: int) -> Interval:
    """Return the day that lies that many days back."""
    return days(now.date() - count * DAY, 1, now)


def calendar_months(year: int, month: int, count: int, now: datetime) -> Interval:
    """Return calendar months; the first may lie outside of 1 to 12."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    end_year, end_month = year + (month - 1 + count) // 12, (month - 1 + count) % 12 + 1
    return _midnight(date(year, month, 1), now.tzinfo), _midnight(date(end_year, end_month, 1), now.tzinfo)


def calendar_years(first: int, count: int, now: datetime) -> Interval:
    """Return calendar years."""
    return calendar_months(first, 1, 12 * count, now)


def calendar_day(year: int, month: int, day: int, now: datetime) -> Interval | None:
    """Return a day; None if the calendar has none such."""
    if not (1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]):  # noqa: PLR2004
        return None
    return days(date(year, month, day), 1, now)


def calendar_unit(now: datetime, unit: str, units_ago: int) -> Interval:
    """Return a calendar week, month, quarter or year."""
    if unit == "week":
        return days(now.date() - timedelta(days=now.weekday() + 7 * units_ago), 7, now)
    count = {"month": 1, "quarter": 3, "year": 12}[unit]
    return calendar_months(now.year, (now.month - 1) // count * count + 1 - count * units_ago, count, now)


def month_before(now: datetime, months_ago: int) -> tuple[int, int]:
    """Return the year and the month that lies that many months back."""
    month = now.month - 1 - months_ago
    return now.year + month // 12, month % 12 + 1


def weekday_of_week(now: datetime, weekday: int, weeks_ago: int) -> Interval:
    """Return a weekday, Monday is 0, of a calendar week."""
    return days(now.date() - timedelta(days=now.weekday() + 7 * weeks_ago - weekday), 1, now)


# -- the latest that has begun ----------------------------------------------------------------------------------------


def latest_weekday(now: datetime, weekday: int, *, today: bool) -> Interval:
    """Return the latest such weekday before today; with `today` it may be today."""
    back = (now.weekday() - weekday) % 7 or (0 if today else 7)
    return days_ago(now, back)


def latest_month(now: datetime, month: int, year: int | None, *, completed: bool = False) -> Interval:
    """Return a month of a year; without a year the latest one that has begun, or that is over (`completed`)."""
    begun = month < now.month if completed else month <= now.month
    return calendar_months(year or (now.year if begun else now.year - 1), month, 1, now)


def latest_months(now: datetime, first: int, count: int, year: int | None) -> Interval:
    """Return months of a year; without a year the latest ones that have begun."""
    interval = calendar_months(year or now.year, first, count, now)
    return interval if year or interval[0] <= now else calendar_months(now.year - 1, first, count, now)


def latest_day(now: datetime, month: int, day: int, year: int | None) -> Interval | None:
    """Return a day of a year; without a year the latest one that has begun; None if the calendar has none such."""
    if year is not None:
        return calendar_day(year, month, day, now)
    for one in range(now.year, max(now.year - 9, 0), -1):  # a leap day lies up to eight years back
        interval = calendar_day(one, month, day, now)
        if interval is not None and interval[0] <= now:
            return interval
    return None


def latest_day_of_month(now: datetime, day: int) -> Interval | None:
    """Return the latest such day of a month that has begun, within the last two months."""
    for months_ago in (0, 1, 2):
        interval = calendar_day(*month_before(now, months_ago), day, now)
        if interval is not None and interval[0] <= now:
            return interval
    return None


def days_between(first: Interval | None, last: Interval | None) -> Interval | None:
    """Return the range from the start of one to the end of the other; None if it is empty or one is None."""
    if first is None or last is None or first[0] >= last[1]:
        return None
    return first[0], last[1]


def days_of_month(now: datetime, month: int, first: int, last: int, year: int | None) -> Interval | None:
    """Return the days from one to another of a month (March 2-6); without a year the latest that have begun."""
    begin = latest_day(now, month, first, year)
    return begin and days_between(begin, calendar_day(begin[0].year, month, last, now))


def day_in_either_order(year: int, first: int, second: int, now: datetime) -> Interval | None:
    """Return the day of 12/24 or 24/12; None if both orders are dates (3/4) or neither is."""
    found = {calendar_day(year, month, day, now) for month, day in ((first, second), (second, first))} - {None}
    return found.pop() if len(found) == 1 else None


# -- counted from the present -----------------------------------------------------------------------------------------


def units_ago(now: datetime, count: int, unit: str) -> Interval:
    """Return the minute, hour, day, week, month or year that lies `count` of them back."""
    if unit in {"minute", "hour"}:
        step = timedelta(minutes=1) if unit == "minute" else timedelta(hours=1)
        return now - (count + 0.5) * step, now - (count - 0.5) * step
    return days_ago(now, count) if unit == "day" else calendar_unit(now, unit, count)


def some_units_ago(now: datetime, unit: str) -> Interval:
    """Return from five to two minutes, hours, days, weeks, months or years back: what "a few days ago" means."""
    return units_ago(now, 5, unit)[0], units_ago(now, 2, unit)[1]


def half_unit_ago(now: datetime, unit: str) -> Interval | None:
    """Return half an hour, half a day, about half a month or half a year back; None for other units."""
    if unit == "year":
        return calendar_unit(now, "month", 6)
    if unit == "month":
        return days(now.date() - 17 * DAY, 5, now)
    return units_ago(now, *{"hour": (30, "minute"), "day": (12, "hour")}[unit]) if unit in {"hour", "day"} else None


def last_units(now: datetime, count: int, unit: str) -> Interval:
    """Return the last `count` minutes, hours, days, weeks, months or years up to now; quarters are whole ones."""
    if unit == "quarter":
        return calendar_unit(now, unit, count)[0], calendar_unit(now, unit, 1)[1]
    if unit == "year":
        count, unit = 12 * count, "month"
    if unit == "month":
        begin, _ = calendar_unit(now, "month", count)
        day = min(now.day, monthrange(begin.year, begin.month)[1])
        return begin.replace(day=day, hour=now.hour, minute=now.minute), now
    return now - count * timedelta(**{f"{unit}s": 1}), now


def around_a_year_ago(now: datetime) -> Interval:
    """Return two weeks before and after the day a year ago: this time last year."""
    year, month = now.year - 1, now.month
    day = date(year, month, min(now.day, monthrange(year, month)[1]))
    return days(day - 14 * DAY, 29, now)


# -- parts that both languages name -----------------------------------------------------------------------------------

_DAY_PARTS = {
    "凌晨": (0, 6), "早上": (5, 12), "上午": (6, 12), "早晨": (5, 12), "中午": (11, 14), "下午": (12, 18),
    "傍晚": (17, 20), "早": (5, 12), "晚": (18, 30), "晚上": (18, 30), "夜里": (18, 30),
    "morning": (5, 12), "afternoon": (12, 18), "evening": (17, 24), "night": (18, 30),
}  # fmt: skip
_EDGES = {
    **dict.fromkeys(("初", "上旬", "early", "beginning of", "start of"), 0),
    **dict.fromkeys(("中", "中旬", "mid", "middle of"), 1),
    **dict.fromkeys(("底", "末", "下旬", "late", "end of"), 2),
}
_MONTHS_OF_EDGES = ((1, 2), (5, 4), (11, 2))  # first month and count; of 年初, 年中 and 年底
_WIDE_MONTHS_OF_EDGES = ((1, 3), (5, 4), (10, 3))  # of "early 2025", "mid-2025" and "late 2025"


def day_part(match: re.Match[str], day: Interval | None) -> Interval | None:
    """Return the part of the day that the group `part` names: 昨天下午."""
    name = match.groupdict().get("part")
    if day is None or not name:
        return day
    begin, end = _DAY_PARTS[name.lower()]
    return day[0] + timedelta(hours=begin), day[0] + timedelta(hours=end)


def _edge(match: re.Match[str]) -> int | None:
    return _EDGES.get(" ".join((match["edge"] or "").lower().split()))


def month_part(match: re.Match[str], month: Interval) -> Interval:
    """Return the third of the month that the group `edge` names: 上月底, late March."""
    third = _edge(match)
    begin, end = month
    tenth, twentieth = begin + 10 * DAY, begin + 20 * DAY
    return month if third is None else ((begin, tenth), (tenth, twentieth), (twentieth, end))[third]


def year_part(match: re.Match[str], year: int | None, now: datetime) -> Interval:
    """Return the part of the year that the group `edge` names (年初, end of 2025); without a year the latest begun."""
    edge = _edge(match) or 0
    wide = match["edge"].lower() in {"early", "late"}
    return latest_months(now, *(_WIDE_MONTHS_OF_EDGES if wide else _MONTHS_OF_EDGES)[edge], year)


# -- counts -----------------------------------------------------------------------------------------------------------

ENGLISH_COUNTS = {word: value for word, value in ENGLISH_NUMBERS.items() if value <= 12} | {  # noqa: PLR2004
    "a": 1, "an": 1, "couple of": 2, "a couple of": 2, "few": 4, "a few": 4, "several": 4,
}  # fmt: skip
UNCOUNTED = frozenset({"few", "a few", "several", "几"})
"""Counts that name no number."""


def read_count(text: str) -> int:
    """Return a count below 1000 in digits, Chinese or English words; of 三五 and the like 1, or 10 with 十."""
    text = text.lower()
    if text.isdecimal():
        return int(text)
    if text in ENGLISH_COUNTS:
        return ENGLISH_COUNTS[text]
    text = text.replace("俩", "两").replace("几", "四")
    number = read_chinese_strictly(text.removeprefix("一") if text.startswith("一十") else text)
    return number if number is not None else 10 if "十" in text else 1
