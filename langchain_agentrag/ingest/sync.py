"""A connector kept in step with the store: read what changed, remove what is gone, report what failed."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from langchain_agentrag.connectors.base import BaseConnector, Gap, NotIndexableError, SourceItem
from langchain_agentrag.errors import AgentRagError, EmbeddingError, StoreError
from langchain_agentrag.index.reading import item_counts, item_documents, item_versions
from langchain_agentrag.index.store import Store
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.ingest.pipeline import Pipeline
from langchain_agentrag.records import SyncReport

logger = logging.getLogger(__name__)


def sync(store: Store, connector: BaseConnector, pipeline: Pipeline) -> None:
    """Bring the store in step with a connector; the pipeline's report says what was done.

    An item of the same version as before is not read. What could not be read keeps what was stored of it. Removals
    come last, so that text which only moved finds its vectors again.

    Raises:
        ConnectorError: the source cannot be listed at all; nothing was removed.
    """
    source = connector.connector_id
    connection = store.catalog.connection()
    before, counts = item_versions(connection, source), item_counts(connection, source)
    seen: set[str] = set()
    shielded: list[str] = []
    for item in connector.items():
        if isinstance(item, Gap):
            _note_gap(item, pipeline, seen, shielded)
        else:
            seen.add(item.key)
            if item.version is not None and before.get(item.key) == item.version:
                pipeline.report += SyncReport(unchanged=counts.get(item.key, 0))
            else:
                _read(store, source, item, connector, pipeline)
        pipeline.advance(item.key)
    for key in sorted({*before, *counts} - seen):
        if not any(key.startswith(folder) for folder in shielded):
            _remove(store, source, key, pipeline, keep=set())
            pipeline.forget(source, key)


def _note_gap(gap: Gap, pipeline: Pipeline, seen: set[str], shielded: list[str]) -> None:
    if gap.skipped:
        pipeline.skip(gap.key, gap.reason)
        return
    pipeline.fail(gap.key, gap.reason)
    if gap.key.endswith("/"):
        shielded.append(gap.key)  # what lies below could not be listed, which does not mean that it is gone
    seen.add(gap.key)


def _read(store: Store, source: str, item: SourceItem, connector: BaseConnector, pipeline: Pipeline) -> None:
    kept: set[tuple[str | None, str]] = set()
    failures = len(pipeline.report.failed)
    try:
        for document in as_source_documents(item.load(), connector.agent_id):
            kept.add((document.agent_id, document.doc_id))
            pipeline.put(document, source, item.key)
    except NotIndexableError as error:
        pipeline.skip(item.key, str(error))
    except (StoreError, EmbeddingError):  # these speak of the store or the model, not of this item
        raise
    except AgentRagError as error:
        pipeline.fail(item.key, str(error))
        return
    except Exception as error:
        logger.debug("cannot read %s", item.key, exc_info=True)
        pipeline.fail(item.key, f"{type(error).__name__}: {error}")
        return
    _remove(store, source, item.key, pipeline, keep=kept)
    if len(pipeline.report.failed) == failures:
        pipeline.remember(source, item.key, item.version)


def _remove(
    store: Store, source: str, key: str, pipeline: Pipeline, *, keep: Iterable[tuple[str | None, str]]
) -> None:
    for known in item_documents(store.catalog.connection(), source, key):
        if (known.owner, known.doc_id) not in keep:
            pipeline.remove(known.owner, known.doc_id)
