"""Commands of `agentrag`: each one parses its options, calls the engine and prints the result."""

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from langchain_agentrag import __version__
from langchain_agentrag.cli import evaluation, memory, render, sync
from langchain_agentrag.cli.options import (
    DEFAULT_STORE,
    AfterOption,
    AgentOption,
    BeforeOption,
    FenceOption,
    FilterOption,
    JsonOption,
    RerankerOption,
    StoreOption,
    load_reranker,
    open_store,
    parse_duration,
    parse_filter,
)
from langchain_agentrag.cli.output import (
    build_vector_graph,
    confirm,
    fail_interrupted,
    handle_errors,
    hits_document,
    json_value,
    print_result,
    progress_bar,
    stderr_console,
)
from langchain_agentrag.cli.terminal_text import printable
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


def _print_version(requested: bool) -> None:  # noqa: FBT001  (called by typer)
    if requested:
        typer.echo(f"agentrag {__version__}")
        raise typer.Exit


class Model(enum.StrEnum):
    """Embeddings of the demo."""

    local = "local"
    hash = "hash"


class Mode(enum.StrEnum):
    """Indexes that take part in a search."""

    hybrid = "hybrid"
    vector = "vector"
    keyword = "keyword"


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
@handle_errors
def demo(
    *,
    store: Annotated[Path | None, typer.Option("--store", help="A new folder; default: a temporary one, kept.")] = None,
    embeddings: Annotated[
        Model, typer.Option("--embeddings", help="A model that knows meaning, or hashed words.")
    ] = Model.local,
    json: JsonOption = False,
) -> None:
    """Index a few real files and show what the search can do; exit code 1 if a claim does not hold."""
    from langchain_agentrag.cli.demo import any_claim_failed, run_demo

    result = run_demo(store, embeddings.value, quiet=json)
    if json:
        print_result("", result, as_json=True)
    if any_claim_failed(result):
        raise typer.Exit(1)


@app.command()
@handle_errors
def index(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", exists=True, help="Files and folders.")],
    *,
    store: StoreOption = DEFAULT_STORE,
    agent: AgentOption = None,
    glob: Annotated[list[str] | None, typer.Option("--glob", help="Only files that match; repeatable.")] = None,
    exclude: Annotated[list[str] | None, typer.Option("--exclude", help="Leave these out; repeatable.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="First part of the document ids; default: the folder's name.")
    ] = None,
    embeddings: Annotated[
        str | None,
        typer.Option(
            "--embeddings",
            envvar="AGENTRAG_EMBEDDINGS",
            help="local, hash, provider:model, or a model name; default: what the store has.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Index files and folders; a second run indexes only what changed."""
    from langchain_agentrag.connectors.files import FileSystemConnector
    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.ingest.sources import store_within

    if name is not None and len(paths) > 1:
        msg = f"one name for {len(paths)} paths: index them one by one, each with its own."
        raise typer.BadParameter(msg, param_hint="--name")
    report = SyncReport()
    try:
        with DualIndexer(store, embeddings=embeddings) as indexer:
            for path in paths:
                excluded = [*(exclude or ()), *store_within(path, store)]
                connector = FileSystemConnector(path, glob=glob or "**/*", exclude=excluded, agent_id=agent, name=name)
                with progress_bar(stderr_console(), f"Indexing {path.name or path}", connector) as update:
                    report += indexer.sync(connector, on_progress=update)
            build_vector_graph(indexer)
    except KeyboardInterrupt:
        fail_interrupted()
    print_result(render.sync_report_view(report), report, as_json=json)
    if report.failed and not (report.added or report.updated or report.unchanged):
        raise typer.Exit(1)


app.command("sync")(handle_errors(sync.sync))


@app.command()
@handle_errors
def search(
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="What to look for, in any words.")],
    *,
    store: StoreOption = DEFAULT_STORE,
    agent: AgentOption = None,
    k: Annotated[int, typer.Option("-k", "--top", help="How many passages.")] = 5,
    mode: Annotated[Mode, typer.Option("--mode", help="Which indexes to search.")] = Mode.hybrid,
    where: FilterOption = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    recency: Annotated[
        str | None, typer.Option("--recency", help="Put the newer of near-equals first; a half-life such as 7d.")
    ] = None,
    reranker: RerankerOption = None,
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
    fence: FenceOption = None,
    json: JsonOption = False,
) -> None:
    """Search passages, with the reason for each."""
    condition, half_life = parse_filter(where), parse_duration(recency, "--recency")
    with open_store(store) as indexer:
        hits = indexer.search(
            " ".join(query),
            k=k,
            agent_id=agent,
            filter=condition,
            mode=mode.value,
            after=after,
            before=before,
            recency=half_life,
            reranker=load_reranker(reranker),
            rerank_timeout=rerank_timeout,
            diversity=diversity,
            max_per_document=per_document,
            collapse=collapse,
            neighbours=neighbours,
            history=history,
            explain=explain,
        )
    print_result(render.hits_table(hits), hits_document(hits, agent_id=agent), as_json=json, fence=fence)


@app.command()
@handle_errors
def read(
    doc_id: Annotated[str, typer.Argument(metavar="DOC_ID", help="Document, as a search shows it.")],
    chunk_id: Annotated[int, typer.Argument(metavar="CHUNK_ID", help="Chunk in it, from 0.")] = 0,
    *,
    store: StoreOption = DEFAULT_STORE,
    agent: AgentOption = None,
    before: Annotated[int, typer.Option("--before", min=0, help="Chunks before it.")] = 0,
    after: Annotated[int, typer.Option("--after", min=0, help="Chunks after it.")] = 0,
    fence: FenceOption = None,
    json: JsonOption = False,
) -> None:
    """Read a passage by document and chunk, with its neighbours."""
    with open_store(store) as indexer:
        passage = indexer.read(doc_id, chunk_id, before=before, after=after, agent_id=agent)
    print_result(render.passage_view(passage), passage, as_json=json, fence=fence)


@app.command()
@handle_errors
def delete(
    doc_ids: Annotated[
        list[str] | None, typer.Argument(metavar="DOC_ID", help="Documents, as a search shows them.")
    ] = None,
    *,
    store: StoreOption = DEFAULT_STORE,
    agent: AgentOption = None,
    session: Annotated[str | None, typer.Option("--session", help="Only what belongs to this session.")] = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    where: FilterOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete documents of one owner for good: by id, or by conditions that all must hold."""
    condition = parse_filter(where)
    if not (doc_ids or session or after or before or condition):
        msg = (
            "nothing is named: give document ids, --session, --after, --before or --filter. "
            "`agentrag forget AGENT` deletes all that is private to an agent."
        )
        raise typer.BadParameter(msg, param_hint="DOC_ID")
    with open_store(store) as indexer:
        owned = "shared documents" if agent is None else f"documents of {agent!r}"
        confirm(f"Delete the {owned} that this names, for good?", yes=yes)
        report = indexer.erase(
            doc_ids or None, filter=condition, agent_id=agent, session=session, after=after, before=before
        )
    print_result(Group(Text(f"Deleted {report.deleted} documents.")), report, as_json=json)


@app.command()
@handle_errors
def expire(*, store: StoreOption = DEFAULT_STORE, json: JsonOption = False) -> None:
    """Delete expired documents from the disk; searches ignore them either way."""
    with open_store(store) as indexer:
        report = indexer.expire()
    print_result(Group(Text(f"Removed {report.deleted} expired documents.")), report, as_json=json)


@app.command()
@handle_errors
def forget(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Agent whose private documents go.")],
    *,
    store: StoreOption = DEFAULT_STORE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete everything private to an agent, text and vectors, for good."""
    with open_store(store) as indexer:
        confirm(f"Delete all private documents of {agent!r}, for good?", yes=yes)
        report = indexer.forget_agent(agent)
    view = Group(Text(f"Forgot {report.deleted} documents of “{printable(agent)}”."))
    print_result(view, report, as_json=json)


@app.command()
@handle_errors
def stats(*, store: StoreOption = DEFAULT_STORE, agent: AgentOption = None, json: JsonOption = False) -> None:
    """Print figures of the store: documents, chunks, sizes."""
    with open_store(store) as indexer:
        figures = indexer.stats(agent_id=agent)
    print_result(render.record_table(figures), figures, as_json=json)


@app.command()
@handle_errors
def verify(
    *,
    store: StoreOption = DEFAULT_STORE,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read every chunk, and probe the isolation of agents.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check that both indexes match the catalog; exit code 1 if not."""
    with open_store(store) as indexer:
        report = indexer.verify(deep=deep)
    _print_verification(report, as_json=json)


@app.command()
@handle_errors
def repair(*, store: StoreOption = DEFAULT_STORE, json: JsonOption = False) -> None:
    """Rebuild what does not match the catalog; nothing is embedded again."""
    with open_store(store) as indexer:
        report = indexer.repair()
    _print_verification(report, as_json=json)


def _print_verification(report: "VerifyReport", *, as_json: bool) -> None:
    """Print the problems of a store; exit code 1 if there are any."""
    print_result(render.verify_view(report), {"ok": report.ok, **json_value(report)}, as_json=as_json)
    if not report.ok:
        raise typer.Exit(1)


app.command("memory")(handle_errors(memory.memory))
app.command("eval")(handle_errors(evaluation.evaluate))
