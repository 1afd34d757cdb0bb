"""`HybridVectorStore` beyond the standard suite: filters, agents, the indexing API, records, migration of what exists."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import gc
import pickle
import warnings
from pathlib import Path

import pytest
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from langchain_core.indexing import aindex, index

from langchain_agentrag import DualIndexer, HashingEmbeddings, HybridVectorStore
from langchain_agentrag.errors import InvalidDocumentError, InvalidQueryError, ScopeError, UsageError
from langchain_agentrag.langchain.record_manager import HybridRecordManager, document_key


@pytest.fixture
def indexer(tmp_path):
    with DualIndexer(tmp_path / "store", "hash") as opened:
        yield opened


@pytest.fixture
def store(indexer):
    return HybridVectorStore(indexer)


def ids(documents):
    return [document.id for document in documents]


FRUIT = [
    Document("red apple pie 苹果派", id="1", metadata={"kind": "food", "year": 2024}),
    Document("red apple pie recipe 苹果派 食谱", id="2", metadata={"kind": "food", "year": 2025}),
    Document("blue car 蓝色汽车", id="3", metadata={"kind": "car", "year": 2024}),
]


def test_scores_are_in_the_unit_interval_and_best_first_without_a_warning(store):
    store.add_documents(FRUIT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pairs = store.similarity_search_with_relevance_scores("苹果派 apple", k=3)
    scores = [score for _, score in pairs]
    assert scores == sorted(scores, reverse=True)
    assert all(isinstance(score, float) and 0 <= score <= 1 for score in scores)
    good = store.similarity_search_with_relevance_scores(
        "苹果派 apple", k=3, score_threshold=(scores[1] + scores[2]) / 2
    )
    assert set(ids(document for document, _ in good)) == {"1", "2"}


def test_a_retriever_of_it_ands_filters_and_takes_options_either_way(store):
    store.add_documents(FRUIT)
    bound = store.as_retriever(search_kwargs={"filter": {"kind": "food"}, "k": 3})
    assert set(ids(bound.invoke("apple"))) == {"1", "2"}
    assert ids(bound.invoke("apple", filter={"year": 2024})) == ["1"]
    assert bound.invoke("apple", filter={"kind": "car"}) == []
    assert asyncio.run(bound.ainvoke("apple", filter={"kind": "car"})) == []
    assert len(store.as_retriever(k=1).invoke("apple")) == 1
    assert len(store.as_retriever(search_kwargs={"k": 2}).invoke("apple", k=1)) == 1
    with pytest.raises(InvalidQueryError, match="Did you mean"):
        store.as_retriever(fetchk=1)
    with pytest.raises(InvalidQueryError):
        store.as_retriever().invoke("apple", kk=1)
    for search_type in ("similarity", "mmr", "hybrid", "vector", "keyword", "bm25"):
        assert "1" in ids(store.as_retriever(search_type=search_type).invoke("apple pie"))
    by_threshold = store.as_retriever(search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.99})
    assert by_threshold.invoke("apple") == []


def test_a_filter_of_the_vector_store_itself_holds_for_every_search(indexer):
    HybridVectorStore(indexer).add_documents(FRUIT)
    store = HybridVectorStore(indexer, filter={"year": 2024})
    vector = store.embeddings.embed_query("red apple pie")
    for documents in (
        store.similarity_search("apple", k=9),
        store.similarity_search_by_vector(vector, k=9),
        store.max_marginal_relevance_search("apple", k=9),
        store.max_marginal_relevance_search_by_vector(vector, k=9),
        store.search("apple", "keyword", k=9),
        store.as_retriever(k=9).invoke("apple", filter={"$or": [{"year": 2025}, {"year": 2024}]}),
    ):
        assert "1" in ids(documents)
        assert "2" not in ids(documents)


def test_search_by_vector_asks_no_model_and_mmr_comes_in_its_own_order(indexer, monkeypatch):
    store = HybridVectorStore(indexer)
    store.add_documents(FRUIT)
    vector = store.embeddings.embed_query("red apple pie 苹果派")
    store.similarity_search("once")  # measures the model's background
    monkeypatch.setattr(indexer.embedder, "embed_query", None)
    assert ids(store.similarity_search_by_vector(vector, k=2)) == ["1", "2"]
    assert ids(store.max_marginal_relevance_search_by_vector(vector, k=2, lambda_mult=0.1)) == ["1", "3"]
    with pytest.raises(InvalidQueryError, match="dimensions"):
        store.similarity_search_by_vector([0.1, 0.2])


async def test_async_twins_give_the_same_lists(store):
    await store.aadd_documents(FRUIT)
    assert await store.asimilarity_search("apple 苹果", k=2) == store.similarity_search("apple 苹果", k=2)
    assert await store.amax_marginal_relevance_search("apple", k=2) == store.max_marginal_relevance_search("apple", k=2)
    assert await store.asimilarity_search_with_score("apple") == store.similarity_search_with_score("apple")
    assert await store.aget_by_ids(["2", "1"]) == store.get_by_ids(["2", "1"])
    assert await store.asearch("apple", "keyword") == store.search("apple", "keyword")
    assert await store.adelete(["1"])
    assert ids(await store.aget_by_ids(["1", "2"])) == ["2"]


def test_any_metadata_comes_back_equal_and_the_input_is_not_changed(store):
    metadata = {
        "none": None,
        "empty": [],
        "mixed": [1, "二", 2.5, None],
        "nested": {"深": {"er": [{}]}},
        "date": dt.date(2026, 3, 1),
        "big": 2**70,
        "$odd.key": "ok",
        "bytes": b"\x00\xff",
    }
    document = Document("带元数据的文本", id="m", metadata=dict(metadata))
    store.add_documents([document])
    assert document == Document("带元数据的文本", id="m", metadata=metadata)
    assert store.get_by_ids(["m"])[0].metadata == metadata
    assert store.similarity_search("元数据")[0].metadata == metadata


def test_replacing_a_document_leaves_nothing_of_the_old_one(store):
    store.add_documents([Document("旧文本 old", id="x", metadata={"a": 1, "secret": "yes"})])
    store.add_documents([Document("新文本 new", id="x")])
    assert store.get_by_ids(["x"]) == [Document("新文本 new", id="x")]
    assert store.similarity_search("old", k=5, search_type="keyword") == []
    assert store.similarity_search("new", k=5, filter={"secret": "yes"}) == []


def test_ids_are_kept_made_from_content_or_refused(store):
    assert store.add_texts(["a", "b"], ids=["x", "y"]) == ["x", "y"]
    first, second = store.add_texts(["同一段", "同一段"])
    assert first != second
    assert store.add_texts(["同一段", "同一段"]) == [first, second]
    with pytest.raises(InvalidDocumentError, match="one id per document"):
        store.add_documents(FRUIT, ids=["1"])
    with pytest.raises(ValueError, match="metadatas"):
        store.add_texts(["a", "b"], [{}])
    assert store.add_texts(text for text in ("g1", "g2")) == store.add_texts(["g1", "g2"])
    with pytest.raises(UsageError, match="list"):
        store.add_texts("one text")
    assert store.add_documents([]) == []
    with pytest.raises(UsageError):
        store.delete()
    assert store.delete([])
    assert store.delete(["never there"])


def test_passages_of_indexed_files_are_found_and_fetched_by_the_id_that_a_search_gives(indexer, store):
    text = "\n\n".join(f"第{number}段：" + "主轴保养。spindle care. " * 30 for number in range(8))
    indexer.index_documents([Document(text, id="manual.md", metadata={"source": "manual.md"})])
    documents = store.similarity_search("主轴 spindle", k=3)
    assert all(document.id.startswith("manual.md#") for document in documents)
    assert store.get_by_ids(ids(documents)) == documents
    assert store.get_by_ids(["manual.md", "manual.md#999", "manual.md#x", "nothing"])[0].page_content == text


def test_agents_write_and_delete_only_their_own(store):
    lina, otto = store.for_agent("lina"), store.for_agent("otto")
    store.add_documents([Document("shared 公共", id="x")])
    lina.add_documents([Document("lina's 私有", id="x")])
    otto.add_documents([Document("otto's 私有", id="x")])
    assert [d.page_content for d in lina.get_by_ids(["x"])] == ["lina's 私有"]
    lina.delete(["x"])
    assert [d.page_content for d in lina.get_by_ids(["x"])] == ["shared 公共"]
    assert [d.page_content for d in otto.get_by_ids(["x"])] == ["otto's 私有"]
    assert not any("otto" in d.page_content for d in lina.similarity_search("otto 私有", k=9))
    with pytest.raises(ScopeError):
        lina.add_documents([Document("forged", metadata={"agent_id": "otto"})])
    with pytest.raises(ScopeError, match="for_agent"):
        store.add_documents([Document("would be lost", metadata={"agent_id": "otto"})])


def test_an_identity_from_the_run_reaches_it_through_its_retriever(indexer):
    HybridVectorStore(indexer).for_agent("lina").add_documents([Document("secret 7741", id="n")])
    retriever = HybridVectorStore(indexer, agent_id_key="agent_id").as_retriever()
    assert ids(retriever.invoke("secret", {"configurable": {"agent_id": "lina"}})) == ["n"]
    assert retriever.invoke("secret", {"configurable": {"agent_id": "otto"}}) == []
    with pytest.raises(ScopeError, match="No agent arrived"):
        retriever.invoke("secret")


# -- the indexing API -------------------------------------------------------------------------------------------------


def run_index(store, documents, cleanup="incremental", manager=None, **options):
    manager = manager or store.record_manager()
    report = index(
        documents, manager, store, cleanup=cleanup, source_id_key="source", key_encoder=document_key, **options
    )
    return report["num_added"], report["num_skipped"], report["num_deleted"]


def page(text, source="f1", **metadata):
    return Document(text, metadata={"source": source, **metadata})


def test_indexing_again_adds_only_what_is_new_and_removes_what_is_gone(store, tmp_path):
    assert run_index(store, [page("一"), page("two"), page("三", "f2")]) == (3, 0, 0)
    assert run_index(store, [page("一"), page("two"), page("三", "f2")]) == (0, 3, 0)
    assert run_index(store, [page("一 changed"), page("two")]) == (1, 1, 1)
    assert {d.page_content for d in store.similarity_search("一 two 三", k=9)} == {"一 changed", "two", "三"}
    assert run_index(store, [page("三", "f2")], cleanup="full") == (0, 1, 2)
    assert run_index(store, [page("four", "f2")], cleanup="scoped_full") == (1, 0, 1)


def test_records_survive_a_restart(tmp_path):
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        assert run_index(HybridVectorStore(indexer), [page("一"), page("two")]) == (2, 0, 0)
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        assert run_index(HybridVectorStore(indexer), [page("一"), page("two")]) == (0, 2, 0)


def test_metadata_that_json_lacks_can_be_indexed(store):
    documents = [page("带日期", when=dt.datetime(2026, 3, 1, tzinfo=dt.UTC)), page("bytes", raw=b"\x00")]
    assert run_index(store, documents) == (2, 0, 0)
    assert run_index(store, documents) == (0, 2, 0)


def test_one_agents_indexing_cannot_remove_anothers_document_of_the_same_source(store):
    lina, otto = store.for_agent("lina"), store.for_agent("otto")
    assert run_index(lina, [page("lina's part of f1")]) == (1, 0, 0)
    assert run_index(otto, [page("otto's part of f1")]) == (1, 0, 0)
    assert run_index(otto, [page("otto's new part of f1")]) == (1, 0, 1)
    assert [d.page_content for d in lina.similarity_search("part", k=9)] == ["lina's part of f1"]
    assert run_index(otto, [], cleanup="full") == (0, 0, 1)
    assert [d.page_content for d in lina.similarity_search("part", k=9)] == ["lina's part of f1"]


def test_what_was_deleted_behind_the_records_is_written_again(store):
    run_index(store, [page("一"), page("two")])
    store.delete(filter={"source": "f1"})
    assert run_index(store, [page("一"), page("two")]) == (2, 0, 0)


def test_a_source_that_fails_removes_nothing(store):
    class Broken(BaseLoader):
        def lazy_load(self):
            yield page("一")
            raise ConnectionError("the source went away")

    run_index(store, [page("一"), page("two")])
    with pytest.raises(ConnectionError):
        run_index(store, Broken(), cleanup="full")
    assert len(store.similarity_search("一 two", k=9)) == 2


async def test_the_async_indexing_api_works_too(store):
    manager = store.record_manager("other")
    result = await aindex([page("一")], manager, store, cleanup="full", key_encoder=document_key)
    assert result["num_added"] == 1
    again = await aindex([page("一")], manager, store, cleanup="full", key_encoder=document_key)
    assert again["num_skipped"] == 1


def test_records_keep_the_contract_of_langchain(indexer):
    manager, other = HybridRecordManager(indexer, "ns"), HybridRecordManager(indexer, "other")
    manager.create_schema()
    indexer.index_documents([Document("a", id="k1"), Document("b", id="k2")], split=False)
    manager.update(["k1", "k2", "gone"], group_ids=["g1", "g2", "g2"])
    assert manager.exists(["k1", "gone", "k2"]) == [True, False, True]
    assert other.list_keys() == []
    assert sorted(manager.list_keys(group_ids=["g2"])) == ["gone", "k2"]
    assert manager.list_keys(before=manager.get_time() + 1, limit=1) == ["gone"]
    assert manager.list_keys(after=manager.get_time() + 1) == []
    manager.delete_keys(["gone", "k2"])
    assert manager.list_keys() == ["k1"]
    with pytest.raises(UsageError, match="one per key"):
        manager.update(["k1"], group_ids=["a", "b"])
    with pytest.raises(UsageError, match="clock"):
        manager.update(["k1"], time_at_least=manager.get_time() + 1000)


def test_forgetting_an_agent_forgets_its_records(indexer):
    manager = HybridRecordManager(indexer, "ns", agent_id="lina")
    indexer.index_documents([Document("a", id="k1")], agent_id="lina", split=False)
    manager.update(["k1"], group_ids=["/home/lina/diary.txt"])
    HybridRecordManager(indexer, "ns").update(["k9"], group_ids=["shared.txt"])
    indexer.forget_agent("lina")
    assert manager.list_keys() == []
    assert HybridRecordManager(indexer, "ns").list_keys() == ["k9"]
    raw = b"".join(path.read_bytes() for path in Path(indexer.path).rglob("catalog*") if path.is_file())
    assert b"diary.txt" not in raw


# -- other ways to make one -------------------------------------------------------------------------------------------


def test_from_texts_needs_no_folder_and_leaves_none_behind(tmp_path):
    store = HybridVectorStore.from_texts(
        ["猫坐在垫子上", "a dog in the yard"], HashingEmbeddings(), [{"n": 1}, {"n": 2}]
    )
    folder = store.indexer.path
    assert store.similarity_search("猫", k=1)[0].metadata == {"n": 1}
    del store
    gc.collect()
    assert not folder.exists()
    persistent = HybridVectorStore.from_documents(FRUIT, HashingEmbeddings(), path=tmp_path / "kept", agent_id="lina")
    persistent.indexer.close()
    with DualIndexer(tmp_path / "kept", "hash") as again:
        assert "1" in ids(HybridVectorStore(again, agent_id="lina").similarity_search("apple"))
        assert HybridVectorStore(again).similarity_search("apple") == []


def test_copies_share_the_store_and_pickles_say_what_to_do(store):
    store.add_documents(FRUIT)
    assert copy.deepcopy(store).similarity_search("apple") == store.similarity_search("apple")
    for one in (store, store.as_retriever()):
        assert "苹果" not in repr(one)
        with pytest.raises(TypeError, match="open it again"):
            pickle.dumps(one)
