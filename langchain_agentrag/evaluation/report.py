"""HTML report of an evaluation: one self-contained page in English or Chinese, rendered by Jinja2."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.errors import MissingExtraError
from langchain_agentrag.evaluation.baseline import Change, compare_settings
from langchain_agentrag.evaluation.charts import interval_chart, latency_chart, success_chart
from langchain_agentrag.evaluation.failure_analysis import Failure
from langchain_agentrag.evaluation.runner import Evaluation, Run
from langchain_agentrag.evaluation.statistics import Difference
from langchain_agentrag.evaluation.tuning import Advice

Language = Literal["en", "zh"]

_FIRST = 10


def html_report(
    evaluation: Evaluation,
    missed: Sequence[Failure] = (),
    changed: Sequence[Change] = (),
    *,
    baseline: str = "",
    advice: Advice | None = None,
    language: Language = "en",
    k: int = _FIRST,
) -> str:
    """Render the report of an evaluation.

    Args:
        evaluation: The evaluation.
        missed: Failures to list.
        changed: Differences from a baseline.
        baseline: Name of the baseline.
        advice: Result of a sweep.
        language: Language of the page.
        k: Ranks that count as success.

    Raises:
        MissingExtraError: jinja2 or matplotlib is not installed.
    """
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("The report of an evaluation", "eval") from error

    messages = load_messages("evaluation", "report", language)

    def message(key: str, **values: object) -> str:
        return messages[key].format(**values)

    main = evaluation.runs[evaluation.main]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = files("langchain_agentrag.evaluation") / "report.html.jinja"
    return environment.from_string(page.read_text(encoding="utf-8")).render(
        evaluation=evaluation,
        message=message,
        language=language,
        success=_success_shares(main, _FIRST),
        notes=_notes(evaluation, message),
        advice=advice,
        advice_verdict=None if advice is None else _advice_verdict(advice, message),
        interval_charts={
            name: interval_chart({setting: run.interval(name) for setting, run in evaluation.runs.items()})
            for name in evaluation.measures
        },
        success_chart=success_chart(
            {name: _success_shares(run, evaluation.depth) for name, run in evaluation.runs.items()}
        ),
        latency_chart=latency_chart(
            {name: (run.latency(0.5), run.latency(0.95)) for name, run in evaluation.runs.items()}
        ),
        embedding_ms=1000 * float(np.median(list(evaluation.embedding.values()))) if evaluation.embedding else None,
        comparisons=[
            (message("baseline", name=baseline), changed),
            (message("compared", main=evaluation.main), compare_settings(evaluation)),
        ],
        verdict=_verdict,
        failures=missed,
        failure_count=sum((rank or k + 1) > k for rank in main.ranks.values()),
        k=k,
    )


def _notes(evaluation: Evaluation, message: Any) -> list[str]:  # noqa: ANN401  (a function of texts)
    degraded = {name: len(run.degraded) for name, run in evaluation.runs.items() if run.degraded}
    notes = [message("degraded", count=count, name=name) for name, count in degraded.items()]
    if evaluation.unanswerable:
        notes.insert(0, message("unanswerable", count=len(evaluation.unanswerable)))
    return notes


def _advice_verdict(advice: Advice, message: Any) -> str:  # noqa: ANN401  (a function of texts)
    difference = advice.difference
    change = (
        f"{difference.mean:+.3f} {advice.measure}, {difference.low:+.3f} … {difference.high:+.3f}, p {difference.p:.3f}"
    )
    key = "sweep_defaults" if advice.keeps_defaults else "sweep_not_significant"
    return str(message("sweep_recommended" if advice.worthwhile else key, best=advice.best, change=change))


def _verdict(difference: Difference) -> tuple[str, str]:
    """Return the style and the message key of a comparison's verdict."""
    if difference.significant:
        return ("good", "significant_better") if difference.mean > 0 else ("bad", "significant_worse")
    return "dim", "not_significant" if difference.better or difference.worse else "no_difference"


def _success_shares(run: Run, depth: int) -> list[float]:
    """Return the share of the questions whose expected source is among the first 1, 2, … `depth` results."""
    ranks = list(run.ranks.values())
    return [
        sum(rank is not None and rank <= limit for rank in ranks) / max(1, len(ranks)) for limit in range(1, depth + 1)
    ]
