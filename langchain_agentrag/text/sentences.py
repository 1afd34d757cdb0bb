"""Sentence, clause, line and word boundaries in Chinese and English, and places where a text must not be cut."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

WIDE: Final = "\u2e80"
"""First character of the CJK blocks."""

_CLOSERS: Final = "\"'”’»›)）】』」》〉］｝\\]}＂"
_CLOSING_PUNCTUATION: Final = frozenset("。！？；，、：．…｡､」』”’）】》〉］｝〕〗〙〛％‰")
_SENTENCE_END = re.compile(rf"(?:[。！？；…｡．]+|[!?]+|\.+)[!?。！？…]*[{_CLOSERS}]*")
_CLAUSE_END = re.compile(rf"[，、：､—]+[{_CLOSERS}]*|(?<![,;:])[,;:]++[{_CLOSERS}]*(?=[\s\[{{\"])")
_SPACE = re.compile(r"\s+")
_NON_SPACE = re.compile(r"\S")
_FULL_STOPS: Final = frozenset("。！？；…｡．")
_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|sr|jr|vs|etc|eg|ie|e\.g|i\.e|cf|al|fig|figs|eq|no|nos|vol|pp|ed|eds|ch|sec|inc|"
    r"ltd|co|corp|dept|est|approx|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec|u\.s|a\.m|p\.m)|\b[a-z]|(?:^|\n)\s*\d+)$",
    re.IGNORECASE,
)
_LIST_MARK = re.compile(r"\s*(?:[-*+•·>|#]|\d{1,9}[.)、]|[（(]?[一二三四五六七八九十]{1,3}[、.)）])")

_LOOK_BACK = 64  # characters; how far before a range a run of punctuation may begin that ends inside it
_MAX_UNBROKEN = 32  # characters; longest sequence kept whole: family emoji have 7 characters, words up to 30
_WRAP_WIDTHS = range(30, 140)  # columns at which editors and mail programs wrap a paragraph


def sentence_ends(text: str, after: int, to: int) -> Iterator[int]:
    """Yield positions in (after, to] directly after a sentence, with its closing quotes and brackets."""
    for match in _SENTENCE_END.finditer(text, max(0, after - _LOOK_BACK), min(len(text), to + _LOOK_BACK)):
        if after < match.end() <= to and _ends_sentence(text, match):
            yield match.end()


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    mark, following = text[match.start()], text[match.end() : match.end() + 1]
    if mark in _FULL_STOPS or (following >= WIDE and (mark != "." or text[match.start() - 1 : match.start()] >= WIDE)):
        return True
    if following and not following.isspace():
        return False
    if mark != ".":
        return True
    upcoming = text[match.end() : match.end() + 4].lstrip()
    return not upcoming[:1].islower() and not _ABBREVIATION.search(text[max(0, match.start() - 12) : match.start()])


def clause_ends(text: str, after: int, to: int) -> Iterator[int]:
    """Yield positions in (after, to] directly after a comma, colon or dash."""
    for match in _CLAUSE_END.finditer(text, max(0, after - _LOOK_BACK), min(len(text), to + _LOOK_BACK)):
        if after < match.end() <= to:
            yield match.end()


def space_ends(text: str, after: int, to: int) -> Iterator[int]:
    """Yield positions in (after, to] directly after white space."""
    for match in _SPACE.finditer(text, after, to):
        if match.end() > after:
            yield match.end()


def line_ends(text: str, after: int, to: int, *, soft: bool) -> Iterator[int]:
    """Yield positions in (after, to] directly after a line break, the last first.

    Args:
        text: The text.
        after: Start of the range, exclusive.
        to: End of the range, inclusive.
        soft: Only breaks that wrap a paragraph; otherwise only those after complete lines.
    """
    return (end for end in all_line_ends(text, after, to) if _is_wrapped(text, end - 1) is soft)


def all_line_ends(text: str, after: int, to: int) -> Iterator[int]:
    """Yield positions in (after, to] directly after any line break, the last first."""
    position = text.rfind("\n", after, to)
    while position >= 0:
        yield position + 1
        position = text.rfind("\n", after, position)


def _is_wrapped(text: str, newline: int) -> bool:
    """Return whether a line break only wraps a paragraph: an unfinished long line, then its continuation."""
    start = text.rfind("\n", max(0, newline - _WRAP_WIDTHS.stop), newline) + 1
    line = text[max(start, newline - _WRAP_WIDTHS.stop) : newline].rstrip()
    following = text[newline + 1 : newline + 9]
    if not line or not following.strip() or "\n" in following[:1] or _LIST_MARK.match(following):
        return False
    width = sum(2 if char >= WIDE else 1 for char in line)
    if width not in _WRAP_WIDTHS:
        return False
    last, first = line[-1], following.lstrip()[:1]
    return (last.isalnum() or last in ",，、;；-") and (first >= WIDE or first.islower() or last in ",，、")


def starts_with_closing_punctuation(text: str, position: int) -> bool:
    """Return whether a chunk that starts here, or after the white space here, starts with closing punctuation."""
    if text[position : position + 1].isspace():
        match = _NON_SPACE.search(text, position, position + 1000)
        position = match.start() if match else position
    return position < len(text) and text[position] in _CLOSING_PUNCTUATION


def splits_grapheme(text: str, position: int) -> bool:
    """Return whether a cut here would split what a reader sees as one character (a grapheme cluster)."""
    if not 0 < position < len(text):
        return False
    before, after = text[position - 1], text[position]
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    return (
        after == "\u200d"
        or before == "\u200d"
        or "\ufe00" <= after <= "\ufe0f"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
        or "\udc00" <= after <= "\udfff"
        or unicodedata.category(after) in ("Mn", "Me", "Mc")
        or _splits_flag(text, position)
    )


def _splits_flag(text: str, position: int) -> bool:
    """Flags are pairs of regional indicators: count those before the position to find where pairs begin."""
    if not "\U0001f1e6" <= text[position] <= "\U0001f1ff":
        return False
    begin = position
    while begin > max(0, position - _MAX_UNBROKEN) and "\U0001f1e6" <= text[begin - 1] <= "\U0001f1ff":
        begin -= 1
    return (position - begin) % 2 == 1


def _splits_word(text: str, position: int) -> bool:
    before, after = text[position - 1], text[position]
    return before.isalnum() and after.isalnum() and before < WIDE and after < WIDE


def fallback_cut(text: str, after: int, to: int) -> int:
    """Return the last position in (after, to] where a text without boundaries may be cut."""
    lowest = max(after, to - _MAX_UNBROKEN)
    positions = [position for position in range(to, lowest, -1) if not splits_grapheme(text, position)]
    for position in positions:
        if not starts_with_closing_punctuation(text, position) and not _splits_word(text, position):
            return position
    return positions[0] if positions else to
