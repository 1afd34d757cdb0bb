"""Numbers of a text by value: Arabic and Chinese numerals, words, thousands, percent, units of both languages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from langchain_agentrag.text.sentences import all_line_ends, clause_ends, sentence_ends
from langchain_agentrag.text.tokenizer import STOP_WORDS, to_simplified

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

# Per dimension, each unit with its names and what one of it is in the unit that the dimension is compared in. A unit
# that is not here takes no part. The "月" of a date is no duration; days and months have no fixed ratio.
_DIMENSIONS = {
    "kg": {"μg 微克": "1/1000000000", "mg 毫克 milligram": "1/1000000", "g 克 gram gramme": "1/1000", "斤": "1/2",
           "kg 千克 公斤 kilogram kilo": "1", "t 吨 ton tonne": "1000"},
    "m": {"μm 微米 micrometre micrometer": "1/1000000", "mm 毫米 millimetre millimeter": "1/1000",
          "cm 厘米 公分 centimetre centimeter": "1/100", "dm 分米": "1/10", "m 米 公尺 metre meter": "1",
          "km 公里 千米 kilometre kilometer": "1000", "英寸 inch": "0.0254", "ft 英尺 foot feet": "0.3048",
          "英里 mile": "1609.344"},
    "m2": {"平方厘米": "1/10000", "平方米 平米 sqm": "1",
           "公顷 ha hectare": "10000", "平方公里 平方千米": "1000000"},
    "l": {"ml 毫升 millilitre milliliter": "1/1000", "cl 厘升 centilitre centiliter": "1/100", "l 升 litre liter": "1",
          "立方厘米": "1/1000", "立方米": "1000"},
    "min": {"ms 毫秒 millisecond": "1/60000", "s 秒 秒钟 second sec": "1/60", "min 分钟 minute": "1",
            "h 小时 钟头 hour": "60", "day 天 日": "1440", "week 周 星期 礼拜": "10080"},
    "year": {"month 个月": "1/12", "year 年": "1"},
    "mb": {"kb": "1/1000", "mb": "1", "gb": "1000", "tb": "1000000"},
    "w": {"w 瓦 watt": "1", "kw 千瓦 kilowatt": "1000", "兆瓦 megawatt": "1000000"},
    "v": {"v 伏 volt": "1", "kv 千伏 kilovolt": "1000"},
    "bar": {"pa 帕 pascal": "1/100000", "kpa 千帕": "1/100", "bar": "1", "mpa 兆帕": "10"},
    "hz": {"hz 赫兹 赫": "1", "khz 千赫": "1000", "mhz 兆赫": "1000000", "ghz": "1000000000"},
    **{group.split()[0]: {group: "1"} for group in (
        "% percent 百分点 ％", "°c ℃ 摄氏度 celsius", "月", "yuan 元 块 人民币 rmb cny",
        "usd 美元 dollar", "eur 欧元 euro",
        "rpm 转", "person 人 名 people",
    )},
}  # fmt: skip
_UNITS = {
    name: (dimension, Fraction(ratio))
    for dimension, units in _DIMENSIONS.items()
    for names, ratio in units.items()
    for name in names.split()
}
_CURRENCIES = {"$": "usd", "¥": "yuan", "￥": "yuan", "€": "eur"}
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_UNIT_AFTER = re.compile(
    rf"\s?-?(?P<unit>{_UNIT})(?:e?s)?(?![a-z0-9])(?:(?:\s?/\s?|\s(?:per|an?)\s)(?P<per>{_UNIT})(?![a-z0-9]))?",
    re.I,
)
_PER_BEFORE = re.compile(rf"每({_UNIT})[^\d\s,，。;；、每]{{0,8}}$")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY, _YEAR = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?", r"(?P<year>1\d{3}|20\d{2})"

_CODE = re.compile(
    r"(?<![\w.])(?=[\w.\-/:]*\d)(?=[\w.\-/:]*[A-Za-z])[A-Za-z0-9]+(?:[._\-/:]?[A-Za-z0-9]+)*", re.A
)
_DOTTED = re.compile(r"(?<![\w.])\d+(?:\.\d+){2,}(?![\w.])", re.A)
_AFTER_DIGITS = re.compile(r"^[\d.,]+(?:k|[a-z°℃%]{1,4}(?:/[a-z]{1,4})?)$", re.I)
_ARABIC = re.compile(
    r"(?<![\d.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?(万亿|万|亿|千|百|k\b|thousand|million|billion|dozen))?",
    re.A | re.I,
)
_CHINESE = re.compile(
    rf"百分之(?P<per>(?:{_HAN_DIGIT}|[万点])+|\d+(?:\.\d+)?)|(?P<plain>(?!(?:(?<=\d)|(?<=\d\s))[千百]){_HAN_DIGIT}(?:{_HAN_DIGIT}|[万亿点])*)"
)
_NUMBER_WORD = "(?:" + "|".join([*_WORDS, "hundred", "thousand", "million", "billion", "dozen", "and"]) + ")"
_ENGLISH = re.compile(rf"\b{_NUMBER_WORD}(?:[\s-]+{_NUMBER_WORD})*\b", re.I)
_HAN_NUMBER = rf"(?:\d{{1,4}}|{_HAN_DIGIT}{{1,4}})"
_DATES = [
    re.compile(pattern, re.I | re.A)
    for pattern in (
        rf"(?<![\w./-]){_YEAR}(?P<mark>[-/])(?P<month>\d{{1,2}})(?P=mark)(?P<day>\d{{1,2}})(?![\w/-]|\.\d)",
        rf"(?<![\w.,]){_DAY}(?:\sof)?[\s-]{_MONTH},?[\s-]{_YEAR}(?![\w,]\d|\w)",
        rf"\b{_MONTH}\s(?:{_DAY},?\s)?{_YEAR}(?![\w,]\d|\w)",
        rf"(?:(?P<year>{_HAN_NUMBER})\s?年\s?)?(?P<month>{_HAN_NUMBER})\s?月\s?(?P<day>{_HAN_NUMBER})\s?[日号]",
    )
]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number of a text.

    Attributes:
        value: Its value as written.
        unit: What its dimension is compared in (kilograms for each mass), or "".
        written: As the text has it.
        start: Where it begins, a currency sign before it included.
        end: One past its end, its unit included.
        sure: Whether it certainly counts something; "一" in 一些 and "one" in "one of them" need not.
        ratio: What one of the unit it is written in is in `unit`.
        per: Of a rate, what the dimension it is per is compared in; "" for others.
        per_ratio: As `ratio`, for `per`.
    """

    value: Fraction
    unit: str
    written: str
    start: int
    end: int
    sure: bool = True
    ratio: Fraction = Fraction(1)
    per: str = ""
    per_ratio: Fraction = Fraction(1)

    @property
    def amount(self) -> Fraction:
        """Its value in `unit`."""
        return self.value * self.ratio

    def equals(self, other: Quantity) -> bool:
        """Whether both are one amount: in any units of one dimension, by value where one of them has no unit."""
        if not self.unit or not other.unit:
            return self.value == other.value
        if self.per and self.per == other.per:
            same = self.amount * other.per_ratio == other.amount * self.per_ratio
        else:
            same = self.amount == other.amount
        return same and self.unit == other.unit


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
    """The text with each number in digits, in one unit per dimension, and dates in one order."""
    text = with_dates_in_one_form(text)
    pieces, place = [], 0
    for one in sorted(quantities(text), key=lambda one: (one.start, -one.end)):
        if one.sure and one.start >= place:
            pieces += [text[place : one.start], f" {float(one.amount / one.per_ratio):.12g} {one.unit} "]
            place = one.end
    return "".join([*pieces, text[place:]])


def with_dates_in_one_form(text: str) -> str:
    """The text with dates (2019-03-03, 3 March 2019, March 3, 2019, 二〇一九年三月三日) written as 2019年3月3日."""
    for pattern in _DATES:
        text = pattern.sub(_date, text)
    return text


def _date(found: re.Match[str]) -> str:
    parts = found.groupdict()
    if parts.get("name"):
        month: int | None = _MONTHS.index(parts["name"][:3].lower()) + 1
    else:
        month = _whole(parts["month"])
    year, day = (_whole(parts[name]) if parts.get(name) else None for name in ("year", "day"))
    if month not in range(1, 13) or (day is not None and day not in range(1, 32)):
        return found[0]
    head, tail = (f"{year}年" if year is not None else ""), (f"{day}日" if day is not None else "")
    return f" {head}{month}月{tail} "


def _whole(written: str) -> int | None:
    value = Fraction(written) if written.isdigit() and written.isascii() else _han_value(written)
    return None if value is None else int(value)


def _quantity(text: str, value: Fraction, start: int, end: int, *, sign: str = "") -> Quantity:
    """A number with the unit behind it, else the one its sign stands for, and what it is per."""
    written, found = text[start:end], _UNIT_AFTER.match(text, end)
    name, per = (
        (found["unit"].lower(), found["per"] or "") if found else (sign and _CURRENCIES.get(sign, sign), "")
    )
    if found:
        end = found.end()
    elif sign:
        start -= len("百分之") if sign == "%" else 1
    if not per and (before := _PER_BEFORE.search(text[max(0, start - 16) : start])):
        per = before[1]
    unit, ratio = _UNITS.get(name, ("", Fraction(1)))
    per, per_ratio = _UNITS.get(per.lower(), ("", Fraction(1)))
    return Quantity(value, unit, written, start, end, ratio=ratio, per=per, per_ratio=per_ratio)


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
        before = text[: found.start()]
        sign = "%" if before.endswith("百分之") else before[-1:] if before[-1:] in _CURRENCIES else ""
        yield _quantity(text, Fraction(digits) * factor, *found.span(), sign=sign)


def _chinese(text: str) -> Iterator[Quantity]:
    for found in _CHINESE.finditer(text):
        written = found["per"] or found["plain"]
        if written.isascii():
            continue
        value = _han_value(written)
        if value is not None:
            if found["per"]:
                yield Quantity(value, "%", found[0], *found.span())
                continue
            one = _quantity(text, value, *found.span())
            yield replace(one, sure=value > 1 and (len(written) > 1 or bool(one.unit)))


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
        one = _quantity(text, Fraction(value), *found.span())
        yield replace(one, sure=value > 1 and (value > 10 or bool(one.unit)))  # noqa: PLR2004


Support = Literal["supported", "unsupported", "contradicted", "unknown"]

_SAME = 0.85  # share of a statement's terms that a passage must hold in one place and in order
_ALIKE = (
    0.6  # from which on two clauses are about the same, so that a negation of one only is a contradiction
)
_SHORTEST_QUOTE = 4

_QUOTED = re.compile(r"“([^“”]+)”|「([^「」]+)」|『([^『』]+)』|\"([^\"\n]+)\"|‘([^‘’]{6,})’|«([^«»]+)»")
_HAN_RUN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]+")
_TERM = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]+|[^\W_]+(?:['._-][^\W_]+)*")
_NEGATED_ZH = re.compile(
    r"不(?!仅|但|同|断|过|管|少|久|锈|只|妨|禁|愧|时|免|料|等式)|没(?!收|落)|未(?!来)|无(?!论|线|人机|锡|疑|非)"
    r"|非(?!常|洲)|勿|禁止|严禁|切忌|别(?=再|让|把|去|用|碰|动)|否(?!则)|拒绝"
)
_NO_NEGATION_ZH = re.compile(
    r"差不多|不得不|不可不|不能不|无不|无非|莫不|是否|能否|可否|不[^，。]{1,2}不可|说不定|要不然|对不起|了不起"
)
_NEGATED_EN = re.compile(
    r"\b(?:not|never|none|without|cannot|neither|nor|nobody|nothing|hardly|forbidden|prohibited|refuse[sd]?)\b"
    r"|n't\b|\bno\b(?!\.?\s?\d)|\b(?:fail(?:s|ed)? to|unable to)\b"
)
_NO_NEGATION_EN = re.compile(
    r"\bnot only\b|\bno longer than\b|\bno (?:more|less|fewer) than\b"
    r"|\bnot (?:uncommon|unusual|unlikely|impossible|infrequent|insignificant)"
)


def folded(text: str) -> str:
    """The text as it is compared: one width, lower case, simplified, white space and hidden characters aside."""
    plain = unicodedata.normalize("NFKC", text).lower()
    plain = "".join(
        char for char in plain if unicodedata.category(char) not in {"Cf", "Cc"} or char.isspace()
    )
    plain = plain.replace("‘", "'").replace("’", "'").replace("“", '"').replace("”", '"')
    return _HAN_RUN.sub(lambda found: to_simplified(found[0]), " ".join(plain.split()))


def quotations(text: str) -> list[str]:
    """What stands in quotation marks, of either language, from four characters on."""
    found = (next(filter(None, match.groups())).strip() for match in _QUOTED.finditer(text))
    return [quote for quote in found if len(quote) >= _SHORTEST_QUOTE]


def holds_quote(passage: str, quote: str) -> bool:
    """Whether a quotation stands in a passage word by word; width, space, quotes and a full stop make no difference."""
    parts = [_squeezed(part) for part in re.split(r"…+|\.{3,}|\[…\]", quote.strip())]
    place, within = 0, _squeezed(passage)
    for part in (part.rstrip(".。,，;；") for part in parts):
        found = within.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return any(parts)


def judge_by_rules(statement: str, passage: str) -> tuple[Support, str]:
    """What rules say of a statement and a passage, and why ("" for "unknown").

    "unsupported" when a quotation, a number or a code of the statement is not in the passage; "contradicted" when the
    passage says the same with the opposite sign; "supported" when it says so in nearly the same words.
    """
    for quote in quotations(statement):
        if not holds_quote(passage, quote):
            return "unsupported", f"the passage does not say “{quote[:60]}”"
    missing = missing_numbers(statement, passage)
    if missing:
        return "unsupported", f"the passage does not hold {', '.join(missing)}"
    clauses = _clauses(statement)
    parts = _clauses(passage)
    for clause in clauses:
        closest = max(parts, key=lambda part: _shared(_terms(clause), _terms(part)), default="")
        if _alike(_terms(clause), _terms(closest)) and _negated(clause) != _negated(closest):
            return "contradicted", f"the passage says “{closest.strip()[:80]}”"
    terms = _terms(statement)
    sentences = _sentences(passage)
    windows = [
        *sentences,
        *(f"{first} {second}" for first, second in pairwise(sentences)),
    ]
    close = (window for window in windows if terms and _in_order(terms, _terms(window)) >= _SAME)
    if any(not missing_numbers(statement, window) for window in close):
        return "supported", "the passage says so in these words"
    if quotations(statement) and _only_quotes(statement):
        return "supported", "it quotes the passage"
    return "unknown", ""


def missing_numbers(statement: str, passage: str) -> list[str]:
    """Numbers and codes of a statement that a passage does not hold, as the statement writes them."""
    plain, there = (with_dates_in_one_form(folded(text)) for text in (statement, passage))
    known = codes(there)
    lost = [code for code in sorted(codes(plain)) if code not in known and code not in there]
    held = quantities(there)
    return lost + [
        one.written for one in quantities(plain) if one.sure and not any(one.equals(other) for other in held)
    ]


def _squeezed(text: str) -> str:
    return "".join(folded(text).replace('"', "").split())


def _only_quotes(statement: str) -> bool:
    """Whether a statement says little besides what it quotes."""
    rest = _QUOTED.sub(" ", statement)
    return len(_terms(rest)) <= 3  # noqa: PLR2004  "the manual says", 手册写道


def _sentences(text: str) -> list[str]:
    ends = sorted({*sentence_ends(text, 0, len(text)), *all_line_ends(text, 0, len(text)), len(text)})
    pieces = (text[start:end].strip() for start, end in zip([0, *ends], ends, strict=False))
    return [piece for piece in pieces if piece]


def _clauses(text: str) -> list[str]:
    pieces = []
    for sentence in _sentences(text):
        ends = [*clause_ends(sentence, 0, len(sentence)), len(sentence)]
        pieces += [
            sentence[start:end]
            for start, end in zip([0, *ends], ends, strict=False)
            if sentence[start:end].strip()
        ]
    return pieces


@lru_cache(maxsize=4096)
def _terms(text: str) -> tuple[str, ...]:
    """Words of Latin scripts without stop words, and pairs of Han characters, in order."""
    terms: list[str] = []
    for found in _TERM.finditer(in_one_form(folded(text))):
        word = found[0]
        if _HAN_RUN.fullmatch(word):
            terms += [word] if len(word) == 1 else [word[i : i + 2] for i in range(len(word) - 1)]
        elif word not in STOP_WORDS:
            terms.append(_stem(word))
    return tuple(terms)


def _stem(word: str) -> str:
    for ending in ("ies", "es", "s", "ed", "ing"):
        if len(word) > len(ending) + 3 and word.endswith(ending) and not word.endswith("ss"):
            return word[: -len(ending)] + ("y" if ending == "ies" else "")
    return word


def _shared(terms: Sequence[str], others: Sequence[str]) -> int:
    return len(set(terms) & set(others))


def _alike(terms: Sequence[str], others: Sequence[str]) -> bool:
    """Whether the shorter of two clauses is about what the longer one is about."""
    least = min(len(set(terms)), len(set(others)))
    return least > 1 and _shared(terms, others) / least >= _ALIKE


def _in_order(terms: Sequence[str], others: Sequence[str]) -> float:
    blocks = SequenceMatcher(None, terms, others, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / len(terms)


def _negated(text: str) -> bool:
    plain = folded(text)
    english = len(_NEGATED_EN.findall(_NO_NEGATION_EN.sub(" ", plain)))
    chinese = len(_NEGATED_ZH.findall(_NO_NEGATION_ZH.sub(" ", plain)))
    return (english + chinese) % 2 == 1
