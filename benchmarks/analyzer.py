"""Quality of the keyword index alone: nDCG@10 per collection and analyzer setting, as a Markdown table.

    python benchmarks/analyzer.py --data DIR [--collections a,b] [--limit 500] [--speed]

Each column up to the default adds one decision to the column before it; those after it change one setting.

DIR holds one folder per collection in BEIR form: corpus.jsonl, queries.jsonl, qrels.tsv. Where documents have
a `metadata.agent_id`, a query sees those of its own agent only, statistics included, as in the store.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from langchain_agentrag.search.bm25 import PARAMETERS, FieldStats, Parameters, idf
from langchain_agentrag.text import FIELDS, Analyzer, Terms, Weights
from langchain_agentrag.text.chunking import speaker_of

COLLECTIONS = (
    "cmrc2018_zh",
    "drcd_zh_hant",
    "stard_zh_law",
    "techfaq_zh_mixed",
    "madial_zh_en_memory",
    "locomo_en_memory",
    "multihop_en",
    "xquad_en_zh",
    "tau_retail_sql",
)
DEFAULT = Weights()
LUCENE = dict.fromkeys(FIELDS, Parameters(k1=1.2, b=0.75))


@dataclass(frozen=True)
class Variant:
    """One column: how texts are indexed, how queries are weighed, and k1 and b."""

    name: str
    analyzer: Analyzer | PlainJieba
    parameters: Mapping[str, Parameters] = field(default_factory=lambda: PARAMETERS)
    titles: bool = False


class PlainJieba:
    """What a pipeline with jieba as its tokeniser does: search-mode tokens in lower case, without punctuation."""

    def analyze(self, text: str, context: str = "") -> Terms:
        import rjieba

        words = [token.lower() for token in rjieba.cut_for_search(f"{context} {text}") if any(map(str.isalnum, token))]
        return Terms(words, [], [], {"words": len(words), "grams": 0, "context": 0})

    def analyze_query(self, text: str) -> Mapping[str, Mapping[str, float]]:
        return {"words": Counter(self.analyze(text).words)}


VARIANTS = (
    Variant("plain jieba", PlainJieba(), LUCENE),
    Variant("words only", Analyzer(weights=replace(DEFAULT, grams=0.0, characters=0.0, spaced=1.0)), LUCENE),
    Variant("+ pairs and characters", Analyzer(weights=replace(DEFAULT, spaced=1.0)), LUCENE),
    Variant("+ spaced words evened out", Analyzer(), LUCENE),
    Variant("default", Analyzer()),
    Variant("default, title as context", Analyzer(), titles=True),
    Variant("default, no stop words", Analyzer(stop_words=[])),
    Variant("default, k3 0", Analyzer(weights=replace(DEFAULT, repeats=0.0))),
    Variant("default, characters .5", Analyzer(weights=replace(DEFAULT, characters=0.5))),
    Variant("default, pairs 1.5", Analyzer(weights=replace(DEFAULT, grams=1.5))),
    Variant("default, parts .25", Analyzer(weights=replace(DEFAULT, parts=0.25))),
    Variant("default, codes 1", Analyzer(weights=replace(DEFAULT, codes=1.0))),
)


class Partition:
    """Postings of the documents of one owner."""

    def __init__(self, analysed: dict[str, Terms]) -> None:
        self.ids = list(analysed)
        self.lengths = {name: np.zeros(len(analysed)) for name in FIELDS}
        postings: dict[str, dict[str, list[tuple[int, int]]]] = {name: defaultdict(list) for name in FIELDS}
        for row, terms in enumerate(analysed.values()):
            for name in FIELDS:
                self.lengths[name][row] = terms.lengths[name]
                for term, count in Counter(getattr(terms, name)).items():
                    postings[name][term].append((row, count))
        self.postings = {
            name: {term: np.array(rows).T for term, rows in table.items()} for name, table in postings.items()
        }

    def rank(self, query, parameters: Mapping[str, Parameters], k: int = 10) -> list[str]:
        scores = np.zeros(len(self.ids))
        for name, terms in query.items():
            lengths, chosen = self.lengths[name], parameters[name]
            stats = FieldStats(len(self.ids), int(lengths.sum()))
            norm = chosen.k1 * (1 - chosen.b + chosen.b * lengths / stats.average_length)
            for term, weight in terms.items():
                posting = self.postings[name].get(term)
                if posting is not None:
                    rows, tf = posting
                    gain = weight * idf(stats.docs, len(rows)) * (chosen.k1 + 1)
                    scores[rows] += gain * tf / (tf + norm[rows])
        best = np.lexsort((np.arange(len(scores)), -scores))[:k]
        return [self.ids[row] for row in best if scores[row] > 0]


class Collection:
    """A collection with its judged queries."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.documents = _records(folder / "corpus.jsonl")
        self.relevant: dict[str, dict[str, int]] = defaultdict(dict)
        with (folder / "qrels.tsv").open(encoding="utf-8") as lines:
            next(lines)
            for line in lines:
                query, document, grade = line.rstrip("\n").split("\t")
                self.relevant[query][document] = int(grade)
        queries = [record for record in _records(folder / "queries.jsonl") if record["_id"] in self.relevant]
        self.queries = [(record["_id"], _agent(record), record["text"]) for record in queries[:limit]]

    def ndcg(self, variant: Variant) -> float:
        analysed: dict[str | None, dict[str, Terms]] = defaultdict(dict)
        for record in self.documents:
            metadata = record.get("metadata", {})
            context = str(metadata.get("title") or "") if variant.titles else speaker_of(metadata)
            analysed[_agent(record)][record["_id"]] = variant.analyzer.analyze(record["text"], context)
        partitions = {agent: Partition(owned) for agent, owned in analysed.items()}
        total = 0.0
        for key, agent, text in self.queries:
            partition = partitions[agent if agent in partitions else None]
            ranked = partition.rank(variant.analyzer.analyze_query(text), variant.parameters)
            total += _ndcg(ranked, self.relevant[key])
        return total / len(self.queries)


def _records(path: Path):
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _agent(record) -> str | None:
    return record.get("metadata", {}).get("agent_id")


def _ndcg(ranked: list[str], relevant: dict[str, int], k: int = 10) -> float:
    gained = sum(relevant.get(key, 0) / math.log2(place + 2) for place, key in enumerate(ranked[:k]))
    ideal = sum(grade / math.log2(place + 2) for place, grade in enumerate(sorted(relevant.values())[::-1][:k]))
    return gained / ideal if ideal else 0.0


def _speed(collections: dict[str, Collection], analyzer: Analyzer, size: int = 100) -> float:
    texts = [record["text"] for collection in collections.values() for record in collection.documents]
    chunks = [text[place : place + size] for text in texts[::7] for place in range(0, len(text), size)][:10_000]
    analyzer.analyze("预热 warm up")
    started = time.perf_counter()
    for chunk in chunks:
        analyzer.analyze(chunk)
    return len(chunks) / (time.perf_counter() - started)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder per collection")
    parser.add_argument("--collections", default=",".join(COLLECTIONS), help="names, separated by commas")
    parser.add_argument("--limit", type=int, help="first N queries of each collection")
    parser.add_argument("--speed", action="store_true", help="also print chunks analysed per second")
    arguments = parser.parse_args()

    collections = {
        name: Collection(arguments.data / name, arguments.limit)
        for name in arguments.collections.split(",")
        if (arguments.data / name / "corpus.jsonl").is_file()
    }
    print("| nDCG@10 | " + " | ".join(variant.name for variant in VARIANTS) + " |")
    print("|---" * (len(VARIANTS) + 1) + "|")
    for name, collection in collections.items():
        cells = [f"{collection.ndcg(variant):.4f}" for variant in VARIANTS]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    if arguments.speed:
        speed = _speed(collections, Analyzer())
        print(f"\n{speed:,.0f} chunks of 100 characters per second, one thread")


if __name__ == "__main__":
    main()
