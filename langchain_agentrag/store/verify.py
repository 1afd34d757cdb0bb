"""Checks that both legs hold exactly the catalog's live rows, and mends what does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from langchain_agentrag.errors import StoreError
from langchain_agentrag.store.catalog import PartitionRow
from langchain_agentrag.store.commit import unpack_lengths
from langchain_agentrag.store.protocols import Rows
from langchain_agentrag.store.store import Store
from langchain_agentrag.text import FIELDS

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
        store.legs.chroma.freshen()  # nor what another handle wrote
        partitions = store.catalog.partitions()
        problems = [f"catalog: {problem}" for problem in store.catalog.check_integrity()]
        problems += [
            f"{_WORK.get(entry.state, entry.state)} was not finished" for entry in store.catalog.journal()
        ]
        for partition in partitions:
            problems += _check_partition(store, partition)
        now = store.now()
        living = [store.expiry.living(partition, now).partition for partition in partitions]
        folders, collections = store.recovery.strays()
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
        store.legs.chroma.freshen()
        for partition in store.catalog.partitions():
            _recount(store, partition)
        for partition in store.catalog.partitions():
            if _keyword_problems(store, partition):
                store.legs.rebuild_keywords(partition)
            if partition.in_chroma and _vector_problems(store, partition):
                store.legs.rebuild_vectors(partition)
        store.recovery.sweep()
        store.handover.finish()
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
    if not len(live) and not store.legs.keyword_folder(partition.name).exists():
        return []
    try:
        leg = store.legs.raw_keywords(partition)
        damaged, held = leg.damaged_files(), leg.rows()
    except StoreError as error:
        return [f"{who}: the keyword index cannot be read ({error})"]
    problems = [f"{who}: the keyword index has damaged files ({', '.join(damaged[:3])})"] if damaged else []
    return problems + _difference(f"{who}: the keyword index", held, live)


def _vector_problems(store: Store, partition: PartitionRow) -> list[str]:
    who, expected = _name(partition), store.recovery.held(partition)
    try:
        leg = store.legs.raw_vectors(partition)
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
