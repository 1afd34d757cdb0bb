"""Chinese and English numerals: read as values, written in Chinese, and the other written form of a query's numbers.

The only place where numerals are read. Libraries looked at and not used: cn2an reads 三三两两 as 3322, decimals as
floats and rejects 俩; word2number reads "2 million" as 1000000 and "two dozen" as 2; text2num knows no "dozen" and no
Chinese; num2words 0.5 writes no Chinese; Babel formats digits only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

MAX_NUMERAL = 280
"""Longest numeral that is read, in characters; its value, times any scale and unit, is within the range of a float."""

CHINESE_DIGITS = {
    digit: value
    for value, digits in enumerate("零〇 一壹 二两贰 三叁 四肆 五伍 六陆 七柒 八捌 九玖".split())  # noqa: SIM905
    for digit in digits
}
CHINESE_UNITS = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1_000, "仟": 1_000}
_LARGE_UNITS = {"万": 10**4, "亿": 10**8}

_ENGLISH_WORDS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety""".split()  # noqa: SIM905
ENGLISH_NUMBERS: dict[str, int] = dict(zip(_ENGLISH_WORDS, (*range(21), *range(30, 100, 10)), strict=True))
_ENGLISH_MULTIPLIERS = {"hundred": 100, "dozen": 12}  # of the number word before them only
_ENGLISH_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}

SCALES = {**CHINESE_UNITS, **_LARGE_UNITS, "万亿": 10**12, **_ENGLISH_MULTIPLIERS, **_ENGLISH_SCALES, "k": 1_000}
"""Factor of a scale word behind digits: 3万, 2 million, 5k."""

_WRITTEN_DIGITS = "零一二三四五六七八九"


def read_chinese(numeral: str) -> Fraction | None:
    """Return the value of a Chinese numeral, also with decimals (三点五) or digit by digit (二〇二四).

    Args:
        numeral: Characters of `CHINESE_DIGITS` and `CHINESE_UNITS`, 万, 亿 and 点 only.

    Returns:
        The value; None if 点 is not followed by digits alone, or the numeral is longer than `MAX_NUMERAL`. A numeral
        in wrong order (三十二百) has some value too, see `read_chinese_strictly`.
    """
    if len(numeral) > MAX_NUMERAL:
        return None
    integer, _, decimals = numeral.partition("点")
    if any(character not in CHINESE_DIGITS for character in decimals):
        return None
    fraction = Fraction(int(transcribe_digits(decimals) or 0), 10 ** len(decimals))
    return _read_chinese_integer(integer) + fraction


def read_chinese_strictly(numeral: str) -> int | None:
    """Return the value of a Chinese whole number in the usual form; None for words like 万一, 三三两两 and 二三十."""
    if len(numeral) > MAX_NUMERAL:
        return None
    value = _read_chinese_integer(numeral)
    usual = numeral.replace("两", "二").replace("〇", "零")
    return value if value and write_chinese(value) == usual else None


def _read_chinese_integer(numeral: str) -> int:
    if all(character in CHINESE_DIGITS for character in numeral):
        return int(transcribe_digits(numeral) or 0)
    total = section = digit = 0  # the section below 10,000 that 万 or 亿 multiplies
    for character in numeral:
        if character in CHINESE_DIGITS:
            digit = CHINESE_DIGITS[character]
        elif character in CHINESE_UNITS:
            section, digit = section + (digit or 1) * CHINESE_UNITS[character], 0
        else:
            unit = _LARGE_UNITS[character]
            # 两亿零五百万: the 万 multiplies its section only; 三万亿: the 亿 multiplies all before it
            before, multiplied = (total, 0) if total >= unit else (0, total)
            total, section, digit = before + (multiplied + section + digit) * unit, 0, 0
    return total + section + digit


def transcribe_digits(numeral: str) -> str:
    """Return Chinese digits one by one as Arabic digits: 二〇二四 is 2024, 〇五 is 05."""
    return "".join(str(CHINESE_DIGITS[character]) for character in numeral)


def write_chinese(number: int) -> str:
    """Return a positive whole number in Chinese: 205 is 二百零五, 12 is 十二."""
    for unit, sign in ((10**8, "亿"), (10**4, "万")):
        if number >= unit:
            high, low = divmod(number, unit)
            zero = "零" if 0 < low < unit // 10 else ""
            return write_chinese(high) + sign + (zero + write_chinese(low) if low else "")
    written, skipped_zero = "", False
    for unit, sign in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = number // unit % 10
        if digit:
            written += ("零" if skipped_zero and written else "") + _WRITTEN_DIGITS[digit] + sign
        skipped_zero = not digit
    return written.removeprefix("一") if written.startswith("一十") else written


def read_english(words: Iterable[str]) -> int:
    """Return the value of English number words: ["three", "hundred", "five"] is 305, ["million"] is 1000000.

    Args:
        words: In lower case, one number word each, without "and".
    """
    total = section = 0  # the section that "thousand", "million" or "billion" multiplies
    for word in words:
        if word in ENGLISH_NUMBERS:
            section += ENGLISH_NUMBERS[word]
        elif word in _ENGLISH_MULTIPLIERS:
            section = (section or 1) * _ENGLISH_MULTIPLIERS[word]
        else:
            total, section = total + (section or 1) * _ENGLISH_SCALES[word], 0
    return total + section


# -- the other written form of numbers in a query: 30 for 三十 ---------------------------------------------------------

_MAX_VARIANT_DIGITS = 8  # a longer number is a code
_MAX_VARIANT = 10**12  # Chinese numerals from 万亿 on have no variant
_YEAR_DIGITS = 4
_COUNTED = "(?=([年月日号天点条章款]?))"  # behind a single digit they show that it is a number
_ARABIC_NUMBER = re.compile(r"(?<![A-Za-z0-9_.,:/+-])([0-9]+)(?![A-Za-z0-9_]|[.,:/+-][0-9])" + _COUNTED)
_CHINESE_NUMBER = re.compile("([零一二三四五六七八九〇两十百千万亿]+)" + _COUNTED)


NUMERAL_CHARACTERS = frozenset("0123456789两") | CHINESE_DIGITS.keys() | CHINESE_UNITS.keys() | _LARGE_UNITS.keys()
"""Characters of which a text has at least one if it has number variants."""


def number_variants(text: str) -> list[str]:
    """Return the numbers of a query in their other written form: 三十 for 30, 二〇二四年 for 2024年, 30 for 三十.

    Only queries are expanded so, which keeps the index as it is.

    Args:
        text: Folded text in simplified characters.

    Returns:
        Each variant once, first those of Arabic numbers; with the character behind it where that decides (年, 月, …).
    """
    variants: list[str] = []
    for match in _ARABIC_NUMBER.finditer(text):
        variants += _chinese_variants(match[1], match[2])
    for match in _CHINESE_NUMBER.finditer(text):
        variants += _arabic_variants(match[1], match[2])
    return list(dict.fromkeys(variants))


def _chinese_variants(digits: str, counted: str) -> list[str]:
    """Return the Chinese forms of an Arabic number: a year digit by digit, any other by its value."""
    if len(digits) == _YEAR_DIGITS and counted == "年":
        year = "".join(_WRITTEN_DIGITS[int(digit)] for digit in digits)
        return [year + "年", year.replace("零", "〇") + "年"]
    number = int(digits) if len(digits) <= _MAX_VARIANT_DIGITS and digits == str(int(digits)) else 0
    if number >= CHINESE_UNITS["十"] or (number and counted):
        return [write_chinese(number) + counted]
    return []


def _arabic_variants(numeral: str, counted: str) -> list[str]:
    """Return the Arabic form of a Chinese number; nothing for a word that only looks like one: 万一, 三三两两."""
    if all(character in CHINESE_DIGITS for character in numeral):
        is_year_or_code = len(numeral) >= _YEAR_DIGITS and "两" not in numeral
        return [transcribe_digits(numeral)] if is_year_or_code or (counted and numeral != "零") else []
    # 一十二 is 十二
    number = read_chinese_strictly(numeral) or read_chinese_strictly(numeral.removeprefix("一"))
    return [str(number)] if number and number < _MAX_VARIANT else []
