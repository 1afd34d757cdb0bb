"""LangChain's structured queries keep their meaning in our filter language, whole or not at all."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.structured_query import Comparator, Comparison, Operation, Operator, StructuredQuery

from langchain_agentrag.errors import FilterError
from langchain_agentrag.filters import match
from langchain_agentrag.langchain.translator import HybridTranslator

DOCUMENT = {"year": 2024, "lang": "zh", "tags": ["主轴", "spindle"], "title": "主轴保养手册"}


def holds(directive, document=DOCUMENT) -> bool:
    text, options = HybridTranslator().visit_structured_query(StructuredQuery(query="q", filter=directive, limit=None))
    assert text == "q"
    return match(options.get("filter"), document)


def compare(comparator, attribute, value):
    return Comparison(comparator=comparator, attribute=attribute, value=value)


@pytest.mark.parametrize(
    ("comparator", "attribute", "value", "expected"),
    [
        (Comparator.EQ, "lang", "zh", True),
        (Comparator.NE, "lang", "en", True),
        (Comparator.NE, "missing", "en", True),
        (Comparator.GT, "year", 2024, False),
        (Comparator.GTE, "year", 2024, True),
        (Comparator.LT, "year", 2025, True),
        (Comparator.LTE, "year", 2023, False),
        (Comparator.GTE, "year", "2024", False),
        (Comparator.CONTAIN, "tags", "主轴", True),
        (Comparator.CONTAIN, "title", "保养", True),
        (Comparator.LIKE, "title", "%保养%", True),
        (Comparator.LIKE, "title", "维修", False),
        (Comparator.LIKE, "title", "保养", True),
        (Comparator.LIKE, "title", "主%册", True),
        (Comparator.LIKE, "title", "主%养", False),
        (Comparator.LIKE, "title", "主轴%", True),
        (Comparator.LIKE, "title", "保养%", False),
        (Comparator.LIKE, "title", "%手册", True),
        (Comparator.LIKE, "title", "主轴__手册", True),
        (Comparator.LIKE, "tags", "%spindle%", True),
        (Comparator.IN, "tags", ["spindle", "x"], True),
        (Comparator.IN, "lang", ["zh", "en"], True),
        (Comparator.IN, "lang", "zh", True),
        (Comparator.NIN, "lang", ["zh"], False),
    ],
)
def test_every_comparator_has_its_meaning(comparator, attribute, value, expected):
    assert holds(compare(comparator, attribute, value)) is expected


def test_dates_are_dates():
    comparison = compare(Comparator.GTE, "on", {"type": "date", "date": "2026-03-01"})
    assert holds(comparison, {"on": dt.date(2026, 3, 2)})
    assert not holds(comparison, {"on": dt.date(2026, 2, 27)})
    at = compare(Comparator.LT, "at", {"type": "datetime", "datetime": "2026-03-01T10:00:00+08:00"})
    assert holds(at, {"at": dt.datetime(2026, 3, 1, 1, tzinfo=dt.UTC)})


def test_no_filter_is_no_option():
    assert HybridTranslator().visit_structured_query(StructuredQuery(query="q", filter=None, limit=None)) == ("q", {})


@pytest.mark.parametrize(
    "impossible",
    [
        compare(Comparator.LIKE, "title", "*主轴*"),
        compare(Comparator.LIKE, "title", ""),
        compare(Comparator.LIKE, "title", 3),
        compare(Comparator.EQ, "on", {"type": "date", "date": "yesterday"}),
        Operation(operator=Operator.NOT, arguments=[compare(Comparator.EQ, "a", 1), compare(Comparator.EQ, "b", 2)]),
    ],
)
def test_an_untranslatable_condition_is_an_error_and_never_dropped(impossible):
    with pytest.raises(FilterError):
        holds(impossible)


leaves = st.builds(
    compare,
    st.sampled_from([Comparator.EQ, Comparator.NE, Comparator.GT, Comparator.GTE, Comparator.LT, Comparator.LTE]),
    st.sampled_from(["a", "b"]),
    st.integers(0, 3),
)
directives = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(
            lambda operator, parts: Operation(operator=operator, arguments=parts),
            st.sampled_from([Operator.AND, Operator.OR]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        inner.map(lambda part: Operation(operator=Operator.NOT, arguments=[part])),
    ),
    max_leaves=8,
)


def by_hand(directive, document) -> bool:
    if isinstance(directive, Operation):
        parts = [by_hand(part, document) for part in directive.arguments]
        return {"and": all(parts), "or": any(parts), "not": not parts[0]}[directive.operator.value]
    value, other = document[directive.attribute], directive.value
    return {
        "eq": value == other,
        "ne": value != other,
        "gt": value > other,
        "gte": value >= other,
        "lt": value < other,
        "lte": value <= other,
    }[directive.comparator.value]


@given(directives, st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.integers(0, 3)}))
def test_any_nesting_agrees_with_plain_python(directive, document):
    assert holds(directive, document) is by_hand(directive, document)
