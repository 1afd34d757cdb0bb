"""What a search was asked, checked: the only way from a caller's arguments to the searcher."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from numbers import Integral, Real
from typing import Any, TypedDict, cast, get_args

import numpy as np

from langchain_agentrag import filters
from langchain_agentrag.errors import InvalidQueryError, UsageError
from langchain_agentrag.filters import Filter, conjoin, time_range_filter
from langchain_agentrag.llm import LanguageModel, check_llm
from langchain_agentrag.scope import Scope, check_agent_id
from langchain_agentrag.search.followup import HistoryTurn, read_history
from langchain_agentrag.search.fusion import FusionName, check_fusion, check_weights
from langchain_agentrag.search.rerank import Reranker, check_reranker
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.text.sentences import has_content
from langchain_agentrag.times import EPOCH, check_duration, check_time
from langchain_agentrag.types import SearchMode

DEFAULT_WEIGHTS = (0.5, 0.5)
"""Share of (vector, keyword) under a fusion rule that does not choose it per query."""

_REWRITING = 5.0  # seconds a question may wait for a model

MAX_NEIGHBOURS = 50
"""Most chunks that are read on each side of a hit; to read more, read the document."""

NEAR_DUPLICATE = 0.8
"""Share of shingles two passages have in common from which on they count as the same, unless another is given."""

_FETCHED = (
    4  # candidates per hit wanted that diversity and a reranker choose from, unless `fetch_k` says otherwise
)


class SearchOptions(TypedDict, total=False):
    """Options of a search, all by keyword.

    Attributes:
        filter: Filter over metadata (see `filters`); it narrows what the agent may see, and cannot widen it.
        mode: "hybrid", "vector" or "keyword".
        weights: Share of (vector, keyword) in a hybrid search.
        fusion: "adaptive", "convex", "rrf", "dbsf" or "relative".
        fetch_k: Candidates that diversity and the reranker choose from, >= k; 4 k by default.
        score_threshold: Lowest score of a hit, in [0, 1]; where a reranker gives scores of its own, of those too.
        max_per_document: Most hits of one document.
        diversity: 0 takes the best, 1 the most different ones; between them maximal marginal relevance.
        reranker: Second opinion on the best `fetch_k`; see `rerank.Reranker`.
        rerank_timeout: Seconds the reranker may take; what it has not judged by then stays in the fused order.
        vector: The query's embedding where the caller has it; the model is not asked then.
        after: Only documents whose time (see `times`) is this or later: a datetime, a date, ISO text, or how long
            ago ("36h", "7d"). Without a zone it is UTC. A document without a time is in no such range.
        before: Only documents whose time is earlier than this.
        recency: Half-life of a bonus for recent documents, a timedelta or seconds; it reorders near-equals, see
            `fusion.recency_lift`. With a reranker it only helps to choose what is reranked.
        now: The moment that ages are counted from; the present by default.
        quarantined: Whether quarantined documents are found too; see `quarantined`.
    """

    filter: Any
    mode: SearchMode
    weights: tuple[float, float] | None
    fusion: FusionName
    fetch_k: int | None
    score_threshold: float | None
    max_per_document: int | None
    diversity: float | None
    reranker: Reranker | None
    rerank_timeout: float | None
    collapse: bool | float | None
    neighbours: int | None
    explain: bool
    history: Sequence[Any] | None
    rewriter: LanguageModel | None
    rewrite_timeout: float | None
    vector: Sequence[float] | None
    after: Any
    before: Any
    recency: timedelta | float | None
    now: Any
    quarantined: bool


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search whose arguments have been checked.

    Attributes:
        query: The question as asked.
        scope: What the caller may see.
        k: Hits wanted, >= 1.
        mode: PartitionIndexes asked for.
        condition: Parsed filter, or None.
        weights: Share of (vector, keyword), adding up to 1; None lets the fusion rule choose.
        fusion: Fusion rule.
        pool: Candidates to choose the k hits from, >= k.
        threshold: Lowest score of a hit.
        cap: Most hits of one document, or None.
        diversity: Share of difference in the choice, in [0, 1].
        reranker: Second opinion, or None.
        rerank_timeout: Seconds it may take, or None.
        collapse: Resemblance from which on passages are one, or None.
        neighbours: Chunks to read on each side of a hit.
        explain: Whether to account for what was dropped.
        restricted: Filter and time as they were given, for people.
        history: The conversation before the query.
        rewriter: Model that completes the query, or None.
        rewrite_timeout: Seconds it may take.
        completed: The query with what the conversation adds to it; "" where it stands alone.
        supplement: Words of the conversation that the keyword leg looks for as well, with less weight.
        vector: The embedded query, or None when the vector leg takes no part or failed.
        recency: Half-life of the bonus for recent documents, or None.
        now: The moment that ages are counted from.
        quarantined: Whether quarantined documents are found too.
        background: Mean cosine of unrelated texts under the model, in [-1, 1).
        lowest: The same for the two languages that are farthest apart, in [0, 1).
        troubles: "leg: reason" of what has already gone wrong.
    """

    query: str
    scope: Scope
    k: int
    mode: SearchMode
    condition: Filter | None
    weights: tuple[float, float] | None
    fusion: FusionName
    pool: int
    score_threshold: float = 0.0
    max_per_document: int | None = None
    diversity: float = 0.0
    reranker: Reranker | None = None
    rerank_timeout: float | None = None
    collapse: float | None = None
    neighbours: int = 0
    explain: bool = False
    filter_text: str = ""
    history: tuple[HistoryTurn, ...] = ()
    rewriter: LanguageModel | None = None
    rewrite_timeout: float = _REWRITING
    completed: str = ""
    supplement: str = ""
    vector: Vectors | None = None
    recency: timedelta | None = None
    now: datetime = field(default=EPOCH, compare=False)
    quarantined: bool = False
    background: float = 0.0
    lowest: float = 0.0
    troubles: tuple[str, ...] = ()

    @property
    def searched(self) -> str:
        """What is searched for: the query, completed where it does not stand alone."""
        return self.completed or self.query

    @property
    def uses_vector_index(self) -> bool:
        """Whether the vector leg takes part."""
        return self.mode == "vector" or (
            self.mode == "hybrid" and (self.weights is None or self.weights[0] > 0)
        )

    @property
    def uses_keyword_index(self) -> bool:
        """Whether the keyword leg takes part."""
        return self.mode == "keyword" or (
            self.mode == "hybrid" and (self.weights is None or self.weights[1] > 0)
        )

    @property
    def is_adaptive(self) -> bool:
        """Whether the default rule weighs the legs' evidence; otherwise scores are the legs' calibrated ones."""
        return self.mode == "hybrid" and self.fusion == "adaptive"

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to search for: no vector, and only space, control characters and punctuation."""
        return self.vector is None and not has_content(self.query)


def check_request(
    query: object,
    k: object,
    *,
    agent_id: object,
    options: Mapping[str, Any] | SearchOptions,
    present: datetime | None = None,
) -> SearchRequest:
    """The request, or a clear error before any work is done.

    Args:
        query: The question.
        k: Hits wanted.
        agent_id: On whose behalf.
        options: See `SearchOptions`; None stands for the default.
        present: What time it is.

    Raises:
        InvalidQueryError: query, k or an option makes no sense, or there is no such option.
        FilterError: the filter cannot be parsed.
        ScopeError: the agent id is invalid.
    """
    if not isinstance(query, str):
        raise InvalidQueryError(f"Cannot search for a {type(query).__name__}: the query must be a string.")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    check_option_names(options, SearchOptions.__annotations__)
    mode = given.get("mode", "hybrid")
    if mode not in get_args(SearchMode):
        raise InvalidQueryError(
            f"Unknown search mode {mode!r}: choose one of {', '.join(get_args(SearchMode))}."
        )
    wanted = check_count("k", k)
    now = check_time("now", given["now"]) if "now" in given else present or datetime.now(UTC)
    fusion = check_fusion(given.get("fusion", "adaptive"))
    picky = any(given.get(name) for name in ("reranker", "diversity", "collapse", "neighbours"))
    pool = (
        check_count("fetch_k", given["fetch_k"])
        if "fetch_k" in given
        else wanted * (_FETCHED if picky else 1)
    )
    return SearchRequest(
        query=query,
        scope=Scope(check_agent_id(agent_id)),
        k=wanted,
        mode=cast("SearchMode", mode),
        condition=conjoin(
            filters.parse(given.get("filter")),
            time_range_filter(given.get("after"), given.get("before"), now),
        ),
        weights=_weights(given.get("weights"), fusion),
        fusion=fusion,
        pool=max(pool, wanted),
        score_threshold=_share("score_threshold", given.get("score_threshold", 0.0)),
        max_per_document=check_count("max_per_document", given["max_per_document"])
        if "max_per_document" in given
        else None,
        diversity=_share("diversity", given.get("diversity", 0.0)),
        reranker=check_reranker(given.get("reranker")),
        rerank_timeout=_seconds("rerank_timeout", given.get("rerank_timeout")),
        collapse=_resemblance(given.get("collapse")),
        neighbours=_reach(given.get("neighbours", 0)),
        explain=bool(given.get("explain", False)),
        history=read_history(given.get("history")),
        rewriter=_rewriter(given.get("rewriter")),
        rewrite_timeout=_seconds("rewrite_timeout", given.get("rewrite_timeout")) or _REWRITING,
        filter_text="; ".join(
            f"{name} {given[name]}" for name in ("filter", "after", "before") if name in given
        ),
        vector=None if "vector" not in given else _vector(given["vector"]),
        recency=check_duration("recency", given["recency"]) if "recency" in given else None,
        now=now,
        quarantined=given.get("quarantined", False) is True,
    )


def _weights(given: object, fusion: FusionName) -> tuple[float, float] | None:
    if given is None:
        return None if fusion == "adaptive" else DEFAULT_WEIGHTS
    return check_weights(given)


def check_option_names(given: Mapping[str, Any] | SearchOptions, known: Mapping[str, Any]) -> None:
    """Refuse options that do not exist: one that is ignored is worse than an error.

    Raises:
        InvalidQueryError: the message names the option that may have been meant.
    """
    unknown = sorted(given.keys() - known.keys())
    if not unknown:
        return
    close = difflib.get_close_matches(unknown[0], known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    agent = " The agent is bound beforehand, with for_agent()." if unknown[0].startswith("agent") else ""
    raise InvalidQueryError(
        f"Unknown search option(s) {', '.join(map(repr, unknown))}.{hint}{agent} Known: {', '.join(known)}."
    )


def check_count(name: str, number: object) -> int:
    """A count of at least 1, as an int.

    Raises:
        InvalidQueryError: it is something else; a boolean is no count.
    """
    if isinstance(number, bool) or not isinstance(number, Integral) or int(number) < 1:
        what = "the number of hits wanted, " if name == "k" else ""
        raise InvalidQueryError(f"Cannot search with {name}={number!r}: it is {what}a whole number >= 1.")
    return int(number)


def _share(name: str, number: object) -> float:
    if isinstance(number, bool) or not isinstance(number, Real) or not 0 <= float(number) <= 1:
        raise InvalidQueryError(f"Cannot search with {name}={number!r}: it is a number from 0 to 1.")
    return float(number)


def _seconds(name: str, number: object) -> float | None:
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, Real) or not 0 < float(number) < math.inf:
        raise InvalidQueryError(f"Cannot search with {name}={number!r}: it is a number of seconds above 0.")
    return float(number)


def _rewriter(given: object) -> LanguageModel | None:
    try:
        return check_llm(given)
    except UsageError as error:
        raise InvalidQueryError(f"rewriter: {error}") from error


def _resemblance(given: object) -> float | None:
    if given is None or given is False:
        return None
    share = NEAR_DUPLICATE if given is True else _share("collapse", given)
    if not share:
        raise InvalidQueryError(
            "Cannot search with collapse=0: everything would be the same; give a share above 0."
        )
    return share


def _reach(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, Integral) or not 0 <= int(given) <= MAX_NEIGHBOURS:
        raise InvalidQueryError(
            f"Cannot search with neighbours={given!r}: it is a whole number of chunks from 0 to {MAX_NEIGHBOURS}."
        )
    return int(given)


def _vector(given: Sequence[float]) -> Vectors:
    try:
        vector: Vectors = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidQueryError(f"The vector of the query is no list of numbers: {error}.") from error
    if vector.ndim != 1 or not len(vector) or not math.isfinite(float(vector.sum())):
        raise InvalidQueryError("The vector of the query must be one list of finite numbers.")
    return vector
