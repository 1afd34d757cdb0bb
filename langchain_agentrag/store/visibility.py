"""Visibility of documents: expired and quarantined ones are hidden from searches, counts and reads by filter.

Which agents' documents a caller may see is decided in `scope.py`. A deleted document has no rows (`commit.py`).
Reads of single documents skip expired ones by `NOT_EXPIRED` in `queries.py`.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from langchain_agentrag.filters import EXPIRES, And, Condition, Filter, Not
from langchain_agentrag.store.catalog import Catalog, PartitionRow
from langchain_agentrag.store.commit import unpack_terms
from langchain_agentrag.store.schema import QUARANTINED
from langchain_agentrag.text import FIELDS
from langchain_agentrag.times import EPOCH, to_microseconds

_MAX_CACHED = 64  # partitions whose hidden rows are cached


@dataclass(frozen=True, slots=True)
class VisiblePartition:
    """Partition without its hidden documents: expired ones, and quarantined ones unless they are included.

    Attributes:
        partition: The partition, with the counts of the visible documents.
        condition: Filter that matches the visible documents; None when all are.
        excluded_doc_freqs: Field → term → number of hidden rows that hold it, which the keyword index still counts.
    """

    partition: PartitionRow
    condition: Filter | None = None
    excluded_doc_freqs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class PartitionVisibility:
    """Visibility of documents: which have expired, and which are quarantined.

    Args:
        catalog: The store's catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._cache: dict[tuple[int, bool], tuple[tuple[int, int | None], VisiblePartition]] = {}

    def visible(self, partition: PartitionRow, now: datetime, *, quarantined: bool = True) -> VisiblePartition:
        """Return the visible part of a partition at a time; never older than `partition`.

        Args:
            partition: The partition.
            now: The present.
            quarantined: Whether quarantined documents are included.
        """
        query = "SELECT max(at) FROM expiry WHERE partition = ? AND at <= ?"
        values = (partition.id, to_microseconds(now))
        with self._catalog.snapshot() as connection:
            latest = connection.execute(query, values).fetchone()[0]
            exclude_quarantined = not quarantined and _has_quarantined(connection, partition.id)
            if latest is None and not exclude_quarantined:
                return VisiblePartition(partition)
            current = self._catalog.partition(partition.owner)
            if current is None or current.id != partition.id:
                return VisiblePartition(partition)  # deleted meanwhile: the search will repeat itself
            key, version = (current.id, exclude_quarantined), (current.generation, latest)
            cached = self._cache.get(key)
            if cached is None or cached[0] != version:
                while len(self._cache) >= _MAX_CACHED:
                    self._cache.pop(next(iter(self._cache)), None)
                visible = _exclude_hidden(connection, current, latest, exclude_quarantined=exclude_quarantined)
                cached = self._cache[key] = version, visible
            return cached[1]

    def expired(self, now: datetime, at_least: int = 1) -> list[tuple[str | None, str]]:
        """Return (owner, doc_id) of expired documents that are still on disk, in order of expiry.

        Args:
            now: The present.
            at_least: Return nothing when there are fewer.
        """
        moment = (to_microseconds(now),)
        if self._catalog.fetch_value("SELECT count(*) FROM expiry WHERE at <= ?", moment) < at_least:
            return []
        query = (
            "SELECT p.owner, d.doc_id FROM expiry e JOIN documents d ON d.id = e.document "
            "JOIN partitions p ON p.id = d.partition WHERE e.at <= ? ORDER BY e.at, d.id"
        )
        return self._catalog.connection().execute(query, moment).fetchall()


def _has_quarantined(connection: sqlite3.Connection, partition: int) -> bool:
    query = "SELECT 1 FROM quarantine WHERE partition = ? LIMIT 1"
    return connection.execute(query, (partition,)).fetchone() is not None


def _exclude_hidden(
    connection: sqlite3.Connection, partition: PartitionRow, latest: int | None, *, exclude_quarantined: bool
) -> VisiblePartition:
    """Return a partition without its hidden documents.

    Args:
        connection: A connection to the catalog.
        partition: The partition.
        latest: The last expiry that has passed, in microseconds; None when nothing has expired.
        exclude_quarantined: Whether quarantined documents are hidden too.
    """
    excluded_doc_freqs: dict[str, Counter[str]] = {name: Counter() for name in FIELDS}
    tokens, rows, documents = Counter[str](), 0, set()
    for document, terms, lengths in connection.execute(
        "SELECT c.document, c.terms, c.lengths FROM chunks c WHERE c.document IN ("
        "SELECT document FROM expiry WHERE partition = ? AND at <= ? "
        "UNION SELECT document FROM quarantine WHERE partition = ? AND ?)",
        (partition.id, latest, partition.id, exclude_quarantined),
    ):
        unpacked = unpack_terms(terms, lengths)
        documents.add(document)
        rows += 1
        tokens.update(unpacked.lengths)
        for name in FIELDS:
            excluded_doc_freqs[name].update(set(getattr(unpacked, name)))
    visible = replace(
        partition,
        documents=partition.documents - len(documents),
        chunks=partition.chunks - rows,
        tokens=tuple(total - tokens[name] for name, total in zip(FIELDS, partition.tokens, strict=True)),
    )
    conditions: list[Filter] = []
    if latest is not None:
        conditions.append(Not(Condition(EXPIRES, "$lte", EPOCH + timedelta(microseconds=latest))))
    if exclude_quarantined:
        conditions.append(Not(Condition(QUARANTINED, "$eq", True)))  # noqa: FBT003  (a value of the filter language)
    condition = conditions[0] if len(conditions) == 1 else And(tuple(conditions))
    return VisiblePartition(visible, condition, excluded_doc_freqs)
