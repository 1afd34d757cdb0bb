"""Vectors kept in a file: embedded once, the same vectors, no text, no mix-ups between models."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from langchain_agentrag import DualIndexer
from langchain_agentrag.embedding import resolve_embedder
from langchain_agentrag.errors import EmbeddingError, UsageError
from langchain_agentrag.evaluation import cached_embedder
from langchain_agentrag.evaluation.vector_cache import FILE_NAME
from tests.fakes import FailingEmbeddings, RecordingEmbeddings

TEXTS = ["油泵", "pump", "油泵", "  ", "\x00 odd"]


def test_a_text_is_embedded_once_even_by_another_process(tmp_path: Path):
    first, second = RecordingEmbeddings(), RecordingEmbeddings()
    vectors = cached_embedder(first, tmp_path).embed_documents(TEXTS)
    again = cached_embedder(second, tmp_path).embed_documents(list(reversed(TEXTS)))
    plain = resolve_embedder(RecordingEmbeddings()).embed_documents(TEXTS)
    assert np.array_equal(vectors, plain)
    assert np.array_equal(again, plain[::-1])
    assert len(first.texts) == len(set(first.texts)) == 3
    assert second.texts == []


def test_queries_and_passages_are_kept_apart(tmp_path: Path):
    model = RecordingEmbeddings("multilingual-e5-small")
    embedder = cached_embedder(model, tmp_path)
    passage, query = embedder.embed_documents(["油泵"])[0], embedder.embed_query("油泵")
    assert not np.array_equal(passage, query), "this family has different prefixes"
    assert np.array_equal(asyncio.run(embedder.aembed_query("油泵")), query)
    assert len(model.queries) == 1


def test_models_do_not_take_each_others_vectors(tmp_path: Path):
    small, large = RecordingEmbeddings(dim=32), RecordingEmbeddings(dim=64)
    assert cached_embedder(small, tmp_path).embed_query("x").shape == (32,)
    assert cached_embedder(large, tmp_path).embed_query("x").shape == (64,)


def test_a_store_opens_with_and_without_the_cache(tmp_path: Path):
    with DualIndexer(tmp_path / "store", cached_embedder("hash", tmp_path / "kept")) as indexer:
        indexer.index_documents(["油泵每月检查。"])
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        assert indexer.search("油泵", mode="vector")


def test_the_file_holds_no_text(tmp_path: Path):
    cached_embedder("hash", tmp_path).embed_documents(["the secret recipe 秘方"])
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert b"secret" not in content
        assert "秘方".encode() not in content


def test_failures_are_not_remembered(tmp_path: Path):
    with pytest.raises(EmbeddingError):
        cached_embedder(FailingEmbeddings(on="bad"), tmp_path).embed_documents(["bad"])
    assert cached_embedder(RecordingEmbeddings("failing"), tmp_path).embed_documents(["bad"]).any()


def test_a_file_that_is_something_else_is_named(tmp_path: Path):
    (tmp_path / FILE_NAME).write_text("not a database, certainly not one of ours" * 50, encoding="utf-8")
    with pytest.raises(UsageError, match="Cannot keep vectors"):
        cached_embedder("hash", tmp_path)
