"""Settings for one's own data: tried on one half of the questions, judged on the other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from langchain_agentrag.errors import UsageError
from langchain_agentrag.evaluation.collection import Collection, Question
from langchain_agentrag.evaluation.runner import DEPTH, MEASURES, Evaluation, Tell, evaluate
from langchain_agentrag.evaluation.statistics import Difference, compare
from langchain_agentrag.search.fusion import FusionName
from langchain_agentrag.search.options import SearchOptions

if TYPE_CHECKING:
    from langchain_agentrag.indexer import DualIndexer

DEFAULTS = "defaults"
"""Name of the setting every other one is measured against."""

LEAST = 20
"""Fewest questions a sweep makes sense with: half of them decide, half of them check."""

_SHARES = (0.3, 0.5, 0.7)
_CAPS = (1, 3)


@dataclass(frozen=True, slots=True)
class Advice:
    """What a sweep recommends.

    Attributes:
        best: The best setting on the half used to choose.
        options: Its search options.
        measure: The measure that decided.
        difference: Best minus defaults, on the held-out half.
        chosen: Questions used to choose.
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
        """Whether the defaults were the best, or as good as any, on the half used to choose."""
        return self.best == DEFAULTS

    @property
    def worthwhile(self) -> bool:
        """Whether it beats the defaults on questions that had no part in choosing it, and not by chance."""
        return not self.keeps_defaults and self.difference.mean > 0 and self.difference.significant


def grid(reranker: object = None) -> dict[str, SearchOptions]:
    """The settings a sweep tries: few, so that the best of them is not merely the luckiest.

    Either leg alone, each fusion rule at three shares of the vector leg, a cap of passages per document, and with a
    reranker the defaults behind it.
    """
    settings: dict[str, SearchOptions] = {
        DEFAULTS: SearchOptions(),
        "vector": SearchOptions(mode="vector"),
        "keyword": SearchOptions(mode="keyword"),
    }
    for rule in get_args(FusionName):
        for share in _SHARES:
            settings[f"{rule}, vector {share:g}"] = SearchOptions(
                fusion=rule, weights=(share, round(1 - share, 2))
            )
    for cap in _CAPS:
        settings[f"{DEFAULTS}, {cap} per document"] = SearchOptions(max_per_document=cap)
    if reranker is not None:
        settings[f"{DEFAULTS} + reranker"] = SearchOptions(reranker=reranker)
    return settings


def halves(questions: Sequence[Question]) -> tuple[list[str], list[str]]:
    """Ids of two halves, the same for the same questions, each agent's questions shared out evenly.

    Questions that expect the same source stay together, or the held-out half would ask what was chosen for.
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
    on_progress: Tell | None = None,
) -> Advice:
    """Try settings on half of the questions, and check the best one on the other half.

    Args:
        indexer: The store to search.
        collection: The questions, 20 or more.
        settings: Name → options to try beside the defaults; `grid()` when None.
        measures: Names as of ir-measures; the first one decides.
        depth: Hits to ask for.
        on_progress: Called after every search.

    Raises:
        UsageError: there are too few questions to tell anything.
    """
    questions = list(collection.questions if isinstance(collection, Collection) else collection)
    first, second = halves(questions)
    if len(questions) < LEAST or not second:
        raise UsageError(
            f"A sweep needs at least {LEAST} questions on different sources, half to choose and half to check; there "
            f"are {len(questions)}. Draft more with `agentrag eval --make`."
        )
    tried = {DEFAULTS: SearchOptions(), **(grid() if settings is None else settings)}
    found = evaluate(
        indexer, collection, tried, measures=measures, main=DEFAULTS, depth=depth, on_progress=on_progress
    )
    decisive = measures[0]
    values = {name: run.values[decisive] for name, run in found.runs.items()}
    table = sorted(
        ((name, _mean(run, first), _mean(run, second)) for name, run in values.items()),
        key=lambda row: (-row[1], row[0] != DEFAULTS),  # of equals the defaults
    )
    best = table[0][0]
    difference = compare([values[best][key] for key in second], [values[DEFAULTS][key] for key in second])
    return Advice(best, found.runs[best].options, decisive, difference, len(first), table, found)


def _mean(values: Mapping[str, float], ids: Sequence[str]) -> float:
    return sum(values[key] for key in ids) / len(ids)
