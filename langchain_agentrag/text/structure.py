"""Document structure in one pass over the lines: headings, blocks, tables, code fences, definitions.

It lists the places where a text may be cut; `chunking.py` measures and cuts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

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


_CHAPTER_LEVEL = 3  # deepest heading level that opens a topic; deeper headings mostly label single paragraphs


@dataclass(frozen=True, slots=True)
class Span:
    """A table, a fence or a front matter: lines that belong together.

    Attributes:
        start: First character.
        end: One past the last character.
        anchor: Start of the heading or lead-in paragraph that must stay with the span.
        header: A table's header line, else empty.
    """

    start: int
    end: int
    anchor: int
    header: str = ""


@dataclass(slots=True)
class Structure:
    """Places in one text, in ascending order.

    Attributes:
        cuts: Starts of lines where a cut is good, with their strength.
        spans: Tables, fences, front matter.
        heading_paths: Positions, with the heading path (or enclosing definitions) that holds from there on.
        after_heading: Starts of blocks that follow a heading; a cut there would separate the heading from them.
        cut_any_line: Whether every line break of the text is a cut (code).
    """

    cuts: list[tuple[int, Cut]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    heading_paths: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    after_heading: set[int] = field(default_factory=set)
    cut_any_line: bool = False


def find_structure(document: SourceDocument) -> Structure:
    """Return the places where a document may be cut."""
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
    structure.after_heading -= section_starts
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
        self.after_blank = True

    def read(self, start: int, line: str) -> None:
        if line.isspace():
            self.after_blank = True
            return
        if self.after_blank:
            self.structure.cuts.append((start, Cut.BLOCK))
        self.after_blank = False

    def close(self, position: int) -> None:
        """End the open block: the text or one of its sections ends here."""
        self.after_blank = True

    def finish(self, text: str) -> Structure:
        """Return the structure of the whole text."""
        return self.structure


_BLOCK_END = re.compile(r"[)}\]]|(?:else|elif|except|finally|catch|end|done|fi|esac)\b", re.IGNORECASE)
_DEFINITION = re.compile(
    r"(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\(\w+\))?|override|"
    r"virtual|inline|extern|unsafe|sealed|open|data|suspend)\s+)*"
    r"(?:class|def|func|fn|function|interface|struct|enum|trait|impl|module|namespace|object|record|type)\b"
)
_MAX_LABEL = 120  # characters of a heading or signature in the context; the rest adds little
_MAX_DEPTH = 6  # enclosing definitions in the context; also keeps deeply nested input linear


class _CodeReader(_Reader):
    """Source code of any language: blank lines and indentation separate definitions."""

    def __init__(self) -> None:
        super().__init__()
        self.structure.cut_any_line = True
        self.enclosing: list[tuple[int, str]] = []  # (indentation, signature)

    def read(self, start: int, line: str) -> None:
        body = line.strip()
        if not body:
            self.after_blank = True
            return
        indent = len(line) - len(line.lstrip())
        if self.after_blank and not _BLOCK_END.match(body):
            self.structure.cuts.append((start, Cut.GROUP if indent else Cut.BLOCK))
        self.after_blank = False
        self._update_enclosing(start, indent, body)

    def _update_enclosing(self, start: int, indent: int, body: str) -> None:
        """Keep the definitions that contain this line: those above it with less indentation."""
        depth = len(self.enclosing)
        while self.enclosing and self.enclosing[-1][0] >= indent and not _BLOCK_END.match(body):
            self.enclosing.pop()
        defines = _DEFINITION.match(body) is not None
        if defines:
            self.enclosing.append((indent, body[:_MAX_LABEL].rstrip(" {:(")))
        if defines or len(self.enclosing) != depth:
            labels = tuple(label for _, label in self.enclosing[-_MAX_DEPTH:])
            self.structure.heading_paths.append((start, labels))


_FENCE = re.compile(r"[ \t]*(?:[-*+>][ \t]+|\d+[.)][ \t]+)?(`{3,}|~{3,})([^`]*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*$")
_TABLE_RULE = re.compile(r"(?:> ?)?\|?(?:[ \t]*:?-+:?[ \t]*\|)+(?:[ \t]*:?-+:?)?$")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)、])[ \t]+\S")
_MARKED_LINE = re.compile(r"\s*[|>*+#-]")
_TITLE = re.compile(r"title[ \t]*:[ \t]*(\S.*)$", re.IGNORECASE)
_MAX_FRONT_MATTER = 200  # lines; a longer one is a text that happens to begin with a horizontal rule
_MAX_LEAD_IN = 200  # characters; longest paragraph that moves to the next chunk with the block it introduces


@dataclass(slots=True)
class _Block:
    kind: str  # "text", "list", "heading", "table", "fence", "front"
    start: int
    end: int = 0
    level: int = 0
    title: str = ""
    lines: int = 1


class _MarkdownReader(_Reader):
    """Markdown blocks, by the rules of CommonMark that matter for cutting."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[_Block] = []
        self.open: _Block | None = None
        self.fence = ""
        self.previous = (0, "")  # start and text of the line above

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
            self._read_text(start, line)
        self.previous = (start, line)

    def _read_front_matter(self, start: int, line: str) -> None:
        if self.open is None:
            self.open = _Block("front", start)
            return
        self.open.lines += 1
        if line in ("---", "..."):
            self.close(start + len(line))
        elif self.open.lines > _MAX_FRONT_MATTER or _HEADING.match(line):
            self.open.kind, self.open.title = "text", ""
            self.close(start)
            self._read_text(start, line)
        elif match := _TITLE.match(line):
            self.open.title = match[1].strip("\"'")

    def _read_text(self, start: int, line: str) -> None:
        block = self.open
        above_start, above = self.previous
        if match := _FENCE.match(line):
            self._begin("fence", start)
            self.fence = match[1]
        elif match := _HEADING.match(line):
            self._begin("heading", start, len(match[1]), _strip_markdown((match[2] or "")[:_MAX_LABEL]))
            self.close(start + len(line))
        elif block is None:
            self._begin("list" if _LIST_ITEM.match(line) else "text", start)
        elif block.kind == "text" and self._is_underline(block, line):
            block.kind, block.level = "heading", 1 if "=" in line else 2
            block.title = _strip_markdown(above[:_MAX_LABEL])
            self.close(start + len(line))
        elif block.kind in ("text", "list") and "|" in above and _TABLE_RULE.match(line.strip()):
            self._begin("table", above_start, title=above.strip())
        elif block.kind == "table" and "|" in line:
            pass
        elif _LIST_ITEM.match(line):
            if block.kind != "list":
                self._begin("list", start)
        elif block.kind in ("text", "list"):
            block.lines += 1
        else:
            self._begin("text", start)

    def _is_underline(self, block: _Block, line: str) -> bool:
        """Return whether the line makes a heading of the one-line paragraph above it."""
        return block.lines == 1 and bool(_UNDERLINE.match(line)) and not _MARKED_LINE.match(self.previous[1])

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
        """Return cuts, spans and heading paths of the blocks."""
        structure, title, headings = self.structure, "", list[_Block]()
        previous: _Block | None = None
        anchor = 0
        for block in self.blocks:
            if previous is not None and previous.kind == "heading":
                structure.after_heading.add(block.start)
            elif previous is not None and _is_lead_in(text, previous, block):
                anchor = min(anchor, previous.start)
            else:
                structure.cuts.append((block.start, _strength(block)))
                anchor = block.start
            if block.kind in ("table", "fence", "front"):
                header = block.title if block.kind == "table" else ""
                structure.spans.append(Span(block.start, block.end, anchor, header))
            if block.kind == "front" and block.title:
                title = block.title
                structure.heading_paths.append((0, (title,)))
            elif block.kind == "heading":
                headings = [heading for heading in headings if heading.level < block.level] + [block]
                path = [heading.title for heading in headings if heading.title]
                if title and title not in path:
                    path.insert(0, title)
                structure.heading_paths.append((block.start, tuple(path)))
            previous = block
        return structure


def _strength(block: _Block) -> Cut:
    if block.kind != "heading":
        return Cut.BLOCK
    return Cut.CHAPTER if block.level <= _CHAPTER_LEVEL else Cut.HEADING


def _is_lead_in(text: str, paragraph: _Block, block: _Block) -> bool:
    """Return whether a short paragraph ends in a colon and so introduces the table, fence or list after it."""
    return (
        paragraph.kind == "text"
        and block.kind in ("table", "fence", "list")
        and paragraph.end - paragraph.start <= _MAX_LEAD_IN
        and text[paragraph.start : paragraph.end].rstrip().endswith((":", "："))
    )


_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARKUP = re.compile(r"\*\*|__|`|<[^<>]{1,200}>|\{#[^}]{0,100}\}|(?:^|\s)#+\s*$")


def _strip_markdown(heading: str) -> str:
    """Return a heading without its Markdown."""
    return " ".join(_MARKUP.sub("", _LINK.sub(r"\1", heading)).split())


_READERS: dict[TextKind, type[_Reader]] = {"plain": _Reader, "markdown": _MarkdownReader, "code": _CodeReader}
