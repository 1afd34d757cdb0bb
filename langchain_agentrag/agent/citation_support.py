"""Check by rules whether a passage supports a statement: quotations, identifiers, numbers with units, negation."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from langchain_agentrag.normalization import normalize
from langchain_agentrag.text.numerals import (
    CHINESE_DIGITS,
    CHINESE_UNITS,
    ENGLISH_NUMBERS,
    MAX_NUMERAL,
    SCALES,
    read_chinese,
    read_english,
)
from langchain_agentrag.text.sentences import all_line_ends, clause_ends, sentence_ends
from langchain_agentrag.text.tokenizer import STOP_WORDS, to_simplified

# -- numbers, dates and identifiers -----------------------------------------------------------------------------------

_CHINESE_DIGIT = "[" + "".join([*CHINESE_DIGITS, *CHINESE_UNITS]) + "]"

# By dimension (the unit its amounts are compared in): the names of each unit and its factor to that unit. A unit that
# is not listed is ignored. The "月" of a date is no duration; days and months have no fixed ratio.
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
    name: (dimension, Fraction(factor))
    for dimension, units in _DIMENSIONS.items()
    for names, factor in units.items()
    for name in names.split()
}
_CURRENCIES = {"$": "usd", "¥": "yuan", "￥": "yuan", "€": "eur"}
_UNIT = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
_UNIT_AFTER = re.compile(
    rf"\s?-?(?P<unit>{_UNIT})(?:e?s)?(?![a-z0-9])(?:(?:\s?/\s?|\s(?:per|an?)\s)(?P<per>{_UNIT})(?![a-z0-9]))?", re.I
)
_PER_BEFORE = re.compile(rf"每({_UNIT})[^\d\s,，。;；、每]{{0,8}}$")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY, _YEAR = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?", r"(?P<year>1\d{3}|20\d{2})"

_CODE_RUN = re.compile(r"[\w.\-/:]++", re.A)
_IDENTIFIER = re.compile(r"(?<![\w.])[A-Za-z0-9]++(?:[._\-/:][A-Za-z0-9]++)*+", re.A)
_LAST_DIGIT = re.compile(r".*\d", re.A | re.S)
_LAST_LETTER = re.compile(r".*[A-Za-z]", re.S)
_DOTTED_NUMBER = re.compile(r"(?<![\w.])\d++(?:\.\d++){2,}+(?![\w.])", re.A)
_NUMBER_WITH_UNIT = re.compile(r"^[\d.,]++(?:k|[a-z°℃%]{1,4}(?:/[a-z]{1,4})?)$", re.I)
_ARABIC = re.compile(
    r"(?<![\d.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?(万亿|万|亿|千|百|k\b|thousand|million|billion|dozen))?",
    re.A | re.I,
)
_CHINESE = re.compile(
    rf"百分之(?P<per>(?:{_CHINESE_DIGIT}|[万点])+|[0-9]+(?:\.[0-9]+)?)|(?P<plain>(?!(?:(?<=\d)|(?<=\d\s))[千百]){_CHINESE_DIGIT}(?:{_CHINESE_DIGIT}|[万亿点])*)"
)
_NUMBER_WORD = "(?:" + "|".join([*ENGLISH_NUMBERS, "hundred", "thousand", "million", "billion", "dozen", "and"]) + ")"
_ENGLISH = re.compile(rf"\b{_NUMBER_WORD}(?:[\s-]++{_NUMBER_WORD})*\b", re.I)
_MAX_NUMBER_WORDS = 30  # a longer row of number words is no number
_DATE_NUMBER = rf"(?:\d{{1,4}}|{_CHINESE_DIGIT}{{1,4}})"
_DATES = [
    re.compile(pattern, re.I | re.A)
    for pattern in (
        rf"(?<![\w./-]){_YEAR}(?P<mark>[-/])(?P<month>\d{{1,2}})(?P=mark)(?P<day>\d{{1,2}})(?![\w/-]|\.\d)",
        rf"(?<![\w.,]){_DAY}(?:\sof)?[\s-]{_MONTH},?[\s-]{_YEAR}(?![\w,]\d|\w)",
        rf"\b{_MONTH}\s(?:{_DAY},?\s)?{_YEAR}(?![\w,]\d|\w)",
        rf"(?:(?P<year>{_DATE_NUMBER})\s?年\s?)?(?P<month>{_DATE_NUMBER})\s?月\s?(?P<day>{_DATE_NUMBER})\s?[日号]",
    )
]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a text, with its unit.

    Attributes:
        value: The number as written.
        unit: The unit its dimension is compared in (kilograms for any mass); "" without a unit.
        text: The number as written, without its unit.
        start: Offset of the first character, a currency sign included.
        end: Offset behind the last character, the unit included.
        certain: False for a word that need not be a number: 一 in 一些, "one" in "one of them".
        factor: From the unit as written to `unit`.
        per: Of a rate, the unit that the dimension behind "per" is compared in; "" otherwise.
        per_factor: From the unit behind "per" as written to `per`.
    """

    value: Fraction
    unit: str
    text: str
    start: int
    end: int
    certain: bool = True
    factor: Fraction = Fraction(1)
    per: str = ""
    per_factor: Fraction = Fraction(1)

    @property
    def amount(self) -> Fraction:
        """The value in `unit`."""
        return self.value * self.factor

    def equals(self, other: Quantity) -> bool:
        """Return whether both are the same amount, in any units of one dimension; by value if one has no unit."""
        if not self.unit or not other.unit:
            return self.value == other.value
        if self.per and self.per == other.per:
            same = self.amount * other.per_factor == other.amount * self.per_factor
        else:
            same = self.amount == other.amount
        return same and self.unit == other.unit


def find_identifiers(text: str) -> set[str]:
    """Return the identifiers with digits (E1102, v1.2.3, 10.20.30.40) in lower case; "30mm" is a number, not one."""
    spans = (*_identifier_spans(text), *(match.span() for match in _DOTTED_NUMBER.finditer(text)))
    identifiers = (text[start:end] for start, end in spans)
    return {identifier.lower().strip(".-/:") for identifier in identifiers if not _NUMBER_WITH_UNIT.match(identifier)}


def _identifier_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of identifiers, with a digit and a letter in the rest of their run of letters and joints."""
    for run in _CODE_RUN.finditer(text):
        digit, letter = (last.match(text, *run.span()) for last in (_LAST_DIGIT, _LAST_LETTER))
        if digit is None or letter is None:
            continue
        latest = min(digit.end(), letter.end()) - 1  # a later start has no digit, or no letter
        for match in _IDENTIFIER.finditer(text, *run.span()):
            if match.start() > latest:
                break
            yield match.span()


def find_quantities(text: str) -> list[Quantity]:
    """Return the numbers of a text, in Arabic or Chinese numerals or English words; none within identifiers."""
    for find in (lambda text: [match.span() for match in _DOTTED_NUMBER.finditer(text)], _identifier_spans):
        pieces, position = [], 0
        for start, end in find(text):
            if not _NUMBER_WITH_UNIT.match(text[start:end]):
                pieces += [text[position:start], " " * (end - start)]
                position = end
        text = "".join([*pieces, text[position:]])
    return [*_arabic_quantities(text), *_chinese_quantities(text), *_english_quantities(text)]


def normalize_quantities(text: str) -> str:
    """Return the text with numbers as Arabic digits, one unit per dimension and dates as 2019年3月3日."""
    text = normalize_dates(text)
    pieces, end = [], 0
    for quantity in sorted(find_quantities(text), key=lambda quantity: (quantity.start, -quantity.end)):
        if quantity.certain and quantity.start >= end:
            number = f" {float(quantity.amount / quantity.per_factor):.12g} {quantity.unit} "
            pieces += [text[end : quantity.start], number]
            end = quantity.end
    return "".join([*pieces, text[end:]])


def normalize_dates(text: str) -> str:
    """Return the text with dates (2019-03-03, 3 March 2019, March 3, 2019, 二〇一九年三月三日) as 2019年3月3日."""
    for pattern in _DATES:
        text = pattern.sub(_normal_date, text)
    return text


def _normal_date(match: re.Match[str]) -> str:
    parts = match.groupdict()
    if parts.get("name"):
        month: int | None = _MONTHS.index(parts["name"][:3].lower()) + 1
    else:
        month = _read_integer(parts["month"])
    year, day = (_read_integer(parts[name]) if parts.get(name) else None for name in ("year", "day"))
    if month not in range(1, 13) or (day is not None and day not in range(1, 32)):
        return match[0]
    head, tail = (f"{year}年" if year is not None else ""), (f"{day}日" if day is not None else "")
    return f" {head}{month}月{tail} "


def _read_integer(numeral: str) -> int | None:
    value = int(numeral) if numeral.isdigit() and numeral.isascii() else read_chinese(numeral)
    return None if value is None else int(value)


def _quantity(text: str, value: Fraction, start: int, end: int, *, sign: str = "") -> Quantity:
    """Return a number with the unit behind it, else that of the sign before it, and what it is per."""
    number, match = text[start:end], _UNIT_AFTER.match(text, end)
    name, per = (match["unit"].lower(), match["per"] or "") if match else (sign and _CURRENCIES.get(sign, sign), "")
    if match:
        end = match.end()
    elif sign:
        start -= len("百分之") if sign == "%" else 1
    if not per and (before := _PER_BEFORE.search(text[max(0, start - 16) : start])):
        per = before[1]
    unit, factor = _UNITS.get(name, ("", Fraction(1)))
    per, per_factor = _UNITS.get(per.lower(), ("", Fraction(1)))
    return Quantity(value, unit, number, start, end, factor=factor, per=per, per_factor=per_factor)


def _arabic_quantities(text: str) -> Iterator[Quantity]:
    for match in _ARABIC.finditer(text):
        number, scale = match[0], match[1] or ""
        if len(number) > MAX_NUMERAL:
            continue
        digits = number[: len(number) - len(scale)].strip().replace(",", "")
        factor = SCALES[scale.lower()] if scale else 1
        before = text[max(0, match.start() - len("百分之")) : match.start()]
        sign = "%" if before == "百分之" else before[-1:] if before[-1:] in _CURRENCIES else ""
        yield _quantity(text, Fraction(digits) * factor, *match.span(), sign=sign)


def _chinese_quantities(text: str) -> Iterator[Quantity]:
    for match in _CHINESE.finditer(text):
        numeral = match["per"] or match["plain"]
        value = None if numeral.isascii() else read_chinese(numeral)
        if value is None:
            continue
        if match["per"]:
            yield Quantity(value, "%", match[0], *match.span())
        else:
            quantity = _quantity(text, value, *match.span())
            yield replace(quantity, certain=value > 1 and (len(numeral) > 1 or bool(quantity.unit)))


def _english_quantities(text: str) -> Iterator[Quantity]:
    for match in _ENGLISH.finditer(text):
        words = [word for word in re.split(r"[\s-]+", match[0].lower()) if word != "and"]
        if not words or (words[0] not in ENGLISH_NUMBERS and _follows_digit(text, match.start())):
            continue  # "2 million" is an Arabic number
        if len(words) > _MAX_NUMBER_WORDS:
            continue
        value = read_english(words)
        quantity = _quantity(text, Fraction(value), *match.span())
        yield replace(quantity, certain=value > 1 and (value > 10 or bool(quantity.unit)))  # noqa: PLR2004


def _follows_digit(text: str, start: int) -> bool:
    while start and text[start - 1].isspace():
        start -= 1
    return text[max(0, start - 1) : start].isdecimal()


# -- statement and passage --------------------------------------------------------------------------------------------

Support = Literal["supported", "unsupported", "contradicted", "unknown"]

_MIN_TERMS_IN_ORDER = 0.85  # share of a statement's terms that a passage must contain in one place and in order
_MIN_SHARED_TERMS = 0.6  # of the shorter of two clauses, for both to be about the same thing
_MIN_QUOTATION = 4  # characters

MAX_STATEMENT = 2_000
"""Longest statement that the rules judge, in characters."""

MAX_PASSAGE = 40_000
"""Longest passage that the rules judge a statement by, in characters; the default chunk has 1,500."""

_OMISSION = re.compile(r"…+|\.{3,}|\[…\]")

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


def fold_text(text: str) -> str:
    """Return the text for comparison: NFKC, lower case, simplified, single spaces, no invisible characters."""
    folded = normalize("NFKC", text).lower()
    folded = "".join(char for char in folded if unicodedata.category(char) not in {"Cf", "Cc"} or char.isspace())
    folded = folded.replace("‘", "'").replace("’", "'").replace("“", '"').replace("”", '"')
    return _HAN_RUN.sub(lambda match: to_simplified(match[0]), " ".join(folded.split()))


def find_quotations(text: str) -> list[str]:
    """Return the contents of Chinese and English quotation marks, from four characters on."""
    contents = (next(filter(None, match.groups())).strip() for match in _QUOTED.finditer(text))
    return [quotation for quotation in contents if len(quotation) >= _MIN_QUOTATION]


def contains_quotation(passage: str, quotation: str) -> bool:
    """Return whether a passage contains a quotation word by word.

    Width, spaces, quotation marks and final punctuation are ignored; "…", "..." and "[…]" stand for any text.
    """
    return _contains(_without_spaces(passage), quotation)


def _contains(passage: str, quotation: str) -> bool:
    """Return whether a passage without spaces contains a quotation."""
    parts, start = [_without_spaces(part).rstrip(".。,，;；") for part in _OMISSION.split(quotation.strip())], 0
    for part in parts:
        place = passage.find(part, start)
        if place < 0:
            return False
        start = place + len(part)
    return any(parts)


def judge_by_rules(statement: str, passage: str) -> tuple[Support, str]:
    """Return whether a passage supports a statement, and the reason ("" if the rules cannot tell).

    Returns:
        "unsupported" if a quotation, number or identifier of the statement is not in the passage; "contradicted" if
        the passage has a clause with nearly the same words of which only one is negated; "supported" if the passage
        contains the statement in nearly the same words; else "unknown", also for a statement of more than
        `MAX_STATEMENT` or a passage of more than `MAX_PASSAGE` characters.
    """
    for name, text, most in (("statement", statement, MAX_STATEMENT), ("passage", passage, MAX_PASSAGE)):
        if len(text) > most:
            return "unknown", f"the {name} has {len(text):,} characters, and the rules read no more than {most:,}"
    known = _read_passage(passage)
    quotations = find_quotations(statement)
    for quotation in quotations:
        if not _contains(known.without_spaces, quotation):
            return "unsupported", f"the passage does not say “{quotation[:60]}”"
    missing = _facts(statement).missing_from(known.facts)
    if missing:
        return "unsupported", f"the passage does not hold {', '.join(missing)}"
    contradiction = next(filter(None, map(known.contradiction_of, _clauses(statement))), None)
    if contradiction is not None:
        return "contradicted", f"the passage says “{contradiction.strip()[:80]}”"
    states = known.states(statement)
    if states or (quotations and _is_mostly_quotation(statement)):
        return "supported", "the passage says so in these words" if states else "it quotes the passage"
    return "unknown", ""


@dataclass(frozen=True, slots=True)
class _Facts:
    """Identifiers and numbers of a text.

    Attributes:
        text: The text, folded and with dates in one form.
        identifiers: Its identifiers.
        quantities: Its numbers, in order.
        values: The values of all numbers.
        bare: The values of the numbers without a unit.
        amounts: (unit, amount in it) → what the numbers of this amount are per.
        rates: (unit, per, ratio) of the rates.
    """

    text: str
    identifiers: frozenset[str]
    quantities: tuple[Quantity, ...]
    values: frozenset[Fraction]
    bare: frozenset[Fraction]
    amounts: Mapping[tuple[str, Fraction], frozenset[str]]
    rates: frozenset[tuple[str, str, Fraction]]

    def missing_from(self, other: _Facts) -> list[str]:
        """Return the identifiers and numbers, as written, that another text does not contain."""
        identifiers = [
            identifier
            for identifier in sorted(self.identifiers)
            if identifier not in other.identifiers and identifier not in other.text
        ]
        return identifiers + [
            quantity.text for quantity in self.quantities if quantity.certain and not other.has(quantity)
        ]

    def has(self, quantity: Quantity) -> bool:
        """Return whether one of the numbers equals a quantity, see `Quantity.equals`."""
        if not quantity.unit:
            return quantity.value in self.values
        if quantity.value in self.bare:
            return True
        if quantity.per and (quantity.unit, quantity.per, quantity.amount / quantity.per_factor) in self.rates:
            return True
        per = self.amounts.get((quantity.unit, quantity.amount), frozenset())
        return bool(per - {quantity.per} if quantity.per else per)


@lru_cache(maxsize=256)
def _facts(text: str) -> _Facts:
    text = normalize_dates(fold_text(text))
    quantities = tuple(find_quantities(text))
    amounts: dict[tuple[str, Fraction], set[str]] = {}
    for quantity in quantities:
        amounts.setdefault((quantity.unit, quantity.amount), set()).add(quantity.per)
    return _Facts(
        text,
        frozenset(find_identifiers(text)),
        quantities,
        frozenset(quantity.value for quantity in quantities),
        frozenset(quantity.value for quantity in quantities if not quantity.unit),
        {key: frozenset(per) for key, per in amounts.items()},
        frozenset(
            (quantity.unit, quantity.per, quantity.amount / quantity.per_factor)
            for quantity in quantities
            if quantity.per
        ),
    )


class _Window(NamedTuple):
    """One or two sentences of a passage, with their terms."""

    text: str
    terms: tuple[str, ...]
    counts: Mapping[str, int]

    def has(self, terms: Sequence[str]) -> bool:
        """Return whether the window has nearly all of the terms, in their order."""
        needed = _MIN_TERMS_IN_ORDER * len(terms)
        common = sum(min(count, self.counts.get(term, 0)) for term, count in Counter(terms).items())
        return common >= needed and _longest_common_subsequence(terms, self.terms) >= needed


class _PassageReading:
    """A passage as the rules read it: its facts, clauses and windows."""

    def __init__(self, passage: str) -> None:
        self.facts, self.without_spaces = _facts(passage), _without_spaces(passage)
        self._clauses = _clauses(passage)
        self._clauses_with: dict[str, list[int]] = {}
        sets: dict[frozenset[str], int] = {}
        for number, clause in enumerate(self._clauses):
            distinct = frozenset(_terms(clause))
            if sets.setdefault(distinct, number) == number:  # of clauses with the same terms the first
                for term in distinct:
                    self._clauses_with.setdefault(term, []).append(number)
        sentences = _sentences(passage)
        self._windows = tuple(
            _Window(text, terms := _terms(text), Counter(terms))
            for text in dict.fromkeys((*sentences, *(f"{first} {second}" for first, second in pairwise(sentences))))
        )

    def contradiction_of(self, clause: str) -> str | None:
        """Return the clause with nearly the same words of which only one is negated; None without one."""
        terms = _terms(clause)
        closest = self._closest_clause(terms)
        same_topic = _same_topic(terms, _terms(closest))
        return closest if same_topic and _is_negated(clause) != _is_negated(closest) else None

    def states(self, statement: str) -> bool:
        """Return whether one or two sentences contain a statement in nearly the same words, with all its numbers."""
        terms, facts = _terms(statement), _facts(statement)
        similar = (window for window in self._windows if terms and window.has(terms))
        return any(not facts.missing_from(_facts(window.text)) for window in similar)

    def _closest_clause(self, terms: Iterable[str]) -> str:
        """Return the clause that shares most terms, the first of equals; "" without a clause."""
        shared = Counter(number for term in set(terms) for number in self._clauses_with.get(term, ()))
        if not shared:
            return self._clauses[0] if self._clauses else ""
        most = max(shared.values())
        return self._clauses[min(number for number, count in shared.items() if count == most)]


_read_passage = lru_cache(maxsize=16)(_PassageReading)


def _longest_common_subsequence(terms: Sequence[str], others: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, by the bits of one integer per term.

    Hyyrö, "Bit-parallel LCS-length computation revisited", 2004.
    """
    places: dict[str, int] = {}
    for place, term in enumerate(terms):
        places[term] = places.get(term, 0) | 1 << place
    every = unmatched = (1 << len(terms)) - 1
    for other in others:
        common = unmatched & places.get(other, 0)
        unmatched = (unmatched + common | unmatched - common) & every
    return (every & ~unmatched).bit_count()


def _without_spaces(text: str) -> str:
    return "".join(fold_text(text).replace('"', "").split())


def _is_mostly_quotation(statement: str) -> bool:
    return len(_terms(_QUOTED.sub(" ", statement))) <= 3  # noqa: PLR2004  "the manual says", 手册写道


def _sentences(text: str) -> list[str]:
    ends = sorted({*sentence_ends(text, 0, len(text)), *all_line_ends(text, 0, len(text)), len(text)})
    sentences = (text[start:end].strip() for start, end in zip([0, *ends], ends, strict=False))
    return [sentence for sentence in sentences if sentence]


def _clauses(text: str) -> list[str]:
    clauses = []
    for sentence in _sentences(text):
        ends = [*clause_ends(sentence, 0, len(sentence)), len(sentence)]
        clauses += [sentence[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return [clause for clause in clauses if clause.strip()]


@lru_cache(maxsize=4096)
def _terms(text: str) -> tuple[str, ...]:
    """Return the stemmed words without stop words and the pairs of Chinese characters, in order."""
    terms: list[str] = []
    for match in _TERM.finditer(normalize_quantities(fold_text(text))):
        word = match[0]
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


def _same_topic(terms: Sequence[str], others: Sequence[str]) -> bool:
    one, other = set(terms), set(others)
    smaller = min(len(one), len(other))
    return smaller > 1 and len(one & other) / smaller >= _MIN_SHARED_TERMS


def _is_negated(text: str) -> bool:
    folded = fold_text(text)
    english = len(_NEGATED_EN.findall(_NO_NEGATION_EN.sub(" ", folded)))
    chinese = len(_NEGATED_ZH.findall(_NO_NEGATION_ZH.sub(" ", folded)))
    return (english + chinese) % 2 == 1
