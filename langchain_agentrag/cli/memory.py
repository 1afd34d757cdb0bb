"""`agentrag memory`: the latest memories of an agent (dialogue, tool calls, items of its LangGraph store)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.options import (
    DEFAULT_STORE,
    AfterOption,
    AgentOption,
    BeforeOption,
    JsonOption,
    StoreOption,
    open_store,
)
from langchain_agentrag.cli.output import json_value, print_result
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
    session: Annotated[str | None, typer.Option("--session", help="Only this session, as the list shows it.")] = None,
    last: Annotated[int, typer.Option("-n", "--last", min=1, help="How many of the latest.")] = 20,
    after: AfterOption = None,
    before: BeforeOption = None,
    json: JsonOption = False,
) -> None:
    """List the latest memories of an agent, oldest first: dialogue, tool calls, items of its LangGraph store."""
    if agent is None:
        raise typer.BadParameter("memories belong to one agent: name it, or set AGENTRAG_AGENT.", param_hint="--agent")
    where = {"type": {"$in": _KINDS}, "agent_id": agent}
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
    print_result(_table(latest, len(memories)), document, as_json=json)


def _sort_key(document: SourceDocument) -> tuple[datetime, str, int]:
    """Order by time, at one moment by the order of the session."""
    position = document.metadata.get("position")
    time = document_time(document.metadata) or EPOCH
    return time, str(document.metadata.get("session", "")), position if isinstance(position, int) else 0


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
        metadata = document.metadata
        time = document_time(metadata)
        when = "" if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        session = str(metadata.get("session") or metadata.get("namespace") or "")
        row = (when, _speaker(metadata), printable(session), printable(snippet(document.text).text))
        table.add_row(*map(Text, row), style="red" if metadata.get("outcome") == "error" else None)
    return table


def _speaker(metadata: Mapping[str, object]) -> str:
    if metadata["type"] == "item":
        return printable(f"item {metadata.get('key', '')}")
    return printable(str(metadata.get("speaker") or metadata.get("role") or ""))
