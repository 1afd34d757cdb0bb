"""Numbers in their other form: 30 is 三十, 2024年 is 二〇二四年. For queries only, so the index stays as it is."""

from __future__ import annotations

import re

_DIGITS = {character: value for value, character in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
_MYRIAD = 10_000
_LONGEST = 8  # digits; a longer number is a code
_YEAR = 4  # digits
_AFTER = "年月日号天点条章款"  # what makes a number of a single figure
_ARABIC = re.compile(r"(?<![A-Za-z0-9_.,:/+-])[0-9]+(?![A-Za-z0-9_]|[.,:/+-][0-9])")
_HAN = re.compile(f"[{''.join(_DIGITS)}{''.join(_UNITS)}]+")


def number_variants(folded: str) -> list[str]:
    """The numbers of a folded, simplified text as they are written in the other way, with 年, 月 … where it matters."""
    found: dict[str, None] = {}
    for match in _ARABIC.finditer(folded):
        after = folded[match.end() : match.end() + 1]
        found |= dict.fromkeys(_written(match[0], after if after and after in _AFTER else ""))
    for match in _HAN.finditer(folded):
        after = folded[match.end() : match.end() + 1]
        if (value := _value(match[0], followed=bool(after) and after in _AFTER)) is not None:
            found[value] = None
    return list(found)


def _written(digits: str, after: str) -> list[str]:
    """An Arabic number in characters: a year figure by figure, any other by its value."""
    if len(digits) == _YEAR and after == "年":
        figures = "".join("零一二三四五六七八九"[int(digit)] for digit in digits)
        return [figures + "年", figures.replace("零", "〇") + "年"]
    number = int(digits) if len(digits) <= _LONGEST and digits == str(int(digits)) else 0
    if number >= _UNITS["十"] or (number and after):
        return [_in_characters(number) + after]
    return []


def _value(text: str, *, followed: bool) -> str | None:
    """A number in characters as digits; None for a word that only looks like one: 万一, 三三两两."""
    if all(character in _DIGITS for character in text):
        if (len(text) >= _YEAR and "两" not in text) or (followed and text != "零"):
            return "".join(str(_DIGITS[character]) for character in text)
        return None
    total = section = figure = 0
    for character in text:
        if character in _DIGITS:
            figure = _DIGITS[character]
        elif (unit := _UNITS[character]) >= _MYRIAD:
            total, section, figure = total + (section + figure) * unit, 0, 0
        else:
            section, figure = section + (figure or 1) * unit, 0
    number = total + section + figure
    canonical = text.replace("两", "二").replace("〇", "零")
    return (
        str(number)
        if number and _in_characters(number) in {canonical, canonical.removeprefix("一")}
        else None
    )


def _in_characters(number: int) -> str:
    if number >= _MYRIAD:
        unit, sign = (_UNITS["亿"], "亿") if number >= _UNITS["亿"] else (_MYRIAD, "万")
        high, low = divmod(number, unit)
        zero = "零" if 0 < low < unit // 10 else ""
        return _in_characters(high) + sign + (zero + _in_characters(low) if low else "")
    written, waiting = "", False
    for power, sign in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        figure = number // power % 10
        if figure:
            written += ("零" if waiting and written else "") + "零一二三四五六七八九"[figure] + sign
        waiting = not figure
    return written.removeprefix("一") if written.startswith("一十") else written
