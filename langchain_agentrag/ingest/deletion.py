"""What to delete, what to give, and when documents go by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from langchain_agentrag import filters
from langchain_agentrag.errors import UsageError
from langchain_agentrag.filters import Condition, Filter, conjoin
from langchain_agentrag.ingest.documents import as_doc_ids, matching_ids
from langchain_agentrag.ingest.pipeline import Pipeline
from langchain_agentrag.search.options import check_window
from langchain_agentrag.store.store import Store
from langchain_agentrag.times import EXPIRY_KEY
from langchain_agentrag.types import SourceDocument

MANY_EXPIRED = 1_000
"""Expired documents at which a write sweeps them away: before that it costs more than leaving them out of searches."""


def selection(
    now: datetime,
    where: Any,  # noqa: ANN401  (a filter of any make)
    *,
    session: object = None,
    after: object = None,
    before: object = None,
) -> Filter | None:
    """What a filter, a session and a stretch of time ask for together; None when nothing does.

    Raises:
        FilterError: the filter cannot be parsed.
        InvalidQueryError: a bound is no time.
    """
    of_session = None if session is None else Condition("session", "$eq", session)
    return conjoin(
        conjoin(filters.parse(where), of_session), check_window({"after": after, "before": before}, now)
    )


def remove_chosen(
    store: Store,
    pipeline: Pipeline,
    owner: str | None,
    doc_ids: str | Iterable[str] | None,
    condition: Filter | None,
) -> None:
    """Remove an owner's documents: those named, those a condition keeps, or those both agree on."""
    named = as_doc_ids(doc_ids)
    chosen = set(named) if named is not None else None
    for doc_id in named or () if condition is None else matching_ids(store, owner, condition):
        if chosen is None or doc_id in chosen:
            pipeline.remove(owner, doc_id)


def refuse_everything(doc_ids: object, condition: Filter | None) -> None:
    """Refuse to delete when nothing is left out.

    Raises:
        UsageError: neither ids nor a condition that looks at a key, such as {}, or {"$and": []}.
    """
    if doc_ids is None and not filters.keys(condition):
        raise UsageError(
            "delete() needs doc_ids, a session, a time, or a filter that keeps something out: an empty one would "
            "delete everything. To remove all of an agent's documents use forget_agent(agent_id)."
        )


def expiring(documents: Iterable[SourceDocument], when: datetime | None) -> Iterator[SourceDocument]:
    """The documents, those that do not say when they expire with this moment; None leaves them as they are."""
    for document in documents:
        if when is None or document.metadata.get(EXPIRY_KEY) is not None:
            yield document
        else:
            yield replace(document, metadata={**document.metadata, EXPIRY_KEY: when})
