"""A fork of a process that uses a store: the child is served or refused with words, and never hangs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def run(arguments: list[str], folder: Path, seconds: float = 90.0) -> str:
    """Run Python in a session of its own; return its output. Whatever still runs after the time is killed."""
    with (folder / "output").open("w+") as output, (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=output, stderr=errors, cwd=ROOT, start_new_session=True
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = "hang"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert code == 0, f"{code}: {(folder / 'errors').read_text()[-3_000:]}"
    return (folder / "output").read_text()


DAILY = [
    ("nothing", "fork", "always"),
    ("vector search", "server", "auto"),
    ("writing", "multiprocessing", "none"),
    ("indexing", "fork", "always"),
    ("locked", "server", "auto"),
]
PREPARATIONS = ("nothing", "opened", "read", "vector search", "closed", "searching", "writing", "indexing", "locked")
ALL = [
    (preparation, method, chroma)
    for preparation in PREPARATIONS
    for method in ("fork", "server", "multiprocessing")
    for chroma in ("auto", "always", "none")
    if (preparation, method, chroma) not in DAILY
]


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("preparation", "method", "chroma"), [*DAILY, *(pytest.param(*case, marks=pytest.mark.slow) for case in ALL)]
)
def test_a_child_is_served_or_refused_with_words_and_the_parent_goes_on(
    tmp_path: Path, preparation: str, method: str, chroma: str
):
    output = run(["-m", "tests.store.fork", preparation, method, chroma, str(tmp_path / "store")], tmp_path)
    report = json.loads(output.splitlines()[-1])
    child = report["child"]
    assert report["code"] == 0
    for call in child.get("inherited", []):
        assert call.startswith("ForkedProcessError: ")
        assert "open it again in the child" in call
    assert child.get("inherited close", "ok True") == "ok True"
    assert child["open"] == "ok True"
    assert child["read"].startswith("ok text number 7")
    for mode in ("keyword", "vector", "hybrid"):
        assert child[mode] == "ok ['d7']"  # also without a note of degradation: the exact scan is complete
    chroma_used = chroma != "none" and preparation not in {"nothing", "opened", "read"}
    if chroma_used:
        for call in ("write", "delete"):
            assert child[call].startswith("ForkedProcessError: Chroma cannot be used in process")
            assert "spawn or forkserver" in child[call]
            assert "--preload" in child[call]
    else:
        assert (child["write"], child["delete"]) == ("ok 3", "ok 1")
    assert report.get("parent", ["ok d7", "ok d8", "ok 2"]) == ["ok d7", "ok d8", "ok 2"]
    assert report["verify"] == []


@pytest.mark.timeout(120)
def test_chroma_used_beside_the_package_before_a_fork_is_noticed_in_the_child(tmp_path: Path):
    code = """
    import os, sys, chromadb
    from langchain_agentrag import DualIndexer
    from langchain_agentrag.errors import ForkedProcessError
    collection = chromadb.PersistentClient(sys.argv[1] + "/other").create_collection("other", embedding_function=None)
    if sys.argv[2] == "filled":
        collection.add(ids=[str(n) for n in range(50)], embeddings=[[1.0, float(n)] for n in range(50)])
    child = os.fork()
    if not child:
        code = 1
        try:
            with DualIndexer(sys.argv[1] + "/store", "hash", chroma="always") as indexer:
                try:
                    indexer.index_documents(["text"])
                    code = 10
                except ForkedProcessError:
                    code = 20
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    for use, expected in (("opened", "10"), ("filled", "20")):
        folder = tmp_path / use
        folder.mkdir()
        assert run(["-c", textwrap.dedent(code), str(folder), use], folder).split()[-1] == expected


@pytest.mark.timeout(120)
def test_the_locks_of_the_analyzer_are_free_in_a_child_whatever_another_thread_was_doing(tmp_path: Path):
    code = """
    import os, threading
    from langchain_agentrag.text import Analyzer
    from langchain_agentrag.text.tokenizer import stem
    analyzer = Analyzer()
    analyzer.analyze("some running words and 轴承 the 機器")
    stop = threading.Event()
    def analyse():
        n = 0
        while not stop.is_set():
            n += 1
            analyzer.analyze(f"runningly{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676 % 26)} 轴承機器")
    threads = [threading.Thread(target=analyse) for _ in range(3)]
    for thread in threads: thread.start()
    codes = []
    for _ in range(40):
        child = os.fork()
        if not child:
            analyzer.analyze("sleeping walking talking 軸承機器")
            os._exit(0)
        codes.append(os.waitpid(child, 0)[1])
    stop.set()
    print(set(codes))
    """
    assert run(["-c", textwrap.dedent(code)], tmp_path).split() == ["{0}"]


@pytest.mark.model
@pytest.mark.timeout(120)
def test_the_offline_model_embeds_in_a_child_of_a_process_that_has_used_it(tmp_path: Path):
    code = """
    import os
    from concurrent.futures import ThreadPoolExecutor
    from langchain_agentrag.embedding import resolve_embedder
    model = resolve_embedder("local")
    expected = model.embed_query("a question").tolist()
    model.embed_documents([f"text {n}" for n in range(70)])
    child = os.fork()
    if not child:
        code = 1
        try:
            same = resolve_embedder("local").embed_query("a question").tolist() == expected
            vectors = model.embed_documents([f"text {n}" for n in range(70)])
            with ThreadPoolExecutor(2) as pool:
                same = same and all(list(v) == expected for v in pool.map(model.embed_query, ["a question"] * 4))
            code = 0 if same and vectors.shape[0] == 70 else 2
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run(["-c", textwrap.dedent(code)], tmp_path).split() == ["0"]


@pytest.mark.timeout(120)
def test_a_child_forked_while_another_thread_writes_can_write(tmp_path: Path):
    """SQLite would find the database locked in the child, for ever."""
    code = """
    import os, sys, threading, time
    from langchain_agentrag import DualIndexer
    indexer = DualIndexer(sys.argv[1] + "/store", "hash")
    indexer.index_documents(["text"])
    inside = threading.Event()
    def write():
        with indexer._store.catalog.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO manifest VALUES ('x', '1')")
            inside.set()
            time.sleep(0.5)
    thread = threading.Thread(target=write)
    thread.start()
    inside.wait()
    child = os.fork()
    if not child:
        code = 1
        try:
            with DualIndexer(sys.argv[1] + "/store", "hash") as own:
                own.index_documents(["another"])
                code = 10
        finally:
            os._exit(code)
    thread.join()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    indexer.index_documents(["third"])
    print(code, indexer.stats().documents)
    """
    assert run(["-c", textwrap.dedent(code), str(tmp_path)], tmp_path).split()[-2:] == ["10", "3"]
