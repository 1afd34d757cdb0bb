"""One table of exit codes holds for every command, and with --json an error is JSON."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.cli.app import app
from langchain_agentrag.cli.commands import EXIT_CODES, Command, ExitCode

CONFIG = 'store = "{store}"\nembeddings = "hash"\n[[source]]\nname = "a"\ntype = "files"\npath = "{path}"\n'

# Command → what happens → words and exit code. {store}, {no_store}, {folder} … are filled in.
CASES: dict[str, dict[str, tuple[str, int]]] = {
    "demo": {
        "done": ("--embeddings hash --store {new}", 0),
        "the folder exists": ("--embeddings hash --store {store}", 1),
        "invalid value": ("--embeddings telepathy", 2),
    },
    "index": {
        "done": ("{folder} --store {new} --embeddings hash", 0),
        "an empty folder": ("{empty} --store {new} --embeddings hash", 0),
        "some files failed": ("{mixed} --store {new} --embeddings hash", 3),
        "every file failed": ("{broken} --store {new} --embeddings hash", 1),
        "a missing path": ("{missing} --store {new}", 2),
        "no path": ("--store {new}", 2),
        "no store": ("{folder} --store {no_store} --embeddings hash", 1),
        "invalid value": ("{folder} --store {new} --max-bytes many", 2),
    },
    "sync": {
        "done": ("{config}", 0),
        "an empty folder": ("{config_empty}", 0),
        "some files failed": ("{config_mixed}", 3),
        "every file failed": ("{config_broken}", 1),
        "the source is missing": ("{config_missing}", 1),
        "a missing path": ("{missing}", 2),
        "no store": ("{config} --store {no_store}", 1),
        "invalid value": ("{config} --only nothing", 2),
    },
    "search": {
        "done": ("E1102 --store {store}", 0),
        "nothing found": ("zzqx --mode keyword --store {store}", 0),
        "an agent that has nothing": ("E1102 --agent ghost --store {store}", 0),
        "an empty query": ("{blank} --store {store}", 2),
        "no query": ("--store {store}", 2),
        "no store": ("E1102 --store {missing}", 1),
        "not a store": ("E1102 --store {no_store}", 1),
        "invalid value": ("E1102 -k 0 --store {store}", 2),
    },
    "read": {
        "done": ("fault.md --store {store}", 0),
        "what is named is not there": ("nope.md --store {store}", 1),
        "no such chunk": ("fault.md 99 --store {store}", 1),
        "another agent's document": ("note.md --agent otto --store {store}", 1),
        "no store": ("fault.md --store {missing}", 1),
        "invalid value": ("fault.md -7x --store {store}", 2),
    },
    "documents": {
        "done": ("--store {store}", 0),
        "nothing found": ('--filter {{"a":1}} --store {store}', 0),
        "an agent that has nothing": ("--agent ghost --own --store {store}", 0),
        "no store": ("--store {missing}", 1),
        "invalid value": ("--limit many --store {store}", 2),
    },
    "delete": {
        "done": ("fault.md --yes --store {store}", 0),
        "what is named is not there": ("nope.md --yes --store {store}", 1),
        "another agent's document": ("note.md --agent otto --yes --store {store}", 1),
        "a part is not there": ("fault.md nope.md --yes --store {store}", 3),
        "nothing found": ("--session nothing --yes --store {store}", 0),
        "nothing named": ("--yes --store {store}", 2),
        "not confirmed": ("fault.md --store {store}", 2),
        "no store": ("fault.md --yes --store {missing}", 1),
    },
    "expire": {"done": ("--store {store}", 0), "no store": ("--store {missing}", 1), "too many words": ("x", 2)},
    "forget": {
        "done": ("lina --yes --store {store}", 0),
        "an agent that has nothing": ("ghost --store {store}", 0),
        "no agent": ("--store {store}", 2),
        "an empty agent": ("{blank} --yes --store {store}", 2),
        "not confirmed": ("lina --store {store}", 2),
        "no store": ("lina --yes --store {missing}", 1),
    },
    "stats": {"done": ("--store {store}", 0), "no store": ("--store {missing}", 1), "invalid value": ("--nope", 2)},
    "verify": {"done": ("--store {store}", 0), "no store": ("--store {missing}", 1), "invalid value": ("--nope", 2)},
    "repair": {"done": ("--store {store}", 0), "no store": ("--store {missing}", 1), "invalid value": ("--nope", 2)},
    "memory": {
        "nothing found": ("--agent ghost --store {store}", 0),
        "no agent": ("--store {store}", 2),
        "no store": ("--agent lina --store {missing}", 1),
        "invalid value": ("--agent lina -n 0 --store {store}", 2),
    },
    "eval": {
        "done": ("{questions} --store {store}", 0),
        "a missing path": ("{missing}", 2),
        "a missing baseline": ("{questions} --baseline {missing} --store {store}", 2),
        "no store": ("{questions} --store {missing}", 1),
        "an empty file": ("{no_questions} --store {store}", 2),
        "invalid value": ("{questions} --queries 0", 2),
    },
    "completion": {"done": ("zsh", 0), "invalid value": ("tcsh", 2)},
}
ALL = [(name, title) for name, cases in CASES.items() for title in cases]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Files and stores, by the names that the cases use."""
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "empty", "mixed", "broken", "no_store"):
        (tmp_path / name).mkdir()
    for name in ("folder", "mixed"):
        (tmp_path / name / "fault.md").write_text("# Faults\n\nAlarm E1102: 刀臂卡住 arm stuck.", encoding="utf-8")
    for name in ("mixed", "broken"):
        (tmp_path / name / "broken.docx").write_bytes(b"no document")
    (tmp_path / "no_store" / "letter.txt").write_text("this folder is no store", encoding="utf-8")
    for name in ("", "empty", "mixed", "broken", "missing"):
        text = CONFIG.format(store=f"store_{name}", path=name or "folder")
        (tmp_path / f"config_{name}.toml").write_text(text, encoding="utf-8")
    (tmp_path / "questions.jsonl").write_text('{"question": "E1102", "expected": "fault.md"}\n', encoding="utf-8")
    (tmp_path / "no_questions.jsonl").write_text("", encoding="utf-8")
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents([SourceDocument("fault.md", "Alarm E1102: 刀臂卡住 arm stuck.")])
        indexer.index_documents([SourceDocument("note.md", "The gate code is 7741.")], "lina")
    names = ("folder", "empty", "mixed", "broken", "no_store", "store", "new", "missing")
    places = {name: str(tmp_path / name) for name in names}
    configs = {f"config_{name}".rstrip("_"): str(tmp_path / f"config_{name}.toml") for name in ("", *names)}
    return places | configs | {"questions": "questions.jsonl", "no_questions": "no_questions.jsonl", "blank": ""}


def words_of(name: str, title: str, places: dict[str, str]) -> tuple[list[str], int]:
    words, code = CASES[name][title]
    return [name, *(word.format(**places) for word in words.split())], code


def test_every_command_has_its_rows_in_the_table():
    assert set(CASES) == set(app.commands)
    stores = {name for name, command in app.commands.items() if any(p.name == "store" for p in command.params)}
    assert {name for name, cases in CASES.items() if "no store" in cases} == stores - {"demo"}
    assert set(EXIT_CODES) == set(ExitCode)


@pytest.mark.parametrize(("name", "title"), ALL)
def test_the_exit_code_is_that_of_the_table(name: str, title: str, places: dict[str, str]):
    words, code = words_of(name, title, places)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == code, (result.output, result.exception)
    if code in {1, 2}:
        assert (result.stderr or result.stdout).count("agentrag: ") == (1 if result.stderr else 0)
    assert name == "demo" or "7741" not in result.output


@pytest.mark.parametrize(("name", "title"), [(name, title) for name, title in ALL if name != "completion"])
def test_with_json_the_answer_and_the_error_are_json(name: str, title: str, places: dict[str, str]):
    words, code = words_of(name, title, places)
    result = CliRunner().invoke(app, [words[0], "--json", *words[1:]])
    assert result.exit_code == code, (result.output, result.exception)
    if result.stdout:
        json.loads(result.stdout)
        assert result.stderr == ""
    else:
        assert result.stderr.count("\n") == 1
        error = json.loads(result.stderr)["error"]
        assert error["exit_code"] == code in {1, 2}
        assert error["message"]
        assert error["type"].isidentifier()


# ----- flags


def flags() -> list[tuple[str, str]]:
    return [
        (name, flag)
        for name, command in app.commands.items()
        for parameter in command.params
        if isinstance(parameter, click.Option) and parameter.is_flag
        for flag in (*parameter.opts, *parameter.secondary_opts)
    ]


@pytest.mark.parametrize(("name", "flag"), flags())
@pytest.mark.parametrize("value", ["true", "False"])
def test_a_flag_takes_no_value(name: str, flag: str, value: str):
    """`search E1102 --json true` searched for "E1102 true"."""
    result = CliRunner().invoke(app, [name, "x", flag, value])
    assert result.exit_code == 2
    assert f"{flag} is a flag and takes no value" in result.stderr


def test_true_can_still_be_searched_for(places: dict[str, str]):
    for words in (["--json", "--", "true", "story"], ["true", "story", "--json"], ["--json", "true story"]):
        result = CliRunner().invoke(app, ["search", "--store", places["store"], *words])
        assert json.loads(result.stdout)["query"] == "true story"


@pytest.mark.parametrize("name", ["", *CASES])
def test_help_names_a_flag_without_a_value(name: str):
    text = CliRunner().invoke(app, [*filter(None, [name]), "--help"]).stdout
    assert "<bool>" not in text
    assert "BOOLEAN" not in text
    assert ("--json " in text) is (name not in {"", "completion"})


def test_every_command_is_ours():
    assert all(isinstance(command, Command) for command in app.commands.values())


# ----- what was not there


def test_an_agent_that_has_nothing_looks_the_same_whether_others_have_something(tmp_path: Path):
    """The note on an agent without documents must not reveal that other agents exist."""
    answers = []
    for others in (False, True):
        store = tmp_path / f"store{others}"
        with DualIndexer(store, "hash") as indexer:
            indexer.index_documents([SourceDocument("fault.md", "Alarm E1102.")])
            if others:
                indexer.index_documents([SourceDocument("note.md", "The gate code is 7741, alarm E1102.")], "lina")
        runs = (
            ["search", "E1102", "--agent", "ghost", "--no-fence"],
            ["documents", "--agent", "ghost"],
            ["memory", "--agent", "ghost"],
            ["read", "note.md", "--agent", "ghost"],
            ["delete", "note.md", "--agent", "ghost", "--yes"],
            ["stats", "--agent", "ghost"],
            ["forget", "ghost"],
        )
        results = [CliRunner().invoke(app, [*words, "--store", str(store)]) for words in runs]
        answers.append([(result.exit_code, result.output) for result in results])
    shared, with_others = answers
    hidden = [text.replace("2026", "") for _, text in with_others]
    assert not any("lina" in text or "7741" in text for text in hidden)
    times = [[line for line in text.splitlines() if "fault.md" not in line] for _, text in shared]
    assert times == [[line for line in text.splitlines() if "fault.md" not in line] for _, text in with_others]
    assert [code for code, _ in shared] == [code for code, _ in with_others]
    for index in (0, 1, 5, 6):
        assert "“ghost” has no documents of its own here" in shared[index][1]


def test_forgetting_an_agent_asks_only_when_there_is_something(places: dict[str, str]):
    result = CliRunner().invoke(app, ["forget", "ghost", "--store", places["store"]])
    assert "nothing was deleted" in result.stdout
    result = CliRunner().invoke(app, ["forget", "lina", "--store", places["store"]])
    assert "--yes" in result.stderr


def test_files_above_max_bytes_are_skipped(places: dict[str, str]):
    words = [places["folder"], "--store", places["new"], "--embeddings", "hash", "--json"]
    assert len(json.loads(CliRunner().invoke(app, ["index", *words, "--max-bytes", "10"]).stdout)["skipped"]) == 1
    assert json.loads(CliRunner().invoke(app, ["index", *words, "--max-bytes", "1k"]).stdout)["added"] == 1
    result = CliRunner().invoke(app, ["sync", places["config"], "--max-bytes", "10", "--json"])
    assert len(json.loads(result.stdout)["sources"][0]["report"]["skipped"]) == 1


@pytest.mark.parametrize("name", [name for name, cases in CASES.items() if "--store" in cases[next(iter(cases))][0]])
def test_every_command_takes_the_store_of_the_environment(
    name: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    words, _code = words_of(name, next(iter(CASES[name])), places)
    position = words.index("--store")
    monkeypatch.setenv("AGENTRAG_STORE", words[position + 1])
    del words[position : position + 2]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert not Path("agentrag_store").exists()


def test_sync_takes_the_store_of_the_environment(places: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AGENTRAG_STORE", places["new"])
    assert CliRunner().invoke(app, ["sync", places["config"]]).exit_code == 0
    assert Path(places["new"]).is_dir()
    assert not Path("store_").exists()


# ----- Ctrl-C, in a real process

RUN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from langchain_agentrag.cli import main; main()"


@pytest.mark.parametrize("words", [["delete", "fault.md"], ["forget", "lina"]])
def test_ctrl_c_at_the_question_is_130_and_deletes_nothing(words: list[str], places: dict[str, str]):
    master, terminal = pty.openpty()
    command = [sys.executable, "-c", RUN, *words, "--store", places["store"]]
    process = subprocess.Popen(command, stdin=terminal, stdout=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    shown = b""
    deadline = time.monotonic() + 60
    try:
        while b"[y/N]: " not in shown and time.monotonic() < deadline:
            if select.select([master], [], [], 1)[0]:
                shown += os.read(master, 1000)
        time.sleep(0.5)  # it waits for the answer
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, shown
    finally:
        process.kill()
        process.wait()
    os.close(master)
    with DualIndexer(places["store"]) as indexer:
        assert indexer.stats().documents == 2
