"""Queries of SQLite and DuckDB files in a process of their own, which is killed when the time is over.

Neither database can be interrupted within one long step, such as making a text of a gigabyte, and only a process can
have a limit of memory. A query takes about .1 s longer this way (DuckDB .3 s).
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final

from langchain_agentrag.connectors.sql.results import QueryLimits, QueryResult

_MEMORY_BYTES: Final = {"sqlite": 2**29, "duckdb": 3 * 2**30}
"""Address space of the process; DuckDB reserves much that it does not use."""
_START_SECONDS: Final = 5.0
"""Time for the process to start, which is not part of the query's."""


class QueryProcessError(Exception):
    """The process ended with an error.

    Attributes:
        kind: "timeout", "memory", "refused" by the database, or "locked" by another connection.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class FileQuery:
    """A checked query of a database file.

    Attributes:
        backend: "sqlite" or "duckdb".
        database: Path of the file.
        is_uri: Whether the path is a URI (SQLite).
        sql: The statement.
        tables: Allowed tables, None for all (SQLite).
        functions: Allowed functions (SQLite).
        folders: Folders whose files may be read (DuckDB).
        limits: Limits of time and size.
    """

    backend: str
    database: str
    is_uri: bool
    sql: str
    tables: frozenset[str] | None
    functions: frozenset[str]
    folders: tuple[str, ...]
    limits: QueryLimits


def run_in_process(query: FileQuery) -> QueryResult:
    """Run a query in a new process and return its result.

    Raises:
        QueryProcessError: the query took too long or too much memory, or the database refused it.
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(  # noqa: S603  our own module
            [sys.executable, "-m", __name__],
            input=pickle.dumps(query),
            capture_output=True,
            timeout=_START_SECONDS + query.limits.timeout,
            env={**os.environ, "PYTHONPATH": paths},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise QueryProcessError("timeout", "") from None
    try:
        kind, *values = pickle.loads(done.stdout)  # noqa: S301  written by this module
    except (pickle.UnpicklingError, EOFError, ValueError):
        kind = "timeout" if done.returncode == -getattr(signal, "SIGALRM", 0) else "memory"
        raise QueryProcessError(kind, f"the process ended with code {done.returncode}") from None
    if kind != "result":
        raise QueryProcessError(kind, str(values[0]))
    return QueryResult(*values)


def _run(query: FileQuery) -> QueryResult:
    return _query_sqlite(query) if query.backend == "sqlite" else _query_duckdb(query)


def _query_sqlite(query: FileQuery) -> QueryResult:
    import sqlite3

    from langchain_agentrag.connectors.sql.sqlite_access import add_regexp, select_from_sqlite

    with closing(sqlite3.connect(query.database, uri=query.is_uri, timeout=query.limits.timeout)) as connection:
        add_regexp(connection)
        return select_from_sqlite(connection, query.sql, query.tables, query.functions, query.limits)


def _query_duckdb(query: FileQuery) -> QueryResult:
    import duckdb

    from langchain_agentrag.connectors.sql.duckdb_access import select_from_duckdb

    try:
        connection = duckdb.connect(query.database, read_only=True, config={"memory_limit": "1GB"})
    except duckdb.IOException as error:
        raise QueryProcessError("locked", str(error)) from None
    with closing(connection):
        return select_from_duckdb(connection, query.sql, query.folders, query.limits)


def _limit_resources(query: FileQuery) -> None:
    """End this process when the time is over, whatever it does, and limit its memory; on Windows the parent does it."""
    with suppress(ImportError, AttributeError, ValueError, OSError):
        import resource

        memory = _MEMORY_BYTES[query.backend]
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, query.limits.timeout)


def _main() -> None:
    query: FileQuery = pickle.load(sys.stdin.buffer)  # noqa: S301  written by `run_in_process`
    _limit_resources(query)
    try:
        result = _run(query)
        answer: tuple[object, ...] = ("result", result.columns, result.rows, result.more, result.truncated)
    except QueryProcessError as error:
        answer = (error.kind, str(error))
    except MemoryError:
        answer = ("memory", "")
    except TimeoutError:
        answer = ("timeout", "")
    except Exception as error:  # noqa: BLE001  whatever a driver raises; the parent raises it again as one of ours
        answer = ("refused", str(error))
    sys.stdout.buffer.write(pickle.dumps(answer))
    sys.stdout.buffer.flush()
    os._exit(0)  # without waiting for what a library still does


if __name__ == "__main__":
    _main()
