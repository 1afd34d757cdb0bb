"""`HybridDocumentStore`: LlamaIndex document store in the files of a store, for ingestion pipelines and indexes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Self
from urllib.parse import quote

from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.docstore.utils import doc_to_json, json_to_doc
from llama_index.core.storage.kvstore.types import DEFAULT_BATCH_SIZE, DEFAULT_COLLECTION, BaseKVStore

from langchain_agentrag.filters import Condition, Not
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.llama_index.nodes import from_document
from langchain_agentrag.scope import check_agent_id, require_agent_id
from langchain_agentrag.types import SourceDocument

RECORD_KEY = "_llama_index_record"
"""Metadata key of the records of a document store."""

NO_RECORDS = Not(Condition(RECORD_KEY, "$exists", True))  # noqa: FBT003  (a value of the filter language)
"""Filter that leaves out the records of document stores."""

_INDEXED = {"indexed": True}  # instead of a node that the index holds


class HybridDocumentStore(KVDocumentStore):
    """LlamaIndex document store of one agent, or of shared documents; no search finds what it holds.

    For `IngestionPipeline(docstore=…, vector_store=…)` with any docstore strategy, and for storage contexts. It logs
    hashes and sources as `SimpleDocumentStore` does. A node that the index holds unchanged under its own id, because it
    was added through a `HybridVectorStore` of the same agent before, is read from there and not stored again. Any other
    node is stored with its text: of a document that is cut into nodes this is a second copy, unless the pipeline runs
    with store_doc_text=False. There is nothing to persist; `forget_agent` removes an agent's documents here too.

    Args:
        indexer: The store.
        agent_id: The agent whose documents they are; None for shared ones.
        namespace: Distinguishes several document stores of one owner.
    """

    def __init__(self, indexer: DualIndexer, *, agent_id: str | None = None, namespace: str | None = None) -> None:
        check_indexer(indexer, "HybridDocumentStore")
        self._indexer, self._agent = indexer, check_agent_id(agent_id)
        self._records = _Records(indexer, self._agent)
        super().__init__(self._records, namespace)
        self._records.node_collection = self._node_collection

    def __repr__(self) -> str:
        return f"HybridDocumentStore({self._indexer!r}, agent_id={self._agent!r})"

    @property
    def agent_id(self) -> str | None:
        """The bound agent; None for shared documents."""
        return self._agent

    def for_agent(self, agent_id: str) -> Self:
        """Return the document store of one agent, with the same namespace."""
        return type(self)(self._indexer, agent_id=require_agent_id(agent_id, "for_agent()"), namespace=self._namespace)

    def delete_ref_doc(self, ref_doc_id: str, raise_error: bool = True) -> None:  # noqa: FBT001, FBT002  (LlamaIndex)
        """Delete a source document and its nodes in one write.

        Raises:
            ValueError: no node of it was added, and `raise_error` is True.
        """
        info = self.get_ref_doc_info(ref_doc_id)
        if info is not None:
            collections = (self._node_collection, self._metadata_collection, self._ref_doc_collection)
            self._records.delete_all([ref_doc_id, *info.node_ids], collections)
        elif raise_error:
            raise ValueError(f"ref_doc_id {ref_doc_id} not found.")

    async def adelete_ref_doc(self, ref_doc_id: str, raise_error: bool = True) -> None:  # noqa: FBT001, FBT002
        """`delete_ref_doc` in a worker thread."""
        await asyncio.to_thread(self.delete_ref_doc, ref_doc_id, raise_error)


class _Records(BaseKVStore):
    """Key-value pairs as documents of one owner without text, so that neither index finds them."""

    node_collection = ""

    def __init__(self, indexer: DualIndexer, owner: str | None) -> None:
        self._indexer, self._owner = indexer, owner

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """Store one value."""
        self.put_all([(key, val)], collection)

    def put_all(
        self,
        kv_pairs: list[tuple[str, dict[str, Any]]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        """Store values in one write."""
        values = dict(kv_pairs)
        if collection == self.node_collection:
            indexed = self._indexed(values)
            values = {key: _INDEXED if _same_node(indexed.get(key), val) else val for key, val in values.items()}
        documents = [
            # quarantined: a document without text can still be the nearest vector
            SourceDocument(f"{_prefix(collection)}{key}", "", {RECORD_KEY: value, "quarantined": True})
            for key, value in values.items()
        ]
        if documents:
            zeros = [0.0] * self._indexer.embedder.dimension  # so that the model does not embed empty texts
            self._indexer.index_documents(documents, self._owner, split=False, vectors=[zeros] * len(documents))

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Delete one value and return whether there was one."""
        return self.delete_all([key], [collection]) > 0

    def delete_all(self, keys: Sequence[str], collections: Iterable[str]) -> int:
        """Delete the values of keys in some collections in one write, and return their number."""
        doc_ids = [f"{prefix}{key}" for prefix in map(_prefix, collections) for key in keys]
        stored = [one.doc_id for one in self._indexer.owned_documents(self._owner).find(doc_ids)]
        return self._indexer.delete(stored, agent_id=self._owner).deleted if stored else 0

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """Return one value, or None."""
        records = self._indexer.owned_documents(self._owner).find([f"{_prefix(collection)}{key}"])
        return self._restored({key: records[0].metadata[RECORD_KEY]}).get(key) if records else None

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """Return all values by key."""
        prefix = _prefix(collection)
        records = self._indexer.owned_documents(self._owner).with_prefix(prefix)
        return self._restored({one.doc_id[len(prefix) :]: one.metadata[RECORD_KEY] for one in records})

    def _restored(self, values: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return values with nodes from the index in place of their marks; a node that is gone is left out."""
        indexed = self._indexed(key for key, value in values.items() if value == _INDEXED)
        restored = {
            key: doc_to_json(from_document(indexed[key])) if key in indexed else value for key, value in values.items()
        }
        return {key: value for key, value in restored.items() if value != _INDEXED}

    def _indexed(self, keys: Iterable[str]) -> dict[str, SourceDocument]:
        """Return this owner's own documents of these ids."""
        wanted = list(keys)
        documents = self._indexer.get(wanted, agent_id=self._owner) if wanted else []
        return {document.doc_id: document for document in documents if document.agent_id == self._owner}

    # -- async twins ----------------------------------------------------------------------------------------------

    async def aput(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """`put` in a worker thread."""
        await asyncio.to_thread(self.put, key, val, collection)

    async def aput_all(
        self,
        kv_pairs: list[tuple[str, dict[str, Any]]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        """`put_all` in a worker thread."""
        await asyncio.to_thread(self.put_all, kv_pairs, collection, batch_size)

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """`get` in a worker thread."""
        return await asyncio.to_thread(self.get, key, collection)

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """`get_all` in a worker thread."""
        return await asyncio.to_thread(self.get_all, collection)

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """`delete` in a worker thread."""
        return await asyncio.to_thread(self.delete, key, collection)


def _prefix(collection: str) -> str:
    return f"llama-index/{quote(collection, safe='')}/"


def _same_node(document: SourceDocument | None, value: dict[str, Any]) -> bool:
    """Whether a document is the stored form of a node."""
    if document is None:
        return False
    given = json_to_doc(value)
    given.embedding = None
    return from_document(document) == given
