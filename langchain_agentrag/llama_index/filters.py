"""LlamaIndex's metadata filters in our filter language: every operator, nested as one likes, none dropped.

The meaning of each operator is that of LlamaIndex's own `build_metadata_filter_fn`, including where a key is missing.
Where that function would raise on a document (text compared with a number, say), the filter does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from langchain_agentrag.errors import FilterError
from langchain_agentrag.filters import MAX_DEPTH, And, Condition, Filter, Not, Or, parse

Filters: TypeAlias = MetadataFilters | MetadataFilter | Mapping[str, Any] | Filter | None
"""What the faces take as filters: LlamaIndex's own, or a filter of our language."""

_ALWAYS, _NEVER = And(()), Or(())
_EMPTY: tuple[Any, ...] = (None, "", [])

_PLAIN = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.CONTAINS: "$contains",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "$icontains",
}


def parse_filters(given: Filters) -> Filter | None:
    """The filter as a tree of our language, or None when there is none.

    Raises:
        FilterError: an operator that does not exist, a value that it cannot use, or nesting too deep.
    """
    if isinstance(given, MetadataFilter):
        return _leaf(given)
    if isinstance(given, MetadataFilters):
        return parse(_group(given, 0))
    return parse(given)


def _group(group: MetadataFilters, depth: int) -> Filter:
    if depth > MAX_DEPTH:
        raise FilterError(f"MetadataFilters are nested deeper than {MAX_DEPTH} levels: flatten them.")
    parts = tuple(
        _group(part, depth + 1) if isinstance(part, MetadataFilters) else _leaf(part)
        for part in group.filters
    )
    if not parts:
        return _ALWAYS
    if group.condition == FilterCondition.NOT:
        return Not(Or(parts))
    if group.condition == FilterCondition.OR:
        return Or(parts)
    if group.condition in {FilterCondition.AND, None}:
        return And(parts)
    raise FilterError(f"Unknown condition {group.condition!r} of MetadataFilters: use and, or, not.")


def _leaf(leaf: MetadataFilter) -> Filter:
    key, value, operator = leaf.key, leaf.value, leaf.operator
    if operator == FilterOperator.IS_EMPTY:
        return Or(tuple(Condition(key, "$eq", empty) for empty in _EMPTY))
    if operator in {FilterOperator.ANY, FilterOperator.ALL}:
        if not isinstance(value, list):
            raise FilterError(
                f"Operator {operator.value!r} on {key!r} needs a list of values, got {value!r}."
            )
        found = tuple(Condition(key, "$contains", item) for item in value)
        return Or(found) if operator == FilterOperator.ANY else And((Condition(key, "$ne", None), *found))
    if value is None and operator == FilterOperator.EQ:
        return _NEVER  # upstream: nothing equals None, a missing key included; IS_EMPTY asks for that
    if value is None and operator == FilterOperator.NE:
        return _ALWAYS
    if operator == FilterOperator.TEXT_MATCH:
        # the second condition holds for texts only, where the first would also look into lists
        return And((Condition(key, "$contains", value), Condition(key, "$icontains", value)))
    name = _PLAIN.get(operator)
    if name is None:
        raise FilterError(
            f"Unknown operator {operator!r} on {key!r}: use one of {', '.join(FilterOperator)}."
        )
    return Condition(key, name, value)
