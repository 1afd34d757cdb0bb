"""Guards against files that unpack to far more than they weigh."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_agentrag.connectors.files.encodings import decode
from langchain_agentrag.errors import UnreadableSourceError
from langchain_agentrag.types import Section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_agentrag.connectors.files.encodings import Decoded
    from langchain_agentrag.types import TextKind

_UNPACKED = 500 * 2**20
"""Most bytes an Office file may unpack to; ordinary ones stay below a tenth of it."""
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def check_zip(data: bytes) -> None:
    """Look at a zip-based Office file before a library unpacks it.

    Raises:
        UnreadableSourceError: it is encrypted, no zip file, or unpacks to too much.
    """
    if data.startswith(_OLE):
        msg = "encrypted, or an old binary Office file: save it without password as .docx, .xlsx or .pptx"
        raise UnreadableSourceError(msg)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile as error:
        msg = f"damaged file: {error}"
        raise UnreadableSourceError(msg) from error
    if unpacked > _UNPACKED:
        msg = f"unpacks to {unpacked:,} bytes, more than the {_UNPACKED:,} allowed for an Office file"
        raise UnreadableSourceError(msg)


def gunzip(data: bytes, limit: int) -> bytes:
    """The unpacked bytes of a .gz file.

    Raises:
        UnreadableSourceError: it is damaged or unpacks to more than `limit` bytes.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        msg = f"damaged gzip file: {error}"
        raise UnreadableSourceError(msg) from error
    if len(unpacked) > limit:
        msg = f"unpacks to more than max_bytes={limit:,} bytes: raise max_bytes to index it"
        raise UnreadableSourceError(msg)
    return unpacked


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


_FRONT_MATTER = re.compile(r"---[ \t]*\n(.{0,20000}?)\n(?:---|\.\.\.)[ \t]*(?:\n|$)", re.DOTALL)
_ENTRY = re.compile(r"([A-Za-z_][\w-]{0,40})[ \t]*:[ \t]+(\S.*)$")
_LIST = re.compile(r"\[([^\[\]{}]*)\]$")
_MAX_VALUE = 500
"""Longer front matter values are text, which the index holds anyway."""
_NOT_FROM_FILES = frozenset(
    {"agent_id", "source", "file_name", "type", "format", "size", "mtime", "encoding", "doc_id", "chunk_id"}
)
"""Keys that a file may not claim for itself: above all not who owns it."""


def decoded_metadata(decoded: Decoded) -> dict[str, Any]:
    """How the text was read, for the document's metadata."""
    damage = {"undecodable": decoded.damaged} if decoded.damaged else {}
    return {"encoding": decoded.encoding.removesuffix("-sig"), **damage}


def read_plain(data: bytes, kind: TextKind = "plain") -> Content:
    """Plain text, or any text whose markup is worth searching as it stands."""
    decoded = decode(data)
    return Content(storable(decoded.text), kind, metadata=decoded_metadata(decoded))


def read_code(data: bytes) -> Content:
    """Source code of any language."""
    return read_plain(data, "code")


def read_markdown(data: bytes) -> Content:
    """Markdown; the simple entries of a front matter become metadata, and its text stays in place."""
    decoded = decode(data)
    text = storable(decoded.text)
    return Content(text, "markdown", metadata=front_matter(text) | decoded_metadata(decoded))


def front_matter(text: str) -> dict[str, Any]:
    """The one-line entries of a YAML front matter, as strings or lists of strings."""
    match = _FRONT_MATTER.match(text)
    found: dict[str, Any] = {}
    for line in match[1].splitlines() if match else ():
        entry = _ENTRY.match(line)
        if entry and entry[1].lower() not in _NOT_FROM_FILES and len(entry[2]) <= _MAX_VALUE:
            value = entry[2].strip()
            items = _LIST.match(value)
            if items:
                found[entry[1]] = [_unquoted(item) for item in items[1].split(",") if item.strip()]
            elif value[0] not in "|>&*!{[":
                found[entry[1]] = _unquoted(value)
    return found


def _unquoted(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
