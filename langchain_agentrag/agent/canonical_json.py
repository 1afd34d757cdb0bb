"""Canonical JSON of tool arguments, and the operation id hashed from it: the idempotency key of a call.

| input                          | treated as                                                                 |
|--------------------------------|----------------------------------------------------------------------------|
| keys in another order          | equal                                                                      |
| 1, 1.0 and 1e0; 0 and -0.0     | equal: one number in any notation; integers of any size stay exact         |
| 1, true and "1"                | three values                                                               |
| é in one or two code points    | two values: text is compared by code point                                 |
| an absent key and a null       | two values                                                                 |

Close to RFC 8785, which writes every number as a double and would turn 2**53 + 1 into 2**53.
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

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True, check_circular=False
).encode


def canonical(value: Any) -> str:  # noqa: ANN401
    """Return the canonical JSON text of a value; it is the same for values that the table above calls equal.

    Raises:
        UsageError: the value is not JSON (another type, NaN, half a surrogate pair), or nested too deep.
    """
    plain = _normalise(value, "", 0)
    try:
        return _encode(plain)
    except ValueError as error:  # Python refuses to print integers of more than 4,300 digits
        raise UsageError(f"A value cannot be written as JSON: {error}.") from error


def operation_id(principal: str, tool: str, arguments: Mapping[str, Any], scope: str) -> str:
    """Return the id, 40 hexadecimal digits, of a tool call: hashed from agent, tool, arguments and scope.

    Raises:
        UsageError: the arguments are not JSON.
    """
    text = canonical([principal, tool, dict(arguments), scope])  # a list: parts cannot run into each other
    return hashlib.blake2b(text.encode("utf-8"), digest_size=20).hexdigest()


def _normalise(value: Any, path: str, depth: int) -> Any:  # noqa: ANN401
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _check_text(value, path)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"{_name(path)} is {value}: JSON has no such number.")
        return int(value) if value.is_integer() else float(value)
    if depth >= MAX_DEPTH:
        raise UsageError(f"{_name(path)} is nested deeper than {MAX_DEPTH} levels: make it flatter.")
    if isinstance(value, Mapping):
        return {_check_key(key, path): _normalise(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalise(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(value)]
    raise UsageError(
        f"{_name(path)} is a {type(value).__name__}, {short_repr(value)}: JSON has only objects, arrays, strings, "
        "numbers, true, false and null."
    )


def _check_key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise UsageError(f"{_name(path)} has the key {short_repr(key)}: keys must be strings.")
    return _check_text(key, path)


def _check_text(value: str, path: str) -> str:
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise UsageError(f"{_name(path)} has half a surrogate pair, {short_repr(value)}: it is not valid text.")
    return str(value)


def _name(path: str) -> str:
    return path.removeprefix(".") or "The value"
