"""Views of results for a terminal: tables of hits, passages, sync reports, store figures, verification."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import filesize
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.terminal_text import WrappedText, printable, snippet

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from langchain_agentrag.store.verify import VerifyReport
    from langchain_agentrag.types import Explanation, Failure, Hit, Hits, IndexEvidence, Passage, SyncReport, Trace

_MOST_TERMS = 12
_MOST_DROPPED = 20
BAR_CELLS = 10
UNSURE = (
    "Nothing convincing found (confidence {confidence:.2f}); this is only the nearest there is. "
    "没有找到可信的内容，以下只是最接近的。"
)
_EIGHTHS = " ▏▎▍▌▋▊▉"
_MOST_FAILURES = 20
_NARROW = 60  # columns
_SAFE_WORD = re.compile(r"[\w@%+=:,./-]+")

# Keys of a locator, in the order in which they are displayed, with their wording.
_LOCATOR_FORMATS = {
    "page": "page {}",
    "slide": "slide {}",
    "sheet": "sheet {}",
    "row": "row {}",
    "cell": "cell {}",
    "turn": "turn {}",
    "line": "line {}",
    "heading": "{}",
}


def weight_lines(explanation: Explanation) -> list[RenderableType]:
    """Return the weights of the indexes and the BM25 score of each word."""
    vector, keyword = explanation.weights
    lines: list[RenderableType] = [
        Text(f"{explanation.fusion}: vector {vector:.0%}, keyword {keyword:.0%}", style="dim")
    ]
    if explanation.terms:
        points = " · ".join(f"{printable(term)} {value:.2f}" for term, value in explanation.terms[:_MOST_TERMS])
        rest = len(explanation.terms) - _MOST_TERMS
        lines.append(Text.assemble(("BM25 of ", "dim"), points, f" · {rest} more" if rest > 0 else ""))
    return lines


def trace_view(trace: Trace) -> RenderableType:
    """Return candidates, filter and dropped passages of a search."""
    lines: list[RenderableType] = [Text(f"{trace.considered} candidates were scored.", style="dim")]
    if trace.filter:
        lines.append(Text(f"Applied: {printable(trace.filter)}".replace("\n", " "), style="dim"))
    if trace.dropped:
        table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
        table.add_column("not in the answer", overflow="fold")
        table.add_column("score", justify="right")
        table.add_column("because", overflow="fold")
        for passage in trace.dropped[:_MOST_DROPPED]:
            name = printable(f"{passage.doc_id}#{passage.chunk_id}").replace("\n", " ")
            table.add_row(Text(name), f"{passage.score:.3f}", Text(printable(passage.reason)))
        lines.append(table)
        if (rest := len(trace.dropped) - _MOST_DROPPED) > 0:
            lines.append(Text(f"{rest} more; --json lists them", style="dim"))
    return Group(*lines)


def bar(score: float, cells: int = BAR_CELLS) -> str:
    """Return a bar of `cells` cells for a score in [0, 1]; any score above 0 shows at least a sliver."""
    eighths = round(min(max(score, 0.0), 1.0) * cells * 8)
    if score > 0:
        eighths = max(eighths, 1)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(cells)


def source_label(hit: Hit | Passage) -> str:
    """Return the source of a hit: file or document, then page, line, heading."""
    source = str(hit.metadata.get("source") or hit.doc_id)
    # A connector's id is a shorter name of the same file; other ids may be anything, such as a UUID.
    name = hit.doc_id if hit.doc_id.endswith(source.rpartition("/")[2]) else source
    return printable(" · ".join([name, *locator_parts(hit.locator)])).replace("\n", " ")


def locator_parts(locator: Mapping[str, Any]) -> list[str]:
    """Return the parts of a locator in words, unknown ones as "key value"."""
    known = [_LOCATOR_FORMATS[key].format(locator[key]) for key in _LOCATOR_FORMATS if locator.get(key) is not None]
    if (end := locator.get("end_line")) is not None and locator.get("line") not in (None, end):
        known[-1] = f"lines {locator['line']}-{end}"
    rest = [
        f"{key} {value}"
        for key, value in locator.items()
        if key not in {*_LOCATOR_FORMATS, "end_line"} and value not in (None, "")
    ]
    return known + rest


def evidence_line(hit: Hit) -> Text:
    """Return the rank and score of a hit in each index, then the words that matched."""
    explanation = hit.explanation
    line = Text.assemble(
        ("vector ", "dim"),
        _evidence(explanation.vector, "cosine {:.3f}"),
        ("   keyword ", "dim"),
        _evidence(explanation.keyword, "BM25 {:.2f}"),
    )
    if explanation.recency:
        line.append(f"   recent +{explanation.recency:.3f}", style="dim")
    if explanation.matched:
        words = ", ".join(dict.fromkeys(printable(word) for word in explanation.matched))
        line.append("   matched ", style="dim")
        line.append(words, style="green")
    return line


def _evidence(evidence: IndexEvidence | None, raw: str) -> str:
    if evidence is None:
        return "–"
    rank = f"#{evidence.rank}" if evidence.rank is not None else "not in its list,"
    return f"{rank} {evidence.score:.2f} ({raw.format(evidence.raw)})"


def highlighted_snippet(text: str, highlights: Sequence[tuple[int, int]]) -> WrappedText:
    """Return the snippet of a passage with the matched words highlighted."""
    window = snippet(text, highlights)
    line = Text(window.text)
    for start, end in window.highlights:
        line.stylize("bold yellow", start, end)
    return WrappedText(line)


def hits_table(hits: Hits) -> RenderableType:
    """Return the hits as a table, or a sentence when there are none."""
    notes = [Text(f"Incomplete: {printable(reason)}", style="yellow") for reason in hits.degraded]
    if hits.searched != hits.query:
        notes.append(Text(f"Searched for: {printable(hits.searched)}".replace("\n", " "), style="dim"))
    trace = [] if hits.trace is None else [trace_view(hits.trace)]
    if not hits:
        return Group(*notes, Text(no_hits_message(hits.query)), *trace)
    if not hits.convincing:
        notes.append(Text(UNSURE.format(confidence=hits.confidence), style="yellow"))
    return Group(*notes, _HitsTable(hits), *trace)


@dataclasses.dataclass(frozen=True, slots=True)
class _HitsTable:
    """Hits beside their scores, or below them on a narrow terminal."""

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
            weights = () if self.hits.trace is None else weight_lines(hit.explanation)
            block = Group(hit_block(hit), *weights)
            if narrow:
                cells: list[RenderableType] = [Group(Text(" ").join([Text(str(rank), "bold"), *score]), block)]
            else:
                cells = [str(rank), Text("\n").join(score), block]
            table.add_row(*cells, end_section=rank < len(self.hits))
        yield table


def hit_block(hit: Hit) -> Group:
    """Return source, snippet and evidence of one hit."""
    head = Text(source_label(hit), style="bold blue")
    if hit.agent_id is not None:
        head.append(f"  private to {printable(hit.agent_id)}", style="magenta")
    lines: list[RenderableType] = [head]
    if hit.context and hit.context != hit.locator.get("heading"):
        lines.append(Text(printable(hit.context).replace("\n", " "), style="dim", no_wrap=True, overflow="ellipsis"))
    lines += [highlighted_snippet(hit.text, hit.explanation.highlights), evidence_line(hit)]
    if hit.also_in:
        others = ", ".join(printable(f"{source.doc_id}#{source.chunk_id}") for source in hit.also_in)
        lines.append(Text.assemble(("also in ", "dim"), others.replace("\n", " ")))
    lines += [Text(step, style="dim") for step in hit.explanation.steps]
    lines.append(read_command(hit))
    return Group(*lines)


def read_command(hit: Hit) -> Text:
    """Return the command that reads the passage."""
    return Text(f"read {shell_quoted(hit.doc_id)} {hit.chunk_id}", style="dim")


def shell_quoted(word: str) -> str:
    """Quote a word for the shell where necessary."""
    word = printable(word)
    return word if _SAFE_WORD.fullmatch(word) else shlex.quote(word)


def no_hits_message(query: str) -> str:
    """Return the message of a search without hits."""
    if not query.strip():
        return "The query is empty: ask with at least one word."
    return f"Nothing found for “{printable(query)}”. Try other words, or check --agent and --filter."


def passage_view(passage: Passage) -> Group:
    """Return a passage under its source."""
    covered = f"chunk {passage.first_chunk}"
    if passage.last_chunk != passage.first_chunk:
        covered = f"chunks {passage.first_chunk}-{passage.last_chunk}"
    last = max(passage.total_chunks - 1, 0)
    head = Text.assemble((source_label(passage), "bold blue"), (f"  {covered}, last is {last}", "dim"))
    return Group(head, WrappedText(Text(printable(passage.text).expandtabs(4))))


def sync_report_view(report: SyncReport) -> Group:
    """Return the counts of a write, with the reason of everything that failed or was skipped."""
    counts = ", ".join(f"{getattr(report, name)} {name}" for name in ("added", "updated", "deleted", "unchanged"))
    work = (
        f"{_count(report.chunks, 'chunk')} written, {report.embedded} embedded, "
        f"{_count(report.reused, 'vector')} reused"
    )
    lines = [
        Text(f"{counts}, {len(report.failed)} failed, {len(report.skipped)} skipped"),
        Text(f"{work}, {report.seconds:.1f} s", "dim"),
    ]
    if report.truncated:
        lines.append(
            Text(f"{report.truncated} chunks are longer than the model reads; it saw only their beginning", "yellow")
        )
    lines += failure_lines("failed", report.failed, "red")
    lines += failure_lines("skipped", report.skipped, "dim")
    return Group(*lines)


def failure_lines(verb: str, items: Iterable[Failure], style: str) -> list[Text]:
    """Return one line per failed or skipped item, the first twenty."""
    items = list(items)
    lines = [
        Text(f"{verb}: {printable(item.key)}: {printable(item.reason)}".replace("\n", " "), style)
        for item in items[:_MOST_FAILURES]
    ]
    if len(items) > _MOST_FAILURES:
        lines.append(Text(f"{verb}: {len(items) - _MOST_FAILURES} more; --json lists all", style))
    return lines


def record_table(record: object) -> Table:
    """Return the fields of a dataclass as names and values."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    assert dataclasses.is_dataclass(record)  # noqa: S101  (callers pass dataclasses only)
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        shown = filesize.decimal(value) if field.name.startswith("bytes") else _format_value(value)
        table.add_row(field.name.replace("_", " "), Text(printable(shown)))
    return table


def verify_view(report: VerifyReport) -> Group:
    """Return the problems found by `verify` or `repair`."""
    checked = (
        f"{_count(report.documents, 'document')} in {_count(report.chunks, 'chunk')}, "
        f"{_count(report.partitions, 'partition')}"
    )
    if report.probes is not None:
        checked += f", every chunk looked into, {report.probes:,} attempts to see what belongs to another agent"
    if report.ok:
        return Group(Text.assemble(("Sound. ", "bold green"), f"Both indexes hold what the catalog says: {checked}."))
    count = len(report.problems)
    lines = [Text(f"{_count(count, 'problem')} in {checked}; `agentrag repair` mends them.", "bold red")]
    return Group(*lines, *(Text(f"- {printable(problem)}") for problem in report.problems))


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_format_value(item)}" for key, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return "\n".join(map(_format_value, value)) or "–"
    return "–" if value is None else str(value)
