"""Arguments of a tool against its whole JSON Schema, with messages that let a model correct its call.

jsonschema (`Draft202012Validator`, or the draft the schema names) decides; this module closes the schema against
unknown arguments, and repairs what a model wrote in the wrong notation where nothing can be lost by it: "5" for 5,
"true" for true, the JSON text of an object. Never true for 1, 5.7 for 5, or null for an argument left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import UsageError
from langchain_agentrag.guard.problems import Problem, described

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
