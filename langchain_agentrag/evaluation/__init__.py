"""Evaluation on your own questions: measures per index and fused, comparison, failure analysis, tuning, report.

collection = read_collection("my_questions.jsonl")
evaluation = evaluate(indexer, collection)
print(evaluation.runs["hybrid"].interval("nDCG@10"))
"""

from __future__ import annotations

from langchain_agentrag.evaluation.baseline import (
    Change,
    changes,
    compare_settings,
    load_run,
    run_document,
    shared_questions,
)
from langchain_agentrag.evaluation.collection import Collection, Expected, Question, read_collection, write_questions
from langchain_agentrag.evaluation.failure_analysis import Failure, failures
from langchain_agentrag.evaluation.question_generation import draft_questions
from langchain_agentrag.evaluation.report import html_report
from langchain_agentrag.evaluation.runner import MEASURES, Evaluation, Run, evaluate, measure, standard_settings
from langchain_agentrag.evaluation.statistics import Difference, Interval, compare, interval
from langchain_agentrag.evaluation.tuning import Advice, grid, sweep
from langchain_agentrag.evaluation.vector_cache import cached_embedder

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
    "cached_embedder",
    "changes",
    "compare",
    "compare_settings",
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
