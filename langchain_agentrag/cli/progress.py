"""The progress of long work: a bar with rate and remaining time on a terminal, nothing elsewhere."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import (
    Progress as Bar,
)
from rich.text import Text

from langchain_agentrag.cli.snippets import printable
from langchain_agentrag.connector import Gap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from langchain_agentrag.connector import BaseConnector
    from langchain_agentrag.types import Progress

_ITEM_CELLS = 36


class _Rate(TextColumn):
    """Documents per second."""

    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Task) -> Text:
        return Text("" if not task.speed else f"{task.speed:.1f}/s", style="dim")


@contextlib.contextmanager
def progress_bar(
    console: Console, title: str, connector: BaseConnector
) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that moves a bar, or None when nobody watches.

    The items are counted first, which opens none of them: without a total there is no remaining time.
    """
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), _Rate(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
        TextColumn("{task.fields[item]}", style="dim", markup=False),
    )  # fmt: skip
    with Bar(*columns, console=console, transient=True, speed_estimate_period=60) as progress:
        total = sum(not isinstance(item, Gap) for item in connector.items())
        task = progress.add_task(title, total=total, item="")

        def moved(step: Progress) -> None:
            item = printable(step.item).replace("\n", " ")
            shown = item if len(item) <= _ITEM_CELLS else "…" + item[1 - _ITEM_CELLS :]
            progress.update(task, completed=step.done, item=shown)

        yield moved
