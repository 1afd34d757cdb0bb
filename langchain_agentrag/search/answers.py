"""From a checked request to its answer: worth asking, known already, understood, embedded, searched."""

from __future__ import annotations

import asyncio

from langchain_agentrag.search.cache import Results, Ticket
from langchain_agentrag.search.followup import resolve_followup
from langchain_agentrag.search.model import Model
from langchain_agentrag.search.options import SearchRequest
from langchain_agentrag.search.searcher import Searcher
from langchain_agentrag.types import Hits


class Answers:
    """Answers requests.

    Args:
        searcher: Searches the store.
        model: Embeds queries.
        results: What was found a moment ago.
    """

    def __init__(self, searcher: Searcher, model: Model, results: Results) -> None:
        self._searcher, self._model, self._results = searcher, model, results

    def search(self, request: SearchRequest) -> Hits:
        """The answer; the model is not bothered where nothing is asked, there is nothing to find, or it is known."""
        known, ticket = self._known(request)
        if known is not None:
            return known
        hits = self._searcher.search(self._model.with_vector(resolve_followup(request)))
        self._results.keep(ticket, hits, lambda: self._searcher.scope_version(request.scope))
        return hits

    async def asearch(self, request: SearchRequest) -> Hits:
        """`search` without blocking the event loop: the model's own async method, the engine in a worker thread."""
        known, ticket = await asyncio.to_thread(self._known, request)
        if known is not None:
            return known
        if request.history:
            understood = await asyncio.to_thread(resolve_followup, request)
        else:
            understood = request
        embedded = await self._model.awith_vector(understood)
        hits = await asyncio.to_thread(self._searcher.search, embedded)
        await asyncio.to_thread(
            self._results.keep, ticket, hits, lambda: self._searcher.scope_version(request.scope)
        )
        return hits

    def forget(self, agent_id: str) -> None:
        """Forget what an agent asked and was shown."""
        self._searcher.recent_passages.forget(agent_id)
        self._results.forget(agent_id)
        self._model.forget(agent_id)

    def _known(self, request: SearchRequest) -> tuple[Hits | None, Ticket | None]:
        if not self._searcher.can_answer(request):
            return Hits(query=request.query, mode=request.mode), None
        ticket = self._results.ticket(request, lambda: self._searcher.scope_version(request.scope))
        known = self._results.get(ticket)
        if known is not None:
            self._searcher.recent_passages.note(request.scope.agent_id, (hit.text for hit in known))
        return known, ticket
