"""Line breaking for mixed Chinese and English. Rich breaks at spaces only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import get_character_cell_size
from rich.measure import Measurement

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

_NEVER_FIRST = frozenset("，。、；：！？）】》」』”’…,.;:!?)]}%")
_NEVER_LAST = frozenset("（【《「『“‘([{")


@dataclass(frozen=True, slots=True)
class Flow:
    """A text that breaks at spaces and between wide characters."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, each within the width."""
        for line in self.text.split("\n", allow_blank=True):
            for part in line.divide(breaks(line.plain, options.max_width)):
                part.rstrip()
                part.no_wrap = True
                yield part

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """As wide as there is room for."""
        return Measurement(min(20, options.max_width), options.max_width)


def breaks(line: str, width: int) -> list[int]:
    """Offsets at which to cut the line so that each piece fits into `width` cells."""
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
