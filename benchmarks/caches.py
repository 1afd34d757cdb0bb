"""Time saved by the caches of query vectors and of results for a repeated search.

    python benchmarks/caches.py [--embeddings local|hash] [--rounds 3]

The questions of `benchmarks/paraphrase` are searched in its corpus, each several times: without caches, with cached
query vectors, and with cached results as well. The first round of each setting, with empty caches, is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_agentrag import DualIndexer, SourceDocument

HERE = Path(__file__).parent / "paraphrase"
SETTINGS: dict[str, dict[str, Any]] = {
    "no cache": {"query_cache": 0},
    "vectors of queries": {"query_cache": 256},
    "results as well": {"query_cache": 256, "result_cache": 600},
}


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", default="local")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    queries = [line["text"] for line in lines("queries.jsonl")][:60]
    with tempfile.TemporaryDirectory() as folder:
        with DualIndexer(folder, options.embeddings) as indexer:
            indexer.index_documents([SourceDocument(line["_id"], line["text"]) for line in lines("corpus.jsonl")])
        for name, setting in SETTINGS.items():
            taken: list[float] = []
            with DualIndexer(folder, options.embeddings, **setting) as indexer:
                for number in range(options.rounds + 1):
                    for query in queries:
                        started = time.perf_counter()
                        indexer.search(query, 10, agent_id="lina")
                        if number:
                            taken.append(1_000 * (time.perf_counter() - started))
            print(f"{name:20} median {statistics.median(taken):.2f} ms, {len(taken)} searches", flush=True)


if __name__ == "__main__":
    main()
