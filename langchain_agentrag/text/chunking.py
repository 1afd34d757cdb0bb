"""Chunking: split a document into chunks that are exact slices of its text.

A chunk extends as far as the budget allows; the cut is then moved back to the best place in reach: section >
heading > block > complete line > sentence > wrapped line > clause > space > anywhere. A place counts only when it
leaves the chunk reasonably filled, so each step advances by a fixed share of the budget and the work is linear in
the text. Sentence ends and closing quotes stay with their sentence.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from langchain_agentrag.errors import UsageError
from langchain_agentrag.text.sentences import (
    WIDE,
    all_line_ends,
    clause_ends,
    fallback_cut,
    line_ends,
    sentence_ends,
    space_ends,
    splits_grapheme,
    starts_with_closing_punctuation,
)
from langchain_agentrag.text.structure import Cut, Span, find_structure
from langchain_agentrag.types import Chunk, Section, SourceDocument

_VERSION: Final = "2"  # raised whenever the same text would be cut differently; part of the fingerprint
_WIDE_COST, _NARROW_COST = 3, 1  # budget units of a character; one unit of `Chunking.size` is 3
_MAX_CONTEXT = 240  # budget units (80 Chinese characters); or a quarter of the budget, whichever is more
_MAX_SPEAKER = 80  # characters
_NON_SPACE = re.compile(r"\S")

_MIN_FILL: Final[Mapping[Cut, float]] = {
    Cut.SECTION: 0.5,
    Cut.CHAPTER: 0.33,
    Cut.HEADING: 0.4,
    Cut.BLOCK: 0.3,
    Cut.GROUP: 0.4,
}
"""Share of the budget a chunk must hold before it may end at such a cut. Lower: purer and smaller chunks."""
_MIN_FILL_SENTENCE, _MIN_FILL_LINE, _MIN_FILL_WEAK = 0.25, 0.4, 0.5


@dataclass(frozen=True, slots=True)
class Chunking:
    """Chunk size and overlap.

    The unit of both is one Chinese character: every character from U+2E80 on (Han, kana, Hangul, full-width
    punctuation, emoji) counts 1, every other one 1/3, white space included. 500 are thus 500 Chinese or 1,500
    English characters, below the 512 tokens that most embedding models read.

    Attributes:
        size: Largest chunk.
        overlap: How much of a chunk's end the next one repeats when a text is cut inside a section or topic.
    """

    size: int = 500
    overlap: int = 0

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("overlap", self.overlap)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"Chunking({name}={value!r}): it must be a whole number, for example 50.")
        if self.size < 1:
            raise UsageError(f"Chunking(size={self.size}): size must be at least 1; 500 suits most embedding models.")
        if self.overlap and not 0 < self.overlap < self.size // 2:
            raise UsageError(
                f"Chunking(size={self.size}, overlap={self.overlap}): overlap must be 0 or below half of "
                f"size ({self.size // 2}); lower overlap or raise size."
            )

    @property
    def fingerprint(self) -> str:
        """Text that is equal exactly when the same text is cut the same way."""
        return f"chunking-{_VERSION}:size={self.size},overlap={self.overlap}"


def chunk_document(document: SourceDocument, chunking: Chunking) -> list[Chunk]:
    """Return the chunks of a document in order; none when its text is blank.

    Every character that is not white space lies in a chunk; without overlap, in exactly one. The speaker (metadata
    `speaker`) and the document's context, shortened to a quarter of a chunk, are part of every chunk's context.
    """
    shared = join_context(
        speaker_of(document.metadata), _shorten(document.context, max(chunking.size * _WIDE_COST // 4, _MAX_CONTEXT))
    )
    chunks = _split(document, chunking)
    if not shared:
        return chunks
    return [replace(chunk, context=join_context(shared, chunk.context)) for chunk in chunks]


def join_context(*parts: str) -> str:
    """Return the parts of a context that are not empty, on lines of their own."""
    return "\n".join(part for part in parts if part)


def speaker_of(metadata: Mapping[str, Any]) -> str:
    """Return the speaker of a text by its metadata; "" without one, or when the name is too long to be one.

    A turn seldom names its speaker, but often the person it addresses, and would else be attributed to that person.
    """
    name = metadata.get("speaker")
    name = " ".join(name.split()) if isinstance(name, str) else ""
    return name if len(name) <= _MAX_SPEAKER else ""


def _split(document: SourceDocument, chunking: Chunking) -> list[Chunk]:
    text = document.text
    if not text or text.isspace():
        return []
    # No character costs more than 1, so this text fits. Most table rows and dialogue turns take this short cut; the
    # result is that of `_Chunker`.
    if document.kind == "plain" and not document.sections and len(text) <= chunking.size:
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        return [Chunk(0, start, end, text[start:end], locator={"line": text.count("\n", 0, start) + 1})]
    return _Chunker(document, chunking).run()


class _Chunker:
    """Splits one document."""

    def __init__(self, document: SourceDocument, chunking: Chunking) -> None:
        self.document, self.text = document, document.text
        self.budget, self.overlap = chunking.size * _WIDE_COST, chunking.overlap * _WIDE_COST
        costs = (_WIDE_COST if char >= WIDE else _NARROW_COST for char in self.text)
        self.cost = array("Q", accumulate(costs, initial=0))  # of the text before each position
        self.structure = find_structure(document)
        self.cut_positions = [position for position, _ in self.structure.cuts]
        self.span_starts = [span.start for span in self.structure.spans]
        self.path_starts = [position for position, _ in self.structure.heading_paths]
        self.section_starts = [section.start for section in document.sections]
        self.line, self.line_counted_to = 1, 0

    def run(self) -> list[Chunk]:
        spans = (span for start, end in _regions(self.document) for span in self._split_region(start, end))
        return [self._chunk(number, start, end) for number, (start, end) in enumerate(spans)]

    def _split_region(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the trimmed spans of the chunks between two places that no chunk may cross."""
        position = covered = self._skip_space(start, end)
        while covered < end:
            cut, strength = self._next_cut(position, covered, end)
            yield position, position + len(self.text[position:cut].rstrip())
            covered = self._skip_space(cut, end)
            overlaps = self.overlap and covered < end and strength < Cut.HEADING
            position = self._overlap_start(position, cut, covered) if overlaps else covered

    def _skip_space(self, position: int, end: int) -> int:
        match = _NON_SPACE.search(self.text, position, end)
        return match.start() if match else end

    def _fill_position(self, start: int, share: float) -> int:
        """Return the first position where a chunk from `start` fills this share of the budget."""
        return bisect_left(self.cost, self.cost[start] + int(self.budget * share))

    def _next_cut(self, start: int, covered: int, end: int) -> tuple[int, Cut]:
        """Return where a chunk from `start` ends, past the text `covered` already, and the strength of the cut."""
        limit = bisect_right(self.cost, self.cost[start] + self.budget) - 1
        first = bisect_right(self.cut_positions, covered)
        last = bisect_right(self.cut_positions, min(limit, end - 1))
        cuts = [
            (position, self._strength(position, cut))
            for position, cut in self.structure.cuts[first:last]
            if not starts_with_closing_punctuation(self.text, position)
        ]
        for position, strength in cuts:
            if strength >= Cut.CHAPTER and position >= self._fill_position(start, _MIN_FILL[strength]):
                return position, strength
        if limit >= end:
            return end, Cut.SECTION
        for minimum in (Cut.HEADING, Cut.BLOCK, Cut.GROUP):
            lowest = self._fill_position(start, _MIN_FILL[minimum])
            for position, strength in reversed(cuts):
                if strength >= minimum and position >= lowest:
                    return position, strength
        before_span = self._cut_before_span(covered, limit)
        if before_span is not None:
            return before_span, Cut.BLOCK
        return self._weak_cut(start, covered, limit), Cut.WEAK

    def _strength(self, position: int, cut: Cut) -> Cut:
        """Return the strength of a cut; a page that ends within a sentence counts as the end of a paragraph."""
        if cut != Cut.SECTION or self.text.startswith("#", position):
            return cut
        last = self.text[max(0, position - 40) : position].rstrip()[-1:]
        return cut if not last.isalnum() and last not in tuple(",，、-") else Cut.BLOCK

    def _span_over(self, position: int) -> Span | None:
        """Return the table or fence that a cut here would split."""
        index = bisect_left(self.span_starts, position) - 1
        if index < 0 or self.structure.spans[index].end <= position:
            return None
        return self.structure.spans[index]

    def _cut_before_span(self, covered: int, limit: int) -> int | None:
        """Return where to cut to keep the table or fence at the limit whole, or None when that is impossible."""
        span = self._span_over(limit)
        if span is None or self.cost[span.end] - self.cost[span.start] > self.budget:
            return None
        if span.anchor > covered:
            return span.anchor
        return span.start if span.start > covered and span.start not in self.structure.after_heading else None

    def _weak_cut(self, start: int, covered: int, limit: int) -> int:
        """Return the best place inside a block."""
        text = self.text
        line, sentence, weak = (
            max(covered, self._fill_position(start, share) - 1)
            for share in (_MIN_FILL_LINE, _MIN_FILL_SENTENCE, _MIN_FILL_WEAK)
        )
        if self.structure.cut_any_line or self._span_over(limit) is not None:
            lines = all_line_ends(text, line, limit)
        else:
            lines = line_ends(text, line, limit, soft=False)
        boundaries: tuple[Iterable[int], ...] = (
            lines,
            _backwards(sentence_ends(text, sentence, limit)),
            line_ends(text, weak, limit, soft=True),
            _backwards(clause_ends(text, weak, limit)),
            _backwards(space_ends(text, weak, limit)),
        )
        for positions in boundaries:
            for position in positions:
                if not starts_with_closing_punctuation(text, position) and not self._separates_heading(position):
                    return position
        return fallback_cut(text, covered, limit)

    def _separates_heading(self, position: int) -> bool:
        after_heading = self.structure.after_heading
        return bool(after_heading) and self._skip_space(position, len(self.text)) in after_heading

    def _overlap_start(self, previous: int, cut: int, covered: int) -> int:
        """Return where the next chunk starts, so that it repeats the end of the last one from a good place on."""
        text = self.text
        lowest = max(previous + 1, bisect_left(self.cost, max(0, self.cost[cut] - self.overlap)))
        boundaries: tuple[Iterable[int], ...] = (
            sentence_ends(text, lowest - 1, cut - 1),
            _backwards(all_line_ends(text, lowest - 1, cut - 1)),
            clause_ends(text, lowest - 1, cut - 1),
            space_ends(text, lowest - 1, cut - 1),
            range(lowest, cut),
        )
        for positions in boundaries:
            for boundary in positions:
                position = self._skip_space(boundary, cut)
                bad = splits_grapheme(text, position) or starts_with_closing_punctuation(text, position)
                fits = self.cost[covered] - self.cost[position] <= self.budget // 2
                if previous < position < cut and fits and not bad:
                    return position
        return covered

    def _chunk(self, number: int, start: int, end: int) -> Chunk:
        path = self._heading_path(start)
        section = self._section(start)
        self.line += self.text.count("\n", self.line_counted_to, start)
        self.line_counted_to = start
        locator: dict[str, Any] = dict(section.locator) if section else {}
        if not self.document.sections:
            locator["line"] = self.line
        if path and self.document.kind == "markdown":
            locator["heading"] = " > ".join(path)
        context = self._context(path, section, start)
        return Chunk(number, start, end, self.text[start:end], context=context, locator=locator)

    def _heading_path(self, position: int) -> tuple[str, ...]:
        index = bisect_right(self.path_starts, position) - 1
        return self.structure.heading_paths[index][1] if index >= 0 else ()

    def _section(self, position: int) -> Section | None:
        index = bisect_right(self.section_starts, position) - 1
        section = self.document.sections[index] if index >= 0 else None
        return section if section and position < section.end else None

    def _context(self, path: tuple[str, ...], section: Section | None, start: int) -> str:
        limit = max(self.budget // 4, _MAX_CONTEXT)
        while len(path) > 1 and _cost(" > ".join(path)) > limit:
            path = path[1:]
        span = self._span_over(start)
        parts = (" > ".join(path), section.context if section else "", span.header if span else "")
        return _shorten(join_context(*parts), limit)


def _shorten(context: str, limit: int) -> str:
    while (cost := _cost(context)) > limit:
        context = context[: max(len(context) * limit // cost, 1) - 1].rstrip()
    return context


def _cost(text: str) -> int:
    return sum(_WIDE_COST if char >= WIDE else _NARROW_COST for char in text)


def _backwards(positions: Iterable[int]) -> list[int]:
    return list(positions)[::-1]


def _regions(document: SourceDocument) -> Iterator[tuple[int, int]]:
    """Yield the spans that no chunk may cross: each section that stands alone, and the text between those."""
    start = 0
    for section in document.sections:
        if not section.joinable:
            if section.start > start:
                yield start, section.start
            yield section.start, section.end
            start = section.end
    if start < len(document.text):
        yield start, len(document.text)
