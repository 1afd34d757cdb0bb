"""What an agent's SQL may read, and for how long: tables, functions, files, time and memory, on four databases."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from langchain_agentrag import ReadOnlyDatabase
from langchain_agentrag.connectors.sql.results import QueryLimits, limit_cell, read_result
from langchain_agentrag.connectors.sql.statement import MAX_SQL_CHARACTERS, CheckedSelect
from langchain_agentrag.errors import AgentRagError, ConnectorError, InvalidQueryError, UsageError
from langchain_agentrag.langchain.sql_tool import SQLTool
from tests.connectors.sql import statements
from tests.connectors.sql.statements import SECRET
from tests.databases import run, url_of


@pytest.fixture
def prepared(fresh):
    """Function that returns the engine of a database with the tables of the statements."""

    def prepare(kind):
        engine = fresh(kind)
        statements.prepare(engine)
        return engine

    return prepare


@pytest.mark.parametrize("kind", statements.KINDS)
@pytest.mark.parametrize("expected", ["refused", "rows", "cut", "stopped"])
def test_every_statement_has_its_outcome_and_shows_no_secret(prepared, kind, expected):
    engine = prepared(kind)
    chosen = [one for one in statements.statements() if (one.kind, one.outcome) == (kind, expected)]
    wrong = []
    for statement in chosen:
        started = time.monotonic()
        actual, text = statements.outcome(engine, statement)
        late = expected == "stopped" and time.monotonic() - started > statements.TIMEOUT + 10
        if actual != expected or SECRET in text or late:
            wrong.append((str(statement), actual, text[:200]))
    assert chosen
    assert wrong == []
    with engine.connect() as connection:  # nothing was changed
        assert connection.execute(sa.text("SELECT count(*) FROM open_t")).scalar_one() == 2
        assert connection.execute(sa.text("SELECT count(*) FROM users")).scalar_one() == 1
    assert not list(Path(tempfile.gettempdir()).glob("agentrag-made*"))


def test_there_are_enough_statements():
    assert len(list(statements.statements())) >= 200


# -- names ------------------------------------------------------------------------------------------------------------


def test_tables_of_another_schema_are_named_with_it(prepared):
    engine = prepared("postgresql")
    run(engine, "CREATE SCHEMA hr", "CREATE TABLE hr.staff (name TEXT)", "INSERT INTO hr.staff VALUES ('Ada')")
    try:
        database = ReadOnlyDatabase(engine, tables=["open_t", "hr.staff"])
        assert database.run("SELECT name FROM hr.staff").rows == (("Ada",),)
        assert "hr.staff(name TEXT)" in database.schema()
        for sql in ("SELECT * FROM staff", "SELECT * FROM hr.open_t", "SELECT * FROM postgres.other.staff"):
            with pytest.raises(InvalidQueryError, match="not open"):
                database.run(sql)
    finally:
        run(engine, "DROP SCHEMA hr CASCADE")


def test_quoted_names_of_postgresql_are_compared_exactly(prepared):
    engine = prepared("postgresql")
    run(engine, 'CREATE TABLE "Users" (word TEXT)', "INSERT INTO \"Users\" VALUES ('mine')")
    database = ReadOnlyDatabase(engine, tables=["Users"])
    assert database.run('SELECT word FROM "Users"').rows == (("mine",),)
    for sql in ("SELECT word FROM users", "SELECT word FROM Users", 'SELECT word FROM "users"'):
        with pytest.raises(InvalidQueryError, match="not open"):
            database.run(sql)


@pytest.mark.parametrize("name", ["Orders", "订单", "a b", "sel;ect", 'quo"te', "100%", "x.y"])
def test_tables_of_any_name_are_read_where_allowed(database, name):
    mark = "`" if database.dialect.name == "mysql" else '"'
    quoted = f"{mark}{name.replace(mark, mark * 2)}{mark}"
    run(database, f"CREATE TABLE {quoted} (id INTEGER)", f"INSERT INTO {quoted} VALUES (7)")
    assert ReadOnlyDatabase(database, tables=[name]).run(f"SELECT id FROM {quoted}").rows == ((7,),)
    with pytest.raises(InvalidQueryError, match="not open"):
        ReadOnlyDatabase(database, tables=["another"]).run(f"SELECT id FROM {quoted}")


def test_a_view_may_read_what_it_is_made_of_and_its_tables_stay_closed(prepared):
    for kind in statements.KINDS:
        engine = prepared(kind)
        run(
            engine,
            "CREATE VIEW counted AS SELECT count(*) AS n FROM users",
            "CREATE VIEW nested AS SELECT n, (SELECT max(id) FROM users) AS m FROM counted",
        )
        database = ReadOnlyDatabase(engine, tables=["nested"])
        assert database.run("SELECT n, m FROM nested").rows == ((1, 1),)
        assert database.run("SELECT count(*) FROM nested").rows == ((1,),)
        for sql in (
            "SELECT * FROM users",
            "SELECT * FROM counted",
            "WITH nested AS (SELECT * FROM users) SELECT * FROM nested",
        ):
            with pytest.raises(InvalidQueryError, match="not open"):
                database.run(sql)


def test_sqlite_itself_refuses_what_the_checker_would_let_through(prepared, monkeypatch):
    engine = prepared("sqlite")
    database = ReadOnlyDatabase(engine, tables=["open_t"])
    monkeypatch.setattr(database, "_check", CheckedSelect)
    for sql in (
        "SELECT word FROM users",
        "SELECT count(word) FROM users",
        "SELECT count(*) FROM users",
        "WITH open_t AS (SELECT word FROM users) SELECT * FROM open_t",
        "SELECT 1 WHERE 'x' IN tokens",
        "SELECT * FROM pragma_table_info('users')",
        "SELECT * FROM sqlite_master",
        "SELECT sqlite_version()",
        "DELETE FROM open_t",
        "ATTACH ':memory:' AS x",
    ):
        with pytest.raises(InvalidQueryError, match=r"not authorized|prohibited|refused"):
            database.run(sql)


def test_full_text_and_rtree_tables_of_sqlite_are_read(fresh):
    engine = fresh("sqlite")
    run(
        engine,
        "CREATE VIRTUAL TABLE notes USING fts5(body)",
        "INSERT INTO notes VALUES ('hello 世界'), ('other')",
        "CREATE VIRTUAL TABLE hidden USING fts5(body)",
        "CREATE VIRTUAL TABLE boxes USING rtree(id, a, b)",
        "INSERT INTO boxes VALUES (1, 2, 3)",
    )
    database = ReadOnlyDatabase(engine, tables=["notes", "boxes"])
    sql = "SELECT highlight(notes, 0, '<', '>') FROM notes WHERE notes MATCH 'hello' ORDER BY rank"
    assert database.run(sql).rows == (("<hello> 世界",),)
    assert database.run("SELECT id FROM boxes WHERE a >= 2").rows == ((1,),)
    for sql in ("SELECT * FROM hidden", "SELECT * FROM hidden_content", "SELECT * FROM notes_data"):
        with pytest.raises(InvalidQueryError, match="not open"):
            database.run(sql)


# -- what can be allowed ----------------------------------------------------------------------------------------------


def test_further_functions_can_be_allowed(prepared):
    engine = prepared("postgresql")
    with pytest.raises(InvalidQueryError, match=r"version\(\) is not on the list"):
        ReadOnlyDatabase(engine).run("SELECT version()")
    assert "PostgreSQL" in ReadOnlyDatabase(engine, functions=["version"]).run("SELECT version()").rows[0][0]
    run(engine, "CREATE FUNCTION doubled(integer) RETURNS integer AS 'SELECT 2 * $1' LANGUAGE sql")
    schema = engine.url.query["options"].partition("=")[2]
    assert ReadOnlyDatabase(engine, functions=["doubled"]).run("SELECT doubled(4)").rows == ((8,),)
    named = ReadOnlyDatabase(engine, functions=[f"{schema}.doubled"])
    assert named.run(f"SELECT {schema}.doubled(4)").rows == ((8,),)
    with pytest.raises(InvalidQueryError, match="not on the list"):
        ReadOnlyDatabase(engine, functions=["doubled"]).run(f"SELECT {schema}.doubled(4)")


def test_functions_of_an_sqlite_engine_are_called_in_this_process(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/x.db")

    @sa.event.listens_for(engine, "connect")
    def add(connection, _):
        connection.create_function("doubled", 1, lambda value: 2 * value)

    run(engine, "CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (4)")
    assert ReadOnlyDatabase(engine, functions=["doubled"]).run("SELECT doubled(a) FROM t").rows == ((8,),)
    with pytest.raises(InvalidQueryError, match="not on the list"):
        ReadOnlyDatabase(engine).run("SELECT doubled(a) FROM t")
    engine.dispose()


def test_duckdb_reads_the_files_of_named_folders_only(fresh, tmp_path):
    engine = fresh("duckdb")
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "a.csv").write_text("name,n\n张三,1\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text(f"name\n{SECRET}\n", encoding="utf-8")
    database = ReadOnlyDatabase(engine, folders=[tmp_path / "open"])
    assert database.run(f"SELECT name FROM read_csv('{tmp_path}/open/a.csv')").rows == (("张三",),)
    assert database.run(f"SELECT n FROM '{tmp_path}/open/*.csv'").rows == ((1,),)
    for path in (f"{tmp_path}/b.csv", f"{tmp_path}/open/../b.csv", f"{tmp_path}/*.csv"):
        with pytest.raises(InvalidQueryError) as caught:
            database.run(f"SELECT * FROM read_csv('{path}')")
        assert SECRET not in str(caught.value)
    with pytest.raises(UsageError, match="for DuckDB"):
        ReadOnlyDatabase("sqlite:///x.db", folders=[tmp_path])


@pytest.mark.parametrize(
    "bad",
    [
        {"tables": "open_t"},
        {"functions": "lower"},
        {"tables": [1]},
        {"timeout": 0},
        {"max_rows": -1},
        {"max_cell_bytes": True},
    ],
)
def test_arguments_that_are_not_understood_are_refused(bad):
    with pytest.raises(UsageError):
        ReadOnlyDatabase("sqlite:///x.db", **bad)


# -- time and size ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///file:shared?mode=memory&cache=shared&uri=true", "duckdb:///:memory:"]
)
def test_databases_in_memory_are_queried_within_the_limits(url):
    engine = sa.create_engine(url, poolclass=StaticPool)
    statements.prepare(engine)
    database = ReadOnlyDatabase(engine, tables=["open_t"], timeout=1.0)
    assert database.run("SELECT name FROM open_t ORDER BY id").rows == (("Ada",), ("张三",))
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    started = time.monotonic()
    with pytest.raises(ConnectorError, match="longer than 1 s"):
        database.run(endless)
    assert time.monotonic() - started < 5
    for sql in ("SELECT word FROM users", "SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM '/etc/passwd'"):
        with pytest.raises(InvalidQueryError):
            database.run(sql)
    if engine.dialect.name == "sqlite":
        with pytest.raises(InvalidQueryError, match="too big"):
            database.run("SELECT length(hex(zeroblob(400000000)))")
    run(engine, "INSERT INTO open_t VALUES (3, 'x')")  # the owner can write as before
    assert database.run("SELECT count(*) FROM open_t").rows == ((3,),)
    engine.dispose()


def test_a_duckdb_file_that_is_open_for_writing_is_queried_in_this_process(tmp_path):
    engine = sa.create_engine(f"duckdb:///{tmp_path}/x.db", poolclass=StaticPool)
    statements.prepare(engine)
    database = ReadOnlyDatabase(engine, tables=["open_t"], timeout=1.0)
    assert database.run("SELECT count(*) FROM open_t").rows == ((2,),)
    started = time.monotonic()
    with pytest.raises(ConnectorError, match="longer than"):
        database.run("SELECT count(*) FROM range(100000000000)")
    assert time.monotonic() - started < 5
    for sql in ("SELECT * FROM users", "SELECT * FROM '/etc/passwd'"):
        with pytest.raises(InvalidQueryError, match="not open"):
            database.run(sql)
    with pytest.raises(InvalidQueryError):
        ReadOnlyDatabase(engine).run("SELECT * FROM '/etc/passwd'")
    engine.dispose()


def test_queries_of_many_threads_do_not_disturb_each_other(prepared):
    for kind in statements.KINDS:
        database = ReadOnlyDatabase(prepared(kind), timeout=20)
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(database.run, [f"SELECT {n} FROM open_t" for n in range(12)]))
        assert [result.rows[0][0] for result in results] == list(range(12))


def test_rows_are_left_out_when_the_result_is_too_large(database):
    run(database, "CREATE TABLE t (id INTEGER, body TEXT)")
    for number in range(8):
        run(database, f"INSERT INTO t VALUES ({number}, '{'好' * 5_000}')")
    result = ReadOnlyDatabase(database, max_result_bytes=40_000).run("SELECT id, body FROM t ORDER BY id")
    assert [row[0] for row in result.rows] == [0, 1]
    assert result.more
    assert result.truncated == ()
    short = ReadOnlyDatabase(database, max_cell_bytes=1_000).run("SELECT id, body AS text FROM t ORDER BY id")
    assert short.rows[0] == (0, "好" * 333)
    assert short.truncated == ("text",)
    assert not short.more


def test_the_tool_says_that_values_were_cut(prepared):
    database = ReadOnlyDatabase(prepared("postgresql"))
    for language, note in (("en", "long values are cut"), ("zh", "过长的值已截断")):
        reply = SQLTool(database=database, language=language).invoke({"sql": "SELECT repeat('好', 100000) AS x"})
        assert note in reply
        assert len(reply) < 2_000


@pytest.mark.parametrize(
    ("value", "cut", "is_cut"),
    [
        ("好" * 10, "好好好", True),
        ("abc", "abc", False),
        (b"0123456789ab", b"0123456789", True),
        ("a\udcffb", "a?b", False),
        (10**40, hex(10**40)[:10], True),
        (None, None, False),
        ([1, 2], [1, 2], True),
        ({}, {}, False),
    ],
)
def test_values_are_cut_at_whole_characters(value, cut, is_cut):
    actual = limit_cell(value, 10)
    if not isinstance(value, list):
        assert actual[0] == cut
    assert actual[2] == is_cut


def test_no_more_rows_are_fetched_than_the_limit_needs():
    fetched = []

    def fetch(most):
        fetched.append(most)
        return [(1,)] * most

    result = read_result(fetch, ["a"], QueryLimits(max_rows=20))
    assert len(result.rows) == 20
    assert result.more
    assert sum(fetched) == 21


# -- bad input and secrets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 900 + "1" + ")" * 900,
        "SELECT " + "(" * 20_000,
        "SELECT " + "1+" * 20_000 + "1",
        "SELECT " + "NOT " * 10_000 + "1",
        "SELECT " + "lower(" * 2_000 + "'a'" + ")" * 2_000,
        "SELECT " + "CASE WHEN 1=1 THEN " * 2_000 + "1" + " END" * 2_000,
        "SELECT * FROM " + "(SELECT * FROM " * 1_000 + "t" + ")" * 1_000,
        "SELECT 1" + " UNION SELECT 1" * 3_000,
        "SELECT '\ud800'",
        "SELECT '\0'",
        "x" * (MAX_SQL_CHARACTERS + 1),
        "SELECT 9" + "9" * 5_000,
        "SELECT 1 LIMIT 9" + "9" * 5_000,
        "SELECT '" + "\\" * 999,
        "SELECT $$",
        "SELECT /*",
        "SELECT `",
        "select\u2028*\u00a0from\ufeff t",
        "＊",
        "；",
        "。",
        "SELECT [",
        "SELECT {",
        "{% x %}",
        "SELECT @",
        "SELECT #",
        "SELECT ?",
        "WITH",
        "WITH a",
        "WITH a AS",
        "WITH a AS ()",
        "SELECT FROM WHERE",
        ")",
        "--",
        ";;;",
        "SELECT x FROM y.z.a.b.c",
        "SELECT * FROM a.b.c.d.e.f",
        None,
        7,
        b"SELECT 1",
        ["SELECT 1"],
    ],
    ids=lambda sql: repr(sql)[:30],
)
def test_any_text_is_answered_or_refused_with_an_error_of_ours(prepared, sql):
    for kind in ("sqlite", "duckdb"):
        database = ReadOnlyDatabase(prepared(kind), tables=["open_t"])
        started = time.monotonic()
        try:
            database.run(sql)
        except AgentRagError as error:
            str(error).encode()
        assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://u:geheim99@localhost:1/d?auth=geheim99",
        "postgresql+psycopg://u@localhost:1/d?options=-c%20app.key=geheim99",
        "postgresql+psycopg://u@localhost:1/d?passfile=geheim99&connect_timeout=1",
        "mysql+pymysql://u@localhost:1/d?auth=geheim99",
        "mysql+pymysql://u@localhost:1/d?init_command=geheim99",
        "sqlite:///file:missing.db?auth=geheim99&mode=ro&uri=true",
        "duckdb:///missing.db?motherduck_token=geheim99",
    ],
)
def test_no_message_and_no_repr_shows_a_secret(url):
    for source in (url, sa.create_engine(url)):
        database = ReadOnlyDatabase(source, timeout=2)
        texts = [repr(database)]
        for call in (database.schema, lambda database=database: database.run("SELECT 1")):
            with pytest.raises(AgentRagError) as caught:
                call()
            texts.append(str(caught.value))
        with pytest.raises(AgentRagError) as caught:
            SQLTool(database=database)
        texts.append(str(caught.value))
        assert not any("geheim99" in text for text in texts), texts


def test_options_that_are_no_secrets_are_shown(prepared):
    engine = prepared("postgresql")
    assert "host=" in repr(ReadOnlyDatabase(url_of(engine)))
