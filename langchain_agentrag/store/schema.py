"""Creation of the catalog's tables (`schema.sql`), and its migrations."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from langchain_agentrag import metadata as codec
from langchain_agentrag.times import EXPIRY_KEY, parse_time, to_microseconds

FORMAT = 1
"""Version of the schema; a store of another version is refused. Tables added since are created on open."""

_EXPIRY = (
    # documents that expire; `at` is in microseconds since 1970
    "CREATE TABLE IF NOT EXISTS expiry(document INTEGER PRIMARY KEY REFERENCES documents(id), "
    "partition INTEGER NOT NULL, at INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS expiry_at ON expiry(partition, at)",
)

_QUARANTINE = (  # documents excluded from searches that do not ask for them
    "CREATE TABLE IF NOT EXISTS quarantine(document INTEGER PRIMARY KEY REFERENCES documents(id), "
    "partition INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS quarantine_partition ON quarantine(partition)",
)

QUARANTINED = "quarantined"
"""Metadata key; True excludes a document from every search that does not ask for such documents."""


def create(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty catalog, unless another process created them while this one waited."""
    tables = (files("langchain_agentrag.store") / "schema.sql").read_text(encoding="utf-8")
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'manifest'").fetchone():
        for statement in (*tables.split(";\n"), *_EXPIRY, *_QUARANTINE):
            if statement.strip():
                connection.execute(statement)
        connection.execute("INSERT INTO manifest VALUES ('format', ?)", (json.dumps(FORMAT),))
    connection.execute("COMMIT")


def migrate(connection: sqlite3.Connection) -> None:
    """Add the tables and columns that a catalog of an earlier version lacks."""
    if not (_has_table(connection, "expiry") and _has_table(connection, "quarantine") and _has_indexed(connection)):
        connection.execute("BEGIN IMMEDIATE")
        if not _has_table(connection, "expiry"):
            _add_expiry(connection)
        if not _has_table(connection, "quarantine"):
            _add_quarantine(connection)
        if not _has_indexed(connection):
            _add_indexed(connection)
        connection.execute("COMMIT")


def _has_table(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return connection.execute(query, (table,)).fetchone() is not None


def _has_indexed(connection: sqlite3.Connection) -> bool:
    return "indexed" in {row[1] for row in connection.execute("PRAGMA table_info(partitions)")}


def _add_indexed(connection: sqlite3.Connection) -> None:
    """Add the column `indexed`; before it existed, a collection held all rows of its partition."""
    connection.execute("ALTER TABLE partitions ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0")
    connection.execute(
        "UPDATE partitions SET indexed = (SELECT value - 1 FROM counters WHERE name = 'row') "
        "WHERE collection IS NOT NULL"
    )


def _add_quarantine(connection: sqlite3.Connection) -> None:
    """Add the table of quarantined documents and fill it from their metadata."""
    for statement in _QUARANTINE:
        connection.execute(statement)
    for document, partition, metadata in _documents_with(connection, QUARANTINED):
        if metadata.get(QUARANTINED) is True:
            connection.execute("INSERT INTO quarantine VALUES (?, ?)", (document, partition))


def _add_expiry(connection: sqlite3.Connection) -> None:
    """Add the table of expiring documents and fill it from their metadata."""
    for statement in _EXPIRY:
        connection.execute(statement)
    for document, partition, metadata in _documents_with(connection, EXPIRY_KEY):
        expiry = parse_time(metadata.get(EXPIRY_KEY))
        if expiry is not None:
            connection.execute(
                "INSERT OR REPLACE INTO expiry VALUES (?, ?, ?)", (document, partition, to_microseconds(expiry))
            )


def _documents_with(connection: sqlite3.Connection, key: str) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yield (id, partition, metadata) of the documents whose metadata may hold a key."""
    query = "SELECT id, partition, metadata FROM documents WHERE instr(metadata, ?)"
    for document, partition, packed in connection.execute(query, (key,)).fetchall():
        yield document, partition, codec.decode(packed)
