"""Quality on BEIR collections: one table of nDCG@10 per collection, for each index, each fusion rule and the peers.

    python benchmarks/quality.py DATA… [--collections a,b] [--embeddings local|hash|module:Class] [--queries N]
                                 [--vectors DIR] [--settings keyword,vector,…] [--peers] [--confidence]

DATA are folders that hold one folder per collection with corpus.jsonl, queries.jsonl and qrels.tsv. A text with an
`agent_id` is that agent's private memory and is searched on its behalf. Documents rank by their best chunk. Where there
is a qrels.cross.tsv, questions are also searched in the texts of the other language alone. With --vectors every text is
embedded once. `--peers` adds LangChain and LlamaIndex on the same chunks, vectors and depth (`peers.py`);
`--confidence` prints how reliable the confidence of a search is (`confidence.py`).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from beir_collections import DEPTH, Query, Task, agent_of, mean_ndcg, read_tasks
from confidence import print_reliability

from langchain_agentrag import DualIndexer
from langchain_agentrag.evaluation import cached_embedder

SETTINGS = "keyword,vector,hybrid,convex,rrf,dbsf,relative"


def load_embeddings(spec: str, cache: Path | None) -> Any:
    if ":" in spec:
        module, name = spec.split(":")
        return getattr(importlib.import_module(module), name)()
    return cached_embedder(spec, cache) if cache else spec


def setting_ndcg(indexer: DualIndexer, task: Task, setting: str) -> float:
    options: dict[str, Any] = {"mode": setting} if setting in {"keyword", "vector"} else {}
    if setting not in {"keyword", "vector", "hybrid"}:
        options["fusion"], _, weight = setting.partition("@")  # convex@.7 is .7 vector, .3 keyword
        options |= {"weights": (float(weight), 1 - float(weight))} if weight else {}

    def search(query: Query) -> list[str]:
        hits = indexer.search(query["text"], DEPTH, agent_id=agent_of(query), **options, **task.search_options(query))
        return list(dict.fromkeys(hit.doc_id for hit in hits))

    return mean_ndcg(task, search)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--collections", default="", help="names; all of them by default")
    parser.add_argument("--embeddings", default="local")
    parser.add_argument("--queries", type=int, default=0, help="at most N queries of each collection")
    parser.add_argument("--vectors", type=Path, help="folder of a vector cache: each text is embedded once")
    parser.add_argument("--settings", default=SETTINGS, help="columns of the table")
    parser.add_argument("--peers", action="store_true", help="LangChain and LlamaIndex as further columns")
    parser.add_argument("--confidence", action="store_true", help="a reliability table instead")
    options = parser.parse_args()
    model = load_embeddings(options.embeddings, options.vectors)
    names = set(filter(None, options.collections.split(",")))
    tasks = read_tasks(options.data, names, options.queries)
    if options.confidence:
        print_reliability(tasks, model)
        return
    columns, peers = options.settings.split(","), {}
    if options.peers:
        from peers import PEERS

        peers = PEERS
    print("| nDCG@10 | queries | " + " | ".join([*columns, *peers]) + " |")
    print("|---" * (len(columns) + len(peers) + 2) + "|")
    rows: list[list[float]] = []
    for task in tasks:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as home, DualIndexer(home, model) as indexer:
            indexer.index_documents(task.documents)
            row = [setting_ndcg(indexer, task, name) for name in columns]
            if not task.cross_language:
                row += [mean_ndcg(task, peer(task, indexer)) for peer in peers.values()]
        cells = [f"{value:.3f}" for value in row] + ["–"] * (len(columns) + len(peers) - len(row))
        print(f"| {task.name} | {len(task.queries)} | " + " | ".join(cells) + " |", flush=True)
        print(f"{task.name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
        rows += [row] * (not task.cross_language)
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    print(f"| mean of {len(rows)}, not across | | " + " | ".join(f"**{mean:.3f}**" for mean in means) + " |")


if __name__ == "__main__":
    main()
