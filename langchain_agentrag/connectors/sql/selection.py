"""What a `DatabaseConnector` reads: a table, by name or as SQLAlchemy declares it, or one SELECT with parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from langchain_agentrag.connectors.sql.reflect import Table, find_table
from langchain_agentrag.connectors.sql.statement import check_select
from langchain_agentrag.errors import UsageError
from langchain_agentrag.metadata import short_repr

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


@dataclass(frozen=True, slots=True)
class TableSelection:
    """A table to read.

    Attributes:
        table: "name", or "schema.name" outside the default schema.
        columns: Columns to read; None for all.
        key: Its key, where that is declared.
        comments: Declared comments by column.
        comment: Its declared comment.
    """

    table: str
    columns: frozenset[str] | None = None
    key: tuple[str, ...] = ()
    comments: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""

    @classmethod
    def of(cls, table: Any, usable: Sequence[str] | None = None) -> TableSelection:  # noqa: ANN401  (see Args)
        """Return the selection of a table.

        Args:
            table: Its name, a SQLAlchemy `Table`, or a mapped class.
            usable: Names of the tables that may be read; None for all.

        Raises:
            UsageError: it is something else, or a table that may not be read.
        """
        declared = getattr(table, "__table__", table)
        if isinstance(table, str):
            return cls(_usable_name(table, usable))
        if not (hasattr(declared, "fullname") and hasattr(declared, "primary_key") and hasattr(declared, "columns")):
            raise UsageError(
                f"DatabaseConnector(table={short_repr(table)}): pass the name of a table or view, a SQLAlchemy Table "
                "or a mapped class; a select() is a query=…."
            )
        columns = list(declared.columns)
        return cls(
            _usable_name(str(declared.fullname), usable),
            frozenset(column.name for column in columns) or None,
            tuple(column.name for column in declared.primary_key),
            {column.name: " ".join(column.comment.split()) for column in columns if column.comment},
            " ".join((declared.comment or "").split()),
        )

    def find(self, connection: Connection) -> Table:
        """Return the table as the database describes it, with the columns and the key of the declaration.

        Raises:
            UsageError: there is no such table, or it lacks a declared column.
        """
        table = find_table(connection, self.table)
        if self.columns is None:
            return table
        existing = {column.name for column in table.columns}
        if missing := sorted(self.columns - existing):
            raise UsageError(
                f"The table {self.table!r} has no column {', '.join(map(repr, missing))}, which its declaration names: "
                f"its columns are {', '.join(map(repr, sorted(existing)))}. Nothing was read."
            )
        columns = tuple(
            replace(column, comment=column.comment or self.comments.get(column.name, ""))
            for column in table.columns
            if column.name in self.columns
        )
        key = self.key or (table.key if self.columns.issuperset(table.key) else ())
        return replace(table, columns=columns, key=key, comment=table.comment or self.comment)


def _usable_name(name: str, usable: Sequence[str] | None) -> str:
    """Return the name under which a table may be read: itself, or with the schema of the `SQLDatabase`."""
    if usable is None or name in usable:
        return name
    for candidate in usable:
        if candidate.endswith(f".{name}"):
            return candidate
    raise UsageError(
        f"The SQLDatabase does not let the table {name!r} be read, only {', '.join(usable) or 'none'}: pass its engine "
        "to read others."
    )


class Statement:
    """A single SELECT with the values of its bound parameters.

    Args:
        query: A text, or a `select()` or `text()` of SQLAlchemy.
        parameters: Values by name. A text runs as written where this is None, and binds `:name` otherwise.
        engine: The database.

    Attributes:
        table: The first table it reads, "query" when there is none.

    Raises:
        UsageError: it is not a single SELECT, or the parameters are not those of the query.
        MissingExtraError: sqlglot is not installed.
    """

    def __init__(self, query: Any, parameters: Mapping[str, Any] | None, engine: Engine) -> None:  # noqa: ANN401
        self._query, self._parameters = query, None if parameters is None else dict(parameters)
        if isinstance(query, str) and parameters is None:
            self.table = check_select(query, engine.dialect.name)
            return
        self._query = _executable(query)
        self.table = self._check(engine)

    def execute(self, connection: Connection) -> Any:  # noqa: ANN401  (a result of SQLAlchemy)
        """Run it and return its rows, streamed where the database can."""
        if isinstance(self._query, str):
            return execute_text(connection, self._query)
        return connection.execution_options(stream_results=True).execute(self._query, self._parameters)

    def _check(self, engine: Engine) -> str:
        """Return the first table the statement reads, after checking it as the database will receive it."""
        from sqlalchemy import exc

        try:
            compiled = self._query.compile(dialect=engine.dialect)
            given = self._parameters or {}
            if unknown := sorted(given.keys() - compiled.params.keys()):
                raise UsageError(
                    f"The query has no parameter {', '.join(map(repr, unknown))}: it has "
                    f"{', '.join(map(repr, sorted(compiled.params))) or 'none'}. A text names one :name."
                )
            compiled.construct_params(given)  # refuses missing values
        except exc.SQLAlchemyError as error:
            message = str(error.args[0] if error.args else error).splitlines()[0].rstrip(".")
            raise UsageError(f"The query cannot be run: {message}. Correct it, or pass parameters={{…}}.") from error
        return check_select(str(compiled), engine.dialect.name)


def execute_text(connection: Connection, sql: str) -> Any:  # noqa: ANN401  (a result of SQLAlchemy)
    """Run a statement as it is written, without parameters, and return its rows, streamed where the database can."""
    return connection.execution_options(no_parameters=True, stream_results=True).exec_driver_sql(sql)


def _executable(query: Any) -> Any:  # noqa: ANN401  (of SQLAlchemy)
    """Return a query as SQLAlchemy executes it.

    Raises:
        UsageError: it is something else than a text, a select or a `text()`.
    """
    from sqlalchemy import SelectBase, TextClause, text

    statement = text(query) if isinstance(query, str) else getattr(query, "statement", query)  # `Query` of the ORM
    if isinstance(statement, SelectBase | TextClause):
        return statement
    raise UsageError(
        f"DatabaseConnector(query={type(query).__name__}): pass one SELECT as a text, or a select() or text() of "
        "SQLAlchemy; a Table is a table=…."
    )
