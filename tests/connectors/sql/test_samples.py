"""Real schemas in all four databases: loaded, described, indexed, found.

The samples are not ours to ship: `AGENTRAG_DATA` names a folder that holds `chinook_sql/` and `tau_retail_sql/`.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from langchain_agentrag import DatabaseConnector, DatabaseSchemaConnector, DualIndexer, HashingEmbeddings
from tests.databases import KINDS, copy_tables, sqlite_script

DATA = Path(os.environ.get("AGENTRAG_DATA", "absent"))
CHINOOK, RETAIL = DATA / "chinook_sql" / "chinook.sql", DATA / "tau_retail_sql" / "retail.sql"
pytestmark = pytest.mark.skipif(
    not (CHINOOK.exists() and RETAIL.exists()),
    reason="AGENTRAG_DATA does not name a folder that holds chinook_sql and tau_retail_sql",
)
ROWS = {"Album": 347, "Artist": 275, "Customer": 59, "Employee": 8, "Genre": 25, "Invoice": 412, "MediaType": 5, "Playlist": 18}  # fmt: skip


@pytest.fixture(scope="module")
def chinook(tmp_path_factory):
    return sqlite_script(CHINOOK, tmp_path_factory.mktemp("chinook"))


@pytest.fixture(scope="module")
def retail(tmp_path_factory):
    return sqlite_script(RETAIL, tmp_path_factory.mktemp("retail"))


@pytest.fixture
def indexer(tmp_path):
    with DualIndexer(tmp_path / "store", HashingEmbeddings(8)) as opened:
        yield opened


@pytest.mark.parametrize("kind", KINDS)
def test_chinook_is_indexed_from_every_database(kind, fresh, chinook, indexer):
    engine = fresh(kind)
    copy_tables(chinook, engine)
    for table, rows in ROWS.items():
        report = indexer.sync(DatabaseConnector(engine, table=table))
        assert (report.added, report.failed) == (rows, ())
    for query, doc_id in (
        ("Luís Gonçalves", "Customer:1"),
        ("luisg@embraer.com.br", "Customer:1"),
        ("AC/DC", "Artist:1"),
        ("Nancy Edwards Sales Manager", "Employee:2"),
    ):
        assert indexer.search(query, k=1, mode="keyword")[0].doc_id == doc_id
    hit = indexer.search("Adams General Manager", k=1, mode="keyword")[0]
    assert hit.metadata["BirthDate"].year == 1962
    pairs = list(DatabaseConnector(engine, table="PlaylistTrack").items())
    assert len({item.key for item in pairs}) == 8715
    assert "PlaylistTrack:1|3402" in {item.key for item in pairs}


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_finds_where_data_lives(kind, fresh, chinook, indexer):
    engine = fresh(kind)
    copy_tables(chinook, engine)
    indexer.sync(DatabaseSchemaConnector(engine))
    for question, table in (
        ("which table holds the unit price of a track", {"Track", "InvoiceLine"}),
        ("billing address of invoices", {"Invoice"}),
        ("employee hire date", {"Employee"}),
    ):
        assert indexer.search(question, k=1, mode="keyword", filter={"type": "schema"})[0].metadata["table"] in table


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_shop_are_found_by_their_default_text(kind, fresh, retail, indexer):
    """nDCG@10 of the keyword index; ids of the judgments are table:key."""
    engine = fresh(kind)
    copy_tables(retail, engine)
    for table in ("users", "orders", "products"):
        indexer.sync(DatabaseConnector(engine, table=table))
    lines = (RETAIL.parent / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    qrels: dict[str, dict[str, int]] = {}
    for line in (RETAIL.parent / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        qrels.setdefault(query, {})[document] = int(grade)
    queries = [entry for entry in map(json.loads, lines) if entry["_id"] in qrels][::4]
    scores = [
        ndcg([hit.doc_id for hit in indexer.search(entry["text"], k=10, mode="keyword")], qrels[entry["_id"]])
        for entry in queries
    ]
    assert sum(scores) / len(scores) >= 0.62


def ndcg(results: list[str], grades: dict[str, int]) -> float:
    gain = sum(grades.get(doc_id, 0) / math.log2(place + 2) for place, doc_id in enumerate(results))
    best = sorted(grades.values(), reverse=True)[:10]
    return gain / sum(grade / math.log2(place + 2) for place, grade in enumerate(best))
