"""Promises of a store: the analyzer it keeps, and what it may take back while it is empty."""

from __future__ import annotations

from langchain_agentrag.errors import StoreMismatchError
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.store.indexes import reanalyze_chunks
from langchain_agentrag.store.store import Store
from langchain_agentrag.text import Analyzer

_OF_THE_MODEL = ("embedding", "dimension", "background")


def clear_model(catalog: Catalog) -> bool:
    """Untie a store that holds no chunk from its embedding model; the caller holds the write lock.

    A first attempt with a wrong model that stored nothing shall not make the folder useless.

    Returns:
        Whether it was untied: False while there is a chunk.
    """
    with catalog.transaction() as connection:
        if connection.execute("SELECT 1 FROM chunks LIMIT 1").fetchone():
            return False
        connection.execute("DELETE FROM embedding_cache")
        marks = ",".join("?" * len(_OF_THE_MODEL))
        connection.execute(f"DELETE FROM manifest WHERE key IN ({marks})", _OF_THE_MODEL)
        return True


def resolve_analyzer(store: Store, given: Analyzer | None, *, reanalyze: bool) -> Analyzer:
    """The analyzer of a store: the given one, or else the one it was last opened with.

    User words decide what texts are indexed by; stop words and synonyms only change queries. All of them are kept for
    whoever opens the store next.

    Raises:
        StoreMismatchError: the given one indexes texts otherwise than the store was, and `reanalyze` is off.
    """
    kept = store.catalog.manifest_value("analyzer_settings") or Analyzer().settings
    analyzer = given or Analyzer(**kept)
    promised = store.catalog.manifest_value("analyzer")
    if promised == analyzer.fingerprint and kept == analyzer.settings:
        return analyzer
    with store.lock.held():
        if promised not in {None, analyzer.fingerprint}:
            if not reanalyze:
                raise StoreMismatchError(
                    f"The store {store.folder} was built with the analyzer {promised}, not {analyzer.fingerprint}: "
                    "its terms would not meet the query's. Open it with the settings it was built with, or with "
                    "reanalyze=True to analyse its texts again (nothing is embedded again)."
                )
            # until all of it is done, neither analyzer fits
            store.catalog.set_manifest(analyzer=f"{analyzer.fingerprint}, unfinished")
            reanalyze_chunks(store.catalog, analyzer)
            for partition in store.catalog.partitions():
                store.indexes.rebuild_keyword_index(partition)
        store.catalog.set_manifest(analyzer=analyzer.fingerprint, analyzer_settings=analyzer.settings)
    return analyzer
