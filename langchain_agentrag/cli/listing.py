"""`agentrag documents` and `agentrag memory`: lists of what an agent may see, and of what it said and did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.commands import Command, option
from langchain_agentrag.cli.language import _
from langchain_agentrag.cli.options import (
    after_option,
    agent_option,
    before_option,
    filter_option,
    json_option,
    open_store,
    parse_filter,
    store_option,
)
from langchain_agentrag.cli.output import json_value, print_result
from langchain_agentrag.cli.terminal_text import WrappedText, printable, snippet
from langchain_agentrag.times import EPOCH, document_time
from langchain_agentrag.types import DocumentEntry, SourceDocument

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from langchain_agentrag.indexer import DualIndexer

_KINDS = ["dialogue", "tool_call", "item"]
_NARROW = 72  # columns, below which a list has fewer of its own


def count_own(indexer: DualIndexer, agent: str) -> int:
    """Return the number of documents that belong to the agent itself."""
    figures = indexer.stats(agent_id=agent)
    return figures.documents - figures.shared_documents


def owns_nothing_notes(agent: str | None, own: int | None) -> list[Text]:
    """Return a note that the agent has no documents of its own; it says nothing about other agents."""
    if agent is None or own != 0:
        return []
    text = _("“{agent}” has no documents of its own here; only shared ones are seen.", agent=printable(agent))
    return [Text(text, "yellow")]


# -- documents ------------------------------------------------------------------------------------------------------


@click.command(cls=Command)
@store_option
@agent_option
@option("--own", is_flag=True, help="Only documents of --agent itself, without the shared ones.")
@filter_option
@option("-n", "--limit", type=click.IntRange(min=0), default=50, metavar="N", help="How many to list.")
@option("--offset", type=click.IntRange(min=0), default=0, metavar="N", help="How many to leave out before the first.")
@json_option
def documents(
    *, store: Path, agent: str | None, own: bool, where: str | None, limit: int, offset: int, as_json: bool
) -> None:
    """List documents that an agent may see: id, source, chunks, time, owner."""
    condition = parse_filter(where)
    with open_store(store) as indexer:
        listed, total = indexer.list_documents(agent_id=agent, filter=condition, own=own, limit=limit, offset=offset)
        owned = None if agent is None else count_own(indexer, agent)
    document = {
        "agent_id": agent,
        "total": total,
        "offset": offset,
        "documents": [json_value(entry) for entry in listed],
    }
    view = Group(*owns_nothing_notes(agent, owned), _DocumentList(listed, total, offset))
    print_result(view, document, as_json=as_json)


class _DocumentList:
    """Documents as a table; on a narrow terminal each in a few lines."""

    def __init__(self, entries: Sequence[DocumentEntry], total: int, offset: int) -> None:
        self._entries, self._total, self._offset = entries, total, offset

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._entries:
            yield Text(_("No documents.") if not self._total else _("No more documents; there are {n}.", n=self._total))
            return
        yield self._in_lines() if options.max_width < _NARROW else self._in_columns()
        last = self._offset + len(self._entries)
        if last < self._total or self._offset:
            text = _("{first} to {last} of {total}", first=self._offset + 1, last=last, total=self._total)
            more = "" if last >= self._total else _("; next: --offset {n}", n=last)
            yield Text(text + more, "dim")

    def _in_columns(self) -> Table:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column(_("document"), overflow="fold", ratio=3)
        if any(entry.source != entry.doc_id for entry in self._entries):
            table.add_column(_("source"), overflow="fold", ratio=3)
        table.add_column(_("chunks"), justify="right", no_wrap=True)
        table.add_column(_("time, UTC"), no_wrap=True)
        table.add_column(_("owner"), overflow="fold", ratio=1)
        for entry in self._entries:
            cells = [_one_line(entry.doc_id), _one_line(entry.source)][: len(table.columns) - 3]
            table.add_row(*map(WrappedText, map(Text, cells)), f"{entry.chunks:,}", _time(entry.time), _owner(entry))
        return table

    def _in_lines(self) -> Group:
        lines: list[RenderableType] = []
        for entry in self._entries:
            lines.append(WrappedText(Text(_one_line(entry.doc_id), "bold")))
            if entry.source != entry.doc_id:
                lines.append(WrappedText(Text(f"  {_one_line(entry.source)}", "dim")))
            chunks = f"{_('chunks')} {entry.chunks:,}"
            lines.append(Text("  " + " · ".join(filter(None, (chunks, _time(entry.time), _owner(entry).plain))), "dim"))
        return Group(*lines)


def _one_line(text: str) -> str:
    return printable(text).replace("\n", " ")


def _time(time: datetime | None) -> str:
    return "" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"


def _owner(entry: DocumentEntry) -> Text:
    owner = Text(_("shared"), "dim") if entry.agent_id is None else Text(_one_line(entry.agent_id), "magenta")
    return owner.append(_(", quarantined"), "yellow") if entry.quarantined else owner


# -- memories -------------------------------------------------------------------------------------------------------


@click.command(cls=Command)
@store_option
@agent_option
@option("--session", help="Only this session, as the list shows it.")
@option("-n", "--last", type=click.IntRange(min=1), default=20, metavar="N", help="How many of the latest.")
@after_option
@before_option
@json_option
def memory(
    *,
    store: Path,
    agent: str | None,
    session: str | None,
    last: int,
    after: str | None,
    before: str | None,
    as_json: bool,
) -> None:
    """List the latest memories of an agent, oldest first: dialogue, tool calls, items of its LangGraph store."""
    if agent is None:
        message = _("memories belong to one agent: name it, or set AGENTRAG_AGENT.")
        raise click.BadParameter(message, param_hint="--agent")
    where: dict[str, object] = {"type": {"$in": _KINDS}, "agent_id": agent}
    if session is not None:
        where["session"] = session
    with open_store(store) as indexer:
        memories = indexer.get(filter=where, agent_id=agent, after=after, before=before)
    latest = sorted(memories, key=_sort_key)[-last:]
    document = {
        "agent_id": agent,
        "total": len(memories),
        "memories": [
            {"doc_id": memory.doc_id, "text": memory.text, "metadata": json_value(memory.metadata)} for memory in latest
        ],
    }
    print_result(_memory_table(latest, len(memories)), document, as_json=as_json)


def _sort_key(document: SourceDocument) -> tuple[datetime, str, int]:
    """Order by time, at one moment by the order of the session."""
    position = document.metadata.get("position")
    time = document_time(document.metadata) or EPOCH
    return time, str(document.metadata.get("session", "")), position if isinstance(position, int) else 0


def _memory_table(documents: Sequence[SourceDocument], total: int) -> RenderableType:
    if not documents:
        return Text(_("No memories. Past ones are read by a connector, new ones written by a recorder."))
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)
    if total > len(documents):
        table.title = _("the last {n} of {total}", n=len(documents), total=total)
        table.title_justify = "left"
    table.add_column(_("when, UTC"), no_wrap=True)
    table.add_column(_("who"), overflow="fold", max_width=14)
    table.add_column(_("session"), overflow="fold", max_width=12)
    table.add_column(_("what"), ratio=1, overflow="fold")
    for document in documents:
        metadata = document.metadata
        time = document_time(metadata)
        when = "" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        session = str(metadata.get("session") or metadata.get("namespace") or "")
        cells = (when, _speaker(metadata), printable(session))
        text = WrappedText(Text(printable(snippet(document.text).text)))
        table.add_row(*map(Text, cells), text, style="red" if metadata.get("outcome") == "error" else None)
    return table


def _speaker(metadata: Mapping[str, object]) -> str:
    if metadata["type"] == "item":
        return printable(_("item {key}", key=metadata.get("key", "")))
    return printable(str(metadata.get("speaker") or metadata.get("role") or ""))
