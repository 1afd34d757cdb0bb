"""What one run over a source has met so far, kept on disk: a source may have more items than fit into memory."""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from langchain_agentrag.connector import BaseConnector, Gap, NotIndexableError, SourceItem
from langchain_agentrag.errors import AgentRagError
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.ingest.pipeline import Pipeline
from langchain_agentrag.store.queries import (
    is_storable,
    item_counts,
    item_documents,
    item_versions,
    stored_items,
)
from langchain_agentrag.store.store import Store
from langchain_agentrag.types import SourceDocument

logger = logging.getLogger(__name__)

_BUFFERED = 1_000

_SCHEMA = """
PRAGMA journal_mode=OFF;
PRAGMA synchronous=OFF;
CREATE TABLE items(key BLOB PRIMARY KEY, version BLOB) WITHOUT ROWID;
CREATE TABLE addresses(key BLOB PRIMARY KEY) WITHOUT ROWID;
"""


class SeenItems:
    """Items a source has listed and documents it has given. Use as a context manager, in one thread.

    It lives in a temporary database without a name, which SQLite keeps in memory while it is small. Texts are kept as
    digests of 16 bytes.
    """

    def __init__(self) -> None:
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.executescript(_SCHEMA)
        self._addresses: set[bytes] = set()  # not written yet

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def add_items(self, versions: Mapping[str, str | None]) -> None:
        """The source has listed these items, of these versions."""
        rows = [
            (_digest(key), None if version is None else _digest(version)) for key, version in versions.items()
        ]
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT OR IGNORE INTO items VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def seen_items(self, keys: Sequence[str]) -> set[str]:
        """Those of at most 1,000 items that were listed before."""
        return set(self._find(keys))

    def seen_with_version(self, key: str, version: str | None) -> bool:
        """Whether an item was listed before in this very version; without a version nobody can say."""
        return version is not None and self._find([key]).get(key) == _digest(version)

    def add_document(self, owner: str | None, doc_id: str) -> None:
        """The source has given this document."""
        self._addresses.add(_address(owner, doc_id))
        if len(self._addresses) >= _BUFFERED:
            self._connection.execute("BEGIN")
            self._connection.executemany(
                "INSERT OR IGNORE INTO addresses VALUES (?)", [(key,) for key in self._addresses]
            )
            self._connection.execute("COMMIT")
            self._addresses.clear()

    def seen_document(self, owner: str | None, doc_id: str) -> bool:
        """Whether the source has given this document."""
        key = _address(owner, doc_id)
        found = "SELECT 1 FROM addresses WHERE key = ?"
        return key in self._addresses or self._connection.execute(found, (key,)).fetchone() is not None

    def _find(self, keys: Sequence[str]) -> dict[str, bytes | None]:
        digests = {_digest(key): key for key in keys}
        marks = ",".join("?" * len(digests))
        found = self._connection.execute(
            f"SELECT key, version FROM items WHERE key IN ({marks})", tuple(digests)
        )
        return {digests[digest]: version for digest, version in found}


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _address(owner: str | None, doc_id: str) -> bytes:
    return _digest(doc_id if owner is None else f"{len(owner)}:{owner}{doc_id}") + bytes([owner is not None])


_LOOKED_UP = 256  # items looked up in one query
_HELD = 2**20  # characters that items looked up together may hold


def sync(store: Store, connector: BaseConnector, pipeline: Pipeline) -> None:
    """Bring the store in step with a connector; the pipeline's report says what was done.

    An item of the same version as before is not read. What could not be read keeps what was stored of it. Removals
    come last, so that text which only moved finds its vectors again. Memory does not grow with the source.

    Raises:
        ConnectorError: the source cannot be listed at all; nothing was removed.
    """
    with SeenItems() as visits:
        run = _Run(store, connector, pipeline, visits)
        for group in _groups(connector.items()):
            run.take(group)
        run.remove_the_rest()


def _groups(items: Iterable[SourceItem | Gap]) -> Iterator[list[SourceItem | Gap]]:
    group: list[SourceItem | Gap] = []
    held = 0
    for item in items:
        group.append(item)
        held += item.size if isinstance(item, SourceItem) else 0
        if len(group) >= _LOOKED_UP or held >= _HELD:
            yield group
            group, held = [], 0
    if group:
        yield group


class _Run:
    """One sync: what the source has listed so far, and what follows from it at the end."""

    def __init__(self, store: Store, connector: BaseConnector, pipeline: Pipeline, visits: SeenItems) -> None:
        self._store, self._connector, self._pipeline, self._visits = store, connector, pipeline, visits
        self._source = _source(connector)
        self._shielded: list[str] = []
        self._shrunk: dict[str, str | None] = {}

    def take(self, group: list[SourceItem | Gap]) -> None:
        """Put what is new or changed among some items; their names are looked up together."""
        connection = self._store.catalog.connection()
        names = [item.key for item in group if isinstance(item, SourceItem) and is_storable(item.key)]
        before = item_versions(connection, self._source, names)
        counts = item_counts(connection, self._source, names, self._store.now())
        met = self._visits.seen_items(names)
        listed: dict[str, str | None] = {}
        for item in group:
            if isinstance(item, Gap):
                self._note(item, listed)
            elif item.key in met or item.key in listed:
                self._again(item, listed)
            else:
                listed[item.key] = item.version
                if item.version is not None and before.get(item.key) == item.version:
                    self._pipeline.leave(counts.get(item.key, 0))
                elif self._read(item):
                    self._settle(item, had_any=item.key in counts)
            self._pipeline.advance(item.key)
        self._visits.add_items(listed)

    def remove_the_rest(self) -> None:
        """Remove what the source no longer holds."""
        for key, version in self._shrunk.items():
            self._remove(key)
            self._pipeline.remember(self._source, key, version)
        for names in stored_items(self._store.catalog.connection(), self._source):
            for key in sorted(set(names) - self._visits.seen_items(names)):
                if not any(key.startswith(folder) for folder in self._shielded):
                    self._remove(key)
                    self._pipeline.forget(self._source, key)

    def _note(self, gap: Gap, listed: dict[str, str | None]) -> None:
        if gap.skipped:
            self._pipeline.skip(gap.key, gap.reason)
            return
        self._pipeline.fail(gap.key, gap.reason)
        if gap.key.endswith("/"):
            # what lies below could not be listed, which does not mean that it is gone
            self._shielded.append(gap.key)
        listed.setdefault(gap.key, None)

    def _again(self, item: SourceItem, listed: dict[str, str | None]) -> None:
        """An item that is listed twice: equal rows of a query are one, different ones contradict each other."""
        same = (
            item.version is not None and listed[item.key] == item.version
            if item.key in listed
            else self._visits.seen_with_version(item.key, item.version)
        )
        if not same:
            self._pipeline.fail(
                item.key,
                "it was listed before with other content: the first was kept, as keys must be unique",
            )

    def _read(self, item: SourceItem) -> bool:
        """Put an item's documents; whether all of them were taken."""
        failures = self._pipeline.failures
        reading = _Reading(item, self._connector, self._pipeline)
        for document in reading:
            self._visits.add_document(document.agent_id, document.doc_id)
            self._pipeline.put(document, self._source, item.key)
        return reading.complete and self._pipeline.failures == failures

    def _settle(self, item: SourceItem, *, had_any: bool) -> None:
        """Remember an item's version, now or when the documents it has lost are removed."""
        if had_any and self._left_over(item.key):
            self._shrunk[item.key] = item.version
        else:
            self._pipeline.remember(self._source, item.key, item.version)

    def _left_over(self, key: str) -> list[tuple[str | None, str]]:
        """Stored documents of an item that this run has not put: a document may have moved to another item."""
        found = item_documents(self._store.catalog.connection(), self._source, key)
        return [
            (known.owner, known.doc_id)
            for known in found
            if not self._visits.seen_document(known.owner, known.doc_id)
        ]

    def _remove(self, key: str) -> None:
        for owner, doc_id in self._left_over(key):
            self._pipeline.remove(owner, doc_id)


def _source(connector: BaseConnector) -> str:
    """Name of a source in the catalog: connectors of two agents never share one, whatever they call themselves."""
    if connector.agent_id is None:
        return connector.connector_id
    return json.dumps([connector.connector_id, connector.agent_id], ensure_ascii=False)


class _Reading:
    """The documents of one item; trouble in reading them is noted, trouble in writing them is not its business."""

    def __init__(self, item: SourceItem, connector: BaseConnector, pipeline: Pipeline) -> None:
        self._item, self._connector, self._pipeline = item, connector, pipeline
        self.complete = True

    def __iter__(self) -> Iterator[SourceDocument]:
        try:
            documents = iter(as_source_documents(self._item.load(), self._connector.agent_id))
        except Exception as error:  # noqa: BLE001  whatever a source raises concerns this item only
            self._failed(error)
            return
        while True:
            try:
                document = next(documents, None)
            except Exception as error:  # noqa: BLE001
                self._failed(error)
                return
            if document is None:
                return
            yield document

    def _failed(self, error: Exception) -> None:
        if isinstance(error, NotIndexableError):
            self._pipeline.skip(self._item.key, str(error))
            return
        logger.debug("cannot read %s", self._item.key, exc_info=error)
        self.complete = False
        kind = "" if isinstance(error, AgentRagError) else f"{type(error).__name__}: "
        self._pipeline.fail(self._item.key, f"{kind}{error}")
