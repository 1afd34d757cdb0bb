"""What is wrong with an argument, in a sentence that names the place, the rule and the remedy. English and Chinese."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import validator_for
from pydantic import BaseModel
from pydantic import ValidationError as ModelValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import UsageError
from langchain_agentrag.metadata import short_repr

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
            return words["null" if value is None else "type"].format(
                at=at, types=names, value=_shown_json(value)
            )
    if rule == "enum":
        return words[rule].format(at=at, rule=", ".join(map(_shown_json, wanted)), value=_shown_json(value))
    if rule not in words:
        return words["other"].format(at=at, message=_short(error.message))
    size = len(value) if isinstance(value, str | list) else 0
    return words[rule].format(at=at, rule=_shown_json(wanted), value=_shown_json(value), size=size)


def _types(error: ValidationError) -> list[str]:
    if error.validator == "type":
        wanted: Any = error.validator_value
        return [wanted] if isinstance(wanted, str) else list(wanted)
    parts = [part for part in error.context or () if not part.relative_path]
    if not parts or any(part.validator != "type" for part in parts):
        return []
    return list(dict.fromkeys(name for part in parts for name in _types(part)))


def _shown_json(value: Any) -> str:  # noqa: ANN401
    try:
        return _short(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return short_repr(value)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


MOST_PROBLEMS = 10
"""Problems that one reply names."""

_PASSES = 4  # a text of JSON may hold texts that need the same again
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,300})(\.[0-9]{1,300})?")
_COMBINERS = (
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "then",
    "else",
    "$ref",
    "$dynamicRef",
    "dependentSchemas",
    "not",
)
_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties"})
_KEEP = object()


@dataclass(frozen=True, slots=True)
class Checked:
    """Arguments after the check.

    Attributes:
        arguments: As the tool is to get them.
        problems: What is wrong with them; empty when they are valid.
    """

    arguments: dict[str, Any]
    problems: tuple[Problem, ...]


class ArgumentSchema:
    """The JSON Schema of a tool's arguments, closed: an argument it does not name is refused.

    An object that says nothing about further properties takes none, here and in what it holds; one that allows them
    (`additionalProperties`), or that names no property at all below the top, stays as it is.

    Args:
        schema: The schema of the argument object.

    Raises:
        UsageError: it is no valid schema of an object, or refers to something outside of itself.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        plain = json.loads(json.dumps(schema))
        if not isinstance(plain, dict) or plain.get("type", "object") != "object":
            raise UsageError(f"A tool's arguments are an object, not what {schema!r} describes.")
        plain = {"properties": {}, **plain, "type": "object"}
        kind = validator_for(plain, default=Draft202012Validator)
        try:
            kind.check_schema(plain)
        except SchemaError as error:
            raise UsageError(f"{schema!r} is no valid JSON Schema: {error.message}.") from error
        _check_references(plain, kind.META_SCHEMA.get("$schema", ""))
        modern = kind.META_SCHEMA.get("$schema", "").startswith("https://json-schema.org/draft/20")
        closed = _closed(plain, modern=modern, shared=frozenset(_shared(plain, inside=False)))
        self._validator = kind(closed, registry=Registry(), format_checker=kind.FORMAT_CHECKER)
        self._defaults = {
            name: part["default"]
            for name, part in plain["properties"].items()
            if isinstance(part, dict) and "default" in part
        }

    def check(self, arguments: object, language: Language = "en", *, repair: bool = True) -> Checked:
        """The arguments as the tool is to get them, or what is wrong with them.

        Args:
            arguments: What the model wrote: an object, or its JSON text.
            language: Language of the problems.
            repair: Whether values in the wrong notation are put right where nothing is lost by it.
        """
        try:
            canonical(arguments)
            return self._checked(arguments, language, repair=repair)
        except UsageError as error:
            return Checked({}, (Problem("", "json", str(error)),))
        except RecursionError:  # a schema that refers to itself, and a value that follows it far down
            return Checked(
                {}, (Problem("", "json", "The arguments are nested too deep: make them flatter."),)
            )

    def _checked(self, arguments: object, language: Language, *, repair: bool) -> Checked:
        value: Any = arguments
        errors = list(self._validator.iter_errors(value))
        for _ in range(_PASSES if repair else 0):
            repaired = value
            for path, fixed in _repairs(errors):
                repaired = _replaced(repaired, path, fixed)
            if repaired is value:
                break
            value = repaired
            errors = list(self._validator.iter_errors(value))
        if errors:
            ordered = sorted(errors, key=lambda error: [str(part) for part in error.absolute_path])
            problems = (problem for error in ordered for problem in described(_deepest(error), language))
            return Checked({}, tuple(dict.fromkeys(problems))[:MOST_PROBLEMS])
        canonical(value)  # a text that was taken for an object may hold what is no JSON
        return Checked(dict(value), ())

    def completed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the defaults of the schema's top level filled in: what they mean, written out."""
        return {**self._defaults, **arguments}


def _check_references(schema: dict[str, Any], draft: str) -> None:
    resource = specification_with(draft).create_resource(schema)
    resolver = Registry().with_resource("", resource).resolver()
    for part in _parts(schema):
        reference = part.get("$ref")
        if isinstance(reference, str):
            try:
                resolver.lookup(reference)
            except Unresolvable as error:
                raise UsageError(
                    f"The schema refers to {reference!r}, which it does not hold: put it under $defs, nothing is "
                    "fetched."
                ) from error


def _parts(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _parts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item)


def _shared(schema: Any, *, inside: bool) -> Iterator[str]:  # noqa: ANN401
    """References to definitions that describe one part of an object only, so they cannot be closed by themselves."""
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and (inside or "properties" in schema):
        yield reference
    for key, item in schema.items():
        if key in {"allOf", "anyOf", "oneOf"}:
            for branch in item:
                yield from _shared(branch, inside=inside or key == "allOf" or _owns_properties(schema))
        elif isinstance(item, dict):
            maps = key in {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"}
            for child in item.values() if maps else [item]:
                yield from _shared(child, inside=False)


def _owns_properties(schema: dict[str, Any]) -> bool:
    return bool(schema.get("properties")) or "allOf" in schema or "$ref" in schema


def _closed(
    schema: Any,  # noqa: ANN401  a schema may be true or false
    *,
    modern: bool,
    shared: frozenset[str],
    place: str = "#",
    inside: bool = False,
) -> Any:  # noqa: ANN401
    """The schema in which every object that names its properties takes no others."""
    if isinstance(schema, list):
        return [_closed(part, modern=modern, shared=shared, inside=inside) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed: dict[str, Any] = {}
    for key, item in schema.items():
        if key in _MAPS:
            closed[key] = {
                name: _closed(part, modern=modern, shared=shared, place=f"{place}/{key}/{name}")
                for name, part in item.items()
            }
        elif key in {"allOf", "anyOf", "oneOf"}:
            within = inside or key == "allOf" or _owns_properties(schema)
            closed[key] = _closed(item, modern=modern, shared=shared, inside=within)
        elif key in {"items", "prefixItems", "additionalItems", "additionalProperties", "contains"}:
            closed[key] = _closed(item, modern=modern, shared=shared)
        else:
            closed[key] = item
    said = {"additionalProperties", "unevaluatedProperties", "patternProperties"} & schema.keys()
    if "properties" in schema and not inside and place not in shared and not said:
        combined = any(key in schema for key in _COMBINERS)
        if not combined:
            closed["additionalProperties"] = False
        elif modern:  # the one word that looks into the combined parts; older drafts have none
            closed["unevaluatedProperties"] = False
    return closed


def _repairs(errors: list[ValidationError]) -> Iterator[tuple[list[Any], Any]]:
    for error in errors:
        fixed = _same_in_other_notation(error.instance, _wanted_types(error))
        if fixed is not _KEEP:
            yield list(error.absolute_path), fixed


def _wanted_types(error: ValidationError) -> frozenset[str]:
    """The types that would be right where the type is all that is wrong."""
    if error.validator == "type":
        wanted: Any = error.validator_value
        return frozenset([wanted] if isinstance(wanted, str) else wanted)
    if error.validator in {"anyOf", "oneOf"} and error.context:
        own = [part for part in error.context if not part.relative_path]
        if len(own) == len(error.context) and all(part.validator == "type" for part in own):
            return frozenset().union(*map(_wanted_types, own))
    return frozenset()


def _same_in_other_notation(value: object, wanted: frozenset[str]) -> Any:  # noqa: ANN401
    """What a text says in one of the wanted types, where it says exactly that; `_KEEP` otherwise."""
    if not isinstance(value, str):
        return _KEEP
    text = value.strip()
    if wanted & {"integer", "number"} and _NUMBER.fullmatch(text):
        return _number(text, fractions="number" in wanted)
    if "boolean" in wanted and text in {"true", "false"}:
        return text == "true"
    if wanted & {"object", "array"} and text[:1] in {"{", "["}:
        return _json(text, wanted)
    return _KEEP


def _number(text: str, *, fractions: bool) -> Any:  # noqa: ANN401
    exact = Decimal(text)
    if exact == exact.to_integral_value():
        return int(exact)
    return float(text) if fractions and Decimal(repr(float(text))) == exact else _KEEP


def _json(text: str, wanted: frozenset[str]) -> Any:  # noqa: ANN401
    try:
        parsed = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _KEEP
    return parsed if ("object" if isinstance(parsed, dict) else "array") in wanted else _KEEP


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _replaced(value: Any, path: list[Any], new: Any) -> Any:  # noqa: ANN401
    """A copy of a value with another one at a place; nothing that was given changes."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, Mapping) else list(value)
    copy[path[0]] = _replaced(copy[path[0]], path[1:], new)
    return copy


def _deepest(error: ValidationError) -> ValidationError:
    """What is wrong in the branch that was meant, where one can be told; else the error itself."""
    if error.validator in {"anyOf", "oneOf"} and error.context:
        inner: ValidationError | None = best_match(error.context)
        if inner is not None and inner.relative_path:
            return inner
    return error


def validators_of(
    model: object, visible: Collection[str]
) -> Callable[[dict[str, object]], list[Problem]] | None:
    """A check of arguments by a pydantic model, or None when it is none.

    What is refused before the call cannot leave it half done.

    Args:
        model: The model of all arguments.
        visible: Those the caller gives; what the model says about others, which are added later, does not count.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None

    def check(arguments: dict[str, object]) -> list[Problem]:
        try:
            model.model_validate(arguments)
        except ModelValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            hidden = any(part["loc"] and part["loc"][0] not in visible for part in found)
            return [
                Problem(
                    place := placed(part["loc"]), part["type"], f"{place}: {part['msg']}".removeprefix(": ")
                )
                for part in found
                if (part["loc"][0] in visible if part["loc"] else not hidden)
            ]
        return []

    return check
