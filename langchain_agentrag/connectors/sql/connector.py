"""DatabaseConnector: the rows of a table, view or query as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.connectors.sql.engine import connect_source, location
from langchain_agentrag.connectors.sql.reflect import Table, select_all
from langchain_agentrag.connectors.sql.rows import (
    NoAgent,
    RowOptions,
    RowReader,
    converter,
    row_size,
    template_parts,
    unique_names,
)
from langchain_agentrag.connectors.sql.selection import Statement, TableSelection, execute_text
from langchain_agentrag.connectors.sql.sources import open_engine, usable_tables
from langchain_agentrag.errors import UsageError
from langchain_agentrag.scope import check_agent_id

if TYPE_CHECKING:
    from sqlalchemy import Engine

_BATCH_CHARACTERS: Final = 2**20
"""Approximate characters of the rows fetched at once; the number of rows follows from the size of the last ones."""
_MAX_BATCH_ROWS: Final = 1_000
_MAX_LABEL: Final = 30  # longest comment of a column, in characters, that is used as its label


class DatabaseConnector(BaseConnector):
    """Rows of a table, view or query as documents: PostgreSQL, MySQL, MariaDB, SQLite, DuckDB.

    Each sync reads the whole result, in one read-only transaction and in bounded batches. Only changed rows are indexed
    again, and rows that are gone are deleted. When reading fails midway nothing is deleted.

    The document id is `name:key`: `orders:17`, `order_items:17|3` for a key of two columns. The metadata has `type`
    ("row"), `table` (its name in the database, of a query the first after FROM) and the columns under their names, with
    their types; a column named `type` or `table` replaces
    these. Values of more than 1,000 characters are text only, unless `metadata` names the column. A time that Python
    cannot represent, such as "infinity" or one before Christ, is text.
    A column `expires_at` expires its row: from that time on no search finds it. Where the column means something else,
    as for coupons that should be found after they expired, omit it with `metadata` or rename it in a query.

    One name is one source: rows its connector no longer yields are deleted at the next sync. Two queries over one table
    need different names.
    """

    def __init__(
        self,
        source: Any,  # noqa: ANN401  (see Args)
        *,
        table: Any = None,  # noqa: ANN401  (see Args)
        query: Any = None,  # noqa: ANN401
        parameters: Mapping[str, Any] | None = None,
        key: str | Sequence[str] | None = None,
        content_addressed: bool = False,
        text: str | Callable[[Mapping[str, Any]], str] | None = None,
        metadata: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        agent_id: str | None = None,
        agent_column: str | None = None,
        no_agent: NoAgent = "refuse",
        version_column: str | None = None,
        name: str | None = None,
    ) -> None:
        r"""Configure the source; nothing is connected yet.

        Args:
            source: A database URL; the path of a SQLite or DuckDB file; a SQLAlchemy engine, connection or session;
                the `SQLDatabase` of LangChain or LlamaIndex, which may limit the tables. A file is never created. A
                connection or session stands for its engine: what it has not committed is not read. Of an asynchronous
                one only the URL is used, with a driver that needs no event loop.
            table: A table or view, "schema.table" outside the default schema; or a SQLAlchemy `Table` or mapped class,
                of which the declared columns are read.
            query: One SELECT instead: a text, or a `select()` or `text()` of SQLAlchemy. A text runs as written:
                `:word`, `::type` and `%` have the database's meaning. Of two columns of one name the second gets "_2".
            parameters: Values of the bound parameters of the query. A text names them `:name` then, and writes `\:`
                for a colon in front of any other word.
            key: Column or columns that identify a row; by default a table's primary key. A row whose key is NULL is
                reported as failed.
            content_addressed: For rows without a key: a row is identified by its values. Equal rows are one document,
                and a changed row is a new one.
            text: Template of the document's text, like "{name} lives in {city}", with nothing for NULL; or a function
                of the row as a dict, which is called for every row at every sync. By default the table and the key,
                then a line for each column with a value: "name: Ada", "姓名：张三".
            metadata: Columns of the metadata; None for all.
            labels: Names of columns in the default text; by default their comments, where these are short, or their
                names.
            agent_id: Owner of all rows, or None for shared.
            agent_column: Column of each row's owner instead; integers and UUIDs are converted to text.
            no_agent: Treatment of rows whose agent is NULL: "refuse" reports them as failed, "skip" skips them,
                "shared" shares them with all agents.
            version_column: Column that changes with every change of the row, a timestamp or a counter; its value is
                compared instead of the whole row. Rows where it is NULL are compared whole.
            name: First part of every document id and identity of the source. By default the table (of a query: the
                first after FROM), and the database is part of the identity. A source with a name can be moved to
                another database and keeps its documents.

        Raises:
            UsageError: settings contradict each other, or the URL cannot be parsed.
            MissingExtraError: the extra `sql` is not installed.
        """
        if (table is None) == (query is None):
            raise UsageError("DatabaseConnector needs either table=… or query=…: pass one of the two.")
        if parameters is not None and query is None:
            raise UsageError("DatabaseConnector(parameters=…) are of a query: pass query=… instead of table=….")
        columns = (key,) if isinstance(key, str) else tuple(key or ())
        if content_addressed and columns:
            raise UsageError("DatabaseConnector(key=…, content_addressed=True) contradict each other: pass one.")
        if query is not None and not columns and not content_addressed:
            raise UsageError(
                "DatabaseConnector(query=…) needs key='column', or several columns, that identify a row; without "
                "any, pass content_addressed=True."
            )
        if agent_column is not None and agent_id is not None:
            raise UsageError("DatabaseConnector(agent_id=…, agent_column=…) contradict each other: pass one.")
        if no_agent not in get_args(NoAgent):
            raise UsageError(f"no_agent must be one of {', '.join(get_args(NoAgent))}, got {no_agent!r}.")
        if isinstance(text, str):
            template_parts(text)
        self.engine: Engine = open_engine(source)
        self.agent_id = check_agent_id(agent_id)
        self._selection = (
            Statement(query, parameters, self.engine)
            if table is None
            else TableSelection.of(table, usable_tables(source))
        )
        table_name = self._selection.table
        self._explicit_name = name
        self._options = RowOptions(
            name=name or table_name,
            table=table_name,
            label=table_name.rpartition(".")[2],
            key=columns,
            content_addressed=content_addressed,
            text=text,
            metadata=None if metadata is None else tuple(metadata),
            labels=labels,
            agent_id=self.agent_id,
            agent_column=agent_column,
            no_agent=no_agent,
            version_column=version_column,
        )

    @property
    def connector_id(self) -> str:
        """Identity of the source: its name, with the database unless a name was passed."""
        if self._explicit_name is not None:
            return f"sql:{self._explicit_name}"
        kind = "query" if isinstance(self._selection, Statement) else "table"
        return f"sql:{location(self.engine)}?{kind}={self._options.name}"

    def items(self) -> Iterator[SourceItem | Gap]:
        """List every row, of a table in the order of its primary key.

        Raises:
            ConnectorError: the database cannot be reached, does not allow it, or refuses the statement.
            UsageError: there is no such table or column, or the table has no key.
        """
        selection = self._selection
        target = "the query" if isinstance(selection, Statement) else f"the table {selection.table!r}"
        with connect_source(self.engine, target) as connection:
            if isinstance(selection, Statement):
                table, options, result = None, self._options, selection.execute(connection)
            else:
                table = selection.find(connection)
                options, result = self._with_table(table), execute_text(connection, select_all(self.engine, table))
            with closing(result):
                yield from self._read(result, options, table)

    def _read(self, result: Any, options: RowOptions, table: Table | None) -> Iterator[SourceItem | Gap]:  # noqa: ANN401
        description = result.cursor.description if result.returns_rows else None
        if not description:
            raise UsageError("The query returns no rows: pass a SELECT. Nothing was read.")
        names = unique_names(str(column[0]) for column in description)
        dialect = self.engine.dialect.name
        declared = {column.name: column for column in table.columns} if table else {}
        single_typed = [dialect != "sqlite" or (name in declared and declared[name].single_typed) for name in names]
        converters = [converter(declared[name].type, dialect) if name in declared else None for name in names]
        reader = RowReader(options, names, single_typed, converters)
        number, batch_rows = 0, 10
        while rows := result.fetchmany(batch_rows):
            for row in rows:
                number += 1
                item = reader.item(row, number)
                if item is not None:
                    yield item
            batch_rows = _next_batch_rows(rows)
        yield from reader.gap_summaries()

    def _with_table(self, table: Table) -> RowOptions:
        """Return the options completed by the table's key and comments."""
        options = self._options
        if not options.key and not options.content_addressed:
            if not table.key:
                raise UsageError(
                    f"{'The view' if table.is_view else 'The table'} {table.full_name!r} has no primary key: pass "
                    "key='column', or several, that identify a row, or content_addressed=True. Nothing was read."
                )
            options = replace(options, key=table.key)
        labels = {column.name: column.comment for column in table.columns if _is_label(column.comment)}
        label = table.comment if _is_label(table.comment) else options.label
        return replace(options, label=label, labels={**labels, **(options.labels or {})})


def _is_label(comment: str) -> bool:
    return 0 < len(comment) <= _MAX_LABEL


def _next_batch_rows(rows: Sequence[Any]) -> int:
    """Return how many rows to fetch next, from the size of the last ones."""
    size = sum(map(row_size, rows))
    return max(1, min(_MAX_BATCH_ROWS, _BATCH_CHARACTERS * len(rows) // max(size, 1)))
