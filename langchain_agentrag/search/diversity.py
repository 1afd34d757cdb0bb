"""Choosing among ranked candidates: at most so many per document, and different ones rather than repetitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from langchain_agentrag.search.fusion import calibrate_cosine
from langchain_agentrag.store.partition_cache import normalised
from langchain_agentrag.store.protocols import Vectors

Row = TypeVar("Row")


def cap_per_group(rows: Iterable[tuple[Row, Hashable]], most: int | None) -> list[Row]:
    """The rows in their order, without those whose group had its share already.

    Args:
        rows: (row, group), best first.
        most: Largest number of rows of one group; None for no limit.
    """
    counts: Counter[Hashable] = Counter()
    kept = []
    for row, group in rows:
        counts[group] += 1
        if most is None or counts[group] <= most:
            kept.append(row)
    return kept


def marginal_relevance(
    scores: Sequence[float], vectors: Vectors, k: int, diversity: float, background: float = 0.0
) -> list[int]:
    """Positions of k candidates by maximal marginal relevance, in the order they were chosen.

    Each step takes the candidate with the largest (1 - d) * score - d * (similarity to the nearest one chosen).
    Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking", SIGIR 1998. Similarity is the cosine on the
    scale of the scores (`fusion.calibrate_cosine`), so that d means the same for every embedding model. Of equals the
    first is taken, and with d = 0 the order stays as it is.

    Args:
        scores: Relevance in [0, 1], best first.
        vectors: One row per candidate, any length.
        k: Candidates to choose.
        diversity: d, in [0, 1].
        background: Mean cosine of unrelated texts under the model.
    """
    if diversity == 0 or not len(scores):
        return list(range(min(k, len(scores))))
    unit = normalised(vectors)
    relevance = np.asarray(scores, dtype=np.float64)
    nearest = np.zeros(len(scores))
    open_places = np.ones(len(scores), dtype=np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(k, len(scores)):
        gain = (1 - diversity) * relevance - diversity * nearest
        place = int(np.argmax(np.where(open_places, gain, -np.inf)))
        chosen.append(place)
        open_places[place] = False
        alike = [calibrate_cosine(float(cosine), background) for cosine in unit @ unit[place]]
        nearest = np.maximum(nearest, alike)
    return chosen
