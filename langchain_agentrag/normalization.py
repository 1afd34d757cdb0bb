"""Unicode normalization of text from outside, in time that grows with its length."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Literal

_MOST_MARKS = 30  # in a row, as in the Stream-Safe Text Format of UAX #15; no language has as many
_SHORT = 1_000  # characters; Python sorts the marks of a shorter text in no time


def normalize(form: Literal["NFKC", "NFKD"], text: str) -> str:
    """Return a text in a normal form; of more than 30 combining marks in a row, each 30 are normalized by themselves.

    Python sorts the marks of a character by insertion, so the time grows with the square of their number.
    """
    if text.isascii():
        return text
    if len(text) <= _SHORT or _long_runs().search(text) is None:
        return unicodedata.normalize(form, text)
    pieces: list[str] = []
    position = 0
    for run in _long_runs().finditer(text):
        for cut in range(run.start() + _MOST_MARKS, run.end(), _MOST_MARKS):
            pieces.append(text[position:cut])
            position = cut
    return "".join(unicodedata.normalize(form, piece) for piece in (*pieces, text[position:]))


@cache
def _long_runs() -> re.Pattern[str]:
    characters = (chr(code) for code in range(0x300, 0x1F000))
    marks = "".join(char for char in characters if unicodedata.combining(unicodedata.normalize("NFKD", char)[0]))
    return re.compile(rf"[{marks}]{{{_MOST_MARKS + 1},}}+")
