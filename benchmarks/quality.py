"""Quality on BEIR-form collections: one table of nDCG@10 per collection, for each leg, each fusion rule and the peers.

    python benchmarks/quality.py DATA… [--collections a,b] [--embeddings local|hash|module:Class] [--queries N]
                                 [--vectors DIR] [--settings keyword,vector,…] [--peers] [--confidence]

DATA are folders that hold one folder per collection with corpus.jsonl, queries.jsonl and qrels.tsv. A text that carries
an `agent_id` is that agent's private memory and is searched on its behalf. Documents rank by their best chunk. Where
there is a qrels.cross.tsv, questions are also asked of the texts in the other language alone. With --vectors every text
is embedded once. `--peers` adds LangChain and LlamaIndex on the same chunks, vectors and depth (`peers.py`);
`--confidence` prints how far the confidence of a search can be relied on (`confidence.py`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.evaluation.runner import measure
from langchain_agentrag.evaluation.vector_cache import cached_embedder

sys.path.insert(0, str(Path(__file__).parent))
DEPTH = 30  # chunks asked for, so that ten documents remain
SETTINGS = "keyword,vector,hybrid,convex,rrf,dbsf,relative"
OTHER = {"zh": "en", "en": "zh"}


@dataclass
class Task:
    """One row of the table."""

    name: str
    folder: Path
    documents: list[SourceDocument]
    queries: list[dict]
    qrels: dict[str, dict[str, int]]
    across: bool = False

    def options(self, query: dict) -> dict:
        return {"filter": {"lang": OTHER[query["metadata"]["lang"]]}} if self.across else {}


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        qrels.setdefault(query, {})[document] = int(score)
    return qrels


def source_documents(folder: Path) -> list[SourceDocument]:
    found = []
    for entry in lines(folder / "corpus.jsonl"):
        title, text = entry.get("title", ""), entry["text"]
        metadata = entry.get("metadata", {})
        text = f"{title}\n{text}" if title and not text.startswith(title) else text
        found.append(SourceDocument(entry["_id"], text, metadata, metadata.get("agent_id")))
    return found


def spread(items: list[dict], most: int) -> list[dict]:
    """At most so many of them, evenly over the whole list."""
    if not most or len(items) <= most:
        return items
    return [items[place * len(items) // most] for place in range(most)]


def tasks(folders: list[Path], names: set[str], most: int) -> Iterator[Task]:
    for folder in sorted(path.parent for data in folders for path in data.glob("*/qrels.tsv")):
        if names and folder.name not in names:
            continue
        documents, queries = source_documents(folder), lines(folder / "queries.jsonl")
        for file in ("qrels.tsv", "qrels.cross.tsv"):
            if (folder / file).is_file():
                qrels, across = read_qrels(folder / file), "cross" in file
                asked = spread([query for query in queries if query["_id"] in qrels], most)
                yield Task(folder.name + " across" * across, folder, documents, asked, qrels, across)


def embeddings(spec: str, folder: Path | None):
    if ":" in spec:
        module, name = spec.split(":")
        return getattr(importlib.import_module(module), name)()
    return cached_embedder(spec, folder) if folder else spec


def ranked(hits) -> list[str]:
    return list(dict.fromkeys(hit.doc_id for hit in hits))


def score(task: Task, ask: Callable[[dict], list[str]]) -> float:
    rankings = {query["_id"]: ask(query) for query in task.queries}
    values = measure(rankings, task.qrels, ["nDCG@10"])["nDCG@10"]
    return sum(values.values()) / len(values)


def setting(indexer: DualIndexer, task: Task, name: str) -> float:
    given = {"mode": name} if name in {"keyword", "vector"} else {}
    if name not in {"keyword", "vector", "hybrid"}:
        given["fusion"], _, share = name.partition("@")  # convex@.7 is .7 vector, .3 keyword
        given |= {"weights": (float(share), 1 - float(share))} if share else {}

    def ask(query: dict) -> list[str]:
        agent = query.get("metadata", {}).get("agent_id")
        return ranked(indexer.search(query["text"], DEPTH, agent_id=agent, **given, **task.options(query)))

    return score(task, ask)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--collections", default="", help="names; all of them by default")
    parser.add_argument("--embeddings", default="local")
    parser.add_argument("--queries", type=int, default=0, help="at most N queries of each collection")
    parser.add_argument(
        "--vectors", type=Path, help="folder that keeps vectors, so that each text is embedded once"
    )
    parser.add_argument("--settings", default=SETTINGS, help="columns of the table")
    parser.add_argument("--peers", action="store_true", help="LangChain and LlamaIndex as further columns")
    parser.add_argument("--confidence", action="store_true", help="a reliability table instead")
    options = parser.parse_args()
    model = embeddings(options.embeddings, options.vectors)
    names = set(filter(None, options.collections.split(",")))
    todo = tasks(options.data, names, options.queries)
    if options.confidence:
        from confidence import report

        report(todo, model)
        return
    columns = options.settings.split(",")
    peers = importlib.import_module("peers").PEERS if options.peers else {}
    print("| nDCG@10 | queries | " + " | ".join([*columns, *peers]) + " |")
    print("|---" * (len(columns) + len(peers) + 2) + "|")
    rows: list[list[float]] = []
    for task in todo:
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as home, DualIndexer(home, model) as indexer:
            indexer.index_documents(task.documents)
            row = [setting(indexer, task, name) for name in columns]
            if not task.across:
                row += [score(task, make(task, indexer)) for make in peers.values()]
        cells = [f"{figure:.3f}" for figure in row] + ["–"] * (len(columns) + len(peers) - len(row))
        print(f"| {task.name} | {len(task.queries)} | " + " | ".join(cells) + " |", flush=True)
        print(f"{task.name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
        rows += [row] * (not task.across)
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    print(f"| mean of {len(rows)}, not across | | " + " | ".join(f"**{mean:.3f}**" for mean in means) + " |")


if __name__ == "__main__":
    main()
