"""Stages after the ranking: near-duplicates, reranking, diversity, neighbours. Each runs only when asked for."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from langchain_agentrag.normalization import normalize
from langchain_agentrag.scope import Scope
from langchain_agentrag.search.fusion import calibrate_cosine
from langchain_agentrag.search.hits import RankedHits, address
from langchain_agentrag.search.options import NEAR_DUPLICATE
from langchain_agentrag.search.rerank import rerank
from langchain_agentrag.store.columnar_cache import unit_vectors, unpack_vectors
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.queries import chunk_spans, document_text, find_document
from langchain_agentrag.store.store import Store
from langchain_agentrag.types import DuplicateSource, Hit

if TYPE_CHECKING:
    import sqlite3
    from datetime import datetime

logger = logging.getLogger(__name__)


def postprocess(store: Store, ranked: RankedHits) -> tuple[list[Hit], list[Hit]]:
    """Run the stages that the request asks for; return the hits of the last stage and the first k of them."""
    request, hits = ranked.query.request, ranked.hits
    if request.collapse is not None:
        hits = _collapse(ranked, hits, request.collapse)
    if request.reranker is not None:
        hits = _rerank(ranked, hits)
    if request.diversity and hits:
        hits = _diversify(ranked, hits)
    if not request.neighbours:
        return hits, hits[: request.k]
    expanded = expand_neighbours(store, request.scope, hits, request.k, request.neighbours, note=ranked.note)
    return hits, expanded


def _collapse(ranked: RankedHits, hits: Sequence[Hit], threshold: float) -> list[Hit]:
    kept = []
    for first, *others in group_near_duplicates([hit.text for hit in hits], threshold):
        hit = hits[first]
        if others:
            hit = replace(hit, also_in=tuple(_duplicate(hits[place]) for place in others))
            ranked.note(hit, f"stands for {len(others)} more of the same text")
            for place in others:
                ranked.drop(hits[place], f"near-duplicate of {hit.reference}")
        kept.append(hit)
    return kept


def _duplicate(hit: Hit) -> DuplicateSource:
    return DuplicateSource(hit.doc_id, hit.chunk_id, hit.agent_id, hit.start, hit.end, hit.metadata, hit.locator)


def _rerank(ranked: RankedHits, hits: list[Hit]) -> list[Hit]:
    request = ranked.query.request
    result = rerank(request.reranker, ranked.query.text, hits, request.rerank_timeout)
    if result.warning:
        logger.warning("%s; other hits stay in the fused order", result.warning)
        ranked.degraded.append(f"rerank: {result.warning}")
        if result.hits == hits:
            return result.hits
    rank_before = {address(hit): rank for rank, hit in enumerate(hits, 1)}
    for rank, hit in enumerate(result.hits, 1):
        ranked.note(hit, f"reranked from #{rank_before[address(hit)]} to #{rank}")
    kept = {address(hit) for hit in result.hits}
    for hit in hits:
        if address(hit) not in kept:
            ranked.drop(hit, "left out by the reranker")
    threshold = request.score_threshold
    if request.score != "fused" or threshold is None:
        return result.hits
    # the threshold applies to the scores that are returned, and these are new
    for hit in result.hits:
        if hit.score < threshold:
            ranked.drop(hit, f"below the threshold of {threshold:g}")
    return [hit for hit in result.hits if hit.score >= threshold]


def _diversify(ranked: RankedHits, hits: list[Hit]) -> list[Hit]:
    request = ranked.query.request
    vectors = unpack_vectors([ranked.vector(hit) for hit in hits])
    # neighbours may merge hits, so all of them stay in the list
    wanted = len(hits) if request.neighbours else request.k
    scores = [hit.score for hit in hits]
    places = maximal_marginal_relevance(scores, vectors, wanted, request.diversity, ranked.query.background)
    for rank, place in enumerate(places, 1):
        if rank != place + 1:
            ranked.note(hits[place], f"moved from #{place + 1} to #{rank} for diversity")
    taken = set(places)
    for place, hit in enumerate(hits[: request.k]):
        if place not in taken:
            ranked.drop(hit, "too similar to better hits, for diversity")
    return [hits[place] for place in places]


def maximal_marginal_relevance(
    scores: Sequence[float], vectors: Vectors, k: int, diversity: float, background: float = 0.0
) -> list[int]:
    """Return the positions of k candidates chosen by maximal marginal relevance (MMR), in that order.

    Each step takes the candidate with the largest (1 - d) * score - d * (similarity to the nearest chosen one).
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
    free = np.ones(len(scores), dtype=np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(k, len(scores)):
        gain = (1 - diversity) * relevance - diversity * nearest
        place = int(np.argmax(np.where(free, gain, -np.inf)))
        chosen.append(place)
        free[place] = False
        similarity = [calibrate_cosine(float(cosine), background) for cosine in unit @ unit[place]]
        nearest = np.maximum(nearest, similarity)
    return chosen


# -- near-duplicates ------------------------------------------------------------------------------------------------

_SHINGLE = 4  # characters; words of Chinese have two, so a changed word changes few of them
_PIECES = re.compile(r"\w", re.UNICODE)
_NUMBERS = re.compile(r"\d+")
_NEGATIONS = re.compile(
    r"\b(?:no|not|never|none|neither|nor|without|cannot|except|unless)\b|n['’]t\b|[不没沒未无無非否勿莫禁]",
    re.IGNORECASE,
)


def group_near_duplicates(texts: Sequence[str], threshold: float = NEAR_DUPLICATE) -> list[list[int]]:
    """Group near-duplicates: return lists of positions, each list and the groups in the order of the texts.

    Two texts are near-duplicates when the Jaccard similarity of their character shingles is at least `threshold`:
    Broder, "On the Resemblance and Containment of Documents", 1997. White space, punctuation, case and width are
    ignored. Texts with different numbers or a different number of negations are never near-duplicates. A text is
    compared with the first member of a group only, so that no chain of small changes leads far away.

    Args:
        texts: Passages, best first.
        threshold: In (0, 1]; 1 groups only texts that differ in nothing that counts.
    """
    groups: list[list[int]] = []
    firsts: list[tuple[frozenset[str], object]] = []
    for place, text in enumerate(texts):
        folded = normalize("NFKC", text).casefold()
        shingles, facts = _shingles(folded), _facts(folded)
        for group, (known, known_facts) in zip(groups, firsts, strict=True):
            if facts == known_facts and jaccard(shingles, known) >= threshold:
                group.append(place)
                break
        else:
            groups.append([place])
            firsts.append((shingles, facts))
    return groups


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets, in [0, 1]; 1 for two empty sets."""
    if not one and not other:
        return 1.0
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def _shingles(text: str) -> frozenset[str]:
    letters = "".join(_PIECES.findall(text))
    return frozenset(letters[start : start + _SHINGLE] for start in range(max(1, len(letters) - _SHINGLE + 1)))


def _facts(text: str) -> object:
    """Numbers and count of negations, which must be equal in near-duplicates."""
    return Counter(_NUMBERS.findall(text)), len(_NEGATIONS.findall(text))


_Spans = Sequence[tuple[int, int, str]]


# -- neighbours -----------------------------------------------------------------------------------------------------

_ChunkSpans = Sequence[tuple[int, int, str]]


@dataclass(slots=True)
class _Passage:
    """A hit grown by the chunks around it.

    Attributes:
        hit: The hit.
        text: Text of its document; None when the hit stays as it is because the document has changed.
        spans: (start, stop, locator) of the document's chunks.
        first: First chunk of the passage.
        last: Last chunk of the passage.
        merged: Chunks of other hits that became part of it.
    """

    hit: Hit
    text: str | None
    spans: _ChunkSpans
    first: int
    last: int
    merged: list[int] = field(default_factory=list)

    def overlaps(self, other: _Passage) -> bool:
        """Whether both share a chunk of one document."""
        same = (self.hit.agent_id, self.hit.doc_id) == (other.hit.agent_id, other.hit.doc_id)
        return (
            same
            and self.text is not None
            and other.text is not None
            and (other.first <= self.last and other.last >= self.first)
        )

    def merge(self, other: _Passage) -> None:
        """Take in another passage."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.merged += [other.hit.chunk_id, *other.merged]


def expand_neighbours(
    store: Store, scope: Scope, hits: Sequence[Hit], k: int, reach: int, note: Callable[[Hit, str], None]
) -> list[Hit]:
    """Return the first k hits with `reach` chunks on each side, best first.

    Passages that share a chunk become one, at the rank of the better one, so that no chunk is returned twice; the text
    is exactly `document.text[start:end]`. A hit whose document has changed since stays as it is.

    Args:
        store: The store.
        scope: Documents the caller may see.
        hits: Candidates, best first; those behind the k-th passage fill up what merging leaves open.
        k: Passages wanted.
        reach: Chunks to add on each side, >= 1.
        note: Adds a step to the explanation of a hit.
    """
    passages: list[_Passage] = []
    documents: dict[tuple[str | None, str], tuple[str, _ChunkSpans] | None] = {}
    with store.catalog.snapshot() as connection:
        for hit in hits:
            if len(passages) >= k:
                break
            key = hit.agent_id, hit.doc_id
            if key not in documents:
                documents[key] = _read_document(connection, scope, hit, store.now())
            passage = _passage(hit, documents[key], reach)
            same = next((one for one in passages if one.overlaps(passage)), None)
            if same is None:
                passages.append(passage)
            else:
                same.merge(passage)
    return [_expanded(passage, note) for passage in _without_overlaps(passages)]


def _passage(hit: Hit, document: tuple[str, _ChunkSpans] | None, reach: int) -> _Passage:
    if document is None or not _is_unchanged(hit, *document):
        return _Passage(hit, None, (), hit.chunk_id, hit.chunk_id)
    text, spans = document
    first, last = max(0, hit.chunk_id - reach), min(len(spans) - 1, hit.chunk_id + reach)
    return _Passage(hit, text, spans, first, last)


def _without_overlaps(passages: Sequence[_Passage]) -> list[_Passage]:
    """Merge passages that overlap because one of them grew later."""
    kept: list[_Passage] = []
    for passage in passages:
        same = next((one for one in kept if one.overlaps(passage)), None)
        if same is None:
            kept.append(passage)
        else:
            same.merge(passage)
    return kept if len(kept) == len(passages) else _without_overlaps(kept)


def _expanded(passage: _Passage, note: Callable[[Hit, str], None]) -> Hit:
    hit = passage.hit
    if passage.text is None or (passage.first, passage.last) == (hit.chunk_id, hit.chunk_id):
        return hit
    start, end = passage.spans[passage.first][0], passage.spans[passage.last][1]
    text = passage.text[start:end]
    merged = f", hits {', '.join(map(str, sorted(passage.merged)))} among them" if passage.merged else ""
    note(hit, f"chunks {passage.first} to {passage.last} read with it{merged}")
    return replace(
        hit,
        text=text,
        start=start,
        end=end,
        covers=(passage.first, passage.last),
        whole=hit.whole or text == passage.text,
    )


def _read_document(
    connection: sqlite3.Connection, scope: Scope, hit: Hit, now: datetime
) -> tuple[str, _ChunkSpans] | None:
    document = find_document(connection, hit.agent_id, hit.doc_id, now) if scope.admits(hit.agent_id) else None
    if document is None:
        return None
    return document_text(connection, document.key)[0], chunk_spans(connection, document.key)


def _is_unchanged(hit: Hit, text: str, spans: _ChunkSpans) -> bool:
    return (
        hit.chunk_id < len(spans)
        and spans[hit.chunk_id][:2] == (hit.start, hit.end)
        and text[hit.start : hit.end] == hit.text
    )
