"""Documents of any make: recognised by shape, addressed stably, checked before anything is written."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from langchain_core.documents import Document

from langchain_agentrag import SourceDocument
from langchain_agentrag.errors import InvalidDocumentError, ScopeError, UsageError
from langchain_agentrag.ingest.documents import as_doc_ids, as_source_documents
from langchain_agentrag.types import Section
from tests.fakes import stable_id


def converted(*inputs: object, agent: str | None = None) -> list[SourceDocument]:
    return list(as_source_documents(inputs, agent))


def node(name: str, text: str, metadata: dict | None = None) -> SimpleNamespace:
    """The shape of a LlamaIndex node."""
    return SimpleNamespace(node_id=name, get_content=lambda: text, metadata=metadata)


def test_every_make_of_document_is_taken():
    own = SourceDocument("own", "text", {"a": 1})
    documents = converted(
        own, Document(page_content="text", id="lc", metadata={"a": 1}), node("n", "text", {"a": 1}), "text"
    )
    assert documents[0] is own
    assert [(d.doc_id, d.text, d.metadata) for d in documents[1:3]] == [
        ("lc", "text", {"a": 1}),
        ("n", "text", {"a": 1}),
    ]
    assert (documents[3].text, documents[3].metadata) == ("text", {})


def test_without_an_id_the_content_is_the_address_and_repetitions_get_their_own():
    once = converted("a", Document(page_content="a"), Document(page_content="a", metadata={"x": 1}), "a", "b")
    again = converted("a", Document(page_content="a"), Document(page_content="a", metadata={"x": 1}), "a", "b")
    assert [d.doc_id for d in once] == [d.doc_id for d in again]
    assert len({d.doc_id for d in once}) == 5
    assert converted("b")[0].doc_id == once[4].doc_id, "whatever was indexed along with it"


def test_metadata_in_another_order_is_the_same_content():
    first, second = (
        Document(page_content="a", metadata={"x": 1, "y": 2}),
        Document(page_content="a", metadata={"y": 2, "x": 1}),
    )
    assert converted(first)[0].doc_id == converted(second)[0].doc_id


def test_an_id_that_is_no_text_becomes_text():
    assert converted(node(5, "text"))[0].doc_id == "5"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bound", "argument", "owner"),
    [
        (None, SourceDocument("d", "t"), None),
        ("a", SourceDocument("d", "t"), "a"),
        (None, SourceDocument("d", "t", agent_id="a"), "a"),
        (None, SourceDocument("d", "t", {"agent_id": "a"}), "a"),
        ("a", SourceDocument("d", "t", {"agent_id": "a"}, "a"), "a"),
        (None, Document(page_content="t", metadata={"agent_id": "a"}), "a"),
        ("a", Document(page_content="t", metadata={"agent_id": None}), "a"),
    ],
)
def test_a_document_belongs_to_whom_the_call_or_itself_names(bound, argument, owner):
    assert converted(argument, agent=bound)[0].agent_id == owner


@pytest.mark.parametrize(
    ("bound", "argument"),
    [
        ("a", SourceDocument("d", "t", agent_id="b")),
        ("a", SourceDocument("d", "t", {"agent_id": "b"})),
        (None, SourceDocument("d", "t", {"agent_id": "b"}, "a")),
        (None, SourceDocument("d", "t", {"agent_id": ""})),
        (None, SourceDocument("d", "t", {"agent_id": 5})),
        (None, SourceDocument("d", "t", {"agent_id": ["a"]})),
        ("a", SourceDocument("d", "t", {"agent_id": "A"})),
    ],
)
def test_a_claim_on_another_agent_or_on_none_that_can_be_is_refused_and_named(bound, argument):
    with pytest.raises(ScopeError, match="index 1"):
        converted("fine", argument, agent=bound)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "pdf"},
        {"sections": None},
        {"sections": ("x",)},
        {"sections": (Section(0, 5),)},
        {"sections": (Section(-1, 2),)},
        {"sections": (Section(3, 2),)},
        {"sections": (Section(0, 3), Section(2, 4))},
        {"sections": (Section(2, 4), Section(0, 2))},
        {"sections": (Section(0, 4, {"x": object()}),)},
    ],
    ids=stable_id,
)
def test_a_structure_that_does_not_fit_the_text_is_refused(wrong: dict):
    with pytest.raises(InvalidDocumentError, match="index 0"):
        converted(SourceDocument("d", "text", **wrong))
    assert converted(SourceDocument("d", "text", sections=(Section(0, 2), Section(2, 2), Section(2, 4))))


def test_documents_are_looked_at_one_by_one():
    def endless():
        while True:
            yield "text"

    documents = as_source_documents(endless(), None)
    assert next(documents).text == next(documents).text


def test_ids_are_taken_singly_or_in_lists():
    assert as_doc_ids(None) is None
    assert as_doc_ids("abc") == ["abc"]
    assert as_doc_ids(iter(["b", "a", "b", "\ud83d"])) == ["b", "a"]
    for bad in (5, b"ab", [1], ["a", None], object()):
        with pytest.raises(UsageError):
            as_doc_ids(bad)  # type: ignore[arg-type]
