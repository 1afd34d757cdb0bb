"""What the processes of `test_processes` do; one JSON line per thing that happened.

python -m tests.store.processes write|search FOLDER NAME SECONDS
"""
# ruff: noqa: T201  (its output is how it answers)

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from langchain_agentrag import DualIndexer
from langchain_agentrag.types import SourceDocument
from tests.store.crash import text_of, word_of

OPEN = {"embeddings": "hash", "chroma": "always", "exact_limit": 0, "lock_timeout": 120.0}
BATCH = 120


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def number_of(name: str, count: int) -> int:
    """Numbers of one writer never meet another's."""
    return int(name) * 1_000_000 + count


def write(folder: Path, name: str, seconds: float) -> None:
    """Add, update and delete until the time is over; tell what was acknowledged."""
    rng, count = random.Random(name), 0
    live: dict[int, int] = {}
    acknowledged: set[int] = set()
    with DualIndexer(folder, **OPEN) as indexer:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            fresh = [number_of(name, count + n) for n in range(BATCH)]
            count += BATCH
            put(indexer, dict.fromkeys(fresh, 0))
            live.update(dict.fromkeys(fresh, 0))
            tell(live=fresh[-1], version=0)
            acknowledged.add(fresh[-1])  # stays as it is: somebody is looking for it
            changed = {number: live[number] + 1 for number in rng.sample(sorted(live.keys() - acknowledged), 20)}
            put(indexer, changed)
            live.update(changed)
            gone = rng.sample(sorted(live.keys() - acknowledged), 10)
            indexer.delete([str(number) for number in gone])
            for number in gone:
                del live[number]
    tell(final=live)


def put(indexer: DualIndexer, versions: dict[int, int]) -> None:
    indexer.index_documents(
        [SourceDocument(doc_id=str(n), text=text_of(None, n, version)) for n, version in versions.items()]
    )


def search(folder: Path, name: str, seconds: float) -> None:
    """Search for what standard input names: every line must be found in both indexes by the next search."""
    del name, seconds
    with DualIndexer(folder, **OPEN) as indexer:
        tell(ready=True)
        for line in sys.stdin:
            number, version = json.loads(line)
            for mode, query in (
                ("keyword", word_of(None, number, version)),
                ("vector", text_of(None, number, version)),
            ):
                hits = indexer.search(query, 3, mode=mode)
                texts = [hit.text for hit in hits]
                tell(mode=mode, number=number, found=text_of(None, number, version) in texts, degraded=hits.degraded)
        tell(ended=True)


if __name__ == "__main__":
    action, where, who, how_long = sys.argv[1:]
    {"write": write, "search": search}[action](Path(where), who, float(how_long))
