"""Whether a passage supports a statement, as far as rules can tell; what they cannot tell is "unknown".

Rules see what is written: quotations, numbers, codes, negations, and statements that the passage makes in nearly the
same words and order. A paraphrase is for a judge.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from langchain_agentrag.agent.quantities import codes, in_one_form, quantities, with_dates_in_one_form
from langchain_agentrag.text.fold import simplify
from langchain_agentrag.text.sentences import all_line_ends, clause_ends, sentence_ends
from langchain_agentrag.text.stopwords import STOP_WORDS

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
    return _HAN_RUN.sub(lambda found: simplify(found[0]), " ".join(plain.split()))


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
