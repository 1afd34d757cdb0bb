"""ReadOnlyDatabase: SQL queries for agents, a single SELECT each, bounded in rows and time.

Three safeguards: a parser admits only a single SELECT, the transaction is read-only where the database supports that,
and it is always rolled back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from langchain_agentrag.connectors.sql.engine import error_message, masked_url, open_engine, read_only, sqlglot_dialect
from langchain_agentrag.connectors.sql.reflect import describe, table_names
from langchain_agentrag.errors import ConnectorError, InvalidQueryError, MissingExtraError

_FORBIDDEN_FUNCTIONS = frozenset({
    "pg_sleep", "pg_read_file", "pg_read_binary_file", "pg_ls_dir", "pg_terminate_backend",
    "pg_cancel_backend", "lo_import", "lo_export", "dblink", "dblink_exec", "set_config", "nextval",
    "setval", "load_extension", "readfile", "writefile", "load_file", "sleep", "benchmark", "sys_exec",
    "sys_eval", "xp_cmdshell", "openrowset", "opendatasource",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result of a query.

    Attributes:
        columns: Names of the columns.
        rows: At most the limit, as plain values.
        more: Whether there are more rows than the limit.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


class ReadOnlyDatabase:
    """A database that can be queried and not changed.

    Args:
        source: A SQLAlchemy `Engine`, an object with an `engine` attribute (a connector), or a database URL.
        tables: Tables that may be queried, with their schema where they have one; None for all.
        max_rows: Largest number of rows of a result.
        timeout: Seconds a query may take.

    Attributes:
        max_rows: Largest number of rows of a result.
    """

    def __init__(
        self,
        source: Any,  # noqa: ANN401  (see Args)
        *,
        tables: Sequence[str] | None = None,
        max_rows: int = 50,
        timeout: float = 10.0,
    ) -> None:
        self._engine = open_engine(source)
        self._tables = None if tables is None else {table.casefold() for table in tables}
        self.max_rows, self._timeout = max_rows, timeout

    @property
    def dialect(self) -> str:
        """Name of the SQL dialect: "sqlite", "postgresql", "mysql" …."""
        return self._engine.dialect.name

    def schema(self, *, most: int = 4_000) -> str:
        """Return the tables with their columns and types, one per line, in at most about `most` characters.

        Raises:
            ConnectorError: the database cannot be reached.
        """
        from sqlalchemy import exc

        try:
            with self._engine.connect() as connection:
                names = sorted(name for name in table_names(connection, None) if self._is_allowed(name))
                tables = [describe(connection, name, None) for name in names]
            lines = [
                f"{table.name}({', '.join(f'{column.name} {column.type}' for column in table.columns)})"
                for table in tables
            ]
        except exc.SQLAlchemyError as error:
            raise ConnectorError(f"Cannot read the schema of {self._describe(error)}.") from error
        text = "\n".join(lines)
        if len(text) <= most:
            return text
        return f"{text[:most].rsplit(chr(10), 1)[0]}\n… {len(lines)} tables in all"

    def run(self, sql: str) -> QueryResult:
        """Run one SELECT and return its rows.

        Raises:
            InvalidQueryError: it is not a single SELECT, or the database refuses it; the message says why.
            ConnectorError: the database cannot be reached, or the timeout has passed.
        """
        from sqlalchemy import exc

        checked = self._checked(sql)
        started = time.monotonic()
        try:
            with read_only(self._engine, self._timeout) as connection:
                streamed = connection.execution_options(no_parameters=True, stream_results=True)
                with closing(streamed.exec_driver_sql(checked)) as result:
                    fetched = result.fetchmany(self.max_rows + 1)
                    rows = tuple(tuple(row) for row in fetched[: self.max_rows])
                    return QueryResult(tuple(result.keys()), rows, len(fetched) > self.max_rows)
        except exc.SQLAlchemyError as error:
            if time.monotonic() - started >= self._timeout:
                raise ConnectorError(
                    f"The query took longer than {self._timeout:g} s and was stopped: ask for less."
                ) from error
            if isinstance(error, exc.OperationalError) and getattr(error, "connection_invalidated", False):
                raise ConnectorError(f"Cannot reach {self._describe(error)}.") from error
            raise InvalidQueryError(f"The database refused the query: {error_message(error, self._engine)}.") from error

    def _checked(self, sql: str) -> str:
        """Return the statement as generated from its syntax tree, so that exactly the checked statement runs."""
        try:
            import sqlglot
            from sqlglot import exp
        except ImportError as error:
            raise MissingExtraError("SQL questions", "sql") from error

        dialect = sqlglot_dialect(self.dialect)
        try:
            statements = [tree for tree in sqlglot.parse(sql, read=dialect) if tree is not None]
        except sqlglot.errors.SqlglotError as error:
            raise InvalidQueryError(f"This is no SQL that can be parsed: {str(error).splitlines()[0]}.") from error
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            raise InvalidQueryError("Only a single SELECT can be asked here: nothing was run.")
        tree = statements[0]
        writes = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.Lock, exp.Set, exp.Pragma, exp.Attach)
        for node in tree.walk():
            if isinstance(node, writes) and not isinstance(node, exp.Query):
                raise InvalidQueryError(f"A SELECT with {node.key.upper()} in it can change things: nothing was run.")
            if isinstance(node, exp.Func) and _function(node) in _FORBIDDEN_FUNCTIONS:
                raise InvalidQueryError(f"The function {_function(node)}() is not open to questions: nothing was run.")
        ctes = {cte.alias_or_name.casefold() for cte in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            name = ".".join(part for part in (table.db, table.name) if part)
            if table.name.casefold() not in ctes and not self._is_allowed(name):
                raise InvalidQueryError(f"The table {name!r} is not open to questions: nothing was run.")
        return str(tree.sql(dialect=dialect))

    def _is_allowed(self, table: str) -> bool:
        return self._tables is None or table.casefold() in self._tables

    def _describe(self, error: Exception) -> str:
        return f"{masked_url(self._engine.url)}: {error_message(error, self._engine)}"


def _function(node: Any) -> str:  # noqa: ANN401  a sqlglot expression
    return str(node.name if node.key == "anonymous" else node.sql_name()).casefold()
