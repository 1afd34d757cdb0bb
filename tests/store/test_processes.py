"""Several processes, threads and tasks on one store: nothing lost, nothing half visible, nothing left open."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer, HybridRetriever
from langchain_agentrag.errors import StoreClosedError, StoreError, StoreLockedError
from langchain_agentrag.types import SourceDocument
from tests.store.crash import text_of, word_of
from tests.store.processes import OPEN

ROOT = Path(__file__).parents[2]


def start(action: str, folder: Path, name: str = "0", seconds: float = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.store.processes", action, str(folder), name, str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def documents(numbers: range, owner: str | None = None) -> list[SourceDocument]:
    return [SourceDocument(doc_id=str(n), text=text_of(owner, n, 0), agent_id=owner) for n in numbers]


def find(indexer: DualIndexer, number: int, owner: str | None = None, version: int = 0) -> None:
    """Both indexes find it, and neither had to be replaced by the other."""
    text = text_of(owner, number, version)
    for mode, query in (("keyword", word_of(owner, number, version)), ("vector", text)):
        hits = indexer.search(query, 3, mode=mode, agent_id=owner)
        assert hits.degraded == ()
        assert text in [hit.text for hit in hits], f"{mode} does not find {number}"


def elsewhere(folder: Path, code: str) -> str:
    """Run code on the store in another process."""
    script = (
        "import sys\nfrom langchain_agentrag import DualIndexer\n"
        "from tests.store.processes import OPEN\nfrom tests.store.test_processes import documents\n"
        f"with DualIndexer(sys.argv[1], **OPEN) as indexer:\n    {code}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- processes --------------------------------------------------------------------------------------------------------


def relay(process: subprocess.Popen[str], events: queue.Queue[dict], ask: list[subprocess.Popen[str]]) -> None:
    """Collect what a process tells, and have what it acknowledged searched for at once by the others."""
    for line in process.stdout:
        event = json.loads(line)
        events.put(event)
        if "live" in event:
            for searcher in ask:
                searcher.stdin.write(json.dumps([event["live"], event["version"]]) + "\n")
                searcher.stdin.flush()


def end(process: subprocess.Popen[str], seconds: float) -> None:
    process.stdin.close()
    assert process.wait(seconds) == 0, process.stderr.read()
    process.stderr.close()


def run_together(folder: Path, seconds: float) -> tuple[int, int]:
    """Two writers, two searchers; (documents written, searches made)."""
    writers = [start("write", folder, name, seconds) for name in ("1", "2")]
    searchers = [start("search", folder) for _ in range(2)]
    events: queue.Queue[dict] = queue.Queue()
    threads = [threading.Thread(target=relay, args=(process, events, searchers)) for process in (*writers, *searchers)]
    for thread in threads:
        thread.start()
    for process in writers:
        process.wait(seconds + 200)
    for thread in threads[:2]:
        thread.join()  # everything they acknowledged has been asked for
    for process in (*writers, *searchers):
        end(process, 200)
    for thread in threads:
        thread.join()
    for process in (*writers, *searchers):
        process.stdout.close()
    searches = [event for event in events.queue if "mode" in event]
    assert [event for event in searches if not event["found"] or event["degraded"]] == []
    live = {int(n): version for event in events.queue if "final" in event for n, version in event["final"].items()}
    assert_holds(folder, live)
    return len(live), len(searches)


def assert_holds(folder: Path, live: dict[int, int]) -> None:
    with DualIndexer(folder, **OPEN) as indexer:
        report = indexer.verify()
        assert report.ok, report.problems
        assert report.documents == len(live)
        texts = {int(d.doc_id): d.text for d in indexer.get([str(n) for n in live])}
        assert texts == {n: text_of(None, n, version) for n, version in live.items()}
        for number in random.Random(1).sample(sorted(live), 8):
            find(indexer, number, None, live[number])


def test_four_processes_lose_no_write_and_see_every_batch_in_both_indexes_at_the_next_search(tmp_path: Path):
    written, searched = run_together(tmp_path / "store", 8)
    assert written >= 200
    assert searched >= 8


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_four_processes_for_five_minutes(tmp_path: Path):
    run_together(tmp_path / "store", 300)


def test_processes_that_open_a_new_store_at_the_same_time_agree_on_it(tmp_path: Path):
    code = "import sys; from langchain_agentrag import DualIndexer; DualIndexer(sys.argv[1], 'hash').close()"
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "store")], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for process in running:
        assert process.wait(120) == 0, process.stderr.read()
        process.stderr.close()
    with DualIndexer(tmp_path / "store") as indexer:
        assert indexer.verify().ok


def test_writers_that_take_turns_lose_no_vector(tmp_path: Path):
    """Chroma's clients overwrite each other's index when both stay open: of 6,500 vectors 2,500 were lost."""
    folder = tmp_path / "store"
    with DualIndexer(folder, **OPEN) as indexer:
        indexer.index_documents(documents(range(500)))
        find(indexer, 7)
        for start_at in (1_000, 3_000):
            elsewhere(folder, f"indexer.index_documents(documents(range({start_at}, {start_at + 1_200})))")
            indexer.index_documents(documents(range(start_at + 1_200, start_at + 2_000)))
        assert indexer.verify().ok
        for number in (7, 1_005, 2_195, 2_205, 3_500, 4_900):
            find(indexer, number)


def test_a_reader_sees_rows_that_others_added_updated_and_deleted(tmp_path: Path):
    folder = tmp_path / "store"
    with DualIndexer(folder, **OPEN) as indexer:
        indexer.index_documents(documents(range(300)))
        find(indexer, 7)
        elsewhere(folder, "indexer.index_documents(documents(range(300, 400)))")
        find(indexer, 350)
        elsewhere(folder, "indexer.delete([str(n) for n in range(290)])")
        find(indexer, 295)
        hits = indexer.search(text_of(None, 7, 0), 20, mode="vector")
        assert hits.degraded == ()
        assert "7" not in {hit.doc_id for hit in hits}
        assert len(hits) == 20


@pytest.mark.parametrize(
    "change",
    [
        "s = indexer._store; l = s.lock.acquire(); l.__enter__(); s.indexes.rebuild_keyword_index(s.catalog.partition(None))",
        "s = indexer._store; l = s.lock.acquire(); l.__enter__(); s.indexes.rebuild_vector_index(s.catalog.partition(None))",
        "s = indexer._store; l = s.lock.acquire(); l.__enter__(); s.indexes.rebuild_chroma()",
        "indexer.repair()",
        "indexer.forget_agent('other')",
    ],
)
def test_an_open_handle_goes_on_after_another_process_rebuilt_or_forgot_something(tmp_path: Path, change: str):
    folder = tmp_path / "store"
    with DualIndexer(folder, **OPEN) as indexer:
        indexer.index_documents(documents(range(200)))
        indexer.index_documents(documents(range(50), "other"))
        find(indexer, 7)
        find(indexer, 7, "other")
        elsewhere(folder, change)
        find(indexer, 8)
        indexer.index_documents(documents(range(200, 260)))
        find(indexer, 230)
        own = indexer.search(text_of("other", 7, 0), 5, agent_id="other")
        assert own.degraded == ()
        assert any(hit.agent_id == "other" for hit in own) == ("forget" not in change)
        assert indexer.verify().ok


def test_an_agent_forgotten_elsewhere_can_be_written_again_here(tmp_path: Path):
    with DualIndexer(tmp_path / "store", **OPEN) as indexer:
        indexer.index_documents(documents(range(50), "other"))
        find(indexer, 7, "other")
        elsewhere(tmp_path / "store", "indexer.forget_agent('other')")
        indexer.index_documents(documents(range(100, 120), "other"))
        find(indexer, 105, "other")
        assert {int(hit.doc_id) for hit in indexer.search(text_of("other", 7, 0), 50, agent_id="other")} == set(
            range(100, 120)
        )
        assert indexer.verify().ok


# -- the lock ---------------------------------------------------------------------------------------------------------


def test_the_lock_time_out_names_its_holder_and_readers_go_on(tmp_path: Path):
    folder = tmp_path / "store"
    with DualIndexer(folder, **{**OPEN, "lock_timeout": 0.3}) as indexer:
        indexer.index_documents(documents(range(30)))
        find(indexer, 7)
        code = (
            "import sys\nfrom langchain_agentrag import DualIndexer\n"
            "with DualIndexer(sys.argv[1]) as indexer, indexer._store.lock.acquire():\n    print('held', flush=True)\n"
            "    sys.stdin.read()"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(StoreLockedError, match=f"process {holder.pid} on .* holds the write lock"):
                indexer.index_documents(documents(range(30, 40)))
            find(indexer, 7)
            with DualIndexer(folder, **{**OPEN, "lock_timeout": 0.3}) as other:
                assert other.keyword_search(word_of(None, 7, 0), 1)[0].doc_id == "7"
                near = other.vector_search(text_of(None, 7, 0), 1)
                assert near[0].doc_id == "7"
                assert near.degraded == ()  # exactly instead of approximately is no loss
        finally:
            holder.communicate("")
        indexer.index_documents(documents(range(30, 40)))
        find(indexer, 35)


def test_a_holder_that_is_killed_blocks_nobody(tmp_path: Path):
    folder = tmp_path / "store"
    DualIndexer(folder, **OPEN).close()
    code = (
        "import os, signal, sys\nfrom langchain_agentrag import DualIndexer\n"
        "with DualIndexer(sys.argv[1]) as indexer, indexer._store.lock.acquire():\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=False, timeout=60)
    with DualIndexer(folder, **{**OPEN, "lock_timeout": 5}) as indexer:
        indexer.index_documents(documents(range(5)))
        find(indexer, 3)


# -- one process ------------------------------------------------------------------------------------------------------


def test_two_handles_on_one_folder_in_one_process_see_each_other(tmp_path: Path):
    with DualIndexer(tmp_path / "store", **OPEN) as one, DualIndexer(tmp_path / "store", **OPEN) as two:
        one.index_documents(documents(range(600)))
        find(two, 7)
        two.index_documents(documents(range(600, 1_300)))
        find(one, 1_000)
        one.index_documents(documents(range(1_300, 2_000)))
        find(two, 1_900)
        two.delete([str(n) for n in range(100)])
        assert "7" not in {hit.doc_id for hit in one.keyword_search(word_of(None, 7, 0), 50)}
        two.close()
        find(one, 700)
        assert one.verify().ok


def test_sixteen_threads_that_read_and_write_lose_nothing(tmp_path: Path):
    with DualIndexer(tmp_path / "store", **OPEN) as indexer:
        indexer.index_documents(documents(range(100)))

        def work(thread: int) -> None:
            base = 1_000 * (thread + 1)
            for turn in range(3):
                numbers = range(base + 10 * turn, base + 10 * turn + 10)
                indexer.index_documents(documents(numbers))
                find(indexer, numbers[3])
                indexer.search("轴 kalomi", 5)
                indexer.delete([str(numbers[0])])
                hits = indexer.keyword_search(word_of(None, numbers[0], 0), 50)
                assert str(numbers[0]) not in {hit.doc_id for hit in hits}
                indexer.read(str(numbers[1]))

        with ThreadPoolExecutor(16) as pool:
            for done in [pool.submit(work, thread) for thread in range(16)]:
                done.result()
        assert indexer.stats().documents == 100 + 16 * 27
        assert indexer.verify().ok


async def test_two_hundred_concurrent_calls_of_a_retriever_agree_with_one_call_each(tmp_path: Path):
    with DualIndexer(tmp_path / "store", **OPEN) as indexer:
        indexer.index_documents(documents(range(300)))
        retriever = HybridRetriever(indexer=indexer, k=3)
        queries = [text_of(None, number, 0) for number in range(200)]
        together = await asyncio.gather(*(retriever.ainvoke(query) for query in queries))
        alone = [retriever.invoke(query) for query in queries[::20]]
        assert [results[0].page_content for results in together] == queries
        assert together[::20] == alone


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path):
    with DualIndexer(tmp_path / "store", **OPEN) as indexer:
        indexer.index_documents(documents(range(20)))
        find(indexer, 7)
        attempts: list[Callable[[], object]] = [
            lambda: indexer.search("轴"),
            lambda: indexer.index_documents(documents(range(1))),
            lambda: indexer.delete(["7"]),
            lambda: indexer.forget_agent("a"),
            lambda: indexer.read("7"),
            indexer.stats,
            indexer.verify,
            indexer.repair,
        ]
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            refused = 0
            for attempt in attempts:
                try:
                    attempt()
                except StoreClosedError as error:
                    refused += "open it again in the child" in str(error)
                except BaseException:
                    break
            indexer.close()
            os.write(writer, bytes([refused]))
            os._exit(0)
        os.close(writer)
        assert os.read(reader, 1) == bytes([len(attempts)])
        os.close(reader)
        assert os.waitpid(child, 0)[1] == 0
        find(indexer, 7)
        indexer.index_documents(documents(range(20, 30)))
        assert indexer.verify().ok


def open_files(part: str) -> list[str]:
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(str(entry.readlink()))
    return [name for name in names if part in name]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it did not come true within a minute"
        time.sleep(0.02)


@pytest.fixture
def no_gc() -> Iterator[None]:
    """Without the collector: what is released must not depend on it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_gc")
def test_connections_end_with_their_threads_and_with_the_store(tmp_path: Path):
    indexer = DualIndexer(tmp_path / "store", **OPEN)
    indexer.index_documents(documents(range(30)))
    find(indexer, 7)
    before = len(open_files("catalog.sqlite"))
    for _ in range(20):
        threads = [threading.Thread(target=indexer.keyword_search, args=("轴", 2)) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # A thread lets go of what is its own a moment after join() returns, and SQLite keeps a file of a closed connection
    # for the next one while others hold locks on it: as many as there were threads at the same time, not 200.
    wait_until(lambda: len(open_files("catalog.sqlite")) <= before + 2 * 10)
    stay, leave = threading.Event(), threading.Event()

    def linger() -> None:
        indexer.keyword_search("轴", 2)
        stay.set()
        leave.wait(60)

    lingering = threading.Thread(target=linger)
    lingering.start()
    stay.wait(60)
    indexer.close()
    assert open_files(str(tmp_path / "store" / "catalog.sqlite")) == []  # also those of threads that are still there
    leave.set()
    lingering.join()
    with pytest.raises(StoreError):
        indexer.search("轴")


def test_stores_that_are_opened_and_closed_leave_no_file_open(tmp_path: Path):
    def use() -> None:
        with DualIndexer(tmp_path / "store", **OPEN) as indexer:
            indexer.index_documents(documents(range(10)))
            find(indexer, 7)

    use()
    for _ in range(5):
        use()
    gc.collect()
    wait_until(lambda: not open_files(str(tmp_path)))  # Chroma's threads let go of its files a little later
