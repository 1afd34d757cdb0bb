"""Turns and tool calls as documents: ids, metadata, and a text that is found in both languages."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag import DualIndexer, HashingEmbeddings
from langchain_agentrag.connectors.memory import ToolCall, Turn, as_document, document_id
from langchain_agentrag.errors import InvalidDocumentError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
names = st.text(min_size=1, max_size=8) | st.text("/%25F", min_size=1, max_size=5)


@given(st.tuples(names, names, names), st.tuples(names, names, names))
def test_two_entries_never_share_an_id(one, two):
    assert (document_id(*one) == document_id(*two)) == (one == two)


def test_the_id_depends_neither_on_text_nor_time():
    one = Turn(session="s", entry_id="7", role="user", text="a", time=NOON)
    two = dataclasses.replace(one, text="b", time=None)
    assert as_document(one, "m", "a").doc_id == as_document(two, "m", "a").doc_id == "m/s/7"


def test_a_turn_has_its_text_and_metadata():
    turn = Turn(session="s", entry_id="7", role="user", text="地址在杭州", position=3, time=NOON, speaker="张三")
    document = as_document(turn, "m", "planner")
    assert (document.text, document.agent_id) == ("地址在杭州", "planner")
    assert document.metadata == {
        "type": "dialogue", "role": "user", "session": "s", "position": 3, "entry": "7", "time": NOON, "speaker": "张三",
    }  # fmt: skip


def test_a_call_reads_with_its_arguments_and_its_result():
    call = ToolCall(
        session="s", entry_id="7", tool="search_orders", arguments={"query": "退款", "limit": 5},
        result='{"status": "\\u5df2\\u9000\\u6b3e"}', outcome="ok", duration=0.25, call_id="c1", position=0,
    )  # fmt: skip
    document = as_document(call, "m", None)
    assert document.text == 'search_orders(query="退款", limit=5)\n→ {"status": "已退款"}'
    assert document.metadata["type"] == "tool_call"
    assert {
        "tool": "search_orders",
        "arguments": {"query": "退款", "limit": 5},
        "outcome": "ok",
        "duration": 0.25,
        "call_id": "c1",
    }.items() <= document.metadata.items()


def test_parts_that_are_no_text_are_named_and_thoughts_are_only_noted():
    turn = Turn(session="s", entry_id="7", role="user", text="看这张", parts=("image", "thinking", "image"))
    document = as_document(turn, "m", None)
    assert document.text == "看这张\n[image/图片]"
    assert document.metadata["parts"] == ["image", "thinking", "image"]


@pytest.mark.parametrize("entry", [
    Turn(session="s", entry_id="7", role="assistant"),
    Turn(session="s", entry_id="7", role="assistant", text=" \n"),
    Turn(session="s", entry_id="7", role="assistant", parts=("thinking",)),
    ToolCall(session="s", entry_id="7", tool=""),
])  # fmt: skip
def test_what_holds_nothing_is_no_document(entry):
    assert as_document(entry, "m", None) is None


@pytest.mark.parametrize("kind", [Turn, ToolCall])
@pytest.mark.parametrize("wrong", [{"session": None}, {"entry_id": ""}, {"time": datetime(2024, 5, 1)}])
def test_entries_without_a_unique_id_or_a_valid_time_are_refused(kind, wrong):
    own = {"role": "user"} if kind is Turn else {"tool": "t"}
    with pytest.raises(InvalidDocumentError, match=next(iter(wrong))):
        kind(**{"session": "s", "entry_id": "1"} | own | wrong)


def test_metadata_of_the_source_never_takes_a_name_that_means_something():
    turn = Turn(session="s", entry_id="1", role="user", text="x", extra={"agent_id": "b", "type": "row", "mood": "好"})
    assert as_document(turn, "m", "a").metadata.items() >= {"type": "dialogue", "mood": "好"}.items()
    assert "agent_id" not in as_document(turn, "m", "a").metadata


def test_lone_surrogates_of_json_logs_do_not_stop_a_document():
    turn = Turn(session="s\ud800", entry_id="1", role="user", text="好\ud83d\ude00 \ud800")
    document = as_document(turn, "m", None)
    assert document.text == "好😀 \ufffd"
    document.doc_id.encode()


def test_each_piece_of_a_long_result_knows_its_call(tmp_path):
    lines = "\n".join(f"第{n}行：库存数量 {n * 7} 件，仓库位于第 {n} 区。" for n in range(400))
    call = ToolCall(session="s", entry_id="1", tool="list_stock", arguments={"city": "杭州"}, result=lines)
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64)) as indexer:
        indexer.index_documents([as_document(call, "m", "a")], agent_id="a")
        hits = indexer.search("list_stock 库存 第399行", k=3, agent_id="a")
    assert any("第399行" in hit.text for hit in hits)
    assert all("list_stock" in hit.context for hit in hits if hit.chunk_id)
