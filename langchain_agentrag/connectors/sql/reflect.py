"""Reflection of tables and views: columns, keys, comments."""

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
    """A column: name, type in the database's notation, whether it may be NULL, comment."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""

    @property
    def single_typed(self) -> bool:
        """Whether 1 and "1" cannot both be stored in it: all but SQLite columns without type affinity."""
        return bool(self.type) and "BLOB" not in self.type.upper()


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key: its columns, the table and the columns they refer to."""

    columns: tuple[str, ...]
    table: str
    referred: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view."""

    name: str
    schema: str | None  # None for the default one
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()  # columns of the primary key, in the key's order
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str = ""
    is_view: bool = False

    @property
    def full_name(self) -> str:
        """Name with the schema: "schema.name"."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


def find_table(connection: Connection, full_name: str) -> Table:
    """Return a table or view by "name" or "schema.name".

    Raises:
        UsageError: it does not exist; the message lists the existing ones.
    """
    schema, _, name = full_name.rpartition(".")
    for candidate_schema, candidate in ((None, full_name), (schema, name)):
        if candidate_schema != "" and candidate in table_names(connection, candidate_schema):
            return describe(connection, candidate, candidate_schema)
    existing = table_names(connection, None)
    raise UsageError(
        f"There is no table {full_name!r} in the database; there {'is' if len(existing) == 1 else 'are'} "
        f"{', '.join(sorted(existing)[:30]) or 'none at all'}. Names are compared exactly; write "
        "schema.table for others."
    )


def table_names(connection: Connection, schema: str | None) -> list[str]:
    """Return the names of the tables, then of the views, of a schema (None: the default one)."""
    from sqlalchemy import inspect

    if connection.dialect.name == "duckdb":
        rows = _rows(
            connection,
            "SELECT table_name FROM information_schema.tables WHERE table_catalog = current_database() "
            "AND table_schema = coalesce($1, current_schema()) ORDER BY table_type, table_name",
            schema,
        )
        return [row["table_name"] for row in rows]
    inspector: Any = inspect(connection)
    names = list(inspector.get_table_names(schema=schema))
    if connection.dialect.name == "postgresql":
        names += inspector.get_foreign_table_names(schema=schema)
    return [*names, *_view_names(inspector, schema)]


def describe(connection: Connection, name: str, schema: str | None) -> Table:
    """Reflect an existing table or view."""
    from sqlalchemy import inspect

    if connection.dialect.name == "duckdb":
        return _describe_duckdb(connection, name, schema)
    inspector = inspect(connection)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for types unknown to SQLAlchemy, such as point
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
    """Return the SELECT of all columns of a table, in the order of its primary key, without bound values."""
    names = ", ".join(_quote(engine, column.name) for column in table.columns)
    source = ".".join(_quote(engine, part) for part in (table.schema, table.name) if part)
    order = ", ".join(_quote(engine, name) for name in table.key)
    return f"SELECT {names} FROM {source}{f' ORDER BY {order}' if order else ''}"


def _quote(engine: Engine, name: str) -> str:
    """Quote a name for the dialect; `%` is not doubled, because no values are bound."""
    mark = "`" if engine.dialect.name in {"mysql", "mariadb"} else '"'
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def _view_names(inspector: Any, schema: str | None) -> list[str]:  # noqa: ANN401  (each dialect has its own)
    """Return the views of a schema, including materialized ones."""
    materialized = getattr(inspector, "get_materialized_view_names", None)
    try:
        names = materialized(schema=schema) if materialized else ()
        return [*inspector.get_view_names(schema=schema), *names]
    except NotImplementedError:  # the dialect has no materialized views
        return list(inspector.get_view_names(schema=schema))


def _json_columns(connection: Connection, name: str, schema: str | None) -> set[str]:
    """Return the columns of MariaDB declared as JSON, which it stores as long texts with a json_valid check."""
    if not getattr(connection.dialect, "is_mariadb", False):
        return set()
    checks = _rows(
        connection,
        "SELECT check_clause AS clause FROM information_schema.check_constraints "
        "WHERE constraint_schema = coalesce(%s, database()) AND table_name = %s",
        schema,
        name,
    )
    matches = (re.fullmatch(r"json_valid\(`(.+)`\)", check["clause"]) for check in checks)
    return {match[1] for match in matches if match}


def _type_text(kind: Any, connection: Connection) -> str:  # noqa: ANN401  a type of SQLAlchemy
    try:
        return str(kind.compile(connection.dialect))
    except Exception:  # noqa: BLE001  a type unknown to the dialect (NullType): SQLAlchemy has no common error
        return ""


def _foreign_keys(inspector: Inspector, name: str, schema: str | None) -> tuple[ForeignKey, ...]:
    foreign_keys = []
    for key in inspector.get_foreign_keys(name, schema=schema):
        target = ".".join(part for part in (key.get("referred_schema"), key["referred_table"]) if part)
        columns, referred = tuple(key["constrained_columns"]), tuple(key["referred_columns"])
        foreign_keys.append(ForeignKey(columns, target, referred))
    return tuple(foreign_keys)


def _comment(inspector: Inspector, name: str, schema: str | None) -> str:
    try:
        return _one_line(inspector.get_table_comment(name, schema=schema)["text"])
    except NotImplementedError:  # SQLite has none
        return ""


def _describe_duckdb(connection: Connection, name: str, schema: str | None) -> Table:
    """Reflect a table of DuckDB, whose dialect queries system tables of PostgreSQL that DuckDB does not have."""
    condition = (
        "database_name = current_database() AND schema_name = coalesce($2, current_schema()) AND table_name = $1"
    )
    columns = _rows(
        connection,
        f"SELECT column_name, data_type, is_nullable, comment FROM duckdb_columns() WHERE {condition} "
        "ORDER BY column_index",
        name,
        schema,
    )
    constraints = _rows(connection, f"SELECT * FROM duckdb_constraints() WHERE {condition}", name, schema)
    relations = _rows(connection, f"SELECT comment FROM duckdb_tables() WHERE {condition}", name, schema)
    views = _rows(
        connection,
        f"SELECT comment FROM duckdb_views() WHERE {condition.replace('table_name', 'view_name')}",
        name,
        schema,
    )
    key: tuple[str, ...] = ()
    foreign_keys = []
    for row in constraints:
        names = tuple(row["constraint_column_names"])
        if row["constraint_type"] == "PRIMARY KEY":
            key = key or names
        elif row["constraint_type"] == "FOREIGN KEY":
            referred = tuple(row["referenced_column_names"])
            foreign_keys.append(ForeignKey(names, row["referenced_table"], referred))
    return Table(
        name,
        schema,
        tuple(
            Column(row["column_name"], row["data_type"], bool(row["is_nullable"]), _one_line(row["comment"]))
            for row in columns
        ),
        key,
        tuple(foreign_keys),
        _one_line(next((row["comment"] for row in (*relations, *views)), None)),
        bool(views) and not relations,
    )


def _rows(connection: Connection, sql: str, *values: object) -> list[dict[str, Any]]:
    result = connection.exec_driver_sql(sql, tuple(values))
    return [dict(row) for row in result.mappings()]


def _one_line(comment: object) -> str:
    return " ".join(str(comment).split()) if comment else ""
