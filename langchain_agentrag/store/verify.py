"""Checks that both legs hold exactly the catalog's live rows, and mends what does not."""

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
from langchain_agentrag.store.catalog import PartitionRow, batched
from langchain_agentrag.store.commit import (
    embedding_hash,
    embedding_text,
    pack_lengths,
    pack_terms,
    unpack_lengths,
    unpack_terms,
)
from langchain_agentrag.store.partition_cache import cosines, unpack_vectors
from langchain_agentrag.store.protocols import Rows
from langchain_agentrag.store.store import Store
from langchain_agentrag.text import FIELDS, Analyzer, Terms
from langchain_agentrag.times import to_microseconds
from langchain_agentrag.types import Chunk

_WORK = {"writing": "a write", "cleaning": "a write", "dropping": "a deletion", "purging": "an erasure"}


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a check found.

    Attributes:
        problems: One sentence per problem; empty when the store is sound.
        partitions: Partitions checked.
        documents: Live documents.
        chunks: Live chunks.
        vectors: Rows checked in Chroma; those that wait to be handed over are not there yet.
        probes: Attempts to see what belongs to another agent; None unless the check was deep.
    """

    problems: tuple[str, ...]
    partitions: int
    documents: int
    chunks: int
    vectors: int
    probes: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the store is sound."""
        return not self.problems


def verify(store: Store) -> VerifyReport:
    """Compare the catalog with itself and with both legs, row by row. Changes nothing.

    Raises:
        StoreLockedError: a writer was busy for longer than the time-out.
    """
    store.check_open()
    with store.lock.held():  # between two writes, so that nothing half-written is taken for damage
        store.indexes.chroma.refresh()  # nor what another handle wrote
        partitions = store.catalog.partitions()
        problems = [f"catalog: {problem}" for problem in store.catalog.check_integrity()]
        problems += [
            f"{_WORK.get(entry.state, entry.state)} was not finished" for entry in store.catalog.journal()
        ]
        for partition in partitions:
            problems += _check_partition(store, partition)
        now = store.now()
        living = [store.visibility.visible(partition, now).partition for partition in partitions]
        folders, collections = store.recovery.orphans()
        problems += [f"{name} is an index of no partition" for name in sorted(folders | collections)]
        return VerifyReport(
            problems=tuple(problems),
            partitions=len(partitions),
            documents=sum(partition.documents for partition in living),
            chunks=sum(partition.chunks for partition in living),
            vectors=sum(len(store.recovery.held(part)) for part in partitions if part.in_chroma),
        )


def repair(store: Store) -> VerifyReport:
    """Finish interrupted writes, rebuild what differs from the catalog, remove strays, build graphs; then verify.

    Needs neither analysis nor embedding: terms and vectors are in the catalog.
    """
    store.check_open()
    with store.lock.held():
        store.recover()
        store.indexes.chroma.refresh()
        for partition in store.catalog.partitions():
            _recount(store, partition)
        for partition in store.catalog.partitions():
            if _keyword_problems(store, partition):
                store.indexes.rebuild_keyword_index(partition)
            if partition.in_chroma and _vector_problems(store, partition):
                store.indexes.rebuild_vector_index(partition)
        store.recovery.sweep()
        store.background_indexer.finish()
        store.catalog.erase_free_space()
        return verify(store)


def _check_partition(store: Store, partition: PartitionRow) -> list[str]:
    who = _name(partition)
    problems = []
    if _counted(store, partition) != (partition.documents, partition.chunks, partition.tokens):
        problems.append(f"{who}: the counts in the catalog differ from its rows")
    problems += _keyword_problems(store, partition)
    if partition.in_chroma:
        problems += _vector_problems(store, partition)
    connection = store.catalog.connection()
    bare = connection.execute(
        "SELECT count(*) FROM chunks LEFT JOIN vectors USING (row) WHERE partition = ? AND vector IS NULL",
        (partition.id,),
    ).fetchone()[0]
    if bare:
        problems.append(f"{who}: {bare} chunks have no vector in the catalog; index their documents again")
    return problems


def _keyword_problems(store: Store, partition: PartitionRow) -> list[str]:
    who, live = _name(partition), store.recovery.live(partition)
    if not len(live) and not store.indexes.keyword_folder(partition.name).exists():
        return []
    try:
        leg = store.indexes.open_keyword_index(partition)
        damaged, held = leg.damaged_files(), leg.rows()
    except StoreError as error:
        return [f"{who}: the keyword index cannot be read ({error})"]
    problems = [f"{who}: the keyword index has damaged files ({', '.join(damaged[:3])})"] if damaged else []
    return problems + _difference(f"{who}: the keyword index", held, live)


def _vector_problems(store: Store, partition: PartitionRow) -> list[str]:
    who, expected = _name(partition), store.recovery.held(partition)
    try:
        leg = store.indexes.open_vector_index(partition)
        leg.probe()
        held, lost = leg.rows(), leg.unreachable(expected)
    except StoreError as error:
        return [f"{who}: the vector index cannot be read ({error})"]
    problems = _difference(f"{who}: the vector index", held, expected)
    return problems or ([f"{who}: the vector index has lost {lost} vectors"] if lost else [])


def _difference(index: str, held: Rows, live: Rows) -> list[str]:
    missing, extra = np.setdiff1d(live, held), np.setdiff1d(held, live)
    if not len(missing) and not len(extra) and len(held) == len(live):
        return []
    surplus = len(held) - len(live) + len(missing)
    return [f"{index} lacks {len(missing)} rows and holds {surplus} too many"]


def _counted(store: Store, partition: PartitionRow) -> tuple[int, int, tuple[int, ...]]:
    connection = store.catalog.connection()
    documents = connection.execute(
        "SELECT count(*) FROM documents WHERE partition = ?", (partition.id,)
    ).fetchone()[0]
    chunks, totals = 0, [0] * len(FIELDS)
    for (packed,) in connection.execute("SELECT lengths FROM chunks WHERE partition = ?", (partition.id,)):
        chunks += 1
        totals = [a + b for a, b in zip(totals, unpack_lengths(packed).values(), strict=True)]
    return documents, chunks, tuple(totals) if partition.tokens or chunks else ()


def _recount(store: Store, partition: PartitionRow) -> None:
    documents, chunks, tokens = _counted(store, partition)
    if (documents, chunks, tokens) != (partition.documents, partition.chunks, partition.tokens):
        with store.catalog.transaction() as connection:
            connection.execute(
                "UPDATE partitions SET documents = ?, chunks = ?, tokens = ?, generation = generation + 1 WHERE id = ?",
                (documents, chunks, str(list(tokens)), partition.id),
            )


def _name(partition: PartitionRow) -> str:
    return "shared" if partition.owner is None else f"agent {partition.owner!r}"


_PROBED = 200  # rows asked for one by one in the keyword leg, and terms counted there, per partition
_CLOSE = 1e-3  # Chroma keeps vectors scaled to length 1, in float32

Address = tuple[str, int, str]
"""(doc_id, ordinal, text) of a chunk."""


def check_chunks(store: Store, analyzer: Analyzer, sample: int | None = None, seed: int = 0) -> list[str]:
    """Problems in the content of a store: one sentence per kind and partition, with row numbers, without any text.

    Args:
        store: The store.
        analyzer: The one it was built with.
        sample: Most chunks to look at per partition, chosen at random; None for all.
        seed: Of the choice.

    Raises:
        StoreLockedError: a writer was busy for longer than the time-out.
    """
    store.check_open()
    dice = random.Random(seed)  # noqa: S311  a sample, not a secret
    problems: list[str] = []
    for partition in store.catalog.partitions():
        who = "shared" if partition.owner is None else f"agent {partition.owner!r}"
        with store.catalog.snapshot() as connection:
            rows = sample_rows(connection, partition.owner, sample, dice)
            found = [*_misplaced(connection, partition), *_content(connection, store, analyzer, rows)]
        with store.lock.held():  # between two writes, so that legs and catalog are of one age
            current = store.catalog.partition(partition.owner)
            if current is not None:
                found += _in_keywords(store, current, rows, dice)
                found += _in_vectors(store, current, rows)
        problems += [f"{who}: {problem}" for problem in found]
    return problems


def sample_rows(
    connection: sqlite3.Connection, owner: str | None, sample: int | None, dice: random.Random
) -> list[int]:
    """Live rows of an owner, ascending: all, or that many of them."""
    rows = [
        row
        for (row,) in connection.execute(
            "SELECT row FROM chunks JOIN partitions ON partitions.id = chunks.partition WHERE owner IS ? ORDER BY row",
            (owner,),
        )
    ]
    return rows if sample is None or len(rows) <= sample else sorted(dice.sample(rows, sample))


def chunk_addresses(connection: sqlite3.Connection, rows: Sequence[int]) -> list[Address]:
    """Where these rows are, and what they say."""
    found: list[Address] = []
    for part in batched(rows):
        marks = ",".join("?" * len(part))
        found += connection.execute(
            "SELECT d.doc_id, c.ordinal, c.text FROM chunks c JOIN documents d ON d.id = c.document "
            f"WHERE c.row IN ({marks})",
            tuple(part),
        ).fetchall()
    return found


def has_chunk(connection: sqlite3.Connection, owner: str | None, address: Address) -> bool:
    """Whether an owner has exactly this chunk; a look-up."""
    found = connection.execute(
        "SELECT 1 FROM partitions p JOIN documents d ON d.partition = p.id JOIN chunks c ON c.document = d.id "
        "WHERE p.owner IS ? AND d.doc_id = ? AND c.ordinal = ? AND c.text = ?",
        (owner, *address),
    ).fetchone()
    return found is not None


def chunk_owners(connection: sqlite3.Connection, address: Address) -> set[str | None]:
    """Everybody who has exactly this chunk; reads all documents."""
    return {
        owner
        for (owner,) in connection.execute(
            "SELECT p.owner FROM chunks c JOIN documents d ON d.id = c.document "
            "JOIN partitions p ON p.id = d.partition WHERE d.doc_id = ? AND c.ordinal = ? AND c.text = ?",
            address,
        )
    }


def stored_terms(
    connection: sqlite3.Connection, owners: Iterable[str | None], now: datetime
) -> dict[tuple[str | None, str, int], Terms]:
    """Stored terms of everything these owners have that a search finds, by owner, document and chunk."""
    return {
        (owner, doc_id, ordinal): unpack_terms(terms, lengths)
        for owner in owners
        for doc_id, ordinal, terms, lengths in connection.execute(
            "SELECT d.doc_id, c.ordinal, c.terms, c.lengths FROM chunks c JOIN documents d ON d.id = c.document "
            "JOIN partitions p ON p.id = c.partition WHERE p.owner IS ? "
            "AND NOT EXISTS (SELECT 1 FROM expiry e WHERE e.document = d.id AND e.at <= ?) "
            "AND NOT EXISTS (SELECT 1 FROM quarantine q WHERE q.document = d.id)",
            (owner, to_microseconds(now)),
        )
    }


def _misplaced(connection: sqlite3.Connection, partition: PartitionRow) -> Iterator[str]:
    strays = connection.execute(
        "SELECT count(*) FROM chunks c LEFT JOIN documents d ON d.id = c.document "
        "WHERE c.partition = ? AND d.partition IS NOT c.partition",
        (partition.id,),
    ).fetchone()[0]
    if strays:
        yield f"{strays} chunks belong to a document of somebody else, or of nobody"
    broken = connection.execute(
        "SELECT count(*) FROM (SELECT count(c.row) AS held, min(c.ordinal) AS low, max(c.ordinal) AS high "
        "FROM documents d LEFT JOIN chunks c ON c.document = d.id WHERE d.partition = ? GROUP BY d.id "
        "HAVING held = 0 OR low <> 0 OR high <> held - 1)",
        (partition.id,),
    ).fetchone()[0]
    if broken:
        yield f"the chunks of {broken} documents are not numbered from 0 without gaps"


def _content(
    connection: sqlite3.Connection, store: Store, analyzer: Analyzer, rows: Sequence[int]
) -> list[str]:
    wrong: dict[str, list[int]] = {}
    for part in batched(rows):
        marks = ",".join("?" * len(part))
        for row, start, stop, text, context, digest, terms, lengths, vector, whole in connection.execute(
            "SELECT c.row, c.start, c.stop, c.text, c.context, c.hash, c.terms, c.lengths, v.vector, d.text "
            "FROM chunks c JOIN documents d ON d.id = c.document LEFT JOIN vectors v USING (row) "
            f"WHERE c.row IN ({marks})",
            tuple(part),
        ):
            if (text if whole is None else whole)[start:stop] != text:
                wrong.setdefault("a text that is not what the document holds there", []).append(row)
            told = analyzer.analyze(text, context)
            if (pack_terms(told), pack_lengths(told)) != (terms, lengths):
                wrong.setdefault("terms that the analyzer does not give", []).append(row)
            if digest not in _digests(Chunk(0, start, stop, text, context), vector or b""):
                wrong.setdefault("a hash of something else", []).append(row)
            if problem := _vector_problem(vector, store.dimension):
                wrong.setdefault(problem, []).append(row)
    return [f"{len(found)} chunks have {what} ({_listed(found)})" for what, found in wrong.items()]


def _digests(chunk: Chunk, vector: bytes) -> tuple[bytes, bytes]:
    """Hash of what the model embedded, or of the text with the vector that was given."""
    given = hashlib.blake2b(vector, digest_size=16).hexdigest()
    return embedding_hash(embedding_text(chunk)), embedding_hash(chunk.text + given)


def _vector_problem(packed: bytes | None, dimension: int | None) -> str | None:
    if packed is None:
        return "no vector"
    vector = unpack_vectors([packed])[0]
    if dimension is not None and len(vector) != dimension:
        return "a vector of another length than the store's"
    return None if np.isfinite(vector).all() else "a vector that is not finite"


def _in_keywords(
    store: Store, partition: PartitionRow, rows: Sequence[int], dice: random.Random
) -> Iterator[str]:
    """Whether the keyword leg finds rows by their terms and counts terms as the catalog does."""
    chosen = dice.sample(list(rows), min(len(rows), _PROBED))
    held = dict(_terms_of(store.catalog.connection(), chosen))
    try:
        leg = store.indexes.open_keyword_index(partition) if partition.chunks else None
        if leg is None:
            return
        asked = {
            row: {name: {dice.choice(sorted(found)): 1.0} for name, found in terms.items() if found}
            for row, terms in held.items()
        }
        lost = [
            row for row, query in asked.items() if query and not leg.candidates(query, 1, np.array([row]))
        ]
        counted = {
            name: dict.fromkeys((term for query in asked.values() for term in query.get(name, {})), 1.0)
            for name in FIELDS
        }
        frequencies = leg.doc_freqs(counted)
    except StoreError as error:
        yield f"the keyword index cannot be asked ({error})"
        return
    if lost:
        yield f"{len(lost)} chunks are not found by their own words ({_listed(lost)})"
    expected = {name: Counter[str]() for name in FIELDS}
    for _, terms in _all_terms(store.catalog.connection(), partition.id):
        for name, found in terms.items():
            expected[name].update(found & counted[name].keys())
    off = sum(
        expected[name][term] != count
        for name, counts in frequencies.items()
        for term, count in counts.items()
    )
    if off:
        yield f"the keyword index counts {off} of {sum(map(len, counted.values()))} terms otherwise than the catalog"


def _in_vectors(store: Store, partition: PartitionRow, rows: Sequence[int]) -> Iterator[str]:
    """Whether Chroma holds the catalog's vectors."""
    if partition.collection is None:
        return
    off = 0
    try:
        leg = store.indexes.open_vector_index(partition)
        for part in batched(rows):
            marks = ",".join("?" * len(part))
            packed = dict(
                store.catalog.connection().execute(
                    f"SELECT row, vector FROM vectors WHERE row IN ({marks})", tuple(part)
                )
            )
            for row, vector in leg.stored([row for row in part if row in packed]).items():
                ours = unpack_vectors([packed[row]])
                off += bool(ours.any()) and float(cosines(ours, vector)[0]) < 1 - _CLOSE
    except StoreError as error:
        yield f"the vector index cannot be read ({error})"
        return
    if off:
        yield f"Chroma holds {off} vectors that are not the catalog's"


def _terms_of(
    connection: sqlite3.Connection, rows: Sequence[int]
) -> Iterator[tuple[int, Mapping[str, set[str]]]]:
    for part in batched(rows):
        marks = ",".join("?" * len(part))
        for row, packed in connection.execute(
            f"SELECT row, terms FROM chunks WHERE row IN ({marks})", tuple(part)
        ):
            yield row, _term_sets(packed)


def _all_terms(
    connection: sqlite3.Connection, partition: int
) -> Iterator[tuple[int, Mapping[str, set[str]]]]:
    for row, packed in connection.execute("SELECT row, terms FROM chunks WHERE partition = ?", (partition,)):
        yield row, _term_sets(packed)


def _term_sets(packed: str) -> Mapping[str, set[str]]:
    lines = zip(FIELDS, packed.split("\n"), strict=True)
    return {name: set(line.split(" ")) - {""} for name, line in lines}


def _listed(rows: Sequence[int]) -> str:
    shown = ", ".join(map(str, rows[:5]))
    return f"row{'s' if len(rows) > 1 else ''} {shown}{' …' if len(rows) > 5 else ''}"  # noqa: PLR2004  as many as fit a line
