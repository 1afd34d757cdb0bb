"""Time that time ranges, the recency bonus and expired documents add to a search.

python benchmarks/times.py --documents 20000
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_agentrag import DualIndexer, HashingEmbeddings, SourceDocument

NOON = datetime(2026, 3, 1, tzinfo=UTC)
STEP = timedelta(seconds=37)  # between two documents: hardly two have the same time
WORDS = ["数据库", "连接", "超时", "退款", "alpha", "pump", "E1102", "主轴", "冷却液", "budget", "预算"]
WORDS += [f"w{number}" for number in range(3_000)]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--expiring", type=int, default=900)
    parser.add_argument("--searches", type=int, default=200)
    arguments = parser.parse_args()
    now, dice = [NOON], random.Random(1)

    def text() -> str:
        return " ".join(dice.choices(WORDS, k=30))

    def since() -> datetime:
        return NOON - dice.random() * arguments.documents * STEP

    with (
        tempfile.TemporaryDirectory() as folder,
        DualIndexer(folder, HashingEmbeddings(64), clock=lambda: now[0]) as indexer,
    ):
        indexer.index_documents(
            [SourceDocument(f"d{n}", text(), {"time": NOON - n * STEP}) for n in range(arguments.documents)]
        )

        def measure(label: str, options: Callable[[], dict[str, Any]] = dict) -> None:
            taken = []
            for _ in range(arguments.searches):
                query, chosen = " ".join(dice.choices(WORDS, k=5)), options()
                started = time.perf_counter()
                indexer.search(query, 10, **chosen)
                taken.append(1_000 * (time.perf_counter() - started))
            cuts = statistics.quantiles(taken, n=20)
            print(f"| {label} | {statistics.median(taken):.1f} | {cuts[-1]:.1f} |", flush=True)

        print(f"{arguments.documents} documents\n\n| search | p50 ms | p95 ms |\n|---|---|---|")
        measure("plain")
        measure("after=, another moment each time", lambda: {"after": since()})
        measure("the same as a filter on the key", lambda: {"filter": {"time": {"$gte": since()}}})
        measure("recency=", lambda: {"recency": timedelta(days=2)})
        expiring = [SourceDocument(f"e{n}", text(), {"time": NOON}) for n in range(arguments.expiring)]
        indexer.index_documents(expiring, ttl=timedelta(hours=1))
        measure(f"{arguments.expiring} documents will expire")
        now[0] += timedelta(hours=2)
        measure(f"{arguments.expiring} documents have expired")
        started = time.perf_counter()
        gone = indexer.expire().deleted
        print(f"\n{gone} documents swept in {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
