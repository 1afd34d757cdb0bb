"""ReadOnlyDatabase: SQL queries for agents, a single SELECT each, with limits of rows, time and size."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.sql.duckdb_access import select_from_duckdb
from langchain_agentrag.connectors.sql.engine import check_file, error_message, masked_url, read_only
from langchain_agentrag.connectors.sql.query_process import FileQuery, QueryProcessError, run_in_process
from langchain_agentrag.connectors.sql.reflect import describe, table_names
from langchain_agentrag.connectors.sql.results import QueryLimits, QueryRefusedError, QueryResult
from langchain_agentrag.connectors.sql.server_access import select_from_server
from langchain_agentrag.connectors.sql.sources import open_engine, usable_tables
from langchain_agentrag.connectors.sql.sqlite_access import select_from_sqlite
from langchain_agentrag.connectors.sql.statement import CheckedSelect, SelectChecker
from langchain_agentrag.errors import AgentRagError, ConnectorError, InvalidQueryError, UsageError
from langchain_agentrag.timeouts import run_with_timeout

if TYPE_CHECKING:
    from sqlalchemy import Connection

_GRACE_SECONDS: Final = 1.0
"""Time beyond the timeout in which a server may report that it has stopped a query."""


class ReadOnlyDatabase:
    """A database that can be queried and not changed, for SQL that a model writes.

    A statement is parsed, and only a single SELECT passes that uses allowed tables, listed functions
    (`allowed_sql.toml`) and syntax that computes values. What runs is generated from the syntax tree. The database adds
    limits of its own: a read-only transaction, which is always rolled back (PostgreSQL, MySQL, MariaDB); an authorizer
    that is asked for every table, column and function (SQLite); no files, network, extensions or settings (DuckDB).

    A query ends at the timeout. SQLite and DuckDB files are queried in a process of their own, which is killed then and
    has a limit of memory. In this process run only queries of databases in memory, of SQLite with `functions`, and of a
    DuckDB file that this process has open for writing; of these a query that cannot be interrupted goes on in the
    background. The settings that close a DuckDB database then hold for all connections of this process to it.

    Args:
        source: A database, as for `DatabaseConnector`, or a connector that has one.
        tables: Tables that may be queried, as "name" in the default schema or "schema.name"; None for all but the
            database's own system tables, or for those that the `SQLDatabase` of LangChain or LlamaIndex lets a model
            use. Names are compared as the database compares them: exactly in PostgreSQL and MySQL, where PostgreSQL
            stores unquoted names in lower case. A view may read what it is made of.
        max_rows: Largest number of rows of a result.
        timeout: Seconds a query may take.
        max_cell_bytes: Largest size of a value in bytes; longer ones are cut.
        max_result_bytes: Largest size of a result in bytes; the rows after that are omitted.
        functions: Functions allowed besides the listed ones, "schema.name" outside the default schema; for PostgreSQL
            also types that are not built in.
        folders: Folders whose files DuckDB may read, such as with read_csv('…').

    Raises:
        UsageError: an argument is invalid.
        MissingExtraError: the extra `sql` is not installed.
    """

    def __init__(
        self,
        source: Any,  # noqa: ANN401  (see Args)
        *,
        tables: Sequence[str] | None = None,
        max_rows: int = 50,
        timeout: float = 10.0,
        max_cell_bytes: int = 64_000,
        max_result_bytes: int = 1_000_000,
        functions: Sequence[str] = (),
        folders: Sequence[str | Path] = (),
    ) -> None:
        for name, value in (("tables", tables), ("functions", functions), ("folders", folders)):
            if isinstance(value, str) or not all(isinstance(item, str | Path) for item in value or ()):
                raise UsageError(f"{name} must be a list of names, got {value!r}: write {name}=[…].")
        self._engine = open_engine(source)
        tables = usable_tables(source) if tables is None else tables
        self._limits = QueryLimits(max_rows, timeout, max_cell_bytes, max_result_bytes)
        if folders and self.dialect != "duckdb":
            raise UsageError(f"folders=… is for DuckDB; {self.dialect} has no functions that may read files: omit it.")
        self._folders = tuple(str(Path(folder).resolve()) for folder in folders)
        self._has_own_functions = bool(functions)
        self._checker = SelectChecker(
            self.dialect, tables=tables, functions=functions, file_functions=bool(self._folders)
        )
        self._default_schema: str | None = {"sqlite": "main", "duckdb": "main"}.get(self.dialect)

    def __repr__(self) -> str:
        return f"ReadOnlyDatabase({masked_url(self._engine.url)!r})"

    @property
    def dialect(self) -> str:
        """Name of the SQL dialect: "sqlite", "postgresql", "mysql" …."""
        return self._engine.dialect.name

    @property
    def max_rows(self) -> int:
        """Largest number of rows of a result."""
        return self._limits.max_rows

    def schema(self, *, most: int = 4_000) -> str:
        """Return the tables with their columns and types, one per line, in at most about `most` characters.

        Raises:
            ConnectorError: the database cannot be reached.
        """
        try:
            with self._engine.connect() as connection:
                lines = [
                    f"{table.full_name}({', '.join(f'{column.name} {column.type}' for column in table.columns)})"
                    for table in (describe(connection, name, schema) for schema, name in self._tables(connection))
                ]
        except Exception as error:  # drivers raise their own errors, for wrong options even TypeError
            raise ConnectorError(f"Cannot read the schema of {self._describe(error)}.") from error
        text = "\n".join(lines)
        if len(text) <= most:
            return text
        return f"{text[:most].rsplit(chr(10), 1)[0]}\n… {len(lines)} tables in all"

    def _tables(self, connection: Connection) -> list[tuple[str | None, str]]:
        """Return schema (None for the default one) and name of the tables that may be queried."""
        default = self._schema(connection)
        named = {name.rpartition(".")[0] for name in self._checker.tables or ()} - {"", default}
        return [
            (schema, name)
            for schema in (None, *sorted(named))
            for name in sorted(table_names(connection, schema))
            if self._checker.is_allowed(name, schema, default)
        ]

    def _schema(self, connection: Connection | None = None) -> str | None:
        """Return the schema of names written without one."""
        if self._default_schema is None:
            if connection is None:  # the dialect reads it at the first connection
                connect = self._engine.connect
                run_with_timeout(self._limits.timeout + _GRACE_SECONDS, lambda: connect().close(), "agentrag-sql")
            self._default_schema = self._engine.dialect.default_schema_name
        return self._default_schema

    def run(self, sql: str) -> QueryResult:
        """Run one SELECT and return its rows.

        Raises:
            InvalidQueryError: it is not a single SELECT, it uses what is not allowed, or the database refuses it; the
                message says why.
            ConnectorError: the database cannot be reached, or the timeout has passed.
        """
        try:
            checked = self._check(sql)
            return self._run(checked)
        except AgentRagError:
            raise
        except MemoryError as error:
            raise InvalidQueryError(
                "The query needs more memory than is allowed: ask for less, or for shorter values."
            ) from error
        except TimeoutError as error:
            raise ConnectorError(
                f"The query took longer than {self._limits.timeout:g} s and was stopped: ask for less."
            ) from error
        except Exception as error:
            from sqlalchemy import exc

            refused = isinstance(error, QueryRefusedError | QueryProcessError) or (
                # without a statement it failed to connect
                isinstance(error, exc.DBAPIError) and error.statement is not None and not error.connection_invalidated
            )
            if not refused:
                raise ConnectorError(f"Cannot reach {self._describe(error)}.") from error
            raise InvalidQueryError(f"The database refused the query: {error_message(error, self._engine)}.") from error

    def _check(self, sql: str) -> CheckedSelect:
        url = self._engine.url
        catalog = Path(url.database or "memory").stem if self.dialect == "duckdb" else url.database
        needs_schema = self._checker.tables is not None
        schema = self._schema() if needs_schema else self._default_schema
        return self._checker.check(sql, max_rows=self.max_rows + 1, default_schema=schema, catalog=catalog)

    def _run(self, checked: CheckedSelect) -> QueryResult:
        if self.dialect == "sqlite":
            return self._run_sqlite(checked.sql)
        if self.dialect == "duckdb":
            return self._run_duckdb(checked.sql)
        limit = self._limits.timeout + _GRACE_SECONDS
        return run_with_timeout(limit, lambda: self._run_on_server(checked), "agentrag-sql")

    def _run_sqlite(self, sql: str) -> QueryResult:
        checker = self._checker
        arguments, options = self._engine.dialect.create_connect_args(self._engine.url)
        database = str(arguments[0]) if arguments else ":memory:"
        in_memory = database in {"", ":memory:"} or "mode=memory" in database or database.startswith("file::memory:")
        if self._engine.dialect.driver == "pysqlite" and not in_memory and not self._has_own_functions:
            check_file(self._engine)
            is_uri = bool(options.get("uri"))
            return self._run_in_process(
                FileQuery("sqlite", database, is_uri, sql, checker.tables, checker.functions, (), self._limits)
            )
        with self._engine.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            # a pattern for REGEXP can take for ever, and nothing can interrupt it here
            functions = checker.functions - {"regexp"}
            return select_from_sqlite(driver, sql, checker.tables, functions, self._limits)

    def _run_duckdb(self, sql: str) -> QueryResult:
        database = self._engine.url.database or ":memory:"
        if database != ":memory:":
            check_file(self._engine)
            query = FileQuery("duckdb", database, False, sql, None, frozenset(), self._folders, self._limits)  # noqa: FBT003
            with suppress(_LockedError):
                return self._run_in_process(query)
        with self._engine.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            own = driver.duplicate()  # usable in another thread

        def select() -> QueryResult:
            with closing(own):
                return select_from_duckdb(own, sql, self._folders, self._limits)

        timer = threading.Timer(self._limits.timeout, own.interrupt)
        timer.start()
        try:
            return run_with_timeout(self._limits.timeout + _GRACE_SECONDS, select, "agentrag-sql")
        finally:
            timer.cancel()

    def _run_in_process(self, query: FileQuery) -> QueryResult:
        try:
            return run_in_process(query)
        except QueryProcessError as error:
            if error.kind == "timeout":
                raise TimeoutError from error
            if error.kind == "memory":
                raise MemoryError from error
            if error.kind == "locked":
                raise _LockedError from error
            raise

    def _run_on_server(self, checked: CheckedSelect) -> QueryResult:
        with read_only(self._engine, self._limits.timeout) as connection:
            return select_from_server(connection, checked, self._checker.functions, self._limits)

    def _describe(self, error: Exception) -> str:
        return f"{masked_url(self._engine.url)}: {error_message(error, self._engine)}"


class _LockedError(Exception):
    """Another connection has a DuckDB file open for writing."""
