"""`agentrag eval`: search quality on test questions, drafting of questions, tuning, report."""

from __future__ import annotations

import contextlib
import json as json_codec
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.options import (
    DEFAULT_STORE,
    AgentOption,
    JsonOption,
    RerankerOption,
    load_object,
    load_reranker,
    open_store,
)
from langchain_agentrag.cli.output import fail, print_result, stderr_console
from langchain_agentrag.cli.terminal_text import printable

if TYPE_CHECKING:
    from langchain_agentrag.evaluation import Advice, Change, Collection, Evaluation, Failure
    from langchain_agentrag.indexer import DualIndexer


_SHOWN_FAILURES = 5


def evaluate(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="BEIR folder, or JSON lines of question and expected source; with --make, written."
        ),
    ],
    *,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            help="Search this store; default: the folder's own corpus in a temporary one, "
            f"for JSON lines {DEFAULT_STORE}.",
        ),
    ] = None,
    agent: AgentOption = None,
    qrels: Annotated[str | None, typer.Option("--qrels", help="Which judgments: cross for qrels.cross.tsv.")] = None,
    queries: Annotated[int | None, typer.Option("--queries", min=1, help="First so many questions.")] = None,
    embeddings: Annotated[
        str, typer.Option("--embeddings", envvar="AGENTRAG_EMBEDDINGS", help="Model for a folder's own corpus.")
    ] = "local",
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Keep vectors here; each text is embedded once.")
    ] = None,
    measures: Annotated[
        list[str] | None, typer.Option("--measure", help="As of ir-measures, such as nDCG@10; repeatable.")
    ] = None,
    reranker: RerankerOption = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", exists=True, help="Compare with a run that --save wrote.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Write the run, as JSON.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a report with charts.")] = None,
    language: Annotated[str, typer.Option("--language", help="Of the report: en or zh.")] = "en",
    sweep: Annotated[bool, typer.Option("--sweep", help="Also try other settings and recommend some.")] = False,
    make: Annotated[bool, typer.Option("--make", help="Draft questions from the store, into PATH.")] = False,
    most: Annotated[int, typer.Option("--most", min=1, help="Questions to draft.")] = 50,
    model: Annotated[
        str | None, typer.Option("--model", help="Model that writes questions, as module:attribute.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure the search on your own test questions, with the cause of every failure."""
    if language not in {"en", "zh"}:
        msg = f"{language!r} is no language of the report: choose en or zh."
        raise typer.BadParameter(msg, param_hint="--language")
    if make:
        _draft(path, store or DEFAULT_STORE, agent, most, model, as_json=json)
        return
    from langchain_agentrag import evaluation as ev

    for output in (save, html):  # checked before the work, not after it
        if output is not None and (output.is_dir() or not output.absolute().parent.is_dir()):
            fail(f"Cannot write {output}: name a file in a folder that exists.")
    collection = _ask_as_agent(ev.read_collection(path, qrels=qrels, first=queries), agent)
    saved = None if baseline is None else ev.load_run(baseline)
    if saved is not None:
        ev.shared_questions(collection.questions, saved)  # checked before the work, not after it
    second_stage, names = load_reranker(reranker), tuple(measures or ev.MEASURES)
    with _open_collection(collection, store, embeddings, cache) as indexer:
        advice = None
        if sweep:
            with _progress("Trying settings") as update:
                advice = ev.sweep(indexer, collection, ev.grid(second_stage), on_progress=update, measures=names)
        with _progress("Searching") as update:
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
            language="zh" if language == "zh" else "en",
        )
        html.write_text(page, encoding="utf-8")
    document = {
        "run": run,
        "changes": changes,
        "comparisons": ev.compare_settings(result),
        "failures": failures,
        "advice": None if advice is None else _advice_document(advice),
    }
    print_result(_view(result, failures, changes, advice), document, as_json=json)


def _draft(path: Path, store: Path, agent: str | None, most: int, model: str | None, *, as_json: bool) -> None:
    from langchain_agentrag.evaluation import draft_questions, write_questions

    language_model = None if model is None else load_object(model, "--model")
    if path.exists():
        fail(f"{path} is there already: name another file, so that no checked question is lost.")
    with open_store(store) as indexer:
        questions = draft_questions(indexer, agent, most=most, model=language_model)
    if not questions:
        fail("Nothing to ask: no heading or FAQ in what is visible here. Try --agent, or --model module:attribute.")
    write_questions(path, questions)
    counts = dict(sorted(Counter(question.made_from for question in questions).items()))
    origins = ", ".join(f"{count} from {origin}" for origin, count in counts.items())
    view = Text(
        f"Drafted {len(questions)} questions ({origins}) into {path}. Look them through, drop what no user would ask, "
        f"then run `agentrag eval {path}`."
    )
    print_result(view, {"path": path, "questions": len(questions), "made_from": counts}, as_json=as_json)


def _ask_as_agent(collection: Collection, agent: str | None) -> Collection:
    """Ask all questions as the agent of --agent, if given; refuse questions of another agent."""
    from dataclasses import replace

    if agent is None:
        return collection
    others = {question.agent_id for question in collection.questions} - {None, agent}
    if others:
        fail(f"--agent {agent!r}, but questions are asked for {min(map(str, others))!r}: leave --agent out.")
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
        with _progress("Indexing", total=None) as update:
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
    table.add_column("setting", style="bold")
    for name in result.measures:
        table.add_column(name, justify="right")
    table.add_column("p50 / p95 ms", justify="right")
    for setting, run in result.runs.items():
        intervals = [run.interval(name) for name in result.measures]
        cells = [f"{interval.mean:.3f}" for interval in intervals]
        cells[0] += f" [{intervals[0].low:.3f}, {intervals[0].high:.3f}]"
        table.add_row(setting, *cells, f"{run.latency(0.5):.1f} / {run.latency(0.95):.1f}")
    parts: list[RenderableType] = [Text(f"{result.name}: {len(result.judged)} questions"), table]
    partly = sum(0 < len(question.missing) < len(question.sources) for question in result.judged)
    for count, quantity in ((len(result.unanswerable), "no"), (partly, "not every")):
        if count:
            questions = "1 question" if count == 1 else f"{count} questions"
            parts.append(Text(f"{questions}: {quantity} expected source is to be seen here.", "yellow"))
    parts += [_change_line(change) for change in changes if change.measure == result.measures[0]]
    ranks = result.runs[result.main].ranks
    failed = sum((rank or 11) > 10 for rank in ranks.values())  # noqa: PLR2004  the first ten
    heading = f"{failed} questions without an expected source among the first ten:"
    parts.append(Text(heading if failed else "Nothing missed."))
    parts += [
        Text(f"- {printable(failure.text[:90])}  ({failure.cause.replace('_', ' ')})".replace("\n", " "), "dim")
        for failure in failures[:_SHOWN_FAILURES]
    ]
    if advice is not None:
        parts.append(_advice_line(advice))
    return Group(*parts)


def _change_line(change: Change) -> Text:
    difference = change.difference
    verdict = ("better" if difference.mean > 0 else "worse") if difference.significant else "may be chance"
    style = {"better": "green", "worse": "red"}.get(verdict, "dim")
    return Text(
        f"{change.setting} against {change.against} of the baseline: {difference.mean:+.4f} {change.measure} "
        f"({difference.low:+.4f} to {difference.high:+.4f}, p {difference.p:.3f}): {verdict}",
        style,
    )


def _advice_line(advice: Advice) -> Text:
    difference = advice.difference
    change = (
        f"{difference.mean:+.4f} {advice.measure} on {difference.questions} held-out questions "
        f"({difference.low:+.4f} to {difference.high:+.4f}, p {difference.p:.3f})"
    )
    if advice.worthwhile:
        return Text(f"Recommended: {advice.best} ({change}). Options: {advice.options}", "green")
    if advice.keeps_defaults:
        return Text(f"Keep the defaults: no other setting was better on the {advice.chosen} questions tried.", "cyan")
    return Text(f"Keep the defaults; the best of the others, {advice.best}, is not better for sure: {change}.", "cyan")


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
