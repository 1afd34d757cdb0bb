"""A pass over the sources of a file: each one brought up to date, whatever becomes of the others."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_agentrag.cli.sync_config import Source, SourceFile
from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.errors import AgentRagError, MissingExtraError
from langchain_agentrag.types import Failure, SyncReport

if TYPE_CHECKING:
    import threading

    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.types import Progress

logger = logging.getLogger(__name__)

Moved = Callable[["Progress"], None] | None


@dataclass(frozen=True, slots=True)
class SourceOutcome:
    """What became of one source.

    Attributes:
        name: Its name in the file.
        type: Its kind; "" for one that is not in the file any more.
        agent_id: Its agent, or None where it is shared or each of its documents has its own.
        report: What was done.
        error: Why nothing could be done, or None.
        removed: Whether it is not in the file any more, as it was.
    """

    name: str
    type: str
    agent_id: str | None
    report: SyncReport
    error: str | None = None
    removed: bool = False

    @property
    def failed(self) -> bool:
        """Whether the source could not be read, or none of it."""
        done = self.report.added or self.report.updated or self.report.unchanged
        return self.error is not None or bool(self.report.failed and not done)

    @property
    def changed(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.failed or self.report.added or self.report.updated or self.report.deleted)


class Run:
    """Passes over a file of sources.

    Args:
        indexer: The store.
        file: The file.
    """

    def __init__(self, indexer: DualIndexer, file: SourceFile) -> None:
        self._indexer, self._file = indexer, file
        # the place of the file as seen from the store: both may move together
        place = os.path.relpath(file.path, indexer.path.absolute())
        self._ledger = indexer.record_keys(f"sync {place}")

    def sync(self, source: Source, moved: Moved = None) -> SourceOutcome:
        """Bring one source up to date; whatever it raises is its own failure and ends nothing else."""
        outcome = SourceOutcome(source.name, source.type, source.agent, SyncReport())
        try:
            connector = source.connector or source.make()
            self._ledger.put([_key(source.name, connector)], [None], self._ledger.now())
            report = self._indexer.sync(connector, on_progress=moved)
        except AgentRagError as error:
            return replace(outcome, error=self._hidden(str(error)))
        except Exception as error:
            logger.warning("the source %s failed", source.name, exc_info=error)
            return replace(outcome, error=self._hidden(f"{type(error).__name__}: {error}"))
        return replace(outcome, report=self._clean(report))

    def removed(self, outcomes: Iterable[SourceOutcome], *, prune: bool) -> list[SourceOutcome]:
        """Sources as they were in the file once and are not any more.

        Documents of one that was taken out go only when it is pruned. Of one that is still there under its name, with
        another owner or of another kind, they go as soon as it has been read: they are not the old owner's any more.
        """
        present = {_key(source.name, source.connector) for source in self._file.sources if source.connector}
        unread = {source.name for source in self._file.sources if source.connector is None}
        read = {outcome.name for outcome in outcomes if outcome.error is None}
        found = []
        recorded = self._ledger.keys()
        for key in recorded:
            name = json.loads(key)[0]
            if key not in present and name not in unread:
                found.append(self._gone(key, prune=prune or name in read))
        return [outcome for outcome in found if outcome is not None]

    def _gone(self, key: str, *, prune: bool) -> SourceOutcome | None:
        name, connector_id, agent = json.loads(key)
        outcome = SourceOutcome(name, "", agent, SyncReport(), removed=True)
        if not prune:
            return outcome
        report = self._indexer.sync(_Nothing(connector_id, agent))
        self._ledger.remove([key])
        return replace(outcome, report=report) if report.deleted else None

    def _clean(self, report: SyncReport) -> SyncReport:
        def hidden(items: Iterable[Failure]) -> tuple[Failure, ...]:
            return tuple(Failure(self._hidden(item.key), self._hidden(item.reason)) for item in items)

        return replace(report, failed=hidden(report.failed), skipped=hidden(report.skipped))

    def _hidden(self, text: str) -> str:
        return self._file.secrets.redact(text)


class _Nothing(BaseConnector):
    """A source that holds nothing any more: bringing the store in step with it removes what it once gave."""

    def __init__(self, connector_id: str, agent_id: str | None) -> None:
        self._id, self.agent_id = connector_id, agent_id

    @property
    def connector_id(self) -> str:
        return self._id

    def items(self) -> Iterator[SourceItem | Gap]:
        return iter(())


def _key(name: str, connector: BaseConnector) -> str:
    return json.dumps([name, connector.connector_id, connector.agent_id], ensure_ascii=False)


_SETTLED = 600  # milliseconds without a change after which a burst of changes is over
_TICK = 1_000  # milliseconds after which the clock is looked at


def due_sources(
    file: SourceFile, names: Collection[str] | None = None, stop: threading.Event | None = None
) -> Iterator[list[Source]]:
    """Again and again the sources that may have changed, never an empty list; ends when `stop` is set.

    First come all that are followed: what changed before they were is in no burst.

    Args:
        file: The file of sources.
        names: Which of its sources; None for all.
        stop: Ends it.

    Raises:
        MissingExtraError: watchfiles is not installed.
    """
    try:
        import watchfiles
    except ImportError as error:
        raise MissingExtraError("Following files", "watch") from error

    sources = [source for source in file.sources if names is None or source.name in names]
    followed = {source.name: _roots(source) for source in sources}
    looked_at = [source for source in sources if not followed[source.name]]
    roots = sorted({root for found in followed.values() for root in found})
    inside = str(file.store.resolve())
    last = time.monotonic()
    changes = watchfiles.watch(
        *roots,
        watch_filter=lambda _, path: not _below(path, inside),
        debounce=_SETTLED * 10,
        step=_SETTLED,
        stop_event=stop,
        rust_timeout=_TICK,
        yield_on_timeout=True,
    )
    begun = False
    for burst in changes if roots else _ticks(stop):
        paths = [path for _, path in burst]
        due = [
            source for source in sources if followed[source.name] and (not begun or _touched(source, paths))
        ]
        begun = True
        if time.monotonic() - last >= file.interval.total_seconds():
            due += looked_at
            last = time.monotonic()
        if due:
            yield due


def _ticks(stop: threading.Event | None) -> Iterator[set[tuple[object, str]]]:
    """The clock alone, where there is no file to follow."""
    while stop is None or not stop.is_set():
        time.sleep(_TICK / 1_000)
        yield set()


def _roots(source: Source) -> list[Path]:
    """Folders to watch for a source; a file is watched through its folder, because editors replace files."""
    found = []
    for path in source.watched:
        resolved = path.resolve()
        root = resolved if resolved.is_dir() else resolved.parent
        if not root.is_dir():
            return []  # it does not exist yet: it is looked at like what cannot be followed
        found.append(root)
    return found


def _touched(source: Source, paths: Sequence[str]) -> bool:
    watched = [str(path.resolve()) for path in source.watched]
    # what SQLite writes first goes into a file beside the database
    plain = [path.removesuffix("-wal").removesuffix("-journal") for path in paths]
    return any(_below(path, root) for path in (*paths, *plain) for root in watched)


def _below(path: str, root: str) -> bool:
    return path == root or Path(path).is_relative_to(root)
