"""`agentrag sync agentrag.toml` as a person or a timer runs it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from langchain_agentrag import DualIndexer
from langchain_agentrag.cli.app import app
from langchain_agentrag.testing import assert_consistent, assert_isolated

# A test run in the background ignores Ctrl-C, and so would its children.
AGENTRAG = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from langchain_agentrag.cli import main; main()",
]
CONFIG = """
store = "store"
embeddings = "hash"
interval = "1s"

[[source]]
name = "manuals"
type = "files"
path = "docs"

[[source]]
name = "笔记"
type = "files"
path = "notes"
agent = "lina"

[[source]]
name = "chat"
type = "memory"
path = "chat.jsonl"
agent = "otto"
"""


class Place:
    """A folder with a file of sources and what they read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("agentrag.toml", CONFIG)
        self.write("docs/alarm.md", "# Alarms\n\nAlarm E1102 means that the tool arm is stuck.\n")
        self.write("notes/private.txt", "蛋糕在门房，密码 7741。")
        self.write("chat.jsonl", json.dumps({"messages": [{"role": "user", "content": "预算定为九万 budget"}]}) + "\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def sync(self, *args: str, code: int = 0) -> dict:
        result = CliRunner().invoke(app, ["sync", str(self.folder / "agentrag.toml"), "--json", *args])
        assert result.exit_code == code, (result.output, result.exception)
        return {one["name"]: one for one in json.loads(result.stdout)["sources"]}

    def counts(self, *args: str, code: int = 0) -> dict[str, tuple[int, ...]]:
        counts = ("added", "updated", "deleted", "unchanged")
        return {name: tuple(one["report"][key] for key in counts) for name, one in self.sync(*args, code=code).items()}

    def texts(self, query: str, agent: str | None = None) -> set[str]:
        with DualIndexer(self.folder / "store") as indexer:
            return {hit.text for hit in indexer.search(query, 9, agent_id=agent, mode="keyword")}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)  # relative paths are the file's, not the shell's
    return Place(folder)


def test_every_source_goes_to_its_agent_and_a_second_run_does_nothing(place: Place) -> None:
    assert place.counts() == {"manuals": (1, 0, 0, 0), "笔记": (1, 0, 0, 0), "chat": (1, 0, 0, 0)}
    assert any("E1102" in text for text in place.texts("E1102"))
    assert place.texts("密码") == set()
    assert place.texts("密码", "lina") == {"蛋糕在门房，密码 7741。"}
    assert any("预算" in text for text in place.texts("预算", "otto"))
    assert place.texts("预算", "lina") == set()
    assert place.counts() == {"manuals": (0, 0, 0, 1), "笔记": (0, 0, 0, 1), "chat": (0, 0, 0, 1)}
    with DualIndexer(place.folder / "store") as indexer:
        assert_consistent(indexer)
        assert_isolated(indexer)


def test_changes_and_deletions_are_reported_per_source(place: Place) -> None:
    place.sync()
    place.write("docs/alarm.md", "Alarm E1102: replace the tool arm. 更换刀臂。\n")
    place.write("docs/new.md", "Coolant is changed on Fridays.\n")
    (place.folder / "notes" / "private.txt").unlink()
    assert place.counts() == {"manuals": (1, 1, 0, 0), "笔记": (0, 0, 1, 0), "chat": (0, 0, 0, 1)}
    assert place.texts("刀臂")
    assert place.texts("密码", "lina") == set()


def test_a_source_that_fails_ends_no_other_and_loses_nothing(place: Place) -> None:
    place.sync()
    (place.folder / "docs").rename(place.folder / "elsewhere")
    (place.folder / "chat.jsonl").unlink()
    place.write("notes/second.txt", "第二条笔记")
    outcomes = place.sync(code=3)
    assert outcomes["manuals"]["failed"] is True
    assert "docs" in outcomes["manuals"]["error"]
    assert outcomes["chat"]["failed"] is True
    assert outcomes["笔记"]["report"]["added"] == 1
    assert place.texts("E1102")
    assert any("预算" in text for text in place.texts("预算", "otto"))
    place.sync("--prune", code=3)  # what cannot be read is not what was taken out of the file
    assert any("预算" in text for text in place.texts("预算", "otto"))
    (place.folder / "elsewhere").rename(place.folder / "docs")
    assert place.counts("--only", "manuals") == {"manuals": (0, 0, 0, 1)}


def test_a_file_that_cannot_be_read_is_named_and_is_no_failed_source(place: Place) -> None:
    place.write("docs/broken.docx", "not a document")
    outcomes = place.sync(code=3)
    assert outcomes["manuals"]["failed"] is False
    assert [item["key"] for item in outcomes["manuals"]["report"]["failed"]] == ["broken.docx"]
    output = CliRunner().invoke(app, ["sync", str(place.folder / "agentrag.toml")]).output
    assert "manuals failed: broken.docx" in output


def test_a_source_taken_out_of_the_file_is_kept_until_it_is_pruned(place: Place) -> None:
    place.sync()
    place.write("agentrag.toml", CONFIG[: CONFIG.index('[[source]]\nname = "chat"')])
    outcomes = place.sync()
    assert outcomes["chat"]["removed"] is True
    assert any("预算" in text for text in place.texts("预算", "otto"))
    output = CliRunner().invoke(app, ["sync", str(place.folder / "agentrag.toml")]).output
    assert "--prune" in output
    place.sync("--prune")
    assert place.texts("预算", "otto") == set()
    assert place.texts("E1102")
    assert set(place.sync("--prune")) == {"manuals", "笔记"}


@pytest.mark.parametrize(
    ("was", "becomes"), [('agent = "lina"', 'agent = "mia"'), ("", 'agent = "mia"'), ('agent = "lina"', "")]
)
def test_a_source_that_changes_hands_leaves_its_old_owner(place: Place, was: str, becomes: str) -> None:
    config = CONFIG[: CONFIG.index('[[source]]\nname = "chat"')]
    place.write("agentrag.toml", config.replace('agent = "lina"', was))
    place.sync()
    place.write("agentrag.toml", config.replace('agent = "lina"', becomes))
    (place.folder / "notes").rename(place.folder / "away")
    place.sync("--only", "manuals")
    place.sync(code=3)  # what cannot be read loses nothing
    assert place.texts("密码", "lina") == {"蛋糕在门房，密码 7741。"}
    (place.folder / "away").rename(place.folder / "notes")
    place.sync()
    assert bool(place.texts("密码", "mia")) is (becomes != 'agent = "lina"')
    assert bool(place.texts("密码", "lina")) is ("mia" not in becomes)
    assert bool(place.texts("密码")) is (becomes == "")
    assert set(place.sync()) == {"manuals", "笔记"}


def test_a_mistake_in_the_file_stops_everything_before_it_begins(place: Place) -> None:
    place.write("agentrag.toml", CONFIG.replace('agent = "otto"', 'agnet = "otto"'))
    result = CliRunner().invoke(app, ["sync", str(place.folder / "agentrag.toml")])
    assert result.exit_code == 2
    assert "did you mean 'agent'" in result.output
    assert not (place.folder / "store").exists()
    assert CliRunner().invoke(app, ["sync", str(place.folder / "absent.toml")]).exit_code == 2
    assert CliRunner().invoke(app, ["sync", str(place.folder / "agentrag.toml"), "--only", "x"]).exit_code in {1, 2}


def test_agents_of_a_memory_are_mapped_by_session(place: Place) -> None:
    lines = [
        {"session_id": session, "messages": [{"role": "user", "content": f"约定 {session} codeword"}]}
        for session in ("s1", "s2", "s3")
    ]
    place.write("chat.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    place.write("agentrag.toml", CONFIG.replace('agent = "otto"', 'agents = { s1 = "lina", s2 = "otto" }'))
    outcome = place.sync(code=3)["chat"]
    assert outcome["report"]["added"] == 2
    assert len(outcome["report"]["failed"]) + len(outcome["report"]["skipped"]) == 1
    for agent, session in (("lina", "s1"), ("otto", "s2")):
        assert [text for text in place.texts("codeword", agent) if session in text]
        assert len(place.texts("codeword", agent)) == 1


def test_rows_and_tables_of_a_database_are_sources(place: Place) -> None:
    with sqlite3.connect(place.folder / "orders.db") as database:
        database.execute("CREATE TABLE orders(id INTEGER PRIMARY KEY, item TEXT, buyer TEXT)")
        database.execute("INSERT INTO orders VALUES (7, '液压泵 pump', 'lina'), (8, '滤芯 filter', 'otto')")
    database.close()
    rows = """
[[source]]
name = "orders"
type = "database"
url = "sqlite:///orders.db"  # relative to the file
query = "SELECT id, item, buyer FROM orders"
key = "id"
agent_column = "buyer"
metadata = "item"
[[source]]
name = "tables"
type = "schema"
url = "sqlite:///orders.db"
"""
    place.write("agentrag.toml", CONFIG + rows)
    outcomes = place.counts()
    assert (outcomes["orders"], outcomes["tables"]) == ((2, 0, 0, 0), (1, 0, 0, 0))
    assert place.texts("液压泵", "lina")
    assert place.texts("液压泵", "otto") == place.texts("液压泵") == set()
    assert any("buyer" in text for text in place.texts("buyer"))
    with sqlite3.connect(place.folder / "orders.db") as database:
        database.execute("DELETE FROM orders WHERE id = 7")
        database.execute("UPDATE orders SET item = '滤芯二号' WHERE id = 8")
    database.close()
    assert place.counts()["orders"] == (0, 1, 1, 0)
    assert place.texts("液压泵", "lina") == set()
    place.write("agentrag.toml", CONFIG)
    place.sync("--prune")
    assert place.texts("滤芯", "otto") == set()


def test_a_secret_from_the_environment_is_in_no_output(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_PLACE", "s3cret-folder-name")
    place.write("agentrag.toml", CONFIG.replace('path = "docs"', 'path = "${NOTES_PLACE}"'))
    for args in ([], ["--json"]):
        result = CliRunner().invoke(app, ["sync", str(place.folder / "agentrag.toml"), *args])
        assert result.exit_code == 3
        assert "***" in result.output
        assert "s3cret" not in result.output


@pytest.mark.timeout(120)
def test_watching_follows_changes_until_it_is_stopped(place: Place) -> None:
    command = [*AGENTRAG, "sync", str(place.folder / "agentrag.toml"), "--watch", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as running:
        try:
            lines: list[str] = []
            reader = threading.Thread(target=lambda: lines.extend(iter(running.stdout.readline, "")), daemon=True)
            reader.start()
            wait_for(lambda: '"sources"' in "".join(lines))
            place.write("docs/second.md", "冷却液周五更换 coolant\n")
            wait_for(lambda: "manuals" in lines[-1] and '"added": 1' in lines[-1])
            place.write("notes/more.txt", "第二条笔记\n")
            wait_for(lambda: "笔记" in lines[-1])
        finally:
            running.send_signal(signal.SIGINT)
            try:
                code = running.wait(60)
            finally:
                running.kill()
        reader.join(10)
        assert code == 130, running.stderr.read()
    assert place.texts("冷却液")
    assert place.texts("笔记", "lina")
    with DualIndexer(place.folder / "store") as indexer:
        assert indexer.verify().ok


def wait_for(happened, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.1)
