"""Reranking of hits by a function, a cross-encoder, or a LangChain document compressor."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from langchain_agentrag.errors import InvalidQueryError, MissingExtraError, RetrievalError
from langchain_agentrag.timeouts import run_with_timeout
from langchain_agentrag.types import Hit

Reranker: TypeAlias = Callable[[str, list[str]], Sequence[float]] | Any
"""Scores texts for a query: `(query, texts) -> scores`, an object with `predict([(query, text), …])` such as a
sentence-transformers `CrossEncoder`, a LangChain `BaseDocumentCompressor`, or the name of a cross-encoder."""

_THREAD = "agentrag-rerank"
_BATCH = 8  # texts per call under a timeout
_PLACE = "agentrag_position"  # metadata key by which a hit is recognised in the compressor's documents


def check_reranker(reranker: object) -> Reranker | None:
    """Return the reranker; for a string, the cross-encoder of that name or folder.

    Raises:
        InvalidQueryError: it is no reranker.
        MissingExtraError: a cross-encoder was named and sentence-transformers is not installed.
    """
    if isinstance(reranker, str | Path) and str(reranker).strip():
        return load_cross_encoder(str(reranker))
    known = hasattr(reranker, "compress_documents") or hasattr(reranker, "predict") or callable(reranker)
    if reranker is None or (known and not isinstance(reranker, type)):
        return reranker
    raise InvalidQueryError(
        f"Cannot rerank with {reranker!r}: pass the name of a cross-encoder, a function (query, texts) -> scores, an "
        "object with predict(), or a LangChain document compressor (an instance, not the class)."
    )


@cache
def load_cross_encoder(name: str) -> Any:  # noqa: ANN401  sentence-transformers has no types to rely on
    """Load the sentence-transformers `CrossEncoder` of this name or folder, once per process.

    "BAAI/bge-reranker-v2-m3" reads Chinese and English, "BAAI/bge-reranker-base" is the smaller one.

    Raises:
        MissingExtraError: sentence-transformers is not installed.
        RetrievalError: there is no such model, or it cannot be loaded.
    """
    try:
        from sentence_transformers import CrossEncoder  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise MissingExtraError("A cross-encoder", "rerank") from error
    try:
        return CrossEncoder(name)
    except Exception as error:
        raise RetrievalError(
            f"Cannot load the cross-encoder {name!r}: {type(error).__name__}: {str(error)[:300]}. Give a folder, or a "
            "model that has been downloaded."
        ) from error


@dataclass(frozen=True, slots=True)
class Reranked:
    """Hits after reranking.

    Attributes:
        hits: In the new order.
        warning: Why the reranker did not score all of them, or "".
    """

    hits: list[Hit]
    warning: str = ""


def rerank(reranker: Reranker, query: str, hits: Sequence[Hit], timeout: float | None = None) -> Reranked:
    """Return the hits in the reranker's order, with its scores if it gives any.

    Texts stay exactly as stored; a compressor may leave hits out, and texts that it rewrites are ignored. Scores
    outside [0, 1], such as a cross-encoder's logits, go through the logistic function. Under a timeout the texts are
    scored in batches, best first: hits that were not scored in time stay behind the others in the fused order. A
    reranker that fails leaves the order unchanged.

    Args:
        reranker: The reranker.
        query: The question.
        hits: In the fused order.
        timeout: Seconds in all, or None. A batch under way is not waited for.
    """
    if not hits:
        return Reranked([])
    try:
        if hasattr(reranker, "compress_documents"):
            return Reranked(run_with_timeout(timeout, lambda: _compress(reranker, query, hits), _THREAD))
        return _score(reranker, query, hits, timeout)
    except TimeoutError as error:
        limit = f"did not answer within {timeout:g} s" if timeout is not None else f"gave up: {error}"
        return Reranked(list(hits), f"the reranker {limit}")
    except RetrievalError as error:
        return Reranked(list(hits), str(error))
    except Exception as error:  # noqa: BLE001  a search does not fail because of foreign code
        return Reranked(list(hits), f"the reranker failed: {type(error).__name__}: {str(error)[:300]}")


def _score(reranker: Reranker, query: str, hits: Sequence[Hit], timeout: float | None) -> Reranked:
    deadline = None if timeout is None else time.monotonic() + timeout
    values: list[float] = []
    warning = ""
    size = len(hits) if timeout is None else _BATCH  # a model batches by itself
    for start in range(0, len(hits), size):
        texts = [hit.text for hit in hits[start : start + size]]
        left = None if deadline is None else deadline - time.monotonic()
        try:
            scores = run_with_timeout(left, partial(_call, reranker, query, texts), _THREAD)
        except TimeoutError:
            if timeout is None:
                raise
            warning = f"the reranker scored {len(values)} of {len(hits)} hits within {timeout:g} s"
            break
        if len(scores) != len(texts) or not all(math.isfinite(value) for value in scores):
            raise RetrievalError(
                f"the reranker gave {len(scores)} scores for {len(texts)} texts, or one that is no finite number"
            )
        values += scores
    if not values:
        return Reranked(list(hits), warning)
    unit_scores = _unit(values)
    order = sorted(range(len(values)), key=lambda place: -values[place])  # stable: ties keep the fused order
    lowest = min(unit_scores)
    rest = [replace(hit, score=min(hit.score, lowest)) for hit in hits[len(values) :]]
    return Reranked([*(replace(hits[place], score=unit_scores[place]) for place in order), *rest], warning)


def _call(reranker: Reranker, query: str, texts: list[str]) -> list[float]:
    scores = (
        reranker.predict([(query, text) for text in texts]) if hasattr(reranker, "predict") else reranker(query, texts)
    )
    return [float(score) for score in scores]


def _compress(compressor: Any, query: str, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ANN401  duck-typed
    from langchain_core.documents import Document

    documents = [
        Document(id=str(place), page_content=hit.text, metadata={**hit.metadata, _PLACE: place})
        for place, hit in enumerate(hits)
    ]
    kept = list(compressor.compress_documents(documents, query))
    places = [int(document.metadata.get(_PLACE, document.id)) for document in kept]
    if not all(0 <= place < len(hits) for place in places):
        raise RetrievalError("the reranker returned a document that it was not given")
    relevance = [document.metadata.get("relevance_score") for document in kept]
    ranked = [hits[place] for place in dict.fromkeys(places)]
    if any(score is None for score in relevance) or len(ranked) != len(relevance):
        return ranked
    values = [float(score) for score in relevance]
    if not all(map(math.isfinite, values)):
        raise RetrievalError("the reranker gave a score that is no finite number")
    scores = _unit(values)
    return [replace(hit, score=score) for hit, score in zip(ranked, scores, strict=True)]


def _unit(values: Sequence[float]) -> list[float]:
    if all(0 <= value <= 1 for value in values):
        return list(values)
    return [1 / (1 + math.exp(-value)) if value > -700 else 0.0 for value in values]  # noqa: PLR2004  exp overflows
