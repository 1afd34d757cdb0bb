"""What has expired: not there for any reader from that moment on, and taken off the disk by the next sweep.

What is quarantined is left out in the same way, by searches that do not ask for it, and stays on the disk.

Until then the rows are still in both legs, so readers take them out of the counts, the term statistics and the
candidates. A partition in which nothing has expired costs one look-up.
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
from langchain_agentrag.times import EPOCH, microseconds

_REMEMBERED = 64  # partitions whose expired rows are kept in memory


@dataclass(frozen=True, slots=True)
class Living:
    """A partition without what has expired, and without what is quarantined where that is not asked for.

    Attributes:
        partition: The partition, with the counts of what is left.
        condition: Filter that keeps what is left; None when everything is.
        gone: Field → term → rows that are left out but are still in the keyword leg.
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
        self._known: dict[tuple[int, bool], tuple[tuple[int, int | None], Living]] = {}

    def living(self, partition: PartitionRow, now: datetime, *, quarantined: bool = True) -> Living:
        """The partition as it is at a moment; never older than `partition` says.

        Args:
            partition: The partition.
            now: The present.
            quarantined: Whether what is quarantined belongs to it.
        """
        query = "SELECT max(at) FROM expiry WHERE partition = ? AND at <= ?"
        values = (partition.id, microseconds(now))
        with self._catalog.snapshot() as connection:
            latest = connection.execute(query, values).fetchone()[0]
            hidden = not quarantined and _holds_quarantined(connection, partition.id)
            if latest is None and not hidden:
                return Living(partition)
            current = self._catalog.partition(partition.owner)
            if current is None or current.id != partition.id:
                return Living(partition)  # it was forgotten meanwhile, and the search repeats itself
            stamp = (current.generation, latest)
            known = self._known.get((current.id, hidden))
            if known is None or known[0] != stamp:
                while len(self._known) >= _REMEMBERED:
                    self._known.pop(next(iter(self._known)), None)
                known = (stamp, _living(connection, current, latest, hidden=hidden))
                self._known[current.id, hidden] = known
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


def _holds_quarantined(connection: sqlite3.Connection, partition: int) -> bool:
    query = "SELECT 1 FROM quarantine WHERE partition = ? LIMIT 1"
    return connection.execute(query, (partition,)).fetchone() is not None


def _living(
    connection: sqlite3.Connection, partition: PartitionRow, latest: int | None, *, hidden: bool
) -> Living:
    """The partition without what expires up to `latest`, the last moment at which anything in it did.

    Args:
        connection: A connection to the catalog.
        partition: The partition.
        latest: That moment, in microseconds; None when nothing has expired.
        hidden: Whether what is quarantined is left out too.
    """
    gone: dict[str, Counter[str]] = {name: Counter() for name in FIELDS}
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
            gone[name].update(set(getattr(unpacked, name)))
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
    return Living(left, kept[0] if len(kept) == 1 else And(tuple(kept)), gone)
