"""Documents that come with their vectors, and documents fetched by filter."""

from __future__ import annotations

import pytest

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.errors import InvalidDocumentError, StoreMismatchError, UsageError
from tests.fakes import RecordingEmbeddings

DOCUMENTS = [
    SourceDocument("a", "离心泵 Pump", {"kind": "manual"}),
    SourceDocument("b", "阀门 valve", {"kind": "note"}),
]


@pytest.fixture
def model():
    return RecordingEmbeddings(dim=8)


@pytest.fixture
def indexer(tmp_path, model):
    with DualIndexer(tmp_path / "store", model) as indexer:
        yield indexer


def unit(position: int) -> list[float]:
    return [1.0 if place == position else 0.0 for place in range(8)]


def test_a_precomputed_vector_is_used_and_the_model_not_called(indexer, model):
    indexer.index_documents(DOCUMENTS, split=False, vectors=[unit(0), None])
    assert "离心泵 Pump" not in model.texts
    assert "阀门 valve" in model.texts
    assert indexer.vector_search("x", 1, vector=unit(0))[0].doc_id == "a"
    assert indexer.verify().ok


def test_the_same_vectors_again_change_nothing_and_others_do(indexer):
    for vectors, unchanged in (([unit(0), unit(1)], 0), ([unit(0), unit(1)], 2), ([unit(2), unit(1)], 1)):
        report = indexer.index_documents(DOCUMENTS, split=False, vectors=vectors)
        assert report.unchanged == unchanged
    assert indexer.vector_search("x", 1, vector=unit(2))[0].doc_id == "a"


@pytest.mark.parametrize(
    ("vectors", "error"),
    [
        ([unit(0)], InvalidDocumentError),
        ([unit(0), unit(1), unit(2)], InvalidDocumentError),
        ([[1.0, 2.0], None], StoreMismatchError),
        ([[float("nan")] * 8, None], InvalidDocumentError),
        ([[], None], InvalidDocumentError),
        (["abc", None], InvalidDocumentError),
    ],
)
def test_vectors_that_fit_no_document_are_refused(indexer, vectors, error):
    with pytest.raises(error):
        indexer.index_documents(DOCUMENTS, split=False, vectors=vectors)


def test_vectors_of_documents_that_are_to_be_cut_are_refused(indexer):
    with pytest.raises(UsageError, match="split=False"):
        indexer.index_documents(DOCUMENTS, vectors=[unit(0), unit(1)])


def test_documents_are_fetched_by_id_by_filter_or_by_both(indexer):
    indexer.index_documents(DOCUMENTS)
    indexer.index_documents([SourceDocument("a", "私有 private", {"kind": "note"})], "客服")

    def ids(*args, **options):
        return [(d.doc_id, d.agent_id) for d in indexer.get(*args, **options)]

    assert ids(["b", "zz", "a"]) == [("b", None), ("a", None)]
    assert ids(["b", "a"], agent_id="客服") == [("b", None), ("a", "客服")]
    assert ids(filter={"kind": "note"}) == [("b", None)]
    assert ids(filter={"kind": "note"}, agent_id="客服") == [("a", "客服"), ("b", None)]
    assert ids(["a"], filter={"kind": "manual"}) == [("a", None)]
    assert ids(["a"], filter={"kind": "manual"}, agent_id="客服") == []
    assert sorted(ids()) == [("a", None), ("b", None)]
