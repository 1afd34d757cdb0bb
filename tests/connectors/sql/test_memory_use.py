"""Memory while a large table is read: by the connector alone, and by a whole sync (slow)."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import sqlalchemy as sa

from langchain_agentrag import DatabaseConnector
from langchain_agentrag.ingest.sync import SeenItems
from tests.databases import kind_of, run

ROOT = Path(__file__).parents[3]


def test_rows_are_read_a_part_at_a_time(database: sa.Engine):
    """100 MB of rows pass through, a few of them are held; PostgreSQL and MariaDB keep the rest on their side."""
    wide = "LONGTEXT" if kind_of(database) == "mariadb" else "TEXT"
    run(database, f"CREATE TABLE wide (id INTEGER PRIMARY KEY, body {wide})")
    with database.begin() as connection:
        insert = sa.text("INSERT INTO wide VALUES (:id, :body)")
        connection.execute(insert, [{"id": number, "body": "数据 row " * 12_500} for number in range(20)])
        connection.execute(sa.text("INSERT INTO wide SELECT a.id + 100 + 20 * b.id, a.body FROM wide a, wide b"))
    tracemalloc.start()
    try:
        count = sum(item.size > 80_000 for item in DatabaseConnector(database, table="wide").items())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 420
    assert peak < 30 * 2**20, f"{peak / 2**20:.0f} MB"


def test_seen_items_of_a_sync_are_not_kept_in_memory():
    tracemalloc.start()
    try:
        with SeenItems() as visits:
            for start in range(0, 200_000, 1_000):
                names = [f"table:{number}" for number in range(start, start + 1_000)]
                visits.add_items(dict.fromkeys(names, "version"))
                for name in names:
                    visits.add_document("lina", name)
            peak = tracemalloc.get_traced_memory()[1]
            assert visits.seen_items(["table:7", "table:-1"]) == {"table:7"}
            assert (visits.seen_with_version("table:7", "version"), visits.seen_with_version("table:7", "other")) == (
                True,
                False,
            )
            assert visits.seen_document("lina", "table:7")
            assert not visits.seen_document(None, "table:7")
            assert not visits.seen_document("Lina", "table:7")
    finally:
        tracemalloc.stop()
    assert peak < 5 * 2**20


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_memory_of_a_sync_does_not_grow_with_the_table():
    """300,000 rows take hardly more than 100,000."""
    script = [sys.executable, str(ROOT / "benchmarks" / "rows.py"), "memory", "--rows", "300000"]
    done = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT)
    megabytes = {
        int(rows.replace(",", "")): int(size) for rows, size in re.findall(r"([\d,]+) rows\s+(\d+) MB", done.stdout)
    }
    first = [int(size) for size in re.findall(r"rows\s+(\d+) MB", done.stdout.partition("synced again")[0])]
    assert max(megabytes) == 300_000
    assert first[-1] < first[2] * 1.3, done.stdout
