"""User words, stop words and synonyms of a store: they work in both languages and are there when it is opened again."""

from __future__ import annotations

import pytest

from langchain_agentrag import Analyzer, DualIndexer, SourceDocument
from langchain_agentrag.errors import StoreMismatchError, UsageError

TEXTS = {
    "k": "Kubernetes 集群升级前请先备份 etcd。",
    "r": "Customers may ask for a refund within 30 days.",
    "t": "退货款会在七个工作日内到账。",
    "n": "A night walk through New York in the rain.",
    "o": "完全无关的一段话，讲的是天气。",
}
GROUPS = [("k8s", "Kubernetes"), ("refund", "退货款", "money back"), ("big apple", "New York")]


def doc_ids(indexer: DualIndexer, query: str) -> list[str]:
    return [hit.doc_id for hit in indexer.search(query, 10, mode="keyword")]


def store(folder, **settings) -> DualIndexer:
    return DualIndexer(folder, "hash", analyzer=Analyzer(**settings) if settings else None)


@pytest.fixture
def folder(tmp_path):
    with store(tmp_path / "store") as indexer:
        indexer.index_documents([SourceDocument(name, text) for name, text in TEXTS.items()])
    return tmp_path / "store"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("k8s 怎么弄", "k"),
        ("K8S upgrade", "k"),
        ("refunds?", "t"),
        ("退货款", "r"),
        ("can I get my money back", "r"),
        ("a hotel in the Big Apple", "n"),
    ],
)
def test_a_synonym_matches_its_group_without_a_new_index(folder, query, wanted):
    with store(folder) as indexer:
        before = doc_ids(indexer, query)
    with store(folder, synonyms=GROUPS) as indexer:
        after = doc_ids(indexer, query)
    assert wanted not in before
    assert wanted in after
    assert set(before) <= set(after), "synonyms only widen"


def test_the_word_itself_comes_before_its_synonym(folder):
    with store(folder, synonyms=GROUPS) as indexer:
        indexer.index_documents([SourceDocument("s", "k8s 集群升级前请先备份 etcd。")])
        assert doc_ids(indexer, "k8s 集群升级")[:2] == ["s", "k"]


def test_settings_are_there_for_whoever_opens_the_store_without_any(folder):
    with store(folder, synonyms=GROUPS, stop_words=["天气"]) as indexer:
        assert doc_ids(indexer, "天气 k8s") == ["k"]
    with store(folder) as indexer:
        assert doc_ids(indexer, "天气 k8s") == ["k"]
    with store(folder, synonyms=[("退货款", "refund")]) as indexer:
        assert set(doc_ids(indexer, "天气 k8s")) == {"o"}, "given anew, they replace the ones before"


def test_user_words_need_another_analysis_of_the_texts_and_are_kept_as_well(folder):
    with pytest.raises(StoreMismatchError, match="reanalyze=True"):
        store(folder, user_words=["退货款"])
    with DualIndexer(folder, "hash", analyzer=Analyzer(user_words=["退货款"]), reanalyze=True):
        pass
    with store(folder) as indexer:
        assert doc_ids(indexer, "退货款")[0] == "t"
        assert "退货款" in indexer.search("退货款", 1, mode="keyword")[0].explanation.matched
    with pytest.raises(StoreMismatchError):
        store(folder, stop_words=[])


@pytest.mark.parametrize("groups", ["k8s", ["k8s"], [("k8s",)], [("k8s", "K8S")], [("a", "…")], [("a", 3)]])
def test_synonyms_that_cannot_work_are_refused(groups):
    with pytest.raises(UsageError):
        Analyzer(synonyms=groups)
