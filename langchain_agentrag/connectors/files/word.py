"""Word: paragraphs, headings, lists and tables in the order of the document, as Markdown."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from langchain_agentrag.connectors.files.content import (
    Content,
    Foreign,
    TextBuilder,
    check_zip,
    markdown_table,
    one_line,
)
from langchain_agentrag.errors import MissingExtraError, UnreadableSourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HEADING = re.compile(r"(?:heading|标题|標題|überschrift|titre)\s*([1-9])$", re.IGNORECASE)
_TITLE = re.compile(r"(?:title|标题|標題|titel|titre)$", re.IGNORECASE)
_MAX_LEVEL = 6
_CONTAINERS = frozenset(
    _W + name
    for name in ("sdt", "sdtContent", "ins", "moveTo", "smartTag", "customXml", "hyperlink", "r", "fldSimple")
)


def read_docx(data: bytes) -> Content:
    """A Word document as Markdown: headers first, then the body in order, footnotes and footers last."""
    check_zip(data)
    try:
        import docx
    except ImportError as error:
        raise MissingExtraError("Word files", "files") from error
    try:
        document = docx.Document(io.BytesIO(data))
    except Exception as error:  # the library passes on whatever zip and XML parsers raise
        raise UnreadableSourceError(f"damaged Word file: {type(error).__name__}: {error}") from error
    styles = {style.style_id: str(style.name) for style in document.styles}
    builder = TextBuilder()
    for text in _margins(document, "header"):
        builder.add(text)
    _Body(styles, builder).add(document.element.body)
    for text in (*_notes(document), *_margins(document, "footer")):
        builder.add(text)
    properties = document.core_properties
    metadata = {"title": properties.title, "author": properties.author}
    return builder.content("markdown", {key: value for key, value in metadata.items() if value})


def _margins(document: Foreign, side: str) -> list[str]:
    """Texts of the headers or footers, each once."""
    found: dict[str, None] = {}
    for section in document.sections:
        for variant in (side, f"first_page_{side}", f"even_page_{side}"):
            part = getattr(section, variant)
            if not part.is_linked_to_previous:
                tables = (table_text(table._tbl) for table in part.tables)  # noqa: SLF001  the only way to it
                words = (paragraph.text.strip() for paragraph in part.paragraphs)
                found["\n".join(filter(None, (*words, *tables)))] = None
    return [text for text in found if text]


def _notes(document: Foreign) -> Iterator[str]:
    """Texts of footnotes and endnotes."""
    from lxml import etree  # type: ignore[import-untyped]

    for relation in document.part.rels.values():
        if relation.reltype.endswith(("/footnotes", "/endnotes")) and not relation.is_external:
            root = etree.fromstring(relation.target_part.blob, etree.XMLParser(resolve_entities=False))
            for note in root:
                yield " ".join(filter(None, (paragraph_text(node) for node in note.iter(_W + "p"))))


class _Body:
    """Writes the blocks of a body or of a table cell."""

    def __init__(self, styles: dict[str, str], builder: TextBuilder) -> None:
        self.styles, self.builder = styles, builder
        self.items: list[str] = []

    def add(self, parent: Foreign) -> None:
        self._blocks(parent)
        self._end_list()

    def _blocks(self, parent: Foreign) -> None:
        for node in parent:
            if node.tag == _W + "p":
                self._paragraph(node)
            elif node.tag == _W + "tbl":
                self._end_list()
                self.builder.add(table_text(node))
            elif node.tag in _CONTAINERS:
                self._blocks(node)

    def _paragraph(self, node: Foreign) -> None:
        text = paragraph_text(node)
        if not text:
            return
        level = self._level(node)
        listed = node.find(f"{_W}pPr/{_W}numPr") is not None or "list" in self._style(node).lower()
        if listed and not level:
            self.items.append(f"- {text}")
            return
        self._end_list()
        self.builder.add(f"{'#' * level} {one_line(text)}" if level else text)
        for box in _text_boxes(node):
            self.builder.add(box)

    def _end_list(self) -> None:
        self.builder.add("\n".join(self.items))
        self.items = []

    def _style(self, node: Foreign) -> str:
        style = node.find(f"{_W}pPr/{_W}pStyle")
        return "" if style is None else self.styles.get(style.get(_W + "val"), style.get(_W + "val") or "")

    def _level(self, node: Foreign) -> int:
        """Heading level of a paragraph, 0 for text; a title counts as 1."""
        name = self._style(node).strip()
        if match := _HEADING.match(name):
            return min(int(match[1]), _MAX_LEVEL)
        if _TITLE.match(name):
            return 1
        outline = node.find(f"{_W}pPr/{_W}outlineLvl")
        level = int(outline.get(_W + "val", "9")) + 1 if outline is not None else 0
        return level if level <= _MAX_LEVEL else 0


def paragraph_text(node: Foreign) -> str:
    """The words of a paragraph, inserted ones included, deleted ones and text boxes not."""
    parts: list[str] = []
    _collect(node, parts)
    return "".join(parts).strip()


def _collect(node: Foreign, parts: list[str]) -> None:
    for child in node:
        if child.tag == _W + "t":
            parts.append(child.text or "")
        elif child.tag in (_W + "tab", _W + "ptab"):
            parts.append("\t")
        elif child.tag in (_W + "br", _W + "cr"):
            parts.append("\n")
        elif child.tag == _W + "noBreakHyphen":
            parts.append("-")
        elif child.tag in _CONTAINERS:
            _collect(child, parts)


def _text_boxes(node: Foreign) -> list[str]:
    """Texts of the boxes anchored in a paragraph; each is stored twice, for old and new programs."""
    boxes: dict[str, None] = {}
    for box in node.iter(_W + "txbxContent"):
        boxes["\n".join(filter(None, (paragraph_text(inner) for inner in box.iter(_W + "p"))))] = None
    return [text for text in boxes if text]


def table_text(table: Foreign) -> str:
    """A table as Markdown rows; merged cells once, tables inside cells after it."""
    rows: list[list[str]] = []
    nested: list[str] = []
    for row in _children(table, "tr"):
        cells: list[str] = []
        for cell in _children(row, "tc"):
            merge = cell.find(f"{_W}tcPr/{_W}vMerge")
            continued = merge is not None and merge.get(_W + "val", "continue") == "continue"
            words = [paragraph_text(node) for node in _children(cell, "p")]
            cells.append("" if continued else " ".join(filter(None, words)))
            nested.extend(table_text(inner) for inner in _children(cell, "tbl"))
        rows.append(cells)
    return "\n\n".join(filter(None, (markdown_table(rows), *nested)))


def _children(parent: Foreign, name: str) -> Iterator[Foreign]:
    """Child elements of a kind, also those inside content controls."""
    for node in parent:
        if node.tag == _W + name:
            yield node
        elif node.tag in _CONTAINERS:
            yield from _children(node, name)
