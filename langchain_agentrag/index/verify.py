"""Checks that both legs hold exactly the catalog's live rows, and mends what does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from langchain_agentrag.analysis import FIELDS
from langchain_agentrag.errors import StoreError
from langchain_agentrag.index.catalog import PartitionRow
from langchain_agentrag.index.protocol import Rows
from langchain_agentrag.index.reading import parse_lengths
from langchain_agentrag.index.store import Store


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a check found.

    Attributes:
        problems: One sentence per problem; empty when the store is sound.
        partitions: Partitions checked.
        documents: Live documents.
        chunks: Live chunks.
        vectors: Rows checked in Chroma.
    """

    problems: tuple[str, ...]
    partitions: int
    documents: int
    chunks: int
    vectors: int

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
        partitions = store.catalog.partitions()
        problems = [f"catalog: {problem}" for problem in store.catalog.check_integrity()]
        problems += [f"the write {entry[0]} was not finished" for entry in store.catalog.journal()]
        for partition in partitions:
            problems += _check_partition(store, partition)
        problems += _strays(store, partitions)
        return VerifyReport(
            problems=tuple(problems),
            partitions=len(partitions),
            documents=sum(partition.documents for partition in partitions),
            chunks=sum(partition.chunks for partition in partitions),
            vectors=sum(partition.chunks for partition in partitions if partition.in_chroma),
        )


def repair(store: Store) -> VerifyReport:
    """Finish interrupted writes, rebuild what differs from the catalog, remove strays; then verify.

    Needs neither analysis nor embedding: terms and vectors are in the catalog.
    """
    store.check_open()
    with store.lock.held():
        store.recover()
        for partition in store.catalog.partitions():
            _recount(store, partition)
        for partition in store.catalog.partitions():
            if _difference(partition, "keyword", lambda p: store.keywords(p).rows(), _live(store, partition)):
                store.rebuild_keywords(partition)
            if partition.in_chroma and _difference(
                partition, "vector", lambda p: store.vectors(p).rows(), _live(store, partition)
            ):
                store.rebuild_vectors(partition)
        _remove_strays(store, store.catalog.partitions())
        store.catalog.erase_free_space()
        return verify(store)


def _check_partition(store: Store, partition: PartitionRow) -> list[str]:
    who = _name(partition)
    live = _live(store, partition)
    problems = []
    if _counted(store, partition) != (partition.documents, partition.chunks, partition.tokens):
        problems.append(f"{who}: the counts in the catalog differ from its rows")
    problems += _difference(partition, "keyword", lambda p: store.keywords(p).rows(), live)
    if partition.in_chroma:
        problems += _difference(partition, "vector", lambda p: store.vectors(p).rows(), live)
    connection = store.catalog.connection()
    bare = connection.execute(
        "SELECT count(*) FROM chunks LEFT JOIN vectors USING (row) WHERE partition = ? AND vector IS NULL",
        (partition.id,),
    ).fetchone()[0]
    if bare:
        problems.append(f"{who}: {bare} chunks have no vector in the catalog; index their documents again")
    return problems


def _difference(
    partition: PartitionRow, leg: str, read: Callable[[PartitionRow], Rows], live: Rows
) -> list[str]:
    try:
        held = read(partition)
    except StoreError as error:
        return [f"{_name(partition)}: the {leg} index cannot be read ({error})"]
    missing, extra = np.setdiff1d(live, held), np.setdiff1d(held, live)
    if not len(missing) and not len(extra) and len(held) == len(live):
        return []
    surplus = len(held) - len(live) + len(missing)
    return [f"{_name(partition)}: the {leg} index lacks {len(missing)} rows and holds {surplus} too many"]


def _live(store: Store, partition: PartitionRow) -> Rows:
    found = store.catalog.connection().execute(
        "SELECT row FROM chunks WHERE partition = ? ORDER BY row", (partition.id,)
    )
    return np.array([row for (row,) in found], dtype=np.int64)


def _counted(store: Store, partition: PartitionRow) -> tuple[int, int, tuple[int, ...]]:
    connection = store.catalog.connection()
    documents = connection.execute(
        "SELECT count(*) FROM documents WHERE partition = ?", (partition.id,)
    ).fetchone()[0]
    chunks, totals = 0, [0] * len(FIELDS)
    for (packed,) in connection.execute("SELECT lengths FROM chunks WHERE partition = ?", (partition.id,)):
        chunks += 1
        totals = [a + b for a, b in zip(totals, parse_lengths(packed), strict=True)]
    return documents, chunks, tuple(totals) if partition.tokens or chunks else ()


def _recount(store: Store, partition: PartitionRow) -> None:
    documents, chunks, tokens = _counted(store, partition)
    if (documents, chunks, tokens) != (partition.documents, partition.chunks, partition.tokens):
        with store.catalog.transaction() as connection:
            connection.execute(
                "UPDATE partitions SET documents = ?, chunks = ?, tokens = ?, generation = generation + 1 WHERE id = ?",
                (documents, chunks, str(list(tokens)), partition.id),
            )


def _strays(store: Store, partitions: list[PartitionRow]) -> list[str]:
    folders, collections = _stray_names(store, partitions)
    return [f"{name} is an index of no partition" for name in sorted(folders | collections)]


def _stray_names(store: Store, partitions: list[PartitionRow]) -> tuple[set[str], set[str]]:
    names = {partition.name for partition in partitions}
    home = store.folder / "keyword"
    folders = {entry.name for entry in home.iterdir()} if home.is_dir() else set()
    try:
        collections = store.chroma.names() if store.chroma.exists() else set()
    except StoreError:
        collections = set()  # reported, or mended, with the partitions it holds
    return folders - names, collections - {partition.name for partition in partitions if partition.in_chroma}


def _remove_strays(store: Store, partitions: list[PartitionRow]) -> None:
    folders, collections = _stray_names(store, partitions)
    for name in folders:
        shutil.rmtree(store.keyword_folder(name), ignore_errors=True)
    for name in collections:
        store.chroma.drop(name)


def _name(partition: PartitionRow) -> str:
    return "shared" if partition.owner is None else f"agent {partition.owner!r}"
