"""Reading by address: a chunk with its neighbours, as written in the document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.filters import Filter, match
from langchain_agentrag.scope import Scope
from langchain_agentrag.store.partition_cache import filter_view
from langchain_agentrag.store.queries import (
    StoredDocument,
    chunk_spans,
    document_text,
    documents_of,
    find_document,
    parse_locator,
)
from langchain_agentrag.store.store import Store
from langchain_agentrag.types import Passage, SourceDocument

if TYPE_CHECKING:
    import sqlite3


def read_passage(store: Store, scope: Scope, doc_id: str, chunk_id: int, before: int, after: int) -> Passage:
    """The passage at an address within a scope.

    Raises:
        InvalidQueryError: there is no such document or chunk in the scope; the two cases of a document that does
            not exist and one that belongs to another agent read the same.
    """
    if not isinstance(doc_id, str):
        raise InvalidQueryError(
            f"Cannot read document {doc_id!r}: doc_id must be a string, as a search hit has it."
        )
    for name, value in (("chunk_id", chunk_id), ("before", before), ("after", after)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidQueryError(f"Cannot read with {name}={value!r}: it must be a whole number >= 0.")
    now = store.now()
    with store.catalog.snapshot() as connection:
        for owner in reversed(scope.owners):  # the agent's own before a shared one
            known = find_document(connection, owner, doc_id, now)
            if known is not None and scope.admits(known.owner):
                break
        else:
            raise InvalidQueryError(
                f"There is no document {doc_id!r} to read here: take doc_id and chunk_id from a search hit."
            )
        spans = chunk_spans(connection, known.key)
        if chunk_id >= len(spans):
            raise InvalidQueryError(
                f"Document {doc_id!r} has no chunk {chunk_id}: its chunks are 0 to {len(spans) - 1}."
            )
        text, metadata = document_text(connection, known.key)
    first, last = max(0, chunk_id - before), min(len(spans) - 1, chunk_id + after)
    start, end = spans[first][0], spans[last][1]
    return Passage(
        doc_id=doc_id,
        chunk_id=chunk_id,
        text=text[start:end],
        start=start,
        end=end,
        first_chunk=first,
        last_chunk=last,
        total_chunks=len(spans),
        metadata=metadata,
        locator=parse_locator(spans[chunk_id][2]),
        agent_id=known.owner,
    )


def read_documents(
    store: Store, scope: Scope, doc_ids: Iterable[str] | None, condition: Filter | None = None
) -> list[SourceDocument]:
    """Documents within a scope: by id, in the order of the ids, by filter, or by both; absent ones are left out."""
    with store.catalog.snapshot() as connection:
        now, wanted = store.now(), None if doc_ids is None else dict.fromkeys(doc_ids)
        found: dict[str, SourceDocument] = {}
        for owner in reversed(scope.owners):  # the agent's own before a shared one
            for known in _documents(connection, owner, wanted, now):
                if known.doc_id not in found and scope.admits(known.owner):
                    text, metadata = document_text(connection, known.key)
                    found[known.doc_id] = SourceDocument(known.doc_id, text, metadata, known.owner)
    ordered = found.values() if wanted is None else (found[name] for name in wanted if name in found)
    return [
        document
        for document in ordered
        if match(condition, filter_view(document.agent_id, document.doc_id, document.metadata, "{}"))
    ]


def _documents(
    connection: sqlite3.Connection, owner: str | None, wanted: Iterable[str] | None, now: datetime
) -> Iterator[StoredDocument]:
    if wanted is None:
        return (known for known, _ in documents_of(connection, owner, now))
    return (known for name in wanted if (known := find_document(connection, owner, name, now)) is not None)
