"""Write pipeline: documents are chunked, analysed, embedded and committed in batches."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from langchain_agentrag.embedding import Embedder
from langchain_agentrag.errors import StoreMismatchError
from langchain_agentrag.store.commit import (
    Batch,
    CommitResult,
    PreparedChunk,
    PreparedDocument,
    document_signature,
    embedding_hash,
    embedding_text,
    pack_vector,
)
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.queries import StoredDocument, cached_vectors, find_document, find_documents
from langchain_agentrag.store.store import Store
from langchain_agentrag.text import Analyzer, Terms
from langchain_agentrag.text.chunking import Chunking, chunk_document, join_context, speaker_of
from langchain_agentrag.text.tokenizer import has_content
from langchain_agentrag.times import document_expiry
from langchain_agentrag.types import Chunk, Failure, Progress, SourceDocument, SyncReport

Address = tuple[str | None, str]
"""(owner, doc_id)."""


@dataclass(slots=True)
class Draft:
    """A document that is chunked and analysed but not embedded yet."""

    document: SourceDocument
    signature: bytes
    chunks: list[Chunk]
    terms: list[Terms]
    source: str | None
    item: str | None
    vector: Vectors | None = None


@dataclass(slots=True)
class PendingBatch:
    """Contents of the next batch, keyed so that a later document replaces an earlier one of the same address."""

    drafts: dict[Address, Draft] = field(default_factory=dict)
    removes: dict[Address, None] = field(default_factory=dict)
    versions: dict[tuple[str, str], str | None] = field(default_factory=dict)
    removed_items: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.drafts or self.removes or self.versions or self.removed_items)

    @property
    def addresses(self) -> set[Address]:
        """Addresses of the documents that change."""
        return {*self.drafts, *self.removes}


_SECONDS_PER_BATCH = 4.0  # of embedding, which a kill may lose
_SMALLEST, _LARGEST = 32, 1024  # chunks per batch
_WHOLE = "whole"  # instead of the chunking's fingerprint
_LOOKED_UP = 256  # documents looked up in one query
_EMBED_AT_ONCE = 64  # vectors lost at most when the model fails within a batch

_Extra = TypeVar("_Extra")


class Pipeline:
    """Writes documents in atomic batches. Use as a context manager: leaving it writes the rest.

    Documents are chunked, analysed and embedded in the caller's thread while the batch before is written.

    Args:
        store: The store.
        analyzer: The store's analyzer.
        chunking: Size of the chunks.
        embedder: The store's model.
        keep_vectors: Whether vectors of replaced or removed chunks stay in the embedding cache.
        sweep: Whether only expired documents are removed.
        purge: Whether everything deleted is erased from disk at the end, instead of in the background.
        on_progress: Called after every document and batch.
        total: Number of items in all, for progress.
    """

    def __init__(
        self,
        store: Store,
        analyzer: Analyzer,
        chunking: Chunking,
        embedder: Callable[[], Embedder],
        *,
        keep_vectors: bool = True,
        sweep: bool = False,
        purge: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        total: int | None = None,
    ) -> None:
        self._store, self._analyzer, self._chunking, self._embedder = store, analyzer, chunking, embedder
        self._keep_vectors, self._sweep, self._purge = keep_vectors, sweep, purge
        self._on_progress, self._total = on_progress, total
        self._pending = PendingBatch()
        self._pending_chunks, self._batch_size = 0, _SMALLEST
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agentrag-writer")
        self._running: Future[CommitResult] | None = None
        self._in_flight: set[Address] = set()
        self._expected: dict[Address, StoredDocument | None] = {}
        self._recent: dict[str | None, dict[bytes, Vectors]] = {}  # vectors that may not be in the catalog yet
        self._done, self._started = 0, time.monotonic()
        self._report = SyncReport()
        self._failed: list[Failure] = []  # a list: with a million of them each addition of reports would be slow
        self._skipped: list[Failure] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._flush()
            self._wait()
            if self._purge:
                self._store.purge()  # once, not per batch: it may rewrite much of a keyword index
        finally:
            self._writer.shutdown()
            self._report += SyncReport(seconds=time.monotonic() - self._started)

    @property
    def report(self) -> SyncReport:
        """Report of what was done so far."""
        return replace(self._report, failed=tuple(self._failed), skipped=tuple(self._skipped))

    @property
    def failures(self) -> int:
        """Number of items that have failed so far."""
        return len(self._failed)

    # -- input ----------------------------------------------------------------------------------------------------

    def count_unchanged(self, documents: int) -> None:
        """Report documents that are stored already."""
        self._report += SyncReport(unchanged=documents)

    def put(
        self,
        document: SourceDocument,
        source: str | None = None,
        item: str | None = None,
        *,
        split: bool = True,
        vector: Vectors | None = None,
    ) -> None:
        """Add or replace a document; one without content is removed, unless split is False.

        Args:
            document: The document, checked.
            source: Connector it comes from, or None.
            item: Item of the connector.
            split: Whether it is chunked.
            vector: Its vector, if known; only with split=False.
        """
        address = (document.agent_id, document.doc_id)
        known = self._known(address)
        if source is not None and known is not None and known.source not in {None, source}:
            rule = f"its doc_id {document.doc_id!r} already belongs to the source {known.source!r}"
            self.fail(item or document.doc_id, f"{rule}: give one of the two connectors another name")
            return
        expiry = document_expiry(document.metadata)
        if expiry is not None and expiry <= self._store.now():
            self._exclude(address, item, f"it expired at {expiry:%Y-%m-%d %H:%M:%S} UTC", known)
            return
        settings = self._chunking.fingerprint if split else _WHOLE
        signature = document_signature(document, settings + (_digest(vector) if vector is not None else ""))
        pending = self._is_pending(address)
        moved = known is not None and source is not None and (known.source, known.item) != (source, item)
        if known is not None and known.signature == signature and not pending and not moved:
            self._report += SyncReport(unchanged=1)
            return
        chunks = _with_content(chunk_document(document, self._chunking)) if split else [whole_chunk(document)]
        if not chunks:
            self._exclude(address, item, "it holds no text", known)
            return
        terms = [self._analyzer.analyze(chunk.text, chunk.context) for chunk in chunks]
        self._pending.removes.pop(address, None)
        self._pending.drafts[address] = Draft(document, signature, chunks, terms, source, item, vector)
        self._pending_chunks += len(chunks)
        if self._pending_chunks >= self._batch_size:
            self._flush()

    def _is_pending(self, address: Address) -> bool:
        return any(address in held for held in (self._in_flight, self._pending.drafts, self._pending.removes))

    def _exclude(self, address: Address, item: str | None, reason: str, known: StoredDocument | None) -> None:
        """Store nothing of a document, and remove what is stored of it."""
        if known is None and not self._is_pending(address):
            self.skip(item or address[1], reason)
        else:
            self.remove(*address)

    def prefetch(self, pairs: Iterable[tuple[SourceDocument, _Extra]]) -> Iterator[tuple[SourceDocument, _Extra]]:
        """Yield the pairs again, after looking up each group of documents in the store with one query.

        With one query per document, the preparing thread would wait for the writing one every time.
        """
        source = iter(pairs)
        while group := list(islice(source, _LOOKED_UP)):
            self._expected = self._look_up([document for document, _ in group])
            yield from group

    def remove(self, owner: str | None, doc_id: str) -> None:
        """Remove a document."""
        self._expected.pop((owner, doc_id), None)
        self._pending.drafts.pop((owner, doc_id), None)
        self._pending.removes[owner, doc_id] = None
        if len(self._pending.removes) >= _LARGEST:
            self._flush()

    def set_version(self, source: str, item: str, version: str | None) -> None:
        """Record the version of an item, in the same batch as the last of its documents."""
        self._pending.versions[source, item] = version

    def forget_item(self, source: str, item: str) -> None:
        """Forget the version of an item; its documents are removed separately."""
        self._pending.removed_items.append((source, item))

    def fail(self, key: str, reason: str) -> None:
        """Report an item that could not be read."""
        self._failed.append(Failure(key, reason))

    def skip(self, key: str, reason: str) -> None:
        """Report an item that is left out on purpose."""
        self._skipped.append(Failure(key, reason))

    def advance(self, item: str) -> None:
        """Count an item as done and report the progress."""
        self._done += 1
        self._report_progress(item)

    def _look_up(self, documents: list[SourceDocument]) -> dict[Address, StoredDocument | None]:
        wanted: dict[str | None, list[str]] = defaultdict(list)
        for document in documents:
            wanted[document.agent_id].append(document.doc_id)
        connection, now = self._store.catalog.connection(), self._store.now()
        stored = {owner: find_documents(connection, owner, ids, now) for owner, ids in wanted.items()}
        changing = self._in_flight | self._pending.addresses  # may be written before their turn comes
        return {
            (owner, doc_id): stored[owner].get(doc_id)
            for owner, ids in wanted.items()
            for doc_id in ids
            if (owner, doc_id) not in changing
        }

    # -- batches --------------------------------------------------------------------------------------------------

    def _known(self, address: Address) -> StoredDocument | None:
        if address in self._expected:
            return self._expected.pop(address)  # once: a second document of this address must see the first
        return find_document(self._store.catalog.connection(), *address, self._store.now())

    def _flush(self) -> None:
        pending, self._pending = self._pending, PendingBatch()
        self._pending_chunks = 0
        if not pending:
            return
        computed: dict[str | None, dict[bytes, Vectors]] = defaultdict(dict)
        try:
            vectors = self._vectors(list(pending.drafts.values()), computed)
            self._wait()
        except BaseException:
            for owner, done in computed.items():  # the next attempt must not embed these again
                self._store.cache_embeddings(owner, done)
            raise
        batch = Batch(
            puts=[_prepared(draft, vectors.get(draft.document.agent_id, {})) for draft in pending.drafts.values()],
            removes=list(pending.removes),
            versions=pending.versions,
            forgotten_items=pending.removed_items,
            keep_vectors=self._keep_vectors,
            expired_only=self._sweep,
        )
        self._in_flight, self._recent = pending.addresses, vectors
        self._running = self._writer.submit(self._store.calls.bind(partial(self._write, batch)))

    def _write(self, batch: Batch) -> CommitResult:
        try:
            return self._store.write(batch)
        except BaseException:
            # the next attempt must not embed these again
            computed: dict[str | None, dict[bytes, Vectors]] = defaultdict(dict)
            for put in batch.puts:
                computed[put.document.agent_id].update((part.hash, part.vector) for part in put.chunks)
            for owner, vectors in computed.items():
                self._store.cache_embeddings(owner, vectors)
            raise

    def _wait(self) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        outcome = running.result()
        self._in_flight = set()
        self._report += SyncReport(
            added=outcome.added, updated=outcome.updated, deleted=outcome.deleted, chunks=outcome.chunks
        )
        self._report_progress("")

    def _report_progress(self, item: str) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(self._done, self._total, item, self._report.chunks))

    # -- vectors --------------------------------------------------------------------------------------------------

    def _vectors(
        self, drafts: list[Draft], computed: dict[str | None, dict[bytes, Vectors]]
    ) -> dict[str | None, dict[bytes, Vectors]]:
        """Return owner → hash → vector for every chunk; only texts that no chunk of the owner has are embedded.

        Vectors go into `computed` step by step, so that they are not lost when the model fails on the way.
        """
        texts: dict[str | None, dict[bytes, str]] = defaultdict(dict)
        total = 0
        for draft in drafts:
            total += len(draft.chunks)
            if draft.vector is not None:
                self._check_dimension(len(draft.vector))
                continue
            for chunk in draft.chunks:
                text = embedding_text(chunk)
                texts[draft.document.agent_id][embedding_hash(text)] = text
        vectors: dict[str | None, dict[bytes, Vectors]] = {}
        for owner, wanted in texts.items():
            known = cached_vectors(self._store.catalog.connection(), owner, list(wanted))
            recent = self._recent.get(owner, {})
            known.update((key, recent[key]) for key in wanted.keys() & recent.keys())
            self._embed({key: text for key, text in wanted.items() if key not in known}, computed[owner])
            vectors[owner] = {**known, **computed[owner]}
        embedded = sum(map(len, computed.values()))
        if not embedded:  # nothing slow is lost with a larger batch
            self._batch_size = _LARGEST
        self._report += SyncReport(embedded=embedded, reused=total - embedded)
        return vectors

    def _embed(self, texts: dict[bytes, str], done: dict[bytes, Vectors]) -> None:
        if not texts:
            return
        model, started = self._embedder(), time.monotonic()
        keys = list(texts)
        for start in range(0, len(keys), _EMBED_AT_ONCE):
            part = keys[start : start + _EMBED_AT_ONCE]
            vectors = model.embed_documents([texts[key] for key in part])
            self._check_dimension(vectors.shape[1])
            done.update(zip(part, vectors, strict=True))
        self._report += SyncReport(truncated=model.count_truncated(list(texts.values())))
        rate = len(texts) / max(time.monotonic() - started, 1e-6)
        self._batch_size = int(np.clip(rate * _SECONDS_PER_BATCH, _SMALLEST, _LARGEST))

    def _check_dimension(self, dimension: int) -> None:
        known = self._store.dimension
        if known is None:
            self._store.dimension = dimension
        elif known != dimension:
            raise StoreMismatchError(
                f"Cannot add vectors of {dimension} dimensions to a store of {known}: one store holds one embedding "
                "model. Open it with the model it was built with, or index into a new folder."
            )


def whole_chunk(document: SourceDocument) -> Chunk:
    """Return the document as its only chunk, for callers whose documents are passages already."""
    context = join_context(speaker_of(document.metadata), document.context)
    return Chunk(0, 0, len(document.text), document.text, context=context)


def _with_content(chunks: list[Chunk]) -> list[Chunk]:
    """Chunks with a letter, digit or symbol, numbered anew; others, such as a line of dashes, are left out."""
    kept = [chunk for chunk in chunks if has_content(chunk.text)]
    return chunks if len(kept) == len(chunks) else [replace(chunk, chunk_id=n) for n, chunk in enumerate(kept)]


def _prepared(draft: Draft, vectors: Mapping[bytes, Vectors]) -> PreparedDocument:
    chunks = []
    for chunk, terms in zip(draft.chunks, draft.terms, strict=True):
        key, vector = embedding_hash(embedding_text(chunk)), draft.vector
        if vector is None:
            vector = vectors[key]
        else:  # a precomputed vector may be of more than the text: no other chunk may reuse it
            key = embedding_hash(chunk.text + _digest(vector))
        chunks.append(PreparedChunk(chunk, key, terms, vector))
    return PreparedDocument(draft.document, draft.signature, chunks, draft.source, draft.item)


def _digest(vector: Vectors) -> str:
    return hashlib.blake2b(pack_vector(vector), digest_size=16).hexdigest()
