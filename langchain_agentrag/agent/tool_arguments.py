"""Arguments of the tools `search` and `read`: schemas, and lenient parsing of what models pass.

Models write "5" for 5, JSON text for an object, `top_k` for `k`, null for a default. Those are accepted. Anything
unclear gets one message that names the allowed form, so that the next call can be right.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, field_validator, model_validator

from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.errors import UsageError
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.times import EPOCH, check_time
from langchain_agentrag.types import split_reference

logger = logging.getLogger(__name__)

Language = Literal["en", "zh"]
"""Language of descriptions and replies; questions and passages may be in any language."""

_HAN, _LATIN_WORD = re.compile(r"[\u3400-\u9fff]"), re.compile(r"[a-zA-Z]{2,}")

MAX_HITS = 50
"""Largest k a model may pass."""

MAX_NEIGHBOURS = 10
"""Neighbouring chunks on each side that a model may read at once."""

_ALIASES: Mapping[str, tuple[str, ...]] = {
    "query": ("q", "question", "text", "search_query", "tool_input"),
    "k": ("top_k", "limit", "n", "num_results", "max_results"),
    "filter": ("filters", "where"),
    "after": ("since", "from", "start", "start_date", "from_date"),
    "before": ("until", "to", "end", "end_date", "to_date"),
    "text": ("content", "memory", "note", "fact"),
    "doc_id": ("document_id", "memory_id", "id"),
    "chunk_id": ("chunk",),
}


class ToolArguments(BaseModel):
    """Base of the argument models: accepts aliases of argument names, refuses unknown arguments."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _resolve_aliases(cls, data: Any) -> Any:  # noqa: ANN401
        if not isinstance(data, Mapping):
            return data
        arguments = {name: value for name, value in data.items() if value is not None or name == "query"}
        for name, aliases in _ALIASES.items():
            alias = next((a for a in aliases if a in arguments and a not in cls.model_fields), None)
            if alias is not None and name in cls.model_fields and name not in arguments:
                arguments[name] = arguments.pop(alias)
        unknown = sorted(arguments.keys() - cls.model_fields.keys())
        if unknown:
            if any(name.startswith("agent") for name in unknown):
                logger.warning("a model passed %s to a tool that is bound to its agent", unknown)
            raise UsageError(f"there is no argument {unknown[0]!r}; the arguments are {', '.join(cls.model_fields)}")
        return arguments


class SearchArguments(ToolArguments):
    """Arguments of `search`."""

    query: str
    k: int = 5
    filter: dict[str, Any] = Field(default_factory=dict)
    after: str = ""
    before: str = ""

    @field_validator("after", "before", mode="before")
    @classmethod
    def _check_time(cls, value: Any, info: Any) -> Any:  # noqa: ANN401
        return point_in_time(info.field_name, value)

    @field_validator("query", mode="before")
    @classmethod
    def _check_query(cls, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, list | tuple) and len(value) == 1:
            value = value[0]
        if value is None:
            return ""  # answered like any blank query
        if not isinstance(value, str):
            raise UsageError(f"query must be one text, not {short_repr(value)}; make one call per question")
        return value

    @field_validator("k", mode="before")
    @classmethod
    def _check_k(cls, value: Any) -> Any:  # noqa: ANN401
        return whole_number("k", value, cls.model_fields["k"].default, 1, MAX_HITS)

    @field_validator("filter", mode="before")
    @classmethod
    def _parse_filter(cls, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            try:
                value = json.loads(value) if value.strip() else {}
            except (ValueError, RecursionError):
                value = None
        if not isinstance(value, Mapping):
            raise UsageError('filter must be an object such as {"type": "manual"}; leave it out to search everything')
        return dict(value)


class ReadArguments(ToolArguments):
    """Arguments of `read`."""

    doc_id: str
    chunk_id: int = 0
    before: int = 0
    after: int = 0
    offset: int = 0

    @model_validator(mode="before")
    @classmethod
    def _split_reference(cls, data: Any) -> Any:  # noqa: ANN401
        """Accept a reference such as "manual.md#3" as doc_id if there is no chunk_id."""
        reference = data.get("doc_id") if isinstance(data, Mapping) else None
        if isinstance(reference, str) and data.get("chunk_id") in (None, ""):
            address = split_reference(reference)
            if address is not None and address[0]:
                return {**data, "doc_id": address[0], "chunk_id": address[1]}
        return data

    @field_validator("doc_id", mode="before")
    @classmethod
    def _check_doc_id(cls, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise UsageError("doc_id must be a text, exactly as a search hit gives it")
        return str(value)

    @field_validator("chunk_id", "before", "after", "offset", mode="before")
    @classmethod
    def _check_count(cls, value: Any, info: Any) -> Any:  # noqa: ANN401
        maximum = MAX_NEIGHBOURS if info.field_name in {"before", "after"} else None
        return whole_number(info.field_name, value, 0, 0, maximum)


def point_in_time(name: str, value: object) -> str:
    """Return a date or time that a model passed, as text for the engine; "" for none.

    Raises:
        UsageError: it is not a time; the message names the allowed forms.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    try:
        check_time(name, value, EPOCH)
    except UsageError:
        raise UsageError(
            f"{name} must be a date or time such as 2024-05-01 or 2024-05-01T08:00:00+08:00, or how long ago, such as "
            f"7d or 36h; not {short_repr(value)}"
        ) from None
    return str(value).strip()


def whole_number(name: str, value: object, default: int, low: int, high: int | None) -> int:
    """Return an integer that a model passed as a number or text, at most `high`; the default for a blank.

    Raises:
        UsageError: it is not an integer, or below `low`; the message names the allowed form.
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return default if high is None else min(default, high)
    allowed = f"integer {low}-{high}" if high is not None else f"integer, {low} or more"
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = float("nan")
        if number.is_integer() and number >= low:
            return int(number) if high is None else min(int(number), high)
    raise UsageError(f"{name} must be an {allowed}, not {short_repr(value)}")


def detect_language(text: str, otherwise: Language = "en") -> Language:
    """Return the dominant language of a text: of more Chinese characters or more Latin words.

    Args:
        text: A question.
        otherwise: Language of a text without either.
    """
    characters, words = len(_HAN.findall(text)), len(_LATIN_WORD.findall(text))
    if not characters and not words:
        return otherwise
    return "zh" if characters > words else "en"


def search_arguments(language: Language, k: int) -> type[SearchArguments]:
    """Return the schema of `search`, described in a language and with a default k."""
    texts = _descriptions(language)
    return create_model(
        "Search",
        __base__=SearchArguments,
        query=(str, Field(description=texts["query"])),
        k=(int, Field(default=k, description=texts["k"])),
        filter=(dict[str, Any], Field(default_factory=dict, description=texts["filter"])),
        after=(str, Field(default="", description=texts["after"])),
        before=(str, Field(default="", description=texts["before"])),
    )


def read_arguments(language: Language) -> type[ReadArguments]:
    """Return the schema of `read`, described in a language."""
    texts = _descriptions(language)
    return create_model(
        "Read",
        __base__=ReadArguments,
        doc_id=(str, Field(description=texts["doc_id"])),
        chunk_id=(int, Field(default=0, description=texts["chunk_id"])),
        before=(int, Field(default=0, description=texts["chunks_before"])),
        after=(int, Field(default=0, description=texts["chunks_after"])),
        offset=(int, Field(default=0, description=texts["offset"])),
    )


def _descriptions(language: Language) -> Mapping[str, str]:
    messages = load_messages("agent", "tool_arguments", language)
    return {
        argument: text.format(max_hits=MAX_HITS, max_neighbours=MAX_NEIGHBOURS) for argument, text in messages.items()
    }


def format_validation_error(error: ValidationError | Any, language: Language) -> str:  # noqa: ANN401
    """Return one message with all that is wrong with the arguments, for a model to correct them."""
    problems = []
    for detail in error.errors():
        text = str(detail["msg"]).removeprefix("Value error, ")
        path = ".".join(map(str, detail["loc"]))
        problems.append(text if not path or path in text else f"{path}: {text}")
    messages = load_messages("agent", "tool_replies", language)
    return messages["invalid"].format(problems="; ".join(problems))
