"""Tables of the catalog."""

from __future__ import annotations

import json
import sqlite3

from langchain_agentrag import metadata as codec
from langchain_agentrag.times import EXPIRY_KEY, parse_time, to_microseconds

FORMAT = 1
"""Version of the schema below; a newer one is refused, an older one is migrated on open."""

SCHEMA = """
CREATE TABLE manifest(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE partitions(
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner TEXT UNIQUE,                      -- NULL: shared
    name TEXT NOT NULL UNIQUE,              -- of the keyword folder; an index that is made anew gets a new name
    collection TEXT UNIQUE,                 -- of the Chroma collection; NULL: Chroma does not hold the partition
    indexed INTEGER NOT NULL DEFAULT 0,     -- the collection holds the live rows up to this one, and no other
    generation INTEGER NOT NULL DEFAULT 0,  -- grows with every commit that touches the partition
    removals INTEGER NOT NULL DEFAULT 0,    -- rows that ever died
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
    signature BLOB NOT NULL,                -- of everything that was given; equal means unchanged
    source TEXT, item TEXT,                 -- connector and its key, or NULL
    UNIQUE(partition, doc_id)
);
CREATE INDEX documents_item ON documents(source, item);
CREATE TABLE chunks(
    row INTEGER PRIMARY KEY,                -- id in both legs, never reused
    partition INTEGER NOT NULL,
    document INTEGER NOT NULL REFERENCES documents(id),
    ordinal INTEGER NOT NULL,
    start INTEGER NOT NULL, stop INTEGER NOT NULL,
    text TEXT NOT NULL, context TEXT NOT NULL, locator TEXT NOT NULL,
    hash BLOB NOT NULL,                     -- of what the model embedded
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
    # only of documents that expire; `at` is in microseconds since 1970
    "CREATE TABLE IF NOT EXISTS expiry(document INTEGER PRIMARY KEY REFERENCES documents(id), "
    "partition INTEGER NOT NULL, at INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS expiry_at ON expiry(partition, at)",
)

_QUARANTINE = (  # only of documents that no search finds unless it asks for them
    "CREATE TABLE IF NOT EXISTS quarantine(document INTEGER PRIMARY KEY REFERENCES documents(id), "
    "partition INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS quarantine_partition ON quarantine(partition)",
)

QUARANTINED = "quarantined"
"""Metadata key; True keeps a document out of every search that does not ask for such documents."""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty catalog, unless another process has made them while this one waited."""
    connection.execute("BEGIN IMMEDIATE")
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'manifest'").fetchone():
        for statement in (*SCHEMA.split(";\n"), *_EXPIRY, *_QUARANTINE):
            if statement.strip():
                connection.execute(statement)
        connection.execute("INSERT INTO manifest VALUES ('format', ?)", (json.dumps(FORMAT),))
    connection.execute("COMMIT")


def migrate(connection: sqlite3.Connection) -> None:
    """Give a catalog that was made earlier what it lacks."""
    if not (_has(connection, "expiry") and _has(connection, "quarantine") and _has_indexed(connection)):
        connection.execute("BEGIN IMMEDIATE")
        if not _has(connection, "expiry"):
            _add_expiry(connection)
        if not _has(connection, "quarantine"):
            _add_quarantine(connection)
        if not _has_indexed(connection):
            _add_indexed(connection)
        connection.execute("COMMIT")


def _has(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return connection.execute(query, (table,)).fetchone() is not None


def _has_indexed(connection: sqlite3.Connection) -> bool:
    return "indexed" in {row[1] for row in connection.execute("PRAGMA table_info(partitions)")}


def _add_indexed(connection: sqlite3.Connection) -> None:
    """Before rows could wait to be handed over, every collection held all of its partition's."""
    connection.execute("ALTER TABLE partitions ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0")
    connection.execute(
        "UPDATE partitions SET indexed = (SELECT value - 1 FROM counters WHERE name = 'row') "
        "WHERE collection IS NOT NULL"
    )


def _add_quarantine(connection: sqlite3.Connection) -> None:
    """Note what is quarantined; before, the key had no meaning."""
    for statement in _QUARANTINE:
        connection.execute(statement)
    found = connection.execute(
        "SELECT id, partition, metadata FROM documents WHERE instr(metadata, ?)", (QUARANTINED,)
    ).fetchall()
    for document, partition, packed in found:
        if codec.decode(packed).get(QUARANTINED) is True:
            connection.execute("INSERT INTO quarantine VALUES (?, ?)", (document, partition))


def _add_expiry(connection: sqlite3.Connection) -> None:
    """Note what expires; before, no document could."""
    for statement in _EXPIRY:
        connection.execute(statement)
    found = connection.execute(
        "SELECT id, partition, metadata FROM documents WHERE instr(metadata, ?)", (EXPIRY_KEY,)
    ).fetchall()
    for document, partition, packed in found:
        when = parse_time(codec.decode(packed).get(EXPIRY_KEY))
        if when is not None:
            connection.execute(
                "INSERT OR REPLACE INTO expiry VALUES (?, ?, ?)", (document, partition, to_microseconds(when))
            )
