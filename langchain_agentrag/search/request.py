"""What a search was asked, checked: the only way from a caller's arguments to the searcher."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from numbers import Integral
from typing import Any, cast, get_args

from langchain_agentrag import filters
from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.filters import Filter
from langchain_agentrag.fusion import FusionName, check_fusion, check_weights
from langchain_agentrag.index.protocol import Vectors
from langchain_agentrag.records import SearchMode
from langchain_agentrag.scope import Scope, check_agent_id

DEFAULT_WEIGHTS = (0.5, 0.5)
"""Share of (vector, keyword) in a hybrid search."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A search whose arguments have been checked.

    Attributes:
        query: The question as asked.
        scope: What the caller may see.
        k: Hits wanted, >= 1.
        mode: Legs asked for.
        condition: Parsed filter, or None.
        weights: Share of (vector, keyword), adding up to 1.
        fusion: Fusion rule.
        vector: The embedded query, or None when the vector leg takes no part or failed.
        background: Mean cosine of unrelated texts under the model, in [-1, 1).
        troubles: "leg: reason" of what has already gone wrong.
    """

    query: str
    scope: Scope
    k: int
    mode: SearchMode
    condition: Filter | None
    weights: tuple[float, float]
    fusion: FusionName
    vector: Vectors | None = None
    background: float = 0.0
    troubles: tuple[str, ...] = ()

    @property
    def asks_vectors(self) -> bool:
        """Whether the vector leg takes part."""
        return self.mode == "vector" or (self.mode == "hybrid" and self.weights[0] > 0)

    @property
    def asks_keywords(self) -> bool:
        """Whether the keyword leg takes part."""
        return self.mode == "keyword" or (self.mode == "hybrid" and self.weights[1] > 0)

    @property
    def is_blank(self) -> bool:
        """Whether there is nothing to search for: only space, control characters and punctuation."""
        return all(unicodedata.category(char)[0] in "ZCP" for char in self.query)


def check_request(
    query: object,
    k: object,
    *,
    agent_id: object,
    filter: Any,  # noqa: A002, ANN401  (LangChain's name)
    mode: object,
    weights: object,
    fusion: object,
) -> SearchRequest:
    """The request, or a clear error before any work is done.

    Raises:
        InvalidQueryError: query, k, mode, weights or fusion make no sense.
        FilterError: the filter cannot be parsed.
        ScopeError: the agent id is invalid.
    """
    if not isinstance(query, str):
        raise InvalidQueryError(f"Cannot search for a {type(query).__name__}: the query must be a string.")
    if isinstance(k, bool) or not isinstance(k, Integral) or int(k) < 1:
        raise InvalidQueryError(
            f"Cannot search with k={k!r}: k is the number of hits wanted, a whole number >= 1."
        )
    if mode not in get_args(SearchMode):
        raise InvalidQueryError(
            f"Unknown search mode {mode!r}: choose one of {', '.join(get_args(SearchMode))}."
        )
    return SearchRequest(
        query=query,
        scope=Scope(check_agent_id(agent_id)),
        k=int(k),
        mode=cast("SearchMode", mode),
        condition=filters.parse(filter),
        weights=check_weights(DEFAULT_WEIGHTS if weights is None else weights),
        fusion=check_fusion(fusion),
    )
