"""What follows from the other methods of `DualIndexer`: a search of one leg, and asynchronous twins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_agentrag.connector import BaseConnector
    from langchain_agentrag.types import Hits, Passage, SyncReport


class Derived:
    """Methods that hand their work to others; a base of `DualIndexer`."""

    if TYPE_CHECKING:  # what the class that uses them has

        def index_documents(self, *args: Any, **options: Any) -> SyncReport:  # noqa: D102, ANN401
            raise NotImplementedError

        def sync(self, *args: Any, **options: Any) -> SyncReport:  # noqa: D102, ANN401
            raise NotImplementedError

        def delete(self, *args: Any, **options: Any) -> SyncReport:  # noqa: D102, ANN401
            raise NotImplementedError

        def forget_agent(self, *args: Any, **options: Any) -> SyncReport:  # noqa: D102, ANN401
            raise NotImplementedError

        def expire(self, *, at_least: int = 1) -> SyncReport:  # noqa: D102
            raise NotImplementedError

        def search(self, *args: Any, **options: Any) -> Hits:  # noqa: D102, ANN401
            raise NotImplementedError

        def read(self, *args: Any, **options: Any) -> Passage:  # noqa: D102, ANN401
            raise NotImplementedError

    def vector_search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` with the vector leg alone."""
        return self.search(query, k, mode="vector", **options)

    def keyword_search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` with the keyword leg alone; needs no embedding model."""
        return self.search(query, k, mode="keyword", **options)

    async def aindex_documents(
        self,
        documents: Iterable[Any],
        agent_id: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> SyncReport:
        """`index_documents` in a worker thread."""
        return await asyncio.to_thread(self.index_documents, documents, agent_id, **options)

    async def async_sync(self, connector: BaseConnector, **options: Any) -> SyncReport:  # noqa: ANN401
        """`sync` in a worker thread."""
        return await asyncio.to_thread(self.sync, connector, **options)

    async def adelete(self, doc_ids: str | Iterable[str] | None = None, **options: Any) -> SyncReport:  # noqa: ANN401
        """`delete` in a worker thread."""
        return await asyncio.to_thread(self.delete, doc_ids, **options)

    async def aforget_agent(self, agent_id: str) -> SyncReport:
        """`forget_agent` in a worker thread."""
        return await asyncio.to_thread(self.forget_agent, agent_id)

    async def aexpire(self) -> SyncReport:
        """`expire` in a worker thread."""
        return await asyncio.to_thread(self.expire)

    async def aread(self, doc_id: str, chunk_id: int = 0, **options: Any) -> Passage:  # noqa: ANN401
        """`read` in a worker thread."""
        return await asyncio.to_thread(self.read, doc_id, chunk_id, **options)
