"""Contract of every compiled form of a filter: it matches exactly the documents that `filters.match` matches."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from langchain_agentrag.filters import match
from langchain_agentrag.metadata import normalise

DOCUMENTS: list[dict[str, object]] = [
    {"type": "manual", "n": 1, "tags": ["x", "y"], "lang": "zh"},
    {"type": "manual", "n": 2.0, "tags": ["y"], "geo": {"lat": 1, "lon": 2}},
    {"type": "tool_call", "n": 3, "tags": [], "geo": {"lat": 5}},
    {"type": "Manual", "n": "3", "lang": None},
    {"n": True, "when": date(2024, 5, 1)},
    {"n": Decimal("2.5"), "when": datetime(2024, 5, 2, tzinfo=UTC), "a.b": "dotted"},
    {"n": float("nan"), "a": {"b": "nested"}},
    {"type": "manuals", "n": -1, "agent": "b", "tags": [["x"], 1]},
    {},
    {"type": "", "n": 0, "$odd": 1},
    {"type": "manual", "n": 10**30, "lang": "en"},
    {"type": ["manual"], "n": None, "tags": "xyz"},
]

FILTERS: list[dict[str, object]] = [
    {"type": "manual"},
    {"type": {"$eq": "manual"}},
    {"type": {"$ne": "manual"}},
    {"n": 1},
    {"n": 2},
    {"n": True},
    {"n": "3"},
    {"n": {"$gt": 1}},
    {"n": {"$gte": 1, "$lte": 3}},
    {"n": {"$lt": 0}},
    {"n": {"$not": {"$gt": 1}}},
    {"type": {"$in": ["manual", "tool_call"]}},
    {"type": {"$nin": ["manual", "tool_call"]}},
    {"n": {"$in": [1, "3"]}},
    {"tags": {"$contains": "x"}},
    {"tags": {"$contains": "y"}},
    {"tags": {"$eq": []}},
    {"tags": ["y"]},
    {"lang": None},
    {"lang": {"$exists": True}},
    {"lang": {"$exists": False}},
    {"geo.lat": 1},
    {"geo.lat": {"$gte": 2}},
    {"geo": {"$eq": {"lat": 5}}},
    {"a.b": "dotted"},
    {"a.b": {"$exists": True}},
    {"when": {"$gte": "2024-05-02"}},
    {"when": date(2024, 5, 1)},
    {"type": "manual", "n": {"$lt": 2}},
    {"$and": [{"type": "manual"}, {"lang": "zh"}]},
    {"$or": [{"type": "tool_call"}, {"lang": "zh"}]},
    {"$or": [{"lang": "zh"}, {"type": "tool_call"}]},
    {"$or": [{"type": "manual"}, {"n": -1}, {"a.b": "nested"}]},
    {"$not": {"type": "manual"}},
    {"$not": {"$or": [{"type": "manual"}, {"n": {"$gt": 0}}]}},
    {"$and": [{"$or": [{"n": 1}, {"n": 3}]}, {"$not": {"type": "tool_call"}}]},
    {"doc_id": "d3"},
    {"doc_id": {"$in": ["d1", "d2"]}},
]
"""Each matches some of the documents and not others."""

ALL_OR_NOTHING: list[tuple[object, bool]] = [
    (None, True),
    ({}, True),
    ({"$and": []}, True),
    ({"$or": []}, False),
    ({"type": {"$in": []}}, False),
    ({"type": {"$nin": []}}, True),
]


class FilterContract:
    """`compiled(where)` returns the indices of the matching `DOCUMENTS`; document 0 has the id "d0" and so on."""

    @pytest.mark.parametrize("where", FILTERS, ids=repr)
    def test_it_keeps_what_match_keeps_and_drops_the_rest(self, compiled, where):
        expected = matching(where)
        assert expected, "a case that keeps nothing proves nothing"
        assert len(expected) < len(DOCUMENTS), "a case that drops nothing proves nothing"
        assert compiled(where) == expected

    @pytest.mark.parametrize(("where", "everything"), ALL_OR_NOTHING, ids=repr)
    def test_empty_parts_keep_everything_or_nothing(self, compiled, where, everything):
        assert compiled(where) == (set(range(len(DOCUMENTS))) if everything else set())

    def test_it_agrees_with_match_on_random_trees(self, compiled):
        rng, informative = random.Random(9), 0
        for _ in range(150):
            where = random_filter(rng, 3)
            expected = matching(where)
            assert compiled(where) == expected, where
            informative += 0 < len(expected) < len(DOCUMENTS)
        assert informative > 60


def matching(where: object) -> set[int]:
    """Return the indices of the documents that `filters.match` matches."""
    views = [
        {**normalise(metadata), "agent_id": None, "doc_id": f"d{index}"} for index, metadata in enumerate(DOCUMENTS)
    ]
    return {index for index, view in enumerate(views) if match(where, view)}


def random_filter(rng: random.Random, depth: int) -> dict[str, object]:
    if depth == 0 or rng.random() < 0.4:
        return dict(rng.choice(FILTERS[:28]))
    if rng.random() < 0.3:
        return {"$not": random_filter(rng, depth - 1)}
    parts = [random_filter(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    return {rng.choice(["$and", "$or"]): parts}
