"""PowerPoint: titles, texts, tables, groups and speaker notes, slide by slide."""

from __future__ import annotations

import io
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


def read_pptx(data: bytes) -> Content:
    """A presentation as Markdown, its slides as sections."""
    check_zip(data)
    try:
        import pptx
    except ImportError as error:
        raise MissingExtraError("PowerPoint files", "files") from error
    try:
        presentation = pptx.Presentation(io.BytesIO(data))
        slides = list(presentation.slides)
    except Exception as error:  # the library passes on whatever zip and XML parsers raise
        raise UnreadableSourceError(f"damaged PowerPoint file: {type(error).__name__}: {error}") from error
    builder = TextBuilder()
    for number, slide in enumerate(slides, 1):
        builder.add(_slide_text(slide), {"slide": number})
    properties = presentation.core_properties
    metadata = {"title": properties.title, "author": properties.author}
    found = {key: value for key, value in metadata.items() if value}
    return builder.content("markdown", {**found, "slides": len(slides)})


def _slide_text(slide: Foreign) -> str:
    title = slide.shapes.title
    parts = []
    if title is not None and title.has_text_frame and title.text_frame.text.strip():
        parts.append(f"## {one_line(title.text_frame.text)}")
    others = (shape for shape in _flat(slide.shapes) if title is None or shape.shape_id != title.shape_id)
    parts.extend(map(_shape_text, others))
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        parts.append(slide.notes_slide.notes_text_frame.text.strip())
    return "\n\n".join(part for part in parts if part)


def _flat(shapes: Foreign) -> Iterator[Foreign]:
    """Shapes in order, those inside groups included."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _flat(shape.shapes)
        else:
            yield shape


def _shape_text(shape: Foreign) -> str:
    if getattr(shape, "has_table", False):
        return markdown_table([[cell.text for cell in row.cells] for row in shape.table.rows])
    if getattr(shape, "has_chart", False):
        return _chart_text(shape.chart)
    if not shape.has_text_frame:
        return ""
    lines = (paragraph.text.replace("\x0b", "\n").strip() for paragraph in shape.text_frame.paragraphs)
    return "\n".join(line for line in lines if line)


def _chart_text(chart: Foreign) -> str:
    """Title, series and categories of a chart."""
    parts = (
        [chart.chart_title.text_frame.text] if chart.has_title and chart.chart_title.has_text_frame else []
    )
    for plot in chart.plots:
        parts.append(" | ".join(str(category) for category in plot.categories))
        parts.extend(f"{series.name}: {' | '.join(map(str, series.values))}" for series in plot.series)
    return "\n".join(part for part in parts if part)
