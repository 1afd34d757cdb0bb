"""Measures of a ranking per question, computed by ir-measures."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from langchain_agentrag.errors import MissingExtraError, UsageError
from langchain_agentrag.evaluation.collection import Collection, Judged, Question, judge
from langchain_agentrag.evaluation.statistics import Interval, interval
from langchain_agentrag.search.options import SearchOptions
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.types import Hits

if TYPE_CHECKING:
    from langchain_agentrag.indexer import DualIndexer

logger = logging.getLogger(__name__)

MEASURES = ("nDCG@10", "R@10", "RR@10", "Success@1", "Success@5")
"""Measures of a report unless others are asked for; names as of ir-measures. The first one decides."""

Values = dict[str, dict[str, float]]
"""Measure → question id → value."""


def parse_measures(names: Sequence[str]) -> list[Any]:
    """The measures of these names.

    Raises:
        UsageError: a name is unknown, or there is none.
        MissingExtraError: ir-measures is not installed.
    """
    library = _library()
    if isinstance(names, str) or not names:
        raise UsageError(
            f"Cannot measure with {names!r}: give a list of names such as {', '.join(MEASURES)}."
        )
    parsed = []
    for name in names:
        try:
            parsed.append(library.parse_measure(name))
        except (NameError, SyntaxError, ValueError) as error:
            raise UsageError(
                f"Cannot measure {name!r}: it is no measure of ir-measures. Give names such as {', '.join(MEASURES)}."
            ) from error
    return parsed


def measure(
    rankings: Mapping[str, Sequence[str]],
    qrels: Mapping[str, Mapping[str, int]],
    measures: Sequence[str] = MEASURES,
) -> Values:
    """Each measure for each question; a question without an answer counts 0.

    Args:
        rankings: Question id → units, best first.
        qrels: Question id → unit → grade.
        measures: Names as of ir-measures.
    """
    library, parsed = _library(), parse_measures(measures)
    # Scores only carry the order: the evaluator underneath breaks ties by name.
    run = {
        name: {unit: 1.0 / place for place, unit in enumerate(units, 1)} for name, units in rankings.items()
    }
    values: Values = {str(name): dict.fromkeys(rankings, 0.0) for name in measures}
    names = {str(found): name for found, name in zip(parsed, measures, strict=True)}
    judged = {name: dict(qrels[name]) for name in rankings}
    for metric in library.iter_calc(parsed, judged, run):
        values[names[str(metric.measure)]][metric.query_id] = float(metric.value)
    return values


def _library() -> Any:  # noqa: ANN401  (a module)
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtraError("Evaluation", "eval") from error
    return ir_measures


DEPTH = 30
"""Hits asked for per question: several may be of one document, and ten documents shall remain."""

RERANKED = 40
"""Candidates a second stage chooses from unless `fetch_k` says otherwise: what a search for ten hits would take."""

Settings = Mapping[str, SearchOptions]
"""Name → options of a search."""

Tell = Callable[[int, int], None]
"""Called with how many searches are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Run:
    """All questions under one setting.

    Attributes:
        name: Name of the setting.
        options: Its options, for people.
        ranks: Question id → place of the first expected source, from 1; None when it is beyond the depth.
        values: Measure → question id → value.
        seconds: Question id → time of the search, embedding excluded.
        degraded: Question id → legs that failed.
    """

    name: str
    options: Mapping[str, Any]
    ranks: Mapping[str, int | None]
    values: Values
    seconds: Mapping[str, float]
    degraded: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def interval(self, name: str) -> Interval:
        """Mean of a measure and its 95 % bootstrap interval."""
        return interval(list(self.values[name].values()))

    def latency(self, share: float) -> float:
        """Time in milliseconds that this share of the searches stayed below: .5 is the median."""
        return 1000 * float(np.quantile(list(self.seconds.values()), share)) if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was measured.

    Attributes:
        name: Name of the collection.
        judged: The questions with their expectations.
        runs: One per setting, in the order given.
        measures: Names of the measures; the first one decides.
        settings: Name → options that were searched with.
        main: Name of the setting that failures are listed for.
        model: Name of the embedding model, or "".
        embedding: Question id → seconds to embed it.
        depth: Hits asked for per question.
    """

    name: str
    judged: Sequence[Judged]
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
        return [judged.question for judged in self.judged]

    @property
    def unanswerable(self) -> list[Judged]:
        """Questions none of whose expected sources is in what their agent may see."""
        return [judged for judged in self.judged if len(judged.missing) == len(judged.sources)]


def standard_settings(reranker: object = None, **options: Any) -> dict[str, SearchOptions]:  # noqa: ANN401
    """Either leg alone, and both with the engine's defaults; with a reranker also behind it.

    Args:
        reranker: Second opinion, or None.
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
    on_progress: Tell | None = None,
) -> Evaluation:
    """Ask every question under every setting and measure the answers.

    Each question is asked on behalf of its own agent. It is embedded once and the vector handed to all settings, so the
    latencies are those of the search alone. Hits count as the expectation they meet, else as their document, each once.

    Args:
        indexer: The store to search.
        collection: The questions.
        settings: Name → search options; `standard_settings()` by default.
        measures: Names as of ir-measures, such as "nDCG@10".
        main: Setting that failures are listed for; the last one by default.
        depth: Hits to ask for.
        on_progress: Called after every search.

    Raises:
        UsageError: there is nothing to ask, two questions have one id, or a measure or setting is unknown.
        MissingExtraError: ir-measures is not installed.
    """
    parse_measures(measures)
    questions = list(collection.questions if isinstance(collection, Collection) else collection)
    chosen = dict(settings if settings is not None else standard_settings())
    main = main or (list(chosen)[-1] if chosen else "")
    if not questions or main not in chosen:
        raise UsageError(
            f"Cannot evaluate {len(questions)} questions under the settings {', '.join(chosen) or 'none'} "
            f"with {main!r} as the main one: give at least one question and one setting."
        )
    twice = [name for name, count in Counter(question.id for question in questions).items() if count > 1]
    if twice:
        raise UsageError(
            f"Cannot evaluate: {len(twice)} question ids come more than once, {twice[0]!r} for one; give each its own."
        )
    judged = judge(indexer, questions)
    vectors, spent = _embedded(indexer, questions, chosen)
    # the first search opens both indexes, which is no part of anybody's latency
    search(indexer, questions[0], SearchOptions(), vectors.get(questions[0].id), depth)
    total, done = len(chosen) * len(questions), 0
    runs = {}
    for name, options in chosen.items():
        asked = _Asked(indexer, options, depth)
        for expected in judged:
            asked.ask(expected, vectors.get(expected.question.id))
            done += 1
            if on_progress is not None:
                on_progress(done, total)
        runs[name] = asked.run(name, judged, measures)
    return Evaluation(
        name=collection.name if isinstance(collection, Collection) else "questions",
        judged=judged,
        runs=runs,
        measures=tuple(measures),
        settings=chosen,
        main=main,
        model=indexer.model_name or "",
        embedding=spent,
        depth=depth,
    )


class _Asked:
    """Answers of one setting as they come in."""

    def __init__(self, indexer: DualIndexer, options: SearchOptions, depth: int) -> None:
        self._indexer, self._options, self._depth = indexer, options, depth
        self._units: dict[str, list[str]] = {}
        self._seconds: dict[str, float] = {}
        self._degraded: dict[str, tuple[str, ...]] = {}

    def ask(self, judged: Judged, vector: Vectors | None) -> None:
        question = judged.question
        started = time.perf_counter()
        hits = search(self._indexer, question, self._options, vector, self._depth)
        self._seconds[question.id] = time.perf_counter() - started
        self._units[question.id] = judged.units(hits)
        if hits.degraded:
            self._degraded[question.id] = hits.degraded

    def run(self, name: str, judged: Sequence[Judged], measures: Sequence[str]) -> Run:
        qrels = {one.question.id: one.qrels for one in judged}
        ranks = {
            asked: next((place for place, unit in enumerate(units, 1) if unit in qrels[asked]), None)
            for asked, units in self._units.items()
        }
        values = measure(self._units, qrels, measures)
        return Run(name, described(self._options), ranks, values, self._seconds, self._degraded)


def search(
    indexer: DualIndexer, question: Question, options: SearchOptions, vector: Vectors | None, depth: int
) -> Hits:
    """The hits for a question on behalf of its agent."""
    given: dict[str, Any] = dict(options)
    if vector is not None and given.get("mode") != "keyword":
        given["vector"] = vector
    if given.get("reranker") is not None or given.get("diversity"):
        given.setdefault("fetch_k", max(depth, RERANKED))
    return indexer.search(question.text, depth, agent_id=question.agent_id, **cast("SearchOptions", given))


def _embedded(
    indexer: DualIndexer, questions: Sequence[Question], settings: Settings
) -> tuple[dict[str, Vectors], dict[str, float]]:
    """Question id → vector, and the seconds it took; none where no setting needs them."""
    if all(options.get("mode") == "keyword" for options in settings.values()):
        return {}, {}
    vectors, seconds = {}, {}
    for question in questions:
        started = time.perf_counter()
        vectors[question.id] = indexer.embedder.embed_query(question.text)
        seconds[question.id] = time.perf_counter() - started
    return vectors, seconds


def described(options: SearchOptions) -> dict[str, Any]:
    """Options as JSON-safe values: what is an object is named by its type."""
    shown: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, str | int | float | bool | None | dict | list):
            shown[name] = value
        elif isinstance(value, tuple):
            shown[name] = list(value)
        else:
            shown[name] = getattr(value, "__name__", type(value).__name__)
    return shown
