"""Content of a file: text with sections, plain text, Markdown and source code, limits on unpacking."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_agentrag.connectors.files.encodings import Decoded, decode
from langchain_agentrag.errors import UnreadableSourceError
from langchain_agentrag.types import Section, TextKind

Untyped = Any
"""An object of a library without type hints, or a JSON value."""

_SEPARATOR: Final = "\n\n"
_MAX_UNPACKED: Final = 500 * 2**20
"""Most bytes an Office file may unpack to; ordinary ones stay below a tenth of it."""
_OLE_MAGIC: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_UNSTORABLE: Final = re.compile("[\x00-\x08\x0b\x0e-\x1f\ud800-\udfff]")
_CHINESE_WRAP: Final = re.compile("(?<=[\u2e80-\U0010ffff])[ \\t]*\\r?\\n\\s*(?=[\u2e80-\U0010ffff])")
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(.{0,20000}?)\n(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_FRONT_MATTER_LINE: Final = re.compile(r"([A-Za-z_][\w-]{0,40})[ \t]*:[ \t]+(\S.*)$")
_LIST: Final = re.compile(r"\[([^\[\]{}]*)\]$")
_MAX_FRONT_MATTER_VALUE: Final = 500
"""Longer front matter values are not metadata; they are part of the text, which is indexed."""
_RESERVED: Final = frozenset(
    {"agent_id", "source", "file_name", "type", "format", "size", "mtime", "encoding", "doc_id", "chunk_id"}
)
"""Metadata keys that a file must not set itself, above all its owner."""


@dataclass(frozen=True, slots=True)
class Content:
    """The text of a file.

    Attributes:
        text: The text to index and return.
        kind: Its structure.
        sections: Pages, slides, sheets, rows, cells.
        metadata: Title, author, number of pages …
    """

    text: str
    kind: TextKind = "plain"
    sections: tuple[Section, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


class TextBuilder:
    """Joins the parts of a file to one text and records their positions as sections."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._sections: list[Section] = []

    def add(
        self, text: str, locator: Mapping[str, Any] | None = None, *, context: str = "", joinable: bool = True
    ) -> None:
        """Append a part, which becomes a section if it has a locator; a blank one is ignored."""
        text = clean_text(text).strip()
        if not text:
            return
        if self._parts:
            self._parts.append(_SEPARATOR)
            self._length += len(_SEPARATOR)
        if locator is not None:
            end = self._length + len(text)
            self._sections.append(Section(self._length, end, locator, clean_text(context), joinable))
        self._parts.append(text)
        self._length += len(text)

    def content(self, kind: TextKind = "plain", metadata: Mapping[str, Any] | None = None) -> Content:
        """Return everything added so far."""
        return Content("".join(self._parts), kind, tuple(self._sections), dict(metadata or {}))


def clean_text(text: str) -> str:
    """Remove control characters and replace surrogate pairs by the characters they encode."""
    if _UNSTORABLE.search(text) is None:
        return text
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNSTORABLE.sub(lambda match: "\n" if match[0] == "\x0b" else "", text)


def one_line(text: str) -> str:
    """Join the lines of a text by spaces, but by nothing between two Chinese characters, where a break is a wrap."""
    return " ".join(_CHINESE_WRAP.sub("", text).split())


def markdown_table(rows: list[list[str]]) -> str:
    """Format rows as a Markdown table with the first one as header; empty rows are omitted."""
    filled = [[one_line(cell) for cell in row] for row in rows]
    filled = [row for row in filled if any(row)]
    if not filled:
        return ""
    lines = [f"| {' | '.join(row)} |" for row in filled]
    if len(filled) > 1:
        lines.insert(1, "|" + " --- |" * len(filled[0]))
    return "\n".join(lines)


def decoded_metadata(decoded: Decoded) -> dict[str, Any]:
    """Return encoding and number of undecodable places of a text, for the metadata."""
    damage = {"undecodable": decoded.damaged} if decoded.damaged else {}
    return {"encoding": decoded.encoding.removesuffix("-sig"), **damage}


def read_plain(data: bytes, kind: TextKind = "plain") -> Content:
    """Read plain text, or any text whose markup is indexed as it is."""
    decoded = decode(data)
    return Content(clean_text(decoded.text), kind, metadata=decoded_metadata(decoded))


def read_markdown(data: bytes) -> Content:
    """Read Markdown; one-line entries of a front matter become metadata, and its text stays in place."""
    decoded = decode(data)
    text = clean_text(decoded.text)
    return Content(text, "markdown", metadata=front_matter(text) | decoded_metadata(decoded))


def front_matter(text: str) -> dict[str, Any]:
    """Return the one-line entries of a YAML front matter, as strings or lists of strings."""
    match = _FRONT_MATTER.match(text)
    entries: dict[str, Any] = {}
    for line in match[1].splitlines() if match else ():
        entry = _FRONT_MATTER_LINE.match(line)
        if entry and entry[1].lower() not in _RESERVED and len(entry[2]) <= _MAX_FRONT_MATTER_VALUE:
            value = entry[2].strip()
            items = _LIST.match(value)
            if items:
                entries[entry[1]] = [_unquoted(item) for item in items[1].split(",") if item.strip()]
            elif value[0] not in "|>&*!{[":
                entries[entry[1]] = _unquoted(value)
    return entries


def _unquoted(value: str) -> str:
    value = value.strip()
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted else value


def check_zip(data: bytes) -> None:
    """Check a zip-based Office file before a library unpacks it.

    Raises:
        UnreadableSourceError: it is encrypted, or unpacks to too many bytes.
        BadZipFile: it is not a zip file.
    """
    if data.startswith(_OLE_MAGIC):
        raise UnreadableSourceError(
            "encrypted, or an old binary Office file: save it without password as .docx, .xlsx or .pptx"
        )
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > _MAX_UNPACKED:
        raise UnreadableSourceError(
            f"unpacks to {unpacked:,} bytes, more than the {_MAX_UNPACKED:,} allowed for an Office file"
        )


def gunzip(data: bytes, limit: int) -> bytes:
    """Unpack a .gz file.

    Raises:
        UnreadableSourceError: it is damaged or unpacks to more than `limit` bytes.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableSourceError(f"damaged gzip file: {error}") from error
    if len(unpacked) > limit:
        raise UnreadableSourceError(f"unpacks to more than max_bytes={limit:,} bytes: raise max_bytes to index it")
    return unpacked
