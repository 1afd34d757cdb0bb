"""Where a text may be cut, found by one pass over its lines: headings, blocks, tables, fences, definitions.

Nothing here measures or cuts; `chunking.py` does, with the places listed here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_agentrag.types import SourceDocument, TextKind


class Cut(IntEnum):
    """How good a place to cut is, worst first."""

    WEAK = 0
    """Inside a block: a line, sentence, clause, space, or worse."""
    GROUP = 1
    """A blank line inside a function."""
    BLOCK = 2
    """Between two paragraphs, lists, tables, fences or top-level definitions."""
    HEADING = 3
    """Before a Markdown heading of any level."""
    CHAPTER = 4
    """Before a Markdown heading that opens a topic of its own."""
    SECTION = 5
    """Where a `Section` of the document starts: a page, a slide, a cell."""


CHAPTER_LEVEL = 3
"""Deepest heading level that opens a topic; below it headings mostly label single paragraphs."""


@dataclass(frozen=True, slots=True)
class Span:
    """A table, a fence or a front matter: lines that belong together.

    Attributes:
        start: First character.
        end: One past the last character.
        anchor: Start of what must not be left behind when the span moves on: its heading or its lead-in.
        header: A table's header line, else empty.
    """

    start: int
    end: int
    anchor: int
    header: str = ""


@dataclass(slots=True)
class Structure:
    """Places of one text, all in ascending order.

    Attributes:
        cuts: Positions where a line starts and a cut is good, with their strength.
        spans: Tables, fences, front matter.
        paths: From this position on the heading path is that one.
        glued: Starts of blocks that follow a heading: cutting there would leave the heading alone.
        verbatim: Whether every line break of the text is a cut (code).
    """

    cuts: list[tuple[int, Cut]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    paths: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    glued: set[int] = field(default_factory=set)
    verbatim: bool = False


def find_structure(document: SourceDocument) -> Structure:
    """The places where this document may be cut."""
    section_starts = {section.start for section in document.sections}
    reader = _READERS[document.kind]()
    for start, line in _lines(document.text):
        if start in section_starts:
            reader.close(start)
        reader.read(start, line)
    reader.close(len(document.text))
    structure = reader.finish(document.text)
    strongest: dict[int, Cut] = dict.fromkeys(section_starts, Cut.SECTION)
    for position, strength in structure.cuts:
        strongest[position] = max(strength, strongest.get(position, Cut.WEAK))
    structure.cuts = sorted(strongest.items())
    structure.glued -= section_starts
    return structure


def _lines(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield start, text[start:end]
        start = end


class _Reader:
    """Plain text: paragraphs are separated by blank lines."""

    def __init__(self) -> None:
        self.structure = Structure()
        self.blank = True

    def read(self, start: int, line: str) -> None:
        if line.isspace():
            self.blank = True
            return
        if self.blank:
            self.structure.cuts.append((start, Cut.BLOCK))
        self.blank = False

    def close(self, position: int) -> None:
        """End what is open: the text or one of its sections ends here."""
        self.blank = True

    def finish(self, text: str) -> Structure:
        """What was found in the whole text."""
        return self.structure


_CLOSES_BLOCK = re.compile(r"[)}\]]|(?:else|elif|except|finally|catch|end|done|fi|esac)\b", re.IGNORECASE)
_DEFINES = re.compile(
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\(\w+\))?|override|"
    r"virtual|inline|extern|unsafe|sealed|open|data|suspend)\s+)*"
    r"(?:class|def|func|fn|function|interface|struct|enum|trait|impl|module|namespace|object|record|type)\b"
)
_MAX_LABEL = 120
"""Longest heading or signature that is taken along as context, in characters; the rest says little."""
_MAX_DEPTH = 6
"""Most enclosing definitions that are taken along; also keeps deeply nested input linear."""


class _CodeReader(_Reader):
    """Source code of any language: blank lines and indentation tell definitions apart."""

    def __init__(self) -> None:
        super().__init__()
        self.structure.verbatim = True
        self.outer: list[tuple[int, str]] = []

    def read(self, start: int, line: str) -> None:
        body = line.strip()
        if not body:
            self.blank = True
            return
        indent = len(line) - len(line.lstrip())
        if self.blank and not _CLOSES_BLOCK.match(body):
            self.structure.cuts.append((start, Cut.GROUP if indent else Cut.BLOCK))
        self.blank = False
        self._follow(start, indent, body)

    def _follow(self, start: int, indent: int, body: str) -> None:
        """Keep the definitions this line lies in: those above it that are indented less."""
        before = len(self.outer)
        while self.outer and self.outer[-1][0] >= indent and not _CLOSES_BLOCK.match(body):
            self.outer.pop()
        defines = _DEFINES.match(body) is not None
        if defines:
            self.outer.append((indent, body[:_MAX_LABEL].rstrip(" {:(")))
        if defines or len(self.outer) != before:
            self.structure.paths.append((start, tuple(label for _, label in self.outer[-_MAX_DEPTH:])))


_FENCE = re.compile(r"[ \t]*(?:[-*+>][ \t]+|\d+[.)][ \t]+)?(`{3,}|~{3,})([^`]*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_TABLE_RULE = re.compile(r"(?:> ?)?\|?(?:[ \t]*:?-+:?[ \t]*\|)+(?:[ \t]*:?-+:?)?$")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)、])[ \t]+\S")
_MARKED_LINE = re.compile(r"\s*[|>*+#-]")
_TITLE = re.compile(r"title[ \t]*:[ \t]*(\S.*)$", re.IGNORECASE)
_FRONT_MATTER_LINES = 200
"""A front matter longer than this is a text that happens to begin with a rule."""
_LEAD_IN = 200
"""Longest paragraph, in characters, that moves to the next chunk with the table or fence it announces."""


@dataclass(slots=True)
class _Block:
    kind: str  # "text", "list", "heading", "table", "fence", "front"
    start: int
    end: int = 0
    level: int = 0
    title: str = ""
    lines: int = 1


class _MarkdownReader(_Reader):
    """Markdown blocks, by those rules of CommonMark that matter for cutting."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[_Block] = []
        self.open: _Block | None = None
        self.fence = ""
        self.above = (0, "")

    def read(self, start: int, line: str) -> None:
        line = line.rstrip()
        kind = self.open.kind if self.open else ""
        if kind == "front" or (start == 0 and line == "---"):
            self._read_front_matter(start, line)
        elif kind == "fence":
            body = line.strip()
            if body.startswith(self.fence) and not body.strip(self.fence[0]):
                self.close(start + len(line))
        elif not line:
            self.close(start)
        else:
            self._read_text(start, line, kind)
        self.above = (start, line)

    def _read_front_matter(self, start: int, line: str) -> None:
        if self.open is None:
            self.open = _Block("front", start)
            return
        self.open.lines += 1
        if line in ("---", "..."):
            self.close(start + len(line))
        elif self.open.lines > _FRONT_MATTER_LINES or _HEADING.match(line):
            self.open.kind, self.open.title = "text", ""
            self.close(start)
            self._read_text(start, line, "")
        elif match := _TITLE.match(line):
            self.open.title = match[1].strip("\"'")

    def _read_text(self, start: int, line: str, kind: str) -> None:
        if match := _FENCE.match(line):
            self._begin("fence", start)
            self.fence = match[1]
        elif match := _HEADING.match(line):
            self._begin("heading", start, len(match[1]), _plain((match[2] or "")[:_MAX_LABEL]))
            self.close(start + len(line))
        elif kind == "text" and self._underlines(line):
            block = self._opened()
            block.kind, block.level, block.title = (
                "heading",
                1 if "=" in line else 2,
                _plain(self.above[1][:_MAX_LABEL]),
            )
            self.close(start + len(line))
        elif kind in ("text", "list") and "|" in self.above[1] and _TABLE_RULE.match(line.strip()):
            self._begin("table", self.above[0], title=self.above[1].strip())
        elif kind == "table" and "|" in line:
            pass
        elif _LIST_ITEM.match(line):
            if kind != "list":
                self._begin("list", start)
        elif kind in ("text", "list"):
            self._opened().lines += 1
        else:
            self._begin("text", start)

    def _underlines(self, line: str) -> bool:
        """Whether the line makes a heading of the one-line paragraph above it."""
        return (
            self._opened().lines == 1
            and bool(_UNDERLINE.match(line))
            and not _MARKED_LINE.match(self.above[1])
        )

    def _opened(self) -> _Block:
        if self.open is None:  # pragma: no cover - callers look at its kind first
            raise AssertionError
        return self.open

    def _begin(self, kind: str, start: int, level: int = 0, title: str = "") -> None:
        self.close(start)
        self.open = _Block(kind, start, level=level, title=title)

    def close(self, position: int) -> None:
        if self.open is not None:
            self.open.end = position
            if position > self.open.start:
                self.blocks.append(self.open)
        self.open = None

    def finish(self, text: str) -> Structure:
        """Cuts, spans and heading paths from the blocks."""
        found, title, trail = self.structure, "", list[tuple[int, str]]()
        before: _Block | None = None
        anchor = 0
        for block in self.blocks:
            if before is not None and before.kind == "heading":
                found.glued.add(block.start)
            elif before is not None and _announces(text, before, block):
                anchor = min(anchor, before.start)
            else:
                found.cuts.append((block.start, _strength(block)))
                anchor = block.start
            if block.kind in ("table", "fence", "front"):
                found.spans.append(
                    Span(block.start, block.end, anchor, block.title if block.kind == "table" else "")
                )
            if block.kind == "front" and block.title:
                title = block.title
                found.paths.append((0, (title,)))
            elif block.kind == "heading":
                trail = [entry for entry in trail if entry[0] < block.level] + [(block.level, block.title)]
                names = [name for _, name in trail if name]
                found.paths.append(
                    (block.start, tuple(names if not title or title in names else [title, *names]))
                )
            before = block
        return found


def _strength(block: _Block) -> Cut:
    if block.kind != "heading":
        return Cut.BLOCK
    return Cut.CHAPTER if block.level <= CHAPTER_LEVEL else Cut.HEADING


def _announces(text: str, before: _Block, block: _Block) -> bool:
    """Whether a short paragraph ends in a colon and so belongs to the table, fence or list after it."""
    if (
        before.kind != "text"
        or block.kind not in ("table", "fence", "list")
        or before.end - before.start > _LEAD_IN
    ):
        return False
    return text[before.start : before.end].rstrip().endswith((":", "："))


_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARKS = re.compile(r"\*\*|__|`|<[^<>]{1,200}>|\{#[^}]{0,100}\}|(?:^|\s)#+\s*$")


def _plain(heading: str) -> str:
    """A heading without its Markdown."""
    return " ".join(_MARKS.sub("", _LINK.sub(r"\1", heading)).split())


_READERS: dict[TextKind, type[_Reader]] = {"plain": _Reader, "markdown": _MarkdownReader, "code": _CodeReader}
