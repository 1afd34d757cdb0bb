"""`HybridRecordManager`: LangChain record manager for incremental indexing, stored in the catalog."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.indexing import RecordManager

from langchain_agentrag import metadata as codec
from langchain_agentrag.errors import UsageError
from langchain_agentrag.indexer import DualIndexer, check_indexer


class HybridRecordManager(RecordManager):
    """Record manager for `langchain_core.indexing.index` over a `HybridVectorStore` of the same store and agent.

    Records belong to one agent, so the `cleanup` of one agent never deletes another's documents, even for a source that
    both have. A key exists only while its document is in the store: documents deleted by other means are indexed again.
    A subclass may take its times from elsewhere: what `get_time` and `aget_time` return is what is recorded.

    Args:
        indexer: The store.
        namespace: Name that separates the records of different sources.
        agent_id: Owner; None for shared documents.
    """

    def __init__(self, indexer: DualIndexer, namespace: str = "default", *, agent_id: str | None = None) -> None:
        super().__init__(namespace)
        self._records = check_indexer(indexer, "HybridRecordManager").record_keys(namespace, agent_id=agent_id)

    def create_schema(self) -> None:
        """Do nothing: every store has the table of records."""

    def get_time(self) -> float:
        """Return the current time in seconds, never earlier than that of any record of this owner."""
        return self._records.now()

    def update(
        self, keys: Sequence[str], *, group_ids: Sequence[str | None] | None = None, time_at_least: float | None = None
    ) -> None:
        """Add or renew records, at the time that `get_time` returns.

        Raises:
            UsageError: the number of groups differs from that of keys, one of them is no string, or `time_at_least` is
                in the future.
        """
        self._update(keys, group_ids, time_at_least, self.get_time())

    def _update(
        self, keys: Sequence[str], group_ids: Sequence[str | None] | None, time_at_least: float | None, now: float
    ) -> None:
        keys = _check_texts("keys", keys)
        groups = [None] * len(keys) if group_ids is None else _check_texts("group_ids", group_ids, optional=True)
        if len(groups) != len(keys):
            raise UsageError(f"update() got {len(keys)} keys and {len(groups)} group_ids: give one per key.")
        if time_at_least is not None and now < time_at_least:
            raise UsageError(
                f"Cannot update records at {now}, before time_at_least={time_at_least}: cleanup would delete them. "
                "Correct the clock."
            )
        self._records.put(keys, groups, now)

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """Return for each key whether it is recorded and its document is in the store."""
        keys = _check_texts("keys", keys)
        existing = self._records.existing(keys)
        return [key in existing for key in keys]

    def list_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Return recorded keys, oldest first: all of them, or those that meet all conditions.

        Raises:
            UsageError: a bound is no number, `limit` no count, or a group no string: `index()` deletes the documents
                of the keys that are returned.
        """
        for name, bound in (("before", before), ("after", after)):
            if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float)):
                raise UsageError(f"list_keys({name}={bound!r}): give a time in seconds, as get_time() returns it.")
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise UsageError(f"list_keys(limit={limit!r}): give a number of keys.")
        group_ids = None if group_ids is None else _check_texts("group_ids", group_ids)
        return self._records.keys(before=before, after=after, groups=group_ids, limit=limit)

    def delete_keys(self, keys: Sequence[str]) -> None:
        """Remove records.

        Raises:
            UsageError: a key is no string; nothing was removed.
        """
        self._records.remove(_check_texts("keys", keys))

    async def acreate_schema(self) -> None:
        """`create_schema` in a worker thread."""
        await asyncio.to_thread(self.create_schema)

    async def aget_time(self) -> float:
        """`get_time` in a worker thread."""
        return await asyncio.to_thread(self.get_time)

    async def aupdate(
        self, keys: Sequence[str], *, group_ids: Sequence[str | None] | None = None, time_at_least: float | None = None
    ) -> None:
        """`update` in a worker thread, at the time that `aget_time` returns."""
        now = await self.aget_time()
        await asyncio.to_thread(self._update, keys, group_ids, time_at_least, now)

    async def aexists(self, keys: Sequence[str]) -> list[bool]:
        """`exists` in a worker thread."""
        return await asyncio.to_thread(self.exists, keys)

    async def alist_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """`list_keys` in a worker thread."""
        return await asyncio.to_thread(self.list_keys, before=before, after=after, group_ids=group_ids, limit=limit)

    async def adelete_keys(self, keys: Sequence[str]) -> None:
        """`delete_keys` in a worker thread."""
        await asyncio.to_thread(self.delete_keys, keys)


def _check_texts(name: str, values: Sequence[Any], *, optional: bool = False) -> list[Any]:
    """Return keys or groups as a list; with `optional` some of them may be None.

    Raises:
        UsageError: no list, or one of them is no string.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise UsageError(f"{name}={values!r}: pass a list of strings.")
    texts = list(values)
    for text in texts:
        if not isinstance(text, str) and not (optional and text is None):
            raise UsageError(f"{name} contains {text!r}: each of them is a string.")
    return texts


def document_key(document: Document) -> str:
    """Return the hash of a document's text and metadata, for `index(…, key_encoder=document_key)`.

    LangChain's own encoders fail on metadata that JSON cannot hold: dates, numpy numbers, bytes.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(document.page_content.encode("utf-8", "surrogatepass"))
    digest.update(codec.fingerprint(document.metadata).encode("ascii"))
    return digest.hexdigest()
