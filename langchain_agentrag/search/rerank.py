"""A second opinion on the best hits: any callable, cross-encoder or LangChain compressor puts them in a new order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from langchain_agentrag.errors import InvalidQueryError, RetrievalError
from langchain_agentrag.records import Hit

Reranker: TypeAlias = Callable[[str, list[str]], Sequence[float]] | Any
"""Scores texts for a query: `(query, texts) -> scores`, an object with `predict([(query, text), …])` such as a
sentence-transformers `CrossEncoder`, or a LangChain `BaseDocumentCompressor`."""

_PLACE = "agentrag_position"  # finds a hit again when a compressor makes a new Document


def check_reranker(reranker: object) -> Reranker | None:
    """The reranker unchanged.

    Raises:
        InvalidQueryError: it is of no known kind.
    """
    known = hasattr(reranker, "compress_documents") or hasattr(reranker, "predict") or callable(reranker)
    if reranker is None or (known and not isinstance(reranker, type)):
        return reranker
    raise InvalidQueryError(
        f"Cannot rerank with {reranker!r}: pass a function (query, texts) -> scores, an object with predict(), or a "
        "LangChain document compressor (an instance, not the class)."
    )


def rerank(reranker: Reranker, query: str, hits: Sequence[Hit]) -> list[Hit]:
    """The hits in the reranker's order, with its scores where it gives any.

    Texts stay exactly as stored; a compressor may leave hits out, and what it rewrites is not taken over. Scores
    outside [0, 1], such as a cross-encoder's logits, go through the logistic function.

    Raises:
        RetrievalError: the reranker failed or answered something else than one number per text.
    """
    if not hits:
        return []
    try:
        if hasattr(reranker, "compress_documents"):
            return _compressed(reranker, query, hits)
        texts = [hit.text for hit in hits]
        scores = (
            reranker.predict([(query, text) for text in texts])
            if hasattr(reranker, "predict")
            else reranker(query, texts)
        )
        values = [float(score) for score in scores]
    except Exception as error:
        raise RetrievalError(f"the reranker failed: {type(error).__name__}: {str(error)[:300]}") from error
    if len(values) != len(hits) or not all(math.isfinite(value) for value in values):
        raise RetrievalError(
            f"the reranker gave {len(values)} scores for {len(hits)} texts, or one that is no finite number"
        )
    rescored = [replace(hit, score=value) for hit, value in zip(hits, _unit(values), strict=True)]
    order = sorted(range(len(hits)), key=lambda place: -values[place])  # stable: ties keep the fused order
    return [rescored[place] for place in order]


def _compressed(compressor: Any, query: str, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ANN401  duck-typed
    from langchain_core.documents import Document

    documents = [
        Document(id=str(place), page_content=hit.text, metadata={**hit.metadata, _PLACE: place})
        for place, hit in enumerate(hits)
    ]
    kept = list(compressor.compress_documents(documents, query))
    places = [int(document.metadata.get(_PLACE, document.id)) for document in kept]
    given = [document.metadata.get("relevance_score") for document in kept]
    ranked = [hits[place] for place in dict.fromkeys(places)]
    if any(score is None for score in given) or len(ranked) != len(given):
        return ranked
    scores = _unit([float(score) for score in given])
    return [replace(hit, score=score) for hit, score in zip(ranked, scores, strict=True)]


def _unit(values: Sequence[float]) -> list[float]:
    if all(0 <= value <= 1 for value in values):
        return list(values)
    return [1 / (1 + math.exp(-value)) if value > -700 else 0.0 for value in values]  # noqa: PLR2004  exp overflows
