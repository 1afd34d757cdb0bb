"""One atomic write: its batch, and the statements that commit it to the catalog."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from langchain_agentrag import metadata as codec
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.schema import QUARANTINED
from langchain_agentrag.text import FIELDS, Terms
from langchain_agentrag.times import EPOCH, document_expiry, to_microseconds
from langchain_agentrag.types import Chunk, SourceDocument

EMBEDDING_CACHE_LIMIT = 20_000
"""Vectors of deleted chunks kept per partition until they are purged: text that only moved is not embedded again."""


@dataclass(slots=True)
class PreparedChunk:
    """Chunk with its terms, its vector and the hash of its embedded text."""

    chunk: Chunk
    hash: bytes
    terms: Terms
    vector: Vectors


@dataclass(slots=True)
class PreparedDocument:
    """Document ready to be written: chunked, analysed and embedded."""

    document: SourceDocument
    signature: bytes
    chunks: list[PreparedChunk]
    source: str | None = None
    item: str | None = None


@dataclass(slots=True)
class Batch:
    """One atomic write.

    Attributes:
        puts: Documents to add or replace.
        removes: (owner, doc_id) of documents to delete.
        versions: (source, item) → version to store, in the same commit as the documents of the item.
        forgotten_items: (source, item) whose version is deleted.
        keep_vectors: Whether vectors of deleted chunks stay in the embedding cache until they are purged (a re-index)
            or not (a deletion).
        now: The present. An expired document counts as absent: replacing it adds one, removing it deletes none.
        expired_only: Whether only expired documents are deleted.
    """

    puts: list[PreparedDocument] = field(default_factory=list)
    removes: list[tuple[str | None, str]] = field(default_factory=list)
    versions: dict[tuple[str, str], str | None] = field(default_factory=dict)
    forgotten_items: list[tuple[str, str]] = field(default_factory=list)
    keep_vectors: bool = True
    now: datetime = EPOCH
    expired_only: bool = False


@dataclass(slots=True)
class PartitionDelta:
    """Change of one partition.

    Attributes:
        documents: Documents more or less.
        chunks: Chunks more or less.
        tokens: Change of the total length of each field.
        dead: Rows deleted.
        outdated: Documents deleted or replaced.
    """

    documents: int = 0
    chunks: int = 0
    tokens: list[int] = field(default_factory=lambda: [0] * len(FIELDS))
    dead: list[int] = field(default_factory=list)
    outdated: int = 0

    def count(self, lengths: Iterable[int], sign: int) -> None:
        """Count one chunk with these field lengths as added (1) or deleted (-1)."""
        self.chunks += sign
        self.tokens = [total + sign * length for total, length in zip(self.tokens, lengths, strict=True)]


@dataclass(slots=True)
class CommitResult:
    """Result of a committed batch.

    Attributes:
        added: Documents added.
        updated: Documents replaced.
        deleted: Documents deleted.
        chunks: Chunks written.
        deltas: Change per partition.
        names_deleted: Whether names of items or records were deleted.
    """

    added: int = 0
    updated: int = 0
    deleted: int = 0
    chunks: int = 0
    deltas: dict[int, PartitionDelta] = field(default_factory=lambda: defaultdict(PartitionDelta))
    names_deleted: bool = False


def embedding_text(chunk: Chunk) -> str:
    """Return the text of a chunk that is embedded: its context, then its text."""
    return f"{chunk.context}\n{chunk.text}" if chunk.context else chunk.text


def embedding_hash(text: str) -> bytes:
    """Return the key of a text in the embedding cache (BLAKE2b, 16 bytes)."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def document_signature(document: SourceDocument, settings: str) -> bytes:
    """Return a hash (BLAKE2b, 16 bytes) that is equal when replacing one document by the other changes nothing."""
    sections = [
        [section.start, section.end, codec.encode(section.locator), section.context, section.joinable]
        for section in document.sections
    ]
    parts = [document.text, codec.encode(document.metadata), document.kind, sections, settings]
    if document.context:  # otherwise the signature is that of versions without a context
        parts.append(document.context)
    return embedding_hash(json.dumps(parts))


def pack_terms(terms: Terms) -> str:
    """Encode analysed fields as one string; the inverse is `unpack_terms`."""
    return "\n".join(" ".join(getattr(terms, name)) for name in FIELDS)


def unpack_terms(packed: str, lengths: str) -> Terms:
    """Decode analysed fields."""
    lists = {name: text.split(" ") if text else [] for name, text in split_fields(packed).items()}
    return Terms(**lists, lengths=unpack_lengths(lengths))


def split_fields(packed: str) -> dict[str, str]:
    """Return field → its terms separated by spaces, from `pack_terms`."""
    return dict(zip(FIELDS, packed.split("\n"), strict=True))


def pack_lengths(terms: Terms) -> str:
    """Encode the lengths of analysed fields as one string; the inverse is `unpack_lengths`."""
    return " ".join(str(terms.lengths.get(name, 0)) for name in FIELDS)


def unpack_lengths(packed: str) -> dict[str, int]:
    """Decode field lengths: field → length."""
    return dict(zip(FIELDS, map(int, packed.split(" ")), strict=True))


def pack_vector(vector: Vectors) -> bytes:
    """Encode a vector as little-endian float32."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def commit(
    connection: sqlite3.Connection, batch: Batch, partitions: Mapping[str | None, int], rows: Mapping[int, range]
) -> CommitResult:
    """Write a batch to the catalog within a transaction: new rows become live, replaced and removed ones are deleted.

    Args:
        connection: The open transaction.
        batch: The batch.
        partitions: Owner → partition id, for every owner in the batch.
        rows: Partition id → row ids reserved for it, used in order.
    """
    result = CommitResult()
    row_ids = {partition: iter(reserved) for partition, reserved in rows.items()}
    for put in batch.puts:
        partition = partitions[put.document.agent_id]
        delta = result.deltas[partition]
        document, existed = _replace_document(connection, put, partition, delta, batch)
        _insert_chunks(connection, put, partition, document, row_ids[partition])
        _store_expiry(connection, put, partition, document)
        _store_quarantine(connection, put, partition, document)
        for chunk in put.chunks:
            delta.count((chunk.terms.lengths.get(name, 0) for name in FIELDS), 1)
        delta.documents += not existed
        result.chunks += len(put.chunks)
        result.updated += existed
        result.added += not existed
    for owner, doc_id in batch.removes:
        partition = partitions[owner]
        key = _document_key(connection, partition, doc_id)
        expired = key is not None and _has_expired(connection, key, batch.now)
        if key is not None and (expired or not batch.expired_only):
            _remove_document(connection, partition, key, result.deltas[partition], keep=batch.keep_vectors)
            result.deleted += expired is batch.expired_only
        if key is None or expired or not batch.expired_only:
            records = "DELETE FROM records WHERE owner = ? AND key = ?"  # their groups are names of sources
            result.names_deleted |= connection.execute(records, (owner or "", doc_id)).rowcount > 0
    versions = [(source, item, version) for (source, item), version in batch.versions.items()]
    connection.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?)", versions)
    forgotten = "DELETE FROM items WHERE source = ? AND item = ?"
    result.names_deleted |= connection.executemany(forgotten, batch.forgotten_items).rowcount > 0
    for partition, delta in result.deltas.items():
        _update_counts(connection, partition, delta)
    return result


def _document_key(connection: sqlite3.Connection, partition: int, doc_id: str) -> int | None:
    query = "SELECT id FROM documents WHERE partition = ? AND doc_id = ?"
    row = connection.execute(query, (partition, doc_id)).fetchone()
    return None if row is None else int(row[0])


def _has_expired(connection: sqlite3.Connection, document: int, now: datetime) -> bool:
    query = "SELECT 1 FROM expiry WHERE document = ? AND at <= ?"
    return connection.execute(query, (document, to_microseconds(now))).fetchone() is not None


def _store_expiry(connection: sqlite3.Connection, put: PreparedDocument, partition: int, document: int) -> None:
    connection.execute("DELETE FROM expiry WHERE document = ?", (document,))
    expiry = document_expiry(put.document.metadata)
    if expiry is not None:
        connection.execute("INSERT INTO expiry VALUES (?, ?, ?)", (document, partition, to_microseconds(expiry)))


def _store_quarantine(connection: sqlite3.Connection, put: PreparedDocument, partition: int, document: int) -> None:
    connection.execute("DELETE FROM quarantine WHERE document = ?", (document,))
    if put.document.metadata.get(QUARANTINED) is True:
        connection.execute("INSERT INTO quarantine VALUES (?, ?)", (document, partition))


def _replace_document(
    connection: sqlite3.Connection, put: PreparedDocument, partition: int, delta: PartitionDelta, batch: Batch
) -> tuple[int, bool]:
    document, chunks = put.document, put.chunks
    whole = len(chunks) == 1 and chunks[0].chunk.text == document.text
    values = (None if whole else document.text, codec.encode(document.metadata), put.signature, put.source, put.item)
    key = _document_key(connection, partition, document.doc_id)
    if key is not None and _has_expired(connection, key, batch.now):
        _remove_document(connection, partition, key, delta, keep=batch.keep_vectors)
        key = None
    if key is None:
        inserted = connection.execute(
            "INSERT INTO documents(text, metadata, signature, source, item, partition, doc_id) VALUES (?,?,?,?,?,?,?)",
            (*values, partition, document.doc_id),
        )
        return int(inserted.lastrowid or 0), False
    _delete_chunks(connection, partition, key, delta, keep=batch.keep_vectors)
    delta.outdated += 1
    query = "UPDATE documents SET text = ?, metadata = ?, signature = ?, source = ?, item = ? WHERE id = ?"
    connection.execute(query, (*values, key))
    return key, True


def _insert_chunks(
    connection: sqlite3.Connection, put: PreparedDocument, partition: int, document: int, row_ids: Iterable[int]
) -> None:
    for prepared, row in zip(put.chunks, row_ids, strict=False):
        chunk, terms = prepared.chunk, prepared.terms
        address = row, partition, document, chunk.chunk_id, chunk.start, chunk.end
        content = chunk.text, chunk.context, codec.encode(chunk.locator), prepared.hash
        values = (*address, *content, pack_terms(terms), pack_lengths(terms))
        connection.execute("INSERT INTO chunks VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", values)
        connection.execute("INSERT INTO vectors VALUES (?, ?)", (row, pack_vector(prepared.vector)))
        key = partition, prepared.hash
        connection.execute("DELETE FROM embedding_cache WHERE partition = ? AND hash = ?", key)


def _remove_document(
    connection: sqlite3.Connection, partition: int, document: int, delta: PartitionDelta, *, keep: bool
) -> None:
    # delete the version of its item, so that a source that still holds the document brings it back
    query = "DELETE FROM items WHERE (source, item) IN (SELECT source, item FROM documents WHERE id = ?)"
    connection.execute(query, (document,))
    _delete_chunks(connection, partition, document, delta, keep=keep)
    connection.execute("DELETE FROM expiry WHERE document = ?", (document,))
    connection.execute("DELETE FROM quarantine WHERE document = ?", (document,))
    connection.execute("DELETE FROM documents WHERE id = ?", (document,))
    delta.documents -= 1
    delta.outdated += 1


def _delete_chunks(
    connection: sqlite3.Connection, partition: int, document: int, delta: PartitionDelta, *, keep: bool
) -> None:
    deleted = connection.execute("SELECT row, lengths FROM chunks WHERE document = ?", (document,)).fetchall()
    if keep:
        connection.execute(
            "INSERT OR IGNORE INTO embedding_cache SELECT c.partition, c.hash, v.vector "
            "FROM chunks c JOIN vectors v USING (row) WHERE c.document = ?",
            (document,),
        )
    else:
        # the whole cache: it holds vectors of earlier versions of the document too
        connection.execute("DELETE FROM embedding_cache WHERE partition = ?", (partition,))
    connection.executemany("DELETE FROM vectors WHERE row = ?", [(row,) for row, _ in deleted])
    connection.execute("DELETE FROM chunks WHERE document = ?", (document,))
    for row, lengths in deleted:
        delta.dead.append(row)
        delta.count(unpack_lengths(lengths).values(), -1)


def _update_counts(connection: sqlite3.Connection, partition: int, delta: PartitionDelta) -> None:
    packed = connection.execute("SELECT tokens FROM partitions WHERE id = ?", (partition,)).fetchone()[0]
    totals = json.loads(packed) or [0] * len(FIELDS)
    tokens = json.dumps([total + change for total, change in zip(totals, delta.tokens, strict=True)])
    connection.execute(
        "UPDATE partitions SET generation = generation + 1, removals = removals + ?, documents = documents + ?, "
        "chunks = chunks + ?, tokens = ? WHERE id = ?",
        (len(delta.dead), delta.documents, delta.chunks, tokens, partition),
    )
    if delta.dead:
        connection.execute(
            "DELETE FROM embedding_cache WHERE partition = ? AND rowid <= "
            "(SELECT rowid FROM embedding_cache WHERE partition = ? ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
            (partition, partition, EMBEDDING_CACHE_LIMIT),
        )
