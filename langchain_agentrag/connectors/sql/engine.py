"""Read-only access to SQL databases: transactions, error messages without passwords."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.sql.sqlite_access import authorize_reads, restrict
from langchain_agentrag.errors import AgentRagError, ConnectorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL

_PLAIN_OPTIONS: Final = frozenset({
    "host", "port", "dbname", "user", "charset", "unix_socket", "sslmode", "ssl_mode", "mode", "uri", "cache", "driver",
    "timeout", "connect_timeout", "application_name", "client_encoding", "read_only", "access_mode", "immutable",
    "target_session_attrs", "keepalives", "autocommit", "local_infile",
})  # fmt: skip
"""Options of a URL that are shown in messages; the values of all others may be secrets."""
_FILE_BACKENDS: Final = frozenset(("sqlite", "duckdb"))
_PERMISSION_WORDS: Final = (
    "permission", "command denied", "not authorized", "read-only", "read only", "readonly",
)  # fmt: skip
_SYNTAX_WORDS: Final = (
    "syntax", "no such table", "no such column", "no such function", "unknown column", "doesn't exist",
    "unrecognized token",
)  # fmt: skip
_MIN_SECRET: Final = 4  # shorter parts of an option, such as "-c", are no secrets
_ADAPTED_TYPES: Final = ("date", "time", "timetz", "timestamp", "timestamptz", "bpchar")


@contextmanager
def read_only(engine: Engine, timeout: float | None = None) -> Iterator[Connection]:
    """Open a connection in a read-only transaction, which is always rolled back.

    The database enforces it: SQLite by an authorizer that admits only reads, so that no other file can be attached
    either, the other databases by a read-only transaction.

    Args:
        engine: The database.
        timeout: Seconds a statement may take on a server, or None.
    """
    check_file(engine)
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


def _begin_sqlite(connection: Connection, _: float | None) -> Callable[[], None]:
    driver: Any = connection.connection.dbapi_connection
    # a database in memory has one connection, and what its owner has not committed would be rolled back at the end
    if driver.in_transaction and getattr(driver, "autocommit", True) is not False:
        raise ConnectorError(
            f"Cannot read {masked_url(connection.engine.url)}: its only connection is in a transaction, which reading "
            "would end. Commit or roll it back first."
        )
    stack = ExitStack()
    stack.enter_context(restrict(driver, authorize_reads))
    return stack.close


def _begin_postgresql(connection: Connection, timeout: float | None) -> Any:  # noqa: ANN401  a callable, or None
    # set the level, because an engine in autocommit mode has no transactions, and so no server-side cursors
    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    connection.exec_driver_sql("SET LOCAL standard_conforming_strings = on")  # as statements are checked and written
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


def check_file(engine: Engine) -> None:
    """Check that a database file exists, because connecting would create it."""
    path = engine.url.database
    if engine.dialect.name not in _FILE_BACKENDS or not path or path == ":memory:" or ":" in path[2:]:
        return
    if not Path(path).is_file():
        raise ConnectorError(f"Cannot read {masked_url(engine.url)}: there is no such file. Check the path.")


def masked_url(url: URL) -> str:
    """Return a database URL without its password and the values of options that may be secrets."""
    options = {key: value if key.lower() in _PLAIN_OPTIONS else "***" for key, value in url.query.items()}
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
    for secret in sorted(_secrets(engine.url), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(url: URL) -> set[str]:
    """Return the texts of a URL that no message may contain: the password, and values of options and their parts."""
    secrets: set[str] = set()
    for key, value in url.query.items():
        if key.lower() not in _PLAIN_OPTIONS:
            for text in (value,) if isinstance(value, str) else value:
                secrets |= {text, *re.split(r"[\s=,;]+", text)}
    secrets = {secret for secret in secrets if len(secret) >= _MIN_SECRET}
    return secrets | ({str(url.password)} if url.password else set())
