"""`HybridRecordManager`: its times are those of `get_time` and `aget_time`, whoever sets them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from unittest.mock import patch

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import aindex, index

from langchain_agentrag import DualIndexer, HashingEmbeddings, HybridRecordManager, HybridVectorStore
from langchain_agentrag.errors import UsageError

JANUARY, MARCH = (datetime(2021, month, 2, tzinfo=UTC).timestamp() for month in (1, 3))


@pytest.fixture
def store(tmp_path):
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64)) as indexer:
        yield HybridVectorStore(indexer, agent_id="lina")


class Dated(HybridRecordManager):
    """A record manager with its own clock."""

    now = JANUARY

    def get_time(self) -> float:
        return self.now


def keys_between(manager, after, before):
    return manager.list_keys(after=after, before=before)


def test_records_have_the_time_of_an_overridden_clock(store):
    manager = Dated(store.indexer, agent_id="lina")
    manager.update(["a", "b"])
    asyncio.run(manager.aupdate(["甲"]))
    manager.now = MARCH
    manager.update(["b"])
    assert keys_between(manager, None, MARCH) == ["a", "甲"]
    assert keys_between(manager, JANUARY, None) == ["b"]


@pytest.mark.parametrize("patched", ["get_time", "aget_time"])
def test_records_have_the_time_of_a_patched_clock(store, patched):
    manager = store.record_manager()
    with patch.object(manager, patched, return_value=JANUARY):
        asyncio.run(manager.aupdate(["a"]))
        if patched == "get_time":
            manager.update(["b"])
    assert keys_between(manager, JANUARY - 1, JANUARY + 1) == ["a", "b"][: 2 if patched == "get_time" else 1]
    manager.update(["a"])
    assert "a" not in keys_between(manager, None, MARCH)


def test_an_update_before_time_at_least_is_refused_by_that_clock(store):
    manager = Dated(store.indexer, agent_id="lina")
    with pytest.raises(UsageError, match="time_at_least"):
        manager.update(["a"], time_at_least=MARCH)
    with pytest.raises(UsageError, match="time_at_least"):
        asyncio.run(manager.aupdate(["a"], time_at_least=MARCH))
    assert manager.list_keys() == []


@pytest.mark.parametrize("cleanup", ["full", "incremental"])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_cleanup_deletes_what_an_earlier_time_has_indexed(store, cleanup, way):
    manager = Dated(store.indexer, agent_id="lina")

    def run(*texts):
        documents = [Document(page_content=text, metadata={"source": "手册"}) for text in texts]
        options = {"cleanup": cleanup, "source_id_key": "source", "key_encoder": "sha256"}
        if way == "sync":
            return index(documents, manager, store, **options)
        return asyncio.run(aindex(documents, manager, store, **options))

    assert run("主轴报警", "coolant")["num_added"] == 2
    manager.now = MARCH
    assert run("主轴报警", "new") == {"num_added": 1, "num_updated": 0, "num_skipped": 1, "num_deleted": 1}
    assert {document.page_content for document in store.similarity_search("主轴 coolant new", k=9)} == {
        "主轴报警",
        "new",
    }


def test_without_a_clock_of_its_own_the_time_never_goes_back(store):
    manager = store.record_manager()
    later = manager.get_time() + 1000
    with patch.object(manager, "get_time", return_value=later):
        manager.update(["a"])
    assert manager.get_time() >= later
    assert asyncio.run(manager.aget_time()) >= later
