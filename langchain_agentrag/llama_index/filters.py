"""`parse_filters`: LlamaIndex's metadata filters, every operator at any nesting, as filters of the engine.

Each operator means what it means in LlamaIndex's `build_metadata_filter_fn`, also for missing keys. Where that function
would raise on a document (text compared with a number, for example), the document does not match.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from langchain_agentrag.errors import FilterError
from langchain_agentrag.filters import MAX_DEPTH, ONE_OF, And, Condition, Filter, Not, Or, parse

Filters: TypeAlias = MetadataFilters | MetadataFilter | Mapping[str, Any] | Filter | None
"""Filters of LlamaIndex, or of the engine's own language."""

_MATCH_ALL, _MATCH_NONE = And(()), Or(())
_EMPTY_VALUES: tuple[Any, ...] = (None, "", [])

_OPERATORS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: ONE_OF,
    FilterOperator.NIN: ONE_OF,
    FilterOperator.CONTAINS: "$contains",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "$icontains",
}


def parse_filters(filters: Filters) -> Filter | None:
    """Parse filters into the engine's filter tree; None when there is none.

    Raises:
        FilterError: an unknown operator or condition, an unsuitable value, or nesting too deep.
    """
    if isinstance(filters, MetadataFilter):
        return _leaf(filters)
    if isinstance(filters, MetadataFilters):
        return parse(_group(filters, 0))
    return parse(filters)


def _group(group: MetadataFilters, depth: int) -> Filter:
    if depth > MAX_DEPTH:
        raise FilterError(f"MetadataFilters are nested deeper than {MAX_DEPTH} levels: flatten them.")
    parts = tuple(
        _group(part, depth + 1) if isinstance(part, MetadataFilters) else _leaf(part) for part in group.filters
    )
    if not parts:
        return _MATCH_ALL
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
        return Or(tuple(Condition(key, "$eq", empty) for empty in _EMPTY_VALUES))
    if operator in {FilterOperator.ANY, FilterOperator.ALL}:
        if not isinstance(value, list):
            raise FilterError(f"Operator {operator.value!r} on {key!r} needs a list of values, got {value!r}.")
        items = tuple(Condition(key, "$contains", item) for item in value)
        return Or(items) if operator == FilterOperator.ANY else And((Condition(key, "$ne", None), *items))
    if value is None and operator == FilterOperator.EQ:
        return _MATCH_NONE  # as upstream: nothing equals None, not even a missing key; IS_EMPTY matches those
    if value is None and operator == FilterOperator.NE:
        return _MATCH_ALL
    if operator == FilterOperator.TEXT_MATCH:
        # the second condition matches texts only, the first would also match list items
        return And((Condition(key, "$contains", value), Condition(key, "$icontains", value)))
    name = _OPERATORS.get(operator)
    if name is None:
        raise FilterError(f"Unknown operator {operator!r} on {key!r}: use one of {', '.join(FilterOperator)}.")
    condition = Condition(key, name, value)
    return Not(condition) if operator == FilterOperator.NIN else condition
