"""The catalog: transactions that are all or nothing, snapshots that stand still, row ids that never come back."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from langchain_agentrag.errors import StoreError
from langchain_agentrag.metadata import is_storable
from langchain_agentrag.store.catalog import Catalog, clear_model, select_in
from langchain_agentrag.store.queries import cached_vectors, find_document
from langchain_agentrag.times import EPOCH


@pytest.fixture
def catalog(tmp_path: Path):
    opened = Catalog(tmp_path / "catalog.sqlite")
    yield opened
    opened.close()


def test_a_transaction_that_raises_leaves_nothing(catalog: Catalog):
    def half() -> None:
        with catalog.transaction() as connection:
            connection.execute("INSERT INTO manifest VALUES ('half', '1')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert catalog.manifest_value("half") is None
    catalog.set_manifest(whole=1)
    assert catalog.manifest_value("whole") == 1


def test_an_sql_error_is_raised_as_a_store_error(catalog: Catalog):
    with pytest.raises(StoreError, match="rolled back") as caught, catalog.transaction() as connection:
        connection.execute("INSERT INTO absent VALUES (1)")
    assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_a_snapshot_stands_still_while_others_write(catalog: Catalog):
    with catalog.snapshot() as connection:
        before = connection.execute("SELECT count(*) FROM manifest").fetchone()
        writer = threading.Thread(target=lambda: catalog.set_manifest(later=1))
        writer.start()
        writer.join()
        assert connection.execute("SELECT count(*) FROM manifest").fetchone() == before
    assert catalog.manifest_value("later") == 1


def test_row_ids_are_used_once_also_after_reopening(catalog: Catalog, tmp_path: Path):
    partition = catalog.add_partition(None, "shared")
    first = catalog.reserve_rows({partition.id: 3})[partition.id]
    catalog.clear_journal([first[0]])
    again = Catalog(tmp_path / "catalog.sqlite")
    second = again.reserve_rows({partition.id: 2})[partition.id]
    again.close()
    assert set(first[1]).isdisjoint(second[1])
    assert len(second[1]) == 2


def test_a_partition_is_made_once_and_its_id_never_comes_back(catalog: Catalog):
    partition = catalog.add_partition("a", "agent-1")
    assert catalog.add_partition("a", "agent-2") == partition
    with catalog.transaction() as connection:
        connection.execute("DELETE FROM partitions WHERE id = ?", (partition.id,))
    assert catalog.add_partition("a", "agent-3").id > partition.id


def test_every_thread_has_a_connection_of_its_own(catalog: Catalog):
    connections = [catalog.connection()]
    thread = threading.Thread(target=lambda: connections.append(catalog.connection()))
    thread.start()
    thread.join()
    assert connections[0] is catalog.connection()
    assert connections[0] is not connections[1]


def test_a_store_without_chunks_can_be_untied_from_its_model_and_one_with_chunks_cannot(catalog: Catalog):
    catalog.set_manifest(embedding={"name": "x"}, dimension=3, background=0.5, analyzer="kept")
    assert clear_model(catalog)
    assert [catalog.manifest_value(key) for key in ("embedding", "dimension", "background")] == [None] * 3
    assert catalog.manifest_value("analyzer") == "kept"


def test_what_cannot_be_stored_is_found_nowhere(catalog: Catalog):
    for doc_id in ("absent", "\ud83d", None, 5, b"x"):
        assert find_document(catalog.connection(), None, doc_id, EPOCH) is None  # type: ignore[arg-type]
    assert cached_vectors(catalog.connection(), "nobody", [b"x"]) == {}
    assert is_storable("文字\x00")
    assert not is_storable("a\udfff")


def test_statements_get_as_many_values_as_they_can_take():
    sizes: list[int] = []

    class Connection:
        def execute(self, statement, parameters):
            assert statement.count("?") == len(parameters)
            sizes.append(len(parameters))
            return parameters

    query, values = "SELECT row FROM chunks WHERE row IN (...)", list(range(1_201))
    assert list(select_in(Connection(), query, values)) == values
    assert sizes == [500, 500, 201]
    assert list(select_in(Connection(), query, [])) == []
