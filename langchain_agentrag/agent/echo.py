"""Whether a text only repeats passages that were shown before, and the text without them. Pure.

An agent that stores what it has just recalled finds it twice the next time, and again and again. Texts are compared by
their letters and digits alone, so that a passage is known again inside JSON, quotes or another layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_RUN = 24  # letters and digits in a row that are no coincidence
_LEAST = 6  # of a passage that is shorter than that: below, every other text would hold it
_WHOLE = 8  # letters of a passage that is recognised as a whole
_MOSTLY = 0.8  # of a line that is left out

LEFT_OUT = "[… passage left out / 检索内容略去 …]"


def share_repeated(text: str, passages: Iterable[str]) -> float:
    """Share of a text's letters and digits that repeat one of the passages, in [0, 1]; 0 for a text without any."""
    letters, _ = _letters(text)
    return sum(_repeated(letters, passages)) / len(letters) if letters else 0.0


def holds_whole(text: str, passages: Iterable[str]) -> bool:
    """Whether one of the passages is in the text from its first letter to its last; very short ones do not count."""
    letters, _ = _letters(text)
    return any(len(said) >= _WHOLE and said in letters for said, _ in map(_letters, passages))


def without_repeated(text: str, passages: Sequence[str]) -> str:
    """The text, lines that repeat a passage replaced by one note."""
    letters, places = _letters(text)
    repeated = {place for place, found in zip(places, _repeated(letters, passages), strict=True) if found}
    if not repeated:
        return text
    known, start, kept = set(places), 0, list[str]()
    for line in text.splitlines(keepends=True):
        own = known.intersection(range(start, start + len(line)))
        start += len(line)
        if len(own & repeated) < _MOSTLY * max(len(own), 1):
            kept.append(line)
        elif not kept or kept[-1] != f"{LEFT_OUT}\n":
            kept.append(f"{LEFT_OUT}\n")
    return "".join(kept).rstrip("\n")


def _letters(text: str) -> tuple[str, list[int]]:
    """Letters and digits of a text, folded, and where each of them stands."""
    found = [(char.lower()[0], place) for place, char in enumerate(text) if char.isalnum()]
    return "".join(char for char, _ in found), [place for _, place in found]


def _repeated(letters: str, passages: Iterable[str]) -> list[bool]:
    marks = [False] * len(letters)
    runs: dict[str, list[int]] = {}
    for place in range(len(letters) - _RUN + 1):
        runs.setdefault(letters[place : place + _RUN], []).append(place)
    for passage in passages:
        said, _ = _letters(passage)
        if _LEAST <= len(said) < _RUN:
            place = letters.find(said)
            while place >= 0:
                marks[place : place + len(said)] = [True] * len(said)
                place = letters.find(said, place + len(said))
        for start in range(len(said) - _RUN + 1):
            for place in runs.get(said[start : start + _RUN], ()):
                marks[place : place + _RUN] = [True] * _RUN
    return marks
