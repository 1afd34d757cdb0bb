"""The keyword leg on tantivy: one small index per partition, fed with terms that are already analysed."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from langchain_agentrag.errors import StoreError, native_errors
from langchain_agentrag.search.bm25 import idf
from langchain_agentrag.store.protocols import Rows, TermWeights
from langchain_agentrag.text import FIELDS, Terms

if TYPE_CHECKING:
    import tantivy

_WHAT, _META = "The keyword index", "meta.json"
_ROW = "row"
_PRESENT, _MARK = "present", "1"  # a term every row has: it tells deleted rows that are still counted
_TOKENIZER = "terms"
_HEAP_SMALL, _HEAP_LARGE = (
    15_000_000,
    60_000_000,
)  # tantivy refuses less than 15 MB; more only pays for large batches
_LARGE_BATCH = 256
_PURGES, _PAGE = 3, 2_000
_MAGIC = 1337  # at the end of every file tantivy writes
_FEWEST_TERMS, _CARRIED = 8, 0.6  # terms looked up first, and the share of the query's weight they must carry
_COUNTED = 50_000  # terms whose counts are remembered until something is written

_Term = tuple[str, str]
"""Field and term."""

_Clause = tuple[float, _Term, float]
"""Weight of a term in the query, the term, and what its score in the index is multiplied by."""


@dataclass(slots=True)
class _Counts:
    """Document frequencies already asked for.

    Attributes:
        state: Live rows, and rows including the deleted ones that are still counted: other counts, other rows.
        live: Live rows per term.
    """

    state: tuple[int, int] = (0, 0)
    live: dict[_Term, int] = field(default_factory=dict)


class TantivyKeywordIndex:
    """Postings of one partition in one folder.

    A writer exists only while a batch is written, so that processes can take turns; the caller holds the store's
    write lock. Reading is lock-free and sees the last commit, of any process.

    Args:
        folder: Where the index lives.
        create: Make it when absent; a reader must not, it may be looking for what was just dropped.

    Raises:
        StoreError: the folder cannot be opened as an index; deleting it lets it be rebuilt from the catalog.
    """

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        import tantivy

        self._tantivy, self._folder = tantivy, folder
        self._schema = _schema()
        self._guard = threading.Lock()
        self._counts = _Counts()
        with native_errors(_WHAT, f"open {folder}"):
            if create:
                folder.mkdir(parents=True, exist_ok=True)
            elif not (folder / _META).exists():
                raise StoreError(f"There is no keyword index in {folder}: run repair() to rebuild it.")
            self._index = tantivy.Index(self._schema, path=str(folder), reuse=True)
            analyzer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
            self._index.register_tokenizer(_TOKENIZER, analyzer)

    @staticmethod
    def destroy(folder: Path) -> None:
        """Remove the index from disk; an absent one is ignored.

        Raises:
            StoreError: something of it could not be removed.
        """
        with native_errors(_WHAT, f"delete {folder}"), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def add(self, rows: Sequence[int], terms: Sequence[Terms]) -> None:
        """See `KeywordIndex.add`."""
        if not rows:
            return
        with self._writer(len(rows)) as writer:
            for row, fields in zip(rows, terms, strict=True):
                writer.add_document(self._document(row, fields))

    def delete(self, rows: Sequence[int]) -> None:
        """See `KeywordIndex.delete`."""
        if not rows:
            return
        with self._writer(len(rows)) as writer:
            for row in rows:
                writer.delete_documents_by_term(_ROW, row)

    def purge(self, read: Callable[[Sequence[int]], Iterable[tuple[int, Terms]]]) -> int:
        """Leave no term of a deleted row on disk, by writing the segments that hold one anew.

        tantivy only marks rows as deleted; their postings stay until a merge that may never come.

        Args:
            read: Rows in, (row, terms) of those that are live out.

        Returns:
            Rows written anew.

        Raises:
            StoreError: it could not be done; building the index anew does the same.
        """
        rewritten = 0
        for _ in range(_PURGES):
            rows = self._beside_dead()
            if rows is None:
                return rewritten
            rewritten += len(rows)
            with self._writer(max(len(rows), _LARGE_BATCH)) as writer:
                for row in rows:
                    writer.delete_documents_by_term(_ROW, row)
                for start in range(0, len(rows), _PAGE):
                    for row, terms in read(rows[start : start + _PAGE]):
                        writer.add_document(self._document(row, terms))
        raise StoreError(
            f"The keyword index {self._folder} still holds deleted rows after {_PURGES} rewrites."
        )

    def damaged_files(self) -> list[str]:
        """Names of files whose content does not have the checksum tantivy wrote behind it."""
        with native_errors(_WHAT, "be checked"):
            listed = json.loads((self._folder / _META).read_text("utf-8"))["segments"]
            names = {segment["segment_id"].replace("-", "") for segment in listed}
            files = [path for path in self._folder.iterdir() if path.name.partition(".")[0] in names]
            return sorted(path.name for path in files if not _is_intact(path.read_bytes()))

    def _beside_dead(self) -> list[int] | None:
        """Live rows of the segments that also hold deleted ones; None when there is no such segment."""
        with native_errors(_WHAT, "list its segments"):
            self._reload()
            searcher = self._index.searcher()
            segments = json.loads((self._folder / _META).read_text("utf-8"))["segments"]
            if not any(segment["deletes"] for segment in segments):
                return None
            found = searcher.search(
                self._tantivy.Query.all_query(), limit=max(searcher.num_docs, 1), count=False
            ).hits
            addresses = [address for _, address in found]
            rows = searcher.fast_field_values(_ROW, addresses) if addresses else []
        # segments are numbered in the order of meta.json; where the numbers disagree, take every row
        alive = Counter(address.segment_ord for address in addresses)
        expected = {
            place: segment["max_doc"] - (segment["deletes"] or {}).get("num_deleted_docs", 0)
            for place, segment in enumerate(segments)
        }
        agree = all(alive[place] == count for place, count in expected.items())
        return [
            int(row)
            for row, address in zip(rows, addresses, strict=True)
            if row is not None and (not agree or segments[address.segment_ord]["deletes"])
        ]

    def doc_freqs(self, query: TermWeights) -> dict[str, dict[str, int]]:
        """See `KeywordIndex.doc_freqs`.

        tantivy's own `doc_freq` also counts deleted rows until their segment is merged. While there are such rows the
        matches are counted instead, which takes 0.03 ms a term at 20,000 rows.
        """
        with native_errors(_WHAT, "count terms"):
            searcher, counts = self._view()
            known = counts.live.get
            return {
                name: {
                    term: self._count(searcher, counts, (name, term)) if found is None else found
                    for term in weights
                    for found in (known((name, term)),)
                }
                for name, weights in query.items()
            }

    def _view(self) -> tuple[tantivy.Searcher, _Counts]:
        """What is there now, and what has been counted in it."""
        counts, searcher = self._counts, self._index.searcher()  # in this order: see `_reload`
        state = searcher.num_docs, searcher.doc_freq(_PRESENT, _MARK)
        if counts.state != state or len(counts.live) > _COUNTED:
            counts = self._counts = _Counts(state)
        return searcher, counts

    def _count(self, searcher: tantivy.Searcher, counts: _Counts, term: _Term) -> int:
        """Live rows that hold the term."""
        found = counts.live.get(term)
        if found is None:
            live, counted = counts.state
            found = searcher.doc_freq(*term) if live == counted else _matches(searcher, self._term(*term))
            counts.live[term] = found
        return found

    def _reload(self) -> None:
        """See the last commit; what was counted before is counted again, also by a search that is under way."""
        self._index.reload()
        self._counts = _Counts()

    def candidates(
        self, query: TermWeights, limit: int, allowed: Rows | None = None
    ) -> list[tuple[int, float]]:
        """See `KeywordIndex.candidates`.

        Only the terms that carry most of the query's weight are looked up, unless they find too little: the many
        weak terms of a long question cost time and move few candidates, and all of them count in the exact score.
        """
        with native_errors(_WHAT, "be searched"):
            searcher, counts = self._view()
            clauses = self._clauses(searcher, counts, query)
            if not clauses or (allowed is not None and not len(allowed)):
                return []
            strong = _strongest(clauses)
            found = self._find(searcher, strong, limit, allowed)
            if len(found) < limit and len(strong) < len(clauses):
                found = self._find(searcher, clauses, limit, allowed)
            return found

    def _clauses(self, searcher: tantivy.Searcher, counts: _Counts, query: TermWeights) -> list[_Clause]:
        """A clause per term that any row holds, heaviest first."""
        live, docs = counts.state  # tantivy's idf counts deleted rows as well
        clauses: list[_Clause] = []
        for name, weights in query.items():
            for text, weight in weights.items():
                term = name, text
                if known := (
                    self._count(searcher, counts, term) if live == docs else searcher.doc_freq(*term)
                ):
                    # tantivy multiplies by the idf of this partition alone: replace it by the scope's
                    clauses.append((weight, term, weight / idf(docs, known)))
        return sorted(clauses, key=lambda clause: -clause[0])

    def _find(
        self,
        searcher: tantivy.Searcher,
        clauses: Sequence[_Clause],
        limit: int,
        allowed: Rows | None,
    ) -> list[tuple[int, float]]:
        query, occur = self._tantivy.Query, self._tantivy.Occur
        wanted = query.boolean_query(
            [(occur.Should, query.boost_query(self._term(*term), boost)) for _, term, boost in clauses]
        )
        if allowed is not None:
            members = query.const_score_query(query.term_set_query(self._schema, _ROW, allowed.tolist()), 0.0)
            wanted = query.boolean_query([(occur.Must, wanted), (occur.Must, members)])
        found = searcher.search(wanted, limit=limit, count=False).hits
        rows = searcher.fast_field_values(_ROW, [address for _, address in found])
        return [
            (int(row), float(score)) for row, (score, _) in zip(rows, found, strict=True) if row is not None
        ]

    def rows(self) -> Rows:
        """See `KeywordIndex.rows`."""
        with native_errors(_WHAT, "list its rows"):
            searcher = self._index.searcher()
            if not searcher.num_docs:
                return np.empty(0, dtype=np.int64)
            found = searcher.search(
                self._tantivy.Query.all_query(), limit=searcher.num_docs, count=False
            ).hits
            values = searcher.fast_field_values(_ROW, [address for _, address in found])
        return np.sort(np.array(values, dtype=np.int64))

    def count(self) -> int:
        """See `KeywordIndex.count`."""
        return int(self._index.searcher().num_docs)

    def refresh(self) -> None:
        """See what other processes have committed."""
        with native_errors(_WHAT, "be refreshed"):
            self._reload()

    def _document(self, row: int, terms: Terms) -> tantivy.Document:
        content: dict[str, object] = {_ROW: row, _PRESENT: [_MARK]}
        content.update((name, [" ".join(getattr(terms, name))]) for name in FIELDS)
        return self._tantivy.Document.from_dict(content, self._schema)

    def _term(self, field: str, term: str) -> tantivy.Query:
        return self._tantivy.Query.term_query(self._schema, field, term, index_option="freq")

    @contextlib.contextmanager
    def _writer(self, size: int) -> Iterator[tantivy.IndexWriter]:
        """A writer that commits at the end, waits for merges, and leaves nothing locked."""
        heap = _HEAP_LARGE if size >= _LARGE_BATCH else _HEAP_SMALL
        with self._guard, native_errors(_WHAT, f"write {size} rows to {self._folder}"):
            writer = self._index.writer(heap_size=heap, num_threads=1)
            try:
                yield writer
                writer.commit()
            except BaseException:
                with contextlib.suppress(ValueError, OSError):
                    writer.rollback()
                raise
            finally:
                writer.wait_merging_threads()  # gives tantivy's own lock back, whoever still refers to the writer
            self._reload()


def _strongest(clauses: Sequence[_Clause]) -> Sequence[_Clause]:
    total, carried = sum(weight for weight, _, _ in clauses), 0.0
    for count, (weight, _, _) in enumerate(clauses, 1):
        carried += weight
        if count >= _FEWEST_TERMS and carried >= _CARRIED * total:
            return clauses[:count]
    return clauses


def _is_intact(content: bytes) -> bool:
    """Whether a segment file ends in tantivy's footer and the footer's checksum fits.

    Layout: body, footer as JSON with a "crc" over the body, its length and the number 1337 as little-endian u32.
    """
    length, magic = int.from_bytes(content[-8:-4], "little"), int.from_bytes(content[-4:], "little")
    if len(content) < length + 8 or magic != _MAGIC:
        return False
    try:
        promised = json.loads(content[-8 - length : -8])["crc"]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(zlib.crc32(memoryview(content)[: -8 - length]) == promised)


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
