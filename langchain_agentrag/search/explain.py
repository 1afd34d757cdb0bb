"""Why a hit is where it is: a sentence for people, and hits drawn as HTML for notebooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any

from langchain_agentrag.records import Explanation, Hit, Hits, LegEvidence

Spans = Sequence[tuple[int, int]]

_BLANK_LINES = re.compile(r"\n\s*\n+")
_PLACES = ("page", "sheet", "slide", "row", "cell", "line")
_SHOWN = 420  # characters of a passage that are drawn, around its first matched word
_LEAD = 120  # of them before that word
_STYLE = (
    "<style>"
    ".agentrag{font:13px/1.55 system-ui,sans-serif;max-width:62em;color:inherit;margin:.3em 0 1em}"
    ".agentrag .asked{font-size:14px;margin-bottom:.4em}.agentrag .dim{opacity:.65}"
    ".agentrag .hit{display:grid;grid-template-columns:1.6em 17.5em minmax(0,1fr);gap:0 1em;padding:.7em 0;"
    "border-top:1px solid #8884}"
    ".agentrag .rank{text-align:right;font-weight:600}"
    ".agentrag .leg{display:grid;grid-template-columns:4.6em 5em auto;gap:.6em;align-items:center;white-space:nowrap;"
    "font-variant-numeric:tabular-nums;line-height:1.45}"
    ".agentrag .leg.score{font-weight:600}.agentrag .leg.none{opacity:.45}"
    ".agentrag .bar{background:#8883;border-radius:3px;height:.55em;overflow:hidden}"
    ".agentrag .bar i{display:block;height:100%}"
    ".agentrag mark{background:#ffe08a;color:#222;padding:0 .12em;border-radius:2px}"
    ".agentrag .text{white-space:pre-line;overflow-wrap:anywhere;margin-top:.2em}"
    ".agentrag .own{background:#8882;border-radius:3px;padding:0 .4em}.agentrag .warn{color:#b00020}"
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
    if why.recency:
        parts.append(f"recent +{why.recency:.3f}")
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
    """The hits as HTML: highlighted words, one bar per leg, the source and the reason."""
    found = "nothing found" if not hits else f"{len(hits)} hit{'' if len(hits) == 1 else 's'}"
    head = f'<b>{escape(hits.query)}</b> <span class="dim">{escape(hits.mode)} · {found}</span>'
    warnings = "".join(f'<div class="warn">incomplete: {escape(note)}</div>' for note in hits.degraded)
    rows = "".join(_row(rank, hit) for rank, hit in enumerate(hits, 1))
    return f'{_STYLE}<div class="agentrag"><div class="asked">{head}</div>{warnings}{rows}</div>'


def _row(rank: int, hit: Hit) -> str:
    why = hit.explanation
    where = " · ".join(part for part in (_source(hit), place(hit.locator)) if part)
    owner = "" if hit.agent_id is None else f' <span class="own">private to {escape(hit.agent_id)}</span>'
    bars = (
        _bar("score", hit.score, f"{hit.score:.3f}", "fused score, 0 to 1")
        + _leg("vector", why.vector, "cosine")
        + _leg("keyword", why.keyword, "BM25")
    )
    if why.recency:
        bars += _bar("recent", why.recency, f"+{why.recency:.3f}", "what being recent added to the score")
    context = "" if not hit.context else f" › {escape(' › '.join(hit.context.split(chr(10))))}"
    return (
        f'<div class="hit"><div class="rank">{rank}</div><div>{bars}</div>'
        f'<div><span class="dim">{escape(where)}{context}</span>{owner}'
        f'<div class="text">{_window(hit)}</div></div></div>'
    )


def _window(hit: Hit) -> str:
    """The passage around its first matched word, blank lines closed up."""
    spans = hit.explanation.highlights
    first = min((start for start, _ in spans), default=0)
    start = 0 if len(hit.text) <= _SHOWN else max(0, min(first - _LEAD, len(hit.text) - _SHOWN))
    end = min(len(hit.text), start + _SHOWN)
    inside = [(left - start, right - start) for left, right in spans if start <= left and right <= end]
    shown = highlighted(hit.text[start:end].rstrip(), inside, before="<mark>", after="</mark>")
    closed = _BLANK_LINES.sub("\n", shown.lstrip())
    return f"{'…' if start else ''}{closed}{'…' if end < len(hit.text) else ''}"


def _source(hit: Hit) -> str:
    """Where the document comes from; its id where that says the same in fewer words."""
    source = str(hit.metadata.get("source") or hit.doc_id)
    return hit.doc_id if source.endswith(hit.doc_id) else source


def _leg(name: str, leg: LegEvidence | None, unit: str) -> str:
    if leg is None:
        return _bar(name, 0.0, "no evidence", f"the {name} leg says nothing of this passage")
    rank = "–" if leg.rank is None else f"#{leg.rank}"
    return _bar(
        name,
        leg.score,
        f"{rank} · {leg.raw:.2f}",
        f"{unit} {leg.raw:.3f}, {leg.score:.3f} on the common scale",
    )


def _bar(name: str, share: float, label: str, told: str) -> str:
    width = round(100 * min(max(share, 0.0), 1.0))
    kind = "score" if name == "score" else "none" if not width and label == "no evidence" else ""
    return (
        f'<div class="leg {kind}" title="{escape(told)}"><span>{name}</span><span class="bar">'
        f'<i style="width:{width}%;background:{_COLOURS.get(name, "#8888")}"></i></span><span>{label}</span></div>'
    )
