"""Line breaking for mixed Chinese and English. Rich breaks at spaces only."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import get_character_cell_size
from rich.console import Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.terminal_text import printable, snippet

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from langchain_agentrag.cli.sync import SourceOutcome
    from langchain_agentrag.store.verify import VerifyReport
    from langchain_agentrag.types import (
        Explanation,
        Failure,
        Hit,
        Hits,
        IndexEvidence,
        Passage,
        SyncReport,
        Trace,
    )

_NEVER_FIRST = frozenset("，。、；：！？）】》」』”’…,.;:!?)]}%")
_NEVER_LAST = frozenset("（【《「『“‘([{")


@dataclass(frozen=True, slots=True)
class Flow:
    """A text that breaks at spaces and between wide characters."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, each within the width."""
        for line in self.text.split("\n", allow_blank=True):
            for part in line.divide(breaks(line.plain, options.max_width)):
                part.rstrip()
                part.no_wrap = True
                yield part

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """As wide as there is room for."""
        return Measurement(min(20, options.max_width), options.max_width)


def breaks(line: str, width: int) -> list[int]:
    """Offsets at which to cut the line so that each piece fits into `width` cells."""
    cuts: list[int] = []
    start = cells = 0
    last_chance = None
    for position, char in enumerate(line):
        if position > start and _may_break(line, position):
            last_chance = position
        size = get_character_cell_size(char)
        while cells + size > width and position > start and char != " ":
            cut = position if last_chance is None else last_chance
            cuts.append(cut)
            start, last_chance = cut, None
            cells = sum(map(get_character_cell_size, line[start:position]))
        cells += size
    return cuts


def _may_break(line: str, position: int) -> bool:
    before, after = line[position - 1], line[position]
    if before in _NEVER_LAST or after in _NEVER_FIRST or after == " ":
        return False
    return before == " " or get_character_cell_size(before) == 2 or get_character_cell_size(after) == 2  # noqa: PLR2004


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


def trail_view(trail: Trace) -> RenderableType:
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


BAR_CELLS = 10
UNSURE = (
    "Nothing convincing found (confidence {confidence:.2f}); this is only the nearest there is. "
    "没有找到可信的内容，以下只是最接近的。"
)
_EIGHTHS = " ▏▎▍▌▋▊▉"
_MOST_FAILURES = 20
_NARROW = 60  # columns
_KILO = 1000
_SAFE_WORD = re.compile(r"[\w@%+=:,./-]+")

# Place names, in the order in which a reader narrows down, with how each is spoken.
_PLACES = {
    "page": "page {}",
    "slide": "slide {}",
    "sheet": "sheet {}",
    "row": "row {}",
    "cell": "cell {}",
    "turn": "turn {}",
    "line": "line {}",
    "heading": "{}",
}


def bar(score: float, cells: int = BAR_CELLS) -> str:
    """A bar of `cells` cells for a score in [0, 1]; any score above 0 shows at least a sliver."""
    eighths = round(min(max(score, 0.0), 1.0) * cells * 8)
    if score > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(cells)


def source_of(hit: Hit | Passage) -> str:
    """Where a hit comes from, in words: the file or the document, then page, line, heading."""
    source = str(hit.metadata.get("source") or hit.doc_id)
    # A connector's id is the shorter way to say the same file; other ids may be anything, a UUID say.
    name = hit.doc_id if hit.doc_id.endswith(source.rpartition("/")[2]) else source
    return printable(" · ".join([name, *place(hit.locator)])).replace("\n", " ")


def place(locator: Mapping[str, Any]) -> list[str]:
    """The parts of a locator in words, unknown ones as "key value"."""
    known = [_PLACES[key].format(locator[key]) for key in _PLACES if locator.get(key) is not None]
    if (end := locator.get("end_line")) is not None and locator.get("line") not in {None, end}:
        known[-1] = f"lines {locator['line']}-{end}"
    rest = [
        f"{key} {value}"
        for key, value in locator.items()
        if key not in {*_PLACES, "end_line"} and value not in {None, ""}
    ]
    return known + rest


def reasons(hit: Hit) -> Text:
    """Why the hit is here: rank and score in each leg, then the words that matched."""
    why = hit.explanation
    line = Text.assemble(
        ("vector ", "dim"),
        _evidence(why.vector, "cosine {:.3f}"),
        ("   keyword ", "dim"),
        _evidence(why.keyword, "BM25 {:.2f}"),
    )
    if why.recency:
        line.append(f"   recent +{why.recency:.3f}", style="dim")
    if why.matched:
        words = ", ".join(dict.fromkeys(printable(word) for word in why.matched))
        line.append("   matched ", style="dim")
        line.append(words, style="green")
    return line


def _evidence(leg: IndexEvidence | None, raw: str) -> str:
    if leg is None:
        return "–"
    rank = f"#{leg.rank}" if leg.rank is not None else "not in its list,"
    return f"{rank} {leg.score:.2f} ({raw.format(leg.raw)})"


def marked(text: str, highlights: Sequence[tuple[int, int]]) -> Flow:
    """The snippet of a passage with the matched words standing out."""
    shown = snippet(text, highlights)
    line = Text(shown.text)
    for start, end in shown.highlights:
        line.stylize("bold yellow", start, end)
    return Flow(line)


def hits_table(hits: Hits) -> RenderableType:
    """The hits as a table, or a sentence when there are none."""
    notes = [Text(f"Leg missing: {printable(reason)}", style="yellow") for reason in hits.degraded]
    if hits.searched != hits.query:
        notes.append(Text(f"Searched for: {printable(hits.searched)}".replace("\n", " "), style="dim"))
    told = [] if hits.trace is None else [trail_view(hits.trace)]
    if not hits:
        return Group(*notes, Text(no_hits(hits.query)), *told)
    if not hits.convincing:
        notes.append(Text(UNSURE.format(confidence=hits.confidence), style="yellow"))
    return Group(*notes, _Ranking(hits), *told)


@dataclasses.dataclass(frozen=True, slots=True)
class _Ranking:
    """Hits side by side with their scores, or below them where there is no room for two columns."""

    hits: Hits

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < _NARROW
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True, show_header=not narrow)
        if not narrow:
            table.add_column("#", justify="right", style="bold", no_wrap=True)
            table.add_column("score", no_wrap=True, width=BAR_CELLS)
        table.add_column("passage, and why it is here", ratio=1, overflow="fold")
        for rank, hit in enumerate(self.hits, start=1):
            score = [
                Text(bar(hit.score), "cyan"),
                Text(f"{hit.score:.3f}", "bold"),
                Text(f"conf {hit.confidence:.2f}", "dim"),
            ]
            weights = () if self.hits.trace is None else weights_of(hit.explanation)
            block = Group(hit_block(hit), *weights)
            if narrow:
                cells: list[RenderableType] = [
                    Group(Text(" ").join([Text(str(rank), "bold"), *score]), block)
                ]
            else:
                cells = [str(rank), Text("\n").join(score), block]
            table.add_row(*cells, end_section=rank < len(self.hits))
        yield table


def hit_block(hit: Hit) -> Group:
    """Source, snippet and reasons of one hit, one below the other."""
    head = Text(source_of(hit), style="bold blue")
    if hit.agent_id is not None:
        head.append(f"  private to {printable(hit.agent_id)}", style="magenta")
    lines: list[RenderableType] = [head]
    if hit.context and hit.context != hit.locator.get("heading"):
        lines.append(
            Text(printable(hit.context).replace("\n", " "), style="dim", no_wrap=True, overflow="ellipsis")
        )
    lines += [marked(hit.text, hit.explanation.highlights), reasons(hit)]
    if hit.also_in:
        others = ", ".join(printable(f"{source.doc_id}#{source.chunk_id}") for source in hit.also_in)
        lines.append(Text.assemble(("also in ", "dim"), others.replace("\n", " ")))
    lines += [Text(step, style="dim") for step in hit.explanation.steps]
    lines.append(address(hit))
    return Group(*lines)


def address(hit: Hit) -> Text:
    """What to type to read on."""
    return Text(f"read {quoted(hit.doc_id)} {hit.chunk_id}", style="dim")


def quoted(word: str) -> str:
    """The word as a shell takes it, plain if it can be."""
    word = printable(word)
    return word if _SAFE_WORD.fullmatch(word) else shlex.quote(word)


def no_hits(query: str) -> str:
    """What to say when nothing was found."""
    if not query.strip():
        return "The query is empty: ask with at least one word."
    return f"Nothing found for “{printable(query)}”. Try other words, or check --agent and --filter."


def passage_view(passage: Passage) -> Group:
    """A passage that was read by address, under its source."""
    covered = f"chunk {passage.first_chunk}"
    if passage.last_chunk != passage.first_chunk:
        covered = f"chunks {passage.first_chunk}-{passage.last_chunk}"
    last = max(passage.total_chunks - 1, 0)
    head = Text.assemble((source_of(passage), "bold blue"), (f"  {covered}, last is {last}", "dim"))
    return Group(head, Flow(Text(printable(passage.text).expandtabs(4))))


def report_view(report: SyncReport) -> Group:
    """What a write did, with the reason of everything that was left out."""
    counts = ", ".join(
        f"{getattr(report, name)} {name}" for name in ("added", "updated", "deleted", "unchanged")
    )
    work = (
        f"{_counted(report.chunks, 'chunk')} written, {report.embedded} embedded, "
        f"{_counted(report.reused, 'vector')} reused"
    )
    lines = [
        Text(f"{counts}, {len(report.failed)} failed, {len(report.skipped)} skipped"),
        Text(f"{work}, {report.seconds:.1f} s", "dim"),
    ]
    if report.truncated:
        lines.append(
            Text(
                f"{report.truncated} chunks are longer than the model reads; it saw only their beginning",
                "yellow",
            )
        )
    lines += _reasons_of("failed", report.failed, "red")
    lines += _reasons_of("skipped", report.skipped, "dim")
    return Group(*lines)


def sources_view(outcomes: Sequence[SourceOutcome]) -> Group:
    """What became of each source of a file, and why where it failed."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    counted = ("added", "updated", "deleted", "unchanged")
    for name in ("source", "of", *counted, "failed"):
        table.add_column(name, justify="left" if name in {"source", "of"} else "right", overflow="fold")
    notes: list[Text] = []
    for outcome in outcomes:
        report, name = outcome.report, printable(outcome.name)
        whose = "–" if outcome.agent_id is None else printable(outcome.agent_id)
        failed = "all" if outcome.error else str(len(report.failed))
        cells = (str(getattr(report, count)) for count in counted)
        style = "red" if outcome.failed else "dim" if outcome.removed else None
        table.add_row(Text(name), Text(whose), *cells, failed, style=style)
        if outcome.error:
            notes.append(Text(f"{name} failed: {printable(outcome.error)}".replace("\n", " "), "red"))
        notes += _reasons_of(f"{name} failed", report.failed, "red")
        notes += _reasons_of(f"{name} skipped", report.skipped, "dim")
        if outcome.removed and not report.deleted:
            kept = f"{name} is not in the file any more; its documents are kept, --prune removes them"
            notes.append(Text(kept, "yellow"))
    return Group(table, *notes)


def _reasons_of(verb: str, items: Iterable[Failure], style: str) -> list[Text]:
    items = list(items)
    lines = [
        Text(f"{verb}: {printable(item.key)}: {printable(item.reason)}".replace("\n", " "), style)
        for item in items[:_MOST_FAILURES]
    ]
    if len(items) > _MOST_FAILURES:
        lines.append(Text(f"{verb}: {len(items) - _MOST_FAILURES} more; --json lists all", style))
    return lines


def facts_table(record: object) -> Table:
    """Any record as names and values."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    assert dataclasses.is_dataclass(record)  # noqa: S101  (only records come here)
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        shown = size(value) if field.name.startswith("bytes") else _value(value)
        table.add_row(field.name.replace("_", " "), Text(printable(shown)))
    return table


def verdict_view(report: VerifyReport) -> Group:
    """What a check of the store found."""
    checked = (
        f"{_counted(report.documents, 'document')} in {_counted(report.chunks, 'chunk')}, "
        f"{_counted(report.partitions, 'partition')}"
    )
    if report.probes is not None:
        checked += (
            f", every chunk looked into, {report.probes:,} attempts to see what belongs to another agent"
        )
    if report.ok:
        return Group(
            Text.assemble(("Sound. ", "bold green"), f"Both legs hold what the catalog says: {checked}.")
        )
    count = len(report.problems)
    lines = [
        Text(
            f"{_counted(count, 'problem')} in {checked}; `agentrag repair` mends them.",
            "bold red",
        )
    ]
    return Group(*lines, *(Text(f"- {printable(problem)}") for problem in report.problems))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: int) -> str:
    """A number of bytes in words."""
    amount, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while amount >= _KILO and len(units) > 1:
        amount, _ = amount / _KILO, units.pop(0)
    return f"{amount:,.0f} {units[0]}" if units[0] == "bytes" else f"{amount:,.1f} {units[0]}"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_value(item)}" for key, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return "\n".join(map(_value, value)) or "–"
    return "–" if value is None else str(value)
