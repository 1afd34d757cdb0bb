"""Vectors that a caller brings along with its documents, checked against the store's model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from langchain_agentrag.embedding import Embedder
from langchain_agentrag.errors import InvalidDocumentError, StoreMismatchError, UsageError
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.types import SourceDocument

Given = Sequence[float] | None
Model = Callable[[], Embedder]


def with_vectors(
    documents: Iterable[SourceDocument], vectors: Iterable[Given] | None, model: Model, *, split: bool
) -> Iterator[tuple[SourceDocument, Vectors | None]]:
    """Each document with its vector, or with None where the model has to make one.

    Raises:
        UsageError: the documents are to be cut, so a vector of the whole would fit none of the pieces.
        InvalidDocumentError: there are more or fewer vectors than documents, or one is no list of finite numbers.
        StoreMismatchError: a vector has another length than the model's.
    """
    if vectors is None:
        return ((document, None) for document in documents)
    if split:
        raise UsageError("vectors=… belong to whole documents: pass split=False, or leave the vectors out.")
    return _pairs(documents, vectors, model)


def _pairs(
    documents: Iterable[SourceDocument], vectors: Iterable[Given], model: Model
) -> Iterator[tuple[SourceDocument, Vectors | None]]:
    try:
        for document, given in zip(documents, vectors, strict=True):
            yield document, None if given is None else _checked(document, given, model)
    except ValueError as error:
        if "zip()" not in str(error):
            raise
        raise InvalidDocumentError("vectors=… must hold one vector, or None, per document.") from error


def _checked(document: SourceDocument, given: Sequence[float], model: Model) -> Vectors:
    try:
        vector: Vectors = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError):
        vector = np.empty((0, 0), dtype=np.float32)
    if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
        raise InvalidDocumentError(
            f"The vector of document {document.doc_id!r} must be one list of finite numbers."
        )
    embedder = model()
    if len(vector) != embedder.dimension:
        raise StoreMismatchError(
            f"The vector of document {document.doc_id!r} has {len(vector)} dimensions, the store's model "
            f"{embedder.name} makes {embedder.dimension}: open the store with the model that made the vectors, "
            "embeddings=…, or leave them out."
        )
    return vector
