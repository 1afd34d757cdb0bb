"""Read-only access to SQL databases: engines, transactions, statement checks, error messages without passwords."""

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

_PROGRESS_STEPS: Final = 20_000  # SQLite instructions between two checks of the timeout
_DRIVER_HINTS: Final = {
    "postgresql": 'postgresql+psycopg://… with pip install "psycopg[binary]"',
    "mysql": "mysql+pymysql://… with pip install pymysql",
    "mariadb": "mariadb+pymysql://… with pip install pymysql",
    "duckdb": "duckdb:///… with pip install duckdb duckdb-engine",
}
_SECRET_OPTION: Final = re.compile("pass|pwd|secret|token|key", re.IGNORECASE)
_FILE_BACKENDS: Final = frozenset(("sqlite", "duckdb"))
_PERMISSION_WORDS: Final = (
    "permission", "command denied", "not authorized", "read-only", "read only", "readonly",
)  # fmt: skip
_SYNTAX_WORDS: Final = (
    "syntax", "no such table", "no such column", "no such function", "unknown column", "doesn't exist",
    "unrecognized token",
)  # fmt: skip
_READ_ACTIONS: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
_READ_PRAGMAS: Final = frozenset({
    "table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info", "index_xinfo",
    "data_version",
})  # fmt: skip
"""PRAGMAs that describe tables, and `data_version`, which full-text tables need."""
_ADAPTED_TYPES: Final = ("date", "time", "timetz", "timestamp", "timestamptz", "bpchar")


def open_engine(source: Any) -> Engine:  # noqa: ANN401  (see Args)
    """Return the engine of a database that is only read; nothing is connected yet, and no file is created.

    See `memory.database.open_memory_engine` for databases that are also written to.

    Args:
        source: A SQLAlchemy `Engine`, an object with an `engine` attribute (a connector), or a database URL.

    Raises:
        MissingExtraError: SQLAlchemy is not installed.
        UsageError: the source is not a database, the URL cannot be parsed, or its driver is not installed.
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
        raise UsageError(f"A {type(source).__name__} is not a database: pass a SQLAlchemy engine or a database URL.")
    try:
        url = make_url(source)
        backend = url.get_backend_name()
        options: dict[str, Any] = {}
        if url.database and url.database != ":memory:":
            options["poolclass"] = NullPool  # no connection stays open between two syncs
        if backend == "sqlite":
            options["connect_args"] = {"check_same_thread": False}  # loaded in worker threads too
        elif backend == "duckdb" and options:
            options["connect_args"] = {"read_only": True}
        return create_engine(url, **options)
    except ImportError as error:
        raise UsageError(
            f"Cannot load the database driver: {error}. Use {_DRIVER_HINTS.get(backend, 'a URL that names one')}."
        ) from error
    except (exc.ArgumentError, ValueError):
        raise UsageError(
            "The database URL cannot be parsed: write dialect+driver://user:password@host/database, "
            "and @, / or : within a password as %40, %2F, %3A."
        ) from None  # the cause contains the URL with the password


@contextmanager
def read_only(engine: Engine, timeout: float | None = None) -> Iterator[Connection]:
    """Open a connection in a read-only transaction, which is always rolled back.

    The database enforces it: SQLite by an authorizer that admits only reads, so that no other file can be attached
    either, the other databases by a read-only transaction.

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
def connect_source(engine: Engine, target: str) -> Iterator[Connection]:
    """Open a connection with `read_only`; errors while the source is listed become `ConnectorError`.

    Args:
        engine: The database.
        target: What is read from it, as a noun phrase.

    Raises:
        ConnectorError: the database cannot be reached, does not allow it, or refuses the statement.
    """
    try:
        with read_only(engine) as connection:
            yield connection
    except AgentRagError:
        raise
    except Exception as error:  # drivers raise their own errors for values they cannot convert
        raise ConnectorError(
            f"Cannot read {target} of {masked_url(engine.url)}: {error_message(error, engine)}. {_remedy(error)} "
            "Nothing was deleted."
        ) from error


def _remedy(error: Exception) -> str:
    from sqlalchemy import exc

    message = str(getattr(error, "orig", error)).casefold()
    if any(word in message for word in _PERMISSION_WORDS):
        return "A source is only read: grant SELECT to its user, and pass a SELECT."
    if isinstance(error, exc.ProgrammingError) or any(word in message for word in _SYNTAX_WORDS):
        return "Correct the query or the names in it; it runs as it is written."
    return "Check that the database is running, and its host, name, user and password."


def _begin_sqlite(connection: Connection, timeout: float | None) -> Any:  # noqa: ANN401  a callable
    driver: Any = connection.connection.dbapi_connection
    started = time.monotonic()
    if timeout is not None:
        driver.set_progress_handler(lambda: time.monotonic() - started > timeout, _PROGRESS_STEPS)
    text_factory = driver.text_factory
    # A text that is not UTF-8 must fail its own row only, which is rejected later because of the surrogates.
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
    read_pragma = action == sqlite3.SQLITE_PRAGMA and first in _READ_PRAGMAS
    # SQLite reports the opening of a virtual table as this update; `query_only` prevents real ones
    opens_virtual = action == sqlite3.SQLITE_UPDATE and first in {"sqlite_master", "sqlite_temp_master"}
    allowed = read_pragma or opens_virtual or action in _READ_ACTIONS
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _begin_postgresql(connection: Connection, timeout: float | None) -> Any:  # noqa: ANN401  a callable, or None
    # set the level, because an engine in autocommit mode has no transactions, and so no server-side cursors
    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    if timeout is not None:
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(timeout * 1000)}")
    driver: Any = connection.connection.driver_connection
    return _register_loaders(driver) if connection.dialect.driver == "psycopg" else None


def _register_loaders(driver: Any) -> Callable[[], None]:  # noqa: ANN401  (a connection of psycopg)
    """Load times that Python cannot represent as text ("infinity", years BC, "24:00:00"); return the undo function.

    psycopg raises for them, so that one row would end the whole sync. CHAR(n) is loaded without its padding, as MySQL
    returns it: it is not part of a key or an agent id.
    """
    from psycopg import DataError
    from psycopg.adapt import Loader
    from psycopg.pq import Format

    def lenient(strict: Any) -> type[Loader]:  # noqa: ANN401  (a class of loaders)
        class LenientLoader(Loader):
            def __init__(self, oid: int, context: Any = None) -> None:  # noqa: ANN401
                super().__init__(oid, context)
                self._load = strict(oid, context).load

            def load(self, data: Any) -> Any:  # noqa: ANN401
                try:
                    loaded = self._load(data)
                except DataError:
                    return bytes(data).decode()
                return loaded.rstrip(" ") if isinstance(loaded, str) else loaded

        return LenientLoader

    adapters = driver.adapters
    original = {name: adapters.get_loader(adapters.types[name].oid, Format.TEXT) for name in _ADAPTED_TYPES}
    for name, loader in original.items():
        adapters.register_loader(name, lenient(loader))

    def end() -> None:
        for name, loader in original.items():
            adapters.register_loader(name, loader)

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
    connection.exec_driver_sql("ROLLBACK")  # end the transaction SQLAlchemy has begun
    connection.exec_driver_sql("BEGIN TRANSACTION READ ONLY")


_BEGIN: Final[dict[str, Any]] = {
    "sqlite": _begin_sqlite, "duckdb": _begin_duckdb,
    "postgresql": _begin_postgresql, "mysql": _begin_mysql, "mariadb": _begin_mysql,
}  # fmt: skip


def _check_file(engine: Engine) -> None:
    """Check that a database file exists, because connecting would create it."""
    path = engine.url.database
    if engine.dialect.name not in _FILE_BACKENDS or not path or path == ":memory:" or ":" in path[2:]:
        return
    if not Path(path).is_file():
        raise ConnectorError(f"Cannot read {masked_url(engine.url)}: there is no such file. Check the path.")


def masked_url(url: URL) -> str:
    """Return a database URL with the passwords masked, also those in its options."""
    options = {key: "***" if _SECRET_OPTION.search(key) else value for key, value in url.query.items()}
    return url.set(query=options).render_as_string(hide_password=True)


def location(engine: Engine) -> str:
    """Return backend, host and database name of a URL, equal in every process, without user, driver and options."""
    url = engine.url
    database = url.database or ""
    if engine.dialect.name in _FILE_BACKENDS and database not in {"", ":memory:"}:
        database = str(Path(database).resolve())
    host = f"{url.host or ''}{f':{url.port}' if url.port else ''}"
    return f"{url.get_backend_name()}://{host}/{database}"


def error_message(error: BaseException, engine: Engine) -> str:
    """Return the database's message in one line, without the statement and with passwords masked."""
    error = getattr(error, "orig", None) or error
    numbered = len(error.args) > 1 and isinstance(error.args[0], int)  # as MySQL's drivers do it
    message = str(error.args[1] if numbered else error).strip() or type(error).__name__
    text = message.splitlines()[0][:300].rstrip(".")
    url = engine.url
    secrets = [url.password, *(value for key, value in url.query.items() if _SECRET_OPTION.search(key))]
    for secret in secrets:
        if isinstance(secret, str) and secret:
            text = text.replace(secret, "***")
    return text


def check_select(sql: str, dialect: str) -> str:
    """Check that a statement is a single SELECT, before any database receives it.

    The read-only transaction alone is not enough: MariaDB ends it for a DROP TABLE, DuckDB copies to files within it,
    and a second statement behind a semicolon may run outside it. Only the tokens are checked, so that a query may use
    all of its database's syntax.

    Returns:
        The first table it reads, "query" when there is none.

    Raises:
        UsageError: it is not a single SELECT.
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
        message = str(error).splitlines()[0]
        raise UsageError(f"The query cannot be parsed: {message}. Correct the query; nothing was read.") from error
    while tokens and tokens[-1].token_type is kinds.SEMICOLON:
        tokens.pop()
    types = [token.token_type for token in tokens]
    first_types = {kinds.SELECT, kinds.WITH, kinds.VALUES, kinds.FROM, kinds.TABLE, kinds.L_PAREN}
    if not types or types[0] not in first_types or kinds.SEMICOLON in types or kinds.INTO in types:
        raise UsageError(
            f"A source is read with a single SELECT, which {' '.join(sql.split())[:80]!r} is not: pass one "
            "without INTO and without a second statement. Nothing was read."
        )
    return _first_table([(token.token_type.name, token.text) for token in tokens])


def _first_table(tokens: Sequence[tuple[str, str]]) -> str:
    """Return the first name behind the FROM of a SELECT, not of EXTRACT(year FROM day) or IS DISTINCT FROM."""
    in_query = [True]  # for each open parenthesis whether it contains a query
    for position, (kind, _) in enumerate(tokens):
        following = tokens[position + 1 : position + 8]  # four names with dots between them
        if kind == "L_PAREN":
            in_query.append(bool(following) and following[0][0] in {"SELECT", "WITH", "FROM", "L_PAREN"})
        elif kind == "R_PAREN" and len(in_query) > 1:
            in_query.pop()
        elif kind == "FROM" and in_query[-1] and tokens[max(position - 1, 0)][0] != "DISTINCT":
            dots = list(itertools.takewhile(lambda token: token[0] == "DOT", following[1::2]))
            parts = [text for _, text in following[: 2 * len(dots) + 1 : 2]]
            if parts and following[0][0] != "L_PAREN":
                return ".".join(parts)
    return "query"


def sqlglot_dialect(name: str) -> str:
    """Return sqlglot's name of a SQLAlchemy dialect."""
    return {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}.get(name, name)
