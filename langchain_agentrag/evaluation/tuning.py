"""Tuning of search settings: candidates tried on one half of the questions, the best one checked on the other."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from langchain_agentrag.errors import UsageError
from langchain_agentrag.evaluation.collection import Collection, Question
from langchain_agentrag.evaluation.runner import DEPTH, MEASURES, Evaluation, OnProgress, evaluate
from langchain_agentrag.evaluation.statistics import Difference, compare
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.search.fusion import FusionName
from langchain_agentrag.search.options import SearchOptions

DEFAULTS = "defaults"
"""Name of the setting that the others are compared with."""

MIN_QUESTIONS = 20
"""Fewest questions of a sweep: half of them choose, half of them check."""

_VECTOR_WEIGHTS = (0.3, 0.5, 0.7)
_MAX_PER_DOCUMENT = (1, 3)


@dataclass(frozen=True, slots=True)
class Advice:
    """Recommendation of a sweep.

    Attributes:
        best: Name of the best setting on the half used to choose.
        options: Its search options.
        measure: The measure that decided.
        difference: Best minus defaults, on the held-out half.
        chosen: Number of questions used to choose.
        table: (setting, measure on the half used to choose, measure on the held-out half), best first.
        evaluation: All settings on all questions.
    """

    best: str
    options: Mapping[str, Any]
    measure: str
    difference: Difference
    chosen: int
    table: Sequence[tuple[str, float, float]]
    evaluation: Evaluation

    @property
    def keeps_defaults(self) -> bool:
        """Whether no setting was better than the defaults on the half used to choose."""
        return self.best == DEFAULTS

    @property
    def worthwhile(self) -> bool:
        """Whether the best setting is significantly better than the defaults on the held-out half."""
        return not self.keeps_defaults and self.difference.mean > 0 and self.difference.significant


def grid(reranker: object = None) -> dict[str, SearchOptions]:
    """Return the settings a sweep tries: few, so that the best of them is not merely the luckiest.

    Each index alone, each fusion rule at three weights of the vector index, a cap of passages per document, and the
    defaults with the reranker if there is one.
    """
    settings: dict[str, SearchOptions] = {
        DEFAULTS: SearchOptions(),
        "vector": SearchOptions(mode="vector"),
        "keyword": SearchOptions(mode="keyword"),
    }
    for rule in get_args(FusionName):
        for weight in _VECTOR_WEIGHTS:
            settings[f"{rule}, vector {weight:g}"] = SearchOptions(fusion=rule, weights=(weight, round(1 - weight, 2)))
    for most in _MAX_PER_DOCUMENT:
        settings[f"{DEFAULTS}, {most} per document"] = SearchOptions(max_per_document=most)
    if reranker is not None:
        settings[f"{DEFAULTS} + reranker"] = SearchOptions(reranker=reranker)
    return settings


def halves(questions: Sequence[Question]) -> tuple[list[str], list[str]]:
    """Split questions into two halves of ids, the same for the same questions, each agent's questions evenly.

    Questions that expect the same source stay together; otherwise the held-out half would not be independent.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for question in questions:
        source = min(source.value for source in question.expected)
        groups.setdefault((question.agent_id or "", source), []).append(question.id)
    order = sorted(groups, key=lambda group: (group[0], hashlib.sha256(repr(group).encode()).digest()))
    first: list[str] = []
    second: list[str] = []
    for group in order:
        (first if len(first) <= len(second) else second).extend(groups[group])
    return first, second


def sweep(
    indexer: DualIndexer,
    collection: Collection | Sequence[Question],
    settings: Mapping[str, SearchOptions] | None = None,
    *,
    measures: Sequence[str] = MEASURES,
    depth: int = DEPTH,
    on_progress: OnProgress | None = None,
) -> Advice:
    """Try settings on half of the questions and check the best one on the other half.

    Args:
        indexer: The store to search.
        collection: The questions, 20 or more.
        settings: Name → options to try beside the defaults; `grid()` when None.
        measures: Names as of ir-measures; the first one decides.
        depth: Hits per question.
        on_progress: Called after every search.

    Raises:
        UsageError: there are too few questions.
    """
    check_indexer(indexer, "sweep()")
    questions = list(collection.questions if isinstance(collection, Collection) else collection)
    first, second = halves(questions)
    if len(questions) < MIN_QUESTIONS or not second:
        raise UsageError(
            f"A sweep needs at least {MIN_QUESTIONS} questions on different sources, half to choose and half to check; "
            f"there are {len(questions)}. Draft more with `agentrag eval --make`."
        )
    candidates = {DEFAULTS: SearchOptions(), **(grid() if settings is None else settings)}
    evaluation = evaluate(
        indexer, collection, candidates, measures=measures, main=DEFAULTS, depth=depth, on_progress=on_progress
    )
    decisive = measures[0]
    values = {name: run.values[decisive] for name, run in evaluation.runs.items()}
    table = sorted(
        ((name, _mean(run, first), _mean(run, second)) for name, run in values.items()),
        key=lambda row: (-row[1], row[0] != DEFAULTS),  # the defaults win a tie
    )
    best = table[0][0]
    difference = compare([values[best][key] for key in second], [values[DEFAULTS][key] for key in second])
    options = evaluation.runs[best].options
    return Advice(best, options, decisive, difference, len(first), table, evaluation)


def _mean(values: Mapping[str, float], ids: Sequence[str]) -> float:
    return math.fsum(values[key] for key in ids) / len(ids)
