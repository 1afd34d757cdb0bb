"""HTML of hits for notebooks: highlighted words, one bar per index, the trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, TypeAlias

# `types` imports this module, so its classes are not imported here.
Hit: TypeAlias = Any
Hits: TypeAlias = Any
IndexEvidence: TypeAlias = Any
Trace: TypeAlias = Any

_BLANK_LINES = re.compile(r"\n\s*\n+")
_WINDOW = 420  # characters of a passage, around its first highlight
_TERMS = 8  # terms whose scores are shown
_LEAD = 120  # of them before the highlight
_COLOURS = {"score": "#5b6bd6", "vector": "#2f9e8f", "keyword": "#d9822b"}


@cache
def _style_sheet() -> str:
    return (files("langchain_agentrag") / "notebook.css").read_text(encoding="utf-8").replace("\n", "")


def highlight_html(text: str, spans: Sequence[tuple[int, int]], *, before: str, after: str) -> str:
    """Return the text escaped for HTML, with marks around the spans."""
    pieces, last = [], 0
    for start, stop in spans:
        pieces += [escape(text[last:start]), before, escape(text[start:stop]), after]
        last = stop
    return "".join([*pieces, escape(text[last:])])


def hits_to_html(hits: Hits) -> str:
    """Return the hits as HTML: highlighted words, one bar per index, source and explanation."""
    count = "nothing found" if not hits else f"{len(hits)} hit{'' if len(hits) == 1 else 's'}"
    head = f'<b>{escape(hits.query)}</b> <span class="dim">{escape(hits.mode)} · {count}</span>'
    if hits and not hits.convincing:
        head += f' <span class="warn">nothing convincing found (confidence {hits.confidence:.2f})</span>'
    if hits.searched != hits.query:
        head += f'<div class="dim">searched for: {escape(hits.searched)}</div>'
    warnings = "".join(f'<div class="warn">incomplete: {escape(note)}</div>' for note in hits.degraded)
    rows = "".join(_row(rank, hit) for rank, hit in enumerate(hits, 1))
    trace = "" if hits.trace is None else _trace(hits.trace)
    style = f"<style>{_style_sheet()}</style>"
    return f'{style}<div class="agentrag"><div class="asked">{head}</div>{warnings}{rows}{trace}</div>'


def _trace(trace: Trace) -> str:
    facts = [f"{trace.considered} candidates scored"]
    if trace.filter:
        facts.append(f"applied: {trace.filter}")
    rows = "".join(
        f"<tr><td>{escape(one.doc_id)}#{one.chunk_id}</td><td>{one.score:.3f}</td><td>{escape(one.reason)}</td></tr>"
        for one in trace.dropped
    )
    table = f"<details><summary>{len(trace.dropped)} not in the answer</summary><table>{rows}</table></details>"
    how = escape(" · ".join(facts))
    return f'<div class="hit"><div></div><div class="dim">{how}</div><div>{table}</div></div>'


def _row(rank: int, hit: Hit) -> str:
    explanation = hit.explanation
    where = " · ".join(part for part in (_source(hit), hit.place) if part)
    owner = "" if hit.agent_id is None else f' <span class="own">private to {escape(hit.agent_id)}</span>'
    bars = (
        _bar("score", hit.score, f"{hit.score:.3f}", "fused score, 0 to 1")
        + _index_bar("vector", explanation.vector, "cosine")
        + _index_bar("keyword", explanation.keyword, "BM25")
    )
    if explanation.recency:
        bars += _bar(
            "recent", explanation.recency, f"+{explanation.recency:.3f}", "part of the score that recency added"
        )
    context = "" if not hit.context else f" › {escape(' › '.join(hit.context.split(chr(10))))}"
    return (
        f'<div class="hit"><div class="rank">{rank}</div><div>{bars}</div>'
        f'<div><span class="dim">{escape(where)}{context}</span>{owner}'
        f'<div class="text">{_window(hit)}</div>{_details(hit)}</div></div>'
    )


def _details(hit: Hit) -> str:
    """Scores of the matching terms, steps of later stages, near-duplicates."""
    explanation = hit.explanation
    terms = "".join(
        f'<span class="term" title="part of the BM25 score">{escape(term)} <b>{value:.1f}</b></span>'
        for term, value in explanation.terms[:_TERMS]
    )
    notes = list(explanation.steps)
    if hit.also_in:
        notes.append("also in " + ", ".join(f"{source.doc_id}#{source.chunk_id}" for source in hit.also_in))
    steps = f'<div class="dim">{escape("; ".join(notes))}</div>' if notes else ""
    return (f'<div class="terms">{terms}</div>' if terms else "") + steps


def _window(hit: Hit) -> str:
    """The passage around its first highlight, without blank lines."""
    spans = hit.explanation.highlights
    first = min((start for start, _ in spans), default=0)
    start = 0 if len(hit.text) <= _WINDOW else max(0, min(first - _LEAD, len(hit.text) - _WINDOW))
    end = min(len(hit.text), start + _WINDOW)
    inside = [(left - start, right - start) for left, right in spans if start <= left and right <= end]
    marked = highlight_html(hit.text[start:end].rstrip(), inside, before="<mark>", after="</mark>")
    closed = _BLANK_LINES.sub("\n", marked.lstrip())
    return f"{'…' if start else ''}{closed}{'…' if end < len(hit.text) else ''}"


def _source(hit: Hit) -> str:
    """Source of the document; its id when the source ends in it."""
    source = str(hit.metadata.get("source") or hit.doc_id)
    return hit.doc_id if source.endswith(hit.doc_id) else source


def _index_bar(name: str, evidence: IndexEvidence | None, unit: str) -> str:
    if evidence is None:
        return _bar(name, 0.0, "no evidence", f"the {name} index has no score for this passage")
    rank = "–" if evidence.rank is None else f"#{evidence.rank}"
    return _bar(
        name,
        evidence.score,
        f"{rank} · {evidence.raw:.2f}",
        f"{unit} {evidence.raw:.3f}, {evidence.score:.3f} on the common scale",
    )


def _bar(name: str, share: float, label: str, tooltip: str) -> str:
    width = round(100 * min(max(share, 0.0), 1.0))
    kind = "score" if name == "score" else "none" if not width and label == "no evidence" else ""
    return (
        f'<div class="index {kind}" title="{escape(tooltip)}"><span>{name}</span><span class="bar">'
        f'<i style="width:{width}%;background:{_COLOURS.get(name, "#8888")}"></i></span><span>{label}</span></div>'
    )
