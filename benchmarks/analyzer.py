"""Quality of the keyword leg alone: nDCG@10 per collection and analyzer setting, as a Markdown table.

    python benchmarks/analyzer.py --data DIR [--collections a,b] [--limit 500] [--speed]

DIR holds one folder per collection in BEIR form: corpus.jsonl, queries.jsonl, qrels.tsv. Where documents have
a `metadata.agent_id`, a query sees those of its own agent only, statistics included, as in the store.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from langchain_agentrag.analysis import FIELDS, Analyzer, Weights
from langchain_agentrag.bm25 import PARAMETERS, FieldStats, Parameters, idf

COLLECTIONS = (
    "cmrc2018_zh",
    "drcd_zh_hant",
    "stard_zh_law",
    "techfaq_zh_mixed",
    "madial_zh_en_memory",
    "locomo_en_memory",
    "multihop_en",
    "xquad_en_zh",
)
DEFAULT = Weights()
VARIANTS: dict[str, tuple[Weights, dict[str, Parameters]]] = {
    "words only": (replace(DEFAULT, grams=0.0, characters=0.0), {}),
    "grams at full weight": (replace(DEFAULT, grams=1.0, characters=0.0), {}),
    "no single characters": (replace(DEFAULT, characters=0.0), {}),
    "default": (DEFAULT, {}),
}


class Partition:
    """Postings of the documents of one owner."""

    def __init__(self, texts: dict[str, str], analyzer: Analyzer) -> None:
        self.ids = list(texts)
        self.lengths = {field: np.zeros(len(texts)) for field in FIELDS}
        postings: dict[str, dict[str, list[tuple[int, int]]]] = {field: defaultdict(list) for field in FIELDS}
        for row, text in enumerate(texts.values()):
            terms = analyzer.analyze(text)
            for field in FIELDS:
                self.lengths[field][row] = terms.lengths[field]
                for term, count in Counter(getattr(terms, field)).items():
                    postings[field][term].append((row, count))
        self.postings = {
            field: {term: np.array(rows).T for term, rows in table.items()}
            for field, table in postings.items()
        }

    def rank(self, query, parameters: dict[str, Parameters], k: int = 10) -> list[str]:
        scores = np.zeros(len(self.ids))
        for field, terms in query.items():
            if not terms:
                continue
            lengths, chosen = self.lengths[field], parameters[field]
            stats = FieldStats(len(self.ids), int(lengths.sum()))
            norm = chosen.k1 * (1 - chosen.b + chosen.b * lengths / stats.average_length)
            for term, weight in terms.items():
                found = self.postings[field].get(term)
                if found is not None:
                    rows, tf = found
                    gain = weight * idf(stats.docs, len(rows)) * (chosen.k1 + 1)
                    scores[rows] += gain * tf / (tf + norm[rows])
        best = np.lexsort((np.arange(len(scores)), -scores))[:k]
        return [self.ids[row] for row in best if scores[row] > 0]


class Collection:
    """A collection with its partitions and judged queries."""

    def __init__(self, folder: Path, analyzer: Analyzer, limit: int | None = None) -> None:
        self.texts: dict[str | None, dict[str, str]] = defaultdict(dict)
        for record in _records(folder / "corpus.jsonl"):
            self.texts[_agent(record)][record["_id"]] = record["text"]
        self.relevant: dict[str, dict[str, int]] = defaultdict(dict)
        with (folder / "qrels.tsv").open(encoding="utf-8") as lines:
            next(lines)
            for line in lines:
                query, document, grade = line.rstrip("\n").split("\t")
                self.relevant[query][document] = int(grade)
        queries = [record for record in _records(folder / "queries.jsonl") if record["_id"] in self.relevant]
        self.queries = [(record["_id"], _agent(record), record["text"]) for record in queries[:limit]]
        self.partitions = {agent: Partition(texts, analyzer) for agent, texts in self.texts.items()}

    def ndcg(self, analyzer: Analyzer, parameters: dict[str, Parameters]) -> float:
        total = 0.0
        for key, agent, text in self.queries:
            partition = self.partitions[agent if agent in self.partitions else None]
            ranked = partition.rank(analyzer.analyze_query(text), parameters)
            total += _ndcg(ranked, self.relevant[key])
        return total / len(self.queries)


def _records(path: Path):
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _agent(record) -> str | None:
    return record.get("metadata", {}).get("agent_id")


def _ndcg(ranked: list[str], relevant: dict[str, int], k: int = 10) -> float:
    gained = sum(relevant.get(key, 0) / math.log2(place + 2) for place, key in enumerate(ranked[:k]))
    ideal = sum(
        grade / math.log2(place + 2) for place, grade in enumerate(sorted(relevant.values())[::-1][:k])
    )
    return gained / ideal if ideal else 0.0


def _speed(collections: dict[str, Collection], analyzer: Analyzer, size: int = 100) -> float:
    texts = [text for one in collections.values() for owned in one.texts.values() for text in owned.values()]
    chunks = [text[place : place + size] for text in texts[::7] for place in range(0, len(text), size)][
        :10_000
    ]
    started = time.perf_counter()
    for chunk in chunks:
        analyzer.analyze(chunk)
    return len(chunks) / (time.perf_counter() - started)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder per collection")
    parser.add_argument("--collections", default=",".join(COLLECTIONS), help="names, separated by commas")
    parser.add_argument("--limit", type=int, help="first N queries of each collection")
    parser.add_argument("--speed", action="store_true", help="also print chunks analysed per second")
    arguments = parser.parse_args()

    index_side = Analyzer()
    collections = {
        name: Collection(arguments.data / name, index_side, arguments.limit)
        for name in arguments.collections.split(",")
        if (arguments.data / name / "corpus.jsonl").is_file()
    }
    print("| nDCG@10 | " + " | ".join(VARIANTS) + " |")
    print("|---" * (len(VARIANTS) + 1) + "|")
    for name, collection in collections.items():
        cells = [
            f"{collection.ndcg(Analyzer(weights=weights), {**PARAMETERS, **parameters}):.4f}"
            for weights, parameters in VARIANTS.values()
        ]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    if arguments.speed:
        print(f"\n{_speed(collections, index_side):,.0f} chunks of 100 characters per second, one thread")


if __name__ == "__main__":
    main()
