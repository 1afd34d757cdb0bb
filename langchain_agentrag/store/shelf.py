"""Documents of exactly one owner, found by the beginnings of their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from langchain_agentrag import metadata as codec
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.store.queries import NOT_EXPIRED
from langchain_agentrag.times import microseconds

_SELECT = (
    f"SELECT id, doc_id, metadata FROM documents d WHERE {NOT_EXPIRED} "
    "AND partition = (SELECT id FROM partitions WHERE owner IS ?)"
)


class Shelved(NamedTuple):
    """A document as it stands on the shelf; its metadata is decoded only when somebody looks."""

    doc_id: str
    packed: str

    @property
    def metadata(self) -> dict[str, Any]:
        """The document's metadata."""
        return codec.decode(self.packed)


class Shelf:
    """The documents of one owner that have not expired; neither shared ones nor anybody else's are reachable.

    Args:
        catalog: The store's catalog.
        owner: Agent, or None for shared.
        now: The present.
    """

    def __init__(self, catalog: Catalog, owner: str | None, now: datetime) -> None:
        self._catalog, self._owner, self.now = catalog, owner, now

    def under(self, *beginnings: str) -> list[Shelved]:
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
        return [Shelved(doc_id, packed) for _, doc_id, packed in sorted(found)]

    def find(self, doc_ids: Iterable[str]) -> Iterator[Shelved]:
        """Those of the documents that are there, in the order of the ids."""
        connection = self._catalog.connection()
        for doc_id in doc_ids:
            found = connection.execute(f"{_SELECT} AND doc_id = ?", (*self._place, doc_id)).fetchone()
            if found is not None:
                yield Shelved(*found[1:])

    @property
    def _place(self) -> tuple[int, str | None]:
        return microseconds(self.now), self._owner
