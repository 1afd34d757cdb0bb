"""Frozen types that travel between the layers. They import nothing of ours and do no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

SearchMode = Literal["hybrid", "vector", "keyword"]
"""Which legs take part in a search."""

TextKind = Literal["plain", "markdown", "code"]
"""How a text is structured, for the chunker: paragraphs, Markdown blocks, or source code."""


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of a document's text with a place of its own: a page, a sheet, a slide, a row, a notebook cell.

    Attributes:
        start: First character of the section in the text.
        end: One past its last character.
        locator: Where a reader finds it, for example {"page": 3} or {"sheet": "Q1", "row": 12}.
        context: Words that help to find it but are not in the text (a table's header, say).
        joinable: Whether a chunk may hold this section together with its neighbours (pages: yes; rows: no).
    """

    start: int
    end: int
    locator: Mapping[str, Any] = field(default_factory=dict)
    context: str = ""
    joinable: bool = True


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """One thing a connector yields: a file, a row, a dialogue turn, a tool call.

    Attributes:
        doc_id: Stable id, unique within its owner; built from the connector's identity and the source key.
        text: The whole text, exactly as it will be returned.
        metadata: JSON-like values, plus dates, Decimal, bytes, UUID (see `metadata.py`).
        agent_id: Owner, or None for shared.
        kind: Structure of the text.
        sections: Places within the text, in order, not overlapping; may be empty.
    """

    doc_id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    agent_id: str | None = None
    kind: TextKind = "plain"
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a source document: `document.text[start:end] == text`.

    Attributes:
        chunk_id: Ordinal within the document, from 0.
        start: First character in the document's text.
        end: One past the last character.
        text: The passage itself.
        context: What both legs also see but the text does not hold: the heading path, a table header.
        locator: Where a reader finds it: page, line, sheet, row, heading …
    """

    chunk_id: int
    start: int
    end: int
    text: str
    context: str = ""
    locator: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexEvidence:
    """What one leg said of a hit.

    Attributes:
        rank: Place in the leg's own list, from 1; None when the leg's list did not hold it.
        raw: The leg's own score: cosine in [-1, 1], or BM25 >= 0.
        score: The same on the common scale, in [0, 1], higher is better.
    """

    rank: int | None
    raw: float
    score: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a hit is where it is.

    Attributes:
        vector: Evidence of the vector leg, or None when it has none.
        keyword: Evidence of the keyword leg, or None when it has none.
        matched: Words of the passage that answered the query, as they are written there, in order of appearance.
        highlights: Character spans of those words within the hit's text.
        fusion: Name of the fusion rule.
        weights: Share of each leg, (vector, keyword).
        recency: What being recent added to the score; 0 unless it was asked for.
        terms: What each matching term added to the BM25 score, (term as indexed, points), most first.
        steps: What later stages did with the hit: "reranked from #5 to #1".
    """

    vector: IndexEvidence | None = None
    keyword: IndexEvidence | None = None
    matched: tuple[str, ...] = ()
    highlights: tuple[tuple[int, int], ...] = ()
    fusion: str = ""
    weights: tuple[float, float] = (0.5, 0.5)
    recency: float = 0.0
    terms: tuple[tuple[str, float], ...] = ()
    steps: tuple[str, ...] = ()


def short_id_of(doc_id: str, chunk_id: int) -> str:
    """A name of a chunk in seven characters, "c" and six hexadecimal digits: the same in every answer."""
    address = f"{doc_id}#{chunk_id}".encode("utf-8", "surrogatepass")
    return f"c{hashlib.blake2b(address, digest_size=3).hexdigest()}"


@dataclass(frozen=True, slots=True)
class DuplicateSource:
    """Another place where what a hit says stands nearly word for word."""

    doc_id: str
    chunk_id: int
    agent_id: str | None = None
    start: int = 0
    end: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    locator: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that answers a query.

    Attributes:
        doc_id: Source document.
        chunk_id: Ordinal of the chunk in it; (doc_id, chunk_id) is its address.
        text: The passage, exactly as stored.
        score: Fused score in [0, 1], higher is better; comparable within one search.
        metadata: The document's own metadata, as it was given.
        agent_id: Owner, or None for shared.
        start: First character in the document's text.
        end: One past the last character.
        context: Heading path or table header above the passage.
        locator: Page, line, sheet, row … where a reader finds it.
        explanation: Rank and score in each leg, matched words.
        whole: Whether the text is the whole document.
        covers: First and last chunk of the text where neighbours were added to the chunk that was found.
        also_in: Near-duplicates that this hit stands for, where they were collapsed.
        confidence: How likely the hit answers the question, in [0, 1]; see `fusion.confidence`. 1 where no search was.
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
        """A name of the hit as one string: the document's id when it is the whole document, else "doc_id#chunk_id"."""
        return self.doc_id if self.whole else f"{self.doc_id}#{self.chunk_id}"

    @property
    def short(self) -> str:
        """A name of seven characters, to be cited by; see `short_reference`."""
        return short_id_of(self.doc_id, self.chunk_id)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A candidate that is not in the answer, and why."""

    doc_id: str
    chunk_id: int
    agent_id: str | None
    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class Trace:
    """How an answer came about.

    Attributes:
        searched: What was searched for: the query, completed from the conversation where there was one.
        added: Words of the conversation that were added, with less weight; "" for none.
        filter: The filter that was applied; "" for none.
        considered: Candidates that both legs brought.
        dropped: Those that are not in the answer, with the reason.
    """

    searched: str
    added: str = ""
    filter: str = ""
    considered: int = 0
    dropped: tuple[Dropped, ...] = ()


CONVINCING = 0.15
"""Confidence below which a search is said to have found nothing convincing: nonsense and questions about something else
stay below it, and few right answers do (`benchmarks/quality.py --confidence`)."""


class Hits(list[Hit]):
    """Hits, best first: a list that also says what it was asked and whether a leg was missing.

    Attributes:
        query: The query as it was given.
        searched: What was searched for: the query, completed from the conversation where it leant on one.
        mode: PartitionIndexes that were asked.
        degraded: One "leg: reason" per leg that failed; empty when all is well.
        trail: How the answer came about, where `explain=True` asked for it.
    """

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        *,
        query: str = "",
        mode: SearchMode = "hybrid",
        degraded: tuple[str, ...] = (),
        trail: Trace | None = None,
        searched: str = "",
    ) -> None:
        super().__init__(hits)
        self.searched = searched or query
        self.query, self.mode, self.degraded, self.trace = query, mode, degraded, trail

    @property
    def confidence(self) -> float:
        """How likely one of the hits answers the question, in [0, 1]: that of the likeliest; 0 without a hit."""
        return max((hit.confidence for hit in self), default=0.0)

    @property
    def convincing(self) -> bool:
        """Whether something was found that may well be the answer: confidence of `CONVINCING` or more."""
        return self.confidence >= CONVINCING

    def _repr_html_(self) -> str:
        """HTML for notebooks: highlighted words and a bar per leg."""
        from langchain_agentrag.search.explain import hits_to_html  # a face of this type, loaded when drawn

        return hits_to_html(self)


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a document read by address.

    Attributes:
        doc_id: Source document.
        chunk_id: The chunk that was asked for.
        text: `document.text[start:end]`.
        start: First character in the document's text.
        end: One past the last character.
        first_chunk: First chunk covered.
        last_chunk: Last chunk covered.
        total_chunks: Chunks in the document.
        metadata: The document's metadata.
        locator: Place of the chunk that was asked for.
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
        """A name of seven characters, to be cited by; that of the hit it was found by."""
        return short_id_of(self.doc_id, self.chunk_id)


@dataclass(frozen=True, slots=True)
class Failure:
    """One item of a source that was not indexed, and why."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store holds, or what one agent may see of it.

    Attributes:
        documents: Live documents.
        chunks: Live chunks.
        shared_documents: Those of the documents that are shared.
        agents: Agents with documents of their own; 1 or 0 in an agent's own view.
        model: Name of the embedding model, or None before the first write.
        dimension: Length of its vectors, or None.
        bytes_on_disk: Size of the folder; 0 in an agent's own view, where it would tell of the others.
        waiting: Those of the chunks whose vectors are scanned exactly until they are in the graph.
    """

    documents: int
    chunks: int
    shared_documents: int
    agents: int
    model: str | None
    dimension: int | None
    bytes_on_disk: int
    unindexed: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a long write has come.

    Attributes:
        done: Items that are done.
        total: Items to expect, or None when nobody knows.
        item: The item that was just done, or "".
        chunks: Chunks written so far.
    """

    done: int
    total: int | None
    item: str
    chunks: int


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a write did. Reports of consecutive writes add up with `+`.

    Attributes:
        added: Documents that are new.
        updated: Documents whose text or metadata changed.
        deleted: Documents that are gone.
        unchanged: Documents that were already there as they are.
        chunks: Chunks written.
        embedded: Chunks the model embedded.
        reused: Chunks whose vector was known already.
        truncated: Chunks of which the model saw only the beginning.
        failed: Items that could not be read, with the reason; what was stored of them before is kept.
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
