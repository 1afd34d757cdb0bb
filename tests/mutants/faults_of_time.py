"""Faults of the engine: expiry, time ranges, recency."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from langchain_agentrag.filters import Condition, Not, Or, time_range_filter
from langchain_agentrag.search import options, ranking
from langchain_agentrag.store import commit, visibility
from langchain_agentrag.store import store as storage
from langchain_agentrag.store.visibility import VisiblePartition
from langchain_agentrag.times import check_time
from tests.mutants.faults import around, fault


@fault("what has expired is found until it is swept")
def _() -> Any:
    return patch.object(
        visibility.PartitionVisibility, "visible", lambda self, partition, now, **_: VisiblePartition(partition)
    )


@fault("what has expired goes on counting in the scores of the rest")
def _() -> Any:
    def counting(original: Any, self: Any, partition: Any, now: Any, **options: Any) -> Any:
        return replace(original(self, partition, now, **options), excluded_doc_freqs={})

    return around(visibility.PartitionVisibility, "visible", counting)


@fault("what has expired goes on counting in lengths and numbers")
def _() -> Any:
    def counting(original: Any, self: Any, partition: Any, now: Any, **options: Any) -> Any:
        return replace(original(self, partition, now, **options), partition=partition)

    return around(visibility.PartitionVisibility, "visible", counting)


@fault("a document is gone a moment after it expires")
def _() -> Any:
    return around(storage.Store, "now", lambda original, self: original(self) - timedelta(microseconds=1))


@fault("a document that comes back keeps the place of the one that expired")
def _() -> Any:
    return patch.object(commit, "_has_expired", lambda connection, document, now: False)


@fault("a sweep takes what lives")
def _() -> Any:
    def everything(original: Any, self: Any, now: Any, at_least: int = 1) -> Any:
        return original(self, now + timedelta(days=9_999), at_least)

    def all_of_it(original: Any, connection: Any, condition: Any, *rest: Any) -> Any:
        return original(
            connection, replace(condition, expired_only=False) if condition.expired_only else condition, *rest
        )

    both = ExitStack()
    both.enter_context(around(visibility.PartitionVisibility, "expired", everything))
    both.enter_context(around(storage, "commit", all_of_it))
    return both


@fault("a range is ignored")
def _() -> Any:
    return patch.object(options, "time_range_filter", lambda after, before, now: None)


@fault("a range holds its end")
def _() -> Any:
    def closed(original: Any, after: Any, before: Any, now: Any) -> Any:
        end = before and check_time("before", before, now) + timedelta(microseconds=1)
        return original(after, end, now)

    return around(options, "time_range_filter", closed)


@fault("a document without a time is in every range")
def _() -> Any:
    def lenient(after: Any, before: Any, now: Any) -> Any:
        condition = time_range_filter(after, before, now)
        return condition and Or((condition, Not(Condition("$time", "$gt", "0001-01-01"))))

    return patch.object(options, "time_range_filter", lenient)


@fault("being recent counts for more than the words")
def _() -> Any:
    return around(ranking, "recency_boost", lambda original, *args: min(1.0 - args[0], 9 * original(*args)))


@fault("the oldest are taken for the most recent")
def _() -> Any:
    return around(
        ranking, "recency_boost", lambda original, score, age, half: original(score, timedelta(days=1) - age, half)
    )
