"""Records of agent memory (turns, tool calls, LangGraph items) and their conversion to documents.

No I/O and no clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from langchain_agentrag.errors import InvalidDocumentError
from langchain_agentrag.types import Section, SourceDocument

ToolOutcome = Literal["ok", "error", "unknown"]
"""How a tool call ended; "unknown" unless the source states it: it is never guessed from the result's text."""

_ONE_CHUNK: Final = 500  # characters of a tool call that fit into one chunk with any settings
_CONTEXT_LENGTH: Final = 200  # characters of the call that become context of each further chunk of a long result
_PART_LABELS: Final = {
    "image": "image/图片", "audio": "audio/音频", "video": "video/视频", "file": "file/文件",
    "document": "document/文档",
}  # fmt: skip
_METADATA_ONLY: Final = frozenset({"thinking", "cache"})
"""Kinds of parts that appear in the metadata only: a model's reasoning is not part of the conversation."""
_RESERVED: Final = frozenset({
    "agent_id", "doc_id", "type", "role", "session", "position", "entry", "time", "parts", "speaker", "tool",
    "arguments", "outcome", "duration", "call_id",
})  # fmt: skip
_TYPE_FIELDS: Final = frozenset({"kind", "type", "id", "schema"})
"""Fields that describe the type of a LangGraph item and hold no text of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a conversation.

    Attributes:
        session: Conversation it belongs to.
        entry_id: Its name within the session: the id of its message or row, or its position.
        position: Ordinal within the session, which decides the order, also of equal times; None when the table that
            stores it shall assign the next one.
        role: "user", "assistant", "system", or the source's own name.
        text: Its text, "" when it has none.
        time: When it was written, with a zone; None when the source does not say.
        speaker: Name of the author, or None.
        parts: Kinds of its non-text parts, in order: "image", "audio", "thinking" ….
        extra: Further metadata of its document.
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
    """One tool call, joined with its result.

    Attributes:
        session: Conversation it belongs to.
        entry_id: Its name within the session.
        tool: Name of the tool, "" when only the result of the call is left.
        arguments: Its arguments: a mapping, or text that could not be parsed as one.
        result: Its result as text; None without a result.
        outcome: How it ended.
        position: Ordinal within the session, or None; see `Turn`.
        time: When it was called, with a zone; None when the source does not say.
        duration: Seconds it took, or None.
        call_id: Id of the call assigned by the model.
        parts: Kinds of the result's non-text parts.
        extra: Further metadata of its document.
    """

    session: str
    entry_id: str
    tool: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    result: str | None = None
    outcome: ToolOutcome = "unknown"
    position: int | None = None
    time: datetime | None = None
    duration: float | None = None
    call_id: str | None = None
    parts: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self)


Entry = Turn | ToolCall


@dataclass(frozen=True, slots=True)
class LangGraphItem:
    """One item of a LangGraph store, with the segments of its namespace."""

    namespace: tuple[str, ...]
    key: str
    value: Mapping[str, Any]
    created: datetime | None = None
    updated: datetime | None = None
    expires: datetime | None = None


def document_id(source: str, session: str, entry_id: str) -> str:
    """Return the document id of an entry: `source/session/entry`, with "%" and "/" escaped in each part."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (source, session, entry_id))


def as_document(entry: Entry, source: str, agent_id: str | None) -> SourceDocument | None:
    """Convert an entry to a document of an agent, or return None when it holds no text.

    The text of a turn is its message. A tool call reads `tool(argument="value")`, with its result below. Non-text
    parts are named in both languages: `[image/图片]`.

    Args:
        entry: The turn or tool call.
        source: Name of the source, first part of the document id.
        agent_id: Owner, or None for shared.
    """
    text, sections = _turn_text(entry) if isinstance(entry, Turn) else _call_text(entry)
    if not text.strip():
        return None
    doc_id = replace_surrogates(document_id(source, entry.session, entry.entry_id))
    return SourceDocument(doc_id, text, _metadata(entry), agent_id, "plain", sections)


def item_document(item: LangGraphItem, source: str, agent_id: str | None) -> SourceDocument | None:
    """Convert an item to a document of an agent, or return None when it holds no text.

    A value with one text field is that text; one with several reads `field: text`, one per line.
    """
    try:
        texts = list(_texts(item.value, ()))
    except RecursionError as error:
        raise InvalidDocumentError(f"The item {item.key!r} is nested too deep: make it flatter.") from error
    labelled = [(path, text) for path, text in texts if path[-1:] != () and path[-1] not in _TYPE_FIELDS]
    texts = labelled or texts
    text = texts[0][1] if len(texts) == 1 else "\n".join(f"{'.'.join(path)}: {text}" for path, text in texts)
    if not text.strip():
        return None
    namespace = ".".join(item.namespace)
    metadata: dict[str, Any] = {"type": "item", "namespace": namespace, "key": item.key, "value": item.value}
    times = {"time": item.updated, "created_at": item.created, "expires_at": item.expires}
    metadata |= {name: time for name, time in times.items() if time is not None}
    doc_id = replace_surrogates(document_id(source, namespace, item.key))
    return SourceDocument(doc_id, replace_surrogates(text), metadata, agent_id)


def _texts(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the non-empty texts and numbers in a value, each with the path of its keys."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, path)
    elif value is not None and not isinstance(value, bytes):
        text = str(value)
        if text.strip():
            yield path, text


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can spell and UTF-8 cannot encode."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins surrogate pairs
    return text


def readable(text: str) -> str:
    r"""Decode the `\uXXXX` escapes of a JSON text, which no query would match; other texts stay as they are."""
    if "\\u" not in text or text.lstrip()[:1] not in {"{", "[", '"'}:
        return text
    try:
        return _json(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _metadata(entry: Entry) -> dict[str, Any]:
    extra = {key: value for key, value in entry.extra.items() if key not in _RESERVED}
    common: dict[str, Any] = {"session": entry.session, "position": entry.position, "entry": entry.entry_id}
    if entry.time is not None:
        common["time"] = entry.time
    if entry.parts:
        common["parts"] = list(entry.parts)
    if isinstance(entry, Turn):
        speaker = {"speaker": entry.speaker} if entry.speaker else {}
        return {"type": "dialogue", "role": entry.role, **common, **speaker, **extra}
    metadata: dict[str, Any] = {"type": "tool_call", "role": "tool", **common, "tool": entry.tool}
    metadata |= {"arguments": entry.arguments, "outcome": entry.outcome}
    if entry.duration is not None:
        metadata["duration"] = entry.duration
    if entry.call_id is not None:
        metadata["call_id"] = entry.call_id
    return metadata | extra


def _turn_text(turn: Turn) -> tuple[str, tuple[Section, ...]]:
    return replace_surrogates("\n".join(part for part in (turn.text, _part_labels(turn.parts)) if part.strip())), ()


def _call_text(call: ToolCall) -> tuple[str, tuple[Section, ...]]:
    head = replace_surrogates(_call_expression(call))
    body = replace_surrogates("\n".join(filter(None, (readable(call.result or ""), _part_labels(call.parts)))))
    mark = {"ok": "→ ", "error": "✗ "}.get(call.outcome, "→ ") if body else ""
    text = "\n".join(part for part in (head, mark + body) if part)
    if len(text) <= _ONE_CHUNK or not body:
        return text, ()
    start = len(text) - len(body)
    context = head if len(head) <= _CONTEXT_LENGTH else head[:_CONTEXT_LENGTH] + "…"
    return text, (Section(0, start), Section(start, len(text), context=context))


def _call_expression(call: ToolCall) -> str:
    if not call.tool and not call.arguments:
        return ""  # the call itself is lost, only its result is left
    if isinstance(call.arguments, Mapping):
        arguments = ", ".join(f"{name}={_json(value)}" for name, value in call.arguments.items())
    else:
        arguments = readable(call.arguments)
    return f"{call.tool}({arguments})"


def _part_labels(parts: tuple[str, ...]) -> str:
    """Return a label for each kind of part that appears in the text, once each."""
    kinds = (kind for kind in dict.fromkeys(parts) if kind not in _METADATA_ONLY)
    return " ".join(f"[{_PART_LABELS.get(kind, kind)}]" for kind in kinds)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError):
        return str(value)
    except RecursionError:
        return "[… nested too deep / 嵌套过深 …]"


def _check(entry: Entry) -> None:
    if not isinstance(entry.session, str) or not isinstance(entry.entry_id, str) or not entry.entry_id:
        raise InvalidDocumentError(
            f"{type(entry).__name__}(session={entry.session!r}, entry_id={entry.entry_id!r}): both must be strings, "
            "and entry_id not empty, because the document id is built from them."
        )
    if entry.time is not None and entry.time.utcoffset() is None:
        raise InvalidDocumentError(
            f"{type(entry).__name__}(time={entry.time!r}): the time must have a zone; without one it could be any of "
            "38 hours. Use for example datetime.now(timezone.utc)."
        )
