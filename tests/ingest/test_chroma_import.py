"""Adopting a Chroma collection: text, metadata and vectors come over, nothing is embedded or cut again."""

from __future__ import annotations

import json
from pathlib import Path

import chromadb
import numpy as np
import pytest
from chromadb.config import Settings
from langchain_core.documents import Document

from langchain_agentrag import DualIndexer
from langchain_agentrag.errors import NotAStoreError, ScopeError, StoreMismatchError, UsageError
from tests.fakes import RecordingEmbeddings

DIM = 64
QUIET = Settings(anonymized_telemetry=False)


@pytest.fixture
def model() -> RecordingEmbeddings:
    return RecordingEmbeddings(dim=DIM)


@pytest.fixture
def client(tmp_path: Path):
    opened = chromadb.PersistentClient(str(tmp_path / "chroma"), settings=QUIET)
    yield opened
    opened.close()


def langchain_shape(client, texts: list[str], metadatas: list[dict] | None = None, name: str = "langchain"):
    """As langchain-chroma writes: texts as documents, flat metadata or none, ids of its own."""
    collection = client.get_or_create_collection(name, embedding_function=None)
    collection.upsert(
        ids=[f"id-{number}" for number in range(len(texts))],
        documents=texts,
        embeddings=RecordingEmbeddings(dim=DIM).embed_documents(texts),
        metadatas=metadatas,
    )
    return collection


def llama_index_shape(client, nodes: list[tuple[str, str, dict, str | None]], name: str = "llama"):
    """As LlamaIndex writes: flat metadata beside the node as JSON without its text."""
    collection = client.get_or_create_collection(name, embedding_function=None)
    metadatas = []
    for node_id, _, metadata, parent in nodes:
        content = {"id_": node_id, "embedding": None, "metadata": metadata, "text": "", "class_name": "TextNode"}
        flat = {key: value for key, value in metadata.items() if isinstance(value, str | int | float)}
        places = dict.fromkeys(("document_id", "doc_id", "ref_doc_id"), parent or "None")
        metadatas.append({**flat, "_node_content": json.dumps(content), "_node_type": "TextNode", **places})
    collection.add(
        ids=[node_id for node_id, *_ in nodes],
        documents=[text for _, text, *_ in nodes],
        embeddings=RecordingEmbeddings(dim=DIM).embed_documents([f"{m}\n\n{text}" for _, text, m, _ in nodes]),
        metadatas=metadatas,
    )
    return collection


def test_a_langchain_collection_comes_over_whole_and_nothing_is_embedded(tmp_path: Path, client, model):
    texts = ["报警代码 E1102 表示主轴过热。", "The gripper opens at 6 bar. " * 300, "相同", "相同"]
    collection = langchain_shape(client, texts, [{"page": 1}, {"source": "a.pdf", "ok": True}, None, {"x": 1.5}])
    with DualIndexer.from_chroma(collection, tmp_path / "s", model) as indexer:
        assert model.texts == []
        stats = indexer.stats()
        assert (stats.documents, stats.chunks, stats.dimension) == (4, 4, DIM)
        hit = indexer.search("E1102", 1)[0]
        assert (hit.doc_id, hit.text, hit.metadata) == ("id-0", texts[0], {"page": 1})
        assert indexer.read("id-1").text == texts[1], "in one piece, however long"
        assert indexer.read("id-1").metadata == {"source": "a.pdf", "ok": True}
        assert indexer.read("id-2").metadata == {}
        assert len(indexer.search("相同", 10, mode="keyword")) == 2
        assert indexer.verify().problems == ()


def test_vectors_are_those_of_the_collection(tmp_path: Path, client, model):
    texts = ["one fish", "two fish"]
    collection = client.create_collection("other", embedding_function=None)
    vectors = np.random.default_rng(7).normal(size=(2, DIM)).astype(np.float32)
    collection.add(ids=["a", "b"], documents=texts, embeddings=vectors)
    with DualIndexer.from_chroma(collection, tmp_path / "s", model) as indexer:
        for name, vector in zip("ab", vectors, strict=True):
            best = indexer.search("fish", 1, mode="vector", vector=vector.tolist())[0]
            assert best.doc_id == name
            assert best.explanation.vector.raw == pytest.approx(1.0, abs=1e-5)


def test_text_equal_to_adopted_text_is_embedded_by_the_model_not_borrowed(tmp_path: Path, client, model):
    collection = llama_index_shape(client, [("n", "fish", {"title": "long story"}, None)])
    with DualIndexer.from_chroma(collection, tmp_path / "s", model) as indexer:
        assert indexer.index_documents(["fish"]).embedded == 1
    assert model.texts == ["fish"]


def test_a_llama_index_collection_gives_its_nodes_with_nested_metadata(tmp_path: Path, client, model):
    nodes = [
        ("n1", "第一段", {"title": "手册", "tags": ["a", "b"], "nested": {"x": 1}, "none": None}, "doc-1"),
        ("n2", "second", {"page": 2}, None),
    ]
    llama_index_shape(client, nodes)
    client.close()
    with DualIndexer.from_chroma(tmp_path / "chroma", tmp_path / "s", model) as indexer:
        assert model.texts == []
        assert indexer.read("n1").text == "第一段"
        assert indexer.read("n1").metadata == {**nodes[0][2], "ref_doc_id": "doc-1"}
        assert indexer.read("n2").metadata == {"page": 2}
        assert [hit.doc_id for hit in indexer.search("second", filter={"page": 2})] == ["n2"]


def test_a_broken_node_json_falls_back_to_the_flat_metadata(tmp_path: Path, client, model):
    collection = client.create_collection("llama", embedding_function=None)
    vectors = model._inner.embed_documents(["alpha", "beta"])
    collection.add(
        ids=["n", "m"],
        documents=["alpha", "beta"],
        embeddings=vectors,
        metadatas=[{"page": 1, "_node_content": "{broken", "ref_doc_id": "None"}, {"page": 2, "_node_content": "[1]"}],
    )
    with DualIndexer.from_chroma(collection, tmp_path / "s", model) as indexer:
        assert (indexer.read("n").metadata, indexer.read("m").metadata) == ({"page": 1}, {"page": 2})


def test_the_real_langchain_chroma_is_adopted_with_its_model(tmp_path: Path, model):
    chroma = pytest.importorskip("langchain_chroma").Chroma
    store = chroma("notes", embedding_function=model, persist_directory=str(tmp_path / "chroma"), client_settings=QUIET)
    store.add_documents(
        [Document(page_content="温控器说明", metadata={"lang": "zh"}), Document(page_content="thermostat")]
    )
    count = len(model.texts)
    with DualIndexer.from_chroma(store, tmp_path / "s") as indexer:
        assert len(model.texts) == count
        assert {hit.text for hit in indexer.search("thermostat")} == {"温控器说明", "thermostat"}
        assert indexer.search("温控器", filter={"lang": "zh"})[0].metadata == {"lang": "zh"}


def test_many_records_come_in_batches_with_progress_and_a_second_run_writes_nothing(tmp_path: Path, client, model):
    texts = [f"record number {number}" for number in range(2_300)]
    collection = langchain_shape(client, texts)
    updates = []
    with DualIndexer.from_chroma(collection, tmp_path / "s", model, on_progress=updates.append) as indexer:
        assert indexer.stats().documents == 2_300
        assert indexer.keyword_search("number 2299")[0].doc_id == "id-2299"
        generation = indexer._store.catalog.partition(None).generation
    assert updates[-1].total == 2_300
    assert max(progress.done for progress in updates) == 2_300
    assert len({progress.chunks for progress in updates}) > 2
    with DualIndexer.from_chroma(collection, tmp_path / "s", model) as indexer:
        assert indexer._store.catalog.partition(None).generation == generation
    assert model.texts == []


@pytest.mark.parametrize("agent", ["planner", lambda metadata: metadata.get("user")])
def test_an_owner_is_an_argument_or_read_from_metadata(tmp_path: Path, client, model, agent):
    collection = langchain_shape(
        client, ["secret plan", "public plan"], [{"user": "planner"}, {"user": "planner" if agent == "planner" else ""}]
    )
    owner = agent if isinstance(agent, str) else lambda metadata: metadata["user"] or None
    with DualIndexer.from_chroma(collection, tmp_path / "s", model, agent_id=owner) as indexer:
        assert {hit.text for hit in indexer.search("plan", agent_id="planner")} == {"secret plan", "public plan"}
        assert {hit.text for hit in indexer.search("plan")} == (set() if agent == "planner" else {"public plan"})


def test_a_claim_in_metadata_is_obeyed_and_never_overruled(tmp_path: Path, client, model):
    collection = langchain_shape(client, ["mine"], [{"agent_id": "a"}])
    with DualIndexer.from_chroma(collection, tmp_path / "s", model) as indexer:
        assert indexer.search("mine") == []
        assert len(indexer.search("mine", agent_id="a")) == 1
    with pytest.raises(ScopeError, match="id-0"):
        DualIndexer.from_chroma(collection, tmp_path / "t", model, agent_id="b")


def test_vectors_of_another_dimension_are_refused(tmp_path: Path, client):
    collection = langchain_shape(client, ["text"])
    with pytest.raises(StoreMismatchError, match=r"64 dimensions.*makes 32"):
        DualIndexer.from_chroma(collection, tmp_path / "s", RecordingEmbeddings(dim=32))
    with DualIndexer.from_chroma(collection, tmp_path / "s", RecordingEmbeddings(dim=64)) as indexer:
        assert indexer.stats().documents == 1, "the refused attempt left nothing behind"


def test_records_without_text_are_reported_and_skipped(tmp_path: Path, client, model, caplog):
    collection = client.create_collection("bare", embedding_function=None)
    collection.add(ids=["bare", "full"], embeddings=model._inner.embed_documents(["a", "b"]), documents=[None, "text"])
    with DualIndexer.from_chroma(collection, tmp_path / "s", model) as indexer:
        assert indexer.stats().documents == 1
    assert "1 records of bare were not imported, the first because it holds no text" in caplog.text


def test_an_empty_collection_gives_an_empty_store(tmp_path: Path, client, model):
    with DualIndexer.from_chroma(client.create_collection("empty"), tmp_path / "s", model) as indexer:
        assert indexer.stats().documents == 0
        assert indexer.search("anything") == []


def test_of_several_collections_one_has_to_be_named(tmp_path: Path, client, model):
    langchain_shape(client, ["first"], name="first")
    langchain_shape(client, ["second"], name="second")
    client.close()
    folder = tmp_path / "chroma"
    with pytest.raises(UsageError, match=r"several collections.*\['first', 'second'\]"):
        DualIndexer.from_chroma(folder, tmp_path / "s", model)
    with pytest.raises(UsageError, match=r"no collection 'third'"):
        DualIndexer.from_chroma(folder, tmp_path / "s", model, collection_name="third")
    with DualIndexer.from_chroma(str(folder), tmp_path / "s", model, collection_name="second") as indexer:
        assert indexer.search("second")[0].text == "second"


@pytest.mark.parametrize("source", [5, None, {"a": 1}, object()])
def test_what_is_no_collection_is_refused(tmp_path: Path, model, source):
    with pytest.raises(UsageError, match="Cannot import"):
        DualIndexer.from_chroma(source, tmp_path / "s", model)
    assert not (tmp_path / "s").exists()


def test_a_folder_without_chroma_is_refused_and_stays_empty(tmp_path: Path, model):
    (tmp_path / "other").mkdir()
    for folder in (tmp_path / "other", tmp_path / "absent"):
        with pytest.raises(NotAStoreError, match=r"chroma\.sqlite3"):
            DualIndexer.from_chroma(folder, tmp_path / "s", model)
    assert list(tmp_path.iterdir()) == [tmp_path / "other"]
    assert list((tmp_path / "other").iterdir()) == []
