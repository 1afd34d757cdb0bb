"""BM25 by its formula, term by term: what `Scorer` is compared with."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_agentrag.search.bm25 import (
    DEFAULT_PARAMETERS,
    PARAMETERS,
    Counts,
    FieldStats,
    Parameters,
    Query,
    Scorer,
    idf,
)


def term_score(tf: float, length: float, average_length: float, k1: float, b: float) -> float:
    """Saturated, length-normalized term frequency in one field, in [0, k1 + 1): Robertson & Zaragoza, eq. 3.15."""
    if tf <= 0:
        return 0.0
    return tf * (k1 + 1.0) / (tf + k1 * (1.0 - b + b * length / average_length))


def matched_gain(scorer: Scorer, counts: Counts) -> float:
    """Sum of the gains of the query terms that a chunk contains, regardless of how often.

    A term that stands in the context alone counts as much as the field where it would count most.
    """
    total, texts = 0.0, {field: gains for field, gains in scorer.gains.items() if field != "context"}
    for field, gains in scorer.gains.items():
        for term, gain in gains.items():
            if counts.get(field, {}).get(term, 0) == 0:
                continue
            if field != "context":
                total += gain
            elif not any(term in known and counts.get(name, {}).get(term, 0) for name, known in texts.items()):
                total += max((known.get(term, 0.0) for known in texts.values()), default=0.0)
    return total


def reachable_maximum(
    query: Query, stats: Mapping[str, FieldStats], doc_freqs: Counts, parameters: Mapping[str, Parameters] = PARAMETERS
) -> float:
    """Upper bound of the BM25 score of any chunk: the sum of weight * idf * (k1 + 1) over the query's terms.

    It is the limit of the formula at the top of this module for tf -> infinity in every term (Robertson & Zaragoza
    2009, section 3.4.1: the saturation approaches k1 + 1 from below), Lucene's maximum impact of a term. A score
    divided by it is in [0, 1) whatever the other candidates are. Terms that no chunk contains count too.
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
