"""Search types and options of LangChain calls, translated to options of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.filters import Filter, conjoin, parse, time_range_filter
from langchain_agentrag.search.options import SearchOptions, check_option_names
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
"""What each search type asks of the engine; "mmr" also asks for different hits."""

PER_CALL = (
    "filter",
    "search_type",
    "weights",
    "fusion",
    "fetch_k",
    "score_threshold",
    "max_per_document",
    "lambda_mult",
    "reranker",
    "rerank_timeout",
    "after",
    "before",
    "recency",
    "collapse",
    "neighbours",
    "history",
    "rewriter",
    "rewrite_timeout",
    "quarantined",
)
"""Options a call may give besides k."""

_BOUNDS = ("after", "before")
_TRACING = frozenset({"verbose", "run_name", "run_id", "tags", "metadata", "callbacks"})
_LAMBDA = 0.5  # LangChain's default of lambda_mult


def engine_options(
    bound: Filter | None, defaults: Mapping[str, Any], call: Mapping[str, Any]
) -> SearchOptions:
    """Options for the engine. A filter or a bound of time of the call narrows the bound one; others replace defaults.

    Args:
        bound: Filter that every call obeys.
        defaults: Options by the names of `PER_CALL`.
        call: What this call gave; what belongs to tracing is passed over.

    Raises:
        InvalidQueryError: an unknown option or search type.
        FilterError: the call's filter cannot be parsed.
    """
    given = {name: value for name, value in call.items() if name not in _TRACING}
    check_option_names(given, dict.fromkeys(("k", *PER_CALL)))
    chosen = narrowed(defaults, given)
    search_type, relevance = chosen.get("search_type", "hybrid"), chosen.get("lambda_mult")
    if search_type not in MODES:
        raise InvalidQueryError(f"Unknown search_type {search_type!r}: choose one of {', '.join(MODES)}.")
    if relevance is None:
        relevance = _LAMBDA if search_type == "mmr" else 1.0
    if isinstance(relevance, bool) or not isinstance(relevance, int | float) or not 0 <= relevance <= 1:
        raise InvalidQueryError(
            f"lambda_mult={relevance!r} must be a number from 0 (different) to 1 (relevant)."
        )
    options = SearchOptions(
        filter=conjoin(bound, chosen["filter"]),
        mode=MODES[search_type],
        weights=chosen.get("weights"),
        fetch_k=chosen.get("fetch_k"),
        score_threshold=chosen.get("score_threshold"),
        max_per_document=chosen.get("max_per_document"),
        diversity=1.0 - relevance,
        reranker=chosen.get("reranker"),
        rerank_timeout=chosen.get("rerank_timeout"),
        after=chosen.get("after"),
        before=chosen.get("before"),
        recency=chosen.get("recency"),
        collapse=chosen.get("collapse"),
        neighbours=chosen.get("neighbours"),
        history=chosen.get("history"),
        rewriter=chosen.get("rewriter"),
        rewrite_timeout=chosen.get("rewrite_timeout"),
    )
    if chosen.get("quarantined") is not None:
        options["quarantined"] = chosen["quarantined"]
    if chosen.get("fusion") is not None:
        options["fusion"] = chosen["fusion"]
    return options


def narrowed(defaults: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a call in front of the defaults; of filters and bounds of time both hold.

    Raises:
        FilterError: a filter cannot be parsed.
        InvalidQueryError: a bound is no time.
    """
    given = {name: value for name, value in call.items() if value is not None or name not in _BOUNDS}
    replaced = {name: defaults[name] for name in _BOUNDS if name in given and defaults.get(name) is not None}
    kept = conjoin(
        parse(defaults.get("filter")), time_range_filter(replaced.get("after"), replaced.get("before"))
    )
    return {**defaults, **given, "filter": conjoin(kept, parse(call.get("filter")))}
