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

-- tables added since; "IF NOT EXISTS" marks the statements that a catalog of an earlier version needs
-- documents that expire; `at` is in microseconds since 1970
CREATE TABLE IF NOT EXISTS expiry(document INTEGER PRIMARY KEY REFERENCES documents(id), partition INTEGER NOT NULL, at INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS expiry_at ON expiry(partition, at);
-- documents excluded from searches that do not ask for them
CREATE TABLE IF NOT EXISTS quarantine(document INTEGER PRIMARY KEY REFERENCES documents(id), partition INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS quarantine_partition ON quarantine(partition);
-- keys of LangChain's record managers, see `record_keys.py`
CREATE TABLE IF NOT EXISTS records(
    owner TEXT NOT NULL,                    -- '' for shared: no agent id is empty
    namespace TEXT NOT NULL, key TEXT NOT NULL, grp TEXT, updated REAL NOT NULL,
    PRIMARY KEY(owner, namespace, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_key ON records(owner, key);
