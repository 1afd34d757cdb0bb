"""From the best candidates to the answer: duplicates, second opinion, difference, neighbours, each where asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from langchain_agentrag.search.account import Address, account, address, drop
from langchain_agentrag.search.diversity import marginal_relevance
from langchain_agentrag.search.duplicates import same_groups
from langchain_agentrag.search.explain import Spans, note
from langchain_agentrag.search.neighbours import with_neighbours
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.search.rerank import rerank
from langchain_agentrag.store.partition_cache import unpack_vectors
from langchain_agentrag.store.store import Store
from langchain_agentrag.types import Dropped, Hit, Hits, Source

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Pool:
    """The best candidates of a search.

    Attributes:
        hits: Best first.
        vectors: Address → packed vector, which tells how alike they are.
        troubles: "leg: reason" of what went wrong.
        find: Spans of the matched words in a text.
        dropped: Candidates that are out already; kept only where an account was asked for.
        considered: Candidates that were scored.
    """

    hits: list[Hit]
    vectors: dict[Address, bytes]
    troubles: list[str]
    find: Callable[[str], Spans]
    dropped: list[Dropped] = field(default_factory=list)
    considered: int = 0


def choose(store: Store, request: SearchRequest, pool: Pool) -> Hits:
    """The k hits of an answer."""
    hits, troubles, dropped = pool.hits, list(pool.troubles), list(pool.dropped)
    if request.collapse is not None:
        hits = _collapsed(hits, request.collapse, dropped)
    if request.reranker is not None:
        hits = _reranked(request, hits, troubles, dropped)
    if request.diversity and hits:
        hits = _different(request, hits, pool, dropped)
    if request.neighbours and hits:
        chosen = with_neighbours(store, request.scope, hits, request.k, request.neighbours, pool.find)
    else:
        chosen = hits[: request.k]
    trail = account(request, pool.considered, hits, chosen, dropped) if request.explain else None
    return Hits(
        chosen,
        query=request.query,
        mode=request.mode,
        degraded=tuple(troubles),
        trail=trail,
        searched=request.searched,
    )


def _collapsed(hits: Sequence[Hit], least: float, dropped: list[Dropped]) -> list[Hit]:
    kept = []
    for first, *others in same_groups([hit.text for hit in hits], least):
        hit = hits[first]
        if others:
            hit = replace(hit, also_in=tuple(_source(hits[place]) for place in others))
            note(hit.explanation, f"stands for {len(others)} more of the same text")
            dropped += [drop(hits[place], f"says the same as {hit.reference}") for place in others]
        kept.append(hit)
    return kept


def _reranked(
    request: SearchRequest, hits: list[Hit], troubles: list[str], dropped: list[Dropped]
) -> list[Hit]:
    second = rerank(request.reranker, request.searched, hits, request.rerank_timeout)
    if second.trouble:
        logger.warning("%s; other hits stay in the fused order", second.trouble)
        troubles.append(f"rerank: {second.trouble}")
        if second.hits == hits:
            return second.hits
    before = {address(hit): rank for rank, hit in enumerate(hits, 1)}
    for rank, hit in enumerate(second.hits, 1):
        note(hit.explanation, f"reranked from #{before[address(hit)]} to #{rank}")
    kept = {address(hit) for hit in second.hits}
    dropped += [drop(hit, "left out by the reranker") for hit in hits if address(hit) not in kept]
    # the threshold is one of the scores that are shown, and these are new
    low = [hit for hit in second.hits if hit.score < request.threshold]
    dropped += [drop(hit, f"below the threshold of {request.threshold:g}") for hit in low]
    return [hit for hit in second.hits if hit.score >= request.threshold]


def _different(request: SearchRequest, hits: list[Hit], pool: Pool, dropped: list[Dropped]) -> list[Hit]:
    vectors = unpack_vectors([pool.vectors[address(hit)] for hit in hits])
    # neighbours may make two hits one, so there must be some to follow
    wanted = len(hits) if request.neighbours else request.k
    scores = [hit.score for hit in hits]
    places = marginal_relevance(scores, vectors, wanted, request.diversity, request.background)
    for rank, place in enumerate(places, 1):
        if rank != place + 1:
            note(hits[place].explanation, f"moved from #{place + 1} to #{rank} for diversity")
    taken = set(places)
    dropped += [
        drop(hit, "too much like those before it, for diversity")
        for place, hit in enumerate(hits[: request.k])
        if place not in taken
    ]
    return [hits[place] for place in places]


def _source(hit: Hit) -> Source:
    return Source(hit.doc_id, hit.chunk_id, hit.agent_id, hit.start, hit.end, hit.metadata, hit.locator)
