"""Histories in JSON: chat stores and buffers of LlamaIndex, arrays, OpenAI-format logs."""

from __future__ import annotations

import json

import pytest
from langchain_core.messages import AIMessage, HumanMessage, messages_to_dict

from langchain_agentrag import AgentMemoryConnector
from langchain_agentrag.errors import ConnectorError
from tests.connectors.memory.conftest import read, texts_by_role

MESSAGES = [
    {"role": "user", "additional_kwargs": {}, "blocks": [{"block_type": "text", "text": "退款怎么办"}]},
    {"role": "assistant", "additional_kwargs": {}, "blocks": [
        {"block_type": "tool_call", "tool_call_id": "c1", "tool_name": "search", "tool_kwargs": {"q": "退款"}}]},
    {"role": "tool", "additional_kwargs": {"tool_call_id": "c1"}, "blocks": [{"block_type": "text", "text": "七天"}]},
    {"role": "assistant", "content": "好的", "additional_kwargs": {}},
]  # fmt: skip
TEXTS_BY_ROLE = [("user", "退款怎么办"), ("search", 'search(q="退款")\n→ 七天'), ("assistant", "好的")]
STORE = {"store": {"chat_history": MESSAGES}, "class_name": "SimpleChatStore"}
BUFFER = {"chat_store": STORE, "chat_store_key": "chat_history", "token_limit": 3000, "class_name": "ChatMemoryBuffer"}
CONTEXT = {"state": {"state_data": {"_data": {"memory": json.dumps(
    {"__is_component": True, "value": BUFFER, "qualified_name": "llama_index.core.memory.ChatMemoryBuffer"})}}}}  # fmt: skip

DOCUMENTS = {
    "SimpleChatStore": STORE,
    "SimpleChatStore encoded twice": json.dumps(STORE),
    "ChatMemoryBuffer": BUFFER,
    "ChatMemoryBuffer, old": {"chat_history": MESSAGES, "token_limit": 3000},
    "context of a workflow": CONTEXT,
    "array": MESSAGES,
    "LangChain's FileChatMessageHistory": messages_to_dict([
        HumanMessage("退款怎么办"), AIMessage("", tool_calls=[{"name": "search", "args": {"q": "退款"}, "id": "c1"}])])
    + MESSAGES[2:],
    "object with messages": {"messages": MESSAGES},
}  # fmt: skip


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("form", DOCUMENTS)
def test_every_dumped_form_is_read(tmp_path, form, ascii_only):
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(DOCUMENTS[form], ensure_ascii=ascii_only, indent=2), encoding="utf-8")
    assert texts_by_role(read(path)) == TEXTS_BY_ROLE


def lines(path, *records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "退款"}'}}
OPENAI = [
    {"role": "user", "content": "退款怎么办"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "七天"},
    {"role": "assistant", "content": "好的"},
]
OLD = [
    OPENAI[0],
    {"role": "assistant", "content": None, "function_call": {"name": "search", "arguments": '{"q": "退款"}'}},
    {"role": "function", "name": "search", "content": "七天"},
    OPENAI[3],
]
RESPONSES = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "退款怎么办"}]},
    {"type": "function_call", "id": "fc", "call_id": "c1", "name": "search", "arguments": '{"q": "退款"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "七天"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "好的"}]},
]
LOGS = {
    "a message per line": OPENAI,
    "old function calls": OLD,
    "items of responses": RESPONSES,
    "in envelopes": [{"timestamp": "2024-05-01T12:00:00Z", "message": m} for m in OPENAI],
    "a conversation per line": [{"messages": OPENAI}],
    "a request and its answer": [
        {"request": {"messages": OPENAI[:3]}, "response": {"choices": [{"message": OPENAI[3]}]}}
    ],
    "a batch": [{"custom_id": "x", "body": {"messages": OPENAI}}],
    "requests that repeat what was said": [
        {"session_id": "s", "messages": OPENAI[:1], "choices": [{"message": OPENAI[1]}]},
        {"session_id": "s", "messages": OPENAI[:3], "choices": [{"message": OPENAI[3]}]},
    ],
    "requests with a sliding window": [
        {"session_id": "s", "messages": [{"role": "system", "content": "You are"}, *OPENAI[:2]]},
        {"session_id": "s", "messages": [{"role": "system", "content": "You are"}, *OPENAI[1:]]},
    ],
}


@pytest.mark.parametrize("form", LOGS)
def test_every_form_of_a_log_is_read(tmp_path, form):
    assert texts_by_role(read(lines(tmp_path / "log.jsonl", *LOGS[form]))) == TEXTS_BY_ROLE


def test_an_empty_log_holds_nothing_yet_and_any_name_will_do_for_a_full_one(tmp_path):
    assert read(lines(tmp_path / "log.jsonl")) == []
    assert texts_by_role(read(lines(tmp_path / "chat.log", *OPENAI))) == TEXTS_BY_ROLE


def test_times_and_sessions_of_lines_are_kept(tmp_path):
    path = lines(
        tmp_path / "log.jsonl",
        {"role": "user", "content": "一", "session_id": "s", "timestamp": "2024-05-01T12:00:00+08:00"},
        {"role": "user", "content": "二", "metadata": {"thread_id": "t"}, "created_at": 1714536000},
    )
    facts = {d.text: (d.metadata["session"], d.metadata["time"].isoformat()) for d in read(path)}
    assert facts == {"一": ("s", "2024-05-01T04:00:00+00:00"), "二": ("t", "2024-05-01T04:00:00+00:00")}


def test_a_log_that_grows_is_read_where_it_grew(tmp_path, indexer):
    path = lines(tmp_path / "log.jsonl", *OPENAI[:2])
    connector = AgentMemoryConnector(path, agent_id="a")
    assert indexer.sync(connector).added == 2
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(OPENAI[2]) + "\n" + '{"role": "user", "cont')  # a line that is being written
    report = indexer.sync(connector)
    assert (report.added, report.updated, len(report.skipped), report.failed) == (
        0,
        1,
        1,
        (),
    )  # the call has its result
    assert "still being written" in report.skipped[0].reason
    with path.open("a", encoding="utf-8") as file:
        file.write('ent": "谢谢"}\n')
    assert indexer.sync(connector).added == 1


def test_lines_that_cannot_be_read_are_reported_and_the_others_taken(tmp_path, indexer):
    path = tmp_path / "log.jsonl"
    lines(path, OPENAI[0], {"event": "start"}, {"role": "user"})
    with path.open("ab") as file:
        file.write(b"{broken\n\xff\xfe\n" + json.dumps(OPENAI[3]).encode() + b"\n")
    report = indexer.sync(AgentMemoryConnector(path, agent_id="a"))
    assert report.added == 2
    assert [failure.key for failure in report.failed] == ["log:4", "log:5"]
    assert [skipped.reason for skipped in report.skipped] == ["2 line(s) hold neither a message nor a conversation"]


def test_a_message_that_cannot_be_read_does_not_take_the_others_along(tmp_path, indexer):
    path = tmp_path / "memory.json"
    path.write_text(json.dumps({"store": {"k": [MESSAGES[0], {"nothing": "SECRET"}, MESSAGES[3]]}}), encoding="utf-8")
    report = indexer.sync(AgentMemoryConnector(path, agent_id="a"))
    assert (report.added, len(report.failed)) == (2, 1)
    assert "entry 1" in report.failed[0].reason
    assert "SECRET" not in report.failed[0].reason


def test_a_folder_of_files_is_one_source(tmp_path, indexer):
    folder = tmp_path / "logs"
    (folder / "deep").mkdir(parents=True)
    (folder / "one.json").write_text(json.dumps(STORE), encoding="utf-8")
    (folder / "two.json").write_text(json.dumps(STORE), encoding="utf-8")
    lines(folder / "deep" / "day1.jsonl", {**OPENAI[0], "session_id": "s"}, {**OPENAI[1], "session_id": "s"})
    lines(folder / "deep" / "day2.jsonl", {**OPENAI[2], "session_id": "s"})
    (folder / "notes.txt").write_text("nothing", encoding="utf-8")
    (folder / "package.json").write_text('{"name": "x"}', encoding="utf-8")
    connector = AgentMemoryConnector(folder, agent_id="a")
    report = indexer.sync(connector)
    assert (report.added, report.failed) == (8, ())
    assert [skipped.key for skipped in report.skipped] == ["package"]
    sessions = {d.metadata["session"] for d in connector.load()}
    assert sessions == {"one/chat_history", "two/chat_history", "s"}
    (folder / "two.json").unlink()
    assert indexer.sync(connector).deleted == 3


@pytest.mark.parametrize("content", ["", "[", '{"name": "x"}', '"text"', "7", "[1]"])
def test_a_file_without_a_history_is_an_error(tmp_path, content):
    path = tmp_path / "memory.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConnectorError, match=r"Nothing was deleted.*Known formats"):
        list(AgentMemoryConnector(path, agent_id="a").items())


@pytest.mark.parametrize("empty", ["[]", '{"store": {}}'])
def test_a_file_that_is_half_written_deletes_nothing_and_one_that_was_emptied_everything(tmp_path, indexer, empty):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "other.json").write_text(json.dumps(STORE), encoding="utf-8")
    path = folder / "memory.json"
    for source in (path, folder):
        path.write_text(json.dumps({"store": {"k": MESSAGES[:1], "l": MESSAGES[3:]}}), encoding="utf-8")
        connector = AgentMemoryConnector(source, agent_id="a")
        indexer.sync(connector)
        before = indexer.stats("a").documents
        path.write_text('{"store": {"k": [', encoding="utf-8")
        if source == path:
            with pytest.raises(ConnectorError):
                indexer.sync(connector)
        else:
            assert [failure.key for failure in indexer.sync(connector).failed] == ["memory/"]
        assert indexer.stats("a").documents == before
        path.write_text(empty, encoding="utf-8")
        indexer.sync(connector)
        assert indexer.stats("a").documents == before - 2


@pytest.mark.parametrize(
    "broken", ["garbage", "garbage\n", '{"role": "user", "cont', '{"level": "info"}\n', "[1]\n\n5\n"]
)
def test_lines_of_which_none_can_be_read_delete_nothing(tmp_path, indexer, broken):
    path = lines(tmp_path / "log.jsonl", *OPENAI)
    connector = AgentMemoryConnector(path, agent_id="a")
    indexer.sync(connector)
    before = indexer.stats("a").documents
    path.write_text(broken, encoding="utf-8")
    with pytest.raises(ConnectorError, match=r"nothing that can be read.*Nothing was deleted"):
        indexer.sync(connector)
    assert indexer.stats("a").documents == before > 0
    path.write_text("", encoding="utf-8")  # emptied, which is no fault
    assert indexer.sync(connector).deleted == before
