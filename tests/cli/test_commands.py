"""The `agentrag` command as a person or a script runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from langchain_agentrag.cli.app import app

# A test run in the background ignores Ctrl-C, and so would its children.
AGENTRAG = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from langchain_agentrag.cli import main; main()",
]


class Shell:
    """Runs commands on one store."""

    def __init__(self, store: Path) -> None:
        self.store = store

    def __call__(self, *args: object, code: int = 0):
        command, *rest = map(str, args)
        result = CliRunner().invoke(app, [command, "--store", str(self.store), *rest])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def json(self, *args: object, code: int = 0):
        return json.loads(self(*args, "--json", code=code).stdout)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "store")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "fault.md").write_text("# Faults\n\nAlarm E1102 means that the tool arm is stuck.\n", encoding="utf-8")
    (folder / "手册.txt").write_text("液压站压力不足时，检查滤芯与油温。", encoding="utf-8")
    (folder / "drafts").mkdir()
    (folder / "drafts" / "old.md").write_text("An outdated draft about pumps.", encoding="utf-8")
    return folder


@pytest.fixture
def filled(shell: Shell, docs: Path) -> Shell:
    shell("index", docs, "--embeddings", "hash")
    return shell


def file_names(answer: dict) -> set[str]:
    return {hit["metadata"]["file_name"] for hit in answer["hits"]}


def sources(answer: dict) -> list[str]:
    return [hit["text"] for hit in answer["hits"]]


def test_index_reports_and_a_second_run_embeds_nothing(shell: Shell, docs: Path):
    first = shell.json("index", docs, "--embeddings", "hash")
    assert (first["added"], first["failed"]) == (3, [])
    assert first["embedded"] > 0
    second = shell.json("index", docs)
    assert (second["unchanged"], second["added"], second["embedded"]) == (3, 0, 0)


def test_index_glob_and_exclude(shell: Shell, docs: Path):
    assert shell.json("index", docs, "--embeddings", "hash", "--glob", "**/*.md", "--exclude", "drafts")["added"] == 1


def test_index_several_paths_add_up(shell: Shell, docs: Path):
    report = shell.json("index", docs / "fault.md", docs / "drafts", "--embeddings", "hash")
    assert report["added"] == 2


def test_a_bad_file_is_named_and_stops_nothing(shell: Shell, docs: Path):
    (docs / "broken.docx").write_bytes(b"not a zip")
    result = shell("index", docs, "--embeddings", "hash", code=3)
    assert "1 failed" in result.stdout
    assert "broken.docx" in result.stdout


def test_only_bad_files_is_a_failure(shell: Shell, tmp_path: Path):
    (tmp_path / "broken.docx").write_bytes(b"not a zip")
    shell("index", tmp_path / "broken.docx", "--embeddings", "hash", code=1)


def test_search_draws_a_table(filled: Shell):
    text = filled("search", "E1102").stdout
    for part in ("fault.md", "E1102", "vector", "keyword", "BM25", "cosine"):
        assert part in text
    assert "\x1b[" not in text, "no colours when nobody watches"


def test_search_json_is_one_document_with_plain_chinese(filled: Shell):
    result = filled("search", "滤芯", "--json")
    assert "液压站" in result.stdout
    hit = json.loads(result.stdout)["hits"][0]
    assert hit["rank"] == 1
    assert "滤芯" in hit["explanation"]["matched"]


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
def test_search_modes_and_k(filled: Shell, mode: str):
    answer = filled.json("search", "E1102", "--mode", mode, "-k", 1)
    assert answer["mode"] == mode
    assert len(answer["hits"]) == 1


def test_search_words_need_no_quotes(filled: Shell):
    assert filled.json("search", "tool", "arm")["query"] == "tool arm"


def test_search_with_filter(filled: Shell):
    assert "fault.md" in file_names(filled.json("search", "E1102"))
    names = file_names(filled.json("search", "E1102", "--filter", '{"file_name": {"$ne": "fault.md"}}'))
    assert names == {"手册.txt", "old.md"}


@pytest.mark.parametrize("text", ["{not json", "[1]", '"a"'])
def test_a_filter_that_is_no_json_object_is_a_usage_error(filled: Shell, text: str):
    assert "--filter" in filled("search", "x", "--filter", text, code=2).stderr


def test_an_unknown_operator_is_one_line(filled: Shell):
    error = filled("search", "x", "--filter", '{"a": {"$near": 1}}', code=2).stderr
    assert error.startswith("agentrag: ")
    assert "$near" in error
    assert len(error.splitlines()) == 1


def test_no_hits_is_a_sentence_and_success(filled: Shell):
    assert "Nothing found" in filled("search", "zzqx", "--mode", "keyword").stdout
    assert filled.json("search", "zzqx", "--mode", "keyword")["hits"] == []


def test_read_by_the_address_a_search_gives(filled: Shell):
    hit = filled.json("search", "E1102", "-k", 1)["hits"][0]
    passage = filled.json("read", hit["doc_id"], hit["chunk_id"])
    assert passage["text"] == hit["text"]
    assert "tool arm is stuck" in filled("read", hit["doc_id"], hit["chunk_id"]).stdout


def test_read_of_a_missing_document_is_one_line(filled: Shell):
    assert len(filled("read", "nothing-here", 0, code=1).stderr.splitlines()) == 1


def test_private_files_are_for_their_agent_only(filled: Shell, tmp_path: Path):
    (tmp_path / "note.txt").write_text("The gate code is 7741.", encoding="utf-8")
    filled("index", tmp_path / "note.txt", "--agent", "lina")
    assert any("7741" in text for text in sources(filled.json("search", "gate code", "--agent", "lina")))
    for other in ((), ("--agent", "otto")):
        assert not any("7741" in text for text in sources(filled.json("search", "gate code", *other)))
    assert filled.json("forget", "lina", "--yes")["deleted"] == 1
    assert not any("7741" in text for text in sources(filled.json("search", "gate code", "--agent", "lina")))
    assert any("E1102" in text for text in sources(filled.json("search", "E1102", "--agent", "lina")))


def test_stats_verify_repair(filled: Shell):
    assert "documents" in filled("stats").stdout
    assert filled.json("verify")["ok"] is True
    assert filled.json("repair")["ok"] is True


@pytest.mark.parametrize(
    "command", [("search", "x"), ("read", "a", "0"), ("stats",), ("verify",), ("repair",), ("forget", "a", "-y")]
)
def test_asking_a_store_that_is_not_there_creates_none(shell: Shell, command: tuple[str, ...]):
    assert "There is no store" in shell(*command, code=1).stderr
    assert not shell.store.exists()


def test_usage_errors_are_two(shell: Shell, tmp_path: Path):
    shell("search", code=2)
    shell("search", "x", "--mode", "telepathy", code=2)
    shell("index", tmp_path, tmp_path, "--name", "n", code=2)
    shell("index", tmp_path / "missing", code=2)


@pytest.mark.parametrize(
    "wrong",
    [
        ("search", "x", "-k", "0"),
        ("search", "x", "--after", "gestern"),
        ("search", "x", "--filter", '{"a": {"$near": 1}}'),
        ("search", "x", "--agent", ""),
        ("search", "x", "--recency", "bald"),
        ("search", "x", "--recency", "1969-12-25"),  # a date is no length of time
        ("delete",),
        ("delete", "--yes"),
    ],
)
def test_an_invalid_request_is_a_usage_error_wherever_it_is_detected(filled: Shell, wrong: tuple[str, ...]):
    filled(*wrong, code=2)
    assert filled.json("verify")["ok"] is True


@pytest.mark.parametrize("words", [("forget", "lina"), ("delete", "--session", "s", "--agent", "lina")])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_nothing_is_deleted_for_good_unasked(
    filled: Shell, tmp_path: Path, words: tuple[str, ...], more: tuple[str, ...]
):
    (tmp_path / "note.txt").write_text("The gate code is 7741.", encoding="utf-8")
    filled("index", tmp_path / "note.txt", "--agent", "lina")
    assert "--yes" in filled(*words, *more, code=2).stderr
    assert any("7741" in text for text in sources(filled.json("search", "gate code", "--agent", "lina")))


def test_the_version():
    import langchain_agentrag

    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"agentrag {langchain_agentrag.__version__}\n")


def test_store_and_agent_come_from_the_environment(filled: Shell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AGENTRAG_STORE", str(filled.store))
    monkeypatch.setenv("AGENTRAG_AGENT", "lina")
    result = CliRunner().invoke(app, ["search", "E1102", "--json"])
    assert json.loads(result.stdout)["agent_id"] == "lina"


# ----- as a process


def run(*args: object, **options):
    return subprocess.run([*AGENTRAG, *map(str, args)], capture_output=True, timeout=120, check=False, **options)


def test_json_is_utf8_whatever_the_locale(filled: Shell):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run("search", "滤芯", "--store", filled.store, "--json", env=environment)
    assert done.returncode == 0, done.stderr
    assert "液压站" in done.stdout.decode("utf-8")


def test_a_table_survives_a_locale_without_chinese(filled: Shell):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run("search", "E1102", "--store", filled.store, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"E1102" in done.stdout


def test_a_reader_that_leaves_is_no_crash(filled: Shell):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [*AGENTRAG, "search", "E1102", "--store", str(filled.store)],
            stdout=closed, stderr=subprocess.PIPE, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 141
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_ctrl_c_leaves_a_store_the_next_run_completes(tmp_path: Path):
    folder, store = tmp_path / "many", tmp_path / "store"
    folder.mkdir()
    for number in range(1500):
        (folder / f"{number:04}.txt").write_text(f"Report {number}. The pump of line {number} runs.", encoding="utf-8")
    command = [*AGENTRAG, "index", str(folder), "--store", str(store), "--embeddings", "hash"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (store / "catalog.sqlite").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "run the same command to go on" in errors
    assert "Traceback" not in errors
    shell = Shell(store)
    assert shell.json("verify")["ok"] is True
    report = shell.json("index", folder, "--embeddings", "hash")
    assert report["added"] + report["unchanged"] == 1500
    assert shell.json("verify")["ok"] is True


def test_help_is_fast_and_light():
    code = (
        "import sys, time; start = time.process_time()\n"
        "from click.testing import CliRunner; from langchain_agentrag.cli.app import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "heavy = [n for n in ('chromadb', 'tantivy', 'numpy', 'langchain_core', 'pydantic') if n in sys.modules]\n"
        "print(heavy, time.process_time() - start < 1.0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True"


def test_a_store_inside_the_folder_does_not_index_itself(docs: Path):
    shell = Shell(docs / "agentrag_store")
    assert shell.json("index", docs, "--embeddings", "hash")["added"] == 3
    assert shell.json("index", docs)["unchanged"] == 3


@pytest.mark.parametrize(
    ("name", "remedy"), [("cohere:embed-v3", "langchain-cohere"), ("opnai:x", "'openai'"), ("locl", "'local'")]
)
def test_the_name_of_a_model_is_refused_with_its_own_remedy_and_no_store_is_made(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
):
    monkeypatch.setitem(sys.modules, "langchain_cohere", None)
    result = Shell(tmp_path / "made")("index", docs, "--embeddings", name, code=2)
    output = " ".join((result.stdout + result.stderr).split())
    assert remedy in output
    assert "agentrag[sentence-transformers]" not in output
    assert not (tmp_path / "made").exists()
