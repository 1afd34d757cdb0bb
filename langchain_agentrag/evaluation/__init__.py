"""Evaluation on one's own questions: measures per leg and fused, what changed, what failed and why, what to set.

collection = read_collection("my_questions.jsonl")
evaluation = evaluate(indexer, collection)
print(evaluation.runs["hybrid"].interval("nDCG@10"))
"""

from __future__ import annotations

from langchain_agentrag.evaluation.baseline import (
    Change,
    against_legs,
    changes,
    load_run,
    run_document,
    shared_questions,
)
from langchain_agentrag.evaluation.collection import (
    Collection,
    Expected,
    Question,
    read_collection,
    write_questions,
)
from langchain_agentrag.evaluation.drafting import draft_questions
from langchain_agentrag.evaluation.misses import Failure, failures
from langchain_agentrag.evaluation.report import html_report
from langchain_agentrag.evaluation.runner import (
    MEASURES,
    Evaluation,
    Run,
    evaluate,
    measure,
    standard_settings,
)
from langchain_agentrag.evaluation.statistics import Difference, Interval, compare, interval
from langchain_agentrag.evaluation.sweep import Advice, grid, sweep
from langchain_agentrag.evaluation.vectors import cached_embedder

__all__ = [
    "MEASURES",
    "Advice",
    "Change",
    "Collection",
    "Difference",
    "Evaluation",
    "Expected",
    "Failure",
    "Interval",
    "Question",
    "Run",
    "against_legs",
    "cached_embedder",
    "changes",
    "compare",
    "draft_questions",
    "evaluate",
    "failures",
    "grid",
    "html_report",
    "interval",
    "load_run",
    "measure",
    "read_collection",
    "run_document",
    "shared_questions",
    "standard_settings",
    "sweep",
    "write_questions",
]
