"""`HybridRecordManager`: LangChain's record of indexed keys, persistent, in the store's own catalog."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.indexing import RecordManager

from langchain_agentrag import metadata as codec
from langchain_agentrag.errors import UsageError
from langchain_agentrag.indexer import DualIndexer


class HybridRecordManager(RecordManager):
    """Records for `langchain_core.indexing.index` over a `HybridVectorStore` of the same store and agent.

    Records belong to one agent, so one agent's `cleanup` cannot name another's documents, even for a source both have.
    A key exists only while its document is in the store: whatever was deleted otherwise is written again.

    Args:
        indexer: The store.
        namespace: Tells several sources apart.
        agent_id: Owner; None for shared documents.
    """

    def __init__(
        self, indexer: DualIndexer, namespace: str = "default", *, agent_id: str | None = None
    ) -> None:
        super().__init__(namespace)
        self._ledger = indexer.record_keys(namespace, agent_id=agent_id)

    def create_schema(self) -> None:
        """Make room for the records; not needed before use."""
        self._ledger.prepare()

    def get_time(self) -> float:
        """The time, never earlier than any record."""
        return self._ledger.now()

    def update(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """Add or renew records.

        Raises:
            UsageError: not one group per key, or `time_at_least` lies in the future.
        """
        groups = [None] * len(keys) if group_ids is None else list(group_ids)
        if len(groups) != len(keys):
            raise UsageError(f"update() got {len(keys)} keys and {len(groups)} group_ids: give one per key.")
        now = self._ledger.now()
        if time_at_least is not None and now < time_at_least:
            raise UsageError(
                f"The clock says {now}, the caller at least {time_at_least}: records would be lost."
            )
        self._ledger.put(keys, groups, now)

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """For each key, whether it is recorded and its document is in the store."""
        living = self._ledger.existing(keys)
        return [key in living for key in keys]

    def list_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Recorded keys, oldest first."""
        return self._ledger.keys(before=before, after=after, groups=group_ids, limit=limit)

    def delete_keys(self, keys: Sequence[str]) -> None:
        """Remove records."""
        self._ledger.remove(keys)

    async def acreate_schema(self) -> None:
        """`create_schema` in a worker thread."""
        await asyncio.to_thread(self.create_schema)

    async def aget_time(self) -> float:
        """`get_time` in a worker thread."""
        return await asyncio.to_thread(self.get_time)

    async def aupdate(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """`update` in a worker thread."""
        await asyncio.to_thread(self.update, keys, group_ids=group_ids, time_at_least=time_at_least)

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
        return await asyncio.to_thread(
            self.list_keys, before=before, after=after, group_ids=group_ids, limit=limit
        )

    async def adelete_keys(self, keys: Sequence[str]) -> None:
        """`delete_keys` in a worker thread."""
        await asyncio.to_thread(self.delete_keys, keys)


def document_key(document: Document) -> str:
    """Key of a document by its text and metadata, for `index(…, key_encoder=document_key)`.

    LangChain's own encoders refuse metadata that JSON lacks: dates, numpy numbers, bytes.
    """
    digest = hashlib.blake2b(digest_size=16)
    digest.update(document.page_content.encode("utf-8", "surrogatepass"))
    digest.update(codec.fingerprint(document.metadata).encode("ascii"))
    return digest.hexdigest()
