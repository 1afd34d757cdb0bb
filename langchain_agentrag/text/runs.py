"""Where scripts change: a folded text as runs of Han, of other unspaced scripts, of words, of emoji."""

from __future__ import annotations

import re
from itertools import pairwise

HAN, SCRIPT, WORD, EMOJI = 1, 2, 3, 4
"""Kinds of run: the number of the group in `RUNS` that matched it."""

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
# Kana, Hangul, Thai, Lao, Burmese, Khmer: words are not set apart (or carry endings), so pairs of characters
# stand in.
_SCRIPT = (
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u1000-\u109f\u1780-\u17d3"
)
# Vowel signs and accents that Python does not count as word characters.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f"
    "\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc-\u09cd\u09d7\u0a01-\u0a03\u0a3c-\u0a4d\u0abc-\u0acd"
    "\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0bd7\u0c00-\u0c04\u0c3c-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6"
    "\u0d00-\u0d03\u0d3b-\u0d4d\u0d57"
)

ATOM = rf"(?:[^\W_{_HAN}{_SCRIPT}]++[{_MARKS}]*+)++"
"""Letters and digits in one piece. Possessive, so that no text is tried twice."""

_JOINT = r"(?:[._/\\@:'’&=#~+\-‐‑−]|,(?=\d{3}(?!\d)))"
_TAIL = r"(?:\+\+|\#)(?![^\W_])"  # C++, C#

RUNS = re.compile(
    rf"([{_HAN}]++)|([{_SCRIPT}]++)|({ATOM}(?:{_JOINT}{ATOM}|_++{ATOM})*+(?:{_TAIL})?+)"
    "|([\u2600-\u27bf\U0001f000-\U0001faff])"
)

ATOMS = re.compile(ATOM)
"""The atoms of a word run."""


def pairs(run: str) -> list[str]:
    """Every two neighbouring characters, or the run itself where it has only one."""
    return list(map("".join, pairwise(run))) or [run]
