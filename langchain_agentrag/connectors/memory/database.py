"""Databases that hold memory: engines, identity, errors, and the base class of backends that read a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.memory.backend import Backend
from langchain_agentrag.connectors.sql.engine import error_message, masked_url
from langchain_agentrag.connectors.sql.sources import IN_MEMORY, synchronous_url
from langchain_agentrag.errors import ConnectorError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Select
    from sqlalchemy.exc import DBAPIError

_CONFLICT_CODES: Final = frozenset({"40001", "40P01", 1205, 1213})  # deadlocks of PostgreSQL and MariaDB


def open_memory_engine(source: Any, *, pooled: bool = False) -> Engine:  # noqa: ANN401  (see Args)
    """Return a synchronous engine for a database that holds memory.

    Other than `sql.sources.open_engine`, which opens the databases of `DatabaseConnector` for reading only, this
    one opens databases that are also written to. A missing driver is a `ConnectorError` (install one) and not a
    `UsageError` (name another in the URL).

    Args:
        source: A URL, an engine, or an asynchronous engine, of which only the URL is used.
        pooled: Whether connections stay open between two uses; the caller then disposes of the engine.

    Raises:
        MissingExtraError: SQLAlchemy is not installed.
        UsageError: the URL cannot be parsed.
        ConnectorError: no driver for it is installed.
    """
    try:
        from sqlalchemy import create_engine, make_url
        from sqlalchemy.engine import URL, Engine
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError
        from sqlalchemy.pool import NullPool
    except ImportError as error:
        raise MissingExtraError("Memory in a database", "memory") from error
    if isinstance(source, Engine):
        return source
    raw_url: Any = source if isinstance(source, str | URL) else getattr(source, "url", None)
    try:
        url = synchronous_url(make_url(raw_url))
        use_pool = pooled or url.database in IN_MEMORY
        return create_engine(url, poolclass=None if use_pool else NullPool)
    except ArgumentError as error:
        raise UsageError(
            f"Cannot read a database URL from a {type(source).__name__}: pass one like 'sqlite:///memory.db' or "
            "'postgresql://user:password@host/name', or a SQLAlchemy engine."
        ) from error
    except (NoSuchModuleError, ImportError) as error:
        raise ConnectorError(
            f"Cannot open {masked_url(make_url(raw_url))}: its driver is not installed ({error}). "
            "Install it, for example with: pip install 'psycopg[binary]' or pip install pymysql"
        ) from error


def connection_target(connection: Any) -> object:  # noqa: ANN401  (of psycopg or sqlite3, or a pool)
    """Return what identifies the database of an open connection; a false value for one in memory or unknown."""
    if (info := getattr(connection, "info", None)) is not None:  # psycopg
        return (info.host, info.port, info.dbname)
    if conninfo := getattr(connection, "conninfo", None):  # a pool of psycopg
        return conninfo
    try:
        return [row[2] for row in connection.execute("PRAGMA database_list") if row[2]]
    except Exception:  # noqa: BLE001  any other object: its database is unknown
        return None


@contextmanager
def database_errors(engine: Engine, action: str) -> Iterator[None]:
    """Convert errors of SQLAlchemy to ConnectorError; `action` is a verb phrase, as in "read the table 'x'"."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise ConnectorError(
            f"Cannot {action} of {masked_url(engine.url)}: {error_message(error, engine)}. Check that the database "
            "runs, and that its user has the permission."
        ) from error


class TableBackend(Backend):
    """Backend of one table of a database.

    Args:
        engine: The database.
        table: Name of the table, with its schema and a dot where it is not the default one.
    """

    def __init__(self, engine: Engine, table: str) -> None:
        self._engine, self._table = engine, table

    def __repr__(self) -> str:
        return f"{self._table!r} of {masked_url(self._engine.url)}"

    @property
    def place(self) -> str:
        """Name of the table and digest of the database."""
        return f"{self._table}:{database_digest(self._engine)}"

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """Open a connection; errors of the database become ConnectorError."""
        errors = database_errors(self._engine, f"read the table {self._table!r}")
        with errors, self._engine.connect() as connection:
            yield connection

    def _select(self, columns: Iterable[str], order: Iterable[str]) -> Select[Any]:
        """Return the query of columns of the table."""
        from sqlalchemy import column, select, table

        schema, _, name = self._table.rpartition(".")
        source = table(name, *map(column, columns), schema=schema or None)
        return select(source).order_by(*(source.c[name] for name in order))


def check_sqlite_file(engine: Engine) -> None:
    """Check that the file of a SQLite database exists, because connecting would create an empty one.

    Raises:
        ConnectorError: there is no such file.
    """
    name = engine.url.database
    if engine.dialect.name != "sqlite" or name in IN_MEMORY or str(name).startswith("file:"):
        return
    if not Path(str(name)).exists():
        raise ConnectorError(
            f"Cannot read {masked_url(engine.url)}: there is no such file. Check the path; a relative one starts at "
            "the working directory, and an absolute one has four slashes: 'sqlite:////var/memory.db'."
        )


def is_write_conflict(error: DBAPIError) -> bool:
    """Return whether a transaction failed because another one wrote the same rows, and can be retried."""
    from sqlalchemy.exc import IntegrityError

    code = getattr(error.orig, "sqlstate", None) or next(iter(getattr(error.orig, "args", ())), None)
    return isinstance(error, IntegrityError) or code in _CONFLICT_CODES


def database_digest(engine: Engine) -> str:
    """Return a digest of the database's URL without user, password and driver, equal in every process."""
    url = engine.url
    socket = url.query.get("host") or url.query.get("unix_socket")
    place = [url.get_backend_name(), url.host, url.port, url.database, socket]
    if url.get_backend_name() == "sqlite" and url.database not in IN_MEMORY:
        place[3] = str(Path(str(url.database).removeprefix("file:").partition("?")[0]).absolute())
    return hashlib.sha256(repr(place).encode("utf-8", "surrogatepass")).hexdigest()[:8]
