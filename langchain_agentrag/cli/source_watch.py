"""Following sources: files when they change, everything else at an interval."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from langchain_agentrag.cli.source_config import Source, SourceFile
from langchain_agentrag.errors import MissingExtraError

if TYPE_CHECKING:
    import threading

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
