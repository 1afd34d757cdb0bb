"""What a store may be opened with."""

from __future__ import annotations

import math
from typing import get_args

from langchain_agentrag.errors import UsageError
from langchain_agentrag.store.store import ChromaPolicy


def check_options(
    exact_limit: object,
    chroma: object,
    lock_timeout: object,
    embed_timeout: object,
    query_cache: object = 0,
    result_cache: object = 0.0,
) -> None:
    """Refuse options that make no sense, before a folder is made.

    Raises:
        UsageError: the message names the option, the value and the rule.
    """
    if isinstance(exact_limit, bool) or not isinstance(exact_limit, int) or exact_limit < 0:
        raise UsageError(f"exact_limit={exact_limit!r}: give a number of rows, 0 for always HNSW.")
    if chroma not in get_args(ChromaPolicy):
        raise UsageError(f"chroma={chroma!r}: choose one of {', '.join(get_args(ChromaPolicy))}.")
    if not isinstance(lock_timeout, int | float) or not lock_timeout >= 0:
        raise UsageError(f"lock_timeout={lock_timeout!r}: give seconds, 0 for not waiting at all.")
    if embed_timeout is not None and (not isinstance(embed_timeout, int | float) or not embed_timeout > 0):
        raise UsageError(
            f"embed_timeout={embed_timeout!r}: give seconds above 0, or None to wait for the model."
        )
    if isinstance(query_cache, bool) or not isinstance(query_cache, int) or query_cache < 0:
        raise UsageError(f"query_cache={query_cache!r}: give a number of queries, 0 for none.")
    seconds = isinstance(result_cache, int | float) and not isinstance(result_cache, bool)
    if not seconds or not 0 <= result_cache < math.inf:  # type: ignore[operator]
        raise UsageError(f"result_cache={result_cache!r}: give seconds, 0 for none.")
