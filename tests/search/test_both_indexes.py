"""Where Chroma holds a partition, both indexes are searched at the same time; the results are the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from langchain_core.documents import Document

from langchain_agentrag import DualIndexer
from langchain_agentrag.embedding import HashingEmbeddings
from langchain_agentrag.errors import AgentRagError
from langchain_agentrag.store.vector_index import ChromaVectorIndex

AGENTS = ("planner", "审计员", None)
TEXTS = (
    "泵 {n} 的密封件每 {n} 个月更换一次",
    "valve {n} closes at {n} bar, code E{n:04d}",
    "用户 {n} 的 refund 已在 {n} 日退回",
)
QUERIES = ("密封件 更换", "valve E0017", "refund 退回 7", "pump 泵 31 bar", "退款")


@pytest.fixture
def indexer(tmp_path: Path) -> Iterator[DualIndexer]:
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64), chroma="always", exact_limit=0) as opened:
        for agent in AGENTS:
            opened.index_documents(documents(agent, range(60)), agent)
        opened.optimize()
        yield opened


def documents(agent: str | None, numbers: range) -> list[Document]:
    return [
        Document(id=f"{agent}-{n}-{i}", page_content=text.format(n=n) + f" ({agent})")
        for n in numbers
        for i, text in enumerate(TEXTS)
    ]


def answer(indexer: DualIndexer, query: str, agent: str | None) -> list[tuple[str, float, float | None]]:
    hits = indexer.search(query, k=8, agent_id=agent)
    assert not hits.degraded
    assert all(hit.agent_id in {None, agent} for hit in hits)
    return [(hit.doc_id, hit.score, hit.confidence) for hit in hits]


def test_chroma_is_searched_on_another_thread(indexer: DualIndexer, monkeypatch: pytest.MonkeyPatch):
    threads, real = [], ChromaVectorIndex.nearest

    def nearest(self: ChromaVectorIndex, *args: object) -> object:
        threads.append(threading.current_thread())
        return real(self, *args)

    monkeypatch.setattr(ChromaVectorIndex, "nearest", nearest)
    indexer.search("密封件", agent_id="planner")
    assert threads
    assert threading.current_thread() not in threads


def test_many_threads_get_what_one_gets(indexer: DualIndexer):
    requests = [(query, agent) for query in QUERIES for agent in AGENTS] * 12
    alone = {pair: answer(indexer, *pair) for pair in set(requests)}
    with ThreadPoolExecutor(24) as pool:  # three times as many as may search both indexes at once
        answers = list(pool.map(lambda pair: answer(indexer, *pair), requests))
    assert answers == [alone[pair] for pair in requests]


def test_what_was_written_is_found_by_searches_under_way(indexer: DualIndexer):
    done, numbers = threading.Event(), count(1000)

    def write() -> None:
        try:
            for number in (next(numbers) for _ in range(25)):
                agent = AGENTS[number % 3]
                indexer.index_documents(documents(agent, range(number, number + 1)), agent)
                assert any(hit.doc_id == f"{agent}-{number}-1" for hit in indexer.search(f"E{number}", agent_id=agent))
                indexer.delete([f"{agent}-{number - 3}-1"], agent_id=agent)
        finally:
            done.set()

    def search(place: int) -> int:
        rounds = 0
        while not done.is_set():
            answer(indexer, QUERIES[(place + rounds) % len(QUERIES)], AGENTS[rounds % 3])
            rounds += 1
        return rounds

    with ThreadPoolExecutor(7) as pool:
        searches = [pool.submit(search, place) for place in range(6)]
        pool.submit(write).result()
        assert all(future.result() > 0 for future in searches)
    assert indexer.verify().ok


def close_amid_searches(opened: DualIndexer) -> list[int | str]:
    started, outcomes = threading.Barrier(9), []

    def search() -> None:
        started.wait()
        try:
            for query in QUERIES * 4:
                outcomes.append(len(opened.search(query)))  # noqa: PERF401  what was found before an error counts
        except AgentRagError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=search) for _ in range(8)]
    for thread in threads:
        thread.start()
    started.wait()
    opened.close()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes


def test_closing_ends_searches_with_a_result_or_a_closed_store_error(tmp_path: Path):
    for _ in range(5):
        opened = DualIndexer(tmp_path / "store", HashingEmbeddings(64), chroma="always", exact_limit=0)
        opened.index_documents(documents(None, range(20)))
        assert len(close_amid_searches(opened)) >= 8
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("agentrag-search")]


def test_a_search_by_whoever_holds_the_write_lock_is_answered(tmp_path: Path):
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64), chroma="always", exact_limit=0) as opened:
        opened.index_documents(documents(None, range(20)))
        opened.optimize()
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64), chroma="always", exact_limit=0) as opened:
        with opened._store.lock.acquire():
            locked = [(hit.doc_id, hit.score) for hit in opened.search("密封件 更换 7")]
        assert locked == [(hit.doc_id, hit.score) for hit in opened.search("密封件 更换 7")]
