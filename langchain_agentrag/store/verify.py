"""Verification of a store against its catalog, row by row or by content, and repair."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from langchain_agentrag.errors import StoreError
from langchain_agentrag.store.catalog import PartitionRow, select_in
from langchain_agentrag.store.columnar_cache import cosines, unpack_vectors
from langchain_agentrag.store.commit import (
    embedding_hash,
    embedding_text,
    pack_lengths,
    pack_terms,
    unpack_lengths,
    unpack_terms,
)
from langchain_agentrag.store.fork import check_chroma_usable
from langchain_agentrag.store.protocols import Rows
from langchain_agentrag.store.queries import NOT_EXPIRED
from langchain_agentrag.store.store import Store
from langchain_agentrag.text import FIELDS, Analyzer, Terms
from langchain_agentrag.times import to_microseconds
from langchain_agentrag.types import Chunk

_UNFINISHED = {
    "writing": "a write",
    "cleaning": "a write",
    "handing": "the indexing of vectors",
    "dropping": "a deletion",
}


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Result of a verification.

    Attributes:
        problems: One sentence per problem; empty when the store is consistent.
        partitions: Number of partitions checked.
        documents: Number of visible documents.
        chunks: Number of visible chunks.
        vectors: Number of rows checked in Chroma; it does not hold unindexed rows yet.
        probes: Number of attempts to read another agent's documents; None unless the check was deep.
    """

    problems: tuple[str, ...]
    partitions: int
    documents: int
    chunks: int
    vectors: int
    probes: int | None = None

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


def verify(store: Store) -> VerifyReport:
    """Check the catalog's own consistency and compare both indexes with it, row by row. Changes nothing.

    Raises:
        StoreLockedError: A writer held the lock for longer than the timeout.
        ForkedProcessError: Chroma, which holds a partition, cannot be used in this process.
    """
    store.calls.check_open()
    if any(partition.in_chroma for partition in store.catalog.partitions()):
        check_chroma_usable()
    with store.lock.acquire():  # between two writes, so that a running write is not reported as damage
        store.indexes.chroma.discard_stale_client()  # nor rows that another client wrote
        partitions = store.catalog.partitions()
        problems = [f"catalog: {problem}" for problem in store.catalog.check_integrity()]
        problems += [
            f"{_UNFINISHED.get(entry.state, entry.state)} was not finished" for entry in store.catalog.journal()
        ]
        for partition in partitions:
            problems += _check_partition(store, partition)
        now = store.now()
        visible = [store.visibility.visible(partition, now).partition for partition in partitions]
        folders, collections = store.recovery.orphans()
        problems += [f"{name} is an index of no partition" for name in sorted(folders | collections)]
        return VerifyReport(
            problems=tuple(problems),
            partitions=len(partitions),
            documents=sum(partition.documents for partition in visible),
            chunks=sum(partition.chunks for partition in visible),
            vectors=sum(len(store.recovery.indexed_rows(part)) for part in partitions if part.in_chroma),
        )


def repair(store: Store) -> VerifyReport:
    """Repair a store and verify it.

    Finishes interrupted writes, rebuilds indexes that differ from the catalog, deletes orphans and indexes vectors.
    Needs neither analysis nor embedding: terms and vectors are in the catalog.
    """
    store.calls.check_open()
    with store.lock.acquire():
        store.recovery.recover()
        store.purger.request_all()
        store.purger.purge()
        store.indexes.chroma.discard_stale_client()
        for partition in store.catalog.partitions():
            _correct_counts(store, partition)
        for partition in store.catalog.partitions():
            if _keyword_problems(store, partition):
                store.indexes.rebuild_keyword_index(partition)
            if partition.in_chroma and _vector_problems(store, partition):
                store.indexes.rebuild_vector_index(partition)
        store.recovery.drop_orphans()
        store.background_indexer.index_pending()
        store.catalog.truncate_wal()
        return verify(store)


def _check_partition(store: Store, partition: PartitionRow) -> list[str]:
    owner = _owner_name(partition)
    problems = []
    if _count_rows(store, partition) != (partition.documents, partition.chunks, partition.tokens):
        problems.append(f"{owner}: the counts in the catalog differ from its rows")
    problems += _keyword_problems(store, partition)
    if partition.in_chroma:
        problems += _vector_problems(store, partition)
    query = "SELECT count(*) FROM chunks LEFT JOIN vectors USING (row) WHERE partition = ? AND vector IS NULL"
    missing = store.catalog.fetch_value(query, (partition.id,))
    if missing:
        problems.append(f"{owner}: {missing} chunks have no vector in the catalog; index their documents again")
    return problems


def _keyword_problems(store: Store, partition: PartitionRow) -> list[str]:
    owner, live = _owner_name(partition), store.recovery.live_rows(partition)
    if not len(live) and not store.indexes.keyword_folder(partition.name).exists():
        return []
    try:
        keyword_index = store.indexes.open_keyword_index(partition)
        damaged, rows = keyword_index.damaged_files(), keyword_index.rows()
    except StoreError as error:
        return [f"{owner}: the keyword index cannot be read ({error})"]
    problems = [f"{owner}: the keyword index has damaged files ({', '.join(damaged[:3])})"] if damaged else []
    return problems + _compare_rows(f"{owner}: the keyword index", rows, live)


def _vector_problems(store: Store, partition: PartitionRow) -> list[str]:
    owner, expected = _owner_name(partition), store.recovery.indexed_rows(partition)
    try:
        vector_index = store.indexes.open_vector_index(partition)
        vector_index.probe()
        rows, lost = vector_index.rows(), vector_index.unreachable(expected)
    except StoreError as error:
        return [f"{owner}: the vector index cannot be read ({error})"]
    rows = rows[~np.isin(rows, store.recovery.unpurged_rows(partition))]  # hidden by the catalog until they are purged
    problems = _compare_rows(f"{owner}: the vector index", rows, expected)
    return problems or ([f"{owner}: the vector index has lost {lost} vectors"] if lost else [])


def _compare_rows(index: str, rows: Rows, expected: Rows) -> list[str]:
    missing, extra = np.setdiff1d(expected, rows), np.setdiff1d(rows, expected)
    if not len(missing) and not len(extra) and len(rows) == len(expected):
        return []
    surplus = len(rows) - len(expected) + len(missing)
    return [f"{index} lacks {len(missing)} rows and holds {surplus} too many"]


def _count_rows(store: Store, partition: PartitionRow) -> tuple[int, int, tuple[int, ...]]:
    key = (partition.id,)
    documents = store.catalog.fetch_value("SELECT count(*) FROM documents WHERE partition = ?", key)
    chunks, totals = 0, [0] * len(FIELDS)
    query = "SELECT lengths FROM chunks WHERE partition = ?"
    for (packed,) in store.catalog.connection().execute(query, key):
        chunks += 1
        totals = [a + b for a, b in zip(totals, unpack_lengths(packed).values(), strict=True)]
    return documents, chunks, tuple(totals) if partition.tokens or chunks else ()


def _correct_counts(store: Store, partition: PartitionRow) -> None:
    documents, chunks, tokens = _count_rows(store, partition)
    if (documents, chunks, tokens) != (partition.documents, partition.chunks, partition.tokens):
        with store.catalog.transaction() as connection:
            connection.execute(
                "UPDATE partitions SET documents = ?, chunks = ?, tokens = ?, generation = generation + 1 WHERE id = ?",
                (documents, chunks, str(list(tokens)), partition.id),
            )


def _owner_name(partition: PartitionRow) -> str:
    return "shared" if partition.owner is None else f"agent {partition.owner!r}"


_VECTOR_PAGE = 500  # vectors read from Chroma at once
_SAMPLED_ROWS = 200  # rows per partition searched for one by one in the keyword index
_COSINE_TOLERANCE = 1e-3  # Chroma stores vectors scaled to length 1, in float32

Address = tuple[str, int, str]
"""(doc_id, ordinal, text) of a chunk."""


def check_chunks(store: Store, analyzer: Analyzer, sample: int | None = None, seed: int = 0) -> list[str]:
    """Check chunks, terms, hashes and vectors of a store by content.

    Args:
        store: The store.
        analyzer: The analyzer it was built with.
        sample: Maximum number of chunks per partition, chosen at random; None for all.
        seed: Seed of the sample.

    Returns:
        One sentence per kind of problem and partition, with row numbers and without any text.

    Raises:
        StoreLockedError: A writer held the lock for longer than the timeout.
    """
    store.calls.check_open()
    rng = random.Random(seed)  # noqa: S311  (a sample, not a secret)
    problems: list[str] = []
    for partition in store.catalog.partitions():
        with store.catalog.snapshot() as connection:
            rows = sample_rows(connection, partition.owner, sample, rng)
            messages = [*_check_structure(connection, partition), *_check_content(connection, store, analyzer, rows)]
        with store.lock.acquire():  # between two writes, so that indexes and catalog are in the same state
            current = store.catalog.partition(partition.owner)
            if current is not None:
                messages += _check_keyword_index(store, current, rows, rng)
                messages += _check_vectors(store, current, rows)
        problems += [f"{_owner_name(partition)}: {message}" for message in messages]
    return problems


def sample_rows(connection: sqlite3.Connection, owner: str | None, sample: int | None, rng: random.Random) -> list[int]:
    """Return the live rows of an owner, ascending; at most `sample` of them, chosen at random."""
    query = "SELECT row FROM chunks JOIN partitions ON partitions.id = chunks.partition WHERE owner IS ? ORDER BY row"
    rows = [row for (row,) in connection.execute(query, (owner,))]
    return rows if sample is None or len(rows) <= sample else sorted(rng.sample(rows, sample))


def chunk_addresses(connection: sqlite3.Connection, rows: Sequence[int]) -> list[Address]:
    """Return document, ordinal and text of the live ones of the rows."""
    query = (
        "SELECT d.doc_id, c.ordinal, c.text FROM chunks c JOIN documents d ON d.id = c.document WHERE c.row IN (...)"
    )
    return list(select_in(connection, query, rows))


_CHUNK_OWNERS = (
    "SELECT p.owner FROM partitions p JOIN documents d ON d.partition = p.id JOIN chunks c ON c.document = d.id "
    "WHERE d.doc_id = ? AND c.ordinal = ? AND c.text = ?"
)


def has_chunk(connection: sqlite3.Connection, owner: str | None, address: Address) -> bool:
    """Whether an owner has exactly this chunk; one lookup."""
    return connection.execute(f"{_CHUNK_OWNERS} AND p.owner IS ?", (*address, owner)).fetchone() is not None


def chunk_owners(connection: sqlite3.Connection, address: Address) -> set[str | None]:
    """Return all owners of exactly this chunk; reads all documents."""
    return {owner for (owner,) in connection.execute(_CHUNK_OWNERS, address)}


def stored_terms(
    connection: sqlite3.Connection, owners: Iterable[str | None], now: datetime
) -> dict[tuple[str | None, str, int], Terms]:
    """Return the stored terms of all chunks of these owners that a search finds, by owner, document and ordinal."""
    return {
        (owner, doc_id, ordinal): unpack_terms(terms, lengths)
        for owner in owners
        for doc_id, ordinal, terms, lengths in connection.execute(
            "SELECT d.doc_id, c.ordinal, c.terms, c.lengths FROM chunks c JOIN documents d ON d.id = c.document "
            "JOIN partitions p ON p.id = c.partition WHERE p.owner IS ? "
            f"AND {NOT_EXPIRED} AND NOT EXISTS (SELECT 1 FROM quarantine q WHERE q.document = d.id)",
            (owner, to_microseconds(now)),
        )
    }


def _check_structure(connection: sqlite3.Connection, partition: PartitionRow) -> Iterator[str]:
    strays = (
        "SELECT count(*) FROM chunks c LEFT JOIN documents d ON d.id = c.document "
        "WHERE c.partition = ? AND d.partition IS NOT c.partition"
    )
    misnumbered = (
        "SELECT count(*) FROM (SELECT count(c.row) AS held, min(c.ordinal) AS low, max(c.ordinal) AS high "
        "FROM documents d LEFT JOIN chunks c ON c.document = d.id WHERE d.partition = ? GROUP BY d.id "
        "HAVING held = 0 OR low <> 0 OR high <> held - 1)"
    )
    for query, problem in (
        (strays, "{} chunks belong to a document of somebody else, or of nobody"),
        (misnumbered, "the chunks of {} documents are not numbered from 0 without gaps"),
    ):
        if count := connection.execute(query, (partition.id,)).fetchone()[0]:
            yield problem.format(count)


def _check_content(connection: sqlite3.Connection, store: Store, analyzer: Analyzer, rows: Sequence[int]) -> list[str]:
    query = (
        "SELECT c.row, c.start, c.stop, c.text, c.context, c.hash, c.terms, c.lengths, v.vector, d.text "
        "FROM chunks c JOIN documents d ON d.id = c.document LEFT JOIN vectors v USING (row) "
        "WHERE c.row IN (...)"
    )
    rows_by_problem: dict[str, list[int]] = {}
    for row, start, stop, text, context, digest, terms, lengths, vector, whole in select_in(connection, query, rows):
        problems = []
        if (text if whole is None else whole)[start:stop] != text:
            problems.append("a text that is not what the document holds there")
        expected = analyzer.analyze(text, context)
        if (pack_terms(expected), pack_lengths(expected)) != (terms, lengths):
            problems.append("terms that the analyzer does not give")
        if digest not in _possible_hashes(Chunk(0, start, stop, text, context), vector or b""):
            problems.append("a hash of something else")
        if problem := _vector_problem(vector, store.dimension):
            problems.append(problem)
        for problem in problems:
            rows_by_problem.setdefault(problem, []).append(row)
    return [
        f"{len(affected)} chunks have {problem} ({_format_rows(affected)})"
        for problem, affected in rows_by_problem.items()
    ]


def _possible_hashes(chunk: Chunk, vector: bytes) -> tuple[bytes, bytes]:
    """Return the hash of the embedded text, and that of the text with a vector computed by the caller."""
    vector_hash = hashlib.blake2b(vector, digest_size=16).hexdigest()
    return embedding_hash(embedding_text(chunk)), embedding_hash(chunk.text + vector_hash)


def _vector_problem(packed: bytes | None, dimension: int | None) -> str | None:
    if packed is None:
        return "no vector"
    vector = unpack_vectors([packed])[0]
    if dimension is not None and len(vector) != dimension:
        return "a vector of another length than the store's"
    return None if np.isfinite(vector).all() else "a vector that is not finite"


def _check_keyword_index(
    store: Store, partition: PartitionRow, rows: Sequence[int], rng: random.Random
) -> Iterator[str]:
    """Check that the keyword index finds rows by their terms and has the catalog's document frequencies."""
    sample = rng.sample(list(rows), min(len(rows), _SAMPLED_ROWS))
    if not partition.chunks:
        return
    connection = store.catalog.connection()
    sample_terms = select_in(connection, "SELECT row, terms FROM chunks WHERE row IN (...)", sample)
    terms_by_row = {row: _term_sets(packed) for row, packed in sample_terms}
    try:
        keyword_index = store.indexes.open_keyword_index(partition)
        queries = {
            row: {name: {rng.choice(sorted(terms)): 1.0} for name, terms in fields.items() if terms}
            for row, fields in terms_by_row.items()
        }
        searched = [row for row, query in queries.items() if query]
        lost = [row for row in searched if not keyword_index.candidates(queries[row], 1, np.array([row]))]
        query_terms = {
            name: dict.fromkeys((term for query in queries.values() for term in query.get(name, {})), 1.0)
            for name in FIELDS
        }
        doc_freqs = keyword_index.doc_freqs(query_terms)
    except StoreError as error:
        yield f"the keyword index cannot be searched ({error})"
        return
    if lost:
        yield f"{len(lost)} chunks are not found by their own words ({_format_rows(lost)})"
    expected = {name: Counter[str]() for name in FIELDS}
    for (packed,) in connection.execute("SELECT terms FROM chunks WHERE partition = ?", (partition.id,)):
        for name, terms in _term_sets(packed).items():
            expected[name].update(terms & query_terms[name].keys())
    wrong = sum(expected[name][term] != count for name, counts in doc_freqs.items() for term, count in counts.items())
    if wrong:
        total = sum(map(len, query_terms.values()))
        yield f"the keyword index counts {wrong} of {total} terms otherwise than the catalog"


def _check_vectors(store: Store, partition: PartitionRow, rows: Sequence[int]) -> Iterator[str]:
    """Check that Chroma holds the catalog's vectors."""
    if partition.collection is None:
        return
    wrong = 0
    try:
        vector_index = store.indexes.open_vector_index(partition)
        for start in range(0, len(rows), _VECTOR_PAGE):
            part = rows[start : start + _VECTOR_PAGE]
            query = "SELECT row, vector FROM vectors WHERE row IN (...)"
            packed = dict(select_in(store.catalog.connection(), query, part))
            for row, vector in vector_index.stored([row for row in part if row in packed]).items():
                expected = unpack_vectors([packed[row]])
                wrong += bool(expected.any()) and float(cosines(expected, vector)[0]) < 1 - _COSINE_TOLERANCE
    except StoreError as error:
        yield f"the vector index cannot be read ({error})"
        return
    if wrong:
        yield f"Chroma holds {wrong} vectors that are not the catalog's"


def _term_sets(packed: str) -> Mapping[str, set[str]]:
    lines = zip(FIELDS, packed.split("\n"), strict=True)
    return {name: set(line.split(" ")) - {""} for name, line in lines}


def _format_rows(rows: Sequence[int]) -> str:
    first = ", ".join(map(str, rows[:5]))
    return f"row{'s' if len(rows) > 1 else ''} {first}{' …' if len(rows) > 5 else ''}"  # noqa: PLR2004  (as many as fit a line)
