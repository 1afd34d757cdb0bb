"""Reliability of the confidence of a search: `python benchmarks/quality.py DATA --confidence`.

Right means that the first hit is of a document that answers the question. Three kinds of question have no answer in the
store that is searched: those of the next collection, nonsense in both languages, and, where a collection has them,
adversarial ones (`queries.adversarial.jsonl`), which ask one person for what another did.
"""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from itertools import cycle, pairwise

from beir_collections import Task, agent_of, read_lines, sample_evenly

from langchain_agentrag import DualIndexer
from langchain_agentrag.types import CONVINCING

EDGES = (0.0, CONVINCING, 0.3, 0.5, 0.7, 0.9, 1.0)
SYLLABLES = [
    "ba",
    "ko",
    "zu",
    "mi",
    "rel",
    "dan",
    "fos",
    "quib",
    "tra",
    "wem",
    "lop",
    "gri",
    "snu",
    "vek",
    "yod",
    "plim",
]
CHARACTERS = "锟斤拷烫屯葛霍逵馥鑫龘靐齉爩麤驫羴猋骉鱻淼焱垚赑晶嘟哒呜啦咕噜"
FOREIGN_QUESTIONS = 60  # questions of another collection


def nonsense(count: int = 40) -> list[str]:
    rng = random.Random(5)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 3))) for _ in range(2 * count)]
    latin = [" ".join(rng.sample(words, 4)) for _ in range(count // 2)]
    return latin + ["".join(rng.choices(CHARACTERS, k=rng.randint(5, 10))) for _ in range(count // 2)]


def print_reliability(tasks: Iterable[Task], model) -> None:
    tasks = [task for task in tasks if not task.cross_language]
    outcomes: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for task, other in zip(tasks, cycle([*tasks[1:], tasks[0]]), strict=False):
        with tempfile.TemporaryDirectory() as home, DualIndexer(home, model) as indexer:
            indexer.index_documents(task.documents)
            owners = sorted({document.agent_id or "" for document in task.documents})

            def search(text: str, agent: str | None, indexer: DualIndexer = indexer):
                hits = indexer.search(text, 5, agent_id=agent)
                return hits.confidence, hits[0].doc_id if hits else None

            for query in task.queries:
                confidence, first = search(query["text"], agent_of(query))
                outcomes[task.name].append((confidence, task.qrels[query["_id"]].get(first, 0) > 0))
            for owner, query in zip(cycle(owners), sample_evenly(other.queries, FOREIGN_QUESTIONS), strict=False):
                outcomes["of another collection"].append((search(query["text"], owner or None)[0], False))
            for owner, text in zip(cycle(owners), nonsense(), strict=False):
                outcomes["nonsense"].append((search(text, owner or None)[0], False))
            adversarial = task.folder / "queries.adversarial.jsonl"
            for query in read_lines(adversarial) if adversarial.is_file() else []:
                outcomes["adversarial"].append((search(query["text"], agent_of(query))[0], False))
    _print_tables(outcomes, {task.name for task in tasks})


def _print_tables(outcomes: dict[str, list[tuple[float, bool]]], answered: set[str]) -> None:
    print("| questions | count | confidence, mean | first hit right | unconvincing | right ones among these |")
    print("|---|---|---|---|---|---|")
    for name, pairs in outcomes.items():
        low = [right for confidence, right in pairs if confidence < CONVINCING]
        mean, right = (sum(confidence for confidence, _ in pairs) / len(pairs), sum(right for _, right in pairs))
        share = f"{right / len(pairs):.2f}" if name in answered else "–"
        print(f"| {name} | {len(pairs)} | {mean:.2f} | {share} | {len(low) / len(pairs):.2f} | {sum(low)} |")
    print("\n| confidence | answered questions, mean | first hit right | count |\n|---|---|---|---|")
    answered_pairs = [pair for name in answered for pair in outcomes[name]]
    for low, high in pairwise(EDGES):
        inside = [
            (confidence, right)
            for confidence, right in answered_pairs
            if low <= confidence < high or confidence == high == 1
        ]
        if inside:
            mean, right = (sum(values) / len(inside) for values in zip(*inside, strict=True))
            print(f"| {low:.2f}–{high:.2f} | {mean:.2f} | {right:.2f} | {len(inside)} |")
