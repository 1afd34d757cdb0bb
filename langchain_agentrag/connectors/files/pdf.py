"""PDF files: the text layer of each page, with wrapped lines joined."""

from __future__ import annotations

import io
import re

from langchain_agentrag.connectors.files.content import Content, TextBuilder, Untyped
from langchain_agentrag.errors import MissingExtraError, UnreadableSourceError

_FIRST_WIDE = "\u2e80"
_MIN_WRAPPED_WIDTH = 0.8  # lowest share of the longest lines' width at which a line counts as wrapped
_SENTENCE_ENDS = "。！？；：…”』」）.!?:;"
_HYPHENATED = re.compile(r"[^\W\d_]{2,}-$")


def read_pdf(data: bytes) -> Content:
    """Read a PDF file with its pages as sections."""
    try:
        import pypdf
        from pypdf.errors import DependencyError
    except ImportError as error:
        raise MissingExtraError("PDF files", "files") from error
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableSourceError("encrypted PDF: it needs a password. Save it without one.")
        pages, failed = _page_texts(reader)
    except DependencyError as error:
        raise UnreadableSourceError(f"encrypted PDF: {error}") from error
    builder = TextBuilder()
    for number, text in enumerate(pages, 1):
        builder.add(join_wrapped_lines(text), {"page": number})
    blank = [number for number, text in enumerate(pages, 1) if not text.strip()]
    extra = {"pages": len(pages)} | ({"pages_without_text": blank} if blank else {})
    content = builder.content(metadata=_document_info(reader) | extra)
    if not content.text and failed:
        raise UnreadableSourceError(f"damaged PDF: none of its {len(pages)} page(s) can be read: {failed[0]}")
    if not content.text:
        raise UnreadableSourceError(
            f"no text layer: its {len(pages)} page(s) are images only, as in a scan. Run OCR on it first."
        )
    return content


def _page_texts(reader: Untyped) -> tuple[list[str], list[str]]:
    """Return the text of each page, "" for an unreadable one, and the reasons of those."""
    texts, failed = [], []
    for number, page in enumerate(reader.pages, 1):
        try:
            texts.append(page.extract_text())
        except Exception as error:  # noqa: BLE001  a parser may raise anything on a broken page; the others are good
            texts.append("")
            failed.append(f"page {number}: {type(error).__name__}: {error}")
    return texts, failed


def _document_info(reader: Untyped) -> dict[str, str]:
    try:
        info = reader.metadata or {}
        entries = {"title": info.get("/Title"), "author": info.get("/Author")}
    except Exception:  # noqa: BLE001  title and author are optional
        return {}
    return {key: str(value).strip() for key, value in entries.items() if value and str(value).strip()}


def join_wrapped_lines(text: str) -> str:
    """Remove the line breaks inside Chinese sentences and hyphenated words."""
    lines = [line.strip() for line in text.splitlines()]
    widths = sorted((_width(line) for line in lines if line), reverse=True)
    wrapped_width = _MIN_WRAPPED_WIDTH * widths[min(2, len(widths) - 1)] if widths else 0
    joined: list[str] = []
    above = ""
    for line in lines:
        if above and line and _continues(above, line, wrapped_width):
            joined[-1] = joined[-1].removesuffix("-") + line if above.endswith("-") else joined[-1] + line
        else:
            joined.append(line)
        above = line
    return "\n".join(joined)


def _width(line: str) -> int:
    return sum(2 if char >= _FIRST_WIDE else 1 for char in line)


def _continues(above: str, line: str, wrapped_width: float) -> bool:
    if above[-1] >= _FIRST_WIDE and line[0] >= _FIRST_WIDE:
        return above[-1] not in _SENTENCE_ENDS and _width(above) >= wrapped_width
    return line[0].islower() and bool(_HYPHENATED.search(above)) and "-" not in above.rsplit(maxsplit=1)[-1][:-1]
