"""What a database says of its tables: columns, keys, comments."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_agentrag.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import Inspector


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type as the database writes it, whether it may be NULL, and its comment."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""

    @property
    def one_type(self) -> bool:
        """Whether 1 and "1" cannot both be in it: all but the columns of SQLite that have no affinity."""
        return bool(self.type) and "BLOB" not in self.type.upper()


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns that name rows of another table."""

    columns: tuple[str, ...]
    table: str
    referred: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view.

    Attributes:
        name: Its name.
        schema: Its schema, or None for the default one.
        columns: In order.
        key: Columns of the primary key, in the key's order.
        foreign_keys: Where its rows point.
        comment: What its owner says of it.
        is_view: Whether it is a view.
    """

    name: str
    schema: str | None
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str = ""
    is_view: bool = False

    @property
    def full_name(self) -> str:
        """Schema and name, as one writes them."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


def find_table(connection: Connection, given: str) -> Table:
    """A table or view by its name, or by "schema.name".

    Raises:
        UsageError: there is none; the message names those there are.
    """
    schema, _, name = given.rpartition(".")
    for where, what in ((None, given), (schema, name)):
        if where != "" and what in table_names(connection, where):
            return describe(connection, what, where)
    known = table_names(connection, None)
    raise UsageError(
        f"There is no table {given!r} in the database; there {'is' if len(known) == 1 else 'are'} "
        f"{', '.join(sorted(known)[:30]) or 'none at all'}. Names are compared exactly; write schema.table for others."
    )


def table_names(connection: Connection, schema: str | None, *, views: bool = True) -> list[str]:
    """Names of the tables, then of the views, of a schema (None: the default one)."""
    if connection.dialect.name == "duckdb":
        found = _rows(
            connection,
            "SELECT table_name FROM information_schema.tables WHERE table_catalog = current_database() "
            "AND table_schema = coalesce($1, current_schema()) AND ($2 OR table_type <> 'VIEW') "
            "ORDER BY table_type, table_name",
            schema,
            views,
        )
        return [row["table_name"] for row in found]
    inspector: Any = _inspector(connection)
    found = list(inspector.get_table_names(schema=schema))
    if connection.dialect.name == "postgresql":
        found += inspector.get_foreign_table_names(schema=schema)
    return [*found, *(_view_names(inspector, schema) if views else ())]


def describe(connection: Connection, name: str, schema: str | None) -> Table:
    """All of one table or view that is there."""
    if connection.dialect.name == "duckdb":
        return _describe_duckdb(connection, name, schema)
    inspector = _inspector(connection)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of types that SQLAlchemy has no name for, such as point
        reflected = inspector.get_columns(name, schema=schema)
    json = _json_columns(connection, name, schema)
    columns = tuple(
        Column(
            column["name"],
            "JSON" if column["name"] in json else _type_text(column["type"], connection),
            bool(column.get("nullable", True)),
            _one_line(column.get("comment")),
        )
        for column in reflected
    )
    is_view = name in _view_names(inspector, schema)
    return Table(
        name,
        schema,
        columns,
        () if is_view else tuple(inspector.get_pk_constraint(name, schema=schema)["constrained_columns"]),
        () if is_view else _foreign_keys(inspector, name, schema),
        _comment(inspector, name, schema),
        is_view,
    )


def select_all(engine: Engine, table: Table) -> str:
    """The statement that reads every column of a table, in the order of its key, for the driver, without values."""
    names = ", ".join(quoted(engine, column.name) for column in table.columns)
    place = [quoted(engine, part) for part in (table.schema, table.name) if part]
    order = ", ".join(quoted(engine, name) for name in table.key)
    return f"SELECT {names} FROM {'.'.join(place)}{f' ORDER BY {order}' if order else ''}"


def quoted(engine: Engine, name: str) -> str:
    """A name in the quotes of the dialect; `%` stays single, as no values are bound."""
    mark = "`" if engine.dialect.name in {"mysql", "mariadb"} else '"'
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def _inspector(connection: Connection) -> Inspector:
    from sqlalchemy import inspect

    return inspect(connection)


def _view_names(inspector: Any, schema: str | None) -> list[str]:  # noqa: ANN401  (each dialect has its own)
    """Views, those included whose rows are stored."""
    stored = getattr(inspector, "get_materialized_view_names", None)
    try:
        return [*inspector.get_view_names(schema=schema), *(stored(schema=schema) if stored else ())]
    except NotImplementedError:  # the dialect has no such views
        return list(inspector.get_view_names(schema=schema))


def _json_columns(connection: Connection, name: str, schema: str | None) -> set[str]:
    """Columns of MariaDB that were declared as JSON: it makes them long texts that are checked to be JSON."""
    if not getattr(connection.dialect, "is_mariadb", False):
        return set()
    checks = _rows(
        connection,
        "SELECT check_clause AS clause FROM information_schema.check_constraints "
        "WHERE constraint_schema = coalesce(%s, database()) AND table_name = %s",
        schema,
        name,
    )
    found = (re.fullmatch(r"json_valid\(`(.+)`\)", check["clause"]) for check in checks)
    return {match[1] for match in found if match}


def _type_text(kind: Any, connection: Connection) -> str:  # noqa: ANN401  a type of SQLAlchemy
    try:
        return str(kind.compile(connection.dialect))
    except Exception:  # noqa: BLE001  a type the dialect does not know (NullType): SQLAlchemy has no common error
        return ""


def _foreign_keys(inspector: Inspector, name: str, schema: str | None) -> tuple[ForeignKey, ...]:
    found = []
    for key in inspector.get_foreign_keys(name, schema=schema):
        target = ".".join(part for part in (key.get("referred_schema"), key["referred_table"]) if part)
        found.append(ForeignKey(tuple(key["constrained_columns"]), target, tuple(key["referred_columns"])))
    return tuple(found)


def _comment(inspector: Inspector, name: str, schema: str | None) -> str:
    try:
        return _one_line(inspector.get_table_comment(name, schema=schema)["text"])
    except NotImplementedError:  # SQLite has none
        return ""


def _describe_duckdb(connection: Connection, name: str, schema: str | None) -> Table:
    """Its dialect's own reflection asks for tables of PostgreSQL that DuckDB does not have."""
    here = (
        "database_name = current_database() AND schema_name = coalesce($2, current_schema()) "
        "AND table_name = $1"
    )
    columns = _rows(
        connection,
        f"SELECT column_name, data_type, is_nullable, comment FROM duckdb_columns() WHERE {here} "
        "ORDER BY column_index",
        name,
        schema,
    )
    constraints = _rows(connection, f"SELECT * FROM duckdb_constraints() WHERE {here}", name, schema)
    relations = _rows(connection, f"SELECT comment FROM duckdb_tables() WHERE {here}", name, schema)
    views = _rows(
        connection,
        f"SELECT comment FROM duckdb_views() WHERE {here.replace('table_name', 'view_name')}",
        name,
        schema,
    )
    keys = [row for row in constraints if row["constraint_type"] == "PRIMARY KEY"]
    return Table(
        name,
        schema,
        tuple(
            Column(row["column_name"], row["data_type"], bool(row["is_nullable"]), _one_line(row["comment"]))
            for row in columns
        ),
        tuple(keys[0]["constraint_column_names"]) if keys else (),
        tuple(
            ForeignKey(
                tuple(row["constraint_column_names"]),
                row["referenced_table"],
                tuple(row["referenced_column_names"]),
            )
            for row in constraints
            if row["constraint_type"] == "FOREIGN KEY"
        ),
        _one_line(next((row["comment"] for row in (*relations, *views)), None)),
        bool(views) and not relations,
    )


def _rows(connection: Connection, sql: str, *values: object) -> list[dict[str, Any]]:
    result = connection.exec_driver_sql(sql, tuple(values))
    return [dict(row) for row in result.mappings()]


def _one_line(comment: object) -> str:
    return " ".join(str(comment).split()) if comment else ""
