"""Measures of a ranking per question, computed by ir-measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_agentrag.errors import MissingExtraError, UsageError

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
