"""BEIR collections of the quality benchmark: loading of documents, queries and qrels, and nDCG@10 of rankings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_agentrag import SourceDocument
from langchain_agentrag.evaluation import measure

DEPTH = 30  # chunks per search, so that ten documents remain
OTHER_LANGUAGE = {"zh": "en", "en": "zh"}

Query = dict[str, Any]
Search = Callable[[Query], list[str]]
"""Query → ids of documents, best first."""


@dataclass
class Task:
    """One row of the table: a collection with one set of judgments."""

    name: str
    folder: Path
    documents: list[SourceDocument]
    queries: list[Query]
    qrels: dict[str, dict[str, int]]
    cross_language: bool = False

    def search_options(self, query: Query) -> dict[str, Any]:
        return {"filter": {"lang": OTHER_LANGUAGE[query["metadata"]["lang"]]}} if self.cross_language else {}


def agent_of(query: Query) -> str | None:
    return query.get("metadata", {}).get("agent_id")


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        query, document, score = line.split("\t")
        qrels.setdefault(query, {})[document] = int(score)
    return qrels


def read_documents(folder: Path) -> list[SourceDocument]:
    documents = []
    for entry in read_lines(folder / "corpus.jsonl"):
        title, text = entry.get("title", ""), entry["text"]
        text = f"{title}\n{text}" if title and not text.startswith(title) else text
        documents.append(SourceDocument(entry["_id"], text, entry.get("metadata", {}), agent_of(entry)))
    return documents


def sample_evenly(items: list[Query], most: int) -> list[Query]:
    """Return at most so many items, evenly spread over the list; all of them for 0."""
    if not most or len(items) <= most:
        return items
    return [items[number * len(items) // most] for number in range(most)]


def read_tasks(folders: list[Path], names: set[str], most: int) -> Iterator[Task]:
    """Yield the collections in the folders, and those with cross-language qrels a second time."""
    for folder in sorted(path.parent for data in folders for path in data.glob("*/qrels.tsv")):
        if names and folder.name not in names:
            continue
        documents, queries = read_documents(folder), read_lines(folder / "queries.jsonl")
        for file in ("qrels.tsv", "qrels.cross.tsv"):
            if (folder / file).is_file():
                qrels, cross_language = read_qrels(folder / file), "cross" in file
                judged = sample_evenly([query for query in queries if query["_id"] in qrels], most)
                name = folder.name + " across" * cross_language
                yield Task(name, folder, documents, judged, qrels, cross_language)


def mean_ndcg(task: Task, search: Search) -> float:
    rankings = {query["_id"]: search(query) for query in task.queries}
    values = measure(rankings, task.qrels, ["nDCG@10"])["nDCG@10"]
    return sum(values.values()) / len(values)
