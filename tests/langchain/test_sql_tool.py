"""`run_sql`: questions are answered, and nothing that an agent writes can change or stall a database."""

from __future__ import annotations

import json
import time

import pytest
from sqlalchemy import create_engine, text

from langchain_agentrag.connectors.sql.query import ReadOnlyDatabase
from langchain_agentrag.connectors.sql.statement import CheckedSelect
from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.langchain.sql_tool import SQLTool
from tests.fences import unfenced


@pytest.fixture
def engine(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders(id INTEGER PRIMARY KEY, customer TEXT, total REAL, on_date DATE)"))
        connection.execute(text("CREATE TABLE secrets(word TEXT)"))
        connection.execute(text("INSERT INTO secrets VALUES ('7741')"))
        for number in range(120):
            connection.execute(
                text("INSERT INTO orders VALUES (:n, :c, :t, '2026-03-01')"),
                {"n": number, "c": "张三" if number % 2 else "Smith", "t": number * 1.5},
            )
    yield engine
    engine.dispose()


@pytest.fixture
def tool(engine):
    return SQLTool(database=ReadOnlyDatabase(engine, tables=["orders"], timeout=1.0))


def call(tool, sql):
    return tool.invoke({"name": tool.name, "args": {"sql": sql}, "id": "1", "type": "tool_call"})


def counted(engine):
    with engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM orders")).scalar_one()


async def test_a_select_is_answered_with_rows_for_the_model_and_the_program(tool):
    message = call(tool, "SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer ORDER BY 1")
    assert message.artifact == [
        {"customer": "Smith", "n": 60, "total": 5310.0},
        {"customer": "张三", "n": 60, "total": 5400.0},
    ]
    assert '"张三"' in message.content
    assert json.loads(unfenced(message.content).splitlines()[1]) == message.artifact[0]
    assert "12" in await tool.ainvoke({"sql": "SELECT id FROM orders WHERE id = 12 AND customer <> ':x'"})


@pytest.mark.parametrize(
    "sql",
    [
        "WITH big AS (SELECT * FROM orders WHERE total > 100) SELECT count(*) FROM big",
        "SELECT id FROM orders WHERE id < 2 UNION SELECT id FROM orders WHERE id > 118",
        "select o.id from orders o where customer = '张三' limit 3; ",
        "SELECT strftime('%Y', on_date) AS y, replace(customer, 'Smith', 'S') FROM orders LIMIT 1",
    ],
)
def test_any_form_of_one_select_will_do(tool, sql):
    assert call(tool, sql).status == "success"


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM orders",
        "UPDATE orders SET total = 0",
        "INSERT INTO orders VALUES (999, 'x', 1, NULL)",
        "DROP TABLE orders",
        "CREATE TABLE t(a)",
        "SELECT 1; DELETE FROM orders",
        "SELECT 1; SELECT 2",
        "WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone",
        "PRAGMA writable_schema = 1",
        "ATTACH DATABASE '/tmp/x.db' AS x",
        "VACUUM",
        "BEGIN; DELETE FROM orders; COMMIT",
        "SELECT load_extension('evil')",
        "SELECT word FROM secrets",
        "SELECT (SELECT word FROM secrets) FROM orders",
        "WITH s AS (SELECT * FROM secrets) SELECT * FROM s",
        "SELECT * FROM sqlite_master",
        "/* SELECT */ DELETE FROM orders -- SELECT",
        "not sql at all",
        "",
    ],
)
def test_everything_else_is_refused_and_changes_nothing(tool, engine, sql):
    message = call(tool, sql)
    assert message.status == "error"
    assert "7741" not in message.content
    assert counted(engine) == 120


def test_the_database_itself_refuses_to_write_even_if_the_parser_were_fooled(engine, monkeypatch):
    database = ReadOnlyDatabase(engine)
    monkeypatch.setattr(database, "_check", CheckedSelect)
    for sql in ("DELETE FROM orders", "CREATE TABLE t(a)"):
        with pytest.raises(InvalidQueryError, match="not authorized"):
            database.run(sql)
    monkeypatch.undo()
    assert counted(engine) == 120
    with engine.begin() as connection:  # the owner of the connection can write again
        connection.execute(text("DELETE FROM orders WHERE id = 0"))
    assert counted(engine) == 119


def test_rows_width_and_time_are_bounded(engine):
    tool = SQLTool(database=ReadOnlyDatabase(engine, max_rows=10, timeout=0.5), language="zh")
    message = call(tool, "SELECT * FROM orders")
    assert len(message.artifact) == 10
    assert "还有更多" in message.content
    assert len(call(tool, "SELECT printf('%.*c', 9000, 'x') AS wide").content) < 500
    started = time.monotonic()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    message = call(tool, endless)
    assert time.monotonic() - started < 5
    assert message.status == "error"
    assert "longer than" in message.content


def test_the_description_holds_the_schema_of_the_open_tables_only(tool):
    assert "orders(id INTEGER, customer TEXT" in tool.description
    assert "secrets" not in tool.description
    assert "sqlite" in tool.description


def test_a_wrong_query_returns_the_message_of_the_database(tool):
    assert "no such column: custmer" in call(tool, "SELECT custmer FROM orders").content
    assert "No row matches" in call(tool, "SELECT * FROM orders WHERE id = -1").content
    assert "no argument 'query'" in tool.invoke({"query": "SELECT 1"})


def test_an_unreachable_database_is_named_without_its_password(tmp_path):
    database = ReadOnlyDatabase(f"sqlite:///{tmp_path}/no/such/folder.db")
    with pytest.raises(Exception, match="unable to open"):
        database.schema()
