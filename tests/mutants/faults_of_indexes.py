"""Faults of the engine: writing, statistics, documents, ranking."""

from __future__ import annotations

import builtins
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from langchain_agentrag import indexer as facade
from langchain_agentrag.filters import Or
from langchain_agentrag.ingest import pipeline
from langchain_agentrag.metadata import decode
from langchain_agentrag.scope import Scope
from langchain_agentrag.search import engine, ranking
from langchain_agentrag.store import background_indexing, columnar_cache, commit, indexes, keyword_index, vector_index
from langchain_agentrag.store import store as storage
from langchain_agentrag.store.visibility import VisiblePartition
from langchain_agentrag.types import Hits
from tests.mutants.faults import BEHIND, ON_CHROMA, around, fault

# -- one index without the other ----------------------------------------------------------------------------------------


@fault("the filter reaches the vector index only")
def _() -> Any:
    return around(engine, "keyword_rows", lambda original, *args: original(*args[:-1], None))


@fault("the filter reaches the keyword index only")
def _() -> Any:
    return around(engine, "vector_rows", lambda original, *args: original(*args[:-1], None))


@fault("the filter is applied after the limit, over HNSW", **ON_CHROMA)
def _() -> Any:
    def short(
        original: Any, store: Any, partition: Any, vector_: Any, wanted: int, fetch: int, allowed: Any, *_: Any
    ) -> Any:
        return engine._members(store.indexes.vector_index(partition).nearest(vector_, 1), allowed)

    return around(engine, "_approximate", short)


@fault("unindexed rows are not scanned", **BEHIND)
def _() -> Any:
    def blind(original: Any, *args: Any, after: int = -1) -> Any:
        return [] if after >= 0 else original(*args)

    both = ExitStack()
    both.enter_context(
        patch.object(background_indexing, "_WRITE_DELAY", 3_600.0)
    )  # else on a slow machine everything is indexed
    both.enter_context(around(columnar_cache.ColumnarCache, "nearest", blind))
    return both


@fault("a slice counts as indexed although Chroma never got it", **BEHIND)
def _() -> Any:
    return around(vector_index.ChromaVectorIndex, "add", lambda original, index, *_: None)


@fault("OR drops a branch in the column masks")
def _() -> Any:
    def dropped(original: Any, self: Any, condition: Any) -> Any:
        if isinstance(condition, Or) and len(condition.parts) > 1:
            condition = Or(condition.parts[:-1])
        return original(self, condition)

    return around(columnar_cache.ColumnarCache, "_evaluate", dropped)


@fault("a delete forgets the keyword index")
def _() -> Any:
    return around(keyword_index.TantivyKeywordIndex, "delete", lambda original, self, rows: None)


@fault("a delete forgets the vector index", **ON_CHROMA)
def _() -> Any:
    return around(vector_index.ChromaVectorIndex, "delete", lambda original, self, rows: None)


@fault("a write forgets the keyword index")
def _() -> Any:
    return around(keyword_index.TantivyKeywordIndex, "add", lambda original, self, rows, terms: None)


@fault("a write forgets the vector index", **ON_CHROMA)
def _() -> Any:
    return around(vector_index.ChromaVectorIndex, "add", lambda original, self, rows, vectors: None)


@fault("Chroma gets the vectors in another order", **ON_CHROMA)
def _() -> Any:
    return around(
        vector_index.ChromaVectorIndex,
        "add",
        lambda original, self, rows, vectors: original(self, rows, vectors[::-1].copy()),
    )


# -- statistics -------------------------------------------------------------------------------------------------------


@fault("document frequencies go on counting the deleted")
def _() -> Any:
    def stale(original: Any, self: Any, query: Any) -> Any:
        searcher = self._index.searcher()
        return {field: {term: searcher.doc_freq(field, term) for term in terms} for field, terms in query.items()}

    return around(keyword_index.TantivyKeywordIndex, "doc_freqs", stale)


@fault("every agent's texts count in everybody's scores")
def _() -> Any:
    def all_of_them(original: Any, store: Any, partitions: Any, *rest: Any) -> Any:
        return original(store, [VisiblePartition(part) for part in store.catalog.partitions() if part.chunks], *rest)

    return around(engine, "keyword_scorer", all_of_them)


@fault("counts of a partition are not lowered by a delete")
def _() -> Any:
    def upwards(original: Any, self: Any, lengths: Any, sign: int) -> None:
        if sign > 0:
            original(self, lengths, sign)

    return around(commit.PartitionDelta, "count", upwards)


@fault("one memory of rows for all partitions")
def _() -> Any:
    def first(original: Any, self: Any, partition: Any) -> Any:
        cache = next(iter(self._caches.values()), None)
        return cache or original(self, partition)

    return around(indexes.PartitionIndexes, "cache", first)


@fault("vectors of other agents' texts are taken over")
def _() -> Any:
    def anybody(original: Any, connection: Any, owner: Any, hashes: Any) -> Any:
        by_hash: dict[Any, Any] = {}
        for (other,) in connection.execute("SELECT owner FROM partitions").fetchall():
            by_hash |= original(connection, other, hashes)
        return by_hash

    return around(pipeline, "cached_vectors", anybody)


# -- what is kept -----------------------------------------------------------------------------------------------------


@fault("an update merges metadata")
def _() -> Any:
    def merged(original: Any, connection: Any, put: Any, partition: int, *rest: Any, **options: Any) -> Any:
        row = connection.execute(
            "SELECT metadata FROM documents WHERE partition = ? AND doc_id = ?", (partition, put.document.doc_id)
        ).fetchone()
        if row:
            metadata = {**decode(row[0]), **put.document.metadata}
            put = replace(put, document=replace(put.document, metadata=metadata))
        return original(connection, put, partition, *rest, **options)

    return around(commit, "_replace_document", merged)


@fault("metadata are lost")
def _() -> Any:
    def lost(original: Any, connection: Any, put: Any, *rest: Any, **options: Any) -> Any:
        return original(connection, replace(put, document=replace(put.document, metadata={})), *rest, **options)

    return around(commit, "_replace_document", lost)


@fault("an update moves a document to the end of the order")
def _() -> Any:
    def moved(original: Any, connection: Any, put: Any, partition: int, tally: Any, options: Any) -> Any:
        existing = commit._document_key(connection, partition, put.document.doc_id)
        if existing is not None:
            commit._remove_document(connection, partition, existing, tally, keep=options.keep_vectors)
        key, _ = original(connection, put, partition, tally, options)
        tally.documents += existing is not None
        return key, existing is not None

    return around(commit, "_replace_document", moved)


@fault("spans are off by one")
def _() -> Any:
    def shifted(original: Any, document: Any, chunking: Any) -> Any:
        return [replace(chunk, start=chunk.start + 1, end=chunk.end + 1) for chunk in original(document, chunking)]

    return around(pipeline, "chunk_document", shifted)


@fault("forgetting an agent leaves its documents")
def _() -> Any:
    return around(
        storage.Store,
        "delete_partition",
        lambda original, self, owner: storage.CommitResult(
            deleted=self.stats(Scope(owner)).documents - self.stats(Scope(owner)).shared_documents
        ),
    )


@fault("a view tells of what waits of documents that others deleted")
def _() -> Any:
    return around(storage.Store, "own_work", lambda original, self, stats, owner: self.stats(None))


@fault("an erasure leaves what was deleted to the background")
def _() -> Any:
    return around(storage.Store, "purge", lambda original, self: None)


@fault("forgetting an agent forgets its lookalikes too")
def _() -> Any:
    def more(original: Any, self: Any, owner: str) -> Any:
        for part in self.catalog.partitions():
            if part.owner and part.owner != owner and part.owner.strip() == owner.strip():
                original(self, part.owner)
        return original(self, owner)

    return around(storage.Store, "delete_partition", more)


@fault("a delete by filter ignores the ids")
def _() -> Any:
    def all_ids(original: Any, self: Any, doc_ids: Any = None, **options: Any) -> Any:
        return original(self, None if options.get("filter") else doc_ids, **options)

    return around(facade.DualIndexer, "delete", all_ids)


@fault("equal texts are one document")
def _() -> Any:
    def once(original: Any, self: Any, request: Any) -> Any:
        hits = original(self, request)
        hit_by_text = {hit.text: hit for hit in reversed(hits)}
        return Hits([hit for hit in hits if hit_by_text[hit.text] is hit], query=hits.query, mode=hits.mode)

    return around(engine.Searcher, "search", once)


# -- the answer -------------------------------------------------------------------------------------------------------


@fault("ties are broken backwards")
def _() -> Any:
    def backwards(rows: Any, *, key: Any = None, **options: Any) -> list[Any]:
        if key is None:
            return builtins.sorted(rows, **options)
        return builtins.sorted(rows, key=lambda row: (*key(row)[:-2], -key(row)[-2], key(row)[-1]))

    return patch.object(ranking, "sorted", backwards, create=True)


@fault("one hit more than wanted")
def _() -> Any:
    def more(original: Any, self: Any, query: str, k: int = 5, **options: Any) -> Any:
        return original(self, query, k + 1, **options)

    return around(facade.DualIndexer, "search", more)


def _equal_weights(*rules: str) -> Any:
    def fuse(original: Any, rule: str, rankings: Any, weights: Any) -> Any:
        return original(rule, rankings, (0.5, 0.5) if rule in rules else weights)

    return around(ranking, "fuse", fuse)


@fault("weights are ignored")
def _() -> Any:
    return _equal_weights("adaptive", "convex")


@fault("weights are ignored by the fusion of ranks")
def _() -> Any:
    return _equal_weights("rrf", "dbsf", "relative")


@fault("the indexes are exchanged in fusion")
def _() -> Any:
    return around(ranking, "fuse_scores", lambda original, *args: original(*args[:-2], args[-1], args[-2]))


@fault("scores are not calibrated")
def _() -> Any:
    return patch.object(ranking, "calibrate_cosine", lambda cosine, background: (cosine + 1) / 2)


@fault("spans of highlights are off by one")
def _() -> Any:
    def shifted(original: Any, self: Any, *args: Any) -> Any:
        return [(start + 1, stop + 1) for start, stop in original(self, *args)]

    return around(engine.Searcher, "_spans", shifted)


@fault("scores depend on how many rows are scored together")
def _() -> Any:
    def together(original: Any, vectors: Any, query: Any) -> Any:
        return original(vectors, query) * (1 + 1e-12 * len(vectors))

    return around(ranking, "cosines", together)
