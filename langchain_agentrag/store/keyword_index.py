"""Keyword index on tantivy: one inverted index per partition, fed with terms that are already analysed."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from langchain_agentrag.errors import StoreError, native_errors
from langchain_agentrag.store.protocols import Rows, TermWeights
from langchain_agentrag.text import FIELDS, Terms

if TYPE_CHECKING:
    import tantivy

_NAME, _META = "The keyword index", "meta.json"
_ROW = "row"
_PRESENT_FIELD, _PRESENT_TERM = "present", "1"  # in every row: its doc_freq shows deleted rows
_TOKENIZER = "terms"
_HEAP_SMALL, _HEAP_LARGE = 15_000_000, 60_000_000  # 15 MB is tantivy's minimum; more pays for large batches
_LARGE_BATCH = 256
_MAX_REWRITES, _PAGE = 3, 2_000
_REWRITTEN_ROWS = 16_000  # rows rewritten in one commit
_MAGIC = 1337  # at the end of every file tantivy writes
_MIN_TERMS, _MIN_WEIGHT_SHARE = 8, 0.6  # terms looked up first, their least share of the query's weight
_MAX_CACHED_COUNTS = 50_000  # terms whose document frequency is cached until the next write

_Term = tuple[str, str]
"""Field and term."""

_Clause = tuple[float, _Term, float]
"""Weight of a term in the query, the term, and the boost of its score in the index."""


@dataclass(slots=True)
class _DocFreqs:
    """Cached document frequencies.

    Attributes:
        state: Number of live rows, and of rows including deleted ones that tantivy still counts. The cache is valid
            while both are unchanged.
        live: Live rows per term.
    """

    state: tuple[int, int] = (0, 0)
    live: dict[_Term, int] = field(default_factory=dict)


class TantivyKeywordIndex:
    """Inverted index of one partition on tantivy, in one folder.

    A tantivy writer exists only while a batch is written, so that processes can take turns; the caller holds the
    store's write lock. Reading takes no lock and sees the last commit of any process.

    Args:
        folder: Folder of the index.
        create: Create it when absent. A reader must not: the index may just have been dropped.

    Raises:
        StoreError: The folder cannot be opened as an index; once it is deleted, it is rebuilt from the catalog.
    """

    def __init__(self, folder: Path, *, create: bool = True) -> None:
        import tantivy

        self._tantivy, self._folder = tantivy, folder
        self._schema = _schema()
        self._guard = threading.Lock()
        self._counts = _DocFreqs()
        with native_errors(_NAME, f"open {folder}"):
            if create:
                folder.mkdir(parents=True, exist_ok=True)
            elif not (folder / _META).exists():
                raise StoreError(f"There is no keyword index in {folder}: run repair() to rebuild it.")
            self._index = tantivy.Index(self._schema, path=str(folder), reuse=True)
            analyzer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
            self._index.register_tokenizer(_TOKENIZER, analyzer)

    @staticmethod
    def destroy(folder: Path) -> None:
        """Delete an index from disk; an absent one is ignored.

        Raises:
            StoreError: Some of its files could not be deleted.
        """
        with native_errors(_NAME, f"delete {folder}"), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def add(self, rows: Sequence[int], terms: Sequence[Terms]) -> None:
        """See `KeywordIndex.add`."""
        if not rows:
            return
        with self._writer(len(rows)) as writer:
            for row, fields in zip(rows, terms, strict=True):
                writer.add_document(self._document(row, {name: " ".join(getattr(fields, name)) for name in FIELDS}))

    def delete(self, rows: Sequence[int]) -> None:
        """See `KeywordIndex.delete`."""
        if not rows:
            return
        with self._writer(len(rows)) as writer:
            for row in rows:
                writer.delete_documents_by_term(_ROW, row)

    def purge(
        self, read: Callable[[Sequence[int]], Iterable[tuple[int, Mapping[str, str]]]], limit: int | None = None
    ) -> bool:
        """Erase the terms of deleted rows from disk by rewriting the segments that hold them.

        tantivy only marks rows as deleted; their postings stay until a merge that may never come.

        Args:
            read: Returns (row, terms of each field separated by spaces) of those of the given rows that are live.
            limit: Rewrite at most this many rows; call it again until nothing is left.

        Returns:
            Whether nothing is left.

        Raises:
            StoreError: It failed; rebuilding the index has the same effect.
        """
        rewrites = self.count() // _REWRITTEN_ROWS + _MAX_REWRITES if limit is None else 1
        for _ in range(rewrites):
            rows = self._rows_to_rewrite()
            if rows is None:
                self._delete_unused_files()
                return True
            rows = rows[
                : limit or _REWRITTEN_ROWS
            ]  # not one large segment, which the next purge would rewrite as a whole
            with self._writer(max(len(rows), _LARGE_BATCH)) as writer:
                for row in rows:
                    writer.delete_documents_by_term(_ROW, row)
                for start in range(0, len(rows), _PAGE):
                    for row, texts in read(rows[start : start + _PAGE]):
                        writer.add_document(self._document(row, texts))
        if limit is not None:
            return False
        raise StoreError(f"The keyword index {self._folder} still holds deleted rows after {rewrites} rewrites.")

    def _delete_unused_files(self) -> None:
        """Delete files of replaced segments, which a killed writer leaves behind; every commit does."""
        with native_errors(_NAME, "list its files"):
            segments = json.loads((self._folder / _META).read_text("utf-8"))["segments"]
            used = {segment["segment_id"].replace("-", "") for segment in segments}
            names = [path.name for path in self._folder.iterdir() if not path.name.startswith(".")]
        if any(name.partition(".")[0] not in used for name in names if name != _META):
            with self._writer(0):
                pass

    def damaged_files(self) -> list[str]:
        """Return the names of files whose content does not match the checksum in tantivy's footer."""
        with native_errors(_NAME, "be checked"):
            segments = json.loads((self._folder / _META).read_text("utf-8"))["segments"]
            names = {segment["segment_id"].replace("-", "") for segment in segments}
            files = [path for path in self._folder.iterdir() if path.name.partition(".")[0] in names]
            return sorted(path.name for path in files if not _is_intact(path.read_bytes()))

    def _rows_to_rewrite(self) -> list[int] | None:
        """Return the live rows of segments that also hold deleted rows; None when there is no such segment."""
        with native_errors(_NAME, "list its segments"):
            self._reload()
            searcher = self._index.searcher()
            segments = json.loads((self._folder / _META).read_text("utf-8"))["segments"]
            if not any(segment["deletes"] for segment in segments):
                return None
            hits = searcher.search(self._tantivy.Query.all_query(), limit=max(searcher.num_docs, 1), count=False).hits
            addresses = [address for _, address in hits]
            rows = searcher.fast_field_values(_ROW, addresses) if addresses else []
        # segments are numbered in the order of meta.json; where the numbers disagree, take every row
        live = Counter(address.segment_ord for address in addresses)
        expected = {
            number: segment["max_doc"] - (segment["deletes"] or {}).get("num_deleted_docs", 0)
            for number, segment in enumerate(segments)
        }
        agree = all(live[number] == count for number, count in expected.items())
        return [
            int(row)
            for row, address in zip(rows, addresses, strict=True)
            if row is not None and (not agree or segments[address.segment_ord]["deletes"])
        ]

    def doc_freqs(self, query: TermWeights) -> dict[str, dict[str, int]]:
        """See `KeywordIndex.doc_freqs`.

        tantivy's own `doc_freq` counts deleted rows until their segment is merged. While there are such rows, matches
        are counted instead, which takes 0.03 ms a term at 20,000 rows.
        """
        with native_errors(_NAME, "count terms"):
            searcher, counts = self._searcher_and_counts()
            return {
                name: {term: self._count(searcher, counts, (name, term)) for term in weights}
                for name, weights in query.items()
            }

    def _searcher_and_counts(self) -> tuple[tantivy.Searcher, _DocFreqs]:
        """Return a searcher of the current state and the counts cached for it."""
        counts, searcher = self._counts, self._index.searcher()  # in this order: see `_reload`
        state = searcher.num_docs, searcher.doc_freq(_PRESENT_FIELD, _PRESENT_TERM)
        if counts.state != state or len(counts.live) > _MAX_CACHED_COUNTS:
            counts = self._counts = _DocFreqs(state)
        return searcher, counts

    def _count(self, searcher: tantivy.Searcher, counts: _DocFreqs, term: _Term) -> int:
        """Return the number of live rows that hold a term."""
        count = counts.live.get(term)
        if count is None:
            live, total = counts.state
            if live == total:
                count = searcher.doc_freq(*term)
            else:
                count = searcher.search(self._term(*term), limit=1, count=True).count or 0  # type: ignore[attr-defined]
            counts.live[term] = count
        return count

    def _reload(self) -> None:
        """Load the last commit and clear the counts, also for a search that is running."""
        self._index.reload()
        self._counts = _DocFreqs()

    def candidates(self, query: TermWeights, limit: int, allowed: Rows | None = None) -> list[tuple[int, float]]:
        """See `KeywordIndex.candidates`.

        Only the terms that carry most of the query's weight are looked up, unless they find too few rows: the many
        weak terms of a long question cost time and change few candidates, and all of them count in the exact score.
        """
        with native_errors(_NAME, "be searched"):
            searcher, counts = self._searcher_and_counts()
            clauses = self._clauses(searcher, counts, query)
            if not clauses or (allowed is not None and not len(allowed)):
                return []
            heaviest = _heaviest(clauses)
            candidates = self._search(searcher, heaviest, limit, allowed)
            if len(candidates) < limit and len(heaviest) < len(clauses):
                candidates = self._search(searcher, clauses, limit, allowed)
            return candidates

    def _clauses(self, searcher: tantivy.Searcher, counts: _DocFreqs, query: TermWeights) -> list[_Clause]:
        """Return a clause per term that any row holds, heaviest first."""
        live, total = counts.state  # tantivy's idf counts deleted rows as well
        clauses: list[_Clause] = []
        for name, weights in query.items():
            for text, weight in weights.items():
                term = name, text
                doc_freq = self._count(searcher, counts, term) if live == total else searcher.doc_freq(*term)
                if doc_freq:
                    # tantivy multiplies by its idf within this partition: the weight holds the scope's instead
                    idf = math.log(1 + (total - doc_freq + 0.5) / (doc_freq + 0.5))
                    clauses.append((weight, term, weight / idf))
        return sorted(clauses, key=lambda clause: -clause[0])

    def _search(
        self, searcher: tantivy.Searcher, clauses: Sequence[_Clause], limit: int, allowed: Rows | None
    ) -> list[tuple[int, float]]:
        query, occur = self._tantivy.Query, self._tantivy.Occur
        matching = query.boolean_query(
            [(occur.Should, query.boost_query(self._term(*term), boost)) for _, term, boost in clauses]
        )
        if allowed is not None:
            members = query.const_score_query(query.term_set_query(self._schema, _ROW, allowed.tolist()), 0.0)
            matching = query.boolean_query([(occur.Must, matching), (occur.Must, members)])
        hits = searcher.search(matching, limit=limit, count=False).hits
        rows = searcher.fast_field_values(_ROW, [address for _, address in hits])
        return [(int(row), float(score)) for row, (score, _) in zip(rows, hits, strict=True) if row is not None]

    def rows(self) -> Rows:
        """See `KeywordIndex.rows`."""
        with native_errors(_NAME, "list its rows"):
            searcher = self._index.searcher()
            if not searcher.num_docs:
                return np.empty(0, dtype=np.int64)
            hits = searcher.search(self._tantivy.Query.all_query(), limit=searcher.num_docs, count=False).hits
            values = searcher.fast_field_values(_ROW, [address for _, address in hits])
        return np.sort(np.array(values, dtype=np.int64))

    def count(self) -> int:
        """See `KeywordIndex.count`."""
        return int(self._index.searcher().num_docs)

    def refresh(self) -> None:
        """Load what other processes have committed."""
        with native_errors(_NAME, "be refreshed"):
            self._reload()

    def _document(self, row: int, texts: Mapping[str, str]) -> tantivy.Document:
        content: dict[str, object] = {_ROW: row, _PRESENT_FIELD: [_PRESENT_TERM]}
        content.update((name, [text]) for name, text in texts.items())
        return self._tantivy.Document.from_dict(content, self._schema)

    def _term(self, field: str, term: str) -> tantivy.Query:
        return self._tantivy.Query.term_query(self._schema, field, term, index_option="freq")

    @contextlib.contextmanager
    def _writer(self, size: int) -> Iterator[tantivy.IndexWriter]:
        """Open a writer that commits at the end of the block, waits for merges and releases tantivy's lock."""
        heap = _HEAP_LARGE if size >= _LARGE_BATCH else _HEAP_SMALL
        with self._guard, native_errors(_NAME, f"write {size} rows to {self._folder}"):
            writer = self._index.writer(heap_size=heap, num_threads=1)
            try:
                yield writer
                writer.commit()
            except BaseException:
                with contextlib.suppress(ValueError, OSError):
                    writer.rollback()
                raise
            finally:
                writer.wait_merging_threads()  # releases tantivy's own lock even while something refers to the writer
            self._reload()


def _heaviest(clauses: Sequence[_Clause]) -> Sequence[_Clause]:
    totals = list(accumulate(weight for weight, _, _ in clauses))
    for count, total in enumerate(totals, 1):
        if count >= _MIN_TERMS and total >= _MIN_WEIGHT_SHARE * totals[-1]:
            return clauses[:count]
    return clauses


def _is_intact(content: bytes) -> bool:
    """Whether a segment file ends in tantivy's footer and matches the footer's checksum.

    Layout: body, footer as JSON with a "crc" over the body, its length and the number 1337 as little-endian u32.
    """
    length, magic = int.from_bytes(content[-8:-4], "little"), int.from_bytes(content[-4:], "little")
    if len(content) < length + 8 or magic != _MAGIC:
        return False
    try:
        checksum = json.loads(content[-8 - length : -8])["crc"]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(zlib.crc32(memoryview(content)[: -8 - length]) == checksum)


def _schema() -> tantivy.Schema:
    import tantivy

    builder = tantivy.SchemaBuilder()
    # an *unsigned* field given a Python int kills tantivy's writer thread; a signed one does not
    builder.add_integer_field(_ROW, stored=False, indexed=True, fast=True)
    for name in (*FIELDS, _PRESENT_FIELD):
        builder.add_text_field(name, stored=False, tokenizer_name=_TOKENIZER, index_option="freq")
    return builder.build()
