"""Failure analysis: questions without their expected source among the first k, with the cause of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from langchain_agentrag.evaluation.relevance import JudgedQuestion
from langchain_agentrag.evaluation.runner import DEPTH, Evaluation, search
from langchain_agentrag.search.options import SearchOptions
from langchain_agentrag.types import Hit, Hits

if TYPE_CHECKING:
    from langchain_agentrag.indexer import DualIndexer

INDEX_DEPTH = 100
"""Hits of each index that are searched for a missed source."""

Cause = Literal["missing", "unseen", "keyword_only", "vector_only", "outranked"]
"""Why a source was missed: not in the store; in neither index's first hundred; in one index's only; in both, but other
passages ranked higher."""

_EXCERPT = 160  # characters

_ChunkKey = tuple[str | None, str, int]  # agent, document, chunk


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """A passage and its rank in each index.

    Attributes:
        doc_id: Its document.
        chunk_id: Ordinal of the chunk.
        excerpt: Its beginning.
        vector: Rank in the vector index, or None beyond the first hundred.
        keyword: Rank in the keyword index, or None.
        matched: Words of the question that it holds, as written there.
    """

    doc_id: str
    chunk_id: int
    excerpt: str
    vector: int | None
    keyword: int | None
    matched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A question whose expected source is not among the first k.

    Attributes:
        question: Its id.
        text: The question.
        agent_id: Agent on whose behalf it was asked.
        rank: Rank of the first expected source under the main setting, or None.
        cause: Why it was missed.
        expected: The expected passage that ranks best in either index, or None when neither has one.
        wanted: Expected sources as named by the collection.
        instead: The first hit.
    """

    question: str
    text: str
    agent_id: str | None
    rank: int | None
    cause: Cause
    expected: RankedPassage | None
    wanted: tuple[str, ...]
    instead: RankedPassage | None


def failures(indexer: DualIndexer, evaluation: Evaluation, *, k: int = 10, most: int = 50) -> list[Failure]:
    """Return the questions whose expected source is not among the first k under the main setting, worst first.

    Args:
        indexer: The store that was searched.
        evaluation: The evaluation.
        k: Ranks that count as success.
        most: Most failures to return.
    """
    ranks = evaluation.runs[evaluation.main].ranks
    failed = [question for question in evaluation.judged if (ranks[question.question.id] or k + 1) > k]
    failed.sort(key=lambda question: -(ranks[question.question.id] or 10**6))  # stable: else in file order
    options = evaluation.settings[evaluation.main]
    return [_analyze(indexer, question, ranks[question.question.id], options) for question in failed[:most]]


def _analyze(indexer: DualIndexer, judged: JudgedQuestion, rank: int | None, options: SearchOptions) -> Failure:
    question = judged.question
    vector = indexer.embedder.embed_query(question.text)
    vector_hits = search(indexer, question, SearchOptions(mode="vector"), vector, INDEX_DEPTH)
    keyword_hits = search(indexer, question, SearchOptions(mode="keyword"), None, INDEX_DEPTH)
    main_hits = search(indexer, question, options, vector, DEPTH)
    vector_ranks, keyword_ranks = _ranks(vector_hits), _ranks(keyword_hits)
    matched = {_chunk_key(hit): hit.explanation.matched for hit in keyword_hits}

    def ranked(hit: Hit) -> RankedPassage:
        key, excerpt = _chunk_key(hit), " ".join(hit.text.split())
        excerpt = excerpt if len(excerpt) <= _EXCERPT else excerpt[: _EXCERPT - 1] + "…"
        return RankedPassage(
            hit.doc_id,
            hit.chunk_id,
            excerpt,
            vector_ranks.get(key),
            keyword_ranks.get(key),
            matched.get(key, hit.explanation.matched),
        )

    def best_rank(hit: Hit) -> int:
        return min(ranks.get(_chunk_key(hit), INDEX_DEPTH + 1) for ranks in (vector_ranks, keyword_ranks))

    hits = {_chunk_key(hit): hit for hit in (*vector_hits, *keyword_hits, *main_hits)}
    closest = min(filter(judged.is_expected, hits.values()), key=best_rank, default=None)
    expected = None if closest is None else ranked(closest)
    return Failure(
        question=question.id,
        text=question.text,
        agent_id=question.agent_id,
        rank=rank,
        cause=_cause(judged, expected),
        expected=expected,
        wanted=tuple(source.value for source in judged.sources),
        instead=ranked(main_hits[0]) if main_hits else None,
    )


def _cause(judged: JudgedQuestion, expected: RankedPassage | None) -> Cause:
    if len(judged.missing) == len(judged.sources):
        return "missing"
    if expected is None or (expected.vector is None and expected.keyword is None):
        return "unseen"
    if expected.vector is None:
        return "keyword_only"
    return "vector_only" if expected.keyword is None else "outranked"


def _ranks(hits: Hits) -> dict[_ChunkKey, int]:
    return {_chunk_key(hit): rank for rank, hit in enumerate(hits, 1)}


def _chunk_key(hit: Hit) -> _ChunkKey:
    return hit.agent_id, hit.doc_id, hit.chunk_id
