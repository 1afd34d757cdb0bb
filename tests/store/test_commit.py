"""What is written of a document: packed forms that unpack to the same, and a signature that notices every change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.search.bm25 import FieldStats, Scorer
from langchain_agentrag.store.columnar_cache import unpack_vectors
from langchain_agentrag.store.commit import (
    document_signature,
    embedding_hash,
    embedding_text,
    pack_lengths,
    pack_terms,
    pack_vector,
    unpack_lengths,
    unpack_terms,
)
from langchain_agentrag.text import FIELDS, Analyzer
from langchain_agentrag.types import Chunk, Section, SourceDocument
from tests.contracts.bm25_reference import matched_gain

ANALYZER = Analyzer()
BASE = SourceDocument("d", "text", {"a": 1}, None, "plain", (Section(0, 4, {"page": 1}, "head"),))


@given(st.text(), st.text(max_size=30))
def test_terms_and_lengths_unpack_to_what_was_packed(text: str, context: str):
    terms = ANALYZER.analyze(text, context)
    packed, lengths = pack_terms(terms), pack_lengths(terms)
    again = unpack_terms(packed, lengths)
    for name in FIELDS:
        assert list(getattr(again, name)) == list(getattr(terms, name))
        assert unpack_lengths(lengths)[name] == terms.lengths.get(name, 0)


@given(st.text("泵阀门 pump valve E1102.3", max_size=60), st.text("泵阀 pump E1102", max_size=20))
def test_a_chunk_scores_the_same_from_its_packed_terms_as_from_its_counts(text: str, query: str):
    terms, query_terms = ANALYZER.analyze(text, "pump 泵"), ANALYZER.analyze_query(query)
    stats = {name: FieldStats(docs=7, tokens=90) for name in FIELDS}
    scorer = Scorer(
        query_terms, stats, {name: dict.fromkeys(terms_of_field, 3) for name, terms_of_field in query_terms.items()}
    )
    lines = dict(zip(FIELDS, pack_terms(terms).split("\n"), strict=True))
    lengths = dict(zip(FIELDS, pack_lengths(terms).split(" "), strict=True))
    counts = {name: Counter(getattr(terms, name)) for name in FIELDS}
    assert scorer.score_lines(lines, lengths) == (scorer.score(counts, terms.lengths), matched_gain(scorer, counts))


def test_vectors_unpack_to_the_same_bits():
    vectors = np.array([[0.1, -2.5e-20, 3e30], [1, 0, -0.0]], dtype=np.float32)
    again = unpack_vectors([pack_vector(vector) for vector in vectors])
    assert again.tobytes() == vectors.tobytes()


@pytest.mark.parametrize(
    "change",
    [
        {"text": "texts"},
        {"metadata": {"a": 2}},
        {"metadata": {"a": 1.0}},
        {"metadata": {"a": True}},
        {"metadata": {"a": "1"}},
        {"metadata": {"a": 1, "b": None}},
        {"metadata": {}},
        {"metadata": {"a": date(2024, 1, 1)}},
        {"kind": "markdown"},
        {"sections": ()},
        {"sections": (Section(0, 3, {"page": 1}, "head"),)},
        {"sections": (Section(0, 4, {"page": 2}, "head"),)},
        {"sections": (Section(0, 4, {"page": 1}, "other"),)},
        {"sections": (Section(0, 4, {"page": 1}, "head", joinable=False),)},
    ],
    ids=repr,
)
def test_every_change_of_a_document_changes_its_signature(change: dict):
    assert document_signature(replace(BASE, **change), "s") != document_signature(BASE, "s")


def test_the_signature_depends_on_the_chunking_and_on_nothing_else():
    assert document_signature(BASE, "s") != document_signature(BASE, "t")
    assert document_signature(replace(BASE, doc_id="e", agent_id="a"), "s") == document_signature(BASE, "s")


def test_the_model_sees_the_context_and_equal_texts_have_equal_keys():
    plain, headed = Chunk(0, 0, 4, "text"), Chunk(3, 9, 13, "text", context="Head")
    assert embedding_text(plain) == "text"
    assert embedding_text(headed) == "Head\ntext"
    assert embedding_hash("text") == embedding_hash(embedding_text(Chunk(7, 1, 5, "text")))
    assert len({embedding_hash(text) for text in ("text", "Text", "text ", "te\x00xt", "\ud83d")}) == 5


def test_a_deletion_leaves_no_vector_of_any_version(tmp_path):
    from langchain_agentrag import DualIndexer, SourceDocument

    with DualIndexer(tmp_path / "store", "hash", chroma="auto") as indexer:
        for text in ("第一版：口令 7741", "second version: code 7742"):
            indexer.index_documents([SourceDocument("note", text)], "lina")
        indexer.delete("note", agent_id="lina")
        connection = indexer._store.catalog.connection()
        for table in ("vectors", "embedding_cache", "chunks"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
