"""What people port from other vector stores: vectors, updates, `get`, counts, cosines, paths; each with its async twin."""

from __future__ import annotations

import copy
import gc
import inspect
import threading
import time

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_agentrag import DualIndexer, HashingEmbeddings, HybridVectorStore
from langchain_agentrag.errors import (
    FilterError,
    InvalidDocumentError,
    InvalidQueryError,
    NotAStoreError,
    StoreMismatchError,
    UsageError,
)
from tests.fakes import GivenVectors

FRUIT = [
    Document("red apple pie 苹果派", id="1", metadata={"kind": "food", "tags": ["甜", "red"]}),
    Document("red apple pie recipe 食谱", id="2", metadata={"kind": "food", "tags": ["red"]}),
    Document("blue car 蓝色汽车", id="3", metadata={"kind": "car"}),
]


@pytest.fixture
def indexer(tmp_path):
    with DualIndexer(tmp_path / "store", "hash") as opened:
        yield opened


@pytest.fixture
def store(indexer):
    filled = HybridVectorStore(indexer)
    filled.add_documents(FRUIT)
    return filled


def ids(documents):
    return [document.id for document in documents]


def embed(store, text):
    return store.embeddings.embed_query(text)


def test_every_method_has_an_async_twin_with_the_same_arguments():
    methods = dict(inspect.getmembers(HybridVectorStore, inspect.isfunction))
    twins = {name for name in methods if not name.startswith("_") and f"a{name}" in methods}
    assert twins >= {
        *("add_embeddings", "update_document", "update_documents", "get", "count", "reset_collection"),
        *("similarity_search_by_vector", "similarity_search_with_score_by_vector", "similarity_search_with_vectors"),
        *("similarity_search_by_vector_with_score", "similarity_search_by_vector_with_relevance_scores"),
        *("max_marginal_relevance_search_with_score", "max_marginal_relevance_search_with_score_by_vector"),
        *("max_marginal_relevance_search_by_vector", "delete_collection"),
    }
    for name in twins & HybridVectorStore.__dict__.keys() & {one[1:] for one in HybridVectorStore.__dict__}:
        assert list(inspect.signature(methods[name]).parameters) == list(
            inspect.signature(methods[f"a{name}"]).parameters
        )


async def test_searches_by_vector_and_with_scores_agree_with_each_other_and_with_their_twins(store):
    vector = embed(store, "red apple pie 苹果派")
    options = {"k": 3, "score": "cosine"}
    pairs = store.similarity_search_with_score_by_vector(vector, **options)
    assert pairs[0][0] == FRUIT[0]
    assert pairs[0][1] == pytest.approx(1.0)
    stored = dict(zip(store.get()["ids"], store.get(include=["embeddings"])["embeddings"], strict=True))
    for document, score in pairs:
        other, mine = stored[document.id], np.array(vector)
        assert score == pytest.approx(other @ mine / np.linalg.norm(other) / np.linalg.norm(mine), abs=1e-6)
    assert store.similarity_search_by_vector_with_score(vector, **options) == pairs
    assert store.similarity_search_by_vector_with_relevance_scores(vector, **options) == pairs
    assert store.similarity_search_by_vector(vector, 3) == [document for document, _ in pairs]
    for method, arguments in {
        "similarity_search_by_vector": (vector, 3),
        "similarity_search_with_score_by_vector": (vector, 3),
        "similarity_search_by_vector_with_relevance_scores": (vector, 3),
        "max_marginal_relevance_search_by_vector": (vector, 2),
        "max_marginal_relevance_search_with_score": ("苹果 apple", 2),
        "max_marginal_relevance_search_with_score_by_vector": (vector, 2),
    }.items():
        assert await getattr(store, f"a{method}")(*arguments) == getattr(store, method)(*arguments)
    plain = store.max_marginal_relevance_search("苹果 apple", 2)
    assert [document for document, _ in store.max_marginal_relevance_search_with_score("苹果 apple", 2)] == plain
    with pytest.raises(InvalidQueryError, match="keyword index"):
        store.similarity_search_by_vector(vector, score="bm25")


async def test_embeddings_come_with_the_documents(store):
    pairs = store.similarity_search_with_vectors("苹果派 apple", k=2)
    assert ids(document for document, _ in pairs) == ids(store.similarity_search("苹果派 apple", k=2))
    for document, vector in pairs:
        assert vector.dtype == np.float32
        assert vector.tolist() == pytest.approx(embed(store, document.page_content))
    again = await store.asimilarity_search_with_vectors("苹果派 apple", k=2)
    assert [document for document, _ in again] == [document for document, _ in pairs]


async def test_embeddings_that_are_given_are_stored_and_no_model_is_asked(tmp_path):
    with DualIndexer(tmp_path / "s", GivenVectors({"q": [0, 1, 0]}, [0, 0, 1])) as indexer:
        store = HybridVectorStore(indexer)
        assert store.add_embeddings(["甲", "b"], [[1, 0, 0], [0, 2, 0]], [{"n": 1}, {"n": 2}], ["x", "y"]) == ["x", "y"]
        assert store.similarity_search_with_score("q", 1, search_type="vector", score="cosine") == [
            (Document("b", id="y", metadata={"n": 2}), 1.0)
        ]
        assert store.get("y", include=["embeddings"])["embeddings"].tolist() == [[0, 2, 0]]
        assert len(await store.aadd_embeddings(["c"], [[1, 1, 1]])) == 1
        for wrong in (
            {"texts": ["a"], "embeddings": []},
            {"texts": ["a"], "embeddings": [[1, 0, 0]], "metadatas": [{}, {}]},
            {"texts": ["a"], "embeddings": [[1, 0, 0]], "ids": []},
            {"texts": ["a"], "embeddings": [[float("nan"), 0, 0]]},
        ):
            with pytest.raises(InvalidDocumentError):
                store.add_embeddings(**wrong)
        with pytest.raises(StoreMismatchError):
            store.add_embeddings(["a"], [[1, 0]])
        with pytest.raises(UsageError, match="list"):
            store.add_embeddings("ab", [[1, 0, 0], [1, 0, 0]])
        assert store.count() == 3


async def test_an_update_replaces_what_is_there_and_refuses_what_is_not(store):
    store.update_document("3", Document("green car 绿色汽车"))
    await store.aupdate_documents(["1", "2"], [Document("一", metadata={"n": 1}), Document("二")])
    assert store.get_by_ids(["1", "2", "3"]) == [
        Document("一", id="1", metadata={"n": 1}),
        Document("二", id="2"),
        Document("green car 绿色汽车", id="3"),
    ]
    with pytest.raises(InvalidDocumentError, match="'9'"):
        store.update_documents(["1", "9"], [Document("x"), Document("y")])
    with pytest.raises(InvalidDocumentError, match="one id per document"):
        store.update_documents(["1"], [])
    assert store.get_by_ids(["1"])[0].page_content == "一"


async def test_get_has_the_form_of_chroma(store):
    everything = store.get()
    assert everything.keys() == {"ids", "embeddings", "metadatas", "documents", "uris", "data", "included"}
    assert everything["ids"] == ["1", "2", "3"]
    assert everything["documents"] == [document.page_content for document in FRUIT]
    assert everything["metadatas"] == [document.metadata for document in FRUIT]
    assert everything["embeddings"] is None
    only = store.get(include=["embeddings"])
    assert (only["documents"], only["metadatas"], only["embeddings"].shape[0]) == (None, None, 3)
    assert store.get(["3", "1", "nothing"])["ids"] == ["1", "3"]
    assert store.get("2")["ids"] == ["2"]
    assert store.get(where={"tags": ["甜"]})["ids"] == store.get(filter={"tags": {"$contains": "甜"}})["ids"] == ["1"]
    assert store.get(["2", "3"], where={"kind": "food"})["ids"] == ["2"]
    pages = [store.get(where={"kind": {"$like": "%o%"}}, limit=1, offset=start)["ids"] for start in range(3)]
    assert pages == [["1"], ["2"], []]
    assert store.get(limit=0)["ids"] == store.get([])["ids"] == []
    assert store.get([], include=["embeddings"])["embeddings"].size == 0
    assert await store.aget(where={"kind": "car"}) == store.get(where={"kind": "car"})
    for wrong in ({"include": ["distances"]}, {"include": "documents"}, {"limit": -1}, {"offset": "x"}, {"ids": [1]}):
        with pytest.raises(UsageError):
            store.get(**wrong)
    with pytest.raises(FilterError, match="function"):
        store.get(where=lambda document: True)


def test_passages_of_files_are_listed_by_the_ids_that_a_search_gives(indexer, store):
    text = "\n\n".join(f"第{number}段：" + "主轴保养。spindle care. " * 30 for number in range(8))
    indexer.index_documents([Document(text, id="manual.md")])
    found = ids(store.similarity_search("主轴 spindle", k=2))
    assert sorted(store.get(found)["ids"]) == sorted(found)
    listed = store.get("manual.md")
    assert set(found) <= set(listed["ids"])
    assert len(listed["ids"]) == store.count() - 3 > 2
    assert all(passage in text for passage in listed["documents"])
    assert listed["ids"] == [f"manual.md#{place}" for place in range(len(listed["ids"]))]


async def test_counts_follow_writes_and_the_filter_of_the_store(indexer, store):
    assert store.count() == await store.acount() == 3
    food = HybridVectorStore(indexer, where={"kind": "food"})
    assert (food.count(), food.get()["ids"]) == (2, ["1", "2"])
    assert food.get(where={"kind": "car"})["ids"] == []
    assert ids(food.similarity_search("car", k=9, where={"kind": "car"})) == []
    store.delete(where={"kind": "food"})
    assert store.get()["ids"] == ["3"]
    await store.areset_collection()
    assert store.count() == 0
    assert store.similarity_search("car") == []
    store.add_documents(FRUIT[:1])
    store.delete_collection()
    assert store.count() == 0


def test_where_is_taken_as_filter_everywhere(store):
    vector = embed(store, "apple")
    where = {"kind": "car"}
    for documents in (
        store.similarity_search("apple", where=where),
        store.similarity_search_by_vector(vector, where=where),
        store.max_marginal_relevance_search("apple", where=where),
        store.as_retriever(where=where).invoke("apple"),
        store.as_retriever(search_kwargs={"where": where}).invoke("apple"),
        store.as_retriever().invoke("apple", where=where),
    ):
        assert ids(documents) == ["3"]
    assert store.as_retriever(where=where).invoke("apple", filter={"kind": "food"}) == []


def test_a_threshold_of_another_store_means_the_same_with_cosines(indexer, store):
    dense = {"score": "cosine", "search_type": "vector"}
    ported = HybridVectorStore(indexer, **dense)
    ((document, score),) = ported.similarity_search_with_relevance_scores(
        "blue car 蓝色汽车", k=3, score_threshold=0.99
    )
    assert (document.id, score) == ("3", pytest.approx(1.0))
    retriever = ported.as_retriever(search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.99})
    assert ids(retriever.invoke("blue car 蓝色汽车")) == ["3"]
    assert ids(store.similarity_search("blue car 蓝色汽车", k=3, score_threshold=0.99, **dense)) == ["3"]
    halved = HybridVectorStore(indexer, relevance_score_fn=lambda cosine: cosine / 2, **dense)
    for one in (halved, halved.for_agent("lina")):
        assert one.similarity_search_with_relevance_scores("blue car 蓝色汽车", k=1)[0][1] == pytest.approx(0.5)
        assert one.similarity_search_with_score("blue car 蓝色汽车", k=1)[0][1] == pytest.approx(1.0)
    for wrong in ({"score": "distance"}, {"score_threshold": 7}, {"score": "bm25", "search_type": "vector"}):
        with pytest.raises(InvalidQueryError):
            HybridVectorStore(indexer, **wrong)
    with pytest.raises(UsageError, match="function"):
        HybridVectorStore(indexer, relevance_score_fn=0.5)


# -- stores by path ---------------------------------------------------------------------------------------------------


def test_a_path_opens_the_store_and_the_last_user_closes_it(tmp_path):
    path = tmp_path / "kept"
    store = HybridVectorStore(path, embedding=HashingEmbeddings(), agent_id="lina")
    store.add_documents(FRUIT)
    copies = [store.for_agent("lina"), copy.deepcopy(store), copy.copy(store)]
    indexer = store.indexer
    del store
    gc.collect()
    for other in copies:
        assert other.count() == 3
    del copies, other
    gc.collect()
    with pytest.raises(Exception, match="closed"):
        indexer.stats()
    again = HybridVectorStore.from_existing(str(path), HashingEmbeddings(), agent_id="lina")
    assert ids(again.similarity_search("苹果 apple", k=2)) == ["1", "2"]
    assert HybridVectorStore.from_existing(path, HashingEmbeddings()).count() == 0


def test_what_holds_no_store_is_refused_and_not_created(tmp_path, indexer):
    with pytest.raises(NotAStoreError, match="nowhere"):
        HybridVectorStore.from_existing(tmp_path / "nowhere")
    with pytest.raises(InvalidQueryError):
        HybridVectorStore(tmp_path / "nowhere", embedding="hash", kk=1)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(UsageError, match="path"):
        HybridVectorStore(indexer, embedding="hash")


def test_the_garbage_collector_may_drop_a_store_under_a_lock_that_closing_needs(tmp_path, monkeypatch):
    """It runs on any thread, also on one that holds a lock of `concurrent.futures`."""
    lock, closed = threading.Lock(), threading.Event()

    def close(self, timeout=None):
        with lock:
            closed.set()

    store = HybridVectorStore(tmp_path / "s", embedding="hash")
    real = store.indexer
    monkeypatch.setattr(DualIndexer, "close", close)
    monkeypatch.setattr("langchain_agentrag.langchain.vectorstore._RELEASE_TIMEOUT", 0.1)
    with lock:
        start = time.monotonic()
        del store
        gc.collect()
        assert time.monotonic() - start < 5
        assert not closed.is_set()
    assert closed.wait(5)
    monkeypatch.undo()
    real.close()


# -- agents -----------------------------------------------------------------------------------------------------------


def test_an_agent_lists_counts_updates_and_resets_its_own(store):
    lina, otto = store.for_agent("lina"), store.for_agent("otto")
    lina.add_documents([Document("lina's 私有", id="1"), Document("lina 二", id="l")])
    otto.add_documents([Document("otto's secret 7741", id="o", metadata={"kind": "food", "pin": 1})])
    assert lina.get()["ids"] == ["1", "l", "2", "3"]  # its own document hides the shared one of the same id
    assert lina.get("1")["documents"] == ["lina's 私有"]
    assert (lina.count(), otto.count(), store.count()) == (4, 4, 3)
    assert store.for_agent("nobody").get() == store.get()
    for hostile in ({"agent_id": "otto"}, {"$not": {"agent_id": "lina"}}, {"pin": 1}, {"doc_id": "o"}):
        assert not {"o"} & set(lina.get(where=hostile)["ids"])
    assert lina.get(["o", "o#0"])["ids"] == []
    with pytest.raises(InvalidDocumentError) as foreign:
        lina.update_document("o", Document("x"))
    with pytest.raises(InvalidDocumentError) as absent:
        lina.update_document("p", Document("x"))
    assert str(foreign.value).replace("'o'", "'p'") == str(absent.value)
    with pytest.raises(InvalidDocumentError):
        lina.update_document("2", Document("a shared document"))
    lina.reset_collection()
    assert lina.get() == store.get()
    assert otto.get()["ids"] == ["o", "1", "2", "3"]
    store.reset_collection()
    assert (store.count(), lina.count(), otto.get()["ids"]) == (0, 0, ["o"])


def test_vectors_of_hits_pass_the_scope(indexer, store):
    otto = store.for_agent("otto")
    otto.add_documents([Document("otto's secret 7741", id="o")])
    hits = indexer.search("secret 7741", 9, agent_id="otto")
    assert "o" in {hit.doc_id for hit in hits}
    for agent in ("lina", None):
        passages = indexer.passages_of(hits, agent_id=agent)
        assert [passage is None for passage in passages] == [hit.doc_id == "o" for hit in hits]
    assert all(passage.vector is not None for passage in indexer.passages_of(hits, agent_id="otto"))
