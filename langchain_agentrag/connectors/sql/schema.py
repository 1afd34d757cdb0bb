"""DatabaseSchemaConnector: what a database holds, as documents, for an agent that must find where data lives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag import metadata as codec
from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.connectors.sql.engine import connected, location, open_engine
from langchain_agentrag.connectors.sql.reflect import (
    Column,
    Table,
    describe,
    find_table,
    select_all,
    table_names,
)
from langchain_agentrag.connectors.sql.rows import plain, text_of
from langchain_agentrag.errors import UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import SourceDocument

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_SHOWN: Final = 60
"""Characters of an example value."""


class DatabaseSchemaConnector(BaseConnector):
    """Tables and views as documents: columns, types, keys, what refers to what, comments.

    An agent searches them before it writes SQL, by name or by meaning. A document's id is `name:table`, its metadata
    holds `type` ("schema"), `table`, `columns`, `primary_key` and `foreign_keys`. No row is read unless `examples`
    are asked for.
    """

    def __init__(
        self,
        source: Any,  # noqa: ANN401  (see Args)
        *,
        tables: Sequence[str] | None = None,
        schemas: Sequence[str] = (),
        examples: int = 0,
        agent_id: str | None = None,
        name: str | None = None,
    ) -> None:
        """Describe the source; nothing is connected yet.

        Args:
            source: A database URL, a SQLAlchemy `Engine`, or a connector that has one.
            tables: Tables and views to describe, "schema.table" outside the default schema; None for all.
            schemas: Schemas to describe beside the default one.
            examples: Values of each column to show, from the first rows; they are then in the index for everybody
                who sees the document.
            agent_id: Owner of the documents, or None for shared.
            name: First part of every document id and identity of the source; by default "schema", and the source is
                also told from others by its database.

        Raises:
            UsageError: the URL cannot be read, or `examples` is negative.
            MissingExtraError: the extra `sql` is not installed.
        """
        if examples < 0:
            raise UsageError(f"examples must be 0 or more, got {examples}: it counts values per column.")
        self.engine: Engine = open_engine(source)
        self.agent_id = check_agent_id(agent_id)
        self._tables = None if tables is None else tuple(tables)
        self._schemas, self._examples, self._own_name = tuple(schemas), examples, name

    @property
    def connector_id(self) -> str:
        """Identity of the source: its name, or its database."""
        return f"sql-schema:{self._own_name or location(self.engine)}"

    def items(self) -> Iterator[SourceItem | Gap]:
        """Every table and view.

        Raises:
            ConnectorError: the database cannot be reached or does not allow it.
            UsageError: there is no such table.
        """
        with connected(self.engine, "the schema") as connection:
            found = list(self._found(connection))
            referring = _referring(found)
            for table in found:
                examples = self._values(connection, table) if self._examples else {}
                yield self._item(table, referring.get(table.full_name, []), examples)

    def _found(self, connection: Connection) -> Iterator[Table]:
        if self._tables is not None:
            yield from (find_table(connection, name) for name in self._tables)
            return
        for schema in (None, *self._schemas):
            for name in sorted(table_names(connection, schema)):
                yield describe(connection, name, schema)

    def _values(self, connection: Connection, table: Table) -> dict[str, list[str]]:
        if not table.columns:
            return {}
        streamed = connection.execution_options(no_parameters=True)
        rows = streamed.exec_driver_sql(f"{select_all(self.engine, table)} LIMIT {self._examples}").fetchall()
        shown: dict[str, list[str]] = {}
        for place, column in enumerate(table.columns):
            texts = [" ".join(text_of(plain(row[place])).split())[:_SHOWN] for row in rows]
            shown[column.name] = list(dict.fromkeys(filter(None, texts)))
        return shown

    def _item(self, table: Table, referring: list[str], examples: Mapping[str, list[str]]) -> SourceItem:
        text = table_text(table, referring, examples)
        metadata = {
            "type": "schema",
            "table": table.full_name,
            "columns": [column.name for column in table.columns],
            "primary_key": list(table.key),
            "foreign_keys": [
                {"columns": list(key.columns), "table": key.table, "referred": list(key.referred)}
                for key in table.foreign_keys
            ],
            "view": table.is_view,
        }
        doc_id = f"{self._own_name or 'schema'}:{table.full_name}"
        version = hashlib.blake2b(f"{codec.fingerprint(metadata)}{text}".encode(), digest_size=16).hexdigest()
        return SourceItem(doc_id, version, partial(self._load, doc_id, text, metadata), len(text))

    def _load(self, doc_id: str, text: str, metadata: Mapping[str, Any]) -> list[SourceDocument]:
        return [SourceDocument(doc_id, text, metadata, self.agent_id)]


def table_text(table: Table, referring: Sequence[str], examples: Mapping[str, list[str]]) -> str:
    """A table in words, a line a column; "table" and "view" in both languages, as questions come in either."""
    kind = "View 视图" if table.is_view else "Table 数据表"
    lines = [f"{kind} {table.full_name}{f': {table.comment}' if table.comment else ''}"]
    lines += [_column_text(table, column, examples.get(column.name, ())) for column in table.columns]
    if len(table.key) > 1:
        lines.append(f"primary key ({', '.join(table.key)})")
    if referring:
        lines.append(f"referred to by {', '.join(referring)}")
    return "\n".join(lines)


def _column_text(table: Table, column: Column, examples: Sequence[str]) -> str:
    parts = [f"{column.name} {column.type}".strip()]
    if table.key == (column.name,):
        parts.append("primary key")
    elif not column.nullable:
        parts.append("not null")
    for key in table.foreign_keys:
        if column.name in key.columns:
            place = key.columns.index(column.name)
            target = key.referred[place] if place < len(key.referred) else ""
            parts.append(f"refers to {key.table}{f'({target})' if target else ''}")
    if examples:
        parts.append(f"for example {'; '.join(examples)}")
    return f"- {', '.join(parts)}{f': {column.comment}' if column.comment else ''}"


def _referring(tables: Sequence[Table]) -> dict[str, list[str]]:
    """Table → the columns of other tables that name its rows."""
    found: dict[str, list[str]] = {}
    for table in tables:
        for key in table.foreign_keys:
            found.setdefault(key.table, []).append(f"{table.full_name}({', '.join(key.columns)})")
    return found
