"""Reading by address: a chunk with its neighbours, as written in the document."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_agentrag.errors import InvalidQueryError
from langchain_agentrag.index.reading import chunk_spans, document_text, find_document, parse_locator
from langchain_agentrag.index.store import Store
from langchain_agentrag.records import Passage, SourceDocument
from langchain_agentrag.scope import Scope


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
    with store.catalog.snapshot() as connection:
        for owner in reversed(scope.owners):  # the agent's own before a shared one
            known = find_document(connection, owner, doc_id)
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


def read_documents(store: Store, scope: Scope, doc_ids: Iterable[str]) -> list[SourceDocument]:
    """Documents by id within a scope, in the order of the ids, without those that are not there."""
    found = []
    with store.catalog.snapshot() as connection:
        for doc_id in dict.fromkeys(doc_ids):
            for owner in reversed(scope.owners):  # the agent's own before a shared one
                known = find_document(connection, owner, doc_id)
                if known is not None and scope.admits(known.owner):
                    text, metadata = document_text(connection, known.key)
                    found.append(SourceDocument(doc_id, text, metadata, known.owner))
                    break
    return found
