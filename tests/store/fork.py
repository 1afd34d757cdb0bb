"""What the processes of `test_fork` do: a parent prepares a store and forks, the child reports one JSON object.

python -m tests.store.fork PREPARATION METHOD CHROMA FOLDER
"""
# ruff: noqa: T201  (its output is how it answers)

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from langchain_agentrag import DualIndexer
from langchain_agentrag.store import background_indexing
from langchain_agentrag.types import SourceDocument

HANG = 25.0  # seconds until a process counts as hanging


def documents(first: int, count: int) -> list[SourceDocument]:
    return [SourceDocument(f"d{n}", f"text number {n} 轴承 about thing{n}") for n in range(first, first + count)]


def open_store(folder: Path, chroma: str) -> DualIndexer:
    if chroma == "none":  # too small for Chroma
        return DualIndexer(folder, "hash", lock_timeout=15.0)
    return DualIndexer(folder, "hash", chroma=chroma, exact_limit=20, lock_timeout=15.0)


@contextlib.contextmanager
def repeatedly(call: Callable[[], object]) -> Iterator[None]:
    """Make a call again and again on another thread while the block runs."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            call()

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def holding_the_lock(indexer: DualIndexer) -> Iterator[None]:
    """Hold the write lock on another thread while the block begins, and release it a second later."""
    held = threading.Event()

    def hold() -> None:
        with indexer._store.lock.acquire():
            held.set()
            time.sleep(1.0)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    yield
    thread.join()


FILL = (
    "import sys\nfrom pathlib import Path\nfrom tests.store.fork import documents, open_store\n"
    "with open_store(Path(sys.argv[1]), sys.argv[2]) as indexer:\n"
    "    indexer.index_documents(documents(0, 40))\n    indexer.optimize()"
)


def fill(folder: Path, chroma: str) -> None:
    """Write the store in another process."""
    subprocess.run([sys.executable, "-c", FILL, str(folder), chroma], check=True)


def under_way(preparation: str, indexer: DualIndexer) -> contextlib.AbstractContextManager[None]:
    """Return what goes on on another thread at the time of the fork."""
    match preparation:
        case "searching":
            return repeatedly(lambda: indexer.search("text number 9 轴承"))
        case "writing":
            numbers = iter(range(1_000, 1_000_000))
            return repeatedly(lambda: indexer.index_documents(documents(next(numbers), 1)))
        case "locked":
            return holding_the_lock(indexer)
        case "indexing":
            background_indexing._WRITE_DELAY = 0.0
            indexer.index_documents(documents(5_000, 1_000))
        case "read":
            indexer.read("d7")
            indexer.keyword_search("轴承")
        case "vector search":
            indexer.search("text number 7", mode="vector")
    return contextlib.nullcontext()


@contextlib.contextmanager
def prepared(preparation: str, folder: Path, chroma: str) -> Iterator[DualIndexer | None]:
    """Use the store as a parent may have before it forks; the store is open meanwhile unless it is None."""
    if preparation == "nothing":
        fill(folder, chroma)
        yield None
    elif preparation == "closed":
        with open_store(folder, chroma) as indexer:
            indexer.index_documents(documents(0, 40))
        yield None
    else:
        if preparation in {"opened", "read", "vector search"}:
            fill(folder, chroma)
        with open_store(folder, chroma) as indexer:
            if preparation not in {"opened", "read", "vector search"}:
                indexer.index_documents(documents(0, 40))
            with under_way(preparation, indexer):
                yield indexer


def outcome(call: Callable[[], object]) -> str:
    """Return what a call did: "ok" and its value, or the error it raised."""
    started = time.monotonic()
    try:
        value = call()
    except Exception as error:
        value = f"{type(error).__name__}: {error}"
    else:
        value = f"ok {value}"
    return value if time.monotonic() - started < HANG else f"slow: {value}"


def child(inherited: DualIndexer | None, folder: Path, chroma: str) -> dict[str, Any]:
    """Use the inherited handle, then one of the child's own."""
    report: dict[str, Any] = {"usable": chroma}
    if inherited is not None:
        view = inherited
        report["inherited"] = [
            outcome(call)
            for call in (
                lambda: view.search("text"),
                lambda: view.read("d7"),
                lambda: view.index_documents(documents(900, 1)),
                view.stats,
                lambda: view.for_agent("a").search("text"),
            )
        ]
        report["inherited close"] = outcome(view.close)
        del view, inherited
        gc.collect()
    report["open"] = outcome(lambda: open_store(folder, chroma).close())
    with open_store(folder, chroma) as own:
        report["read"] = outcome(lambda: own.read("d7").text)
        for mode in ("keyword", "vector", "hybrid"):
            report[mode] = outcome(
                lambda mode=mode: [
                    own.search("number 7 thing7 轴承", 3, mode=mode)[0].doc_id,
                    *own.search("thing7").degraded,
                ]
            )
        report["write"] = outcome(lambda: own.index_documents(documents(100, 3)).added)
        report["delete"] = outcome(lambda: own.delete(["d101"]).deleted)
        report["documents"] = own.stats().documents
    return report


def in_fork(call: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], int]:
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        code = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                json.dump(call(), pipe)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    return json.loads(answer or "{}"), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def in_fork_that_ends_normally(call: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """As the workers of pre-fork servers: the interpreter of the child is finalized."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        with os.fdopen(writer, "w") as pipe:
            json.dump(call(), pipe)
        sys.exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    return json.loads(answer or "{}"), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def in_multiprocessing(call: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], int]:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=lambda: queue.put(call()))
    process.start()
    answer = queue.get(timeout=2 * HANG)
    process.join()
    return answer, process.exitcode


METHODS = {"fork": in_fork, "server": in_fork_that_ends_normally, "multiprocessing": in_multiprocessing}


def main(preparation: str, method: str, chroma: str, folder: str) -> None:
    with prepared(preparation, Path(folder), chroma) as indexer:
        answer, code = METHODS[method](lambda: child(indexer, Path(folder), chroma))
        report = {"child": answer, "code": code}
        if indexer is not None:
            report["parent"] = [
                outcome(lambda: indexer.read("d7").doc_id),
                outcome(lambda: indexer.search("number 8 thing8 轴承", 3)[0].doc_id),
                outcome(lambda: indexer.index_documents(documents(200, 2)).added),
            ]
    with open_store(Path(folder), chroma) as again:
        report["verify"] = list(again.verify().problems)
        report["documents"] = again.stats().documents
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
