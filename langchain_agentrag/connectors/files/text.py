"""Files that are text already: Markdown with its front matter, plain text, source code, XML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from langchain_agentrag.connectors.files.content import Content, storable
from langchain_agentrag.connectors.files.encodings import decode

if TYPE_CHECKING:
    from langchain_agentrag.connectors.files.encodings import Decoded
    from langchain_agentrag.types import TextKind

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
