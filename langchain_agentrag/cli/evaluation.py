"""`agentrag eval`: search quality on test questions, drafting of questions, tuning, report."""

from __future__ import annotations

import contextlib
import json as json_codec
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.commands import Command, ExitCode, argument, existing_path, fail, option
from langchain_agentrag.cli.language import LANGUAGES, Language, _, current_language, plural
from langchain_agentrag.cli.options import (
    DEFAULT_STORE,
    PATH,
    agent_option,
    json_option,
    load_object,
    load_reranker,
    open_store,
    reranker_option,
)
from langchain_agentrag.cli.output import print_result, stderr_console
from langchain_agentrag.cli.terminal_text import printable

if TYPE_CHECKING:
    from langchain_agentrag.evaluation import Advice, Change, Collection, Evaluation, Failure
    from langchain_agentrag.evaluation.statistics import Difference
    from langchain_agentrag.indexer import DualIndexer


_SHOWN_FAILURES = 5


@click.command("eval", cls=Command)
@argument(
    "path",
    metavar="PATH",
    type=PATH,
    help="BEIR folder, or JSON lines of question and expected source; with --make, written.",
)
@option(
    "--store",
    type=PATH,
    envvar="AGENTRAG_STORE",
    show_envvar=True,
    help="Search this store; default: the folder's own corpus in a temporary one, for JSON lines agentrag_store.",
)
@agent_option
@option("--qrels", metavar="NAME", help="Which judgments: cross for qrels.cross.tsv.")
@option("--queries", type=click.IntRange(min=1), metavar="N", help="First so many questions.")
@option(
    "--embeddings",
    metavar="MODEL",
    envvar="AGENTRAG_EMBEDDINGS",
    show_envvar=True,
    default="local",
    help="Model for a folder's own corpus.",
)
@option("--cache", type=PATH, metavar="FILE", help="Keep vectors here; each text is embedded once.")
@option("--measure", "measures", multiple=True, metavar="NAME", help="As of ir-measures, such as nDCG@10; repeatable.")
@reranker_option
@option("--baseline", type=PATH, metavar="FILE", help="Compare with a run that --save wrote.")
@option("--save", type=PATH, metavar="FILE", help="Write the run, as JSON.")
@option("--html", type=PATH, metavar="FILE", help="Write a report with charts.")
@option(
    "--language", type=click.Choice(LANGUAGES), show_default=False, help="Of the report; default: that of the messages."
)
@option("--sweep", is_flag=True, help="Also try other settings and recommend some.")
@option("--make", is_flag=True, help="Draft questions from the store, into PATH.")
@option("--most", type=click.IntRange(min=1), default=50, metavar="N", help="Questions to draft.")
@option("--model", metavar="MODULE:NAME", help="Model that writes questions, as module:attribute.")
@json_option
def evaluate(
    *,
    path: Path,
    store: Path | None,
    agent: str | None,
    qrels: str | None,
    queries: int | None,
    embeddings: str,
    cache: Path | None,
    measures: tuple[str, ...],
    reranker: str | None,
    baseline: Path | None,
    save: Path | None,
    html: Path | None,
    language: Language | None,
    sweep: bool,
    make: bool,
    most: int,
    model: str | None,
    as_json: bool,
) -> None:
    """Measure the search on your own test questions, with the cause of every failure."""
    if make:
        _draft(path, store or DEFAULT_STORE, agent, most, model, as_json=as_json)
        return
    if baseline is not None:
        existing_path(baseline, "--baseline")
    from langchain_agentrag import evaluation as ev

    for output in (save, html):  # checked before the work, not after it
        if output is not None and (output.is_dir() or not output.absolute().parent.is_dir()):
            fail(_("cannot write {path}: name a file in a folder that exists.", path=output), ExitCode.USAGE)
    collection = _ask_as_agent(ev.read_collection(path, qrels=qrels, first=queries), agent)
    saved = None if baseline is None else ev.load_run(baseline)
    if saved is not None:
        ev.shared_questions(collection.questions, saved)  # checked before the work, not after it
    second_stage, names = load_reranker(reranker), tuple(measures or ev.MEASURES)
    with _open_collection(collection, store, embeddings, cache) as indexer:
        advice = None
        if sweep:
            with _progress(_("Trying settings")) as update:
                advice = ev.sweep(indexer, collection, ev.grid(second_stage), on_progress=update, measures=names)
        with _progress(_("Searching")) as update:
            result = ev.evaluate(
                indexer, collection, ev.standard_settings(second_stage), on_progress=update, measures=names
            )
        failures = ev.failures(indexer, result)
    changes = [] if saved is None else ev.changes(result, saved)
    run = ev.run_document(result)
    if save is not None:
        save.write_text(json_codec.dumps(run, ensure_ascii=False, indent=1), encoding="utf-8")
    if html is not None:
        page = ev.html_report(
            result,
            failures,
            changes,
            baseline="" if saved is None else saved.name,
            advice=advice,
            language=language or current_language(),
        )
        html.write_text(page, encoding="utf-8")
    document = {
        "run": run,
        "changes": changes,
        "comparisons": ev.compare_settings(result),
        "failures": failures,
        "advice": None if advice is None else _advice_document(advice),
    }
    print_result(_view(result, failures, changes, advice), document, as_json=as_json)


def _draft(path: Path, store: Path, agent: str | None, most: int, model: str | None, *, as_json: bool) -> None:
    from langchain_agentrag.evaluation import draft_questions, write_questions

    language_model = None if model is None else load_object(model, "--model")
    if path.exists():
        fail(_("{path} is there already: name another file, so that no checked question is lost.", path=path))
    with open_store(store) as indexer:
        questions = draft_questions(indexer, agent, most=most, model=language_model)
    if not questions:
        fail(_("nothing to ask: no heading or FAQ in what is visible here. Try --agent, or --model module:attribute."))
    write_questions(path, questions)
    counts = dict(sorted(Counter(question.made_from for question in questions).items()))
    origins = ", ".join(_("{count} from {origin}", count=n, origin=_(origin)) for origin, n in counts.items())
    text = _(
        "Drafted {count} questions ({origins}) into {path}. Look them through, drop what no user would ask, "
        "then run `agentrag eval {path}`.",
        count=len(questions),
        origins=origins,
        path=path,
    )
    view = Text(text)
    print_result(view, {"path": path, "questions": len(questions), "made_from": counts}, as_json=as_json)


def _ask_as_agent(collection: Collection, agent: str | None) -> Collection:
    """Ask all questions as the agent of --agent, if given; refuse questions of another agent."""
    from dataclasses import replace

    if agent is None:
        return collection
    others = {question.agent_id for question in collection.questions} - {None, agent}
    if others:
        other = min(map(str, others))
        message = _(
            "--agent {agent!r}, but questions are asked for {other!r}: leave --agent out.", agent=agent, other=other
        )
        fail(message, ExitCode.USAGE)
    return replace(collection, questions=tuple(replace(question, agent_id=agent) for question in collection.questions))


@contextlib.contextmanager
def _open_collection(
    collection: Collection, store: Path | None, embeddings: str, cache: Path | None
) -> Iterator[DualIndexer]:
    """Open the store to search: that of --store, or a temporary one with the corpus of the collection."""
    from langchain_agentrag.evaluation import cached_embedder
    from langchain_agentrag.indexer import DualIndexer

    if store is not None or collection.corpus is None:
        with open_store(store or DEFAULT_STORE) as indexer:
            yield indexer
        return
    model = embeddings if cache is None else cached_embedder(embeddings, cache)
    with tempfile.TemporaryDirectory(prefix="agentrag-eval-") as folder, DualIndexer(folder, model) as indexer:
        with _progress(_("Indexing"), total=None) as update:
            indexer.index_documents(
                collection.documents(), on_progress=lambda step: update(step.done, 0) if update else None
            )
        yield indexer


@contextlib.contextmanager
def _progress(title: str, total: int | None = 0) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar; yield its callback, or None when standard error is no terminal."""
    console = stderr_console()
    if not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done, all_steps: bar.update(task, completed=done, total=all_steps or None)


# -- output ---------------------------------------------------------------------------------------------------------


def _view(result: Evaluation, failures: list[Failure], changes: list[Change], advice: Advice | None) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column(_("setting"), style="bold")
    for name in result.measures:
        table.add_column(name, justify="right")
    table.add_column(_("p50 / p95 ms"), justify="right")
    for setting, run in result.runs.items():
        intervals = [run.interval(name) for name in result.measures]
        cells = [f"{interval.mean:.3f}" for interval in intervals]
        cells[0] += f" [{intervals[0].low:.3f}, {intervals[0].high:.3f}]"
        table.add_row(setting, *cells, f"{run.latency(0.5):.1f} / {run.latency(0.95):.1f}")
    heading = plural("{n} question", "{n} questions", len(result.judged))
    parts: list[RenderableType] = [Text(f"{printable(result.name)}: {heading}"), table]
    partly = sum(0 < len(question.missing) < len(question.sources) for question in result.judged)
    if result.unanswerable:
        one, many = (
            "{n} question: no expected source is to be seen here.",
            "{n} questions: no expected source is to be seen here.",
        )
        parts.append(Text(plural(one, many, len(result.unanswerable)), "yellow"))
    if partly:
        one, many = (
            "{n} question: not every expected source is to be seen here.",
            "{n} questions: not every expected source is to be seen here.",
        )
        parts.append(Text(plural(one, many, partly), "yellow"))
    parts += [_change_line(change) for change in changes if change.measure == result.measures[0]]
    ranks = result.runs[result.main].ranks
    failed = sum((rank or 11) > 10 for rank in ranks.values())  # noqa: PLR2004  the first ten
    heading = plural(
        "{n} question without an expected source among the first ten:",
        "{n} questions without an expected source among the first ten:",
        failed,
    )
    parts.append(Text(heading if failed else _("Nothing missed.")))
    for failure in failures[:_SHOWN_FAILURES]:
        cause = _(failure.cause.replace("_", " "))
        parts.append(Text(f"- {printable(failure.text[:90])}  ({cause})".replace("\n", " "), "dim"))
    if advice is not None:
        parts.append(_advice_line(advice))
    return Group(*parts)


def _change_line(change: Change) -> Text:
    difference = change.difference
    if difference.significant:
        verdict, style = (_("better"), "green") if difference.mean > 0 else (_("worse"), "red")
    else:
        verdict, style = _("may be chance"), "dim"
    text = _(
        "{setting} against {against} of the baseline: {change}: {verdict}",
        setting=change.setting,
        against=change.against,
        change=f"{difference.mean:+.4f} {change.measure} ({_bounds(difference)})",
        verdict=verdict,
    )
    return Text(text, style)


def _bounds(difference: Difference) -> str:
    return _(
        "{low} to {high}, p {p}", low=f"{difference.low:+.4f}", high=f"{difference.high:+.4f}", p=f"{difference.p:.3f}"
    )


def _advice_line(advice: Advice) -> Text:
    difference = advice.difference
    change = _(
        "{change} on {count} held-out questions ({bounds})",
        change=f"{difference.mean:+.4f} {advice.measure}",
        count=difference.questions,
        bounds=_bounds(difference),
    )
    if advice.worthwhile:
        text = _(
            "Recommended: {best} ({change}). Options: {options}",
            best=advice.best,
            change=change,
            options=advice.options,
        )
        return Text(text, "green")
    if advice.keeps_defaults:
        text = _("Keep the defaults: no other setting was better on the {count} questions tried.", count=advice.chosen)
    else:
        text = _(
            "Keep the defaults; the best of the others, {best}, is not better for sure: {change}.",
            best=advice.best,
            change=change,
        )
    return Text(text, "cyan")


def _advice_document(advice: Advice) -> dict[str, Any]:
    return {
        "best": advice.best,
        "options": dict(advice.options),
        "worthwhile": advice.worthwhile,
        "measure": advice.measure,
        "held_out": advice.difference,
        "chosen_on": advice.chosen,
        "table": [{"setting": name, "chosen": a, "held_out": b} for name, a, b in advice.table],
    }
