"""Why a hit is where it is: a sentence for people, and hits drawn as HTML for notebooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any

from langchain_agentrag.types import Explanation, Hit, Hits, IndexEvidence, Trace

Spans = Sequence[tuple[int, int]]

_BLANK_LINES = re.compile(r"\n\s*\n+")
_PLACES = ("page", "sheet", "slide", "row", "cell", "line")
_SHOWN = 420  # characters of a passage that are drawn, around its first matched word
_TERMS = 8  # words whose points are drawn
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
    ".agentrag .terms{margin-top:.3em;font-size:11.5px;line-height:1.7}"
    ".agentrag .term{background:#8882;border-radius:9px;"
    "padding:.05em .6em;margin-right:.35em;white-space:nowrap}.agentrag .term b{font-weight:600;opacity:.7}"
    ".agentrag details table{font-size:12px;border-spacing:0}.agentrag details td{padding:.1em 1.2em .1em 0;"
    "text-align:left}.agentrag summary{cursor:pointer}"
    ".agentrag .own{background:#8882;border-radius:3px;padding:0 .4em}.agentrag .warn{color:#b00020}"
    "</style>"
)
_COLOURS = {"score": "#5b6bd6", "vector": "#2f9e8f", "keyword": "#d9822b"}


Terms = tuple[tuple[str, float], ...]


class LateExplanation(Explanation):
    """An explanation that looks for the matched words and their weights when they are first asked for.

    Finding them takes longer than the rest of a search, and most callers never look.
    """

    def __init__(
        self,
        text: str,
        find: Callable[[str], Spans],
        weigh: Callable[[], Terms],
        **evidence: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**evidence)
        own = object.__getattribute__(self, "__dict__")
        own["_words"], own["_terms"] = (text, find), weigh

    def over(self, text: str, find: Callable[[str], Spans]) -> LateExplanation:
        """The same evidence over another text of the same hit; nothing is marked where no word had matched."""
        own = object.__getattribute__(self, "__dict__")
        given = {field.name: object.__getattribute__(self, field.name) for field in fields(Explanation)}
        search = find if self.keyword is not None else _nothing
        known = given.pop("terms")
        return LateExplanation(text, search, own.get("_terms") or (lambda: known), **given)

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401
        own = object.__getattribute__(self, "__dict__")
        if name in {"matched", "highlights"} and "_words" in own:
            text, find = own.pop("_words")
            spans = tuple(find(text))
            object.__setattr__(self, "highlights", spans)
            object.__setattr__(self, "matched", tuple(dict.fromkeys(text[a:b] for a, b in spans)))
        elif name == "terms" and "_terms" in own:
            object.__setattr__(self, "terms", own.pop("_terms")())
        return object.__getattribute__(self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __reduce__(self) -> Any:  # noqa: ANN401
        return Explanation, _values(self)


def _values(explanation: Explanation) -> tuple[Any, ...]:
    return tuple(getattr(explanation, field.name) for field in fields(Explanation))


def _nothing(_text: str) -> Spans:
    return ()


def note(explanation: Explanation, step: str) -> None:
    """Add a step to an explanation that has not left the search yet; it is frozen for everybody else."""
    object.__setattr__(explanation, "steps", (*explanation.steps, step))


def format_locator(locator: Mapping[str, Any]) -> str:
    """Where a reader finds a passage, in words: "page 3", "sheet Q1, row 12"; "" when nothing is known."""
    return ", ".join(f"{name} {locator[name]}" for name in _PLACES if name in locator)


def explain_hit(hit: Hit) -> str:
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


def highlight_html(text: str, spans: Sequence[tuple[int, int]], *, before: str, after: str) -> str:
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
    if hits and not hits.convincing:
        head += f' <span class="warn">nothing convincing found (confidence {hits.confidence:.2f})</span>'
    if hits.searched != hits.query:
        head += f'<div class="dim">searched for: {escape(hits.searched)}</div>'
    warnings = "".join(f'<div class="warn">incomplete: {escape(note)}</div>' for note in hits.degraded)
    rows = "".join(_row(rank, hit) for rank, hit in enumerate(hits, 1))
    trail = "" if hits.trace is None else _account(hits.trace)
    return f'{_STYLE}<div class="agentrag"><div class="asked">{head}</div>{warnings}{rows}{trail}</div>'


def _account(trail: Trace) -> str:
    told = [f"{trail.considered} candidates scored"]
    if trail.filter:
        told.append(f"applied: {trail.filter}")
    rows = "".join(
        f"<tr><td>{escape(one.doc_id)}#{one.chunk_id}</td><td>{one.score:.3f}</td><td>{escape(one.reason)}</td></tr>"
        for one in trail.dropped
    )
    table = (
        f"<details><summary>{len(trail.dropped)} not in the answer</summary><table>{rows}</table></details>"
    )
    how = escape(" · ".join(told))
    return f'<div class="hit"><div></div><div class="dim">{how}</div><div>{table}</div></div>'


def _row(rank: int, hit: Hit) -> str:
    why = hit.explanation
    where = " · ".join(part for part in (_source(hit), format_locator(hit.locator)) if part)
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
        f'<div class="text">{_window(hit)}</div>{_told(hit)}</div></div>'
    )


def _told(hit: Hit) -> str:
    """Points of the words that matched, what later stages did, and where else it stands."""
    why = hit.explanation
    points = "".join(
        f'<span class="term" title="points of BM25">{escape(term)} <b>{value:.1f}</b></span>'
        for term, value in why.terms[:_TERMS]
    )
    notes = list(why.steps)
    if hit.also_in:
        notes.append("also in " + ", ".join(f"{source.doc_id}#{source.chunk_id}" for source in hit.also_in))
    told = f'<div class="dim">{escape("; ".join(notes))}</div>' if notes else ""
    return (f'<div class="terms">{points}</div>' if points else "") + told


def _window(hit: Hit) -> str:
    """The passage around its first matched word, blank lines closed up."""
    spans = hit.explanation.highlights
    first = min((start for start, _ in spans), default=0)
    start = 0 if len(hit.text) <= _SHOWN else max(0, min(first - _LEAD, len(hit.text) - _SHOWN))
    end = min(len(hit.text), start + _SHOWN)
    inside = [(left - start, right - start) for left, right in spans if start <= left and right <= end]
    shown = highlight_html(hit.text[start:end].rstrip(), inside, before="<mark>", after="</mark>")
    closed = _BLANK_LINES.sub("\n", shown.lstrip())
    return f"{'…' if start else ''}{closed}{'…' if end < len(hit.text) else ''}"


def _source(hit: Hit) -> str:
    """Where the document comes from; its id where that says the same in fewer words."""
    source = str(hit.metadata.get("source") or hit.doc_id)
    return hit.doc_id if source.endswith(hit.doc_id) else source


def _leg(name: str, leg: IndexEvidence | None, unit: str) -> str:
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
