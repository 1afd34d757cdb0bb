"""Output of a command: result as tables or one JSON document, progress bar."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Set
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, NoReturn

from rich import progress
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from langchain_agentrag.cli.language import _, translate
from langchain_agentrag.cli.terminal_text import printable
from langchain_agentrag.connector import Gap
from langchain_agentrag.errors import StoreError
from langchain_agentrag.types import Explanation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_agentrag.connector import BaseConnector
    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.types import Hits, Progress

_PIPED_WIDTH = 120  # columns of a table that goes to a file or another program
_ITEM_CHARACTERS = 36  # cells
_WIDE_PROGRESS = 110  # columns of a terminal that holds all columns of the progress bar
_LONGEST_TITLE = 24  # cells


# -- JSON -----------------------------------------------------------------------------------------------------------


def to_json(value: object) -> str:
    """Return one JSON document; characters are not escaped, NaN and infinities become null."""
    return json.dumps(json_value(value), ensure_ascii=False, indent=2, allow_nan=False)


def json_value(value: object) -> Any:  # noqa: ANN401  (whatever json.dumps takes)
    """Convert a value to JSON's types: dataclasses to objects, sets and tuples to lists, bytes to base64."""
    if isinstance(value, Explanation):
        return json_value(value.as_dict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return _json_scalar(value)


def _json_scalar(value: object) -> object:
    if isinstance(value, Set):
        return sorted((json_value(item) for item in value), key=str)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def hits_document(hits: Hits, *, agent_id: str | None, own_documents: int | None = None) -> dict[str, object]:
    """Return the JSON document of a search; ranks count from 1."""
    return {
        "query": hits.query,
        **({} if hits.searched == hits.query else {"searched": hits.searched}),
        "mode": hits.mode,
        "agent_id": agent_id,
        **({} if own_documents is None else {"own_documents": own_documents}),
        "degraded": list(hits.degraded),
        "confidence": hits.confidence,
        "convincing": hits.convincing,
        **({} if hits.trace is None else {"trace": json_value(hits.trace)}),
        "hits": [{"rank": rank, **json_value(hit)} for rank, hit in enumerate(hits, start=1)],
    }


# -- consoles -------------------------------------------------------------------------------------------------------


class _Console(Console):
    """Console that leaves a broken pipe to `CommandGroup`."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def stdout_console() -> Console:
    """Return the console for results."""
    return _console(sys.stdout)


def stderr_console() -> Console:
    """Return the console for progress and errors, so that standard output holds results only."""
    return _console(sys.stderr)


def _console(stream: Any) -> Console:  # noqa: ANN401  (a text stream of any kind)
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    return _Console(file=stream, width=width, highlight=False, soft_wrap=False)


def print_result(view: RenderableType, document: object, *, as_json: bool, fence: bool | None = False) -> None:
    """Print the result of a command as a view for people or as a JSON document.

    Args:
        view: The view.
        document: The JSON document.
        as_json: Whether to print the document.
        fence: Whether the view is fenced for a model; None fences it unless standard output is a terminal, since what
            runs the command may be an agent.
    """
    if not as_json:
        console = stdout_console()
        if fence or (fence is None and not console.is_terminal):
            from langchain_agentrag.agent.prompt_injection import PassageSafety

            with console.capture() as capture:
                console.print(view)
            fenced = PassageSafety().fence("both").wrap(capture.get().rstrip(), {}, block=True)
            sys.stdout.write(f"{fenced}\n")
        else:
            console.print(view)
        return
    if hasattr(sys.stdout, "reconfigure"):
        # JSON is UTF-8 whatever the locale; a lone surrogate becomes \udXXX, which JSON allows.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stdout.write(to_json(document) + "\n")


class _DocumentsPerSecond(progress.TextColumn):
    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: progress.Task) -> Text:
        return Text("" if not task.speed else f"{task.speed:.1f}/s", style="dim")


@contextlib.contextmanager
def progress_bar(console: Console, title: str, connector: BaseConnector) -> Iterator[Callable[[Progress], None] | None]:
    """Show a progress bar; yield its callback, or None when the console is no terminal.

    The items are counted first, which opens none of them: without a total there is no remaining time.
    """
    if not console.is_terminal:
        yield None
        return
    wide = console.width >= _WIDE_PROGRESS
    item_width = max(console.width - (_WIDE_PROGRESS - _ITEM_CHARACTERS), 0) if wide else 0
    columns: list[str | progress.ProgressColumn] = [
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24 if wide else 10),
        progress.MofNCompleteColumn(),
    ]
    if wide:
        columns += [_DocumentsPerSecond(), progress.TimeElapsedColumn()]
    columns += [progress.TextColumn(_("left")), progress.TimeRemainingColumn()]
    if wide:
        columns.append(progress.TextColumn("{task.fields[item]}", style="dim", markup=False))
    with progress.Progress(*columns, console=console, transient=True, speed_estimate_period=60) as bar:
        total = sum(not isinstance(item, Gap) for item in connector.items())
        task = bar.add_task(_shortened(title, _LONGEST_TITLE), total=total, item="")

        def update(step: Progress) -> None:
            item = printable(step.item).replace("\n", " ")
            bar.update(task, completed=step.done, item=_shortened(item, min(item_width, _ITEM_CHARACTERS)))

        yield update


def _shortened(text: str, width: int) -> str:
    """Return the end of a text that fits into `width` cells."""
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) > width - 1:
        text = text[1:]
    return f"…{text}"


def build_vector_graph(indexer: DualIndexer) -> None:
    """Index the unindexed chunks now: this process ends, and the next one should not begin with it."""
    if indexer.stats().unindexed:
        console = stderr_console()
        try:
            with console.status(_("Building the vector graph")):
                indexer.optimize()
        except StoreError as error:
            message = _("The vector graph is not complete; searches scan the rest meanwhile.")
            console.print(f"{message} {translate(str(error))}", markup=False, style="yellow")
