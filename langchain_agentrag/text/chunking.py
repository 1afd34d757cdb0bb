"""Exact-span splitting: every chunk is a slice of its document's text.

From a start, the chunk reaches as far as the budget allows; the cut is then moved back to the best place in
reach: section > heading > block > complete line > sentence > wrapped line > clause > space > anywhere. A
place counts only when it leaves the chunk reasonably filled, so each step moves on by a fixed share of the
budget and the work is linear in the text. Sentence ends and closing quotes stay with their sentence.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.errors import UsageError
from langchain_agentrag.text import sentences
from langchain_agentrag.text.structure import Cut, Span, find_structure
from langchain_agentrag.types import Chunk, Section, SourceDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_RULES: Final = "2"
"""Raised whenever the same text would be cut differently; part of the fingerprint."""
_WIDE_COST, _NARROW_COST = 3, 1
_LONGEST_NAME = 80  # characters of a speaker's name
_NON_SPACE = re.compile(r"\S")

_FILL: Final[Mapping[Cut, float]] = {
    Cut.SECTION: 0.5,
    Cut.CHAPTER: 0.33,
    Cut.HEADING: 0.4,
    Cut.BLOCK: 0.3,
    Cut.GROUP: 0.4,
}
"""Share of the budget a chunk must hold before it may end at such a cut. Lower: purer and smaller chunks."""
_SENTENCE_FILL, _LINE_FILL, _WEAK_FILL = 0.25, 0.4, 0.5
_CONTEXT_COST = 240
"""Context may cost this much (80 characters of Chinese) or a quarter of the budget, whichever is more."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """How texts are cut.

    The unit of both numbers is a character of Chinese: every character from U+2E80 on (Han, kana, Hangul,
    full-width punctuation, emoji) counts 1, every other one 1/3, white space included. 500 are thus 500
    Chinese or 1,500 English characters, below the 512 tokens that most embedding models read.

    Attributes:
        size: Largest chunk.
        overlap: How much of a chunk's end the next one repeats when a text is cut inside a section or topic.
    """

    size: int = 500
    overlap: int = 0

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("overlap", self.overlap)):
            if isinstance(value, bool) or not isinstance(value, int):
                msg = f"Chunking({name}={value!r}): it must be a whole number, for example 50."
                raise UsageError(msg)
        if self.size < 1:
            msg = f"Chunking(size={self.size}): size must be at least 1; 500 suits most embedding models."
            raise UsageError(msg)
        if self.overlap and not 0 < self.overlap < self.size // 2:
            msg = (
                f"Chunking(size={self.size}, overlap={self.overlap}): overlap must be 0 or below half of "
                f"size ({self.size // 2}); lower overlap or raise size."
            )
            raise UsageError(msg)

    @property
    def fingerprint(self) -> str:
        """Equal exactly when the same text is cut the same way."""
        return f"chunking-{_RULES}:size={self.size},overlap={self.overlap}"


def chunk_document(document: SourceDocument, chunking: Chunking) -> list[Chunk]:
    """The document's chunks in order; none when its text is blank.

    Every character that is not white space lies in a chunk; without overlap, in exactly one. Who speaks
    (metadata `speaker`) is part of every chunk's context.
    """
    speaker = speaker_of(document.metadata)
    chunks = _cut_up(document, chunking)
    return [_said_by(speaker, chunk) for chunk in chunks] if speaker else chunks


def speaker_of(metadata: Mapping[str, Any]) -> str:
    """Who says the text, by its metadata; "" where nobody does, or the name is too long to be one.

    A turn seldom names its speaker, but often whom it speaks to, and so would be taken for the other one's words.
    """
    name = metadata.get("speaker")
    name = " ".join(name.split()) if isinstance(name, str) else ""
    return name if len(name) <= _LONGEST_NAME else ""


def _said_by(speaker: str, chunk: Chunk) -> Chunk:
    return replace(chunk, context="\n".join(part for part in (speaker, chunk.context) if part))


def _cut_up(document: SourceDocument, chunking: Chunking) -> list[Chunk]:
    if not document.text or document.text.isspace():
        return []
    if document.kind == "plain" and not document.sections and len(document.text) <= chunking.size:
        return [
            _whole(document.text)
        ]  # no character costs more than 1, so it fits; most rows and turns end here
    return _Chunker(document, chunking).run()


def _whole(text: str) -> Chunk:
    """A short plain text as its only chunk: what `_Chunker` would find, without looking for places to cut."""
    start = len(text) - len(text.lstrip())
    end = len(text.rstrip())
    return Chunk(0, start, end, text[start:end], locator={"line": text.count("\n", 0, start) + 1})


class _Chunker:
    """One document on its way into chunks."""

    def __init__(self, document: SourceDocument, chunking: Chunking) -> None:
        self.document, self.text = document, document.text
        self.budget, self.overlap = chunking.size * _WIDE_COST, chunking.overlap * _WIDE_COST
        wide = sentences.WIDE
        self.cost = array(
            "Q", accumulate((_WIDE_COST if c >= wide else _NARROW_COST for c in self.text), initial=0)
        )
        self.structure = find_structure(document)
        self.cut_at = [position for position, _ in self.structure.cuts]
        self.span_at = [span.start for span in self.structure.spans]
        self.path_at = [position for position, _ in self.structure.paths]
        self.section_at = [section.start for section in document.sections]
        self.line, self.counted = 1, 0

    def run(self) -> list[Chunk]:
        spans = (span for start, end in _regions(self.document) for span in self._cut_region(start, end))
        return [self._chunk(number, start, end) for number, (start, end) in enumerate(spans)]

    def _cut_region(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Trimmed spans of the chunks between two places that no chunk may cross."""
        position = reached = self._skip_space(start, end)
        while reached < end:
            cut, strength = self._next_cut(position, reached, end)
            yield position, position + len(self.text[position:cut].rstrip())
            reached = self._skip_space(cut, end)
            repeats = self.overlap and reached < end and strength < Cut.HEADING
            position = self._overlap_start(position, cut, reached) if repeats else reached

    def _skip_space(self, position: int, end: int) -> int:
        match = _NON_SPACE.search(self.text, position, end)
        return match.start() if match else end

    def _at(self, start: int, fill: float) -> int:
        """First position that fills this share of the budget."""
        return bisect_left(self.cost, self.cost[start] + int(self.budget * fill))

    def _next_cut(self, start: int, reached: int, end: int) -> tuple[int, Cut]:
        """Where a chunk from `start` ends, beyond what is `reached` already, and how good the place is."""
        limit = bisect_right(self.cost, self.cost[start] + self.budget) - 1
        first = bisect_right(self.cut_at, reached)
        window = self.structure.cuts[first : bisect_right(self.cut_at, min(limit, end - 1))]
        window = [
            (at, self._strength(at, cut)) for at, cut in window if not sentences.starts_badly(self.text, at)
        ]
        for at, strength in window:
            if strength >= Cut.CHAPTER and at >= self._at(start, _FILL[strength]):
                return at, strength
        if limit >= end:
            return end, Cut.SECTION
        for wanted in (Cut.HEADING, Cut.BLOCK, Cut.GROUP):
            lowest = self._at(start, _FILL[wanted])
            for at, strength in reversed(window):
                if strength >= wanted and at >= lowest:
                    return at, strength
        whole = self._before_span(reached, limit)
        return (self._weak_cut(start, reached, limit), Cut.WEAK) if whole is None else (whole, Cut.BLOCK)

    def _strength(self, position: int, cut: Cut) -> Cut:
        """A page that ends in the middle of a sentence is no better a place than a paragraph's end."""
        if cut != Cut.SECTION or self.text.startswith("#", position):
            return cut
        before = self.text[max(0, position - 40) : position].rstrip()
        return cut if not before[-1:].isalnum() and before[-1:] not in tuple(",，、-") else Cut.BLOCK

    def _span_over(self, position: int) -> Span | None:
        """The table or fence that a cut here would split."""
        index = bisect_left(self.span_at, position) - 1
        if index < 0 or self.structure.spans[index].end <= position:
            return None
        return self.structure.spans[index]

    def _before_span(self, reached: int, limit: int) -> int | None:
        """Where to cut to keep the table or fence at the limit whole, or None when it cannot be helped."""
        span = self._span_over(limit)
        if span is None or self.cost[span.end] - self.cost[span.start] > self.budget:
            return None
        if span.anchor > reached:
            return span.anchor
        return span.start if span.start > reached and span.start not in self.structure.glued else None

    def _weak_cut(self, start: int, reached: int, limit: int) -> int:
        """The best place inside a block."""
        text = self.text
        line, sentence, weak = (
            max(reached, self._at(start, fill) - 1) for fill in (_LINE_FILL, _SENTENCE_FILL, _WEAK_FILL)
        )
        if self.structure.verbatim or self._span_over(limit) is not None:
            lines = sentences.all_line_ends(text, line, limit)
        else:
            lines = sentences.line_ends(text, line, limit, soft=False)
        ways: tuple[Iterable[int], ...] = (
            lines,
            _backwards(sentences.sentence_ends(text, sentence, limit)),
            sentences.line_ends(text, weak, limit, soft=True),
            _backwards(sentences.clause_ends(text, weak, limit)),
            _backwards(sentences.space_ends(text, weak, limit)),
        )
        for way in ways:
            for position in way:
                if not sentences.starts_badly(text, position) and not self._leaves_heading(position):
                    return position
        return sentences.forced_cut(text, reached, limit)

    def _leaves_heading(self, position: int) -> bool:
        glued = self.structure.glued
        return bool(glued) and self._skip_space(position, len(self.text)) in glued

    def _overlap_start(self, previous: int, cut: int, reached: int) -> int:
        """Where the next chunk starts so that it repeats the end of the last one from a good place on."""
        text = self.text
        lowest = max(previous + 1, bisect_left(self.cost, max(0, self.cost[cut] - self.overlap)))
        ways: tuple[Iterable[int], ...] = (
            sentences.sentence_ends(text, lowest - 1, cut - 1),
            reversed(list(sentences.all_line_ends(text, lowest - 1, cut - 1))),
            sentences.clause_ends(text, lowest - 1, cut - 1),
            sentences.space_ends(text, lowest - 1, cut - 1),
            range(lowest, cut),
        )
        for way in ways:
            for place in way:
                position = self._skip_space(place, cut)
                torn = sentences.splits_cluster(text, position) or sentences.starts_badly(text, position)
                fits = self.cost[reached] - self.cost[position] <= self.budget // 2
                if previous < position < cut and fits and not torn:
                    return position
        return reached

    def _chunk(self, number: int, start: int, end: int) -> Chunk:
        path = self._path(start)
        section = self._section(start)
        self.line += self.text.count("\n", self.counted, start)
        self.counted = start
        locator: dict[str, Any] = dict(section.locator) if section else {}
        if not self.document.sections:
            locator["line"] = self.line
        if path and self.document.kind == "markdown":
            locator["heading"] = " > ".join(path)
        context = self._context(path, section, start)
        return Chunk(number, start, end, self.text[start:end], context=context, locator=locator)

    def _path(self, position: int) -> tuple[str, ...]:
        index = bisect_right(self.path_at, position) - 1
        return self.structure.paths[index][1] if index >= 0 else ()

    def _section(self, position: int) -> Section | None:
        index = bisect_right(self.section_at, position) - 1
        section = self.document.sections[index] if index >= 0 else None
        return section if section and position < section.end else None

    def _context(self, path: tuple[str, ...], section: Section | None, start: int) -> str:
        room = max(self.budget // 4, _CONTEXT_COST)
        while len(path) > 1 and _cost(" > ".join(path)) > room:
            path = path[1:]
        span = self._span_over(start)
        parts = (" > ".join(path), section.context if section else "", span.header if span else "")
        context = "\n".join(part for part in parts if part)
        while _cost(context) > room:
            context = context[: max(len(context) * room // _cost(context), 1) - 1].rstrip()
        return context


def _cost(text: str) -> int:
    return sum(_WIDE_COST if char >= sentences.WIDE else _NARROW_COST for char in text)


def _backwards(positions: Iterable[int]) -> list[int]:
    return list(positions)[::-1]


def _regions(document: SourceDocument) -> Iterator[tuple[int, int]]:
    """Stretches that no chunk may cross: each section that stands alone, and what lies between those."""
    start = 0
    for section in document.sections:
        if not section.joinable:
            if section.start > start:
                yield start, section.start
            yield section.start, section.end
            start = section.end
    if start < len(document.text):
        yield start, len(document.text)
