"""Messages of any framework in one form: LangChain, LlamaIndex, OpenAI, Anthropic; as objects or as stored JSON.

Nothing is ever instantiated from what is read: stored objects are taken apart by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_agentrag.connectors.memory.turns import Outcome

_ROLES: Final = {
    "human": "user",
    "ai": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
}
_KNOWN_ROLES: Final = frozenset({"user", "assistant", "system", "tool", *_ROLES})
_CLASSES: Final = ("Human", "AI", "System", "Tool", "Function", "Chat", "Remove")
_KINDS: Final = {
    "image_url": "image",
    "input_image": "image",
    "image_file": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "video",
    "input_file": "file",
    "reasoning": "thinking",
    "reasoning_content": "thinking",
    "redacted_thinking": "thinking",
    "cache_point": "cache",
}
"""What the frameworks call the same kind of part; others keep their name."""
_TEXT_FIELDS: Final = ("text", "refusal", "cited_content", "content")
_CALL_TYPES: Final = frozenset(
    {"tool_use", "tool_call", "function_call", "server_tool_use", "server_tool_call"}
)
_RESULT_TYPES: Final = frozenset({"tool_result", "function_call_output", "server_tool_result"})
_CONTENT_FIELDS: Final = ("content", "blocks", "tool_calls", "function_call", "audio")
_STAMPS: Final = ("timestamp", "created_at", "created", "time", "ts", "date")
_OUTCOMES: Final[dict[object, Outcome]] = {"success": "ok", "ok": "ok", "error": "error", "failed": "error"}


class NotAMessageError(ValueError):
    """What was found is no message of any known form; the text says why."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as an assistant asked for it."""

    tool: str
    arguments: Mapping[str, Any] | str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What came back from a tool."""

    call_id: str | None
    tool: str
    text: str
    parts: tuple[str, ...] = ()
    outcome: Outcome = "unknown"


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: "user", "assistant", "system", "tool", or a role of the source's own.
        text: Its text parts, one below the other.
        parts: Kinds of its other parts, in order.
        calls: Tool calls it asks for.
        results: Results of tool calls it brings.
        message_id: Its own id, where it has one.
        stamp: When it was said, as written there, or None.
        speaker: Name of who said it, where that is given.
        extra: What else is worth keeping.
    """

    role: str
    text: str = ""
    parts: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    message_id: str | None = None
    stamp: object = None
    speaker: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def looks_like_message(raw: object) -> bool:
    """Whether something has the form of a message; reading it may still fail."""
    found = _opened(raw)
    return found is not None and not (isinstance(raw, Mapping) and "messages" in raw)


def read_message(raw: object) -> Message | None:
    """A message in the common form, or None for an instruction to remove one.

    Raises:
        NotAMessageError: it has none of the known forms.
    """
    found = _opened(raw)
    if found is None:
        raise NotAMessageError(f"{_shown(raw)} is no message of LangChain, LlamaIndex or OpenAI")
    if found["role"] == "remove":
        return None
    content = _Content()
    given = found.get("content")
    content.add(_json(given) if isinstance(given, Mapping) and not _kind(given) else given)
    content.add(found.get("blocks"))
    return _message(found, content)


def _message(found: Mapping[str, Any], content: _Content) -> Message:
    kwargs = _mapping(found.get("additional_kwargs"))
    calls = _unique(_calls(found), _calls(kwargs), content.calls)
    text, parts, results = "\n".join(content.texts), tuple(content.parts), tuple(content.results)
    role, speaker = found["role"], found.get("name")
    if role == "tool":
        answered = found.get("tool_call_id") or kwargs.get("tool_call_id")
        tool = speaker or kwargs.get("name") or ""
        outcome = _OUTCOMES.get(found.get("status"), "unknown")
        results = (Result(_text_or_none(answered), str(tool), text, parts, outcome), *results)
        text, parts, speaker = "", (), None
    if found.get("audio") or kwargs.get("audio"):
        parts = (*parts, "audio")
    extra = {"summary": True} if kwargs.get("lc_source") == "summarization" else {}
    return Message(
        role=role,
        text=text,
        parts=parts,
        calls=tuple(calls),
        results=results,
        message_id=_text_or_none(found.get("id") or kwargs.get("id")),
        stamp=_stamp(found, kwargs, _mapping(found.get("response_metadata"))),
        speaker=_text_or_none(speaker),
        extra=extra,
    )


# -- the forms of a message -------------------------------------------------------------------------------------------


def _opened(raw: object) -> dict[str, Any] | None:
    """The fields of a message with its role, or None."""
    fields = dict(raw) if isinstance(raw, Mapping) else _attributes(raw)
    if fields is None:
        return None
    if fields.get("type") == "constructor" and isinstance(fields.get("kwargs"), Mapping):
        return _constructed(fields)
    if isinstance(fields.get("data"), Mapping) and isinstance(fields.get("type"), str):
        outer = {key: value for key, value in fields.items() if key in _STAMPS}
        fields = {**outer, **fields["data"], "type": fields["type"]}
    return _with_role(fields)


def _constructed(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """LangChain's serialised form: the class is named by the last part of its path."""
    path = fields.get("id")
    name = path[-1] if isinstance(path, list) and path and isinstance(path[-1], str) else ""
    kind = next((kind for kind in _CLASSES if name.startswith(f"{kind}Message")), None)
    return None if kind is None else _with_role({**fields["kwargs"], "type": kind.lower()})


def _with_role(fields: dict[str, Any]) -> dict[str, Any] | None:
    role = _role(fields)
    if role is None:
        return None
    if role == "remove":
        return {"role": role}
    if (
        fields.get("type") in _CALL_TYPES | _RESULT_TYPES
    ):  # an item of OpenAI's Responses API is one call or result
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
    """Fields of a message object of LangChain (`type`, `content`) or LlamaIndex (`role`, `blocks`)."""
    if raw is None or isinstance(raw, str | bytes | int | float | list | tuple):
        return None
    if hasattr(raw, "blocks") and hasattr(raw, "role"):
        names: tuple[str, ...] = ("role", "blocks", "additional_kwargs")
    elif hasattr(raw, "content") and isinstance(getattr(raw, "type", None), str):
        names = (
            "type",
            "role",
            "content",
            "additional_kwargs",
            "response_metadata",
            "name",
            "id",
            "tool_calls",
        )
        names += ("invalid_tool_calls", "tool_call_id", "status")
    else:
        return None
    return {name: getattr(raw, name) for name in names if getattr(raw, name, None) is not None}


# -- what a message holds ---------------------------------------------------------------------------------------------


class _Content:
    """Texts, kinds of other parts, calls and results of a message's content, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.parts: list[str] = []
        self.calls: list[Call] = []
        self.results: list[Result] = []

    def add(self, content: object) -> None:
        if content is None or content == "":
            return
        if isinstance(content, str):
            self.texts.append(content)
        elif isinstance(content, list | tuple):
            for part in content:
                self.add(part)
        else:
            self._block(content)

    def _block(self, block: object) -> None:
        fields = block if isinstance(block, Mapping) else _block_fields(block)
        if fields is None:
            self.texts.append(_json(block))
            return
        kind = _kind(fields) or ("text" if "text" in fields else "unknown")
        if kind in _CALL_TYPES:
            self.calls.extend(_calls({"tool_calls": [fields]}))
        elif kind in _RESULT_TYPES:
            self.results.append(_result(fields))
        elif kind == "thinking":
            self.parts.append(kind)
        else:
            self._said(kind, fields)

    def _said(self, kind: str, fields: Mapping[str, Any]) -> None:
        """A block with a text of its own is text; anything else is noted by its kind."""
        said = next(
            (fields[name] for name in _TEXT_FIELDS if isinstance(fields.get(name), str | list | tuple)), None
        )
        textual = kind in {"text", "input_text", "output_text", "plain_text", "text-plain"}
        if not textual and (kind in {"image", "audio", "video", "file", "document"} or said is None):
            self.parts.append(kind)
            return
        self.add(said)


def _kind(fields: Mapping[str, Any]) -> str:
    """Kind of a block in the common names, "" when it does not say."""
    kind = str(fields.get("type") or fields.get("block_type") or "")
    return _KINDS.get(kind, kind)


def _block_fields(block: object) -> dict[str, Any] | None:
    kind = getattr(block, "block_type", None)
    if not isinstance(kind, str):
        return None
    names = ("text", "content", "cited_content", "tool_call_id", "tool_name", "tool_kwargs")
    return {"type": kind} | {name: getattr(block, name) for name in names if hasattr(block, name)}


def _calls(fields: Mapping[str, Any]) -> Iterator[Call]:
    """Calls in a message's fields, as LangChain, OpenAI, Anthropic and LlamaIndex write them."""
    listed = [*_list(fields.get("tool_calls")), *_list(fields.get("invalid_tool_calls"))]
    if isinstance(fields.get("function_call"), Mapping):
        listed.append(fields["function_call"])
    for given in listed:
        call = given if isinstance(given, Mapping) else getattr(given, "__dict__", {})
        function = call.get("function")
        inner = function if isinstance(function, Mapping) else getattr(function, "__dict__", None) or call
        tool = inner.get("name") or inner.get("tool_name") or ""
        named = (inner.get(key) for key in ("args", "arguments", "input", "tool_kwargs"))
        arguments: object = next((value for value in named if value is not None), {})
        call_id = next((call[key] for key in ("call_id", "id", "tool_call_id") if call.get(key)), None)
        yield Call(str(tool), _arguments(arguments), _text_or_none(call_id))


def _arguments(given: object) -> Mapping[str, Any] | str:
    if isinstance(given, Mapping):
        return given
    if not isinstance(given, str):
        return _json(given)
    try:
        read = json.loads(given) if given.strip() else {}
    except (ValueError, RecursionError):
        return given
    return read if isinstance(read, dict) else given


def _unique(*lists: Iterable[Call]) -> list[Call]:
    """Calls once each: LangChain keeps a call in `tool_calls`, in `additional_kwargs` and among the content.

    Within one of them two calls are two, also when a model gave both the same id.
    """
    found: list[Call] = []
    for calls in lists:
        known = list(found)
        for call in calls:
            repeated = call.call_id is not None and call in found
            if not repeated and not any(_same(call, other) for other in known):
                found.append(call)
    return found


def _same(one: Call, other: Call) -> bool:
    if one.call_id is not None and other.call_id is not None:
        return one.call_id == other.call_id
    return one.tool == other.tool and one.arguments == other.arguments


def _result(fields: Mapping[str, Any]) -> Result:
    inner = _Content()
    given = fields.get("content") if fields.get("content") is not None else fields.get("output")
    inner.add(_json(given) if isinstance(given, Mapping) and not _kind(given) else given)
    call_id = next(
        (fields[key] for key in ("call_id", "tool_use_id", "tool_call_id") if fields.get(key)), None
    )
    failed = fields.get("is_error")
    outcome: Outcome = _OUTCOMES.get(fields.get("status"), "unknown")
    if isinstance(failed, bool):
        outcome = "error" if failed else "ok"
    tool = str(fields.get("name") or "")
    return Result(_text_or_none(call_id), tool, "\n".join(inner.texts), tuple(inner.parts), outcome)


def _stamp(*places: Mapping[str, Any]) -> object:
    return next((place[key] for place in places for key in _STAMPS if place.get(key) is not None), None)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _text_or_none(value: object) -> str | None:
    return None if value is None or value == "" else str(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _shown(raw: object) -> str:
    """Its kind and the names of its fields: never what it says, since messages end up in logs."""
    names = f" with {', '.join(map(str, list(raw)[:8]))}" if isinstance(raw, Mapping) and raw else ""
    return f"a {type(raw).__name__}{names}"
