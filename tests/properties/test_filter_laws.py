"""Laws of the filter language, for any filter and any metadata."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.filters import And, Condition, Not, Or, conjoin, filter_keys, lookup, match, parse
from langchain_agentrag.metadata import normalise

KEYS = ("a", "b", "a.b", "c")
small = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        2,
        1.0,
        1.5,
        Decimal("1.5"),
        Decimal(1),
        float("nan"),
        float("inf"),
        "",
        "a",
        "ab",
        "1",
        "2024-05-01",
        date(2024, 5, 1),
        datetime(2024, 5, 1, tzinfo=UTC),
        datetime(2024, 5, 2),
        timedelta(1),
        b"a",
        10**400,
    ]
)
values = small | st.lists(small, max_size=3) | st.dictionaries(st.sampled_from(KEYS), small, max_size=2)
sortable = small.filter(lambda value: value is not None and type(value) not in (bool, bytes))
metadatas = st.dictionaries(st.sampled_from(KEYS), values, max_size=4)
leaves = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne", "$contains"]), values),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), sortable),
    st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(values, max_size=3)),
    st.tuples(st.just("$exists"), st.booleans()),
)
conditions = st.builds(lambda key, leaf: {key: dict([leaf])}, st.sampled_from(KEYS), leaves)
filters = st.recursive(
    conditions | st.just({}),
    lambda inner: (
        st.builds(lambda op, parts: {op: parts}, st.sampled_from(["$and", "$or"]), st.lists(inner, max_size=3))
        | inner.map(lambda part: {"$not": part})
    ),
    max_leaves=6,
)


@given(filters, metadatas)
def test_connectives_are_those_of_logic(where, metadata):
    matched = match(where, metadata)
    assert match({"$not": where}, metadata) is not matched
    assert match({"$not": {"$not": where}}, metadata) is matched
    assert match({"$and": [where]}, metadata) is match({"$or": [where]}, metadata) is matched


@given(st.lists(filters, max_size=4), metadatas)
def test_de_morgan_and_quantifiers(parts, metadata):
    each = [match(part, metadata) for part in parts]
    assert match({"$and": parts}, metadata) is all(each)
    assert match({"$or": parts}, metadata) is any(each)
    assert match({"$not": {"$or": parts}}, metadata) is match({"$and": [{"$not": part} for part in parts]}, metadata)


@given(filters, filters, metadatas)
def test_conjoin_is_and(first, second, metadata):
    both = conjoin(parse(first), parse(second))
    assert match(both, metadata) is (match(first, metadata) and match(second, metadata))


@given(filters, metadatas)
def test_a_parsed_filter_means_the_same_and_survives_storing(where, metadata):
    tree = parse(where)
    assert match(tree, metadata) is match(where, metadata) is match(where, normalise(metadata))
    assert parse(tree) == tree
    assert filter_keys(tree) <= set(KEYS)


def by_column(node, rows):
    """Evaluate as an engine does: each leaf once per distinct (value, present), then combine the masks."""
    if isinstance(node, Condition):
        results: dict[str, bool] = {}
        return [results.setdefault(repr(cell), node.test(*cell)) for cell in (lookup(row, node.key) for row in rows)]
    if isinstance(node, Not):
        return [not value for value in by_column(node.part, rows)]
    columns = [by_column(part, rows) for part in node.parts]
    join = all if isinstance(node, And) else any
    assert isinstance(node, And | Or)
    return [join(column[row] for column in columns) for row in range(len(rows))]


@given(filters, st.lists(metadatas, max_size=5))
def test_evaluating_by_column_agrees_with_match(where, rows):
    tree = parse(where)
    if tree is not None:
        assert by_column(tree, rows) == [match(where, row) for row in rows]


@given(values, metadatas)
def test_negated_operators_are_exact_complements(operand, metadata):
    for key in KEYS:
        assert match({key: {"$ne": operand}}, metadata) is not match({key: {"$eq": operand}}, metadata)
        assert match({key: {"$nin": [operand]}}, metadata) is not match({key: {"$in": [operand]}}, metadata)


@given(st.lists(values, max_size=4), metadatas)
def test_in_is_any_of_the_equalities(operands, metadata):
    one_by_one = any(match({"a": {"$eq": operand}}, metadata) for operand in operands)
    assert match({"a": {"$in": operands}}, metadata) is one_by_one


@given(sortable, values)
def test_comparable_values_are_below_equal_or_above(operand, value):
    metadata = {"a": value}
    below, same, above = (match({"a": {op: operand}}, metadata) for op in ("$lt", "$eq", "$gt"))
    assert below + same + above <= 1
    assert match({"a": {"$lte": operand}}, metadata) is (below or same)
    assert match({"a": {"$gte": operand}}, metadata) is (above or same)


@given(sortable, sortable, sortable)
def test_order_is_transitive(first, second, third):
    def below(x, y):
        return match({"a": {"$lte": y}}, {"a": x})

    texts = [isinstance(value, str) for value in (first, second, third)]
    if below(first, second) and below(second, third) and len(set(texts)) == 1:  # ISO text is read in filters only
        assert below(first, third)


@given(values, values)
def test_equality_is_symmetric_but_for_iso_text(first, second):
    if "2024-05-01" not in repr((first, second)):
        assert match({"a": {"$eq": first}}, {"a": second}) is match({"a": {"$eq": second}}, {"a": first})


@given(values)
def test_every_value_without_nan_equals_itself(value):
    assert match({"a": {"$eq": value}}, {"a": value}) or "nan" in repr(value)
