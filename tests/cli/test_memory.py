"""`agentrag memory` lists what an agent said and did; `agentrag search` finds it; no other agent's is shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from langchain_agentrag import DualIndexer, HybridStore, SourceDocument
from langchain_agentrag.agent.recorder import MemoryRecorder
from langchain_agentrag.cli.app import app
from langchain_agentrag.connectors.memory import MemoryTable, ToolCall, Turn

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    table = MemoryTable(f"sqlite:///{folder / 'memory.db'}")
    with DualIndexer(folder / "store", "hash") as indexer:
        recorder = MemoryRecorder(indexer, table)
        for agent, code in (("lina", "7741"), ("otto", "1234")):
            entries = [
                Turn(session="s-1", entry_id="1", role="user", text=f"门禁密码 code {code}", time=NOON),
                ToolCall(session="s-1", entry_id="2", tool="open_gate", arguments={"code": code}, result="\x1b[31mjammed", outcome="error", time=NOON),
                Turn(session="s-2", entry_id="3", role="assistant", text=f"门开了 {code}", time=NOON + timedelta(hours=1)),
            ]  # fmt: skip
            recorder.record(agent, entries)
            HybridStore(indexer, agent_id=agent).put(("notes",), "tea", {"text": f"乌龙茶 {code}"})
        indexer.index_documents([SourceDocument("file", "no memory 7741", {"type": "file"})], "lina")
        assert recorder.problems == ()
    table.engine.dispose()
    return folder / "store"


def shell(store, *words, code: int = 0):
    result = CliRunner().invoke(app, [*map(str, words), "--store", str(store)], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return result


def listed(store, *words) -> list[str]:
    return [one["text"] for one in json.loads(shell(store, "memory", "--json", *words).stdout)["memories"]]


def test_memories_are_listed_in_order(store):
    assert listed(store, "--agent", "lina") == [
        "门禁密码 code 7741",
        'open_gate(code="7741")\n✗ \x1b[31mjammed',
        "门开了 7741",
        "text: 乌龙茶 7741",
    ]
    table = shell(store, "memory", "--agent", "lina").stdout
    for part in ("2026-03-02 12:00:00", "user", "s-1", "门禁密码", "open_gate", "item tea"):
        assert part in table
    assert "\x1b" not in table
    assert "1234" not in table


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-n", "1"], ["text: 乌龙茶 7741"]),
        (["--session", "s-2"], ["门开了 7741"]),
        (["--session", "s"], []),
        (["--after", "2026-03-02T12:30:00Z", "--before", "2026-03-02T14:00:00Z"], ["门开了 7741"]),
        (["--after", "2026-03-02T20:30:00+08:00", "--before", "2026-03-03"], ["门开了 7741"]),
    ],
)
def test_memories_are_chosen(store, words, expected):
    assert listed(store, "--agent", "lina", *words) == expected


@pytest.mark.parametrize("agent", ["Lina", "lin", "lina ", "%", "*"])
def test_another_agent_has_none(store, agent):
    assert listed(store, "--agent", agent) == []
    assert "No memories" in shell(store, "memory", "--agent", agent).stdout


def test_without_an_agent_it_is_a_usage_error(store):
    assert "--agent" in shell(store, "memory", code=2).output


def test_they_are_found_by_search(store):
    hits = json.loads(shell(store, "search", "门禁密码", "--agent", "lina", "--json", "-k", "1").stdout)["hits"]
    assert hits[0]["text"] == "门禁密码 code 7741"
    assert "1234" not in shell(store, "search", "门禁密码 1234", "--agent", "lina").stdout
