"""Options of LangChain calls (search_type, lambda_mult …) translated to search options of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from pydantic import Field

from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.filters import Filter, conjoin, parse, time_range_filter
from langchain_agentrag.search.options import OPTIONS, SearchOptions, check_option_names
from langchain_agentrag.types import SearchMode

SearchType = Literal["hybrid", "vector", "keyword", "mmr", "similarity", "bm25"]

MODES: Mapping[str, SearchMode] = {
    "hybrid": "hybrid",
    "mmr": "hybrid",
    "vector": "vector",
    "similarity": "vector",
    "keyword": "keyword",
    "bm25": "keyword",
}
"""Engine mode of each search type; "mmr" also sets `diversity`."""

ENGINE_OPTIONS = tuple(name for name in OPTIONS if name not in {"mode", "diversity", "explain", "vector", "now"})
"""Search options of the engine that LangChain calls take under their own names."""

CALL_OPTIONS = ("search_type", "lambda_mult", *ENGINE_OPTIONS)
"""Options of a LangChain call besides k; `search_type` and `lambda_mult` stand for `mode` and `diversity`."""

CALL_ARGUMENTS = ("k", *CALL_OPTIONS, "where")
"""Arguments of a LangChain call; `where` is Chroma's name of `filter`."""

_TIME_BOUNDS = ("after", "before")
_PASSED_ON = frozenset({"verbose"})  # `BaseRetriever.invoke` reads it and passes it on
_LAMBDA = 0.5  # LangChain's default of lambda_mult


def option_field(name: str, *, default: object = None, **settings: Any) -> Any:
    """Return the pydantic field of a search option, with the description of the options table."""
    option = OPTIONS[name]
    return Field(default=default, description=f"{option.description} Values: {option.values}.", **settings)


def engine_options(bound: Filter | None, defaults: Mapping[str, Any], call: Mapping[str, Any]) -> SearchOptions:
    """Merge the options of a LangChain call with the defaults and translate them to options of the engine.

    Filters and time bounds of the call narrow those of the defaults; other options replace the defaults.

    Args:
        bound: Filter that every call obeys.
        defaults: Options by the names of `CALL_OPTIONS`.
        call: Options of the call; `verbose` is LangChain's and ignored.

    Raises:
        InvalidQueryError: an unknown option or search type.
        FilterError: the call's filter cannot be parsed.
    """
    call = {name: value for name, value in call.items() if name not in _PASSED_ON}
    check_option_names(call, CALL_ARGUMENTS)
    merged = merge_options(defaults, call)
    search_type, relevance = merged.get("search_type", "hybrid"), merged.get("lambda_mult")
    if search_type not in MODES:
        raise InvalidQueryError(f"Unknown search_type {search_type!r}: choose one of {', '.join(MODES)}.")
    if relevance is None:
        relevance = _LAMBDA if search_type == "mmr" else 1.0
    if isinstance(relevance, bool) or not isinstance(relevance, int | float) or not 0 <= relevance <= 1:
        raise InvalidQueryError(f"lambda_mult={relevance!r} must be a number from 0 (different) to 1 (relevant).")
    options = {name: merged[name] for name in ENGINE_OPTIONS if merged.get(name) is not None}
    options |= {"filter": conjoin(bound, merged["filter"]), "mode": MODES[search_type], "diversity": 1.0 - relevance}
    return cast("SearchOptions", options)


def merge_options(defaults: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the options of a call with the defaults: filters and time bounds of both apply, others are replaced.

    Raises:
        FilterError: a filter cannot be parsed.
        InvalidQueryError: a bound is not a time.
    """
    call = {name: value for name, value in call.items() if value is not None or name not in _TIME_BOUNDS}
    replaced = {name: defaults[name] for name in _TIME_BOUNDS if name in call and defaults.get(name) is not None}
    default_filter = conjoin(filter_of(defaults), time_range_filter(replaced.get("after"), replaced.get("before")))
    merged = {**defaults, **call, "filter": conjoin(default_filter, filter_of(call))}
    merged.pop("where", None)
    return merged


def filter_of(options: Mapping[str, Any]) -> Filter | None:
    """Return `filter` and `where` of some options as one filter.

    Raises:
        FilterError: one of them cannot be parsed.
    """
    return conjoin(parse(options.get("filter")), parse(options.get("where")))
