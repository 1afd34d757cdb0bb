"""Effect of fixed weights on questions with exact terms (codes, quotations): nDCG@10 by (vector, keyword) share.

    python -m benchmarks.router.weights DATA… [--embeddings local]

DATA are folders with corpus.jsonl, queries.jsonl and qrels.tsv. Of a large corpus the relevant documents and a
sample of about 400 others are indexed.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from langchain_agentrag import DualIndexer, QueryUnderstandingRouter, SourceDocument

SHARES = (None, (0.5, 0.5), (0.3, 0.7), (0.2, 0.8))
SAMPLE = 400


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def ndcg(results: list[str], relevant: dict[str, int]) -> float:
    gain = sum((2 ** relevant.get(doc_id, 0) - 1) / math.log2(place + 2) for place, doc_id in enumerate(results[:10]))
    best = sorted(relevant.values(), reverse=True)[:10]
    return gain / sum((2**grade - 1) / math.log2(place + 2) for place, grade in enumerate(best))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--embeddings", default="local")
    options = parser.parse_args()
    router = QueryUnderstandingRouter()
    for folder in options.data:
        qrels: dict[str, dict[str, int]] = {}
        for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
            query, document, grade = line.split("\t")
            qrels.setdefault(query, {})[document] = int(grade)
        questions = [
            q for q in lines(folder / "queries.jsonl") if q["_id"] in qrels and router.route(q["text"]).weights
        ]
        relevant_ids = {document for query in questions for document in qrels[query["_id"]]}
        corpus = lines(folder / "corpus.jsonl")
        step = max(1, len(corpus) // SAMPLE)
        sample = [text for place, text in enumerate(corpus) if text["_id"] in relevant_ids or place % step == 0]
        documents = [SourceDocument(d["_id"], f"{d.get('title') or ''}\n{d['text']}".strip()) for d in sample]
        with tempfile.TemporaryDirectory() as store, DualIndexer(store, options.embeddings) as indexer:
            indexer.index_documents(documents)
            for share in SHARES:
                gains = []
                for query in questions:
                    hits = indexer.search(query["text"], 20, weights=share)
                    gains.append(ndcg(list(dict.fromkeys(hit.doc_id for hit in hits)), qrels[query["_id"]]))
                print(
                    f"{folder.name}: {share or 'adaptive'} {sum(gains) / len(gains):.3f} of {len(questions)} questions"
                )


if __name__ == "__main__":
    main()
