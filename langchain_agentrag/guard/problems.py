"""What is wrong with an argument, in a sentence that names the place, the rule and the remedy. English and Chinese."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.metadata import shown

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_LONGEST = 120

_TYPES: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "string": "a text",
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "object": "an object",
        "array": "an array",
        "null": "null",
    },
    "zh": {
        "string": "文本",
        "integer": "整数",
        "number": "数字",
        "boolean": "true 或 false",
        "object": "对象",
        "array": "数组",
        "null": "null",
    },
}
_SENTENCES: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "type": "{at} must be {types}, not {value}",
        "null": "{at} must be {types}, not null; leave out what is not needed",
        "or": " or ",
        "required": "{at} is missing",
        "unknown": "there is no argument {at}{guess}; {names}",
        "guess": " (did you mean {name}?)",
        "names": "the arguments are {names}",
        "no_names": "the tool takes none here",
        "enum": "{at} must be one of {rule}, not {value}",
        "const": "{at} must be {rule}, not {value}",
        "minimum": "{at} must be {rule} or more, not {value}",
        "maximum": "{at} must be {rule} or less, not {value}",
        "exclusiveMinimum": "{at} must be more than {rule}, not {value}",
        "exclusiveMaximum": "{at} must be less than {rule}, not {value}",
        "multipleOf": "{at} must be a multiple of {rule}, not {value}",
        "minLength": "{at} must have {rule} characters or more, not {size}",
        "maxLength": "{at} must have {rule} characters or less, not {size}",
        "pattern": "{at} must match the pattern {rule}, not {value}",
        "format": "{at} must be a valid {rule}, not {value}",
        "minItems": "{at} must have {rule} items or more, not {size}",
        "maxItems": "{at} must have {rule} items or less, not {size}",
        "uniqueItems": "{at} must not hold an item twice",
        "other": "{at} is not allowed: {message}",
        "whole": "the arguments",
    },
    "zh": {
        "type": "{at} 必须是{types}，不能是 {value}",
        "null": "{at} 必须是{types}，不能是 null；不需要的参数不要填",
        "or": " 或 ",
        "required": "缺少参数 {at}",
        "unknown": "没有名为 {at} 的参数{guess}；{names}",
        "guess": "（是不是想写 {name}？）",
        "names": "可用的参数有 {names}",
        "no_names": "这里不接受任何参数",
        "enum": "{at} 必须是 {rule} 之一，不能是 {value}",
        "const": "{at} 必须是 {rule}，不能是 {value}",
        "minimum": "{at} 不能小于 {rule}，现在是 {value}",
        "maximum": "{at} 不能大于 {rule}，现在是 {value}",
        "exclusiveMinimum": "{at} 必须大于 {rule}，现在是 {value}",
        "exclusiveMaximum": "{at} 必须小于 {rule}，现在是 {value}",
        "multipleOf": "{at} 必须是 {rule} 的倍数，现在是 {value}",
        "minLength": "{at} 至少要有 {rule} 个字符，现在是 {size} 个",
        "maxLength": "{at} 最多 {rule} 个字符，现在是 {size} 个",
        "pattern": "{at} 必须符合格式 {rule}，现在是 {value}",
        "format": "{at} 必须是有效的 {rule}，现在是 {value}",
        "minItems": "{at} 至少要有 {rule} 项，现在是 {size} 项",
        "maxItems": "{at} 最多 {rule} 项，现在是 {size} 项",
        "uniqueItems": "{at} 不能有重复的项",
        "other": "{at} 不符合要求：{message}",
        "whole": "参数",
    },
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with arguments.

    Attributes:
        place: The argument, "items[0].amount"; "" for all of them.
        rule: Keyword of the JSON Schema that it breaks ("type", "required", "additionalProperties" …).
        message: A sentence for the model.
    """

    place: str
    rule: str
    message: str


def described(error: ValidationError, language: Language) -> Iterator[Problem]:
    """The problems that one error of jsonschema stands for: one for each unknown argument, else a single one."""
    words, rule = _SENTENCES[language], str(error.validator)
    required: Any = error.validator_value
    given: Any = error.instance
    place = placed(error.absolute_path)
    if rule == "required":
        missing = [name for name in required if name not in given]
        told = [name for name in missing if repr(name) in error.message] or missing[:1]
        for name in told:
            where = _joined(place, name)
            yield Problem(where, rule, words["required"].format(at=where))
    elif rule in {"additionalProperties", "unevaluatedProperties"} and error.validator_value is False:
        yield from _unknown(error, place, words)
    else:
        yield Problem(place, rule, _sentence(error, rule, place or words["whole"], language))


def placed(path: Any) -> str:  # noqa: ANN401
    """A path of keys and numbers as people write it."""
    text = ""
    for part in path:
        text = f"{text}[{part}]" if isinstance(part, int) else _joined(text, str(part))
    return text


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _unknown(error: ValidationError, place: str, words: Mapping[str, str]) -> Iterator[Problem]:
    schema: Any = error.schema
    given: Any = error.instance
    known = list(schema.get("properties", {}))
    extra = [name for name in given if name not in known]
    named = [name for name in extra if repr(name) in error.message] or extra
    for name in named:
        close = difflib.get_close_matches(name, known, 1)
        message = words["unknown"].format(
            at=_joined(place, name),
            guess=words["guess"].format(name=_joined(place, close[0])) if close else "",
            names=words["names"].format(names=", ".join(known)) if known else words["no_names"],
        )
        yield Problem(_joined(place, name), str(error.validator), message)


def _sentence(error: ValidationError, rule: str, at: str, language: Language) -> str:
    words, value = _SENTENCES[language], error.instance
    wanted: Any = error.validator_value
    if rule in {"type", "anyOf", "oneOf"}:
        types = _types(error)
        if types:
            names = words["or"].join(_TYPES[language].get(name, name) for name in types)
            return words["null" if value is None else "type"].format(at=at, types=names, value=_json(value))
    if rule == "enum":
        return words[rule].format(at=at, rule=", ".join(map(_json, wanted)), value=_json(value))
    if rule not in words:
        return words["other"].format(at=at, message=_short(error.message))
    size = len(value) if isinstance(value, str | list) else 0
    return words[rule].format(at=at, rule=_json(wanted), value=_json(value), size=size)


def _types(error: ValidationError) -> list[str]:
    if error.validator == "type":
        wanted: Any = error.validator_value
        return [wanted] if isinstance(wanted, str) else list(wanted)
    parts = [part for part in error.context or () if not part.relative_path]
    if not parts or any(part.validator != "type" for part in parts):
        return []
    return list(dict.fromkeys(name for part in parts for name in _types(part)))


def _json(value: Any) -> str:  # noqa: ANN401
    try:
        return _short(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return shown(value)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
