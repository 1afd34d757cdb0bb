"""Both legs from the catalog: no analysis, no embedding, only what is stored there."""

from __future__ import annotations

from langchain_agentrag.index.batch import unpack_terms
from langchain_agentrag.index.catalog import Catalog
from langchain_agentrag.index.exact import unpack_vectors
from langchain_agentrag.index.protocol import KeywordLeg, VectorLeg

_PAGE = 2_000


def fill_keywords(catalog: Catalog, partition: int, leg: KeywordLeg) -> None:
    """Add every live row of a partition to an empty keyword leg."""
    last = -1
    while page := catalog.connection().execute(
        "SELECT row, terms, lengths FROM chunks WHERE partition = ? AND row > ? ORDER BY row LIMIT ?",
        (partition, last, _PAGE),
    ).fetchall():
        leg.add([row for row, _, _ in page], [unpack_terms(terms, lengths) for _, terms, lengths in page])
        last = page[-1][0]


def fill_vectors(catalog: Catalog, partition: int, leg: VectorLeg) -> None:
    """Add every live row of a partition to an empty vector leg."""
    last = -1
    while page := catalog.connection().execute(
        "SELECT row, vector FROM chunks JOIN vectors USING (row) WHERE partition = ? AND row > ? ORDER BY row LIMIT ?",
        (partition, last, _PAGE),
    ).fetchall():
        leg.add([row for row, _ in page], unpack_vectors([vector for _, vector in page]))
        last = page[-1][0]
