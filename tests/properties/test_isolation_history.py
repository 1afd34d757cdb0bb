"""Non-interference over whole histories: strike out what the others did, and nothing an agent observed changes.

The same sequence of actions is played twice, with all agents and with only one of them beside the shared documents.
Everything that agent was ever told must be equal: reports of its writes, hits with their explanations, passages,
refusals, counts. Unlike a store built fresh, this also covers caches, row numbers, merges and what writes report.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from langchain_agentrag import Chunking, DualIndexer, HashingEmbeddings, SourceDocument
from langchain_agentrag.errors import AgentRagError
from langchain_agentrag.types import StoreStats
from tests.contracts.reference import MemoryConnector
from tests.contracts.world import ANALYZER, fresh_folder

AGENTS = [None, "a", "A", "a ", "ab"]
WORDS = [
    "数据库",
    "连接",
    "超时",
    "报错",
    "alpha",
    "beta",
    "gamma",
    "E1102",
    "v2.10.3",
    "密码",
    "退款",
    "refund",
    "C++",
    "的",
    "机器学习",
]

Action = tuple[str | None, str, tuple[Any, ...]]


def history(dice: random.Random, length: int) -> list[Action]:
    """(who, what, with what): the ids and texts of different agents collide as often as not."""
    actions: list[Action] = []
    for _ in range(length):
        who = dice.choice(AGENTS)
        operation = dice.choice(
            ["put", "put", "put", "delete", "filter", "forget", "sync", "search", "search", "read", "stats", "bad"]
        )
        ids = dice.sample(["d1", "d2", "d3", "d4"], dice.randint(1, 3))
        texts = [" ".join(dice.choices(WORDS, k=dice.randint(1, 40))) for _ in ids]
        number = dice.randint(0, 3)
        arguments: dict[str, tuple[Any, ...]] = {
            "put": (list(zip(ids, texts, strict=True)), number),
            "sync": (dict(zip(ids, texts, strict=True)),),
            "delete": (ids,),
            "filter": ({"n": {"$gte": number}},),
            "search": (" ".join(dice.choices(WORDS, k=3)), dice.choice([1, 5, 50]), dice.choice(["hybrid", "vector", "keyword"]),
                       dice.choice(["convex", "rrf", "dbsf"]), dice.choice([None, {"agent_id": dice.choice(AGENTS)}, {"n": number}])),
            "read": (ids[0], number),
        }  # fmt: skip
        actions.append((who, operation, arguments.get(operation, ())))
    return actions


def outcome(indexer: DualIndexer, action: Action) -> object:
    """The result or error the agent gets, without the time it took."""
    who, operation, arguments = action
    face: Any = indexer if who is None else indexer.for_agent(who)
    calls: dict[str, Callable[..., object]] = {
        "put": lambda pairs, n: face.index_documents([SourceDocument(doc, text, {"n": n}) for doc, text in pairs]),
        "sync": lambda texts: face.sync(MemoryConnector(texts, "notes", who)),
        "delete": face.delete,
        "filter": lambda where: face.delete(filter=where),
        "forget": lambda: face.forget() if who is not None else face.delete(["d1"]),
        "search": lambda query, k, mode, fusion, where: list(
            face.search(query, k, mode=mode, fusion=fusion, filter=where)
        ),
        "read": face.read,
        "stats": lambda: face.stats() if who is not None else None,
        "bad": lambda: face.search("x", filter={"agent_id": {"$like": "%"}}),
    }
    try:
        result = calls[operation](*arguments)
    except AgentRagError as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(result, StoreStats):  # purging is due within 30 seconds, for all owners at once
        result = replace(result, unpurged=0, unpurged_since=None)
    return replace(result, seconds=0.0) if hasattr(result, "seconds") else result  # type: ignore[type-var]


def replay(actions: list[Action], include: Callable[[str | None], bool], **options: Any) -> list[object]:
    folder = fresh_folder()
    try:
        embeddings = HashingEmbeddings(16)
        with DualIndexer(folder / "s", embeddings, chunking=Chunking(30), analyzer=ANALYZER, **options) as indexer:
            return [outcome(indexer, action) for action in actions if include(action[0])]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compare(seed: int, length: int, **options: Any) -> int:
    actions = history(random.Random(seed), length)
    everything = replay(actions, lambda who: True, **options)
    for agent in AGENTS:
        alone = replay(actions, lambda who, agent=agent: who in {None, agent}, **options)
        mine = [
            (action, answer) for action, answer in zip(actions, everything, strict=True) if action[0] in {None, agent}
        ]
        for (action, answer), expected in zip(mine, alone, strict=True):
            assert answer == expected, f"seed {seed}: {agent!r} can tell from {action} that others are there"
    return len(actions)


@pytest.mark.parametrize("seed", range(4))
def test_removing_the_other_agents_actions_changes_no_result_of_an_agent(seed):
    assert compare(seed, 60, chroma="auto") == 60


def test_striking_out_the_others_changes_nothing_over_hnsw():
    assert compare(99, 25, chroma="always", exact_limit=0) == 25


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 160))
def test_long_histories_tell_nothing_of_the_others(seed):
    assert compare(seed, 200, chroma="auto") == 200
