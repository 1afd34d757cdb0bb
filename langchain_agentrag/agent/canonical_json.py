"""One text for all the ways to write the same arguments, and the id of an operation made from it.

| given                          | counts as                                                                  |
|--------------------------------|----------------------------------------------------------------------------|
| keys in another order          | the same                                                                   |
| 1, 1.0 and 1e0; 0 and -0.0     | the same: one number, whatever its notation; whole numbers of any size exact |
| 1, true and "1"                | three values                                                               |
| é in one or two code points    | two values: text is compared code point by code point                     |
| an absent key and a null       | two values                                                                 |

Much like RFC 8785, but that one writes every number as a double and would take 2**53 + 1 for 2**53.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from langchain_agentrag.errors import UsageError
from langchain_agentrag.metadata import short_repr

MAX_DEPTH = 100
"""Deepest nesting of arguments."""

_write = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True, check_circular=False
).encode


def canonical(value: Any) -> str:  # noqa: ANN401
    """The canonical JSON text of a value; two values have the same exactly when the table above calls them the same.

    Raises:
        UsageError: the value is not JSON (another type, NaN, half a surrogate pair), or nested too deep.
    """
    plain = _plain(value, "", 0)
    try:
        return _write(plain)
    except ValueError as error:  # Python refuses to print whole numbers of more than 4,300 digits
        raise UsageError(f"A value cannot be written as JSON: {error}.") from error


def operation_id(principal: str, tool: str, arguments: Mapping[str, Any], scope: str) -> str:
    """The id, 40 hexadecimal digits, of what an agent does with a tool and arguments within a scope.

    Raises:
        UsageError: the arguments are not JSON.
    """
    text = canonical([principal, tool, dict(arguments), scope])  # a list: no part can run over into the next
    return hashlib.blake2b(text.encode("utf-8"), digest_size=20).hexdigest()


def _plain(value: Any, place: str, depth: int) -> Any:  # noqa: ANN401
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, place)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(value, place)
    if depth >= MAX_DEPTH:
        raise UsageError(f"{_at(place)} is nested deeper than {MAX_DEPTH} levels: make it flatter.")
    if isinstance(value, Mapping):
        return {_key(key, place): _plain(item, f"{place}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{place}[{n}]", depth + 1) for n, item in enumerate(value)]
    raise UsageError(
        f"{_at(place)} is a {type(value).__name__}, {short_repr(value)}: JSON has objects, arrays, texts, numbers, "
        "true, false and null only."
    )


def _number(value: float, place: str) -> int | float:
    if not math.isfinite(value):
        raise UsageError(f"{_at(place)} is {value}: JSON has no such number.")
    return int(value) if value.is_integer() else float(value)


def _key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise UsageError(f"{_at(place)} has the key {short_repr(key)}: keys are texts.")
    return _text(key, place)


def _text(value: str, place: str) -> str:
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise UsageError(f"{_at(place)} holds half a surrogate pair, {short_repr(value)}: that is no text.")
    return str(value)


def _at(place: str) -> str:
    return place.removeprefix(".") or "The value"
