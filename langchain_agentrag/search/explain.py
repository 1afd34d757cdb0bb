"""Why a hit is where it is: a sentence for people, and hits drawn as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any

from langchain_agentrag.records import Explanation, Hit, Hits, LegEvidence

Spans = Sequence[tuple[int, int]]

_PLACES = ("page", "sheet", "slide", "row", "cell", "line")
_SHOWN_CHARACTERS = 700
_STYLE = (
    "<style>"
    ".agentrag{border-collapse:collapse;font:13px/1.5 system-ui,sans-serif;max-width:64em;color:inherit}"
    ".agentrag td{vertical-align:top;padding:.5em .6em;border-top:1px solid #8884;text-align:left}"
    ".agentrag mark{background:#ffe08a;color:#222;padding:0 .1em;border-radius:2px}"
    ".agentrag .leg{display:grid;grid-template-columns:5em 7em auto;gap:.5em;align-items:center;white-space:nowrap}"
    ".agentrag .bar{background:#8883;border-radius:3px;height:.6em}"
    ".agentrag .bar i{display:block;height:100%;border-radius:3px}"
    ".agentrag .where{opacity:.75}.agentrag .warn{color:#b00020}"
    ".agentrag .text{white-space:pre-wrap;margin-top:.3em}"
    "</style>"
)
_COLOURS = {"score": "#5b6bd6", "vector": "#2f9e8f", "keyword": "#d9822b"}


class LateExplanation(Explanation):
    """An explanation that looks for the matched words when they are first asked for.

    Finding them takes longer than the rest of a search, and most callers never look.
    """

    def __init__(self, find: Callable[[], Spans], text: str, **evidence: Any) -> None:  # noqa: ANN401
        super().__init__(**evidence)
        object.__setattr__(self, "_find", find)
        object.__setattr__(self, "_text", text)

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401
        if name in {"matched", "highlights"} and "_find" in object.__getattribute__(self, "__dict__"):
            own = object.__getattribute__(self, "__dict__")
            spans = tuple(own["_find"]())
            object.__setattr__(self, "highlights", spans)
            object.__setattr__(self, "matched", tuple(dict.fromkeys(own["_text"][a:b] for a, b in spans)))
            own.clear()
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __reduce__(self) -> Any:  # noqa: ANN401
        return Explanation, _values(self)


def _values(explanation: Explanation) -> tuple[Any, ...]:
    return tuple(getattr(explanation, field.name) for field in fields(Explanation))


def place(locator: Mapping[str, Any]) -> str:
    """Where a reader finds a passage, in words: "page 3", "sheet Q1, row 12"; "" when nothing is known."""
    return ", ".join(f"{name} {locator[name]}" for name in _PLACES if name in locator)


def reason(hit: Hit) -> str:
    """Why the hit is there, in one line."""
    why = hit.explanation
    parts = [
        f"{name} #{leg.rank or '-'} ({leg.raw:.3f})"
        for name, leg in (("vector", why.vector), ("keyword", why.keyword))
        if leg is not None
    ]
    if why.matched:
        parts.append("matched " + ", ".join(why.matched[:8]))
    return "; ".join(parts) or "no leg has evidence; it only fills up to k"


def highlighted(text: str, spans: Sequence[tuple[int, int]], *, before: str, after: str) -> str:
    """The text with marks around the spans and everything escaped for HTML."""
    pieces, last = [], 0
    for start, stop in spans:
        pieces += [escape(text[last:start]), before, escape(text[start:stop]), after]
        last = stop
    return "".join([*pieces, escape(text[last:])])


def hits_to_html(hits: Hits) -> str:
    """The hits as an HTML table: highlighted words, one bar per leg, the source and the reason."""
    head = (
        f"<b>{escape(hits.query)}</b> · {escape(hits.mode)} · {len(hits)} hit{'' if len(hits) == 1 else 's'}"
    )
    warnings = "".join(f'<div class="warn">degraded: {escape(note)}</div>' for note in hits.degraded)
    rows = "".join(_row(rank, hit) for rank, hit in enumerate(hits, 1))
    return f'{_STYLE}<div class="agentrag-hits">{head}{warnings}<table class="agentrag">{rows}</table></div>'


def _row(rank: int, hit: Hit) -> str:
    why = hit.explanation
    where = " · ".join(
        part for part in (str(hit.metadata.get("source", hit.doc_id)), place(hit.locator)) if part
    )
    owner = "" if hit.agent_id is None else f" · private to {escape(hit.agent_id)}"
    bars = (
        _bar("score", hit.score, f"{hit.score:.3f}")
        + _leg("vector", why.vector)
        + _leg("keyword", why.keyword)
    )
    text = hit.text[:_SHOWN_CHARACTERS]
    spans = [(start, stop) for start, stop in why.highlights if stop <= len(text)]
    shown = highlighted(text, spans, before="<mark>", after="</mark>") + (
        "…" if len(hit.text) > len(text) else ""
    )
    context = f'<div class="where">{escape(hit.context)}</div>' if hit.context else ""
    return (
        f"<tr><td>{rank}</td><td>{bars}</td>"
        f'<td><span class="where">{escape(where)}{owner}</span>{context}<div class="text">{shown}</div></td></tr>'
    )


def _leg(name: str, leg: LegEvidence | None) -> str:
    if leg is None:
        return _bar(name, 0.0, "–")
    return _bar(name, leg.score, f"#{leg.rank or '-'} · {leg.raw:.3f}")


def _bar(name: str, share: float, label: str) -> str:
    width = round(100 * min(max(share, 0.0), 1.0))
    return (
        f'<div class="leg"><span>{name}</span><span class="bar"><i style="width:{width}%;'
        f'background:{_COLOURS[name]}"></i></span><span>{label}</span></div>'
    )
