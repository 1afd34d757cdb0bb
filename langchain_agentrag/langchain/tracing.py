"""What a tracer sees of a hybrid search: one child run per leg, with the hits that leg found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from langchain_agentrag.errors import RetrievalError
from langchain_agentrag.types import Hit, Hits

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document

    Show = Callable[[Hit], Document]


def report_legs(run: CallbackManagerForRetrieverRun, hits: Hits, show: Show) -> None:
    """Tell whoever listens what each leg contributed to the hits, in the leg's own order, and which leg failed."""
    if not run.inheritable_handlers:
        return
    for leg, found, failure in _legs(hits):
        child = run.get_child(leg).on_retriever_start({"name": leg}, hits.query, name=f"agentrag {leg} leg")
        if failure:
            child.on_retriever_error(RetrievalError(failure))
        else:
            child.on_retriever_end([show(hit) for hit in found])


async def areport_legs(run: AsyncCallbackManagerForRetrieverRun, hits: Hits, show: Show) -> None:
    """`report_legs` for asynchronous runs."""
    if not run.inheritable_handlers:
        return
    for leg, found, failure in _legs(hits):
        child = await run.get_child(leg).on_retriever_start(
            {"name": leg}, hits.query, name=f"agentrag {leg} leg"
        )
        if failure:
            await child.on_retriever_error(RetrievalError(failure))
        else:
            await child.on_retriever_end([show(hit) for hit in found])


def _legs(hits: Hits) -> list[tuple[str, list[Hit], str]]:
    """(leg, its hits in its order, why it failed or "") for each leg that was asked."""
    legs = []
    for leg in ("vector", "keyword"):
        if hits.mode not in {"hybrid", leg}:
            continue
        ranked = []
        for hit in hits:
            evidence = hit.explanation.vector if leg == "vector" else hit.explanation.keyword
            if evidence is not None and evidence.rank is not None:
                ranked.append((evidence.rank, hit))
        ranked.sort(key=lambda pair: pair[0])
        failure = next((note for note in hits.degraded if note.startswith(f"{leg}: ") and not ranked), "")
        legs.append((leg, [hit for _, hit in ranked], failure))
    return legs
