"""Creation of the catalog's tables (`schema.sql`), and its migrations."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any

from langchain_agentrag import metadata as codec
from langchain_agentrag.times import EXPIRY_KEY, parse_time, to_microseconds

FORMAT = 1
"""Version of the schema; a store of another version is refused. Tables added since are created on open."""

QUARANTINED = "quarantined"
"""Metadata key; True excludes a document from every search that does not ask for such documents."""


def create(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty catalog, unless another process created them while this one waited."""
    connection.execute("BEGIN IMMEDIATE")
    if not _has_table(connection, "manifest"):
        for statement in _statements():
            connection.execute(statement)
        connection.execute("INSERT INTO manifest VALUES ('format', ?)", (json.dumps(FORMAT),))
    connection.execute("COMMIT")


def _statements() -> list[str]:
    script = (files("langchain_agentrag.store") / "schema.sql").read_text(encoding="utf-8")
    return [statement for statement in script.split(";\n") if statement.strip()]


def migrate(connection: sqlite3.Connection) -> None:
    """Add the tables and columns that a catalog of an earlier version lacks."""
    if _missing(connection):
        connection.execute("BEGIN IMMEDIATE")
        missing = _missing(connection)  # again: another process may have added some meanwhile
        for statement in _statements():
            if "IF NOT EXISTS" in statement:
                connection.execute(statement)
        for fill in missing:
            fill(connection)
        connection.execute("COMMIT")


def _missing(connection: sqlite3.Connection) -> list[Callable[[sqlite3.Connection], None]]:
    """Return a function per table or column that a catalog lacks; it fills in its values."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(partitions)")}
    present = {
        _fill_expiry: _has_table(connection, "expiry"),
        _fill_quarantine: _has_table(connection, "quarantine"),
        _add_indexed: "indexed" in columns,
        _remove_stale_records: _has_table(connection, "records_key"),
    }
    return [fill for fill, is_present in present.items() if not is_present]


def _has_table(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return connection.execute(query, (table,)).fetchone() is not None


def _add_indexed(connection: sqlite3.Connection) -> None:
    """Add the column `indexed`; before it existed, a collection held all rows of its partition."""
    connection.execute("ALTER TABLE partitions ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0")
    connection.execute(
        "UPDATE partitions SET indexed = (SELECT value - 1 FROM counters WHERE name = 'row') "
        "WHERE collection IS NOT NULL"
    )


def _remove_stale_records(connection: sqlite3.Connection) -> None:
    """Remove the records of deleted documents; their groups are names of sources."""
    connection.execute(
        "DELETE FROM records WHERE NOT EXISTS (SELECT 1 FROM documents d JOIN partitions p ON p.id = d.partition "
        "WHERE d.doc_id = records.key AND p.owner IS nullif(records.owner, ''))"
    )


def _fill_quarantine(connection: sqlite3.Connection) -> None:
    """Fill the table of quarantined documents from their metadata."""
    for document, partition, metadata in _documents_with(connection, QUARANTINED):
        if metadata.get(QUARANTINED) is True:
            connection.execute("INSERT INTO quarantine VALUES (?, ?)", (document, partition))


def _fill_expiry(connection: sqlite3.Connection) -> None:
    """Fill the table of expiring documents from their metadata."""
    for document, partition, metadata in _documents_with(connection, EXPIRY_KEY):
        expiry = parse_time(metadata.get(EXPIRY_KEY))
        if expiry is not None:
            values = document, partition, to_microseconds(expiry)
            connection.execute("INSERT OR REPLACE INTO expiry VALUES (?, ?, ?)", values)


def _documents_with(connection: sqlite3.Connection, key: str) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yield (id, partition, metadata) of the documents whose metadata may hold a key."""
    query = "SELECT id, partition, metadata FROM documents WHERE instr(metadata, ?)"
    for document, partition, packed in connection.execute(query, (key,)).fetchall():
        yield document, partition, codec.decode(packed)
