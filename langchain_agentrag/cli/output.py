"""What a command says to a machine: one JSON document per command, in UTF-8, dates in ISO form."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Set
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console, RenderableType
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

from langchain_agentrag.cli.terminal_text import printable
from langchain_agentrag.connector import Gap
from langchain_agentrag.errors import AgentRagError, NotAStoreError, StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from langchain_agentrag.connector import BaseConnector
    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.types import Hit, Hits, Progress


def to_json(value: object) -> str:
    """One JSON document; characters are not escaped, NaN and infinities become null."""
    return json.dumps(plain(value), ensure_ascii=False, indent=2, allow_nan=False)


def plain(value: object) -> Any:  # noqa: ANN401  (whatever json.dumps takes)
    """The value in JSON's own types: records become objects, sets and tuples lists, bytes base64."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return _scalar(value)


def _scalar(value: object) -> object:
    if isinstance(value, Set):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def hits_document(hits: Hits, *, agent_id: str | None) -> dict[str, object]:
    """The answer of a search."""
    return {
        "query": hits.query,
        **({} if hits.searched == hits.query else {"searched": hits.searched}),
        "mode": hits.mode,
        "agent_id": agent_id,
        "degraded": list(hits.degraded),
        "confidence": hits.confidence,
        "convincing": hits.convincing,
        **({} if hits.trace is None else {"trace": plain(hits.trace)}),
        "hits": [hit_document(rank, hit) for rank, hit in enumerate(hits, start=1)],
    }


def hit_document(rank: int, hit: Hit) -> dict[str, object]:
    """One hit with its rank, from 1."""
    return {"rank": rank, **plain(hit)}


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


DEFAULT_STORE = Path("agentrag_store")
WRONG_USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
_PIPED_WIDTH = 120  # columns of a table that goes to a file or another program

StoreOption = Annotated[Path, typer.Option("--store", envvar="AGENTRAG_STORE", help="Folder of the store.")]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent", envvar="AGENTRAG_AGENT", help="Agent on whose behalf; without it, shared documents only."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]

AfterOption = Annotated[
    str | None,
    typer.Option(
        "--after", help="Only what is from then on: 2024-05-01, a time with its zone, or 7d for days ago."
    ),
]
BeforeOption = Annotated[
    str | None, typer.Option("--before", help="Only what is earlier; written in the same way.")
]

P = ParamSpec("P")
R = TypeVar("R")


class _Terminal(Console):
    """A console that leaves a broken pipe to the command, which knows how to end."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def terminal() -> Console:
    """Where people read results."""
    return _plain_when_piped(sys.stdout)


def side_channel() -> Console:
    """Where progress and errors go, so that standard output stays clean."""
    return _plain_when_piped(sys.stderr)


def _plain_when_piped(stream: Any) -> Console:  # noqa: ANN401  (a text stream of any make)
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    return _Terminal(file=stream, width=width, highlight=False, soft_wrap=False)


def build_graph(indexer: DualIndexer) -> None:
    """Build what waits for the vector graph: this process ends, and the next one should not begin with it."""
    if indexer.stats().unindexed:
        console = side_channel()
        try:
            with console.status("Building the vector graph"):
                indexer.optimize()
        except StoreError as error:
            console.print(f"The vector graph is not complete; searches scan the rest meanwhile. {error}")


def answer(view: RenderableType, document: object, *, as_json: bool) -> None:
    """Print the result of a command, for a person or for a machine."""
    if not as_json:
        terminal().print(view)
        return
    if hasattr(sys.stdout, "reconfigure"):
        # JSON is UTF-8 whatever the locale; a lone surrogate becomes \udXXX, which JSON allows.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stdout.write(to_json(document) + "\n")


def fail(message: str, code: int = 1) -> NoReturn:
    """End with one line on standard error."""
    side_channel().print(f"agentrag: {' '.join(message.split())}", style="red", markup=False, soft_wrap=True)
    raise typer.Exit(code)


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """The command, ending with a clear line and the right exit code when it fails or is stopped."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            raise typer.Exit(BROKEN_PIPE) from None
        except AgentRagError as error:
            fail(str(error), WRONG_USAGE if isinstance(error, UsageError) else 1)
        except KeyboardInterrupt:
            fail("stopped.", INTERRUPTED)
        return result

    return run


def _discard_output() -> None:
    """Nobody reads any more: keep Python from complaining when it flushes at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (lives until exit)


def open_existing(store: Path) -> DualIndexer:
    """The store in this folder.

    Raises:
        NotAStoreError: there is none; asking a question must not create an empty one.
    """
    from langchain_agentrag.indexer import DualIndexer

    if not _holds_something(store):
        msg = f"There is no store at {store}: make one with `agentrag index PATH`, or name it with --store."
        raise NotAStoreError(msg)
    return DualIndexer(store)


def _holds_something(folder: Path) -> bool:
    """Whether there is anything in the folder: the engine then says what is wrong with it."""
    return folder.is_file() or (folder.is_dir() and any(folder.iterdir()))


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before something is deleted for good; without a terminal to ask at, only --yes will do.

    Raises:
        typer.Abort: the answer is no.
        typer.BadParameter: nobody can be asked.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise typer.BadParameter("nobody can be asked here: add --yes.", param_hint="--yes")
    typer.confirm(question, abort=True, err=True)


def parsed_span(text: str | None, option: str) -> timedelta | None:
    """A length of time such as 36h, 7d or 2w.

    Raises:
        typer.BadParameter: it is something else.
    """
    from langchain_agentrag.times import EPOCH, check_duration, check_time

    if text is None:
        return None
    try:
        return check_duration(option, EPOCH - check_time(option, text, EPOCH))
    except UsageError as error:
        raise typer.BadParameter(
            f"{text!r} is no length of time: write 36h, 7d, 2w.", param_hint=option
        ) from error


def parsed_filter(text: str | None) -> dict[str, Any] | None:
    """The value of --filter.

    Raises:
        typer.BadParameter: it is not a JSON object.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        msg = f'{text!r} is not JSON ({error.msg}). Write it as in \'{{"type": "manual"}}\'.'
        raise typer.BadParameter(msg, param_hint="--filter") from error
    if not isinstance(value, dict):
        msg = f'{text!r} is not a JSON object. Write it as in \'{{"type": "manual"}}\'.'
        raise typer.BadParameter(msg, param_hint="--filter")
    return value
