"""Evaluation of search settings on test questions, with measures computed by ir-measures."""

from __future__ import annotations

import ast
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from langchain_agentrag.errors import MissingExtraError, UsageError
from langchain_agentrag.evaluation.collection import Collection, Question
from langchain_agentrag.evaluation.relevance import JudgedQuestion, judge_questions
from langchain_agentrag.evaluation.statistics import Interval, interval
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.search.options import SearchOptions
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.types import Hits

MEASURES = ("nDCG@10", "R@10", "RR@10", "Success@1", "Success@5")
"""Default measures, named as in ir-measures. The first one decides between settings."""

MeasureValues = dict[str, dict[str, float]]
"""Measure → question id → value."""


def parse_measures(names: Sequence[str]) -> list[Any]:
    """Parse names of measures.

    Raises:
        UsageError: a name is unknown, or there is none.
        MissingExtraError: ir-measures is not installed.
    """
    library = _ir_measures()
    if isinstance(names, str) or not names:
        raise UsageError(f"Cannot measure with {names!r}: give a list of names such as {', '.join(MEASURES)}.")
    parsed = []
    for name in names:
        try:
            parsed.append(_parse_measure(library, name))
        except (AttributeError, LookupError, SyntaxError, TypeError, ValueError) as error:
            raise UsageError(
                f"Cannot measure {name!r}: it is no measure of ir-measures. Give names such as {', '.join(MEASURES)}."
            ) from error
    return parsed


def _parse_measure(library: Any, name: str) -> Any:  # noqa: ANN401  (ir-measures has no types)
    """Parse `Name(key=value)@cutoff`, as ir-measures does, whose own function fails on Python 3.14."""
    node: ast.expr = ast.parse(name.strip(), mode="eval").body
    settings = {}
    cutoff = None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        cutoff = ast.literal_eval(node.right)
        node = node.left
    if isinstance(node, ast.Call) and not node.args:
        settings = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        node = node.func
    if not isinstance(node, ast.Name) or not (cutoff is None or (isinstance(cutoff, int) and cutoff > 0)):
        raise ValueError(name)
    chosen = library.measures.registry[node.id]
    if cutoff is not None:
        settings[chosen.AT_PARAM] = cutoff
    if not settings.keys() <= chosen.SUPPORTED_PARAMS.keys():
        raise ValueError(name)
    return chosen(**settings)


def measure(
    rankings: Mapping[str, Sequence[str]], qrels: Mapping[str, Mapping[str, int]], measures: Sequence[str] = MEASURES
) -> MeasureValues:
    """Compute each measure for each question; a question without a ranking counts 0.

    Args:
        rankings: Question id → units, best first.
        qrels: Question id → unit → grade.
        measures: Names as of ir-measures.
    """
    library, parsed = _ir_measures(), parse_measures(measures)
    # Scores only carry the order: trec_eval breaks ties by name.
    run = {name: {unit: 1.0 / rank for rank, unit in enumerate(units, 1)} for name, units in rankings.items()}
    values: MeasureValues = {str(name): dict.fromkeys(rankings, 0.0) for name in measures}
    names = {str(measure): name for measure, name in zip(parsed, measures, strict=True)}
    relevant = {name: dict(qrels[name]) for name in rankings}
    for metric in library.iter_calc(parsed, relevant, run):
        values[names[str(metric.measure)]][metric.query_id] = float(metric.value)
    return values


def _ir_measures() -> Any:  # noqa: ANN401  (a module)
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtraError("Evaluation", "eval") from error
    return ir_measures


DEPTH = 30
"""Hits per question: several may be of one document, and ten documents shall remain."""

RERANK_CANDIDATES = 40
"""Candidates of a reranker or of diversity unless `fetch_k` is given: as many as in a search for ten hits."""

Settings = Mapping[str, SearchOptions]
"""Name → options of a search."""

OnProgress = Callable[[int, int], None]
"""Called with the number of searches done, and the number of all."""


@dataclass(frozen=True, slots=True)
class Run:
    """Results of all questions under one setting.

    Attributes:
        name: Name of the setting.
        options: Its search options as JSON-safe values.
        ranks: Question id → rank of the first expected source, from 1; None when it is beyond the depth.
        values: Measure → question id → value.
        seconds: Question id → time of the search without embedding.
        degraded: Question id → indexes that failed.
    """

    name: str
    options: Mapping[str, Any]
    ranks: Mapping[str, int | None]
    values: MeasureValues
    seconds: Mapping[str, float]
    degraded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def interval(self, name: str) -> Interval:
        """Return the mean of a measure and its 95 % bootstrap interval."""
        return interval(list(self.values[name].values()))

    def latency(self, quantile: float) -> float:
        """Return a quantile of the search times in milliseconds: .5 is the median."""
        return 1000 * float(np.quantile(list(self.seconds.values()), quantile)) if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Results of an evaluation.

    Attributes:
        name: Name of the collection.
        judged: The questions with their expected sources.
        runs: One per setting, in the order of the settings.
        measures: Names of the measures; the first one decides.
        settings: Name → search options.
        main: Name of the setting that failures are listed for.
        model: Name of the embedding model, or "".
        embedding: Question id → seconds to embed it.
        depth: Hits per question.
    """

    name: str
    judged: Sequence[JudgedQuestion]
    runs: Mapping[str, Run]
    measures: Sequence[str]
    settings: Settings
    main: str
    model: str = ""
    embedding: Mapping[str, float] = field(default_factory=dict)
    depth: int = DEPTH

    @property
    def questions(self) -> list[Question]:
        """The questions, in order."""
        return [question.question for question in self.judged]

    @property
    def unanswerable(self) -> list[JudgedQuestion]:
        """Questions none of whose expected sources is visible to their agent."""
        return [question for question in self.judged if len(question.missing) == len(question.sources)]


def standard_settings(reranker: object = None, **options: Any) -> dict[str, SearchOptions]:  # noqa: ANN401
    """Return the settings to compare: each index alone, both with the defaults, and with a reranker.

    Args:
        reranker: Any reranker that `DualIndexer.search` takes, or None.
        options: Options of every setting.
    """
    settings: dict[str, dict[str, Any]] = {
        "vector": {**options, "mode": "vector"},
        "keyword": {**options, "mode": "keyword"},
        "hybrid": options,
    }
    if reranker is not None:
        settings["hybrid + reranker"] = {**options, "reranker": reranker}
    return cast("dict[str, SearchOptions]", settings)


def evaluate(
    indexer: DualIndexer,
    collection: Collection | Sequence[Question],
    settings: Settings | None = None,
    *,
    measures: Sequence[str] = MEASURES,
    main: str | None = None,
    depth: int = DEPTH,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Search every question under every setting and measure the rankings.

    Each question is asked on behalf of its own agent. It is embedded once and all settings use the same vector, so the
    latencies are those of the search alone. A hit counts as the expected source it meets, else as its document, each
    once.

    Args:
        indexer: The store to search.
        collection: The questions.
        settings: Name → search options; `standard_settings()` by default.
        measures: Names as of ir-measures, such as "nDCG@10".
        main: Setting that failures are listed for; the last one by default.
        depth: Hits per question.
        on_progress: Called after every search.

    Raises:
        UsageError: there is no question, two questions have one id, or a measure or setting is unknown.
        MissingExtraError: ir-measures is not installed.
    """
    check_indexer(indexer, "evaluate()")
    parse_measures(measures)
    questions = list(collection.questions if isinstance(collection, Collection) else collection)
    settings = dict(settings if settings is not None else standard_settings())
    main = main or (list(settings)[-1] if settings else "")
    if not questions or main not in settings:
        raise UsageError(
            f"Cannot evaluate {len(questions)} questions under the settings {', '.join(settings) or 'none'} "
            f"with {main!r} as the main one: give at least one question and one setting."
        )
    repeated = [name for name, count in Counter(question.id for question in questions).items() if count > 1]
    if repeated:
        raise UsageError(
            f"Cannot evaluate: {len(repeated)} question ids come more than once, {repeated[0]!r} for one; "
            "give each question its own."
        )
    judged = judge_questions(indexer, questions)
    qrels = {expected.question.id: expected.qrels for expected in judged}
    vectors, embedding_seconds = _embed_questions(indexer, questions, settings)
    # the first search opens both indexes, which must not count as latency
    search(indexer, questions[0], SearchOptions(), vectors.get(questions[0].id), depth)
    total, done = len(settings) * len(questions), 0
    runs = {}
    for name, options in settings.items():
        rankings, seconds, degraded = {}, {}, {}
        for expected in judged:
            key = expected.question.id
            started = time.perf_counter()
            hits = search(indexer, expected.question, options, vectors.get(key), depth)
            seconds[key] = time.perf_counter() - started
            rankings[key] = expected.units(hits)
            if hits.degraded:
                degraded[key] = hits.degraded
            done += 1
            if on_progress is not None:
                on_progress(done, total)
        ranks = {key: _first_rank(units, qrels[key]) for key, units in rankings.items()}
        values = measure(rankings, qrels, measures)
        runs[name] = Run(name, _json_options(options), ranks, values, seconds, degraded)
    return Evaluation(
        name=collection.name if isinstance(collection, Collection) else "questions",
        judged=judged,
        runs=runs,
        measures=tuple(measures),
        settings=settings,
        main=main,
        model=indexer.model_name or "",
        embedding=embedding_seconds,
        depth=depth,
    )


def _first_rank(units: Sequence[str], relevant: Mapping[str, int]) -> int | None:
    return next((rank for rank, unit in enumerate(units, 1) if unit in relevant), None)


def search(
    indexer: DualIndexer, question: Question, options: SearchOptions, vector: Vectors | None, depth: int
) -> Hits:
    """Search a question on behalf of its agent."""
    arguments: dict[str, Any] = dict(options)
    if vector is not None and arguments.get("mode") != "keyword":
        arguments["vector"] = vector
    if arguments.get("reranker") is not None or arguments.get("diversity"):
        arguments.setdefault("fetch_k", max(depth, RERANK_CANDIDATES))
    return indexer.search(question.text, depth, agent_id=question.agent_id, **cast("SearchOptions", arguments))


def _embed_questions(
    indexer: DualIndexer, questions: Sequence[Question], settings: Settings
) -> tuple[dict[str, Vectors], dict[str, float]]:
    """Return question id → vector and question id → seconds; both empty where no setting needs vectors."""
    if all(options.get("mode") == "keyword" for options in settings.values()):
        return {}, {}
    vectors, seconds = {}, {}
    for question in questions:
        started = time.perf_counter()
        vectors[question.id] = indexer.embedder.embed_query(question.text)
        seconds[question.id] = time.perf_counter() - started
    return vectors, seconds


def _json_options(options: SearchOptions) -> dict[str, Any]:
    """Return options as JSON-safe values: an object is named by its type, a function by its name."""
    values: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, str | int | float | bool | None | dict | list):
            values[name] = value
        elif isinstance(value, tuple):
            values[name] = list(value)
        else:
            values[name] = getattr(value, "__name__", type(value).__name__)
    return values
