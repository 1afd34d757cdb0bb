"""Questions that were not answered, each with what became of the source that would have answered it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from langchain_agentrag.evaluation.collection import Judged
from langchain_agentrag.evaluation.runner import DEPTH, Evaluation, search
from langchain_agentrag.search.options import SearchOptions
from langchain_agentrag.types import Hit, Hits

if TYPE_CHECKING:
    from langchain_agentrag.indexer import DualIndexer

LOOKED = 100
"""How deep each leg is looked into for a source that was missed."""

Cause = Literal["missing", "unseen", "keyword_only", "vector_only", "outranked"]
"""Why: not in the store; in neither leg's first hundred; in one leg's only; in both, yet others came first."""

_EXCERPT = 160


@dataclass(frozen=True, slots=True)
class Found:
    """A passage and where each leg has it.

    Attributes:
        doc_id: Its document.
        chunk_id: Ordinal of the chunk.
        excerpt: Its beginning.
        vector: Place in the vector leg, or None beyond the first hundred.
        keyword: Place in the keyword leg, or None.
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
        agent_id: On whose behalf it was asked.
        rank: Place of the first expected source under the main setting, or None.
        cause: Why it was missed.
        expected: The expected passage that came closest, or None when there is none to be seen.
        wanted: What was expected, as named by the collection.
        instead: What stands first.
    """

    question: str
    text: str
    agent_id: str | None
    rank: int | None
    cause: Cause
    expected: Found | None
    wanted: tuple[str, ...]
    instead: Found | None


def failures(indexer: DualIndexer, evaluation: Evaluation, *, k: int = 10, most: int = 50) -> list[Failure]:
    """Questions whose expected source is not among the first k under the main setting, worst first.

    Args:
        indexer: The store that was searched.
        evaluation: What was measured.
        k: Places that count as found.
        most: Failures to look into; the others are only counted.
    """
    run = evaluation.runs[evaluation.main]
    missed = [one for one in evaluation.judged if (run.ranks[one.question.id] or k + 1) > k]
    missed.sort(
        key=lambda one: -(run.ranks[one.question.id] or 10**6)
    )  # stable: else in the order of the file
    return [
        _failure(indexer, one, run.ranks[one.question.id], evaluation.settings[evaluation.main])
        for one in missed[:most]
    ]


def _failure(indexer: DualIndexer, judged: Judged, rank: int | None, options: SearchOptions) -> Failure:
    question = judged.question
    vector = indexer.embedder.embed_query(question.text)
    near = search(indexer, question, SearchOptions(mode="vector"), vector, LOOKED)
    worded = search(indexer, question, SearchOptions(mode="keyword"), None, LOOKED)
    both = search(indexer, question, options, vector, DEPTH)
    places = _places(near), _places(worded)
    shown = {(hit.agent_id, hit.doc_id, hit.chunk_id): hit for hit in (*near, *worded, *both)}
    candidates = [hit for hit in shown.values() if judged.is_expected(hit)]
    closest = min(candidates, key=lambda hit: _best_place(hit, places), default=None)
    expected = None if closest is None else _found(closest, places, worded)
    return Failure(
        question=question.id,
        text=question.text,
        agent_id=question.agent_id,
        rank=rank,
        cause=_cause(judged, expected),
        expected=expected,
        wanted=tuple(source.value for source in judged.sources),
        instead=_found(both[0], places, worded) if both else None,
    )


def _cause(judged: Judged, expected: Found | None) -> Cause:
    if len(judged.missing) == len(judged.sources):
        return "missing"
    if expected is None or (expected.vector is None and expected.keyword is None):
        return "unseen"
    if expected.vector is None:
        return "keyword_only"
    return "vector_only" if expected.keyword is None else "outranked"


def _places(hits: Hits) -> dict[tuple[str | None, str, int], int]:
    return {(hit.agent_id, hit.doc_id, hit.chunk_id): place for place, hit in enumerate(hits, 1)}


def _best_place(hit: Hit, places: tuple[dict[tuple[str | None, str, int], int], ...]) -> int:
    address = hit.agent_id, hit.doc_id, hit.chunk_id
    return min(leg.get(address, LOOKED + 1) for leg in places)


def _found(hit: Hit, places: tuple[dict[tuple[str | None, str, int], int], ...], worded: Hits) -> Found:
    address = hit.agent_id, hit.doc_id, hit.chunk_id
    same = (one for one in worded if (one.agent_id, one.doc_id, one.chunk_id) == address)
    matched = next(same, hit).explanation.matched
    excerpt = " ".join(hit.text.split())
    return Found(
        hit.doc_id,
        hit.chunk_id,
        excerpt if len(excerpt) <= _EXCERPT else excerpt[: _EXCERPT - 1] + "…",
        places[0].get(address),
        places[1].get(address),
        matched,
    )
