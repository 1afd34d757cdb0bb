"""What one atomic write consists of, and the statements that make it true in the catalog."""

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
"""Vectors of dead chunks kept per partition, so that text that comes back is not embedded again."""


@dataclass(slots=True)
class PreparedChunk:
    """A chunk with all that both legs need."""

    chunk: Chunk
    hash: bytes
    terms: Terms
    vector: Vectors

    @property
    def lengths(self) -> tuple[int, ...]:
        """Length of each analysed field, in the order of `FIELDS`."""
        return tuple(self.terms.lengths.get(name, 0) for name in FIELDS)


@dataclass(slots=True)
class PreparedDocument:
    """A document ready to be written: everything slow is done."""

    document: SourceDocument
    signature: bytes
    chunks: list[PreparedChunk]
    source: str | None = None
    item: str | None = None


@dataclass(slots=True)
class Batch:
    """One atomic write.

    Attributes:
        puts: Documents to add or replace; a document without chunks is removed.
        removes: (owner, doc_id) of documents to remove.
        versions: (source, item) → version to remember; written with the documents it speaks of.
        gone: (source, item) to forget.
        keep_vectors: Whether vectors of removed chunks stay in the cache (a re-index) or go (a deletion).
        now: The present; what expired before is not there: putting it adds, removing it is no deletion.
        sweep: Whether only what has expired is removed.
    """

    puts: list[PreparedDocument] = field(default_factory=list)
    removes: list[tuple[str | None, str]] = field(default_factory=list)
    versions: dict[tuple[str, str], str | None] = field(default_factory=dict)
    gone: list[tuple[str, str]] = field(default_factory=list)
    keep_vectors: bool = True
    now: datetime = EPOCH
    sweep: bool = False


@dataclass(slots=True)
class PartitionDelta:
    """How one partition changed: documents and chunks more (or fewer), field lengths more, rows that died."""

    documents: int = 0
    chunks: int = 0
    tokens: list[int] = field(default_factory=lambda: [0] * len(FIELDS))
    dead: list[int] = field(default_factory=list)

    def count(self, lengths: Iterable[int], sign: int) -> None:
        """Add (1) or take away (-1) one chunk with these field lengths."""
        self.chunks += sign
        self.tokens = [total + sign * length for total, length in zip(self.tokens, lengths, strict=True)]


@dataclass(slots=True)
class CommitResult:
    """What a committed batch did: documents added, updated and deleted, chunks written, and each partition's change."""

    added: int = 0
    updated: int = 0
    deleted: int = 0
    chunks: int = 0
    deltas: dict[int, PartitionDelta] = field(default_factory=lambda: defaultdict(PartitionDelta))


def embedding_text(chunk: Chunk) -> str:
    """What the model sees of a chunk: its context, then its text."""
    return f"{chunk.context}\n{chunk.text}" if chunk.context else chunk.text


def embedding_hash(text: str) -> bytes:
    """Key of a text in the embedding cache (BLAKE2b, 16 bytes)."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def document_signature(document: SourceDocument, settings: str) -> bytes:
    """Equal for two documents exactly when writing one over the other would change nothing (BLAKE2b, 16 bytes)."""
    sections = [
        [section.start, section.end, codec.encode(section.locator), section.context, section.joinable]
        for section in document.sections
    ]
    parts = [document.text, codec.encode(document.metadata), document.kind, sections, settings]
    return embedding_hash(json.dumps(parts))


def pack_terms(terms: Terms) -> str:
    """Analysed fields as one string; the inverse is `unpack_terms`."""
    return "\n".join(" ".join(getattr(terms, name)) for name in FIELDS)


def unpack_terms(packed: str, lengths: str) -> Terms:
    """Analysed fields from the catalog."""
    lists = [line.split(" ") if line else [] for line in packed.split("\n")]
    return Terms(**dict(zip(FIELDS, lists, strict=True)), lengths=unpack_lengths(lengths))


def pack_lengths(terms: Terms) -> str:
    """Lengths of the analysed fields as one string; the inverse is `unpack_lengths`."""
    return " ".join(str(terms.lengths.get(name, 0)) for name in FIELDS)


def unpack_lengths(packed: str) -> dict[str, int]:
    """Field → length."""
    return dict(zip(FIELDS, map(int, packed.split(" ")), strict=True))


def pack_vector(vector: Vectors) -> bytes:
    """Little-endian float32 bytes of a vector."""
    return np.ascontiguousarray(vector, dtype="<f4").tobytes()


def commit(
    connection: sqlite3.Connection,
    batch: Batch,
    partitions: Mapping[str | None, int],
    rows: Mapping[int, range],
) -> CommitResult:
    """Make a batch true: new rows live, replaced and removed ones dead. Runs inside a transaction.

    Args:
        connection: The open transaction.
        batch: What to write.
        partitions: Owner → partition id, for every owner in the batch.
        rows: Partition id → row ids reserved for it, consumed in order.
    """
    outcome = CommitResult()
    free = {partition: iter(reserved) for partition, reserved in rows.items()}
    for put in batch.puts:
        partition = partitions[put.document.agent_id]
        tally = outcome.deltas[partition]
        document, existed = _replace_document(connection, put, partition, tally, batch)
        _insert_chunks(connection, put, partition, document, free[partition])
        _note_expiry(connection, put, partition, document)
        _note_quarantine(connection, put, partition, document)
        for part in put.chunks:
            tally.count(part.lengths, 1)
        tally.documents += not existed
        outcome.chunks += len(put.chunks)
        outcome.updated += existed
        outcome.added += not existed
    for owner, doc_id in batch.removes:
        partition = partitions[owner]
        found = _find(connection, partition, doc_id)
        expired = found is not None and _has_expired(connection, found, batch.now)
        if found is not None and (expired or not batch.sweep):
            _remove_document(connection, partition, found, outcome.deltas[partition], keep=batch.keep_vectors)
            outcome.deleted += expired is batch.sweep
    connection.executemany(
        "INSERT OR REPLACE INTO items VALUES (?, ?, ?)",
        [(source, item, version) for (source, item), version in batch.versions.items()],
    )
    connection.executemany("DELETE FROM items WHERE source = ? AND item = ?", batch.gone)
    for partition, tally in outcome.deltas.items():
        _count(connection, partition, tally)
    return outcome


def _find(connection: sqlite3.Connection, partition: int, doc_id: str) -> int | None:
    found = connection.execute(
        "SELECT id FROM documents WHERE partition = ? AND doc_id = ?", (partition, doc_id)
    ).fetchone()
    return None if found is None else int(found[0])


def _has_expired(connection: sqlite3.Connection, document: int, now: datetime) -> bool:
    query = "SELECT 1 FROM expiry WHERE document = ? AND at <= ?"
    return connection.execute(query, (document, to_microseconds(now))).fetchone() is not None


def _note_expiry(
    connection: sqlite3.Connection, put: PreparedDocument, partition: int, document: int
) -> None:
    connection.execute("DELETE FROM expiry WHERE document = ?", (document,))
    expiry = document_expiry(put.document.metadata)
    if expiry is not None:
        connection.execute(
            "INSERT INTO expiry VALUES (?, ?, ?)", (document, partition, to_microseconds(expiry))
        )


def _note_quarantine(
    connection: sqlite3.Connection, put: PreparedDocument, partition: int, document: int
) -> None:
    connection.execute("DELETE FROM quarantine WHERE document = ?", (document,))
    if put.document.metadata.get(QUARANTINED) is True:
        connection.execute("INSERT INTO quarantine VALUES (?, ?)", (document, partition))


def _replace_document(
    connection: sqlite3.Connection, put: PreparedDocument, partition: int, tally: PartitionDelta, batch: Batch
) -> tuple[int, bool]:
    document, chunks = put.document, put.chunks
    whole = len(chunks) == 1 and chunks[0].chunk.text == document.text
    values = (
        None if whole else document.text,
        codec.encode(document.metadata),
        put.signature,
        put.source,
        put.item,
    )
    found = _find(connection, partition, document.doc_id)
    if found is not None and _has_expired(connection, found, batch.now):
        _remove_document(connection, partition, found, tally, keep=batch.keep_vectors)
        found = None
    if found is None:
        inserted = connection.execute(
            "INSERT INTO documents(text, metadata, signature, source, item, partition, doc_id) VALUES (?,?,?,?,?,?,?)",
            (*values, partition, document.doc_id),
        )
        return int(inserted.lastrowid or 0), False
    _kill_chunks(connection, partition, found, tally, keep=batch.keep_vectors)
    connection.execute(
        "UPDATE documents SET text = ?, metadata = ?, signature = ?, source = ?, item = ? WHERE id = ?",
        (*values, found),
    )
    return found, True


def _insert_chunks(
    connection: sqlite3.Connection, put: PreparedDocument, partition: int, document: int, free: Iterable[int]
) -> None:
    numbered = list(zip(put.chunks, free, strict=False))
    connection.executemany(
        "INSERT INTO chunks VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
        [
            (
                row,
                partition,
                document,
                part.chunk.chunk_id,
                part.chunk.start,
                part.chunk.end,
                part.chunk.text,
                part.chunk.context,
                codec.encode(part.chunk.locator),
                part.hash,
                pack_terms(part.terms),
                pack_lengths(part.terms),
            )
            for part, row in numbered
        ],
    )
    connection.executemany(
        "INSERT INTO vectors VALUES (?, ?)", [(row, pack_vector(p.vector)) for p, row in numbered]
    )
    connection.executemany(
        "DELETE FROM embedding_cache WHERE partition = ? AND hash = ?",
        [(partition, p.hash) for p, _ in numbered],
    )


def _remove_document(
    connection: sqlite3.Connection, partition: int, document: int, tally: PartitionDelta, *, keep: bool
) -> None:
    # a source that still holds the document shall bring it back: forget what version of the item was read
    connection.execute(
        "DELETE FROM items WHERE (source, item) IN (SELECT source, item FROM documents WHERE id = ?)",
        (document,),
    )
    _kill_chunks(connection, partition, document, tally, keep=keep)
    connection.execute("DELETE FROM expiry WHERE document = ?", (document,))
    connection.execute("DELETE FROM quarantine WHERE document = ?", (document,))
    connection.execute("DELETE FROM documents WHERE id = ?", (document,))
    tally.documents -= 1


def _kill_chunks(
    connection: sqlite3.Connection, partition: int, document: int, tally: PartitionDelta, *, keep: bool
) -> None:
    dead = connection.execute("SELECT row, lengths FROM chunks WHERE document = ?", (document,)).fetchall()
    if keep:
        connection.execute(
            "INSERT OR IGNORE INTO embedding_cache SELECT c.partition, c.hash, v.vector "
            "FROM chunks c JOIN vectors v USING (row) WHERE c.document = ?",
            (document,),
        )
    else:
        # not only what is in the document now: earlier versions of it are in the cache too
        connection.execute("DELETE FROM embedding_cache WHERE partition = ?", (partition,))
    connection.executemany("DELETE FROM vectors WHERE row = ?", [(row,) for row, _ in dead])
    connection.execute("DELETE FROM chunks WHERE document = ?", (document,))
    for row, lengths in dead:
        tally.dead.append(row)
        tally.count(unpack_lengths(lengths).values(), -1)


def _count(connection: sqlite3.Connection, partition: int, tally: PartitionDelta) -> None:
    packed = connection.execute("SELECT tokens FROM partitions WHERE id = ?", (partition,)).fetchone()[0]
    before = json.loads(packed) or [0] * len(FIELDS)
    connection.execute(
        "UPDATE partitions SET generation = generation + 1, removals = removals + ?, documents = documents + ?, "
        "chunks = chunks + ?, tokens = ? WHERE id = ?",
        (
            len(tally.dead),
            tally.documents,
            tally.chunks,
            json.dumps([total + change for total, change in zip(before, tally.tokens, strict=True)]),
            partition,
        ),
    )
    if tally.dead:
        connection.execute(
            "DELETE FROM embedding_cache WHERE partition = ? AND rowid <= "
            "(SELECT rowid FROM embedding_cache WHERE partition = ? ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
            (partition, partition, EMBEDDING_CACHE_LIMIT),
        )
