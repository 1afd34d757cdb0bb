"""Databases as sources that are only read: engines from URLs, read-only transactions, messages without passwords."""

from __future__ import annotations

import itertools
import re
import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.errors import AgentRagError, ConnectorError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL

_PROGRESS_STEPS: Final = 20_000
"""SQLite instructions between two looks at the clock."""
_DRIVERS: Final = {
    "postgresql": 'postgresql+psycopg://… with pip install "psycopg[binary]"',
    "mysql": "mysql+pymysql://… with pip install pymysql",
    "mariadb": "mariadb+pymysql://… with pip install pymysql",
    "duckdb": "duckdb:///… with pip install duckdb duckdb-engine",
}
_SECRET: Final = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)
_FILES: Final = frozenset(("sqlite", "duckdb"))
_READS: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)

_ADAPTED: Final = ("date", "time", "timetz", "timestamp", "timestamptz", "bpchar")
_FORBIDDING: Final = ("permission", "command denied", "not authorized", "read-only", "read only", "readonly")
_MISSPELT: Final = (
    "syntax",
    "no such table",
    "no such column",
    "no such function",
    "unknown column",
    "doesn't exist",
    "unrecognized token",
)
_DESCRIBING: Final = frozenset(
    [
        "table_info",
        "table_xinfo",
        "table_list",
        "foreign_key_list",
        "index_list",
        "index_info",
        "index_xinfo",
        "data_version",  # full-text tables ask for it
    ]
)


def open_engine(source: Any) -> Engine:  # noqa: ANN401  (see Args)
    """The engine of a database; nothing is connected yet, and no database file is made.

    Args:
        source: A SQLAlchemy `Engine`, an object that has one as `engine` (a connector), or a database URL.

    Raises:
        MissingExtraError: SQLAlchemy is not installed.
        UsageError: this is no database, the URL cannot be read, or its driver is not installed.
    """
    try:
        from sqlalchemy import Engine, create_engine, exc
        from sqlalchemy.engine import URL, make_url
        from sqlalchemy.pool import NullPool
    except ImportError as error:
        raise MissingExtraError("SQL databases", "sql") from error

    engine = getattr(source, "engine", source)
    if isinstance(engine, Engine):
        return engine
    if not isinstance(source, str | URL):
        raise UsageError(
            f"A {type(source).__name__} is no database: pass a SQLAlchemy engine or a database URL."
        )
    try:
        url = make_url(source)
        backend = url.get_backend_name()
        options: dict[str, Any] = {}
        if url.database and url.database != ":memory:":
            options["poolclass"] = NullPool  # no connection is kept between two syncs
        if backend == "sqlite":
            options["connect_args"] = {"check_same_thread": False}  # loaded in worker threads too
        elif backend == "duckdb" and options:
            options["connect_args"] = {"read_only": True}
        return create_engine(url, **options)
    except ImportError as error:
        raise UsageError(
            f"No driver for the database: {error}. Write {_DRIVERS.get(backend, 'a URL that names one')}."
        ) from error
    except (exc.ArgumentError, ValueError):
        raise UsageError(
            "The database URL cannot be read: write dialect+driver://user:password@host/database, "
            "and @, / or : within a password as %40, %2F, %3A."
        ) from None  # the cause would show the URL, and with it the password


@contextmanager
def read_only(engine: Engine, timeout: float | None = None) -> Iterator[Connection]:
    """A connection in a transaction that the database itself keeps from writing; it is always rolled back.

    SQLite's authorizer lets nothing but reading through, so that no other file can be attached either. The other
    databases are told that the transaction only reads.

    Args:
        engine: The database.
        timeout: Seconds a statement may take, or None.
    """
    _check_file(engine)
    with engine.connect() as connection:
        begin = _BEGIN.get(engine.dialect.name)
        end = begin(connection, timeout) if begin else None
        try:
            yield connection
        finally:
            if end is not None:
                end()
            if not connection.invalidated:
                connection.rollback()


@contextmanager
def connected(engine: Engine, what: str) -> Iterator[Connection]:
    """`read_only` for a source: whatever goes wrong while it is listed is a `ConnectorError` that says what to do.

    Args:
        engine: The database.
        what: What is read of it, as a noun.

    Raises:
        ConnectorError: the database cannot be reached, does not allow it, or refuses the statement.
    """
    try:
        with read_only(engine) as connection:
            yield connection
    except AgentRagError:
        raise
    except Exception as error:  # drivers have errors of their own for values they cannot read
        raise ConnectorError(
            f"Cannot read {what} of {shown(engine)}: {reason(error, engine)}. {_remedy(error)} Nothing was deleted."
        ) from error


def _remedy(error: Exception) -> str:
    from sqlalchemy import exc

    said = str(getattr(error, "orig", error)).casefold()
    if any(word in said for word in _FORBIDDING):
        return "A source is only read: grant SELECT to its user, and pass a SELECT."
    if isinstance(error, exc.ProgrammingError) or any(word in said for word in _MISSPELT):
        return "Correct the query or the names in it; it runs as it is written."
    return "Check that the database is running, and its host, name, user and password."


def _begin_sqlite(connection: Connection, timeout: float | None) -> Any:  # noqa: ANN401  a callable
    driver: Any = connection.connection.dbapi_connection
    started = time.monotonic()
    if timeout is not None:
        driver.set_progress_handler(lambda: time.monotonic() - started > timeout, _PROGRESS_STEPS)
    text_factory = driver.text_factory
    # A text that is not UTF-8 concerns its own row only, which is refused later for the surrogates in it.
    driver.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    before = driver.execute("PRAGMA query_only").fetchone()[0]
    driver.execute("PRAGMA query_only = 1")
    driver.set_authorizer(_authorize)

    def end() -> None:
        driver.set_authorizer(None)
        driver.execute(f"PRAGMA query_only = {int(before)}")
        driver.set_progress_handler(None, 0)
        driver.text_factory = text_factory

    return end


def _authorize(action: int, first: str | None, *_: object) -> int:
    described = action == sqlite3.SQLITE_PRAGMA and first in _DESCRIBING
    # how SQLite announces that it opens a virtual table; `query_only` keeps it from being more than that
    opened = action == sqlite3.SQLITE_UPDATE and first in {"sqlite_master", "sqlite_temp_master"}
    return sqlite3.SQLITE_OK if described or opened or action in _READS else sqlite3.SQLITE_DENY


def _begin_postgresql(connection: Connection, timeout: float | None) -> Any:  # noqa: ANN401  a callable, or None
    # a level of its own: an engine in autocommit mode has no transactions, and no server-side cursors without them
    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    if timeout is not None:
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(timeout * 1000)}")
    driver: Any = connection.connection.driver_connection
    return _adapt(driver) if connection.dialect.driver == "psycopg" else None


def _adapt(driver: Any) -> Callable[[], None]:  # noqa: ANN401  (a connection of psycopg)
    """Have times that Python cannot hold given as text: "infinity", years before Christ, "24:00:00".

    psycopg raises for them, which would end the whole reading for one row. And CHAR(n) without the blanks that fill it
    up, as MySQL gives it: they are no part of a key or of an agent's id.
    """
    from psycopg import DataError
    from psycopg.adapt import Loader
    from psycopg.pq import Format

    def adapted(strict: Any) -> type[Loader]:  # noqa: ANN401  (a class of loaders)
        class Adapted(Loader):
            def __init__(self, oid: int, context: Any = None) -> None:  # noqa: ANN401
                super().__init__(oid, context)
                self._load = strict(oid, context).load

            def load(self, data: Any) -> Any:  # noqa: ANN401
                try:
                    loaded = self._load(data)
                except DataError:
                    return bytes(data).decode()
                return loaded.rstrip(" ") if isinstance(loaded, str) else loaded

        return Adapted

    known = driver.adapters
    replaced = {kind: known.get_loader(known.types[kind].oid, Format.TEXT) for kind in _ADAPTED}
    for kind, loader in replaced.items():
        known.register_loader(kind, adapted(loader))

    def end() -> None:
        for kind, loader in replaced.items():
            known.register_loader(kind, loader)

    return end


def _begin_mysql(connection: Connection, timeout: float | None) -> None:
    connection.execution_options(isolation_level="REPEATABLE READ")
    if timeout is not None:
        maria = getattr(connection.dialect, "is_mariadb", False)
        limit = f"max_statement_time = {timeout}" if maria else f"MAX_EXECUTION_TIME = {int(timeout * 1000)}"
        connection.exec_driver_sql(f"SET SESSION {limit}")
        connection.rollback()
    connection.exec_driver_sql("START TRANSACTION READ ONLY")


def _begin_duckdb(connection: Connection, timeout: float | None) -> None:
    connection.exec_driver_sql("ROLLBACK")  # of the one that SQLAlchemy has begun
    connection.exec_driver_sql("BEGIN TRANSACTION READ ONLY")


_BEGIN: Final[dict[str, Any]] = {
    "sqlite": _begin_sqlite,
    "postgresql": _begin_postgresql,
    "mysql": _begin_mysql,
    "mariadb": _begin_mysql,
    "duckdb": _begin_duckdb,
}


def _check_file(engine: Engine) -> None:
    """Connecting would make a database file that is not there."""
    path = engine.url.database
    if engine.dialect.name not in _FILES or not path or path == ":memory:" or ":" in path[2:]:
        return
    if not Path(path).is_file():
        raise ConnectorError(f"Cannot read {shown(engine)}: there is no such file. Check the path.")


def shown(engine: Engine) -> str:
    """The database's URL without passwords."""
    return shown_url(engine.url)


def shown_url(url: URL) -> str:
    """A URL without passwords, those among its options included."""
    options = {key: "***" if _SECRET.search(key) else value for key, value in url.query.items()}
    return url.set(query=options).render_as_string(hide_password=True)


def location(engine: Engine) -> str:
    """Where the database is, equal in every process: kind, host and name, without user, driver and options."""
    url = engine.url
    database = url.database or ""
    if engine.dialect.name in _FILES and database not in {"", ":memory:"}:
        database = str(Path(database).resolve())
    host = f"{url.host or ''}{f':{url.port}' if url.port else ''}"
    return f"{url.get_backend_name()}://{host}/{database}"


def reason(error: BaseException, engine: Engine) -> str:
    """What the database said, in one line, without the statement and without passwords."""
    said = _said(getattr(error, "orig", None) or error)
    text = said.splitlines()[0][:300].rstrip(".")
    url = engine.url
    secrets = [url.password, *(value for key, value in url.query.items() if _SECRET.search(key))]
    for secret in secrets:
        if isinstance(secret, str) and secret:
            text = text.replace(secret, "***")
    return text


def _said(error: BaseException) -> str:
    numbered = len(error.args) > 1 and isinstance(error.args[0], int)  # as MySQL's drivers do it
    return str(error.args[1] if numbered else error).strip() or type(error).__name__


def check_select(sql: str, dialect: str) -> str:
    """Refuse what is not a single SELECT, before any database sees it; the table it reads first, "query" without any.

    The read-only transaction alone is not enough: MariaDB ends it for a DROP TABLE, DuckDB copies to files within it,
    and what stands behind a semicolon may run outside it. Only the tokens are looked at, so that a query may use all
    that its database knows.

    Raises:
        UsageError: it is something else.
        MissingExtraError: sqlglot is not installed.
    """
    try:
        import sqlglot
    except ImportError as error:
        raise MissingExtraError("SQL queries", "sql") from error

    kinds = sqlglot.TokenType
    try:
        tokens = sqlglot.tokenize(sql, read=sqlglot_dialect(dialect))
    except sqlglot.errors.SqlglotError as error:
        said = str(error).splitlines()[0]
        raise UsageError(f"The query cannot be read: {said}. Correct the query; nothing was read.") from error
    while tokens and tokens[-1].token_type is kinds.SEMICOLON:
        tokens.pop()
    found = [token.token_type for token in tokens]
    reading = {kinds.SELECT, kinds.WITH, kinds.VALUES, kinds.FROM, kinds.TABLE, kinds.L_PAREN}
    if not found or found[0] not in reading or kinds.SEMICOLON in found or kinds.INTO in found:
        raise UsageError(
            f"A source is only read, with a single SELECT, which {' '.join(sql.split())[:80]!r} is not: pass one "
            "without INTO and without a second statement. Nothing was read."
        )
    return _first_table([(token.token_type.name, token.text) for token in tokens])


def _first_table(tokens: Sequence[tuple[str, str]]) -> str:
    """The first name behind a FROM of a SELECT, not of EXTRACT(year FROM day) or IS DISTINCT FROM."""
    queries = [True]  # of each open bracket whether a query is in it
    for place, (kind, _) in enumerate(tokens):
        following = tokens[place + 1 : place + 8]  # four names with dots between them
        if kind == "L_PAREN":
            queries.append(bool(following) and following[0][0] in {"SELECT", "WITH", "FROM", "L_PAREN"})
        elif kind == "R_PAREN" and len(queries) > 1:
            queries.pop()
        elif kind == "FROM" and queries[-1] and tokens[max(place - 1, 0)][0] != "DISTINCT":
            named = list(itertools.takewhile(lambda token: token[0] == "DOT", following[1::2]))
            parts = [text for _, text in following[: 2 * len(named) + 1 : 2]]
            if parts and following[0][0] != "L_PAREN":
                return ".".join(parts)
    return "query"


def sqlglot_dialect(name: str) -> str:
    """What sqlglot calls a dialect of SQLAlchemy."""
    return {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}.get(name, name)
