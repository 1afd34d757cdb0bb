"""SQL statements of an agent and what has to become of them, on real SQLite, DuckDB, PostgreSQL and MariaDB.

`python -m tests.connectors.sql.statements` prints the table dialect × statement × outcome; `test_statements.py` runs the
same statements. The database has a table `open_t` that may be read, and `users`, `tokens` with a secret and the schema or
database `other` that may not.

Outcomes: `rows`, `cut` (rows with shortened values), `refused` (not run, or refused by the database), `stopped` (by a
limit of time or memory).
"""

# ruff: noqa: T201  (a command: printing is its job)
from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from langchain_agentrag import ReadOnlyDatabase
from langchain_agentrag.errors import AgentRagError, ConnectorError, InvalidQueryError
from tests.databases import KINDS, run

SECRET = "hunter2-geheim-密码"
TIMEOUT = 1.0
SETUP = (
    "CREATE TABLE open_t (id INTEGER PRIMARY KEY, name VARCHAR(40))",
    "INSERT INTO open_t VALUES (1, 'Ada'), (2, '张三')",
    "CREATE TABLE users (id INTEGER PRIMARY KEY, word VARCHAR(40))",
    f"INSERT INTO users VALUES (1, '{SECRET}')",
    "CREATE TABLE tokens (word VARCHAR(40))",
    f"INSERT INTO tokens VALUES ('{SECRET}')",
    "CREATE VIEW open_v AS SELECT id, name FROM open_t",
)

# What is refused with `tables=["open_t", "open_v"]`, in every dialect; {schema} is the default schema.
CLOSED_TABLES = """
SELECT word FROM users
SELECT word FROM {schema}.users
SELECT * FROM open_t, users
SELECT * FROM open_t JOIN users ON users.id = open_t.id
SELECT (SELECT max(word) FROM users) FROM open_t
SELECT * FROM open_t WHERE name IN (SELECT word FROM users)
SELECT * FROM open_t WHERE EXISTS (SELECT 1 FROM users WHERE word LIKE 'h%')
SELECT name FROM open_t UNION SELECT word FROM users
SELECT name FROM open_t UNION ALL (SELECT word FROM users)
SELECT name FROM open_t ORDER BY (SELECT max(word) FROM users)
SELECT count(*) FROM users
WITH users AS (SELECT 1 AS a) SELECT * FROM {schema}.users
WITH users AS (SELECT word FROM users) SELECT word FROM users
WITH open_t AS (SELECT word AS name FROM users) SELECT name FROM open_t
WITH a AS (SELECT word FROM users), users AS (SELECT 1 AS word) SELECT word FROM a
WITH a AS (WITH users AS (SELECT 1 AS word) SELECT word FROM users) SELECT word FROM users
SELECT * FROM (WITH users AS (SELECT 1 AS word) SELECT word FROM users) AS x, users
SELECT (WITH users AS (SELECT 2 AS a) SELECT a FROM users) AS b, word FROM users
WITH RECURSIVE n AS (SELECT word FROM users UNION SELECT word FROM n) SELECT word FROM n
WITH RECURSIVE n AS (SELECT 1 AS i UNION SELECT i + 1 FROM n WHERE i < 3) SELECT word FROM n, users
SELECT * FROM (SELECT word FROM users) AS open_t
SELECT * FROM open_t AS users, users AS open_t
WITH USERS AS (SELECT 1) SELECT * FROM {schema}.Users
""".strip().splitlines()  # fmt: skip

# What is answered in every dialect.
OPEN = """
SELECT * FROM open_t
SELECT count(*) AS n FROM {schema}.open_t
SELECT upper(name) FROM open_v WHERE id = 1
WITH a AS (SELECT * FROM open_t), b AS (SELECT a.id FROM a JOIN a AS a2 ON a.id = a2.id) SELECT b.id FROM b
WITH users AS (SELECT 7 AS word) SELECT users.word FROM users
WITH users AS (SELECT 7 AS word) SELECT u.word, (SELECT max(word) FROM users) AS m FROM users AS u
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT n.i FROM n
SELECT name, count(*) AS n, sum(id) OVER (ORDER BY id) AS total FROM open_t GROUP BY id, name HAVING count(*) > 0
SELECT CASE WHEN id = 1 THEN 'a' ELSE NULL END AS x, coalesce(name, '') FROM open_t WHERE id BETWEEN 1 AND 2
SELECT id FROM open_t WHERE name LIKE '张%' AND id IN (1, 2) AND name IS NOT NULL
SELECT CAST(id AS CHAR(3)) AS x, round(1.5, 0) AS y, abs(-1) AS z, length(name) FROM open_t
SELECT id FROM open_t UNION SELECT id + 10 FROM open_t ORDER BY 1 LIMIT 3
SELECT 1 AS x /* INTO OUTFILE '/tmp/x' */ -- a comment
SELECT replace(substr(trim(' abc '), 1, 2), 'a', 'b') AS x
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT count(*) FROM n
SELECT count(*) FROM (SELECT id FROM open_t) AS s
""".strip().splitlines()  # fmt: skip

# What changes something, or is no single SELECT, in every dialect.
WRITES = """
DELETE FROM open_t
UPDATE open_t SET name = 'x'
INSERT INTO open_t VALUES (9, 'x')
DROP TABLE open_t
CREATE TABLE made (a INTEGER)
CREATE TABLE made AS SELECT * FROM open_t
SELECT 1; DELETE FROM open_t
SELECT 1; SELECT 2
WITH x AS (DELETE FROM open_t RETURNING id) SELECT * FROM x
WITH x AS (SELECT 1) DELETE FROM open_t
SELECT * INTO made FROM open_t
BEGIN; DELETE FROM open_t; COMMIT
/*x*/ DELETE FROM open_t
SELECT * FROM open_t FOR UPDATE
EXPLAIN SELECT * FROM open_t
VALUES (1)
not sql at all
SELECT (
""".strip().splitlines()  # fmt: skip

# What one dialect has of its own, refused with `tables=["open_t", "open_v"]` and without.
REFUSED = {
    "sqlite": """
SELECT * FROM pragma_table_info('users')
SELECT * FROM pragma_table_list
SELECT * FROM pragma_database_list()
SELECT 'x' IN tokens
SELECT 'x' IN main.tokens
SELECT load_extension('evil')
SELECT "load_extension"('evil')
SELECT fts3_tokenizer('x')
SELECT sqlite_log(1, 'x')
SELECT readfile('/etc/passwd')
SELECT writefile('/tmp/agentrag-made', 'x')
SELECT edit('x')
SELECT last_insert_rowid()
PRAGMA writable_schema = 1
PRAGMA table_info('users')
ATTACH DATABASE '/tmp/agentrag-made.db' AS x
VACUUM INTO '/tmp/agentrag-made.db'
SELECT * FROM open_t WHERE id = ?
SELECT * FROM dbstat
""",
    "duckdb": """
SELECT * FROM read_text('/etc/passwd')
SELECT content FROM read_blob('/etc/passwd')
SELECT * FROM read_csv('/etc/passwd')
SELECT * FROM read_csv_auto('/etc/passwd')
SELECT * FROM read_csv('http://127.0.0.1:1/x.csv')
SELECT * FROM read_json_auto('/etc/passwd')
SELECT * FROM read_parquet('x.parquet')
SELECT * FROM '/etc/passwd'
FROM 'x.csv'
SELECT * FROM "/etc/hostname"
SELECT * FROM glob('/etc/*')
SELECT * FROM sniff_csv('/etc/passwd')
SELECT * FROM query('SELECT * FROM users')
SELECT * FROM query_table('users')
FROM query_table(['users'])
SELECT * FROM duckdb_settings()
SELECT * FROM duckdb_secrets()
SELECT * FROM duckdb_columns()
SELECT * FROM pragma_table_info('users')
SELECT current_setting('home_directory')
SELECT getenv('HOME')
SELECT getvariable('x')
SELECT nextval('s')
SELECT sleep_ms(10)
SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT word FROM users'))
SELECT * FROM st_read('x')
SELECT * FROM sqlite_scan('x.db', 'users')
SELECT * FROM postgres_query('x', 'SELECT 1')
SELECT * FROM (SUMMARIZE users)
SELECT * FROM (DESCRIBE users)
SUMMARIZE users
SHOW TABLES
PIVOT users ON word
COPY users TO '/tmp/agentrag-made.csv'
COPY (SELECT 1) TO '/tmp/agentrag-made.csv'
EXPORT DATABASE '/tmp/agentrag-made'
ATTACH '/tmp/agentrag-made.db' AS x
INSTALL httpfs
LOAD httpfs
SET enable_external_access = true
PRAGMA database_list
CALL pragma_version()
SELECT write_log('x')
SELECT error('x')
""",
    "postgresql": """
SELECT query_to_xml('select * from users', true, false, '')
SELECT query_to_xml_and_xmlschema('select * from users', true, false, '')
SELECT table_to_xml('users', true, false, '')
SELECT schema_to_xml('public', true, false, '')
SELECT database_to_xml(true, false, '')
SELECT cursor_to_xml('c', 1, true, false, '')
SELECT lower(pg_read_file('/etc/passwd'))
SELECT pg_catalog.pg_read_file('/etc/passwd')
SELECT "pg_read_file"('/etc/passwd')
SELECT pg_read_binary_file('/etc/passwd')
SELECT * FROM pg_ls_dir('/etc')
SELECT * FROM ROWS FROM (pg_ls_dir('/etc')) AS x
SELECT * FROM LATERAL pg_ls_dir('/etc') AS x
SELECT pg_stat_file('/etc/passwd')
SELECT * FROM dblink('dbname=postgres', 'INSERT INTO users VALUES (9)') AS t(a int)
SELECT dblink_exec('dbname=postgres', 'DELETE FROM users')
SELECT pg_reload_conf()
SELECT pg_rotate_logfile()
SELECT pg_advisory_lock(1)
SELECT pg_try_advisory_lock(1)
SELECT pg_notify('c', 'x')
SELECT pg_sleep(1)
SELECT pg_sleep_for('1 second')
SELECT pg_sleep_until(now() + interval '1 second')
SELECT pg_terminate_backend(1)
SELECT pg_cancel_backend(1)
SELECT pg_logical_emit_message(false, 'a', 'b')
SELECT pg_create_restore_point('x')
SELECT pg_switch_wal()
SELECT lo_import('/etc/passwd')
SELECT lo_export(1, '/tmp/agentrag-made')
SELECT lo_get(1)
SELECT lo_from_bytea(0, 'x')
SELECT current_setting('data_directory')
SELECT set_config('statement_timeout', '0', true)
SELECT setseed(0.5)
SELECT nextval('s')
SELECT setval('s', 5)
SELECT lastval()
SELECT txid_current()
SELECT ts_stat('SELECT to_tsvector(word) FROM users')
SELECT * FROM ts_stat('SELECT to_tsvector(word) FROM users')
SELECT ts_rewrite('a'::tsquery, 'SELECT to_tsquery(word), to_tsquery(word) FROM users')
SELECT 'users'::regclass
SELECT to_regclass('users')
SELECT has_table_privilege('users', 'SELECT')
SELECT inet_server_addr()
SELECT version()
SELECT current_user
SELECT obj_description(1, 'pg_class')
SELECT pg_get_viewdef('open_v')
SELECT pg_relation_size('users')
SELECT usename, passwd FROM pg_shadow
SELECT rolname FROM pg_catalog.pg_authid
SELECT most_common_vals FROM pg_stats
SELECT query FROM pg_stat_activity
SELECT setting FROM pg_settings
SELECT srvoptions FROM information_schema.foreign_server_options
SELECT 1 OPERATOR(pg_catalog.+) 2
SELECT ('/etc/passwd'::text).pg_read_file
SELECT ('/etc'::text).pg_ls_dir
SELECT (1).pg_sleep
SELECT (0.01::float8).pg_sleep
SELECT (1::bigint).pg_advisory_lock
SELECT ('data_directory'::text).current_setting
SELECT ('SELECT to_tsvector(word) FROM users'::text).ts_stat
SELECT open_t.pg_typeof FROM open_t
SELECT open_t.whole_row FROM open_t
SELECT q.pg_read_file FROM unnest(ARRAY['/etc/hostname']) AS q
SELECT q.pg_read_file FROM unnest(ARRAY['/etc/hostname']) AS q(z)
SELECT q.pg_ls_dir FROM (VALUES ('/etc')) AS q
SELECT (q).pg_sleep FROM generate_series(1, 2) AS q
SELECT q.nextval FROM unnest(ARRAY['s']) AS q ORDER BY q.nextval
SELECT 1 FROM unnest(ARRAY['1s'::interval]) AS q WHERE q.pg_sleep_for IS NULL
SELECT o.whole_row FROM open_t AS o ORDER BY (o).whole_row
SELECT (o.*).whole_row FROM open_t AS o
SELECT (NULL::users).word
SELECT NULL::users
SELECT CAST(NULL AS users)
SELECT NULL::users[]
SELECT 'users'::pg_catalog.regclass
SELECT 'users'::"pg_catalog"."regclass"
SELECT '{users}'::_regclass
SELECT i::oid::pg_catalog.regclass::text FROM generate_series(16384, 16500) AS i
SELECT 'whole_row'::regproc
SELECT * FROM open_t FOR SHARE
COPY users TO '/tmp/agentrag-made'
COPY users TO PROGRAM 'cat'
DO $$ BEGIN DELETE FROM open_t; END $$
LISTEN c
SET ROLE postgres
SELECT U&"\\0070g_sleep"(1)
SELECT xmlparse(document query_to_xml('select * from users', true, false, ''))
""",
    "mariadb": """
WITH users AS (SELECT 1 AS word) SELECT * FROM (WITH b AS (SELECT word FROM users) SELECT word FROM b) AS c
SELECT load_file('/etc/passwd')
SELECT sleep(1)
SELECT benchmark(1000000000, md5('x'))
SELECT get_lock('a', 1)
SELECT release_all_locks()
SELECT is_free_lock('a')
SELECT nextval(s)
SELECT last_insert_id(5)
SELECT master_pos_wait('a', 1)
SELECT master_gtid_wait('a', 1)
SELECT @@datadir
SELECT @@global.secure_file_priv
SELECT @a := 1
SELECT @a
SELECT user()
SELECT version()
SELECT database()
SELECT connection_id()
SELECT uuid_short()
SELECT name_const('a', 1)
SELECT sys_exec('id')
SELECT other.lower('A')
SELECT Host, Password FROM mysql.user
SELECT * FROM mysql.global_priv
SELECT info FROM information_schema.processlist
SELECT * FROM performance_schema.threads
SELECT 1 INTO OUTFILE '/tmp/agentrag-made'
SELECT 1 INTO DUMPFILE '/tmp/agentrag-made'
SELECT 1 INTO @a
SELECT * FROM open_t LOCK IN SHARE MODE
SELECT * FROM open_t PROCEDURE ANALYSE()
HANDLER open_t OPEN
SET GLOBAL general_log = 1
SET STATEMENT max_statement_time = 0 FOR SELECT 1
CALL p()
SHOW TABLES
LOAD DATA INFILE '/etc/passwd' INTO TABLE open_t
""",
}  # fmt: skip

# What one dialect has of its own and is answered.
ANSWERED = {
    "sqlite": """
WITH users AS (SELECT 1 AS word) SELECT * FROM (WITH b AS (SELECT word FROM users) SELECT word FROM b) AS c
SELECT date('now'), strftime('%Y', CURRENT_TIMESTAMP), julianday('now'), unixepoch()
SELECT o.value FROM json_each('[1, 2]') AS o
SELECT '{"a": 1}' ->> '$.a', json_extract('{"a": 1}', '$.a'), typeof(1), x'00ff', group_concat(name) FROM open_t
SELECT name GLOB 'A*', name COLLATE NOCASE, name REGEXP '^A', iif(id = 1, 2, 3), instr(name, 'd') FROM open_t
SELECT printf('%d', 3), char(65), hex(zeroblob(4)), max(1, 2), ifnull(NULL, 1)
SELECT rank() OVER w FROM open_t WINDOW w AS (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
""",
    "duckdb": """
WITH users AS (SELECT 1 AS word) SELECT * FROM (WITH b AS (SELECT word FROM users) SELECT word FROM b) AS c
FROM open_t SELECT id
SELECT * EXCLUDE (id) FROM open_t
SELECT [x + 1 for x in range(3)], {'a': 1}, list_transform([1], x -> x + 1), MAP {'a': 1}, [1, 2][1:2]
SELECT COLUMNS('n.*') FROM open_t
SELECT string_agg(name, ',' ORDER BY id), quantile_cont(id, 0.5), arg_max(id, name) FROM open_t
SELECT date_diff('day', DATE '2020-01-01', current_date), strptime('2020', '%Y'), INTERVAL 1 DAY, epoch(now())
SELECT count(*) FROM range(5) AS t(i)
SELECT id::VARCHAR, 'a'.upper(), name SIMILAR TO 'A.*', try_cast('a' AS INTEGER) FROM open_t
SELECT * FROM open_t QUALIFY row_number() OVER (ORDER BY id) = 1
""",
    "postgresql": """
WITH users AS (SELECT 1 AS word) SELECT * FROM (WITH b AS (SELECT word FROM users) SELECT word FROM b) AS c
SELECT DISTINCT ON (id) id, name::text, now() - interval '1 day', date_trunc('day', now()) FROM open_t
SELECT extract(year FROM now()), ARRAY[1, 2][1], 'a' ~ 'a', 'a' ILIKE 'A', 1 = ANY(ARRAY[1])
SELECT '{"a": 1}'::jsonb ->> 'a', '{"a": 1}'::jsonb @> '{}', '{"a": 1}'::jsonb ? 'a', to_tsvector('a') @@ to_tsquery('a')
SELECT string_agg(name, ',' ORDER BY id), count(*) FILTER (WHERE true), percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM open_t
SELECT position('a' IN name), substring(name FROM 1 FOR 2), trim(BOTH 'x' FROM name), overlay(name PLACING 'x' FROM 1 FOR 1) FROM open_t
SELECT * FROM generate_series(1, 3) WITH ORDINALITY AS g(i, n)
SELECT * FROM json_to_record('{"a": 1}') AS x(a int)
SELECT (json_each('{"a": 1}')).key, o.name, (o).id FROM open_t AS o
SELECT o.time, o.area, o.version, o.date FROM (SELECT 1 AS time, 2 AS area, 3 AS version, 4 AS date) AS o
SELECT 'a & b'::tsquery, '10.0.0.0/8'::cidr, '1.5'::numeric(5, 2), '{1,2}'::int[]
SELECT pg_catalog.lower('A'), '2020-01-01'::date AT TIME ZONE 'UTC', greatest(1, 2), 2 ^ 3, 'a' || 'b'
TABLE open_t
SELECT repeat('x', 10), to_char(now(), 'YYYY'), md5('a'), gen_random_uuid(), random() < 2
""",
    "mariadb": """
SELECT date_format(now(), '%Y'), date_add(now(), INTERVAL 1 DAY), now() + INTERVAL 1 DAY, if(1, 2, 3)
SELECT group_concat(DISTINCT name ORDER BY id SEPARATOR ','), json_extract('{"a": 1}', '$.a') FROM open_t
SELECT name REGEXP 'A', id DIV 2, id % 2, 1 <=> 2, CONVERT(name USING utf8mb4), CAST('1' AS UNSIGNED) FROM open_t
SELECT timestampdiff(DAY, now(), now()), left(name, 1), year(now()), char_length(name) FROM open_t LIMIT 0, 3
SELECT 1 /*! INTO OUTFILE '/tmp/agentrag-made' */
SELECT /*+ MAX_EXECUTION_TIME(0) */ id FROM open_t
""",
}  # fmt: skip

# What would take too long, too much memory or too much room.
ENDLESS = {
    "sqlite": """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n
SELECT instr(hex(zeroblob(10000000)), hex(zeroblob(5000000)) || '1')
SELECT length(replace(hex(zeroblob(10000000)), hex(zeroblob(4000000)) || '1', ''))
SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' REGEXP '(a+)+$b'
SELECT hex(zeroblob(400000000))
SELECT length(hex(zeroblob(400000000)))
SELECT randomblob(1000000000)
SELECT length(randomblob(1000000000))
SELECT printf('%.*c', 1000000000, 'x')
SELECT replace(hex(zeroblob(10000)), '0', hex(zeroblob(100000)))
WITH RECURSIVE n(i, t) AS (SELECT 1, 'xxxxxxxxxx' UNION ALL SELECT i + 1, t || t FROM n) SELECT max(length(t)) FROM n
""",
    "duckdb": """
SELECT count(*) FROM range(100000000000)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n
SELECT list_sum(range(100000000))
SELECT length(repeat('x', 3000000000))
SELECT lpad('', 2000000000, 'x')
SELECT damerau_levenshtein(repeat('a', 50000), repeat('b', 50000))
SELECT string_agg(repeat('x', 1000000), ',') FROM range(10000)
""",
    "postgresql": """
SELECT count(*) FROM generate_series(1, 100000000000)
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT count(*) FROM n
SELECT count(*) FROM generate_series(1, 100000) AS a(i), generate_series(1, 10000000) AS b(j)
SELECT length(repeat('x', 2000000000))
""",
    "mariadb": """
SELECT count(*) FROM information_schema.columns AS a, information_schema.columns AS b, information_schema.columns AS c
""",
}  # fmt: skip

CUT = {
    "sqlite": "SELECT hex(zeroblob(1000000)) AS x",
    "duckdb": "SELECT repeat('x', 20000000) AS x\nSELECT range(1000000) AS x",
    "postgresql": "SELECT repeat('x', 200000000) AS x\nSELECT array_fill(1, ARRAY[1000000]) AS x\n"
    "SELECT convert_to(repeat('x', 100000000), 'UTF8') AS x\nSELECT json_agg(g) AS x FROM generate_series(1, 100000) AS g",
    "mariadb": "SELECT repeat('x', 10000000) AS x",
}


@dataclass(frozen=True)
class Statement:
    """A statement, whether `tables` is passed, and the expected outcome."""

    kind: str
    sql: str
    limited: bool
    outcome: str

    def __str__(self) -> str:
        return f"{self.kind} {'tables' if self.limited else 'all'}: {self.sql[:100]}"


def statements() -> Iterator[Statement]:
    """All statements of all dialects."""
    schemas = {"sqlite": "main", "duckdb": "main", "postgresql": "{default}", "mariadb": "{default}"}
    for kind in KINDS:
        schema = schemas[kind]
        for sql in CLOSED_TABLES:
            yield Statement(kind, sql.replace("{schema}", schema), True, "refused")
        for sql in OPEN:
            yield Statement(kind, sql.replace("{schema}", schema), True, "rows")
        for sql in WRITES:
            yield Statement(kind, sql, False, "refused")
        for sql in REFUSED[kind].strip().splitlines():
            yield Statement(kind, sql, True, "refused")
            yield Statement(kind, sql, False, "refused")
        for sql in ANSWERED[kind].strip().splitlines():
            yield Statement(kind, sql, True, "rows")
        for sql in ENDLESS[kind].strip().splitlines():
            yield Statement(kind, sql, False, "stopped")
        for sql in CUT[kind].strip().splitlines():
            yield Statement(kind, sql, True, "cut")


def outcome(engine: sa.Engine, statement: Statement) -> tuple[str, str]:
    """Run a statement and return its outcome and the result or the message."""
    seconds = TIMEOUT if statement.outcome == "stopped" else 10 * TIMEOUT
    database = ReadOnlyDatabase(engine, tables=["open_t", "open_v"] if statement.limited else None, timeout=seconds)
    default = engine.url.database
    if statement.kind == "postgresql":
        default = str(engine.url.query["options"]).partition("=")[2]
    try:
        result = database.run(statement.sql.replace("{default}", str(default)))
    except InvalidQueryError as error:
        limits = ("memory", "too big", "at most", "too large", "exceed", "requested length")
        return "stopped" if any(word in str(error) for word in limits) else "refused", str(error)
    except ConnectorError as error:
        return ("stopped" if "longer than" in str(error) else "unreachable"), str(error)
    except AgentRagError as error:
        return type(error).__name__, str(error)
    return "cut" if result.truncated else "rows", repr(result.rows)


def prepare(engine: sa.Engine) -> None:
    """Create the tables, and in PostgreSQL a function of their rows."""
    run(engine, *SETUP)
    if engine.dialect.name == "postgresql":
        body = "SELECT max(word) FROM users"
        run(engine, f"CREATE FUNCTION whole_row(open_t) RETURNS text LANGUAGE sql AS '{body}'")


def main() -> int:
    """Print the table; the exit code says whether all outcomes are the expected ones."""
    import tempfile

    wrong = total = 0
    with tempfile.TemporaryDirectory() as folder, _databases(Path(folder)) as engines:
        for engine in engines.values():
            prepare(engine)
        for statement in statements():
            started = time.monotonic()
            actual, text = outcome(engines[statement.kind], statement)
            seconds = time.monotonic() - started
            is_right = (
                actual == statement.outcome and SECRET not in text and (seconds < TIMEOUT + 4 or actual != "stopped")
            )
            total += 1
            wrong += not is_right
            mark = "  " if is_right else "!!"
            scope = "tables" if statement.limited else "all"
            print(f"{mark} {statement.kind:10} {scope:6} {actual:8} {seconds:5.2f} s  {statement.sql[:110]}")
            if not is_right:
                print(f"      expected {statement.outcome}: {text[:300]}")
    print(f"{total} statements, {wrong} with another outcome than expected")
    return int(wrong > 0)


@contextmanager
def _databases(folder: Path) -> Iterator[dict[str, sa.Engine]]:
    from contextlib import ExitStack

    from sqlalchemy.pool import NullPool

    from tests import servers

    with ExitStack() as stack:
        engines = {
            kind: sa.create_engine(f"{kind}:///{folder / kind}.db", poolclass=NullPool) for kind in ("sqlite", "duckdb")
        }
        postgres = sa.make_url(stack.enter_context(servers.server("PostgreSQL")))
        mariadb = sa.make_url(stack.enter_context(servers.server("MariaDB")))
        for url, kind, options in (
            (postgres, "postgresql", {"query": {**postgres.query, "options": "-csearch_path=agents"}}),
            (mariadb, "mariadb", {"database": "agents"}),
        ):
            run(sa.create_engine(url, poolclass=NullPool), "CREATE SCHEMA agents")
            engines[kind] = sa.create_engine(url.set(**options), poolclass=NullPool)
        yield engines


if __name__ == "__main__":
    sys.exit(main())
