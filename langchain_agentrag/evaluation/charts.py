"""Charts of the HTML report: SVG by matplotlib, with labels as text, so that the browser's fonts draw Chinese."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from langchain_agentrag.errors import MissingExtraError
from langchain_agentrag.evaluation.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = ("#2f9e8f", "#d9822b", "#5b6bd6", "#b0529c", "#7a8b2f", "#3f8fc9", "#a8652f", "#6f7480")
_INK = "#123456"  # replaced by the text color of the page, which depends on the color scheme
_GRID = (0.5, 0.5, 0.5, 0.2)
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "text.parse_math": False,  # a "$" in the name of a setting is a dollar
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys(("axes.spines.left", "axes.spines.right", "axes.spines.top", "axes.spines.bottom"), False),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 0),
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_LABEL_LENGTH = 22


def interval_chart(means: Mapping[str, Interval]) -> str:
    """Return a bar per setting for its mean, with the confidence interval as a line."""

    def draw(axes: Axes) -> None:
        limit = max(1.0, *(mean.high for mean in means.values()))
        axes.barh(range(len(means)), limit, color=_GRID, clip_on=False)
        for row, (mean, color) in enumerate(zip(means.values(), cycle(_COLORS), strict=False)):
            axes.barh(row, mean.mean, color=color, clip_on=False)
            axes.hlines(row, mean.low, mean.high, color=_INK, linewidth=1.4, clip_on=False)
            label = f"{mean.mean:.3f}  ({mean.low:.3f} – {mean.high:.3f})"
            axes.text(limit * 1.02, row, label, va="center")
        _label_rows(axes, means, limit)

    return _svg(draw, (2.5, 0.32 * len(means)))


def latency_chart(milliseconds: Mapping[str, tuple[float, float]]) -> str:
    """Return a bar per setting for the median, continued in a lighter shade to the 95th percentile."""

    def draw(axes: Axes) -> None:
        limit = max((high for _, high in milliseconds.values()), default=0.0) or 1.0
        for row, ((median, high), color) in enumerate(zip(milliseconds.values(), cycle(_COLORS), strict=False)):
            axes.barh(row, high, color=color, alpha=0.32, clip_on=False)
            axes.barh(row, median, color=color, clip_on=False)
            axes.text(high + limit * 0.02, row, f"{median:.1f} · {high:.1f} ms", va="center")
        _label_rows(axes, milliseconds, limit)

    return _svg(draw, (5.5, 0.32 * len(milliseconds)))


def success_chart(shares: Mapping[str, Sequence[float]]) -> str:
    """Return a curve per setting: share of the questions with an expected source among the first n results."""
    depth = max((len(values) for values in shares.values()), default=1)

    def draw(axes: Axes) -> None:
        lines = [
            axes.plot(range(1, len(values) + 1), values, color=color, linewidth=2, clip_on=False)[0]
            for values, color in zip(shares.values(), cycle(_COLORS), strict=False)
        ]
        axes.set_ylim(0, 1)
        axes.set_xlim(1, max(2, depth))
        axes.set_xticks([rank for rank in (1, 2, 3, 5, 10, 15, 20, 25, 30, 50, 100) if rank <= depth])
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
        axes.grid(axis="y", color=_GRID, clip_on=False)
        labels = [_label(name) for name in shares]
        axes.legend(lines, labels, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)

    return _svg(draw, (6.5, 2.6))


def _label_rows(axes: Axes, names: Iterable[str], limit: float) -> None:
    labels = [_label(name) for name in names]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlim(0, limit)
    axes.set_xticks([])


def _label(name: str) -> str:
    return name if len(name) <= _LABEL_LENGTH else name[: _LABEL_LENGTH - 1] + "…"


def _svg(draw: Any, inches: tuple[float, float]) -> str:  # noqa: ANN401  (a function of axes)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("Charts of an evaluation", "eval") from error
    file = io.StringIO()
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # matplotlib's own font has no Chinese glyphs; it only measures the labels, the browser draws them
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=inches)
        draw(figure.add_axes((0, 0, 1, 1)))
        figure.savefig(file, format="svg", transparent=True, bbox_inches="tight", metadata=_NO_METADATA)
    svg = file.getvalue()
    return svg[svg.index("<svg") :].replace(_INK, "currentColor")
