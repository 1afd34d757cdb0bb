"""Plain in-memory implementations of every protocol: lists, loops and pure functions. They are the oracles.

Slow on purpose and free of cleverness: no cut-offs, no caches, no numpy beyond one vector at a time.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from langchain_agentrag import Analyzer, BaseConnector, Chunking, SourceDocument
from langchain_agentrag.connector import Gap, SourceItem
from langchain_agentrag.embedding import Background, Embedder
from langchain_agentrag.filters import match
from langchain_agentrag.metadata import normalise
from langchain_agentrag.search.bm25 import FieldStats, Scorer, idf, score
from langchain_agentrag.search.fusion import (
    adaptive_weights,
    calibrate_bm25,
    calibrate_cosine,
    check_weights,
    fuse,
    keyword_evidence,
)
from langchain_agentrag.search.ranking import combined_evidence, confidence, recency_boost
from langchain_agentrag.store.columnar_cache import cosines
from langchain_agentrag.store.commit import embedding_text
from langchain_agentrag.text import FIELDS, Terms
from langchain_agentrag.text.chunking import chunk_document
from langchain_agentrag.types import Chunk, Explanation, Hit, IndexEvidence, QueryMatches
from tests.contracts.bm25_reference import matched_gain, reachable_maximum

Window = tuple[datetime | None, datetime | None]
"""From a moment on, before another one."""


class MemoryKeywords:
    """A `KeywordIndex` in a dict."""

    def __init__(self) -> None:
        self._entries: dict[int, Terms] = {}

    def add(self, rows: Sequence[int], terms: Sequence[Terms]) -> None:
        self._entries.update(zip(rows, terms, strict=True))

    def delete(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._entries.pop(row, None)

    def doc_freqs(self, query: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, int]]:
        return {
            field: {term: sum(term in getattr(stored, field) for stored in self._entries.values()) for term in terms}
            for field, terms in query.items()
        }

    def candidates(
        self, query: Mapping[str, Mapping[str, float]], limit: int, allowed: Iterable[int] | None = None
    ) -> list[tuple[int, float]]:
        chosen = (
            self._entries if allowed is None else {row: self._entries[row] for row in allowed if row in self._entries}
        )
        ranking = []
        for row, stored in chosen.items():
            total = math.fsum(
                weight * count / (count + 1.2)
                for field, terms in query.items()
                for term, weight in terms.items()
                if (count := getattr(stored, field).count(term))
            )
            if total > 0:
                ranking.append((row, total))
        return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))[:limit]

    def rows(self) -> np.ndarray:
        return np.array(sorted(self._entries), dtype=np.int64)

    def count(self) -> int:
        return len(self._entries)


class MemoryVectors:
    """A `VectorIndex` in a dict, exact."""

    def __init__(self) -> None:
        self._entries: dict[int, np.ndarray] = {}

    def add(self, rows: Sequence[int], vectors: np.ndarray) -> None:
        self._entries.update(zip(rows, vectors, strict=True))

    def delete(self, rows: Sequence[int]) -> None:
        for row in rows:
            self._entries.pop(row, None)

    def nearest(self, vector: np.ndarray, limit: int) -> list[tuple[int, float]]:
        ranking = [(row, float(cosines(stored.reshape(1, -1), vector)[0])) for row, stored in self._entries.items()]
        return sorted(ranking, key=lambda pair: (-pair[1], pair[0]))[:limit]

    def rows(self) -> np.ndarray:
        return np.array(sorted(self._entries), dtype=np.int64)

    def count(self) -> int:
        return len(self._entries)


class MemoryConnector(BaseConnector):
    """A connector over a dict of texts; None is an item that cannot be read."""

    def __init__(self, texts: Mapping[str, str | None], name: str = "memory", agent_id: str | None = None) -> None:
        self.texts, self.agent_id, self._name = dict(texts), agent_id, name
        self.loaded: list[str] = []

    @property
    def connector_id(self) -> str:
        return self._name

    def items(self) -> Iterator[SourceItem | Gap]:
        for key, text in sorted(self.texts.items()):
            if text is None:
                yield Gap(key, "it cannot be read", skipped=False)
            else:
                yield SourceItem(key, str(Counter(text)), lambda key=key: self._load(key))

    def _load(self, key: str) -> list[SourceDocument]:
        self.loaded.append(key)
        text = self.texts[key] or ""
        return [SourceDocument(f"{self._name}/{key}", text, {"key": key}, self.agent_id)] if text.strip() else []


@dataclass(frozen=True)
class Row:
    """A chunk with all that ranking needs."""

    document: SourceDocument
    chunk: Chunk
    terms: Terms
    vector: np.ndarray


class ReferenceStore:
    """What a store must hold and answer, in plain Python.

    It ranks every visible chunk, so it agrees with the engine as long as no index cuts its candidates off: up to 50
    chunks in scope (`search.planner`).
    """

    def __init__(self, embedder: Embedder, background: Background, analyzer: Analyzer, chunking: Chunking) -> None:
        self._embedder, self._background = embedder, background
        self._analyzer, self._chunking = analyzer, chunking
        self._documents: dict[tuple[str | None, str], SourceDocument] = {}
        self._rows: dict[tuple[str | None, str], list[Row]] = {}
        self._known_texts: set[tuple[str | None, str]] = set()

    def unknown_texts(self, documents: Sequence[SourceDocument]) -> int:
        """How many texts among the documents' chunks their owners never had."""
        last = {(doc.agent_id, doc.doc_id): doc for doc in documents}  # a later one replaces an earlier one
        texts = {(doc.agent_id, embedding_text(chunk)) for doc in last.values() for chunk in self._chunks(doc)}
        return len(texts - self._known_texts)

    # -- writing: a dict keeps the place of a key that is replaced, and gives a new place to one that comes back ------

    def put_all(self, documents: Sequence[SourceDocument]) -> None:
        """One call: of several documents with one address the last counts, at the place of the first with a text."""
        final: dict[tuple[str | None, str], SourceDocument] = {}
        blank: dict[tuple[str | None, str], SourceDocument] = {}
        for document in documents:
            address = (document.agent_id, document.doc_id)
            if self._chunks(document):
                final[address] = document
                blank.pop(address, None)
            else:
                final.pop(address, None)
                blank[address] = document
        for document in (*final.values(), *blank.values()):
            self.put(document)

    def put(self, document: SourceDocument) -> None:
        address = (document.agent_id, document.doc_id)
        chunks = self._chunks(document)
        if not chunks:
            self.remove(*address)
            return
        self._documents[address] = replace(document, metadata=normalise(document.metadata))
        self._known_texts |= {(document.agent_id, embedding_text(chunk)) for chunk in chunks}
        vectors = self._embedder.embed_documents([embedding_text(chunk) for chunk in chunks])
        self._rows[address] = [
            Row(self._documents[address], chunk, self._analyzer.analyze(chunk.text, chunk.context), vector)
            for chunk, vector in zip(chunks, vectors, strict=True)
        ]

    def expire(self, now: datetime) -> None:
        """What has expired is not there any more."""
        for address, document in list(self._documents.items()):
            if (until := document.metadata.get("expires_at")) is not None and until <= now:
                self.remove(*address)

    def _chunks(self, document: SourceDocument) -> list[Chunk]:
        chunks = [chunk for chunk in chunk_document(document, self._chunking) if not has_no_words(chunk.text)]
        return [replace(chunk, chunk_id=place) for place, chunk in enumerate(chunks)]

    def remove(self, owner: str | None, doc_id: str) -> None:
        self._documents.pop((owner, doc_id), None)
        self._rows.pop((owner, doc_id), None)

    def forget(self, owner: str) -> None:
        for address in [address for address in self._documents if address[0] == owner]:
            self.remove(*address)

    # -- reading ------------------------------------------------------------------------------------------------------

    def visible(self, agent: str | None, *, quarantined: bool = True) -> list[SourceDocument]:
        """What an agent may see, in document order, with or without what is quarantined."""
        return [
            document
            for (owner, _), document in self._documents.items()
            if (owner is None or owner == agent) and (quarantined or not is_quarantined(document))
        ]

    def quarantined(self) -> list[SourceDocument]:
        """What is quarantined, of all owners."""
        return [document for document in self.all() if is_quarantined(document)]

    def all(self) -> list[SourceDocument]:
        return list(self._documents.values())

    def owned(self, owner: str | None) -> list[SourceDocument]:
        return [document for (document_owner, _), document in self._documents.items() if document_owner == owner]

    def matching(self, owner: str | None, where: object, window: Window = (None, None)) -> list[str]:
        """Ids of an owner's documents that a filter and a stretch of time keep."""
        return [doc.doc_id for doc in self.owned(owner) if match(where, filter_view(doc)) and inside(window, doc)]

    def read(self, agent: str | None, doc_id: str) -> SourceDocument | None:
        """The agent's own document of that id, else the shared one."""
        own = None if agent is None else self._documents.get((agent, doc_id))
        return own or self._documents.get((None, doc_id))

    def spans(self, document: SourceDocument) -> list[Chunk]:
        return [row.chunk for row in self._rows[document.agent_id, document.doc_id]]

    def search(
        self,
        query: str,
        k: int,
        *,
        agent: str | None,
        where: object,
        mode: str,
        fusion: str,
        weights: tuple[float, float] | None,
        window: Window = (None, None),
        recency: timedelta | None = None,
        now: datetime | None = None,
        quarantined: bool = False,
    ) -> list[Hit]:
        share = None if weights is None and fusion == "adaptive" else check_weights(weights or (0.5, 0.5))
        if has_no_words(query):
            return []
        documents = self.visible(agent, quarantined=quarantined)
        visible = [row for doc in documents for row in self._rows[doc.agent_id, doc.doc_id]]
        filtered = [
            row
            for row in visible
            if match(where, filter_view(row.document, row.chunk)) and inside(window, row.document)
        ]
        wanted = share or (1.0, 1.0)
        if mode != "hybrid":
            wanted = (1.0, 0.0) if mode == "vector" else (0.0, 1.0)
        adapts = mode == "hybrid" and fusion == "adaptive"
        near = self._near(query, filtered) if wanted[0] else _IndexScores()
        words = self._words(query, visible, filtered, adapts=adapts) if wanted[1] else _IndexScores()
        share = share or self._share(near, words)
        if mode != "hybrid":
            fused = (near if mode == "vector" else words).score
        else:
            rankings = [[(place, scores.evidence[place]) for place in scores.order()] for scores in (near, words)]
            fused = fuse(fusion, rankings if adapts else [near.ranking(), words.ranking()], share)  # type: ignore[arg-type]
        lifts = dict.fromkeys(fused, 0.0)
        for place in fused:
            time = document_time(filtered[place].document)
            if recency is not None and now is not None and time is not None:
                lifts[place] = recency_boost(fused[place], now - time, recency)
        fused = {place: min(1.0, score + lifts[place]) for place, score in fused.items()}
        best = sorted(fused, key=lambda place: (-fused[place], -near.raw.get(place, -1.0), place))[:k]
        return [
            self._hit(
                filtered[place],
                fused[place],
                near.index_evidence(place),
                words.index_evidence(place),
                query,
                fusion if mode == "hybrid" else mode,
                share,
                words.terms.get(place, ()),
                lifts[place],
                self._confidence(place, filtered, near, words),
            )
            for place in best
        ]

    def _confidence(self, place: int, filtered: list[Row], near: _IndexScores, words: _IndexScores) -> float:
        """From the evidence of the passage, how far it stands out, and how far the best other document is behind."""
        evidence = {
            one: combined_evidence(near.evidence.get(one, 0.0), words.evidence.get(one, 0.0))
            for one in near.raw.keys() | words.raw.keys()
        }
        mine = filtered[place].document.doc_id, filtered[place].document.agent_id
        others = [
            value
            for one, value in evidence.items()
            if (filtered[one].document.doc_id, filtered[one].document.agent_id) != mine
        ]
        lead = evidence[place] - max(others) if others else 0.0
        order = near.order()[:30]
        close, keyword_value = near.evidence.get(place, 0.0), words.evidence.get(place, 0.0)
        apart = close - near.evidence[order[-1]] if order else close
        return confidence(keyword_value, apart * len(order) / 30, lead) if close or keyword_value else 0.0

    def _share(self, near: _IndexScores, words: _IndexScores) -> tuple[float, float]:
        first = words.order()[:1]
        best = [(near.evidence.get(place, 0.0), words.coverage[place]) for place in first]
        rarity = max(words.rarity.values(), default=0.0)
        return adaptive_weights([near.evidence[place] for place in near.order()], best[0] if best else None, rarity)

    def _words(self, text: str, visible: list[Row], filtered: list[Row], *, adapts: bool) -> _IndexScores:
        query = self._analyzer.analyze_query(text)
        stats = {
            name: FieldStats(len(visible), sum(row.terms.lengths.get(name, 0) for row in visible)) for name in FIELDS
        }
        freqs = {
            field: {term: sum(term in getattr(row.terms, field) for row in visible) for term in terms}
            for field, terms in query.items()
        }
        top = reachable_maximum(query, stats, freqs)
        scores = _IndexScores()
        unit = self._analyzer.word_weight * idf(len(visible), 1)
        scorer = Scorer(query, stats, freqs, own=self._analyzer.analyze_query(text, widen=False))
        for place, row in enumerate(filtered):
            counts = {field: Counter(getattr(row.terms, field)) for field in query}
            raw = score(query, counts, row.terms.lengths, stats, freqs)
            if raw > 0:
                scores.coverage[place] = scorer.coverage(matched_gain(scorer, counts))
                codes = self._analyzer.codes(text) & set(row.terms.words)
                scores.rarity[place] = max((scorer.rarity("words", code) for code in codes), default=0.0)
                evidence = keyword_evidence(raw / unit, scores.coverage[place], scores.rarity[place]) if unit else 0.0
                scores.evidence[place] = evidence
                scores.raw[place], scores.score[place] = raw, evidence if adapts else calibrate_bm25(raw, top)
                scores.terms[place] = _points(query, counts, row, stats, freqs)
        return scores

    def _near(self, text: str, filtered: list[Row]) -> _IndexScores:
        vector = self._embedder.embed_query(text)
        scores = _IndexScores()
        for place, row in enumerate(filtered):
            raw = float(cosines(row.vector.reshape(1, -1), vector)[0])
            scores.raw[place], scores.score[place] = raw, calibrate_cosine(raw, self._background.mean)
            scores.evidence[place] = calibrate_cosine(raw, self._background.lowest)
        return scores

    def _hit(
        self,
        row: Row,
        fused: float,
        near: Any,
        words: Any,
        query: str,
        rule: str,
        weights: Any,
        terms: tuple[tuple[str, float], ...],
        recency: float,
        likely: float,
    ) -> Hit:
        chunk, document = row.chunk, row.document
        query_terms = self._analyzer.analyze_query(query)
        by_word, by_gram = (self._analyzer.match_spans(chunk.text, query_terms[field]) for field in ("words", "grams"))
        spans = (by_word or by_gram) if words else []
        why = Explanation(
            vector=near,
            keyword=words,
            fusion=rule,
            weights=weights,
            recency=recency,
            matches=QueryMatches(chunk.text, lambda: spans, lambda: terms),
        )
        return Hit(
            doc_id=document.doc_id,
            chunk_id=chunk.chunk_id,
            text=chunk.text,
            score=fused,
            metadata=document.metadata,
            agent_id=document.agent_id,
            start=chunk.start,
            end=chunk.end,
            context=chunk.context,
            locator=normalise(chunk.locator),
            explanation=why,
            whole=chunk.text == document.text,
            confidence=likely,
        )


def _points(query: Any, counts: Any, row: Row, stats: Any, freqs: Any) -> tuple[tuple[str, float], ...]:
    """What each term would score if the chunk held no other, summed over the fields."""
    points: dict[str, float] = {}
    for field, terms in query.items():
        for term in terms:
            alone = score(query, {field: {term: counts[field][term]}}, row.terms.lengths, stats, freqs)
            if alone:
                points[term] = points.get(term, 0.0) + alone
    return tuple(sorted(points.items(), key=lambda pair: (-pair[1], pair[0])))


class _IndexScores:
    def __init__(self) -> None:
        self.raw: dict[int, float] = {}
        self.score: dict[int, float] = {}
        self.coverage: dict[int, float] = {}
        self.evidence: dict[int, float] = {}
        self.rarity: dict[int, float] = {}
        self.terms: dict[int, tuple[tuple[str, float], ...]] = {}

    def order(self) -> list[int]:
        return sorted(self.raw, key=lambda place: (-self.raw[place], place))

    def ranking(self) -> list[tuple[int, float]]:
        return [(place, self.score[place]) for place in self.order()]

    def index_evidence(self, place: int) -> IndexEvidence | None:
        if place not in self.raw:
            return None
        return IndexEvidence(self.order().index(place) + 1, self.raw[place], self.score[place])


def is_quarantined(document: SourceDocument) -> bool:
    """Whether no search finds it unless it asks for what is quarantined."""
    return document.metadata.get("quarantined") is True


def document_time(document: SourceDocument) -> datetime | None:
    """The first of the usual keys that holds a time."""
    values = (document.metadata.get(key) for key in ("time", "timestamp", "created_at", "mtime"))
    return next((value for value in values if isinstance(value, datetime)), None)


def inside(window: Window, document: SourceDocument) -> bool:
    """Whether a document's time lies in a stretch of time; one without a time lies in none."""
    after, before = window
    time = document_time(document)
    if after is None and before is None:
        return True
    return time is not None and (after is None or time >= after) and (before is None or time < before)


def has_no_words(text: str) -> bool:
    """Only space, control characters and punctuation: it is not indexed, and asks for nothing."""
    return all(unicodedata.category(char)[0] in "ZCP" for char in text)


def filter_view(document: SourceDocument, chunk: Chunk | None = None) -> dict[str, Any]:
    """What a filter sees: the chunk's place, the metadata, and the true owner and id."""
    places = {} if chunk is None else dict(chunk.locator)
    return {**places, **document.metadata, "agent_id": document.agent_id, "doc_id": document.doc_id}
