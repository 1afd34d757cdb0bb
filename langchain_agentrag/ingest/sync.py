"""Sync of a connector: index what is new or changed, remove what is gone, report what failed."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from langchain_agentrag.connector import BaseConnector, Gap, NotIndexableError, SourceItem
from langchain_agentrag.errors import AgentRagError
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.ingest.pipeline import Pipeline
from langchain_agentrag.metadata import is_storable
from langchain_agentrag.store.queries import item_counts, item_documents, item_versions, source_name, stored_items
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
    """Items and documents seen in one run over a source. Use as a context manager, in one thread.

    Kept in a nameless temporary SQLite database, since a source may have more items than fit into memory. Texts are
    stored as digests of 16 bytes.
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
        """Record items that the source has listed, with their versions."""
        rows = [(_digest(key), None if version is None else _digest(version)) for key, version in versions.items()]
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT OR IGNORE INTO items VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")

    def seen_items(self, keys: Sequence[str]) -> set[str]:
        """Return those of at most 1,000 items that were listed before."""
        return set(self._find(keys))

    def seen_with_version(self, key: str, version: str | None) -> bool:
        """Whether an item was listed before with this version; False without a version."""
        return version is not None and self._find([key]).get(key) == _digest(version)

    def add_document(self, owner: str | None, doc_id: str) -> None:
        """Record a document of the source."""
        self._addresses.add(_address(owner, doc_id))
        if len(self._addresses) >= _BUFFERED:
            rows = [(key,) for key in self._addresses]
            self._connection.execute("BEGIN")
            self._connection.executemany("INSERT OR IGNORE INTO addresses VALUES (?)", rows)
            self._connection.execute("COMMIT")
            self._addresses.clear()

    def seen_document(self, owner: str | None, doc_id: str) -> bool:
        """Whether the source has yielded this document."""
        key = _address(owner, doc_id)
        query = "SELECT 1 FROM addresses WHERE key = ?"
        return key in self._addresses or self._connection.execute(query, (key,)).fetchone() is not None

    def _find(self, keys: Sequence[str]) -> dict[str, bytes | None]:
        digests = {_digest(key): key for key in keys}
        marks = ",".join("?" * len(digests))
        rows = self._connection.execute(f"SELECT key, version FROM items WHERE key IN ({marks})", tuple(digests))
        return {digests[digest]: version for digest, version in rows}


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _address(owner: str | None, doc_id: str) -> bytes:
    return _digest(doc_id if owner is None else f"{len(owner)}:{owner}{doc_id}") + bytes([owner is not None])


_LOOKED_UP = 256  # items looked up in one query
_GROUP_SIZE = 2**20  # characters of items looked up together


def sync(store: Store, connector: BaseConnector, pipeline: Pipeline) -> None:
    """Bring the store in step with a connector; the pipeline reports what was done.

    An item of the same version as before is not read. An item that cannot be read keeps its stored documents. Removals
    come last, so that text that only moved reuses its vectors. Memory does not grow with the source.

    Raises:
        ConnectorError: the source cannot be listed; nothing was removed.
    """
    with SeenItems() as seen:
        run = _SyncRun(store, connector, pipeline, seen)
        for group in _groups(connector.items()):
            run.process(group)
        run.remove_unlisted()


def _groups(items: Iterable[SourceItem | Gap]) -> Iterator[list[SourceItem | Gap]]:
    group: list[SourceItem | Gap] = []
    size = 0
    for item in items:
        group.append(item)
        size += item.size if isinstance(item, SourceItem) else 0
        if len(group) >= _LOOKED_UP or size >= _GROUP_SIZE:
            yield group
            group, size = [], 0
    if group:
        yield group


class _SyncRun:
    """One sync: processes listed items, and removes at the end what was not listed."""

    def __init__(self, store: Store, connector: BaseConnector, pipeline: Pipeline, seen: SeenItems) -> None:
        self._store, self._connector, self._pipeline, self._seen = store, connector, pipeline, seen
        self._source = source_name(connector.connector_id, connector.agent_id)
        self._unlisted_folders: list[str] = []  # could not be listed, so what lies below is kept
        self._shrunk: dict[str, str | None] = {}  # items that lost documents, with their new versions

    def process(self, group: list[SourceItem | Gap]) -> None:
        """Index what is new or changed among some items, which are looked up together."""
        connection = self._store.catalog.connection()
        names = [item.key for item in group if isinstance(item, SourceItem) and is_storable(item.key)]
        versions = item_versions(connection, self._source, names)
        counts = item_counts(connection, self._source, names, self._store.now())
        seen = self._seen.seen_items(names)
        listed: dict[str, str | None] = {}
        for item in group:
            if isinstance(item, Gap):
                self._report_gap(item, listed)
            elif item.key in seen or item.key in listed:
                self._check_repeated(item, listed)
            else:
                listed[item.key] = item.version
                if item.version is not None and versions.get(item.key) == item.version:
                    self._pipeline.count_unchanged(counts.get(item.key, 0))
                elif self._index(item):
                    self._set_version(item, had_documents=item.key in counts)
            self._pipeline.advance(item.key)
        self._seen.add_items(listed)

    def remove_unlisted(self) -> None:
        """Remove what the source no longer has."""
        for key, version in self._shrunk.items():
            self._remove(key)
            self._pipeline.set_version(self._source, key, version)
        for names in stored_items(self._store.catalog.connection(), self._source):
            for key in sorted(set(names) - self._seen.seen_items(names)):
                if not any(key.startswith(folder) for folder in self._unlisted_folders):
                    self._remove(key)
                    self._pipeline.forget_item(self._source, key)

    def _report_gap(self, gap: Gap, listed: dict[str, str | None]) -> None:
        if gap.skipped:
            self._pipeline.skip(gap.key, gap.reason)
            return
        self._pipeline.fail(gap.key, gap.reason)
        if gap.key.endswith("/"):
            self._unlisted_folders.append(gap.key)
        listed.setdefault(gap.key, None)

    def _check_repeated(self, item: SourceItem, listed: dict[str, str | None]) -> None:
        """Report an item that is listed twice with different versions; equal ones are the same row of a query."""
        same = (
            item.version is not None and listed[item.key] == item.version
            if item.key in listed
            else self._seen.seen_with_version(item.key, item.version)
        )
        if not same:
            self._pipeline.fail(
                item.key, "it was listed before with other content: the first was kept, as keys must be unique"
            )

    def _index(self, item: SourceItem) -> bool:
        """Put an item's documents into the pipeline; whether all of them were accepted."""
        failures = self._pipeline.failures
        for document in self._documents(item):
            self._seen.add_document(document.agent_id, document.doc_id)
            self._pipeline.put(document, self._source, item.key)
        return self._pipeline.failures == failures

    def _documents(self, item: SourceItem) -> Iterator[SourceDocument]:
        """Yield the documents of an item; errors in reading them are reported, errors in writing them are raised."""
        try:
            yield from as_source_documents(item.load(), self._connector.agent_id)
        except NotIndexableError as error:
            self._pipeline.skip(item.key, str(error))
        except Exception as error:
            logger.debug("cannot read %s", item.key, exc_info=error)
            kind = "" if isinstance(error, AgentRagError) else f"{type(error).__name__}: "
            self._pipeline.fail(item.key, f"{kind}{error}")

    def _set_version(self, item: SourceItem, *, had_documents: bool) -> None:
        """Record an item's version, now or when the documents it has lost are removed."""
        if had_documents and self._lost_documents(item.key):
            self._shrunk[item.key] = item.version
        else:
            self._pipeline.set_version(self._source, item.key, item.version)

    def _lost_documents(self, key: str) -> list[tuple[str | None, str]]:
        """Stored documents of an item that this run has not seen; a document may have moved to another item."""
        stored = item_documents(self._store.catalog.connection(), self._source, key)
        addresses = ((document.owner, document.doc_id) for document in stored)
        return [address for address in addresses if not self._seen.seen_document(*address)]

    def _remove(self, key: str) -> None:
        for owner, doc_id in self._lost_documents(key):
            self._pipeline.remove(owner, doc_id)
