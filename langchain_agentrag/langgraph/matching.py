"""Which values pass a filter of LangGraph's store, and which namespaces a pattern: as its `InMemoryStore` decides.

This is not the filter language of `filters`: operators compare numbers only, a dict without operators is a part that
the value must have, and what cannot be compared is an error. Code that moves from `InMemoryStore` finds the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal

from langchain_agentrag.errors import FilterError
from langchain_agentrag.metadata import shown

_ORDERINGS: Mapping[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_KNOWN = ("$eq", "$ne", *_ORDERINGS)


def passes(value: Mapping[str, Any], where: Mapping[str, Any] | None) -> bool:
    """Whether a value passes a filter.

    Raises:
        FilterError: there is no such operator.
        TypeError: an ordering meets something that is no number, or a key that is not there.
        ValueError: an ordering meets a text that is no number.
    """
    return all(_agrees(value.get(key), wanted) for key, wanted in (where or {}).items())


def _agrees(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(key.startswith("$") for key in wanted):
            return all(_compares(found, name, operand) for name, operand in wanted.items())
        return isinstance(found, dict) and all(_agrees(found.get(key), part) for key, part in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(found, list | tuple) and len(found) == len(wanted) and all(map(_agrees, found, wanted))
        )
    return bool(found == wanted)


def _compares(found: Any, name: str, operand: Any) -> bool:
    if name in {"$eq", "$ne"}:
        return bool(found == operand) is (name == "$eq")
    if name not in _ORDERINGS:
        raise FilterError(
            f"Unsupported operator: {name}. LangGraph's store has {' '.join(_KNOWN)}; for more, search the store "
            "behind it with the filter language of `DualIndexer.search`."
        )
    return _ORDERINGS[name](_number(found, name), _number(operand, name))


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"Cannot compare {shown(value)} by {name}: operators of LangGraph's store compare numbers only, and every "
            "item under the namespace must have one there. Narrow the namespace, or put numbers."
        ) from error


def matches(kind: Literal["prefix", "suffix"], pattern: tuple[str, ...], namespace: tuple[str, ...]) -> bool:
    """Whether a namespace begins or ends as a pattern says; "*" stands for any one label.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in {"prefix", "suffix"}:
        raise ValueError(f"Unsupported match type: {kind}. Namespaces match by 'prefix' or 'suffix'.")
    if len(namespace) < len(pattern):
        return False
    part = namespace[: len(pattern)] if kind == "prefix" else namespace[len(namespace) - len(pattern) :]
    return all(asked in {"*", label} for asked, label in zip(pattern, part, strict=True))
