"""The part of a passage worth showing on a terminal: a window around the words that matched."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, get_character_cell_size

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW = 160
"""Cells a snippet may take; two lines of a usual terminal. A Chinese character takes two."""

NEAR = 40
"""Cells within which a sentence end is worth moving the cut to."""

_SENTENCE_END = re.compile(r"[。！？；!?;]+[”’」』）)\"']*|\.(?=\s)|\n+")
_PAUSE = re.compile(r"[，、：,:]\s*|\s+")
_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A window of a passage, on one line.

    Attributes:
        text: What to show, with an ellipsis where it was cut.
        highlights: Character spans within `text` that matched.
    """

    text: str
    highlights: tuple[tuple[int, int], ...] = ()


def printable(text: str) -> str:
    """The text, of the same length, without characters that could steer the terminal.

    Stored text is anyone's: an escape sequence in it must be shown, not obeyed. Line ends and tabs stay.
    """

    def harmless(char: str) -> str:
        if char in "\n\t":
            return char
        if char in _BIDI_CONTROLS or unicodedata.category(char) in {"Cc", "Cs"}:
            return "\ufffd"
        return char

    return text if text.isprintable() else "".join(map(harmless, text))


def snippet(text: str, highlights: Sequence[tuple[int, int]] = (), *, width: int = WINDOW) -> Snippet:
    """The best window of at most about `width` cells, cut at sentence ends where one is near.

    Args:
        text: The passage.
        highlights: Spans of the words that matched, within `text`.
        width: Cells to fill.
    """
    spans = sorted((start, end) for start, end in highlights if 0 <= start < end <= len(text))
    text = printable(text)
    start, end = _window(text, spans, width)
    return _on_one_line(text, start, end, spans)


def _window(text: str, spans: Sequence[tuple[int, int]], width: int) -> tuple[int, int]:
    if cell_len(text) <= width:
        return 0, len(text)
    anchor, last = _richest(text, spans, width)
    room = max(0, width - cell_len(text[anchor:last]))
    start = _start_near(text, anchor, room // 3)
    return start, _end_near(text, start, max(last, anchor), width)


def _richest(text: str, spans: Sequence[tuple[int, int]], width: int) -> tuple[int, int]:
    """Start and end of the stretch that shows the most different matched words; the first of equals."""
    best, best_count = (0, 0), 0
    for index, (start, _) in enumerate(spans):
        words, last = set[str](), start
        for left, right in spans[index:]:
            if cell_len(text[start:right]) > width:
                break
            words.add(text[left:right].casefold())
            last = max(last, right)
        if len(words) > best_count:
            best, best_count = (start, last), len(words)
    return best


def _start_near(text: str, anchor: int, room: int) -> int:
    """Where to begin: at the sentence of the anchor if near, else `room` cells before, at a word."""
    far = _back(text, anchor, max(room, NEAR))
    ends = [match.end() for match in _SENTENCE_END.finditer(text, far, anchor)]
    if ends:
        return ends[-1]
    if far == 0:
        return 0
    start = _back(text, anchor, room)
    pause = _PAUSE.search(text, start, anchor)
    return pause.end() if pause else start


def _end_near(text: str, start: int, needed: int, width: int) -> int:
    """Where to stop: `width` cells after `start`, or at the sentence end that comes shortly before that."""
    stop, cells = start, 0
    while stop < len(text) and cells + (size := get_character_cell_size(text[stop])) <= width:
        cells, stop = cells + size, stop + 1
    stop = max(stop, needed)
    if stop >= len(text):
        return len(text)
    ends = [match.end() for match in _SENTENCE_END.finditer(text, max(needed, _back(text, stop, NEAR)), stop)]
    if ends:
        return ends[-1]
    space = text.rfind(" ", max(needed, _back(text, stop, NEAR // 2)), stop)
    return space if space > start else stop


def _back(text: str, position: int, cells: int) -> int:
    """The position `cells` before this one."""
    while position > 0 and (cells := cells - get_character_cell_size(text[position - 1])) >= 0:
        position -= 1
    return position


def _on_one_line(text: str, start: int, end: int, spans: Sequence[tuple[int, int]]) -> Snippet:
    """The window with every run of white space as one space, and the spans moved along."""
    shown: list[str] = []
    places: dict[int, int] = {}
    for position in range(start, end):
        char = " " if text[position].isspace() else text[position]
        places[position] = len(shown)
        if char != " " or (shown and shown[-1] != " "):
            shown.append(char)
    places[end] = len(shown)
    while shown and shown[-1] == " ":
        shown.pop()
    before = "… " if text[:start].strip() else ""
    after = " …" if text[end:].strip() else ""
    moved = []
    for left, right in spans:
        left, right = max(left, start), min(right, end)  # noqa: PLW2901  (clipped to the window)
        if left < right:
            pair = (places[left] + len(before), min(places[right], len(shown)) + len(before))
            moved.append(pair)
    return Snippet(before + "".join(shown) + after, tuple(pair for pair in moved if pair[0] < pair[1]))
