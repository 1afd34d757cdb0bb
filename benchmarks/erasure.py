"""Speed of deleting and erasing among many documents, embedding excluded, and what searches and writes notice of it.

python benchmarks/erasure.py [--shared 100000] [--private 5000] [--rounds 20]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from engine import PreparedEmbeddings, documents, make_texts, make_vectors, timed

from langchain_agentrag import DualIndexer

_WRITTEN = 2_000


def wait_until_purged(indexer: DualIndexer) -> Iterator[None]:
    while indexer.stats().unpurged_since is not None:
        yield


def report(name: str, spent: tuple[float, float]) -> None:
    print(f"| {name} | {spent[0]:.1f} | {spent[1]:.1f} |")


def measure(indexer: DualIndexer, prefix: str, owner: str | None, count: int, rounds: int) -> None:
    ids = [f"{prefix}{(number * 7_919 + 13) % count}" for number in range(3 * rounds)]
    among = f"one among {count:,} {'private' if owner else 'shared'}"
    report(f"delete {among}", timed(rounds, lambda number: indexer.delete([ids[number]], agent_id=owner)))
    indexer.erase([])
    few = max(rounds // 5, 2)
    report(f"erase {among}", timed(few, lambda number: indexer.erase([ids[rounds + number]], agent_id=owner)))


def measure_searches(indexer: DualIndexer, queries: list[str], during: Callable[[DualIndexer], Iterator[None]]) -> None:
    indexer.delete(["s17", "s50017"])
    spent, started = [], time.perf_counter()
    for number, _ in enumerate(during(indexer)):
        before = time.perf_counter()
        indexer.search(queries[number % len(queries)])
        spent.append(1000 * (time.perf_counter() - before))
    took = time.perf_counter() - started
    print(f"| search until erased in the background, after {took:.1f} s (p50, p95, max {max(spent):.0f}) "
          f"| {statistics.median(spent):.1f} | {statistics.quantiles(spent, n=20)[-1]:.1f} |")  # fmt: skip


def write_rate(indexer: DualIndexer, texts: list[str], *, with_deletes: bool) -> float:
    started = time.perf_counter()
    for start in range(0, len(texts), 100):
        indexer.index_documents(documents(texts[start : start + 100], f"w{with_deletes}{start}-"))
        if with_deletes:
            indexer.delete([f"s{20_000 + start}"])
    return len(texts) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=int, default=100_000)
    parser.add_argument("--private", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    model = PreparedEmbeddings()
    shared, private = make_texts(options.shared, 1), make_texts(options.private, 2)
    written = make_texts(2 * _WRITTEN, 3)
    for seed, texts in enumerate((shared, private, written), 1):
        model.known.update(zip(texts, make_vectors(len(texts), seed), strict=True))
    with tempfile.TemporaryDirectory() as folder, DualIndexer(Path(folder) / "store", model) as indexer:
        indexer.index_documents(documents(shared, "s"))
        indexer.index_documents(documents(private, "p"), "agent")
        indexer.optimize()
        queries = make_texts(50, 4)
        indexer.search(queries[0])
        print("| ms | p50 | p95 |\n|---|---|---|")
        measure(indexer, "p", "agent", options.private, options.rounds)
        measure(indexer, "s", None, options.shared, options.rounds)
        report("search", timed(200, lambda number: indexer.search(queries[number % len(queries)])))
        measure_searches(indexer, queries, wait_until_purged)
        for with_deletes, part in ((False, written[:_WRITTEN]), (True, written[_WRITTEN:])):
            rate = write_rate(indexer, part, with_deletes=with_deletes)
            print(f"| documents/s in calls of a hundred{', a delete after each' * with_deletes} | {rate:.0f} | |")


if __name__ == "__main__":
    main()
