"""The lists of allowed functions against what each database says about its own functions."""

from __future__ import annotations

import sqlite3

import duckdb
import pytest
import sqlalchemy as sa

from langchain_agentrag import ReadOnlyDatabase
from langchain_agentrag.connectors.sql.statement import SelectChecker
from langchain_agentrag.errors import InvalidQueryError

CLOCK_AND_RANDOM = {
    "clock_timestamp", "random", "gen_random_uuid", "timeofday", "uuid", "uuidv4", "uuidv7", "array_sample",
    "array_shuffle",
}  # fmt: skip


def test_functions_of_sqlite_are_harmless_by_its_own_account():
    allowed = SelectChecker("sqlite").functions
    with sqlite3.connect(":memory:") as connection:
        flags = dict(connection.execute("SELECT name, flags FROM pragma_function_list").fetchall())
    connection.close()
    direct_only = {name for name, flag in flags.items() if flag & 0x80000 and name in allowed}  # SQLITE_DIRECTONLY
    assert direct_only == set()
    assert {"load_extension", "sqlite_log", "changes", "fts3_tokenizer", "last_insert_rowid"}.isdisjoint(allowed)


def test_functions_of_duckdb_have_no_side_effects_by_its_own_account():
    allowed = SelectChecker("duckdb").functions
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT function_name, function_type, coalesce(has_side_effects, false) FROM duckdb_functions()"
        ).fetchall()
    effects = {name.lower() for name, _, effect in rows if effect} & allowed
    assert effects <= CLOCK_AND_RANDOM
    tables = {name for name, kind, _ in rows if kind.startswith("table")} & allowed
    # of those that return tables, these read nothing but their arguments
    assert tables <= {
        "generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest", "histogram",
    }  # fmt: skip
    assert not {name for name in allowed if name.startswith(("duckdb_", "pragma_", "pg_", "read_"))}


def test_functions_of_postgresql_are_not_volatile_by_its_own_account(postgres_url):
    allowed = SelectChecker("postgresql").functions
    engine = sa.create_engine(postgres_url)
    with engine.connect() as connection:
        volatile = set(connection.execute(sa.text("SELECT proname FROM pg_proc WHERE provolatile = 'v'")).scalars())
        names = set(connection.execute(sa.text("SELECT proname FROM pg_proc")).scalars())
    engine.dispose()
    assert volatile & allowed <= CLOCK_AND_RANDOM
    assert not {
        name for name in allowed if name.startswith(("pg_", "lo_", "has_", "inet_", "txid_", "query_", "dblink"))
    }
    assert not {name for name in allowed if name.endswith(("_to_xml", "_to_xmlschema"))}
    assert len(names & allowed) > 250  # real names, not inventions


def test_every_other_function_of_postgresql_is_refused_before_it_is_sent(postgres_url):
    database = ReadOnlyDatabase(postgres_url)
    allowed = SelectChecker("postgresql").functions
    engine = sa.create_engine(postgres_url)
    with engine.connect() as connection:
        names = set(connection.execute(sa.text("SELECT proname FROM pg_proc")).scalars())
    engine.dispose()
    # calls that are written with keywords between their arguments are parsed as syntax
    syntax = {"overlay", "position", "normalize", "substring", "timezone"}
    for name in sorted(names - allowed - syntax)[::7]:
        for sql in (f"SELECT {name}(1)", f'SELECT "{name}"(1)', f"SELECT * FROM pg_catalog.{name}(1)"):
            with pytest.raises(
                InvalidQueryError, match=r"list of allowed|not allowed here|cannot be parsed|single SELECT"
            ):
                database.run(sql)


def test_functions_of_mariadb_are_known_to_it_and_change_nothing(mariadb_url):
    allowed = SelectChecker("mariadb").functions
    engine = sa.create_engine(mariadb_url)
    with engine.connect() as connection:
        known = {
            name.lower()
            for name in connection.execute(sa.text("SELECT function FROM information_schema.sql_functions")).scalars()
        }
    engine.dispose()
    assert len(known & allowed) > 150
    assert {
        "benchmark", "sleep", "load_file", "get_lock", "release_lock", "release_all_locks", "is_used_lock",
        "master_pos_wait", "master_gtid_wait", "last_insert_id", "found_rows", "row_count", "database", "version",
        "session_user", "system_user", "connection_id", "encrypt", "name_const", "wsrep_sync_wait_upto_gtid",
    }.isdisjoint(allowed)  # fmt: skip
