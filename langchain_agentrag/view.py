"""`AgentView`: a store as one agent may use it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from langchain_agentrag.errors import ScopeError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import Hits, Passage, Progress, SourceDocument, StoreStats, SyncReport

if TYPE_CHECKING:
    from langchain_agentrag.connector import BaseConnector
    from langchain_agentrag.indexer import DualIndexer


class AgentView:
    """A `DualIndexer` bound to one agent: it sees shared documents and the agent's own, and writes only the latter.

    None of its methods takes an agent, so nothing that comes from a model or a request can name another one.

    Args:
        indexer: The store.
        agent_id: The agent.

    Raises:
        ScopeError: the id is invalid.
    """

    def __init__(self, indexer: DualIndexer, agent_id: str) -> None:
        owner = check_agent_id(agent_id)
        if owner is None:
            raise ScopeError(
                "for_agent() needs the id of an agent: use the indexer itself for shared documents."
            )
        self._indexer, self._agent = indexer, owner

    def __repr__(self) -> str:
        return f"AgentView({self._agent!r})"

    @property
    def agent_id(self) -> str:
        """The agent this view is bound to."""
        return self._agent

    def index_documents(
        self,
        documents: Iterable[Any],
        *,
        split: bool = True,
        ttl: timedelta | float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> SyncReport:
        """Add or replace documents of this agent; see `DualIndexer.index_documents`."""
        return self._indexer.index_documents(
            documents, self._agent, split=split, ttl=ttl, on_progress=on_progress
        )

    def sync(
        self, connector: BaseConnector, *, on_progress: Callable[[Progress], None] | None = None
    ) -> SyncReport:
        """Keep this agent's documents in step with a source of its own; see `DualIndexer.sync`.

        Raises:
            ScopeError: the connector yields documents for somebody else.
        """
        if connector.agent_id != self._agent:
            raise ScopeError(
                f"A view of agent {self._agent!r} cannot sync a connector of {connector.agent_id!r}: "
                f"make the connector with agent_id={self._agent!r}."
            )
        return self._indexer.sync(connector, on_progress=on_progress)

    def delete(
        self,
        doc_ids: str | Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401
        session: object = None,
        after: Any = None,  # noqa: ANN401
        before: Any = None,  # noqa: ANN401
    ) -> SyncReport:
        """Delete documents of this agent; see `DualIndexer.delete`."""
        return self._indexer.delete(
            doc_ids, filter=filter, session=session, after=after, before=before, agent_id=self._agent
        )

    def forget(self) -> SyncReport:
        """Remove everything this agent owns; see `DualIndexer.forget_agent`."""
        return self._indexer.forget_agent(self._agent)

    def search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """Search what this agent may see; options as of `DualIndexer.search`, without the agent."""
        return self._indexer.search(query, k, agent_id=self._agent, **options)

    def vector_search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` with the vector leg alone."""
        return self.search(query, k, mode="vector", **options)

    def keyword_search(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` with the keyword leg alone."""
        return self.search(query, k, mode="keyword", **options)

    async def asearch(self, query: str, k: int = 5, **options: Any) -> Hits:  # noqa: ANN401
        """`search` without blocking the event loop."""
        return await self._indexer.asearch(query, k, agent_id=self._agent, **options)

    def read(self, doc_id: str, chunk_id: int = 0, *, before: int = 0, after: int = 0) -> Passage:
        """Read a passage this agent may see; see `DualIndexer.read`."""
        return self._indexer.read(doc_id, chunk_id, before=before, after=after, agent_id=self._agent)

    async def aread(self, doc_id: str, chunk_id: int = 0, *, before: int = 0, after: int = 0) -> Passage:
        """`read` in a worker thread."""
        return await self._indexer.aread(doc_id, chunk_id, before=before, after=after, agent_id=self._agent)

    def get(
        self,
        doc_ids: Iterable[str] | None = None,
        *,
        filter: Any = None,  # noqa: A002, ANN401
        after: Any = None,  # noqa: ANN401
        before: Any = None,  # noqa: ANN401
    ) -> list[SourceDocument]:
        """Documents this agent may see, by id, filter or time; see `DualIndexer.get`."""
        return self._indexer.get(doc_ids, filter=filter, after=after, before=before, agent_id=self._agent)

    def stats(self) -> StoreStats:
        """Counts of what this agent may see."""
        return self._indexer.stats(self._agent)
