"""Databases as callers hold them: whatever they pass, the same rows arrive, and nothing is written or shown."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import warnings
from decimal import Decimal
from enum import Enum

import pytest
import sqlalchemy as sa
from llama_index.core.utilities.sql_wrapper import SQLDatabase as LlamaIndexDatabase
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from langchain_agentrag import DatabaseConnector, DatabaseSchemaConnector, ReadOnlyDatabase
from langchain_agentrag.errors import ConnectorError, InvalidQueryError, UsageError
from tests.databases import run, url_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # langchain-community announces its own end
    from langchain_community.utilities import SQLDatabase as LangChainDatabase


class Base(DeclarativeBase):
    """Base of the mapped classes."""


class Customer(Base):
    """A table with Chinese names, one column less than the database has, and a comment that SQLite cannot hold."""

    __tablename__ = "客户"
    number: Mapped[int] = mapped_column("编号", primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column("姓名", comment="全名")
    since: Mapped[dt.date | None] = mapped_column("日期")


TABLE = Customer.__table__
ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg_async"}


@pytest.fixture
def customers(database: sa.Engine) -> sa.Engine:
    columns = "编号 INTEGER PRIMARY KEY, 姓名 VARCHAR(40), 日期 DATE, 秘密 VARCHAR(40)"
    run(database, f"CREATE TABLE 客户 ({columns})", "CREATE TABLE 工资 (id INTEGER PRIMARY KEY)")
    rows = "(1, '张三', '2026-05-01', 'x:y %s'), (2, 'Ada', NULL, NULL), (3, '100% :who', NULL, NULL)"
    run(database, f"INSERT INTO 客户 VALUES {rows}")
    return database


def texts(connector: DatabaseConnector) -> dict[str, str]:
    return {document.doc_id: document.text for item in connector.items() for document in item.load()}


def names(connector: DatabaseConnector) -> dict[str, object]:
    return {document.doc_id: document.metadata["姓名"] for item in connector.items() for document in item.load()}


# -- what is passed as the database ----------------------------------------------------------------------------------


def test_engine_connection_and_session_give_the_rows_of_the_url(customers):
    expected = texts(DatabaseConnector(url_of(customers), table="客户"))
    assert set(expected) == {"客户:1", "客户:2", "客户:3"}
    assert texts(DatabaseConnector(customers, table="客户")) == expected
    with customers.connect() as connection, Session(customers) as session, Session(connection) as bound:
        for source in (connection, session, bound):
            connector = DatabaseConnector(source, table="客户")
            assert texts(connector) == expected
            assert connector.connector_id == DatabaseConnector(url_of(customers), table="客户").connector_id


@pytest.mark.parametrize("kind", ASYNC_DRIVERS)
def test_asynchronous_engines_and_their_urls_are_read_by_a_synchronous_driver(fresh, kind):
    engine = fresh(kind)
    run(engine, "CREATE TABLE 客户 (编号 INTEGER PRIMARY KEY, 姓名 VARCHAR(40))", "INSERT INTO 客户 VALUES (1, '张三')")
    url = engine.url.set(drivername=ASYNC_DRIVERS[kind])
    asynchronous = create_async_engine(url, poolclass=NullPool)

    async def with_connection() -> dict[str, object]:
        async with asynchronous.connect() as connection:
            return await asyncio.to_thread(names, DatabaseConnector(connection, table="客户"))

    for source in (url, asynchronous, asynchronous.sync_engine, AsyncSession(asynchronous)):
        assert names(DatabaseConnector(source, table="客户")) == {"客户:1": "张三"}
    assert asyncio.run(with_connection()) == {"客户:1": "张三"}
    assert ReadOnlyDatabase(asynchronous).run("SELECT count(*) FROM 客户").rows == ((1,),)


@pytest.mark.parametrize("driver", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_a_url_without_an_installed_driver_gets_one(fresh, driver):
    engine = fresh("postgresql")
    run(engine, "CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (7)")
    asyncpg = {"ssl": "disable", "prepared_statement_cache_size": "0"} if driver.endswith("asyncpg") else {}
    url = engine.url.set(drivername=driver, query={**engine.url.query, **asyncpg})
    assert set(texts(DatabaseConnector(url.render_as_string(hide_password=False), table="t"))) == {"t:7"}


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_is_recognised_by_its_content(fresh, tmp_path, kind):
    engine = fresh(kind)
    run(engine, "CREATE TABLE t (id INTEGER PRIMARY KEY, 名 VARCHAR(9))", "INSERT INTO t VALUES (1, '张三')")
    for name in ("a#b?50%.db", "数据", "x.csv"):  # neither marks of URLs nor the end of the name matter
        copy = tmp_path / "资料 库" / name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(engine.url.database, copy)
        for source in (copy, str(copy)):
            assert texts(DatabaseConnector(source, table="t")) == {"t:1": "t 1\n名：张三"}
            assert ReadOnlyDatabase(source).run("SELECT 名 FROM t").rows == (("张三",),)


def test_what_is_no_database_file_is_refused_and_none_is_made(tmp_path):
    (tmp_path / "notes.db").write_text("just words", encoding="utf-8")
    for path in (tmp_path, tmp_path / "notes.db"):
        with pytest.raises(UsageError, match=r"is no database: it is .*FileSystemConnector"):
            DatabaseConnector(path, table="t")
    for name in ("absent.db", "absent.duckdb"):
        with pytest.raises(ConnectorError, match="no such file"):
            list(DatabaseConnector(str(tmp_path / name), table="t").items())
    assert [path.name for path in tmp_path.iterdir()] == ["notes.db"]


@pytest.mark.parametrize("url", ["postgresql:/ada:s3cret-word@host/shop.db", "ada:s3cret-word@host/x"])
def test_a_mistyped_url_is_no_path_and_not_shown(url):
    with pytest.raises(UsageError) as caught:
        DatabaseConnector(url, table="t")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("other", [TABLE, Customer, sa.select(TABLE)])
def test_a_table_or_select_in_the_place_of_the_database_is_told_where_it_belongs(other):
    with pytest.raises(UsageError, match=r"pass the engine first, and this as table=… or query=…"):
        DatabaseConnector(other, table="t")


def test_a_database_in_memory_is_not_read_while_its_only_connection_writes():
    engine = sa.create_engine("sqlite://")
    run(engine, "CREATE TABLE t (id INTEGER PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with engine.connect() as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (2)"))
        with pytest.raises(ConnectorError, match="Commit or roll it back first"):
            list(DatabaseConnector(connection, table="t").items())
        connection.commit()
        assert set(texts(DatabaseConnector(connection, table="t"))) == {"t:1", "t:2"}
    with pytest.raises(UsageError, match="only its own connection sees it"):
        DatabaseConnector(create_async_engine("sqlite+aiosqlite://"), table="t")


# -- SQLDatabase of the frameworks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", [LangChainDatabase, LlamaIndexDatabase])
@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mariadb"], indirect=True)  # none reflects DuckDB
def test_the_tables_of_a_frameworks_database_stay_limited(customers, framework):
    source = framework(customers, include_tables=["客户"])
    assert texts(DatabaseConnector(source, table="客户")) == texts(DatabaseConnector(customers, table="客户"))
    with pytest.raises(UsageError, match="does not let the table '工资' be read, only 客户"):
        DatabaseConnector(source, table="工资")
    assert {item.key for item in DatabaseSchemaConnector(source).items()} == {"schema:客户"}
    assert ReadOnlyDatabase(source).run("SELECT count(*) FROM 客户").rows == ((3,),)
    with pytest.raises(InvalidQueryError, match="工资"):
        ReadOnlyDatabase(source).run("SELECT * FROM 工资")


@pytest.mark.parametrize("framework", [LangChainDatabase, LlamaIndexDatabase])
def test_the_schema_of_a_frameworks_database_is_that_of_its_tables(fresh, framework):
    engine = fresh("postgresql")
    schema = f"other_{framework.__module__.partition('_')[0]}"
    run(engine, f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.t (id INTEGER PRIMARY KEY)")
    run(engine, f"INSERT INTO {schema}.t VALUES (5)", "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    try:
        source = framework(engine, schema=schema)
        assert set(texts(DatabaseConnector(source, table="t"))) == {f"{schema}.t:5"}
        assert ReadOnlyDatabase(source).run(f"SELECT id FROM {schema}.t").rows == ((5,),)
        with pytest.raises(InvalidQueryError, match="not open to questions"):
            ReadOnlyDatabase(source).run("SELECT id FROM t")
    finally:
        run(engine, f"DROP SCHEMA {schema} CASCADE")


# -- tables and statements of SQLAlchemy ------------------------------------------------------------------------------


def test_a_table_and_a_mapped_class_give_the_declared_columns(customers):
    for table in (TABLE, Customer):
        connector = DatabaseConnector(customers, table=table)
        assert texts(connector)["客户:1"] == "客户 1\n全名：张三\n日期：2026-05-01"
        assert names(connector) == {"客户:1": "张三", "客户:2": "Ada", "客户:3": "100% :who"}
    undeclared = sa.Table("客户", sa.MetaData())
    assert texts(DatabaseConnector(customers, table=undeclared)) == texts(DatabaseConnector(customers, table="客户"))
    missing = sa.Table("客户", sa.MetaData(), sa.Column("邮箱", sa.Text))
    with pytest.raises(UsageError, match="has no column '邮箱', which its declaration names"):
        list(DatabaseConnector(customers, table=missing).items())


def test_a_view_has_the_key_that_its_table_declares(customers):
    run(customers, "CREATE VIEW v AS SELECT 编号 AS id FROM 客户")
    view = sa.Table("v", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
    assert set(texts(DatabaseConnector(customers, table=view))) == {"v:1", "v:2", "v:3"}


def test_statements_of_sqlalchemy_are_run_with_their_values(customers):
    def loaded(query, **options):
        return names(DatabaseConnector(customers, query=query, key="编号", **options))

    assert loaded(sa.select(TABLE).where(TABLE.c.姓名.in_(["张三", "Ada"]))) == {"客户:1": "张三", "客户:2": "Ada"}
    assert loaded(sa.select(Customer).where(Customer.name.like("%100%"))) == {"客户:3": "100% :who"}
    both = sa.union_all(*(sa.select(TABLE).where(TABLE.c.编号 == number) for number in (1, 3)))
    assert set(loaded(both)) == {"客户:1", "客户:3"}
    chosen = sa.select(TABLE).where(TABLE.c.编号 == sa.bindparam("number"))
    assert loaded(chosen, parameters={"number": 2}) == {"客户:2": "Ada"}
    with Session(customers) as session:
        assert loaded(session.query(Customer).filter_by(name="Ada")) == {"客户:2": "Ada"}


def test_a_select_gives_the_types_that_are_declared(fresh):
    kinds = Enum("Kind", ["open", "closed"])
    table = sa.Table(
        "orders",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime),
        sa.Column("data", sa.JSON),
        sa.Column("kind", sa.Enum(kinds)),
        sa.Column("price", sa.Numeric(10, 2)),
    )
    row = {"id": 1, "at": dt.datetime(2026, 5, 1, 8), "data": {"色": ["红"]}, "price": Decimal("9.50")}
    for kind in ("sqlite", "postgresql", "mariadb"):
        engine = fresh(kind)
        table.metadata.create_all(engine)
        with engine.begin() as connection:
            connection.execute(table.insert().values(**row, kind=kinds.open))
        (item,) = DatabaseConnector(engine, query=sa.select(table), key="id").items()
        assert item.load()[0].metadata == {"type": "row", "table": "orders", **row, "kind": "open"}
        table.metadata.drop_all(engine)


def test_a_text_binds_its_parameters_and_runs_as_written_without(customers):
    sql = "SELECT * FROM 客户 WHERE 姓名 = :who AND '5%' = '5%'"
    for query, parameters in (
        (sql, {"who": "100% :who"}),
        (sa.text(sql), {"who": "100% :who"}),
        (sa.text(sql).bindparams(who="100% :who"), None),
        ("SELECT * FROM 客户 WHERE 姓名 = '100% :who'", None),
        (r"SELECT * FROM 客户 WHERE 姓名 = '100% \:who'", {}),
    ):
        connector = DatabaseConnector(customers, query=query, parameters=parameters, key="编号")
        assert names(connector) == {"客户:3": "100% :who"}
    injected = DatabaseConnector(customers, query=sql, parameters={"who": "' OR 1=1 --"}, key="编号")
    assert names(injected) == {}


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"query": "SELECT :a AS id", "parameters": {}}, "value is required for bind parameter 'a'"),
        ({"query": "SELECT :a AS id", "parameters": {"a": 1, "ß": 2}}, "has no parameter 'ß': it has 'a'"),
        ({"table": "t", "parameters": {"a": 1}}, "are of a query"),
        ({"table": sa.select(TABLE)}, "a select.. is a query"),
        ({"query": TABLE}, "a Table is a table="),
        ({"query": sa.delete(TABLE)}, "pass one SELECT"),
        ({"query": sa.text("DELETE FROM 客户")}, "single SELECT"),
        ({"query": "SELECT 1; DELETE FROM 客户 WHERE 1 = :a", "parameters": {"a": 1}}, "single SELECT"),
        (
            {"query": sa.select(sa.insert(TABLE).values(编号=9).returning(TABLE.c.编号).cte())},
            "single SELECT|no RETURNING",
        ),
    ],
)
def test_what_is_no_single_select_with_its_values_is_refused_at_once(customers, options, rule):
    with pytest.raises(UsageError, match=rule):
        list(DatabaseConnector(customers, **options, key="编号").items())
    with customers.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(TABLE)) == 3


# -- the table's name -------------------------------------------------------------------------------------------------


def test_the_name_of_the_source_does_not_replace_the_name_of_the_table(customers, indexer):
    indexer.sync(DatabaseConnector(customers, table="客户", name="老客户"))
    indexer.sync(DatabaseConnector(customers, query=sa.select(TABLE).where(TABLE.c.编号 == 1), key="编号", name="一个"))
    hits = indexer.search("张三", filter={"table": "客户"})
    assert {hit.doc_id for hit in hits} >= {"老客户:1", "一个:1"}
    assert {(hit.metadata["table"], hit.locator["table"]) for hit in hits} == {("客户", "客户")}
