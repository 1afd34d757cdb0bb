"""`QueryUnderstandingRouter`: from a question and its conversation to a search, with the reasons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from langchain_agentrag.errors import InvalidQueryError, UsageError
from langchain_agentrag.filters import conjoin, parse, time_range_filter
from langchain_agentrag.llm import LanguageModel, check_llm
from langchain_agentrag.query.route_model import followed
from langchain_agentrag.query.rules import DIALOGUE, KNOWN_TYPES, TOOL_CALL, Known, Route, route_by_rules
from langchain_agentrag.search.followup import HistoryTurn, complete_question, read_history
from langchain_agentrag.times import EPOCH, document_time
from langchain_agentrag.types import Hit, Hits

_ALIKE = 0.6  # share of the best score from which on the newer of two hits comes first
_WIDER = 4  # candidates per hit wanted that are put in order of time
_AS_GOOD = 0.8  # share of the confidence without a date from which on the date is kept
_RECENCY = timedelta(days=30)

Names = Mapping[str, Iterable[str] | str] | Iterable[str]
"""Values, or values and the words that name each: {"manual": ["手册", "manual"]}."""


class Searchable(Protocol):
    """What can be searched: a `DualIndexer`, or an `AgentView`."""

    def search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """The k best hits."""

    async def asearch(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` without blocking."""


class RoutedHits(Hits):
    """Hits, and the route that found them.

    Attributes:
        route: What was searched for, where, and why.
    """

    def __init__(self, hits: Iterable[Hit], found: Hits, route: Route) -> None:
        super().__init__(
            hits,
            query=route.question,
            searched=found.searched,
            mode=found.mode,
            degraded=found.degraded,
            trace=found.trace,
        )
        self.route = route


@dataclass(frozen=True, slots=True)
class _Try:
    """One search: its route and the options for it."""

    route: Route
    options: dict[str, Any]

    @property
    def query(self) -> str:
        """What is searched for; the search completes it from the conversation where it is told that."""
        return self.route.alone if "history" in self.options else self.route.query


class QueryUnderstandingRouter:
    """Reads a question: what to search for, where, in which stretch of time, and with which leg.

        router = QueryUnderstandingRouter(tz="Asia/Shanghai")
        hits = router.search(indexer.for_agent("lina"), "上次我是怎么解决那个错误的")
        print(hits.route.search_type, hits.route.reasons)

    Rules for Chinese and English decide; a model may decide otherwise, within what is known: an answer that names an
    unknown type, source or field, that cannot be read or comes too late leaves the rules' decision, with the reason in
    `Route.fallback`. Neither a question nor a model can name an agent or a filter.

    Args:
        model: A function prompt -> text, or a chat model of LangChain or LlamaIndex, asked about every question.
        types: Types the store holds (metadata `type`), with words that name each; by default those that this package
            writes. A question about a type that is not there is not narrowed to it.
        sources: Sources (metadata `source`), with words that name each.
        tz: Zone whose days are meant: a name such as "Asia/Shanghai", or a tzinfo; UTC by default.
        clock: What time it is; the system's by default.
        model_timeout: Seconds the model may take.

    Raises:
        UsageError: the model is of no known kind, or there is no such zone.
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
        self._known = Known(
            _names("types", KNOWN_TYPES if types is None else types), _names("sources", sources)
        )
        self._zone, self._clock, self._timeout = _zone(tz), clock, model_timeout

    def route(
        self, question: str, *, history: Sequence[Any] | None = None, now: datetime | None = None
    ) -> Route:
        """How to search for a question.

        Args:
            question: The question.
            history: The conversation before it; see `SearchOptions`.
            now: The present, aware.

        Raises:
            InvalidQueryError: the question is no text, the history no list of turns, or now has no zone.
        """
        if not isinstance(question, str):
            raise InvalidQueryError(
                f"Cannot route a {type(question).__name__}: the question must be a string."
            )
        turns, present = read_history(history), self._present(now)
        route = route_by_rules(question, complete_question(question, turns).query, self._known, present)
        if self._model is None or not any(map(str.isalnum, question)):
            return route
        return followed(route, self._model, self._known, present, history=_told(turns), timeout=self._timeout)

    async def aroute(
        self, question: str, *, history: Sequence[Any] | None = None, now: datetime | None = None
    ) -> Route:
        """`route` without blocking the event loop."""
        return await asyncio.to_thread(self.route, question, history=history, now=now)

    def search(
        self,
        store: Searchable,
        question: str,
        k: int = 5,
        *,
        history: Sequence[Any] | None = None,
        now: datetime | None = None,
        **options: Any,  # noqa: ANN401
    ) -> RoutedHits:
        """Route a question and search for it.

        A type or source that nothing is found under is let go, and so is a date that texts may name themselves ("in
        2015") where clearly more convincing hits are found without it; the reasons say so. A time relative to now
        (yesterday) is never let go.

        Args:
            store: A `DualIndexer`, with agent_id among the options, or the `AgentView` of an agent.
            question: The question.
            k: Hits wanted.
            history: The conversation before it.
            now: The present, aware.
            options: Options of the search; they come before what the route says, a filter narrows further.

        Raises:
            InvalidQueryError, FilterError, RetrievalError: as of `DualIndexer.search`.
        """
        route = self.route(question, history=history, now=now)
        best: tuple[Hits, Route] | None = None
        for attempt in _attempts(route, options, history):
            found = store.search(attempt.query, _wanted(attempt.route, k), **attempt.options)
            best = _better(best, found, attempt.route)
            if _enough(*best):
                break
        return _ordered(*(best or (Hits(), route)), k)

    async def asearch(
        self,
        store: Searchable,
        question: str,
        k: int = 5,
        *,
        history: Sequence[Any] | None = None,
        now: datetime | None = None,
        **options: Any,  # noqa: ANN401
    ) -> RoutedHits:
        """`search` without blocking the event loop."""
        route = await self.aroute(question, history=history, now=now)
        best: tuple[Hits, Route] | None = None
        for attempt in _attempts(route, options, history):
            found = await store.asearch(attempt.query, _wanted(attempt.route, k), **attempt.options)
            best = _better(best, found, attempt.route)
            if _enough(*best):
                break
        return _ordered(*(best or (Hits(), route)), k)

    def _present(self, now: datetime | None) -> datetime:
        found = now if now is not None else self._clock() if self._clock is not None else datetime.now(UTC)
        if found.tzinfo is None or found.utcoffset() is None:
            raise InvalidQueryError(f"now={found!r} has no zone: pass an aware datetime.")
        return found.astimezone(self._zone)


def _attempts(route: Route, options: Mapping[str, Any], history: Sequence[Any] | None) -> list[_Try]:
    """The search, and wider ones for when it finds nothing."""
    routes = [route]
    if route.soft and (route.after or route.before):
        why = "documents of that time hardly answer it, so those of any time"
        reasons = (*routes[-1].reasons, why)
        routes.append(replace(routes[-1], after=None, before=None, soft=False, reasons=reasons))
    if route.search_type == "tool_history":
        why = "no tool call was found, so what was said as well"
        routes.append(replace(routes[-1], types=(TOOL_CALL, DIALOGUE), reasons=(*routes[-1].reasons, why)))
    if route.types or route.sources:
        why = "nothing was found there, so everything"
        routes.append(replace(routes[-1], types=(), sources=(), reasons=(*routes[-1].reasons, why)))
    return [_Try(one, _options(one, options, history)) for one in routes]


def _better(best: tuple[Hits, Route] | None, found: Hits, route: Route) -> tuple[Hits, Route]:
    """What was found last, unless what was found before it, of a date, is about as convincing."""
    if best is not None and best[0] and best[0].confidence >= _AS_GOOD * found.confidence:
        return best[0], replace(best[1], soft=False)
    return found, route


def _enough(found: Hits, route: Route) -> bool:
    return bool(found) and not (route.soft and (route.after or route.before))


def _options(route: Route, options: Mapping[str, Any], history: Sequence[Any] | None) -> dict[str, Any]:
    narrowed = conjoin(
        conjoin(parse(options.get("filter")), parse(route.filter)),
        time_range_filter(route.after, route.before),
    )
    found: dict[str, Any] = {"mode": route.mode}
    if route.weights is not None and route.mode == "hybrid" and "fusion" not in options:
        found["weights"] = route.weights
    if route.newest_first and not _by_time(route):
        found["recency"] = _RECENCY
    if history is not None and route.by == "rules":
        found["history"] = history
    return {**found, **options, "filter": narrowed}


def _by_time(route: Route) -> bool:
    return route.newest_first and route.search_type in {"memory", "tool_history"}


def _wanted(route: Route, k: int) -> int:
    return _WIDER * k if _by_time(route) and isinstance(k, int) else k


def _ordered(found: Hits, route: Route, k: int) -> RoutedHits:
    """The k hits; of an agent's past those that are about as good as the best one, newest first, then the others."""
    hits = list(found)
    if _by_time(route) and hits:
        least = _ALIKE * hits[0].score
        alike = [hit for hit in hits if hit.score >= least]
        alike.sort(key=lambda hit: document_time(hit.metadata) or EPOCH, reverse=True)
        hits = [*alike, *(hit for hit in hits if hit.score < least)]
    return RoutedHits(hits[:k], found, route)


def _names(what: str, given: Names) -> dict[str, tuple[str, ...]]:
    if isinstance(given, str):
        raise UsageError(f"{what}={given!r} must be a list, or a dict of words that name each.")
    if not isinstance(given, Mapping):
        given = {name: (name,) for name in given}
    found = {
        name: tuple(word for word in ((words,) if isinstance(words, str) else words) if word.strip())
        for name, words in given.items()
    }
    if not all(isinstance(name, str) and name for name in found):
        raise UsageError(f"{what}={list(given)!r}: names are texts.")
    return found


def _zone(given: str | tzinfo) -> tzinfo:
    if isinstance(given, tzinfo):
        return given
    try:
        return ZoneInfo(given)
    except (ZoneInfoNotFoundError, ValueError, TypeError) as error:
        raise UsageError(
            f"tz={given!r} is no time zone: give a name such as 'Asia/Shanghai', or a tzinfo."
        ) from error


def _told(turns: Sequence[HistoryTurn]) -> str:
    return "\n".join(f"{turn.role or '-'}: {turn.text[:400]}" for turn in turns)
