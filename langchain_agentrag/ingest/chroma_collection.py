"""A Chroma collection that another program made, read page by page."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_agentrag.errors import AgentRagError, NotAStoreError, StoreError, UsageError
from langchain_agentrag.store.protocols import Vectors

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

logger = logging.getLogger(__name__)

_PAGE = 1_000
_handles = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a collection.

    Attributes:
        id: Its id.
        text: Its document; None when only a vector was stored.
        metadata: Its metadata, empty when it has none.
        vector: Its embedding; None when it has none.
    """

    id: str
    text: str | None
    metadata: Mapping[str, Any]
    vector: Vectors | None


class ForeignCollection:
    """A collection of Chroma's, only read from.

    Args:
        collection: chromadb's own object.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.name = str(collection.name)

    def count(self) -> int:
        """Number of records."""
        with _reading(self.name):
            return self._collection.count()

    def records(self) -> Iterator[Record]:
        """All records, a page in memory at a time."""
        for start in itertools.count(step=_PAGE):
            with _reading(self.name):
                page = self._collection.get(
                    limit=_PAGE, offset=start, include=["documents", "metadatas", "embeddings"]
                )
            ids: list[str] = page["ids"]
            texts, metadatas, vectors = page["documents"], page["metadatas"], page["embeddings"]
            for place, name in enumerate(ids):
                found = None if vectors is None else vectors[place]
                yield Record(
                    id=name,
                    text=None if texts is None else texts[place],
                    metadata={} if metadatas is None else dict(metadatas[place] or {}),
                    vector=None if found is None else np.asarray(found, dtype=np.float32),
                )
            if len(ids) < _PAGE:
                return


@contextmanager
def foreign_collection(source: Any, name: str | None = None) -> Iterator[ForeignCollection]:  # noqa: ANN401
    """The collection a caller means, open for the length of a `with` block.

    Args:
        source: A chromadb collection, an object that holds one (langchain-chroma's `Chroma`, LlamaIndex'
            `ChromaVectorStore`), or the path of a folder Chroma persisted.
        name: Which collection of the folder, where there are several.

    Raises:
        NotAStoreError: there is no such folder, or it was not written by Chroma.
        UsageError: the source is something else, or it is not clear which collection is meant.
        StoreError: Chroma cannot read it.
    """
    if isinstance(source, str | Path):
        with _client(Path(source)) as client, _reading(str(source)):
            chosen = _chosen(client, source, name)
            collection = client.get_collection(chosen, embedding_function=None)
        try:
            yield ForeignCollection(collection)
        finally:
            client.close()  # type: ignore[attr-defined]
        return
    collection = getattr(source, "_collection", source)
    if not all(hasattr(collection, method) for method in ("get", "count", "name")):
        raise UsageError(
            f"Cannot adopt a {type(source).__name__}: pass a chromadb collection, a langchain-chroma Chroma, or the "
            "path of a Chroma folder."
        )
    if name is not None and name != collection.name:
        raise UsageError(
            f"The collection given is {collection.name!r}, not {name!r}: leave collection_name out."
        )
    yield ForeignCollection(collection)


@contextmanager
def _client(folder: Path) -> Iterator[ClientAPI]:
    """A client of a folder; closed here only when the block fails."""
    import chromadb
    from chromadb.config import Settings

    if not (folder / "chroma.sqlite3").is_file():
        raise NotAStoreError(
            f"{folder} holds no chroma.sqlite3, so Chroma did not write it. Pass the folder given to Chroma as "
            "persist_directory or to PersistentClient."
        )
    with _reading(str(folder)):
        # a spelling of the path that nobody else uses gives this client an engine of its own
        private = f"{folder}{'/.' * (next(_handles) % 200)}/"
        client = chromadb.PersistentClient(private, settings=Settings(anonymized_telemetry=False))
    try:
        yield client
    except BaseException:
        client.close()  # type: ignore[attr-defined]
        raise


def _chosen(client: ClientAPI, folder: str | Path, name: str | None) -> str:
    names = sorted(collection.name for collection in client.list_collections(limit=1_000_000))
    if name is None and len(names) == 1:
        return str(names[0])
    if name in names:
        return str(name)
    asked = (
        "several collections"
        if name is None and names
        else f"no collection {name!r}"
        if name
        else "no collection"
    )
    raise UsageError(f"The Chroma folder {folder} holds {asked}; collection_name may be one of {names}.")


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (AgentRagError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # its native part raises PanicException, which is no Exception
        raise StoreError(
            f"Chroma cannot read {what}: {type(error).__name__}: {error}. Nothing more was taken over; open it with "
            "the version of chromadb that wrote it, then adopt it again: what is there already is not written twice."
        ) from error
