"""Query vectors: the store's embedding model with a timeout and a cache per agent."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from langchain_agentrag.embedding import Background, Embedder
from langchain_agentrag.errors import EmbeddingError, InvalidQueryError
from langchain_agentrag.search.cache import QueryVectors
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.store.manifest import StoreEmbedding
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.store import Store
from langchain_agentrag.timeouts import run_with_timeout

logger = logging.getLogger(__name__)


class Model:
    """Embeds queries with the store's model.

    Args:
        store: The store.
        spec: What the caller gave as `embeddings`; None means what the store was built with.
        timeout: Seconds a query may take to embed, or None.
        remembered: Queries per agent whose vectors are kept in memory.

    Raises:
        StoreMismatchError: the store was built with another model.
    """

    def __init__(
        self,
        store: Store,
        spec: Any,  # noqa: ANN401
        timeout: float | None,
        remembered: int = 0,
    ) -> None:
        self._store, self._timeout = store, timeout
        self._model = StoreEmbedding(store, spec)
        self._vectors = QueryVectors(remembered)

    @property
    def embedder(self) -> Embedder:
        """See `StoreEmbedding.embedder`."""
        return self._model.embedder

    def background(self) -> Background:
        """See `StoreEmbedding.background`."""
        return self._model.background()

    def with_vector(self, request: SearchRequest) -> SearchRequest:
        """The request with its query embedded; a failing model is noted in it, not raised."""
        if not request.uses_vector_index:
            return replace(request, vector=None)
        if request.vector is not None:
            return self._given(request, request.vector)
        try:
            known = self._vectors.get(request.scope.agent_id, request.searched)
            return self._filled(request, known) if known is not None else self._embedded(request)
        except EmbeddingError as error:
            return self._without(request, error)

    async def awith_vector(self, request: SearchRequest) -> SearchRequest:
        """`with_vector` through the model's own async method."""
        known = self._vectors.get(request.scope.agent_id, request.searched)
        if not request.uses_vector_index or request.vector is not None or known is not None:
            return await asyncio.to_thread(self.with_vector, request)
        try:
            model = await asyncio.to_thread(lambda: self.embedder)
        except EmbeddingError as error:
            return self._without(request, error)
        try:
            async with asyncio.timeout(self._timeout):
                vector = await model.aembed_query(request.searched)
            return await asyncio.to_thread(self._remembered, request, vector)
        except TimeoutError:
            return self._without(request, EmbeddingError(f"timeout after {self._timeout:g} s"))
        except EmbeddingError as error:
            return self._without(request, error)

    def _embedded(self, request: SearchRequest) -> SearchRequest:
        return self._remembered(request, self._embed(request.searched))

    def _remembered(self, request: SearchRequest, vector: Vectors) -> SearchRequest:
        filled = self._filled(request, vector)  # a vector that does not fit is not kept
        self._vectors.put(request.scope.agent_id, request.searched, vector)
        return filled

    def _embed(self, query: str) -> Vectors:
        model = self.embedder
        try:
            return run_with_timeout(self._timeout, lambda: model.embed_query(query), "agentrag-embed")
        except TimeoutError:
            raise EmbeddingError(f"timeout after {self._timeout:g} s") from None

    def _filled(self, request: SearchRequest, vector: Vectors) -> SearchRequest:
        known = self._store.dimension
        if known is not None and len(vector) != known:
            raise EmbeddingError(
                f"The model embedded the query in {len(vector)} dimensions, the store holds {known}: "
                "open the store with the model it was built with."
            )
        background = self.background()
        return replace(request, vector=vector, background=background.mean, lowest=background.lowest)

    def forget(self, agent_id: str) -> None:
        """Forget what an agent has asked."""
        self._vectors.forget(agent_id)

    def _given(self, request: SearchRequest, vector: Vectors) -> SearchRequest:
        try:
            return self._filled(request, vector)
        except EmbeddingError as error:  # the caller's vector, not the model, is at fault
            raise InvalidQueryError(str(error)) from error

    @staticmethod
    def _without(request: SearchRequest, error: EmbeddingError) -> SearchRequest:
        logger.warning("searching without the vector leg: %s", error)
        return replace(request, troubles=(*request.troubles, f"vector: {error}"))
