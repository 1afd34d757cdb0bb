"""Arguments against a JSON Schema: what is refused, what is repaired, the message for the model."""

from __future__ import annotations

import subprocess
import sys

import pytest

from langchain_agentrag.errors import MissingExtraError, UsageError
from langchain_agentrag.guard.validation import MAX_ERRORS, ArgumentSchema

TRANSFER = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "exclusiveMinimum": 0},
        "count": {"type": "integer", "minimum": 1, "maximum": 50, "default": 5},
        "currency": {"enum": ["CNY", "USD"]},
        "urgent": {"type": "boolean"},
        "note": {"anyOf": [{"type": "string", "maxLength": 10}, {"type": "null"}]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "to": {"$ref": "#/$defs/Person"},
        "tags": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        "options": {"type": "object"},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["amount"],
    "$defs": {
        "Person": {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]}
    },
}
SCHEMA = ArgumentSchema(TRANSFER)


def rules(arguments) -> list[tuple[str, str]]:
    return [(error.path, error.rule) for error in SCHEMA.validate(arguments).errors]


@pytest.mark.parametrize(
    ("raw", "meant"),
    [
        ({"amount": "5"}, {"amount": 5}),
        ({"amount": "0.1"}, {"amount": 0.1}),
        ({"amount": " 7 "}, {"amount": 7}),
        ({"amount": 1, "count": "5.0"}, {"amount": 1, "count": 5}),
        ({"amount": 1, "limit": "7"}, {"amount": 1, "limit": 7}),
        ({"amount": 1, "urgent": "true"}, {"amount": 1, "urgent": True}),
        ({"amount": 1, "to": '{"name": "丽娜"}'}, {"amount": 1, "to": {"name": "丽娜"}}),
        ({"amount": 1, "tags": '["1", 2]'}, {"amount": 1, "tags": [1, 2]}),
        ('{"amount": "3"}', {"amount": 3}),
    ],
)
def test_a_value_in_the_wrong_notation_is_put_right(raw, meant):
    checked = SCHEMA.validate(raw)
    assert checked.errors == ()
    assert checked.arguments == meant
    for name, value in meant.items():
        assert type(checked.arguments[name]) is type(value)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"amount": True}, ("amount", "type")),
        ({"amount": 1, "count": 5.7}, ("count", "type")),
        ({"amount": 1, "count": "5.7"}, ("count", "type")),
        ({"amount": 1, "count": "five"}, ("count", "type")),
        ({"amount": 1, "count": "５"}, ("count", "type")),
        ({"amount": 1, "count": "0x10"}, ("count", "type")),
        ({"amount": 1, "count": ""}, ("count", "type")),
        ({"amount": 1, "count": None}, ("count", "type")),
        ({"amount": 1, "urgent": 1}, ("urgent", "type")),
        ({"amount": 1, "urgent": "yes"}, ("urgent", "type")),
        ({"amount": 1, "count": "99"}, ("count", "maximum")),
        ({"amount": "0.1234567890123456789"}, ("amount", "type")),
        ({"amount": "1e400"}, ("amount", "type")),
        ({"amount": "NaN"}, ("amount", "type")),
        ({"amount": 0}, ("amount", "exclusiveMinimum")),
        ({"amount": 1, "options": '{"a": 1, "a": 2}'}, ("options", "type")),
        ({"amount": 1, "options": '{"a": NaN}'}, ("options", "type")),
        ({"amount": 1, "note": "十一个字的备注实在太长了"}, ("note", "anyOf")),
        ({"amount": 1, "tags": [1, 1]}, ("tags", "uniqueItems")),
        ({"amount": 1, "tags": [1, "x"]}, ("tags[1]", "type")),
        ({"amount": 1, "to": {"name": ""}}, ("to.name", "minLength")),
        ({"amount": 1, "to": {}}, ("to.name", "required")),
        ({"amount": 1, "to": {"name": "a", "age": 3}}, ("to.age", "additionalProperties")),
        ({"amount": 1, "currency": "EUR"}, ("currency", "enum")),
        ({"amount": 1, "day": "2024-13-01"}, ("day", "format")),
        ({}, ("amount", "required")),
        ({"amount": 1, "agent_id": "otto"}, ("agent_id", "additionalProperties")),
        ([1], ("", "type")),
        ("not json", ("", "type")),
        (None, ("", "type")),
        ({"amount": float("nan")}, ("", "json")),
        ({"amount": 1, "note": "\ud83d"}, ("", "json")),
    ],
)
def test_what_is_wrong_is_named_by_place_and_rule(arguments, rule):
    assert rules(arguments) == [rule]
    assert SCHEMA.validate(arguments).arguments == {}


def test_nothing_is_repaired_on_request():
    assert [p.rule for p in SCHEMA.validate({"amount": "5"}, repair=False).errors] == ["type"]


def test_validation_does_not_change_its_input():
    arguments = {"amount": "5", "to": '{"name": "a"}', "tags": ["1"]}
    SCHEMA.validate(arguments)
    assert arguments == {"amount": "5", "to": '{"name": "a"}', "tags": ["1"]}


def test_a_text_that_may_be_a_text_is_left_alone():
    schema = ArgumentSchema({"properties": {"code": {"type": ["string", "integer"]}, "id": {"type": "string"}}})
    assert schema.validate({"code": "007", "id": "5"}).arguments == {"code": "007", "id": "5"}


def test_an_object_that_names_no_property_stays_open():
    assert SCHEMA.validate({"amount": 1, "options": {"anything": [1]}}).errors == ()


def test_an_object_that_allows_more_stays_open():
    schema = ArgumentSchema({"properties": {"a": {}}, "additionalProperties": {"type": "integer"}})
    assert schema.validate({"a": 1, "b": 2}).errors == ()
    assert schema.validate({"a": 1, "b": "x"}).errors[0].path == "b"


def test_a_tool_without_arguments_takes_none():
    assert ArgumentSchema({}).validate({}).errors == ()
    assert ArgumentSchema({"type": "object"}).validate({"x": 1}).errors[0].path == "x"


BASE = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


@pytest.mark.parametrize(
    "draft", ["https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema"]
)
@pytest.mark.parametrize(
    "part",
    [
        {"allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"name": {"type": "string"}}}]},
        {"$ref": "#/$defs/Base", "properties": {"name": {"type": "string"}}},
        {"properties": {"name": {"type": "string"}}, "anyOf": [BASE, {"properties": {"key": {}}, "required": ["key"]}]},
    ],
    ids=["allOf", "$ref and more", "anyOf beside properties"],
)
def test_an_object_put_together_of_parts_takes_the_arguments_of_all_and_no_others(part, draft):
    schema = ArgumentSchema(
        {
            "$schema": draft,
            "properties": {"item": {"type": "object", **part, "properties": part.get("properties", {})}},
            "$defs": {"Base": BASE},
        }
    )
    assert schema.validate({"item": {"id": 1, "name": "a"}}).errors == ()
    assert schema.validate({"item": {"id": 1, "name": "a", "other": 1}}).errors
    assert schema.validate({"item": {"name": "a"}}).errors


def test_each_of_several_kinds_is_closed():
    kinds = {
        "A": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        "B": {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
    }
    schema = ArgumentSchema(
        {"properties": {"x": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}}, "$defs": kinds}
    )
    assert schema.validate({"x": {"a": 1}}).errors == ()
    assert schema.validate({"x": {"b": "t"}}).errors == ()
    assert schema.validate({"x": {"a": 1, "c": 1}}).errors


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"properties": {"a": {"type": "nonsense"}}},
        {"properties": {"a": {"$ref": "https://example.invalid/schema.json"}}},
        {"properties": {"a": {"$ref": "#/$defs/Missing"}}},
    ],
)
def test_an_unusable_schema_is_refused_at_declaration(schema):
    with pytest.raises(UsageError, match=r"schema|object"):
        ArgumentSchema(schema)


def test_pydantic_models_are_understood():
    from pydantic import BaseModel, Field

    class Line(BaseModel):
        article: str
        pieces: int = Field(ge=1)

    class Order(BaseModel):
        lines: list[Line]
        comment: str | None = None

    schema = ArgumentSchema(Order.model_json_schema())
    assert schema.validate({"lines": [{"article": "接头", "pieces": "2"}]}).arguments["lines"][0]["pieces"] == 2
    assert schema.validate({"lines": [{"article": "接头", "pieces": 0}]}).errors[0].path == "lines[0].pieces"
    assert schema.validate({"lines": [{"article": "接头", "pieces": 1, "price": 2}]}).errors[0].path == "lines[0].price"


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", ["did you mean amount?", "amount is missing"]), ("zh", ["是不是想写 amount？", "缺少参数 amount"])],
)
def test_the_message_explains_how_to_correct_the_call(language, words):
    text = " ".join(error.message for error in SCHEMA.validate({"amout": 5}, language).errors)
    for part in words:
        assert part in text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_rule_has_a_sentence_with_the_place_and_the_rule(language):
    schema = ArgumentSchema(
        {
            "properties": {
                "a": {"minimum": 3}, "b": {"maximum": 3}, "c": {"exclusiveMaximum": 3}, "d": {"multipleOf": 3},
                "e": {"minLength": 3}, "f": {"pattern": "^x3"}, "g": {"minItems": 3}, "h": {"maxItems": 0},
                "i": {"const": 3}, "j": {"not": {"const": 3}}, "k": {"maxLength": 1},
            }
        }
    )  # fmt: skip
    wrong = {"a": 1, "b": 4, "c": 3, "d": 4, "e": "x", "f": "y", "g": [], "h": [1], "i": 4, "j": 3}
    errors = schema.validate(wrong, language).errors
    assert [error.path for error in errors] == sorted(wrong)
    assert all(error.path in error.message for error in errors)
    assert all("3" in error.message or error.path == "h" for error in errors)


def test_a_long_list_of_errors_is_cut_and_a_long_value_too():
    schema = ArgumentSchema({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}})
    errors = schema.validate({"a": ["x" * 10_000] * 100}).errors
    assert len(errors) == MAX_ERRORS
    assert all(len(error.message) < 300 for error in errors)


def test_defaults_are_what_an_absent_argument_means():
    assert SCHEMA.with_defaults({"amount": 1}) == {"amount": 1, "count": 5}
    assert SCHEMA.with_defaults({"amount": 1, "count": 7})["count"] == 7


def test_a_missing_jsonschema_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(MissingExtraError, match=r"langchain-agentrag\[guard\]"):
        ArgumentSchema({})


def test_jsonschema_is_loaded_with_the_first_schema_only():
    code = (
        "import sys\nsys.modules['jsonschema'] = sys.modules['referencing'] = None\n"
        "from langchain_agentrag import NothingDone, Operations, ToolRule, run_agent\n"
        "from langchain_agentrag.guard.loop import Answer\n"
        "assert ToolRule('low') and Operations and NothingDone\n"
        "print(run_agent(lambda situation: Answer('7'), {}, '?').answer)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "7"), done.stderr
