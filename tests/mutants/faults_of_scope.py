"""Faults of the engine: who may see what."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from langchain_agentrag import indexer as facade
from langchain_agentrag.ingest import documents
from langchain_agentrag.scope import Scope
from langchain_agentrag.search import engine
from langchain_agentrag.store import columnar_cache, queries
from langchain_agentrag.store import store as storage
from langchain_agentrag.store.catalog import Catalog
from langchain_agentrag.store.queries import StoredDocument
from langchain_agentrag.store.visibility import VisiblePartition
from tests.mutants.faults import around, fault

# -- who may see what -------------------------------------------------------------------------------------------------


def _partitions_of(chosen: Callable[[str | None, str | None], bool]) -> AbstractContextManager[Any]:
    """A search reads every partition whose owner a careless comparison takes for the caller."""

    def wrong(original: Any, self: Any, scope: Scope, **_options: Any) -> Any:
        return [
            VisiblePartition(part)
            for part in self._store.catalog.partitions()
            if part.chunks and chosen(part.owner, scope.agent_id)
        ]

    return around(engine.Searcher, "_partitions", wrong)


@contextmanager
def _careless(same: Callable[[str | None, str | None], bool]) -> Iterator[None]:
    """The same mistake in both locks."""
    with (
        _partitions_of(lambda owner, agent: owner is None or same(owner, agent)),
        patch.object(Scope, "admits", lambda self, owner: owner is None or same(owner, self.agent_id)),
    ):
        yield


@fault("agents match by prefix")
def _() -> Any:
    return _careless(lambda owner, agent: bool(agent and owner and owner.startswith(agent)))


@fault("agents match without case")
def _() -> Any:
    return _careless(lambda owner, agent: bool(agent and owner and owner.casefold() == agent.casefold()))


@fault("agents match after Unicode normalisation")
def _() -> Any:
    def normal(name: str | None) -> str:
        return unicodedata.normalize("NFC", name or "")

    return _careless(lambda owner, agent: bool(agent) and normal(owner) == normal(agent))


@fault("agents match without blanks at the ends")
def _() -> Any:
    return _careless(lambda owner, agent: bool(agent and owner and owner.strip() == agent.strip()))


@fault("nobody sees everything")
def _() -> Any:
    return _careless(lambda owner, agent: agent is None or owner == agent)


@fault("shared documents are invisible to agents")
def _() -> Any:
    return _partitions_of(lambda owner, agent: owner == agent)


@fault("own documents are invisible")
def _() -> Any:
    return _partitions_of(lambda owner, agent: owner is None)


@fault("read() finds documents of anybody")
def _() -> Any:
    def anybody(original: Any, connection: Any, owner: Any, doc_id: Any, now: Any) -> Any:
        key = connection.execute(
            "SELECT d.id, d.signature FROM documents d WHERE doc_id = ? ORDER BY d.id DESC", (doc_id,)
        ).fetchone()
        return original(connection, owner, doc_id, now) or (
            key and StoredDocument(key[0], owner, doc_id, key[1], None, None)
        )

    return around(queries, "find_document", anybody)


@fault("a refusal tells that the document exists")
def _() -> Any:
    def revealing(original: Any, catalog: Any, now: Any, scope: Any, doc_id: str, *rest: Any) -> Any:
        try:
            return original(catalog, now, scope, doc_id, *rest)
        except Exception as error:
            query = "SELECT 1 FROM documents WHERE doc_id = ?"
            exists = catalog.connection().execute(query, (doc_id,)).fetchone()
            raise type(error)(f"{error} It is not yours." if exists else str(error)) from error

    return around(facade, "read_passage", revealing)


@fault("stats() counts everybody's documents")
def _() -> Any:
    return around(storage.Store, "stats", lambda original, self, scope: original(self, None))


@fault("a filter sees the owner that metadata claims")
def _() -> Any:
    def claimed(original: Any, owner: Any, doc_id: str, metadata: Any, locator: str) -> Any:
        return {
            **original(owner, doc_id, metadata, locator),
            "agent_id": metadata.get("agent_id", metadata.get("owner")),
        }

    return _everywhere("filter_view", claimed)


@contextmanager
def _everywhere(name: str, wrong: Callable[..., Any]) -> Iterator[None]:
    with around(columnar_cache, name, wrong), around(documents, name, wrong), around(queries, name, wrong):
        yield


@fault("agent ids are stored in lower case")
def _() -> Any:
    return around(Catalog, "partition", lambda original, self, owner: original(self, owner and owner.lower()))
