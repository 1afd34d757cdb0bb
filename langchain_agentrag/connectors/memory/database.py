"""Opening a database for memory: a URL of any make, or an engine, as one synchronous SQLAlchemy engine."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.sql.engine import reason, shown, shown_url
from langchain_agentrag.errors import ConnectorError, MissingExtraError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine
    from sqlalchemy.exc import DBAPIError

_SYNCHRONOUS: Final = {
    "sqlite+aiosqlite": "sqlite",
    "postgresql+asyncpg": "postgresql+psycopg",
    "postgresql+psycopg_async": "postgresql+psycopg",
    "mysql+aiomysql": "mysql+pymysql",
    "mysql+asyncmy": "mysql+pymysql",
    "mariadb+aiomysql": "mariadb+pymysql",
    "mariadb+asyncmy": "mariadb+pymysql",
}
"""Drivers that need an event loop, and what reads the same database without one."""
_DRIVERS: Final = {
    "postgresql": ("psycopg", "psycopg2"),
    "postgres": ("psycopg", "psycopg2"),
    "mysql": ("pymysql", "MySQLdb"),
    "mariadb": ("pymysql", "MySQLdb"),
}
"""For a URL without a driver: the first of these that is installed."""
_CONFLICTS: Final = frozenset({"40001", "40P01", 1205, 1213})  # deadlocks of PostgreSQL and MariaDB
_IN_MEMORY: Final = (None, "", ":memory:")  # names of a SQLite database that lives as long as its connection
_DRIVER_NAMES: Final = {"MySQLdb": "mysqldb"}


def open_engine(source: Any, *, keep: bool = False) -> Engine:  # noqa: ANN401  (a URL or an engine of either kind)
    """A synchronous engine for a URL, an engine, or an asynchronous engine (through its URL).

    Args:
        source: What was given.
        keep: Whether connections stay open between two uses, and somebody disposes of the engine.

    Raises:
        MissingExtraError: SQLAlchemy is not installed.
        UsageError: the URL cannot be read.
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
    given = source if isinstance(source, str | URL) else getattr(source, "url", None)
    try:
        url = _reachable(make_url(given))  # type: ignore[arg-type]
        fleeting = not keep and url.database not in _IN_MEMORY
        return create_engine(url, poolclass=NullPool if fleeting else None)
    except ArgumentError as error:
        raise UsageError(
            f"Cannot read a database URL from a {type(source).__name__}: pass one like 'sqlite:///memory.db' or "
            "'postgresql://user:password@host/name', or a SQLAlchemy engine."
        ) from error
    except (NoSuchModuleError, ImportError) as error:
        raise ConnectorError(
            f"Cannot open {shown_url(make_url(given))}: its driver is not installed ({error}). "  # type: ignore[arg-type]
            "Install it, for example with: pip install 'psycopg[binary]' or pip install pymysql"
        ) from error


def connected_to(connection: Any) -> object:  # noqa: ANN401  (of psycopg or sqlite3, or a pool)
    """What tells the database of an open connection apart; None for one in memory, or of another make."""
    if (info := getattr(connection, "info", None)) is not None:  # psycopg
        return (info.host, info.port, info.dbname)
    if pool := getattr(connection, "conninfo", None):
        return pool
    try:
        return [row[2] for row in connection.execute("PRAGMA database_list") if row[2]]
    except Exception:  # noqa: BLE001  whatever it is, it does not say where it leads
        return None


@contextmanager
def reported(engine: Engine, attempt: str) -> Iterator[None]:
    """Errors of the database as ConnectorError.

    Args:
        engine: The database.
        attempt: What is tried, as in "read the table 'x'".
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise ConnectorError(
            f"Cannot {attempt} of {shown(engine)}: {reason(error, engine)}. Check that the database runs, and "
            "that its user may do that."
        ) from error


def check_there(engine: Engine) -> None:
    """Refuse the file of a SQLite database that is not there: connecting would make an empty one.

    Raises:
        ConnectorError: there is no such file.
    """
    name = engine.url.database
    if engine.dialect.name != "sqlite" or name in _IN_MEMORY or str(name).startswith("file:"):
        return
    if not Path(str(name)).exists():
        raise ConnectorError(
            f"Cannot read {shown(engine)}: there is no such file. Check the path; a relative one starts at the "
            "working directory, and an absolute one has four slashes: 'sqlite:////var/memory.db'."
        )


def met_a_writer(error: DBAPIError) -> bool:
    """Whether a transaction failed because another one wrote the same rows, and can be tried again."""
    from sqlalchemy.exc import IntegrityError

    code = getattr(error.orig, "sqlstate", None) or next(iter(getattr(error.orig, "args", ())), None)
    return isinstance(error, IntegrityError) or code in _CONFLICTS


def identity(engine: Engine) -> str:
    """Digest of which database it is: the URL without user, password and driver; equal in every process."""
    url = engine.url
    socket = url.query.get("host") or url.query.get("unix_socket")
    place = [url.get_backend_name(), url.host, url.port, url.database, socket]
    if url.get_backend_name() == "sqlite" and url.database not in _IN_MEMORY:
        place[3] = str(Path(str(url.database).removeprefix("file:").partition("?")[0]).absolute())
    return hashlib.sha256(repr(place).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _reachable(url: URL) -> URL:
    name = _SYNCHRONOUS.get(url.drivername, url.drivername)
    for driver in _DRIVERS.get(name, ()):
        if importlib.util.find_spec(driver) is not None:
            backend = "postgresql" if name == "postgres" else name
            name = f"{backend}+{_DRIVER_NAMES.get(driver, driver)}"
            break
    return url.set(drivername=name)
