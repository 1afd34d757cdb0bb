"""User words: terms of the trade that must be found as a unit, whatever characters they are made of.

They are matched in the folded text and added to what the analysis gives anyway, so a user word never takes a
term away from any text, and a Latin one never cuts a longer word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from langchain_agentrag.errors import UsageError
from langchain_agentrag.text.fold import fold, simplify

LONGEST_USER_WORD = 100
"""In characters, after folding."""

_SPACE = re.compile(r"\s+")
_WORDLIKE = re.compile(
    r"[^\W\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af]"
)


class UserWords:
    """A dictionary of user words, ready to be looked for.

    Attributes:
        words: The words in folded form, sorted.

    Raises:
        UsageError: a word is not text, has no letter or digit, or is too long.
    """

    def __init__(self, words: Iterable[str]) -> None:
        if isinstance(words, str) or not isinstance(words, Iterable):
            msg = f"user_words must be a collection of words, got {words!r}: pass a list of words."
            raise UsageError(msg)
        known = {_checked(word) for word in words}
        self.words = tuple(sorted(known))
        self._known = known
        lengths: dict[str, set[int]] = {}
        for word in known:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(sizes, reverse=True) for first, sizes in lengths.items()}
        self._firsts = re.compile("[" + re.escape("".join(self._lengths)) + "]") if known else None

    def find(self, folded: str) -> list[tuple[str, int, int]]:
        """Occurrences in a folded text as (term, start, end), in order of their start, overlaps included."""
        if self._firsts is None:
            return []
        text = comparable(folded)
        return [
            (_SPACE.sub("_", text[start:end]), start, end)
            for match in self._firsts.finditer(text)
            for start in (match.start(),)
            for end in (start + size for size in self._lengths[match[0]])
            if text[start:end] in self._known and _stands_alone(text, start, end)
        ]


def comparable(folded: str) -> str:
    """A folded text in lower case and simplified characters, without a change of length."""
    if folded.isascii():
        return folded.lower()
    lower = folded.lower()
    if len(lower) != len(folded):
        lower = "".join(low if len(low := character.lower()) == 1 else character for character in folded)
    return re.sub("[\u3400-\u9fff\U00020000-\U000323af]+", lambda run: simplify(run[0]), lower)


def _checked(word: object) -> str:
    if not isinstance(word, str):
        msg = f"A user word must be a string, got {type(word).__name__}: pass the words as text."
        raise UsageError(msg)
    folded = comparable(_SPACE.sub(" ", fold(word).strip()))
    if not any(character.isalnum() for character in folded):
        msg = f"User word {word!r} has no letter or digit to search for: remove it."
        raise UsageError(msg)
    if len(folded) > LONGEST_USER_WORD:
        msg = f"User word {word[:40]!r}… is {len(folded)} characters long: shorten it to {LONGEST_USER_WORD}."
        raise UsageError(msg)
    return folded


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether neither edge lies within a word of a script that sets words apart."""
    starts_within = start > 0 and _WORDLIKE.match(text[start]) and _WORDLIKE.match(text[start - 1])
    ends_within = end < len(text) and _WORDLIKE.match(text[end - 1]) and _WORDLIKE.match(text[end])
    return not starts_within and not ends_within
