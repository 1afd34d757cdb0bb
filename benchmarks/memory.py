"""Recall@10 of agent memory per collection, with all conversations in one store, each owned by one agent.

    python benchmarks/memory.py DATA [--embeddings hash|local] [--queries N] [--collections a,b]

DATA holds folders with corpus.jsonl and queries.jsonl whose metadata names an `agent_id`, and qrels.tsv if there are
judgements. The conversations are written to a memory table and read by `AgentMemoryConnector`. Every query runs as its
own agent, as another one and without an agent; a hit of another agent ends the run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import ir_measures
from ir_measures import R

from langchain_agentrag import AgentMemoryConnector, DualIndexer
from langchain_agentrag.connectors.memory import MemoryTable, Turn
from langchain_agentrag.times import parse_time

COLLECTIONS = ("locomo_en_memory", "madial_zh_en_memory", "memorybank_zh_en")
RECALL = R @ 10
MODES = ("keyword", "hybrid")


def read_jsonl(path: Path, limit: int = 0) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return records[: limit or None]


def turn(entry: dict[str, Any], collection: str) -> Turn:
    """Convert a record of a corpus to a turn of its conversation."""
    metadata = entry["metadata"]
    speaker = metadata.get("speaker")
    return Turn(
        session=f"{collection}/{metadata.get('session', metadata['timestamp'][:10])}",
        entry_id=entry["_id"],
        role=speaker if speaker in {"user", "assistant"} else "user",
        text=entry["text"],
        time=parse_time(metadata["timestamp"]),
        speaker=speaker,
        parts=("image",) if metadata.get("image_caption") else (),
    )


def fill(table: MemoryTable, folder: Path, agents: set[str] | None = None) -> set[str]:
    """Write a collection to the table and return its agents."""
    turns_by_agent: dict[str, list[Turn]] = defaultdict(list)
    for entry in read_jsonl(folder / "corpus.jsonl"):
        agent = entry["metadata"]["agent_id"]
        if agents is None or agent in agents:
            turns_by_agent[agent].append(turn(entry, folder.name))
    for agent, turns in turns_by_agent.items():
        table.append(agent, turns)
    return set(turns_by_agent)


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    qrels: dict[str, dict[str, int]] = defaultdict(dict)
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            query, document, score = line.split("\t")
            qrels[query][document] = int(score)
    return qrels


def search(indexer: DualIndexer, query: str, agent: str | None, mode: str) -> dict[str, float]:
    """Return entry → score of the ten best turns.

    Raises:
        SystemExit: one of them belongs to another agent.
    """
    best: dict[str, float] = {}
    for hit in indexer.search(query, k=20, agent_id=agent, mode=mode):
        if agent is None or hit.agent_id != agent:
            raise SystemExit(f"LEAK: {agent!r} got a memory of {hit.agent_id!r}")
        best[hit.metadata["entry"]] = max(best.get(hit.metadata["entry"], 0.0), hit.score)
    return dict(sorted(best.items(), key=lambda item: -item[1])[:10])


def run(
    indexer: DualIndexer, queries: list[dict[str, Any]], agents: list[str], mode: str
) -> dict[str, dict[str, float]]:
    """Return the results of the agents' own queries, and run each also as another agent and without an agent."""
    answers = {}
    for number, query in enumerate(queries):
        owner = query["metadata"]["agent_id"]
        answers[query["_id"]] = search(indexer, query["text"], owner, mode)
        others = [agent for agent in agents if agent != owner]
        for stranger in (others[number % len(others)], f"{owner} ", owner.upper(), None):
            if stranger != owner:
                search(indexer, query["text"], stranger, mode)
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--collections", default=",".join(COLLECTIONS))
    parser.add_argument("--embeddings", default="hash")
    parser.add_argument("--queries", type=int, default=0, help="first N questions of each collection only")
    options = parser.parse_args()
    folders = [options.data / name for name in options.collections.split(",")]
    with tempfile.TemporaryDirectory() as place, DualIndexer(Path(place) / "store", options.embeddings) as indexer:
        table = MemoryTable(f"sqlite:///{place}/memory.db")
        agents = sorted(set().union(*(fill(table, folder) for folder in folders)))
        started = time.perf_counter()
        report = indexer.sync(AgentMemoryConnector(table, agent_id=lambda session: session.agent_id))
        seconds = time.perf_counter() - started
        print(f"{report.added} turns of {len(agents)} agents in one store, indexed in {seconds:.1f} s", end="; ")
        print(f"{len(report.failed)} failed")
        started = time.perf_counter()
        again = indexer.sync(AgentMemoryConnector(table, agent_id=lambda session: session.agent_id))
        print(f"read again in {time.perf_counter() - started:.2f} s: {again.unchanged} unchanged, {again.added} added")
        print(f"\n| collection | questions | {' | '.join(f'{mode} {RECALL}' for mode in MODES)} | hits of others |")
        print(f"|---|---|{'---|' * len(MODES)}---|")
        for folder in folders:
            queries, qrels = (read_jsonl(folder / "queries.jsonl", options.queries), read_qrels(folder / "qrels.tsv"))
            cells = []
            for mode in MODES:
                answers = run(indexer, queries, agents, mode)
                known = {query: qrels[query] for query in answers if query in qrels}
                cells.append(
                    f"{ir_measures.calc_aggregate([RECALL], known, answers)[RECALL]:.3f}" if known else "no judgements"
                )
            print(f"| {folder.name} | {len(queries)} | {' | '.join(cells)} | 0 |")
        table.close()


if __name__ == "__main__":
    main()
