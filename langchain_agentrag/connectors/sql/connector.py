"""DatabaseConnector: the rows of a table or query as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.connectors.sql.engine import check_select, connected, location, open_engine
from langchain_agentrag.connectors.sql.reflect import Table, find_table, select_all
from langchain_agentrag.connectors.sql.rows import (
    NoAgent,
    Reading,
    RowReader,
    conversion,
    size_of,
    template_parts,
    unique_names,
)
from langchain_agentrag.errors import UsageError
from langchain_agentrag.scope import check_agent_id

if TYPE_CHECKING:
    from sqlalchemy import Engine

_FETCHED: Final = 2**20
"""Characters to have in memory at once, roughly: how many rows that are is learnt from the rows."""
_MOST_ROWS: Final = 1_000
_LABEL: Final = 30
"""Characters of a column's comment that may stand for the column's name."""


class DatabaseConnector(BaseConnector):
    """Rows of a table, view or query as documents: PostgreSQL, MySQL, MariaDB, SQLite, DuckDB.

    The whole result is read at each sync, in one read-only transaction and a bounded part at a time; only rows that
    changed are indexed again, and rows that are gone are deleted. When reading fails on the way nothing is deleted.

    A document's id is `name:key`: `orders:17`, `order_items:17|3` for a key of two columns. Its metadata holds
    `type` ("row"), `table` and the columns under their names, with their types; a column that is called `type` or
    `table` takes that place. Values of more than 1,000 characters are text only, unless `metadata` names the column.
    A time that Python cannot hold, such as "infinity" or one before Christ, is text.
    A column `expires_at` ends its row: from that moment on nothing finds it. Where it means something else, as for
    coupons that are to be found when they have expired, leave it out with `metadata`, or name it otherwise in a query.

    One name is one source: what its connector no longer yields is deleted at the next sync. Two queries over one
    table need names of their own.
    """

    def __init__(
        self,
        source: Any,  # noqa: ANN401  (see Args)
        *,
        table: str | None = None,
        query: str | None = None,
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
        """Describe the source; nothing is connected yet.

        Args:
            source: A database URL or a SQLAlchemy `Engine`. A file that is given by its URL is never made.
            table: A table or view, "schema.table" outside the default schema.
            query: One SELECT instead. It runs as it is written: `:word`, `::type` and `%` mean what they mean to
                the database. Of two columns of one name the second gets "_2".
            key: Column or columns that tell rows apart; by default a table's primary key. A row whose key is NULL
                is refused and reported.
            content_addressed: For rows without a key: a row is addressed by what it holds. Equal rows are one
                document, and a changed row is a new one.
            text: Template of a document's text, like "{name} lives in {city}", NULL leaving nothing; or a function
                of the row as a dict, which is then asked for every row of every sync. By default the table's and
                the key's name, then a line for each column that holds something: "name: Ada", "姓名：张三".
            metadata: Columns to keep as metadata; None for all.
            labels: What to call columns in the default text; by default their comments, where they are short, or
                their names.
            agent_id: Owner of all rows, or None for shared.
            agent_column: Column that holds each row's owner instead: text as it is, integers and UUIDs as text.
            no_agent: What becomes of rows whose agent is NULL: reported as failed, left out, or shared with all.
            version_column: Column that changes with every change of the row, a time stamp or a counter; its value is
                then compared instead of the whole row. Rows where it is NULL are compared whole.
            name: First part of every document id and identity of the source; by default the table (of a query: the
                first after FROM), and the source is also told from others by its database. With a name of its own
                a source may move to another database and keep its documents.

        Raises:
            UsageError: settings contradict each other, or the URL cannot be read.
            MissingExtraError: the extra `sql` is not installed.
        """
        if (table is None) == (query is None):
            raise UsageError("DatabaseConnector needs either table=… or query=…: pass one of the two.")
        columns = (key,) if isinstance(key, str) else tuple(key or ())
        if content_addressed and columns:
            raise UsageError(
                "DatabaseConnector(key=…, content_addressed=True) contradict each other: pass one."
            )
        if query is not None and not columns and not content_addressed:
            raise UsageError(
                "DatabaseConnector(query=…) needs key='column', or several columns, that tell the rows apart; without "
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
        self._table, self._query = table, query
        called = table or check_select(query or "", self.engine.dialect.name)
        self._own_name = name
        self._reading = Reading(
            name=name or called,
            label=called.rpartition(".")[2],
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
        """Identity of the source: its name, and unless that was given, its database."""
        if self._own_name is not None:
            return f"sql:{self._own_name}"
        kind = "table" if self._table is not None else "query"
        return f"sql:{location(self.engine)}?{kind}={self._reading.name}"

    def items(self) -> Iterator[SourceItem | Gap]:
        """Every row: of a table in the order of its primary key, of a query as it comes.

        Raises:
            ConnectorError: the database cannot be reached, does not allow it, or refuses the statement.
            UsageError: there is no such table or column, or the table has no key.
        """
        what = f"the table {self._table!r}" if self._table else "the query"
        with connected(self.engine, what) as connection:
            table = None if self._table is None else find_table(connection, self._table)
            reading, sql = self._described(table)
            streamed = connection.execution_options(no_parameters=True, stream_results=True)
            with closing(streamed.exec_driver_sql(sql)) as result:
                yield from self._read(result, reading, table)

    def _read(self, result: Any, reading: Reading, table: Table | None) -> Iterator[SourceItem | Gap]:  # noqa: ANN401
        description = result.cursor.description if result.returns_rows else None
        if not description:
            raise UsageError("The query gives no rows: pass a SELECT. Nothing was read.")
        names = unique_names(str(column[0]) for column in description)
        dialect = self.engine.dialect.name
        declared = {column.name: column for column in table.columns} if table else {}
        typed = [dialect != "sqlite" or (name in declared and declared[name].one_type) for name in names]
        conversions = [
            conversion(declared[name].type, dialect) if name in declared else None for name in names
        ]
        reader = RowReader(reading, names, typed, conversions)
        number, size = 0, 10
        while rows := result.fetchmany(size):
            for row in rows:
                number += 1
                item = reader.item(row, number)
                if item is not None:
                    yield item
            size = _next_size(rows)
        yield from reader.unnamed()

    def _described(self, table: Table | None) -> tuple[Reading, str]:
        """What the table adds to what the caller said, and the statement that reads it."""
        if table is None:
            return self._reading, self._query or ""
        reading = self._reading
        if not reading.key and not reading.content_addressed:
            if not table.key:
                raise UsageError(
                    f"{'The view' if table.is_view else 'The table'} {table.full_name!r} has no primary key: pass "
                    "key='column', or several, that tell its rows apart, or content_addressed=True. Nothing was read."
                )
            reading = replace(reading, key=table.key)
        comments = {column.name: column.comment for column in table.columns if column.comment}
        short = {name: comment for name, comment in comments.items() if len(comment) <= _LABEL}
        label = table.comment if 0 < len(table.comment) <= _LABEL else reading.label
        return replace(reading, label=label, labels={**short, **(reading.labels or {})}), select_all(
            self.engine, table
        )


def _next_size(rows: Sequence[Any]) -> int:
    """How many rows to fetch next, from the size of the last ones."""
    size = sum(map(size_of, rows))
    return max(1, min(_MOST_ROWS, _FETCHED * len(rows) // max(size, 1)))
