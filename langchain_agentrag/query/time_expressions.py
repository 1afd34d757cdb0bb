"""Days, weeks, months and years of a calendar as stretches of time, and numbers in words. Pure."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A stretch of time that a question names.

    Attributes:
        after: From this moment on, aware; None without a beginning.
        before: Until before this moment; None without an end.
        words: The words that name it.
        span: Where they stand in the question.
        relative: Whether it counts from the present (yesterday), rather than by a date that a text may also hold.
    """

    after: datetime | None
    before: datetime | None
    words: str
    span: tuple[int, int]
    relative: bool


def time_range(question: str, now: datetime) -> TimeRange | None:
    """The stretch of time a question asks about, or None.

    Args:
        question: The question.
        now: The present, with the zone whose days are meant.
    """
    text = _TITLE.sub(lambda title: " " * len(title[0]), question)  # a title or a quotation names no time
    if not any(map(str.isalnum, text)):
        text = question
    found = _two_ends(text, now)
    if found is None and (one := _first(text, now)) is not None:
        begin, end, start, stop, relative = one
        found = _open_ended(text, begin, end, start, stop, relative=relative)
    return None if found is None else replace(found, words=question[slice(*found.span)])


_N = r"(?P<n>\d{1,3}|[一二两俩三四五六七八九十]{1,3}|半)"
_EN_N = rf"(?P<n>\d{{1,3}}|{'|'.join(sorted(ENGLISH_NUMBERS, key=len, reverse=True))})"

_ZH_UNITS = {
    "分钟": "minute", "小时": "hour", "钟头": "hour", "天": "day", "日": "day", "周": "week", "星期": "week",
    "礼拜": "week", "月": "month", "年": "year",
}  # fmt: skip
_ZH_DAYS = {"今天": 0, "今日": 0, "昨天": 1, "昨日": 1, "前天": 2, "前日": 2, "大前天": 3}
_ZH_WEEKDAYS = {char: place for place, char in enumerate("一二三四五六日")} | {"天": 6} | {
    str(number): number - 1 for number in range(1, 7)
}  # fmt: skip
_PARTS = {
    "凌晨": (0, 6), "早上": (5, 12), "上午": (6, 12), "早晨": (5, 12), "中午": (11, 14), "下午": (12, 18),
    "傍晚": (17, 20), "早": (5, 12), "晚": (18, 30), "晚上": (18, 30), "夜里": (18, 30), "morning": (5, 12), "afternoon": (12, 18),
    "evening": (17, 24), "night": (18, 30),
}  # fmt: skip
_ZH_PART = r"(?P<part>凌晨|早上|上午|早晨|中午|下午|傍晚|晚上|夜里)?"
_EN_PART = r"(?:\s+(?P<part>morning|afternoon|evening|night))?"
_MONTHS = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_EN_MONTHS = {name: number for number, name in enumerate(_MONTHS, 1)}
_EN_MONTHS |= {name[:3]: number for name, number in _EN_MONTHS.items()} | {"sept": 9}
_EN_MONTH = rf"(?P<month>{'|'.join(sorted(_EN_MONTHS, key=len, reverse=True))})\.?"
_DAYS_EN = "monday tuesday wednesday thursday friday saturday sunday".split()  # noqa: SIM905
_EN_WEEKDAYS = {name: place for place, name in enumerate(_DAYS_EN)}
_EN_WEEKDAYS |= {name[:3]: place for name, place in _EN_WEEKDAYS.items()} | {"tues": 1, "thur": 3, "thurs": 3}
_EN_WEEKDAY = rf"(?P<weekday>{'|'.join(sorted(_EN_WEEKDAYS, key=len, reverse=True))})"
_EN_UNIT = r"(?P<unit>minute|min|hour|hr|day|week|month|year)s?"
_ZH_UNIT = r"(?P<unit>分钟|小时|钟头|天|日|周|星期|礼拜|月|年)"
_EDGE_ZH = r"(?P<edge>初|上旬|中旬|底|末|下旬)"
_EDGE_EN = r"(?:the\s+)?(?P<edge>early|beginning\s+of|start\s+of|mid|middle\s+of|late|end\s+of)[\s-]+"
_EDGES = {"初": 0, "上旬": 0, "early": 0, "beginning of": 0, "start of": 0, "中旬": 1, "mid": 1, "middle of": 1} | dict.fromkeys(
    ("底", "末", "下旬", "late", "end of"), 2
)  # fmt: skip
_QUARTERS = {"一": 1, "二": 2, "三": 3, "四": 4, "1": 1, "2": 2, "3": 3, "4": 4}
_YEAR_ZH = r"(?:(?P<year>(?:19|20)\d{2}|今|去|前|本)年)"
_YEAR = r"(?P<year>(?:19|20)\d{2})"


def _part(found: re.Match[str], stretch: Stretch | None) -> Stretch | None:
    """The part of a day that is named with it: 昨天下午."""
    name = found.groupdict().get("part")
    if stretch is None or not name:
        return stretch
    begin, end = _PARTS[name.lower()]
    return stretch[0] + timedelta(hours=begin), stretch[0] + timedelta(hours=end)


def _zh_year(text: str | None, now: datetime) -> int | None:
    back = {"今": 0, "本": 0, "去": 1, "上": 1, "前": 2}
    if text is None:
        return None
    return int(text) if text.isdecimal() else now.year - back[text]


def _half_or_quarter(found: re.Match[str], now: datetime) -> Stretch:
    parts = found.groupdict()
    year = parts.get("year")
    chosen = _zh_year(year, now) or now.year
    if parts.get("half"):
        begin, count = (1, 6) if parts["half"] in {"上", "first", "1"} else (7, 6)
    else:
        begin, count = 3 * _QUARTERS[parts["quarter"]] - 2, 3
    stretch = months(chosen, begin, count, now)
    return stretch if year or stretch[0] <= now else months(chosen - 1, begin, count, now)


def _back(text: str) -> int:
    """How many weeks or months 上, 上上, 上个 … mean."""
    return text.count("上")


Reader = Callable[[re.Match[str], datetime], Stretch | None]


_STANDING = re.compile(r"可以|可不可以|能否|能不能|是否|怎么|如何|几点|营业|开门|上班吗|休息吗|放假吗")
_ALLOWED_EN = re.compile(r"^\s*(?:can|may|must|should|do|does)\s[^.?!]*\bon\s$", re.IGNORECASE)
_HAPPENED = re.compile(r"[过来]|了(?!吗)|之[前后]|以[前后]|[的至]")
"""A weekday in a question of what holds on every such day (周日可以办理吗), unless something happened on it."""


def _weekday_zh(found: re.Match[str], now: datetime) -> Stretch | None:
    which, weekday = found["which"], _ZH_WEEKDAYS[found["weekday"]]
    if not which and _STANDING.search(found.string) and not _HAPPENED.search(found.string):
        return None
    if not which:
        return _part(found, latest_weekday(now, weekday, today=True))
    return _part(found, weekday_of(now, weekday, _back(which)))


def _weekday_en(found: re.Match[str], now: datetime) -> Stretch | None:
    which, weekday = (found["which"] or "").lower(), _EN_WEEKDAYS[found["weekday"].lower()]
    if _ALLOWED_EN.search(found.string[: found.start()]):
        return None
    if which == "this":
        return _part(found, weekday_of(now, weekday, 0))
    return _part(found, latest_weekday(now, weekday, today=which not in {"last", "past", "previous"}))


def _en_day(found: re.Match[str], now: datetime) -> Stretch | None:
    words = " ".join(found["day"].lower().split())
    back = {"yesterday": 1, "last night": 1, "the day before yesterday": 2}
    stretch = days(now.date() - back.get(words, 0) * _DAY, 1, now)
    if words == "last night":
        return stretch[0] + timedelta(hours=18), stretch[0] + timedelta(hours=30)
    return _part(found, stretch)


def _unit_en(word: str) -> str:
    return {"min": "minute", "hr": "hour"}.get(word.lower(), word.lower())


def _period_en(found: re.Match[str], now: datetime) -> Stretch:
    back = 0 if found["which"].lower() in {"this", "the current", "current"} else 1
    unit = found["unit"].lower()
    if unit == "weekend":
        saturday = weekday_of(now, 5, back if back == 0 or now.weekday() < 5 else 0)[0]  # noqa: PLR2004
        return saturday, saturday + 2 * _DAY
    return calendar(now, unit, back)


def _edge_en(found: re.Match[str], now: datetime) -> Stretch | None:
    """A third of a month; of a bare "late March" as of "March" the latest that has begun."""
    if found["which"]:
        return _edge(found, month(now, int(found["which"].lower() == "last")))
    number = _EN_MONTHS[found["month"].lower()]
    return _edge(found, latest_month(now, number, int(found["year"]) if found["year"] else None))


def _half_en(found: re.Match[str], now: datetime) -> Stretch:
    which, year = found["which"] or found["which2"], found["year"] or found["year2"]
    number = int(year) if year else now.year - int(which.lower() == "last")
    second = (found["half"] or "").lower() == "second" or found["number"] == "2"
    return months(number, 7 if second else 1, 6, now)


def _date_zh(found: re.Match[str], now: datetime) -> Stretch | None:
    year = _zh_year(found["year"], now)
    month = number_of(found["month"])
    if not 1 <= month <= 12:  # noqa: PLR2004
        return None
    if found["day"]:
        return _part(found, latest_day(now, month, number_of(found["day"]), year))
    return _edge(found, latest_month(now, month, year))


def _edge(found: re.Match[str], stretch: Stretch) -> Stretch:
    """The first or last third of a month, or the one between: 上月底, late March."""
    number = _EDGES.get((found["edge"] or "").lower())
    return stretch if number is None else third(stretch, number)


def _date_en(found: re.Match[str], now: datetime) -> Stretch | None:
    parts = found.groupdict()
    year = int(parts["year"]) if parts.get("year") else None
    month = _EN_MONTHS[parts["month"].lower()]
    if parts.get("day"):
        return latest_day(now, month, int(parts["day"]), year)
    return latest_month(now, month, year)


def _iso(found: re.Match[str], now: datetime) -> Stretch | None:
    month = int(found["month"])
    if not found["day"]:
        return months(int(found["year"]), month, 1, now) if 1 <= month <= 12 else None  # noqa: PLR2004
    return day_of(int(found["year"]), month, int(found["day"]), now)


def _zh_ago(found: re.Match[str], now: datetime) -> Stretch | None:
    if found["n"] == "半":
        return past(now, 6, "month") if found["unit"] == "年" else None
    return ago(now, number_of(found["n"]), _ZH_UNITS[found["unit"]])


def _zh_past(found: re.Match[str], now: datetime) -> Stretch:
    unit = _ZH_UNITS[found["unit"]]
    if found["n"] == "半":
        return past(
            now, *{"year": (6, "month"), "month": (15, "day"), "day": (12, "hour")}.get(unit, (1, unit))
        )
    return past(now, number_of(found["n"]), unit)


def _rule(pattern: str, read: Reader, *, relative: bool = True) -> tuple[re.Pattern[str], Reader, bool]:
    return re.compile(pattern, re.IGNORECASE), read, relative


_PREPOSITION = (
    "(?:"
    + "|".join(
        rf"(?<=\b{word}\s)"
        for word in ("in", "since", "before", "after", "until", "during", "of", "from", "and", "to")
    )
    + ")"
)
_WEEK_ZH = r"(?:周|星期|礼拜)"
_RULES = (
    _rule(r"(?<!\d)(?P<year>(?:19|20)\d{2})[-/.](?P<month>\d{1,2})(?:[-/.](?P<day>\d{1,2}))?(?![\d.])", _iso, relative=False),
    _rule(rf"(?:{_YEAR_ZH}\s*的?)?\s*(?<![\d.每])(?P<month>\d{{1,2}}|[一二三四五六七八九十]{{1,2}})\s*月(?:份)?(?:{_EDGE_ZH}|\s*(?P<day>\d{{1,2}}|[一二三四五六七八九十]{{1,3}})\s*[日号])?{_ZH_PART}(?!度|薪|租|饼|供|天|历|光)", _date_zh, relative=False),
    _rule(r"(?P<day>今|昨|前)(?P<part>晚|早)(?!上)", lambda m, now: _part(m, days(now.date() - "今昨前".index(m["day"]) * _DAY, 1, now))),
    _rule(rf"(?P<day>大前天|今天|今日|昨天|昨日|前天|前日){_ZH_PART}", lambda m, now: _part(m, days(now.date() - _ZH_DAYS[m["day"]] * _DAY, 1, now))),
    _rule(rf"(?<!每)(?<!每个)(?P<which>上{{1,3}}个?|这个?|本)?{_WEEK_ZH}(?P<weekday>[一二三四五六日天])(?![年月个])(?:的)?{_ZH_PART}", _weekday_zh),
    _rule(rf"(?P<which>上{{1,3}}个?|这个?|本){_WEEK_ZH}末", lambda m, now: (weekday_of(now, 5, _back(m["which"]))[0], weekday_of(now, 6, _back(m["which"]))[1])),
    _rule(rf"(?P<which>上{{1,3}}个?|这个?|本){_WEEK_ZH}", lambda m, now: week(now, _back(m["which"]))),
    _rule(rf"(?P<which>上{{1,3}}个?|这个|本|当)月(?:份)?{_EDGE_ZH}?", lambda m, now: _edge(m, month(now, _back(m["which"])))),
    _rule(rf"(?:{_YEAR_ZH}的?)?(?P<half>[上下])半年", _half_or_quarter),
    _rule(rf"(?:{_YEAR_ZH}的?)?(?:第(?P<quarter>[一二三四1-4])个?季度)", _half_or_quarter, relative=False),
    _rule(rf"{_YEAR_ZH}的?Q(?P<quarter>[1-4])(?![\d.])", _half_or_quarter, relative=False),
    _rule(r"(?P<which>上个?|这个?|本)季度", lambda m, now: months(now.year, 3 * ((now.month - 1) // 3) + 1 - 3 * _back(m["which"]), 3, now)),
    _rule(r"(?P<which>今年|去年|前年|本年|上一年)", lambda m, now: year_of(now.year - {"今": 0, "本": 0, "去": 1, "上": 1, "前": 2}[m["which"][0]], now)),
    _rule(rf"{_YEAR}年(?![级内期])", lambda m, now: year_of(int(m["year"]), now), relative=False),
    _rule(rf"(?:最近|过去|近|(?<!提)前(?=.{{1,4}}(?:天|周|星期|礼拜|个月))|这)的?{_N}个?{_ZH_UNIT}(?:来|内|里|之内|以来)?", _zh_past),
    _rule(rf"(?<![满每过超哪某同第\d百千万亿几]){_N}个?{_ZH_UNIT}(?:之|以)?前(?![往后途景])", _zh_ago),
    _rule(r"(?P<day>the\s+day\s+before\s+yesterday|yesterday|today|last\s+night|tonight)" + _EN_PART, _en_day),
    _rule(r"\b(?P<day>this)\s+(?P<part>morning|afternoon|evening)", _en_day),
    _rule(rf"\b{_EN_N}\s+{_EN_UNIT}\s+(?:ago|back|earlier)\b", lambda m, now: ago(now, number_of(m["n"]), _unit_en(m["unit"]))),
    _rule(rf"\b(?:in|over|during|within)?\s*(?:the\s+)?(?:last|past|previous)\s+{_EN_N}\s+{_EN_UNIT}\b", lambda m, now: past(now, number_of(m["n"]), _unit_en(m["unit"]))),
    _rule(r"\bthe\s+(?P<unit>week|month|quarter|year)\s+before\s+(?P<which>last)\b", lambda m, now: calendar(now, m["unit"], 2)),
    _rule(rf"\b{_EDGE_EN}(?:(?P<which>last|this)\s+month|{_EN_MONTH}(?:,?\s+{_YEAR})?)\b", _edge_en),
    _rule(rf"\b(?:the\s+)?(?P<half>first|second)\s+half\s+of\s+(?:{_YEAR}|(?P<which>last|this)\s+year)\b|\bH(?P<number>[12])\s+(?:of\s+)?(?:(?P<year2>20\d\d)|(?P<which2>last|this)\s+year)\b", _half_en),
    _rule(rf"\b{_EN_MONTH}\s*(?=的|份|里)", _date_en, relative=False),
    _rule(r"(?<![\d/])(?P<one>\d{1,2})/(?P<two>\d{1,2})/(?P<year>(?:19|20)\d\d)(?![\d/])", lambda m, now: day_in_any_order(int(m["year"]), int(m["one"]), int(m["two"]), now), relative=False),
    _rule(r"\b(?P<which>last|past|previous|this|the current|current)\s+(?P<unit>weekend|week|month|year|quarter)\b(?!\s+(?:end|day)s?\b)", _period_en),
    _rule(r"\b(?:in|over|during|within)\s+the\s+(?P<which>past|last)\s+(?P<unit>day|hour)\b", lambda m, now: past(now, 1, m["unit"].lower())),
    _rule(rf"\b(?:(?P<which>last|past|previous|this)\s+|(?<=\bon\s)|{_PREPOSITION}){_EN_WEEKDAY}\b{_EN_PART}", _weekday_en),
    _rule(rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{_EN_MONTH}(?:,?\s+{_YEAR})?\b", _date_en, relative=False),
    _rule(rf"\b{_EN_MONTH}\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)(?:,?\s+{_YEAR})?", _date_en, relative=False),
    _rule(rf"\b{_EN_MONTH},?\s+(?:of\s+)?{_YEAR}\b", _date_en, relative=False),
    _rule(rf"(?:{_PREPOSITION}|\b(?:last|this)\s+){_EN_MONTH}\b(?!\s+(?:order|we|you|i)\b)", _date_en, relative=False),
    _rule(rf"\bQ(?P<quarter>[1-4])(?:\s+(?:of\s+)?{_YEAR})?\b", _half_or_quarter, relative=False),
    _rule(rf"{_PREPOSITION}{_YEAR}\b", lambda m, now: year_of(int(m["year"]), now), relative=False),
)  # fmt: skip

_TITLE = re.compile(r"《[^》]*》|“[^“”]{1,80}”|「[^「」]{1,80}」|『[^『』]{1,80}』|\"[^\"]{1,80}\"")
_RANGE_ZH = re.compile(
    r"(?P<lead>从|自|在)?(?P<a>.{1,14}?)(?:到|至|～|~|—|-)(?P<b>.{1,14}?)(?=之间|期间|的|，|,|。|[？?]|$|有|我|你|都|这)"
)
_RANGE_EN = re.compile(
    r"\b(?P<lead>between|from)\s+(?P<a>.{2,24}?)\s+(?:and|to|until|till|through)\s+(?P<b>.{2,24})",
    re.IGNORECASE,
)
_SINCE_ZH = re.compile(r"\s*(?:以来|至今|到现在|起|开始|到今天)")
_AFTER_ZH = re.compile(r"\s*(?:之后|以后|后(?![台端来面天续勤备]))")
_BEFORE_ZH = re.compile(r"\s*(?:之前|以前|前(?![台端面后天提往景沿]))")
_UNTIL_ZH = re.compile(r"截[至止]到?\s*$")
_LEAD_EN = re.compile(
    r"\b(?P<word>since|after|later\s+than|before|until|till|prior\s+to|earlier\s+than)\s+(?:the\s+)?(?:start\s+of\s+|end\s+of\s+)?$",
    re.IGNORECASE,
)


def _first(question: str, now: datetime) -> tuple[datetime, datetime, int, int, bool] | None:
    """The first time that is named, the longest of those that begin there."""
    best: tuple[datetime, datetime, int, int, bool] | None = None
    for pattern, read, relative in _RULES:
        for found in pattern.finditer(question):
            stretch = read(found, now)
            if stretch is None or found.start() == found.end():
                continue
            start, stop = found.span()
            if best is None or (start, -stop) < (best[2], -best[3]):
                best = (*stretch, start, stop, relative)
            break
    return best


def _open_ended(
    question: str, begin: datetime, end: datetime, start: int, stop: int, *, relative: bool
) -> TimeRange:
    """The stretch, or all before, after or since it."""
    after: datetime | None = begin
    before: datetime | None = end
    lead = _LEAD_EN.search(question[:start])
    if lead is not None:
        start, word = lead.start(), lead["word"].lower()
        if word == "since":
            before = None
        elif word.startswith(("after", "later")):
            after, before = end, None
        else:  # until a day includes it
            after, before = None, end if word.startswith(("until", "till")) else begin
    until = _UNTIL_ZH.search(question[:start])
    if until is not None:
        start, after, before = until.start(), None, end
    for pattern, bounds in (
        (_SINCE_ZH, (begin, None)),
        (_AFTER_ZH, (end, None)),
        (_BEFORE_ZH, (None, begin)),
    ):
        behind = pattern.match(question, stop)
        if behind is not None and not question[start:stop].endswith(("前", "内", "来")):
            stop, (after, before) = behind.end(), bounds
            break
    return TimeRange(after, before, question[start:stop], (start, stop), relative)


def _two_ends(question: str, now: datetime) -> TimeRange | None:
    """从三月到五月, between Monday and Friday: from the beginning of one until the end of the other."""
    for pattern in (_RANGE_EN, _RANGE_ZH):
        for found in pattern.finditer(question):
            high = _first(_led(found["b"]), now)
            low = _first(_led(found["a"]), now)
            if high is not None and low is not None and low[0] >= high[1]:
                low = _first(_led(found["a"]), high[0])  # the one before it
            if low is None or high is None or low[0] >= high[1]:
                continue
            start = found.start() if found["lead"] else found.start("a") + low[2] - _added(found["a"])
            stop = found.start("b") + high[3] - _added(found["b"])
            return TimeRange(low[0], high[1], question[start:stop], (start, stop), low[4] and high[4])
    return None


def _led(text: str) -> str:
    """A time as it would stand after a preposition, which English weekdays, months and years need."""
    return f"in {text}" if _added(text) else text


def _added(text: str) -> int:
    return len("in ") if text[:1].isascii() else 0
