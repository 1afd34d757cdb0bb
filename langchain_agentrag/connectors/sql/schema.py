"""DatabaseSchemaConnector: the tables and views of a database as a source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langchain_agentrag import metadata as codec
from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.connectors.sql.engine import connect_source, location
from langchain_agentrag.connectors.sql.reflect import Column, Table, describe, find_table, select_all, table_names
from langchain_agentrag.connectors.sql.rows import to_metadata, value_text
from langchain_agentrag.connectors.sql.sources import open_engine, usable_tables
from langchain_agentrag.errors import UsageError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import SourceDocument

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_MAX_EXAMPLE: Final = 60  # characters of an example value


class DatabaseSchemaConnector(BaseConnector):
    """Tables and views as documents: columns, types, primary and foreign keys, comments.

    An agent searches them before it writes SQL, by name or by meaning. The document id is `name:table`, the metadata
    has `type` ("schema"), `table`, `columns`, `primary_key` and `foreign_keys`. Rows are read only for `examples`.
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
        """Configure the source; nothing is connected yet.

        Args:
            source: A database, as for `DatabaseConnector`, or a connector that has one.
            tables: Tables and views to describe, "schema.table" outside the default schema; None for all, or for those
                that the `SQLDatabase` of LangChain or LlamaIndex lets a model use.
            schemas: Schemas to describe in addition to the default one.
            examples: Number of example values per column, from the first rows; every agent that may see the document
                sees them.
            agent_id: Owner of the documents, or None for shared.
            name: First part of every document id and identity of the source; by default "schema", and the database
                is part of the identity.

        Raises:
            UsageError: the URL cannot be parsed, or `examples` is negative.
            MissingExtraError: the extra `sql` is not installed.
        """
        if examples < 0:
            raise UsageError(f"examples must be 0 or more, got {examples}: it is the number of values per column.")
        self.engine: Engine = open_engine(source)
        self.agent_id = check_agent_id(agent_id)
        tables = usable_tables(source) if tables is None and not schemas else tables
        self._tables = None if tables is None else tuple(tables)
        self._schemas, self._examples, self._name = tuple(schemas), examples, name

    @property
    def connector_id(self) -> str:
        """Identity of the source: its name, or its database."""
        return f"sql-schema:{self._name or location(self.engine)}"

    def items(self) -> Iterator[SourceItem | Gap]:
        """List every table and view.

        Raises:
            ConnectorError: the database cannot be reached or does not allow it.
            UsageError: there is no such table.
        """
        with connect_source(self.engine, "the schema") as connection:
            tables = list(self._described_tables(connection))
            references = _references(tables)
            for table in tables:
                examples = self._example_values(connection, table) if self._examples else {}
                yield self._item(table, references.get(table.full_name, []), examples)

    def _described_tables(self, connection: Connection) -> Iterator[Table]:
        if self._tables is not None:
            yield from (find_table(connection, name) for name in self._tables)
            return
        for schema in (None, *self._schemas):
            for name in sorted(table_names(connection, schema)):
                yield describe(connection, name, schema)

    def _example_values(self, connection: Connection, table: Table) -> dict[str, list[str]]:
        if not table.columns:
            return {}
        streamed = connection.execution_options(no_parameters=True)
        rows = streamed.exec_driver_sql(f"{select_all(self.engine, table)} LIMIT {self._examples}").fetchall()
        examples: dict[str, list[str]] = {}
        for index, column in enumerate(table.columns):
            texts = [" ".join(value_text(to_metadata(row[index])).split())[:_MAX_EXAMPLE] for row in rows]
            examples[column.name] = list(dict.fromkeys(filter(None, texts)))
        return examples

    def _item(self, table: Table, references: list[str], examples: Mapping[str, list[str]]) -> SourceItem:
        text = table_text(table, references, examples)
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
        doc_id = f"{self._name or 'schema'}:{table.full_name}"
        version = hashlib.blake2b(f"{codec.fingerprint(metadata)}{text}".encode(), digest_size=16).hexdigest()
        document = SourceDocument(doc_id, text, metadata, self.agent_id)
        return SourceItem(doc_id, version, lambda: [document], len(text))


def table_text(table: Table, references: Sequence[str], examples: Mapping[str, list[str]]) -> str:
    """Describe a table, one line per column, in English with "table" and "view" also in Chinese.

    `references` are the foreign keys of other tables that refer to it, `examples` the example values by column.
    """
    kind = "View 视图" if table.is_view else "Table 数据表"
    lines = [f"{kind} {table.full_name}{f': {table.comment}' if table.comment else ''}"]
    lines += [_column_text(table, column, examples.get(column.name, ())) for column in table.columns]
    if len(table.key) > 1:
        lines.append(f"primary key ({', '.join(table.key)})")
    if references:
        lines.append(f"referred to by {', '.join(references)}")
    return "\n".join(lines)


def _column_text(table: Table, column: Column, examples: Sequence[str]) -> str:
    parts = [f"{column.name} {column.type}".strip()]
    if table.key == (column.name,):
        parts.append("primary key")
    elif not column.nullable:
        parts.append("not null")
    for key in table.foreign_keys:
        if column.name in key.columns:
            index = key.columns.index(column.name)
            target = key.referred[index] if index < len(key.referred) else ""
            parts.append(f"refers to {key.table}{f'({target})' if target else ''}")
    if examples:
        parts.append(f"for example {'; '.join(examples)}")
    return f"- {', '.join(parts)}{f': {column.comment}' if column.comment else ''}"


def _references(tables: Sequence[Table]) -> dict[str, list[str]]:
    """Return table → the foreign keys of other tables that refer to it."""
    references: dict[str, list[str]] = {}
    for table in tables:
        for key in table.foreign_keys:
            references.setdefault(key.table, []).append(f"{table.full_name}({', '.join(key.columns)})")
    return references
