"""Text on a terminal: control characters, snippets around matched words, line breaking of mixed Chinese and English."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from rich.cells import cell_len, get_character_cell_size
from rich.measure import Measurement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

WINDOW = 160
"""Cells of a snippet: two lines of a usual terminal. A Chinese character takes two."""

NEAR = 40
"""Cells by which a cut may be moved to a sentence end."""

_SENTENCE_END = re.compile(r"[。！？；!?;]+[”’」』）)\"']*|\.(?=\s)|\n+")
_PAUSE = re.compile(r"[，、：,:]\s*|\s+")
_NEVER_FIRST = frozenset("，。、；：！？）】》」』”’…,.;:!?)]}%")
_NEVER_LAST = frozenset("（【《「『“‘([{")
_JOINERS = frozenset("\u200c\u200d")  # Persian words and emoji need them


@dataclass(frozen=True, slots=True)
class Snippet:
    """Window of a passage on one line.

    Attributes:
        text: The window, with an ellipsis where the passage was cut.
        highlights: Character spans of matched words in `text`.
    """

    text: str
    highlights: tuple[tuple[int, int], ...] = ()


def printable(text: str) -> str:
    """Replace characters that could control the terminal or hide text; the length stays the same.

    Stored text is untrusted: an escape sequence in it must not be executed. Line ends and tabs stay.
    """

    def replace(char: str) -> str:
        if char in "\n\t":
            return char
        if char not in _JOINERS and unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
            return "\ufffd"
        return char

    return text if text.isprintable() else "".join(map(replace, text))


def snippet(text: str, highlights: Sequence[tuple[int, int]] = (), *, width: int = WINDOW) -> Snippet:
    """Return the window with the most matched words, about `width` cells, cut at sentence ends where one is near.

    Args:
        text: The passage.
        highlights: Spans of the words that matched, within `text`.
        width: Cells to fill.
    """
    spans = sorted((start, end) for start, end in highlights if 0 <= start < end <= len(text))
    text = printable(text)
    start, end = 0, len(text)
    if cell_len(text) > width:
        anchor, last = _densest_span(text, spans, width)
        room = max(0, width - cell_len(text[anchor:last]))
        start = _window_start(text, anchor, room // 3)
        end = _window_end(text, start, max(last, anchor), width)
    return _on_one_line(text, start, end, spans)


def _densest_span(text: str, spans: Sequence[tuple[int, int]], width: int) -> tuple[int, int]:
    """Return the stretch within `width` with the most different matched words; the first of equals."""
    cells = list(accumulate(map(get_character_cell_size, text), initial=0))  # before each character
    words: Counter[str] = Counter()  # in spans[index:stop]
    stop = best_count = 0
    best: Sequence[tuple[int, int]] = [(0, 0)]
    for index, (start, end) in enumerate(spans):
        while stop < len(spans) and cells[spans[stop][1]] - cells[start] <= width:
            words[text[slice(*spans[stop])].casefold()] += 1
            stop += 1
        if stop <= index:  # this span is wider by itself
            stop = index + 1
            continue
        if len(words) > best_count:
            best, best_count = spans[index:stop], len(words)
        word = text[start:end].casefold()
        words[word] -= 1
        if not words[word]:
            del words[word]
    return best[0][0], max(end for _, end in best)


def _window_start(text: str, anchor: int, room: int) -> int:
    """Return the start of the anchor's sentence if near, else a word boundary `room` cells before."""
    earliest = _move_back(text, anchor, max(room, NEAR))
    ends = [match.end() for match in _SENTENCE_END.finditer(text, earliest, anchor)]
    if ends:
        return ends[-1]
    if earliest == 0:
        return 0
    start = _move_back(text, anchor, room)
    pause = _PAUSE.search(text, start, anchor)
    return pause.end() if pause else start


def _window_end(text: str, start: int, needed: int, width: int) -> int:
    """Return the position `width` cells after `start`, or the sentence end shortly before it."""
    stop, cells = start, 0
    while stop < len(text) and cells + (size := get_character_cell_size(text[stop])) <= width:
        cells, stop = cells + size, stop + 1
    stop = max(stop, needed)
    if stop >= len(text):
        return len(text)
    ends = [match.end() for match in _SENTENCE_END.finditer(text, max(needed, _move_back(text, stop, NEAR)), stop)]
    if ends:
        return ends[-1]
    space = text.rfind(" ", max(needed, _move_back(text, stop, NEAR // 2)), stop)
    return space if space > start else stop


def _move_back(text: str, position: int, cells: int) -> int:
    """Return the position `cells` cells before a position."""
    while position > 0 and (cells := cells - get_character_cell_size(text[position - 1])) >= 0:
        position -= 1
    return position


def _on_one_line(text: str, start: int, end: int, spans: Sequence[tuple[int, int]]) -> Snippet:
    """Return the window with every run of white space as one space, and the spans moved accordingly."""
    line: list[str] = []
    offsets: dict[int, int] = {}
    for position in range(start, end):
        char = " " if text[position].isspace() else text[position]
        offsets[position] = len(line)
        if char != " " or (line and line[-1] != " "):
            line.append(char)
    offsets[end] = len(line)
    while line and line[-1] == " ":
        line.pop()
    before = "… " if text[:start].strip() else ""
    after = " …" if text[end:].strip() else ""
    clipped = [(max(left, start), min(right, end)) for left, right in spans]
    moved = (
        (offsets[left] + len(before), min(offsets[right], len(line)) + len(before))
        for left, right in clipped
        if left < right
    )
    return Snippet(before + "".join(line) + after, tuple(span for span in moved if span[0] < span[1]))


# -- line breaking --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WrappedText:
    """Text that breaks at spaces and between wide characters; Rich breaks at spaces only."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, each within the width."""
        for line in self.text.split("\n", allow_blank=True):
            for part in line.divide(line_breaks(line.plain, options.max_width)):
                part.rstrip()
                part.no_wrap = True
                yield part

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Take all the available width."""
        return Measurement(min(20, options.max_width), options.max_width)


def line_breaks(line: str, width: int) -> list[int]:
    """Return the offsets at which to cut a line so that each piece fits into `width` cells."""
    cuts: list[int] = []
    start = cells = 0
    last_chance = None
    for position, char in enumerate(line):
        if position > start and _may_break(line, position):
            last_chance = position
        size = get_character_cell_size(char)
        while cells + size > width and position > start and char != " ":
            cut = position if last_chance is None else last_chance
            cuts.append(cut)
            start, last_chance = cut, None
            cells = sum(map(get_character_cell_size, line[start:position]))
        cells += size
    return cuts


def _may_break(line: str, position: int) -> bool:
    before, after = line[position - 1], line[position]
    if before in _NEVER_LAST or after in _NEVER_FIRST or after == " ":
        return False
    return before == " " or get_character_cell_size(before) == 2 or get_character_cell_size(after) == 2  # noqa: PLR2004
