"""Commands of `agentrag`: each one parses its options, calls the engine and prints the result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class
from rich.console import Group
from rich.text import Text

from langchain_agentrag import __version__
from langchain_agentrag.cli import evaluation, listing, render, sync
from langchain_agentrag.cli.commands import (
    CommandGroup,
    ExitCode,
    argument,
    confirm,
    existing_path,
    fail,
    fail_interrupted,
    option,
)
from langchain_agentrag.cli.language import _, plural, translate
from langchain_agentrag.cli.options import (
    PATH,
    after_option,
    agent_option,
    before_option,
    fence_option,
    filter_option,
    json_option,
    load_reranker,
    max_bytes_option,
    open_store,
    parse_duration,
    parse_filter,
    reranker_option,
    store_option,
    yes_option,
)
from langchain_agentrag.cli.output import (
    build_vector_graph,
    hits_document,
    json_value,
    print_result,
    progress_bar,
    stderr_console,
)
from langchain_agentrag.cli.terminal_text import printable
from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.types import SearchMode, SyncReport

if TYPE_CHECKING:
    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.store.verify import VerifyReport


def _print_version(context: click.Context, _parameter: click.Parameter, requested: bool) -> None:  # noqa: FBT001
    if requested:
        click.echo(f"agentrag {__version__}")
        context.exit()


@click.group(
    name="agentrag",
    cls=CommandGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100},
)
@option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def app() -> None:
    """Hybrid search for AI agents over files and memories, in Chinese and English."""


@app.command()
@option(
    "--store",
    type=PATH,
    envvar="AGENTRAG_STORE",
    show_envvar=True,
    help="A new folder; default: a temporary one, kept.",
)
@option(
    "--embeddings",
    type=click.Choice(["local", "hash"]),
    default="local",
    help="A model that knows meaning, or hashed words.",
)
@json_option
def demo(*, store: Path | None, embeddings: str, as_json: bool) -> None:
    """Index a few real files and show what the search can do; exit code 1 if a claim does not hold."""
    from langchain_agentrag.cli.demo import any_claim_failed, run_demo

    result = run_demo(store, embeddings, quiet=as_json)
    if as_json:
        print_result("", result, as_json=True)
    if any_claim_failed(result):
        raise click.exceptions.Exit(ExitCode.FAILED)


@app.command()
@argument("paths", metavar="PATH...", nargs=-1, required=True, type=PATH, help="Files and folders.")
@store_option
@agent_option
@option("--glob", multiple=True, metavar="PATTERN", help="Only files that match; repeatable.")
@option("--exclude", multiple=True, metavar="PATTERN", help="Leave these out; repeatable.")
@max_bytes_option
@option("--name", help="First part of the document ids; default: the folder's name.")
@option(
    "--embeddings",
    metavar="MODEL",
    envvar="AGENTRAG_EMBEDDINGS",
    show_envvar=True,
    help="local, hash, provider:model, or a model name; default: what the store has.",
)
@json_option
def index(
    *,
    paths: tuple[Path, ...],
    store: Path,
    agent: str | None,
    glob: tuple[str, ...],
    exclude: tuple[str, ...],
    max_bytes: int | None,
    name: str | None,
    embeddings: str | None,
    as_json: bool,
) -> None:
    """Index files and folders; a second run indexes only what changed."""
    from langchain_agentrag.connectors.files import FileSystemConnector
    from langchain_agentrag.connectors.files.connector import DEFAULT_MAX_BYTES
    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.ingest.sources import store_within

    for path in paths:
        existing_path(path, "PATH")
    if name is not None and len(paths) > 1:
        message = _("one name for {count} paths: index them one by one, each with its own.", count=len(paths))
        raise click.BadParameter(message, param_hint="--name")
    report, empty = SyncReport(), []
    try:
        with DualIndexer(store, embeddings=embeddings) as indexer:
            for path in paths:
                excluded = [*exclude, *store_within(path, store)]
                connector = FileSystemConnector(
                    path,
                    glob=glob or "**/*",
                    exclude=excluded,
                    agent_id=agent,
                    name=name,
                    max_bytes=DEFAULT_MAX_BYTES if max_bytes is None else max_bytes,
                )
                title = _("Indexing {name}", name=path.name or path)
                with progress_bar(stderr_console(), title, connector) as update:
                    one = indexer.sync(connector, on_progress=update)
                if not (one.added or one.updated or one.unchanged or one.failed or one.skipped):
                    empty.append(path)
                report += one
            build_vector_graph(indexer)
    except KeyboardInterrupt:
        fail_interrupted()
    print_result(render.sync_report_view(report, empty), report, as_json=as_json)
    if report.failed:
        indexed = report.added or report.updated or report.unchanged
        raise click.exceptions.Exit(ExitCode.INCOMPLETE if indexed else ExitCode.FAILED)


app.add_command(sync.sync)


@app.command()
@argument("query", metavar="QUERY...", nargs=-1, required=True, help="What to look for, in any words.")
@store_option
@agent_option
@option("-k", "--top", "k", type=int, default=5, help="How many passages.")
@option("--mode", type=click.Choice(["hybrid", "vector", "keyword"]), default="hybrid", help="Which indexes to search.")
@filter_option
@after_option
@before_option
@option("--recency", metavar="TIME", help="Put the newer of near-equals first; a half-life such as 7d.")
@reranker_option
@option("--rerank-timeout", type=float, metavar="SECONDS", help="Seconds the reranker may take.")
@option(
    "--diversity",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="0..1",
    help="0 takes the best, 1 the most different.",
)
@option("--per-document", type=click.IntRange(min=1), metavar="N", help="Most passages of one document.")
@option("--collapse", is_flag=True, help="Nearly equal passages become one, naming the others.")
@option(
    "--neighbours", type=click.IntRange(min=0), default=0, metavar="N", help="Chunks to read before and after each hit."
)
@option(
    "--history", multiple=True, metavar="TEXT", help="An earlier turn of the conversation; repeatable, oldest first."
)
@option("--explain", is_flag=True, help="Weights of the words, and what was dropped and why.")
@fence_option
@json_option
def search(
    *,
    query: tuple[str, ...],
    store: Path,
    agent: str | None,
    k: int,
    mode: SearchMode,
    where: str | None,
    after: str | None,
    before: str | None,
    recency: str | None,
    reranker: str | None,
    rerank_timeout: float | None,
    diversity: float,
    per_document: int | None,
    collapse: bool,
    neighbours: int,
    history: tuple[str, ...],
    explain: bool,
    fence: bool | None,
    as_json: bool,
) -> None:
    """Search passages, with the reason for each."""
    question = " ".join(query)
    if not question.strip():
        raise click.BadParameter(_("the query is empty: ask with at least one word."), param_hint="QUERY")
    condition, half_life = parse_filter(where), parse_duration(recency, "--recency")
    with open_store(store) as indexer:
        hits = indexer.search(
            question,
            k=k,
            agent_id=agent,
            filter=condition,
            mode=mode,
            after=after,
            before=before,
            recency=half_life,
            reranker=load_reranker(reranker),
            rerank_timeout=rerank_timeout,
            diversity=diversity,
            max_per_document=per_document,
            collapse=collapse,
            neighbours=neighbours,
            history=list(history) or None,
            explain=explain,
        )
        own = None if agent is None else listing.count_own(indexer, agent)
    view = Group(*listing.owns_nothing_notes(agent, own), render.hits_table(hits))
    document = hits_document(hits, agent_id=agent, own_documents=own)
    print_result(view, document, as_json=as_json, fence=fence)


@app.command()
@argument("doc_id", metavar="DOC_ID", help="Document, as a search shows it.")
@argument(
    "chunk_id", metavar="[CHUNK_ID]", type=click.IntRange(min=0), default=0, required=False, help="Chunk in it, from 0."
)
@store_option
@agent_option
@option("--before", type=click.IntRange(min=0), default=0, metavar="N", help="Chunks before it.")
@option("--after", type=click.IntRange(min=0), default=0, metavar="N", help="Chunks after it.")
@fence_option
@json_option
def read(
    *,
    doc_id: str,
    chunk_id: int,
    store: Path,
    agent: str | None,
    before: int,
    after: int,
    fence: bool | None,
    as_json: bool,
) -> None:
    """Read a passage by document and chunk, with its neighbours."""
    with open_store(store) as indexer:
        try:
            passage = indexer.read(doc_id, chunk_id, before=before, after=after, agent_id=agent)
        except InvalidQueryError as error:  # the address is well formed, but nothing is there
            fail(translate(str(error)), ExitCode.FAILED, "NotFound")
    print_result(render.passage_view(passage), passage, as_json=as_json, fence=fence)


app.add_command(listing.documents)


@app.command()
@argument("doc_ids", metavar="[DOC_ID]...", nargs=-1, help="Documents, as a search shows them.")
@store_option
@agent_option
@option("--session", help="Only what belongs to this session.")
@after_option
@before_option
@filter_option
@yes_option
@json_option
def delete(
    *,
    doc_ids: tuple[str, ...],
    store: Path,
    agent: str | None,
    session: str | None,
    after: str | None,
    before: str | None,
    where: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete documents of one owner for good: by id, or by conditions that all must hold."""
    condition = parse_filter(where)
    if not (doc_ids or session or after or before or condition):
        message = _(
            "nothing is named: give document ids, --session, --after, --before or --filter. "
            "`agentrag forget AGENT` deletes all that is private to an agent."
        )
        raise click.BadParameter(message, param_hint="DOC_ID")
    with open_store(store) as indexer:
        missing = _missing(indexer, doc_ids, agent)
        if doc_ids and len(missing) == len(set(doc_ids)):
            fail(_missing_message(missing, agent), ExitCode.FAILED, "NotFound")
        if agent is None:
            question = _("Delete the shared documents that this names, for good?")
        else:
            question = _("Delete the documents of “{agent}” that this names, for good?", agent=printable(agent))
        confirm(question, yes=yes)
        report = indexer.erase(
            list(doc_ids) or None, filter=condition, agent_id=agent, session=session, after=after, before=before
        )
    lines = [Text(plural("Deleted {n} document.", "Deleted {n} documents.", report.deleted))]
    if not report.deleted:
        lines = [Text(_("Nothing matches; nothing was deleted."))]
    if missing:
        lines.append(Text(_missing_message(missing, agent), "red"))
    document = {**json_value(report), "missing": missing}
    print_result(Group(*lines), document, as_json=as_json)
    if missing:
        raise click.exceptions.Exit(ExitCode.INCOMPLETE)


def _missing(indexer: DualIndexer, doc_ids: tuple[str, ...], agent: str | None) -> list[str]:
    """Return the ids under which the owner has no document, each once."""
    wanted = list(dict.fromkeys(doc_ids))
    present = {document.doc_id for document in indexer.owned_documents(agent).find(wanted)}
    return [doc_id for doc_id in wanted if doc_id not in present]


def _missing_message(missing: list[str], agent: str | None) -> str:
    names = ", ".join(map(printable, missing))
    if agent is None:
        return _("no shared document {names}; `agentrag documents` lists what there is.", names=names)
    return _(
        "“{agent}” has no document {names}; `agentrag documents --own` lists what there is.",
        agent=printable(agent),
        names=names,
    )


@app.command()
@store_option
@json_option
def expire(*, store: Path, as_json: bool) -> None:
    """Delete expired documents from the disk; searches ignore them either way."""
    with open_store(store) as indexer:
        report = indexer.expire()
    text = plural("Removed {n} expired document.", "Removed {n} expired documents.", report.deleted)
    print_result(Text(text), report, as_json=as_json)


@app.command()
@argument("agent", metavar="AGENT", help="Agent whose private documents go.")
@store_option
@yes_option
@json_option
def forget(*, agent: str, store: Path, yes: bool, as_json: bool) -> None:
    """Delete everything private to an agent, text and vectors, for good."""
    name = printable(agent)
    with open_store(store) as indexer:
        own = listing.count_own(indexer, agent)
        if own:
            confirm(_("Delete all private documents of “{agent}”, for good?", agent=name), yes=yes)
        report = indexer.forget_agent(agent)  # also names and caches that deleted documents have left
    if report.deleted:
        text = plural("Deleted {n} document", "Deleted {n} documents", report.deleted)
        view = Text(_("{count} of “{agent}”.", count=text, agent=name))
    else:
        view = Text(_("“{agent}” has no documents of its own here; nothing was deleted.", agent=name))
    print_result(view, report, as_json=as_json)


@app.command()
@store_option
@agent_option
@json_option
def stats(*, store: Path, agent: str | None, as_json: bool) -> None:
    """Print figures of the store: documents, chunks, sizes."""
    with open_store(store) as indexer:
        figures = indexer.stats(agent_id=agent)
    own = None if agent is None else figures.documents - figures.shared_documents
    view = Group(*listing.owns_nothing_notes(agent, own), render.record_table(figures))
    print_result(view, figures, as_json=as_json)


@app.command()
@store_option
@option("--deep", is_flag=True, help="Also read every chunk, and probe the isolation of agents.")
@json_option
def verify(*, store: Path, deep: bool, as_json: bool) -> None:
    """Check that both indexes match the catalog; exit code 1 if not."""
    with open_store(store) as indexer:
        report = indexer.verify(deep=deep)
    _print_verification(report, as_json=as_json)


@app.command()
@store_option
@json_option
def repair(*, store: Path, as_json: bool) -> None:
    """Rebuild what does not match the catalog; nothing is embedded again."""
    with open_store(store) as indexer:
        report = indexer.repair()
    _print_verification(report, as_json=as_json)


def _print_verification(report: VerifyReport, *, as_json: bool) -> None:
    """Print the problems of a store; exit code 1 if there are any."""
    print_result(render.verify_view(report), {"ok": report.ok, **json_value(report)}, as_json=as_json)
    if not report.ok:
        raise click.exceptions.Exit(ExitCode.FAILED)


app.add_command(listing.memory)
app.add_command(evaluation.evaluate)


@app.command()
@argument("shell", metavar="bash|zsh|fish", type=click.Choice(["bash", "zsh", "fish"]), help="The shell.")
@click.pass_context
def completion(context: click.Context, *, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    bash, in ~/.bashrc: eval "$(agentrag completion bash)"

    zsh, in ~/.zshrc after compinit: eval "$(agentrag completion zsh)"

    fish: agentrag completion fish > ~/.config/fish/completions/agentrag.fish
    """
    completer = get_completion_class(shell)
    assert completer is not None  # noqa: S101  (one of the choices)
    click.echo(completer(context.find_root().command, {}, "agentrag", "_AGENTRAG_COMPLETE").source())
