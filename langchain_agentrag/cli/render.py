"""Views of results for a terminal: tables of hits, passages, sync reports, store figures, verification."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich import filesize
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.language import _, plural, sentence, translate
from langchain_agentrag.cli.terminal_text import WrappedText, printable, snippet

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from langchain_agentrag.store.verify import VerifyReport
    from langchain_agentrag.types import Explanation, Failure, Hit, Hits, IndexEvidence, Passage, SyncReport, Trace

_MOST_TERMS = 12
_MOST_DROPPED = 20
BAR_CELLS = 10
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
        Text(
            _(
                "{fusion}: vector {vector}, keyword {keyword}",
                fusion=explanation.fusion,
                vector=f"{vector:.0%}",
                keyword=f"{keyword:.0%}",
            ),
            style="dim",
        )
    ]
    if explanation.terms:
        points = " · ".join(f"{printable(term)} {value:.2f}" for term, value in explanation.terms[:_MOST_TERMS])
        rest = len(explanation.terms) - _MOST_TERMS
        more = f" · {_('{n} more', n=rest)}" if rest > 0 else ""
        lines.append(Text.assemble((_("BM25 of "), "dim"), points, more))
    return lines


def trace_view(trace: Trace) -> RenderableType:
    """Return candidates, filter and dropped passages of a search."""
    lines: list[RenderableType] = [
        Text(plural("{n} candidate was scored.", "{n} candidates were scored.", trace.considered), style="dim")
    ]
    if trace.filter:
        lines.append(Text(_("Applied: {filter}", filter=printable(trace.filter)).replace("\n", " "), style="dim"))
    if trace.dropped:
        table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
        table.add_column(_("not in the answer"), overflow="fold")
        table.add_column(_("score"), justify="right")
        table.add_column(_("because"), overflow="fold")
        for passage in trace.dropped[:_MOST_DROPPED]:
            name = printable(f"{passage.doc_id}#{passage.chunk_id}").replace("\n", " ")
            table.add_row(Text(name), f"{passage.score:.3f}", Text(printable(translate(passage.reason))))
        lines.append(table)
        if (rest := len(trace.dropped) - _MOST_DROPPED) > 0:
            lines.append(Text(_("{n} more; --json lists them", n=rest), style="dim"))
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
    known = [_(_LOCATOR_FORMATS[key]).format(locator[key]) for key in _LOCATOR_FORMATS if locator.get(key) is not None]
    if (end := locator.get("end_line")) is not None and locator.get("line") not in (None, end):
        known[-1] = _("lines {first}-{last}", first=locator["line"], last=end)
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
        (f"{_('vector')} ", "dim"),
        _evidence(explanation.vector, _("cosine {:.3f}")),
        (f"   {_('keyword')} ", "dim"),
        _evidence(explanation.keyword, "BM25 {:.2f}"),
    )
    if explanation.recency:
        line.append(f"   {_('recent')} +{explanation.recency:.3f}", style="dim")
    if explanation.matched:
        words = ", ".join(dict.fromkeys(printable(word) for word in explanation.matched))
        line.append(f"   {_('matched')} ", style="dim")
        line.append(words, style="green")
    return line


def _evidence(evidence: IndexEvidence | None, raw: str) -> str:
    if evidence is None:
        return "–"
    rank = f"#{evidence.rank}" if evidence.rank is not None else _("not in its list,")
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
    notes = [
        Text(printable(sentence("Incomplete: {reason}", reason=reason)), style="yellow") for reason in hits.degraded
    ]
    if hits.searched != hits.query:
        notes.append(Text(_("Searched for: {query}", query=printable(hits.searched)).replace("\n", " "), style="dim"))
    trace = [] if hits.trace is None else [trace_view(hits.trace)]
    if not hits:
        return Group(*notes, Text(no_hits_message(hits.query)), *trace)
    if not hits.convincing:
        text = _(
            "Nothing convincing found (confidence {confidence}); this is only the nearest there is.",
            confidence=f"{hits.confidence:.2f}",
        )
        notes.append(Text(text, style="yellow"))
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
            table.add_column(_("score"), no_wrap=True, width=BAR_CELLS)
        table.add_column(_("passage, and why it is here"), ratio=1, overflow="fold")
        for rank, hit in enumerate(self.hits, start=1):
            score = [
                Text(bar(hit.score), "cyan"),
                Text(f"{hit.score:.3f}", "bold"),
                Text(_("conf {confidence}", confidence=f"{hit.confidence:.2f}"), "dim"),
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
        head.append(f"  {_('private to {agent}', agent=printable(hit.agent_id))}", style="magenta")
    lines: list[RenderableType] = [head]
    if hit.context and hit.context != hit.locator.get("heading"):
        lines.append(Text(printable(hit.context).replace("\n", " "), style="dim", no_wrap=True, overflow="ellipsis"))
    lines += [highlighted_snippet(hit.text, hit.explanation.highlights), WrappedText(evidence_line(hit))]
    if hit.also_in:
        others = ", ".join(printable(f"{source.doc_id}#{source.chunk_id}") for source in hit.also_in)
        lines.append(Text.assemble((f"{_('also in')} ", "dim"), others.replace("\n", " ")))
    lines += [Text(translate(step), style="dim") for step in hit.explanation.steps]
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
    return _("Nothing found for “{query}”. Try other words, or check --agent and --filter.", query=printable(query))


def passage_view(passage: Passage) -> Group:
    """Return a passage under its source."""
    last = max(passage.total_chunks - 1, 0)
    if passage.last_chunk == passage.first_chunk:
        covered = _("chunk {first}, last is {last}", first=passage.first_chunk, last=last)
    else:
        covered = _(
            "chunks {first}-{end}, last is {last}", first=passage.first_chunk, end=passage.last_chunk, last=last
        )
    head = WrappedText(Text.assemble((source_label(passage), "bold blue"), (f"  {covered}", "dim")))
    return Group(head, WrappedText(Text(printable(passage.text).expandtabs(4))))


def sync_report_view(report: SyncReport, empty: Sequence[object] = ()) -> Group:
    """Return the counts of a write, with the reason of everything that failed or was skipped.

    Args:
        report: The report.
        empty: Paths in which no file was found.
    """
    counts = _(
        "{added} added, {updated} updated, {deleted} deleted, {unchanged} unchanged, {failed} failed, "
        "{skipped} skipped",
        added=report.added,
        updated=report.updated,
        deleted=report.deleted,
        unchanged=report.unchanged,
        failed=len(report.failed),
        skipped=len(report.skipped),
    )
    work = _(
        "{chunks} written, {embedded} embedded, {vectors} reused, {seconds} s",
        chunks=plural("{n} chunk", "{n} chunks", report.chunks),
        embedded=report.embedded,
        vectors=plural("{n} vector", "{n} vectors", report.reused),
        seconds=f"{report.seconds:.1f}",
    )
    lines: list[RenderableType] = [WrappedText(Text(counts)), WrappedText(Text(work, "dim"))]
    lines += [Text(_("No files were found in {path}.", path=printable(str(path))), "yellow") for path in empty]
    if report.truncated:
        text = plural(
            "{n} chunk is longer than the model reads; it saw only the beginning",
            "{n} chunks are longer than the model reads; it saw only their beginning",
            report.truncated,
        )
        lines.append(WrappedText(Text(text, "yellow")))
    lines += failure_lines("failed", report.failed, "red")
    lines += failure_lines("skipped", report.skipped, "dim")
    return Group(*lines)


def failure_lines(verb: str, items: Iterable[Failure], style: str, source: str = "") -> list[RenderableType]:
    """Return one line per failed or skipped item, the first twenty.

    Args:
        verb: "failed" or "skipped".
        items: The items.
        style: Style of the lines.
        source: Name of the source, in front of them.
    """
    items = list(items)
    lines = [failure_line(verb, item.key, item.reason, style, source) for item in items[:_MOST_FAILURES]]
    if len(items) > _MOST_FAILURES:
        more = _("{n} more; --json lists all", n=len(items) - _MOST_FAILURES)
        text = _("{verb}: {more}", verb=_(verb), more=more)
        lines.append(WrappedText(Text(f"{source} {text}".strip(), style)))
    return lines


def failure_line(verb: str, name: str, reason: str, style: str, source: str = "") -> RenderableType:
    """Return the line of one item or source that failed or was skipped."""
    text = sentence("{verb}: {name}: {reason}", verb=verb, name=name, reason=reason)
    return WrappedText(Text(printable(f"{source} {text}".strip()).replace("\n", " "), style))


def record_table(record: object) -> Table:
    """Return the fields of a dataclass as names and values."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    assert dataclasses.is_dataclass(record)  # noqa: S101  (callers pass dataclasses only)
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        shown = filesize.decimal(value) if field.name.startswith("bytes") else _format_value(value)
        table.add_row(_(field.name.replace("_", " ")), Text(printable(shown)))
    return table


def verify_view(report: VerifyReport) -> Group:
    """Return the problems found by `verify` or `repair`."""
    checked = _(
        "{documents} in {chunks}, {partitions}",
        documents=plural("{n} document", "{n} documents", report.documents),
        chunks=plural("{n} chunk", "{n} chunks", report.chunks),
        partitions=plural("{n} partition", "{n} partitions", report.partitions),
    )
    if report.probes is not None:
        checked += _(
            ", every chunk looked into, {probes} attempts to see what belongs to another agent",
            probes=f"{report.probes:,}",
        )
    if report.ok:
        text = Text.assemble(
            (_("Sound. "), "bold green"), _("Both indexes hold what the catalog says: {checked}.", checked=checked)
        )
        return Group(WrappedText(text))
    problems = plural("{n} problem", "{n} problems", len(report.problems))
    heading = _("{problems} in {checked}; `agentrag repair` mends them.", problems=problems, checked=checked)
    lines = [Text(f"- {printable(translate(problem))}") for problem in report.problems]
    return Group(*(WrappedText(line) for line in (Text(heading, "bold red"), *lines)))


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_format_value(item)}" for key, item in value.items()) or "–"
    if isinstance(value, list | tuple):
        return "\n".join(map(_format_value, value)) or "–"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return "–" if value is None else str(value)
