"""The part of a passage worth showing to a model: a window on one line around the words that matched."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_agentrag.text import sentences

_LEAD = 0.25  # share of the window before the first match: what leads up to it


def snippet(text: str, highlights: Sequence[tuple[int, int]], size: int) -> str:
    """At most about `size` characters of the text, with as many different matched words as fit, "…" where it was cut.

    Args:
        text: The passage.
        highlights: Spans of matched words within it.
        size: Characters to show.
    """
    if len(text) <= size:
        return _one_line(text)
    start = max(0, min(_anchor(text, highlights, size) - int(size * _LEAD), len(text) - size))
    start, end = _whole(text, start), _whole(text, min(len(text), start + size))
    return f"{'…' if start else ''}{_one_line(text[start:end])}{'…' if end < len(text) else ''}"


def _anchor(text: str, highlights: Sequence[tuple[int, int]], size: int) -> int:
    """Start of the stretch with the most different matched words; the first of equals."""
    room = size - int(size * _LEAD)
    best, most = 0, 0
    for start, _ in sorted(highlights):
        words = {text[a:b].casefold() for a, b in highlights if start <= a and b <= start + room}
        if len(words) > most:
            best, most = start, len(words)
    return best


def _whole(text: str, position: int) -> int:
    """The position, moved back where it would split what is one character to a reader."""
    while 0 < position < len(text) and sentences.splits_cluster(text, position):
        position -= 1
    return position


def _one_line(text: str) -> str:
    return " ".join(text.split())
