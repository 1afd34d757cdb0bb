"""No byte of a deleted document stays in the catalog, also not where SQLite has moved rows between its pages."""

from __future__ import annotations

import itertools
import os
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from langchain_agentrag import DualIndexer
from langchain_agentrag.store.free_space import overwrite_free_space
from langchain_agentrag.types import SourceDocument
from tests.store.erasure import find_deleted_text


def _text(number: int, version: int, rng: random.Random, words: int = 40) -> str:
    return f"beginning{number}x{version} " + f"word{number} 词语 " * rng.randrange(1, words)


def _churn(connection: sqlite3.Connection, seed: int, words: int) -> tuple[dict[int, str], list[str]]:
    """Insert, replace and delete rows at random; return the texts that are there and those that are gone."""
    rng, rows = random.Random(seed), itertools.count(1)
    connection.execute("CREATE TABLE texts(id INTEGER PRIMARY KEY, name TEXT UNIQUE, text TEXT)")
    texts: dict[int, str] = {}
    gone = []
    for version in range(40):
        connection.execute("BEGIN")
        action = rng.choice(["insert", "insert", "delete", "replace"])
        numbers = rng.sample(sorted(texts), min(len(texts), rng.randrange(1, 150)))
        if action == "insert":
            numbers = [next(rows) for _ in range(rng.randrange(1, 200))]
        for number in numbers:
            if number in texts:
                gone.append(texts.pop(number))
                connection.execute("DELETE FROM texts WHERE id = ?", (number,))
            if action != "delete":
                texts[number] = _text(number, version, rng, words)
                connection.execute("INSERT INTO texts VALUES (?, ?, ?)", (number, f"n{number}", texts[number]))
        connection.execute("COMMIT")
    return texts, gone


def _beginnings(path: Path, texts: list[str]) -> list[str]:
    present = set(re.findall(rb"beginning\d+x\d+ ", path.read_bytes()))
    return [text for text in texts if text.split(" ")[0].encode() + b" " in present]


@pytest.mark.parametrize("page_bytes", [1024, 4096, 16384])
def test_overwriting_removes_every_copy_of_deleted_rows_and_changes_no_row(tmp_path: Path, page_bytes: int):
    left = 0
    for seed in range(6):
        path = tmp_path / f"{seed}.sqlite"
        connection = sqlite3.connect(path, isolation_level=None)
        for pragma in (f"page_size={page_bytes}", "synchronous=OFF", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")
        texts, gone = _churn(connection, seed, min(40, page_bytes // 100))
        connection.close()
        left += len(_beginnings(path, gone))
        with path.open("r+b", buffering=0) as file:
            assert overwrite_free_space(file.fileno()) > 0
            assert overwrite_free_space(file.fileno()) == 0
        assert not _beginnings(path, gone)
        connection = sqlite3.connect(path)
        assert dict(connection.execute("SELECT id, text FROM texts")) == texts
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
    assert left, "SQLite left no copy: the test shows nothing"


def test_a_file_that_is_no_database_is_refused_and_not_changed(tmp_path: Path):
    path = tmp_path / "other"
    path.write_bytes(b"\x0d" * 10_000)
    with path.open("r+b", buffering=0) as file, pytest.raises(ValueError, match="not a SQLite file"):
        overwrite_free_space(file.fileno())
    assert path.read_bytes() == b"\x0d" * 10_000


@pytest.mark.parametrize("seed", range(4))
def test_erased_documents_leave_no_copy_in_the_store(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    texts: dict[int, str] = {}
    gone: list[str] = []
    numbers = itertools.count()
    with (
        DualIndexer(tmp_path / "store", embeddings="hash") as indexer,
        closing(sqlite3.connect(tmp_path / "store" / "catalog.sqlite")) as reader,
    ):  # a second connection, with pages of its own cached
        for version in range(8):
            fresh = [next(numbers) for _ in range(60)]
            old = rng.sample(sorted(texts), len(texts) // 4)
            gone += [texts[number] for number in old]
            texts |= {number: _text(number, version, rng) for number in fresh + old}
            indexer.index_documents([SourceDocument(doc_id=str(n), text=texts[n]) for n in fresh + old])
            dead = rng.sample(sorted(texts), len(texts) // 4)
            gone += [texts.pop(number) for number in dead]
            reader.execute("SELECT count(text) FROM chunks").fetchone()
            indexer.erase([str(number) for number in dead])
            assert not find_deleted_text(indexer._store, [text.split(" ")[0] + " " for text in gone])
        assert indexer.verify().ok
        assert indexer.stats().documents == len(texts)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the list of open files of Linux")
def test_stores_that_were_closed_hold_no_file_open(tmp_path: Path):
    for number in range(3):
        with DualIndexer(tmp_path / str(number), embeddings="hash") as first:
            with DualIndexer(tmp_path / str(number), embeddings="hash") as second:
                for indexer in (first, second):
                    indexer.index_documents([SourceDocument(doc_id="a", text="text")])
                    indexer.erase(["a"])
            first.index_documents([SourceDocument(doc_id="b", text="text")])
    names = {os.path.realpath(name) for name in Path("/proc/self/fd").iterdir()}
    assert not [name for name in names if name.startswith(str(tmp_path))]
