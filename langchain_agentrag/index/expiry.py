"""What has expired: not there for any reader from that moment on, and taken off the disk by the next sweep.

Until then the rows are still in both legs, so readers take them out of the counts, the term statistics and the
candidates. A partition in which nothing has expired costs one look-up.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from langchain_agentrag.analysis import FIELDS
from langchain_agentrag.filters import EXPIRES, Condition, Filter, Not
from langchain_agentrag.index.batch import unpack_terms
from langchain_agentrag.index.catalog import Catalog, PartitionRow
from langchain_agentrag.moments import EPOCH, microseconds

_REMEMBERED = 64  # partitions whose expired rows are kept in memory


@dataclass(frozen=True, slots=True)
class Living:
    """A partition without what has expired.

    Attributes:
        partition: The partition, with the counts of what is left.
        condition: Filter that keeps what is left; None when nothing has expired.
        gone: Field → term → rows that have expired but are still in the keyword leg.
    """

    partition: PartitionRow
    condition: Filter | None = None
    gone: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Expiries:
    """What has expired in a store's catalog.

    Args:
        catalog: The catalog.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[int, tuple[tuple[int, int], Living]] = {}

    def living(self, partition: PartitionRow, now: datetime) -> Living:
        """The partition as it is at a moment; never older than `partition` says."""
        query = "SELECT max(at) FROM expiry WHERE partition = ? AND at <= ?"
        values = (partition.id, microseconds(now))
        with self._catalog.snapshot() as connection:
            latest = connection.execute(query, values).fetchone()[0]
            if latest is None:
                return Living(partition)
            current = self._catalog.partition(partition.owner)
            if current is None or current.id != partition.id:
                return Living(partition)  # it was forgotten meanwhile, and the search repeats itself
            stamp = (current.generation, latest)
            known = self._known.get(current.id)
            if known is None or known[0] != stamp:
                while len(self._known) >= _REMEMBERED:
                    self._known.pop(next(iter(self._known)), None)
                known = self._known[current.id] = (stamp, _living(connection, current, latest))
            return known[1]

    def due(self, now: datetime, at_least: int = 1) -> list[tuple[str | None, str]]:
        """(owner, doc_id) of everything that has expired and is still on disk, the first to expire first.

        Args:
            now: The present.
            at_least: Nothing is listed when it is less.
        """
        query = "SELECT count(*) FROM expiry WHERE at <= ?"
        if self._catalog.connection().execute(query, (microseconds(now),)).fetchone()[0] < at_least:
            return []
        return (
            self._catalog.connection()
            .execute(
                "SELECT p.owner, d.doc_id FROM expiry e JOIN documents d ON d.id = e.document "
                "JOIN partitions p ON p.id = d.partition WHERE e.at <= ? ORDER BY e.at, d.id",
                (microseconds(now),),
            )
            .fetchall()
        )


def _living(connection: sqlite3.Connection, partition: PartitionRow, latest: int) -> Living:
    """The partition without what expires up to `latest`, the last moment at which anything in it did."""
    gone: dict[str, Counter[str]] = {name: Counter() for name in FIELDS}
    tokens, rows, documents = Counter[str](), 0, set()
    for document, terms, lengths in connection.execute(
        "SELECT c.document, c.terms, c.lengths FROM expiry e JOIN chunks c ON c.document = e.document "
        "WHERE e.partition = ? AND e.at <= ?",
        (partition.id, latest),
    ):
        unpacked = unpack_terms(terms, lengths)
        documents.add(document)
        rows += 1
        tokens.update(unpacked.lengths)
        for name in FIELDS:
            gone[name].update(set(getattr(unpacked, name)))
    left = replace(
        partition,
        documents=partition.documents - len(documents),
        chunks=partition.chunks - rows,
        tokens=tuple(total - tokens[name] for name, total in zip(FIELDS, partition.tokens, strict=True)),
    )
    moment = EPOCH + timedelta(microseconds=latest)
    return Living(left, Not(Condition(EXPIRES, "$lte", moment)), gone)
