"""From documents to batches: what is cut, what stays whole, what is not worth a chunk, what the report counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from langchain_agentrag import Chunking, DualIndexer, SourceDocument
from langchain_agentrag.ingest import pipeline
from langchain_agentrag.text.tokenizer import has_content
from langchain_agentrag.types import SyncReport
from tests.fakes import RecordingEmbeddings


@pytest.fixture
def model() -> RecordingEmbeddings:
    return RecordingEmbeddings()


@pytest.fixture
def store(tmp_path: Path, model):
    with DualIndexer(tmp_path / "s", model, chroma="auto") as indexer:
        yield indexer


@pytest.mark.parametrize("text", ["a", "1", "中", "😀", "a。", "+", "$", "ー", "é"])
def test_a_letter_a_digit_or_a_symbol_is_indexed(text: str):
    assert has_content(f"。 {text}\n")


@pytest.mark.parametrize("text", ["", " ", "\u3000", "。。。", "!?", "---", "\x00", "\u200b", "\ud83d", "“”"])
def test_space_and_punctuation_say_nothing(text: str):
    assert not has_content(text)


def test_chunks_that_say_nothing_are_left_out_and_the_others_stay_where_they_are(store: DualIndexer):
    text = "# One\n\nfirst words\n\n" + "- " * 400 + "\n\n# Two\n\nsecond words"
    store.index_documents([SourceDocument("d", text, kind="markdown")])
    hits = store.search("words", 10)
    assert sorted(hit.chunk_id for hit in hits) == list(range(len(hits)))
    assert all(has_content(hit.text) and text[hit.start : hit.end] == hit.text for hit in hits)
    assert store.read("d", 0, after=99).text == text.strip(), "the whole text can still be read"


def test_a_document_in_one_piece_is_not_cut_however_long(store: DualIndexer):
    text = "A sentence of some length. " * 500
    assert store.index_documents([SourceDocument("d", text)], split=False).chunks == 1
    assert store.search("sentence")[0].text == text
    assert store.index_documents([SourceDocument("d", text)], split=False).unchanged == 1
    assert store.index_documents([SourceDocument("d", text)]).chunks > 1


def test_another_chunking_cuts_again_and_embeds_only_what_is_new(tmp_path: Path, model):
    text = "\n\n".join(f"Paragraph number {i} has a few words." for i in range(40))
    with DualIndexer(tmp_path / "s", model, chroma="auto", chunking=Chunking(size=100)) as store:
        small = store.index_documents([SourceDocument("d", text)])
    with DualIndexer(tmp_path / "s", model, chroma="auto", chunking=Chunking(size=300)) as store:
        large = store.index_documents([SourceDocument("d", text)])
        assert large.updated == 1
        assert 1 < large.chunks < small.chunks
        assert store.index_documents([SourceDocument("d", text)]).unchanged == 1
        assert store.verify().problems == ()


def test_the_report_counts_what_was_done(store: DualIndexer):
    first = store.index_documents(
        [SourceDocument("a", "one"), SourceDocument("b", "two"), SourceDocument("c", "one"), SourceDocument("d", "")]
    )
    assert (first.added, first.chunks, first.embedded, first.reused) == (3, 3, 2, 1)
    assert [skipped.key for skipped in first.skipped] == ["d"]
    assert first.seconds > 0
    second = store.index_documents([SourceDocument("a", "one"), SourceDocument("b", "three"), SourceDocument("c", "")])
    assert (second.added, second.updated, second.deleted, second.unchanged) == (0, 1, 1, 1)
    total = first + second
    assert isinstance(total, SyncReport)
    assert (total.added, total.updated, total.embedded, len(total.skipped)) == (3, 1, 3, 1)


def test_documents_of_many_owners_go_in_together(store: DualIndexer):
    documents = [SourceDocument(f"d{i}", f"word {i}", agent_id=f"agent{i % 5}" if i % 6 else None) for i in range(300)]
    assert store.index_documents(documents).added == 300
    assert store.stats().agents == 5
    assert store.stats().shared_documents == 50
    assert store.verify().problems == ()


def test_a_slow_model_gets_small_batches_and_a_quick_one_large(monkeypatch, tmp_path: Path, model):
    sizes: list[int] = []
    with DualIndexer(tmp_path / "s", model, chroma="auto") as store:
        write = store._store.write
        monkeypatch.setattr(store._store, "write", lambda batch: (sizes.append(len(batch.puts)), write(batch))[1])
        store.index_documents([f"word {i}" for i in range(1_200)])
        assert sizes[0] == pipeline._SMALLEST
        assert max(sizes) > 10 * pipeline._SMALLEST
        assert sum(sizes) == 1_200
        sizes.clear()
        monkeypatch.setattr(pipeline, "_SECONDS_PER_BATCH", 0.0)
        store.index_documents([f"other {i}" for i in range(100)])
        assert max(sizes) == pipeline._SMALLEST


def test_a_batch_that_cannot_be_written_keeps_the_vectors_that_were_paid_for(monkeypatch, store: DualIndexer, model):
    def broken(batch):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(store._store, "write", broken)
        with pytest.raises(OSError, match="no space left"):
            store.index_documents([f"word {i}" for i in range(200)])
    assert store.stats().documents == 0
    paid = set(model.texts)
    assert len(paid) >= pipeline._SMALLEST
    model.texts.clear()
    store.index_documents([f"word {i}" for i in range(200)])
    assert set(model.texts).isdisjoint(paid)
    assert store.stats().documents == 200
