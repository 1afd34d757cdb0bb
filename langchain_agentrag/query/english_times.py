"""Rules that read English time expressions: last Friday, mid-June, Q3 2025, half a year ago. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from langchain_agentrag.query.calendar_ranges import (
    DAY,
    ENGLISH_COUNTS,
    UNCOUNTED,
    Interval,
    around_a_year_ago,
    calendar_day,
    calendar_months,
    calendar_unit,
    calendar_years,
    day_in_either_order,
    day_part,
    days_ago,
    days_between,
    days_of_month,
    half_unit_ago,
    last_units,
    latest_day,
    latest_day_of_month,
    latest_month,
    latest_months,
    latest_weekday,
    month_before,
    month_part,
    read_count,
    rule,
    some_units_ago,
    units_ago,
    weekday_of_week,
    year_part,
)
from langchain_agentrag.text.numerals import ENGLISH_NUMBERS

_COUNT = rf"(?P<n>\d{{1,3}}|{'|'.join(sorted(ENGLISH_COUNTS | ENGLISH_NUMBERS, key=len, reverse=True))})"
_UNIT = r"(?P<unit>minute|min|hour|hr|day|week|fortnight|month|quarter|year)s?"
_DAY_PART = r"(?:\s+(?:in\s+the\s+|at\s+)?(?P<part>morning|afternoon|evening|night)\b)?"
_EDGE = r"(?:the\s+)?(?P<edge>early|beginning\s+of|start\s+of|mid|middle\s+of|late|end\s+of)[\s-]+"
_MONTH_NAMES = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_MONTHS |= {name[:3]: number for name, number in _MONTHS.items()} | {"sept": 9}
_ANY_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_MONTH = rf"(?P<month>{_ANY_MONTH})\.?"
_WEEKDAY_NAMES = "monday tuesday wednesday thursday friday saturday sunday".split()  # noqa: SIM905
_WEEKDAYS = {name: place for place, name in enumerate(_WEEKDAY_NAMES)}
_WEEKDAYS |= {name[:3]: place for name, place in _WEEKDAYS.items()} | {"tues": 1, "thur": 3, "thurs": 3}
_WEEKDAY = rf"(?P<weekday>{'|'.join(sorted(_WEEKDAYS, key=len, reverse=True))})"
_OTHER_WORDS = frozenset({"sat", "sun", "wed", "may", "march", "mar"})
"""Weekdays and months in lower case that are other words as well."""
_IN_SENTENCE = re.compile(r"\s+[a-z]")
_PERMISSION = re.compile(r"^\s*(?:can|may|must|should|do|does)\s[^.?!]*\bon\s$", re.IGNORECASE)
"""Before a weekday in a question about every such day: can I return goods on Monday."""
_MAX_PERMISSION = 300  # characters before the weekday
_LEADING = ("in", "since", "before", "after", "until", "till", "during", "of", "from", "and", "to", "than")
_PREPOSITION = "(?:" + "|".join(rf"(?<=\b{word}\s)" for word in _LEADING) + ")"
_YEAR = r"(?P<year>(?:19|20)\d\d)(?!\d)"
_OF_YEAR = rf"(?:\s*,?\s+(?:(?:of|in)\s+)?(?:the\s+year\s+)?(?:{_YEAR}|(?P<year_name>last|this)\s+year))"
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1st": 1, "2nd": 2, "3rd": 3, "4th": 4}
_ORDINAL_WORDS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
    "thirtieth",
]
_DAY_WORDS = {word: place for place, word in enumerate(_ORDINAL_WORDS[:20], 1)} | {"thirtieth": 30}
_DAY_WORDS |= {
    f"{tens}-{word}": ten + _DAY_WORDS[word]
    for tens, ten in (("twenty", 20), ("thirty", 30))
    for word in _ORDINAL_WORDS[:9]
}
_DAY_WORD = "|".join(sorted(_DAY_WORDS, key=len, reverse=True)).replace("-", r"[\s-]")
_DECADES = {"sixties": 1960, "seventies": 1970, "eighties": 1980, "nineties": 1990}
_FIXED_HOLIDAYS = {
    "christmas eve": (12, 24), "christmas": (12, 25), "new year's eve": (12, 31), "new year's day": (1, 1),
    "halloween": (10, 31), "valentine's day": (2, 14),
}  # fmt: skip
_HOLIDAY = "|".join(name.replace("'", "['’]?").replace(" ", r"\s+") for name in _FIXED_HOLIDAYS)


def _unit(word: str) -> str:
    return {"min": "minute", "hr": "hour"}.get(word.lower(), word.lower())


def _counted(match: re.Match[str]) -> tuple[int, str]:
    """Return the count and the unit of three weeks; a fortnight is two weeks."""
    word, unit = " ".join(match["n"].lower().split()), _unit(match["unit"])
    count = ENGLISH_NUMBERS[word] if word in ENGLISH_NUMBERS else read_count(word)
    return (2 * count, "week") if unit == "fortnight" else (count, unit)


def _day_number(text: str) -> int:
    """Return the number of 5th or twenty-first."""
    digits = text.rstrip("stndrhSTNDRH")
    return int(digits) if digits.isdecimal() else _DAY_WORDS["-".join(text.lower().replace("-", " ").split())]


def _year_of(match: re.Match[str], now: datetime) -> int | None:
    """Return the year that a date names in digits or as last or this year; None without a year."""
    groups = match.groupdict()
    if groups.get("year_name"):
        return now.year - int(groups["year_name"].lower() == "last")
    return int(groups["year"]) if groups.get("year") else None


def _day(match: re.Match[str], now: datetime) -> Interval | None:
    words = " ".join(match["day"].lower().split())
    day = days_ago(now, {"yesterday": 1, "last night": 1, "the day before yesterday": 2}.get(words, 0))
    if words == "last night":
        return day[0] + timedelta(hours=18), day[0] + timedelta(hours=30)
    return day_part(match, day)


def _ago(match: re.Match[str], now: datetime) -> Interval:
    count, unit = _counted(match)
    return some_units_ago(now, unit) if match["n"].lower() in UNCOUNTED else units_ago(now, count, unit)


def _weekday(match: re.Match[str], now: datetime) -> Interval | None:
    which, name = (match.groupdict().get("which") or "").lower(), match["weekday"]
    weekday = _WEEKDAYS[name.lower()]
    before = match.string[max(0, match.start() - 4) : match.start()].lower()
    if name in _OTHER_WORDS and not which and not before.endswith(("on ", "in ")):
        return None
    if match.start() <= _MAX_PERMISSION and _PERMISSION.search(match.string[: match.start()]):
        return None
    if which == "this":
        return day_part(match, weekday_of_week(now, weekday, 0))
    return day_part(match, latest_weekday(now, weekday, today=which not in {"last", "past", "previous", "this past"}))


def _weekday_of_week(match: re.Match[str], now: datetime) -> Interval:
    return weekday_of_week(now, _WEEKDAYS[match["weekday"].lower()], int(match["which"].lower() != "this"))


def _period(match: re.Match[str], now: datetime) -> Interval:
    which = (match["which"] or "").lower()
    back = 0 if which in {"this", "the current", "current"} else 1
    unit = match["unit"].lower()
    if unit != "weekend":
        return calendar_unit(now, unit, back)
    is_weekend = now.weekday() >= 5  # noqa: PLR2004
    saturday, _ = weekday_of_week(now, 5, 0 if is_weekend else back)
    return saturday, saturday + 2 * DAY


def _is_other_word(match: re.Match[str]) -> bool:
    """Return whether the month is another word of a sentence: only 5 may enter."""
    in_sentence = (
        match["month"] in _OTHER_WORDS
        and match.groupdict().get("year") is None
        and match.groupdict().get("year_name") is None
    )
    return in_sentence and _IN_SENTENCE.match(match.string, match.end()) is not None


def _date(match: re.Match[str], now: datetime) -> Interval | None:
    groups = match.groupdict()
    month, year = _MONTHS[match["month"].lower()], _year_of(match, now)
    if (
        groups.get("day")
        and year is None
        and match["month"] in _OTHER_WORDS
        and _IN_SENTENCE.match(match.string, match.end())
    ):
        return None  # only 5 may enter
    if groups.get("day"):
        return day_part(match, latest_day(now, month, _day_number(groups["day"]), year))
    which = (groups.get("which") or "").lower()
    if which == "this":
        return calendar_months(now.year, month, 1, now)
    return latest_month(now, month, year, completed=bool(which))


def _days_of_month(match: re.Match[str], now: datetime) -> Interval | None:
    if _is_other_word(match):
        return None
    month = _MONTHS[match["month"].lower()]
    return days_of_month(now, month, _day_number(match["day"]), _day_number(match["last_day"]), _year_of(match, now))


def _months(match: re.Match[str], now: datetime) -> Interval | None:
    first, last = _MONTHS[match["first_month"].lower()], _MONTHS[match["month"].lower()]
    end = latest_month(now, last, _year_of(match, now))
    return days_between(calendar_months(end[0].year - int(first > last), first, 1, now), end)


def _day_of_named_month(match: re.Match[str], now: datetime) -> Interval | None:
    return calendar_day(*month_before(now, int(match["which"].lower() == "last")), int(match["day"]), now)


def _month_part(match: re.Match[str], now: datetime) -> Interval | None:
    """Return a third of a month; of "late March" without a year that of the latest March that has begun."""
    if match["which"]:
        return month_part(match, calendar_unit(now, "month", int(match["which"].lower() == "last")))
    return month_part(match, latest_month(now, _MONTHS[match["month"].lower()], _year_of(match, now)))


def _year_part(match: re.Match[str], now: datetime) -> Interval:
    year = _year_of(match, now)
    return year_part(match, now.year if year is None and match["the_year"] == "this" else year, now)


def _half_year(match: re.Match[str], now: datetime) -> Interval:
    second = match["half"].lower() in {"second", "2"}
    return latest_months(now, 7 if second else 1, 6, _year_of(match, now))


def _quarter(match: re.Match[str], now: datetime) -> Interval:
    groups = match.groupdict()
    quarter = _ORDINALS[groups["ordinal"].lower()] if groups.get("ordinal") else int(match["quarter"])
    year = 2000 + int(groups["short_year"]) if groups.get("short_year") else _year_of(match, now)
    return latest_months(now, 3 * quarter - 2, 3, year)


def _decade(match: re.Match[str], now: datetime) -> Interval:
    if match["name"]:
        return calendar_years(_DECADES[match["name"].lower()], 10, now)
    return calendar_years(int(match["year"] or f"19{match['short']}"), 10, now)


def _years(match: re.Match[str], now: datetime) -> Interval | None:
    return days_between(calendar_years(int(match["year"]), 1, now), calendar_years(int(match["last_year"]), 1, now))


def _holiday(match: re.Match[str], now: datetime) -> Interval | None:
    name = " ".join(match["holiday"].lower().replace("’", "'").split())
    month, day = next(date for key, date in _FIXED_HOLIDAYS.items() if key.replace("'", "") == name.replace("'", ""))
    return latest_day(now, month, day, _year_of(match, now))


_DAY_NUMBER = rf"(?<![\d.:/$€£¥-])(?P<day>\b(?:\d{{1,2}}(?:st|nd|rd|th)?|{_DAY_WORD}))"
_DAY_BEHIND = rf"(?:\s*,?\s+|/)(?:the\s+)?(?P<day>\d{{1,2}}(?:st|nd|rd|th)?|{_DAY_WORD})"
_LAST_DAY_NUMBER = (
    r"\s*(?:-|–|—|to|and|until|till|through|thru)\s*(?:the\s+)?(?P<last_day>\d{1,2}(?:st|nd|rd|th)?|" + _DAY_WORD + ")"
)
_NO_DATE_BEHIND = (
    rf"(?!,?\s+(?:the\s+)?(?:\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_ANY_MONTH})|(?:{_ANY_MONTH})\.?\s+\d)\b)"
)
"""Behind a weekday: it only accompanies a date (Tuesday, 10 March)."""

_NOT_OF_DATE = rf"(?!\s+of\s+(?:the\s+(?:month|year)|last|this|(?:19|20)\d\d|{_ANY_MONTH})\b)"
"""Behind a period: the last week of July is no week before now."""

ENGLISH_RULES = (
    rule(r"(?P<day>\bthe\s+day\s+before\s+yesterday|\byesterday|(?<!\bas\sof\s)\btoday|\blast\s+night|\btonight)" + _DAY_PART, _day),
    rule(r"\b(?P<day>this)\s+(?P<part>morning|afternoon|evening)", _day),
    rule(rf"\b{_COUNT}\s+{_UNIT}\s+(?:ago|back|earlier)\b", _ago),
    rule(r"\bhalf\s+an?\s+(?P<unit>year|month|day|hour)\s+(?:ago|back|earlier)\b", lambda m, now: half_unit_ago(now, m["unit"].lower())),
    rule(rf"\b(?:in|over|during|within)?\s*(?:the\s+)?(?:last|past|previous)\s+{_COUNT}\s+{_UNIT}\b", lambda m, now: last_units(now, *_counted(m))),
    rule(rf"\b{_COUNT}\s+(?:last|past|previous)\s+{_UNIT}\b", lambda m, now: last_units(now, *_counted(m))),
    rule(r"\b(?:last|past|previous)\s+fortnight\b", lambda _, now: last_units(now, 2, "week")),
    rule(r"\bthe\s+(?P<unit>week|month|quarter|year)\s+before\s+last\b", lambda m, now: calendar_unit(now, m["unit"].lower(), 2)),
    rule(rf"\bthe\s+{_WEEKDAY}\s+before\s+last\b", lambda m, now: days_ago(now, (now.weekday() - _WEEKDAYS[m["weekday"].lower()] - 1) % 7 + 8)),
    rule(rf"\b(?P<which>last|previous|this)\s+week(?:['’]s)?\s*-?\s*(?:on\s+)?{_WEEKDAY}\b", _weekday_of_week),
    rule(rf"\b{_WEEKDAY}\s+(?:of\s+)?(?:the\s+)?(?P<which>last|previous|this)\s+week\b", _weekday_of_week),
    rule(r"\b(?:this|the\s+same)\s+time\s+last\s+year\b", lambda _, now: around_a_year_ago(now)),
    rule(rf"\b{_EDGE}(?:(?P<which>last|this)\s+month|{_MONTH}{_OF_YEAR}?)\b", _month_part),
    rule(r"\b(?:the\s+)?(?P<edge>beginning\s+of|start\s+of|middle\s+of|end\s+of)\s+the\s+month\b", lambda m, now: month_part(m, calendar_unit(now, "month", 0))),
    rule(rf"\b{_EDGE}(?:{_YEAR}|(?:(?P<year_name>last|this)|(?P<the_year>the))\s+year)\b", _year_part),
    rule(rf"\b(?:the\s+)?(?P<half>first|second)\s+half\s+of\s+(?:{_YEAR}|(?:(?P<year_name>last|this)|the)\s+year)\b", _half_year),
    rule(rf"\bH(?P<half>[12])(?:{_OF_YEAR}\b|\b)", _half_year),
    rule(rf"\b(?P<ordinal>first|second|third|fourth|1st|2nd|3rd|4th)\s+quarter(?!\s+moon)(?:{_OF_YEAR}\b|\b)", _quarter),
    rule(rf"\b{_MONTH}\s*(?=的|份|里)", _date, relative=False),
    rule(r"(?<![\d/])(?P<one>\d{1,2})/(?P<two>\d{1,2})/(?P<year>(?:19|20)\d\d)(?![\d/])", lambda m, now: day_in_either_order(int(m["year"]), int(m["one"]), int(m["two"]), now), relative=False),
    rule(r"(?<![\d.])(?P<day>\d\d)\.(?P<month>\d\d)\.(?P<year>(?:19|20)\d\d)(?![\d.])", lambda m, now: calendar_day(int(m["year"]), int(m["month"]), int(m["day"]), now), relative=False),
    rule(r"\b(?P<which>last|past|previous|this|the\s+current|current)\s+(?P<unit>weekend|week|month|year|quarter)\b(?!\s+(?:end|day)s?\b)" + _NOT_OF_DATE, _period),
    rule(r"\b(?:over|from|during|since|at|of)\s+(?P<which>the)\s+(?P<unit>weekend)\b", _period),
    rule(r"\b(?:in|over|during|within)\s+the\s+(?P<which>past|last)\s+(?P<unit>day|hour|week|month|year)\b", lambda m, now: last_units(now, 1, m["unit"].lower())),
    rule(rf"\b(?:(?P<which>last|past|previous|this\s+past|this)\s+|(?<=\bon\s)|{_PREPOSITION}){_WEEKDAY}\b{_NO_DATE_BEHIND}{_DAY_PART}", _weekday),
    rule(rf"\b(?P<weekday>{'|'.join(_WEEKDAY_NAMES)})\s+(?P<part>morning|afternoon|evening|night)\b(?!\s+(?:fever|live|lights)\b)", _weekday),
    rule(r"(?<=\bon\s)the\s+(?P<day>\d{1,2})(?:st|nd|rd|th)\b(?=\s*(?:[?.,!;]|$|(?:did|was|were|we|i|who|what)\b))", lambda m, now: latest_day_of_month(now, int(m["day"]))),
    rule(r"\b(?:the\s+)?(?P<day>\d{1,2})(?:st|nd|rd|th)\s+(?:of\s+)?(?P<which>last|this)\s+month\b", _day_of_named_month),
    rule(rf"{_DAY_NUMBER}\s+(?:of\s+)?{_MONTH}\b(?:{_OF_YEAR}\b)?", _date, relative=False),
    rule(rf"\b{_MONTH}{_DAY_BEHIND}\b(?!:|\s+(?:half|quarter)\b)(?:{_OF_YEAR}\b)?{_DAY_PART}", _date, relative=False),
    rule(rf"\b{_MONTH}{_DAY_BEHIND}{_LAST_DAY_NUMBER}\b(?:{_OF_YEAR}\b)?", _days_of_month, relative=False),
    rule(rf"{_DAY_NUMBER}{_LAST_DAY_NUMBER}\s+(?:of\s+)?{_MONTH}\b(?:{_OF_YEAR}\b)?", _days_of_month, relative=False),
    rule(rf"\b(?P<first_month>{_ANY_MONTH})\.?\s*(?:-|–|—|to|until|till|through|thru)\s*{_MONTH}\b(?:{_OF_YEAR}\b)?", _months, relative=False),
    rule(rf"\b{_MONTH}{_OF_YEAR}\b", _date, relative=False),
    rule(rf"(?:{_PREPOSITION}|\b(?P<which>last|this\s+past|past|previous|this)\s+){_MONTH}\b(?!\s+(?:order|we|you|i)\b)", _date, relative=False),
    rule(rf"(?<=\bfor\s)(?!(?:may|april|june|march)\b){_MONTH}\b", _date, relative=False),
    rule(rf"(?<![\w.-])(?P<day>\d{{1,2}})[-/](?P<month>{_ANY_MONTH})[-/]{_YEAR}\b", _date, relative=False),
    rule(rf"(?<![\w.-]){_YEAR}[-/](?P<month>{_ANY_MONTH})[-/](?P<day>\d{{1,2}})\b", _date, relative=False),
    rule(rf"\b{_YEAR},?\s+{_MONTH}(?!\w)(?!\s+\d)", _date, relative=False),
    rule(rf"\b(?:in\s+)?(?:the\s+)?(?:calendar\s+)?year\s+{_YEAR}\b", lambda m, now: calendar_years(int(m["year"]), 1, now), relative=False),
    rule(rf"\bQ(?P<quarter>[1-4])(?:\s*['’](?P<short_year>\d\d)\b|{_OF_YEAR}\b|\b)", _quarter, relative=False),
    rule(rf"\bQ(?P<quarter>[1-4])[-/]?{_YEAR}\b", _quarter, relative=False),
    rule(rf"\b{_YEAR}[\s/-]?Q(?P<quarter>[1-4])\b", _quarter, relative=False),
    rule(r"(?:\b(?P<year>(?:19|20)\d0)s|(?<=\bthe\s)['’]?(?P<short>[5-9]0)s|(?P<name>sixties|seventies|eighties|nineties))\b", _decade, relative=False),
    rule(r"\b(?:the\s+)?(?P<number>19|20|21)(?:th|st)\s+century\b", lambda m, now: calendar_years(100 * int(m["number"]) - 99, 100, now), relative=False),
    rule(rf"{_PREPOSITION}{_YEAR}\b", lambda m, now: calendar_years(int(m["year"]), 1, now), relative=False),
    rule(r"(?<![\w.\-/])(?P<year>(?:19|20)\d\d)(?:\s?[-–—~]\s?|\s+(?:to|through|until|till)\s+)(?P<last_year>(?:19|20)\d\d)(?![A-Za-z\d\-/]|\.\d)", _years, relative=False),
    rule(rf"(?:\b(?P<which>last|this)\s+|(?<=\bon\s)|(?<=\bat\s)|(?<=\bover\s)|{_PREPOSITION})(?P<holiday>{_HOLIDAY})\b(?:{_OF_YEAR}\b)?", _holiday, relative=False),
    rule(rf"\b(?P<holiday>{_HOLIDAY})\b{_OF_YEAR}\b", _holiday, relative=False),
)  # fmt: skip
