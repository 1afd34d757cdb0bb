"""BM25 on counts: pure functions and one compiled scorer, no I/O.

Formula (Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, section 3.4)::

    score(d) = sum over fields f, query terms t of
               weight[f][t] * idf_f(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length_f(d) /
               average_length_f))

Each field has its own lengths, document frequencies and parameters, and the fields are added up; the weight
of a field is already in the weights of its terms. The idf is Lucene's, which is never negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

Query = Mapping[str, Mapping[str, float]]
"""Field -> term -> weight, as `Analyzer.analyze_query` returns it."""

Counts = Mapping[str, Mapping[str, int]]
"""Field -> term -> count: term frequencies of a chunk, or document frequencies of a scope."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """How the count of a term saturates in one field.

    Attributes:
        k1: How slowly further occurrences stop to count; 0 ignores the count.
        b: How far a long field is held against the chunk, in [0, 1].
    """

    k1: float = 1.2
    b: float = 0.75


_BESIDE = "context"
"""The field that repeats what the others ask for; it answers nothing on its own."""

_QUESTION = 30
"""Rarest terms' worth of information that a question asks for at most; a longer query is a text."""

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
    """What a field holds over all chunks in scope.

    Attributes:
        docs: Live chunks in scope, whether or not the field has terms in them.
        tokens: Sum of the field's lengths over those chunks.
    """

    docs: int
    tokens: int

    @property
    def average_length(self) -> float:
        """Mean length of the field; 1.0 where there is nothing to average, so that it can divide."""
        return self.tokens / self.docs if self.docs > 0 and self.tokens > 0 else 1.0

    def __add__(self, other: FieldStats) -> FieldStats:
        return FieldStats(self.docs + other.docs, self.tokens + other.tokens)


@lru_cache(maxsize=4096)
def idf(docs: int, doc_freq: int) -> float:
    """Weight of a term's rarity, never negative: ln(1 + (N - n + 0.5) / (n + 0.5)).

    Lucene's `BM25Similarity.idf`: the 1 inside keeps a term of more than half of the chunks from counting
    against them. A document frequency beyond the number of chunks (an index that still counts deleted ones)
    is cut to it.
    """
    docs = max(docs, 0)
    doc_freq = min(max(doc_freq, 0), docs)
    return math.log(1.0 + (docs - doc_freq + 0.5) / (doc_freq + 0.5))


def term_score(tf: float, length: float, average_length: float, k1: float, b: float) -> float:
    """Saturated count of one term in one field, in [0, k1 + 1): equation 3.15 of Robertson & Zaragoza."""
    if tf <= 0:
        return 0.0
    return tf * (k1 + 1.0) / (tf + k1 * (1.0 - b + b * length / average_length))


class Scorer:
    """A query with the statistics of one scope, ready to score many chunks.

    Terms are added in a fixed order, field by field as the query names them and by code point within a field,
    so equal counts give bit-identical scores wherever a chunk is stored and however its counts were
    collected.

    Args:
        query: Field -> term -> weight.
        stats: Statistics of each field over the scope; a field without any scores nothing.
        doc_freqs: Field -> term -> chunks in scope that hold it; a term that is missing counts as 0.
        parameters: k1 and b per field.
        own: Those of the query's terms that were asked for, where others only stand for them.
    """

    __slots__ = ("_asked", "_doc_freqs", "_fields", "_stats", "gains", "maximum", "rarest")

    rarest: float
    """The idf of a term that one chunk in scope holds."""

    gains: Mapping[str, Mapping[str, float]]
    """Field -> term -> weight * idf * (k1 + 1): what the term can add at most."""

    maximum: float
    """Bound of the score of any chunk, see `reachable_maximum`."""

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
        self.maximum = sum(gain for _, _, _, gains in fields for gain in gains.values())
        asked = sum(
            gain
            for field, _, _, gains in fields
            if field != _BESIDE
            for term, gain in gains.items()
            if own is None or term in own.get(field, {})
        )
        self._asked = min(asked, _QUESTION * self.rarest * (DEFAULT_PARAMETERS.k1 + 1.0))

    def rarity(self, field: str, term: str) -> float:
        """How rare a term of the query is, in [0, 1]: its idf in units of that of a term which one chunk holds."""
        docs = self._stats[field].docs if field in self._stats else 0
        doc_freq = self._doc_freqs.get(field, {}).get(term, 0)
        return min(1.0, idf(docs, doc_freq) / self.rarest) if doc_freq > 0 and self.rarest > 0 else 0.0

    def coverage(self, held: float) -> float:
        """Share of the query's information in [0, 1] that a chunk matched.

        A term's information is its weight times its idf, whether or not any chunk holds it. More than 30 terms as rare
        as can be are no question but a text; of those it takes as much as of a question.

        Args:
            held: Sum of the gains of the chunk's terms, as `score_lines` gives it.
        """
        return min(1.0, held / self._asked) if self._asked > 0 else 0.0

    def held(self, counts: Counts) -> float:
        """Sum of the gains of the terms a chunk holds, how often does not matter."""
        return sum(
            gain
            for field, _, _, gains in self._fields
            if field != _BESIDE
            for term, gain in gains.items()
            if counts.get(field, {}).get(term, 0) > 0
        )

    def score(self, counts: Counts, lengths: Mapping[str, int]) -> float:
        """Score of one chunk, >= 0.

        Args:
            counts: Field -> term -> occurrences in the chunk; terms the query does not name are ignored.
            lengths: Field -> length of the chunk's field (`Terms.lengths`).
        """
        total = 0.0
        for field, base, slope, gains in self._fields:
            found = counts.get(field)
            if not found:
                continue
            norm = base + slope * lengths.get(field, 0)
            for term in sorted(found) if len(found) > 1 else found:
                gain, tf = gains.get(term), found[term]
                if gain is not None and tf > 0:
                    total += gain * tf / (tf + norm)
        return total

    def score_lines(self, lines: Mapping[str, str], lengths: Mapping[str, str]) -> tuple[float, float]:
        """`score` and `held` of a chunk from its terms as stored, to the last bit, a third faster than counting first.

        Args:
            lines: Field -> every term of the chunk, repeated as often as it occurs, with spaces between.
            lengths: Field -> length of the chunk's field, in digits.
        """
        total = matched = 0.0
        for field, base, slope, gains in self._fields:
            line = lines.get(field)
            if not line:
                continue
            held = list(filter(gains.__contains__, line.split(" ")))
            if not held:
                continue
            norm = base + slope * int(lengths[field])
            held.sort()
            start, end = 0, len(held)
            told = field != _BESIDE
            while start < end:
                term, stop = held[start], start + 1
                while stop < end and held[stop] == term:
                    stop += 1
                tf = stop - start
                gain = gains[term]
                total += gain * tf / (tf + norm)
                if told:
                    matched += gain
                start = stop
        return total, matched


def score(
    query: Query,
    counts: Counts,
    lengths: Mapping[str, int],
    stats: Mapping[str, FieldStats],
    doc_freqs: Counts,
    *,
    parameters: Mapping[str, Parameters] = PARAMETERS,
) -> float:
    """Score of a single chunk; to score many, build a `Scorer` once."""
    return Scorer(query, stats, doc_freqs, parameters).score(counts, lengths)


def reachable_maximum(
    query: Query,
    stats: Mapping[str, FieldStats],
    doc_freqs: Counts,
    parameters: Mapping[str, Parameters] = PARAMETERS,
) -> float:
    """The score no chunk can exceed: sum of weight * idf * (k1 + 1) over the query's terms.

    It is the limit of the formula at the top of this module for tf -> infinity in every term (Robertson &
    Zaragoza 2009, section 3.4.1: the saturation approaches k1 + 1 from below), and what Lucene calls a term's
    maximum impact. Dividing by it puts a score in [0, 1) whatever the other candidates are. Terms that no
    chunk holds count too: a query whose rarest word is nowhere has not been answered in full.
    """
    total = 0.0
    for field, terms in query.items():
        if field not in stats:
            continue
        docs, frequencies = stats[field].docs, doc_freqs.get(field, {})
        k1 = parameters.get(field, DEFAULT_PARAMETERS).k1
        for term, weight in sorted(terms.items()):
            total += weight * idf(docs, frequencies.get(term, 0)) * (k1 + 1.0)
    return total
