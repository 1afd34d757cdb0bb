"""Real conversations of many people in one store: each finds its own, none is shown another's.

They are not ours to ship: `AGENTRAG_DATA` names a folder that holds them. `benchmarks/memory.py` asks all the questions.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from langchain_agentrag import AgentMemoryConnector, DualIndexer
from langchain_agentrag.connectors.memory import MemoryTable

DATA = Path(os.environ.get("AGENTRAG_DATA", "absent"))
BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
COLLECTIONS = ("locomo_en_memory", "madial_zh_en_memory", "memorybank_zh_en")


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_no_agent_sees_a_memory_of_another_one(collection, tmp_path, monkeypatch):
    folder = DATA / collection
    if not folder.exists():
        pytest.skip(f"AGENTRAG_DATA does not name a folder that holds {collection}")
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    monkeypatch.delitem(sys.modules, "memory", raising=False)
    import memory

    agents = sorted({query["metadata"]["agent_id"] for query in memory.read_jsonl(folder / "queries.jsonl")})[:4]
    table = MemoryTable(f"sqlite:///{tmp_path}/memory.db")
    assert memory.fill(table, folder, set(agents)) == set(agents)
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        report = indexer.sync(AgentMemoryConnector(table, agent_id=lambda session: session.agent_id))
        assert report.failed == ()
        assert indexer.stats().shared_documents == 0
        queries = [q for q in memory.read_jsonl(folder / "queries.jsonl") if q["metadata"]["agent_id"] in agents]
        answers = memory.run(indexer, queries[:60], agents, "hybrid")  # ends with SystemExit at the first that leaks
        assert sum(map(bool, answers.values())) == len(answers)
    table.close()
