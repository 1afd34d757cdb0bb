"""What a memory is made of, a turn or a tool call, and how each reads as a document. Pure: no I/O, no clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from langchain_agentrag.errors import InvalidDocumentError
from langchain_agentrag.types import Section, SourceDocument

Outcome = Literal["ok", "error", "unknown"]
"""How a tool call ended; "unknown" when nothing says so, never a guess from the words of its result."""

_SHORT: Final = 500  # characters of a tool call that fit into one chunk whatever the settings
_CALL_CONTEXT: Final = 200  # characters of the call that go along with each further piece of a long result
_LABELS: Final = {
    "image": "image/图片",
    "audio": "audio/音频",
    "video": "video/视频",
    "file": "file/文件",
    "document": "document/文档",
}
_SILENT: Final = frozenset({"thinking", "cache"})
"""Parts that are noted in the metadata only: what a model thought is no memory of what was said."""
_OF_ALL: Final = ("agent_id", "doc_id", "type", "role", "session", "position", "entry", "time", "parts")
_RESERVED: Final = frozenset((*_OF_ALL, "speaker", "tool", "arguments", "outcome", "duration", "call_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One thing somebody said.

    Attributes:
        session: Conversation it belongs to.
        entry_id: Its name within the session: the id of its message or row, or its place.
        position: Ordinal within the session, which decides the order, also of equal times; None when the table that
            stores it shall give the next one.
        role: "user", "assistant", "system", or what the source calls it.
        text: What was said, "" when it was no text.
        time: When, with a zone; None when the source does not say.
        speaker: Name of who said it, where the source knows one.
        parts: Kinds of parts that are no text, in order: "image", "audio", "thinking" ….
        extra: More metadata of its document.
    """

    session: str
    entry_id: str
    role: str
    text: str = ""
    position: int | None = None
    time: datetime | None = None
    speaker: str | None = None
    parts: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call of a tool, joined with its result.

    Attributes:
        session: Conversation it belongs to.
        entry_id: Its name within the session.
        tool: Name of the tool, "" when only the result is left of the call.
        arguments: What it was called with: a mapping, or text that could not be read as one.
        result: What came back as text; None when nothing did.
        outcome: How it ended.
        position: Ordinal within the session, or None; see `Turn`.
        time: When it was called, with a zone; None when the source does not say.
        duration: Seconds it took, where they were measured.
        call_id: Id of the call given by the model.
        parts: Kinds of parts of the result that are no text.
        extra: More metadata of its document.
    """

    session: str
    entry_id: str
    tool: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    result: str | None = None
    outcome: Outcome = "unknown"
    position: int | None = None
    time: datetime | None = None
    duration: float | None = None
    call_id: str | None = None
    parts: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)


Entry = Turn | ToolCall


def document_id(source: str, session: str, entry_id: str) -> str:
    """Id of an entry's document: `source/session/entry`, each part with "%" and "/" escaped so that no two meet."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (source, session, entry_id))


def as_document(entry: Entry, source: str, agent_id: str | None) -> SourceDocument | None:
    """An entry as a document of an agent, or None when it holds nothing that could be found.

    The text of a turn is what was said. A tool call reads `tool(argument="value")` and, below, its result. Parts that
    are no text are named in both languages: `[image/图片]`.

    Args:
        entry: The turn or tool call.
        source: Identity of where it is kept, part of the document's id.
        agent_id: Owner, or None for shared.
    """
    text, sections = _turn_text(entry) if isinstance(entry, Turn) else _call_text(entry)
    if not text.strip():
        return None
    doc_id = storable(document_id(source, entry.session, entry.entry_id))
    return SourceDocument(doc_id, text, _metadata(entry), agent_id, "plain", sections)


def storable(text: str) -> str:
    """Text without lone surrogates, which JSON can spell and UTF-8 cannot hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # pairs meet again
    return text


def _metadata(entry: Entry) -> dict[str, Any]:
    extra = {key: value for key, value in entry.extra.items() if key not in _RESERVED}
    common: dict[str, Any] = {"session": entry.session, "position": entry.position, "entry": entry.entry_id}
    if entry.time is not None:
        common["time"] = entry.time
    if entry.parts:
        common["parts"] = list(entry.parts)
    if isinstance(entry, Turn):
        named = {"speaker": entry.speaker} if entry.speaker else {}
        return {"type": "dialogue", "role": entry.role, **common, **named, **extra}
    found: dict[str, Any] = {"type": "tool_call", "role": "tool", **common, "tool": entry.tool}
    found |= {"arguments": entry.arguments, "outcome": entry.outcome}
    if entry.duration is not None:
        found["duration"] = entry.duration
    if entry.call_id is not None:
        found["call_id"] = entry.call_id
    return found | extra


def _turn_text(turn: Turn) -> tuple[str, tuple[Section, ...]]:
    return storable("\n".join(part for part in (turn.text, _noted(turn.parts)) if part.strip())), ()


def _call_text(call: ToolCall) -> tuple[str, tuple[Section, ...]]:
    head = storable(_written_call(call))
    body = storable("\n".join(part for part in (readable(call.result or ""), _noted(call.parts)) if part))
    mark = {"ok": "→ ", "error": "✗ "}.get(call.outcome, "→ ") if body else ""
    text = "\n".join(part for part in (head, mark + body) if part)
    if len(text) <= _SHORT or not body:
        return text, ()
    start = len(text) - len(body)
    context = head if len(head) <= _CALL_CONTEXT else head[:_CALL_CONTEXT] + "…"
    return text, (Section(0, start), Section(start, len(text), context=context))


def _written_call(call: ToolCall) -> str:
    if not call.tool and not call.arguments:
        return ""  # the call itself is lost: its result stands alone
    given = call.arguments
    if isinstance(given, Mapping):
        written = ", ".join(f"{name}={_json(value)}" for name, value in given.items())
    else:
        written = readable(given)
    return f"{call.tool}({written})"


def _noted(parts: tuple[str, ...]) -> str:
    """The parts a reader should know of, each kind once."""
    return " ".join(f"[{_LABELS.get(kind, kind)}]" for kind in dict.fromkeys(parts) if kind not in _SILENT)


def readable(text: str) -> str:
    r"""The text; JSON that spells its characters as `\uXXXX`, which nobody could find, with the characters."""
    if "\\u" not in text or text.lstrip()[:1] not in {"{", "[", '"'}:
        return text
    try:
        return _json(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        return str(value)


def _check(entry: Entry) -> None:
    if not isinstance(entry.session, str) or not isinstance(entry.entry_id, str) or not entry.entry_id:
        raise InvalidDocumentError(
            f"{type(entry).__name__}(session={entry.session!r}, entry_id={entry.entry_id!r}): both must be strings, "
            "and entry_id not empty, since the id of the document is made of them."
        )
    if entry.time is not None and entry.time.utcoffset() is None:
        raise InvalidDocumentError(
            f"{type(entry).__name__}(time={entry.time!r}): a time without a zone could be any of 38 hours; give it "
            "one, as in datetime.now(timezone.utc)."
        )
