"""Choosing among ranked candidates: at most so many per document, and different ones rather than repetitions."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from langchain_agentrag.scope import Scope
from langchain_agentrag.search.explain import LateExplanation, Spans, note
from langchain_agentrag.search.fusion import calibrate_cosine
from langchain_agentrag.search.hits import Address, address, build_trace, dropped_hit
from langchain_agentrag.search.options import NEAR_DUPLICATE, SearchRequest
from langchain_agentrag.search.rerank import rerank
from langchain_agentrag.store.partition_cache import unit_vectors, unpack_vectors
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.queries import chunk_spans, document_text, find_document
from langchain_agentrag.store.store import Store
from langchain_agentrag.types import Dropped, DuplicateSource, Hit, Hits

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

logger = logging.getLogger(__name__)


def maximal_marginal_relevance(
    scores: Sequence[float], vectors: Vectors, k: int, diversity: float, background: float = 0.0
) -> list[int]:
    """Positions of k candidates by maximal marginal relevance, in the order they were chosen.

    Each step takes the candidate with the largest (1 - d) * score - d * (similarity to the nearest one chosen).
    Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking", SIGIR 1998. Similarity is the cosine on the
    scale of the scores (`fusion.calibrate_cosine`), so that d means the same for every embedding model. Of equals the
    first is taken, and with d = 0 the order stays as it is.

    Args:
        scores: Relevance in [0, 1], best first.
        vectors: One row per candidate, any length.
        k: Candidates to choose.
        diversity: d, in [0, 1].
        background: Mean cosine of unrelated texts under the model.
    """
    if diversity == 0 or not len(scores):
        return list(range(min(k, len(scores))))
    unit = unit_vectors(vectors)
    relevance = np.asarray(scores, dtype=np.float64)
    nearest = np.zeros(len(scores))
    open_places = np.ones(len(scores), dtype=np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(k, len(scores)):
        gain = (1 - diversity) * relevance - diversity * nearest
        place = int(np.argmax(np.where(open_places, gain, -np.inf)))
        chosen.append(place)
        open_places[place] = False
        alike = [calibrate_cosine(float(cosine), background) for cosine in unit @ unit[place]]
        nearest = np.maximum(nearest, alike)
    return chosen


_SHINGLE = 4  # characters; words of Chinese have two, so a changed word changes few of them
_PIECES = re.compile(r"\w", re.UNICODE)
_NUMBERS = re.compile(r"\d+")
_DENIALS = re.compile(
    r"\b(?:no|not|never|none|neither|nor|without|cannot|except|unless)\b|n['’]t\b|[不没沒未无無非否勿莫禁]",
    re.IGNORECASE,
)


def group_near_duplicates(texts: Sequence[str], least: float = NEAR_DUPLICATE) -> list[list[int]]:
    """Positions of texts in groups of near-duplicates; each group begins with its first, and so do the groups.

    Two texts are alike when the Jaccard resemblance of their sets of character shingles is at least `least`: Broder,
    "On the Resemblance and Containment of Documents", 1997. White space, punctuation, case and width do not count.
    Texts with different numbers, or one with a denial more than the other, say different things however alike they
    look.
    A text joins the group whose first member it resembles, so that no chain of small changes leads far away.

    Args:
        texts: Passages, best first.
        least: In (0, 1]; 1 takes only those that differ in nothing that counts.
    """
    groups: list[list[int]] = []
    firsts: list[tuple[frozenset[str], object]] = []
    for place, text in enumerate(texts):
        folded = unicodedata.normalize("NFKC", text).casefold()
        shingles, facts = _shingles(folded), _facts(folded)
        for group, (known, known_facts) in zip(groups, firsts, strict=True):
            if facts == known_facts and jaccard(shingles, known) >= least:
                group.append(place)
                break
        else:
            groups.append([place])
            firsts.append((shingles, facts))
    return groups


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard resemblance of two sets, in [0, 1]; two empty ones are the same."""
    if not one and not other:
        return 1.0
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def _shingles(text: str) -> frozenset[str]:
    letters = "".join(_PIECES.findall(text))
    return frozenset(
        letters[start : start + _SHINGLE] for start in range(max(1, len(letters) - _SHINGLE + 1))
    )


def _facts(text: str) -> object:
    """What must be equal: the numbers, and how often something is denied."""
    return Counter(_NUMBERS.findall(text)), len(_DENIALS.findall(text))


_Spans = Sequence[tuple[int, int, str]]


class _Block:
    """A hit and the chunks it has grown to."""

    def __init__(self, hit: Hit, text: str, spans: _Spans, first: int, last: int) -> None:
        self.hit, self.text, self.spans, self.first, self.last = hit, text, spans, first, last
        self.taken: list[int] = []


def expand_neighbours(
    store: Store, scope: Scope, hits: Sequence[Hit], k: int, reach: int, find: Callable[[str], Spans]
) -> list[Hit]:
    """The first k passages of the hits with `reach` chunks on each side, best first.

    Passages that share a chunk become one, in the place of the better one, so that no chunk comes twice; the text
    is exactly `document.text[start:end]`. A hit whose document was changed meanwhile stays as it is.

    Args:
        store: The store.
        scope: What the caller may see.
        hits: Candidates, best first; those behind the k-th passage fill up what merging leaves open.
        k: Passages wanted.
        reach: Chunks to add on each side, >= 1.
        find: Spans of the matched words in a text.
    """
    blocks: list[_Block | Hit] = []
    documents: dict[tuple[str | None, str], tuple[str, _Spans] | None] = {}
    with store.catalog.snapshot() as connection:
        for hit in hits:
            if len(blocks) >= k:
                break
            address = hit.agent_id, hit.doc_id
            if address not in documents:
                documents[address] = _read(connection, scope, hit, store.now())
            known = documents[address]
            if known is None or not _unchanged(hit, *known):
                blocks.append(hit)
                continue
            text, spans = known
            first, last = max(0, hit.chunk_id - reach), min(len(spans) - 1, hit.chunk_id + reach)
            same = next((block for block in blocks if _is_part(block, hit, first, last)), None)
            if isinstance(same, _Block):
                same.first, same.last = min(first, same.first), max(last, same.last)
                same.taken.append(hit.chunk_id)
            else:
                blocks.append(_Block(hit, text, spans, first, last))
    return [block if isinstance(block, Hit) else _grown(block, find) for block in _joined(blocks)]


def _is_part(block: _Block | Hit, hit: Hit, first: int, last: int) -> bool:
    if isinstance(block, Hit) or (block.hit.agent_id, block.hit.doc_id) != (hit.agent_id, hit.doc_id):
        return False
    return first <= block.last and last >= block.first


def _joined(blocks: Sequence[_Block | Hit]) -> list[_Block | Hit]:
    """The blocks without two that share a chunk, which one that grew later may have caused."""
    kept: list[_Block | Hit] = []
    for block in blocks:
        same = next(
            (
                one
                for one in kept
                if isinstance(block, _Block) and _is_part(one, block.hit, block.first, block.last)
            ),
            None,
        )
        if isinstance(same, _Block) and isinstance(block, _Block):
            same.first, same.last = min(same.first, block.first), max(same.last, block.last)
            same.taken += [block.hit.chunk_id, *block.taken]
        else:
            kept.append(block)
    return kept if len(kept) == len(blocks) else _joined(kept)


def _grown(block: _Block, find: Callable[[str], Spans]) -> Hit:
    hit = block.hit
    if (block.first, block.last) == (hit.chunk_id, hit.chunk_id):
        return hit
    start, end = block.spans[block.first][0], block.spans[block.last][1]
    text = block.text[start:end]
    why = hit.explanation
    if isinstance(why, LateExplanation):
        why = why.over(text, find)
    told = f"chunks {block.first} to {block.last} read with it"
    if block.taken:
        told += f", hits {', '.join(map(str, sorted(block.taken)))} among them"
    note(why, told)
    return replace(
        hit,
        text=text,
        start=start,
        end=end,
        explanation=why,
        covers=(block.first, block.last),
        whole=hit.whole or text == block.text,
    )


def _read(connection: sqlite3.Connection, scope: Scope, hit: Hit, now: datetime) -> tuple[str, _Spans] | None:
    known = find_document(connection, hit.agent_id, hit.doc_id, now) if scope.admits(hit.agent_id) else None
    if known is None:
        return None
    return document_text(connection, known.key)[0], chunk_spans(connection, known.key)


def _unchanged(hit: Hit, text: str, spans: _Spans) -> bool:
    return (
        hit.chunk_id < len(spans)
        and spans[hit.chunk_id][:2] == (hit.start, hit.end)
        and text[hit.start : hit.end] == hit.text
    )


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


def postprocess(store: Store, request: SearchRequest, pool: Pool) -> Hits:
    """The k hits of an answer."""
    hits, troubles, dropped = pool.hits, list(pool.troubles), list(pool.dropped)
    if request.collapse is not None:
        hits = _collapsed(hits, request.collapse, dropped)
    if request.reranker is not None:
        hits = _reranked(request, hits, troubles, dropped)
    if request.diversity and hits:
        hits = _different(request, hits, pool, dropped)
    if request.neighbours and hits:
        chosen = expand_neighbours(store, request.scope, hits, request.k, request.neighbours, pool.find)
    else:
        chosen = hits[: request.k]
    trail = build_trace(request, pool.considered, hits, chosen, dropped) if request.explain else None
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
    for first, *others in group_near_duplicates([hit.text for hit in hits], least):
        hit = hits[first]
        if others:
            hit = replace(hit, also_in=tuple(_source(hits[place]) for place in others))
            note(hit.explanation, f"stands for {len(others)} more of the same text")
            dropped += [dropped_hit(hits[place], f"says the same as {hit.reference}") for place in others]
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
    dropped += [dropped_hit(hit, "left out by the reranker") for hit in hits if address(hit) not in kept]
    # the threshold is one of the scores that are shown, and these are new
    low = [hit for hit in second.hits if hit.score < request.score_threshold]
    dropped += [dropped_hit(hit, f"below the threshold of {request.score_threshold:g}") for hit in low]
    return [hit for hit in second.hits if hit.score >= request.score_threshold]


def _different(request: SearchRequest, hits: list[Hit], pool: Pool, dropped: list[Dropped]) -> list[Hit]:
    vectors = unpack_vectors([pool.vectors[address(hit)] for hit in hits])
    # neighbours may make two hits one, so there must be some to follow
    wanted = len(hits) if request.neighbours else request.k
    scores = [hit.score for hit in hits]
    places = maximal_marginal_relevance(scores, vectors, wanted, request.diversity, request.background)
    for rank, place in enumerate(places, 1):
        if rank != place + 1:
            note(hits[place].explanation, f"moved from #{place + 1} to #{rank} for diversity")
    taken = set(places)
    dropped += [
        dropped_hit(hit, "too much like those before it, for diversity")
        for place, hit in enumerate(hits[: request.k])
        if place not in taken
    ]
    return [hits[place] for place in places]


def _source(hit: Hit) -> DuplicateSource:
    return DuplicateSource(
        hit.doc_id, hit.chunk_id, hit.agent_id, hit.start, hit.end, hit.metadata, hit.locator
    )
