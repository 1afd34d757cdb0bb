"""A second opinion on the best hits: any callable, cross-encoder or LangChain compressor puts them in a new order."""

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
_BATCH = 8  # texts between two looks at the clock
_PLACE = "agentrag_position"  # finds a hit again when a compressor makes a new Document


def check_reranker(reranker: object) -> Reranker | None:
    """The reranker unchanged; the cross-encoder of that name or folder for a string.

    Raises:
        InvalidQueryError: it is of no known kind.
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
    """The sentence-transformers `CrossEncoder` of this name or folder, loaded once per process.

    "BAAI/bge-reranker-v2-m3" knows Chinese and English, "BAAI/bge-reranker-base" is the smaller one.

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
    """Hits after a second opinion.

    Attributes:
        hits: In the new order.
        trouble: What kept the reranker from judging all of them, or "".
    """

    hits: list[Hit]
    trouble: str = ""


def rerank(reranker: Reranker, query: str, hits: Sequence[Hit], timeout: float | None = None) -> Reranked:
    """The hits in the reranker's order, with its scores where it gives any.

    Texts stay exactly as stored; a compressor may leave hits out, and what it rewrites is not taken over. Scores
    outside [0, 1], such as a cross-encoder's logits, go through the logistic function. Texts are judged in batches,
    the best of the fused order first: when the time is over, those judged so far are put in order and the others stay
    behind them as they were. A reranker that fails leaves the order as it was.

    Args:
        reranker: The second opinion.
        query: The question.
        hits: In the fused order.
        timeout: Seconds for all of it, or None. A batch on its way is not waited for.
    """
    if not hits:
        return Reranked([])
    try:
        if hasattr(reranker, "compress_documents"):
            return Reranked(run_with_timeout(timeout, lambda: _compressed(reranker, query, hits), _THREAD))
        return _judged(reranker, query, hits, timeout)
    except TimeoutError as error:
        limit = f"did not answer within {timeout:g} s" if timeout is not None else f"gave up: {error}"
        return Reranked(list(hits), f"the reranker {limit}")
    except RetrievalError as error:
        return Reranked(list(hits), str(error))
    except Exception as error:  # noqa: BLE001  somebody else's code; a search does not fail for a second opinion
        return Reranked(list(hits), f"the reranker failed: {type(error).__name__}: {str(error)[:300]}")


def _judged(reranker: Reranker, query: str, hits: Sequence[Hit], timeout: float | None) -> Reranked:
    until = None if timeout is None else time.monotonic() + timeout
    values: list[float] = []
    trouble = ""
    size = len(hits) if timeout is None else _BATCH  # a model batches by itself as suits it
    for start in range(0, len(hits), size):
        texts = [hit.text for hit in hits[start : start + size]]
        left = None if until is None else until - time.monotonic()
        try:
            scored = run_with_timeout(left, partial(_scores, reranker, query, texts), _THREAD)
        except TimeoutError:
            if timeout is None:
                raise
            trouble = f"the reranker judged {len(values)} of {len(hits)} hits within {timeout:g} s"
            break
        if len(scored) != len(texts) or not all(math.isfinite(value) for value in scored):
            raise RetrievalError(
                f"the reranker gave {len(scored)} scores for {len(texts)} texts, or one that is no finite number"
            )
        values += scored
    if not values:
        return Reranked(list(hits), trouble)
    shares = _unit(values)
    order = sorted(range(len(values)), key=lambda place: -values[place])  # stable: ties keep the fused order
    lowest = min(shares)
    rest = [replace(hit, score=min(hit.score, lowest)) for hit in hits[len(values) :]]
    return Reranked([*(replace(hits[place], score=shares[place]) for place in order), *rest], trouble)


def _scores(reranker: Reranker, query: str, texts: list[str]) -> list[float]:
    given = (
        reranker.predict([(query, text) for text in texts])
        if hasattr(reranker, "predict")
        else reranker(query, texts)
    )
    return [float(score) for score in given]


def _compressed(compressor: Any, query: str, hits: Sequence[Hit]) -> list[Hit]:  # noqa: ANN401  duck-typed
    from langchain_core.documents import Document

    documents = [
        Document(id=str(place), page_content=hit.text, metadata={**hit.metadata, _PLACE: place})
        for place, hit in enumerate(hits)
    ]
    kept = list(compressor.compress_documents(documents, query))
    places = [int(document.metadata.get(_PLACE, document.id)) for document in kept]
    if not all(0 <= place < len(hits) for place in places):
        raise RetrievalError("the reranker gave back a document that it was not given")
    given = [document.metadata.get("relevance_score") for document in kept]
    ranked = [hits[place] for place in dict.fromkeys(places)]
    if any(score is None for score in given) or len(ranked) != len(given):
        return ranked
    values = [float(score) for score in given]
    if not all(map(math.isfinite, values)):
        raise RetrievalError("the reranker gave a score that is no finite number")
    scores = _unit(values)
    return [replace(hit, score=score) for hit, score in zip(ranked, scores, strict=True)]


def _unit(values: Sequence[float]) -> list[float]:
    if all(0 <= value <= 1 for value in values):
        return list(values)
    return [1 / (1 + math.exp(-value)) if value > -700 else 0.0 for value in values]  # noqa: PLR2004  exp overflows
