"""Time expressions of a question in English and Chinese (last Friday, 上个月底, 从三月到五月), read as a time range. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from langchain_agentrag.query.calendar_ranges import DAY, Interval, calendar_day, calendar_months, days, rule
from langchain_agentrag.query.chinese_times import CHINESE_RULES
from langchain_agentrag.query.english_times import ENGLISH_RULES


def _iso_date(match: re.Match[str], now: datetime) -> Interval | None:
    month = int(match["month"])
    if not match["day"]:
        return calendar_months(int(match["year"]), month, 1, now) if 1 <= month <= 12 else None  # noqa: PLR2004
    return calendar_day(int(match["year"]), month, int(match["day"]), now)


_NUMERIC_RULES = (
    rule(r"(?<!\d)(?P<year>(?:19|20)\d{2})(?P<mark>[-/.])(?P<month>\d{1,2})(?:(?P=mark)(?P<day>\d{1,2}))?(?!\.?\d|/\d)", _iso_date, relative=False),
    rule(r"(?<![A-Za-z0-9_.#-])(?P<year>(?:19|20)\d\d)(?P<month>0[1-9]|1[0-2])(?P<day>[0-3]\d)(?![A-Za-z0-9_-])", _iso_date, relative=False),
)  # fmt: skip
_RULES = (*_NUMERIC_RULES, *CHINESE_RULES, *ENGLISH_RULES)
_TITLE = re.compile(r"《[^《》]{0,80}》|“[^“”]{1,80}”|「[^「」]{1,80}」|『[^『』]{1,80}』|\"[^\"]{1,80}\"")
_RANGE_ZH = re.compile(
    r"(?P<lead>从|自|在)?(?P<a>.{1,14}?)(?:到|至|～|~|—|-|[和与](?=.{1,14}?间))(?P<b>.{1,14}?)"
    r"(?=之?间|期间|的|，|,(?!\s*(?:19|20)\d\d)|。|[？?]|$|有|我|你|都|这)"
)
_RANGE_EN = re.compile(
    r"\b(?P<lead>between|from)\s+(?P<a>.{2,24}?)\s+(?:and|to|until|till|through)\s+(?P<b>.{2,24})", re.IGNORECASE
)
_NAMES_YEAR = re.compile(r"(?:19|20)\d\d|[〇零]|[今去前]年|\b(?:last|this)\s+year\b", re.IGNORECASE)
_YEAR, _MOMENT = timedelta(days=366), timedelta(microseconds=1)
_SINCE_ZH = re.compile(r"\s*(?:以来|至今|到现在|起|开始|到今天)")
_AFTER_ZH = re.compile(r"\s*(?:之后|以后|后(?![台端来面天续勤备]))")
_BEFORE_ZH = re.compile(r"\s*(?:之前|以前|前(?![台端面后天提往景沿]))")
_UNTIL_ZH = re.compile(r"截[至止]到?\s*$")
_LEAD_EN = re.compile(
    r"\b(?:(?P<since>since|(?<!week\s)(?<!weeks\s)(?<!days\s)(?:starting|beginning)(?:\s+(?:from|on|in|with))?|no\s+earlier\s+than|not\s+before)"
    r"|(?P<until>(?:up\s+)?until|till|up\s+to|(?:no|not)\s+later\s+than)"
    r"|(?P<after>after|later\s+than|newer\s+than)"
    r"|(?P<before>before|prior\s+to|earlier\s+than|older\s+than))"
    r"\s+(?:the\s+)?(?:start\s+of\s+|end\s+of\s+)?$",
    re.IGNORECASE,
)
_MAX_LEAD = 60  # characters of those words
_ONWARDS_EN = re.compile(
    r"\s+(?:onwards?|forward|(?:or|and)\s+(?:later|after|newer)|(?:to|until|till|through|and)\s+(?:now|today|date|(?:the\s+)?present|the\s+current\s+date|current\s+date))\b",
    re.IGNORECASE,
)
_OR_EARLIER_EN = re.compile(r"\s+(?:or|and)\s+(?:earlier|before|older)\b", re.IGNORECASE)
_FROM_THEN_ZH = re.compile(r"\s*[及或](?:其|之|以)?后")
_UNTIL_THEN_ZH = re.compile(r"\s*[及或](?:其|之|以)?前")
_WEEK_OF = re.compile(
    r"(?:\bweek\s+(?:of|beginning|starting|commencing)(?:\s+on)?|\bw/c)\s+(?:the\s+)?(?:\w+day,?\s+)?$", re.IGNORECASE
)
_EARLY = re.compile(r"(?:beginning|start)\s+of|初", re.IGNORECASE)
_LATE = re.compile(r"end\s+of|[底末]", re.IGNORECASE)
_FROM_ON = re.compile(r"\bfrom\s+$", re.IGNORECASE)
_ON = re.compile(r"\s+on\b(?!\s+(?:the|a|an|our|my|your)\b)", re.IGNORECASE)


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
    text, offsets = with_short_gaps(blank_titles(question))
    mention = _first_mention(text, now)
    bounds = _read_two_ends(text, mention, now)
    if bounds is None:
        if mention is None:
            return None
        bounds = _with_open_end(text, mention)
    after, before, start, stop, relative = bounds
    if offsets:
        start, stop = offsets[start], offsets[stop - 1] + 1
    return TimeRange(after, before, question[start:stop], (start, stop), relative)


def blank_titles(text: str) -> str:
    """Return a text with spaces for its titles and quotations, which name no time; the text if nothing else is left."""
    rest = _TITLE.sub(lambda title: " " * len(title[0]), text)
    return rest if any(map(str.isalnum, rest)) else text


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
    for one in _RULES:
        for match in one.pattern.finditer(text):
            interval = one.read(match, now)
            if interval is None or match.start() == match.end():
                continue
            start, stop = match.span()
            if first is None or (start, -stop) < (first.start, -first.stop):
                first = _Mention(*interval, start, stop, one.relative)
            break
    return first


def _with_open_end(text: str, mention: _Mention) -> _Bounds:
    """Return the bounds of a time, or of all before, after or since it, as the words around it say."""
    begin, end, start, stop, relative = mention
    after: datetime | None = begin
    before: datetime | None = end
    words_before = text[max(0, start - _MAX_LEAD) : start]
    week = _WEEK_OF.search(words_before)
    if week is not None and end - begin <= DAY:
        return (
            *days(begin.date() - begin.weekday() * DAY, 7, begin),
            start - len(words_before) + week.start(),
            stop,
            relative,
        )
    lead = _LEAD_EN.search(words_before)
    later = begin if _EARLY.search(text[start:stop]) else end  # after the start of March, before the end of it
    earlier = end if _LATE.search(text[start:stop]) else begin
    if lead is not None:
        bounds_of = {"since": (begin, None), "until": (None, end), "after": (later, None), "before": (None, earlier)}
        after, before = bounds_of[lead.lastgroup or ""]  # until a day includes it
        start -= len(words_before) - lead.start()
    onwards = _ONWARDS_EN.match(text, stop) or (_FROM_ON.search(words_before) and _ON.match(text, stop))
    if onwards:
        stop, after, before = onwards.end(), begin, None
    until = _UNTIL_ZH.search(text[max(0, start - _MAX_LEAD) : start])
    if until is not None:
        start, after, before = text.rindex("截", 0, start), None, end
    for pattern, bounds in (
        (_FROM_THEN_ZH, (begin, None)), (_UNTIL_THEN_ZH, (None, end)), (_OR_EARLIER_EN, (None, end)),
        (_SINCE_ZH, (begin, None)), (_AFTER_ZH, (later, None)), (_BEFORE_ZH, (None, earlier)),
    ):  # fmt: skip
        behind = pattern.match(text, stop)
        if behind is not None and not text[start:stop].endswith(("前", "内", "来")):
            stop, (after, before) = behind.end(), bounds
            break
    return after, before, start, stop, relative


def _read_two_ends(text: str, mention: _Mention | None, now: datetime) -> _Bounds | None:
    """Return the bounds of 从三月到五月 or between Monday and Friday: from the start of one to the end of the other."""
    for pattern in (_RANGE_EN, _RANGE_ZH):
        for match in pattern.finditer(text):
            last = _mention_in_group(match, "b", now)
            first = _mention_in_group(match, "a", now)
            if first is None or last is None:
                continue
            years = [bool(_NAMES_YEAR.search(match[group])) for group in ("a", "b")]
            if years == [True, False] and not last.relative:  # 去年三月到五月
                last = _mention_in_group(match, "b", min(now, first.begin + _YEAR)) or last
            elif first.begin >= last.end or (years == [False, True] and not first.relative):
                first = _mention_in_group(match, "a", last.end - _MOMENT) or first  # the one before it
            start = match.start() if match["lead"] else first.start
            in_one = mention is not None and mention.start <= start and last.stop <= mention.stop  # Q1-2019
            if in_one or first.begin >= last.end:
                continue
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
