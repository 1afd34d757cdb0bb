"""The embedding model of a store, checked against its manifest, and the embedding of queries with it."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from langchain_agentrag.embedding import Background, Embedder, background_cosine, resolve_embedder
from langchain_agentrag.errors import EmbeddingError, InvalidQueryError, StoreError, StoreMismatchError, UsageError
from langchain_agentrag.search.cache import QueryVectors
from langchain_agentrag.search.options import PreparedQuery
from langchain_agentrag.store.catalog import clear_model
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.store.store import Store
from langchain_agentrag.timeouts import run_with_timeout

logger = logging.getLogger(__name__)


class StoreEmbedding:
    """Embedding model of a store: resolved on first use, checked against the manifest. Thread-safe.

    Args:
        store: The store.
        spec: The model, as for `resolve_embedder`; None for the one the store was built with.

    Raises:
        StoreMismatchError: The store was built with another model. Checked here when both are known, so that a wrong
            model is refused when the store is opened and not at the first search.
    """

    def __init__(self, store: Store, spec: Any) -> None:  # noqa: ANN401
        self._store, self._spec = store, spec
        self._guard = threading.RLock()
        self._embedder: Embedder | None = None
        if spec is not None and store.catalog.manifest_value("embedding"):
            self._resolve()

    @property
    def embedder(self) -> Embedder:
        """The embedder, checked against the store.

        Raises:
            StoreMismatchError: The store was built with another model.
            EmbeddingError: No model is available.
        """
        with self._guard:
            return self._embedder or self._resolve()

    @cached_property
    def background(self) -> Background:
        """Cosines of unrelated texts under the model: measured once per store, then read from its manifest."""
        with self._guard:
            stored = self._store.catalog.manifest_value("background")
            return Background(*stored) if isinstance(stored, list) else self._measure_background()

    def _measure_background(self) -> Background:
        try:
            background = background_cosine(self.embedder)
        except EmbeddingError as error:  # the model knows certain texts only, or is down at the moment
            logger.warning("the model's background similarity could not be measured, 0 is assumed: %s", error)
            return Background()
        try:
            self._store.catalog.set_manifest(background=background)
        except StoreError as error:  # a search needs no right to write: the next one measures again
            logger.info("the model's background similarity could not be stored: %s", error)
        return background

    def _resolve(self) -> Embedder:
        manifest = self._store.catalog.manifest_value("embedding")
        spec = self._spec
        if spec is None and manifest is not None:
            spec = manifest["spec"]
            if spec is None:
                raise UsageError(
                    f"The store {self._store.folder} was built with the embedding object {manifest['name']!r}, which "
                    "cannot be made from a name: pass the same object as embeddings=…"
                )
        model = resolve_embedder(spec)
        if manifest is None:
            name = str(spec) if isinstance(spec, str | Path) else None if spec is not None else "local"
            entry = {"name": model.name, "fingerprint": model.fingerprint, "spec": name}
            self._store.catalog.set_manifest(embedding=entry)
        elif manifest["fingerprint"] != model.fingerprint:
            with self._store.lock.acquire():
                cleared = clear_model(self._store.catalog)
            if cleared:
                return self._resolve()
            raise StoreMismatchError(
                f"The store {self._store.folder} was built with the embedding model {manifest['name']!r} "
                f"({manifest['fingerprint']}), not {model.name!r} ({model.fingerprint}): vectors of two models cannot "
                "be compared. Open it with the model it was built with, or index into a new folder."
            )
        self._embedder = model
        return model


class QueryEmbedder:
    """Embeds queries with the store's model, with a timeout and a cache per agent.

    Args:
        store: The store.
        embeddings: Embedding model as the caller gave it; None for the one the store was built with.
        timeout: Seconds a query may take to embed, or None.
        cache_size: Queries per agent whose vectors are cached.

    Raises:
        StoreMismatchError: the store was built with another model.
    """

    def __init__(self, store: Store, embeddings: Any, timeout: float | None, cache_size: int = 0) -> None:  # noqa: ANN401
        self._store, self._timeout = store, timeout
        self._model = StoreEmbedding(store, embeddings)
        self._cache = QueryVectors(cache_size)

    @property
    def embedder(self) -> Embedder:
        """The store's embedding model, see `StoreEmbedding.embedder`."""
        return self._model.embedder

    def embed(self, query: PreparedQuery) -> PreparedQuery:
        """Return the query with its vector; if the model fails, without one and with a note in `degraded`."""
        try:
            return self._known(query) or self._checked(query, self._call_model(query.text), keep=True)
        except EmbeddingError as error:
            return _without_vector(query, error)

    async def aembed(self, query: PreparedQuery) -> PreparedQuery:
        """`embed` through the model's own async method."""
        try:
            run = self._store.calls.run
            known = await asyncio.to_thread(run, self._known, query)
            if known is not None:
                return known
            model = await asyncio.to_thread(run, lambda: self.embedder)
            try:
                async with asyncio.timeout(self._timeout):
                    vector = await model.aembed_query(query.text)
            except TimeoutError:
                raise self._timed_out() from None
            return await asyncio.to_thread(run, self._checked, query, vector, keep=True)
        except EmbeddingError as error:
            return _without_vector(query, error)

    def forget(self, agent_id: str) -> None:
        """Drop the cached vectors of an agent."""
        self._cache.forget(agent_id)

    def _known(self, query: PreparedQuery) -> PreparedQuery | None:
        """The query with a vector that needs no model; None when the model must be called."""
        request = query.request
        if not request.uses_vector_index:
            return query
        if request.vector is not None:
            try:
                return self._checked(query, request.vector)
            except EmbeddingError as error:  # the caller's vector, not the model, is at fault
                raise InvalidQueryError(str(error)) from error
        cached = self._cache.get(request.scope.agent_id, query.text)
        return None if cached is None else self._checked(query, cached)

    def _call_model(self, text: str) -> Vectors:
        model = self.embedder
        if self._timeout is None:
            return model.embed_query(text)
        try:
            return run_with_timeout(self._timeout, lambda: model.embed_query(text), "agentrag-embed")
        except TimeoutError:
            raise self._timed_out() from None

    def _checked(self, query: PreparedQuery, vector: Vectors, *, keep: bool = False) -> PreparedQuery:
        dimension = self._store.dimension
        if dimension is not None and len(vector) != dimension:
            raise EmbeddingError(
                f"The model embedded the query in {len(vector)} dimensions, the store holds {dimension}: "
                "open the store with the model it was built with."
            )
        background = self._model.background
        if keep:
            self._cache.put(query.request.scope.agent_id, query.text, vector)
        return replace(query, vector=vector, background=background.mean, lowest_background=background.lowest)

    def _timed_out(self) -> EmbeddingError:
        return EmbeddingError(f"timeout after {self._timeout} s")


def _without_vector(query: PreparedQuery, error: EmbeddingError) -> PreparedQuery:
    logger.warning("searching without the vector index: %s", error)
    return replace(query, degraded=(*query.degraded, f"vector: {error}"))
