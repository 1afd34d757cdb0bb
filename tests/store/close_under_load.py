"""Close stores while threads and tasks use them, in processes of their own, so that a crash of one is seen.

    python -m tests.store.close_under_load --closes 1000 --seed 1

prints a line per process and the table of outcomes. Every call that is under way must end as it would have, every later
one with `StoreClosedError`; the process must neither crash nor hang, and what was acknowledged must be there.
"""
# ruff: noqa: T201  (a script: printing is its job)

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLOSES_PER_PROCESS = 50
SECONDS_PER_CLOSE = 20.0  # until the process counts as hanging
THREADS = 6


def operations(indexer: object, rng: random.Random, acknowledged: set[str]) -> dict[str, Callable[[], object]]:
    """Name → call, of everything that uses the files of a store."""
    from langchain_agentrag import HybridRetriever, HybridVectorStore
    from langchain_agentrag.langgraph import HybridStore
    from langchain_agentrag.types import SourceDocument

    view = indexer.for_agent("agent")
    retriever = HybridRetriever(indexer=indexer)
    vectorstore, store = HybridVectorStore(indexer), HybridStore(indexer, shared=True)
    keys, owned = indexer.record_keys("loads"), indexer.owned_documents()

    def write(count: int = 3) -> None:
        names = [f"w{rng.getrandbits(48)}" for _ in range(count)]
        indexer.index_documents([SourceDocument(name, f"written text {name} 轴 vorpal") for name in names])
        acknowledged.update(names)

    def documents() -> Iterator[SourceDocument]:
        for number in range(4):
            time.sleep(0.002)
            yield SourceDocument(f"slow{number}", f"slow text {rng.random()}")

    def concurrently(*calls: Callable[[], object]) -> None:
        async def gather() -> None:
            results = await asyncio.gather(*(call() for call in calls), return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    raise result

        asyncio.run(gather())

    async def cancelled() -> None:
        task = asyncio.create_task(indexer.asearch("text 7"))
        await asyncio.sleep(rng.random() * 0.004)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return {
        "read": lambda: indexer.read("d7"),
        "get": lambda: indexer.get(["d1", "d2"]),
        "get filter": lambda: indexer.get(filter={"n": {"$gte": 30}}),
        "hybrid": lambda: indexer.search("text 7 轴", 5),
        "vector": lambda: indexer.search("text 8", 5, mode="vector"),
        "keyword": lambda: indexer.search("text 9", 5, mode="keyword"),
        "filter": lambda: indexer.search("text", 5, filter={"n": {"$gt": 10}}),
        "batch": lambda: retriever.batch(["text 1", "text 2", "轴 3"]),
        "asearch": lambda: concurrently(*(lambda: indexer.asearch("text 5") for _ in range(3))),
        "cancelled": lambda: concurrently(cancelled, cancelled),
        "write": write,
        "generator": lambda: indexer.index_documents(documents()),
        "delete": lambda: indexer.delete([f"slow{rng.randrange(4)}"]),
        "stats": indexer.stats,
        "verify": indexer.verify,
        "repair": indexer.repair,
        "optimize": indexer.optimize,
        "expire": indexer.expire,
        "view search": lambda: view.search("text 3"),
        "view write": lambda: view.index_documents([SourceDocument("own", f"own text {rng.random()}")]),
        "view stats": view.stats,
        "forget": lambda: indexer.forget_agent("agent"),
        "retriever": lambda: retriever.invoke("text 4"),
        "vectorstore": lambda: vectorstore.similarity_search("text 6"),
        "store put": lambda: store.put(("memories",), str(rng.randrange(5)), {"text": "a memory"}),
        "store get": lambda: store.get(("memories",), "1"),
        "store search": lambda: store.search(("memories",), query="memory"),
        "record keys": lambda: (keys.put(["k"], [None], keys.now()), keys.existing(["k"]), keys.keys()),
        "owned": lambda: (owned.with_prefix("d"), owned.find(["d1", "d2"])),
        "model name": lambda: indexer.model_name,
    }


WEIGHTS = {"verify": 0.1, "repair": 0.05, "forget": 0.2, "optimize": 0.2}


def close_once(folder: Path, rng: random.Random) -> Counter[str]:
    """Open the store, use it from several threads, close it in the middle; return the outcomes by operation."""
    from langchain_agentrag import DualIndexer
    from langchain_agentrag.errors import StoreClosedError

    chroma = rng.choice(["auto", "always"])
    indexer = DualIndexer(folder, "hash", chroma=chroma, exact_limit=rng.choice([20, 20_000]), result_cache=0.0)
    acknowledged: set[str] = set()
    names, outcomes = operations(indexer, rng, acknowledged), Counter[str]()
    weights = [WEIGHTS.get(name, 1.0) for name in names]
    closed = threading.Event()

    def use(seed: int) -> None:
        own = random.Random(seed)
        while True:
            name = own.choices(list(names), weights)[0]
            late = closed.is_set()
            try:
                names[name]()
                outcomes["late call succeeded" if late else "ended"] += 1
            except StoreClosedError:
                outcomes["refused"] += 1
                return
            except BaseException as error:  # whatever else is raised is a finding
                outcomes[f"{name}: {type(error).__name__}: {str(error)[:120]}"] += 1
                return

    threads = [threading.Thread(target=use, args=(rng.getrandbits(32),)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    time.sleep(rng.random() * 0.15)
    closers = [threading.Thread(target=indexer.close) for _ in range(rng.choice([0, 0, 1]))]
    for thread in closers:
        thread.start()
    if not indexer.close():
        outcomes["not closed in time"] += 1
    closed.set()
    for thread in (*threads, *closers):
        thread.join()
    with DualIndexer(folder, "hash", chroma=chroma) as again:
        present = {document.doc_id for document in again.get(sorted(acknowledged))}
        outcomes["lost documents"] += len(acknowledged - present)
        again.delete(sorted(acknowledged))
        if rng.random() < 0.1:
            outcomes.update(f"damaged: {problem[:150]}" for problem in again.verify().problems)
    return outcomes


def run_closes(folder: Path, seed: int, closes: int) -> None:
    """Close so many times in this process, and print the outcomes as JSON."""
    import logging

    from langchain_agentrag import DualIndexer
    from langchain_agentrag.types import SourceDocument

    logging.disable(logging.WARNING)
    with DualIndexer(folder, "hash", chroma="always") as indexer:
        indexer.index_documents([SourceDocument(f"d{n}", f"text {n} 轴 about {n}", {"n": n}) for n in range(60)])
    total: Counter[str] = Counter()
    for number in range(closes):
        faulthandler.dump_traceback_later(SECONDS_PER_CLOSE, exit=True)
        total += close_once(folder, random.Random(f"{seed} {number}"))
        faulthandler.cancel_dump_traceback_later()
    print(json.dumps(total))


def close_in_subprocess(seed: int, closes: int) -> Counter[str]:
    """Return the outcomes of one process; a crash and a hang are outcomes too."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "tests.store.close_under_load", "--child", folder]
        command += ["--seed", str(seed), "--closes", str(closes)]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=SECONDS_PER_CLOSE * (closes + 2)
        )
    if done.returncode:
        print(done.stderr[-4_000:], file=sys.stderr)
        return Counter({f"process ended with {done.returncode}": 1})
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def findings(outcomes: Counter[str]) -> dict[str, int]:
    """Return the outcomes that must not be."""
    return {name: count for name, count in outcomes.items() if name not in {"ended", "refused"} and count}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--closes", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run_closes(arguments.child, arguments.seed, arguments.closes)
        return 0
    total: Counter[str] = Counter()
    started, done = time.monotonic(), 0
    for seed in range(arguments.seed, sys.maxsize):
        closes = min(CLOSES_PER_PROCESS, arguments.closes - done)
        if closes <= 0:
            break
        outcomes = close_in_subprocess(seed, closes)
        done += closes
        total += outcomes
        print(f"seed {seed}: {closes} closes, {dict(outcomes)}", flush=True)
    print(f"\n{done} closes in {time.monotonic() - started:.0f} s, findings: {findings(total) or 'none'}")
    for name, count in total.most_common():
        print(f"{count:8}  {name}")
    return 1 if findings(total) else 0


if __name__ == "__main__":
    sys.exit(main())
