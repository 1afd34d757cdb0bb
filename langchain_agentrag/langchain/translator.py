"""`HybridTranslator`: LangChain's structured queries (`SelfQueryRetriever`) as search options with a filter."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from langchain_core.structured_query import Comparator, Comparison, Operation, Operator, StructuredQuery, Visitor

from langchain_agentrag.errors import FilterError

_COMPARATORS: Mapping[str, str] = {
    Comparator.EQ: "$eq",
    Comparator.NE: "$ne",
    Comparator.GT: "$gt",
    Comparator.GTE: "$gte",
    Comparator.LT: "$lt",
    Comparator.LTE: "$lte",
    Comparator.CONTAIN: "$contains",
    Comparator.IN: "$in",
    Comparator.NIN: "$nin",
}
_OTHER_WILDCARDS = frozenset("*?")


class HybridTranslator(Visitor):
    """Structured query translator for `SelfQueryRetriever(structured_query_translator=…)`.

    Translates every comparator and operator of LangChain at any nesting. `like` without a wildcard means "contains", as
    models write it; patterns with `*` or `?` are an error. Dates become dates, so they compare as such.
    """

    allowed_comparators = (*(Comparator(name) for name in _COMPARATORS), Comparator.LIKE)
    allowed_operators = tuple(Operator)

    def visit_operation(self, operation: Operation) -> dict[str, Any]:
        """Translate `and`, `or`, `not`."""
        self._validate_func(operation.operator)
        parts = [part.accept(self) for part in operation.arguments]
        if operation.operator == Operator.NOT:
            if len(parts) != 1:
                raise FilterError(f"`not` takes one condition, got {len(parts)}: join them with `and` or `or` first.")
            return {"$not": parts[0]}
        return {f"${operation.operator.value}": parts}

    def visit_comparison(self, comparison: Comparison) -> dict[str, Any]:
        """Translate a comparison on one key."""
        self._validate_func(comparison.comparator)
        value = _metadata_value(comparison.value)
        if comparison.comparator == Comparator.LIKE:
            return {comparison.attribute: _like(value)}
        if comparison.comparator in {Comparator.IN, Comparator.NIN} and not isinstance(value, list | tuple):
            value = [value]
        return {comparison.attribute: {_COMPARATORS[comparison.comparator]: value}}

    def visit_structured_query(self, structured_query: StructuredQuery) -> tuple[str, dict[str, Any]]:
        """Return the query text, and search options with the filter."""
        if structured_query.filter is None:
            return structured_query.query, {}
        return structured_query.query, {"filter": structured_query.filter.accept(self)}


def _like(pattern: object) -> dict[str, Any]:
    if not isinstance(pattern, str) or not pattern or _OTHER_WILDCARDS & set(pattern):
        raise FilterError(
            f"Cannot translate `like {pattern!r}`: write a text with % for any text and _ for a character."
        )
    text = pattern.strip("%")
    is_substring = pattern in {text, f"%{text}%"} and not set(text) & {"%", "_", "\\"}
    return {"$contains": text} if text and is_substring else {"$like": pattern}


def _metadata_value(value: Any) -> Any:
    """Return a value as stored metadata has it; LangChain's query parser writes dates as {"date": …, "type": …}."""
    if isinstance(value, Mapping) and value.get("type") in {"date", "datetime"}:
        kind = dt.date if value["type"] == "date" else dt.datetime
        text = value.get(value["type"])
        try:
            return kind.fromisoformat(str(text))
        except ValueError as error:
            raise FilterError(f"{text!r} is no {value['type']}: write it as 2026-03-31.") from error
    return [_metadata_value(item) for item in value] if isinstance(value, list | tuple) else value
