"""What an empty store may take back of its promises."""

from __future__ import annotations

from langchain_agentrag.index.catalog import Catalog

_OF_THE_MODEL = ("embedding", "dimension", "background", "background_deviation")


def release_model(catalog: Catalog) -> bool:
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
