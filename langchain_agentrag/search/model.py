"""The embedding model of a store: resolved when first needed, held to what the store promises."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_agentrag.embedding import Background, Embedder, background_cosine, resolve_embedder
from langchain_agentrag.errors import (
    EmbeddingError,
    InvalidQueryError,
    StoreError,
    StoreMismatchError,
    UsageError,
)
from langchain_agentrag.search.cache import QueryVectors
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.store.manifest import clear_model
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.store import Store
from langchain_agentrag.timeouts import run_with_timeout

logger = logging.getLogger(__name__)


class Model:
    """The store's embedder and what is known of it.

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
        self._store, self._spec, self._timeout = store, spec, timeout
        self._guard = threading.RLock()
        self._vectors = QueryVectors(remembered)
        self._embedder: Embedder | None = None
        self._background: Background | None = None
        if spec is not None and store.catalog.manifest().get("embedding"):
            self._resolve()  # a wrong model shall be refused at open, not at the first search

    @property
    def embedder(self) -> Embedder:
        """The embedder, checked against the store.

        Raises:
            StoreMismatchError: the store was built with another model.
            EmbeddingError: there is no model to take.
        """
        with self._guard:
            return self._embedder or self._resolve()

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

    def background(self) -> Background:
        """Cosines of unrelated texts, measured once per store and kept in its manifest."""
        with self._guard:
            if self._background is None:
                known = self._store.catalog.manifest().get("background")
                self._background = Background(*known) if isinstance(known, list) else self._measure()
            return self._background

    def _measure(self) -> Background:
        try:
            measured = background_cosine(self.embedder)
        except (
            EmbeddingError
        ) as error:  # a model that only knows given texts, or one that is down at the moment
            logger.warning("the model's background similarity could not be measured, 0 is assumed: %s", error)
            return Background()
        try:
            self._store.catalog.set_manifest(background=measured)
        except StoreError as error:  # a search needs no right to write: the next one measures again
            logger.info("the model's background similarity could not be kept: %s", error)
        return measured

    def _resolve(self) -> Embedder:
        promised = self._store.catalog.manifest().get("embedding")
        spec = self._spec
        if spec is None and promised is not None:
            spec = promised["spec"]
            if spec is None:
                raise UsageError(
                    f"The store {self._store.folder} was built with the embedding object {promised['name']!r}, which "
                    "cannot be made from a name: pass the same object as embeddings=…"
                )
        model = resolve_embedder(spec)
        if promised is None:
            named = str(spec) if isinstance(spec, str | Path) else None if spec is not None else "local"
            self._store.catalog.set_manifest(
                embedding={"name": model.name, "fingerprint": model.fingerprint, "spec": named}
            )
        elif promised["fingerprint"] != model.fingerprint:
            with self._store.lock.held():
                released = clear_model(self._store.catalog)
            if released:
                return self._resolve()
            raise StoreMismatchError(
                f"The store {self._store.folder} was built with the embedding model {promised['name']!r} "
                f"({promised['fingerprint']}), not {model.name!r} ({model.fingerprint}): vectors of two models cannot "
                "be compared. Open it with the model it was built with, or index into a new folder."
            )
        self._embedder = model
        return model
