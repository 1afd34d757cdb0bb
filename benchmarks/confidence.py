"""How far the confidence of a search can be relied on: `python benchmarks/quality.py DATA --confidence`.

Right means that the first hit is of a document that answers the question. Three kinds of question have no answer in the
store they are asked of: those of the next collection, nonsense in both languages, and, where a collection has them,
adversarial ones (`queries.adversarial.jsonl`), which ask one person for what another did.
"""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from itertools import cycle, pairwise

from quality import Task, lines, spread

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
ELSEWHERE = 60  # questions of another collection


def nonsense(count: int = 40) -> list[str]:
    dice = random.Random(5)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(2, 3))) for _ in range(2 * count)]
    latin = [" ".join(dice.sample(words, 4)) for _ in range(count // 2)]
    return latin + ["".join(dice.choices(CHARACTERS, k=dice.randint(5, 10))) for _ in range(count // 2)]


def report(tasks: Iterable[Task], model) -> None:
    tasks = [task for task in tasks if not task.across]
    told: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for task, other in zip(tasks, cycle([*tasks[1:], tasks[0]]), strict=False):
        with tempfile.TemporaryDirectory() as home, DualIndexer(home, model) as indexer:
            indexer.index_documents(task.documents)
            owners = sorted({document.agent_id or "" for document in task.documents})

            def ask(text: str, agent: str | None, indexer: DualIndexer = indexer):
                hits = indexer.search(text, 5, agent_id=agent)
                return hits.confidence, hits[0].doc_id if hits else None

            for query in task.queries:
                likely, first = ask(query["text"], query.get("metadata", {}).get("agent_id"))
                told[task.name].append((likely, task.qrels[query["_id"]].get(first, 0) > 0))
            for owner, query in zip(cycle(owners), spread(other.queries, ELSEWHERE), strict=False):
                told["of another collection"].append((ask(query["text"], owner or None)[0], False))
            for owner, text in zip(cycle(owners), nonsense(), strict=False):
                told["nonsense"].append((ask(text, owner or None)[0], False))
            adversarial = task.folder / "queries.adversarial.jsonl"
            for query in lines(adversarial) if adversarial.is_file() else []:
                told["adversarial"].append((ask(query["text"], query["metadata"]["agent_id"])[0], False))
    _print(told, {task.name for task in tasks})


def _print(told: dict[str, list[tuple[float, bool]]], answered: set[str]) -> None:
    print(
        "| questions | count | confidence, mean | first hit right | unconvincing | right ones among these |"
    )
    print("|---|---|---|---|---|---|")
    for name, pairs in told.items():
        low = [right for likely, right in pairs if likely < CONVINCING]
        mean, right = sum(likely for likely, _ in pairs) / len(pairs), sum(right for _, right in pairs)
        share = f"{right / len(pairs):.2f}" if name in answered else "–"
        print(f"| {name} | {len(pairs)} | {mean:.2f} | {share} | {len(low) / len(pairs):.2f} | {sum(low)} |")
    print("\n| confidence | answered questions, mean | first hit right | count |\n|---|---|---|---|")
    every = [pair for name in answered for pair in told[name]]
    for low, high in pairwise(EDGES):
        inside = [(likely, right) for likely, right in every if low <= likely < high or likely == high == 1]
        if inside:
            mean, right = (sum(values) / len(inside) for values in zip(*inside, strict=True))
            print(f"| {low:.2f}–{high:.2f} | {mean:.2f} | {right:.2f} | {len(inside)} |")
