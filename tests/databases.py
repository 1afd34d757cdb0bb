"""Empty databases of four kinds for the tests, and copies of tables between them."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

KINDS = ("sqlite", "duckdb", "postgresql", "mariadb")
_numbers = itertools.count(1)

Fresh = Callable[[str], sa.Engine]


@pytest.fixture
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fresh]:
    """Function that creates an empty database of a kind and returns its engine; dropped after the test."""
    drops: list[Callable[[], None]] = []

    def create(kind: str) -> sa.Engine:
        engine, drop = _create(kind, request, tmp_path)
        drops.append(drop)
        return engine

    yield create
    for drop in reversed(drops):
        drop()


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, fresh: Fresh) -> sa.Engine:
    """An empty database of each kind."""
    return fresh(request.param)


def url_of(engine: sa.Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def run(engine: sa.Engine, *statements: str) -> None:
    """Run statements in the database's dialect."""
    with engine.begin() as connection:
        for statement in statements:
            connection.execution_options(no_parameters=True).exec_driver_sql(statement)


def kind_of(engine: sa.Engine) -> str:
    return "mariadb" if engine.dialect.name == "mysql" else engine.dialect.name


def _create(kind: str, request: pytest.FixtureRequest, folder: Path) -> tuple[sa.Engine, Callable[[], None]]:
    name = f"fresh_{next(_numbers)}"
    if kind in {"sqlite", "duckdb"}:
        engine = sa.create_engine(f"{kind}:///{folder / name}.db", poolclass=NullPool)
        with engine.begin() as connection:  # creates the file
            connection.exec_driver_sql("CREATE TABLE created (a INTEGER)")
            connection.exec_driver_sql("DROP TABLE created")
        return engine, engine.dispose
    url = sa.make_url(request.getfixturevalue({"postgresql": "postgres_url", "mariadb": "mariadb_url"}[kind]))
    server = sa.create_engine(url, poolclass=NullPool)
    run(server, f"CREATE SCHEMA {name}")  # a database of MariaDB; PostgreSQL creates whole databases slowly
    own = {"database": name} if kind == "mariadb" else {"query": {**url.query, "options": f"-csearch_path={name}"}}
    cascade = "" if kind == "mariadb" else " CASCADE"
    engine = sa.create_engine(url.set(**own), poolclass=NullPool)
    return engine, lambda: run(server, f"DROP SCHEMA {name}{cascade}")


def sqlite_script(script: Path, folder: Path) -> sa.Engine:
    """Create a SQLite database from a script."""
    path = folder / f"{script.stem}.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(script.read_text(encoding="utf-8"))
    connection.close()
    return sa.create_engine(f"sqlite:///{path}", poolclass=NullPool)


def copy_tables(source: sa.Engine, target: sa.Engine) -> None:
    """Copy all tables of one database to another, of any kind, with keys and references; views become tables."""
    metadata = sa.MetaData()
    metadata.reflect(source, views=True)
    plain = sa.MetaData()
    for table in metadata.sorted_tables:
        keys = {column.name for column in table.primary_key}
        keys |= {key.parent.name for key in table.foreign_keys}
        columns = [
            sa.Column(
                column.name,
                _portable(column.type, column.name in keys),
                *(sa.ForeignKey(f"{key.column.table.name}.{key.column.name}") for key in column.foreign_keys),
                primary_key=column.primary_key,
                nullable=column.nullable,
                autoincrement=False,
            )
            for column in table.columns
        ]
        sa.Table(table.name, plain, *columns)
    plain.create_all(target)
    for table in plain.sorted_tables:
        original = metadata.tables[table.name]
        with source.connect() as connection:
            rows = [dict(row) for row in connection.execute(sa.select(original)).mappings()]
        with target.begin() as connection:
            for part in _parts(table, rows):
                connection.execute(table.insert(), part)


def _portable(kind: sa.types.TypeEngine, is_key: bool) -> sa.types.TypeEngine:
    generic = kind.as_generic(allow_nulltype=True)
    if is_key and isinstance(generic, sa.String):
        return sa.String(120)  # MariaDB wants the length of a key
    if isinstance(generic, sa.String | sa.types.NullType):
        return sa.Text()
    return sa.Double() if isinstance(generic, sa.Float) else generic


def _parts(table: sa.Table, rows: list[dict]) -> Iterator[list[dict]]:
    """Yield batches of rows to insert; in a table that refers to itself, a row comes after the rows it refers to."""
    own = [key for key in table.foreign_keys if key.column.table is table]
    if not own:
        if rows:
            yield rows
        return
    name, key = own[0].parent.name, own[0].column.name
    inserted: set = {None}
    while pending := [row for row in rows if row[key] not in inserted]:
        ready = [row for row in pending if row[name] in inserted]
        yield ready
        inserted |= {row[key] for row in ready}
