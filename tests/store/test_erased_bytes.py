"""Whatever way a document came into the store, and whatever way it went, no file holds a byte of it."""

from __future__ import annotations

import json
import shutil
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import index
from llama_index.core.schema import TextNode
from sqlalchemy import create_engine

from langchain_agentrag import AgentMemoryConnector, DatabaseConnector, DualIndexer, FileSystemConnector, SourceDocument
from langchain_agentrag.agent.recorder import MemoryRecorder
from langchain_agentrag.connectors.memory.turns import ToolCall, Turn
from langchain_agentrag.errors import UsageError
from langchain_agentrag.langchain.record_manager import HybridRecordManager, document_key
from langchain_agentrag.langchain.vectorstore import HybridVectorStore
from langchain_agentrag.langgraph import HybridStore
from langchain_agentrag.llama_index import HybridVectorStore as LlamaVectorStore
from langchain_agentrag.store import background_indexing, vector_index
from langchain_agentrag.store.keyword_index import TantivyKeywordIndex
from langchain_agentrag.text import FIELDS
from tests.store.erasure import find_deleted_text, find_vectors, wait_until_purged

ALL = {"doc_id": {"$exists": True}}
LAYOUTS = {
    "exact": {"chroma": "auto"},
    "graph": {"chroma": "always", "exact_limit": 0},
    "behind": {"chroma": "auto", "exact_limit": 3},  # vectors reach the graph after the commit
}


class RandomVectors(Embeddings):
    """A direction of its own for every text, without zeros, so that its bytes tell it."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        seed = int.from_bytes(text.encode("utf-8")[-48:], "little") % 2**63
        return np.random.default_rng(seed).normal(size=24).tolist()


class Marks:
    """Words that occur nowhere else."""

    def __init__(self) -> None:
        self.used: list[str] = []

    def __call__(self, field: str) -> str:
        number = len(self.used)
        mark = f"zq{field}{'qxjv'[number % 4]}{number:03d}kx"
        self.used.append(mark)
        return mark

    def zh(self) -> str:
        mark = f"龘{chr(0x9F00 + len(self.used) * 3)}鱻{chr(0x9E01 + len(self.used) * 2)}靐"
        self.used.append(mark)
        return mark

    def text(self, field: str) -> str:
        return f"The {self(field)} of {self(field)}. 机器的{self.zh()}编号。"


def write_documents(store: DualIndexer, owner: str | None, mark: Marks, tmp_path: Path) -> Callable[[], None]:
    metadata = {"title": mark("title"), mark("key"): mark("value"), "标签": mark.zh(), "session": mark("session")}
    documents = [SourceDocument(mark("id"), mark.text("text") * 3, metadata), SourceDocument(mark.zh(), mark.text("t"))]
    store.index_documents(documents, owner)
    return lambda: None


def write_files(store: DualIndexer, owner: str | None, mark: Marks, tmp_path: Path) -> Callable[[], None]:
    folder = tmp_path / mark("root") / mark("folder") / mark.zh()
    folder.mkdir(parents=True)
    file = folder / f"{mark('file')}.md"
    file.write_text(f"# {mark('heading')}\n\n{mark.text('body')}", encoding="utf-8")
    connector = FileSystemConnector(folder.parent.parent, agent_id=owner, name=mark("source"))
    store.sync(connector)

    def vanish() -> None:
        file.unlink()
        store.sync(connector)

    return vanish


def write_rows(store: DualIndexer, owner: str | None, mark: Marks, tmp_path: Path) -> Callable[[], None]:
    engine = create_engine(f"sqlite:///{tmp_path / 'rows.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE notes(id TEXT PRIMARY KEY, body TEXT)")
        connection.exec_driver_sql("INSERT INTO notes VALUES (?, ?)", (mark("rowid"), mark.text("cell")))
    connector = DatabaseConnector(engine, table="notes", agent_id=owner)
    store.sync(connector)

    def vanish() -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM notes")
        store.sync(connector)

    return vanish


def write_memory(store: DualIndexer, owner: str | None, mark: Marks, tmp_path: Path) -> Callable[[], None]:
    folder = tmp_path / "chats"
    folder.mkdir()
    file = folder / f"{mark('chat')}.json"
    messages = [{"role": "user", "content": mark.text("said")}, {"role": "assistant", "content": mark.text("answered")}]
    file.write_text(json.dumps(messages), encoding="utf-8")
    (folder / "other.json").write_text(json.dumps([{"role": "user", "content": "hello there"}]), encoding="utf-8")
    connector = AgentMemoryConnector(folder, agent_id=owner, shared=owner is None, name=mark("memory"))
    assert not store.sync(connector).failed

    def vanish() -> None:
        file.unlink()
        store.sync(connector)

    return vanish


def write_with_record_manager(store: DualIndexer, owner: str | None, mark: Marks, tmp_path: Path) -> Callable[[], None]:
    vectors = HybridVectorStore(store) if owner is None else HybridVectorStore(store).for_agent(owner)
    records = HybridRecordManager(store, mark("namespace"), agent_id=owner)
    documents = [Document(mark.text("page"), metadata={"source": f"/{mark('group')}/{mark.zh()}.txt"})]

    def run(batch: list[Document]) -> None:
        index(batch, records, vectors, cleanup="full", source_id_key="source", key_encoder=document_key)

    run(documents)
    return lambda: run([])


def write_nodes(store: DualIndexer, owner: str | None, mark: Marks, tmp_path: Path) -> Callable[[], None]:
    vectors = LlamaVectorStore(store) if owner is None else LlamaVectorStore(store).for_agent(owner)
    node = TextNode(text=mark.text("node"), id_=mark("nodeid"), metadata={mark("nodekey"): mark("nodevalue")})
    node.embedding = RandomVectors().embed_query(node.text)
    vectors.add([node])
    return lambda: vectors.delete_nodes([node.node_id])


def write_items(store: DualIndexer, owner: str | None, mark: Marks, tmp_path: Path) -> Callable[[], None]:
    items = HybridStore(store, agent_id=owner, shared=owner is None)
    namespace, key = (mark("space"), "x"), mark("itemkey")
    items.put(namespace, key, {"text": mark.text("item"), mark("field"): mark("itemvalue")})
    return lambda: items.delete(namespace, key)


def write_tool_calls(store: DualIndexer, owner: str | None, mark: Marks, tmp_path: Path) -> Callable[[], None]:
    assert owner is not None
    recorder = MemoryRecorder(store, f"sqlite:///{tmp_path / 'memory.db'}")
    session = mark("toolsession")
    now = datetime.now().astimezone()
    call = ToolCall(
        session=session,
        entry_id="1",
        tool=mark("tool"),
        arguments={mark("argument"): mark("argvalue")},
        result=mark.text("result"),
        time=now,
    )
    recorder.record(owner, [call, Turn(session=session, entry_id="2", role="assistant", text=mark.text("turn"))])
    assert not recorder.problems

    def vanish() -> None:
        assert recorder.forget(owner, session=session) == 2

    return vanish


WAYS = [
    write_documents, write_files, write_rows, write_memory, write_with_record_manager, write_nodes, write_items,
    write_tool_calls,
]  # fmt: skip


def open_store(tmp_path: Path, layout: str) -> DualIndexer:
    return DualIndexer(tmp_path / "store", RandomVectors(), **LAYOUTS[layout])


def assert_no_byte(store: DualIndexer, marks: list[str], vectors: list[list[float]]) -> None:
    findings = find_deleted_text(store._store, marks)
    assert findings == [], {finding: marks[int(finding.rsplit(" ", 1)[1])] for finding in findings if "text" in finding}
    assert find_vectors(store.path, vectors) == []
    for partition in store._store.catalog.partitions():
        folder = store._store.indexes.keyword_folder(partition.name)
        if folder.exists():
            searcher = TantivyKeywordIndex(folder)._index.searcher()
            assert not [mark for mark in marks for name in FIELDS if searcher.doc_freq(name, mark)]


def vectors_of(store: DualIndexer, owner: str | None) -> list[list[float]]:
    query = (
        "SELECT vector FROM vectors JOIN chunks USING (row) JOIN partitions p ON p.id = partition WHERE p.owner IS ?"
    )
    rows = store._store.catalog.connection().execute(query, (owner,)).fetchall()
    return [np.frombuffer(packed, "<f4").tolist() for (packed,) in rows]


def answers(store: DualIndexer) -> list[object]:
    """What a bystander gets, to the last bit."""
    view = store.for_agent("bystander")
    found = [view.search(query, 5, mode=mode) for query in ("harvest 收割机", "wheel") for mode in ("hybrid", "vector")]
    return [*view.get(), *([(hit.doc_id, hit.text, hit.score) for hit in hits] for hits in found)]


@pytest.fixture
def others() -> list[SourceDocument]:
    return [SourceDocument(f"o{n}", f"harvest wheel {n} 收割机 的 第{n}个轮子", {"n": n}) for n in range(12)]


GOING = ["erase", "delete, then wait", "delete, then close", "gone from their sources, then wait", "forget"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("owner", ["agent", "shared"])
@pytest.mark.parametrize("going", GOING)
def test_no_byte_of_a_document_that_went_is_in_any_file(
    tmp_path: Path, others: list[SourceDocument], layout: str, owner: str, going: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(vector_index.HNSW, "sync_threshold", 10)  # rows between two writes of the graph's files
    if (going, owner) == ("forget", "shared"):
        pytest.skip("shared documents are erased")
    mark = Marks()
    agent = mark("agent") if owner == "agent" else None
    store = open_store(tmp_path, layout)
    store.index_documents(others, "bystander")
    ways = [way for way in WAYS if agent is not None or way is not write_tool_calls]
    vanish = [way(store, agent, mark, tmp_path) for way in ways]
    store.optimize()
    vectors = vectors_of(store, agent)
    assert len(vectors) > len(ways)
    assert any(name.endswith("data_level0.bin") for name in find_vectors(store.path, vectors)) is (layout != "exact")
    assert len({finding.rsplit(" ", 1)[1] for finding in find_deleted_text(store._store, mark.used)}) > 20
    view = store if agent is None else store.for_agent(agent)
    if going == "erase":
        assert view.erase(filter=ALL).deleted > len(ways)
    elif going == "forget":
        view.forget()
    elif going == "gone from their sources, then wait":
        view.erase(filter={"title": {"$exists": True}})
        for forget in vanish:
            forget()
        view.delete(filter=ALL)
    else:
        view.delete(filter=ALL)
        assert store.stats().unpurged > len(ways)
    assert not view.get(filter=ALL) or all(document.agent_id != agent for document in view.get(filter=ALL))
    expected = answers(store)
    if going.endswith("wait"):
        wait_until_purged(store)
    if going.endswith("close"):
        store.close()
    else:
        assert_no_byte(store, mark.used, vectors)
        assert answers(store) == expected
        assert store.verify().ok
        store.close()
    with open_store(tmp_path, layout) as again:
        assert_no_byte(again, mark.used, vectors)
        assert again.stats().unpurged_since is None
        assert answers(again) == expected
        assert again.verify(deep=True).ok


@pytest.mark.parametrize("layout", ["graph", "behind"])
def test_memory_that_chroma_stores_with_a_growing_graph_is_zeroed(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(vector_index.HNSW, "sync_threshold", 10)
    with open_store(tmp_path, layout) as store:
        for start in range(0, 400, 40):
            texts = [f"secret {number} " + "word " * 200 for number in range(start, start + 40)]
            store.index_documents([SourceDocument(text[:12], text) for text in texts])
            store.optimize()
            for header in (tmp_path / "store" / "chroma").glob("*/header.bin"):
                capacity, elements, width = struct.unpack("<i6Q", header.read_bytes()[:52])[2:5]
                content = header.with_name("data_level0.bin").read_bytes()
                assert len(content) in {capacity * width, elements * width}
                assert not any(content[elements * width :])


# -- names ------------------------------------------------------------------------------------------------------------


def test_forgetting_an_agent_removes_the_names_of_files_without_documents_and_no_other(tmp_path: Path):
    """An agent's id may be part of another's, or look like one in the name of a source."""
    agents = ["lina", "lin", "lina ", 'x", "lina', "lina\x00", "琳娜"]
    with open_store(tmp_path, "exact") as store:
        for number, agent in enumerate([*agents, None]):
            folder = tmp_path / f"root{number}" / f"empty-folder-{number}"
            folder.mkdir(parents=True)
            (folder / f"blank{number}.txt").write_text("")
            name = '["shared", "lina"]' if agent is None else f"source{number}"
            store.sync(FileSystemConnector(tmp_path / f"root{number}", agent_id=agent, name=name))
        query = "SELECT item FROM items ORDER BY item"
        connection = store._store.catalog.connection()
        before = [item for (item,) in connection.execute(query)]
        assert len(before) == len(agents) + 1
        store.forget_agent("lina")
        assert [item for (item,) in connection.execute(query)] == before[1:]
        assert find_deleted_text(store._store, ["blank0", "empty-folder-0", "source0"]) == []
        store.for_agent("琳娜").forget()
        assert [item for (item,) in connection.execute(query)] == [*before[1:-2], before[-1]]
        assert find_deleted_text(store._store, ["琳娜", "source5", "blank5"]) == []


@pytest.mark.parametrize("how", ["erase", "delete", "replace and erase", "expire"])
def test_records_of_a_document_go_with_it_in_every_namespace_of_its_owner_only(tmp_path: Path, how: str):
    now = datetime(2026, 3, 2, tzinfo=UTC)
    with DualIndexer(tmp_path / "store", "hash", clock=lambda: now) as store:
        managers = {
            (owner, space): HybridRecordManager(store, space, agent_id=owner)
            for owner in ("lina", "otto", None)
            for space in ("one", "two")
        }
        for owner in ("lina", "otto", None):
            store.index_documents(
                [SourceDocument("doc", f"text of {owner}"), SourceDocument("other", "x")], owner, ttl=60
            )
        for (owner, space), manager in managers.items():
            manager.update(["doc", "other"], group_ids=[f"/groups/{owner}-{space}", "/groups/kept"])
        if how == "expire":
            now += timedelta(minutes=2)
            store.expire(owners=["lina"])
            kept = []
        else:
            if how == "replace and erase":
                store.index_documents([SourceDocument("doc", "new text")], "lina")
            (store.delete if how == "delete" else store.erase)(["doc"], agent_id="lina")
            kept = ["other"]
        for (owner, _), manager in managers.items():
            assert manager.list_keys() == (kept if owner == "lina" else ["doc", "other"])
        wait_until_purged(store)
        assert find_deleted_text(store._store, ["lina-one", "lina-two"]) == []


def test_keys_deleted_by_a_record_manager_leave_no_group(tmp_path: Path):
    with open_store(tmp_path, "exact") as store:
        manager = HybridRecordManager(store, agent_id="lina")
        manager.update(["k1", "k2"], group_ids=["quillfeather/one.txt", "quillfeather/two.txt"])
        manager.update(["k1"], group_ids=["elsewhere.txt"])
        wait_until_purged(store)
        assert find_deleted_text(store._store, ["quillfeather/one"]) == []
        manager.delete_keys(["k1", "k2"])
        wait_until_purged(store)
        assert find_deleted_text(store._store, ["quillfeather"]) == []


def test_the_time_of_a_record_manager_follows_its_owners_records_only(tmp_path: Path):
    with open_store(tmp_path, "exact") as store:
        far = time.time() + 10_000
        store.record_keys("elsewhere", agent_id="otto").put(["k"], ["g"], far)
        store.record_keys("elsewhere").put(["k"], ["g"], far + 5)
        lina = HybridRecordManager(store, agent_id="lina")
        assert abs(lina.get_time() - time.time()) < 5
        assert HybridRecordManager(store, agent_id="otto").get_time() == far
        assert HybridRecordManager(store).get_time() == far + 5
        store.record_keys("elsewhere", agent_id="lina").put(["k"], ["g"], far - 1)
        assert lina.get_time() == far - 1, "time does not run backwards between namespaces of one owner"


# -- what waits -------------------------------------------------------------------------------------------------------


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background never comes to work by itself."""
    monkeypatch.setattr(background_indexing, "_WRITE_DELAY", 3600.0)
    monkeypatch.setattr(background_indexing, "_MAX_PURGE_DELAY", 3600.0)


@pytest.mark.usefixtures("idle")
def test_stats_tell_what_waits_and_a_view_tells_of_its_own_only(tmp_path: Path):
    with open_store(tmp_path, "behind") as store:
        for owner in ("lina", "otto", None):
            store.index_documents([SourceDocument(f"d{n}", f"text {n} of {owner}") for n in range(10)], owner)
        lina, otto, idle = store.for_agent("lina"), store.for_agent("otto"), store.for_agent("nobody")
        assert [view.stats().unindexed for view in (lina, otto, idle)] == [10, 10, 0]
        assert (lina.stats().unpurged, lina.stats().unpurged_since) == (0, None)
        before = datetime.now(UTC)
        otto.delete(["d1", "d2"])
        otto.index_documents([SourceDocument("d3", "another text")])
        store.delete(["d4"])
        assert otto.stats().unpurged == 3
        assert before <= otto.stats().unpurged_since <= datetime.now(UTC)
        for view in (lina, idle):
            assert (view.stats().unpurged, view.stats().unpurged_since) == (0, None)
        assert store.stats().unpurged == 4
        assert store.verify().ok, "what waits is no damage"
        assert not otto.search("text 1 of otto", filter={"doc_id": "d1", "agent_id": "otto"})
        lina.erase(["d9"])
        assert (store.stats().unpurged, store.stats().unpurged_since) == (0, None)


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_waits_is_found_by_no_search_and_pushes_out_no_other(tmp_path: Path, layout: str):
    with open_store(tmp_path, layout) as store:
        store.index_documents([SourceDocument(f"d{n}", f"wheel {n}") for n in range(60)])
        store.optimize()
        store.delete([f"d{n}" for n in range(5, 60)])
        for mode in ("vector", "keyword", "hybrid"):
            hits = store.search("wheel 30", 5, mode=mode)
            assert sorted(hit.doc_id for hit in hits) == [f"d{n}" for n in range(5)]
        assert store.get(filter={"doc_id": {"$in": ["d30"]}}) == []


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_process_that_ends_without_closing_leaves_it_to_the_next_opening(tmp_path: Path, layout: str):
    store = open_store(tmp_path, layout)
    store.index_documents([SourceDocument(f"d{n}", f"wheel {n} {'quillfeather' * (n == 3)}") for n in range(12)])
    store.optimize()
    store.delete(["d3"])
    store._store.background_indexer.stop()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")  # what a kill leaves behind
    with DualIndexer(tmp_path / "copy", RandomVectors(), **LAYOUTS[layout]) as again:
        assert again.stats().unpurged_since is None
        assert find_deleted_text(again._store, ["quillfeather"]) == []
        assert again.verify().ok
    store.close()


@pytest.mark.parametrize("method", ["delete", "erase"])
def test_an_empty_or_missing_selection_erases_nothing(tmp_path: Path, method: str):
    with open_store(tmp_path, "exact") as store:
        store.index_documents(["a", "b"])
        view = store.for_agent("lina")
        view.index_documents(["a", "b"])
        for call in (getattr(store, method), getattr(view, method)):
            for arguments in ({}, {"filter": {}}, {"filter": {"$and": []}}):
                with pytest.raises(UsageError):
                    call(**arguments)
            assert call([]).deleted == 0
            with pytest.raises(TypeError):
                call(["x"], where={"n": 1})
        assert (store.stats().documents, view.stats().documents) == (4, 4)
        assert view.erase(filter={"agent_id": {"$exists": True}}).deleted == 2
        assert store.stats().documents == 2


async def test_erase_for_asyncio(tmp_path: Path):
    with open_store(tmp_path, "exact") as store:
        store.index_documents([SourceDocument("d", "quillfeather")])
        assert (await store.aerase(["d"])).deleted == 1
        assert find_deleted_text(store._store, ["quillfeather"]) == []
