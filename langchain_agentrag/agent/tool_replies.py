"""Replies of the tools `search` and `read`: texts for the model, and records for programs."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.agent.prompt_injection import Fence, PassageSafety
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.text import sentences
from langchain_agentrag.types import Hit, Hits, Passage, format_locator

_LEAD = 0.25  # share of a snippet before its first match
_MAX_SOURCES = 5
_CONTEXT = 500  # characters around an excerpt that are checked for instructions too


class ToolReplies:
    """Texts of a pair of tools for the model.

    Args:
        language: Language of the texts.
        about: What the tools search, as a noun: "the product manuals"; "" for a general phrase.
        read_name: Name of the reading tool.
        safety: How passages are shown.

    Attributes:
        about: What the tools search, or the general phrase.
    """

    def __init__(self, language: Language, about: str, read_name: str, safety: PassageSafety | None = None) -> None:
        self._safety = safety or PassageSafety()
        self._texts, self._read = load_messages("agent", "tool_replies", language), read_name
        self._language = language
        self.about = about or self._texts["about"]

    def search_results(self, hits: Hits, *, snippet_size: int, max_chars: int, condition: Mapping[str, Any]) -> str:
        """Return the reply to a search, of at most about `max_chars` characters."""
        query = self._texts["quote"].format(query=hits.query[:200])
        advice = self._texts["drop_filter" if condition else "other_words"]
        notes = (
            [self._texts["degraded"].format(reasons="; ".join(map(self._safety.name, hits.degraded)))]
            if hits.degraded
            else []
        )
        if not hits:
            filtered = self._texts["filtered"].format(filter=_json(condition)) if condition else ""
            text = self._texts["no_results"].format(query=query, filtered=filtered, about=self.about, advice=advice)
            return "\n".join([text, *notes])
        entries: list[str] = []
        room, fence = max_chars, self._safety.fence(self._language)
        for number, hit in enumerate(hits, 1):
            coordinates, names = _coordinates(hit, self._safety)
            head = f"[{number}] {coordinates}\n    "
            entry = head + _fenced_snippet(hit, fence, snippet_size, names)
            if entries and len(entry) > room:
                notes.insert(0, self._texts["left_out"].format(n=len(hits) - number + 1))
                break
            if len(entry) > room:  # the first hit is always shown, as far as there is room
                entry = head + _fenced_snippet(hit, fence, max(100, snippet_size - (len(entry) - room)), names)
            entries.append(entry)
            room -= len(entry)
        text = self._texts["results" if hits.convincing else "low_confidence"].format(
            n=len(hits), query=query, read=self._read, about=self.about, advice=advice
        )
        return "\n".join([text, *entries, *notes])

    def empty_query(self) -> str:
        """Return the reply to a query without a word."""
        return self._texts["empty_query"]

    def passage(self, passage: Passage, *, offset: int, max_chars: int) -> str:
        """Return a passage from `offset` on, at most `max_chars` characters of it; a note says when it was cut."""
        total = len(passage.text)
        if offset and offset >= total:
            return self._texts["past_end"].format(offset=offset, total=total)
        end = min(total, offset + max_chars)
        source = _source(passage.metadata, passage.doc_id)
        doc_id, shown_source, where = _Names(self._safety), _Names(self._safety), _Names(self._safety)
        doc_id.add_id("doc_id", passage.doc_id)
        if source is not None:
            shown_source.add("source", source)
        where.add_locator(passage.locator)
        head = self._texts["passage"].format(
            doc_id="".join(f"{name} " for name in doc_id.outside),
            chunk_id=passage.chunk_id,
            ref=passage.short,
            where="".join(where.outside) or "-",
            first=passage.first_chunk,
            last=passage.last_chunk,
            final=passage.total_chunks - 1,
            source="".join(f", {name}" for name in shown_source.outside),
        )
        context = passage.text[max(0, offset - _CONTEXT) : end + _CONTEXT]
        fence = self._safety.fence(self._language)
        text, inside = passage.text[offset:end], " ".join(doc_id.inside + shown_source.inside + where.inside)
        lines = [head, fence.wrap(text, passage.metadata, inspect=context, block=True, names=inside)]
        if offset or end < total:
            lines.append(self._texts["truncated"].format(start=offset, end=end, total=total, read=self._read))
        return "\n".join(lines)

    def error(self, name: str, error: Exception) -> str:
        """Return the reply to a call that the model can correct."""
        return self._texts["error"].format(name=name, error=self._safety.message(str(error), self._language))

    def internal_error(self, name: str, error: Exception) -> str:
        """Return the reply to a call that failed for a reason the model cannot correct."""
        return self._texts["internal_error"].format(name=name, error=type(error).__name__)


def hit_record(hit: Hit) -> dict[str, Any]:
    """Return a hit as JSON-safe values, which any store of messages gives back unchanged."""
    explanation = hit.explanation
    return {
        "doc_id": hit.doc_id,
        "chunk_id": hit.chunk_id,
        "reference": hit.short,
        "score": float(hit.score),
        "confidence": float(hit.confidence),
        "source": json_safe(_source(hit.metadata, hit.doc_id) or hit.doc_id),
        "text": hit.text,
        "metadata": json_safe(hit.metadata),
        "locator": json_safe(hit.locator),
        "start": hit.start,
        "end": hit.end,
        "shared": hit.agent_id is None,
        "also_in": [f"{source.doc_id}#{source.chunk_id}" for source in hit.also_in],
        "matched": list(explanation.matched),
        "vector_rank": None if explanation.vector is None else explanation.vector.rank,
        "keyword_rank": None if explanation.keyword is None else explanation.keyword.rank,
    }


def passage_record(passage: Passage) -> dict[str, Any]:
    """Return a passage as JSON-safe values."""
    return {
        "doc_id": passage.doc_id,
        "chunk_id": passage.chunk_id,
        "reference": passage.short,
        "text": passage.text,
        "start": passage.start,
        "end": passage.end,
        "first_chunk": passage.first_chunk,
        "last_chunk": passage.last_chunk,
        "total_chunks": passage.total_chunks,
        "metadata": json_safe(passage.metadata),
        "locator": json_safe(passage.locator),
        "shared": passage.agent_id is None,
    }


def json_safe(value: Any) -> Any:  # noqa: ANN401
    """Return a metadata value as JSON has it: dates as ISO text, NaN as None, other types as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def _fenced_snippet(hit: Hit, fence: Fence, size: int, names: str) -> str:
    text = snippet(hit.text, hit.explanation.highlights, size)
    return fence.wrap(text, hit.metadata, inspect=hit.text, names=names)


def snippet(text: str, highlights: Sequence[tuple[int, int]], size: int) -> str:
    """Return about `size` characters of a passage on one line, with as many different matched words as fit.

    Args:
        text: The passage.
        highlights: Spans of matched words in it.
        size: Characters to show; "…" marks where the text was cut.
    """
    if len(text) <= size:
        return " ".join(text.split())
    start = max(0, min(_best_highlight(text, highlights, size) - int(size * _LEAD), len(text) - size))
    start, end = _cluster_start(text, start), _cluster_start(text, min(len(text), start + size))
    return f"{'…' if start else ''}{' '.join(text[start:end].split())}{'…' if end < len(text) else ''}"


def _best_highlight(text: str, highlights: Sequence[tuple[int, int]], size: int) -> int:
    """Return the start of the first window with the most different matched words."""
    room = size - int(size * _LEAD)
    by_start, by_end = sorted(highlights), sorted(highlights, key=lambda span: span[1])
    words: Counter[str] = Counter()  # in the window that starts at `start`
    best = most = left = right = 0
    for start, _ in by_start:
        while right < len(by_end) and by_end[right][1] <= start + room:
            if by_end[right][0] >= start:
                words[_word(text, by_end[right])] += 1
            right += 1
        while by_start[left][0] < start:
            if by_start[left][1] <= by_start[left][0] + room:  # else it was in no window
                word = _word(text, by_start[left])
                words[word] -= 1
                if not words[word]:
                    del words[word]
            left += 1
        if len(words) > most:
            best, most = start, len(words)
    return best


def _word(text: str, span: tuple[int, int]) -> str:
    return text[slice(*span)].casefold()


def _cluster_start(text: str, position: int) -> int:
    """Return the position, moved back to the start of a grapheme cluster that it would split."""
    while 0 < position < len(text) and sentences.splits_grapheme(text, position):
        position -= 1
    return position


def _coordinates(hit: Hit, safety: PassageSafety) -> tuple[str, str]:
    """Return what stands before the fence of a hit, and the names that stand inside it."""
    names = _Names(safety)
    names.add_id("doc_id", hit.doc_id)
    names.outside += [f"chunk_id={hit.chunk_id}", f"score={hit.score:.2f}", f"ref={hit.short}"]
    source = _source(hit.metadata, hit.doc_id)
    if source is not None:
        names.add("source", source)
    elif safety.may_stand_open(hit.doc_id):
        names.add_id("source", hit.doc_id)
    if hit.also_in:  # an answer that cites the hit must know all of its documents
        names.add_id("also_in", [other.doc_id for other in hit.also_in[:_MAX_SOURCES]])
    place = _Names(safety)
    place.add_locator(hit.locator)
    return (
        " ".join([*names.outside, *(f"({text})" for text in place.outside)]),
        " ".join([*names.inside, *(f"({text})" for text in place.inside)]),
    )


class _Names:
    """Ids, sources and places of a passage: plain ones to show before its fence, others inside of it."""

    def __init__(self, safety: PassageSafety) -> None:
        self._safety = safety
        self.outside: list[str] = []
        self.inside: list[str] = []

    def add_id(self, label: str, value: str | list[str]) -> None:
        """Add ids, which a model must be able to pass back unchanged."""
        plain = all(map(self._safety.may_stand_open, [value] if isinstance(value, str) else value))
        (self.outside if plain else self.inside).append(f"{label}={self._safety.identifier(value)}")

    def add(self, label: str, name: str) -> None:
        """Add a name; one that reads like instructions is withheld."""
        (self.outside if self._safety.may_stand_open(name) else self.inside).append(
            f"{label}={_json(self._safety.name(name))}"
        )

    def add_locator(self, locator: Mapping[str, Any]) -> None:
        """Add a place in the document."""
        if text := self._safety.name(format_locator(locator)):
            plain = all(self._safety.may_stand_open(str(value)) for value in locator.values())
            (self.outside if plain else self.inside).append(text)


def _source(metadata: Mapping[str, Any], doc_id: str) -> str | None:
    """Return the source of a document by the first of the usual keys; None if it is the id or an absolute path."""
    for key in ("source", "url", "path", "file", "title"):
        value = metadata.get(key)
        if isinstance(value, str) and value:
            return None if value == doc_id or PurePath(value).is_absolute() else value
    return None


def _json(value: object) -> str:
    return json.dumps(json_safe(value), ensure_ascii=False)
