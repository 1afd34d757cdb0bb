"""Messages of a session as turns and tool calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from langchain_agentrag.connectors.memory import ToolCall, Turn
from langchain_agentrag.connectors.memory.dialogue import (
    ReadOptions,
    StoredMessage,
    entries_from_messages,
    parse_timestamp,
)
from langchain_agentrag.connectors.memory.messages import read_message


def joined(*raws, problems=None, **reading):
    messages = [StoredMessage(read_message(raw), str(place)) for place, raw in enumerate(raws)]
    return entries_from_messages("s", messages, ReadOptions(**reading), problems)


def asks(tool: str, call_id: str | None, **arguments):
    if call_id is None:
        return {"role": "assistant", "content": None, "function_call": {"name": tool, "arguments": str(arguments)}}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "function": {"name": tool, "arguments": arguments}}],
    }


def answers(text: str, call_id: str):
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def shape(entries):
    return [(e.role, e.text) if isinstance(e, Turn) else (e.tool, e.result) for e in entries]


def test_a_conversation_keeps_its_order_and_its_numbers():
    entries = joined(
        {"role": "user", "content": "退款"},
        asks("search", "c1", q="退款"),
        answers("七天", "c1"),
        {"role": "assistant", "content": "好的"},
    )
    assert shape(entries) == [("user", "退款"), ("search", "七天"), ("assistant", "好的")]
    assert [entry.position for entry in entries] == [0, 1, 2]
    assert [entry.entry_id for entry in entries] == ["0", "1:call:0", "3"]


def test_parallel_calls_meet_their_results_in_any_order():
    call = {"role": "assistant", "content": "两个", "tool_calls": [
        {"id": "c1", "function": {"name": "a", "arguments": "{}"}}, {"id": "c2", "function": {"name": "b", "arguments": "{}"}}]}  # fmt: skip
    assert shape(joined(call, answers("B", "c2"), answers("A", "c1"))) == [
        ("assistant", "两个"),
        ("a", "A"),
        ("b", "B"),
    ]


def test_ids_that_come_again_belong_to_the_call_that_waits():
    entries = joined(asks("a", "call_1"), answers("one", "call_1"), asks("b", "call_1"), answers("two", "call_1"))
    assert shape(entries) == [("a", "one"), ("b", "two")]


def test_old_function_calls_are_joined_by_name():
    result = {"role": "function", "name": "search", "content": "七天"}
    assert shape(joined(asks("search", None), result)) == [("search", "七天")]


def test_a_result_whose_call_is_lost_stands_for_itself():
    (entry,) = joined(answers("七天", "c9"))
    assert isinstance(entry, ToolCall)
    assert (entry.tool, entry.result, entry.call_id) == ("", "七天", "c9")


def test_a_call_that_was_never_answered_is_known_to_have_no_outcome():
    (entry,) = joined(asks("search", "c1", q="x"))
    assert (entry.result, entry.outcome) == (None, "unknown")


def test_a_result_that_comes_later_belongs_to_the_same_entry():
    before = joined(asks("search", "c1", q="x"))
    after = joined(asks("search", "c1", q="x"), answers("七天", "c1"))
    assert [entry.entry_id for entry in before] == [entry.entry_id for entry in after]


def test_system_messages_are_left_out_by_default():
    raws = (
        {"role": "system", "content": "You are"},
        {"role": "developer", "content": "Be"},
        {"role": "user", "content": "x"},
    )
    assert len(joined(*raws)) == 1
    assert len(joined(*raws, system=True)) == 3


SHANGHAI = ZoneInfo("Asia/Shanghai")
NOON = datetime(2024, 5, 1, 4, tzinfo=UTC)
STAMPS = {
    "Z": "2024-05-01T04:00:00Z",
    "offset": "2024-05-01T12:00:00+08:00",
    "offset of hours": "2024-05-01 12:00:00+08",
    "name of a zone": "2024-05-01 04:00:00 UTC",
    "mail": "Wed, 01 May 2024 12:00:00 +0800",
    "mail of no zone": "Wed, 01 May 2024 12:00:00",
    "web": "Wed, 01 May 2024 04:00:00 GMT",
    "seconds with decimals as text": "1714536000.000000",
    "offset without a colon": "2024-05-01T12:00:00+0800",
    "seconds": 1714536000,
    "seconds as text": "1714536000",
    "milliseconds": 1714536000000,
    "nanoseconds": 1714536000000000000,
    "aware": NOON.astimezone(timezone(timedelta(hours=8))),
    "naive text": "2024-05-01T12:00:00",
    "naive text with a space": "2024-05-01 12:00:00",
    "Chinese": "2024年5月1日 12:00",
    "naive": datetime(2024, 5, 1, 12),
}


@pytest.mark.parametrize("form", STAMPS)
def test_every_form_of_a_time_is_the_same_moment(form):
    assert parse_timestamp(STAMPS[form], SHANGHAI) == NOON


def test_a_naive_time_is_utc_by_default():
    assert parse_timestamp("2024-05-01T04:00:00") == NOON


@pytest.mark.parametrize("stamp", ["yesterday", -1, float("nan"), True, {}, "2024-13-45"])
def test_a_time_that_is_none_is_reported_and_the_entry_kept(stamp):
    problems = []
    (entry,) = joined({"role": "user", "content": "x", "timestamp": stamp}, problems=problems)
    assert (entry.text, entry.time) == ("x", None)
    assert len(problems) == 1


def test_equal_and_backward_times_keep_the_stored_order():
    times = [0, 0, 0, -0.04, 1, 1]
    raws = [{"role": "user", "content": str(n), "timestamp": 1714536000 + offset} for n, offset in enumerate(times)]
    assert [entry.text for entry in joined(*raws)] == list("012345")


def test_calls_of_one_message_keep_their_results_whatever_their_ids():
    """Models give two calls one id, or none at all; results then come in the order of the calls."""
    for ids in (("c1", "c1"), (None, None), ("c1", "c2")):
        tool_calls = [
            {"id": name, "function": {"name": "weather", "arguments": f'{{"城市": "{city}"}}'}}
            for name, city in zip(ids, ("北京", "Oslo"), strict=True)
        ]
        brought = [
            {"role": "tool", "name": "weather", "content": weather} | ({} if name is None else {"tool_call_id": name})
            for name, weather in zip(ids, ("晴", "rain"), strict=True)
        ]
        raw = [{"role": "assistant", "content": None, "tool_calls": tool_calls}, *brought]
        raw = [*raw, {"role": "user", "content": "again"}, *raw]  # the same ids once more, later
        calls_of_tools = [entry for entry in joined(*raw) if isinstance(entry, ToolCall)]
        calls = [(entry.arguments["城市"], entry.result) for entry in calls_of_tools]
        assert calls == [("北京", "晴"), ("Oslo", "rain")] * 2, ids
