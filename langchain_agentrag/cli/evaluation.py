"""Objects that a command names: a function or model of the user's own, a cross-encoder."""

from __future__ import annotations

import contextlib
import importlib
import json as codec
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from langchain_agentrag.cli.output import (
    DEFAULT_STORE,
    AgentOption,
    JsonOption,
    answer,
    fail,
    open_existing,
    side_channel,
)
from langchain_agentrag.cli.terminal_text import printable

if TYPE_CHECKING:
    from langchain_agentrag.evaluation import Advice, Change, Collection, Evaluation, Failure
    from langchain_agentrag.indexer import DualIndexer


def imported(name: str, option: str) -> Any:  # noqa: ANN401  whatever stands there
    """What module:attribute stands for; modules of the working directory are found too.

    Raises:
        typer.BadParameter: there is no such thing.
    """
    module, _, attribute = name.partition(":")
    sys.path.append(str(Path.cwd()))  # at the end: a file of the user's shadows no installed module
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"Cannot load {name!r}: {error}. Write module:attribute, as in mymodels:chat."
        raise typer.BadParameter(msg, param_hint=option) from error
    finally:
        sys.path.pop()


def named_reranker(name: str | None) -> Any:  # noqa: ANN401  any kind of reranker
    """The reranker of module:attribute, else the cross-encoder of that name or folder; None for None."""
    from langchain_agentrag.search.rerank import load_cross_encoder

    if name is None:
        return None
    return (
        imported(name, "--reranker") if ":" in name and not Path(name).exists() else load_cross_encoder(name)
    )


_SHOWN_FAILURES = 5


def evaluate(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="BEIR folder, or JSON lines of question and expected source; with --make, written.",
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
    qrels: Annotated[
        str | None, typer.Option("--qrels", help="Which judgements: cross for qrels.cross.tsv.")
    ] = None,
    queries: Annotated[int | None, typer.Option("--queries", min=1, help="First so many questions.")] = None,
    embeddings: Annotated[
        str,
        typer.Option("--embeddings", envvar="AGENTRAG_EMBEDDINGS", help="Model for a folder's own corpus."),
    ] = "local",
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Keep vectors here; each text is embedded once.")
    ] = None,
    measures: Annotated[
        list[str] | None, typer.Option("--measure", help="As of ir-measures, such as nDCG@10; repeatable.")
    ] = None,
    reranker: Annotated[
        str | None, typer.Option("--reranker", help="Cross-encoder name or folder, or module:attribute.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", exists=True, help="Compare with a run that --save wrote.")
    ] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Write the run, as JSON.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a report with charts.")] = None,
    language: Annotated[str, typer.Option("--language", help="Of the report: en or zh.")] = "en",
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Also try other settings and recommend some.")
    ] = False,
    make: Annotated[bool, typer.Option("--make", help="Draft questions from the store, into PATH.")] = False,
    most: Annotated[int, typer.Option("--most", min=1, help="Questions to draft.")] = 50,
    model: Annotated[
        str | None, typer.Option("--model", help="Model that makes questions, as module:attribute.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Measure the search on questions of your own, with the reason of every miss."""
    if language not in {"en", "zh"}:
        msg = f"{language!r} is no language of the report: choose en or zh."
        raise typer.BadParameter(msg, param_hint="--language")
    if make:
        _draft(path, store or DEFAULT_STORE, agent, most, model, as_json=json)
        return
    from langchain_agentrag import evaluation as lab

    for written in (save, html):  # before the work, not after it
        if written is not None and (written.is_dir() or not written.absolute().parent.is_dir()):
            fail(f"Cannot write {written}: name a file in a folder that exists.")
    collection = _on_behalf(lab.read_collection(path, qrels=qrels, first=queries), agent)
    compared = None if baseline is None else lab.load_run(baseline)
    if compared is not None:
        lab.shared_questions(collection.questions, compared)  # before the work, not after it
    second = named_reranker(reranker)
    wanted = tuple(measures or lab.MEASURES)
    with _searched(collection, store, embeddings, cache) as indexer:
        advice = None
        if sweep:
            with _told("Trying settings") as moved:
                advice = lab.sweep(indexer, collection, lab.grid(second), on_progress=moved, measures=wanted)
        with _told("Asking") as moved:
            found = lab.evaluate(
                indexer, collection, lab.standard_settings(second), on_progress=moved, measures=wanted
            )
        missed = lab.failures(indexer, found)
    changed = [] if compared is None else lab.changes(found, compared)
    document = lab.run_document(found)
    if save is not None:
        save.write_text(codec.dumps(document, ensure_ascii=False, indent=1), encoding="utf-8")
    if html is not None:
        page = lab.html_report(
            found,
            missed,
            changed,
            baseline="" if compared is None else compared.name,
            advice=advice,
            language="zh" if language == "zh" else "en",
        )
        html.write_text(page, encoding="utf-8")
    told = {
        "run": document,
        "changes": changed,
        "legs": lab.compare_settings(found),
        "failures": missed,
        "advice": None if advice is None else _advice_document(advice),
    }
    answer(_view(found, missed, changed, advice), told, as_json=json)


def _draft(
    path: Path, store: Path, agent: str | None, most: int, model: str | None, *, as_json: bool
) -> None:
    from langchain_agentrag.evaluation import draft_questions, write_questions

    chosen = None if model is None else imported(model, "--model")
    if path.exists():
        fail(f"{path} is there already: name another file, so that no checked question is lost.")
    with open_existing(store) as indexer:
        drafted = draft_questions(indexer, agent, most=most, model=chosen)
    if not drafted:
        fail(
            "Nothing to ask: no heading or FAQ in what is visible here. Try --agent, or --model module:attribute."
        )
    write_questions(path, drafted)
    kinds = sorted({question.made_from for question in drafted})
    counts = {kind: sum(question.made_from == kind for question in drafted) for kind in kinds}
    said = ", ".join(f"{count} from {kind}" for kind, count in counts.items())
    view = Text(
        f"Drafted {len(drafted)} questions ({said}) into {path}. Look them through, drop what no user would ask, then "
        f"run `agentrag eval {path}`."
    )
    answer(view, {"path": path, "questions": len(drafted), "made_from": counts}, as_json=as_json)


def _on_behalf(collection: Collection, agent: str | None) -> Collection:
    """The questions asked for the agent where the call names one; those of another agent are refused."""
    from dataclasses import replace

    if agent is None:
        return collection
    others = {question.agent_id for question in collection.questions} - {None, agent}
    if others:
        fail(f"--agent {agent!r}, but questions are asked for {min(map(str, others))!r}: leave --agent out.")
    return replace(
        collection, questions=tuple(replace(question, agent_id=agent) for question in collection.questions)
    )


@contextlib.contextmanager
def _searched(
    collection: Collection, store: Path | None, embeddings: str, cache: Path | None
) -> Iterator[DualIndexer]:
    """The store to search: the one given, or a temporary one with the collection's own corpus."""
    from langchain_agentrag.evaluation import cached_embedder
    from langchain_agentrag.indexer import DualIndexer

    if store is not None or collection.corpus is None:
        with open_existing(store or DEFAULT_STORE) as indexer:
            yield indexer
        return
    model = embeddings if cache is None else cached_embedder(embeddings, cache)
    with (
        tempfile.TemporaryDirectory(prefix="agentrag-eval-") as folder,
        DualIndexer(folder, model) as indexer,
    ):
        with _told("Indexing", total=None) as moved:
            indexer.index_documents(
                collection.documents(), on_progress=lambda step: moved(step.done, 0) if moved else None
            )
        yield indexer


@contextlib.contextmanager
def _told(title: str, total: int | None = 0) -> Iterator[Callable[[int, int], None] | None]:
    """A callback that moves a bar, or None when nobody watches."""
    console = side_channel()
    if not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done, of: bar.update(task, completed=done, total=of or None)


# -- what is printed ------------------------------------------------------------------------------------------------


def _view(
    found: Evaluation, missed: list[Failure], changed: list[Change], advice: Advice | None
) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("setting", style="bold")
    for name in found.measures:
        table.add_column(name, justify="right")
    table.add_column("p50 / p95 ms", justify="right")
    for setting, run in found.runs.items():
        shown = [run.interval(name) for name in found.measures]
        cells = [f"{one.mean:.3f}" for one in shown]
        cells[0] += f" [{shown[0].low:.3f}, {shown[0].high:.3f}]"
        table.add_row(setting, *cells, f"{run.latency(0.5):.1f} / {run.latency(0.95):.1f}")
    parts: list[RenderableType] = [Text(f"{found.name}: {len(found.judged)} questions"), table]
    partly = sum(0 < len(one.missing) < len(one.sources) for one in found.judged)
    for count, what in ((len(found.unanswerable), "no"), (partly, "not every")):
        if count:
            asked = "1 question: " if count == 1 else f"{count} questions: "
            parts.append(Text(f"{asked}{what} expected source is to be seen here.", "yellow"))
    parts += [_change_line(change) for change in changed if change.measure == found.measures[0]]
    run = found.runs[found.main]
    late = sum((rank or 11) > 10 for rank in run.ranks.values())  # noqa: PLR2004  the first ten
    parts.append(
        Text(
            f"{late} questions without an expected source among the first ten:" if late else "Nothing missed."
        )
    )
    parts += [
        Text(
            f"- {printable(failure.text[:90])}  ({failure.cause.replace('_', ' ')})".replace("\n", " "), "dim"
        )
        for failure in missed[:_SHOWN_FAILURES]
    ]
    if advice is not None:
        parts.append(_advice_line(advice))
    return Group(*parts)


def _change_line(change: Change) -> Text:
    found = change.difference
    verdict = ("better" if found.mean > 0 else "worse") if found.significant else "may be chance"
    style = {"better": "green", "worse": "red"}.get(verdict, "dim")
    return Text(
        f"{change.setting} against {change.against} of the baseline: {found.mean:+.4f} {change.measure} "
        f"({found.low:+.4f} to {found.high:+.4f}, p {found.p:.3f}): {verdict}",
        style,
    )


def _advice_line(advice: Advice) -> Text:
    found = advice.difference
    told = (
        f"{found.mean:+.4f} {advice.measure} on {found.questions} held-out questions "
        f"({found.low:+.4f} to {found.high:+.4f}, p {found.p:.3f})"
    )
    if advice.worthwhile:
        return Text(f"Recommended: {advice.best} ({told}). Options: {advice.options}", "green")
    if advice.keeps_defaults:
        return Text(
            f"Keep the defaults: no other setting was better on the {advice.chosen} questions tried.", "cyan"
        )
    return Text(
        f"Keep the defaults; the best of the others, {advice.best}, is not better for sure: {told}.", "cyan"
    )


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
