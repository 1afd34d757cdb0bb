"""Rules that read Chinese time expressions: 上上周五, 半年前, 去年年底, 二〇二四年二月, 今年中秋. Pure."""

from __future__ import annotations

import re
from datetime import date, datetime
from functools import lru_cache

from langchain_agentrag.query.calendar_ranges import (
    DAY,
    Interval,
    around_a_year_ago,
    calendar_day,
    calendar_unit,
    calendar_years,
    day_part,
    days,
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
from langchain_agentrag.text.numerals import CHINESE_DIGITS

_COUNT = r"(?P<n>\d{1,3}|[一二两俩三四五六七八九十]{1,3}|[半几])"
_UNIT = r"(?P<unit>分钟|小时|钟头|天|日|周|星期|礼拜|月|年)"
_WEEK = r"(?:周|星期|礼拜)"
_DIGIT_YEAR = r"(?:19|20)\d{2}|(?<![\d.])0\d|一九[〇零○一二三四五六七八九]{2}|二[〇零○][〇零○一二三四五六七八九]{2}"
_NAMED_YEAR = r"大前|(?<!如)今|(?<![失过])去|(?<![目之以当此先年提日天月])前|(?<![日基版文])本|上一"
_YEAR = rf"(?:(?P<year>{_DIGIT_YEAR}|{_NAMED_YEAR})\s*年(?![轻龄华纪糕幼迈级]))"
_DAY_PART = r"(?P<part>凌晨|早上|上午|早晨|中午|下午|傍晚|晚上|夜里)?"
_MONTH_PART = r"(?P<edge>初|上旬|中旬|底|末|下旬)"
_NUMBER = r"\d{1,2}|[一二三四五六七八九十]{1,3}"
_CENTURY = r"(?:(?P<century>上个?|本|二?十[一二三四五六七八九]?|1\d|2[01])世纪)"
_TO = r"\s*(?:到|至|～|~|—|–|-)\s*"
_QUARTERS = {"一": 1, "二": 2, "三": 3, "四": 4, "1": 1, "2": 2, "3": 3, "4": 4}
_QUARTER = r"第?(?P<quarter>[一二三四1-4])个?季度"
_YEARS_AGO = {"今": 0, "本": 0, "去": 1, "上一": 1, "前": 2, "大前": 3}
_PERIOD = r"(?P<which>(?<![早晚线网路以史基际])上{1,3}一?个?|这个?|(?<![日基版文])本)"
_UNITS = {
    "分钟": "minute", "小时": "hour", "钟头": "hour", "天": "day", "日": "day", "周": "week", "星期": "week",
    "礼拜": "week", "月": "month", "年": "year",
}  # fmt: skip
_DAYS_AGO = {"今天": 0, "今日": 0, "昨天": 1, "昨日": 1, "前天": 2, "前日": 2, "大前天": 3}
_WEEKDAYS = {char: place for place, char in enumerate("一二三四五六日")} | {"天": 6} | {
    str(number): number - 1 for number in range(1, 7)
}  # fmt: skip
_RULE_QUESTION = re.compile(r"可以|可不可以|能否|能不能|是否|怎么|如何|几点|营业|开门|上班吗|休息吗|放假吗|放几天")
"""A question about every such day (周日可以办理吗), unless `_HAPPENED` also matches."""
_HAPPENED = re.compile(r"[过来]|了(?!吗)|之[前后]|以[前后]|[的至]")

_FIXED_FESTIVALS = {  # month, day, number of days
    "国庆": (10, 1, 7), "元旦": (1, 1, 1), "五一": (5, 1, 5), "劳动节": (5, 1, 5), "六一": (6, 1, 1), "儿童节": (6, 1, 1),
    "情人节": (2, 14, 1), "妇女节": (3, 8, 1), "双十一": (11, 11, 1), "双11": (11, 11, 1), "双十二": (12, 12, 1),
    "平安夜": (12, 24, 1), "圣诞": (12, 25, 1), "万圣节": (10, 31, 1),
}  # fmt: skip
_LUNAR_FESTIVALS = {  # month and day of the lunar calendar, days from it to the first of the festival, number of days
    "春节": (1, 1, -1, 8), "除夕": (1, 1, -1, 1), "大年初一": (1, 1, 0, 1), "元宵": (1, 15, 0, 1), "端午": (5, 5, 0, 1),
    "七夕": (7, 7, 0, 1), "中秋": (8, 15, 0, 1), "重阳": (9, 9, 0, 1),
}  # fmt: skip
_QINGMING = "清明"  # a solar term: the day is not fixed
_FESTIVAL = rf"(?P<festival>{'|'.join((*_FIXED_FESTIVALS, *_LUNAR_FESTIVALS, _QINGMING))})"
_LUNAR_YEARS = range(1901, 2100)  # that the lunar calendar is computed for


@lru_cache(maxsize=8)
def _asks_for_rule(question: str) -> bool:
    return bool(_RULE_QUESTION.search(question)) and not _HAPPENED.search(question)


def _periods_ago(which: str) -> int:
    """Return how many weeks, months or quarters back 上, 上上 or 上个 is."""
    return which.count("上")


def _year_of(match: re.Match[str], now: datetime) -> int | None:
    """Return the year in digits, in Chinese digits, or of 今, 去, …; None without a year."""
    text = match.groupdict().get("year")
    if text is None:
        return None
    if text in _YEARS_AGO:
        return now.year - _YEARS_AGO[text]
    number = int("".join(str(CHINESE_DIGITS.get("〇" if char == "○" else char, char)) for char in text))
    return number if len(text) > 2 else 2000 + number  # noqa: PLR2004


def _ago(match: re.Match[str], now: datetime) -> Interval | None:
    unit = _UNITS[match["unit"]]
    if match["n"] == "半":
        return half_unit_ago(now, unit)
    return some_units_ago(now, unit) if match["n"] == "几" else units_ago(now, read_count(match["n"]), unit)


def _last(match: re.Match[str], now: datetime) -> Interval:
    unit = _UNITS[match["unit"]]
    if match["n"] == "半":
        halves = {"year": (6, "month"), "month": (15, "day"), "day": (12, "hour"), "hour": (30, "minute")}
        return last_units(now, *halves.get(unit, (1, unit)))
    return last_units(now, read_count(match["n"]), unit)


def _weekday(match: re.Match[str], now: datetime) -> Interval | None:
    which, weekday = match["which"], _WEEKDAYS[match["weekday"]]
    if which:
        return day_part(match, weekday_of_week(now, weekday, _periods_ago(which)))
    if _asks_for_rule(match.string):
        return None
    return day_part(match, latest_weekday(now, weekday, today=True))


def _weekend(match: re.Match[str], now: datetime) -> Interval:
    back = _periods_ago(match["which"])
    return weekday_of_week(now, 5, back)[0], weekday_of_week(now, 6, back)[1]


def _date(match: re.Match[str], now: datetime) -> Interval | None:
    year, month = _year_of(match, now), read_count(match["month"])
    of_another_year = (
        year is None and match.string[max(0, match.start() - 1) : match.start()] == "年"
    )  # 明年三月, 康熙三年五月
    if of_another_year or not 1 <= month <= 12:  # noqa: PLR2004
        return None
    if match["day"]:
        return day_part(match, latest_day(now, month, read_count(match["day"]), year))
    return month_part(match, latest_month(now, month, year))


def _days_of_month(match: re.Match[str], now: datetime) -> Interval | None:
    month, day, last = (read_count(match[name]) for name in ("month", "day", "last_day"))
    return days_of_month(now, month, day, last, _year_of(match, now))


def _day_of_named_month(match: re.Match[str], now: datetime) -> Interval | None:
    return calendar_day(*month_before(now, _periods_ago(match["which"])), read_count(match["day"]), now)


def _half_year(match: re.Match[str], now: datetime) -> Interval:
    return latest_months(now, 1 if match["half"] in "上前" else 7, 6, _year_of(match, now))


def _quarter(match: re.Match[str], now: datetime) -> Interval:
    return latest_months(now, 3 * _QUARTERS[match["quarter"]] - 2, 3, _year_of(match, now))


def _bare_month_part(match: re.Match[str], now: datetime) -> Interval:
    """Return the third of this month that 月初, 月中 or 月底 names, or of the last month if it has not begun."""
    part = month_part(match, calendar_unit(now, "month", 0))
    return part if part[0] <= now else month_part(match, calendar_unit(now, "month", 1))


def _years(match: re.Match[str], now: datetime) -> Interval | None:
    return days_between(
        calendar_years(int(match["first_year"]), 1, now), calendar_years(int(match["last_year"]), 1, now)
    )


def _decade(match: re.Match[str], now: datetime) -> Interval:
    if match["year"]:
        return calendar_years(int(match["year"]), 10, now)
    tens = match["tens"][0]
    first = _first_year(match["century"] or "上") - 1
    return calendar_years(first + 10 * int(CHINESE_DIGITS.get(tens, tens)), 10, now)


def _first_year(century: str) -> int:
    """Return the first year of 上, 本, 二十 or 19世纪."""
    named = {"上": 20, "上个": 20, "本": 21}
    return 100 * (named.get(century) or read_count(century)) - 99


def _festival(match: re.Match[str], now: datetime) -> Interval | None:
    """Return the days of a festival; without a year the latest that has begun."""
    year = _year_of(match, now)
    if year is None and _asks_for_rule(match.string):
        return None
    for one in (year,) if year else (now.year, now.year - 1):
        interval = _festival_of_year(match["festival"], one, now)
        if year or (interval is not None and interval[0] <= now):
            return interval
    return None


def _festival_of_year(name: str, year: int, now: datetime) -> Interval | None:
    if name in _FIXED_FESTIVALS:
        month, day, count = _FIXED_FESTIVALS[name]
        return days(date(year, month, day), count, now)
    if year not in _LUNAR_YEARS:
        return None
    offset, count = _LUNAR_FESTIVALS[name][2:] if name in _LUNAR_FESTIVALS else (0, 1)
    return days(_lunar_day(name, year) + offset * DAY, count, now)


@lru_cache(maxsize=256)
def _lunar_day(festival: str, year: int) -> date:
    """Return the day of a festival of the lunar calendar, or of a solar term."""
    from lunar_python import Lunar  # type: ignore[import-untyped, import-not-found, unused-ignore]

    if festival in _LUNAR_FESTIVALS:
        solar = Lunar.fromYmd(year, *_LUNAR_FESTIVALS[festival][:2]).getSolar()
    else:
        solar = Lunar.fromYmd(year, 1, 1).getJieQiTable()[festival]
    return date(solar.getYear(), solar.getMonth(), solar.getDay())


_NO_MONTH = r"(?!度|薪|租|饼|供|天|历|光|革命|是你|街|花(?![了费掉])|流火|怀胎|球)"
"""Behind 月: another word or a name (月薪, 十月革命, 三月街)."""
_NO_EDGE = "0-9一二两三四五六七八九十百千万几每全整个多数半少青成学周历往近当"
"""Not before 年初, 月底 and the like: 三年中, 每月底, 周年末."""
_YEAR_EDGE = (
    r"(?P<edge>初(?![一二三四五六七八九十中级步始期次衷版稿心赛审试])|底(?![层部线价薪盘])|末(?![端尾班])"
    r"|中(?=的|时|[，,。？?]|总结|评审|复盘|考核|大促|盘点|会议|$))"
)

CHINESE_RULES = (
    rule(rf"(?:{_YEAR}\s*的?)?\s*(?<![\d.每])(?P<month>\d{{1,2}}|[一二三四五六七八九十]{{1,2}})\s*月(?:份)?(?:{_MONTH_PART}|\s*(?P<day>{_NUMBER})\s*[日号])?{_DAY_PART}{_NO_MONTH}", _date, relative=False),
    rule(rf"(?:{_YEAR}\s*的?)?\s*(?<![\d.每])(?P<month>\d{{1,2}}|[一二三四五六七八九十]{{1,2}})\s*月\s*(?P<day>{_NUMBER})\s*[日号]?{_TO}(?P<last_day>{_NUMBER})\s*[日号]", _days_of_month, relative=False),
    rule(rf"{_PERIOD}月(?:份)?的?\s*(?P<day>{_NUMBER})\s*[日号]", _day_of_named_month),
    rule(rf"(?<![\d一二三四五六七八九十月每第])(?P<day>{_NUMBER})\s*[日号](?=(?:那天|当天|早上|上午|中午|下午|晚上|之前|以前|之后|以后|以来|的?(?:例会|会议|邮件|日志|记录|通知|消息)))", lambda m, now: latest_day_of_month(now, read_count(m["day"]))),
    rule(r"(?P<day>今|昨|前)(?P<part>晚|早)(?!上)", lambda m, now: day_part(m, days_ago(now, "今昨前".index(m["day"])))),
    rule(rf"(?P<day>大前天|今天|今日(?!头条)|昨天|昨日|前天|前日)的?{_DAY_PART}", lambda m, now: day_part(m, days_ago(now, _DAYS_AGO[m["day"]]))),
    rule(rf"(?<!每)(?<!每个)(?P<which>上{{1,3}}个?|这个?|本)?{_WEEK}(?P<weekday>[一二三四五六日天])(?![年月个])(?:的)?{_DAY_PART}", _weekday),
    rule(rf"{_PERIOD}{_WEEK}末", _weekend),
    rule(rf"{_PERIOD}{_WEEK}", lambda m, now: calendar_unit(now, "week", _periods_ago(m["which"]))),
    rule(rf"(?:{_PERIOD}|当)月(?!球|亮|饼|薪|光|经)(?:份)?的?{_MONTH_PART}?", lambda m, now: month_part(m, calendar_unit(now, "month", _periods_ago(m["which"] or "")))),
    rule(rf"(?<![{_NO_EDGE}岁明日满蜜])月(?P<edge>初|底|末|中旬|上旬|下旬)(?![一二三四五六七八九十])", _bare_month_part),
    rule(rf"(?:{_YEAR}的?)?(?<!每)(?P<half>[上下])半年", _half_year),
    rule(rf"{_YEAR}的?(?P<half>[前后])半年", _half_year),
    rule(rf"(?:{_YEAR}的?)?(?<!每){_QUARTER}", _quarter, relative=False),
    rule(rf"{_YEAR}的?Q(?P<quarter>[1-4])(?![\d.])", _quarter, relative=False),
    rule(rf"{_PERIOD}季度", lambda m, now: calendar_unit(now, "quarter", _periods_ago(m["which"]))),
    rule(rf"{_YEAR}的?年?{_YEAR_EDGE}", lambda m, now: year_part(m, _year_of(m, now), now)),
    rule(rf"(?<![{_NO_EDGE}去今前本年])年{_YEAR_EDGE}", lambda m, now: year_part(m, None, now)),
    rule(r"(?:去年|上年)的?(?:这个?时候|此时|同期|今天|这时)", lambda _, now: around_a_year_ago(now)),
    rule(rf"(?P<year>{_NAMED_YEAR})年(?![轻龄华纪糕幼迈级])", lambda m, now: calendar_unit(now, "year", _YEARS_AGO[m["year"]])),
    rule(rf"(?P<year>{_DIGIT_YEAR})\s*年(?![级内期])", lambda m, now: calendar_years(_year_of(m, now) or now.year, 1, now), relative=False),
    rule(rf"(?P<first_year>(?:19|20)\d\d)年?{_TO}(?P<last_year>(?:19|20)\d\d)年", _years, relative=False),
    rule(rf"(?:{_CENTURY}的?)?(?:(?P<tens>[二三四五六七八九]十|[2-9]0)年代|(?P<year>(?:19|20)\d0)年代)", _decade, relative=False),
    rule(rf"{_CENTURY}(?![一二三四五六七八九\d])", lambda m, now: calendar_years(_first_year(m["century"]), 100, now), relative=False),
    rule(rf"{_YEAR}的?{_FESTIVAL}节?", _festival, relative=False),
    rule(rf"(?<![每逢到十第\d一二三四五六七八九]){_FESTIVAL}节?(?=的|期间|假期|那天|当天|时候|当晚|之[前后]|以[前后]|以来|前(?!夕)|后)", _festival, relative=False),
    rule(rf"(?:最近|过去|近|(?<!提)前(?=.{{1,4}}(?:天|周|星期|礼拜|个月))|这)的?{_COUNT}个?{_UNIT}(?:来|内|里|之内|以来)?", _last),
    rule(rf"(?<![满每过超哪某同第\d百千万亿几]){_COUNT}个?{_UNIT}(?:之|以)?前(?![往后途景])", _ago),
)  # fmt: skip
