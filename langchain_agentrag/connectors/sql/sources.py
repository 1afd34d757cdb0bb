"""Databases as callers hold them: URLs, files, engines, connections, sessions, `SQLDatabase` of the frameworks."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.engine import URL

IN_MEMORY: Final = (None, "", ":memory:")
"""Names of a database of SQLite or DuckDB that lives as long as its connection."""

_SYNCHRONOUS: Final = {
    "sqlite+aiosqlite": "sqlite",
    "postgresql+asyncpg": "postgresql+psycopg",
    "postgresql+psycopg_async": "postgresql+psycopg",
    "mysql+aiomysql": "mysql+pymysql",
    "mysql+asyncmy": "mysql+pymysql",
    "mariadb+aiomysql": "mariadb+pymysql",
    "mariadb+asyncmy": "mariadb+pymysql",
}
"""Drivers that need an event loop → drivers for the same database that do not."""
_DRIVERS: Final = {
    "postgresql": ("psycopg", "psycopg2"),
    "postgres": ("psycopg", "psycopg2"),
    "mysql": ("pymysql", "MySQLdb"),
    "mariadb": ("pymysql", "MySQLdb"),
}
"""For a URL without a driver: the first of these modules that is installed."""
_DRIVER_NAMES: Final = {"MySQLdb": "mysqldb"}
_DRIVER_HINTS: Final = {
    "postgresql": 'postgresql+psycopg://… with pip install "psycopg[binary]"',
    "mysql": "mysql+pymysql://… with pip install pymysql",
    "mariadb": "mariadb+pymysql://… with pip install pymysql",
    "duckdb": "duckdb:///… with pip install duckdb duckdb-engine",
}
_ASYNCPG_OPTIONS: Final = ("prepared_statement_cache_size", "prepared_statement_name_func")  # psycopg has none of these
_FILE_KINDS: Final = (("sqlite", 0, b"SQLite format 3\x00"), ("duckdb", 8, b"DUCK"))
"""Backend of a database file, and the bytes at an offset of it."""
_SUFFIXES: Final = {
    **dict.fromkeys((".db", ".db3", ".sqlite", ".sqlite3", ".s3db", ".sl3"), "sqlite"),
    **dict.fromkeys((".duckdb", ".ddb"), "duckdb"),
}
"""Backend of a file that is empty or not there yet, by the end of its name."""


def open_engine(source: Any) -> Engine:  # noqa: ANN401  (see Args)
    """Return the engine of a database that is only read; nothing is connected yet, and no file is created.

    See `memory.database.open_memory_engine` for databases that are also written to.

    Args:
        source: A database URL; the path of a SQLite or DuckDB file; a SQLAlchemy engine, connection or session; the
            `SQLDatabase` of LangChain or LlamaIndex; an object with an `engine` attribute, such as a connector. A
            connection or session stands for its engine: what it has not committed is not read. Of an asynchronous one
            only the URL is used, with a driver that needs no event loop.

    Raises:
        MissingExtraError: SQLAlchemy is not installed.
        UsageError: the source is not a database, the URL cannot be parsed, or its driver is not installed.
    """
    try:
        from sqlalchemy.engine import URL
    except ImportError as error:
        raise MissingExtraError("SQL databases", "sql") from error

    if (path := database_path(source)) is not None:
        return _create_engine(URL.create(_file_kind(path), database=str(path)))
    if isinstance(source, str | URL):
        return _create_engine(source)
    engine = _engine_of(source)
    if engine is None:
        raise UsageError(f"A {type(source).__name__} is not a database: {_remedy(source)}.")
    return _create_engine(engine.url) if engine.dialect.is_async else engine


def usable_tables(source: Any) -> list[str] | None:  # noqa: ANN401  (see Args)
    """Return the tables that the `SQLDatabase` of a framework lets a model use, with their schema; else None.

    Args:
        source: A database, as for `open_engine`.
    """
    listed = getattr(source, "get_usable_table_names", None)
    if not callable(listed):
        return None
    schema = getattr(source, "_schema", None)  # neither framework has a public name for it
    return sorted(f"{schema}.{name}" if schema else str(name) for name in listed())


def database_path(source: object) -> Path | None:
    """Return the path of a database file: any `Path`, and a text that names one; None for a URL or an object.

    A text that is neither an existing file nor ends like a database file may be a mistyped URL with a password in it,
    which no message may show.
    """
    if isinstance(source, os.PathLike):
        return Path(source).expanduser()
    if not isinstance(source, str) or "://" in source or not source.strip() or source in IN_MEMORY:
        return None
    path = Path(source).expanduser()
    try:
        known = path.is_file() or (path.suffix.lower() in _SUFFIXES and "@" not in source)
    except (OSError, ValueError):  # too long for a path, or with NUL
        return None
    return path if known else None


def synchronous_url(url: URL) -> URL:
    """Return a URL with a driver that needs no event loop; where it names no driver, with an installed one."""
    name = _SYNCHRONOUS.get(url.drivername, url.drivername)
    for driver in _DRIVERS.get(name, ()):
        if importlib.util.find_spec(driver) is not None:
            backend = "postgresql" if name == "postgres" else name
            name = f"{backend}+{_DRIVER_NAMES.get(driver, driver)}"
            break
    if url.drivername == "postgresql+asyncpg":
        options = {"sslmode" if key == "ssl" else key: value for key, value in url.query.items()}
        url = url.set(query={key: value for key, value in options.items() if key not in _ASYNCPG_OPTIONS})
    return url.set(drivername=name)


def is_sqlite_file(path: Path) -> bool:
    """Return whether a path is a file of SQLite, by its first bytes."""
    return path.is_file() and _signature(path) == "sqlite"


def _file_kind(path: Path) -> str:
    """Return the backend of a database file: by its first bytes, and by its name when it is empty or not there.

    Raises:
        UsageError: it is a folder, or a file of another kind.
    """
    if path.is_file() and path.stat().st_size:
        kind = _signature(path)
    else:
        kind = None if path.is_dir() else _SUFFIXES.get(path.suffix.lower(), "sqlite")
    if kind is None:
        what = "a folder" if path.is_dir() else "neither a SQLite nor a DuckDB file"
        raise UsageError(
            f"{str(path)!r} is no database: it is {what}. Pass the path of a database file or a database URL; for "
            "other files use FileSystemConnector."
        )
    return kind


def _signature(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(16)
    return next((kind for kind, at, mark in _FILE_KINDS if head[at : at + len(mark)] == mark), None)


def _engine_of(source: Any) -> Engine | None:  # noqa: ANN401  (see `open_engine`)
    """Return the engine within an object; None when there is none."""
    from sqlalchemy import Engine

    for _ in range(3):  # a session is bound to a connection, which has an engine
        if isinstance(source, Engine):
            return source
        if callable(bind := getattr(source, "get_bind", None)):  # Session, AsyncSession
            source = bind()
        elif hasattr(source, "engine"):  # connections, LlamaIndex's SQLDatabase, connectors
            source = source.engine
        elif hasattr(source, "get_usable_table_names"):  # LangChain's SQLDatabase
            source = getattr(source, "_engine", None)
    return source if isinstance(source, Engine) else None


def _create_engine(source: str | URL) -> Engine:
    from sqlalchemy import create_engine, exc
    from sqlalchemy.engine import make_url
    from sqlalchemy.pool import NullPool

    try:
        given = make_url(source)
        url = synchronous_url(given)
        backend = url.get_backend_name()
        in_memory = url.database in IN_MEMORY
        options: dict[str, Any] = {} if in_memory else {"poolclass": NullPool}  # no connection stays open
        if backend == "sqlite":
            options["connect_args"] = {"check_same_thread": False}  # loaded in worker threads too
        elif backend == "duckdb" and not in_memory:
            options["connect_args"] = {"read_only": True}
        engine = create_engine(url, **options)
    except (ImportError, exc.NoSuchModuleError) as error:
        raise UsageError(
            f"Cannot load the database driver: {error}. Use {_DRIVER_HINTS.get(backend, 'a URL that names one')}."
        ) from error
    except (exc.ArgumentError, ValueError):
        raise UsageError(
            "The database URL cannot be parsed: write dialect+driver://user:password@host/database, "
            "and @, / or : within a password as %40, %2F, %3A; or pass the path of an existing SQLite or DuckDB file."
        ) from None  # the cause contains the URL with the password
    if in_memory and given.drivername == "sqlite+aiosqlite":
        raise UsageError(
            "An asynchronous SQLite database in memory cannot be read: only its own connection sees it. Pass one in a "
            "file, or a synchronous engine."
        )
    return engine


def _remedy(source: object) -> str:
    if hasattr(source, "selectable") or hasattr(source, "compile") or hasattr(source, "__table__"):
        return "pass the engine first, and this as table=… or query=…"
    return "pass a SQLAlchemy engine, a database URL, or the path of a SQLite or DuckDB file"
