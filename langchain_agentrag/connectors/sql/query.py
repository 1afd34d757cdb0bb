"""Questions to a database in SQL, for agents: one SELECT, read-only, bounded in rows, width and time.

Three locks: a parser lets nothing but a single SELECT through, the transaction is read-only where the database knows
such a thing, and it is always rolled back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from langchain_agentrag.connectors.sql.engine import (
    open_engine,
    read_only,
    reason,
    shown,
    sqlglot_dialect,
)
from langchain_agentrag.connectors.sql.reflect import describe, table_names
from langchain_agentrag.errors import ConnectorError, InvalidQueryError, MissingExtraError

_FORBIDDEN_FUNCTIONS = frozenset(
    (
        "pg_sleep",
        "pg_read_file",
        "pg_read_binary_file",
        "pg_ls_dir",
        "pg_terminate_backend",
        "pg_cancel_backend",
        "lo_import",
        "lo_export",
        "dblink",
        "dblink_exec",
        "set_config",
        "nextval",
        "setval",
        "load_extension",
        "readfile",
        "writefile",
        "load_file",
        "sleep",
        "benchmark",
        "sys_exec",
        "sys_eval",
        "xp_cmdshell",
        "openrowset",
        "opendatasource",
    )
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Answer of a query.

    Attributes:
        columns: Names of the columns.
        rows: At most the limit, as plain values.
        more: Whether there were more rows than the limit.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


class ReadOnlyDatabase:
    """A database that can be asked and not changed.

    Args:
        source: A SQLAlchemy `Engine`, an object that has one as `engine` (a connector), or a database URL.
        tables: Tables that may be asked, with their schema where they have one; None for all.
        max_rows: Rows of an answer.
        timeout: Seconds a query may take.

    Attributes:
        max_rows: Rows of an answer.
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
        """Tables with their columns and types, one table a line, at most about `most` characters.

        Raises:
            ConnectorError: the database cannot be reached.
        """
        from sqlalchemy import exc

        try:
            with self._engine.connect() as connection:
                names = sorted(name for name in table_names(connection, None) if self._open(name))
                tables = [describe(connection, name, None) for name in names]
            lines = [
                f"{table.name}({', '.join(f'{column.name} {column.type}' for column in table.columns)})"
                for table in tables
            ]
        except exc.SQLAlchemyError as error:
            raise ConnectorError(
                f"Cannot read the schema of {self._shown()}: {self._reason(error)}."
            ) from error
        text = "\n".join(lines)
        return (
            text
            if len(text) <= most
            else f"{text[:most].rsplit(chr(10), 1)[0]}\n… {len(lines)} tables in all"
        )

    def run(self, sql: str) -> Rows:
        """The answer to one SELECT.

        Raises:
            InvalidQueryError: it is no single SELECT, or the database cannot answer it; the message says why.
            ConnectorError: the database cannot be reached, or the time is up.
        """
        from sqlalchemy import exc

        checked = self._checked(sql)
        started = time.monotonic()
        try:
            with read_only(self._engine, self._timeout) as connection:
                streamed = connection.execution_options(no_parameters=True, stream_results=True)
                with closing(streamed.exec_driver_sql(checked)) as result:
                    found = result.fetchmany(self.max_rows + 1)
                    rows = tuple(tuple(row) for row in found[: self.max_rows])
                    return Rows(tuple(result.keys()), rows, len(found) > self.max_rows)
        except exc.SQLAlchemyError as error:
            if time.monotonic() - started >= self._timeout:
                raise ConnectorError(
                    f"The query took longer than {self._timeout:g} s and was stopped: ask for less."
                ) from error
            if isinstance(error, exc.OperationalError) and getattr(error, "connection_invalidated", False):
                raise ConnectorError(f"Cannot reach {self._shown()}: {self._reason(error)}.") from error
            raise InvalidQueryError(f"The database refused the query: {self._reason(error)}.") from error

    def _checked(self, sql: str) -> str:
        """The statement, parsed and written anew, so that what was checked is what runs."""
        try:
            import sqlglot
            from sqlglot import exp
        except ImportError as error:
            raise MissingExtraError("SQL questions", "sql") from error

        dialect = sqlglot_dialect(self.dialect)
        try:
            statements = [
                statement for statement in sqlglot.parse(sql, read=dialect) if statement is not None
            ]
        except sqlglot.errors.SqlglotError as error:
            raise InvalidQueryError(
                f"This is no SQL that can be parsed: {str(error).splitlines()[0]}."
            ) from error
        if len(statements) != 1 or not isinstance(statements[0], exp.Query):
            raise InvalidQueryError("Only a single SELECT can be asked here: nothing was run.")
        tree = statements[0]
        writes = (exp.DML, exp.DDL, exp.Command, exp.Into, exp.Lock, exp.Set, exp.Pragma, exp.Attach)
        for node in tree.walk():
            if isinstance(node, writes) and not isinstance(node, exp.Query):
                raise InvalidQueryError(
                    f"A SELECT with {node.key.upper()} in it can change things: nothing was run."
                )
            if isinstance(node, exp.Func) and _function(node) in _FORBIDDEN_FUNCTIONS:
                raise InvalidQueryError(
                    f"The function {_function(node)}() is not open to questions: nothing was run."
                )
        named = {with_.alias_or_name.casefold() for with_ in tree.find_all(exp.CTE)}
        for table in tree.find_all(exp.Table):
            name = ".".join(part for part in (table.db, table.name) if part)
            if table.name.casefold() not in named and not self._open(name):
                raise InvalidQueryError(f"The table {name!r} is not open to questions: nothing was run.")
        return str(tree.sql(dialect=dialect))

    def _open(self, table: str) -> bool:
        return self._tables is None or table.casefold() in self._tables

    def _shown(self) -> str:
        return shown(self._engine)

    def _reason(self, error: Exception) -> str:
        return reason(error, self._engine)


def _function(node: Any) -> str:  # noqa: ANN401  a sqlglot expression
    return str(node.name if node.key == "anonymous" else node.sql_name()).casefold()
