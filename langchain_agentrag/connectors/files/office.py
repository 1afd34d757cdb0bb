"""Word and PowerPoint files as Markdown, with tables, footnotes, text boxes and speaker notes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Final

from langchain_agentrag.connectors.files.content import (
    Content,
    TextBuilder,
    Untyped,
    check_zip,
    markdown_table,
    one_line,
)
from langchain_agentrag.errors import MissingExtraError

_W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_HEADING: Final = re.compile(r"(?:heading|标题|標題|überschrift|titre)\s*([1-9])$", re.IGNORECASE)
_TITLE: Final = re.compile(r"(?:title|标题|標題|titel|titre)$", re.IGNORECASE)
_MAX_LEVEL: Final = 6
_CONTAINERS: Final = frozenset(
    _W + name for name in ("sdt", "sdtContent", "ins", "moveTo", "smartTag", "customXml", "hyperlink", "r", "fldSimple")
)


def read_docx(data: bytes) -> Content:
    """Read a Word file as Markdown: page headers, the body in order, footnotes, page footers."""
    check_zip(data)
    try:
        import docx
    except ImportError as error:
        raise MissingExtraError("Word files", "files") from error
    document = docx.Document(io.BytesIO(data))
    styles = {style.style_id: str(style.name) for style in document.styles}
    builder = TextBuilder()
    for text in _page_margins(document, "header"):
        builder.add(text)
    _Body(styles, builder).add(document.element.body)
    for text in (*_footnotes(document), *_page_margins(document, "footer")):
        builder.add(text)
    return builder.content("markdown", _title_and_author(document))


def _title_and_author(document: Untyped) -> dict[str, str]:
    properties = document.core_properties
    metadata = {"title": properties.title, "author": properties.author}
    return {key: value for key, value in metadata.items() if value}


def _page_margins(document: Untyped, side: str) -> list[str]:
    """Return the texts of the page headers or footers, each once."""
    texts: dict[str, None] = {}
    for section in document.sections:
        for variant in (side, f"first_page_{side}", f"even_page_{side}"):
            part = getattr(section, variant)
            if not part.is_linked_to_previous:
                tables = (_table_text(table._tbl) for table in part.tables)  # noqa: SLF001  there is no public way
                paragraphs = (paragraph.text.strip() for paragraph in part.paragraphs)
                texts["\n".join(filter(None, (*paragraphs, *tables)))] = None
    return [text for text in texts if text]


def _footnotes(document: Untyped) -> Iterator[str]:
    """Yield the texts of footnotes and endnotes."""
    from lxml import etree  # type: ignore[import-untyped]

    for relation in document.part.rels.values():
        if relation.reltype.endswith(("/footnotes", "/endnotes")) and not relation.is_external:
            root = etree.fromstring(relation.target_part.blob, etree.XMLParser(resolve_entities=False))
            for note in root:
                yield " ".join(filter(None, (_paragraph_text(node) for node in note.iter(_W + "p"))))


class _Body:
    """Converts the blocks of a document body."""

    def __init__(self, styles: dict[str, str], builder: TextBuilder) -> None:
        self.styles, self.builder = styles, builder
        self.items: list[str] = []

    def add(self, parent: Untyped) -> None:
        self._blocks(parent)
        self._end_list()

    def _blocks(self, parent: Untyped) -> None:
        for node in parent:
            if node.tag == _W + "p":
                self._paragraph(node)
            elif node.tag == _W + "tbl":
                self._end_list()
                self.builder.add(_table_text(node))
            elif node.tag in _CONTAINERS:
                self._blocks(node)

    def _paragraph(self, node: Untyped) -> None:
        text = _paragraph_text(node)
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

    def _style(self, node: Untyped) -> str:
        style = node.find(f"{_W}pPr/{_W}pStyle")
        return "" if style is None else self.styles.get(style.get(_W + "val"), style.get(_W + "val") or "")

    def _level(self, node: Untyped) -> int:
        """Return the heading level of a paragraph, 0 for text, 1 for a title."""
        name = self._style(node).strip()
        if match := _HEADING.match(name):
            return min(int(match[1]), _MAX_LEVEL)
        if _TITLE.match(name):
            return 1
        outline = node.find(f"{_W}pPr/{_W}outlineLvl")
        level = int(outline.get(_W + "val", "9")) + 1 if outline is not None else 0
        return level if level <= _MAX_LEVEL else 0


def _paragraph_text(node: Untyped) -> str:
    """Return the text of a paragraph with tracked insertions, without tracked deletions and text boxes."""
    parts: list[str] = []
    _collect_text(node, parts)
    return "".join(parts).strip()


def _collect_text(node: Untyped, parts: list[str]) -> None:
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
            _collect_text(child, parts)


def _text_boxes(node: Untyped) -> list[str]:
    """Return the texts of the boxes anchored in a paragraph; each is stored twice, for old and new programs."""
    boxes: dict[str, None] = {}
    for box in node.iter(_W + "txbxContent"):
        boxes["\n".join(filter(None, (_paragraph_text(inner) for inner in box.iter(_W + "p"))))] = None
    return [text for text in boxes if text]


def _table_text(table: Untyped) -> str:
    """Return a table as Markdown: merged cells once, nested tables after it."""
    rows: list[list[str]] = []
    nested: list[str] = []
    for row in _children(table, "tr"):
        cells: list[str] = []
        for cell in _children(row, "tc"):
            merge = cell.find(f"{_W}tcPr/{_W}vMerge")
            continued = merge is not None and merge.get(_W + "val", "continue") == "continue"
            texts = [_paragraph_text(node) for node in _children(cell, "p")]
            cells.append("" if continued else " ".join(filter(None, texts)))
            nested.extend(_table_text(inner) for inner in _children(cell, "tbl"))
        rows.append(cells)
    return "\n\n".join(filter(None, (markdown_table(rows), *nested)))


def _children(parent: Untyped, name: str) -> Iterator[Untyped]:
    """Yield the child elements of a name, including those inside content controls."""
    for node in parent:
        if node.tag == _W + name:
            yield node
        elif node.tag in _CONTAINERS:
            yield from _children(node, name)


# -- PowerPoint -------------------------------------------------------------------------------------------------------


def read_pptx(data: bytes) -> Content:
    """Read a PowerPoint file as Markdown, with the slides as sections."""
    check_zip(data)
    try:
        import pptx
    except ImportError as error:
        raise MissingExtraError("PowerPoint files", "files") from error
    presentation = pptx.Presentation(io.BytesIO(data))
    slides = list(presentation.slides)
    builder = TextBuilder()
    for number, slide in enumerate(slides, 1):
        builder.add(_slide_text(slide), {"slide": number})
    return builder.content("markdown", {**_title_and_author(presentation), "slides": len(slides)})


def _slide_text(slide: Untyped) -> str:
    title = slide.shapes.title
    parts = []
    if title is not None and title.has_text_frame and title.text_frame.text.strip():
        parts.append(f"## {one_line(title.text_frame.text)}")
    others = (shape for shape in _leaf_shapes(slide.shapes) if title is None or shape.shape_id != title.shape_id)
    parts.extend(map(_shape_text, others))
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        parts.append(slide.notes_slide.notes_text_frame.text.strip())
    return "\n\n".join(part for part in parts if part)


def _leaf_shapes(shapes: Untyped) -> Iterator[Untyped]:
    """Yield the shapes in order, including those inside groups."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _leaf_shapes(shape.shapes)
        else:
            yield shape


def _shape_text(shape: Untyped) -> str:
    if getattr(shape, "has_table", False):
        return markdown_table([[cell.text for cell in row.cells] for row in shape.table.rows])
    if getattr(shape, "has_chart", False):
        return _chart_text(shape.chart)
    if not shape.has_text_frame:
        return ""
    lines = (paragraph.text.replace("\x0b", "\n").strip() for paragraph in shape.text_frame.paragraphs)
    return "\n".join(line for line in lines if line)


def _chart_text(chart: Untyped) -> str:
    """Return title, categories and series of a chart."""
    parts = [chart.chart_title.text_frame.text] if chart.has_title and chart.chart_title.has_text_frame else []
    for plot in chart.plots:
        parts.append(" | ".join(str(category) for category in plot.categories))
        parts.extend(f"{series.name}: {' | '.join(map(str, series.values))}" for series in plot.series)
    return "\n".join(part for part in parts if part)
