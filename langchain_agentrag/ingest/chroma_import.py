"""Taking over a Chroma collection made by langchain-chroma or LlamaIndex: text, metadata and vectors, no embedding."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from langchain_agentrag.embedding import Embedder
from langchain_agentrag.errors import AgentRagError, StoreMismatchError
from langchain_agentrag.ingest.chroma_collection import ForeignCollection, Record, foreign_collection
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.ingest.pipeline import Pipeline
from langchain_agentrag.types import SourceDocument

logger = logging.getLogger(__name__)

Owner = str | Callable[[Mapping[str, Any]], str | None] | None
"""Who owns a record: one agent, what a function makes of its metadata, or whoever the metadata names as `agent_id`."""

_NODE = "_node_content"
_BOOKKEEPING = frozenset({_NODE, "_node_type", "document_id", "doc_id", "ref_doc_id"})


@contextmanager
def foreign_records(
    source: Any,  # noqa: ANN401
    name: str | None,
    model: Any,  # noqa: ANN401
) -> Iterator[tuple[Any, int, Callable[[Pipeline, Embedder, Owner], None]]]:
    """A Chroma collection while it is open: its model, the number of its records, and what takes them over."""
    if model is None and hasattr(source, "_collection"):
        model = getattr(source, "embeddings", None)
    with foreign_collection(source, name) as collection:
        yield model, collection.count(), partial(adopt, collection)


def adopt(collection: ForeignCollection, pipeline: Pipeline, model: Embedder, owner: Owner) -> None:
    """Put every record of a collection into the pipeline, whole and with its vector.

    Ids become doc_ids. A record without text or with a broken vector is reported as skipped.

    Raises:
        StoreMismatchError: the vectors have another length than the model's.
        AgentRagError: a record cannot be stored; the message names it. What came before is kept.
    """
    for record in collection.records():
        trouble = _trouble(record)
        if trouble:
            pipeline.skip(record.id, trouble)
        else:
            _check_dimension(record, collection, model)
            pipeline.put(_document(record, owner), split=False, vector=record.vector)
        pipeline.advance(record.id)
    if skipped := pipeline.report.skipped:
        logger.warning(
            "%d records of %s were not taken over, the first because %s",
            len(skipped),
            collection.name,
            skipped[0].reason,
        )


def _trouble(record: Record) -> str:
    if record.text is None and _NODE not in record.metadata:
        return "it holds no text"
    if record.vector is None or not len(record.vector):
        return "it holds no vector"
    return "" if np.isfinite(record.vector).all() else "its vector holds NaN or infinity"


def _check_dimension(record: Record, collection: ForeignCollection, model: Embedder) -> None:
    length = 0 if record.vector is None else len(record.vector)
    if length != model.dimension:
        raise StoreMismatchError(
            f"The collection {collection.name!r} holds vectors of {length} dimensions (record {record.id!r}), the "
            f"model {model.name} makes {model.dimension}: pass the model the collection was made with as embeddings=…"
        )


def _document(record: Record, owner: Owner) -> SourceDocument:
    text, metadata = record.text or "", dict(record.metadata)
    if _NODE in metadata:
        text, metadata = _from_node(text, metadata)
    agent = owner(metadata) if callable(owner) else owner
    try:
        return next(as_source_documents([SourceDocument(record.id, text, metadata)], agent))
    except AgentRagError as error:
        raise type(error)(f"Cannot take over record {record.id!r}: {error}") from error


def _from_node(text: str, metadata: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Text and metadata of a LlamaIndex node: its JSON keeps the nested values that Chroma cannot."""
    try:
        node = json.loads(metadata[_NODE])
    except (TypeError, ValueError):
        node = {}
    node = node if isinstance(node, dict) else {}
    inner = node.get("metadata")
    own = {key: value for key, value in metadata.items() if key not in _BOOKKEEPING}
    parent = metadata.get("ref_doc_id")
    if isinstance(parent, str) and parent != "None":  # what LlamaIndex writes for a node without a document
        own["ref_doc_id"] = parent
    written = node.get("text")
    text = text or (written if isinstance(written, str) else "")
    return text, {**own, **(inner if isinstance(inner, dict) else {})}
