"""`QueryUnderstandingRouter`: route a question and its conversation to a search, with the reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from langchain_agentrag.errors import InvalidQueryError, UsageError
from langchain_agentrag.filters import conjoin, parse, time_range_filter
from langchain_agentrag.indexer import check_indexer
from langchain_agentrag.llm import LanguageModel, check_llm
from langchain_agentrag.query.model_route import route_by_model
from langchain_agentrag.query.rules import DIALOGUE, DOCUMENT_TYPES, TOOL_CALL, Route, RouteTargets, route_by_rules
from langchain_agentrag.search.followup import HistoryTurn, complete_question, read_history
from langchain_agentrag.times import document_time
from langchain_agentrag.types import Hit, Hits

_SIMILAR_TURN = 0.6  # share of the best score from which on turns and tool calls are sorted by time
_SIMILAR_SCORE = 0.7  # the same of other documents
_CANDIDATES_PER_HIT = 4  # candidates that are sorted by time, per hit wanted
_SIMILAR_CONFIDENCE = 0.8  # share of the confidence without a time range from which on the time range is kept
_RECENCY = timedelta(days=30)

Names = Mapping[str, Iterable[str] | str] | Iterable[str]
"""Values, or values and the words that name each: {"manual": ["手册", "manual"]}."""


class SupportsSearch(Protocol):
    """A `DualIndexer` or an `AgentView`."""

    def search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """Return the k best hits."""

    async def asearch(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` without blocking the event loop."""


class RoutedHits(Hits):
    """Hits with the route they were searched by.

    Attributes:
        route: Query, search type, filters, time range and reasons.
    """

    def __init__(self, hits: Iterable[Hit], result: Hits, route: Route) -> None:
        super().__init__(
            hits,
            query=route.question,
            searched=result.searched,
            mode=result.mode,
            degraded=result.degraded,
            trace=result.trace,
        )
        self.route = route


class QueryUnderstandingRouter:
    """Router from a question to a search: query, document types, sources, time range and search type.

        router = QueryUnderstandingRouter(tz="Asia/Shanghai")
        hits = router.search(indexer.for_agent("lina"), "上次我是怎么解决那个错误的")
        print(hits.route.search_type, hits.route.reasons)

    Rules for Chinese and English decide. A model may decide otherwise, among the types and sources passed here; if
    its answer names an unknown type, source or field, cannot be parsed or comes too late, the rules decide and
    `Route.fallback` has the reason. Neither a question nor a model can choose an agent or a filter.

    Args:
        model: A function prompt -> text, or a chat model of LangChain or LlamaIndex, asked about every question.
        types: Document types in the store (metadata `type`), with words that name each; by default those that this
            package writes. A question about any other type is not narrowed to it.
        sources: Sources (metadata `source`), with words that name each.
        tz: Time zone whose days are meant: a name such as "Asia/Shanghai", or a tzinfo; UTC by default.
        clock: Returns the present, aware; the system clock by default.
        model_timeout: Seconds to wait for the model.

    Raises:
        UsageError: the model is of an unknown kind, or there is no such time zone.
    """

    def __init__(
        self,
        model: LanguageModel | None = None,
        *,
        types: Names | None = None,
        sources: Names = (),
        tz: str | tzinfo = UTC,
        clock: Callable[[], datetime] | None = None,
        model_timeout: float = 5.0,
    ) -> None:
        self._model = check_llm(model)
        self._targets = RouteTargets(
            _words_by_name("types", DOCUMENT_TYPES if types is None else types), _words_by_name("sources", sources)
        )
        self._zone, self._clock, self._timeout = _time_zone(tz), clock, model_timeout

    def route(self, question: str, *, history: Sequence[Any] | None = None, now: datetime | None = None) -> Route:
        """Return the route of a question.

        Args:
            question: The question.
            history: The conversation before it; see `SearchOptions`.
            now: The present, aware; by default that of `clock`.

        Raises:
            InvalidQueryError: the question is not a string, the history not a list of turns, or `now` not aware.
        """
        if not isinstance(question, str):
            raise InvalidQueryError(f"Cannot route a {type(question).__name__}: the question must be a string.")
        turns, now = read_history(history), self._aware_time(now)
        route = route_by_rules(question, complete_question(question, turns).query, self._targets, now)
        if self._model is None or not any(map(str.isalnum, question)):
            return route
        return route_by_model(
            route, self._model, self._targets, now, history=_format_history(turns), timeout=self._timeout
        )

    async def aroute(
        self, question: str, *, history: Sequence[Any] | None = None, now: datetime | None = None
    ) -> Route:
        """`route` without blocking the event loop."""
        return await asyncio.to_thread(self.route, question, history=history, now=now)

    def search(
        self,
        store: SupportsSearch,
        question: str,
        k: int = 5,
        *,
        history: Sequence[Any] | None = None,
        now: datetime | None = None,
        **options: Any,  # noqa: ANN401
    ) -> RoutedHits:
        """Route a question and search for it.

        If the types and sources of the route have no hits, everything is searched. A date that documents may name
        themselves ("in 2015") is dropped if the hits without it have a clearly higher confidence. The reasons say so.
        A time relative to now (yesterday) is never dropped.

        Args:
            store: A `DualIndexer`, with agent_id among the options, or the `AgentView` of an agent.
            question: The question.
            k: Number of hits.
            history: The conversation before it.
            now: The present, aware; by default that of `clock`.
            options: Search options; they override those of the route, except that a filter narrows further.

        Raises:
            UsageError: `store` cannot be searched, such as a path.
            InvalidQueryError, FilterError, RetrievalError: as of `DualIndexer.search`.
        """
        _check_store(store)
        route = self.route(question, history=history, now=now)
        best = Hits(), route
        for candidate in _routes_to_try(route):
            query, limit, search_options = _search_arguments(candidate, k, options, history)
            hits = store.search(query, limit, **search_options)
            best = _more_confident(best, (hits, candidate))
            if _is_sufficient(*best):
                break
        return _routed_hits(*best, k)

    async def asearch(
        self,
        store: SupportsSearch,
        question: str,
        k: int = 5,
        *,
        history: Sequence[Any] | None = None,
        now: datetime | None = None,
        **options: Any,  # noqa: ANN401
    ) -> RoutedHits:
        """`search` without blocking the event loop."""
        _check_store(store)
        route = await self.aroute(question, history=history, now=now)
        best = Hits(), route
        for candidate in _routes_to_try(route):
            query, limit, search_options = _search_arguments(candidate, k, options, history)
            hits = await store.asearch(query, limit, **search_options)
            best = _more_confident(best, (hits, candidate))
            if _is_sufficient(*best):
                break
        return _routed_hits(*best, k)

    def _aware_time(self, now: datetime | None) -> datetime:
        if now is None:
            now = self._clock() if self._clock is not None else datetime.now(UTC)
        if now.tzinfo is None or now.utcoffset() is None:
            raise InvalidQueryError(f"now={now!r} has no time zone: pass an aware datetime.")
        return now.astimezone(self._zone)


def _check_store(store: object) -> None:
    """Refuse what is no store; any object with both search methods is one."""
    if not (callable(getattr(store, "search", None)) and callable(getattr(store, "asearch", None))):
        check_indexer(store, "QueryUnderstandingRouter.search()")


def _routes_to_try(route: Route) -> list[Route]:
    """Return the route and wider ones, to try in this order until one has hits."""
    routes = [route]

    def widen(reason: str, **changes: Any) -> None:  # noqa: ANN401
        routes.append(replace(routes[-1], reasons=(*routes[-1].reasons, reason), **changes))

    if _may_drop_time(route):
        reason = "documents of that time hardly answer it, so those of any time"
        widen(reason, after=None, before=None, time_is_optional=False)
    if route.search_type == "tool_history":
        widen("no tool call was found, so what was said as well", types=(TOOL_CALL, DIALOGUE))
    if route.types or route.sources:
        widen("nothing was found there, so everything", types=(), sources=())
    return routes


def _search_arguments(
    route: Route, k: int, options: Mapping[str, Any], history: Sequence[Any] | None
) -> tuple[str, int, dict[str, Any]]:
    """Return the query, number of candidates and options of the search by a route."""
    merged: dict[str, Any] = {"mode": route.mode}
    if route.weights is not None and route.mode == "hybrid" and "fusion" not in options:
        merged["weights"] = route.weights
    if route.newest_first and not _is_of_the_past(route):
        merged["recency"] = _RECENCY
    if history is not None and route.by == "rules":
        merged["history"] = history
    metadata_filter = conjoin(parse(options.get("filter")), parse(route.filter))
    merged |= {**options, "filter": conjoin(metadata_filter, time_range_filter(route.after, route.before))}
    query = route.query_without_history if "history" in merged else route.query
    return query, _CANDIDATES_PER_HIT * k if route.newest_first and isinstance(k, int) else k, merged


def _may_drop_time(route: Route) -> bool:
    return route.time_is_optional and bool(route.after or route.before)


def _is_of_the_past(route: Route) -> bool:
    """Return whether a route searches what an agent said or did."""
    return route.search_type in {"memory", "tool_history"}


def _more_confident(best: tuple[Hits, Route], latest: tuple[Hits, Route]) -> tuple[Hits, Route]:
    """Return the latest hits, unless those before them, of a time range, have about the same confidence."""
    hits, route = best
    if hits and hits.confidence >= _SIMILAR_CONFIDENCE * latest[0].confidence:
        return hits, replace(route, time_is_optional=False)
    return latest


def _is_sufficient(hits: Hits, route: Route) -> bool:
    return bool(hits) and not _may_drop_time(route)


def _routed_hits(result: Hits, route: Route, k: int) -> RoutedHits:
    """Return the k first hits; if the newest come first, those of about the best score sorted from the newest.

    A hit without a time keeps its place.
    """
    hits = list(result)
    if route.newest_first:
        times = ((place, document_time(hit.metadata)) for place, hit in enumerate(hits))
        dated = {place: time for place, time in times if time is not None}
        share = _SIMILAR_TURN if _is_of_the_past(route) else _SIMILAR_SCORE
        min_score = share * max((hits[place].score for place in dated), default=0.0)
        similar = [place for place in dated if hits[place].score >= min_score]
        newest = [hits[place] for place in sorted(similar, key=dated.__getitem__, reverse=True)]
        for place, hit in zip(similar, newest, strict=True):
            hits[place] = hit
    return RoutedHits(hits[:k], result, route)


def _words_by_name(parameter: str, names: Names) -> dict[str, tuple[str, ...]]:
    if isinstance(names, str):
        raise UsageError(f"{parameter}={names!r} must be a list of names, or a dict of names and the words for each.")
    if not isinstance(names, Mapping):
        names = {name: (name,) for name in names}
    if not all(isinstance(name, str) and name for name in names):
        raise UsageError(f"{parameter}={list(names)!r}: every name must be a non-empty string.")
    return {
        name: tuple(word for word in ((words,) if isinstance(words, str) else words) if word.strip())
        for name, words in names.items()
    }


def _time_zone(zone: str | tzinfo) -> tzinfo:
    if isinstance(zone, tzinfo):
        return zone
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError) as error:
        raise UsageError(
            f"tz={zone!r} is not a time zone: pass a name such as 'Asia/Shanghai', or a tzinfo."
        ) from error


def _format_history(turns: Sequence[HistoryTurn]) -> str:
    return "\n".join(f"{turn.role or '-'}: {turn.text[:400]}" for turn in turns)
