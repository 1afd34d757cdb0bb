"""Queries of database servers whose long values are cut, by PostgreSQL itself before they are sent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag.connectors.sql.results import QueryLimits, QueryResult, read_result
from langchain_agentrag.connectors.sql.statement import CheckedSelect
from langchain_agentrag.errors import InvalidQueryError

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FIXED_SIZE_TYPES: Final = frozenset((
    16, 20, 21, 23, 26, 700, 701, 1082, 1083, 1114, 1184, 1186, 1266, 2950,
))  # fmt: skip
"""Types of PostgreSQL with small values, by OID: bool, integers, floats, dates and times, interval, uuid."""
_BYTEA: Final = 17
_TIMEOUT_CODES: Final = frozenset(("57014", 1969, 3024, 1317))
"""Codes of a query stopped by its time limit: PostgreSQL, MariaDB, MySQL, and of an interrupted one (MariaDB)."""


def select_from_server(
    connection: Connection, checked: CheckedSelect, functions: Collection[str], limits: QueryLimits
) -> QueryResult:
    """Run a checked SELECT in the transaction of a connection.

    Args:
        connection: The connection.
        checked: The statement.
        functions: Allowed functions.
        limits: Limits of rows and size.

    Raises:
        InvalidQueryError: a column or field is a call of a function that is not allowed.
        TimeoutError: the server has stopped it because of its time limit.
        sqlalchemy.exc.DBAPIError: the server refuses it.
    """
    from sqlalchemy import exc

    try:
        if connection.dialect.name != "postgresql":
            return _select_plainly(connection, checked.sql, limits)
        _check_calls(connection, checked, functions)
        return _select_from_postgresql(connection, checked.sql, limits)
    except exc.DBAPIError as error:
        if _is_timeout(error):
            raise TimeoutError from error
        raise


def _check_calls(connection: Connection, checked: CheckedSelect, functions: Collection[str]) -> None:
    """Refuse functions of PostgreSQL that are called like a column: `t.f` is f(t), `(x).f` is f(x).

    A column or field of that name would come first, so functions that can do no harm pass: those built in that only
    compute with their argument, and casts, which have names of types.
    """
    from sqlalchemy import text

    names = sorted(checked.qualified - set(functions))
    if not names:
        return
    query = text(
        "SELECT p.proname FROM pg_catalog.pg_proc AS p WHERE p.proname = ANY(:names) AND p.pronargs >= 1 AND "
        "(p.pronamespace <> 'pg_catalog'::regnamespace OR (p.provolatile <> 'i' AND p.proname NOT IN "
        "(SELECT typname FROM pg_catalog.pg_type WHERE typnamespace = 'pg_catalog'::regnamespace))) LIMIT 1"
    )
    called = connection.execute(query, {"names": names}).scalar()
    if called is not None:
        raise InvalidQueryError(
            f"{called} is not a column or field here but a function that is not on the list of allowed functions. "
            "Nothing was run."
        )


def _is_timeout(error: Exception) -> bool:
    """Whether a server has stopped a query because of the timeout."""
    cause = getattr(error, "orig", None)
    code = (
        getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or (getattr(cause, "args", None) or [0])[0]
    )
    return code in _TIMEOUT_CODES


def _select_plainly(connection: Connection, sql: str, limits: QueryLimits) -> QueryResult:
    streamed = connection.execution_options(no_parameters=True, stream_results=True)
    with closing(streamed.exec_driver_sql(sql)) as result:
        return read_result(result.fetchmany, tuple(result.keys()), limits)


def _select_from_postgresql(connection: Connection, sql: str, limits: QueryLimits) -> QueryResult:
    """Run a SELECT whose long values are cut by the server, because a driver receives every value whole.

    Of a column whose values have no fixed size the server returns two: the value where it is small, else the beginning
    of its text.
    """
    plain = connection.execution_options(no_parameters=True)
    with closing(plain.exec_driver_sql(f"SELECT * FROM ({sql}) AS query LIMIT 0")) as result:
        description: Any = result.cursor.description if result.cursor is not None else ()
        names = [str(column[0]) for column in description]
        types = [column[1] for column in description]
    if not names:
        return QueryResult((), (), more=False)
    columns = [f"c{number}" for number in range(len(names))]
    selected = [_limited(column, oid, limits.max_cell_bytes) for column, oid in zip(columns, types, strict=True)]
    # the LIMIT keeps the planner from computing a value once for each of its uses
    first_rows = f"SELECT * FROM ({sql}) AS query LIMIT {limits.max_rows + 1}"
    limited = f"SELECT {', '.join(selected)} FROM ({first_rows}) AS query({', '.join(columns)})"
    cut: set[int] = set()

    def join(row: Sequence[Any]) -> list[Any]:
        values: list[Any] = []
        rest = iter(row)
        for position, oid in enumerate(types):
            value = next(rest)
            if oid not in _FIXED_SIZE_TYPES and (beginning := next(rest)) is not None:
                value = beginning
                cut.add(position)
            values.append(value)
        return values

    streamed = connection.execution_options(no_parameters=True, stream_results=True)
    with closing(streamed.exec_driver_sql(limited)) as result:
        rows = read_result(lambda most: [join(row) for row in result.fetchmany(most)], names, limits)
    truncated = dict.fromkeys([name for position, name in enumerate(names) if position in cut])
    return replace(rows, truncated=tuple(truncated | dict.fromkeys(rows.truncated)))


def _limited(column: str, oid: int, most: int) -> str:
    """Return the expressions for a column: itself, or its small values and the beginnings of its long ones."""
    if oid in _FIXED_SIZE_TYPES:
        return column
    size, beginning = f"octet_length({column}::text)", f"left({column}::text, {most})"
    if oid == _BYTEA:
        size, beginning = f"octet_length({column})", f"substring({column} FROM 1 FOR {most})"
    return f"CASE WHEN {size} <= {most} THEN {column} END, CASE WHEN {size} > {most} THEN {beginning} END"
