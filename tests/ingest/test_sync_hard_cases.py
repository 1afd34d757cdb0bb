"""Keeping a store in step with its sources: what changed is read, what is gone goes, what failed keeps what was."""

from __future__ import annotations

from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.connector import Gap, NotIndexableError
from langchain_agentrag.errors import (
    ConnectorError,
    EmbeddingError,
    MissingExtraError,
    ScopeError,
    UnreadableSourceError,
)
from langchain_agentrag.types import Failure
from tests.fakes import FailingEmbeddings, MemoryConnector, RecordingEmbeddings

MODES = ("hybrid", "vector", "keyword")


@pytest.fixture
def model() -> RecordingEmbeddings:
    return RecordingEmbeddings()


@pytest.fixture
def store(tmp_path: Path, model):
    with DualIndexer(tmp_path / "store", model, chroma="auto") as indexer:
        yield indexer


def texts(indexer: DualIndexer, agent: str | None = None) -> set[str]:
    """Everything a store shows an agent; both indexes must agree on it."""
    texts_by_mode = [{hit.text for hit in indexer.search("word", 1_000, mode=mode, agent_id=agent)} for mode in MODES]
    assert texts_by_mode[0] == texts_by_mode[1] == texts_by_mode[2]
    return texts_by_mode[0]


def counts(report) -> tuple[int, int, int, int]:
    return report.added, report.updated, report.deleted, report.unchanged


def test_a_source_is_followed_through_additions_edits_and_removals(store: DualIndexer, model):
    source = MemoryConnector({"a": ("1", ["word a"]), "b": ("1", ["word b", "word b two"]), "c": (None, ["word c"])})
    assert counts(store.sync(source)) == (4, 0, 0, 0)
    embedded_before = list(model.texts)
    source.loaded.clear()
    assert counts(store.sync(source)) == (0, 0, 0, 4)
    assert source.loaded == ["c"], "only what has no version is read again"
    assert model.texts == embedded_before, "and nothing is embedded again"
    source.contents = {"a": ("2", ["word a changed"]), "b": ("2", ["word b"]), "d": ("1", ["word d"])}
    report = store.sync(source)
    assert counts(report) == (1, 1, 2, 1)
    assert texts(store) == {"word a changed", "word b", "word d"}
    embedded = [text for text in model.texts if text.startswith("word")]  # the rest measured the model's background
    assert embedded == [*embedded_before, "word a changed", "word d"]
    assert store.verify().problems == ()


def test_an_item_that_yields_fewer_documents_loses_the_rest_and_is_not_read_again(store: DualIndexer):
    source = MemoryConnector({"a": ("1", [f"word {i}" for i in range(100)])})
    store.sync(source)
    source.contents["a"] = ("2", ["word 0", "word 50"])
    report = store.sync(source)
    assert (report.added, report.deleted) == (0, 98)
    assert texts(store) == {"word 0", "word 50"}
    source.loaded.clear()
    store.sync(source)
    assert source.loaded == []


def test_an_item_that_becomes_empty_leaves_nothing_findable(store: DualIndexer):
    source = MemoryConnector({"a": ("1", ["word a"]), "b": ("1", ["word b"]), "c": ("1", ["word c"])})
    store.sync(source)
    source.contents |= {"a": ("2", []), "b": ("2", [" \n"]), "c": ("2", NotIndexableError("binary now"))}
    report = store.sync(source)
    assert report.deleted == 3
    assert Failure("c", "binary now") in report.skipped
    assert texts(store) == set()
    source.loaded.clear()
    assert store.sync(source).deleted == 0
    assert source.loaded == []


def test_text_that_moves_to_another_item_is_not_embedded_again(store: DualIndexer, model):
    source = MemoryConnector({"old": ("1", ["word that moves"])})
    store.sync(source)
    source.contents = {"new": ("1", ["word that moves"])}
    report = store.sync(source)
    assert counts(report) == (1, 0, 1, 0)
    assert report.reused == 1
    assert model.texts == ["word that moves"]
    assert texts(store) == {"word that moves"}


@pytest.mark.parametrize("order", [["x", "y"], ["y", "x"]])
@pytest.mark.parametrize("vanishes", [True, False])
def test_a_document_that_moves_to_another_item_survives_whatever_is_read_first(store: DualIndexer, order, vanishes):
    moving, staying = SourceDocument("moving", "word moving"), SourceDocument("staying", "word staying")
    source = MemoryConnector({"x": ("1", [moving, staying]), "y": ("1", [])})
    store.sync(source)
    after = {"x": ("2", [staying]), "y": ("2", [moving])}
    if vanishes:
        del after["x"]
    source.contents = {key: after[key] for key in order if key in after}
    store.sync(source)
    assert texts(store) == {"word moving"} | (set() if vanishes else {"word staying"})
    source.loaded.clear()
    store.sync(source)
    assert source.loaded == []
    source.contents["y"] = ("3", [])
    store.sync(source)
    assert "word moving" not in texts(store)


def test_a_document_indexed_by_hand_before_belongs_to_the_source_that_delivers_it(store: DualIndexer):
    document = SourceDocument("d", "word")
    store.index_documents([document])
    source = MemoryConnector({"a": ("1", [document])})
    store.sync(source)
    source.contents = {}
    assert store.sync(source).deleted == 1
    assert texts(store) == set()


def test_what_was_deleted_by_hand_comes_back_while_the_source_has_it(store: DualIndexer):
    source = MemoryConnector({"a": ("1", ["word a"])})
    store.sync(source)
    assert store.delete("memory:a:0").deleted == 1
    assert counts(store.sync(source)) == (1, 0, 0, 0)


def test_an_item_that_cannot_be_read_is_reported_and_keeps_what_was_stored_of_it(store: DualIndexer):
    source = MemoryConnector({key: ("1", [f"word {key}"]) for key in "abcd"})
    store.sync(source)
    source.contents |= {
        "a": ("2", UnreadableSourceError("the disk has a bad sector")),
        "b": ("2", ValueError("nonsense")),
        "c": ("2", MissingExtraError("PDF files", "files")),
        "d": ("2", ["word d changed"]),
    }
    report = store.sync(source)
    assert counts(report) == (0, 1, 0, 0)
    assert {failure.key for failure in report.failed} == {"a", "b", "c"}
    reasons = {failure.key: failure.reason for failure in report.failed}
    assert reasons["a"] == "the disk has a bad sector"
    assert reasons["b"] == "ValueError: nonsense"
    assert "pip install" in reasons["c"]
    assert texts(store) == {"word a", "word b", "word c", "word d changed"}
    source.contents["a"] = ("2", ["word a mended"])
    assert "word a mended" in (store.sync(source), texts(store))[1], "it is tried again"


def test_an_item_that_breaks_half_way_keeps_its_old_documents_and_is_read_again(store: DualIndexer):
    source = MemoryConnector({"a": ("1", ["word one", "word two"])})
    store.sync(source)

    def broken():
        yield "word one changed"
        raise OSError("connection lost")

    source.contents["a"] = ("2", broken())
    report = store.sync(source)
    assert [failure.key for failure in report.failed] == ["a"]
    assert texts(store) == {"word one changed", "word two"}
    source.contents["a"] = ("2", ["word one changed"])
    assert store.sync(source).deleted == 1


def test_one_bad_document_of_an_item_is_named(store: DualIndexer):
    source = MemoryConnector(
        {"a": ("1", ["word fine", SourceDocument("bad", "word", {"x": object()})]), "b": ("1", ["word b"])}
    )
    report = store.sync(source)
    assert [failure.key for failure in report.failed] == ["a"]
    assert "index 1" in report.failed[0].reason
    assert {"word b", "word fine"} <= texts(store)


def test_gaps_are_reported_and_shield_what_lies_below_from_deletion(store: DualIndexer):
    names = ["deep/a", "deep/er/b", "shallow", "other/c", "deeper"]
    source = MemoryConnector({name: ("1", [f"word {name}"]) for name in names})
    store.sync(source)
    source.contents = {}
    source.gaps = [
        Gap("deep/", "permission denied", skipped=False),
        Gap("shallow", "is locked", skipped=False),
        Gap("other/c", "ignored now", skipped=True),
    ]
    report = store.sync(source)
    assert texts(store) == {"word deep/a", "word deep/er/b", "word shallow"}
    assert report.failed == (Failure("deep/", "permission denied"), Failure("shallow", "is locked"))
    assert report.skipped == (Failure("other/c", "ignored now"),)
    assert report.deleted == 2
    source.gaps = []
    assert store.sync(source).deleted == 3


@pytest.mark.parametrize("error", [ConnectorError("unplugged"), OSError("unplugged")])
def test_a_source_that_cannot_be_listed_deletes_nothing(store: DualIndexer, error):
    source = MemoryConnector({key: ("1", [f"word {key}"]) for key in "abcd"})
    store.sync(source)
    source.contents = {key: ("2", [f"word {key} changed"]) for key in "ab"}
    source.breaks = error
    with pytest.raises(type(error), match="unplugged"):
        store.sync(source)
    assert len(texts(store)) == 4
    assert store.verify().problems == ()
    source.breaks = None
    assert counts(store.sync(source)) == (0, 2, 2, 0)


def test_two_sources_of_one_id_are_reported_and_the_first_keeps_it(store: DualIndexer):
    document = SourceDocument("same", "word first")
    store.sync(MemoryConnector({"a": ("1", [document])}, name="first"))
    second = MemoryConnector({"a": ("1", [SourceDocument("same", "word second"), "word fine"])}, name="second")
    report = store.sync(second)
    assert [failure.key for failure in report.failed] == ["a"]
    assert "memory:first" in report.failed[0].reason
    assert texts(store) == {"word first", "word fine"}
    second.contents = {}
    store.sync(second)
    assert texts(store) == {"word first"}, "what a source did not store it does not delete"


def test_two_sources_do_not_delete_each_others_documents(store: DualIndexer):
    store.sync(MemoryConnector({"a": ("1", ["word one"])}, name="one"))
    store.sync(MemoryConnector({"a": ("1", ["word two"])}, name="two"))
    store.index_documents(["word by hand"])
    store.sync(MemoryConnector({}, name="one"))
    assert texts(store) == {"word two", "word by hand"}


def test_a_private_source_writes_to_its_agent_only(store: DualIndexer):
    source = MemoryConnector({"a": ("1", ["word private"])}, agent_id="a")
    store.for_agent("a").sync(source)
    assert texts(store) == set()
    assert texts(store, "a") == {"word private"}
    assert texts(store, "b") == set()
    with pytest.raises(ScopeError, match="agent_id='b'"):
        store.for_agent("b").sync(source)
    stranger = MemoryConnector({"a": ("1", [SourceDocument("x", "word", {"agent_id": "b"})])}, agent_id="a", name="s")
    assert len(store.sync(stranger).failed) == 1
    assert texts(store, "b") == set()
    store.forget_agent("a")
    assert counts(store.sync(source)) == (1, 0, 0, 0), "a forgotten agent's source starts anew"


def test_a_model_that_fails_stops_the_run_and_blames_no_item(tmp_path: Path):
    source = MemoryConnector({f"k{i:03}": ("1", [f"word {i}"]) for i in range(300)})
    with DualIndexer(tmp_path / "s", FailingEmbeddings(after=100), chroma="auto") as store:
        with pytest.raises(EmbeddingError, match="the model is gone"):
            store.sync(source)
        stored = store.stats().documents
        assert store.verify().problems == ()
    model = FailingEmbeddings()
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        report = store.sync(source)
        assert report.failed == ()
        assert report.added == 300 - stored
        assert store.stats().documents == 300
        assert len(model.texts) <= 300 - 64, "what was paid for is not paid for again"


def test_a_model_that_cannot_be_loaded_is_one_error_and_no_failed_items(tmp_path: Path):
    model = tmp_path / "model"  # a folder, so that opening accepts it, without a model in it
    model.mkdir()
    with DualIndexer(tmp_path / "s", str(model), chroma="auto") as store:
        with pytest.raises((EmbeddingError, MissingExtraError)):
            store.sync(MemoryConnector({f"k{i}": ("1", [f"word {i}"]) for i in range(40)}))
        assert store.stats().documents == 0


def test_progress_counts_items_and_ends_at_the_last(store: DualIndexer):
    updates = []
    source = MemoryConnector({f"k{i}": ("1", [f"word {i}"]) for i in range(100)})
    source.total = 100  # type: ignore[attr-defined]
    store.sync(source, on_progress=updates.append)
    done = [progress.done for progress in updates]
    assert done == sorted(done)
    assert done[-1] == 100
    assert {progress.total for progress in updates} == {100}
    assert updates[-1].chunks == 100
    assert "k42" in {progress.item for progress in updates}


def test_a_progress_callback_that_raises_stops_the_run_cleanly(store: DualIndexer):
    def stop(progress):
        if progress.done == 60:
            raise KeyboardInterrupt

    source = MemoryConnector({f"k{i}": ("1", [f"word {i}"]) for i in range(100)})
    with pytest.raises(KeyboardInterrupt):
        store.sync(source, on_progress=stop)
    assert store.verify().problems == ()
    assert store.sync(source).failed == ()
    assert len(texts(store)) == 100


async def test_sync_has_an_async_twin(store: DualIndexer):
    report = await store.async_sync(MemoryConnector({"a": ("1", ["word a"])}))
    assert counts(report) == (1, 0, 0, 0)
