"""Arguments against schemas, whatever a model writes: an answer each time, and nothing invalid gets through."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from langchain_agentrag.guard.validation import ArgumentSchema

TYPES = ["string", "integer", "number", "boolean", "object", "array", "null"]
names = st.sampled_from(["a", "b", "金额", "a.b", ""])
written = st.sampled_from(
    ["5", "5.0", "-0", "true", "null", "1e5", '{"a": "1"}', '["1", "x"]', "{", "５", "0x1", "\ud83d", "NaN", "9" * 400]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | written
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)

leaves = st.one_of(
    st.builds(lambda t: {"type": t}, st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True)),
    st.builds(lambda n: {"type": "integer", "minimum": n, "maximum": n + 5}, st.integers(-5, 5)),
    st.builds(lambda v: {"enum": v}, st.lists(st.sampled_from(["5", 5, True, None, "a"]), min_size=1, max_size=3, unique_by=repr)),
    st.just({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    st.just({}), st.just(True), st.just({"$ref": "#/$defs/Node"}),
)  # fmt: skip
parts = st.recursive(
    leaves,
    lambda inner: (
        st.builds(lambda p: {"type": "object", "properties": p}, st.dictionaries(names, inner, max_size=3))
        | st.builds(lambda i: {"type": "array", "items": i}, inner)
        | st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
        | st.builds(lambda a, b: {"allOf": [a, b]}, inner, inner)
    ),
    max_leaves=6,
)
NODE = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Node"}, "b": {"type": "integer"}}}
schemas = st.builds(
    lambda p, r: {"type": "object", "properties": p, "required": r, "$defs": {"Node": NODE}},
    st.dictionaries(names, parts, max_size=4),
    st.lists(names, max_size=2, unique=True),
)


@given(schemas, st.dictionaries(names, values, max_size=4) | values)
def test_whatever_is_accepted_is_valid_and_whatever_is_not_is_explained(schema, arguments):
    original_schema, original_arguments = copy.deepcopy(schema), copy.deepcopy(arguments)
    known = ArgumentSchema(schema)
    for language in ("en", "zh"):
        checked = known.validate(arguments, language)
        if checked.errors:
            assert checked.arguments == {}
            assert all(error.message for error in checked.errors)
        else:
            assert Draft202012Validator(schema).is_valid(checked.arguments)
            assert checked.arguments.keys() <= schema["properties"].keys()
            assert known.validate(checked.arguments, language) == checked
    assert schema == original_schema
    assert repr(arguments) == repr(original_arguments)


@given(schemas, st.dictionaries(names, values, max_size=4))
def test_what_is_valid_as_it_stands_is_left_as_it_is(schema, arguments):
    known = ArgumentSchema(schema)
    strict = known.validate(arguments, repair=False)
    if not strict.errors:
        assert repr(known.validate(arguments).arguments) == repr(strict.arguments) == repr(arguments)


def test_a_value_that_follows_a_schema_down_is_no_crash():
    known = ArgumentSchema({"properties": {"a": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}})
    for depth in (10, 50, 99, 100, 5_000):
        value: dict = {"b": 1}
        for _ in range(depth):
            value = {"a": value}

        def nested(levels, value=value):
            return nested(levels - 1) if levels else known.validate({"a": value})

        for levels in (0, 300, 600):
            checked = nested(levels)
            assert (checked.errors == ()) == bool(checked.arguments)
        if depth == 10:
            assert not known.validate({"a": value}).errors
