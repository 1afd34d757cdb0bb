"""What readers ask the catalog: rows to score, rows to show, passages by address, what is known already."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from langchain_agentrag import metadata as codec
from langchain_agentrag.filters import EXPIRES, And, Condition, Filter, Not
from langchain_agentrag.store.catalog import Catalog, PartitionRow, batched
from langchain_agentrag.store.commit import unpack_terms
from langchain_agentrag.store.partition_cache import unpack_vectors
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.schema import QUARANTINED
from langchain_agentrag.text import FIELDS
from langchain_agentrag.text.chunking import speaker_of
from langchain_agentrag.times import EPOCH, document_time, to_microseconds


class ScoringRow(NamedTuple):
    """What scoring needs of a live row. `document` is also the document order that breaks ties."""

    row: int
    document: int
    ordinal: int
    terms: str
    lengths: str
    vector: bytes


class StoredRow(NamedTuple):
    """What a hit shows of a live row."""

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
    """What is known of a live document."""

    key: int
    owner: str | None
    doc_id: str
    signature: bytes
    source: str | None
    item: str | None


def scoring_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> list[ScoringRow]:
    """The live ones among the rows, in no particular order."""
    found: list[ScoringRow] = []
    for part in batched(rows):
        marks = ",".join("?" * len(part))
        found += map(
            ScoringRow._make,
            connection.execute(
                "SELECT row, document, ordinal, terms, lengths, vector FROM chunks JOIN vectors USING (row) "
                f"WHERE row IN ({marks})",
                tuple(part),
            ),
        )
    return found


def stored_rows(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, StoredRow]:
    """The live ones among the rows."""
    found: dict[int, StoredRow] = {}
    for part in batched(rows):
        marks = ",".join("?" * len(part))
        for values in connection.execute(
            "SELECT c.row, p.owner, d.doc_id, c.ordinal, c.start, c.stop, c.text, c.context, c.locator, d.metadata, "
            "d.text IS NULL "
            "FROM chunks c JOIN documents d ON d.id = c.document JOIN partitions p ON p.id = c.partition "
            f"WHERE c.row IN ({marks})",
            tuple(part),
        ):
            row = StoredRow._make((*values[:-1], bool(values[-1])))
            found[row.row] = row
    return found


_NEEDLES = 20  # texts that are looked for before metadata is decoded

NOT_EXPIRED = "NOT EXISTS (SELECT 1 FROM expiry e WHERE e.document = d.id AND e.at <= ?)"
"""Condition on a document `d` that takes the present in microseconds."""


def find_document(
    connection: sqlite3.Connection, owner: str | None, doc_id: str, now: datetime
) -> StoredDocument | None:
    """A document by its owner and id, unless it has expired; no document has an id that cannot be stored."""
    if not isinstance(doc_id, str) or not is_storable(doc_id):
        return None
    values = connection.execute(
        "SELECT d.id, p.owner, d.doc_id, d.signature, d.source, d.item FROM documents d "
        f"JOIN partitions p ON p.id = d.partition WHERE p.owner IS ? AND d.doc_id = ? AND {NOT_EXPIRED}",
        (owner, doc_id, to_microseconds(now)),
    ).fetchone()
    return None if values is None else StoredDocument._make(values)


def find_documents(
    connection: sqlite3.Connection, owner: str | None, doc_ids: Sequence[str], now: datetime
) -> dict[str, StoredDocument]:
    """Those of an owner's documents that are there and have not expired, by id."""
    found: dict[str, StoredDocument] = {}
    partition = connection.execute("SELECT id FROM partitions WHERE owner IS ?", (owner,)).fetchone()
    if partition is None:
        return found
    for start in range(0, len(doc_ids), 500):
        part = doc_ids[start : start + 500]
        marks = ",".join("?" * len(part))
        for key, doc_id, *rest in connection.execute(
            "SELECT id, doc_id, signature, source, item FROM documents d "
            f"WHERE partition = ? AND doc_id IN ({marks}) AND {NOT_EXPIRED}",
            (*partition, *part, to_microseconds(now)),
        ):
            found[doc_id] = StoredDocument(key, owner, doc_id, *rest)
    return found


def documents_of(
    connection: sqlite3.Connection, owner: str | None, now: datetime, texts: frozenset[str] | None = None
) -> Iterator[tuple[StoredDocument, dict[str, Any]]]:
    """Every document of an owner that has not expired, with its metadata, in document order.

    Args:
        connection: A connection to the catalog.
        owner: Agent, or None for shared.
        now: The present.
        texts: Documents without any of them, in their metadata or as their id, may be left out: looking for a few
            texts is ten times quicker than decoding.
    """
    likely, needles = "TRUE", list[str]()
    if texts is not None and len(texts) <= _NEEDLES and all(map(is_storable, texts)):
        written = [json.dumps(text, ensure_ascii=False) for text in texts]  # as in the text of the metadata
        hold = [*["instr(d.metadata, ?)"] * len(texts), f"d.doc_id IN ({','.join('?' * len(texts))})"]
        likely, needles = f"({' OR '.join(hold)})", [*written, *texts]
    for *values, metadata in connection.execute(
        "SELECT d.id, p.owner, d.doc_id, d.signature, d.source, d.item, d.metadata FROM documents d "
        f"JOIN partitions p ON p.id = d.partition WHERE p.owner IS ? AND {NOT_EXPIRED} AND {likely} ORDER BY d.id",
        (owner, to_microseconds(now), *needles),
    ):
        yield StoredDocument._make(values), codec.decode(metadata)


def item_documents(connection: sqlite3.Connection, source: str, item: str) -> list[StoredDocument]:
    """Documents that came from one item of a connector."""
    return [
        StoredDocument._make(values)
        for values in connection.execute(
            "SELECT d.id, p.owner, d.doc_id, d.signature, d.source, d.item FROM documents d "
            "JOIN partitions p ON p.id = d.partition WHERE d.source = ? AND d.item = ?",
            (source, item),
        )
    ]


def item_versions(connection: sqlite3.Connection, source: str, items: Sequence[str]) -> dict[str, str | None]:
    """Item → version, of those of at most 500 items that a connector delivered and still has."""
    marks = ",".join("?" * len(items))
    query = f"SELECT item, version FROM items WHERE source = ? AND item IN ({marks})"
    return dict(connection.execute(query, (source, *items)))


def item_counts(
    connection: sqlite3.Connection, source: str, items: Sequence[str], now: datetime
) -> dict[str, int]:
    """Item → number of documents that have not expired, of those of at most 500 items that have any document."""
    marks = ",".join("?" * len(items))
    return dict(
        connection.execute(
            f"SELECT item, sum({NOT_EXPIRED}) FROM documents d WHERE source = ? AND item IN ({marks}) GROUP BY item",
            (to_microseconds(now), source, *items),
        )
    )


def stored_items(connection: sqlite3.Connection, source: str) -> Iterator[list[str]]:
    """Names of everything a connector delivered and still has, in order, a part at a time.

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
        after = rows[-1][0] + "\0"  # the next text there can be


def document_times(connection: sqlite3.Connection, documents: Sequence[int]) -> dict[int, datetime]:
    """The times of those of the documents that have one."""
    found: dict[int, datetime] = {}
    for part in batched(documents):
        marks = ",".join("?" * len(part))
        query = f"SELECT id, metadata FROM documents WHERE id IN ({marks})"
        for key, metadata in connection.execute(query, tuple(part)):
            if (when := document_time(codec.decode(metadata))) is not None:
                found[key] = when
    return found


def document_speakers(connection: sqlite3.Connection, documents: Sequence[int]) -> dict[int, str]:
    """Who speaks in those of the documents that somebody says, by their metadata."""
    found: dict[int, str] = {}
    for part in batched(documents):
        marks = ",".join("?" * len(part))
        query = f"SELECT id, metadata FROM documents WHERE id IN ({marks}) AND instr(metadata, '\"speaker\"')"
        for key, metadata in connection.execute(query, tuple(part)):
            if name := speaker_of(codec.decode(metadata)):
                found[key] = name
    return found


def cached_vectors(
    connection: sqlite3.Connection, owner: str | None, hashes: Sequence[bytes]
) -> dict[bytes, Vectors]:
    """Vectors the owner's partition already has for these texts, from live chunks or the cache."""
    found: dict[bytes, bytes] = {}
    partition = connection.execute("SELECT id FROM partitions WHERE owner IS ?", (owner,)).fetchone()
    if partition is None:
        return {}
    for start in range(0, len(hashes), 500):
        part = hashes[start : start + 500]
        marks = ",".join("?" * len(part))
        for query in (
            f"SELECT hash, vector FROM embedding_cache WHERE partition = ? AND hash IN ({marks})",
            f"SELECT c.hash, v.vector FROM chunks c JOIN vectors v USING (row) "
            f"WHERE c.partition = ? AND c.hash IN ({marks})",
        ):
            found.update(connection.execute(query, (*partition, *part)))
    return {key: unpack_vectors([packed])[0] for key, packed in found.items()}


def chunk_spans(connection: sqlite3.Connection, document: int) -> list[tuple[int, int, str]]:
    """(start, stop, locator) of a document's chunks, in order."""
    return connection.execute(
        "SELECT start, stop, locator FROM chunks WHERE document = ? ORDER BY ordinal", (document,)
    ).fetchall()


def document_text(connection: sqlite3.Connection, document: int) -> tuple[str, dict[str, Any]]:
    """Whole text and metadata of a document."""
    text, only, metadata = connection.execute(
        "SELECT d.text, c.text, d.metadata FROM documents d JOIN chunks c ON c.document = d.id "
        "WHERE d.id = ? AND c.ordinal = 0",
        (document,),
    ).fetchone()
    return (only if text is None else text), codec.decode(metadata)


def is_storable(text: str) -> bool:
    """Whether SQLite can hold a text: a lone surrogate has no UTF-8 form."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def parse_locator(packed: str) -> Mapping[str, Any]:
    """A chunk's place."""
    return {} if packed == "{}" else codec.decode(packed)


_REMEMBERED = 64  # partitions whose expired rows are kept in memory


@dataclass(frozen=True, slots=True)
class VisiblePartition:
    """A partition without what has expired, and without what is quarantined where that is not asked for.

    Attributes:
        partition: The partition, with the counts of what is left.
        condition: Filter that keeps what is left; None when everything is.
        gone: Field → term → rows that are left out but are still in the keyword leg.
    """

    partition: PartitionRow
    condition: Filter | None = None
    excluded_doc_freqs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class PartitionVisibility:
    """What has expired in a store's catalog.

    Args:
        catalog: The catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[tuple[int, bool], tuple[tuple[int, int | None], VisiblePartition]] = {}

    def visible(
        self, partition: PartitionRow, now: datetime, *, quarantined: bool = True
    ) -> VisiblePartition:
        """The partition as it is at a moment; never older than `partition` says.

        Args:
            partition: The partition.
            now: The present.
            quarantined: Whether what is quarantined belongs to it.
        """
        query = "SELECT max(at) FROM expiry WHERE partition = ? AND at <= ?"
        values = (partition.id, to_microseconds(now))
        with self._catalog.snapshot() as connection:
            latest = connection.execute(query, values).fetchone()[0]
            hidden = not quarantined and _holds_quarantined(connection, partition.id)
            if latest is None and not hidden:
                return VisiblePartition(partition)
            current = self._catalog.partition(partition.owner)
            if current is None or current.id != partition.id:
                return VisiblePartition(
                    partition
                )  # it was forgotten meanwhile, and the search repeats itself
            stamp = (current.generation, latest)
            known = self._known.get((current.id, hidden))
            if known is None or known[0] != stamp:
                while len(self._known) >= _REMEMBERED:
                    self._known.pop(next(iter(self._known)), None)
                known = (stamp, _living(connection, current, latest, hidden=hidden))
                self._known[current.id, hidden] = known
            return known[1]

    def expired(self, now: datetime, at_least: int = 1) -> list[tuple[str | None, str]]:
        """(owner, doc_id) of everything that has expired and is still on disk, the first to expire first.

        Args:
            now: The present.
            at_least: Nothing is listed when it is less.
        """
        query = "SELECT count(*) FROM expiry WHERE at <= ?"
        if self._catalog.connection().execute(query, (to_microseconds(now),)).fetchone()[0] < at_least:
            return []
        return (
            self._catalog.connection()
            .execute(
                "SELECT p.owner, d.doc_id FROM expiry e JOIN documents d ON d.id = e.document "
                "JOIN partitions p ON p.id = d.partition WHERE e.at <= ? ORDER BY e.at, d.id",
                (to_microseconds(now),),
            )
            .fetchall()
        )


def _holds_quarantined(connection: sqlite3.Connection, partition: int) -> bool:
    query = "SELECT 1 FROM quarantine WHERE partition = ? LIMIT 1"
    return connection.execute(query, (partition,)).fetchone() is not None


def _living(
    connection: sqlite3.Connection, partition: PartitionRow, latest: int | None, *, hidden: bool
) -> VisiblePartition:
    """The partition without what expires up to `latest`, the last moment at which anything in it did.

    Args:
        connection: A connection to the catalog.
        partition: The partition.
        latest: That moment, in microseconds; None when nothing has expired.
        hidden: Whether what is quarantined is left out too.
    """
    excluded_doc_freqs: dict[str, Counter[str]] = {name: Counter() for name in FIELDS}
    tokens, rows, documents = Counter[str](), 0, set()
    for document, terms, lengths in connection.execute(
        "SELECT c.document, c.terms, c.lengths FROM chunks c WHERE c.document IN ("
        "SELECT document FROM expiry WHERE partition = ? AND at <= ? "
        "UNION SELECT document FROM quarantine WHERE partition = ? AND ?)",
        (partition.id, latest, partition.id, hidden),
    ):
        unpacked = unpack_terms(terms, lengths)
        documents.add(document)
        rows += 1
        tokens.update(unpacked.lengths)
        for name in FIELDS:
            excluded_doc_freqs[name].update(set(getattr(unpacked, name)))
    left = replace(
        partition,
        documents=partition.documents - len(documents),
        chunks=partition.chunks - rows,
        tokens=tuple(total - tokens[name] for name, total in zip(FIELDS, partition.tokens, strict=True)),
    )
    kept: list[Filter] = []
    if latest is not None:
        kept.append(Not(Condition(EXPIRES, "$lte", EPOCH + timedelta(microseconds=latest))))
    if hidden:
        kept.append(Not(Condition(QUARANTINED, "$eq", True)))  # noqa: FBT003  a value of the filter language
    return VisiblePartition(left, kept[0] if len(kept) == 1 else And(tuple(kept)), excluded_doc_freqs)


_SELECT = (
    f"SELECT id, doc_id, metadata FROM documents d WHERE {NOT_EXPIRED} "
    "AND partition = (SELECT id FROM partitions WHERE owner IS ?)"
)


class OwnedDocument(NamedTuple):
    """A document as it stands on the shelf; its metadata is decoded only when somebody looks."""

    doc_id: str
    packed: str

    @property
    def metadata(self) -> dict[str, Any]:
        """The document's metadata."""
        return codec.decode(self.packed)


class OwnedDocuments:
    """The documents of one owner that have not expired; neither shared ones nor anybody else's are reachable.

    Args:
        catalog: The store's catalog.
        owner: Agent, or None for shared.
        now: The present.
    """

    def __init__(self, catalog: Catalog, owner: str | None, now: datetime) -> None:
        self._catalog, self._owner, self.now = catalog, owner, now

    def with_prefix(self, *beginnings: str) -> list[OwnedDocument]:
        """Documents whose id starts with one of the beginnings, in document order.

        Args:
            beginnings: None of them a beginning of another; each ends in an ASCII character.
        """
        found: list[tuple[int, str, str]] = []
        with self._catalog.snapshot() as connection:
            for beginning in beginnings:
                found += connection.execute(
                    f"{_SELECT} AND doc_id >= ? AND doc_id < ?",
                    (*self._place, beginning, beginning[:-1] + chr(ord(beginning[-1]) + 1)),
                ).fetchall()
        return [OwnedDocument(doc_id, packed) for _, doc_id, packed in sorted(found)]

    def find(self, doc_ids: Iterable[str]) -> Iterator[OwnedDocument]:
        """Those of the documents that are there, in the order of the ids."""
        connection = self._catalog.connection()
        for doc_id in doc_ids:
            found = connection.execute(f"{_SELECT} AND doc_id = ?", (*self._place, doc_id)).fetchone()
            if found is not None:
                yield OwnedDocument(*found[1:])

    @property
    def _place(self) -> tuple[int, str | None]:
        return to_microseconds(self.now), self._owner
