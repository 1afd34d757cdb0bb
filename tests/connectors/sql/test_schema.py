"""DatabaseSchemaConnector: tables as documents, over all four databases."""

from __future__ import annotations

import re

import pytest

from langchain_agentrag import DatabaseSchemaConnector, DualIndexer, HashingEmbeddings
from langchain_agentrag.connectors.sql.reflect import Column, ForeignKey, Table
from langchain_agentrag.connectors.sql.schema import table_text
from langchain_agentrag.errors import ConnectorError, UsageError
from tests.databases import run

SHOP = (
    "CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(40) NOT NULL)",
    "CREATE TABLE orders (id INTEGER, line INTEGER, customer INTEGER, total DECIMAL(10,2), PRIMARY KEY (id, line), "
    "FOREIGN KEY (customer) REFERENCES customers (id))",
    "CREATE VIEW big_orders AS SELECT id, total FROM orders WHERE total > 100",
    "INSERT INTO customers VALUES (1, '张三'), (2, 'Ada')",
)


@pytest.fixture
def shop(database):
    run(database, *SHOP)
    return database


def described(connector) -> dict:
    return {document.metadata["table"]: document for item in connector.items() for document in item.load()}


def test_columns_keys_and_references_are_described(shop):
    descriptions = described(DatabaseSchemaConnector(shop))
    assert set(descriptions) == {"customers", "orders", "big_orders"}
    orders = descriptions["orders"]
    assert orders.doc_id == "schema:orders"
    assert orders.metadata == {
        "type": "schema",
        "table": "orders",
        "columns": ["id", "line", "customer", "total"],
        "primary_key": ["id", "line"],
        "foreign_keys": [{"columns": ["customer"], "table": "customers", "referred": ["id"]}],
        "view": False,
    }
    assert re.search(r"- customer INTEGER(\(11\))?, refers to customers\(id\)", orders.text)
    assert "primary key (id, line)" in orders.text
    assert "(10" in orders.text
    assert "referred to by orders(customer)" in descriptions["customers"].text
    assert re.search(r"- id INTEGER(\(11\))?, primary key", descriptions["customers"].text)
    assert descriptions["big_orders"].text.startswith("View 视图 big_orders")
    assert descriptions["big_orders"].metadata["view"]
    assert "张三" not in "".join(document.text for document in descriptions.values())


def test_examples_are_included_only_with_the_option(shop):
    assert "for example 张三; Ada" in described(DatabaseSchemaConnector(shop, examples=2))["customers"].text
    assert "Ada" not in described(DatabaseSchemaConnector(shop, examples=1))["customers"].text


def test_a_changed_table_is_described_anew_and_a_dropped_one_forgotten(shop, tmp_path):
    with DualIndexer(tmp_path / "store", HashingEmbeddings(8)) as indexer:
        assert indexer.sync(DatabaseSchemaConnector(shop)).added == 3
        assert indexer.sync(DatabaseSchemaConnector(shop)).unchanged == 3
        run(shop, "DROP VIEW big_orders", "ALTER TABLE customers ADD COLUMN email VARCHAR(40)")
        report = indexer.sync(DatabaseSchemaConnector(shop))
        assert (report.updated, report.deleted, report.unchanged) == (1, 1, 1)
        for question in ("customers email", "哪个数据表有 email"):
            assert indexer.search(question, k=1, mode="keyword")[0].metadata["table"] == "customers"


def test_tables_can_be_chosen(shop):
    assert set(described(DatabaseSchemaConnector(shop, tables=["orders"]))) == {"orders"}
    with pytest.raises(UsageError, match="no table 'nothing'"):
        described(DatabaseSchemaConnector(shop, tables=["nothing"]))
    with pytest.raises(UsageError, match="examples"):
        DatabaseSchemaConnector(shop, examples=-1)


def test_it_belongs_to_its_agent(shop):
    connector = DatabaseSchemaConnector(shop, agent_id="lina", tables=["orders"])
    assert {document.agent_id for document in described(connector).values()} == {"lina"}


@pytest.mark.parametrize("kind", ["postgresql", "duckdb", "mariadb"])
def test_comments_are_in_the_text(fresh, kind):
    engine = fresh(kind)
    if kind == "mariadb":
        run(engine, "CREATE TABLE u (id INTEGER PRIMARY KEY, c TEXT COMMENT '所在城市') COMMENT '客户档案'")
    else:
        run(engine, "CREATE TABLE u (id INTEGER PRIMARY KEY, c TEXT)", "COMMENT ON TABLE u IS '客户档案'", "COMMENT ON COLUMN u.c IS '所在城市'")  # fmt: skip
    text = described(DatabaseSchemaConnector(engine))["u"].text
    assert text.startswith("Table 数据表 u: 客户档案\n")
    assert ": 所在城市" in text


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
def test_other_schemas_are_described_when_named(fresh, kind):
    engine = fresh(kind)
    run(engine, f"CREATE SCHEMA other_{kind}", f"CREATE TABLE other_{kind}.t (id INTEGER)")
    try:
        assert set(described(DatabaseSchemaConnector(engine, schemas=[f"other_{kind}"]))) == {f"other_{kind}.t"}
    finally:
        run(engine, f"DROP SCHEMA other_{kind} CASCADE")


def test_a_database_that_cannot_be_reached_is_an_error(tmp_path):
    with pytest.raises(ConnectorError, match="no such file"):
        list(DatabaseSchemaConnector(f"sqlite:///{tmp_path}/absent.db").items())


def test_a_table_in_words():
    table = Table(
        "orders",
        "shop",
        (Column("id", "INTEGER", nullable=False), Column("客户", "TEXT", comment="谁买的")),
        ("id",),
        (ForeignKey(("客户",), "people", ()),),
        "订单",
    )
    assert table_text(table, ["lines(order)"], {"客户": ["张三"]}) == (
        "Table 数据表 shop.orders: 订单\n- id INTEGER, primary key\n"
        "- 客户 TEXT, refers to people, for example 张三: 谁买的\nreferred to by lines(order)"
    )
