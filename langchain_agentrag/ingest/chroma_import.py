"""Import of Chroma collections made by langchain-chroma, LlamaIndex or others: text, metadata and vectors."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_agentrag.embedding import Embedder
from langchain_agentrag.errors import AgentRagError, NotAStoreError, StoreError, StoreMismatchError, UsageError
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.ingest.pipeline import Pipeline
from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.types import SourceDocument

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

logger = logging.getLogger(__name__)

_PAGE = 1_000
_handles = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a Chroma collection; `text` and `vector` are None, and `metadata` is empty, where it has none."""

    id: str
    text: str | None
    metadata: Mapping[str, Any]
    vector: Vectors | None


class ChromaCollection:
    """A chromadb collection, read page by page.

    Args:
        collection: The chromadb object.
        embeddings: Embedding model of the LangChain `Chroma` that holds it, if any.
    """

    def __init__(self, collection: Collection, embeddings: Any = None) -> None:  # noqa: ANN401
        self._collection = collection
        self.name, self.embeddings = str(collection.name), embeddings

    def count(self) -> int:
        """Return the number of records."""
        with _reading(self.name):
            return self._collection.count()

    def records(self) -> Iterator[Record]:
        """Yield all records, one page in memory at a time."""
        for start in itertools.count(step=_PAGE):
            with _reading(self.name):
                page = self._collection.get(limit=_PAGE, offset=start, include=["documents", "metadatas", "embeddings"])
            ids: list[str] = page["ids"]
            texts, metadatas, vectors = page["documents"], page["metadatas"], page["embeddings"]
            for place, name in enumerate(ids):
                vector = None if vectors is None else vectors[place]
                yield Record(
                    id=name,
                    text=None if texts is None else texts[place],
                    metadata={} if metadatas is None else dict(metadatas[place] or {}),
                    vector=None if vector is None else np.asarray(vector, dtype=np.float32),
                )
            if len(ids) < _PAGE:
                return


@contextmanager
def open_collection(source: Any, name: str | None = None) -> Iterator[ChromaCollection]:  # noqa: ANN401
    """Open a Chroma collection for the length of a `with` block.

    Args:
        source: A chromadb collection, an object that holds one (langchain-chroma's `Chroma`, LlamaIndex'
            `ChromaVectorStore`), or the path of a folder Chroma persisted.
        name: Name of the collection, if the folder holds several.

    Raises:
        NotAStoreError: there is no such folder, or it was not written by Chroma.
        UsageError: the source is something else, or it is not clear which collection is meant.
        StoreError: Chroma cannot read it.
    """
    if isinstance(source, str | Path):
        with _client(Path(source)) as client:
            with _reading(str(source)):
                collection = client.get_collection(_collection_name(client, source, name), embedding_function=None)
            yield ChromaCollection(collection)
        return
    collection = getattr(source, "_collection", source)
    if not all(hasattr(collection, method) for method in ("get", "count", "name")):
        raise UsageError(
            f"Cannot import from a {type(source).__name__}: pass a chromadb collection, a langchain-chroma Chroma, or "
            "the path of a Chroma folder."
        )
    if name is not None and name != collection.name:
        raise UsageError(f"The collection given is {collection.name!r}, not {name!r}: leave collection_name out.")
    yield ChromaCollection(collection, getattr(source, "embeddings", None) if collection is not source else None)


@contextmanager
def _client(folder: Path) -> Iterator[ClientAPI]:
    """Open a client of a folder for the length of a `with` block."""
    import chromadb
    from chromadb.config import Settings

    if not (folder / "chroma.sqlite3").is_file():
        raise NotAStoreError(
            f"{folder} holds no chroma.sqlite3, so Chroma did not write it. Pass the folder given to Chroma as "
            "persist_directory or to PersistentClient."
        )
    with _reading(str(folder)):
        # Chroma shares one engine per path string in a process: a unique spelling of the path avoids that
        private = f"{folder}{'/.' * (next(_handles) % 200)}/"
        client = chromadb.PersistentClient(private, settings=Settings(anonymized_telemetry=False))
    try:
        yield client
    finally:
        client.close()  # type: ignore[attr-defined]


def _collection_name(client: ClientAPI, folder: str | Path, name: str | None) -> str:
    names = sorted(collection.name for collection in client.list_collections(limit=1_000_000))
    if name is None and len(names) == 1:
        return str(names[0])
    if name in names:
        return str(name)
    problem = (
        "several collections" if name is None and names else f"no collection {name!r}" if name else "no collection"
    )
    raise UsageError(f"The Chroma folder {folder} holds {problem}; collection_name may be one of {names}.")


@contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except (AgentRagError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a Rust panic arrives as PanicException, which is no Exception
        raise StoreError(
            f"Chroma cannot read {what}: {type(error).__name__}: {error}. Nothing more was imported; open it with "
            "the version of chromadb that wrote it, then import it again: what is there already is not written twice."
        ) from error


Owner = str | Callable[[Mapping[str, Any]], str | None] | None
"""Owner of the records: one agent, a function of a record's metadata, or None for the `agent_id` in the metadata."""

_NODE = "_node_content"
_NODE_KEYS = frozenset({_NODE, "_node_type", "document_id", "doc_id", "ref_doc_id"})


def import_collection(collection: ChromaCollection, pipeline: Pipeline, model: Embedder, owner: Owner) -> None:
    """Put every record of a collection into the pipeline, whole and with its vector.

    Ids become doc_ids. A record without text or with an invalid vector is reported as skipped.

    Raises:
        StoreMismatchError: the vectors have another length than the model's.
        AgentRagError: a record cannot be stored; the message names it. Records before it are kept.
    """
    for record in collection.records():
        problem = _problem(record)
        if problem:
            pipeline.skip(record.id, problem)
        else:
            _check_dimension(record, collection, model)
            pipeline.put(_document(record, owner), split=False, vector=record.vector)
        pipeline.advance(record.id)
    if skipped := pipeline.report.skipped:
        logger.warning(
            "%d records of %s were not imported, the first because %s", len(skipped), collection.name, skipped[0].reason
        )


def _problem(record: Record) -> str:
    if record.text is None and _NODE not in record.metadata:
        return "it holds no text"
    if record.vector is None or not len(record.vector):
        return "it holds no vector"
    return "" if np.isfinite(record.vector).all() else "its vector holds NaN or infinity"


def _check_dimension(record: Record, collection: ChromaCollection, model: Embedder) -> None:
    length = 0 if record.vector is None else len(record.vector)
    if length != model.dimension:
        raise StoreMismatchError(
            f"The collection {collection.name!r} holds vectors of {length} dimensions (record {record.id!r}), the "
            f"model {model.name} makes {model.dimension}: pass the model the collection was made with as embeddings=…"
        )


def _document(record: Record, owner: Owner) -> SourceDocument:
    text, metadata = record.text or "", dict(record.metadata)
    if _NODE in metadata:
        text, metadata = _from_node(text, metadata)
    agent = owner(metadata) if callable(owner) else owner
    try:
        return next(as_source_documents([SourceDocument(record.id, text, metadata)], agent))
    except AgentRagError as error:
        raise type(error)(f"Cannot import record {record.id!r}: {error}") from error


def _from_node(text: str, metadata: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Text and metadata of a LlamaIndex node: its JSON keeps the nested values that Chroma cannot store."""
    try:
        node = json.loads(metadata[_NODE])
    except (TypeError, ValueError):
        node = {}
    node = node if isinstance(node, dict) else {}
    nested = node.get("metadata")
    flat = {key: value for key, value in metadata.items() if key not in _NODE_KEYS}
    parent = metadata.get("ref_doc_id")
    if isinstance(parent, str) and parent != "None":  # what LlamaIndex writes for a node without a document
        flat["ref_doc_id"] = parent
    node_text = node.get("text")
    text = text or (node_text if isinstance(node_text, str) else "")
    return text, {**flat, **(nested if isinstance(nested, dict) else {})}
