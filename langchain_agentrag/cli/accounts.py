"""What `search --explain` adds: the weight of each word, what was searched for, and what was dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.snippets import printable

if TYPE_CHECKING:
    from langchain_agentrag.types import Explanation, Trail

_MOST_TERMS = 12
_MOST_DROPPED = 20


def weights_of(why: Explanation) -> list[RenderableType]:
    """Shares of the legs, and the points each word earned."""
    lines: list[RenderableType] = [
        Text(f"{why.fusion}: vector {why.weights[0]:.0%}, keyword {why.weights[1]:.0%}", style="dim")
    ]
    if why.terms:
        points = " · ".join(f"{printable(term)} {value:.2f}" for term, value in why.terms[:_MOST_TERMS])
        rest = len(why.terms) - _MOST_TERMS
        lines.append(Text.assemble(("BM25 of ", "dim"), points, f" · {rest} more" if rest > 0 else ""))
    return lines


def trail_view(trail: Trail) -> RenderableType:
    """How the answer came about."""
    lines: list[RenderableType] = [Text(f"{trail.considered} candidates were scored.", style="dim")]
    if trail.filter:
        lines.append(Text(f"Applied: {printable(trail.filter)}".replace("\n", " "), style="dim"))
    if trail.dropped:
        table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
        table.add_column("not in the answer", overflow="fold")
        table.add_column("score", justify="right")
        table.add_column("because", overflow="fold")
        for one in trail.dropped[:_MOST_DROPPED]:
            name = printable(f"{one.doc_id}#{one.chunk_id}").replace("\n", " ")
            table.add_row(Text(name), f"{one.score:.3f}", Text(printable(one.reason)))
        lines.append(table)
        if (rest := len(trail.dropped) - _MOST_DROPPED) > 0:
            lines.append(Text(f"{rest} more; --json lists them", style="dim"))
    return Group(*lines)
