"""DatabaseConnector where a database holds what Python, or SQLAlchemy, has no name for: a row's oddity is its own."""

from __future__ import annotations

import datetime as dt
import warnings

import pytest
import sqlalchemy as sa

from langchain_agentrag import DatabaseConnector, DatabaseSchemaConnector
from langchain_agentrag.connectors.sql.engine import read_only
from tests.databases import run, url_of

TIMES = {
    "date": ("infinity", "-infinity", "0044-03-15 BC", "12024-01-01"),
    "timestamp": ("infinity", "-infinity", "0044-03-15 00:00:00 BC", "12024-01-01 08:00:00"),
    "timestamptz": ("infinity", "-infinity", "0044-03-15 08:00:00+00 BC", "12024-01-01 08:00:00+00"),
    "time": ("24:00:00",),
    "timetz": ("24:00:00+00",),
}


@pytest.mark.parametrize("kind", TIMES)
def test_a_time_that_python_cannot_hold_is_text_and_concerns_its_row_alone(fresh, indexer, kind):
    engine = fresh("postgresql")
    odd = [f"({place}, '{value}')" for place, value in enumerate(TIMES[kind], 1)]
    plain = "08:30" if kind in {"time", "timetz"} else "2026-03-01"
    run(
        engine,
        "SET timezone = 'UTC'",
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, 何时 {kind}, many {kind}[])",
        f"INSERT INTO t (id, 何时) VALUES {', '.join(odd)}",
        f"INSERT INTO t (id, 何时) VALUES (99, '{plain}')",
        "UPDATE t SET many = ARRAY[何时] WHERE id = 1",
    )
    report = indexer.sync(DatabaseConnector(engine, table="t"))
    assert (report.added, report.failed) == (len(odd) + 1, ())
    first = indexer.read("t:1")
    assert (first.metadata["何时"], first.metadata["many"]) == (TIMES[kind][0], [TIMES[kind][0]])
    assert f"何时：{TIMES[kind][0]}" in first.text
    assert isinstance(indexer.read("t:99").metadata["何时"], dt.date | dt.time)
    assert indexer.sync(DatabaseConnector(engine, table="t")).unchanged == len(odd) + 1


def test_an_engine_gives_times_as_before_when_it_has_been_read(fresh):
    engine = fresh("postgresql")
    pooled = sa.create_engine(url_of(engine), pool_size=1, max_overflow=0)  # one connection for all
    (item,) = DatabaseConnector(pooled, query="SELECT 1 AS id, 'infinity'::date AS d", key="id").items()
    assert [document.metadata["d"] for document in item.load()] == ["infinity"]
    with pooled.connect() as connection, pytest.raises(sa.exc.DataError, match="too large"):
        connection.exec_driver_sql("SELECT 'infinity'::date").all()
    pooled.dispose()


def test_views_whose_rows_are_stored_and_types_without_a_name_are_read(fresh, indexer):
    engine = fresh("postgresql")
    run(
        engine,
        "CREATE TABLE places (id INTEGER PRIMARY KEY, name TEXT, at POINT)",
        "INSERT INTO places VALUES (1, '北京 Beijing', '(1,2)')",
        "CREATE MATERIALIZED VIEW seen AS SELECT * FROM places",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert indexer.sync(DatabaseConnector(engine, table="places")).added == 1
        assert indexer.sync(DatabaseConnector(engine, table="seen", key="id")).added == 1
        schema = [item.key for item in DatabaseSchemaConnector(engine).items()]
    assert indexer.read("seen:1").metadata["at"] == "(1,2)"
    assert any("seen" in key for key in schema)


def test_a_full_text_table_of_sqlite_is_read_and_still_cannot_be_written(fresh, indexer):
    engine = fresh("sqlite")
    run(engine, "CREATE VIRTUAL TABLE notes USING fts5(said)", "INSERT INTO notes VALUES ('阀门 valve')")
    query = "SELECT rowid AS id, said FROM notes WHERE notes MATCH 'valve'"
    assert indexer.sync(DatabaseConnector(engine, query=query, key="id")).added == 1
    assert indexer.search("valve", mode="keyword")[0].doc_id == "notes:1"
    for sql in (
        "INSERT INTO notes VALUES ('x')",
        "INSERT INTO notes (notes) VALUES ('rebuild')",
        "UPDATE sqlite_master SET sql = ''",
        "PRAGMA writable_schema = 1",
        "PRAGMA query_only = 0",
    ):
        with pytest.raises(sa.exc.DatabaseError), read_only(engine) as connection:
            connection.exec_driver_sql(sql)
    run(engine, "INSERT INTO notes VALUES ('泵 pump')")  # as before


def test_json_of_mariadb_is_json(fresh, indexer):
    engine = fresh("mariadb")
    run(
        engine,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, `颜 色` JSON COMMENT '颜色', note LONGTEXT)",
        "INSERT INTO t VALUES (1, '[\"红\", {\"a\": null}]', '[1]'), (2, NULL, 'x')",
        "CREATE VIEW v AS SELECT * FROM t",
    )
    assert indexer.sync(DatabaseConnector(engine, table="t")).added == 2
    assert indexer.sync(DatabaseConnector(engine, table="v", key="id")).added == 2
    assert indexer.read("t:1").metadata["颜 色"] == ["红", {"a": None}]
    assert indexer.read("t:1").metadata["note"] == "[1]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lambda row: row["zz"], "KeyError"),
        (lambda row: row["id"], "returned a int"),
        (lambda row: None, "returned a NoneType"),
        ("{id:q}", "{:q}"),
    ],
)
def test_a_failed_text_function_is_reported_with_its_row_and_keeps_the_row(fresh, indexer, text, message):
    engine = fresh("sqlite")
    run(engine, "CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    indexer.sync(DatabaseConnector(engine, table="t"))
    (failure,) = indexer.sync(DatabaseConnector(engine, table="t", text=text)).failed
    assert failure.key == "t:1"
    assert "text=" in failure.reason
    assert message in failure.reason
    assert indexer.read("t:1").text == "t 1"


@pytest.mark.parametrize(
    ("query", "table"),
    [
        ("SELECT 1 AS id", "query"),
        ("SELECT * FROM orders", "orders"),
        ('select * from "my schema"."订单 2" o join b using (id)', "my schema.订单 2"),
        ("-- from here\nSELECT ' from there ' AS x, id FROM orders", "orders"),
        ("SELECT EXTRACT(YEAR FROM day) AS id FROM orders", "orders"),
        ("SELECT TRIM(BOTH ' ' FROM name) AS id, SUBSTRING(name FROM 2) FROM orders", "orders"),
        ("SELECT a IS DISTINCT FROM b AS id FROM orders", "orders"),
        ("WITH c AS (SELECT * FROM orders) SELECT * FROM c", "orders"),
        ("SELECT * FROM (SELECT * FROM orders) AS inner_one", "orders"),
        ("(SELECT * FROM orders) UNION ALL (SELECT * FROM others)", "orders"),
        ("FROM", "query"),
    ],
)
def test_a_query_is_named_by_the_table_it_reads_first(query, table):
    connector = DatabaseConnector("duckdb:///none.db", query=query, key="id")
    assert connector.connector_id.endswith(f"?query={table}")


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "duckdb", "sqlite"])
def test_what_fills_up_a_column_of_one_length_is_no_part_of_a_key_or_an_agent(fresh, indexer, kind):
    engine = fresh(kind)
    run(
        engine,
        "CREATE TABLE t (code CHAR(6) PRIMARY KEY, who CHAR(10), note VARCHAR(20))",
        "INSERT INTO t VALUES ('甲1', 'lina', 'kept  '), ('B', 'otto', 'x')",
    )
    for name, settings in (("t", {"table": "t"}), ("q", {"query": "SELECT * FROM t", "key": "code"})):
        assert indexer.sync(DatabaseConnector(engine, agent_column="who", name=name, **settings)).added == 2
        passage = indexer.read(f"{name}:甲1", agent_id="lina")
        assert (passage.metadata["code"], passage.metadata["note"]) == ("甲1", "kept  ")
        assert indexer.read(f"{name}:B", agent_id="otto").text.endswith("note: x")
