"""Questions to a database in SQL, for agents: one SELECT, read-only, bounded in rows, width and time.

Three locks: a parser lets nothing but a single SELECT through, the transaction is read-only where the database knows
such a thing, and it is always rolled back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_agentrag.errors import ConnectorError, InvalidQueryError, MissingExtraError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

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
_PROGRESS_STEPS = 20_000  # SQLite instructions between two looks at the clock


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
        self._engine = _engine(source)
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
        from sqlalchemy import exc, inspect

        try:
            inspector = inspect(self._engine)
            names = [
                name
                for name in [*inspector.get_table_names(), *inspector.get_view_names()]
                if self._open(name)
            ]
            lines = []
            for name in sorted(names):
                columns = (f"{column['name']} {column['type']}" for column in inspector.get_columns(name))
                lines.append(f"{name}({', '.join(columns)})")
        except exc.SQLAlchemyError as error:
            raise ConnectorError(f"Cannot read the schema of {self._shown()}: {_reason(error)}.") from error
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
        from sqlalchemy import exc, text

        checked = self._checked(sql)
        started = time.monotonic()
        try:
            with self._engine.connect() as connection, self._read_only(connection, started):
                result = connection.execute(text(checked.replace(":", r"\:")))
                found = result.fetchmany(self.max_rows + 1)
                rows = tuple(tuple(row) for row in found[: self.max_rows])
                return Rows(tuple(result.keys()), rows, len(found) > self.max_rows)
        except exc.SQLAlchemyError as error:
            if time.monotonic() - started >= self._timeout:
                raise ConnectorError(
                    f"The query took longer than {self._timeout:g} s and was stopped: ask for less."
                ) from error
            if isinstance(error, exc.OperationalError) and getattr(error, "connection_invalidated", False):
                raise ConnectorError(f"Cannot reach {self._shown()}: {_reason(error)}.") from error
            raise InvalidQueryError(f"The database refused the query: {_reason(error)}.") from error

    def _checked(self, sql: str) -> str:
        """The statement, parsed and written anew, so that what was checked is what runs."""
        try:
            import sqlglot
            from sqlglot import exp
        except ImportError as error:
            raise MissingExtraError("SQL questions", "sql") from error

        dialect = {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}.get(
            self.dialect, self.dialect
        )
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

    @contextmanager
    def _read_only(self, connection: Connection, started: float) -> Iterator[None]:
        """A transaction that the database itself keeps from writing, within the time."""
        milliseconds = int(self._timeout * 1000)
        driver: Any = connection.connection.dbapi_connection
        if self.dialect == "sqlite":
            connection.exec_driver_sql("PRAGMA query_only = ON")
            driver.set_progress_handler(lambda: time.monotonic() - started > self._timeout, _PROGRESS_STEPS)
        elif self.dialect == "postgresql":
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {milliseconds}")
        elif self.dialect in {"mysql", "mariadb"}:
            connection.exec_driver_sql(f"SET SESSION MAX_EXECUTION_TIME = {milliseconds}")
            connection.rollback()
            connection.exec_driver_sql("START TRANSACTION READ ONLY")
        try:
            yield
        finally:
            connection.rollback()
            if self.dialect == "sqlite":
                driver.set_progress_handler(None, 0)
                connection.exec_driver_sql("PRAGMA query_only = OFF")

    def _shown(self) -> str:
        return str(self._engine.url.render_as_string(hide_password=True))


def _engine(source: Any) -> Engine:  # noqa: ANN401
    try:
        from sqlalchemy import Engine, create_engine
    except ImportError as error:
        raise MissingExtraError("SQL databases", "sql") from error

    engine = getattr(source, "engine", source)
    if isinstance(engine, Engine):
        return engine
    if isinstance(source, str):
        return create_engine(source)
    raise InvalidQueryError(
        f"Cannot ask a {type(source).__name__}: pass a SQLAlchemy engine or a database URL."
    )


def _function(node: Any) -> str:  # noqa: ANN401  a sqlglot expression
    return str(node.name if node.key == "anonymous" else node.sql_name()).casefold()


def _reason(error: Exception) -> str:
    """What the database said, in one line, without the statement."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0][:300].rstrip(".")
