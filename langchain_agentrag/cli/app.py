"""The commands of `agentrag`. Each one parses, calls the engine, and prints; nothing is decided here."""

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from langchain_agentrag import __version__
from langchain_agentrag.cli import evaluation, memory, render
from langchain_agentrag.cli.evaluation import named_reranker
from langchain_agentrag.cli.output import (
    DEFAULT_STORE,
    INTERRUPTED,
    AfterOption,
    AgentOption,
    BeforeOption,
    JsonOption,
    StoreOption,
    answer,
    build_graph,
    confirmed,
    fail,
    guarded,
    hits_document,
    open_existing,
    parsed_filter,
    parsed_span,
    plain,
    side_channel,
)
from langchain_agentrag.cli.terminal_text import printable
from langchain_agentrag.cli.sources import sync as sync_sources
from langchain_agentrag.types import SyncReport

if TYPE_CHECKING:
    from langchain_agentrag.store.verify import VerifyReport

app = typer.Typer(
    help="Hybrid search for AI agents over files and memories, in Chinese and English.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:  # noqa: FBT001  (called by typer)
    if asked:
        typer.echo(f"agentrag {__version__}")
        raise typer.Exit


class Model(enum.StrEnum):
    """Embeddings the demo can run with."""

    local = "local"
    hash = "hash"


class Mode(enum.StrEnum):
    """Which legs take part in a search."""

    hybrid = "hybrid"
    vector = "vector"
    keyword = "keyword"


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass


@app.command()
@guarded
def demo(
    *,
    store: Annotated[
        Path | None, typer.Option("--store", help="A new folder; default: a temporary one, kept.")
    ] = None,
    embeddings: Annotated[
        Model, typer.Option("--embeddings", help="A model that knows meaning, or hashed words.")
    ] = Model.local,
    json: JsonOption = False,
) -> None:
    """Index a few real files and show what the search can do; exit code 1 if a claim does not hold."""
    from langchain_agentrag.cli import demo as theatre

    result = theatre.play(store, embeddings.value, quiet=json)
    if json:
        answer("", result, as_json=True)
    if theatre.failed(result):
        raise typer.Exit(1)


@app.command()
@guarded
def index(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", exists=True, help="Files and folders.")],
    *,
    store: StoreOption = DEFAULT_STORE,
    agent: AgentOption = None,
    glob: Annotated[
        list[str] | None, typer.Option("--glob", help="Only files that match; repeatable.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", help="Leave these out; repeatable.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="First part of the document ids; default: the folder's name.")
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(
            "--embeddings",
            envvar="AGENTRAG_EMBEDDINGS",
            help="local, hash, or a model name; default: what the store has.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Index files and folders; a second run does only what changed."""
    from langchain_agentrag.cli.output import progress_bar
    from langchain_agentrag.connectors.files import FileSystemConnector
    from langchain_agentrag.indexer import DualIndexer

    if name is not None and len(paths) > 1:
        msg = f"one name for {len(paths)} paths: index them one by one, each with its own."
        raise typer.BadParameter(msg, param_hint="--name")
    report = SyncReport()
    try:
        with DualIndexer(store, embeddings=embeddings) as indexer:
            for path in paths:
                left_out = [*(exclude or ()), *_store_inside(path, store)]
                connector = FileSystemConnector(
                    path, glob=glob or "**/*", exclude=left_out, agent_id=agent, name=name
                )
                with progress_bar(side_channel(), f"Indexing {path.name or path}", connector) as moved:
                    report += indexer.sync(connector, on_progress=moved)
            build_graph(indexer)
    except KeyboardInterrupt:
        fail(
            "stopped. What was finished is in the store, which is consistent; run the same command to go on.",
            INTERRUPTED,
        )
    answer(render.report_view(report), report, as_json=json)
    if report.failed and not (report.added or report.updated or report.unchanged):
        raise typer.Exit(1)


def _store_inside(folder: Path, store: Path) -> list[str]:
    """The store's own place, when it lies in the folder that is indexed: it must not index itself."""
    folder, store = folder.resolve(), store.resolve()
    return [store.relative_to(folder).as_posix()] if folder != store and store.is_relative_to(folder) else []


app.command(name="sync")(sync_sources)


@app.command()
@guarded
def search(
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="What to look for, in any words.")],
    *,
    store: StoreOption = DEFAULT_STORE,
    agent: AgentOption = None,
    k: Annotated[int, typer.Option("-k", "--top", help="How many passages.")] = 5,
    mode: Annotated[Mode, typer.Option("--mode", help="Which legs to ask.")] = Mode.hybrid,
    where: Annotated[str | None, typer.Option("--filter", help="Condition on the metadata, as JSON.")] = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    recency: Annotated[
        str | None,
        typer.Option("--recency", help="Put the newer of near-equals first; a half-life such as 7d."),
    ] = None,
    reranker: Annotated[
        str | None, typer.Option("--reranker", help="Cross-encoder name or folder, or module:attribute.")
    ] = None,
    rerank_timeout: Annotated[
        float | None, typer.Option("--rerank-timeout", help="Seconds the reranker may take.")
    ] = None,
    diversity: Annotated[
        float, typer.Option("--diversity", min=0, max=1, help="0 takes the best, 1 the most different.")
    ] = 0.0,
    per_document: Annotated[
        int | None, typer.Option("--per-document", min=1, help="Most passages of one document.")
    ] = None,
    collapse: Annotated[
        bool, typer.Option("--collapse", help="Nearly equal passages become one, naming the others.")
    ] = False,
    neighbours: Annotated[
        int, typer.Option("--neighbours", min=0, help="Chunks to read before and after each hit.")
    ] = 0,
    history: Annotated[
        list[str] | None,
        typer.Option("--history", help="An earlier turn of the conversation; repeatable, oldest first."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Weights of the words, and what was dropped and why.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find passages, with the reason for each."""
    condition, half_life = parsed_filter(where), parsed_span(recency, "--recency")
    with open_existing(store) as indexer:
        hits = indexer.search(
            " ".join(query),
            k=k,
            agent_id=agent,
            filter=condition,
            mode=mode.value,
            after=after,
            before=before,
            recency=half_life,
            reranker=named_reranker(reranker),
            rerank_timeout=rerank_timeout,
            diversity=diversity,
            max_per_document=per_document,
            collapse=collapse,
            neighbours=neighbours,
            history=history,
            explain=explain,
        )
    answer(render.hits_table(hits), hits_document(hits, agent_id=agent), as_json=json)


@app.command()
@guarded
def read(
    doc_id: Annotated[str, typer.Argument(metavar="DOC_ID", help="Document, as a search shows it.")],
    chunk_id: Annotated[int, typer.Argument(metavar="CHUNK_ID", help="Chunk in it, from 0.")] = 0,
    *,
    store: StoreOption = DEFAULT_STORE,
    agent: AgentOption = None,
    before: Annotated[int, typer.Option("--before", min=0, help="Chunks before it.")] = 0,
    after: Annotated[int, typer.Option("--after", min=0, help="Chunks after it.")] = 0,
    json: JsonOption = False,
) -> None:
    """Read a passage by its address, with its neighbours."""
    with open_existing(store) as indexer:
        passage = indexer.read(doc_id, chunk_id, before=before, after=after, agent_id=agent)
    answer(render.passage_view(passage), passage, as_json=json)


@app.command()
@guarded
def delete(
    doc_ids: Annotated[
        list[str] | None, typer.Argument(metavar="DOC_ID", help="Documents, as a search shows them.")
    ] = None,
    *,
    store: StoreOption = DEFAULT_STORE,
    agent: AgentOption = None,
    session: Annotated[
        str | None, typer.Option("--session", help="Only what belongs to this session.")
    ] = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    where: Annotated[str | None, typer.Option("--filter", help="Condition on the metadata, as JSON.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete documents of one owner for good: those named, and those that every condition keeps."""
    condition = parsed_filter(where)
    if not (doc_ids or session or after or before or condition):
        msg = (
            "nothing is named: give document ids, --session, --after, --before or --filter. "
            "`agentrag forget AGENT` deletes all that is private to an agent."
        )
        raise typer.BadParameter(msg, param_hint="DOC_ID")
    with open_existing(store) as indexer:
        whose = "shared documents" if agent is None else f"documents of {agent!r}"
        confirmed(f"Delete the {whose} that this names, for good?", yes=yes)
        report = indexer.delete(
            doc_ids or None, filter=condition, agent_id=agent, session=session, after=after, before=before
        )
    answer(Group(Text(f"Deleted {report.deleted} documents.")), report, as_json=json)


@app.command()
@guarded
def expire(*, store: StoreOption = DEFAULT_STORE, json: JsonOption = False) -> None:
    """Take off the disk what has expired; no search finds it either way."""
    with open_existing(store) as indexer:
        report = indexer.expire()
    answer(Group(Text(f"Removed {report.deleted} expired documents.")), report, as_json=json)


@app.command()
@guarded
def forget(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Agent whose private documents go.")],
    *,
    store: StoreOption = DEFAULT_STORE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete everything private to an agent, text and vectors, for good."""
    with open_existing(store) as indexer:
        confirmed(f"Delete all private documents of {agent!r}, for good?", yes=yes)
        report = indexer.forget_agent(agent)
    view = Group(Text(f"Forgot {report.deleted} documents of “{printable(agent)}”."))
    answer(view, report, as_json=json)


@app.command()
@guarded
def stats(*, store: StoreOption = DEFAULT_STORE, agent: AgentOption = None, json: JsonOption = False) -> None:
    """Say what the store holds."""
    with open_existing(store) as indexer:
        facts = indexer.stats(agent_id=agent)
    answer(render.facts_table(facts), facts, as_json=json)


@app.command()
@guarded
def verify(
    *,
    store: StoreOption = DEFAULT_STORE,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also look into every chunk, and try to make agents leak.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check that both indexes hold exactly what the catalog says; exit code 1 if not."""
    with open_existing(store) as indexer:
        report = indexer.verify(deep=deep)
    _say_sound(report, as_json=json)


@app.command()
@guarded
def repair(*, store: StoreOption = DEFAULT_STORE, json: JsonOption = False) -> None:
    """Rebuild what differs from the catalog; nothing is embedded again."""
    with open_existing(store) as indexer:
        report = indexer.repair()
    _say_sound(report, as_json=json)


def _say_sound(report: "VerifyReport", *, as_json: bool) -> None:
    """The findings; exit code 1 when the store is not sound."""
    answer(render.verdict_view(report), {"ok": report.ok, **plain(report)}, as_json=as_json)
    if not report.ok:
        raise typer.Exit(1)


app.command("memory")(guarded(memory.memory))
app.command("eval")(guarded(evaluation.evaluate))
