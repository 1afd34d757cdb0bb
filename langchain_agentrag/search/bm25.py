"""BM25 scores from term counts: pure functions and `Scorer`, a query compiled for many passages.

Formula (Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section 3.4)::

    score(d) = sum over fields f, query terms t of
               weight[f][t] * idf_f(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length_f(d) /
               average_length_f))

Each field has its own lengths, document frequencies and parameters; the scores of the fields are added up, and the
weight of a field is part of the weights of its terms. The idf is Lucene's, which is never negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add

Query = Mapping[str, Mapping[str, float]]
"""Field -> term -> weight, as `Analyzer.analyze_query` returns it."""

Counts = Mapping[str, Mapping[str, int]]
"""Field -> term -> count: term frequencies of a chunk, or document frequencies of a scope."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """BM25 parameters of one field.

    Attributes:
        k1: Term frequency saturation; 0 ignores the count.
        b: Length normalization, in [0, 1].
    """

    k1: float = 1.2
    b: float = 0.75


_CONTEXT = "context"  # repeats terms of the other fields; for coverage, terms that no other field matched count
_MAX_QUERY_INFORMATION = 30  # in rarest terms; the share is taken of this much for a longer query

DEFAULT_PARAMETERS = Parameters()
"""Lucene's values, for a field that is not in `PARAMETERS`."""

PARAMETERS: Mapping[str, Parameters] = {
    "words": Parameters(k1=1.2, b=0.6),
    "grams": Parameters(k1=1.2, b=0.9),
    "context": Parameters(),
}
"""Parameters per field of the analyzer; `benchmarks/analyzer.py` measures them."""


@dataclass(frozen=True, slots=True)
class FieldStats:
    """Statistics of a field over all chunks in scope.

    Attributes:
        docs: Live chunks in scope, with or without terms in this field.
        tokens: Sum of the field's lengths over those chunks.
    """

    docs: int
    tokens: int

    @property
    def average_length(self) -> float:
        """Mean length of the field, 1.0 for an empty one."""
        return self.tokens / self.docs if self.docs > 0 and self.tokens > 0 else 1.0

    def __add__(self, other: FieldStats) -> FieldStats:
        return FieldStats(self.docs + other.docs, self.tokens + other.tokens)


@lru_cache(maxsize=4096)
def idf(docs: int, doc_freq: int) -> float:
    """Inverse document frequency of a term, never negative: ln(1 + (N - n + 0.5) / (n + 0.5)).

    As Lucene's `BM25Similarity.idf`: the 1 keeps it positive for a term that more than half of the chunks contain. A
    document frequency above the number of chunks (an index that still counts deleted ones) is reduced to it.
    """
    docs = max(docs, 0)
    doc_freq = min(max(doc_freq, 0), docs)
    return math.log(1.0 + (docs - doc_freq + 0.5) / (doc_freq + 0.5))


class Scorer:
    """BM25 scorer of one query over one scope.

    Terms are added in a fixed order (fields as the query lists them, terms by code point), so equal counts give
    bit-identical scores wherever a chunk is stored and however its counts were collected.

    Args:
        query: Field -> term -> weight.
        stats: Statistics of each field over the scope; a field without statistics scores 0.
        doc_freqs: Field -> term -> chunks in scope that contain it; 0 for a missing term.
        parameters: k1 and b per field.
        own: Terms of the query itself, without synonyms and other expansions; all of them by default.
    """

    __slots__ = ("_doc_freqs", "_fields", "_information", "_shares", "_stats", "gains", "maximum", "rarest")

    rarest: float
    """The idf of a term that one chunk in scope contains."""

    gains: Mapping[str, Mapping[str, float]]
    """Field -> term -> weight * idf * (k1 + 1), the upper bound of what the term adds to a score."""

    maximum: float
    """Upper bound of the score of any chunk: the sum of the gains.

    It is the limit of the formula for tf -> infinity in every term (Robertson & Zaragoza 2009, section 3.4.1: the
    saturation approaches k1 + 1 from below), Lucene's maximum impact of a term. Terms that no chunk contains count too.
    """

    def __init__(
        self,
        query: Query,
        stats: Mapping[str, FieldStats],
        doc_freqs: Counts,
        parameters: Mapping[str, Parameters] = PARAMETERS,
        own: Query | None = None,
    ) -> None:
        fields = []
        for field, terms in query.items():
            if field not in stats or not terms:
                continue
            known, frequencies = stats[field], doc_freqs.get(field, {})
            chosen = parameters.get(field, DEFAULT_PARAMETERS)
            gains = {
                term: weight * idf(known.docs, frequencies.get(term, 0)) * (chosen.k1 + 1.0)
                for term, weight in sorted(terms.items())
            }
            base = chosen.k1 * (1.0 - chosen.b)
            fields.append((field, base, chosen.k1 * chosen.b / known.average_length, gains))
        self._fields, self._stats, self._doc_freqs = fields, stats, doc_freqs
        self.rarest = idf(max((known.docs for known in stats.values()), default=0), 1)
        self.gains = {field: gains for field, _, _, gains in fields}
        others = [gains for field, gains in self.gains.items() if field != _CONTEXT]
        self._shares = {  # what a term that stands in the context alone counts for coverage
            term: max((gains.get(term, 0.0) for gains in others), default=0.0) for term in self.gains.get(_CONTEXT, {})
        }
        self.maximum = _total(gain for _, _, _, gains in fields for gain in gains.values())
        information = _total(
            gain
            for field, _, _, gains in fields
            if field != _CONTEXT
            for term, gain in gains.items()
            if own is None or term in own.get(field, {})
        )
        self._information = min(information, _MAX_QUERY_INFORMATION * self.rarest * (DEFAULT_PARAMETERS.k1 + 1.0))

    def rarity(self, field: str, term: str) -> float:
        """Rarity of a query term, in [0, 1]: its idf divided by that of a term which one chunk contains."""
        docs = self._stats[field].docs if field in self._stats else 0
        doc_freq = self._doc_freqs.get(field, {}).get(term, 0)
        return min(1.0, idf(docs, doc_freq) / self.rarest) if doc_freq > 0 and self.rarest > 0 else 0.0

    def coverage(self, matched: float) -> float:
        """Share of the query's information that a chunk matched, in [0, 1].

        The information of a term is its weight times its idf, whether or not any chunk contains it. The information of
        a query is limited to that of 30 terms of the highest rarity, since longer queries are pasted texts.

        Args:
            matched: Sum of the gains of the query terms that the chunk contains (`score_lines`).
        """
        return min(1.0, matched / self._information) if self._information > 0 else 0.0

    def score(self, counts: Counts, lengths: Mapping[str, int]) -> float:
        """BM25 score of one chunk, >= 0.

        Args:
            counts: Field -> term -> occurrences in the chunk; terms the query does not name are ignored.
            lengths: Field -> length of the chunk's field (`Terms.lengths`).
        """
        total = 0.0
        for field, base, slope, gains in self._fields:
            frequencies = counts.get(field)
            if not frequencies:
                continue
            norm = base + slope * lengths.get(field, 0)
            for term in sorted(frequencies) if len(frequencies) > 1 else frequencies:
                gain, tf = gains.get(term), frequencies[term]
                if gain is not None and tf > 0:
                    total += gain * tf / (tf + norm)
        return total

    def score_lines(self, lines: Mapping[str, str], lengths: Mapping[str, str]) -> tuple[float, float]:
        """Score of a chunk from its stored terms, bit-identical to `score`, and the sum of the gains of its terms.

        Args:
            lines: Field -> terms of the chunk separated by spaces, each as often as it occurs.
            lengths: Field -> length of the chunk's field, as a decimal string.
        """
        total = matched = 0.0
        elsewhere: set[str] = set()
        for field, base, slope, gains in self._fields:
            line = lines.get(field)
            if not line:
                continue
            terms = list(filter(gains.__contains__, line.split(" ")))
            if not terms:
                continue
            norm = base + slope * int(lengths[field])
            terms.sort()
            start, end = 0, len(terms)
            counts_for_coverage = field != _CONTEXT
            if counts_for_coverage:
                elsewhere.update(terms)
            while start < end:
                term, stop = terms[start], start + 1
                while stop < end and terms[stop] == term:
                    stop += 1
                tf = stop - start
                gain = gains[term]
                total += gain * tf / (tf + norm)
                if counts_for_coverage:
                    matched += gain
                elif term not in elsewhere:
                    matched += self._shares[term]
                start = stop
        return total, matched


def _total(values: Iterable[float]) -> float:
    """Sum of the values, added from left to right as `score_lines` does: `sum` of Python 3.12 rounds differently."""
    return reduce(add, values, 0.0)


def score(
    query: Query,
    counts: Counts,
    lengths: Mapping[str, int],
    stats: Mapping[str, FieldStats],
    doc_freqs: Counts,
    *,
    parameters: Mapping[str, Parameters] = PARAMETERS,
) -> float:
    """BM25 score of a single chunk; to score many, build one `Scorer`."""
    return Scorer(query, stats, doc_freqs, parameters).score(counts, lengths)
