"""Read queries on the catalog: rows to score and to show, documents, passages by address."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from langchain_agentrag import metadata as codec
from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.filters import Filter, match
from langchain_agentrag.metadata import is_storable, short_repr
from langchain_agentrag.scope import Scope
from langchain_agentrag.store.calls import RunningCalls, store_call
from langchain_agentrag.store.catalog import Catalog, select_in
from langchain_agentrag.store.columnar_cache import filter_view, read_vectors, unpack_vectors
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.schema import QUARANTINED
from langchain_agentrag.text.chunking import speaker_of
from langchain_agentrag.times import document_time, to_microseconds
from langchain_agentrag.types import DocumentEntry, Passage, SourceDocument, StoredPassage, split_reference


class ScoringRow(NamedTuple):
    """Live row as needed for scoring. `document` is also the document order, which breaks ties."""

    row: int
    document: int
    ordinal: int
    terms: str
    lengths: str
    vector: bytes


class StoredRow(NamedTuple):
    """Live row as needed for a hit."""

    row: int
    owner: str | None
    doc_id: str
    ordinal: int
    start: int
    stop: int
    text: str
    context: str
    locator: str
    metadata: str
    whole: bool


class StoredDocument(NamedTuple):
    """Live document without its text; `key` is its id in the catalog."""

    key: int
    owner: str | None
    doc_id: str
    signature: bytes
    source: str | None
    item: str | None


def scoring_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> list[ScoringRow]:
    """Return the live ones of the rows with what scoring needs, in no particular order."""
    query = (
        "SELECT row, document, ordinal, terms, lengths, vector FROM chunks JOIN vectors USING (row) WHERE row IN (...)"
    )
    return list(map(ScoringRow._make, select_in(connection, query, rows)))


def stored_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, StoredRow]:
    """Return the live ones of the rows with what a hit shows, by row."""
    query = (
        "SELECT c.row, p.owner, d.doc_id, c.ordinal, c.start, c.stop, c.text, c.context, c.locator, d.metadata, "
        "d.text IS NULL "
        "FROM chunks c JOIN documents d ON d.id = c.document JOIN partitions p ON p.id = c.partition "
        "WHERE c.row IN (...)"
    )
    stored = (StoredRow._make((*values, bool(whole))) for *values, whole in select_in(connection, query, rows))
    return {row.row: row for row in stored}


_MAX_TEXTS = 20  # texts searched for by SQLite before metadata is decoded

NOT_EXPIRED = "NOT EXISTS (SELECT 1 FROM expiry e WHERE e.document = d.id AND e.at <= ?)"
"""SQL condition on a document `d`; its parameter is the present in microseconds."""


_DOCUMENT_COLUMNS = "d.id, p.owner, d.doc_id, d.signature, d.source, d.item"
_DOCUMENTS = "documents d JOIN partitions p ON p.id = d.partition"


def find_document(
    connection: sqlite3.Connection, owner: str | None, doc_id: str, now: datetime
) -> StoredDocument | None:
    """Return a document by owner and id, unless it has expired; None also for an id that SQLite cannot store."""
    if not isinstance(doc_id, str) or not is_storable(doc_id):
        return None
    query = f"SELECT {_DOCUMENT_COLUMNS} FROM {_DOCUMENTS} WHERE p.owner IS ? AND d.doc_id = ? AND {NOT_EXPIRED}"
    values = connection.execute(query, (owner, doc_id, to_microseconds(now))).fetchone()
    return None if values is None else StoredDocument._make(values)


def find_documents(
    connection: sqlite3.Connection, owner: str | None, doc_ids: Sequence[str], now: datetime
) -> dict[str, StoredDocument]:
    """Return the documents of an owner with these ids that have not expired, by id."""
    query = f"SELECT {_DOCUMENT_COLUMNS} FROM {_DOCUMENTS} WHERE p.owner IS ? AND d.doc_id IN (...) AND {NOT_EXPIRED}"
    rows = select_in(connection, query, doc_ids, before=(owner,), after=(to_microseconds(now),))
    return {document.doc_id: document for document in map(StoredDocument._make, rows)}


def documents_of(
    connection: sqlite3.Connection, owner: str | None, now: datetime, texts: frozenset[str] | None = None
) -> Iterator[tuple[StoredDocument, dict[str, Any]]]:
    """Yield every document of an owner that has not expired, with its metadata, in document order.

    Args:
        connection: A connection to the catalog.
        owner: Agent, or None for shared.
        now: The present.
        texts: Documents that hold none of these texts, neither in their metadata nor as their id, may be omitted:
            searching for a few texts is ten times quicker than decoding metadata.
    """
    prefilter, parameters = "TRUE", list[str]()
    if texts is not None and len(texts) <= _MAX_TEXTS and all(map(is_storable, texts)):
        encoded = [json.dumps(text, ensure_ascii=False) for text in texts]  # as in the stored metadata
        holds = [*["instr(d.metadata, ?)"] * len(texts), f"d.doc_id IN ({','.join('?' * len(texts))})"]
        prefilter, parameters = f"({' OR '.join(holds)})", [*encoded, *texts]
    for *values, metadata in connection.execute(
        f"SELECT {_DOCUMENT_COLUMNS}, d.metadata FROM {_DOCUMENTS} "
        f"WHERE p.owner IS ? AND {NOT_EXPIRED} AND {prefilter} ORDER BY d.id",
        (owner, to_microseconds(now), *parameters),
    ):
        yield StoredDocument._make(values), codec.decode(metadata)


def item_documents(connection: sqlite3.Connection, source: str, item: str) -> list[StoredDocument]:
    """Return the documents that came from one item of a connector."""
    query = f"SELECT {_DOCUMENT_COLUMNS} FROM {_DOCUMENTS} WHERE d.source = ? AND d.item = ?"
    return list(map(StoredDocument._make, connection.execute(query, (source, item))))


def item_versions(connection: sqlite3.Connection, source: str, items: Sequence[str]) -> dict[str, str | None]:
    """Return item → version of those of the items that a connector has delivered and still has."""
    query = "SELECT item, version FROM items WHERE source = ? AND item IN (...)"
    return dict(select_in(connection, query, items, before=(source,)))


def item_counts(connection: sqlite3.Connection, source: str, items: Sequence[str], now: datetime) -> dict[str, int]:
    """Return item → number of documents that have not expired, of those of the items that have any document."""
    query = f"SELECT item, sum({NOT_EXPIRED}) FROM documents d WHERE source = ? AND item IN (...) GROUP BY item"
    return dict(select_in(connection, query, items, before=(to_microseconds(now), source)))


def stored_items(connection: sqlite3.Connection, source: str) -> Iterator[list[str]]:
    """Yield the names of all items a connector has delivered and still has, in order, up to 500 at a time.

    Each part is a query of its own: the store may be written in between.
    """
    after = ""
    while True:
        rows = connection.execute(
            "SELECT item FROM items WHERE source = ?1 AND item >= ?2 UNION "
            "SELECT item FROM documents WHERE source = ?1 AND item >= ?2 ORDER BY item LIMIT 500",
            (source, after),
        ).fetchall()
        if not rows:
            return
        yield [item for (item,) in rows]
        after = rows[-1][0] + "\0"  # the smallest text greater than the last


def source_name(connector_id: str, agent_id: str | None) -> str:
    """Return the name of a source in the catalog; different for every pair of connector and agent."""
    if agent_id is None and not connector_id.startswith("["):
        return connector_id
    return json.dumps([connector_id, agent_id], ensure_ascii=False)


def sources_of(connection: sqlite3.Connection, owner: str) -> list[str]:
    """Return the names of the agent's own sources that have items."""
    suffix = source_name("", owner)[len('[""') :]  # what the names of all of the agent's sources end in
    sources = connection.execute("SELECT DISTINCT source FROM items")
    return [source for (source,) in sources if source.endswith(suffix) and _is_source_of(source, owner)]


def _is_source_of(source: str, owner: str) -> bool:
    try:
        names = json.loads(source)
    except ValueError:
        return False
    return isinstance(names, list) and len(names) == 2 and names[1] == owner  # noqa: PLR2004  (see `source_name`)


def has_names_of(connection: sqlite3.Connection, owner: str) -> bool:
    """Whether the catalog holds names of an agent besides its documents: items of its sources, or records."""
    query = "SELECT 1 FROM records WHERE owner = ? LIMIT 1"
    return connection.execute(query, (owner,)).fetchone() is not None or bool(sources_of(connection, owner))


def delete_names_of(connection: sqlite3.Connection, owner: str) -> bool:
    """Delete the names of an agent besides its documents within a transaction; return whether there were any."""
    deleted = connection.execute("DELETE FROM records WHERE owner = ?", (owner,)).rowcount
    for source in sources_of(connection, owner):
        deleted += connection.execute("DELETE FROM items WHERE source = ?", (source,)).rowcount
    return deleted > 0


def document_times(connection: sqlite3.Connection, documents: Sequence[int]) -> dict[int, datetime]:
    """Return the times of those of the documents that have one, by document."""
    query = "SELECT id, metadata FROM documents WHERE id IN (...)"
    times = {key: document_time(codec.decode(packed)) for key, packed in select_in(connection, query, documents)}
    return {key: time for key, time in times.items() if time is not None}


def document_speakers(connection: sqlite3.Connection, documents: Sequence[int]) -> dict[int, str]:
    """Return the speakers of those of the documents whose metadata names one, by document."""
    query = "SELECT id, metadata FROM documents WHERE id IN (...) AND instr(metadata, '\"speaker\"')"
    rows = select_in(connection, query, documents)
    return {key: speaker for key, packed in rows if (speaker := speaker_of(codec.decode(packed)))}


def cached_vectors(connection: sqlite3.Connection, owner: str | None, hashes: Sequence[bytes]) -> dict[bytes, Vectors]:
    """Return vectors of the owner's partition by the hash of their text, from live chunks and the embedding cache."""
    partition = connection.execute("SELECT id FROM partitions WHERE owner IS ?", (owner,)).fetchone()
    if partition is None:
        return {}
    vectors: dict[bytes, bytes] = {}
    for query in (
        "SELECT hash, vector FROM embedding_cache WHERE partition = ? AND hash IN (...)",
        "SELECT c.hash, v.vector FROM chunks c JOIN vectors v USING (row) WHERE c.partition = ? AND c.hash IN (...)",
    ):
        vectors.update(select_in(connection, query, hashes, before=partition))
    return {key: unpack_vectors([packed])[0] for key, packed in vectors.items()}


def chunk_spans(connection: sqlite3.Connection, document: int) -> list[tuple[int, int, str]]:
    """Return (start, stop, locator) of a document's chunks, in order."""
    query = "SELECT start, stop, locator FROM chunks WHERE document = ? ORDER BY ordinal"
    return connection.execute(query, (document,)).fetchall()


def document_text(connection: sqlite3.Connection, document: int) -> tuple[str, dict[str, Any]]:
    """Return the whole text and the metadata of a document."""
    text, first_chunk, metadata = connection.execute(
        "SELECT d.text, c.text, d.metadata FROM documents d JOIN chunks c ON c.document = d.id "
        "WHERE d.id = ? AND c.ordinal = 0",
        (document,),
    ).fetchone()
    return (first_chunk if text is None else text), codec.decode(metadata)


def parse_locator(packed: str) -> Mapping[str, Any]:
    """Return a chunk's locator from its stored form."""
    return {} if packed == "{}" else codec.decode(packed)


def read_passage(
    catalog: Catalog, now: datetime, scope: Scope, doc_id: str, chunk_id: int, before: int, after: int
) -> Passage:
    """Return the passage at an address within a scope: a chunk with its neighbours, as written in the document.

    Raises:
        InvalidQueryError: There is no such document or chunk in the scope. The message is the same for a document that
            does not exist and for one of another agent.
    """
    if not isinstance(doc_id, str):
        raise InvalidQueryError(f"Cannot read document {doc_id!r}: doc_id must be a string, as a search hit has it.")
    for name, value in (("chunk_id", chunk_id), ("before", before), ("after", after)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidQueryError(f"Cannot read with {name}={short_repr(value)}: it must be a whole number >= 0.")
    with catalog.snapshot() as connection:
        for owner in reversed(scope.owners):  # the agent's own document before a shared one
            document = find_document(connection, owner, doc_id, now)
            if document is not None and scope.admits(document.owner):
                break
        else:
            raise InvalidQueryError(
                f"There is no document {doc_id!r} to read here: take doc_id and chunk_id from a search hit."
            )
        spans = chunk_spans(connection, document.key)
        if chunk_id >= len(spans):
            raise InvalidQueryError(
                f"Document {doc_id!r} has no chunk {short_repr(chunk_id)}: its chunks are 0 to {len(spans) - 1}."
            )
        text, metadata = document_text(connection, document.key)
    first, last = max(0, chunk_id - before), min(len(spans) - 1, chunk_id + after)
    start, end = spans[first][0], spans[last][1]
    return Passage(
        doc_id=doc_id,
        chunk_id=chunk_id,
        text=text[start:end],
        start=start,
        end=end,
        first_chunk=first,
        last_chunk=last,
        total_chunks=len(spans),
        metadata=metadata,
        locator=parse_locator(spans[chunk_id][2]),
        agent_id=document.owner,
    )


def read_documents(
    catalog: Catalog, now: datetime, scope: Scope, doc_ids: Iterable[str] | None, condition: Filter | None = None
) -> list[SourceDocument]:
    """Return documents within a scope by id, in the order of the ids, by filter, or by both; omits absent ones."""
    names = None if doc_ids is None else dict.fromkeys(doc_ids)
    documents: dict[str, SourceDocument] = {}
    with catalog.snapshot() as connection:
        for owner in reversed(scope.owners):  # the agent's own document before a shared one
            for stored in _owner_documents(connection, owner, names, now):
                if stored.doc_id not in documents and scope.admits(stored.owner):
                    text, metadata = document_text(connection, stored.key)
                    documents[stored.doc_id] = SourceDocument(stored.doc_id, text, metadata, stored.owner)
    ordered = documents.values() if names is None else (documents[name] for name in names if name in documents)
    return [
        document
        for document in ordered
        if match(condition, filter_view(document.agent_id, document.doc_id, document.metadata, "{}"))
    ]


def list_documents(
    catalog: Catalog,
    now: datetime,
    owners: Sequence[str | None],
    condition: Filter | None,
    limit: int | None,
    offset: int,
) -> tuple[list[DocumentEntry], int]:
    """Return one page of the documents of some owners, and the number of all that match.

    Without a filter only the documents of the page are decoded.
    """
    source = f"FROM {_DOCUMENTS} WHERE p.owner IS ? AND {NOT_EXPIRED}"
    columns = "d.doc_id, p.owner, d.metadata, (SELECT count(*) FROM chunks c WHERE c.document = d.id)"
    entries: list[DocumentEntry] = []
    total = 0
    with catalog.snapshot() as connection:
        for owner in owners:
            values = (owner, to_microseconds(now))
            before = total
            page, parameters = "", tuple[int, ...]()
            if condition is None:
                total += connection.execute(f"SELECT count(*) {source}", values).fetchone()[0]
                wanted = -1 if limit is None else max(limit - len(entries), 0)
                page, parameters = "LIMIT ? OFFSET ?", (wanted, max(offset - before, 0))
            rows = connection.execute(f"SELECT {columns} {source} ORDER BY d.id {page}", (*values, *parameters))
            for doc_id, its_owner, packed, chunks in rows:
                metadata = codec.decode(packed)
                if condition is not None:
                    if not match(condition, filter_view(its_owner, doc_id, metadata, "{}")):
                        continue
                    total += 1
                    if total <= offset or (limit is not None and len(entries) >= limit):
                        continue
                entries.append(_document_entry(doc_id, its_owner, metadata, chunks))
    return entries, total


def _document_entry(doc_id: str, owner: str | None, metadata: Mapping[str, Any], chunks: int) -> DocumentEntry:
    source, quarantined = metadata.get("source"), metadata.get(QUARANTINED) is True
    return DocumentEntry(
        doc_id, doc_id if source is None else str(source), chunks, document_time(metadata), owner, quarantined
    )


def passage_rows(
    connection: sqlite3.Connection,
    now: datetime,
    scope: Scope,
    references: Sequence[str] | None,
    condition: Filter | None,
) -> Iterator[int]:
    """Yield the rows of the passages in a scope: the agent's documents, then the shared ones, in document order.

    A shared document is left out where the agent has one of the same id, as in every read by id.

    Args:
        connection: A connection to the catalog.
        now: The present.
        scope: Whose documents.
        references: Ids of documents, of which all passages are yielded, or of passages; None for all.
        condition: Filter of the passages, or None.
    """
    wanted = None if references is None else set(references)
    addresses = [address for reference in references or () if (address := split_reference(reference))]
    doc_ids = list(dict.fromkeys([*(references or ()), *(doc_id for doc_id, _ in addresses)]))
    query = (
        "SELECT c.row, d.doc_id, c.ordinal, d.text IS NULL, d.metadata, c.locator FROM chunks c "
        "JOIN documents d ON d.id = c.document JOIN partitions p ON p.id = d.partition "
        f"WHERE p.owner IS ? AND {NOT_EXPIRED}"
    )
    order = " ORDER BY d.id, c.ordinal"
    hidden: set[str] = set()
    for owner in reversed(scope.owners):
        parameters = (owner, to_microseconds(now))
        rows: Iterable[Any] = (
            connection.execute(query + order, parameters)
            if wanted is None
            else select_in(connection, f"{query} AND d.doc_id IN (...){order}", doc_ids, before=parameters)
        )
        own: set[str] = set()
        for row, doc_id, ordinal, whole, metadata, locator in rows:
            if doc_id in hidden:
                continue
            own.add(doc_id)
            reference = doc_id if whole else f"{doc_id}#{ordinal}"
            if wanted is not None and doc_id not in wanted and reference not in wanted:
                continue
            if condition is None or match(condition, filter_view(owner, doc_id, codec.decode(metadata), locator)):
                yield row
        hidden |= own


def read_passages(
    connection: sqlite3.Connection, scope: Scope, rows: Sequence[int], *, vectors: bool
) -> list[StoredPassage]:
    """Return the passages of rows in a scope, in the order of the rows; others are left out."""
    stored = stored_rows(connection, rows)
    by_row: dict[int, Vectors] = {}
    if vectors:
        live, matrix = read_vectors(connection, np.array(rows, dtype=np.int64))
        by_row = dict(zip(live.tolist(), matrix, strict=True))
    return [
        StoredPassage(
            chunk.doc_id,
            chunk.ordinal,
            chunk.text,
            codec.decode(chunk.metadata),
            parse_locator(chunk.locator),
            chunk.owner,
            chunk.whole,
            by_row.get(row),
        )
        for row in rows
        if (chunk := stored.get(row)) is not None and scope.admits(chunk.owner)
    ]


def row_of(connection: sqlite3.Connection, now: datetime, owner: str | None, doc_id: str, ordinal: int) -> int | None:
    """Return the row of a chunk by its address; None when there is none or it has expired."""
    document = find_document(connection, owner, doc_id, now)
    if document is None:
        return None
    query = "SELECT row FROM chunks WHERE document = ? AND ordinal = ?"
    found = connection.execute(query, (document.key, ordinal)).fetchone()
    return None if found is None else found[0]


def _owner_documents(
    connection: sqlite3.Connection, owner: str | None, names: Iterable[str] | None, now: datetime
) -> Iterator[StoredDocument]:
    if names is None:
        return (document for document, _ in documents_of(connection, owner, now))
    documents = (find_document(connection, owner, name, now) for name in names)
    return (document for document in documents if document is not None)


_NEVER = -(2**63)  # earlier than every expiry

_SELECT_OWNED = (
    "SELECT id, doc_id, metadata, coalesce(json_extract(metadata, '$.time.v'), '') FROM documents d "
    f"WHERE {NOT_EXPIRED} "
    "AND partition = (SELECT id FROM partitions WHERE owner IS ?)"
)


class OwnedDocument(NamedTuple):
    """Document of one owner; its metadata is decoded on access.

    Attributes:
        doc_id: Id of the document.
        packed: Its metadata as stored.
        time: The datetime of its metadata under "time" as stored, which sorts by time when all are in UTC; "" for none.
    """

    doc_id: str
    packed: str
    time: str

    @property
    def metadata(self) -> dict[str, Any]:
        """The decoded metadata."""
        return codec.decode(self.packed)


class OwnedDocuments:
    """Documents of one owner that have not expired; shared ones and those of other agents are out of reach.

    Args:
        catalog: The store's catalog.
        calls: Its running calls.
        owner: Agent, or None for shared.
        now: The present.
        expired: Whether expired documents that are still on disk are included.
    """

    def __init__(
        self, catalog: Catalog, calls: RunningCalls, owner: str | None, now: datetime, *, expired: bool = False
    ) -> None:
        self._catalog, self._calls, self._owner, self.now = catalog, calls, owner, now
        self._expired = expired

    @store_call
    def with_prefix(self, *prefixes: str) -> list[OwnedDocument]:
        """Return the documents whose id starts with one of the prefixes, in document order.

        Args:
            prefixes: None of them a prefix of another; each ends in an ASCII character.
        """
        rows: list[tuple[int, str, str, str]] = []
        with self._catalog.snapshot() as connection:
            for prefix in prefixes:
                rows += connection.execute(
                    f"{_SELECT_OWNED} AND doc_id >= ? AND doc_id < ?",
                    (*self._parameters, prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)),
                ).fetchall()
        return [OwnedDocument(*values) for _, *values in sorted(rows)]

    @store_call
    def find(self, doc_ids: Iterable[str]) -> list[OwnedDocument]:
        """Return the existing ones of the documents, in the order of the ids."""
        documents: list[OwnedDocument] = []
        connection = self._catalog.connection()
        for doc_id in doc_ids:
            row = connection.execute(f"{_SELECT_OWNED} AND doc_id = ?", (*self._parameters, doc_id)).fetchone()
            if row is not None:
                documents.append(OwnedDocument(*row[1:]))
        return documents

    @property
    def _parameters(self) -> tuple[int, str | None]:
        return _NEVER if self._expired else to_microseconds(self.now), self._owner
