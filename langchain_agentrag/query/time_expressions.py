"""Time expressions of a question in English and Chinese (last Friday, 上个月底, 从三月到五月), read as a time range. Pure."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

from langchain_agentrag.text.numerals import ENGLISH_NUMBERS, read_chinese_strictly

Interval = tuple[datetime, datetime]
"""Start, included, and end, not included."""

# -- calendar ---------------------------------------------------------------------------------------------------------

_DAY = timedelta(days=1)


def _midnight(day: date, zone: tzinfo | None) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def _days(first: date, count: int, now: datetime) -> Interval:
    return _midnight(first, now.tzinfo), _midnight(first + count * _DAY, now.tzinfo)


def _calendar_months(year: int, month: int, count: int, now: datetime) -> Interval:
    """Return calendar months; the first may lie outside of 1 to 12."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    end_year, end_month = year + (month - 1 + count) // 12, (month - 1 + count) % 12 + 1
    return _midnight(date(year, month, 1), now.tzinfo), _midnight(date(end_year, end_month, 1), now.tzinfo)


def _calendar_day(year: int, month: int, day: int, now: datetime) -> Interval | None:
    """Return a day; None if the calendar has none such."""
    if not (1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]):  # noqa: PLR2004
        return None
    return _days(date(year, month, day), 1, now)


def _calendar_unit(now: datetime, unit: str, units_ago: int) -> Interval:
    """Return a calendar week, month, quarter or year."""
    if unit == "week":
        return _days(now.date() - timedelta(days=now.weekday() + 7 * units_ago), 7, now)
    count = {"month": 1, "quarter": 3, "year": 12}[unit]
    return _calendar_months(now.year, (now.month - 1) // count * count + 1 - count * units_ago, count, now)


def _weekday_of_week(now: datetime, weekday: int, weeks_ago: int) -> Interval:
    """Return a weekday, Monday is 0, of a calendar week."""
    return _days(now.date() - timedelta(days=now.weekday() + 7 * weeks_ago - weekday), 1, now)


def _latest_weekday(now: datetime, weekday: int, *, today: bool) -> Interval:
    """Return the latest such weekday before today; with `today` it may be today."""
    days_ago = (now.weekday() - weekday) % 7 or (0 if today else 7)
    return _days(now.date() - timedelta(days=days_ago), 1, now)


def _latest_month(now: datetime, month: int, year: int | None) -> Interval:
    """Return a month of a year; without a year the latest one that has begun."""
    return _calendar_months(year or (now.year if month <= now.month else now.year - 1), month, 1, now)


def _latest_day(now: datetime, month: int, day: int, year: int | None) -> Interval | None:
    """Return a day of a year; without a year the latest one that has begun; None if the calendar has none such."""
    interval = _calendar_day(year or now.year, month, day, now)
    if interval is not None and year is None and interval[0] > now:
        return _calendar_day(now.year - 1, month, day, now)
    return interval


def _day_in_either_order(year: int, first: int, second: int, now: datetime) -> Interval | None:
    """Return the day of 12/24 or 24/12; None if both orders are dates (3/4) or neither is."""
    days = {_calendar_day(year, month, day, now) for month, day in ((first, second), (second, first))} - {None}
    return days.pop() if len(days) == 1 else None


def _units_ago(now: datetime, count: int, unit: str) -> Interval:
    """Return the minute, hour, day, week, month or year that lies `count` of them back."""
    if unit in {"minute", "hour"}:
        step = timedelta(minutes=1) if unit == "minute" else timedelta(hours=1)
        return now - (count + 0.5) * step, now - (count - 0.5) * step
    return _days(now.date() - count * _DAY, 1, now) if unit == "day" else _calendar_unit(now, unit, count)


def _last_units(now: datetime, count: int, unit: str) -> Interval:
    """Return the last `count` minutes, hours, days, weeks, months or years up to now."""
    if unit == "year":
        count, unit = 12 * count, "month"
    if unit == "month":
        begin, _ = _calendar_unit(now, "month", count)
        day = min(now.day, monthrange(begin.year, begin.month)[1])
        return begin.replace(day=day, hour=now.hour, minute=now.minute), now
    return now - count * timedelta(**{f"{unit}s": 1}), now


# -- parts that both languages name -----------------------------------------------------------------------------------

Reader = Callable[[re.Match[str], datetime], Interval | None]


class _Rule(NamedTuple):
    """A pattern and the function that reads a match of it; None is a match that names no time."""

    pattern: re.Pattern[str]
    read: Reader
    relative: bool


def _rule(pattern: str, read: Reader, *, relative: bool = True) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), read, relative)


_DAY_PARTS = {
    "凌晨": (0, 6), "早上": (5, 12), "上午": (6, 12), "早晨": (5, 12), "中午": (11, 14), "下午": (12, 18),
    "傍晚": (17, 20), "早": (5, 12), "晚": (18, 30), "晚上": (18, 30), "夜里": (18, 30), "morning": (5, 12), "afternoon": (12, 18),
    "evening": (17, 24), "night": (18, 30),
}  # fmt: skip
_MONTH_PARTS = {"初": 0, "上旬": 0, "early": 0, "beginning of": 0, "start of": 0, "中旬": 1, "mid": 1, "middle of": 1} | dict.fromkeys(
    ("底", "末", "下旬", "late", "end of"), 2
)  # fmt: skip
_QUARTERS = {"一": 1, "二": 2, "三": 3, "四": 4, "1": 1, "2": 2, "3": 3, "4": 4}
_YEAR = r"(?P<year>(?:19|20)\d{2})"
_YEARS_AGO = {"今": 0, "本": 0, "去": 1, "上": 1, "前": 2}


def _day_part(match: re.Match[str], day: Interval | None) -> Interval | None:
    """Return the part of the day that is named with it: 昨天下午."""
    name = match.groupdict().get("part")
    if day is None or not name:
        return day
    begin, end = _DAY_PARTS[name.lower()]
    return day[0] + timedelta(hours=begin), day[0] + timedelta(hours=end)


def _month_part(match: re.Match[str], month: Interval) -> Interval:
    """Return the third of the month that is named with it: 上月底, late March."""
    third = _MONTH_PARTS.get((match["edge"] or "").lower())
    begin, end = month
    tenth, twentieth = begin + 10 * _DAY, begin + 20 * _DAY
    return month if third is None else ((begin, tenth), (tenth, twentieth), (twentieth, end))[third]


def _half_or_quarter(match: re.Match[str], now: datetime) -> Interval:
    parts = match.groupdict()
    year = _year_number(parts.get("year"), now)
    if parts.get("half"):
        begin, count = (1, 6) if parts["half"] in {"上", "first", "1"} else (7, 6)
    else:
        begin, count = 3 * _QUARTERS[parts["quarter"]] - 2, 3
    interval = _calendar_months(year or now.year, begin, count, now)
    return interval if year or interval[0] <= now else _calendar_months(now.year - 1, begin, count, now)


def _year_number(text: str | None, now: datetime) -> int | None:
    """Return the number of a year in digits or of 今, 去, …; None without a year."""
    if text is None:
        return None
    return int(text) if text.isdecimal() else now.year - _YEARS_AGO[text]


def _iso_date(match: re.Match[str], now: datetime) -> Interval | None:
    month = int(match["month"])
    if not match["day"]:
        return _calendar_months(int(match["year"]), month, 1, now) if 1 <= month <= 12 else None  # noqa: PLR2004
    return _calendar_day(int(match["year"]), month, int(match["day"]), now)


_ENGLISH_COUNTS = {word: value for word, value in ENGLISH_NUMBERS.items() if value <= 12} | {  # noqa: PLR2004
    "a": 1, "an": 1, "couple of": 2, "a couple of": 2, "few": 3, "a few": 3,
}  # fmt: skip


def _read_count(text: str) -> int:
    """Return a count below 100 in digits, Chinese or English words; of 三五 and the like 1, or 10 with 十."""
    text = text.lower()
    if text.isdecimal():
        return int(text)
    if text in _ENGLISH_COUNTS:
        return _ENGLISH_COUNTS[text]
    text = text.replace("俩", "两")
    number = read_chinese_strictly(text.removeprefix("一") if text.startswith("一十") else text)
    return number if number is not None else 10 if "十" in text else 1


_NUMERIC_RULES = (
    _rule(r"(?<!\d)(?P<year>(?:19|20)\d{2})[-/.](?P<month>\d{1,2})(?:[-/.](?P<day>\d{1,2}))?(?![\d.])", _iso_date, relative=False),
)  # fmt: skip

# -- English ----------------------------------------------------------------------------------------------------------

_EN_COUNT = rf"(?P<n>\d{{1,3}}|{'|'.join(sorted(_ENGLISH_COUNTS, key=len, reverse=True))})"
_EN_UNIT = r"(?P<unit>minute|min|hour|hr|day|week|month|year)s?"
_EN_DAY_PART = r"(?:\s+(?P<part>morning|afternoon|evening|night))?"
_EN_MONTH_PART = r"(?:the\s+)?(?P<edge>early|beginning\s+of|start\s+of|mid|middle\s+of|late|end\s+of)[\s-]+"
_EN_MONTH_NAMES = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_EN_MONTHS = {name: number for number, name in enumerate(_EN_MONTH_NAMES, 1)}
_EN_MONTHS |= {name[:3]: number for name, number in _EN_MONTHS.items()} | {"sept": 9}
_EN_MONTH = rf"(?P<month>{'|'.join(sorted(_EN_MONTHS, key=len, reverse=True))})\.?"
_EN_WEEKDAY_NAMES = "monday tuesday wednesday thursday friday saturday sunday".split()  # noqa: SIM905
_EN_WEEKDAYS = {name: place for place, name in enumerate(_EN_WEEKDAY_NAMES)}
_EN_WEEKDAYS |= {name[:3]: place for name, place in _EN_WEEKDAYS.items()} | {"tues": 1, "thur": 3, "thurs": 3}
_EN_WEEKDAY = rf"(?P<weekday>{'|'.join(sorted(_EN_WEEKDAYS, key=len, reverse=True))})"
_EN_PERMISSION = re.compile(r"^\s*(?:can|may|must|should|do|does)\s[^.?!]*\bon\s$", re.IGNORECASE)
"""Before a weekday in a question about every such day: can I return goods on Monday."""
_MAX_PERMISSION = 300  # characters before the weekday
_PREPOSITION = (
    "(?:"
    + "|".join(
        rf"(?<=\b{word}\s)" for word in ("in", "since", "before", "after", "until", "during", "of", "from", "and", "to")
    )
    + ")"
)


def _english_unit(word: str) -> str:
    return {"min": "minute", "hr": "hour"}.get(word.lower(), word.lower())


def _english_day(match: re.Match[str], now: datetime) -> Interval | None:
    words = " ".join(match["day"].lower().split())
    days_ago = {"yesterday": 1, "last night": 1, "the day before yesterday": 2}.get(words, 0)
    day = _days(now.date() - days_ago * _DAY, 1, now)
    if words == "last night":
        return day[0] + timedelta(hours=18), day[0] + timedelta(hours=30)
    return _day_part(match, day)


def _english_weekday(match: re.Match[str], now: datetime) -> Interval | None:
    which, weekday = (match["which"] or "").lower(), _EN_WEEKDAYS[match["weekday"].lower()]
    if match.start() <= _MAX_PERMISSION and _EN_PERMISSION.search(match.string[: match.start()]):
        return None
    if which == "this":
        return _day_part(match, _weekday_of_week(now, weekday, 0))
    return _day_part(match, _latest_weekday(now, weekday, today=which not in {"last", "past", "previous"}))


def _english_period(match: re.Match[str], now: datetime) -> Interval:
    units_ago = 0 if match["which"].lower() in {"this", "the current", "current"} else 1
    unit = match["unit"].lower()
    if unit != "weekend":
        return _calendar_unit(now, unit, units_ago)
    is_weekend = now.weekday() >= 5  # noqa: PLR2004
    saturday, _ = _weekday_of_week(now, 5, 0 if is_weekend else units_ago)
    return saturday, saturday + 2 * _DAY


def _english_date(match: re.Match[str], now: datetime) -> Interval | None:
    parts = match.groupdict()
    year = int(parts["year"]) if parts.get("year") else None
    month = _EN_MONTHS[parts["month"].lower()]
    if parts.get("day"):
        return _latest_day(now, month, int(parts["day"]), year)
    return _latest_month(now, month, year)


def _english_month_part(match: re.Match[str], now: datetime) -> Interval | None:
    """Return a third of a month; of "late March" without a year that of the latest March that has begun."""
    if match["which"]:
        return _month_part(match, _calendar_unit(now, "month", int(match["which"].lower() == "last")))
    month = _EN_MONTHS[match["month"].lower()]
    return _month_part(match, _latest_month(now, month, int(match["year"]) if match["year"] else None))


def _english_half_year(match: re.Match[str], now: datetime) -> Interval:
    which, number = match["which"] or match["which2"], match["year"] or match["year2"]
    year = int(number) if number else now.year - int(which.lower() == "last")
    second = (match["half"] or "").lower() == "second" or match["number"] == "2"
    return _calendar_months(year, 7 if second else 1, 6, now)


_ENGLISH_RULES = (
    _rule(r"(?P<day>the\s+day\s+before\s+yesterday|yesterday|today|last\s+night|tonight)" + _EN_DAY_PART, _english_day),
    _rule(r"\b(?P<day>this)\s+(?P<part>morning|afternoon|evening)", _english_day),
    _rule(rf"\b{_EN_COUNT}\s+{_EN_UNIT}\s+(?:ago|back|earlier)\b", lambda m, now: _units_ago(now, _read_count(m["n"]), _english_unit(m["unit"]))),
    _rule(rf"\b(?:in|over|during|within)?\s*(?:the\s+)?(?:last|past|previous)\s+{_EN_COUNT}\s+{_EN_UNIT}\b", lambda m, now: _last_units(now, _read_count(m["n"]), _english_unit(m["unit"]))),
    _rule(r"\bthe\s+(?P<unit>week|month|quarter|year)\s+before\s+(?P<which>last)\b", lambda m, now: _calendar_unit(now, m["unit"].lower(), 2)),
    _rule(rf"\b{_EN_MONTH_PART}(?:(?P<which>last|this)\s+month|{_EN_MONTH}(?:,?\s+{_YEAR})?)\b", _english_month_part),
    _rule(rf"\b(?:the\s+)?(?P<half>first|second)\s+half\s+of\s+(?:{_YEAR}|(?P<which>last|this)\s+year)\b|\bH(?P<number>[12])\s+(?:of\s+)?(?:(?P<year2>20\d\d)|(?P<which2>last|this)\s+year)\b", _english_half_year),
    _rule(rf"\b{_EN_MONTH}\s*(?=的|份|里)", _english_date, relative=False),
    _rule(r"(?<![\d/])(?P<one>\d{1,2})/(?P<two>\d{1,2})/(?P<year>(?:19|20)\d\d)(?![\d/])", lambda m, now: _day_in_either_order(int(m["year"]), int(m["one"]), int(m["two"]), now), relative=False),
    _rule(r"\b(?P<which>last|past|previous|this|the current|current)\s+(?P<unit>weekend|week|month|year|quarter)\b(?!\s+(?:end|day)s?\b)", _english_period),
    _rule(r"\b(?:in|over|during|within)\s+the\s+(?P<which>past|last)\s+(?P<unit>day|hour)\b", lambda m, now: _last_units(now, 1, m["unit"].lower())),
    _rule(rf"\b(?:(?P<which>last|past|previous|this)\s+|(?<=\bon\s)|{_PREPOSITION}){_EN_WEEKDAY}\b{_EN_DAY_PART}", _english_weekday),
    _rule(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{_EN_MONTH}(?:,?\s+{_YEAR})?\b", _english_date, relative=False),
    _rule(rf"\b{_EN_MONTH}\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)(?:,?\s+{_YEAR})?", _english_date, relative=False),
    _rule(rf"\b{_EN_MONTH},?\s+(?:of\s+)?{_YEAR}\b", _english_date, relative=False),
    _rule(rf"(?:{_PREPOSITION}|\b(?:last|this)\s+){_EN_MONTH}\b(?!\s+(?:order|we|you|i)\b)", _english_date, relative=False),
    _rule(rf"\bQ(?P<quarter>[1-4])(?:\s+(?:of\s+)?{_YEAR})?\b", _half_or_quarter, relative=False),
    _rule(rf"{_PREPOSITION}{_YEAR}\b", lambda m, now: _calendar_months(int(m["year"]), 1, 12, now), relative=False),
)  # fmt: skip

# -- Chinese ----------------------------------------------------------------------------------------------------------

_ZH_COUNT = r"(?P<n>\d{1,3}|[一二两俩三四五六七八九十]{1,3}|半)"
_ZH_UNIT = r"(?P<unit>分钟|小时|钟头|天|日|周|星期|礼拜|月|年)"
_ZH_WEEK = r"(?:周|星期|礼拜)"
_ZH_YEAR = r"(?:(?P<year>(?:19|20)\d{2}|今|去|前|本)年)"
_ZH_DAY_PART = r"(?P<part>凌晨|早上|上午|早晨|中午|下午|傍晚|晚上|夜里)?"
_ZH_MONTH_PART = r"(?P<edge>初|上旬|中旬|底|末|下旬)"
_ZH_UNITS = {
    "分钟": "minute", "小时": "hour", "钟头": "hour", "天": "day", "日": "day", "周": "week", "星期": "week",
    "礼拜": "week", "月": "month", "年": "year",
}  # fmt: skip
_ZH_DAYS_AGO = {"今天": 0, "今日": 0, "昨天": 1, "昨日": 1, "前天": 2, "前日": 2, "大前天": 3}
_ZH_WEEKDAYS = {char: place for place, char in enumerate("一二三四五六日")} | {"天": 6} | {
    str(number): number - 1 for number in range(1, 7)
}  # fmt: skip
_ZH_RULE_QUESTION = re.compile(r"可以|可不可以|能否|能不能|是否|怎么|如何|几点|营业|开门|上班吗|休息吗|放假吗")
"""A question about every such weekday (周日可以办理吗), unless `_ZH_HAPPENED` also matches."""
_ZH_HAPPENED = re.compile(r"[过来]|了(?!吗)|之[前后]|以[前后]|[的至]")


@lru_cache(maxsize=8)
def _asks_for_rule(question: str) -> bool:
    return bool(_ZH_RULE_QUESTION.search(question)) and not _ZH_HAPPENED.search(question)


def _periods_ago(which: str) -> int:
    """Return how many weeks, months or quarters back 上, 上上 or 上个 is."""
    return which.count("上")


def _chinese_units_ago(match: re.Match[str], now: datetime) -> Interval | None:
    if match["n"] == "半":
        return _last_units(now, 6, "month") if match["unit"] == "年" else None
    return _units_ago(now, _read_count(match["n"]), _ZH_UNITS[match["unit"]])


def _chinese_last_units(match: re.Match[str], now: datetime) -> Interval:
    unit = _ZH_UNITS[match["unit"]]
    if match["n"] == "半":
        halves = {"year": (6, "month"), "month": (15, "day"), "day": (12, "hour")}
        return _last_units(now, *halves.get(unit, (1, unit)))
    return _last_units(now, _read_count(match["n"]), unit)


def _chinese_weekday(match: re.Match[str], now: datetime) -> Interval | None:
    which, weekday = match["which"], _ZH_WEEKDAYS[match["weekday"]]
    if which:
        return _day_part(match, _weekday_of_week(now, weekday, _periods_ago(which)))
    if _asks_for_rule(match.string):
        return None
    return _day_part(match, _latest_weekday(now, weekday, today=True))


def _chinese_date(match: re.Match[str], now: datetime) -> Interval | None:
    year, month = _year_number(match["year"], now), _read_count(match["month"])
    if not 1 <= month <= 12:  # noqa: PLR2004
        return None
    if match["day"]:
        return _day_part(match, _latest_day(now, month, _read_count(match["day"]), year))
    return _month_part(match, _latest_month(now, month, year))


_CHINESE_RULES = (
    _rule(rf"(?:{_ZH_YEAR}\s*的?)?\s*(?<![\d.每])(?P<month>\d{{1,2}}|[一二三四五六七八九十]{{1,2}})\s*月(?:份)?(?:{_ZH_MONTH_PART}|\s*(?P<day>\d{{1,2}}|[一二三四五六七八九十]{{1,3}})\s*[日号])?{_ZH_DAY_PART}(?!度|薪|租|饼|供|天|历|光)", _chinese_date, relative=False),
    _rule(r"(?P<day>今|昨|前)(?P<part>晚|早)(?!上)", lambda m, now: _day_part(m, _days(now.date() - "今昨前".index(m["day"]) * _DAY, 1, now))),
    _rule(rf"(?P<day>大前天|今天|今日|昨天|昨日|前天|前日){_ZH_DAY_PART}", lambda m, now: _day_part(m, _days(now.date() - _ZH_DAYS_AGO[m["day"]] * _DAY, 1, now))),
    _rule(rf"(?<!每)(?<!每个)(?P<which>上{{1,3}}个?|这个?|本)?{_ZH_WEEK}(?P<weekday>[一二三四五六日天])(?![年月个])(?:的)?{_ZH_DAY_PART}", _chinese_weekday),
    _rule(rf"(?P<which>上{{1,3}}个?|这个?|本){_ZH_WEEK}末", lambda m, now: (_weekday_of_week(now, 5, _periods_ago(m["which"]))[0], _weekday_of_week(now, 6, _periods_ago(m["which"]))[1])),
    _rule(rf"(?P<which>上{{1,3}}个?|这个?|本){_ZH_WEEK}", lambda m, now: _calendar_unit(now, "week", _periods_ago(m["which"]))),
    _rule(rf"(?P<which>上{{1,3}}个?|这个|本|当)月(?:份)?{_ZH_MONTH_PART}?", lambda m, now: _month_part(m, _calendar_unit(now, "month", _periods_ago(m["which"])))),
    _rule(rf"(?:{_ZH_YEAR}的?)?(?P<half>[上下])半年", _half_or_quarter),
    _rule(rf"(?:{_ZH_YEAR}的?)?(?:第(?P<quarter>[一二三四1-4])个?季度)", _half_or_quarter, relative=False),
    _rule(rf"{_ZH_YEAR}的?Q(?P<quarter>[1-4])(?![\d.])", _half_or_quarter, relative=False),
    _rule(r"(?P<which>上个?|这个?|本)季度", lambda m, now: _calendar_unit(now, "quarter", _periods_ago(m["which"]))),
    _rule(r"(?P<which>今年|去年|前年|本年|上一年)", lambda m, now: _calendar_unit(now, "year", _YEARS_AGO[m["which"][0]])),
    _rule(rf"{_YEAR}年(?![级内期])", lambda m, now: _calendar_months(int(m["year"]), 1, 12, now), relative=False),
    _rule(rf"(?:最近|过去|近|(?<!提)前(?=.{{1,4}}(?:天|周|星期|礼拜|个月))|这)的?{_ZH_COUNT}个?{_ZH_UNIT}(?:来|内|里|之内|以来)?", _chinese_last_units),
    _rule(rf"(?<![满每过超哪某同第\d百千万亿几]){_ZH_COUNT}个?{_ZH_UNIT}(?:之|以)?前(?![往后途景])", _chinese_units_ago),
)  # fmt: skip

# -- the time range of a question -------------------------------------------------------------------------------------

_RULES = (*_NUMERIC_RULES, *_CHINESE_RULES, *_ENGLISH_RULES)
_TITLE = re.compile(r"《[^》]*》|“[^“”]{1,80}”|「[^「」]{1,80}」|『[^『』]{1,80}』|\"[^\"]{1,80}\"")
_RANGE_ZH = re.compile(
    r"(?P<lead>从|自|在)?(?P<a>.{1,14}?)(?:到|至|～|~|—|-)(?P<b>.{1,14}?)(?=之间|期间|的|，|,|。|[？?]|$|有|我|你|都|这)"
)
_RANGE_EN = re.compile(
    r"\b(?P<lead>between|from)\s+(?P<a>.{2,24}?)\s+(?:and|to|until|till|through)\s+(?P<b>.{2,24})", re.IGNORECASE
)
_SINCE_ZH = re.compile(r"\s*(?:以来|至今|到现在|起|开始|到今天)")
_AFTER_ZH = re.compile(r"\s*(?:之后|以后|后(?![台端来面天续勤备]))")
_BEFORE_ZH = re.compile(r"\s*(?:之前|以前|前(?![台端面后天提往景沿]))")
_UNTIL_ZH = re.compile(r"截[至止]到?\s*$")
_LEAD_EN = re.compile(
    r"\b(?P<word>since|after|later\s+than|before|until|till|prior\s+to|earlier\s+than)\s+(?:the\s+)?(?:start\s+of\s+|end\s+of\s+)?$",
    re.IGNORECASE,
)


MAX_QUESTION = 4_000
"""Characters of a question in which a time and the other marks of a route are looked for."""

_MAX_GAP = 50  # spaces in a row that the rules read; more than any pattern allows between its words
_LONG_GAP = re.compile(rf"\s{{{_MAX_GAP + 1},}}+")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time range that a question names.

    Attributes:
        after: Start, included, with a time zone; None for no start.
        before: End, not included, with a time zone; None for no end.
        words: The words that name it.
        span: Start and end offset of the words in the question.
        relative: Whether it counts from the present (yesterday); False for a date that a document may name as well.
    """

    after: datetime | None
    before: datetime | None
    words: str
    span: tuple[int, int]
    relative: bool


def time_range(question: str, now: datetime) -> TimeRange | None:
    """Return the time range a question asks about, or None.

    Args:
        question: The question; a time behind its first `MAX_QUESTION` characters is not read.
        now: The present, in the time zone whose days are meant.
    """
    question = question[:MAX_QUESTION]
    text = _TITLE.sub(lambda title: " " * len(title[0]), question)  # a title or a quotation names no time
    if not any(map(str.isalnum, text)):
        text = question
    text, offsets = with_short_gaps(text)
    bounds = _read_two_ends(text, now)
    if bounds is None and (mention := _first_mention(text, now)) is not None:
        bounds = _with_open_end(text, mention)
    if bounds is None:
        return None
    after, before, start, stop, relative = bounds
    if offsets:
        start, stop = offsets[start], offsets[stop - 1] + 1
    return TimeRange(after, before, question[start:stop], (start, stop), relative)


def with_short_gaps(text: str) -> tuple[str, list[int]]:
    """Return a text with at most `_MAX_GAP` spaces in a row, and the offset of each character if any were left out."""
    gaps = list(_LONG_GAP.finditer(text))
    if not gaps:
        return text, []
    offsets: list[int] = []
    position = 0
    for gap in gaps:
        offsets += range(position, gap.start() + _MAX_GAP)
        position = gap.end()
    offsets += range(position, len(text))
    return "".join(text[offset] for offset in offsets), offsets


class _Mention(NamedTuple):
    """A time that a text names, and where."""

    begin: datetime
    end: datetime
    start: int
    stop: int
    relative: bool


_Bounds = tuple[datetime | None, datetime | None, int, int, bool]
"""As `_Mention`; either moment may be None."""


def _first_mention(text: str, now: datetime) -> _Mention | None:
    """Return the first time that a text names, the longest of those that start there."""
    first: _Mention | None = None
    for rule in _RULES:
        for match in rule.pattern.finditer(text):
            interval = rule.read(match, now)
            if interval is None or match.start() == match.end():
                continue
            start, stop = match.span()
            if first is None or (start, -stop) < (first.start, -first.stop):
                first = _Mention(*interval, start, stop, rule.relative)
            break
    return first


def _with_open_end(text: str, mention: _Mention) -> _Bounds:
    """Return the bounds of a time, or of all before, after or since it, as the words around it say."""
    begin, end, start, stop, relative = mention
    after: datetime | None = begin
    before: datetime | None = end
    lead = _LEAD_EN.search(text[:start])
    if lead is not None:
        start, word = lead.start(), lead["word"].lower()
        if word == "since":
            before = None
        elif word.startswith(("after", "later")):
            after, before = end, None
        else:  # until a day includes it
            after, before = None, end if word.startswith(("until", "till")) else begin
    until = _UNTIL_ZH.search(text[:start])
    if until is not None:
        start, after, before = until.start(), None, end
    for pattern, bounds in ((_SINCE_ZH, (begin, None)), (_AFTER_ZH, (end, None)), (_BEFORE_ZH, (None, begin))):
        behind = pattern.match(text, stop)
        if behind is not None and not text[start:stop].endswith(("前", "内", "来")):
            stop, (after, before) = behind.end(), bounds
            break
    return after, before, start, stop, relative


def _read_two_ends(text: str, now: datetime) -> _Bounds | None:
    """Return the bounds of 从三月到五月 or between Monday and Friday: from the start of one to the end of the other."""
    for pattern in (_RANGE_EN, _RANGE_ZH):
        for match in pattern.finditer(text):
            last = _mention_in_group(match, "b", now)
            first = _mention_in_group(match, "a", now)
            if first is not None and last is not None and first.begin >= last.end:
                first = _mention_in_group(match, "a", last.begin)  # the one before it
            if first is None or last is None or first.begin >= last.end:
                continue
            start = match.start() if match["lead"] else first.start
            return first.begin, last.end, start, last.stop, first.relative and last.relative
    return None


def _mention_in_group(match: re.Match[str], group: str, now: datetime) -> _Mention | None:
    """Return the first time in a group, with its place in the whole text."""
    preposition = "in " if match[group][:1].isascii() else ""  # English weekdays, months and years need one
    mention = _first_mention(preposition + match[group], now)
    if mention is None:
        return None
    offset = match.start(group) - len(preposition)
    return mention._replace(start=offset + mention.start, stop=offset + mention.stop)
