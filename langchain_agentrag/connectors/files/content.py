"""What reading a file gives, whatever its format, and the builder that the readers share."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_agentrag.types import Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_agentrag.types import TextKind

Foreign = Any
"""An object of a library without types, or a JSON value."""

_UNSTORABLE = re.compile("[\x00-\x08\x0b\x0e-\x1f\ud800-\udfff]")
_CHINESE_WRAP = re.compile("(?<=[\u2e80-\U0010ffff])[ \\t]*\\r?\\n\\s*(?=[\u2e80-\U0010ffff])")


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file.

    Attributes:
        text: What will be stored and returned.
        kind: Its structure.
        sections: Pages, slides, sheets, rows, cells.
        metadata: What the file says about itself: title, author, number of pages …
    """

    text: str
    kind: TextKind = "plain"
    sections: tuple[Section, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


class TextBuilder:
    """Joins the parts of a file into one text and remembers where each lies."""

    def __init__(self, separator: str = "\n\n") -> None:
        self._separator = separator
        self._parts: list[str] = []
        self._length = 0
        self._sections: list[Section] = []

    def add(
        self, text: str, locator: Mapping[str, Any] | None = None, *, context: str = "", joinable: bool = True
    ) -> None:
        """Append a part; a blank one leaves no trace. With a locator it becomes a section."""
        text = storable(text).strip()
        if not text:
            return
        if self._parts:
            self._parts.append(self._separator)
            self._length += len(self._separator)
        if locator is not None:
            end = self._length + len(text)
            self._sections.append(Section(self._length, end, locator, storable(context), joinable))
        self._parts.append(text)
        self._length += len(text)

    def content(self, kind: TextKind = "plain", metadata: Mapping[str, Any] | None = None) -> Content:
        """Everything that was added."""
        return Content("".join(self._parts), kind, tuple(self._sections), dict(metadata or {}))


def storable(text: str) -> str:
    """The text without control characters and with surrogate pairs as the characters they stand for."""
    if _UNSTORABLE.search(text) is None:
        return text
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNSTORABLE.sub(lambda match: "\n" if match[0] == "\x0b" else "", text)


def one_line(text: str) -> str:
    """The text on one line; a break between two Chinese characters was only a wrap and leaves no space."""
    return " ".join(_CHINESE_WRAP.sub("", text).split())


def markdown_table(rows: list[list[str]]) -> str:
    """Rows as a Markdown table, each on one line, the first one as its header; empty rows are left out."""
    filled = [[one_line(cell) for cell in row] for row in rows]
    filled = [row for row in filled if any(row)]
    if not filled:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in filled]
    if len(filled) > 1:
        lines.insert(1, "|" + " --- |" * len(filled[0]))
    return "\n".join(lines)
