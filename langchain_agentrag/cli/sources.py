"""`agentrag sync`: every source of a file brought up to date, once or for as long as it runs."""

import json as codec
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langchain_agentrag.cli import render
from langchain_agentrag.cli.output import (
    INTERRUPTED,
    JsonOption,
    answer,
    build_graph,
    fail,
    guarded,
    plain,
    side_channel,
)

if TYPE_CHECKING:
    from langchain_agentrag.cli.sync_config import Source, SourceFile
    from langchain_agentrag.cli.sync import Run, SourceOutcome


@guarded
def sync(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", exists=True, dir_okay=False, help="A TOML file of sources.")
    ],
    *,
    store: Annotated[
        Path | None, typer.Option("--store", help="Folder of the store, in place of the file's.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this source; repeatable.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove documents of sources that are not in the file any more.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, and follow changes until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Bring the store in step with the sources of a file; exit code 1 if one of them failed."""
    from langchain_agentrag.cli.sync_config import read_source_file
    from langchain_agentrag.cli.sync import Run
    from langchain_agentrag.indexer import DualIndexer

    file = read_source_file(config, store=store)
    chosen = _chosen(file, only or [])
    try:
        with DualIndexer(file.store, embeddings=file.embeddings) as indexer:
            run = Run(indexer, file)
            outcomes = _pass(run, chosen)
            outcomes += run.removed(outcomes, prune=prune)
            _tell(outcomes, as_json=json)
            build_graph(indexer)
            if watch:
                _follow(run, file, chosen, as_json=json)
    except KeyboardInterrupt:
        fail(
            "stopped. What was finished is in the store, which is consistent; run the same command to go on.",
            INTERRUPTED,
        )
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(1)


def _chosen(file: "SourceFile", only: list[str]) -> "list[Source]":
    known = {source.name: source for source in file.sources}
    for name in only:
        if name not in known:
            msg = f"{name!r} is no source of {file.path.name}: {', '.join(known)}."
            raise typer.BadParameter(msg, param_hint="--only")
    return [source for source in file.sources if not only or source.name in only]


def _pass(run: "Run", sources: "Iterable[Source]") -> "list[SourceOutcome]":
    from langchain_agentrag.cli.output import progress_bar

    outcomes = []
    for source in sources:
        if source.connector is None:
            outcomes.append(run.sync(source))
            continue
        with progress_bar(side_channel(), f"Syncing {source.name}", source.connector) as moved:
            outcomes.append(run.sync(source, moved))
    return outcomes


def _follow(run: "Run", file: "SourceFile", chosen: "list[Source]", *, as_json: bool) -> None:
    """Pass after pass over what may have changed; only what did is told."""
    from langchain_agentrag.cli.sync import due_sources

    names = {source.name for source in chosen}
    if not as_json:
        side_channel().print("Following the sources; Ctrl-C ends it.", style="dim")
    for due in due_sources(file, names):
        told = [outcome for outcome in _pass(run, due) if outcome.changed]
        if told:
            _tell(told, as_json=as_json, one_line=True)


def _tell(outcomes: "list[SourceOutcome]", *, as_json: bool, one_line: bool = False) -> None:
    document: dict[str, Any] = {
        "ok": not any(outcome.failed for outcome in outcomes),
        "sources": [{**plain(outcome), "failed": outcome.failed} for outcome in outcomes],
    }
    if as_json and one_line:
        sys.stdout.write(codec.dumps(document, ensure_ascii=False) + "\n")
    else:
        answer(render.sources_view(outcomes), document, as_json=as_json)
    sys.stdout.flush()
