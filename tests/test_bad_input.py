"""Bad input: each kind gives a clear error or a defined result, and never leaves a half-written store."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import pickle
import sqlite3
import subprocess
import sys
import textwrap
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from langchain_core.documents import Document

from langchain_agentrag import Analyzer, DualIndexer, HybridRetriever, SourceDocument
from langchain_agentrag.errors import (
    AgentRagError,
    EmbeddingError,
    FilterError,
    InvalidDocumentError,
    InvalidQueryError,
    NotAStoreError,
    ScopeError,
    StoreClosedError,
    StoreError,
    StoreMismatchError,
    UsageError,
)
from langchain_agentrag.search.options import MAX_QUERY
from tests.fakes import FailingEmbeddings, LyingEmbeddings, RecordingEmbeddings, stable_id

MODES = ("hybrid", "vector", "keyword")


@pytest.fixture
def store(tmp_path: Path):
    with DualIndexer(tmp_path / "store", "hash", chroma="auto") as indexer:  # Chroma has tests of its own below
        yield indexer


def sound(indexer: DualIndexer) -> bool:
    report = indexer.verify()
    assert report.problems == ()
    return report.ok


# -- queries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_store_answers_with_an_empty_list_and_the_first_document_is_found(store: DualIndexer, mode):
    assert store.search("任何问题", mode=mode) == []
    assert store.for_agent("new").search("任何问题", mode=mode) == []
    store.index_documents(["任何问题都有答案"])
    assert len(store.search("任何问题", mode=mode)) == 1


def test_an_empty_store_never_wakes_the_model(tmp_path: Path):
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "s", model) as indexer:
        assert indexer.search("anything") == []
    assert model.queries == []


@pytest.mark.parametrize("query", ["", "   ", "\n", "\u3000", "\u200b", "？？？", "，。！", "\x00", "\ud800", "..."])
@pytest.mark.parametrize("mode", MODES)
def test_a_query_without_words_returns_nothing_and_calls_no_model(tmp_path: Path, query: str, mode):
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "s", model) as indexer:
        indexer.index_documents(["alpha"], agent_id="a")
        assert indexer.search(query, mode=mode, agent_id="a") == []
    assert model.queries == []


@pytest.mark.parametrize("query", ["的", "了吗？", "the of", "😀", "the", "C"])
def test_a_query_of_stop_words_or_symbols_only_is_answered(store: DualIndexer, query: str):
    store.index_documents(["我的苹果", "the price of apples", "别的"])
    assert len(store.search(query, k=2)) == 2
    assert len(store.search(query, k=2, mode="vector")) == 2
    for hit in store.search(query, k=5, mode="keyword"):
        assert hit.score > 0


@pytest.mark.parametrize("query", ["苹果\x00价格", "苹果\ud83d价格", "苹果" * 5_000, "\u202e苹果", "a" * 100_000])
def test_a_strange_query_is_answered(store: DualIndexer, query: str):
    store.index_documents(["苹果价格", "aaa"])
    for mode in MODES:
        hits = store.search(query, mode=mode)
        # of a long query only the beginning is searched, and nothing else is missing
        assert all(note.startswith("query: ") for note in hits.degraded)
        assert bool(hits.degraded) is (len(query) > MAX_QUERY)
    assert len(store.search(query)) == 2


@pytest.mark.parametrize("query", [None, 5, b"bytes", ["list"]])
def test_a_query_that_is_no_text_is_a_clear_error(store: DualIndexer, query):
    with pytest.raises(InvalidQueryError, match=type(query).__name__):
        store.search(query)


@pytest.mark.parametrize("k", [0, -1, True, 1.5, "3", None, math.nan])
def test_k_that_is_no_count_is_a_clear_error_on_every_face(store: DualIndexer, k):
    store.index_documents(["one"])
    with pytest.raises(InvalidQueryError, match="number of hits"):
        store.search("one", k)
    with pytest.raises(InvalidQueryError):
        store.for_agent("a").keyword_search("one", k)
    with pytest.raises(ValueError, match=r"k\n.*k="):
        HybridRetriever(indexer=store, k=k)
    with pytest.raises(InvalidQueryError):
        HybridRetriever(indexer=store).invoke("one", k=k)


@pytest.mark.parametrize("mode", MODES)
def test_k_beyond_the_store_gives_all_there_is(store: DualIndexer, mode):
    store.index_documents(["apple one", "apple two"])
    assert len(store.search("apple", 10, mode=mode)) == 2
    assert len(store.search("apple", 10**6, mode=mode)) == 2
    assert len(store.search("apple", 10**30, mode=mode)) == 2
    assert len(store.search("apple", np.int64(1), mode=mode)) == 1


@pytest.mark.parametrize(
    "weights", [(-1, 2), (math.nan, 1), (0, 0), ("0.5", "0.5"), (1, 1, 1), (math.inf, 1), 1, (True, 1)]
)
def test_impossible_weights_are_refused_at_search_and_at_construction(store: DualIndexer, weights):
    with pytest.raises(InvalidQueryError):
        store.search("x", weights=weights)
    with pytest.raises(ValueError, match="weight"):
        HybridRetriever(indexer=store, weights=weights)


@pytest.mark.parametrize(("option", "value"), [("mode", "both"), ("fusion", "magic")])
def test_an_unknown_mode_or_fusion_is_refused(store: DualIndexer, option: str, value):
    with pytest.raises(InvalidQueryError, match=repr(value)):
        store.search("x", **{option: value})


@pytest.mark.parametrize(
    "where",
    [{"$bad": 1}, {"a": {"$near": 1}}, {"a": {}}, {"$and": {"a": 1}}, [("a", 1)], {"a": {"$in": 3}}, {1: 2}, "a=1"],
)
def test_a_bad_filter_is_an_error_before_any_work_even_on_an_empty_store(store: DualIndexer, where):
    with pytest.raises(FilterError):
        store.search("x", filter=where)
    with pytest.raises(FilterError):
        store.delete(filter=where)
    with pytest.raises(ValueError, match="ilter"):
        HybridRetriever(indexer=store, filter=where)


@pytest.mark.parametrize("agent_id", ["", 5, b"a", "\ud800", True, ["a"]])
def test_an_agent_id_that_cannot_be_one_is_refused_everywhere(store: DualIndexer, agent_id):
    for call in (
        lambda: store.search("x", agent_id=agent_id),
        lambda: store.index_documents(["x"], agent_id),
        lambda: store.delete("x", agent_id=agent_id),
        lambda: store.forget_agent(agent_id),
        lambda: store.for_agent(agent_id),
        lambda: store.stats(agent_id),
        lambda: store.read("x", agent_id=agent_id),
    ):
        with pytest.raises(ScopeError):
            call()
    assert store.stats().documents == 0


# -- documents ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "\u3000", "。。。", "!!!", "\u200b", "----"])
@pytest.mark.parametrize("agent", [None, "a"])
def test_a_document_without_words_is_skipped_and_reported(store: DualIndexer, text: str, agent):
    report = store.index_documents([Document(page_content=text, id="blank")], agent)
    assert (report.added, report.chunks, report.failed) == (0, 0, ())
    assert [skipped.key for skipped in report.skipped] == ["blank"]
    assert store.search("数据", agent_id=agent) == []
    store.index_documents(["数据表"], agent)
    assert [hit.text for hit in store.search("数据", agent_id=agent)] == ["数据表"]
    assert sound(store)


def test_a_document_that_becomes_blank_is_removed(store: DualIndexer):
    store.index_documents([Document(page_content="数据表", id="d")])
    report = store.index_documents([Document(page_content="……", id="d")])
    assert report.deleted == 1
    assert store.search("数据表") == []
    assert sound(store)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        5,
        b"bytes",
        math.nan,
        {"page_content": "x"},
        SourceDocument("", "text"),
        SourceDocument("id", None),  # type: ignore[arg-type]
        SourceDocument("id", b"bytes"),  # type: ignore[arg-type]
        SourceDocument("id", "lone \ud83d surrogate"),
        SourceDocument("lone \ud83d", "text"),
        SourceDocument("id", "text", ["no", "mapping"]),  # type: ignore[arg-type]
        SourceDocument("id", "text", {"thing": object()}),
        SourceDocument("id", "text", {1: "key"}),  # type: ignore[dict-item]
        Document(page_content="text", id="id", metadata={"f": print}),
        "lone \udfff",
    ],
    ids=stable_id,
)
def test_a_document_that_cannot_be_stored_is_named_by_its_place(tmp_path: Path, bad):
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "s", model) as indexer:
        with pytest.raises(InvalidDocumentError, match="index 1"):
            indexer.index_documents(["正常", bad, "more"])
        assert all(isinstance(text, str) for text in model.texts)
        assert sound(indexer)
        assert indexer.index_documents(["正常", "more"]).failed == ()


@pytest.mark.parametrize(
    "bad", ["text", b"bytes", {"a": 1}, Document(page_content="x"), None, 5, SourceDocument("a", "b")]
)
def test_one_document_instead_of_several_is_a_clear_error(store: DualIndexer, bad):
    with pytest.raises(UsageError, match="list"):
        store.index_documents(bad)


METADATA = [
    {},
    {"none": None},
    {"tags": []},
    {"tags": ["a", 1, None, 2.5]},
    {"geo": {"lat": 1, "deep": [{"x": [1, [2]]}]}},
    {"day": date(2024, 5, 1)},
    {"moment": datetime(2024, 5, 1, 8, 0, tzinfo=UTC)},
    {"naive": datetime(2024, 5, 1, 8, 0)},
    {"price": Decimal("1.10")},
    {"huge": 2**63, "huger": -(10**400)},
    {"inf": math.inf},
    {"raw": b"\x00\xff"},
    {"id": UUID(int=7)},
    {"nul": "a\x00b", "ключ": "значение", "": "empty key", "a.b": 1, "$t": "datetime"},
    {"lone": "\ud83d", "\udc00": "key"},
    {"bool": True, "one": 1, "float": 1.0, "text": "1"},
]


@pytest.mark.parametrize("metadata", METADATA, ids=stable_id)
@pytest.mark.parametrize("chroma", ["always", "auto"])
def test_metadata_is_unchanged_also_after_reopening(tmp_path: Path, metadata, chroma):
    with DualIndexer(tmp_path / "s", "hash", chroma=chroma) as indexer:
        indexer.index_documents([SourceDocument("d", "text", metadata)], "agent")
        assert indexer.search("text", agent_id="agent")[0].metadata == metadata
    with DualIndexer(tmp_path / "s", "hash", chroma=chroma) as indexer:
        assert indexer.search("text", agent_id="agent")[0].metadata == metadata
        assert indexer.read("d", agent_id="agent").metadata == metadata
        retrieved = HybridRetriever(indexer=indexer, agent_id="agent").invoke("text")[0]
        assert metadata.items() <= retrieved.metadata.items()
        assert indexer.index_documents([SourceDocument("d", "text", metadata)], "agent").unchanged == 1


def test_nan_and_numpy_values_in_metadata_come_back_as_documented(store: DualIndexer):
    values = {"nan": math.nan, "n": np.int64(3), "x": np.float32(0.5), "list": np.array([1, 2]), "pair": (1, 2)}
    store.index_documents([SourceDocument("d", "text", values)])
    metadata = store.search("text")[0].metadata
    assert math.isnan(metadata["nan"])
    assert {key: metadata[key] for key in ("n", "x", "list", "pair")} == {
        "n": 3,
        "x": 0.5,
        "list": [1, 2],
        "pair": [1, 2],
    }
    assert store.index_documents([SourceDocument("d", "text", values)]).unchanged == 1


def test_one_none_among_a_hundred_documents_loses_nothing(store: DualIndexer):
    documents = [SourceDocument(f"d{i}", f"text {i}", {"page": i}) for i in range(100)]
    documents[57] = SourceDocument("d57", "text 57", {"author": None, "page": 3})
    assert store.index_documents(documents).added == 100
    assert store.read("d57").metadata == {"author": None, "page": 3}


@pytest.mark.parametrize(
    "name", ["a\x00b", "\x00", "a" * 3_000, "../../etc/passwd", "客服一号", "'; DROP TABLE chunks;--", "🤖"]
)
@pytest.mark.parametrize("chroma", ["always", "auto"])
def test_any_text_is_an_id_of_a_document_or_an_agent(tmp_path: Path, name: str, chroma):
    with DualIndexer(tmp_path / "s", "hash", chroma=chroma) as indexer:
        indexer.index_documents([SourceDocument(name, "apple \x00 pie", {"k": name})], name)
        assert [hit.doc_id for hit in indexer.search("apple", agent_id=name, filter={"k": name})] == [name]
        assert indexer.read(name, agent_id=name).text == "apple \x00 pie"
        assert indexer.search("apple") == []
        assert indexer.search("apple", agent_id=name.partition("\x00")[0] or "x") == [] or "\x00" not in name
        assert sound(indexer)
        assert indexer.forget_agent(name).deleted == 1
        assert indexer.search("apple", agent_id=name) == []


def test_of_one_id_twice_in_a_batch_the_later_wins(store: DualIndexer):
    report = store.index_documents(
        [SourceDocument("d", "first words"), SourceDocument("e", "else"), SourceDocument("d", "second words")]
    )
    assert report.added == 2
    assert store.read("d").text == "second words"
    assert store.search("first", mode="keyword") == []
    assert store.stats().chunks == 2
    assert sound(store)


NAMES = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


def test_of_one_id_twice_across_batches_in_flight_the_later_wins(tmp_path: Path):
    with DualIndexer(tmp_path / "s", "hash", chroma="auto") as indexer:
        documents = [SourceDocument(f"d{i % 40}", f"{NAMES[i // 40]} of {i % 40}") for i in range(400)]
        indexer.index_documents(documents)
        assert indexer.stats().documents == 40
        assert {indexer.read(f"d{i}").text for i in range(40)} == {f"kappa of {i}" for i in range(40)}
        assert indexer.search("delta", mode="keyword") == []
        assert sound(indexer)


def test_a_document_put_back_to_what_is_stored_within_one_call_ends_as_stored(store: DualIndexer):
    store.index_documents([SourceDocument("d", "old words")])
    store.index_documents([SourceDocument("d", "new words"), SourceDocument("d", "old words")])
    assert store.read("d").text == "old words"
    store.index_documents([SourceDocument("d", "new words"), SourceDocument("d", "")])
    assert store.search("words") == []
    assert sound(store)


def test_equal_texts_without_ids_stay_apart_and_a_second_run_changes_nothing(store: DualIndexer):
    paragraphs = [
        "相同的一段。",
        "相同的一段。",
        Document(page_content="相同的一段。", metadata={"s": 1}),
        "相同的一段。",
    ]
    assert store.index_documents(paragraphs).added == 4
    assert store.index_documents(paragraphs).unchanged == 4
    assert len(store.search("相同", 10)) == 4


def test_deletion_needs_ids_or_a_filter(store: DualIndexer):
    store.index_documents(["a b c"])
    for call in (store.delete, lambda: store.delete(filter={}), lambda: store.delete(None, filter=None)):
        with pytest.raises(UsageError, match="everything"):
            call()
    with pytest.raises(UsageError):
        store.delete([None])  # type: ignore[list-item]
    with pytest.raises(UsageError):
        store.delete(5)  # type: ignore[arg-type]
    assert store.delete([]).deleted == 0
    assert store.delete(["absent", "lone \ud83d"]).deleted == 0
    assert store.stats().documents == 1


@pytest.mark.parametrize(
    "address", [("absent", 0), ("d", 1), ("d", -1), ("d", True), ("d", "0"), (None, 0), ("\ud83d", 0), (b"d", 0)]
)
def test_reading_a_missing_address_is_an_error(store: DualIndexer, address):
    store.index_documents([SourceDocument("d", "text")])
    with pytest.raises(InvalidQueryError):
        store.read(*address)
    with pytest.raises(InvalidQueryError, match="before"):
        store.read("d", before=-1)


# -- embedding models -----------------------------------------------------------------------------------------------

LIES = {
    "too few": lambda vectors: vectors[:-1],
    "too many": lambda vectors: [*vectors, vectors[0]],
    "none": lambda vectors: None,
    "nan": lambda vectors: [[math.nan] * len(vectors[0])] * len(vectors),
    "inf": lambda vectors: [[math.inf, *vectors[0][1:]]] * len(vectors),
    "ragged": lambda vectors: [vectors[0][:-1], *vectors[1:]],
    "empty": lambda vectors: [[]] * len(vectors),
    "text": lambda vectors: [["0.1"] * len(vectors[0])] * len(vectors),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_vectors_that_cannot_be_right_are_refused_and_nothing_is_stored(tmp_path: Path, lie):
    with DualIndexer(tmp_path / "s", LyingEmbeddings(lie)) as indexer:
        with pytest.raises(EmbeddingError):
            indexer.index_documents(["one", "two"])
        assert indexer.stats().documents == 0
        assert indexer.search("one") == []
        assert sound(indexer)


def test_a_model_that_changes_its_dimension_is_refused_and_the_store_keeps_the_first(tmp_path: Path):
    length = [64]
    model = LyingEmbeddings(lambda vectors: [vector[: length[0]] for vector in vectors])
    with DualIndexer(tmp_path / "s", model) as indexer:
        indexer.index_documents(["one"])
    length[0] = 32
    with DualIndexer(tmp_path / "s", LyingEmbeddings(lambda vectors: [vector[:32] for vector in vectors])) as indexer:
        with pytest.raises(StoreMismatchError, match="32 dimensions to a store of 64"):
            indexer.index_documents(["two"])
        assert indexer.stats().documents == 1
        assert sound(indexer)


def test_a_query_vector_of_another_dimension_leaves_the_keyword_index(tmp_path: Path):
    with DualIndexer(tmp_path / "s", GrowingQueries()) as indexer:
        indexer.index_documents(["apple pie"])
    with DualIndexer(tmp_path / "s", GrowingQueries(queries=32)) as indexer:
        hits = indexer.search("apple")
        assert [hit.text for hit in hits] == ["apple pie"]
        assert "32 dimensions" in hits.degraded[0]


class GrowingQueries(LyingEmbeddings):
    """Queries of another length than documents."""

    def __init__(self, queries: int = 64) -> None:
        super().__init__(lambda vectors: vectors)
        self._queries = queries

    def embed_query(self, text: str) -> list[float]:
        return super().embed_query(text)[: self._queries]


def test_a_failed_first_attempt_does_not_tie_the_empty_store_to_that_model(tmp_path: Path):
    with DualIndexer(tmp_path / "s", FailingEmbeddings(after=1, dim=32)) as indexer, pytest.raises(EmbeddingError):
        indexer.index_documents(["one", "two"])
    with DualIndexer(tmp_path / "s", RecordingEmbeddings(dim=64)) as indexer:
        indexer.index_documents(["one", "two"])
        assert indexer.stats().dimension == 64
        assert len(indexer.search("one")) == 2
        assert sound(indexer)


# -- stores ---------------------------------------------------------------------------------------------------------


def test_another_model_is_refused_at_opening_and_at_first_use(tmp_path: Path):
    with DualIndexer(tmp_path / "s", RecordingEmbeddings("one")) as indexer:
        indexer.index_documents(["text"])
    with pytest.raises(StoreMismatchError, match="one"):
        DualIndexer(tmp_path / "s", RecordingEmbeddings("two"))
    with DualIndexer(tmp_path / "s") as indexer:
        assert len(indexer.keyword_search("text")) == 1, "the keyword index needs no model"
        with pytest.raises(AgentRagError, match="pass the same object"):
            indexer.search("text")
    with DualIndexer(tmp_path / "s", RecordingEmbeddings("one")) as indexer:
        assert len(indexer.search("text")) == 1


def test_the_name_of_a_model_is_needed_only_once(tmp_path: Path):
    with DualIndexer(tmp_path / "s", "hash") as indexer:
        indexer.index_documents(["text"])
    with DualIndexer(tmp_path / "s") as indexer:
        assert len(indexer.search("text")) == 1


def test_another_analyzer_is_refused_unless_everything_may_be_analysed_again(tmp_path: Path):
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "s", model) as indexer:
        indexer.index_documents(["小鹏汽车发布新款", "other"], "a")
        indexer.index_documents(["小鹏汽车"])
    embedded = len(model.texts)
    other = Analyzer(user_words=["小鹏汽车"])
    with pytest.raises(StoreMismatchError, match="reanalyze"):
        DualIndexer(tmp_path / "s", model, analyzer=other)
    with DualIndexer(tmp_path / "s", model, analyzer=other, reanalyze=True) as indexer:
        assert {hit.text for hit in indexer.keyword_search("小鹏汽车", agent_id="a")} == {
            "小鹏汽车发布新款",
            "小鹏汽车",
        }
        assert sound(indexer)
    assert len(model.texts) == embedded, "nothing is embedded again"
    with pytest.raises(StoreMismatchError):
        DualIndexer(tmp_path / "s", model, analyzer=Analyzer())
    with DualIndexer(tmp_path / "s", model) as indexer:  # the store knows its analyzer
        assert sound(indexer)


def test_a_newer_format_is_refused_untouched(tmp_path: Path):
    DualIndexer(tmp_path / "s", "hash").close()
    catalog = sqlite3.connect(tmp_path / "s" / "catalog.sqlite")
    catalog.execute("UPDATE manifest SET value = '99' WHERE key = 'format'")
    catalog.commit()
    catalog.close()
    with pytest.raises(StoreMismatchError, match=r"format 99.*reads format 1"):
        DualIndexer(tmp_path / "s", "hash")


def test_a_folder_of_something_else_is_refused_and_left_alone(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(NotAStoreError, match="not a store"):
        DualIndexer(tmp_path, "hash")
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_is_no_store(tmp_path: Path):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(NotAStoreError, match="is a file"):
        DualIndexer(tmp_path / "file", "hash")
    with pytest.raises(StoreError):
        DualIndexer(tmp_path / "file" / "below", "hash")


@pytest.mark.parametrize("content", [b"garbage" * 500, b"SQLite format 3\x00" + b"\xff" * 5_000, b"PK\x03\x04"])
def test_a_catalog_that_is_no_database_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "catalog.sqlite").write_bytes(content)
    with pytest.raises(NotAStoreError, match="catalog"):
        DualIndexer(tmp_path, "hash")
    assert (tmp_path / "catalog.sqlite").read_bytes() == content


def test_a_database_of_another_program_is_refused(tmp_path: Path):
    other = sqlite3.connect(tmp_path / "catalog.sqlite")
    other.execute("CREATE TABLE customers(name)")
    other.commit()
    other.close()
    with pytest.raises(NotAStoreError, match="customers"):
        DualIndexer(tmp_path, "hash")


def test_a_folder_where_making_a_store_was_interrupted_becomes_one(tmp_path: Path):
    (tmp_path / "catalog.sqlite").touch()
    with DualIndexer(tmp_path, "hash") as indexer:
        indexer.index_documents(["text"])
        assert sound(indexer)


@pytest.mark.parametrize(
    "options",
    [{"exact_limit": -1}, {"chroma": "sometimes"}, {"lock_timeout": -1}, {"embed_timeout": 0}, {"exact_limit": "many"}],
)
def test_impossible_options_of_a_store_are_refused(tmp_path: Path, options):
    with pytest.raises(UsageError, match=next(iter(options))):
        DualIndexer(tmp_path / "s", "hash", **options)


def test_use_after_closing_is_a_clear_error_and_closing_twice_is_none(tmp_path: Path):
    indexer = DualIndexer(tmp_path / "s", "hash")
    indexer.index_documents(["text"])
    view, retriever = indexer.for_agent("a"), HybridRetriever(indexer=indexer)
    indexer.close()
    indexer.close()
    for call in (
        lambda: indexer.search("text"),
        lambda: indexer.search("", mode="keyword"),
        lambda: indexer.index_documents(["more"]),
        lambda: indexer.index_documents([]),
        lambda: indexer.delete("x"),
        lambda: indexer.forget_agent("x"),
        lambda: indexer.read("x"),
        indexer.stats,
        indexer.verify,
        indexer.repair,
        lambda: view.search("text"),
        lambda: retriever.invoke("text"),
    ):
        with pytest.raises(StoreClosedError, match="closed"):
            call()


def test_a_forked_child_gets_an_error_that_tells_it_to_reopen_the_store(tmp_path: Path):
    with DualIndexer(tmp_path / "s", "hash") as indexer:
        indexer.index_documents(["text"])
        child = os.fork()
        if not child:  # pragma: no cover
            code = 1
            try:
                indexer.search("text")
            except StoreClosedError as error:
                code = 0 if "open it again in the child" in str(error) else 2
            finally:
                indexer.close()
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(indexer.search("text")) == 1
        assert sound(indexer)


def test_a_store_cannot_be_pickled_and_a_copy_is_the_same_handle(store: DualIndexer):
    store.index_documents(["text"], "a")
    for thing in (store, store.for_agent("a")):
        with pytest.raises(TypeError, match="open it again"):
            pickle.dumps(thing)
    assert copy.deepcopy(store) is store
    assert len(copy.deepcopy(store.for_agent("a")).search("text")) == 1


def test_an_error_names_the_value_and_the_remedy(store: DualIndexer):
    with pytest.raises(InvalidQueryError) as caught:
        store.search("x", k=0)
    assert "k=0" in str(caught.value)
    assert ">= 1" in str(caught.value)


# -- disks ----------------------------------------------------------------------------------------------------------


def run(code: str, *arguments: object, user: int | None = None) -> dict:
    """Run code in a process of its own; it prints one line of JSON last."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        user=user,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


FULL = """
import hashlib, json, resource, sys
from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.errors import StoreError
def word(number):
    return "".join(chr(97 + byte % 26) for byte in hashlib.blake2b(str(number).encode(), digest_size=12).digest())
indexer = DualIndexer(sys.argv[1], "hash", chroma=sys.argv[2])
stored, error = 0, None
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    for number in range(60):
        text = " ".join(word(number * 400 + i) for i in range(400))
        indexer.index_documents([SourceDocument(f"d{number}", text)])
        stored += 1
except StoreError as caught:
    error = str(caught)
try:
    alive = len(indexer.keyword_search(word(0))) if stored else 0
except StoreError as caught:
    alive = str(caught)
print(json.dumps({"stored": stored, "error": error, "alive": alive}))
"""


def word(number: int) -> str:
    """A word that shares no part with any other."""
    digest = hashlib.blake2b(str(number).encode(), digest_size=12).digest()
    return "".join(chr(97 + byte % 26) for byte in digest)


@pytest.mark.parametrize(("chroma", "limit"), [("always", 400_000), ("auto", 300_000)])
def test_a_full_disk_is_an_error_and_keeps_every_acknowledged_document(tmp_path: Path, chroma: str, limit: int):
    output = run(FULL, tmp_path / "s", chroma, limit)
    assert output["error"], "the disk was never full"
    assert output["alive"] == 1
    with DualIndexer(tmp_path / "s", "hash", chroma=chroma) as indexer:
        assert sound(indexer)
        assert indexer.stats().documents >= output["stored"] > 0
        for number in range(output["stored"]):
            assert indexer.keyword_search(word(number * 400))[0].doc_id == f"d{number}"
        indexer.index_documents([SourceDocument("after", "there is room again")])
        assert indexer.search("room")[0].doc_id == "after"
        assert sound(indexer)


def test_a_full_catalog_rolls_the_batch_back(store: DualIndexer):
    store.index_documents([SourceDocument("kept", "kept words")])
    connection = store._store.catalog.connection()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    writer = store._store.catalog.transaction

    def cramped():
        store._store.catalog.connection().execute(f"PRAGMA max_page_count = {pages + 1}")
        return writer()

    store._store.catalog.transaction = cramped  # type: ignore[method-assign]
    with pytest.raises(StoreError, match=r"full.*rolled back"):
        store.index_documents([SourceDocument("big", "lost words " * 4_000)])
    del store._store.catalog.transaction  # type: ignore[method-assign]
    connection.execute("PRAGMA max_page_count = 1000000")
    assert store.search("lost", mode="keyword") == []
    assert store.search("kept")[0].doc_id == "kept"
    store.index_documents([SourceDocument("big", "found words " * 4_000)])
    assert store.search("found")[0].doc_id == "big"
    assert sound(store)


def test_a_read_only_folder_is_a_clear_error_and_stays_as_it_is(tmp_path: Path):
    """Root may write anywhere but below /proc and /sys; there, making a folder fails for everyone."""
    if os.getuid() == 0:
        with pytest.raises(StoreError, match="can be written"):
            DualIndexer("/proc/agentrag-store", "hash")
        return
    with DualIndexer(tmp_path / "s", "hash") as indexer:
        indexer.index_documents(["apple"])
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    folders = [tmp_path / "s", *(path for path in (tmp_path / "s").rglob("*") if path.is_dir())]
    try:
        for path in [*before, *folders]:
            path.chmod(0o444 if path in before else 0o555)
        with pytest.raises(StoreError, match="writ"):
            DualIndexer(tmp_path / "s", "hash").index_documents(["pear"])
        with pytest.raises(StoreError, match="writ"):
            DualIndexer(tmp_path / "s" / "below", "hash")
        assert {path: path.stat().st_mtime_ns for path in before} == before
    finally:
        for path in folders:
            path.chmod(0o755)


@pytest.mark.parametrize("nothing", [{}, {"filter": {}}, {"filter": {"$and": []}}, {"filter": {"$not": {"$or": []}}}])
def test_a_deletion_that_names_nothing_is_refused_and_deletes_nothing(tmp_path: Path, nothing):
    with DualIndexer(tmp_path / "store", "hash", chroma="auto") as indexer:
        indexer.index_documents(["共享的一篇", "a shared one"])
        with pytest.raises(UsageError, match="forget_agent"):
            indexer.delete(**nothing)
        assert indexer.stats().documents == 2
