"""Messages of LangChain, LlamaIndex, OpenAI and Anthropic in one form, from objects or stored JSON.

Stored objects are never instantiated; their fields are read from the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_agentrag.connectors.memory.turns import ToolOutcome

_ROLES: Final = {
    "human": "user", "ai": "assistant", "chatbot": "assistant", "model": "assistant", "developer": "system",
    "function": "tool",
}  # fmt: skip
_KNOWN_ROLES: Final = frozenset({"user", "assistant", "system", "tool", *_ROLES})
_LANGCHAIN_CLASSES: Final = ("Human", "AI", "System", "Tool", "Function", "Chat", "Remove")
_PART_KINDS: Final = {
    "image_url": "image", "input_image": "image", "image_file": "image",
    "input_audio": "audio", "audio_url": "audio", "video_url": "video", "input_file": "file",
    "reasoning": "thinking", "reasoning_content": "thinking", "redacted_thinking": "thinking",
    "cache_point": "cache",
}  # fmt: skip
"""Content types of the frameworks → kind of part; other types keep their name."""
_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text", "plain_text", "text-plain"})
_MEDIA_TYPES: Final = frozenset({"image", "audio", "video", "file", "document"})
_TEXT_FIELDS: Final = ("text", "refusal", "cited_content", "content")
_CALL_TYPES: Final = frozenset({"tool_use", "tool_call", "function_call", "server_tool_use", "server_tool_call"})
_RESULT_TYPES: Final = frozenset({"tool_result", "function_call_output", "server_tool_result"})
_CONTENT_FIELDS: Final = ("content", "blocks", "tool_calls", "function_call", "audio")
_TIMESTAMP_FIELDS: Final = ("timestamp", "created_at", "created", "time", "ts", "date")
_OUTCOMES: Final[dict[object, ToolOutcome]] = {"success": "ok", "ok": "ok", "error": "error", "failed": "error"}


class NotAMessageError(ValueError):
    """A value is not a message of any known format; the text says why."""


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A tool call requested by an assistant message, without its result."""

    tool: str
    arguments: Mapping[str, Any] | str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call, as a message returns it."""

    call_id: str | None
    tool: str
    text: str
    parts: tuple[str, ...] = ()
    outcome: ToolOutcome = "unknown"


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: "user", "assistant", "system", "tool", or a custom role of the source.
        text: Its text parts, one per line.
        parts: Kinds of its non-text parts, in order.
        calls: Tool calls it requests.
        results: Results of tool calls it contains.
        message_id: Its own id, or None.
        timestamp: When it was written, as stored, or None.
        speaker: Name of the author, or None.
        extra: Further metadata.
    """

    role: str
    text: str = ""
    parts: tuple[str, ...] = ()
    calls: tuple[ToolRequest, ...] = ()
    results: tuple[ToolResult, ...] = ()
    message_id: str | None = None
    timestamp: object = None
    speaker: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def looks_like_message(raw: object) -> bool:
    """Return whether a value has the form of a message; reading it may still fail."""
    return _message_fields(raw) is not None and not (isinstance(raw, Mapping) and "messages" in raw)


def read_message(raw: object) -> Message | None:
    """Convert a message of any framework, or return None for an instruction to remove one.

    Raises:
        NotAMessageError: the value has none of the known formats.
    """
    try:
        return _read_message(raw)
    except RecursionError:
        raise NotAMessageError(f"a {type(raw).__name__} that is nested too deep is not a message") from None


def _read_message(raw: object) -> Message | None:
    fields = _message_fields(raw)
    if fields is None:
        # kind and field names only: messages end up in logs, so the content must not appear
        names = f" with {', '.join(map(str, list(raw)[:8]))}" if isinstance(raw, Mapping) and raw else ""
        raise NotAMessageError(f"a {type(raw).__name__}{names} is not a message of LangChain, LlamaIndex or OpenAI")
    if fields["role"] == "remove":
        return None
    content = _Content()
    content.add_payload(fields.get("content"))
    content.add(fields.get("blocks"))
    kwargs = _mapping(fields.get("additional_kwargs"))
    text, parts, results = "\n".join(content.texts), tuple(content.parts), tuple(content.results)
    role, speaker = fields["role"], fields.get("name")
    if role == "tool":
        call_id = fields.get("tool_call_id") or kwargs.get("tool_call_id")
        tool = speaker or kwargs.get("name") or ""
        outcome = _OUTCOMES.get(fields.get("status"), "unknown")
        results = (ToolResult(_text_or_none(call_id), str(tool), text, parts, outcome), *results)
        text, parts, speaker = "", (), None
    if fields.get("audio") or kwargs.get("audio"):
        parts = (*parts, "audio")
    sources = (fields, kwargs, _mapping(fields.get("response_metadata")))
    timestamps = (source[key] for source in sources for key in _TIMESTAMP_FIELDS if source.get(key) is not None)
    return Message(
        role=role,
        text=text,
        parts=parts,
        calls=tuple(_unique(_requests(fields), _requests(kwargs), content.calls)),
        results=results,
        message_id=_text_or_none(fields.get("id") or kwargs.get("id")),
        timestamp=next(timestamps, None),
        speaker=_text_or_none(speaker),
        extra={"summary": True} if kwargs.get("lc_source") == "summarization" else {},
    )


# -- the forms of a message -------------------------------------------------------------------------------------------


def _message_fields(raw: object) -> dict[str, Any] | None:
    """Return the fields of a message with its role, or None when it is not a message."""
    fields = dict(raw) if isinstance(raw, Mapping) else _attributes(raw)
    if fields is None:
        return None
    if fields.get("type") == "constructor" and isinstance(fields.get("kwargs"), Mapping):
        return _constructor_fields(fields)
    if isinstance(fields.get("data"), Mapping) and isinstance(fields.get("type"), str):
        outer = {key: value for key, value in fields.items() if key in _TIMESTAMP_FIELDS}
        fields = {**outer, **fields["data"], "type": fields["type"]}
    return _with_role(fields)


def _constructor_fields(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of LangChain's serialized form; the last part of `id` is the class name."""
    path = fields.get("id")
    name = path[-1] if isinstance(path, list) and path and isinstance(path[-1], str) else ""
    kind = next((kind for kind in _LANGCHAIN_CLASSES if name.startswith(f"{kind}Message")), None)
    return None if kind is None else _with_role({**fields["kwargs"], "type": kind.lower()})


def _with_role(fields: dict[str, Any]) -> dict[str, Any] | None:
    role = _role(fields)
    if role is None:
        return None
    if role == "remove":
        return {"role": role}
    if fields.get("type") in _CALL_TYPES | _RESULT_TYPES:
        # an item of OpenAI's Responses API is one call or result
        return {"role": role, "content": [fields], "id": fields.get("id")}
    if not any(name in fields for name in _CONTENT_FIELDS):
        return None
    return {**fields, "role": role}


def _role(fields: Mapping[str, Any]) -> str | None:
    role, kind = fields.get("role"), fields.get("type")
    role = getattr(role, "value", role)  # an Enum of LlamaIndex
    if isinstance(kind, str):
        if kind in _CALL_TYPES | _RESULT_TYPES and role is None:
            return "assistant"
        kind = kind.removesuffix("MessageChunk").lower()
        if kind in {*_ROLES, "system", "tool", "remove"}:
            role = kind
    if not isinstance(role, str) or not role:
        return None
    return _ROLES.get(role.lower(), role.lower() if role.lower() in _KNOWN_ROLES else role)


def _attributes(raw: object) -> dict[str, Any] | None:
    """Return the fields of a message object of LangChain (`type`, `content`) or LlamaIndex (`role`, `blocks`)."""
    if raw is None or isinstance(raw, str | bytes | int | float | list | tuple):
        return None
    if hasattr(raw, "blocks") and hasattr(raw, "role"):
        names = "role blocks additional_kwargs"
    elif hasattr(raw, "content") and isinstance(getattr(raw, "type", None), str):
        names = (
            "type role content additional_kwargs response_metadata name id tool_calls invalid_tool_calls "
            "tool_call_id status"
        )
    else:
        return None
    return {name: getattr(raw, name) for name in names.split() if getattr(raw, name, None) is not None}


# -- content ----------------------------------------------------------------------------------------------------------


class _Content:
    """Texts, kinds of non-text parts, tool requests and tool results of a message's content, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.parts: list[str] = []
        self.calls: list[ToolRequest] = []
        self.results: list[ToolResult] = []

    def add_payload(self, value: object) -> None:
        """Add content; a mapping that is not a typed block is a JSON payload and becomes text."""
        self.add(_json(value) if isinstance(value, Mapping) and not _part_kind(value) else value)

    def add(self, content: object) -> None:
        if content is None or content == "":
            return
        if isinstance(content, str):
            self.texts.append(content)
        elif isinstance(content, list | tuple):
            for part in content:
                self.add(part)
        else:
            self._add_block(content)

    def _add_block(self, block: object) -> None:
        fields = block if isinstance(block, Mapping) else _block_fields(block)
        if fields is None:
            self.texts.append(_json(block))
            return
        kind = _part_kind(fields) or ("text" if "text" in fields else "unknown")
        if kind in _CALL_TYPES:
            self.calls.extend(_requests({"tool_calls": [fields]}))
        elif kind in _RESULT_TYPES:
            self.results.append(_result(fields))
        elif kind == "thinking":
            self.parts.append(kind)
        else:
            texts = (fields[name] for name in _TEXT_FIELDS if isinstance(fields.get(name), str | list | tuple))
            text = next(texts, None)
            if kind not in _TEXT_TYPES and (kind in _MEDIA_TYPES or text is None):
                self.parts.append(kind)
            else:
                self.add(text)


def _part_kind(fields: Mapping[str, Any]) -> str:
    """Return the normalized kind of a content block, "" when it has no type."""
    kind = str(fields.get("type") or fields.get("block_type") or "")
    return _PART_KINDS.get(kind, kind)


def _block_fields(block: object) -> dict[str, Any] | None:
    kind = getattr(block, "block_type", None)
    if not isinstance(kind, str):
        return None
    names = ("text", "content", "cited_content", "tool_call_id", "tool_name", "tool_kwargs")
    return {"type": kind} | {name: getattr(block, name) for name in names if hasattr(block, name)}


def _requests(fields: Mapping[str, Any]) -> Iterator[ToolRequest]:
    """Yield the tool calls in a message's fields, in the formats of LangChain, OpenAI, Anthropic and LlamaIndex."""
    raw_calls = [*_list(fields.get("tool_calls")), *_list(fields.get("invalid_tool_calls"))]
    if isinstance(fields.get("function_call"), Mapping):
        raw_calls.append(fields["function_call"])
    for raw in raw_calls:
        call = raw if isinstance(raw, Mapping) else getattr(raw, "__dict__", {})
        function = call.get("function")
        inner = function if isinstance(function, Mapping) else getattr(function, "__dict__", None) or call
        tool = inner.get("name") or inner.get("tool_name") or ""
        candidates = (inner.get(key) for key in ("args", "arguments", "input", "tool_kwargs"))
        arguments: object = next((value for value in candidates if value is not None), {})
        call_id = next((call[key] for key in ("call_id", "id", "tool_call_id") if call.get(key)), None)
        yield ToolRequest(str(tool), _arguments(arguments), _text_or_none(call_id))


def _arguments(raw: object) -> Mapping[str, Any] | str:
    if isinstance(raw, Mapping):
        return raw
    if not isinstance(raw, str):
        return _json(raw)
    try:
        parsed = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        return raw
    return parsed if isinstance(parsed, dict) else raw


def _unique(*lists: Iterable[ToolRequest]) -> list[ToolRequest]:
    """Remove duplicate calls: LangChain stores a call in `tool_calls`, `additional_kwargs` and the content.

    Within one of these lists two different calls are both kept, even when a model gave them the same id.
    """
    unique: list[ToolRequest] = []
    for calls in lists:
        earlier = list(unique)
        for call in calls:
            repeated = call.call_id is not None and call in unique
            if not repeated and not any(_same_call(call, other) for other in earlier):
                unique.append(call)
    return unique


def _same_call(one: ToolRequest, other: ToolRequest) -> bool:
    if one.call_id is not None and other.call_id is not None:
        return one.call_id == other.call_id
    return one.tool == other.tool and one.arguments == other.arguments


def _result(fields: Mapping[str, Any]) -> ToolResult:
    content = _Content()
    content.add_payload(fields["content"] if fields.get("content") is not None else fields.get("output"))
    call_id = next((fields[key] for key in ("call_id", "tool_use_id", "tool_call_id") if fields.get(key)), None)
    is_error = fields.get("is_error")
    outcome: ToolOutcome = _OUTCOMES.get(fields.get("status"), "unknown")
    if isinstance(is_error, bool):
        outcome = "error" if is_error else "ok"
    tool = str(fields.get("name") or "")
    return ToolResult(_text_or_none(call_id), tool, "\n".join(content.texts), tuple(content.parts), outcome)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _text_or_none(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
