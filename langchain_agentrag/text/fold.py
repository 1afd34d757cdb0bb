"""Text as it is compared: NFKC, invisible characters removed, traditional characters simplified, case folded.

The stored text is never altered; `Folded` maps places in the folded text back to it.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Soft hyphen, zero-width space and joiners, direction marks, variation selectors, byte order mark, tags: they
# are not seen, so a word with one inside is still that word.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]+"
)
_LATIN_MARKS = re.compile("[\u0300-\u036f]+")
_HAN_BLOCKS = ((0x3400, 0xA000), (0x20000, 0x323B0))


def fold(text: str) -> str:
    """NFKC without invisible characters; case is kept, because `CamelCase` is cut by it."""
    if text.isascii():
        return text
    folded = unicodedata.normalize("NFKC", text)
    return _INVISIBLE.sub("", folded)


def fold_case(word: str) -> str:
    """A word of a folded text in the one form it is compared in: no case, no accents on Latin letters."""
    if word.isascii():
        return word.lower()
    plain = _LATIN_MARKS.sub("", unicodedata.normalize("NFKD", word.casefold()))
    return unicodedata.normalize("NFKC", plain)


class _Simplifier:
    """Traditional to simplified by OpenCC, asked only for text that holds a traditional character."""

    def __init__(self) -> None:
        import opencc

        self._converter = opencc.OpenCC("t2s")
        han = [chr(code) for first, end in _HAN_BLOCKS for code in range(first, end)]
        simple = self._converter.convert("\n".join(han)).split("\n")
        self._characters = {ord(a): b for a, b in zip(han, simple, strict=True) if a != b and len(b) == 1}
        self._traditional = re.compile("[" + "".join(map(chr, self._characters)) + "]")

    def __call__(self, han: str) -> str:
        if self._traditional.search(han) is None:
            return han
        simple: str = self._converter.convert(han)
        # Places in the result must be places in the run; a phrase that changes its length would break that.
        return simple if len(simple) == len(han) else han.translate(self._characters)


_simplifier_lock = threading.Lock()


@cache
def _simplifier() -> _Simplifier:
    return _Simplifier()


def simplify(han: str) -> str:
    """A run of Han characters in simplified form, of the same length."""
    with _simplifier_lock:
        simplifier = _simplifier()
    return simplifier(han)


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """Stretches that NFKC treats independently: a character and the marks or jamo that may join it."""
    start = 0
    for place, character in enumerate(text):
        if place > start and not _joins(character):
            yield start, place
            start = place
    if text:
        yield start, len(text)


def _joins(character: str) -> bool:
    if character < "\u0300":
        return False
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.category(first)[0] == "M" or "\u1100" <= first <= "\u11ff"


class Folded:
    """A folded text that knows where it came from.

    Attributes:
        text: What `fold` makes of the original.
    """

    def __init__(self, original: str) -> None:
        self.text = fold(original)
        self._starts: list[int] | None = None
        if len(self.text) != len(original) or not unicodedata.is_normalized("NFKC", original):
            self._align(original)

    def _align(self, original: str) -> None:
        starts, ends = [], []
        for start, end in _clusters(original):
            for _ in fold(original[start:end]):
                starts.append(start)
                ends.append(end)
        self._starts, self._ends = starts, ends

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where the original holds what the folded text holds at start:end (not empty)."""
        if self._starts is None:
            return start, end
        last = len(self._starts) - 1
        return self._starts[min(start, last)], self._ends[min(end - 1, last)]
