"""Quality on BEIR-form collections through the public API: nDCG@10, Recall@10, MRR@10 per leg and fused.

    python benchmarks/quality.py DATA [--collections a,b] [--embeddings local|hash] [--queries N] [--cache DIR]
                                 [--weights .5,.5] [--peers]

DATA holds folders with corpus.jsonl, queries.jsonl and qrels.tsv. A text that carries an `agent_id` is that agent's
private memory and is searched on behalf of that agent. Scores of documents are those of their best chunk.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import ir_measures
from ir_measures import RR, R, nDCG

from langchain_agentrag import DualIndexer, SourceDocument

MEASURES = [nDCG @ 10, R @ 10, RR @ 10]
DEFAULT = ("techfaq_zh_mixed", "cmrc2018_zh", "locomo_en_memory")
DEPTH = 30  # chunks asked for, so that ten documents remain


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


def run(indexer: DualIndexer, queries: list[dict], **options) -> tuple[dict[str, dict[str, float]], float]:
    answers, spent = {}, 0.0
    for query in queries:
        agent = query.get("metadata", {}).get("agent_id")
        started = time.perf_counter()
        hits = indexer.search(query["text"], k=DEPTH, agent_id=agent, **options)
        spent += time.perf_counter() - started
        best: dict[str, float] = {}
        for hit in hits:
            best[hit.doc_id] = max(best.get(hit.doc_id, 0.0), hit.score)
        answers[query["_id"]] = best
    return answers, 1000 * spent / len(queries)


def measure(qrels: dict[str, dict[str, int]], answers: dict[str, dict[str, float]]) -> list[float]:
    known = {query: qrels[query] for query in answers if query in qrels}
    found = ir_measures.calc_aggregate(MEASURES, known, {query: answers[query] for query in known})
    return [found[measure] for measure in MEASURES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--collections", default=",".join(DEFAULT), help='names, or "all"')
    parser.add_argument("--embeddings", default="local")
    parser.add_argument("--queries", type=int, default=0, help="first N queries only")
    parser.add_argument("--cache", type=Path, help="keep the stores here and reuse them")
    parser.add_argument("--weights", help="vector,keyword")
    parser.add_argument("--settings", default="keyword,vector,convex,rrf", help="rows of the table")
    options = parser.parse_args()
    names = options.collections.split(",")
    if names == ["all"]:
        names = sorted(path.parent.name for path in options.data.glob("*/qrels.tsv"))
    weights = tuple(float(part) for part in options.weights.split(",")) if options.weights else None
    home = options.cache or Path(tempfile.mkdtemp())

    print("| collection | setting | nDCG@10 | Recall@10 | MRR@10 | ms/query |\n|---|---|---|---|---|---|")
    for name in names:
        folder = options.data / name
        queries = lines(folder / "queries.jsonl")
        qrels = read_qrels(folder / "qrels.tsv")
        queries = [query for query in queries if query["_id"] in qrels][: options.queries or None]
        with DualIndexer(home / f"{name}-{options.embeddings}", options.embeddings) as indexer:
            started = time.perf_counter()
            report = indexer.index_documents(source_documents(folder))
            print(f"{name}: {report.chunks} chunks in {time.perf_counter() - started:.0f} s", file=sys.stderr)
            for setting in options.settings.split(","):
                given = (
                    {"mode": setting}
                    if setting in {"keyword", "vector"}
                    else {"fusion": setting, "weights": weights}
                )
                answers, latency = run(indexer, queries, **given)
                figures = " | ".join(f"{figure:.4f}" for figure in measure(qrels, answers))
                print(f"| {name} | {setting} | {figures} | {latency:.1f} |", flush=True)


if __name__ == "__main__":
    main()
