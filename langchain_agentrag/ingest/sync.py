"""A connector kept in step with the store: read what changed, remove what is gone, report what failed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

from langchain_agentrag.connectors.base import BaseConnector, Gap, NotIndexableError, SourceItem
from langchain_agentrag.errors import AgentRagError
from langchain_agentrag.index.reading import item_counts, item_documents, item_versions
from langchain_agentrag.index.store import Store
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.ingest.pipeline import Pipeline
from langchain_agentrag.records import SourceDocument, SyncReport

logger = logging.getLogger(__name__)

_Addresses = set[tuple[str | None, str]]


def sync(store: Store, connector: BaseConnector, pipeline: Pipeline) -> None:
    """Bring the store in step with a connector; the pipeline's report says what was done.

    An item of the same version as before is not read. What could not be read keeps what was stored of it. Removals
    come last, so that text which only moved finds its vectors again.

    Raises:
        ConnectorError: the source cannot be listed at all; nothing was removed.
    """
    source = _source(connector)
    connection = store.catalog.connection()
    before, counts = item_versions(connection, source), item_counts(connection, source, store.now())
    seen: set[str] = set()
    shielded: list[str] = []
    kept: _Addresses = set()  # what this run put: a document may have moved from one item to another
    shrunk: dict[str, str | None] = {}
    for item in connector.items():
        if isinstance(item, Gap):
            _note_gap(item, pipeline, seen, shielded)
        else:
            seen.add(item.key)
            if item.version is not None and before.get(item.key) == item.version:
                pipeline.report += SyncReport(unchanged=counts.get(item.key, 0))
            elif _read(source, item, connector, pipeline, kept):
                if _left_over(store, source, item.key, kept):
                    shrunk[item.key] = item.version
                else:
                    pipeline.remember(source, item.key, item.version)
        pipeline.advance(item.key)
    for key, version in shrunk.items():
        _remove(store, source, key, pipeline, kept)
        pipeline.remember(source, key, version)
    for key in sorted({*before, *counts} - seen):
        if not any(key.startswith(folder) for folder in shielded):
            _remove(store, source, key, pipeline, kept)
            pipeline.forget(source, key)


def _source(connector: BaseConnector) -> str:
    """Name of a source in the catalog: connectors of two agents never share one, whatever they call themselves."""
    if connector.agent_id is None:
        return connector.connector_id
    return json.dumps([connector.connector_id, connector.agent_id], ensure_ascii=False)


def _note_gap(gap: Gap, pipeline: Pipeline, seen: set[str], shielded: list[str]) -> None:
    if gap.skipped:
        pipeline.skip(gap.key, gap.reason)
        return
    pipeline.fail(gap.key, gap.reason)
    if gap.key.endswith("/"):
        shielded.append(gap.key)  # what lies below could not be listed, which does not mean that it is gone
    seen.add(gap.key)


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


def _read(
    source: str, item: SourceItem, connector: BaseConnector, pipeline: Pipeline, kept: _Addresses
) -> bool:
    """Put an item's documents; whether all of them were taken."""
    failures = len(pipeline.report.failed)
    reading = _Reading(item, connector, pipeline)
    for document in reading:
        kept.add((document.agent_id, document.doc_id))
        pipeline.put(document, source, item.key)
    return reading.complete and len(pipeline.report.failed) == failures


def _left_over(store: Store, source: str, key: str, kept: _Addresses) -> list[tuple[str | None, str]]:
    """Stored documents of an item that it no longer holds."""
    found = item_documents(store.catalog.connection(), source, key)
    return [(known.owner, known.doc_id) for known in found if (known.owner, known.doc_id) not in kept]


def _remove(store: Store, source: str, key: str, pipeline: Pipeline, kept: _Addresses) -> None:
    for owner, doc_id in _left_over(store, source, key, kept):
        pipeline.remove(owner, doc_id)
