"""A value from outside that is nested without end is read, left out or refused with an error of ours: no RecursionError."""

from __future__ import annotations

import json

import pytest

from langchain_agentrag.agent.retrieval_calls import Evidence, RetrievalCall, extract_evidence
from langchain_agentrag.connectors.files import structured
from langchain_agentrag.connectors.memory import dialogue, messages, turns
from langchain_agentrag.connectors.sql import rows
from langchain_agentrag.errors import AgentRagError, UsageError
from langchain_agentrag.guard.validation import ArgumentSchema

WRAPPINGS = {
    "list": lambda value: [value],
    "object": lambda value: {"a": value},
    "content": lambda value: {"content": value},
    "parts": lambda value: {"role": "user", "content": [value]},
}
DEPTHS = (90, 300, 490, 700)


def nested(wrapping, depth):
    value: object = "x"
    for _ in range(depth):
        value = WRAPPINGS[wrapping](value)
    return value


CALLS = {
    "message content": lambda value: messages.read_message({"role": "user", "content": value}),
    "message": messages.read_message,
    "tool call": lambda value: messages.read_message({"role": "assistant", "content": "", "tool_calls": [{"name": "a", "args": value}]}),
    "stored message": lambda value: dialogue.stored_message({"role": "user", "content": value}, "1", []),
    "entry": lambda value: turns.as_document(turns.ToolCall(session="s", entry_id="e", tool="t", arguments={"a": value}), "s", None),
    "LangGraph item": lambda value: turns.item_document(turns.LangGraphItem(("a",), "k", {"v": value}), "s", None),
    "column": rows.to_metadata,
    "column as text": rows.value_text,
    "key column": lambda value: rows.key_text((value,)),
    "evidence": lambda value: extract_evidence("a", [value]),
    "call record": lambda value: RetrievalCall.from_tool_call("search", "t", {"a": value}, Evidence()),
    "arguments": lambda value: ArgumentSchema({"type": "object", "properties": {"a": {}}}).validate({"a": value}),
}  # fmt: skip


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", CALLS)
def test_a_nested_value_is_read_or_refused_with_an_error_of_ours(name, wrapping, depth):
    value = nested(wrapping, depth)
    try:
        CALLS[name](value)
    except (AgentRagError, messages.NotAMessageError) as error:
        assert "nested" in str(error) or "not a message" in str(error)  # noqa: PT017


@pytest.mark.parametrize("depth", [10, 100, 300, 490, 900, 20_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":[', "]}]")])
def test_the_text_of_a_nested_json_file_is_not_lost(opening, closing, depth):
    data = (opening * depth + '"pump"' + closing * depth).encode()
    assert "pump" in structured.read_json(data).text
    assert "pump" in structured.read_jsonl(data + b"\n" + data).text
    assert "pump" in structured.read_json(json.dumps({"x": data.decode()}).encode()).text


@pytest.mark.parametrize(
    "keywords",
    [
        {"not": {"$ref": "#"}},
        {"if": {"$ref": "#"}, "then": True},
        {"if": True, "then": {"$ref": "#"}},
        {"if": False, "else": {"$ref": "#"}},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"type": "object"}, {"$ref": "#"}]},
        {"oneOf": [{"not": {"$ref": "#"}}]},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/x"}}},
        {"properties": {"a": {"not": {"$ref": "#/$defs/x"}}}, "$defs": {"x": {"if": {"$ref": "#/$defs/y"}}, "y": {"not": {"$ref": "#/$defs/x"}}}},
    ],
    ids=str,
)  # fmt: skip
def test_a_schema_that_applies_itself_to_the_same_value_is_refused(keywords):
    with pytest.raises(UsageError, match="refers to itself"):
        ArgumentSchema({"type": "object", "properties": {"a": {}}, **keywords})


@pytest.mark.parametrize(
    ("child", "wrap"),
    [
        ({"$ref": "#"}, lambda tree: {"a": tree}),
        ({"type": "array", "items": {"$ref": "#"}}, lambda tree: {"a": [tree]}),
    ],
    ids=["property", "items"],
)
def test_a_schema_of_trees_is_taken(child, wrap):
    schema = ArgumentSchema({"type": "object", "properties": {"a": child}})
    tree: object = {}
    for _ in range(20):
        tree = wrap(tree)
    assert not schema.validate(tree).errors
    assert schema.validate({"a": 5}).errors


@pytest.mark.parametrize("keyword", ["not", "if", "items", "allOf"])
@pytest.mark.parametrize("depth", [90, 300, 900])
def test_a_nested_schema_is_taken_or_refused_with_words(keyword, depth):
    inner: object = {"type": "integer"}
    for _ in range(depth):
        inner = {keyword: [inner]} if keyword == "allOf" else {keyword: inner}
    try:
        schema = ArgumentSchema({"type": "object", "properties": {"a": inner}})
    except UsageError as error:
        assert "nested too deep" in str(error)  # noqa: PT017
    else:
        schema.validate({"a": 1})
