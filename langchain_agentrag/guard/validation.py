"""Validation of tool arguments against a JSON Schema, with error messages for the model. English and Chinese."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic import ValidationError as ModelValidationError

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import MissingExtraError, UsageError
from langchain_agentrag.metadata import short_repr

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_ERRORS = 10
"""Errors that one reply to the model names."""

_MAX_VALUE = 120  # characters of a value in a message
_REPAIR_PASSES = 4  # a JSON text may hold texts that need the same repair again
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,300})(\.[0-9]{1,300})?")
_BRANCHES = frozenset({"allOf", "anyOf", "oneOf"})
_COMBINING = _BRANCHES | {"if", "then", "else", "$ref", "$dynamicRef", "dependentSchemas", "not"}
_SCHEMA_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties"})
_UNCHANGED = object()


@dataclass(frozen=True, slots=True)
class ArgumentError:
    """Error in the arguments of a call.

    Attributes:
        path: The argument, "items[0].amount"; "" for all of them.
        rule: Keyword of the JSON Schema that it breaks ("type", "required", "additionalProperties" …).
        message: A sentence for the model: the argument, the rule and the remedy.
    """

    path: str
    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class ValidatedArguments:
    """Result of a validation.

    Attributes:
        arguments: As the tool is to get them; empty when they are invalid.
        errors: Errors in them; empty when they are valid.
    """

    arguments: dict[str, Any]
    errors: tuple[ArgumentError, ...] = ()


def require_jsonschema() -> None:
    """Check that the extra `guard` is installed.

    Raises:
        MissingExtraError: it is not.
    """
    try:
        import jsonschema  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Guarded tools", "guard") from error


class ArgumentSchema:
    """JSON Schema of a tool's arguments, closed: an argument it does not name is refused.

    An object schema that does not mention further properties allows none, at every depth; one that allows them
    (`additionalProperties`), or that names no property at all below the top, stays as it is.

    Args:
        schema: The schema of the argument object.

    Raises:
        UsageError: it is no valid schema of an object, or refers to something outside of itself.
        MissingExtraError: jsonschema is not installed.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        require_jsonschema()
        try:
            self._compile(schema)
        except RecursionError as error:
            raise UsageError("The schema of the arguments is nested too deep: make it flatter.") from error

    def _compile(self, schema: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from referencing import Registry

        plain = json.loads(json.dumps(schema))
        if not isinstance(plain, dict) or plain.get("type", "object") != "object":
            raise UsageError(f"A tool's arguments are an object, not what {schema!r} describes.")
        plain = {"properties": {}, **plain, "type": "object"}
        validator = validator_for(plain, default=Draft202012Validator)
        try:
            validator.check_schema(plain)
        except SchemaError as error:
            raise UsageError(f"{schema!r} is no valid JSON Schema: {error.message}.") from error
        draft = validator.META_SCHEMA.get("$schema", "")
        _check_references(plain, draft)
        modern = draft.startswith("https://json-schema.org/draft/20")
        closed = _close(plain, modern=modern)
        self._validator = validator(closed, registry=Registry(), format_checker=validator.FORMAT_CHECKER)
        self._defaults = {
            name: part["default"]
            for name, part in plain["properties"].items()
            if isinstance(part, dict) and "default" in part
        }

    def validate(self, arguments: object, language: Language = "en", *, repair: bool = True) -> ValidatedArguments:
        """Validate arguments, and repair values in the wrong notation.

        Args:
            arguments: What the model wrote: an object, or its JSON text.
            language: Language of the messages.
            repair: Whether values in the wrong notation ("5" for 5) are repaired where nothing is lost by it.
        """
        try:
            canonical(arguments)
            return self._validate(arguments, language, repair=repair)
        except UsageError as error:
            message = str(error)
        except RecursionError:  # a recursive schema, and a deeply nested value
            message = "The arguments are nested too deep: make them flatter."
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # how `referencing` ends when the stack is used up
                raise
            message = "The arguments are nested too deep: make them flatter."
        return ValidatedArguments({}, (ArgumentError("", "json", message),))

    def _validate(self, arguments: object, language: Language, *, repair: bool) -> ValidatedArguments:
        value: Any = arguments
        errors = list(self._validator.iter_errors(value))
        for _ in range(_REPAIR_PASSES if repair else 0):
            repaired = value
            for path, replacement in _repairs(errors):
                repaired = _replace(repaired, path, replacement)
            if repaired is value:
                break
            value = repaired
            errors = list(self._validator.iter_errors(value))
        if errors:
            errors.sort(key=lambda error: [str(part) for part in error.absolute_path])
            described = (item for error in errors for item in _argument_errors(_inner_error(error), language))
            return ValidatedArguments({}, tuple(dict.fromkeys(described))[:MAX_ERRORS])
        canonical(value)  # a text that was parsed as an object may hold what is no JSON
        return ValidatedArguments(dict(value))

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the defaults of the schema's top level filled in."""
        return {**self._defaults, **arguments}


def pydantic_check(
    model: object, visible: Collection[str]
) -> Callable[[dict[str, object]], list[ArgumentError]] | None:
    """Return a function that validates arguments with a pydantic model; None when `model` is not one.

    A call that is refused before it is made cannot be left half done.

    Args:
        model: The model of all arguments.
        visible: Arguments the model of the agent writes; errors in others, which are added later, do not count.
    """
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None

    def check(arguments: dict[str, object]) -> list[ArgumentError]:
        try:
            model.model_validate(arguments)
        except ModelValidationError as error:
            details = error.errors(include_url=False, include_context=False, include_input=False)
            hidden = any(part["loc"] and part["loc"][0] not in visible for part in details)
            return [
                ArgumentError(
                    path := _format_path(part["loc"]), part["type"], f"{path}: {part['msg']}".removeprefix(": ")
                )
                for part in details
                if (part["loc"][0] in visible if part["loc"] else not hidden)
            ]
        return []

    return check


# -- closing a schema -------------------------------------------------------------------------------------------------


def _check_references(schema: dict[str, Any], draft: str) -> None:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import specification_with

    resource = specification_with(draft).create_resource(schema)
    resolver = Registry().with_resource("", resource).resolver()
    targets: dict[int, Any] = {}  # id of a part with a reference → what it refers to
    for part in _objects(schema):
        reference = part.get("$ref")
        if isinstance(reference, str):
            try:
                targets[id(part)] = resolver.lookup(reference).contents
            except Unresolvable as error:
                raise UsageError(
                    f"The schema refers to {reference!r}, which it does not hold: put it under $defs, nothing is "
                    "fetched."
                ) from error
    _refuse_cycle(schema, targets)


def _refuse_cycle(schema: dict[str, Any], targets: Mapping[int, Any]) -> None:
    """Refuse a schema that applies itself to the same value, which would never end.

    Raises:
        UsageError: a reference leads back to itself without a property or an item between.
    """
    checked: set[int] = set()
    for root in _objects(schema):
        # (part, the parts it applies to the same value); `open_parts` are those the walk is in
        walk, open_parts = [(root, iter(_same_value_parts(root, targets)))], {id(root)}
        while walk:
            part, inner = walk[-1]
            following = next(inner, None)
            if following is None:
                checked.add(id(part))
                open_parts.discard(id(part))
                walk.pop()
            elif id(following) in open_parts:
                raise UsageError(
                    "The schema refers to itself without a property or an item between, so no value could ever be "
                    f"checked: {short_repr(following)}. Refer to it under `properties` or `items`."
                )
            elif id(following) not in checked:
                open_parts.add(id(following))
                walk.append((following, iter(_same_value_parts(following, targets))))


def _same_value_parts(part: dict[str, Any], targets: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
    candidates: list[Any] = [targets.get(id(part))]
    candidates += [part.get(key) for key in ("not", "if", "then", "else")]
    for key in _BRANCHES:
        candidates += part[key] if isinstance(part.get(key), list) else []
    dependent = part.get("dependentSchemas")
    candidates += dependent.values() if isinstance(dependent, dict) else []
    return (candidate for candidate in candidates if isinstance(candidate, dict))


def _objects(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _objects(item)


def _partial_references(schema: Any, *, combined: bool) -> Iterator[str]:  # noqa: ANN401
    """References to definitions that describe one part of an object only, so they cannot be closed by themselves."""
    if not isinstance(schema, dict):
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and (combined or "properties" in schema):
        yield reference
    for key, item in schema.items():
        if key in _BRANCHES:
            for branch in item:
                yield from _partial_references(branch, combined=combined or _combines(key, schema))
        elif isinstance(item, dict):
            is_map = key in _SCHEMA_MAPS or key == "dependentSchemas"
            for child in item.values() if is_map else [item]:
                yield from _partial_references(child, combined=False)


def _combines(key: str, schema: dict[str, Any]) -> bool:
    """Return whether the branches under a keyword share their object with other parts of the schema."""
    return key == "allOf" or bool(schema.get("properties")) or "allOf" in schema or "$ref" in schema


def _close(schema: dict[str, Any], *, modern: bool) -> dict[str, Any]:
    """Return the schema in which every object that names its properties allows no others.

    Args:
        schema: The schema.
        modern: Whether its draft knows `unevaluatedProperties` (2019-09 and later).
    """
    partial = frozenset(_partial_references(schema, combined=False))

    def close(part: Any, pointer: str = "#", *, combined: bool = False) -> Any:  # noqa: ANN401
        if isinstance(part, list):
            return [close(item, combined=combined) for item in part]
        if not isinstance(part, dict):  # a schema may be true or false
            return part
        closed = dict(part)
        for key, item in part.items():
            if key in _SCHEMA_MAPS:
                closed[key] = {name: close(child, f"{pointer}/{key}/{name}") for name, child in item.items()}
            elif key in _BRANCHES:
                closed[key] = close(item, combined=combined or _combines(key, part))
            elif key in {"items", "prefixItems", "additionalItems", "additionalProperties", "contains"}:
                closed[key] = close(item)
        keyword = _closing_keyword(part, modern=modern)
        if keyword is not None and not combined and pointer not in partial:
            closed[keyword] = False
        return closed

    closed: dict[str, Any] = close(schema)
    return closed


def _closing_keyword(schema: dict[str, Any], *, modern: bool) -> str | None:
    """Return the keyword that refuses further properties; None where the schema itself decides or names none."""
    explicit = {"additionalProperties", "unevaluatedProperties", "patternProperties"} & schema.keys()
    if "properties" not in schema or explicit:
        return None
    if not _COMBINING & schema.keys():
        return "additionalProperties"
    # the one keyword that looks into the combined parts; older drafts have none
    return "unevaluatedProperties" if modern else None


# -- repairing values in the wrong notation ---------------------------------------------------------------------------


def _repairs(errors: list[ValidationError]) -> Iterator[tuple[list[Any], Any]]:
    for error in errors:
        if not any(part.relative_path for part in error.context or ()):
            value = _convert(error.instance, frozenset(_expected_types(error)))
            if value is not _UNCHANGED:
                yield list(error.absolute_path), value


def _expected_types(error: ValidationError) -> list[str]:
    """Return the types one of which the value must have; empty where more than the type is wrong."""
    if error.validator == "type":
        expected: Any = error.validator_value
        return [expected] if isinstance(expected, str) else list(expected)
    if error.validator not in {"anyOf", "oneOf"}:
        return []
    parts = [part for part in error.context or () if not part.relative_path]
    if any(part.validator != "type" for part in parts):
        return []
    return list(dict.fromkeys(name for part in parts for name in _expected_types(part)))


def _convert(value: object, types: frozenset[str]) -> Any:  # noqa: ANN401
    """Return what a text says in one of the types, where that is unambiguous and exact; else `_UNCHANGED`."""
    if not isinstance(value, str):
        return _UNCHANGED
    text = value.strip()
    if types & {"integer", "number"} and _NUMBER.fullmatch(text):
        exact = Decimal(text)
        if exact == exact.to_integral_value():
            return int(exact)
        return float(text) if "number" in types and Decimal(repr(float(text))) == exact else _UNCHANGED
    if "boolean" in types and text in {"true", "false"}:
        return text == "true"
    if types & {"object", "array"} and text[:1] in {"{", "["}:
        return _parse_json(text, types)
    return _UNCHANGED


def _parse_json(text: str, types: frozenset[str]) -> Any:  # noqa: ANN401
    try:
        parsed = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _UNCHANGED
    return parsed if ("object" if isinstance(parsed, dict) else "array") in types else _UNCHANGED


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _replace(value: Any, path: list[Any], new: Any) -> Any:  # noqa: ANN401
    """Return a copy of a value with the item at a path replaced; the value itself does not change."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, Mapping) else list(value)
    copy[path[0]] = _replace(copy[path[0]], path[1:], new)
    return copy


# -- messages for the model -------------------------------------------------------------------------------------------


def _inner_error(error: ValidationError) -> ValidationError:
    """Return the error in the branch that was meant, where that is clear; else the error itself."""
    from jsonschema.exceptions import best_match

    if error.validator in {"anyOf", "oneOf"} and error.context:
        inner: ValidationError | None = best_match(error.context)
        if inner is not None and inner.relative_path:
            return inner
    return error


def _argument_errors(error: ValidationError, language: Language) -> Iterator[ArgumentError]:
    """Yield the errors that one error of jsonschema stands for: one for each unknown argument, else a single one."""
    messages, rule = load_messages("guard", "validation", language), str(error.validator)
    expected: Any = error.validator_value
    value: Any = error.instance
    path = _format_path(error.absolute_path)
    if rule == "required":
        missing = [name for name in expected if name not in value]
        for name in [name for name in missing if repr(name) in error.message] or missing[:1]:
            argument = _join_path(path, name)
            yield ArgumentError(argument, rule, messages["required"].format(at=argument))
    elif rule in {"additionalProperties", "unevaluatedProperties"} and expected is False:
        yield from _unknown_arguments(error, path, messages)
    else:
        yield ArgumentError(path, rule, _message(error, rule, path or messages["whole"], language))


def _unknown_arguments(error: ValidationError, path: str, messages: Mapping[str, str]) -> Iterator[ArgumentError]:
    schema: Any = error.schema
    value: Any = error.instance
    known = list(schema.get("properties", {}))
    unknown = [name for name in value if name not in known]
    for name in [name for name in unknown if repr(name) in error.message] or unknown:
        argument, close = _join_path(path, name), difflib.get_close_matches(name, known, 1)
        message = messages["unknown"].format(
            at=argument,
            guess=messages["guess"].format(name=_join_path(path, close[0])) if close else "",
            names=messages["names"].format(names=", ".join(known)) if known else messages["no_names"],
        )
        yield ArgumentError(argument, str(error.validator), message)


def _message(error: ValidationError, rule: str, path: str, language: Language) -> str:
    messages, value = load_messages("guard", "validation", language), error.instance
    expected: Any = error.validator_value
    types = _expected_types(error)
    if types:
        type_names = load_messages("guard", "type_names", language)
        names = messages["or"].join(type_names.get(name, name) for name in types)
        template = messages["null" if value is None else "type"]
        return template.format(at=path, types=names, value=_format_value(value))
    if rule == "enum":
        allowed = ", ".join(map(_format_value, expected))
        return messages[rule].format(at=path, rule=allowed, value=_format_value(value))
    if rule not in messages:
        return messages["other"].format(at=path, message=_truncate(error.message))
    size = len(value) if isinstance(value, str | list) else 0
    return messages[rule].format(at=path, rule=_format_value(expected), value=_format_value(value), size=size)


def _format_path(path: Any) -> str:  # noqa: ANN401
    """Return a path of keys and indexes as text: "items[0].amount"."""
    text = ""
    for part in path:
        text = f"{text}[{part}]" if isinstance(part, int) else _join_path(text, str(part))
    return text


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _format_value(value: Any) -> str:  # noqa: ANN401
    try:
        return _truncate(json.dumps(value, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError):
        return short_repr(value)


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 1] + "…"
