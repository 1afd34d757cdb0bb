"""Writes of many callers at once: few commits, each caller's own outcome and owner, in order, and closing waits."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.store.base import PutOp

from langchain_agentrag import DualIndexer, HashingEmbeddings, HybridStore
from langchain_agentrag.errors import InvalidDocumentError, ScopeError, StoreClosedError, StoreLockedError
from tests.fakes import FixedClock

NOTES = ("users", "lina")


@pytest.fixture
def indexer(tmp_path):
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64)) as opened:
        yield opened


@pytest.fixture
def store(indexer):
    return HybridStore(indexer, agent_id="lina")


@pytest.fixture
def commits(indexer, monkeypatch):
    """Number of documents of each write."""
    sizes: list[int] = []
    write = indexer.index_documents

    def counted(documents, *arguments, **options):
        sizes.append(len(documents))
        return write(documents, *arguments, **options)

    monkeypatch.setattr(indexer, "index_documents", counted)
    return sizes


def keys(items) -> set[str]:
    return {item.key for item in items}


async def test_puts_awaited_together_are_few_commits(store, commits):
    await asyncio.gather(*(store.aput(NOTES, f"k{n}", {"text": f"冷却液 note {n}"}) for n in range(60)))
    assert sum(commits) == 60
    assert len(commits) <= 5
    assert keys(await store.asearch(NOTES, limit=100)) == {f"k{n}" for n in range(60)}
    assert (await store.asearch(NOTES, query="note 37", limit=1))[0].key == "k37"


def test_puts_of_many_threads_are_few_commits(store, commits):
    barrier = threading.Barrier(20)

    def put(number):
        barrier.wait(10)
        store.put(NOTES, f"k{number}", {"text": f"note {number}"})
        assert store.get(NOTES, f"k{number}").value == {"text": f"note {number}"}

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(put, range(20)))
    assert sum(commits) == 20
    assert len(commits) < 20


async def test_puts_of_two_event_loops_are_joined_in_one_store(store):
    def run(name):
        async def puts():
            await asyncio.gather(*(store.aput(NOTES, f"{name}{n}", {"text": "x"}) for n in range(10)))

        asyncio.run(puts())

    await asyncio.gather(*(asyncio.to_thread(run, name) for name in "ab"))
    assert len(store.search(NOTES, limit=100)) == 20


async def test_a_put_that_fails_fails_its_own_caller_only(store):
    values = [{"text": "one"}, {"text": object()}, 5, {"text": "四"}]
    outcomes = await asyncio.gather(
        *(store.aput(NOTES, f"k{n}", value) for n, value in enumerate(values)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None), InvalidDocumentError, InvalidDocumentError, type(None)
    ]  # fmt: skip
    assert keys(store.search(NOTES)) == {"k0", "k3"}


async def test_a_text_that_the_model_refuses_fails_its_own_caller_only(tmp_path):
    class Choosy(HashingEmbeddings):
        def embed_documents(self, texts):
            if any("forbidden" in text for text in texts):
                raise ValueError("content policy")
            return super().embed_documents(texts)

    with DualIndexer(tmp_path / "store", Choosy(64)) as indexer:
        store = HybridStore(indexer, agent_id="lina")
        texts = ["fine", "forbidden", "也可以"]
        outcomes = await asyncio.gather(
            *(store.aput(NOTES, text, {"text": text}) for text in texts), return_exceptions=True
        )
        assert [isinstance(outcome, Exception) for outcome in outcomes] == [False, True, False]
        assert keys(store.search(NOTES)) == {"fine", "也可以"}


async def test_an_operation_of_a_batch_that_fails_undoes_its_own_batch_only(store):
    outcomes = await asyncio.gather(
        store.abatch([PutOp(NOTES, "a", {"text": "a"}), PutOp(NOTES, "b", 5)]),
        store.abatch([PutOp(NOTES, "c", {"text": "c"}), PutOp(NOTES, "d", {"text": "d"})]),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], InvalidDocumentError)
    assert keys(store.search(NOTES)) == {"c", "d"}


async def test_a_locked_store_fails_all_at_once(store, indexer, monkeypatch):
    calls = []

    def locked(*arguments, **_options):
        calls.append(arguments)
        raise StoreLockedError("busy")

    monkeypatch.setattr(indexer, "index_documents", locked)
    outcomes = await asyncio.gather(
        *(store.aput(NOTES, f"k{n}", {"text": "x"}) for n in range(30)), return_exceptions=True
    )
    assert all(isinstance(outcome, StoreLockedError) for outcome in outcomes)
    assert len(calls) < 10


async def test_writes_to_one_key_keep_their_order(store):
    async def put(number):
        await store.aput(NOTES, "k", {"n": number})

    await asyncio.gather(*(put(number) for number in range(40)))
    assert store.get(NOTES, "k").value == {"n": 39}
    await asyncio.gather(store.aput(NOTES, "k", {"n": 1}), store.adelete(NOTES, "k"))
    assert store.get(NOTES, "k") is None
    await asyncio.gather(store.adelete(NOTES, "k"), store.aput(NOTES, "k", {"n": 2}))
    assert store.get(NOTES, "k").value == {"n": 2}


async def test_an_item_deleted_and_put_together_is_a_new_one(store):
    await store.aput(NOTES, "k", {"n": 1})
    before = store.get(NOTES, "k").created_at
    await asyncio.gather(store.adelete(NOTES, "k"), store.aput(NOTES, "k", {"n": 2}))
    assert store.get(NOTES, "k").created_at > before


async def test_each_put_goes_to_the_agent_of_its_own_run(indexer):
    """Joined writes run in the contexts of their callers: no item reaches another agent's memory."""
    store = HybridStore(indexer, agent_id_key="agent")
    agents = ["lina", "otto", "小明"] * 8

    async def remember(number):
        await store.aput(("notes",), f"k{number}", {"text": f"secret {agents[number]} {number}"})

    runs = (
        RunnableLambda(remember).ainvoke(number, {"configurable": {"agent": agent}})
        for number, agent in enumerate(agents)
    )
    outcomes = await asyncio.gather(*runs, store.aput(("notes",), "nobody", {"text": "x"}), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None)] * 24 + [ScopeError]
    for agent in set(agents):
        items = HybridStore(indexer, agent_id=agent).search((), limit=100)
        assert keys(items) == {f"k{number}" for number, other in enumerate(agents) if other == agent}
        assert all(agent in item.value["text"] for item in items)
    assert HybridStore(indexer, shared=True).search(()) == []


async def test_a_put_cancelled_before_it_started_is_not_written(store, indexer, monkeypatch):
    started, goes_on = threading.Event(), threading.Event()
    write = indexer.index_documents

    def slow(*arguments, **options):
        started.set()
        assert goes_on.wait(10)
        return write(*arguments, **options)

    monkeypatch.setattr(indexer, "index_documents", slow)
    first = asyncio.create_task(store.aput(NOTES, "first", {"text": "x"}))
    await asyncio.to_thread(started.wait, 10)
    second = asyncio.create_task(store.aput(NOTES, "second", {"text": "x"}))
    await asyncio.sleep(0.05)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    goes_on.set()
    await first
    await store.aput(NOTES, "third", {"text": "x"})
    assert keys(store.search(NOTES)) == {"first", "third"}


async def test_closing_waits_for_writes_that_were_started_and_later_ones_are_refused(tmp_path):
    indexer = DualIndexer(tmp_path / "store", HashingEmbeddings(64))
    store = HybridStore(indexer, agent_id="lina")
    write, started = indexer.index_documents, threading.Event()

    def slow(*arguments, **options):
        started.set()
        time.sleep(0.2)
        return write(*arguments, **options)

    indexer.index_documents = slow
    puts = [asyncio.create_task(store.aput(NOTES, f"k{n}", {"text": "x"})) for n in range(20)]
    await asyncio.to_thread(started.wait, 10)
    await asyncio.to_thread(indexer.close)
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    written = {f"k{n}" for n, outcome in enumerate(outcomes) if outcome is None}
    assert written
    assert all(outcome is None or isinstance(outcome, StoreClosedError) for outcome in outcomes)
    with pytest.raises(StoreClosedError):
        await store.aput(NOTES, "late", {"text": "x"})
    with pytest.raises(StoreClosedError):
        store.put(NOTES, "late", {"text": "x"})
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64)) as reopened:
        assert keys(HybridStore(reopened, agent_id="lina").search(NOTES, limit=100)) == written


async def test_reads_do_not_wait_for_writes(store, indexer, monkeypatch):
    store.put(NOTES, "old", {"text": "冷却液"})
    started, goes_on = threading.Event(), threading.Event()
    write = indexer.index_documents

    def slow(*arguments, **options):
        started.set()
        assert goes_on.wait(10)
        return write(*arguments, **options)

    monkeypatch.setattr(indexer, "index_documents", slow)
    put = asyncio.create_task(store.aput(NOTES, "new", {"text": "x"}))
    await asyncio.to_thread(started.wait, 10)
    assert keys(await store.asearch(NOTES, query="冷却液")) == {"old"}
    assert await store.aget(NOTES, "new") is None
    goes_on.set()
    await put
    assert await store.aget(NOTES, "new") is not None


async def test_lifetimes_that_many_reads_renew_are_few_commits(tmp_path):
    clock = FixedClock(datetime(2026, 3, 2, 9, 0, tzinfo=UTC))
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64), clock=clock) as indexer:
        store = HybridStore(indexer, agent_id="lina", ttl={"refresh_on_read": True})
        store.batch([PutOp(NOTES, f"k{n}", {"text": f"冷却液 {n}"}, ttl=10) for n in range(30)])
        clock.pass_minutes(8)
        sizes: list[int] = []
        write = indexer.index_documents
        indexer.index_documents = lambda documents, *rest, **more: (
            sizes.append(len(documents)) or write(documents, *rest, **more)
        )
        await asyncio.gather(*(store.aget(NOTES, f"k{n}") for n in range(30)), store.asearch(NOTES, limit=30))
        assert sum(sizes) == 30  # each item once, though two reads renew it
        assert len(sizes) < 30
        clock.pass_minutes(8)
        assert len(store.search(NOTES, limit=100)) == 30


def test_renewing_a_lifetime_never_undoes_a_later_put(tmp_path):
    """A put, or a delete, between a read and the renewal that the read asks for."""
    clock = FixedClock(datetime(2026, 3, 2, 9, 0, tzinfo=UTC))
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64), clock=clock) as indexer:
        store, other = (HybridStore(indexer, agent_id="lina", ttl={"default_ttl": 10}) for _ in range(2))
        for key in ("put", "deleted"):
            store.put(NOTES, key, {"text": "old"})
        clock.pass_minutes(5)
        renew = store._writes.run

        def overtaken(ops):
            clock.pass_minutes(1)
            other.put(NOTES, "put", {"text": "newer"})
            other.delete(NOTES, "deleted")
            return renew(ops)

        store._writes.run = overtaken
        assert len(store.search(NOTES)) == 2
        assert other.get(NOTES, "put").value == {"text": "newer"}
        assert other.get(NOTES, "deleted") is None


def test_a_model_that_puts_while_it_embeds_does_not_wait_for_itself(tmp_path):
    class Remembering(HashingEmbeddings):
        store = None

        def embed_documents(self, texts):
            if self.store is not None and "outer" in texts[0]:
                self.store.delete(NOTES, "absent")
            return super().embed_documents(texts)

    model = Remembering(64)
    with DualIndexer(tmp_path / "store", model) as indexer:
        model.store = HybridStore(indexer, agent_id="lina")
        done = []
        thread = threading.Thread(
            target=lambda: done.append(model.store.put(NOTES, "k", {"text": "outer"})), daemon=True
        )
        thread.start()
        thread.join(20)
        assert done == [None]
