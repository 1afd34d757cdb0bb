"""Closing a store: waits for the calls that run, refuses later ones, and neither crashes nor hangs."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_agentrag import AgentView, DualIndexer
from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.embedding import HashingEmbeddings
from langchain_agentrag.errors import StoreClosedError, UsageError
from langchain_agentrag.ingest.documents import build_filter
from langchain_agentrag.store import calls
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.types import Progress, SourceDocument
from tests.fakes import SlowEmbeddings
from tests.store.close_under_load import close_in_subprocess, findings, operations

ROOT = Path(__file__).parents[2]


@pytest.fixture
def indexer(tmp_path: Path) -> Iterator[DualIndexer]:
    with DualIndexer(tmp_path / "store", "hash") as opened:
        opened.index_documents([SourceDocument(f"d{n}", f"text {n} 轴 about {n}", {"n": n}) for n in range(60)])
        opened.index_documents(["of its own"], "agent")
        yield opened


def open_files(folder: Path) -> list[str]:
    names = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(str(entry.readlink()))
    return [name for name in names if str(folder / "catalog") in name]


@contextlib.contextmanager
def busy(indexer: DualIndexer) -> Iterator[threading.Event]:
    """Keep one call of the store running on another thread until the event is set."""
    inside, leave = threading.Event(), threading.Event()

    def documents() -> Iterator[SourceDocument]:
        inside.set()
        assert leave.wait(60)
        yield SourceDocument("last", "written while the store was being closed")

    thread = threading.Thread(target=lambda: indexer.index_documents(documents()))
    thread.start()
    assert inside.wait(60)
    try:
        yield leave
    finally:
        leave.set()
        thread.join()


@pytest.mark.timeout(200)
def test_closes_under_load_neither_crash_nor_hang_nor_lose_what_was_acknowledged():
    outcomes = close_in_subprocess(seed=1, closes=4)
    assert findings(outcomes) == {}
    assert outcomes["ended"] > 10
    assert outcomes["refused"] > 10


def test_every_use_of_the_catalog_is_a_call_that_closing_waits_for(
    indexer: DualIndexer, monkeypatch: pytest.MonkeyPatch
):
    uncounted: set[str] = set()
    connection = Catalog.connection

    def checked(catalog: Catalog) -> sqlite3.Connection:
        call = calls._current.get()
        if call is None or call not in call.store._running:
            uncounted.add(inspect.stack()[1].function)
        return connection(catalog)

    monkeypatch.setattr(Catalog, "connection", checked)
    for name, call in operations(indexer, random.Random(1), set()).items():
        call()
        assert not uncounted, name


ARGUMENTS = {
    "run_call": (list,),
    "index_documents": (["text"],),
    "aindex_documents": (["text"],),
    "delete": ("d1",),
    "adelete": ("d1",),
    "forget_agent": ("agent",),
    "aforget_agent": ("agent",),
    "for_agent": ("agent",),
    "record_keys": ("names",),
    "read": ("d1",),
    "aread": ("d1",),
    **dict.fromkeys(("search", "asearch", "vector_search", "keyword_search"), ("text",)),
}
ALIVE = {"close", "from_chroma", "path"}


def public_methods(kind: type) -> list[str]:
    return [
        name
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and name not in ALIVE and callable(member)
    ]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[DualIndexer, AgentView]:
    """A store that is closed, and a view of it that was made before."""
    with DualIndexer(tmp_path_factory.mktemp("closed") / "store", "hash") as opened:
        opened.index_documents([SourceDocument("d1", "a text")])
        opened.index_documents(["of its own"], "agent")
        view = opened.for_agent("agent")
    return opened, view


@pytest.mark.parametrize("name", public_methods(DualIndexer))
def test_every_method_of_a_closed_store_says_that_it_is_closed(closed: tuple[DualIndexer, AgentView], name: str):
    arguments = (SourceConnector(),) if name in {"sync", "async_sync"} else ARGUMENTS.get(name, ())
    with pytest.raises(StoreClosedError, match="closed"):
        run_either(lambda: getattr(closed[0], name)(*arguments))


@pytest.mark.parametrize("name", public_methods(AgentView))
def test_every_method_of_a_view_of_a_closed_store_says_so(closed: tuple[DualIndexer, AgentView], name: str):
    arguments = (SourceConnector("agent"),) if name in {"sync", "async_sync"} else ARGUMENTS.get(name, ())
    with pytest.raises(StoreClosedError, match="closed"):
        run_either(lambda: getattr(closed[1], name)(*arguments))


def test_objects_handed_out_earlier_and_properties_say_that_the_store_is_closed(indexer: DualIndexer):
    keys, owned = indexer.record_keys("names"), indexer.owned_documents()
    indexer.close()
    for call in (
        lambda: keys.put(["k"], [None], 0.0),
        lambda: keys.existing(["k"]),
        keys.keys,
        keys.now,
        lambda: keys.remove(["k"]),
        lambda: owned.with_prefix("d"),
        lambda: owned.find(["d1"]),
        lambda: indexer.model_name,
        lambda: indexer.embedder,
        indexer.__enter__,
    ):
        with pytest.raises(StoreClosedError, match="closed"):
            call()
    assert indexer.path.name == "store"


def run_either(call: Callable[[], object]) -> object:
    value = call()
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: object) -> object:
    return await value  # type: ignore[misc]


class SourceConnector(BaseConnector):
    """A source with one text."""

    def __init__(self, agent_id: str | None = None) -> None:
        self.agent_id = agent_id

    @property
    def connector_id(self) -> str:
        return "source"

    def items(self) -> Iterator[SourceItem | Gap]:
        return iter(())


def test_a_call_that_runs_ends_and_its_write_is_there(indexer: DualIndexer):
    with busy(indexer) as leave:
        closer = threading.Thread(target=indexer.close)
        closer.start()
        time.sleep(0.1)
        with pytest.raises(StoreClosedError):
            indexer.search("text")
        assert closer.is_alive()
        assert open_files(indexer.path)
        leave.set()
        closer.join(60)
    assert open_files(indexer.path) == []
    with DualIndexer(indexer.path) as again:
        assert again.get(["last"])


def test_closing_within_a_time_says_that_a_call_still_runs_and_the_last_call_releases_the_files(
    indexer: DualIndexer, caplog: pytest.LogCaptureFixture
):
    with busy(indexer):
        started = time.monotonic()
        assert indexer.close(timeout=0.1) is False
        assert time.monotonic() - started < 5
        assert "1 calls still run" in caplog.text
        assert open_files(indexer.path)
    assert open_files(indexer.path) == []
    assert indexer.close() is True


def test_closing_from_a_callback_does_not_wait_for_itself_and_the_call_ends(indexer: DualIndexer):
    closed: list[bool] = []

    def close(_progress: Progress) -> None:
        closed.append(indexer.close())
        assert indexer.read("d1")  # still within the call

    report = indexer.index_documents([f"new {n}" for n in range(3)], on_progress=close)
    assert report.added == 3
    assert set(closed) == {False}
    assert open_files(indexer.path) == []
    with pytest.raises(StoreClosedError):
        indexer.read("d1")


def test_closing_from_a_thread_that_a_callback_waits_for_ends(indexer: DualIndexer):
    def close(_progress: Progress) -> None:
        thread = threading.Thread(target=indexer.close, args=(0.2,))
        thread.start()
        thread.join()

    assert indexer.index_documents(["new"], on_progress=close).added == 1
    assert open_files(indexer.path) == []


def test_closing_from_a_worker_thread_of_a_call_does_not_wait_for_the_call(tmp_path: Path):
    from datetime import UTC, datetime

    threads: set[str] = set()

    def clock() -> datetime:
        if threading.current_thread().name.startswith("agentrag-writer"):
            threads.add(threading.current_thread().name)
            opened[0].close()
        return datetime.now(UTC)

    opened = [DualIndexer(tmp_path / "store", "hash", clock=clock)]
    started = time.monotonic()
    assert opened[0].index_documents(["text"]).added == 1
    assert threads
    assert time.monotonic() - started < 10
    assert open_files(tmp_path / "store") == []


def test_closing_from_a_destructor_in_the_middle_of_a_call_is_done_when_the_call_ends(indexer: DualIndexer):
    class Owner:
        def __init__(self) -> None:
            self.itself = self  # a cycle: collected at any point

        def __del__(self) -> None:
            indexer.close()

    def documents() -> Iterator[str]:
        import gc

        Owner()
        gc.collect()
        yield "text after the store was closed"

    assert indexer.index_documents(documents()).added == 1
    assert open_files(indexer.path) == []


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", True])
def test_a_time_that_is_none_is_refused_and_the_store_stays_open(indexer: DualIndexer, timeout: object):
    with pytest.raises(UsageError, match="timeout"):
        indexer.close(timeout)  # type: ignore[arg-type]
    assert indexer.read("d1")


def test_several_threads_close_at_once(indexer: DualIndexer):
    with busy(indexer) as leave:
        results: list[bool] = []
        closers = [threading.Thread(target=lambda: results.append(indexer.close())) for _ in range(5)]
        for closer in closers:
            closer.start()
        leave.set()
        for closer in closers:
            closer.join(60)
    assert results == [True] * 5
    assert open_files(indexer.path) == []


def test_an_interrupt_while_closing_leaves_a_store_that_is_closed_by_its_last_call(indexer: DualIndexer):
    with busy(indexer):
        main = threading.main_thread().ident
        timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            indexer.close()
        with pytest.raises(StoreClosedError):
            indexer.read("d1")
    assert indexer.close() is True
    assert open_files(indexer.path) == []


async def test_a_cancelled_search_goes_on_in_its_thread_and_closing_waits_for_it(tmp_path: Path):
    with DualIndexer(tmp_path / "store", SlowEmbeddings(0.0)) as indexer:
        indexer.index_documents([f"text {n}" for n in range(200)])
        for _ in range(20):
            task = asyncio.create_task(indexer.asearch("text 7"))
            await asyncio.sleep(random.random() * 0.005)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert indexer.close() is True
        with pytest.raises(StoreClosedError):
            await indexer.asearch("text")


async def test_closing_on_the_event_loop_does_not_wait_for_a_search_that_waits_for_its_model(tmp_path: Path):
    class Asked(HashingEmbeddings):
        async def aembed_query(self, text: str) -> list[float]:
            await asyncio.sleep(0.2)
            return self.embed_query(text)

    indexer = DualIndexer(tmp_path / "store", Asked())
    indexer.index_documents(["text"])
    task = asyncio.create_task(indexer.asearch("text"))
    await asyncio.sleep(0.1)
    started = time.monotonic()
    assert indexer.close() is True
    assert time.monotonic() - started < 5
    with pytest.raises(StoreClosedError):
        await task


def test_closing_at_the_end_of_the_interpreter_ends(tmp_path: Path):
    code = """
    import atexit, sys, threading
    from langchain_agentrag import DualIndexer
    from langchain_agentrag.errors import StoreClosedError, UsageError
    indexer = DualIndexer(sys.argv[1], "hash", chroma="always", exact_limit=0)
    indexer.index_documents([f"text {n}" for n in range(30)])
    atexit.register(indexer.close)
    def read():
        try:
            while True: indexer.search("text 7")
        except StoreClosedError: pass
    for _ in range(3): threading.Thread(target=read, daemon=True).start()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "store")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_of_the_callers_own_database_is_raised_as_it_is(indexer: DualIndexer):
    def documents() -> Iterator[str]:
        sqlite3.connect(":memory:").execute("SELECT * FROM absent")
        yield ""

    with pytest.raises(sqlite3.OperationalError, match="no such table: absent"):
        indexer.index_documents(documents())
    assert indexer.read("d1")


def test_a_call_costs_less_than_a_tenth_of_the_fastest_search(indexer: DualIndexer):
    def nothing() -> None:
        return None

    def seconds(call: Callable[[], object], times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - started) / times

    indexer.keyword_search("text 7")
    search = min(seconds(lambda: indexer.keyword_search("text 7"), 20) for _ in range(3))
    counted = min(seconds(lambda: indexer._calls.run(nothing), 2_000) for _ in range(3))
    assert counted < search / 10


def test_a_filter_on_a_new_key_sees_rows_that_were_written_since_the_search_began(indexer: DualIndexer):
    """Found under load: the rows were read before the column was loaded, which may add rows."""
    store = indexer._store
    before = store.catalog.partition(None)
    cache = store.indexes.cache(before)
    assert len(cache.select(before, None)) == 60
    indexer.index_documents([SourceDocument("later", "written meanwhile", {"n": 99})])
    condition = build_filter(store.now(), {"n": {"$gte": 50}})
    assert len(cache.select(before, condition)) == 11


def test_a_write_during_a_close_leaves_no_row_out_of_the_vector_index(tmp_path: Path):
    """Found under load: rows that were not indexed yet were skipped, but counted as indexed."""
    options: dict[str, object] = {"embeddings": "hash", "exact_limit": 20}
    with DualIndexer(tmp_path / "store", chroma="auto", **options) as indexer:
        indexer.index_documents([f"text {n}" for n in range(19)])
        indexer.optimize()
        indexer.index_documents([f"later {n}" for n in range(5)])
    indexer = DualIndexer(tmp_path / "store", chroma="always", **options)
    with busy(indexer) as leave:
        closer = threading.Thread(target=indexer.close)
        closer.start()
        time.sleep(0.1)
        leave.set()
        closer.join()
    with DualIndexer(tmp_path / "store", **options) as again:
        assert again.verify().problems == ()
        assert again.stats().documents == 25
