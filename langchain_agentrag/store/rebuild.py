"""Both legs from the catalog: no analysis, no embedding, only what is stored there."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from langchain_agentrag.store.catalog import Catalog, batched
from langchain_agentrag.store.commit import pack_lengths, pack_terms, unpack_terms
from langchain_agentrag.store.partition_cache import unpack_vectors
from langchain_agentrag.store.protocols import KeywordLeg, VectorLeg
from langchain_agentrag.text import FIELDS, Analyzer, Terms

_PAGE = 2_000


def fill_keywords(catalog: Catalog, partition: int, leg: KeywordLeg) -> None:
    """Add every live row of a partition to an empty keyword leg."""
    last = -1
    while (
        page := catalog.connection()
        .execute(
            "SELECT row, terms, lengths FROM chunks WHERE partition = ? AND row > ? ORDER BY row LIMIT ?",
            (partition, last, _PAGE),
        )
        .fetchall()
    ):
        leg.add([row for row, _, _ in page], [unpack_terms(terms, lengths) for _, terms, lengths in page])
        last = page[-1][0]


def terms_of(catalog: Catalog, rows: Sequence[int]) -> list[tuple[int, Terms]]:
    """(row, terms) of those of the rows that are live."""
    found: list[tuple[int, Terms]] = []
    for part in batched(rows):
        marks = ",".join("?" * len(part))
        found += [
            (row, unpack_terms(terms, lengths))
            for row, terms, lengths in catalog.connection().execute(
                f"SELECT row, terms, lengths FROM chunks WHERE row IN ({marks})", tuple(part)
            )
        ]
    return found


def fill_vectors(catalog: Catalog, partition: int, leg: VectorLeg, until: int) -> None:
    """Add the live rows of a partition up to one of them to an empty vector leg."""
    last = -1
    while page := vectors_after(catalog, partition, last, _PAGE, until):
        leg.add([row for row, _ in page], unpack_vectors([vector for _, vector in page]))
        last = page[-1][0]


def vectors_after(
    catalog: Catalog, partition: int, row: int, limit: int, until: int = sys.maxsize
) -> list[tuple[int, bytes]]:
    """The next live rows of a partition with their packed vectors, ascending."""
    return (
        catalog.connection()
        .execute(
            "SELECT row, vector FROM chunks JOIN vectors USING (row) "
            "WHERE partition = ? AND row > ? AND row <= ? ORDER BY row LIMIT ?",
            (partition, row, until, limit),
        )
        .fetchall()
    )


def reanalyze_chunks(catalog: Catalog, analyzer: Analyzer) -> None:
    """Analyse every stored text again; the keyword legs have to be rebuilt afterwards."""
    with catalog.transaction() as connection:
        for partition in catalog.partitions():
            totals, last = [0] * len(FIELDS), -1
            while page := connection.execute(
                "SELECT row, text, context FROM chunks WHERE partition = ? AND row > ? ORDER BY row LIMIT ?",
                (partition.id, last, _PAGE),
            ).fetchall():
                for row, text, context in page:
                    terms = analyzer.analyze(text, context)
                    lengths = [terms.lengths.get(name, 0) for name in FIELDS]
                    totals = [total + length for total, length in zip(totals, lengths, strict=True)]
                    connection.execute(
                        "UPDATE chunks SET terms = ?, lengths = ? WHERE row = ?",
                        (pack_terms(terms), pack_lengths(terms), row),
                    )
                last = page[-1][0]
            connection.execute(
                "UPDATE partitions SET tokens = ?, generation = generation + 1 WHERE id = ?",
                (json.dumps(totals), partition.id),
            )
