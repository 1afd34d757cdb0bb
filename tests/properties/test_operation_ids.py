"""Ids of operations: one for all notations of the same arguments, different for everything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.agent.canonical_json import MAX_DEPTH, canonical, operation_id
from langchain_agentrag.errors import UsageError

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=8
)
arguments = st.dictionaries(texts, values, max_size=4)


def same(a, b) -> bool:
    """The definition: the same type of JSON, numbers by value, texts by code point, keys in any order."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@given(values, values)
def test_two_values_have_one_text_exactly_when_they_are_the_same(a, b):
    assert (canonical(a) == canonical(b)) == same(a, b)


@given(st.lists(scalars, max_size=3), st.lists(scalars, max_size=3))
def test_values_that_nearly_collide_are_distinguished(a, b):
    assert (canonical(a) == canonical(b)) == same(a, b)


@given(values)
def test_the_text_is_json_for_the_same_value(value):
    assert same(json.loads(canonical(value)), value)
    assert canonical(json.loads(canonical(value))) == canonical(value)


def shuffled(value, draw):
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw(st.permutations(sorted(value)))}
    if isinstance(value, list):
        return [shuffled(item, draw) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and float(value) == value and abs(value) < 2**53:
        return draw(st.sampled_from([value, float(value)]))
    return value


@given(arguments, st.data())
def test_neither_the_order_of_keys_nor_the_notation_of_a_number_changes_the_id(value, data):
    assert operation_id("lina", "t", shuffled(value, data.draw), "s") == operation_id("lina", "t", value, "s")


parts = st.tuples(texts, texts, arguments, texts)


@given(parts, parts)
def test_each_part_of_an_operation_counts_and_none_runs_over_into_the_next(a, b):
    assert (operation_id(*a) == operation_id(*b)) == same(list(a), list(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (("lina", "ab", {}, "c"), ("lina", "a", {}, "bc")),
        (("lina", "t", {"a": 1}, "s"), ("lina", "t", {"a": True}, "s")),
        (("lina", "t", {"a": 1}, "s"), ("lina", "t", {"a": "1"}, "s")),
        (("lina", "t", {"a": None}, "s"), ("lina", "t", {}, "s")),
        (("lina", "t", {"a": "\u00e9"}, "s"), ("lina", "t", {"a": "e\u0301"}, "s")),
        (("lina", "t", {"a": 2**53}, "s"), ("lina", "t", {"a": 2**53 + 1}, "s")),
        (("lina", "t", {}, "s"), ("Lina", "t", {}, "s")),
        (("lina", "t", {}, "s"), ("lina\0", "t", {}, "s")),
        (("lina", "t", {"a": [1, 2]}, "s"), ("lina", "t", {"a": [2, 1]}, "s")),
    ],
)
def test_known_pitfalls(a, b):
    assert operation_id(*a) != operation_id(*b)


def test_an_id_stays_the_same_in_later_versions():
    """It is kept in files: changing how it is made would make every call of a running task new."""
    assert operation_id("丽娜", "send", {"b": 1.0, "a": "é"}, "t") == PINNED


PINNED = "84bbf22771a51826ce5edae3058adb23661f9e99"


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "\ud800", {"\udc00": 1}, {1: 2}, {1, 2}, b"x", object(), 10**5000],
    ids=["nan", "inf", "surrogate", "surrogate key", "number as key", "set", "bytes", "object", "huge"],
)
def test_what_is_no_json_is_refused(value):
    with pytest.raises(UsageError):
        canonical({"a": value})


def test_nesting_is_bounded():
    deep: list = []
    for _ in range(MAX_DEPTH + 5_000):
        deep = [deep]
    with pytest.raises(UsageError, match="deeper"):
        canonical(deep)
