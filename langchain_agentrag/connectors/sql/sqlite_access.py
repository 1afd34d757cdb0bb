"""What a query may do in SQLite: reads of allowed tables and calls of allowed functions, asked for each of them."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

from langchain_agentrag.connectors.sql.results import QueryLimits, QueryRefusedError, QueryResult, read_result

MAX_VALUE_BYTES: Final = 32 * 2**20
"""Largest text or blob that a query may compute or read, in bytes; SQLite cannot be interrupted while it makes one."""

_PROGRESS_STEPS: Final = 20_000  # SQLite instructions between two checks of the timeout
_READ_ACTIONS: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
_READ_PRAGMAS: Final = frozenset({
    "table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info", "index_xinfo",
    "data_version",
})  # fmt: skip
"""PRAGMAs that describe tables, and `data_version`, which full-text tables need."""
_SCHEMA_TABLES: Final = frozenset(("sqlite_master", "sqlite_temp_master"))
_OPERATORS: Final = frozenset(("->", "->>", "current_date", "current_time", "current_timestamp"))
"""Functions behind operators and keywords."""

Authorizer = Callable[..., int]


def authorize_reads(action: int, first: str | None, *_: object) -> int:
    """Authorizer that allows reads of everything in the open file, and no other file."""
    read_pragma = action == sqlite3.SQLITE_PRAGMA and first in _READ_PRAGMAS
    # SQLite reports the opening of a virtual table as this update; `query_only` prevents real ones
    opens_virtual = action == sqlite3.SQLITE_UPDATE and first in _SCHEMA_TABLES
    allowed = read_pragma or opens_virtual or action in _READ_ACTIONS
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def authorizer(
    connection: sqlite3.Connection, tables: Collection[str] | None, functions: Collection[str]
) -> Authorizer:
    """Return an authorizer that allows only these tables and functions.

    A view may read what it is made of: its statement is the owner's. `SelectChecker` renames common table expressions,
    so that none has the name of a view.

    Args:
        connection: The database, before any authorizer is set.
        tables: Allowed tables in lower case, "name" or "schema.name"; None for all.
        functions: Allowed functions in lower case.
    """
    relations = connection.execute("PRAGMA table_list").fetchall()  # schema, name, type, …
    allowed = {
        (schema, name.casefold())
        for schema, name, *_ in relations
        if tables is None or f"{schema}.{name}".casefold() in tables or (schema == "main" and name.casefold() in tables)
    }
    names = {name.casefold() for _, name, *_ in relations}
    views = {name for _, name, kind, *_ in relations if kind == "view"}
    allows_views = any((schema, name.casefold()) in allowed for schema, name, kind, *_ in relations if kind == "view")
    virtual = [(schema, name) for schema, name, kind, *_ in relations if kind == "virtual"]
    allowed |= {  # tables in which an allowed full-text or R-tree table stores its data
        (schema, name.casefold())
        for schema, name, kind, *_ in relations
        if kind == "shadow"
        and any(s == schema and name.startswith(f"{n}_") and (s, n.casefold()) in allowed for s, n in virtual)
    }

    def may_read(table: str, column: str, schema: str | None, source: str | None) -> bool:
        if source in views or (schema or "main", table.casefold()) in allowed:
            return True
        if table in _SCHEMA_TABLES:
            return tables is None or column == "ROWID"  # SQLite reads it when it opens a virtual table
        if column == "":  # rows are counted: of a common table expression, or of a view's table, without its name
            return allows_views or table.casefold() not in names
        return table.casefold() in functions

    def authorize(action: int, first: str | None, second: str | None, schema: str | None, source: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            allowed = may_read(first or "", second or "", schema, source)
        elif action == sqlite3.SQLITE_FUNCTION:
            name = (second or "").casefold()
            allowed = name in functions or name in _OPERATORS or source in views
        elif action == sqlite3.SQLITE_PRAGMA:
            allowed = first == "data_version"
        else:
            return authorize_reads(action, first)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    return authorize


@contextmanager
def restrict(
    connection: sqlite3.Connection, authorize: Authorizer, limits: QueryLimits | None = None
) -> Iterator[None]:
    """Allow a connection what an authorizer allows, within limits of time and size; undo this at the end."""
    text_factory = connection.text_factory
    # A text that is not UTF-8 must fail its own row only, which is rejected later because of the surrogates.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    query_only = connection.execute("PRAGMA query_only").fetchone()[0]
    connection.execute("PRAGMA query_only = 1")
    former = {}
    if limits is not None:
        deadline = time.monotonic() + limits.timeout
        connection.set_progress_handler(lambda: time.monotonic() > deadline, _PROGRESS_STEPS)
        former[sqlite3.SQLITE_LIMIT_LENGTH] = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.set_authorizer(authorize)
    try:
        yield
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
        for category, value in former.items():
            connection.setlimit(category, value)
        connection.execute(f"PRAGMA query_only = {int(query_only)}")
        connection.text_factory = text_factory


def select_from_sqlite(
    connection: sqlite3.Connection,
    sql: str,
    tables: Collection[str] | None,
    functions: Collection[str],
    limits: QueryLimits,
) -> QueryResult:
    """Run a checked SELECT that may use these tables and functions only.

    Raises:
        TimeoutError: the time is over.
        QueryRefusedError: SQLite refuses the statement.
    """
    started = time.monotonic()
    with restrict(connection, authorizer(connection, tables, functions), limits):
        try:
            cursor = connection.execute(sql)
            return read_result(cursor.fetchmany, [column[0] for column in cursor.description], limits)
        except sqlite3.OperationalError as error:
            if time.monotonic() - started >= limits.timeout:
                raise TimeoutError from error
            raise QueryRefusedError(str(error)) from error
        except sqlite3.DataError as error:
            raise QueryRefusedError(f"{error}: at most {MAX_VALUE_BYTES:,} bytes are allowed") from error
        except sqlite3.Error as error:
            raise QueryRefusedError(str(error)) from error


def add_regexp(connection: sqlite3.Connection) -> None:
    """Add the function behind the operator REGEXP, as SQLAlchemy does."""

    def regexp(pattern: str | None, text: str | None) -> bool | None:
        return None if pattern is None or text is None else re.search(pattern, str(text)) is not None

    connection.create_function("regexp", 2, regexp, deterministic=True)
