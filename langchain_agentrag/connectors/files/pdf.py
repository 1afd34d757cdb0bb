"""PDF: the text layer of each page."""

from __future__ import annotations

import io
import re

from langchain_agentrag.connectors.files.content import Content, Foreign, TextBuilder
from langchain_agentrag.errors import MissingExtraError, UnreadableSourceError

_WIDE = "\u2e80"
_FULL_LINE = 0.8
"""Share of the longest lines' width from which on a line counts as wrapped rather than ended."""
_ENDS = "。！？；：…”』」）.!?:;"
_HYPHENATED = re.compile(r"[^\W\d_]{2,}-$")


def read_pdf(data: bytes) -> Content:
    """Pages of a PDF file as sections, wrapped Chinese lines joined again."""
    try:
        import pypdf
        from pypdf.errors import DependencyError
    except ImportError as error:
        raise MissingExtraError("PDF files", "files") from error
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableSourceError("encrypted PDF: it needs a password. Save it without one.")  # noqa: TRY301
        pages, failed = _page_texts(reader)
    except UnreadableSourceError:
        raise
    except DependencyError as error:
        raise UnreadableSourceError(f"encrypted PDF: {error}") from error
    except Exception as error:  # a parser may raise anything on broken input
        raise UnreadableSourceError(f"damaged PDF: {type(error).__name__}: {error}") from error
    builder = TextBuilder()
    for number, text in enumerate(pages, 1):
        builder.add(unwrapped(text), {"page": number})
    content = builder.content(metadata=_document_info(reader) | {"pages": len(pages)})
    if not content.text and failed:
        raise UnreadableSourceError(f"damaged PDF: none of its {len(pages)} page(s) can be read: {failed[0]}")
    if not content.text:
        msg = f"no text layer: its {len(pages)} page(s) are images only, as in a scan. Run OCR on it first."
        raise UnreadableSourceError(msg)
    blank = [number for number, text in enumerate(pages, 1) if not text.strip()]
    extra = {"pages_without_text": blank} if blank else {}
    return Content(content.text, "plain", content.sections, {**content.metadata, **extra})


def _page_texts(reader: Foreign) -> tuple[list[str], list[str]]:
    """Text of each page; one that cannot be read is empty and its reason is returned."""
    texts, failed = [], []
    for number, page in enumerate(reader.pages, 1):
        try:
            texts.append(page.extract_text())
        except Exception as error:  # noqa: BLE001  a parser may raise anything on a broken page; the others are good
            texts.append("")
            failed.append(f"page {number}: {type(error).__name__}: {error}")
    return texts, failed


def _document_info(reader: Foreign) -> dict[str, str]:
    try:
        info = reader.metadata or {}
        found = {"title": info.get("/Title"), "author": info.get("/Author")}
    except Exception:  # noqa: BLE001  decoration only
        return {}
    return {key: str(value).strip() for key, value in found.items() if value and str(value).strip()}


def unwrapped(text: str) -> str:
    """The text with those line breaks removed that fall inside a Chinese sentence or a hyphenated word."""
    lines = [line.strip() for line in text.splitlines()]
    widths = sorted((_width(line) for line in lines if line), reverse=True)
    full = _FULL_LINE * widths[min(2, len(widths) - 1)] if widths else 0
    joined: list[str] = []
    above = ""
    for line in lines:
        if above and line and _continues(above, line, full):
            joined[-1] = joined[-1].removesuffix("-") + line if above.endswith("-") else joined[-1] + line
        else:
            joined.append(line)
        above = line
    return "\n".join(joined)


def _width(line: str) -> int:
    return sum(2 if char >= _WIDE else 1 for char in line)


def _continues(above: str, line: str, full: float) -> bool:
    if above[-1] >= _WIDE and line[0] >= _WIDE:
        return above[-1] not in _ENDS and _width(above) >= full
    return (
        line[0].islower() and bool(_HYPHENATED.search(above)) and "-" not in above.rsplit(maxsplit=1)[-1][:-1]
    )
