"""The embedding model and the analyzer of a store, checked against its manifest."""

from __future__ import annotations

import logging
import threading
from functools import cached_property
from pathlib import Path
from typing import Any

from langchain_agentrag.embedding import Background, Embedder, background_cosine, resolve_embedder
from langchain_agentrag.errors import EmbeddingError, StoreError, StoreMismatchError, UsageError
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.store.indexes import reanalyze_chunks
from langchain_agentrag.store.store import Store
from langchain_agentrag.text import Analyzer

logger = logging.getLogger(__name__)

_MODEL_KEYS = ("embedding", "dimension", "background")


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


def clear_model(catalog: Catalog) -> bool:
    """Remove the embedding model from the manifest of a store without chunks; the caller holds the write lock.

    So a first attempt with a wrong model, which stored nothing, does not make the folder useless.

    Returns:
        Whether it was removed: False while there is a chunk.
    """
    with catalog.transaction() as connection:
        if connection.execute("SELECT 1 FROM chunks LIMIT 1").fetchone():
            return False
        connection.execute("DELETE FROM embedding_cache")
        connection.executemany("DELETE FROM manifest WHERE key = ?", [(key,) for key in _MODEL_KEYS])
        return True


def resolve_analyzer(store: Store, analyzer: Analyzer | None, *, reanalyze: bool) -> Analyzer:
    """Return the analyzer of a store, and write its settings to the manifest for later opens.

    Args:
        store: The store.
        analyzer: The analyzer to open it with; None for the one of the last open. Its user words decide by which terms
            texts are indexed; its stop words and synonyms change queries only.
        reanalyze: Accept other user words and analyse all texts again.

    Raises:
        StoreMismatchError: The analyzer indexes texts otherwise than the store was built, and `reanalyze` is off.
    """
    stored_settings = store.catalog.manifest_value("analyzer_settings") or Analyzer().settings
    analyzer = analyzer or Analyzer(**stored_settings)
    fingerprint = store.catalog.manifest_value("analyzer")
    if fingerprint == analyzer.fingerprint and stored_settings == analyzer.settings:
        return analyzer
    with store.lock.acquire():
        if fingerprint not in {None, analyzer.fingerprint}:
            if not reanalyze:
                raise StoreMismatchError(
                    f"The store {store.folder} was built with the analyzer {fingerprint}, not {analyzer.fingerprint}: "
                    "its terms would not match the query's. Open it with the settings it was built with, or with "
                    "reanalyze=True to analyse its texts again (nothing is embedded again)."
                )
            # until all of it is done, neither analyzer fits
            store.catalog.set_manifest(analyzer=f"{analyzer.fingerprint}, unfinished")
            reanalyze_chunks(store.catalog, analyzer)
            for partition in store.catalog.partitions():
                store.indexes.rebuild_keyword_index(partition)
        store.catalog.set_manifest(analyzer=analyzer.fingerprint, analyzer_settings=analyzer.settings)
    return analyzer
