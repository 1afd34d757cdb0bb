"""Search options: one table that declares them, and the checked request made from a call.

`SearchOptions` is the table: each option has a type, a check, the values it takes, a default and one sentence.
`OPTIONS` holds the declarations by name; checks, retrievers and the reference (`python -m
langchain_agentrag.search.options`) are made from it.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from numbers import Integral, Real
from typing import Annotated, Any, TypedDict, cast, get_args, get_type_hints

import numpy as np

from langchain_agentrag.errors import InvalidQueryError, UsageError
from langchain_agentrag.filters import Filter, conjoin, parse, time_range_filter
from langchain_agentrag.llm import LanguageModel, check_llm
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.scope import Scope, check_agent_id
from langchain_agentrag.search.followup import HistoryTurn, read_history
from langchain_agentrag.search.fusion import FusionName, check_fusion, check_weights
from langchain_agentrag.search.rerank import Reranker, check_reranker
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.text.tokenizer import has_content
from langchain_agentrag.times import EPOCH, check_duration, check_time
from langchain_agentrag.types import ScoreName, SearchMode

DEFAULT_WEIGHTS = (0.5, 0.5)
"""Share of (vector, keyword) under a fusion rule that does not choose it per query."""

MAX_QUERY = 4_000
"""Characters of a query that are searched; of a longer one the rest is left out, and `Hits.degraded` says so."""

REWRITE_TIMEOUT = 5.0
"""Seconds the rewriter may take by default."""

MAX_NEIGHBOURS = 50
"""Largest value of `neighbours`; to read more, read the document."""

NEAR_DUPLICATE = 0.8
"""Jaccard similarity of two passages from which on `collapse=True` makes them one."""

_SCORE_RANGES = {"fused": (0.0, 1.0), "cosine": (-1.0, 1.0), "bm25": (0.0, math.inf)}

_FETCH_FACTOR = 4  # fetch_k by default, in units of k, when a later stage chooses among the candidates


def check_count(name: str, value: object) -> int:
    """Return a count of at least 1 as an int.

    Raises:
        InvalidQueryError: it is something else; a boolean is no count.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        noun = "the number of hits wanted, " if name == "k" else ""
        raise InvalidQueryError(f"Cannot search with {name}={short_repr(value)}: it is {noun}a whole number >= 1.")
    return int(value)


def _check_share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= cast("float", value) <= 1:
        raise InvalidQueryError(f"Cannot search with {name}={short_repr(value)}: it is a number from 0 to 1.")
    return float(value)


def _check_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not abs(cast("float", value)) <= sys.float_info.max:
        raise InvalidQueryError(f"Cannot search with {name}={short_repr(value)}: it is a finite number.")
    return float(value)


def _check_score(_name: str, value: object) -> ScoreName:
    for score in get_args(ScoreName):
        if value == score:
            return score  # type: ignore[no-any-return]
    raise InvalidQueryError(f"Unknown score {value!r}: choose one of {', '.join(get_args(ScoreName))}.")


def _check_seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < cast("float", value) <= sys.float_info.max:
        raise InvalidQueryError(f"Cannot search with {name}={short_repr(value)}: it is a number of seconds above 0.")
    return float(value)


def _check_mode(_name: str, value: object) -> SearchMode:
    for mode in get_args(SearchMode):
        if value == mode:
            return mode  # type: ignore[no-any-return]
    raise InvalidQueryError(f"Unknown search mode {value!r}: choose one of {', '.join(get_args(SearchMode))}.")


def _check_collapse(name: str, value: object) -> float | None:
    if value is False:
        return None
    share = NEAR_DUPLICATE if value is True else _check_share(name, value)
    if not share:
        raise InvalidQueryError("Cannot search with collapse=0: everything would be the same; give a share above 0.")
    return share


def _check_neighbours(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not 0 <= int(value) <= MAX_NEIGHBOURS:
        raise InvalidQueryError(
            f"Cannot search with {name}={short_repr(value)}: it is a whole number of chunks from 0 to {MAX_NEIGHBOURS}."
        )
    return int(value)


def _check_rewriter(name: str, value: object) -> LanguageModel | None:
    try:
        return check_llm(value)
    except UsageError as error:
        raise InvalidQueryError(f"{name}: {error}") from error


def _check_vector(_name: str, value: Any) -> Vectors:  # noqa: ANN401
    try:
        vector: Vectors = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidQueryError(f"The vector of the query is no list of numbers: {error}.") from error
    if vector.ndim != 1 or not len(vector) or not math.isfinite(float(vector.sum())):
        raise InvalidQueryError("The vector of the query must be one list of finite numbers.")
    return vector


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of one search option.

    Attributes:
        check: Called with name and value; returns the checked value or raises.
        values: Values it takes, in words.
        default: Default, in words.
        description: What it does, in one sentence.
    """

    check: Callable[[str, Any], Any]
    values: str
    default: str
    description: str


def _ignoring_name(check: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    return lambda _name, value: check(value)


_check_bound = partial(check_time, now=EPOCH)  # bounds relative to the present are resolved in `check_request`


class SearchOptions(TypedDict, total=False):
    """Options of a search, all by keyword; None stands for the default."""

    filter: Annotated[Any, Option(
        _ignoring_name(parse), 'a filter such as {"type": "manual"}', "none",
        "Keeps documents whose metadata match; it narrows what the agent may see and cannot widen it.",
    )]  # fmt: skip
    mode: Annotated[SearchMode, Option(
        _check_mode, '"hybrid", "vector", "keyword"', '"hybrid"', "Indexes that are searched.",
    )]  # fmt: skip
    weights: Annotated[tuple[float, float] | None, Option(
        _ignoring_name(check_weights), "two numbers >= 0, (vector, keyword)", "chosen per query",
        "Share of each index in the fused score of a hybrid search.",
    )]  # fmt: skip
    fusion: Annotated[FusionName, Option(
        _ignoring_name(check_fusion), ", ".join(f'"{rule}"' for rule in get_args(FusionName)), '"adaptive"',
        "Rule that fuses the scores of the two indexes.",
    )]  # fmt: skip
    fetch_k: Annotated[int | None, Option(
        check_count, "a whole number >= 1", "k, or 4 k if a later stage chooses among the candidates",
        "Candidates that `collapse`, `reranker`, `diversity` and `neighbours` choose from; at least k.",
    )]  # fmt: skip
    score: Annotated[ScoreName, Option(
        _check_score, '"fused", "cosine", "bm25"', '"fused"',
        "Score that hits have and `score_threshold` means; the order of the hits stays the same.",
    )]  # fmt: skip
    score_threshold: Annotated[float | None, Option(
        _check_number, "0 to 1, a cosine, or a BM25", "none",
        "Lowest score of a hit; of a fused score also after the reranker.",
    )]  # fmt: skip
    max_per_document: Annotated[int | None, Option(
        check_count, "a whole number >= 1", "no limit", "Most hits of one document.",
    )]  # fmt: skip
    diversity: Annotated[float | None, Option(
        _check_share, "0 to 1", "0",
        "Maximal marginal relevance: 0 takes the best hits, 1 the most different ones.",
    )]  # fmt: skip
    reranker: Annotated[Reranker | None, Option(
        _ignoring_name(check_reranker),
        "a function (query, texts) -> scores, a cross-encoder or its name, a LangChain document compressor", "none",
        "Scores the best `fetch_k` candidates again.",
    )]  # fmt: skip
    rerank_timeout: Annotated[float | None, Option(
        _check_seconds, "seconds > 0", "no limit",
        "Time for the reranker; candidates without a new score by then keep the fused order.",
    )]  # fmt: skip
    collapse: Annotated[bool | float | None, Option(
        _check_collapse, "True, False, or a Jaccard similarity in (0, 1]", "False",
        f"Makes near-duplicates one hit that names the others in `also_in`; True means {NEAR_DUPLICATE}.",
    )]  # fmt: skip
    neighbours: Annotated[int | None, Option(
        _check_neighbours, f"0 to {MAX_NEIGHBOURS}", "0", "Chunks to add on each side of a hit.",
    )]  # fmt: skip
    explain: Annotated[bool, Option(
        lambda _name, value: bool(value), "True or False", "False",
        "Adds a trace that lists dropped candidates with the reason.",
    )]  # fmt: skip
    history: Annotated[Sequence[Any] | None, Option(
        _ignoring_name(read_history), 'strings, (role, text) pairs, {"role", "content"} or messages', "none",
        "Conversation before the question, from which a follow-up question is completed.",
    )]  # fmt: skip
    rewriter: Annotated[LanguageModel | None, Option(
        _check_rewriter, "a function prompt -> text, or a chat model of LangChain or LlamaIndex", "none",
        "Language model that completes a follow-up question; by default it is completed by rules.",
    )]  # fmt: skip
    rewrite_timeout: Annotated[float | None, Option(
        _check_seconds, "seconds > 0", f"{REWRITE_TIMEOUT:g}",
        "Time for the rewriter; after that the question is completed by rules.",
    )]  # fmt: skip
    vector: Annotated[Sequence[float] | None, Option(
        _check_vector, "a list of finite numbers", "embedded by the store's model",
        "Embedding of the query, if the caller has it already.",
    )]  # fmt: skip
    after: Annotated[Any, Option(
        _check_bound,
        'a datetime, a date, ISO text, or an age such as "36h", "7d", a timedelta; without a zone UTC', "none",
        "Keeps documents whose time is this or later; documents without a time are left out.",
    )]  # fmt: skip
    before: Annotated[Any, Option(
        _check_bound, "like `after`", "none", "Keeps documents whose time is earlier than this.",
    )]  # fmt: skip
    recency: Annotated[timedelta | float | str | None, Option(
        check_duration, 'text such as "36h", "7d", a timedelta, or seconds > 0', "none",
        "Half-life of a bonus for recent documents, which reorders hits of nearly equal scores.",
    )]  # fmt: skip
    now: Annotated[Any, Option(
        check_time, "a datetime, a date, or ISO text", "the store's clock",
        "Present time, from which ages and relative bounds are counted.",
    )]  # fmt: skip
    quarantined: Annotated[bool, Option(
        lambda _name, value: value is True, "True or False", "False", "Also searches quarantined documents.",
    )]  # fmt: skip


OPTIONS: Mapping[str, Option] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(SearchOptions, include_extras=True).items()
}
"""Declaration of each search option by name."""


def _words(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # a whole number of more than 4,300 digits
        return short_repr(value)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Checked arguments of a search.

    Attributes:
        query: The question, at most `MAX_QUERY` characters of it.
        scope: Documents the caller may see.
        k: Hits wanted, >= 1.
        condition: `filter`, `after` and `before` as one parsed filter, or None.
        filter_text: The same in words, for people.
        fetch_k: Candidates that later stages choose from, >= k.
        weights: Share of (vector, keyword), adding up to 1; None lets the fusion rule choose.
        now: Present time.
        query_length: Characters of the question as it was asked.

    The other attributes are the options of the same name, see `OPTIONS`.
    """

    query: str
    scope: Scope
    k: int
    fetch_k: int
    mode: SearchMode = "hybrid"
    condition: Filter | None = None
    filter_text: str = ""
    weights: tuple[float, float] | None = None
    fusion: FusionName = "adaptive"
    score: ScoreName = "fused"
    score_threshold: float | None = None
    max_per_document: int | None = None
    diversity: float = 0.0
    reranker: Reranker | None = None
    rerank_timeout: float | None = None
    collapse: float | None = None
    neighbours: int = 0
    explain: bool = False
    history: tuple[HistoryTurn, ...] = ()
    rewriter: LanguageModel | None = None
    rewrite_timeout: float = REWRITE_TIMEOUT
    vector: Vectors | None = None
    recency: timedelta | None = None
    now: datetime = field(default=EPOCH, compare=False)
    quarantined: bool = False
    query_length: int = 0

    @property
    def degraded(self) -> tuple[str, ...]:
        """Note that the question was cut, if it was."""
        if self.query_length <= len(self.query):
            return ()
        return (f"query: only the first {len(self.query):,} of its {self.query_length:,} characters were searched",)

    @property
    def uses_vector_index(self) -> bool:
        """Whether the vector index takes part."""
        return self.mode == "vector" or (self.mode == "hybrid" and (self.weights is None or self.weights[0] > 0))

    @property
    def uses_keyword_index(self) -> bool:
        """Whether the keyword index takes part."""
        return self.mode == "keyword" or (self.mode == "hybrid" and (self.weights is None or self.weights[1] > 0))

    @property
    def needs_postprocessing(self) -> bool:
        """Whether a stage after the ranking chooses among the candidates or extends them."""
        stages = self.collapse is not None or self.reranker is not None
        return stages or self.diversity > 0 or self.neighbours > 0

    @property
    def is_adaptive(self) -> bool:
        """Whether the fusion rule weighs the evidence of both indexes; else scores are the calibrated ones."""
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
    """Check the arguments of a search before any work is done.

    Args:
        query: The question; only its first `MAX_QUERY` characters are searched.
        k: Hits wanted.
        agent_id: Agent on whose behalf to search.
        options: See `SearchOptions`; None stands for the default.
        present: Present time, unless the option `now` is given.

    Raises:
        InvalidQueryError: query, k or an option is invalid, or there is no such option.
        FilterError: the filter cannot be parsed.
        ScopeError: the agent id is invalid.
    """
    if not isinstance(query, str):
        raise InvalidQueryError(f"Cannot search for a {type(query).__name__}: the query must be a string.")
    check_option_names(options, OPTIONS)
    values: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    checked = {name: OPTIONS[name].check(name, value) for name, value in values.items()}
    now = checked.pop("now", None) or present or datetime.now(UTC)
    wanted = check_count("k", k)
    chooses = any(values.get(name) for name in ("reranker", "diversity", "collapse", "neighbours"))
    fetch_k = checked.pop("fetch_k", wanted * (_FETCH_FACTOR if chooses else 1))
    if "weights" not in checked and checked.get("fusion", "adaptive") != "adaptive":
        checked["weights"] = DEFAULT_WEIGHTS
    condition = checked.pop("filter", None)
    if checked.keys() & {"after", "before"}:
        condition = conjoin(condition, time_range_filter(values.get("after"), values.get("before"), now))
    words = "; ".join(f"{name} {_words(values[name])}" for name in ("filter", "after", "before") if name in values)
    for name in ("after", "before"):
        checked.pop(name, None)
    request = SearchRequest(
        query if len(query) <= MAX_QUERY else query.strip()[:MAX_QUERY],
        Scope(check_agent_id(agent_id)),
        wanted,
        max(fetch_k, wanted),
        condition=condition,
        filter_text=words,
        now=now,
        query_length=len(query) if len(query) <= MAX_QUERY else len(query.strip()),
        **checked,
    )
    _check_score_options(request)
    return request


def _check_score_options(request: SearchRequest) -> None:
    """Refuse a score that the search does not compute, and a threshold outside of the range of the score."""
    score, threshold = request.score, request.score_threshold
    computed = {"fused": True, "cosine": request.uses_vector_index, "bm25": request.uses_keyword_index}
    if not computed[score]:
        index = "vector" if score == "cosine" else "keyword"
        raise InvalidQueryError(
            f"Cannot search with score={score!r} without the {index} index: choose another mode or other weights."
        )
    lowest, highest = _SCORE_RANGES[score]
    if threshold is not None and not lowest <= threshold <= highest:
        span = f"from {lowest:g} to {highest:g}" if highest < math.inf else f">= {lowest:g}"
        other = '; to compare it with cosines set score="cosine", with BM25 score="bm25"' if score == "fused" else ""
        raise InvalidQueryError(
            f"Cannot search with score_threshold={threshold:g}: a {score} score is a number {span}{other}."
        )


_COUNT_NAMES = frozenset({
    "top_k", "topk", "top_n", "limit", "n_results", "num_results", "max_results", "n", "size", "count", "number",
    "similarity_top_k", "k",
})  # fmt: skip
"""What libraries call the number of hits."""


def check_option_names(
    options: Mapping[str, Any] | SearchOptions, known: Iterable[str], call: str | None = None, *, count: str = "k"
) -> None:
    """Refuse unknown options: one that is ignored is worse than an error.

    Args:
        options: Options or keyword arguments by name.
        known: Names that are accepted.
        call: What was called, when it is no search: "delete()".
        count: Name of the number of hits, which other libraries call `top_k`, `limit` or `n_results`.

    Raises:
        InvalidQueryError: an unknown search option; the message suggests the closest known one.
        UsageError: an unknown argument of `call`.
    """
    known = list(known)
    unknown = sorted(options.keys() - set(known))
    if not unknown:
        return
    close = difflib.get_close_matches(unknown[0], known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    if (call is None or count in known) and _COUNT_NAMES & set(unknown):
        hint = f" The number of hits is {count!r}."
    agent = " The agent is bound beforehand, with for_agent()." if unknown[0].startswith("agent") else ""
    names = ", ".join(map(repr, unknown))
    if call is not None:
        remedy = f"It takes {', '.join(known)}." if known else "Leave it out."
        raise UsageError(f"{call} has no argument {names}, so nothing was done.{hint}{agent} {remedy}")
    raise InvalidQueryError(f"Unknown search option(s) {names}.{hint}{agent} Known: {', '.join(known)}.")


def reference() -> str:
    """Return the reference of the search options as a Markdown table."""
    rows = [
        f"| `{name}` | {option.values} | {option.default} | {option.description} |" for name, option in OPTIONS.items()
    ]
    return "\n".join(["| option | values | default | |", "|---|---|---|---|", *rows])


SearchOptions.__doc__ = f"{SearchOptions.__doc__}\n\n{reference()}"


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A request after preparation: follow-up questions are completed and the query is embedded.

    Attributes:
        request: The request.
        text: Query to run: the question, completed from the conversation if it is a follow-up.
        added: Words added from the conversation; the keyword index gives them less weight.
        vector: Embedding of the query; None when the vector index takes no part or the model failed.
        background: Mean cosine of unrelated texts under the model, in [-1, 1).
        lowest_background: The same for the two languages that are farthest apart, in [0, 1).
        degraded: "index: reason" of what has failed so far.
    """

    request: SearchRequest
    text: str
    added: str = ""
    vector: Vectors | None = None
    background: float = 0.0
    lowest_background: float = 0.0
    degraded: tuple[str, ...] = ()


if __name__ == "__main__":
    import sys

    sys.stdout.write(reference() + "\n")
