"""Numbers of a text by value: Arabic and Chinese numerals, words, thousands, percent, units of both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

_DIGITS = {
    char: value
    for value, chars in enumerate(
        ["零〇", "一壹", "二两贰", "三叁", "四肆", "五伍", "六陆", "七柒", "八捌", "九玖"]
    )
    for char in chars
}
_SCALES = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1_000, "仟": 1_000}
_MYRIADS = {"万": 10_000, "亿": 100_000_000}
_HAN_DIGIT = "[" + "".join([*_DIGITS, *_SCALES]) + "]"
_WORDS = {
    word: value
    for value, word in enumerate(
        [
            "zero",
            "one",
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
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
        ]
    )
} | dict(
    zip(["thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], range(30, 100, 10), strict=True)
)
_ENGLISH_SCALES = {
    "hundred": 100,
    "thousand": 1_000,
    "million": 10**6,
    "billion": 10**9,
    "dozen": 12,
    "k": 1_000,
}

# The first name of a unit stands for all of them. A unit that is not here takes no part.
_UNITS = {
    name: group.split()[0]
    for group in (
        "% percent 百分点 ％", "°c ℃ 摄氏度 celsius", "mm 毫米 millimetre millimeter", "cm 厘米 公分 centimetre",
        "m 米 公尺 metre meter", "km 公里 千米 kilometre kilometer", "g 克 gram", "kg 千克 公斤 kilogram", "t 吨 ton",
        "l 升 litre liter", "ml 毫升", "s 秒 秒钟 second sec", "min 分钟 minute", "h 小时 钟头 hour", "day 天 日",
        "week 周 星期 礼拜", "month 月 个月", "year 年", "yuan 元 块 人民币 rmb cny", "usd 美元 dollar",
        "eur 欧元 euro", "mb", "gb", "kb", "v 伏 volt", "w 瓦 watt", "kw 千瓦", "rpm 转", "bar", "mpa", "hz 赫兹",
        "person 人 名 people",
    )
    for name in group.split()
}  # fmt: skip
_CURRENCIES = {"$": "usd", "¥": "yuan", "￥": "yuan", "€": "eur"}
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_UNIT_AFTER = re.compile(rf"\s?-?(?:(?P<wide>{_UNIT})(?:e?s)?(?![a-z]))", re.I)

_CODE = re.compile(
    r"(?<![\w.])(?=[\w.\-/:]*\d)(?=[\w.\-/:]*[A-Za-z])[A-Za-z0-9]+(?:[._\-/:]?[A-Za-z0-9]+)*", re.A
)
_DOTTED = re.compile(r"(?<![\w.])\d+(?:\.\d+){2,}(?![\w.])", re.A)
_AFTER_DIGITS = re.compile(r"^[\d.,]+(?:k|[a-z°℃%]{1,4})$", re.I)
_ARABIC = re.compile(
    r"(?<![\d.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?(万亿|万|亿|千|百|k\b|thousand|million|billion|dozen))?",
    re.A | re.I,
)
_CHINESE = re.compile(
    rf"百分之(?P<per>(?:{_HAN_DIGIT}|[万点])+|\d+(?:\.\d+)?)|(?P<plain>{_HAN_DIGIT}(?:{_HAN_DIGIT}|[万亿点])*)"
)
_NUMBER_WORD = "(?:" + "|".join([*_WORDS, "hundred", "thousand", "million", "billion", "dozen", "and"]) + ")"
_ENGLISH = re.compile(rf"\b{_NUMBER_WORD}(?:[\s-]+{_NUMBER_WORD})*\b", re.I)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a text.

    Attributes:
        value: Its value.
        unit: Its unit under the one name all its names share, or "".
        written: As the text has it.
        start: Where it begins, a currency sign before it included.
        end: One past its end, its unit included.
        sure: Whether it certainly counts something; "一" in 一些 and "one" in "one of them" need not.
    """

    value: Fraction
    unit: str
    written: str
    start: int
    end: int
    sure: bool = True


def codes(text: str) -> set[str]:
    """Identifiers that hold digits (E1102, v1.2.3, 10.20.30.40), in lower case; "30mm" is a number, not one."""
    found = (match[0] for pattern in (_CODE, _DOTTED) for match in pattern.finditer(text))
    return {code.lower().strip(".-/:") for code in found if not _AFTER_DIGITS.match(code)}


def quantities(text: str) -> list[Quantity]:
    """The numbers of a text in any of their forms; those inside of identifiers are left out."""
    for pattern in (_DOTTED, _CODE):
        text = pattern.sub(
            lambda found: found[0] if _AFTER_DIGITS.match(found[0]) else " " * len(found[0]), text
        )
    return [*_arabic(text), *_chinese(text), *_english(text)]


def in_one_form(text: str) -> str:
    """The text with each number written in digits and each unit under its one name; same numbers look the same."""
    pieces, place = [], 0
    for one in sorted(quantities(text), key=lambda one: (one.start, -one.end)):
        if one.sure and one.start >= place:
            pieces += [text[place : one.start], f" {float(one.value):.12g} {one.unit} "]
            place = one.end
    return "".join([*pieces, text[place:]])


def _unit(text: str, end: int) -> tuple[str, int]:
    """The unit that follows a number, and where it ends."""
    found = _UNIT_AFTER.match(text, end)
    return ("", end) if found is None else (_UNITS[found["wide"].lower()], found.end())


def _arabic(text: str) -> Iterator[Quantity]:
    for found in _ARABIC.finditer(text):
        number, scale = found[0], (found[1] or "").lower()
        digits = number[: len(number) - len(scale)].strip().replace(",", "")
        factor = (
            _MYRIADS.get(scale)
            or _SCALES.get(scale)
            or _ENGLISH_SCALES.get(scale)
            or (10**12 if scale else 1)
        )
        start, (unit, end) = found.start(), _unit(text, found.end())
        if not unit and start and text[start - 1] in _CURRENCIES:
            unit, start = _CURRENCIES[text[start - 1]], start - 1
        elif text[:start].endswith("百分之"):
            unit, start = "%", start - len("百分之")
        yield Quantity(Fraction(digits) * factor, unit, number, start, end)


def _chinese(text: str) -> Iterator[Quantity]:
    for found in _CHINESE.finditer(text):
        written = found["per"] or found["plain"]
        if written.isascii():
            continue
        value = _han_value(written)
        if value is not None:
            unit, end = ("%", found.end()) if found["per"] else _unit(text, found.end())
            sure = bool(found["per"]) or (len(written) > 1 and value > 1) or (bool(unit) and value > 1)
            yield Quantity(value, unit, found[0], found.start(), end, sure=sure)


def _han_value(written: str) -> Fraction | None:
    whole, _, decimals = written.partition("点")
    if decimals and not all(char in _DIGITS for char in decimals):
        return None
    if not any(char in _SCALES or char in _MYRIADS for char in whole):
        value = int("".join(str(_DIGITS[char]) for char in whole) or "0")
    else:
        value = _han_whole(whole)
    fraction = (
        Fraction(int("".join(str(_DIGITS[char]) for char in decimals)), 10 ** len(decimals))
        if decimals
        else 0
    )
    return Fraction(value) + fraction


def _han_whole(written: str) -> int:
    total = section = digit = 0
    for char in written:
        if char in _DIGITS:
            digit = _DIGITS[char]
        elif char in _SCALES:
            section += (digit or 1) * _SCALES[char]
            digit = 0
        else:
            scale = _MYRIADS[char]
            below = total >= scale  # 两亿零五百万: the millions are added, not multiplied
            total = total + (section + digit) * scale if below else (total + section + digit) * scale
            section = digit = 0
    return total + section + digit


def _english(text: str) -> Iterator[Quantity]:
    for found in _ENGLISH.finditer(text):
        words = [word for word in re.split(r"[\s-]+", found[0].lower()) if word != "and"]
        if not words or (words[0] not in _WORDS and re.search(r"\d\s*$", text[: found.start()])):
            continue  # "2 million" has been read
        total = current = 0
        for word in words:
            if word in _WORDS:
                current += _WORDS[word]
            elif word in {"hundred", "dozen"}:
                current = (current or 1) * _ENGLISH_SCALES[word]
            else:
                total += (current or 1) * _ENGLISH_SCALES[word]
                current = 0
        value = total + current
        unit, end = _unit(text, found.end())
        sure = value > 1 and (value > 10 or bool(unit))  # noqa: PLR2004
        yield Quantity(Fraction(value), unit, found[0], found.start(), end, sure=sure)
