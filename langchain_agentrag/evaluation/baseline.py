"""Comparison of runs: an evaluation against a saved baseline, and its settings against each other."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_agentrag.errors import UsageError
from langchain_agentrag.evaluation.collection import Question
from langchain_agentrag.evaluation.runner import Evaluation
from langchain_agentrag.evaluation.statistics import Difference, compare

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A run read from a JSON file.

    Attributes:
        name: Name of the collection.
        main: Its main setting.
        texts: Question id → text.
        values: Setting → measure → question id → value.
    """

    name: str
    main: str
    texts: Mapping[str, str]
    values: Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class Change:
    """Difference of one setting from the baseline by one measure.

    Attributes:
        setting: Setting of this run.
        against: Setting it is compared with.
        measure: Name of the measure.
        difference: New minus old over the questions that both have.
    """

    setting: str
    against: str
    measure: str
    difference: Difference


def run_document(evaluation: Evaluation) -> dict[str, Any]:
    """Return a run as JSON-safe values, with every question's measures; `load_run` reads it back."""
    return {
        "format": _FORMAT,
        "name": evaluation.name,
        "main": evaluation.main,
        "model": evaluation.model,
        "depth": evaluation.depth,
        "questions": {question.id: question.text for question in evaluation.questions},
        "unanswerable": [question.question.id for question in evaluation.unanswerable],
        "settings": {
            setting: {
                "options": dict(run.options),
                "means": {name: dataclasses.asdict(run.interval(name)) for name in evaluation.measures},
                "latency_ms": {"p50": run.latency(0.5), "p95": run.latency(0.95)},
                "degraded": {key: list(reasons) for key, reasons in run.degraded.items()},
                "ranks": dict(run.ranks),
                "values": {name: dict(values) for name, values in run.values.items()},
            }
            for setting, run in evaluation.runs.items()
        },
    }


def load_run(path: str | Path) -> SavedRun:
    """Load a run that `agentrag eval --save` wrote, or the whole answer of `agentrag eval --json`.

    Raises:
        UsageError: the file cannot be read or is no run.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        document = document.get("run", document)
        if document["format"] != _FORMAT:
            raise UsageError(f"The baseline {path} has format {document['format']}, this version reads {_FORMAT}.")
        return SavedRun(
            document["name"],
            document["main"],
            document["questions"],
            {name: setting["values"] for name, setting in document["settings"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"Cannot read the baseline {path}: {type(error).__name__}: {error}. Give a file that "
            "`agentrag eval --save` wrote."
        ) from error


def shared_questions(questions: Sequence[Question], baseline: SavedRun) -> list[str]:
    """Return the ids of the questions that the baseline has with the same text.

    Raises:
        UsageError: there are none, so that nothing can be compared.
    """
    common = [question.id for question in questions if baseline.texts.get(question.id) == question.text]
    if not common:
        raise UsageError(
            f"The baseline was made with other questions ({baseline.name!r}): it has none of these {len(questions)}. "
            "Compare runs of the same collection."
        )
    return common


def changes(evaluation: Evaluation, baseline: SavedRun) -> list[Change]:
    """Compare every setting with the baseline's setting of the same name, else with its main one.

    Only questions that both have, with the same text, are compared.

    Raises:
        UsageError: they have no question or no measure in common.
    """
    common = shared_questions(evaluation.questions, baseline)
    differences = []
    for name, run in evaluation.runs.items():
        against = name if name in baseline.values else baseline.main
        old = baseline.values[against]
        differences += [
            Change(
                name,
                against,
                measure,
                compare([run.values[measure][key] for key in common], [old[measure][key] for key in common]),
            )
            for measure in evaluation.measures
            if measure in old
        ]
    if not differences:
        raise UsageError(f"The baseline {baseline.name!r} has none of the measures {', '.join(evaluation.measures)}.")
    return differences


def compare_settings(evaluation: Evaluation) -> list[Change]:
    """Compare the main setting with every other one of the same run, by the measure that decides."""
    decisive = evaluation.measures[0]
    values = {name: run.values[decisive] for name, run in evaluation.runs.items()}
    new = values[evaluation.main]
    return [
        Change(evaluation.main, name, decisive, compare([new[key] for key in new], [old[key] for key in new]))
        for name, old in values.items()
        if name != evaluation.main
    ]
