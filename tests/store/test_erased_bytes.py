"""Whatever way a document came into the store, and whatever way it went, no file holds a byte of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
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
from langchain_agentrag.langchain.record_manager import HybridRecordManager, document_key
from langchain_agentrag.langchain.vectorstore import HybridVectorStore
from langchain_agentrag.langgraph import HybridStore
from langchain_agentrag.llama_index import HybridVectorStore as LlamaVectorStore
from langchain_agentrag.store import vector_index
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
