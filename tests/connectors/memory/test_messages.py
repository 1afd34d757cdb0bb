"""Messages of every framework in one form, whatever they hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage, ToolMessage, message_to_dict
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock

from langchain_agentrag.connectors.memory.messages import (
    NotAMessageError,
    ToolRequest,
    looks_like_message,
    read_message,
)

ASKED = AIMessage("稍等", tool_calls=[{"name": "search", "args": {"q": "退款"}, "id": "c1"}], id="m1")
CALL = ToolRequest("search", {"q": "退款"}, "c1")
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "退款"}'}}

CALLING = {
    "LangChain object": ASKED,
    "LangChain chunk": AIMessageChunk("稍等", tool_calls=ASKED.tool_calls),
    "LangChain stored": message_to_dict(ASKED),
    "LangChain serialised": dumpd(ASKED),
    "LangChain fields": ASKED.model_dump(),
    "LangChain, the call among the content too": AIMessage(
        [{"type": "text", "text": "稍等"}, {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "退款"}}],
        tool_calls=ASKED.tool_calls,
    ),
    "OpenAI": {"role": "assistant", "content": "稍等", "tool_calls": [OPENAI_CALL]},
    "OpenAI, old": {
        "role": "assistant", "content": "稍等", "function_call": {"name": "search", "arguments": '{"q": "退款"}'},
    },
    "Anthropic": {
        "role": "assistant",
        "content": [{"type": "text", "text": "稍等"}, {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "退款"}}],
    },
    "LlamaIndex object": ChatMessage(
        role="assistant",
        blocks=[TextBlock(text="稍等"), ToolCallBlock(tool_call_id="c1", tool_name="search", tool_kwargs={"q": "退款"})],
    ),
    "LlamaIndex stored": {
        "role": "assistant", "additional_kwargs": {},
        "blocks": [
            {"block_type": "text", "text": "稍等"},
            {"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "search", "tool_kwargs": '{"q": "退款"}'},
        ],
    },
    "LlamaIndex, old": {"role": "assistant", "content": "稍等", "additional_kwargs": {"tool_calls": [OPENAI_CALL]}},
}  # fmt: skip

ANSWERING = {
    "LangChain object": ToolMessage("七天", tool_call_id="c1", name="search"),
    "LangChain stored": message_to_dict(ToolMessage("七天", tool_call_id="c1", name="search")),
    "LangChain serialised": dumpd(ToolMessage("七天", tool_call_id="c1", name="search")),
    "OpenAI": {"role": "tool", "tool_call_id": "c1", "content": "七天"},
    "OpenAI, old": {"role": "function", "name": "search", "content": "七天"},
    "OpenAI, responses": {"type": "function_call_output", "call_id": "c1", "output": "七天"},
    "Anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "七天"}]}]},
    "LlamaIndex object": ChatMessage(role="tool", content="七天", additional_kwargs={"tool_call_id": "c1"}),
    "LlamaIndex stored": {"role": "tool", "additional_kwargs": {"tool_call_id": "c1"}, "blocks": [{"block_type": "text", "text": "七天"}]},
}  # fmt: skip


@pytest.mark.parametrize("form", CALLING)
def test_a_message_that_calls_a_tool(form):
    message = read_message(CALLING[form])
    call = message.calls[0]
    assert (message.role, message.text, len(message.calls)) == ("assistant", "稍等", 1)
    assert (call.tool, call.arguments) == (CALL.tool, CALL.arguments)
    assert call.call_id == (None if form == "OpenAI, old" else "c1")


@pytest.mark.parametrize("form", ANSWERING)
def test_a_message_that_brings_a_result(form):
    message = read_message(ANSWERING[form])
    assert [result.text for result in message.results] == ["七天"]
    assert message.text == ""
    assert message.results[0].call_id == (None if form == "OpenAI, old" else "c1")


@pytest.mark.parametrize("content", [None, "", []])
@pytest.mark.parametrize("form", ["plain", "stored"])
def test_a_message_without_content_keeps_its_call(content, form):
    raw = {"role": "assistant", "content": content, "tool_calls": [OPENAI_CALL]}
    if form == "stored":  # rows of LangChain's tables hold null, though the class refuses it
        raw = {"type": "ai", "data": {"content": content, "additional_kwargs": {"tool_calls": [OPENAI_CALL]}}}
    assert read_message(raw).calls == (CALL,)
    assert read_message(raw).text == ""


BLOCKS = [
    {"type": "text", "text": "地址在杭州"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "thinking", "thinking": "secret"},
    {"type": "input_audio", "input_audio": {"data": "AAAA"}},
    {"type": "something_new", "payload": "AAAA"},
    "第二段",
]


@pytest.mark.parametrize(
    "raw",
    [
        {"role": "user", "content": BLOCKS},
        {"type": "human", "data": {"content": BLOCKS}},
        HumanMessage(BLOCKS),
        {"role": "user", "additional_kwargs": {}, "blocks": [{**b, "block_type": b["type"]} if isinstance(b, dict) else b for b in BLOCKS]},
    ],
)  # fmt: skip
def test_parts_that_are_no_text_are_noted_by_kind_and_never_as_text(raw):
    message = read_message(raw)
    assert message.text == "地址在杭州\n第二段"
    assert message.parts == ("image", "thinking", "audio", "something_new")


def test_blocks_of_llama_index_objects_are_read():
    blocks = [TextBlock(text="看"), ImageBlock(url="http://localhost/a.png"), ThinkingBlock(content="secret")]
    message = read_message(ChatMessage(role="user", blocks=blocks))
    assert (message.text, message.parts) == ("看", ("image", "thinking"))


@pytest.mark.parametrize(
    ("raw", "outcome"),
    [
        (ToolMessage("x", tool_call_id="c", status="error"), "error"),
        (ToolMessage("x", tool_call_id="c"), "ok"),
        ({"role": "tool", "tool_call_id": "c", "content": "Error: no"}, "unknown"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": True}]}, "error"),
    ],
)
def test_the_outcome_is_the_status_of_the_message_and_never_a_guess(raw, outcome):
    assert read_message(raw).results[0].outcome == outcome


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"a": 1}', {"a": 1}), ("{broken", "{broken"), ("", {}), ("[1]", "[1]"), ({"a": None}, {"a": None}), (None, {})],
)
def test_arguments_are_a_mapping_or_the_text_that_is_none(arguments, expected):
    raw = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "t", "arguments": arguments}}]}
    assert read_message(raw).calls[0].arguments == expected


def test_a_result_that_is_an_object_is_its_json():
    raw = {"role": "tool", "tool_call_id": "c", "content": {"状态": "已退款"}}
    assert json.loads(read_message(raw).results[0].text) == {"状态": "已退款"}


def test_an_instruction_to_remove_is_no_message():
    assert read_message(RemoveMessage(id="m1")) is None


def test_roles_of_the_frameworks_mean_the_same():
    pairs = {
        "human": "user",
        "ai": "assistant",
        "chatbot": "assistant",
        "model": "assistant",
        "developer": "system",
        "USER": "user",
    }
    assert {pair: read_message({"role": pair, "content": "x"}).role for pair in pairs} == pairs
    assert read_message({"role": "客服", "content": "x"}).role == "客服"


def test_a_summary_is_marked():
    summary = HumanMessage("summary", additional_kwargs={"lc_source": "summarization"})
    assert read_message(summary).extra == {"summary": True}


@pytest.mark.parametrize(
    "raw", [None, "text", 7, {}, {"role": "user"}, {"type": "ai"}, {"content": "x"}, {"role": "", "content": "x"}, [1],
            {"lc": 1, "type": "constructor", "id": ["langchain", "llms", "OpenAI"], "kwargs": {"content": "x"}}],
)  # fmt: skip
def test_a_value_that_is_no_message_is_refused_without_its_content_in_the_error(raw):
    assert not looks_like_message(raw)
    with pytest.raises(NotAMessageError, match="is not a message"):
        read_message(raw)


def test_the_error_contains_no_texts():
    with pytest.raises(NotAMessageError) as caught:
        read_message({"secret_field": "SECRET TEXT"})
    assert "SECRET TEXT" not in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "role", "content", "blocks", "data", "kwargs", "id", "tool_calls", "function", "name",
                         "arguments", "text", "additional_kwargs", "function_call", "output", "args", "call_id"]),
        inner, max_size=4,
    ),
    max_leaves=15,
)  # fmt: skip
kinds = st.sampled_from(["human", "ai", "tool", "function_call", "function_call_output", "constructor", "text", "user"])


@given(st.dictionaries(st.sampled_from(["type", "role"]), kinds), json_values, json_values, json_values)
def test_any_json_is_read_or_refused(head, content, data, calls):
    raw = {**head, "content": content, "data": data, "tool_calls": calls, "kwargs": data}
    try:
        message = read_message(raw)
    except NotAMessageError:
        return
    assert message is None or isinstance(message.text, str)
