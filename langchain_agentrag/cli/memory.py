"""`agentrag memory`: what an agent said, did and noted last."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.output import (
    DEFAULT_STORE,
    AfterOption,
    AgentOption,
    BeforeOption,
    JsonOption,
    StoreOption,
    answer,
    open_existing,
    plain,
)
from langchain_agentrag.cli.terminal_text import printable, snippet
from langchain_agentrag.times import EPOCH, document_time
from langchain_agentrag.types import SourceDocument

if TYPE_CHECKING:
    from rich.console import RenderableType

_KINDS = ["dialogue", "tool_call", "item"]


def memory(
    *,
    store: StoreOption = DEFAULT_STORE,
    agent: AgentOption = None,
    session: Annotated[
        str | None, typer.Option("--session", help="Only this session, as the list shows it.")
    ] = None,
    last: Annotated[int, typer.Option("-n", "--last", min=1, help="How many, the latest ones.")] = 20,
    after: AfterOption = None,
    before: BeforeOption = None,
    json: JsonOption = False,
) -> None:
    """List the memories of an agent, oldest first: what was said, done, and put into its LangGraph store."""
    if agent is None:
        raise typer.BadParameter(
            "memories belong to one agent: name it, or set AGENTRAG_AGENT.", param_hint="--agent"
        )
    where = {"type": {"$in": _KINDS}, "agent_id": agent}
    if session is not None:
        where["session"] = session
    with open_existing(store) as indexer:
        found = indexer.get(filter=where, agent_id=agent, after=after, before=before)
    chosen = sorted(found, key=_place)[-last:]
    document = {"agent_id": agent, "total": len(found), "memories": [_told(one) for one in chosen]}
    answer(_table(chosen, len(found)), document, as_json=json)


def _place(document: SourceDocument) -> tuple[datetime, str, int]:
    """By time; what happened at one moment in the order of its session."""
    position = document.metadata.get("position")
    when = document_time(document.metadata) or EPOCH
    return when, str(document.metadata.get("session", "")), position if isinstance(position, int) else 0


def _told(document: SourceDocument) -> dict[str, object]:
    return {"doc_id": document.doc_id, "text": document.text, "metadata": plain(document.metadata)}


def _table(documents: Sequence[SourceDocument], total: int) -> RenderableType:
    if not documents:
        return Text("No memories. Past ones are read by a connector, new ones written by a recorder.")
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)
    if total > len(documents):
        table.title = f"the last {len(documents)} of {total}"
        table.title_justify = "left"
    table.add_column("when, UTC", no_wrap=True)
    table.add_column("who", no_wrap=True)
    table.add_column("session", overflow="fold", max_width=20)
    table.add_column("what", ratio=1, overflow="fold")
    for document in documents:
        said = document.metadata
        when = document_time(said)
        shown = "" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        place = said.get("session") or said.get("namespace") or ""
        row = (shown, _who(document), printable(str(place)), printable(snippet(document.text).text))
        table.add_row(*map(Text, row), style="red" if said.get("outcome") == "error" else None)
    return table


def _who(document: SourceDocument) -> str:
    said = document.metadata
    if said["type"] == "item":
        return printable(f"item {said.get('key', '')}")
    return printable(str(said.get("speaker") or said.get("role") or ""))
