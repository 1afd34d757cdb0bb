"""DatabaseConnector over real PostgreSQL, MariaDB, SQLite and DuckDB: what holds for all of them."""

from __future__ import annotations

import datetime as dt
import gc
from decimal import Decimal
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from langchain_agentrag import DatabaseConnector, ReadOnlyDatabase
from langchain_agentrag.connector import Gap
from langchain_agentrag.connectors.sql.engine import read_only
from langchain_agentrag.connectors.sql.reflect import table_names
from langchain_agentrag.errors import AgentRagError, ConnectorError, InvalidQueryError, UsageError
from tests.databases import kind_of, run, url_of

PEOPLE = (
    "CREATE TABLE people (id INTEGER PRIMARY KEY, name VARCHAR(40), city VARCHAR(40), owner VARCHAR(40), v INTEGER)",
    "INSERT INTO people VALUES (1, 'Ada Lovelace', 'London', 'lina', 1), (2, '张三', '北京', 'otto', 1), (3, '李四', NULL, NULL, 1)",
)


@pytest.fixture
def people(database: sa.Engine) -> sa.Engine:
    run(database, *PEOPLE)
    return database


def documents(connector: DatabaseConnector) -> dict:
    items = list(connector.items())
    assert not [item for item in items if isinstance(item, Gap)]
    return {document.doc_id: document for item in items for document in item.load()}


def tally(report) -> tuple[int, int, int, int]:
    return report.added, report.updated, report.deleted, report.unchanged


# -- rows -------------------------------------------------------------------------------------------------------------


def test_a_table_is_found_by_its_values_in_either_language(people, indexer):
    indexer.sync(DatabaseConnector(people, table="people"))
    for query, doc_id in (("Lovelace", "people:1"), ("北京", "people:2"), ("people London", "people:1")):
        assert indexer.search(query, k=1, mode="keyword")[0].doc_id == doc_id
    hit = indexer.search("张三", k=1, filter={"type": "row", "city": "北京"})[0]
    assert (hit.text, hit.metadata["id"]) == ("people 2\nname: 张三\ncity: 北京\nowner: otto\nv: 1", 2)


def test_a_url_reads_what_an_engine_reads(people):
    connector = DatabaseConnector(url_of(people), table="people")
    assert documents(connector) == documents(DatabaseConnector(people, table="people"))
    assert connector.connector_id == DatabaseConnector(people, table="people").connector_id
    assert documents(connector) == documents(connector)


def test_the_key_is_found_in_the_database_composite_ones_too(database):
    run(
        database,
        "CREATE TABLE items (line INTEGER, note VARCHAR(9), order_id VARCHAR(9), PRIMARY KEY (order_id, line))",
        "INSERT INTO items VALUES (1, 'x', 'a'), (2, 'y', 'a'), (1, 'z', 'a|1')",
    )
    assert set(documents(DatabaseConnector(database, table="items"))) == {"items:a|1", "items:a|2", r"items:a\|1|1"}


def test_a_table_without_a_key_is_refused_unless_content_addressed(database, indexer):
    run(
        database,
        "CREATE TABLE logs (a INTEGER, b VARCHAR(9))",
        "INSERT INTO logs VALUES (1,'x'),(1,'x'),(2,'x'),(NULL,'x')",
    )
    with pytest.raises(UsageError, match=r"no primary key: pass key='column'.*content_addressed=True"):
        list(DatabaseConnector(database, table="logs").items())
    whole = DatabaseConnector(database, table="logs", content_addressed=True)
    assert tally(indexer.sync(whole)) == (3, 0, 0, 0)
    run(database, "UPDATE logs SET b = 'y' WHERE a = 2")
    assert tally(indexer.sync(whole)) == (1, 0, 1, 2)
    with pytest.raises(UsageError, match="key"):
        DatabaseConnector(database, query="SELECT 1")


def test_rows_whose_key_is_null_are_reported_and_the_others_indexed(database, indexer):
    run(database, "CREATE TABLE logs (a INTEGER, b VARCHAR(9))", "INSERT INTO logs VALUES (1,'x'),(NULL,'y'),(2,'z')")
    report = indexer.sync(DatabaseConnector(database, table="logs", key="a"))
    assert (report.added, [failure.key for failure in report.failed]) == (2, ["logs: row 2"])


def test_two_rows_of_one_key_are_reported_and_equal_ones_are_one(database, indexer):
    run(
        database,
        "CREATE TABLE logs (a INTEGER, b VARCHAR(9))",
        "INSERT INTO logs VALUES (1,'x'),(1,'y'),(2,'z'),(2,'z')",
    )
    report = indexer.sync(DatabaseConnector(database, query="SELECT * FROM logs ORDER BY a, b", key="a"))
    assert (report.added, [failure.key for failure in report.failed]) == (2, ["logs:1"])
    assert "unique" in report.failed[0].reason
    assert indexer.read("logs:1").text.endswith("b: x")


def test_both_columns_of_one_name_survive(database):
    """Hard case 65: the row is identified by the first one, and neither value is lost."""
    run(
        database,
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(20))",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, name VARCHAR(20))",
        "INSERT INTO customers VALUES (77, '王五')",
        "INSERT INTO orders VALUES (1, 77, 'pump')",
    )
    query = "SELECT o.id, c.id, o.name, c.name FROM orders o JOIN customers c ON c.id = o.customer"
    loaded = documents(DatabaseConnector(database, query=query, key="id"))
    assert loaded["orders:1"].text == "orders 1\nid_2: 77\nname: pump\nname_2: 王五"
    row = {"id": 1, "id_2": 77, "name": "pump", "name_2": "王五"}
    assert loaded["orders:1"].metadata == {"type": "row", "table": "orders"} | row
    assert set(documents(DatabaseConnector(database, query=query, key="id_2"))) == {"orders:77"}


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("""SELECT 1 AS id, '{"a":1}' AS t""", '{"a":1}'),
        ("SELECT 1 AS id, ' :note' AS t", " :note"),
        ("SELECT 1 AS id, 'a%b %s %(x)s' AS t", "a%b %s %(x)s"),
        ("SELECT 1 AS id, '10:30:00' AS t", "10:30:00"),
        (r"SELECT 1 AS id, 'a:b ?1 $1' AS t", "a:b ?1 $1"),
        ("SELECT 1 AS id, 'a;b' AS t;", "a;b"),
        ("SELECT 1 AS id, 'x' AS t -- :comment; really\n", "x"),
        ("WITH a AS (SELECT 1 AS id) SELECT id, ':x' AS t FROM a", ":x"),
    ],
)
def test_sql_runs_as_it_is_written(database, sql, value):
    """Hard case 69: colons, percent signs and question marks are text."""
    (document,) = documents(DatabaseConnector(database, query=sql, key="id")).values()
    assert document.metadata["t"] == value
    assert ReadOnlyDatabase(database).run(sql).rows == ((1, value),)


def test_a_cast_with_colons_is_one(fresh):
    for kind in ("postgresql", "duckdb"):
        query = "SELECT 1 AS id, '7'::integer AS t"
        assert documents(DatabaseConnector(fresh(kind), query=query, key="id"))["query:1"].metadata["t"] == 7


# -- types ------------------------------------------------------------------------------------------------------------

NATIVE = {
    "amount": Decimal("1.10"),
    "big": 2**60,
    "day": dt.date(2026, 3, 1),
    "moment": dt.datetime(2026, 3, 1, 8, 30),
    "yes": True,
    "data": b"\x00\xff",
    "missing": None,
}
CREATE = """CREATE TABLE kinds (id INTEGER PRIMARY KEY, amount DECIMAL(10,2), big BIGINT, day DATE, moment {moment},
    yes BOOLEAN, data {bytes}, missing VARCHAR(9))"""
MOMENT = {"postgresql": "TIMESTAMP", "duckdb": "TIMESTAMP"}
BYTES = {"postgresql": "BYTEA"}


def test_values_keep_their_types_and_their_text_invents_nothing(database, indexer):
    """Hard case 66, in a table of declared types."""
    kind = kind_of(database)
    run(database, CREATE.format(moment=MOMENT.get(kind, "DATETIME"), bytes=BYTES.get(kind, "BLOB")))
    columns = ", ".join(["id", *NATIVE])
    with database.begin() as connection:
        values = sa.text(f"INSERT INTO kinds ({columns}) VALUES (1, 1.10, 1152921504606846976, '2026-03-01', "
                         "'2026-03-01 08:30:00', true, :data, NULL)")  # fmt: skip
        connection.execute(values, {"data": b"\x00\xff"})
    indexer.sync(DatabaseConnector(database, table="kinds"))
    (hit,) = indexer.search("kinds", mode="keyword", filter={"day": {"$gte": dt.date(2026, 2, 1)}})
    natives = {name: hit.metadata[name] for name in NATIVE}
    assert natives == NATIVE
    assert {name: type(value) for name, value in natives.items()} == {
        name: type(value) for name, value in NATIVE.items()
    }
    assert hit.text == (
        "kinds 1\namount: 1.10\nbig: 1152921504606846976\nday: 2026-03-01\nmoment: 2026-03-01 08:30:00\nyes: true"
    )


def test_types_of_postgresql(fresh, indexer):
    query = """SELECT 1 AS id, '00000000-0000-0000-0000-000000000007'::uuid AS u, ARRAY[1,2] AS a, '{"颜色": ["红"]}'::jsonb AS j,
        TIMESTAMPTZ '2026-03-01 08:00+08' AS at, interval '3 days' AS i, '10.0.0.1'::inet AS ip, int4range(1, 5) AS r,
        ARRAY[['a','b']] AS aa, time '08:30' AS t, 'NaN'::float8 AS f"""
    indexer.sync(DatabaseConnector(fresh("postgresql"), query=query, key="id", name="t"))
    passage = indexer.read("t:1")
    assert passage.metadata["u"] == UUID(int=7)
    assert (passage.metadata["a"], passage.metadata["j"]) == ([1, 2], {"颜色": ["红"]})
    assert passage.metadata["at"] == dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    assert (passage.metadata["i"], passage.metadata["t"]) == (dt.timedelta(days=3), dt.time(8, 30))
    assert (passage.metadata["ip"], passage.metadata["r"]) == ("10.0.0.1", "[1, 5)")
    assert passage.metadata["aa"] == [["a", "b"]]


def test_types_of_duckdb(fresh, indexer):
    query = """SELECT 1 AS id, '00000000-0000-0000-0000-000000000007'::uuid AS u, [1,2] AS a, {'x': 1, '名': 'y'} AS s,
        MAP([1],['q']) AS m, TIMESTAMPTZ '2026-03-01 08:00+08' AS at, interval 3 days AS i,
        170141183460469231731687303715884105727::HUGEINT AS h"""
    indexer.sync(DatabaseConnector(fresh("duckdb"), query=query, key="id", name="t"))
    passage = indexer.read("t:1")
    assert (passage.metadata["u"], passage.metadata["a"]) == (UUID(int=7), [1, 2])
    assert (passage.metadata["s"], passage.metadata["m"]) == ({"x": 1, "名": "y"}, {"1": "q"})
    assert (passage.metadata["at"], passage.metadata["h"]) == (dt.datetime(2026, 3, 1, tzinfo=dt.UTC), 2**127 - 1)


def test_a_text_of_ten_megabytes_is_one_row_of_many(database, indexer):
    text = "LONGTEXT" if kind_of(database) == "mariadb" else "TEXT"
    run(database, f"CREATE TABLE notes (id INTEGER PRIMARY KEY, body {text})")
    with database.begin() as connection:
        for key, body in ((1, "短"), (2, "数据 line\n" * 1_000_000), (3, "末尾")):
            connection.execute(sa.text("INSERT INTO notes VALUES (:id, :body)"), {"id": key, "body": body})
    loaded = documents(DatabaseConnector(database, table="notes"))
    assert [len(document.text) for document in loaded.values()] == [15, 8_000_014, 16]
    assert "body" not in loaded["notes:2"].metadata


def test_a_text_that_is_not_utf8_concerns_its_row_alone(fresh, indexer):
    engine = fresh("sqlite")
    run(engine, "CREATE TABLE t (id TEXT PRIMARY KEY, a TEXT)", "INSERT INTO t VALUES (1, 'good'), (2, CAST(x'C4E3BAC3' AS TEXT)), (CAST(x'C4' AS TEXT), 'k'), (4, 'fine')")  # fmt: skip
    report = indexer.sync(DatabaseConnector(engine, table="t"))
    assert (report.added, [failure.key for failure in report.failed]) == (2, ["t:2", r"t:\udcc4"])


# -- keeping in step --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, "v"])
def test_a_sync_reads_what_changed_and_deletes_what_is_gone(people, indexer, version):
    connector = DatabaseConnector(people, table="people", version_column=version)
    assert tally(indexer.sync(connector)) == (3, 0, 0, 0)
    assert tally(indexer.sync(connector)) == (0, 0, 0, 3)
    run(people, "UPDATE people SET city = 'Paris', v = 2 WHERE id = 1", "DELETE FROM people WHERE id = 2")
    run(people, "INSERT INTO people VALUES (4, 'Eve', 'Rome', NULL, 1)")
    assert tally(indexer.sync(connector)) == (1, 1, 1, 1)
    assert indexer.search("Paris", mode="keyword")[0].doc_id == "people:1"
    assert not indexer.search("北京", mode="keyword")


def test_a_version_column_decides_alone(people, indexer):
    connector = DatabaseConnector(people, table="people", version_column="v")
    indexer.sync(connector)
    run(people, "UPDATE people SET city = 'Paris' WHERE id = 1")
    assert tally(indexer.sync(connector)) == (0, 0, 0, 3)


def test_another_template_writes_every_row_anew(people, indexer):
    indexer.sync(DatabaseConnector(people, table="people", version_column="v"))
    again = DatabaseConnector(people, table="people", version_column="v", text="{name} 在 {city}")
    assert tally(indexer.sync(again)) == (0, 3, 0, 0)
    assert indexer.read("people:2").text == "张三 在 北京"
    by_function = DatabaseConnector(people, table="people", text=lambda row: f"{row['name']} 在 {row['city'] or ''}")
    assert tally(indexer.sync(by_function)) == (0, 0, 0, 3)


FAILING = {
    "postgresql": "SELECT id, 10 / (10000 - id) AS x FROM numbers ORDER BY id",
    "duckdb": "SELECT id, CASE WHEN id = 10000 THEN error('stop')::INTEGER ELSE id END AS x FROM numbers ORDER BY id",
    "sqlite": "SELECT id, abs(CASE WHEN id = 10000 THEN -9223372036854775807 - 1 ELSE id END) AS x FROM numbers",
    "mariadb": "SELECT id, CASE WHEN id = 10000 THEN (SELECT a FROM two) ELSE id END AS x FROM numbers",
}


def test_a_query_that_fails_on_the_way_deletes_nothing(database, indexer):
    run(
        database,
        "CREATE TABLE numbers (id INTEGER PRIMARY KEY)",
        "CREATE TABLE two (a INTEGER)",
        "INSERT INTO two VALUES (1), (2)",
    )
    with database.begin() as connection:
        rows = [{"id": number} for number in range(9_000, 10_001)]
        connection.execute(sa.text("INSERT INTO numbers VALUES (:id)"), rows)
    indexer.sync(DatabaseConnector(database, table="numbers", name="n"))
    failing = DatabaseConnector(database, query=FAILING[kind_of(database)], key="id", name="n")
    with pytest.raises(ConnectorError, match=r"Cannot read the query of .* Nothing was deleted\."):
        indexer.sync(failing)
    assert indexer.stats().documents == 1_001
    assert DatabaseConnector(database, query="SELECT 1 AS id", key="id").load()  # and the database can be asked again


def test_two_databases_with_a_table_of_one_name_are_two_sources(fresh, indexer):
    one, two = fresh("sqlite"), fresh("sqlite")
    run(one, *PEOPLE)
    run(two, *PEOPLE)
    indexer.sync(DatabaseConnector(one, table="people"))
    report = indexer.sync(DatabaseConnector(two, table="people"))
    assert (report.deleted, len(report.failed)) == (0, 3)
    assert "another name" in report.failed[0].reason
    assert tally(indexer.sync(DatabaseConnector(two, table="people", name="others"))) == (3, 0, 0, 0)


def test_reading_can_stop_early_and_load_in_other_threads(people):
    stream = DatabaseConnector(people, table="people").items()
    next(stream)
    stream.close()
    assert len(DatabaseConnector(people, table="people").load()) == 3


async def test_it_loads_as_langchain_documents_without_blocking(people):
    loaded = [document async for document in DatabaseConnector(people, table="people").alazy_load()]
    assert [document.id for document in loaded] == ["people:1", "people:2", "people:3"]


# -- agents -----------------------------------------------------------------------------------------------------------


def test_each_row_belongs_to_the_agent_its_column_names(people, indexer):
    report = indexer.sync(DatabaseConnector(people, table="people", agent_column="owner"))
    assert (report.added, [failure.key for failure in report.failed]) == (2, ["people:3"])
    assert "no_agent='shared'" in report.failed[0].reason
    for agent, visible in (("lina", {"people:1"}), ("otto", {"people:2"}), ("Lina", set()), (None, set())):
        for mode in ("keyword", "vector", "hybrid"):
            assert {hit.doc_id for hit in indexer.search("people", 9, agent_id=agent, mode=mode)} == visible


def test_a_row_that_changes_hands_leaves_its_old_owner(people, indexer):
    connector = DatabaseConnector(people, table="people", agent_column="owner", no_agent="skip", version_column="v")
    indexer.sync(connector)
    run(people, "UPDATE people SET owner = 'otto' WHERE id = 1")
    assert tally(indexer.sync(connector)) == (1, 0, 1, 1)
    assert not indexer.search("Lovelace", agent_id="lina")
    assert indexer.search("Lovelace", mode="keyword", agent_id="otto")[0].doc_id == "people:1"


def test_rows_without_an_agent_are_shared_with_the_option(people, indexer):
    indexer.sync(DatabaseConnector(people, table="people", agent_column="owner", no_agent="shared"))
    assert {hit.doc_id for hit in indexer.search("people", 9, mode="keyword")} == {"people:3"}


def test_contradictory_agent_options_are_refused():
    with pytest.raises(UsageError, match="contradict"):
        DatabaseConnector("sqlite://", table="t", agent_id="a", agent_column="b")
    with pytest.raises(UsageError, match="no_agent"):
        DatabaseConnector("sqlite://", table="t", agent_column="b", no_agent="guess")


# -- reading only -----------------------------------------------------------------------------------------------------

WRITES = (
    "SELECT 1 AS id; DROP TABLE people",
    "SELECT 1 AS id\n;\nDELETE FROM people",
    "WITH x AS (SELECT 9 AS a) INSERT INTO people (id) SELECT a FROM x",
    "INSERT INTO people (id) VALUES (9)",
    "/*x*/ DELETE FROM people",
    "-- SELECT\nUPDATE people SET name = 'x'",
    "SELECT * INTO people2 FROM people",
    "DROP VIEW IF EXISTS nothing; SELECT 1 AS id",
    "ALTER TABLE people ADD COLUMN w INTEGER",
    "TRUNCATE TABLE people",
    "CREATE TABLE made AS SELECT * FROM people",
    "DROP TABLE people",
    "ATTACH DATABASE '{file}' AS z",
    "ATTACH '{file}' AS z",
    "PRAGMA writable_schema=1",
    "COPY people TO '{file}'",
    "SELECT * FROM people INTO OUTFILE '{file}'",
    "VACUUM INTO '{file}'",
    "SELECT 1 AS id; COMMIT; DROP TABLE people",
    "WITH d AS (DELETE FROM people RETURNING id) SELECT id FROM d",
)


def test_nothing_can_be_written(people, tmp_path):
    """Hard case 68: whatever the text of the query, the tables are as they were, and there is no file."""
    file = tmp_path / "written"

    def state():
        with people.connect() as connection:
            return connection.execute(sa.text("SELECT id, name FROM people ORDER BY id")).all(), tables(connection)

    before = state()
    for sql in WRITES:
        with pytest.raises(AgentRagError):
            list(DatabaseConnector(people, query=sql.format(file=file), key="id").items())
        with pytest.raises(InvalidQueryError):
            ReadOnlyDatabase(people).run(sql.format(file=file))
        assert (sql, state()) == (sql, before)
        assert not file.exists(), sql


def tables(connection: sa.Connection) -> set[str]:
    return set(table_names(connection, None))


@pytest.mark.parametrize("sql", ["INSERT INTO people (id) VALUES (9)", "DELETE FROM people", "UPDATE people SET v = 9"])
def test_the_database_itself_refuses_to_write(people, sql):
    for level in (None, "AUTOCOMMIT") if kind_of(people) != "duckdb" else (None,):
        engine = sa.create_engine(people.url, poolclass=NullPool, **({"isolation_level": level} if level else {}))
        with (
            pytest.raises(sa.exc.DBAPIError, match=r"(?i)read-only|read only|not authorized"),
            read_only(engine) as connection,
        ):
            connection.exec_driver_sql(sql)
    assert len(list(DatabaseConnector(people, table="people").items())) == 3


def test_an_engine_can_write_again_afterwards(people):
    engine = sa.create_engine(people.url)  # with a pool, whose connection the connector uses too
    list(DatabaseConnector(engine, table="people").items())
    run(engine, "INSERT INTO people VALUES (9, 'Zoe', NULL, NULL, 1)")
    assert len(list(DatabaseConnector(engine, table="people").items())) == 4
    engine.dispose()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "sqlite"])
def test_an_engine_in_autocommit_mode_streams_too(fresh, kind):
    people = fresh(kind)
    run(people, *PEOPLE)
    engine = sa.create_engine(people.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    assert len(documents(DatabaseConnector(engine, table="people"))) == 3


def test_the_tool_for_questions_takes_the_connector(people):
    database = ReadOnlyDatabase(DatabaseConnector(people, table="people"))
    assert database.run("SELECT name FROM people WHERE id = 2").rows == (("张三",),)
    assert "people(id INTEGER" in database.schema()


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_table_that_is_not_there_is_named_with_those_there_are(people):
    with pytest.raises(UsageError, match=r"no table 'People'.*people"):
        list(DatabaseConnector(people, table="People").items())


@pytest.mark.parametrize(
    "sql", ["SELEC 1", "SELECT nobody FROM people", "SELECT 1 FROM nowhere", "SELECT ' FROM people"]
)
def test_a_wrong_query_is_an_error(people, sql):
    with pytest.raises(AgentRagError, match=r"Correct the query|SELECT"):
        list(DatabaseConnector(people, query=sql, key="id").items())


def test_a_column_that_is_not_there_is_named_with_those_there_are(people):
    with pytest.raises(UsageError, match=r"'nobody'.*'id', 'name', 'city', 'owner', 'v'"):
        list(DatabaseConnector(people, table="people", key="nobody").items())


UNREACHABLE = {
    "postgresql": "postgresql+psycopg://ada:s3cret-word@/x?host=/nonexistent",
    "mariadb": "mysql+pymysql://ada:s3cret-word@localhost/x?unix_socket=/nonexistent",
    "sqlite": "sqlite:////nonexistent/x.db",
    "duckdb": "duckdb:////nonexistent/x.db",
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pymysql leaves its socket open
@pytest.mark.parametrize("url", UNREACHABLE.values(), ids=list(UNREACHABLE))
def test_an_unreachable_database_is_an_error_without_the_password(url):
    with pytest.raises(ConnectorError, match="Check ") as caught:
        list(DatabaseConnector(url, table="t").items())
    assert "s3cret" not in str(caught.value)
    del caught
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pymysql leaves its socket open
def test_a_wrong_password_is_not_in_the_error(mariadb_url):
    url = sa.make_url(mariadb_url)
    server = sa.create_engine(url, poolclass=NullPool)
    run(server, "CREATE USER IF NOT EXISTS 'guarded'@'localhost' IDENTIFIED BY 'right-word'")
    with pytest.raises(ConnectorError, match="guarded") as caught:
        list(DatabaseConnector(url.set(username="guarded", password="wrong-word"), table="t").items())
    assert "wrong-word" not in str(caught.value)
    hidden = url.set(username="guarded").update_query_dict({"password": "wrong-word"})
    with pytest.raises(ConnectorError) as caught:
        list(DatabaseConnector(hidden, table="t").items())
    assert "wrong-word" not in str(caught.value)
    del caught
    gc.collect()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_missing_rights_are_reported(fresh, kind):
    engine = fresh(kind)
    run(engine, *PEOPLE)
    user = "CREATE ROLE nobody1 LOGIN" if kind == "postgresql" else "CREATE USER nobody1@localhost"
    run(engine, user)
    if kind == "mariadb":
        run(engine, "CREATE TABLE open (a INTEGER)", "GRANT SELECT ON open TO nobody1@localhost")
    else:
        run(engine, f"GRANT USAGE ON SCHEMA {engine.url.query['options'].partition('=')[2]} TO nobody1")
    url = engine.url.set(username="nobody1")
    try:
        with pytest.raises(ConnectorError, match=r"(?i)denied.*grant SELECT"):
            list(DatabaseConnector(url, query="SELECT * FROM people", key="id").items())
    finally:
        if kind == "postgresql":
            run(engine, "DROP OWNED BY nobody1")
        run(engine, user.replace("CREATE", "DROP").replace(" LOGIN", ""))


@pytest.mark.parametrize("url", ["no url at all", "postgresql://ada:s3cret-word@host:port/x", 7, None])
def test_what_is_no_database_is_refused_without_showing_it(url):
    with pytest.raises(UsageError) as caught:
        DatabaseConnector(url, table="t")
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_driver_is_named():
    with pytest.raises(UsageError, match=r"MySQLdb.*mysql\+pymysql.*pip install pymysql"):
        DatabaseConnector("mysql+mysqldb://host/x", table="t")


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    for kind in ("sqlite", "duckdb"):
        with pytest.raises(ConnectorError, match="no such file"):
            list(DatabaseConnector(f"{kind}:///{tmp_path}/absent.db", table="t").items())
    assert not list(tmp_path.glob("absent*"))


def test_exactly_one_of_table_and_query_is_required():
    for options in ({}, {"table": "t", "query": "SELECT 1"}):
        with pytest.raises(UsageError, match="either table"):
            DatabaseConnector("sqlite://", **options)


# -- comments and names -----------------------------------------------------------------------------------------------

COMMENTED = {
    "postgresql": (
        "CREATE TABLE u (id INTEGER PRIMARY KEY, name TEXT, city TEXT)",
        "COMMENT ON TABLE u IS '用户'",
        "COMMENT ON COLUMN u.name IS '姓名'",
    ),
    "duckdb": (
        "CREATE TABLE u (id INTEGER PRIMARY KEY, name TEXT, city TEXT)",
        "COMMENT ON TABLE u IS '用户'",
        "COMMENT ON COLUMN u.name IS '姓名'",
    ),
    "mariadb": ("CREATE TABLE u (id INTEGER PRIMARY KEY, name TEXT COMMENT '姓名', city TEXT) COMMENT '用户'",),
}


@pytest.mark.parametrize("kind", COMMENTED)
def test_comments_name_the_row_and_its_columns(fresh, kind):
    engine = fresh(kind)
    run(engine, *COMMENTED[kind], "INSERT INTO u VALUES (7, '张三', '北京')")
    (document,) = documents(DatabaseConnector(engine, table="u")).values()
    assert document.text == "用户 7\n姓名：张三\ncity: 北京"
    assert document.metadata["name"] == "张三"


def test_names_may_hold_anything(database):
    name = '表 "x" %s'
    mark = "`" if kind_of(database) == "mariadb" else '"'
    table, column = (f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in (name, f"{name}:列"))
    run(database, f"CREATE TABLE {table} ({column} INTEGER PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    (document,) = documents(DatabaseConnector(database, table=name)).values()
    assert document.metadata[f"{name}:列"] == 1


@pytest.mark.parametrize("kind", ["postgresql", "duckdb"])
def test_a_table_of_another_schema_is_named_with_it(fresh, kind):
    engine = fresh(kind)
    run(engine, "CREATE SCHEMA s", "CREATE TABLE s.t (id INTEGER PRIMARY KEY)", "INSERT INTO s.t VALUES (1)")
    assert set(documents(DatabaseConnector(engine, table="s.t"))) == {"s.t:1"}
