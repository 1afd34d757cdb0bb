"""Every contract suite, run by every implementation and by the plain reference."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from langchain_agentrag import (
    AgentMemoryConnector,
    Analyzer,
    DatabaseConnector,
    DualIndexer,
    FileSystemConnector,
    HashingEmbeddings,
    SourceDocument,
)
from langchain_agentrag.errors import UsageError
from langchain_agentrag.filters import filter_keys, parse
from langchain_agentrag.search.fusion import fuse
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.store.chroma import ChromaFolder
from langchain_agentrag.store.keyword_index import TantivyKeywordIndex
from langchain_agentrag.store.lock import WriteLock
from langchain_agentrag.store.vector_index import ChromaVectorIndex
from langchain_agentrag.testing.indexes import KeywordIndexConformance, VectorIndexConformance
from tests.contracts.analyzer import AnalyzerContract
from tests.contracts.connector import START, ConnectorContract
from tests.contracts.filter_form import DOCUMENTS, FilterContract, matching
from tests.contracts.fusion_rule import FusionContract
from tests.contracts.reference import MemoryConnector, MemoryKeywords, MemoryVectors
from tests.contracts.reference_fusion import reference_fusion
from tests.contracts.world import fresh_folder
from tests.databases import run


@pytest.fixture
def folder():
    folder = fresh_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


# -- keyword indexes -----------------------------------------------------------------------------------------------------


class TestReferenceKeywords(KeywordIndexConformance):
    def make_index(self):
        return MemoryKeywords()

    def reopen(self, index):
        return index


class TestTantivyKeywords(KeywordIndexConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, folder):
        self.folder = folder

    def make_index(self):
        return TantivyKeywordIndex(self.folder / "keyword")

    def reopen(self, index):
        return self.make_index()


# -- vector indexes ------------------------------------------------------------------------------------------------------


class TestReferenceVectors(VectorIndexConformance):
    def make_index(self):
        return MemoryVectors()

    def reopen(self, index):
        return index


@pytest.mark.parametrize("owner", [None, "a%"], ids=["shared", "agent"])
class TestChromaVectors(VectorIndexConformance):
    @pytest.fixture(autouse=True)
    def _chroma(self, folder, owner):
        lock = WriteLock(folder, 5.0)
        self.owner, self.chroma = owner, ChromaFolder(folder / "chroma", Catalog(folder / "catalog.sqlite"), lock)
        with lock.acquire():
            yield
        self.chroma.close()

    def make_index(self):
        index = ChromaVectorIndex(self.chroma, "a-collection", self.owner)
        index.create()
        return index

    def reopen(self, index):
        self.chroma.close()
        return ChromaVectorIndex(self.chroma, "a-collection", self.owner)


# -- fusion rules -----------------------------------------------------------------------------------------------------


@dataclass
class Rule:
    name: str

    def __call__(self, rankings, weights):
        return fuse(self.name, rankings, weights)


@pytest.mark.parametrize("name", ["adaptive", "convex", "rrf", "dbsf", "relative"])
class TestFusionRules(FusionContract):
    @pytest.fixture
    def rule(self, name):
        return Rule(name)

    @pytest.fixture
    def oracle(self, name):
        return partial(reference_fusion, name)


# -- analyzers --------------------------------------------------------------------------------------------------------


class TestAnalyzers(AnalyzerContract):
    @pytest.fixture(params=["auto", "jieba", "user words", "no stop words"])
    def make(self, request):
        options: dict[str, Any] = {
            "auto": {},
            "jieba": {"backend": "jieba"},
            "user words": {"user_words": ["连接超时", "alphas were"]},
            "no stop words": {"stop_words": []},
        }[request.param]
        return lambda: Analyzer(**options)


# -- filters ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored():
    """Stores of the documents of the filter cases, one per set of options."""
    folder, opened = fresh_folder(), {}

    def open_(**options):
        key = repr(options)
        if key not in opened:
            opened[key] = DualIndexer(folder / str(len(opened)), HashingEmbeddings(8), **options)
            opened[key].index_documents(documents())
        return opened[key]

    yield open_
    for indexer in opened.values():
        indexer.close()
    shutil.rmtree(folder, ignore_errors=True)


def documents():
    return [SourceDocument(f"d{place}", f"数据 alpha {place}", document) for place, document in enumerate(DOCUMENTS)]


class TestReferenceFilters(FilterContract):
    @pytest.fixture
    def compiled(self):
        return matching


class TestColumnFilters(FilterContract):
    """The masks of `ColumnarCache` alone."""

    @pytest.fixture
    def compiled(self, stored):
        store = stored(chroma="auto")._store
        partition = store.catalog.partition(None)
        cache = store.indexes.cache(partition)
        rows = cache.select(partition, None).tolist()
        return lambda where: {rows.index(row) for row in cache.select(partition, parse(where)).tolist()}


@pytest.mark.parametrize("mode", ["keyword", "vector", "hybrid"])
@pytest.mark.parametrize("options", [{"chroma": "auto"}, {"chroma": "always", "exact_limit": 0}], ids=["exact", "hnsw"])
class TestSearchFilters(FilterContract):
    """The filter of a search, as each index applies it: exactly, and over approximate neighbours."""

    @pytest.fixture
    def compiled(self, stored, mode, options):
        indexer = stored(**options)
        return lambda where: {int(hit.doc_id[1:]) for hit in indexer.search("数据 alpha", 100, filter=where, mode=mode)}


class TestDeletionFilters(FilterContract):
    """What `delete(filter=...)` deletes: everything is stored again afterwards."""

    @pytest.fixture
    def compiled(self, stored):
        indexer = stored(chroma="auto", lock_timeout=29.0)  # a store that no other suite reads

        def select(where):
            if not filter_keys(parse(where)):  # without keys it is refused, whatever it would match
                with pytest.raises(UsageError, match="would delete everything"):
                    indexer.delete(filter=where)
                return matching(where)
            indexer.delete(filter=where)
            left = {hit.doc_id for hit in indexer.search("数据", 100, mode="keyword")}
            indexer.index_documents(documents())
            return {place for place in range(len(DOCUMENTS)) if f"d{place}" not in left}

        return select


# -- connectors -------------------------------------------------------------------------------------------------------


@dataclass
class MemorySource:
    agent_id: str | None = None
    name: str = "memory"
    texts: dict[str, str | None] = field(default_factory=lambda: dict(START))

    def connector(self):
        return MemoryConnector(self.texts, self.name, self.agent_id)

    def write(self, key, text):
        self.texts[key] = text

    def remove(self, key):
        del self.texts[key]

    def spoil(self, key):
        self.texts[key] = None


class FileSource:
    def __init__(self, folder: Path, agent_id: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.agent_id, self.monkeypatch = folder, agent_id, monkeypatch
        folder.mkdir(parents=True, exist_ok=True)
        for key, text in START.items():
            self.write(key, text)

    def connector(self):
        return FileSystemConnector(self.folder, agent_id=self.agent_id)

    def write(self, key, text):
        (self.folder / key).write_text(text, encoding="utf-8")

    def remove(self, key):
        (self.folder / key).unlink()

    def spoil(self, key):
        """Give it another version and make the disk fail on it."""
        self.write(key, "longer than before")
        spoilt, read = self.folder / key, Path.read_bytes

        def failing(path):
            if path == spoilt:
                raise OSError(5, "Input/output error")
            return read(path)

        self.monkeypatch.setattr(Path, "read_bytes", failing)


class ConnectorFixtures:
    @pytest.fixture
    def indexer(self, folder):
        with DualIndexer(folder / "store", HashingEmbeddings(8), chroma="auto") as opened:
            yield opened


class TestReferenceConnector(ConnectorFixtures, ConnectorContract):
    @pytest.fixture
    def source(self):
        return MemorySource


class TestFileSystemConnector(ConnectorFixtures, ConnectorContract):
    @pytest.fixture
    def source(self, folder, monkeypatch):
        return lambda agent_id=None, name="memory": FileSource(folder / str(agent_id) / name, agent_id, monkeypatch)


class MemoryFileSource:
    """A chat store with one session per key, each of one message."""

    def __init__(self, path: Path, agent_id: str | None) -> None:
        self.path, self.agent_id = path, agent_id
        path.parent.mkdir(parents=True, exist_ok=True)
        self.store = {key: [{"role": "user", "content": text}] for key, text in START.items()}
        self._save()

    def connector(self):
        whose = {"shared": True} if self.agent_id is None else {"agent_id": self.agent_id}
        return AgentMemoryConnector(self.path, **whose)

    def write(self, key, text):
        self.store[key] = [{"role": "user", "content": text}]
        self._save()

    def remove(self, key):
        del self.store[key]
        self._save()

    def spoil(self, key):
        self.store[key] = [{"nothing": "known"}]
        self._save()

    def _save(self):
        self.path.write_text(json.dumps({"store": self.store}), encoding="utf-8")


class TestAgentMemoryConnector(ConnectorFixtures, ConnectorContract):
    @pytest.fixture
    def source(self, folder):
        return lambda agent_id=None, name="memory": MemoryFileSource(folder / str(agent_id) / f"{name}.json", agent_id)


class TableSource:
    """A table with one row per key; a row is spoilt by taking its owner away."""

    def __init__(self, engine: sa.Engine, name: str, agent_id: str | None) -> None:
        self.engine, self.name, self.agent_id = engine, name, agent_id
        run(engine, f"CREATE TABLE {name} (path VARCHAR(20) PRIMARY KEY, body VARCHAR(99), bad INTEGER)")
        for key, text in START.items():
            self.write(key, text)

    def connector(self):
        return DatabaseConnector(self.engine, table=self.name, text=self._text, agent_id=self.agent_id)

    def write(self, key, text, bad=0):
        self.remove(key)
        run(self.engine, f"INSERT INTO {self.name} VALUES ('{key}', '{text}', {bad})")

    def remove(self, key):
        run(self.engine, f"DELETE FROM {self.name} WHERE path = '{key}'")

    def spoil(self, key):
        run(self.engine, f"UPDATE {self.name} SET bad = 1 WHERE path = '{key}'")

    _text = "{body}"


class TableSourceWithFunction(TableSource):
    @staticmethod
    def _text(row):
        if row["bad"]:
            raise ValueError("this row is bad")
        return row["body"]


class TestDatabaseConnector(ConnectorFixtures, ConnectorContract):
    @pytest.fixture
    def source(self, database, request):
        # only a function can fail on one row; it is asked for every row, so that there is no version to compare
        fails = "cannot_be_read" in request.node.name
        names = itertools.count(1)
        kind = TableSourceWithFunction if fails else TableSource
        return lambda agent_id=None, name="memory": kind(database, f"{name}{next(names)}", agent_id)
