"""Input documents: conversion to `SourceDocument`, checks, expiry, precomputed vectors, and what a delete selects."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, get_args

import numpy as np

from langchain_agentrag import filters
from langchain_agentrag import metadata as codec
from langchain_agentrag.embedding import Embedder
from langchain_agentrag.errors import InvalidDocumentError, ScopeError, StoreMismatchError, UsageError
from langchain_agentrag.filters import Condition, Filter, conjoin, time_range_filter
from langchain_agentrag.ingest.pipeline import Pipeline
from langchain_agentrag.metadata import is_storable, short_repr
from langchain_agentrag.scope import resolve_owner
from langchain_agentrag.store.columnar_cache import filter_view
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.queries import documents_of
from langchain_agentrag.store.store import Store
from langchain_agentrag.times import EXPIRY_KEY, document_expiry
from langchain_agentrag.types import Section, SourceDocument, TextKind

_OWNER_KEY = "agent_id"


def as_source_documents(documents: Iterable[Any], agent_id: str | None) -> Iterator[SourceDocument]:
    """Convert documents to `SourceDocument`, in order.

    Takes `SourceDocument`, LangChain `Document`, LlamaIndex nodes and strings. A document without an id gets one made
    from its content, so that indexing it twice changes nothing; the second of two equal documents in one call gets
    another id. A document whose metadata has an `agent_id` is private to that agent.

    Args:
        documents: Documents.
        agent_id: Agent the call is bound to, or None.

    Raises:
        UsageError: a single document or something else instead of a list.
        InvalidDocumentError: one of them cannot be stored; the message says which and why.
        ScopeError: one of them names another agent.
    """
    single = isinstance(documents, str | bytes | Mapping | SourceDocument)
    if single or hasattr(documents, "page_content") or hasattr(documents, "get_content"):
        raise UsageError(
            f"Cannot index a single {type(documents).__name__}: pass a list of documents, even of one; the files of a "
            "folder are indexed by sync(path)."
        )
    if not isinstance(documents, Iterable):
        raise UsageError(
            f"Cannot index {short_repr(documents)}: pass a list of documents; a path, a loader or a connector is "
            "indexed by sync(…)."
        )
    return _convert_all(documents, agent_id)


def _convert_all(documents: Iterable[Any], agent_id: str | None) -> Iterator[SourceDocument]:
    seen: Counter[str] = Counter()
    for position, item in enumerate(documents):
        try:
            document = _convert(item, seen)
            check_document(document)
            owner = resolve_owner(agent_id, document.agent_id)
            owner = resolve_owner(owner, document.metadata.get(_OWNER_KEY))
        except (InvalidDocumentError, ScopeError) as error:
            raise type(error)(f"Document at index {position}: {error}") from error
        yield document if owner == document.agent_id else replace(document, agent_id=owner)


def check_document(document: SourceDocument) -> None:
    """Refuse a document that cannot be stored.

    Raises:
        InvalidDocumentError: the id or the text is no text, or holds a lone surrogate, the metadata holds a value that
            has no stored form, or the sections do not fit the text.
    """
    if not isinstance(document.doc_id, str) or not document.doc_id:
        raise InvalidDocumentError(f"doc_id must be a non-empty string, got {document.doc_id!r}: pass a stable id.")
    if not isinstance(document.text, str):
        raise InvalidDocumentError(
            f"the text must be a string, got {type(document.text).__name__}: decode or convert it first."
        )
    if not isinstance(document.metadata, Mapping):
        raise InvalidDocumentError(f"metadata must be a mapping, got {type(document.metadata).__name__}: pass a dict.")
    codec.encode(document.metadata)
    document_expiry(document.metadata)
    if document.kind not in get_args(TextKind):
        raise InvalidDocumentError(f"kind must be one of {', '.join(get_args(TextKind))}, got {document.kind!r}.")
    _check_sections(document)
    for name, value in (("doc_id", document.doc_id), ("text", document.text)):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidDocumentError(
                f"the {name} holds a lone surrogate at character {error.start}, which no UTF-8 store can hold: "
                "clean it with text.encode('utf-8', 'replace').decode('utf-8')."
            ) from error


def _check_sections(document: SourceDocument) -> None:
    end = 0
    for section in document.sections if isinstance(document.sections, tuple | list) else (document.sections,):
        if not isinstance(section, Section):
            raise InvalidDocumentError(
                f"sections must be a tuple of Section, got {section!r}: leave them out if in doubt."
            )
        if not end <= section.start <= section.end <= len(document.text):
            raise InvalidDocumentError(
                f"the section from {section.start} to {section.end} does not lie between the one before, which ends at "
                f"{end}, and the end of the text at {len(document.text)}: give sections in order, not overlapping."
            )
        codec.encode(section.locator)
        end = section.end


def documents_of_agent(documents: Iterable[Any], agent_id: str | None) -> list[SourceDocument]:
    """Convert documents to be stored for one agent, or shared ones for None.

    Raises:
        InvalidDocumentError: a document cannot be stored.
        ScopeError: the metadata of a document names another agent.
    """
    sources = list(as_source_documents(documents, agent_id))
    for source in sources:
        if source.agent_id != agent_id:
            raise ScopeError(
                f"Document {source.doc_id!r} claims agent {source.agent_id!r} in its metadata, and this vector store "
                "is not bound to that agent, so it could never find it: add it through for_agent(…)."
            )
    return sources


def as_doc_ids(doc_ids: str | Iterable[str] | None) -> list[str] | None:
    """Return document ids as a list without repetitions and without ids that cannot be stored; None stays None.

    A single string is one id.

    Raises:
        UsageError: one of them is no string.
    """
    return None if doc_ids is None else require_doc_ids(doc_ids)


def require_doc_ids(doc_ids: object) -> list[str]:
    """Return document ids as `as_doc_ids` does where they must be given.

    Raises:
        UsageError: there are none, or one of them is no string.
    """
    if not isinstance(doc_ids, Iterable) or isinstance(doc_ids, Mapping | bytes):
        raise UsageError(f"Cannot select documents by {short_repr(doc_ids)}: pass an id or a list of ids.")
    ids = [doc_ids] if isinstance(doc_ids, str) else list(doc_ids)
    for doc_id in ids:
        if not isinstance(doc_id, str):
            raise UsageError(f"Cannot select a document by {short_repr(doc_id)}: ids are strings.")
    return [doc_id for doc_id in dict.fromkeys(ids) if doc_id and is_storable(doc_id)]


def matching_ids(store: Store, owner: str | None, condition: filters.Filter) -> list[str]:
    """Return the ids of an owner's documents that match a filter, in document order."""
    return [
        document.doc_id
        for document, metadata in documents_of(
            store.catalog.connection(), owner, store.now(), filters.required_texts(condition)
        )
        if filters.match(condition, filter_view(owner, document.doc_id, metadata, "{}"))
    ]


def _convert(item: object, seen: Counter[str]) -> SourceDocument:
    if isinstance(item, SourceDocument):
        return item
    if isinstance(item, str):
        return SourceDocument(_content_id(item, {}, seen), item)
    if hasattr(item, "page_content"):
        own_id, text = getattr(item, "id", None), item.page_content
    elif hasattr(item, "get_content") and hasattr(item, "node_id"):
        own_id, text = item.node_id, item.get_content()
    else:
        kinds = "a LangChain Document, a LlamaIndex node, a SourceDocument or a str"
        raise InvalidDocumentError(f"cannot index a {type(item).__name__}: pass {kinds}.")
    metadata = getattr(item, "metadata", None) or {}
    if own_id is None:
        doc_id = _content_id(text if isinstance(text, str) else repr(text), metadata, seen)
    else:
        doc_id = own_id if isinstance(own_id, str) else str(own_id)
    return SourceDocument(doc_id, text, dict(metadata))


def _content_id(text: str, metadata: Mapping[str, Any], seen: Counter[str]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    digest.update(text.encode("utf-8", "surrogatepass"))
    digest.update(codec.fingerprint(metadata).encode("utf-8", "surrogatepass"))
    name = f"content-{digest.hexdigest()}"
    seen[name] += 1
    return name if seen[name] == 1 else f"{name}-{seen[name]}"


PrecomputedVector = Sequence[float] | None
Model = Callable[[], Embedder]


def with_precomputed_vectors(
    documents: Iterable[SourceDocument], vectors: Iterable[PrecomputedVector] | None, model: Model, *, split: bool
) -> Iterator[tuple[SourceDocument, Vectors | None]]:
    """Pair each document with its vector, or with None where the model has to embed it.

    Raises:
        UsageError: the documents are to be chunked, so a vector of the whole fits none of the chunks.
        InvalidDocumentError: there are more or fewer vectors than documents, or one is no list of finite numbers.
        StoreMismatchError: a vector has another length than the model's.
    """
    if vectors is None:
        return ((document, None) for document in documents)
    if split:
        raise UsageError("vectors=… belong to whole documents: pass split=False, or leave the vectors out.")
    return _paired(documents, vectors, model)


def _paired(
    documents: Iterable[SourceDocument], vectors: Iterable[PrecomputedVector], model: Model
) -> Iterator[tuple[SourceDocument, Vectors | None]]:
    try:
        for document, vector in zip(documents, vectors, strict=True):
            yield document, None if vector is None else _checked_vector(document, vector, model)
    except ValueError as error:
        if "zip()" not in str(error):
            raise
        raise InvalidDocumentError("vectors=… must hold one vector, or None, per document.") from error


def _checked_vector(document: SourceDocument, values: Sequence[float], model: Model) -> Vectors:
    try:
        vector: Vectors = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError):
        vector = np.empty((0, 0), dtype=np.float32)
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise InvalidDocumentError(f"The vector of document {document.doc_id!r} must be one list of finite numbers.")
    embedder = model()
    if len(vector) != embedder.dimension:
        raise StoreMismatchError(
            f"The vector of document {document.doc_id!r} has {len(vector)} dimensions, the store's model "
            f"{embedder.name} makes {embedder.dimension}: open the store with the model that made the vectors, "
            "embeddings=…, or leave them out."
        )
    return vector


EXPIRY_SWEEP_THRESHOLD = 1_000
"""Expired documents at which a write removes them: fewer cost less when searches leave them out."""


def build_filter(
    now: datetime,
    where: Any,  # noqa: ANN401  (a filter of any make)
    *,
    session: object = None,
    after: object = None,
    before: object = None,
) -> Filter | None:
    """Return a filter, a session and a time range as one filter; None without any.

    Raises:
        FilterError: the filter cannot be parsed.
        InvalidQueryError: a bound of the range is no time.
    """
    of_session = None if session is None else Condition("session", "$eq", session)
    return conjoin(conjoin(filters.parse(where), of_session), time_range_filter(after, before, now))


def delete_matching(
    store: Store, pipeline: Pipeline, owner: str | None, ids: list[str] | None, condition: Filter | None
) -> None:
    """Remove an owner's documents by id, by filter, or those that match both."""
    wanted = set(ids) if ids is not None else None
    for doc_id in ids or () if condition is None else matching_ids(store, owner, condition):
        if wanted is None or doc_id in wanted:
            pipeline.remove(owner, doc_id)


def refuse_unbounded_delete(doc_ids: object, condition: Filter | None) -> None:
    """Refuse a delete without ids and without a condition on a key.

    Raises:
        UsageError: it would delete everything, as {} or {"$and": []} would.
    """
    if doc_ids is None and not filters.filter_keys(condition):
        raise UsageError(
            "delete() needs doc_ids, a session, a time, or a filter that keeps something out: an empty one would "
            "delete everything. To remove all of an agent's documents use forget_agent(agent_id)."
        )


def with_expiry(documents: Iterable[SourceDocument], when: datetime | None) -> Iterator[SourceDocument]:
    """Give the documents that have no expiry of their own this one; None leaves them as they are."""
    for document in documents:
        if when is None or document.metadata.get(EXPIRY_KEY) is not None:
            yield document
        else:
            yield replace(document, metadata={**document.metadata, EXPIRY_KEY: when})
