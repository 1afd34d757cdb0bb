"""Records passed between the layers: documents, chunks, hits, reports. Frozen, without I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SearchMode = Literal["hybrid", "vector", "keyword"]
ScoreName = Literal["fused", "cosine", "bm25"]
"""Indexes a search uses."""

TextKind = Literal["plain", "markdown", "code"]
"""Structure of a text for chunking: paragraphs, Markdown blocks, or source code."""


_LOCATOR_KEYS = ("page", "sheet", "slide", "row", "cell", "line")
_MOST_DIGITS = 18  # of an ordinal; no document has as many chunks


@dataclass(frozen=True, slots=True)
class Section:
    """Part of a document's text with a locator of its own: a page, sheet, slide, row or notebook cell.

    Attributes:
        start: First character of the section in the text.
        end: One past its last character.
        locator: Where a reader finds it, for example {"page": 3} or {"sheet": "Q1", "row": 12}.
        context: Words that are indexed with it but are not in the text, such as the header of a table.
        joinable: Whether a chunk may span this section and its neighbours (pages: yes; rows: no).
    """

    start: int
    end: int
    locator: Mapping[str, Any] = field(default_factory=dict)
    context: str = ""
    joinable: bool = True


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document of a source: a file, a row, a dialogue turn, a tool call.

    Attributes:
        doc_id: Stable id, unique per owner; built from the connector's identity and the source key.
        text: The whole text, returned exactly as it is.
        metadata: JSON-like values, plus dates, Decimal, bytes, UUID (see `metadata.py`).
        agent_id: Owner, or None for shared.
        kind: Structure of the text.
        sections: Parts of the text with locators, in order, not overlapping; may be empty.
        context: Text that both indexes see with every chunk and nobody is shown: metadata that counts as text.
    """

    doc_id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agent_id: str | None = None
    kind: TextKind = "plain"
    sections: tuple[Section, ...] = ()
    context: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a source document: `document.text[start:end] == text`.

    Attributes:
        chunk_id: Ordinal within the document, from 0.
        start: First character in the document's text.
        end: One past the last character.
        text: The passage itself.
        context: Text that both indexes also see: the heading path, a table header.
        locator: Position for a reader: page, line, sheet, row, heading …
    """

    chunk_id: int
    start: int
    end: int
    text: str
    context: str = ""
    locator: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexEvidence:
    """Rank and score of a hit in one index.

    Attributes:
        rank: Rank in the index's own list, from 1; None when the list does not hold the hit.
        raw: Score of the index: cosine in [-1, 1], or BM25 >= 0.
        score: The same on the common scale, in [0, 1], higher is better.
    """

    rank: int | None
    raw: float
    score: float


class QueryMatches:
    """Words of the query in a passage and their BM25 scores, computed when first read.

    Computing them takes longer than the rest of a search, and most callers never read them. Two objects are equal when
    their values are; a pickle holds the values.

    Args:
        text: The passage.
        locate: Returns the character spans of the matching words.
        score_terms: Returns (term as indexed, BM25 score) pairs, highest score first.
    """

    def __init__(
        self,
        text: str = "",
        locate: Callable[[], Iterable[tuple[int, int]]] = tuple,
        score_terms: Callable[[], Iterable[tuple[str, float]]] = tuple,
    ) -> None:
        self._text, self._locate, self._score_terms = text, locate, score_terms

    @cached_property
    def highlights(self) -> tuple[tuple[int, int], ...]:
        """Character spans of the matching words."""
        return tuple(self._locate())

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The matching words as the passage writes them, in order of appearance, without repetitions."""
        return tuple(dict.fromkeys(self._text[start:end] for start, end in self.highlights))

    @cached_property
    def terms(self) -> tuple[tuple[str, float], ...]:
        """(term as indexed, its part of the BM25 score), highest first."""
        return tuple(self._score_terms())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueryMatches) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"QueryMatches(words={self.words!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _fixed_matches, (self._text, self.highlights, self.terms)

    def _values(self) -> tuple[Any, ...]:
        return self.words, self.highlights, self.terms


def _fixed_matches(
    text: str, highlights: tuple[tuple[int, int], ...], terms: tuple[tuple[str, float], ...]
) -> QueryMatches:
    return QueryMatches(text, lambda: highlights, lambda: terms)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a hit has its rank.

    Attributes:
        vector: Evidence of the vector index, or None when it has none.
        keyword: Evidence of the keyword index, or None when it has none.
        fusion: Name of the fusion rule.
        weights: Share of each index, (vector, keyword).
        recency: Part of the score that recency added; 0 unless `recency` was given.
        steps: What later stages did with the hit: "reranked from #5 to #1".
        matches: Words of the query in the passage.
    """

    vector: IndexEvidence | None = None
    keyword: IndexEvidence | None = None
    fusion: str = ""
    weights: tuple[float, float] = (0.5, 0.5)
    recency: float = 0.0
    steps: tuple[str, ...] = ()
    matches: QueryMatches = field(default_factory=QueryMatches)

    @property
    def matched(self) -> tuple[str, ...]:
        """Words of the passage that match the query, as the passage writes them, in order of appearance."""
        return self.matches.words

    @property
    def highlights(self) -> tuple[tuple[int, int], ...]:
        """Character spans of those words within the hit's text."""
        return self.matches.highlights

    @property
    def terms(self) -> tuple[tuple[str, float], ...]:
        """(term as indexed, its part of the BM25 score), highest first."""
        return self.matches.terms

    def as_dict(self) -> dict[str, Any]:
        """All values by name, the matching words, spans and terms included."""
        names = ("vector", "keyword", "matched", "highlights", "fusion", "weights", "recency", "terms", "steps")
        return {name: getattr(self, name) for name in names}


def format_locator(locator: Mapping[str, Any]) -> str:
    """Return a locator in words, such as "page 3" or "sheet Q1, row 12"; "" for an empty one."""
    return ", ".join(f"{name} {locator[name]}" for name in _LOCATOR_KEYS if name in locator)


def split_reference(reference: str) -> tuple[str, int] | None:
    """Return document id and ordinal of "doc_id#chunk_id"; None for anything else."""
    doc_id, separator, number = reference.rpartition("#")
    if not separator or not number.isdecimal() or len(number) > _MOST_DIGITS:
        return None
    return doc_id, int(number)


def short_id_of(doc_id: str, chunk_id: int) -> str:
    """Return the short id of a chunk for citations: "c" and six hexadecimal digits, stable across searches."""
    address = f"{doc_id}#{chunk_id}".encode("utf-8", "surrogatepass")
    return f"c{hashlib.blake2b(address, digest_size=3).hexdigest()}"


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A chunk as the store lists it, with its vector on request.

    Attributes:
        doc_id: Source document.
        chunk_id: Ordinal of the chunk in the document.
        text: The passage, exactly as stored.
        metadata: Metadata of the document, unchanged.
        locator: Position for a reader: page, line, sheet, row …
        agent_id: Owner, or None for shared.
        whole: Whether the text is the whole document.
        vector: Embedding in float32, as the model made it; None when it was not asked for.
    """

    doc_id: str
    chunk_id: int
    text: str
    metadata: Mapping[str, Any]
    locator: Mapping[str, Any]
    agent_id: str | None
    whole: bool
    vector: npt.NDArray[np.float32] | None = None

    @property
    def reference(self) -> str:
        """The document's id when the passage is the whole document, else "doc_id#chunk_id"."""
        return self.doc_id if self.whole else f"{self.doc_id}#{self.chunk_id}"


@dataclass(frozen=True, slots=True)
class DuplicateSource:
    """Address of a near-duplicate of a hit that was collapsed into it."""

    doc_id: str
    chunk_id: int
    agent_id: str | None = None
    start: int = 0
    end: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    locator: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk found by a search.

    Attributes:
        doc_id: Source document.
        chunk_id: Ordinal of the chunk in the document; (doc_id, chunk_id) is its address.
        text: The passage, exactly as stored.
        score: Fused score in [0, 1], higher is better; comparable within one search. With the search option `score` the
            cosine or the BM25 of the passage.
        metadata: Metadata of the document, unchanged.
        agent_id: Owner, or None for shared.
        start: First character in the document's text.
        end: One past the last character.
        context: Heading path or table header above the passage.
        locator: Position for a reader: page, line, sheet, row …
        explanation: Rank and score in each index, matching words.
        whole: Whether the text is the whole document.
        covers: First and last chunk of the text when neighbours were added, else None.
        also_in: Near-duplicates collapsed into this hit.
        confidence: Probability that the hit answers the question, in [0, 1]; see `fusion.confidence`.
    """

    doc_id: str
    chunk_id: int
    text: str
    score: float
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agent_id: str | None = None
    start: int = 0
    end: int = 0
    context: str = ""
    locator: Mapping[str, Any] = field(default_factory=dict)
    explanation: Explanation = field(default_factory=Explanation)
    whole: bool = False
    covers: tuple[int, int] | None = None
    also_in: tuple[DuplicateSource, ...] = ()
    confidence: float = 1.0

    @property
    def reference(self) -> str:
        """The document's id when the hit is the whole document, else "doc_id#chunk_id"."""
        return self.doc_id if self.whole else f"{self.doc_id}#{self.chunk_id}"

    @property
    def place(self) -> str:
        """The locator in words, such as "page 3"."""
        return format_locator(self.locator)

    @property
    def short(self) -> str:
        """Short id for citations, seven characters; see `short_id_of`."""
        return short_id_of(self.doc_id, self.chunk_id)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A candidate that is not among the hits, and the reason."""

    doc_id: str
    chunk_id: int
    agent_id: str | None
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class Trace:
    """Account of a search: what was searched for, and which candidates were dropped.

    Attributes:
        searched: Query that was run: the question, completed from the conversation if needed.
        added: Words added from the conversation, with less weight; "" for none.
        filter: Filter and time range in words; "" for none.
        considered: Number of candidates that were scored.
        dropped: Candidates that are not among the hits, with the reason.
    """

    searched: str
    added: str = ""
    filter: str = ""
    considered: int = 0
    dropped: tuple[Dropped, ...] = ()


CONVINCING = 0.15
"""Lowest confidence at which `Hits.convincing` is true. Nonsense and questions about something else stay below it, and
few right answers do (`benchmarks/quality.py --confidence`)."""


class Hits(list[Hit]):
    """Hits of a search, best first: a list with the query, the failed indexes and the trace.

    Attributes:
        query: The question.
        searched: Query that was run: the question, completed from the conversation if it was a follow-up.
        mode: Indexes that were used.
        degraded: One "index: reason" per index that failed, "query: …" when only the beginning of a long query was
            searched, "filter: …" when nothing matched and no document has a key of the filter; empty when all is well.
        trace: Trace of the search, with `explain=True`; else None.
    """

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        *,
        query: str = "",
        mode: SearchMode = "hybrid",
        degraded: tuple[str, ...] = (),
        trace: Trace | None = None,
        searched: str = "",
    ) -> None:
        super().__init__(hits)
        self.searched = searched or query
        self.query, self.mode, self.degraded, self.trace = query, mode, degraded, trace

    @property
    def confidence(self) -> float:
        """Highest confidence of the hits, in [0, 1]; 0 without a hit."""
        return max((hit.confidence for hit in self), default=0.0)

    @property
    def convincing(self) -> bool:
        """Whether the confidence is at least `CONVINCING`."""
        return self.confidence >= CONVINCING

    def _repr_html_(self) -> str:
        """HTML for notebooks: highlighted words and a bar per index."""
        from langchain_agentrag.notebook import hits_to_html  # loaded when something is drawn

        return hits_to_html(self)


@dataclass(frozen=True, slots=True)
class Passage:
    """Part of a document read by address.

    Attributes:
        doc_id: Source document.
        chunk_id: The requested chunk.
        text: `document.text[start:end]`.
        start: First character in the document's text.
        end: One past the last character.
        first_chunk: First chunk covered.
        last_chunk: Last chunk covered.
        total_chunks: Chunks in the document.
        metadata: The document's metadata.
        locator: Locator of the requested chunk.
        agent_id: Owner, or None for shared.
    """

    doc_id: str
    chunk_id: int
    text: str
    start: int
    end: int
    first_chunk: int
    last_chunk: int
    total_chunks: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    locator: Mapping[str, Any] = field(default_factory=dict)
    agent_id: str | None = None

    @property
    def short(self) -> str:
        """Short id for citations, the same as that of the hit."""
        return short_id_of(self.doc_id, self.chunk_id)


@dataclass(frozen=True, slots=True)
class Failure:
    """An item of a source that was not indexed, and the reason."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class DocumentEntry:
    """A document in a list of documents, without its text.

    Attributes:
        doc_id: Its id.
        source: Where it came from; its id where the metadata names no source.
        chunks: Number of its chunks.
        time: Its time in UTC, or None.
        agent_id: Its agent, or None when it is shared.
        quarantined: Whether searches leave it out unless asked for.
    """

    doc_id: str
    source: str
    chunks: int
    time: datetime | None
    agent_id: str | None
    quarantined: bool = False


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts of a store, or of what one agent may see of it.

    Attributes:
        documents: Live documents.
        chunks: Live chunks.
        shared_documents: Live shared documents.
        agents: Agents with documents of their own; 1 or 0 in an agent's own view.
        model: Name of the embedding model, or None before the first write.
        dimension: Length of its vectors, or None.
        bytes_on_disk: Size of the folder; 0 in an agent's own view, where it would reveal other agents.
        unindexed: Chunks whose vectors are not in the vector index yet and are scanned exactly; in an agent's view, of
            its own documents.
        unpurged: Deleted and replaced documents that no search finds any more and whose bytes are still on disk, for 30
            seconds at most; in an agent's view, its own. `close` erases them, and so does `erase`, at once.
        unpurged_since: When the first of them was deleted, or a name that belonged to one; None when nothing is left.
    """

    documents: int
    chunks: int
    shared_documents: int
    agents: int
    model: str | None
    dimension: int | None
    bytes_on_disk: int
    unindexed: int = 0
    unpurged: int = 0
    unpurged_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a long write.

    Attributes:
        done: Items done.
        total: Items in all, or None when unknown.
        item: The last item, or "".
        chunks: Chunks written so far.
    """

    done: int
    total: int | None
    item: str
    chunks: int


@dataclass(frozen=True, slots=True)
class SyncReport:
    """Result of a write. Reports of consecutive writes can be added with `+`.

    Attributes:
        added: New documents.
        updated: Documents whose text or metadata changed.
        deleted: Deleted documents.
        unchanged: Documents that were stored already.
        chunks: Chunks written.
        embedded: Chunks embedded by the model.
        reused: Chunks whose vector was cached.
        truncated: Chunks longer than the model reads.
        failed: Items that could not be read, with the reason; their stored documents are kept.
        skipped: Items left out on purpose, with the reason (binary, no text, ignored link).
        seconds: Wall time.
    """

    added: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    chunks: int = 0
    embedded: int = 0
    reused: int = 0
    truncated: int = 0
    failed: tuple[Failure, ...] = ()
    skipped: tuple[Failure, ...] = ()
    seconds: float = 0.0

    def __add__(self, other: SyncReport) -> SyncReport:
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__}
        return replace(self, **sums)


def hit_explanation(hit: Hit) -> dict[str, Any]:
    """Return score, ranks and matched words of a hit as JSON-safe values."""
    explanation = hit.explanation
    return {
        "score": hit.score,
        "confidence": hit.confidence,
        "vector": _evidence_record(explanation.vector),
        "keyword": _evidence_record(explanation.keyword),
        "matched": list(explanation.matched),
        "terms": [[term, points] for term, points in explanation.terms],
        "steps": list(explanation.steps),
        "fusion": explanation.fusion,
        "weights": list(explanation.weights),
        "recency": explanation.recency,
    }


def _evidence_record(evidence: IndexEvidence | None) -> dict[str, Any] | None:
    return None if evidence is None else {"rank": evidence.rank, "raw": evidence.raw, "score": evidence.score}
