"""SQL schema of the catalog and its migrations."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_agentrag import metadata as codec
from langchain_agentrag.times import EXPIRY_KEY, parse_time, to_microseconds

FORMAT = 1
"""Version of the schema; a store of another version is refused. Tables added since are created on open."""

SCHEMA = """
CREATE TABLE manifest(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE partitions(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT UNIQUE,                      -- NULL: shared
    name TEXT NOT NULL UNIQUE,              -- of the keyword folder; a rebuilt index gets a new name
    collection TEXT UNIQUE,                 -- of the Chroma collection; NULL: there is none
    indexed INTEGER NOT NULL DEFAULT 0,     -- the collection holds the live rows up to this one, and no other
    generation INTEGER NOT NULL DEFAULT 0,  -- grows with every commit that changes the partition
    removals INTEGER NOT NULL DEFAULT 0,    -- number of rows ever deleted
    documents INTEGER NOT NULL DEFAULT 0,
    chunks INTEGER NOT NULL DEFAULT 0,
    tokens TEXT NOT NULL DEFAULT '[]'       -- total length of each analysed field
);
CREATE TABLE documents(
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- also the document order, kept when a document is replaced
    partition INTEGER NOT NULL REFERENCES partitions(id),
    doc_id TEXT NOT NULL,
    text TEXT,                              -- NULL: the only chunk is the whole text
    metadata TEXT NOT NULL,
    signature BLOB NOT NULL,                -- hash of text, metadata and settings; equal means unchanged
    source TEXT, item TEXT,                 -- connector and its key, or NULL
    UNIQUE(partition, doc_id)
);
CREATE INDEX documents_item ON documents(source, item);
CREATE TABLE chunks(
    row INTEGER PRIMARY KEY,                -- id in both indexes, never reused
    partition INTEGER NOT NULL,
    document INTEGER NOT NULL REFERENCES documents(id),
    ordinal INTEGER NOT NULL,
    start INTEGER NOT NULL, stop INTEGER NOT NULL,
    text TEXT NOT NULL, context TEXT NOT NULL, locator TEXT NOT NULL,
    hash BLOB NOT NULL,                     -- of the embedded text
    terms TEXT NOT NULL, lengths TEXT NOT NULL
);
CREATE UNIQUE INDEX chunks_address ON chunks(document, ordinal);
CREATE INDEX chunks_partition ON chunks(partition, row);
CREATE INDEX chunks_hash ON chunks(partition, hash);
CREATE TABLE vectors(row INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE embedding_cache(
    partition INTEGER NOT NULL, hash BLOB NOT NULL, vector BLOB NOT NULL, PRIMARY KEY(partition, hash)
);
CREATE TABLE items(source TEXT NOT NULL, item TEXT NOT NULL, version TEXT, PRIMARY KEY(source, item)) WITHOUT ROWID;
CREATE TABLE journal(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    partition INTEGER NOT NULL,
    state TEXT NOT NULL,                    -- see JournalEntry
    first INTEGER NOT NULL, last INTEGER NOT NULL,
    dead TEXT NOT NULL DEFAULT '[]'
);
CREATE TABLE counters(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('row', 1), ('chroma', 0);
"""

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
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'manifest'").fetchone():
        for statement in (*SCHEMA.split(";\n"), *_EXPIRY, *_QUARANTINE):
            if statement.strip():
                connection.execute(statement)
        connection.execute("INSERT INTO manifest VALUES ('format', ?)", (json.dumps(FORMAT),))
    connection.execute("COMMIT")


def migrate(connection: sqlite3.Connection) -> None:
    """Add the tables and columns that a catalog of an earlier version lacks."""
    if not (
        _has_table(connection, "expiry") and _has_table(connection, "quarantine") and _has_indexed(connection)
    ):
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
                "INSERT OR REPLACE INTO expiry VALUES (?, ?, ?)",
                (document, partition, to_microseconds(expiry)),
            )


def _documents_with(connection: sqlite3.Connection, key: str) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yield (id, partition, metadata) of the documents whose metadata may hold a key."""
    query = "SELECT id, partition, metadata FROM documents WHERE instr(metadata, ?)"
    for document, partition, packed in connection.execute(query, (key,)).fetchall():
        yield document, partition, codec.decode(packed)
