"""Storage: edits, sizes, names, promotion, other processes, damaged indexes, and work that must not be paid for twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from langchain_core.documents import Document

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.errors import EmbeddingError, ScopeError, UsageError
from tests.fakes import FailingEmbeddings, RecordingEmbeddings

MODES = ("hybrid", "vector", "keyword")
LAYOUTS = {"exact": {"chroma": "auto"}, "approximate": {"chroma": "always", "exact_limit": 0}}


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS.keys())
def layout(request) -> dict:
    return request.param


def ids(hits) -> list[str]:
    return [hit.doc_id for hit in hits]


def embedded(model: RecordingEmbeddings, mark: str = "word") -> list[str]:
    """Texts of the test among those the model saw; the others measured its background."""
    return [text for text in model.texts if mark in text]


def process(code: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- incremental ----------------------------------------------------------------------------------------------------


def test_unchanged_documents_embed_nothing_and_write_nothing(tmp_path: Path):
    model = RecordingEmbeddings()
    documents = [SourceDocument(f"d{i}", f"word {i}", {"n": i}) for i in range(50)]
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        assert store.index_documents(documents).added == 50
        generation = store._store.catalog.partition(None).generation
        report = store.index_documents(documents)
        assert (report.unchanged, report.embedded, report.chunks) == (50, 0, 0)
        assert store._store.catalog.partition(None).generation == generation
    assert len(embedded(model)) == 50


def test_changed_metadata_alone_is_stored_without_embedding(tmp_path: Path, layout):
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "s", model, **layout) as store:
        store.index_documents([SourceDocument("d", "旧 word", {"lang": "zh", "draft": True})])
        report = store.index_documents([SourceDocument("d", "旧 word", {"lang": "zh"})])
        assert (report.updated, report.embedded, report.reused) == (1, 0, 1)
        assert store.read("d").metadata == {"lang": "zh"}
        for mode in MODES:
            assert store.search("word", mode=mode, filter={"draft": True}) == []
            assert ids(store.search("word", mode=mode, filter={"lang": "zh"})) == ["d"]


def test_an_edit_replaces_the_text_in_both_indexes(tmp_path: Path, layout):
    with DualIndexer(tmp_path / "s", "hash", **layout) as store:
        store.index_documents([SourceDocument("d", "旧 文字 first"), SourceDocument("e", "其他")])
        store.index_documents([SourceDocument("d", "新 内容 second")])
        assert store.search("first", mode="keyword") == []
        for mode in MODES:
            assert "旧 文字 first" not in {hit.text for hit in store.search("旧 文字 first", 10, mode=mode)}
        assert store.search("second", 1, mode="vector")[0].text == "新 内容 second"
        assert store.stats().chunks == 2
        assert store.verify().problems == ()


def test_a_shortened_document_leaves_no_chunk_behind(tmp_path: Path, layout):
    with DualIndexer(tmp_path / "s", "hash", **layout) as store:
        long = "\n\n".join(f"Paragraph {i} speaks of topic{i} at length. " * 12 for i in range(12))
        store.index_documents([SourceDocument("d", long)])
        assert store.stats().chunks > 3
        store.index_documents([SourceDocument("d", "short")])
        assert store.stats().chunks == 1
        assert store.search("topic11", mode="keyword") == []
        assert store.verify().problems == ()


def test_a_repeated_paragraph_gives_chunks_of_their_own_and_one_embedding(tmp_path: Path, layout):
    model = RecordingEmbeddings()
    paragraph = "word 同一段 " * 60
    text = f"# A\n\n{paragraph}\n\n# A\n\n{paragraph}\n\n# A\n\n{paragraph}"
    with DualIndexer(tmp_path / "s", model, **layout) as store:
        document = SourceDocument("d", text, kind="markdown")
        report = store.index_documents([document])
        assert report.chunks == store.stats().chunks >= 3
        assert store.index_documents([document]).unchanged == 1
        hits = store.search("同一段", 10)
        assert len({(hit.doc_id, hit.chunk_id) for hit in hits}) == report.chunks
        assert all(text[hit.start : hit.end] == hit.text for hit in hits)


def test_texts_are_embedded_once_per_owner_and_never_borrowed_across(tmp_path: Path):
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        store.index_documents([SourceDocument(f"d{i}", "same word") for i in range(400)])
        assert embedded(model) == ["same word"], "also over batches in flight"
        store.index_documents(["same word"], "a")
        assert embedded(model) == ["same word"] * 2
        store.forget_agent("a")
        store.index_documents(["same word"], "a")
        assert embedded(model) == ["same word"] * 3, "what is forgotten is forgotten"


def test_text_that_was_replaced_and_comes_back_is_not_embedded_again_but_deleted_text_is(tmp_path: Path):
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        for text in ("word one", "word two", "word one"):
            store.index_documents([SourceDocument("d", text)])
        assert embedded(model) == ["word one", "word two"]
        store.delete("d")
        store.index_documents([SourceDocument("d", "word one")])
        assert embedded(model) == ["word one", "word two", "word one"]


def test_twelve_thousand_documents_go_in_with_one_call(tmp_path: Path):
    reports = []
    documents = [Document(page_content=f"word {i}", id=f"d{i}", metadata={"n": i}) for i in range(12_000)]
    with DualIndexer(tmp_path / "s", RecordingEmbeddings(dim=8), chroma="always") as store:
        report = store.index_documents(documents, on_progress=reports.append)
        assert report.added == store.stats().documents == 12_000
        assert ids(store.search("11999", 1)) == ["d11999"]
        assert store._store.indexes.vector_index(store._store.catalog.partition(None)).count() == 12_000
    assert [progress.done for progress in reports] == sorted(progress.done for progress in reports)
    assert reports[-1].done == reports[-1].total == 12_000
    assert reports[-1].chunks == 12_000


def test_a_generator_goes_in_without_a_total(tmp_path: Path):
    reports = []
    with DualIndexer(tmp_path / "s", "hash", chroma="auto") as store:
        store.index_documents((f"word {i}" for i in range(100)), on_progress=reports.append)
        assert store.stats().documents == 100
    assert {progress.total for progress in reports} == {None}


@pytest.mark.parametrize("where", ["text", "count"])
def test_a_model_that_fails_half_way_is_paid_only_for_the_rest(tmp_path: Path, where):
    documents = [SourceDocument(f"d{i}", f"word {i}", agent_id="a" if i % 3 else None) for i in range(500)]
    model = FailingEmbeddings(on="word 333") if where == "text" else FailingEmbeddings(after=300)
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        with pytest.raises(EmbeddingError, match="the model"):
            store.index_documents(documents)
        stored, paid = store.stats().documents, set(embedded(model))
        assert store.verify().problems == ()
        assert stored < 500
        assert len(paid) >= stored
        model.on = model.after = None
        model.texts.clear()
        report = store.index_documents(documents)
        assert report.unchanged == stored
        assert set(embedded(model)) == {document.text for document in documents} - paid
        assert store.stats().documents == 500
        assert store.verify().problems == ()


# -- names, deletion, isolation -------------------------------------------------------------------------------------

AGENTS = [
    "客服一号",
    "客服二号",
    "a",
    "A",
    "a ",
    "agent_",
    "x" * 300,
    "tenant:1",
    "tenant/1",
    "A b",
    "192.168.0.1",
    "..",
    "shared",
    "e\u0301",
    "\u00e9",
    "*",
    "%",
    "a\x00",
]


def test_any_agent_ids_are_kept_apart_exactly(tmp_path: Path):
    with DualIndexer(tmp_path / "s", "hash", chroma="auto") as store:
        store.index_documents([SourceDocument("d", "word for all")])
        for number, agent in enumerate(AGENTS):
            store.index_documents([SourceDocument("d", f"word of {number}")], agent)
        for number, agent in enumerate(AGENTS):
            for mode in MODES:
                texts = {hit.text for hit in store.search("word", 50, mode=mode, agent_id=agent)}
                assert texts == {"word for all", f"word of {number}"}
            assert store.read("d", agent_id=agent).text == f"word of {number}"
        for mode in MODES:
            assert {hit.text for hit in store.search("word", 50, mode=mode)} == {"word for all"}
            assert {hit.text for hit in store.search("word", 50, mode=mode, agent_id="nobody")} == {"word for all"}
        assert store.stats().agents == len(AGENTS)
        assert store.for_agent("a").stats().agents == 1
        assert store.for_agent("a").stats().documents == 2
        assert store.for_agent("a").stats().bytes_on_disk == 0
        assert store.for_agent("nobody").stats().agents == 0


def test_forgetting_removes_one_agent_and_nobody_else(tmp_path: Path, layout):
    with DualIndexer(tmp_path / "s", "hash", **layout) as store:
        for agent in ("a", "b"):
            store.index_documents([SourceDocument(f"{agent}{i}", f"word {i} of {agent}") for i in range(10)], agent)
        store.index_documents(["word shared"])
        assert store.forget_agent("a").deleted == 10
        assert store.forget_agent("a").deleted == 0
        for mode in MODES:
            assert {hit.text for hit in store.search("word", 50, mode=mode, agent_id="a")} == {"word shared"}
            assert len(store.search("word", 50, mode=mode, agent_id="b")) == 11
        for bad in ("", None):
            with pytest.raises(ScopeError):
                store.forget_agent(bad)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            store.forget_agent()  # type: ignore[call-arg]
        assert store.stats().documents == 11
        assert store.verify().problems == ()


def test_deletion_by_id_and_by_filter_stays_within_the_owner(tmp_path: Path, layout):
    with DualIndexer(tmp_path / "s", "hash", **layout) as store:
        for agent in (None, "a", "b"):
            store.index_documents(
                [SourceDocument(f"d{i}", f"word {i}", {"n": i, "odd": bool(i % 2)}) for i in range(6)], agent
            )
        assert store.delete(["d0", "absent"], agent_id="a").deleted == 1
        assert store.delete(filter={"odd": True}, agent_id="a").deleted == 3
        assert store.delete(["d2", "d4"], filter={"n": {"$gt": 2}}, agent_id="a").deleted == 1
        assert store.delete(filter={"agent_id": "b"}, agent_id="a").deleted == 0
        assert store.for_agent("a").delete("d3").deleted == 0
        assert {hit.doc_id for hit in store.search("word", 50, agent_id="a", filter={"agent_id": "a"})} == {"d2"}
        assert store.stats().documents == 13
        assert store.delete(filter={"doc_id": "d5"}).deleted == 1
        assert len(store.search("word", 50)) == 5
        assert len(store.search("word", 50, agent_id="b", filter={"agent_id": "b"})) == 6
        with pytest.raises(UsageError, match="forget_agent"):
            store.delete(agent_id="a")
        assert store.verify().problems == ()


def test_reading_gives_a_chunk_with_its_neighbours_as_written(tmp_path: Path):
    text = "\n\n".join(f"## Part {i}\n\n" + f"Sentence {i} is here. " * 40 for i in range(6))
    with DualIndexer(tmp_path / "s", "hash", chroma="auto") as store:
        store.index_documents([SourceDocument("d", text, {"title": "T"}, kind="markdown")], "a")
        total = store.stats().chunks
        view = store.for_agent("a")
        middle = view.read("d", 3)
        assert (middle.first_chunk, middle.last_chunk, middle.total_chunks) == (3, 3, total)
        wide = view.read("d", 3, before=2, after=1)
        assert (wide.first_chunk, wide.last_chunk) == (1, 4)
        assert text[wide.start : wide.end] == wide.text
        assert middle.text in wide.text
        assert view.read("d", 0, before=99, after=10**9).text == text.strip()
        assert middle.metadata == {"title": "T"}
        store.index_documents([SourceDocument("d", "shared twin")])
        assert view.read("d", 3) == middle, "the agent's own comes first"
        assert store.read("d").text == "shared twin"


# -- promotion ------------------------------------------------------------------------------------------------------


def test_a_partition_that_outgrows_the_exact_limit_answers_as_before(tmp_path: Path):
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "theta", "iota", "kappa", "lambda"]
    texts = [f"{a} {b} {c} word" for a in words for b in words for c in words if a < b < c]
    with DualIndexer(tmp_path / "s", "hash", chroma="auto", exact_limit=len(texts)) as store:
        store.index_documents([SourceDocument(f"d{i}", text) for i, text in enumerate(texts)], "a")
        assert not _in_chroma(store, "a")
        before = store.search("alpha gamma zeta", 4, mode="vector", agent_id="a")
        store.index_documents(["nothing alike"], "a")
        assert _in_chroma(store, "a")
        assert store.search("alpha gamma zeta", 4, mode="vector", agent_id="a") == before
        assert store.search("alpha gamma zeta", 1, agent_id="a")[0].text == "alpha gamma zeta word"
        assert len(store.search("word", 10**6, mode="vector", agent_id="a")) == len(texts) + 1
        assert store.verify().problems == ()
        store.delete([f"d{i}" for i in range(len(texts) - 10)], agent_id="a")
        for mode in ("vector", "hybrid"):
            assert len(store.search("word", 200, mode=mode, agent_id="a")) == 11
        assert store.verify().problems == ()


def _in_chroma(store: DualIndexer, agent: str | None) -> bool:
    return store._store.catalog.partition(agent).in_chroma


# -- other processes, other handles ---------------------------------------------------------------------------------

WRITER = """
import sys
from langchain_agentrag import DualIndexer, SourceDocument
with DualIndexer(sys.argv[1], "hash", chroma=sys.argv[2], exact_limit=int(sys.argv[3])) as store:
    store.index_documents([SourceDocument(f"other{i}", f"word from elsewhere {i}") for i in range(5)])
    store.index_documents([SourceDocument("own", "word edited elsewhere")])
    store.delete("gone")
"""


def test_what_another_process_writes_is_seen_at_once_in_both_indexes(tmp_path: Path, layout):
    with DualIndexer(tmp_path / "s", "hash", **layout) as store:
        store.index_documents([SourceDocument("own", "word own"), SourceDocument("gone", "word gone")])
        assert len(store.search("word", 10)) == 2
        process(WRITER, tmp_path / "s", layout["chroma"], layout.get("exact_limit", 20_000))
        expected = {"own", *(f"other{i}" for i in range(5))}
        for mode in MODES:
            hits = store.search("word", 10, mode=mode)
            assert set(ids(hits)) == expected
            assert hits.degraded == ()
            assert {hit.text for hit in hits if hit.doc_id == "own"} == {"word edited elsewhere"}
        store.index_documents([SourceDocument("mine", "word mine again")])
        for mode in MODES:
            assert set(ids(store.search("word", 10, mode=mode))) == {*expected, "mine"}
        assert store.verify().problems == ()


def test_two_handles_of_one_process_see_each_others_writes(tmp_path: Path, layout):
    with DualIndexer(tmp_path / "s", "hash", **layout) as one, DualIndexer(tmp_path / "s", "hash", **layout) as two:
        for number in range(4):
            writer, reader = (one, two) if number % 2 else (two, one)
            writer.index_documents([SourceDocument(f"d{number}", f"word {number}")])
            for handle in (reader, writer):
                for mode in MODES:
                    hits = handle.search("word", 10, mode=mode)
                    assert set(ids(hits)) == {f"d{i}" for i in range(number + 1)}
                    assert hits.degraded == ()
        one.delete("d0")
        two.index_documents([SourceDocument("d1", "changed")])
        for handle in (one, two):
            for mode in MODES:
                assert "d0" not in ids(handle.search("word", 10, mode=mode))
            assert ids(handle.search("word", 10, mode="keyword")) == ["d2", "d3"]
        for handle in (one, two):
            scores = [(hit.doc_id, hit.score) for hit in handle.search("word changed", 10)]
            assert scores == [(hit.doc_id, hit.score) for hit in one.search("word changed", 10)]
        assert two.verify().problems == ()


def test_what_another_handle_wrote_is_not_taken_for_damage(tmp_path: Path, layout):
    with DualIndexer(tmp_path / "s", "hash", **layout) as one, DualIndexer(tmp_path / "s", "hash", **layout) as two:
        one.index_documents([SourceDocument(f"d{i}", f"word {i}") for i in range(20)])
        assert len(one.search("word", 50)) == 20
        two.index_documents([SourceDocument(f"e{i}", f"word more {i}") for i in range(20)])
        assert one.verify().problems == ()
        assert len(one.search("word", 50)) == 40
        two.delete([f"e{i}" for i in range(10)])
        collection = two._store.catalog.partition(None).collection
        assert one.repair().problems == ()
        assert two._store.catalog.partition(None).collection == collection, "nothing had to be rebuilt"


def test_forgetting_an_agent_disturbs_no_search_that_is_under_way(tmp_path: Path, caplog):
    layout = LAYOUTS["approximate"]
    with DualIndexer(tmp_path / "s", "hash", **layout) as one, DualIndexer(tmp_path / "s", "hash", **layout) as two:
        one.index_documents([SourceDocument(f"d{i}", f"apple {i} word{i}") for i in range(200)])
        done = threading.Event()
        troubles: list[str] = []

        def search(store: DualIndexer) -> None:
            while not done.is_set():
                hits = store.search("apple word7", 10, mode="vector")
                troubles.extend(warning for warning in hits.degraded if "malformed" in warning)
                if len(hits) != 10:
                    troubles.append(f"{len(hits)} hits")

        searching = [threading.Thread(target=search, args=(store,)) for store in (one, two) for _ in range(2)]
        for thread in searching:
            thread.start()
        try:
            for number in range(5):
                one.index_documents([f"secret {number}"], "a")
                assert one.forget_agent("a").deleted == 1
        finally:
            done.set()
            for thread in searching:
                thread.join()
        assert troubles == []
        assert "malformed" not in caplog.text
        assert "rebuilding" not in caplog.text
        assert one.verify().problems == two.verify().problems == ()


def test_an_agent_forgotten_by_another_handle_is_gone_at_once(tmp_path: Path, layout):
    with DualIndexer(tmp_path / "s", "hash", **layout) as one, DualIndexer(tmp_path / "s", "hash", **layout) as two:
        one.index_documents(["word secret"], "a")
        assert len(two.search("word", agent_id="a")) == 1
        one.forget_agent("a")
        assert two.search("word", agent_id="a") == []
        two.index_documents(["word anew"], "a")
        for handle in (one, two):
            for mode in MODES:
                assert [hit.text for hit in handle.search("word", agent_id="a", mode=mode)] == ["word anew"]


# -- damage ---------------------------------------------------------------------------------------------------------


def filled(folder: Path, layout: dict) -> None:
    with DualIndexer(folder, "hash", **layout) as store:
        store.index_documents([SourceDocument(f"d{i}", f"word {i}") for i in range(40)])
        store.index_documents([SourceDocument(f"p{i}", f"word private {i}") for i in range(40)], "a")


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def garble(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size and "lock" not in path.name:
            path.write_bytes(b"garbage" * 40)


def truncate(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and "lock" not in path.name:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [remove, garble, truncate])
@pytest.mark.parametrize("index", ["keyword", "chroma"])
@pytest.mark.parametrize("first", ["search", "write", "repair"])
def test_a_damaged_index_is_rebuilt_or_reported_and_repair_fixes_it(tmp_path: Path, damage, index, first):
    layout = LAYOUTS["approximate"]
    filled(tmp_path / "s", layout)
    damage(tmp_path / "s" / index)
    model = RecordingEmbeddings()
    with DualIndexer(tmp_path / "s", "hash", **layout) as store:
        if first == "search":
            for mode in ("vector", "keyword"):
                hits = store.search("word", 100, mode=mode, agent_id="a")
                assert len(hits) == 80, "no hit is lost"
        elif first == "write":
            store.index_documents([SourceDocument("new", "word new")], "a")
            assert len(store.search("word", 100, mode="keyword", agent_id="a")) == 81
            assert len(store.search("word", 100, mode="vector", agent_id="a")) == 81
            store.delete("new", agent_id="a")
        report = store.repair()
        assert report.problems == ()
        for mode in MODES:
            hits = store.search("word", 100, mode=mode, agent_id="a")
            assert len(hits) == 80
            assert hits.degraded == ()
    assert model.texts == []
    with DualIndexer(tmp_path / "s", "hash", **layout) as store:
        assert store.verify().problems == ()
        assert len(store.search("word", 100, mode="keyword", agent_id="a")) == 80


@pytest.mark.parametrize("index", ["keyword", "chroma"])
def test_an_index_that_vanishes_under_an_open_store_loses_no_hit_and_is_rebuilt(tmp_path: Path, index):
    layout = LAYOUTS["approximate"]
    filled(tmp_path / "s", layout)
    with DualIndexer(tmp_path / "s", "hash", **layout) as store:
        assert len(store.search("word", 100, agent_id="a")) == 80
        shutil.rmtree(tmp_path / "s" / index)
        for mode in ("vector", "keyword"):
            assert len(store.search("word", 100, mode=mode, agent_id="a")) == 80
        store.index_documents([SourceDocument("new", "word new")], "a")
        for mode in ("vector", "keyword"):
            assert len(store.search("word", 100, mode=mode, agent_id="a")) == 81
        assert store.repair().problems == ()
        for mode in MODES:
            hits = store.search("word", 100, mode=mode, agent_id="a")
            assert (len(hits), hits.degraded) == (81, ())


def test_verify_names_what_is_wrong_and_changes_nothing(tmp_path: Path):
    layout = LAYOUTS["approximate"]
    filled(tmp_path / "s", layout)
    with DualIndexer(tmp_path / "s", "hash", **layout) as store:
        partition = store._store.catalog.partition("a")
        store._store.indexes.keyword_index(partition).delete(
            [int(store._store.indexes.keyword_index(partition).rows()[0])]
        )
        store._store.indexes.vector_index(partition).delete(
            [int(store._store.indexes.vector_index(partition).rows()[1])]
        )
        problems = " ".join(store.verify().problems)
        assert "agent 'a': the keyword index lacks 1 rows" in problems
        assert "agent 'a': the vector index lacks 1 rows" in problems
        assert not store.verify().ok
        assert store.repair().ok
        assert len(store.search("word", 100, mode="keyword", agent_id="a")) == 80


def test_statistics_tell_what_is_there(tmp_path: Path):
    with DualIndexer(tmp_path / "s", "hash") as store:
        empty = store.stats()
        assert (empty.documents, empty.chunks, empty.agents, empty.model, empty.dimension) == (0, 0, 0, None, None)
        store.index_documents(["one", "two"])
        store.index_documents(["three"], "a")
        full = store.stats()
        assert (full.documents, full.chunks, full.shared_documents, full.agents) == (3, 3, 2, 1)
        assert full.dimension == 384
        assert full.bytes_on_disk > 50_000
        assert json.dumps(full.model)
        view = store.for_agent("a").stats()
        assert (view.documents, view.shared_documents, view.agents) == (3, 2, 1)
