"""Hard inputs of agent memory, each as its whole kind: contents that are no string, clocks that lie, ids that look alike."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from langchain_agentrag import AgentMemoryConnector
from langchain_agentrag.connectors.memory import MemoryTable, Turn
from langchain_agentrag.errors import AgentRagError, ScopeError, UsageError
from tests.connectors.memory.conftest import read, texts_by_role

CALL = {"id": "c1", "function": {"name": "search", "arguments": '{"q": "退款"}'}}


def log(folder: Path, *records, name="log") -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


class TestMessagesThatOnlyCallTools:
    """Their content is None, '' or an empty list; joining strings fails, or the call is lost with the message."""

    @pytest.mark.parametrize(
        "content", [None, "", [], [{"type": "thinking", "thinking": "secret"}], [{"type": "text", "text": ""}]]
    )
    @pytest.mark.parametrize("style", ["tool_calls", "function_call"])
    def test_tool_arguments_and_result_are_found_and_no_chunk_is_empty(self, tmp_path, indexer, content, style):
        asks = {"tool_calls": [CALL]} if style == "tool_calls" else {"function_call": CALL["function"]}
        answer = (
            {"role": "tool", "tool_call_id": "c1"} if style == "tool_calls" else {"role": "function", "name": "search"}
        )
        history = [
            {"role": "user", "content": "怎么退款"},
            {"role": "assistant", "content": content, **asks},
            {**answer, "content": '{"answer": "七天无理由"}'},
            {"role": "assistant", "content": "好的"},
        ]
        assert indexer.sync(AgentMemoryConnector(log(tmp_path, *history), agent_id="a")).failed == ()
        for query in ("退款", "search", "七天无理由"):
            (hit,) = indexer.search(query, agent_id="a", filter={"type": "tool_call"})
            assert hit.metadata["arguments"] == {"q": "退款"}
        everything = indexer.search("退款 好的 search", k=50, agent_id="a", mode="vector")
        assert len(everything) == 3
        assert all(hit.text.strip() for hit in everything)
        assert list(indexer.search("secret", agent_id="a", mode="keyword")) == []


class TestContentsThatAreLists:
    BLOCKS = (
        {"type": "text", "text": "地址在杭州"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUFBQQ"}},
        {"type": "thinking", "thinking": "secretthought"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "secretthought"}]},
        {"type": "input_audio", "input_audio": {"data": "QUFBQQ", "format": "wav"}},
        {"type": "hologram", "bytes": "QUFBQQ"},
        {"type": "text", "text": "near the West Lake"},
    )

    @pytest.mark.parametrize("place", ["user", "assistant", "tool"])
    def test_texts_are_found_and_data_and_thoughts_are_in_no_chunk(self, tmp_path, indexer, place):
        message = {"role": place, "content": list(self.BLOCKS)}
        if place == "tool":
            message["tool_call_id"] = "c1"
        indexer.sync(AgentMemoryConnector(log(tmp_path, message), agent_id="a"))
        for query in ("杭州", "West Lake", "图片", "audio"):
            (hit,) = indexer.search(query, agent_id="a", mode="keyword")
            assert "QUFBQQ" not in hit.text
            assert "secretthought" not in hit.text
            assert hit.metadata["parts"] == ["image", "thinking", "thinking", "audio", "hologram"]
        for query in ("QUFBQQ", "secretthought"):
            assert list(indexer.search(query, agent_id="a", mode="keyword")) == []


class TestClocksThatLie:
    """Three messages of one stamp, one before its predecessor: order is that of the store, and calls keep their results."""

    OFFSETS = (0.0, 0.0, 0.0, -0.04, 1.0, 1.0)

    def messages(self):
        texts = [
            ("user", "零"),
            ("assistant", None),
            ("tool", "二"),
            ("assistant", "三"),
            ("user", "四"),
            ("assistant", "五"),
        ]
        for (role, text), offset in zip(texts, self.OFFSETS, strict=True):
            extra = {"tool_calls": [CALL]} if text is None else {"tool_call_id": "c1"} if role == "tool" else {}
            yield {"role": role, "content": text, "timestamp": 1714536000 + offset, **extra}

    def test_positions_are_those_of_the_store_and_the_call_holds_its_result(self, tmp_path, indexer):
        indexer.sync(AgentMemoryConnector(log(tmp_path, *self.messages()), agent_id="a"))
        hits = sorted(
            indexer.search("零二三四五", k=9, agent_id="a", mode="vector"), key=lambda hit: hit.metadata["position"]
        )
        assert [hit.metadata["position"] for hit in hits] == list(range(5))
        assert [hit.text for hit in hits] == ["零", 'search(q="退款")\n→ 二', "三", "四", "五"]

    def test_the_own_table_keeps_it_too(self, tmp_path):
        table = MemoryTable(f"sqlite:///{tmp_path}/memory.db")
        noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
        entries = [
            Turn(session="s", entry_id=f"{9 - n}", role="user", text=str(n), time=noon + timedelta(seconds=offset))
            for n, offset in enumerate(self.OFFSETS)
        ]
        for entry in entries:  # one by one, as a recorder does
            table.append("a", [entry])
        assert [document.text for document in read(table, agent_id="a")] == list("012345")


STAMPS = """
import json, sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo
from langchain_agentrag import AgentMemoryConnector

folder = sys.argv[1]
shanghai = AgentMemoryConnector(f"{folder}/local.jsonl", agent_id="a", zone=ZoneInfo("Asia/Shanghai"))
utc = AgentMemoryConnector(f"{folder}/utc.jsonl", agent_id="a")
start = datetime(2024, 5, 1, 2, tzinfo=UTC)
found = [d for connector in (shanghai, utc) for d in connector.load()]
print(json.dumps(sorted(d.page_content for d in found if start <= d.metadata["time"] < start + timedelta(hours=2))))
"""


class TestZones:
    """Naive local, naive UTC, '+08:00', 'Z', seconds and milliseconds: one window finds the same ones everywhere."""

    @pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
    def test_a_window_is_the_same_whatever_the_zone_of_the_machine(self, tmp_path, zone):
        def record(name, moment, form):
            stamp = {
                "local": lambda: moment.astimezone(ZoneInfo("Asia/Shanghai")).replace(tzinfo=None).isoformat(),
                "utc": lambda: moment.replace(tzinfo=None).isoformat(" "),
                "+08:00": lambda: moment.astimezone(ZoneInfo("Asia/Shanghai")).isoformat(),
                "Z": lambda: moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "seconds": lambda: int(moment.timestamp()),
                "milliseconds": lambda: int(moment.timestamp() * 1000),
            }[form]()
            return {"role": "user", "content": f"{name} {form}", "timestamp": stamp}

        inside, outside = datetime(2024, 5, 1, 3, 59, tzinfo=UTC), datetime(2024, 5, 1, 4, 0, tzinfo=UTC)
        moments = (("in", inside), ("out", outside))
        log(tmp_path, *(record(n, m, "local") for n, m in moments), name="local")
        forms = ("utc", "+08:00", "Z", "seconds", "milliseconds")
        log(tmp_path, *(record(n, m, form) for form in forms for n, m in moments), name="utc")
        done = subprocess.run(
            [sys.executable, "-c", STAMPS, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TZ": zone},
        )
        assert json.loads(done.stdout) == sorted(f"in {form}" for form in ("local", *forms))

    def test_a_stamp_that_is_none_is_reported_and_nothing_is_lost(self, tmp_path, indexer):
        records = [
            {"role": "user", "content": f"句 {n}", "timestamp": stamp}
            for n, stamp in enumerate(["gestern", 1714536000, "2024-02-31"])
        ]
        report = indexer.sync(AgentMemoryConnector(log(tmp_path, *records), agent_id="a"))
        assert (report.added, len(report.failed)) == (3, 1)
        assert "'gestern' is not a time" in report.failed[0].reason
        assert "2024-02-31" in report.failed[0].reason


class TestForgetting:
    """'Delete everything of A' must never become 'delete everything'."""

    @pytest.fixture
    def filled(self, tmp_path, indexer):
        table = MemoryTable(f"sqlite:///{tmp_path}/memory.db")
        for agent in ("A", "B", "A ", "a"):
            table.append(
                agent, [Turn(session="s", entry_id=str(n), role="user", text=f"{agent} 的记忆 {n}") for n in range(10)]
            )
            indexer.sync(AgentMemoryConnector(table, agent_id=agent))
        return table

    def test_only_the_agent_is_forgotten(self, filled, indexer):
        indexer.forget_agent("A")
        assert filled.delete("A") == 10
        for agent in ("B", "A ", "a"):
            assert indexer.stats(agent).documents == len(filled.read(agent)) == 10
        assert indexer.stats("A").documents == len(filled.read("A")) == 0
        for mode in ("hybrid", "keyword", "vector"):
            assert list(indexer.search("记忆", k=99, agent_id="A", mode=mode)) == []

    @pytest.mark.parametrize("nobody", ["", None])
    def test_nobody_is_not_everybody(self, filled, indexer, nobody):
        for attempt in (indexer.forget_agent, filled.delete):
            with pytest.raises((ScopeError, UsageError)):
                attempt(nobody)
        with pytest.raises(UsageError):
            indexer.delete(filter={}, agent_id="A")
        assert sum(indexer.stats(agent).documents for agent in ("A", "B", "A ", "a")) == 40


class TestIsolation:
    """Near-identical memories of agents that look alike; every public way to look, with every wrong id."""

    AGENTS = ("A", "B", "a", "A ", "A\x00", "А", "A%", "")  # the fourth to last is Cyrillic

    @pytest.fixture
    def filled(self, tmp_path, indexer):
        records = [
            {"role": "user", "content": f"保险箱口令 vault code is {4000 + n}", "session_id": "s", "agent_id": agent}
            for n, agent in enumerate(self.AGENTS)
            if agent
        ]
        indexer.sync(AgentMemoryConnector(log(tmp_path, *records), agent_id=lambda session: session.agent_id))
        return indexer

    def test_each_finds_its_own_and_nobody_else_s(self, filled):
        queries = ["保险箱口令", "vault code", "4001", "口令 code 4000 4001 4002"]
        for query, mode in itertools.product(queries, ["hybrid", "keyword", "vector"]):
            for n, agent in enumerate(self.AGENTS[:-1]):
                hits = filled.search(query, k=50, agent_id=agent, mode=mode)
                assert {hit.text[-4:] for hit in hits} <= {str(4000 + n)}
                assert {hit.agent_id for hit in hits} <= {agent}
                assert len(hits) == 1 or query == "4001"
            for stranger in (None, "b", "AA", " A", "vault"):
                assert list(filled.search(query, k=50, agent_id=stranger, mode=mode)) == []

    def test_a_missing_id_is_refused_or_sees_nothing(self, filled):
        with pytest.raises(AgentRagError):
            filled.search("口令", agent_id="")
        doc_ids = [hit.doc_id for hit in filled.search("口令", agent_id="A")]
        assert filled.get(doc_ids) == filled.get(doc_ids, agent_id="B") == []
        with pytest.raises(AgentRagError):
            filled.read(doc_ids[0], agent_id="a")


def test_histories_of_both_frameworks_say_the_same_of_one_conversation(tmp_path):
    openai = [
        {"role": "user", "content": "退款"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "七天"},
    ]
    lines = log(tmp_path, *openai)
    array = tmp_path / "array.json"
    array.write_text(json.dumps(openai), encoding="utf-8")
    assert (
        texts_by_role(read(lines))
        == texts_by_role(read(array))
        == [("user", "退款"), ("search", 'search(q="退款")\n→ 七天')]
    )
