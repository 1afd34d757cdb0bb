"""`agentrag sync`: bring the store in step with the sources of a sync file, once or while following changes."""

from __future__ import annotations

import json as json_codec
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.commands import Command, ExitCode, argument, existing_path, fail_interrupted, option
from langchain_agentrag.cli.language import _
from langchain_agentrag.cli.options import PATH, json_option, max_bytes_option
from langchain_agentrag.cli.output import build_vector_graph, json_value, print_result, progress_bar, stderr_console
from langchain_agentrag.cli.render import failure_line, failure_lines
from langchain_agentrag.cli.sync_config import Source, SourceFile, read_source_file
from langchain_agentrag.cli.terminal_text import printable
from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.errors import AgentRagError, MissingExtraError
from langchain_agentrag.types import Failure, SyncReport

if TYPE_CHECKING:
    import threading

    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.types import Progress

logger = logging.getLogger(__name__)

_DEBOUNCE = 600  # milliseconds without a change after which a burst of changes is over
_TICK = 1_000  # milliseconds between two looks at the clock


@click.command(cls=Command)
@argument("config", metavar="CONFIG", type=PATH, help="A TOML file of sources.")
@option(
    "--store", type=PATH, envvar="AGENTRAG_STORE", show_envvar=True, help="Folder of the store, in place of the file's."
)
@option("--only", multiple=True, metavar="NAME", help="Only this source; repeatable.")
@option("--prune", is_flag=True, help="Remove documents of sources that are not in the file any more.")
@option("--watch", is_flag=True, help="Keep running and follow changes until Ctrl-C.")
@max_bytes_option
@json_option
def sync(
    *,
    config: Path,
    store: Path | None,
    only: tuple[str, ...],
    prune: bool,
    watch: bool,
    max_bytes: int | None,
    as_json: bool,
) -> None:
    """Bring the store in step with the sources of a file."""
    from langchain_agentrag.indexer import DualIndexer

    if existing_path(config, "CONFIG").is_dir():
        raise click.BadParameter(_("{path} is a folder: name a TOML file.", path=config), param_hint="CONFIG")
    file = read_source_file(config, store=store, max_bytes=max_bytes)
    sources = _select_sources(file, only)
    try:
        with DualIndexer(file.store, embeddings=file.embeddings) as indexer:
            synchronizer = SourceSynchronizer(indexer, file)
            outcomes = _sync_sources(synchronizer, sources)
            outcomes += synchronizer.removed(outcomes, prune=prune)
            _print_outcomes(outcomes, as_json=as_json)
            build_vector_graph(indexer)
            if watch:
                _follow_changes(synchronizer, file, sources, as_json=as_json)
    except KeyboardInterrupt:
        fail_interrupted()
    read = [outcome for outcome in outcomes if not outcome.removed]
    if any(outcome.failed or outcome.report.failed for outcome in outcomes):
        none_read = all(outcome.failed for outcome in read)
        raise click.exceptions.Exit(ExitCode.FAILED if none_read else ExitCode.INCOMPLETE)


def _select_sources(file: SourceFile, only: Sequence[str]) -> list[Source]:
    known = {source.name: source for source in file.sources}
    for name in only:
        if name not in known:
            message = _(
                "{name!r} is no source of {file}: {known}.", name=name, file=file.path.name, known=", ".join(known)
            )
            raise click.BadParameter(message, param_hint="--only")
    return [source for source in file.sources if not only or source.name in only]


def _sync_sources(synchronizer: SourceSynchronizer, sources: Iterable[Source]) -> list[SourceOutcome]:
    outcomes = []
    for source in sources:
        if source.connector is None:
            outcomes.append(synchronizer.sync(source))
            continue
        with progress_bar(stderr_console(), _("Syncing {name}", name=source.name), source.connector) as update:
            outcomes.append(synchronizer.sync(source, update))
    return outcomes


def _follow_changes(
    synchronizer: SourceSynchronizer, file: SourceFile, sources: list[Source], *, as_json: bool
) -> None:
    """Sync the sources that may have changed, again and again; print only what did change."""
    if not as_json:
        stderr_console().print(_("Following the sources; Ctrl-C ends it."), style="dim")
    for due in due_sources(file, {source.name for source in sources}):
        changed = [outcome for outcome in _sync_sources(synchronizer, due) if outcome.changed]
        if changed:
            _print_outcomes(changed, as_json=as_json, one_line=True)


def _print_outcomes(outcomes: list[SourceOutcome], *, as_json: bool, one_line: bool = False) -> None:
    document: dict[str, Any] = {
        "ok": not any(outcome.failed or outcome.report.failed for outcome in outcomes),
        "sources": [{**json_value(outcome), "failed": outcome.failed} for outcome in outcomes],
    }
    if as_json and one_line:
        sys.stdout.write(json_codec.dumps(document, ensure_ascii=False) + "\n")
    else:
        print_result(_outcomes_view(outcomes), document, as_json=as_json)
    sys.stdout.flush()


def _outcomes_view(outcomes: Sequence[SourceOutcome]) -> Group:
    """Return the result of each source of a sync file, with the errors."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    counted = {"added": _("added"), "updated": _("updated"), "deleted": _("deleted"), "unchanged": _("unchanged")}
    for name in (_("source"), _("of")):
        table.add_column(name, overflow="fold")
    for name in (*counted.values(), _("failed")):
        table.add_column(name, justify="right", overflow="fold")
    notes: list[RenderableType] = []
    for outcome in outcomes:
        report, name = outcome.report, printable(outcome.name)
        owner = "–" if outcome.agent_id is None else printable(outcome.agent_id)
        failed = _("all") if outcome.error else str(len(report.failed))
        cells = (str(getattr(report, count)) for count in counted)
        style = "red" if outcome.failed else "dim" if outcome.removed else None
        table.add_row(Text(name), Text(owner), *cells, failed, style=style)
        if outcome.error:
            notes.append(failure_line("failed", outcome.name, outcome.error, "red"))
        notes += failure_lines("failed", report.failed, "red", source=name)
        notes += failure_lines("skipped", report.skipped, "dim", source=name)
        if outcome.removed and not report.deleted:
            kept = _("{name} is not in the file any more; its documents are kept, --prune removes them", name=name)
            notes.append(Text(kept, "yellow"))
    return Group(table, *notes)


# -- one pass over the sources ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceOutcome:
    """Result of one source.

    Attributes:
        name: Its name in the file.
        type: Its type; "" for one that is no longer in the file.
        agent_id: Its agent, or None where it is shared or each of its documents has its own.
        report: Counts of the sync.
        error: Why it could not be synced, or None.
        removed: Whether it is no longer in the file, or changed its owner or kind.
    """

    name: str
    type: str
    agent_id: str | None
    report: SyncReport
    error: str | None = None
    removed: bool = False

    @property
    def failed(self) -> bool:
        """Whether the source, or every item of it, could not be read."""
        synced = self.report.added or self.report.updated or self.report.unchanged
        return self.error is not None or bool(self.report.failed and not synced)

    @property
    def changed(self) -> bool:
        """Whether the store changed, or the source failed."""
        return bool(self.failed or self.report.added or self.report.updated or self.report.deleted)


class SourceSynchronizer:
    """Synchronization of a store with the sources of a sync file; each source fails alone.

    Args:
        indexer: The store.
        file: The sync file.
    """

    def __init__(self, indexer: DualIndexer, file: SourceFile) -> None:
        self._indexer, self._file = indexer, file
        # the path relative to the store: both may move together
        path = os.path.relpath(file.path, indexer.path.absolute())
        self._recorded = indexer.record_keys(f"sync {path}")

    def sync(self, source: Source, on_progress: Callable[[Progress], None] | None = None) -> SourceOutcome:
        """Sync one source; an exception becomes the error of its outcome."""
        outcome = SourceOutcome(source.name, source.type, source.agent, SyncReport())
        try:
            connector = source.connector or source.make()
            self._recorded.put([_record_key(source.name, connector)], [None], self._recorded.now())
            report = self._indexer.sync(connector, on_progress=on_progress)
        except AgentRagError as error:
            return replace(outcome, error=self._file.secrets.redact(str(error)))
        except Exception as error:
            logger.warning("the source %s failed", source.name, exc_info=error)
            return replace(outcome, error=self._file.secrets.redact(f"{type(error).__name__}: {error}"))
        return replace(outcome, report=self._redact(report))

    def removed(self, outcomes: Iterable[SourceOutcome], *, prune: bool) -> list[SourceOutcome]:
        """Return the recorded sources that are no longer in the file, and delete their documents where due.

        Documents of a source taken out of the file are deleted only with `prune`. Of one that kept its name but has
        another owner or kind they are deleted as soon as it has been read: they no longer belong to the old owner.
        """
        present = {_record_key(source.name, source.connector) for source in self._file.sources if source.connector}
        unread = {source.name for source in self._file.sources if source.connector is None}
        read = {outcome.name for outcome in outcomes if outcome.error is None}
        removed = []
        for key in self._recorded.keys():  # noqa: SIM118  (no mapping)
            name = json_codec.loads(key)[0]
            if key not in present and name not in unread:
                removed.append(self._remove(key, prune=prune or name in read))
        return [outcome for outcome in removed if outcome is not None]

    def _remove(self, key: str, *, prune: bool) -> SourceOutcome | None:
        name, connector_id, agent = json_codec.loads(key)
        outcome = SourceOutcome(name, "", agent, SyncReport(), removed=True)
        if not prune:
            return outcome
        report = self._indexer.sync(_EmptyConnector(connector_id, agent))
        self._recorded.remove([key])
        return replace(outcome, report=report) if report.deleted else None

    def _redact(self, report: SyncReport) -> SyncReport:
        redact = self._file.secrets.redact

        def redacted(items: Iterable[Failure]) -> tuple[Failure, ...]:
            return tuple(Failure(redact(item.key), redact(item.reason)) for item in items)

        return replace(report, failed=redacted(report.failed), skipped=redacted(report.skipped))


class _EmptyConnector(BaseConnector):
    """Connector without items: a sync with it deletes the documents of a removed source."""

    def __init__(self, connector_id: str, agent_id: str | None) -> None:
        self._id, self.agent_id = connector_id, agent_id

    @property
    def connector_id(self) -> str:
        return self._id

    def items(self) -> Iterator[SourceItem | Gap]:
        return iter(())


def _record_key(name: str, connector: BaseConnector) -> str:
    return json_codec.dumps([name, connector.connector_id, connector.agent_id], ensure_ascii=False)


# -- following changes ----------------------------------------------------------------------------------------------


def due_sources(
    file: SourceFile, names: Collection[str] | None = None, stop: threading.Event | None = None
) -> Iterator[list[Source]]:
    """Yield the sources that may have changed, never an empty list, until `stop` is set.

    The first list holds all watched sources: changes before the watch began are not reported.

    Args:
        file: The sync file.
        names: Names of the sources; None for all.
        stop: Event that ends the iteration.

    Raises:
        MissingExtraError: watchfiles is not installed.
    """
    try:
        import watchfiles
    except ImportError as error:
        raise MissingExtraError("Following files", "watch") from error

    sources = [source for source in file.sources if names is None or source.name in names]
    folders = {source.name: _watched_folders(source) for source in sources}
    polled = [source for source in sources if not folders[source.name]]
    roots = sorted({folder for watched in folders.values() for folder in watched})
    store = str(file.store.resolve())
    last_poll = time.monotonic()
    changes = watchfiles.watch(
        *roots,
        watch_filter=lambda _, path: not _is_inside(path, store),
        debounce=_DEBOUNCE * 10,
        step=_DEBOUNCE,
        stop_event=stop,
        rust_timeout=_TICK,
        yield_on_timeout=True,
    )
    first = True
    for burst in changes if roots else _ticks(stop):
        paths = [path for _, path in burst]
        due = [source for source in sources if folders[source.name] and (first or _is_affected(source, paths))]
        first = False
        if time.monotonic() - last_poll >= file.interval.total_seconds():
            due += polled
            last_poll = time.monotonic()
        if due:
            yield due


def _ticks(stop: threading.Event | None) -> Iterator[set[tuple[object, str]]]:
    """Yield an empty burst every tick, where there is no file to watch."""
    while stop is None or not stop.is_set():
        time.sleep(_TICK / 1_000)
        yield set()


def _watched_folders(source: Source) -> list[Path]:
    """Return the folders to watch for a source; a file is watched through its folder: editors replace files."""
    folders = []
    for path in source.watched:
        resolved = path.resolve()
        root = resolved if resolved.is_dir() else resolved.parent
        if not root.is_dir():
            return []  # it does not exist yet: the source is polled
        folders.append(root)
    return folders


def _is_affected(source: Source, paths: Sequence[str]) -> bool:
    watched = [str(path.resolve()) for path in source.watched]
    # SQLite first writes into a file beside the database
    databases = [path.removesuffix("-wal").removesuffix("-journal") for path in paths]
    return any(_is_inside(path, root) for path in (*paths, *databases) for root in watched)


def _is_inside(path: str, root: str) -> bool:
    return path == root or Path(path).is_relative_to(root)
