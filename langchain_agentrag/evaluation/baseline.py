"""Runs kept as JSON, and what changed since one of them."""

from __future__ import annotations

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
class Saved:
    """A run as it was kept.

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
    """One measure of one setting against the baseline.

    Attributes:
        setting: Setting of this run.
        against: Setting of the baseline.
        measure: The measure.
        difference: New minus old over the questions both have.
    """

    setting: str
    against: str
    measure: str
    difference: Difference


def run_document(evaluation: Evaluation) -> dict[str, Any]:
    """A run as JSON-safe values, with every question's measures; what `load_run` reads."""
    return {
        "format": _FORMAT,
        "name": evaluation.name,
        "main": evaluation.main,
        "model": evaluation.model,
        "depth": evaluation.depth,
        "questions": {question.id: question.text for question in evaluation.questions},
        "unanswerable": [judged.question.id for judged in evaluation.unanswerable],
        "settings": {
            name: {
                "options": dict(run.options),
                "means": {
                    measured: {"mean": found.mean, "low": found.low, "high": found.high}
                    for measured in evaluation.measures
                    for found in (run.interval(measured),)
                },
                "latency_ms": {"p50": run.latency(0.5), "p95": run.latency(0.95)},
                "degraded": {key: list(notes) for key, notes in run.degraded.items()},
                "ranks": dict(run.ranks),
                "values": {measured: dict(values) for measured, values in run.values.items()},
            }
            for name, run in evaluation.runs.items()
        },
    }


def load_run(path: str | Path) -> Saved:
    """A run that was kept.

    Raises:
        UsageError: the file cannot be read or holds something else.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        document = document.get("run", document)  # the answer of `agentrag eval --json` holds it too
        if document["format"] != _FORMAT:
            raise UsageError(
                f"The baseline {path} has format {document['format']}, this version reads {_FORMAT}."
            )
        return Saved(
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


def shared_questions(questions: Sequence[Question], baseline: Saved) -> list[str]:
    """Ids of the questions that the baseline has with the same text.

    Raises:
        UsageError: there are none, so that nothing can be compared.
    """
    common = [question.id for question in questions if baseline.texts.get(question.id) == question.text]
    if not common:
        raise UsageError(
            f"The baseline was made with other questions ({baseline.name!r}): it has none of the {len(questions)} "
            "asked now. Compare runs of the same collection."
        )
    return common


def changes(evaluation: Evaluation, baseline: Saved) -> list[Change]:
    """Every setting against the baseline's setting of the same name, else against its main one.

    Only questions that both have, with the same text, are compared.

    Raises:
        UsageError: they have no question or no measure in common.
    """
    common = shared_questions(evaluation.questions, baseline)
    found = []
    for name, run in evaluation.runs.items():
        against = name if name in baseline.values else baseline.main
        old = baseline.values[against]
        found += [
            Change(
                name,
                against,
                measured,
                compare(
                    [run.values[measured][key] for key in common], [old[measured][key] for key in common]
                ),
            )
            for measured in evaluation.measures
            if measured in old
        ]
    if not found:
        raise UsageError(
            f"The baseline {baseline.name!r} has none of the measures {', '.join(evaluation.measures)}."
        )
    return found


def against_legs(evaluation: Evaluation) -> list[Change]:
    """The main setting against every other one of the same run, by the measure that decides."""
    decisive = evaluation.measures[0]
    values = {name: run.values[decisive] for name, run in evaluation.runs.items()}
    new = values[evaluation.main]
    return [
        Change(evaluation.main, name, decisive, compare([new[key] for key in new], [old[key] for key in new]))
        for name, old in values.items()
        if name != evaluation.main
    ]
