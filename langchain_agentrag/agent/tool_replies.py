"""The part of a passage worth showing to a model: a window on one line around the words that matched."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from langchain_agentrag.agent.prompt_injection import FENCE_MARKS, Fence, PassageSafety
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.text import sentences
from langchain_agentrag.types import Hit, Hits, Passage, format_locator

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
    while 0 < position < len(text) and sentences.splits_grapheme(text, position):
        position -= 1
    return position


def _one_line(text: str) -> str:
    return " ".join(text.split())


_MOST_SOURCES = 5
_NEAR = 500  # characters around what is read that tell whether it reads like instructions

_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "found": "{n} passage(s) for {query}, best first. Snippets only: call {read} with doc_id and chunk_id for the "
        "full text before you rely on one, and cite what you use by its ref, like [c41f0aa].",
        "unsure": "Nothing convincing was found for {query} in {about}. These {n} passage(s) are only the nearest "
        "there are, and hardly answer it: do not rely on one unless its full text ({read}) says so. {advice}",
        "left_out": "{n} more left out for length: ask for fewer, or more precisely.",
        "none": "No passage was found for {query}{filtered} in {about}. Nothing else is hidden: the same search will "
        "find nothing again. {advice}",
        "filtered": " with the filter {filter}",
        "drop_filter": "Try it without the filter, or with other words, a synonym, or the other language.",
        "other_words": "Try other words, a synonym, a shorter query, or the other language; or say that it is not "
        "there.",
        "blank": "The query is empty, nothing was searched. Give a question or exact words.",
        "degraded": "Note: this search was incomplete ({notes}).",
        "passage": "doc_id={doc_id} chunk_id={chunk_id} ref={ref} ({where}), chunks {first}-{last} of 0-{final}"
        "{source}:",
        "cut": "[cut: characters {start}-{end} of {total}; call {read} again with offset={end} for the rest]",
        "past_end": "offset {offset} lies behind the end: this passage has {total} characters.",
        "failed": "{name} failed: {error}",
        "broken": "{name} failed because of a fault on our side ({error}). Calling it again the same way will not help "
        "soon; go on with what you have.",
    },
    "zh": {
        "found": "找到 {n} 段与{query}有关的内容，最相关的在前。以下只是摘录；"
        "引用之前，请用 {read} 传入 doc_id 和 chunk_id 阅读全文；引用时写出它的 ref，如 [c41f0aa]。",
        "unsure": "在{about}中没有找到与{query}有关的可信内容。以下 {n} 段只是最接近的，很可能不能回答问题："
        "除非用 {read} 读到的全文确实如此，否则不要引用。{advice}",
        "left_out": "另有 {n} 段因长度未列出：请减少数量或缩小问题。",
        "none": "在{about}中没有找到与{query}有关的内容{filtered}。没有隐藏的结果：同样的检索不会再找到别的。{advice}",
        "filtered": "（过滤条件 {filter}）",
        "drop_filter": "可以去掉过滤条件，或换用别的词、同义词、另一种语言再试。",
        "other_words": "可以换用别的词、同义词、更短的说法或另一种语言再试；否则请说明资料中没有。",
        "blank": "查询为空，没有执行检索。请给出一个问题或确切的词。",
        "degraded": "注意：这次检索不完整（{notes}）。",
        "passage": "doc_id={doc_id} chunk_id={chunk_id} ref={ref}（{where}），第 {first}-{last} 段"
        "（全文 0-{final}）{source}：",
        "cut": "[已截断：第 {start}-{end} 个字符，共 {total} 个；继续阅读请再次调用 {read} 并传入 offset={end}]",
        "past_end": "offset {offset} 超过了末尾：这一段共有 {total} 个字符。",
        "failed": "{name} 未能完成：{error}",
        "broken": "{name} 因系统故障未能完成（{error}）。短时间内以同样方式重试没有用；请用已有的信息继续。",
    },
}
_ABOUT: Mapping[Language, str] = {"en": "the documents available to you", "zh": "你可以查阅的资料"}


class Replies:
    """Texts of one pair of tools.

    Args:
        language: Language of the texts.
        about: What the tools search, as a noun: "the product manuals"; "" for a general phrase.
        read_name: Name of the reading tool.
        safety: How passages are shown.
    """

    def __init__(
        self, language: Language, about: str, read_name: str, safety: PassageSafety | None = None
    ) -> None:
        self._safety = safety or PassageSafety()
        self._words, self._about, self._read = _WORDS[language], about or _ABOUT[language], read_name
        self._language = language

    def found(self, hits: Hits, *, snippet_size: int, most: int, condition: Mapping[str, Any]) -> str:
        """Answer to a search, of at most about `most` characters."""
        query = _quoted(hits.query[:200], self._language)
        notes = [self._words["degraded"].format(notes="; ".join(hits.degraded))] if hits.degraded else []
        if not hits:
            filtered = self._words["filtered"].format(filter=_json(condition)) if condition else ""
            advice = self._words["drop_filter" if condition else "other_words"]
            text = self._words["none"].format(
                query=query, filtered=filtered, about=self._about, advice=advice
            )
            return "\n".join([text, *notes])
        lines: list[str] = []
        room, fence = most, self._safety.fence(self._language)
        for number, hit in enumerate(hits, 1):
            head = f"[{number}] {_coordinates(hit, self._safety)}\n    "
            entry = head + _snippet(hit, fence, snippet_size)
            if lines and len(entry) > room:
                notes.insert(0, self._words["left_out"].format(n=len(hits) - number + 1))
                break
            if len(entry) > room:  # the first one is shown in any case, as far as there is room
                entry = head + _snippet(hit, fence, max(100, snippet_size - (len(entry) - room)))
            lines.append(entry)
            room -= len(entry)
        head = self._words["found" if hits.convincing else "unsure"].format(
            n=len(hits),
            query=query,
            read=self._read,
            about=self._about,
            advice=self._words["drop_filter" if condition else "other_words"],
        )
        return "\n".join([head, *lines, *notes])

    def blank(self) -> str:
        """Answer to a query without a word."""
        return self._words["blank"]

    def passage(self, passage: Passage, *, offset: int, most: int) -> str:
        """Answer to a reading: the text from `offset` on, at most `most` characters, saying when it was cut."""
        total = len(passage.text)
        if offset and offset >= total:
            return self._words["past_end"].format(offset=offset, total=total)
        end = min(total, offset + most)
        source = _source(passage.metadata, passage.doc_id)
        head = self._words["passage"].format(
            doc_id=_escaped(passage.doc_id),
            chunk_id=passage.chunk_id,
            ref=passage.short,
            where=self._safety.name(format_locator(passage.locator)) or "-",
            first=passage.first_chunk,
            last=passage.last_chunk,
            final=passage.total_chunks - 1,
            source="" if source is None else f", source={_json(self._safety.name(source))}",
        )
        near = passage.text[max(0, offset - _NEAR) : end + _NEAR]
        shown = self._safety.fence(self._language).around(
            passage.text[offset:end], passage.metadata, judged=near, block=True
        )
        lines = [head, shown]
        if offset or end < total:
            lines.append(self._words["cut"].format(start=offset, end=end, total=total, read=self._read))
        return "\n".join(lines)

    def failed(self, name: str, error: Exception) -> str:
        """A mistake the model can correct."""
        return self._words["failed"].format(name=name, error=error)

    def broken(self, name: str, error: Exception) -> str:
        """A fault nobody in the conversation can correct."""
        return self._words["broken"].format(name=name, error=type(error).__name__)


def hit_record(hit: Hit) -> dict[str, Any]:
    """A hit as JSON-safe values: whatever stores messages can store it and give it back unchanged."""
    why = hit.explanation
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
        "matched": list(why.matched),
        "vector_rank": None if why.vector is None else why.vector.rank,
        "keyword_rank": None if why.keyword is None else why.keyword.rank,
    }


def passage_record(passage: Passage) -> dict[str, Any]:
    """A passage as JSON-safe values."""
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
    """A metadata value in what JSON has: dates as ISO text, NaN as None, anything else foreign as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)


def _snippet(hit: Hit, fence: Fence, size: int) -> str:
    shown = snippet(hit.text, hit.explanation.highlights, size)
    return fence.around(shown, hit.metadata, judged=hit.text)


def _coordinates(hit: Hit, safety: PassageSafety) -> str:
    source = _source(hit.metadata, hit.doc_id)
    parts = [
        f"doc_id={_escaped(hit.doc_id)}",
        f"chunk_id={hit.chunk_id}",
        f"score={hit.score:.2f}",
        f"ref={hit.short}",
    ]
    parts.append(f"source={_escaped(hit.doc_id) if source is None else _json(safety.name(source))}")
    if hit.also_in:  # who cites must know that it stands in several documents
        parts.append(f"also_in={_escaped([source.doc_id for source in hit.also_in[:_MOST_SOURCES]])}")
    where = safety.name(format_locator(hit.locator))
    return " ".join([*parts, *([f"({where})"] if where else [])])


def _source(metadata: Mapping[str, Any], doc_id: str) -> str | None:
    """Where a document comes from, by the first of the usual keys; None for a path, of which the id tells enough."""
    for key in ("source", "url", "path", "file", "title"):
        value = metadata.get(key)
        if isinstance(value, str) and value:
            return None if value == doc_id or PurePath(value).is_absolute() else value
    return None


def _quoted(text: str, language: Language) -> str:
    return f"“{text}”" if language == "zh" else f'"{text}"'


def _json(value: object) -> str:
    return json.dumps(json_safe(value), ensure_ascii=False)


def _escaped(value: object) -> str:
    """JSON that reads back as the value and shows nothing unseen or like a fence: an id must come back as it is."""
    return "".join(
        char if char.isprintable() and char not in FENCE_MARKS else json.dumps(char)[1:-1]
        for char in _json(value)
    )
