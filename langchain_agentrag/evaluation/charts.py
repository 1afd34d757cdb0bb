"""Charts as inline SVG: no script, no network, colours from the page's style sheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from langchain_agentrag.evaluation.statistics import Interval

COLOURS = 8
"""Series that have a colour of their own; later ones take them again."""

_LABEL, _BAR, _ROW, _GAP = 150, 330, 20, 7
_TEXT = 11.5


def bars(rows: Mapping[str, Interval]) -> str:
    """One bar per row for a mean in [0, 1], with its interval as a line."""
    height = len(rows) * (_ROW + _GAP) + 4
    drawn = []
    for place, (name, found) in enumerate(rows.items()):
        top = place * (_ROW + _GAP) + 2
        middle = top + _ROW / 2
        low, high = _LABEL + _BAR * found.low, _LABEL + _BAR * found.high
        drawn.append(
            f"{_name(name, middle)}"
            f"{_bar(top, _BAR, 'track')}"
            f"{_bar(top, _BAR * found.mean, f's{place % COLOURS}')}"
            f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8M{high:.1f} {middle - 4}v8" '
            f'class="whisker"><title>{found.low:.4f} – {found.high:.4f}</title></path>'
            f'<text x="{_LABEL + _BAR + 10}" y="{middle + 4}" class="value">{found.mean:.3f}</text>'
        )
    return _svg(_LABEL + _BAR + 60, height, drawn)


def spans(rows: Mapping[str, tuple[float, float]], unit: str) -> str:
    """One bar per row from 0 to the first value, on to the second one in a lighter shade."""
    most = max((high for _, high in rows.values()), default=0.0) or 1.0
    drawn = []
    for place, (name, (low, high)) in enumerate(rows.items()):
        top = place * (_ROW + _GAP) + 2
        middle, colour = top + _ROW / 2, f"s{place % COLOURS}"
        drawn.append(
            f"{_name(name, middle)}"
            f"{_bar(top, _BAR * high / most, f'{colour} faint')}{_bar(top, _BAR * low / most, colour)}"
            f'<text x="{_LABEL + _BAR * high / most + 8:.1f}" y="{middle + 4}" class="value">'
            f"{low:.1f} · {high:.1f} {escape(unit)}</text>"
        )
    return _svg(_LABEL + _BAR + 130, len(rows) * (_ROW + _GAP) + 4, drawn)


def curves(series: Mapping[str, Sequence[float]]) -> str:
    """One line per series of shares in [0, 1], place 1 at the left."""
    left, top, width, height = 44, 10, 520, 210
    steps = max((len(values) for values in series.values()), default=1)

    def across(place: int) -> float:
        return left + width * place / max(1, steps - 1)

    drawn = [
        f'<path d="M{left} {top + height * (1 - share):.1f}h{width}" class="grid"/>'
        f'<text x="{left - 8}" y="{top + height * (1 - share) + 4:.1f}" class="tick end">{share:.0%}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1)
    ]
    drawn += [
        f'<text x="{across(place - 1):.1f}" y="{top + height + 18}" class="tick mid">{place}</text>'
        for place in _ticks(steps)
    ]
    ends = _apart([top + height * (1 - values[-1]) for values in series.values()])
    for place, ((name, values), end) in enumerate(zip(series.items(), ends, strict=True)):
        points = " ".join(
            f"{across(at):.1f},{top + height * (1 - share):.1f}" for at, share in enumerate(values)
        )
        drawn.append(
            f'<polyline points="{points}" class="line l{place % COLOURS}"/>'
            f'<text x="{left + width + 8}" y="{end + 4:.1f}" class="tick t{place % COLOURS}">'
            f"{escape(_short(name))}</text>"
        )
    return _svg(left + width + 150, top + height + 26, drawn)


def _ticks(steps: int) -> list[int]:
    return [place for place in (1, 2, 3, 5, 10, 15, 20, 25, 30, 50, 100) if place <= steps]


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights of labels moved so that no two stand on each other."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    moved, last = list(heights), -1e9
    for place in order:
        moved[place] = last = max(heights[place], last + 14)
    return moved


def _bar(top: float, width: float, kind: str) -> str:
    return f'<rect x="{_LABEL}" y="{top}" width="{width:.1f}" height="{_ROW}" rx="4" class="{kind}"/>'


def _name(name: str, middle: float) -> str:
    return (
        f'<text x="{_LABEL - 10}" y="{middle + 4}" class="label"><title>{escape(name)}</title>'
        f"{escape(_short(name))}</text>"
    )


def _short(name: str, most: int = 22) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _svg(width: float, height: float, drawn: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px" role="img" '
        f'font-size="{_TEXT}">{"".join(drawn)}</svg>'
    )
