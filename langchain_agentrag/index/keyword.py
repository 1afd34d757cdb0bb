"""The keyword leg on tantivy: one small index per partition, fed with terms that are already analysed."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from langchain_agentrag.analysis import FIELDS, Terms
from langchain_agentrag.bm25 import idf
from langchain_agentrag.errors import StoreError
from langchain_agentrag.index.protocol import Rows, TermWeights

if TYPE_CHECKING:
    import tantivy

_ROW = "row"
_PRESENT, _MARK = "present", "1"  # a term every row has: it tells deleted rows that are still counted
_TOKENIZER = "terms"
_HEAP_SMALL, _HEAP_LARGE = (
    15_000_000,
    60_000_000,
)  # tantivy refuses less than 15 MB; more only pays for large batches
_LARGE_BATCH = 256
_FEWEST_TERMS, _CARRIED = 8, 0.8  # terms looked up first, and the share of the query's weight they must carry


class TantivyKeywords:
    """Postings of one partition in one folder.

    A writer exists only while a batch is written, so that processes can take turns; the caller holds the store's
    write lock. Reading is lock-free and sees the last commit, of any process.

    Args:
        folder: Where the index lives; made when absent.

    Raises:
        StoreError: the folder cannot be opened as an index; deleting it lets it be rebuilt from the catalog.
    """

    def __init__(self, folder: Path) -> None:
        import tantivy

        self._tantivy, self._folder = tantivy, folder
        self._schema = _schema()
        self._guard = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._index = tantivy.Index(self._schema, path=str(folder), reuse=True)
        except (ValueError, OSError) as error:
            raise StoreError(
                f"Cannot open the keyword index in {folder}: {error}. Run repair() to rebuild it."
            ) from error
        analyzer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        self._index.register_tokenizer(_TOKENIZER, analyzer)

    @staticmethod
    def destroy(folder: Path) -> None:
        """Remove the index from disk."""
        shutil.rmtree(folder, ignore_errors=True)

    def add(self, rows: Sequence[int], terms: Sequence[Terms]) -> None:
        """See `KeywordLeg.add`."""
        if not rows:
            return
        with self._writer(len(rows)) as writer:
            for row, fields in zip(rows, terms, strict=True):
                content: dict[str, object] = {_ROW: row, _PRESENT: [_MARK]}
                content.update((name, [" ".join(getattr(fields, name))]) for name in FIELDS)
                writer.add_document(self._tantivy.Document.from_dict(content, self._schema))

    def delete(self, rows: Sequence[int]) -> None:
        """See `KeywordLeg.delete`."""
        if not rows:
            return
        with self._writer(len(rows)) as writer:
            for row in rows:
                writer.delete_documents_by_term(_ROW, row)

    def doc_freqs(self, query: TermWeights) -> dict[str, dict[str, int]]:
        """See `KeywordLeg.doc_freqs`.

        tantivy's own `doc_freq` also counts deleted rows until their segment is merged. While there are such rows the
        matches are counted instead, which takes 0.03 ms a term at 20,000 rows.
        """
        searcher = self._index.searcher()
        if searcher.doc_freq(_PRESENT, _MARK) == searcher.num_docs:
            return {
                field: {term: searcher.doc_freq(field, term) for term in weights}
                for field, weights in query.items()
            }
        return {
            field: {term: _matches(searcher, self._term(field, term)) for term in weights}
            for field, weights in query.items()
        }

    def candidates(
        self, query: TermWeights, limit: int, allowed: Rows | None = None
    ) -> list[tuple[int, float]]:
        """See `KeywordLeg.candidates`.

        Only the terms that carry most of the query's weight are looked up, unless they find too little: the many
        weak terms of a long question cost time and move few candidates, and all of them count in the exact score.
        """
        searcher = self._index.searcher()
        clauses = self._clauses(searcher, query)
        if not clauses or (allowed is not None and not len(allowed)):
            return []
        strong = _strongest(clauses)
        found = self._find(searcher, strong, limit, allowed)
        if len(found) < limit and len(strong) < len(clauses):
            found = self._find(searcher, clauses, limit, allowed)
        return found

    def _clauses(self, searcher: tantivy.Searcher, query: TermWeights) -> list[tuple[float, tantivy.Query]]:
        """(weight, query) per term that any row holds, heaviest first."""
        docs, clauses = searcher.num_docs, []
        for field, weights in query.items():
            for term, weight in weights.items():
                if known := searcher.doc_freq(field, term):
                    # tantivy multiplies by the idf of this partition alone: replace it by the scope's
                    boost = weight / idf(docs, known)
                    clauses.append((weight, self._tantivy.Query.boost_query(self._term(field, term), boost)))
        return sorted(clauses, key=lambda clause: -clause[0])

    def _find(
        self,
        searcher: tantivy.Searcher,
        clauses: Sequence[tuple[float, tantivy.Query]],
        limit: int,
        allowed: Rows | None,
    ) -> list[tuple[int, float]]:
        query, occur = self._tantivy.Query, self._tantivy.Occur
        wanted = query.boolean_query([(occur.Should, clause) for _, clause in clauses])
        if allowed is not None:
            members = query.const_score_query(query.term_set_query(self._schema, _ROW, allowed.tolist()), 0.0)
            wanted = query.boolean_query([(occur.Must, wanted), (occur.Must, members)])
        found = searcher.search(wanted, limit=limit, count=False).hits
        rows = searcher.fast_field_values(_ROW, [address for _, address in found])
        return [
            (int(row), float(score)) for row, (score, _) in zip(rows, found, strict=True) if row is not None
        ]

    def rows(self) -> Rows:
        """See `KeywordLeg.rows`."""
        searcher = self._index.searcher()
        if not searcher.num_docs:
            return np.empty(0, dtype=np.int64)
        found = searcher.search(self._tantivy.Query.all_query(), limit=searcher.num_docs, count=False).hits
        values = searcher.fast_field_values(_ROW, [address for _, address in found])
        return np.sort(np.array(values, dtype=np.int64))

    def count(self) -> int:
        """See `KeywordLeg.count`."""
        return int(self._index.searcher().num_docs)

    def refresh(self) -> None:
        """See what other processes have committed."""
        self._index.reload()

    def _term(self, field: str, term: str) -> tantivy.Query:
        return self._tantivy.Query.term_query(self._schema, field, term, index_option="freq")

    @contextlib.contextmanager
    def _writer(self, size: int) -> Iterator[tantivy.IndexWriter]:
        """A writer that commits at the end, waits for merges, and leaves nothing locked."""
        heap = _HEAP_LARGE if size >= _LARGE_BATCH else _HEAP_SMALL
        with self._guard:
            try:
                writer = self._index.writer(heap_size=heap, num_threads=1)
                yield writer
                writer.commit()
                writer.wait_merging_threads()
                self._index.reload()
            except (ValueError, OSError) as error:
                raise StoreError(
                    f"Cannot write {size} rows to the keyword index in {self._folder}: {error}. "
                    "Nothing became visible; free the disk or run repair(), then write again."
                ) from error


def _strongest(clauses: Sequence[tuple[float, tantivy.Query]]) -> Sequence[tuple[float, tantivy.Query]]:
    total, carried = sum(weight for weight, _ in clauses), 0.0
    for count, (weight, _) in enumerate(clauses, 1):
        carried += weight
        if count >= _FEWEST_TERMS and carried >= _CARRIED * total:
            return clauses[:count]
    return clauses


def _matches(searcher: tantivy.Searcher, query: tantivy.Query) -> int:
    counted: int | None = searcher.search(query, limit=1, count=True).count  # type: ignore[attr-defined]
    return counted or 0


def _schema() -> tantivy.Schema:
    import tantivy

    builder = tantivy.SchemaBuilder()
    # an *unsigned* field fed with a Python int kills tantivy's writer thread; a signed one does not
    builder.add_integer_field(_ROW, stored=False, indexed=True, fast=True)
    for name in (*FIELDS, _PRESENT):
        builder.add_text_field(name, stored=False, tokenizer_name=_TOKENIZER, index_option="freq")
    return builder.build()
