"""Quarantine: documents that are stored, and that no search finds unless it asks for them.

A document is quarantined while its metadata has `quarantined: True`. It takes no part in other searches, nor in their
counts and scores, for its owner as for everybody else. By its id it can be read, and is then shown as of low trust; to
release it, index it again without the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from langchain_agentrag.agent.prompt_injection import instruction_kinds, trust_of
from langchain_agentrag.connector import BaseConnector, Gap, SourceItem
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.store.schema import QUARANTINED
from langchain_agentrag.types import SourceDocument

Rule = Callable[[SourceDocument], bool]
Source = TypeVar("Source")


def foreign(document: SourceDocument) -> bool:
    """Whether a document is of low trust: tool output, web text."""
    return trust_of(document.metadata) == "low"


def suspicious(document: SourceDocument) -> bool:
    """Whether a document reads like instructions to a model."""
    return bool(instruction_kinds(document.text))


def quarantined(source: Source, rule: Rule = foreign) -> Source:
    """The same documents or connector, what the rule chooses being quarantined when it is written.

        indexer.index_documents(quarantined(pages))
        indexer.sync(quarantined(connector, suspicious))

    Args:
        source: Documents of any kind that `index_documents` takes, or a connector. What a sync finds unchanged is not
            written, so a new rule holds for what is new or changed.
        rule: Tells which ones; `foreign` by default.
    """
    if isinstance(source, BaseConnector):
        return cast("Source", _HeldBack(source, rule))
    return cast(
        "Source", (_marked(one, rule) for one in as_source_documents(cast("Iterable[Any]", source), None))
    )


class _HeldBack(BaseConnector):
    """A connector whose documents are marked on their way."""

    def __init__(self, connector: BaseConnector, rule: Rule) -> None:
        self._connector, self._rule, self.agent_id = connector, rule, connector.agent_id

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever else the connector has
        return getattr(self._connector, name)

    @property
    def connector_id(self) -> str:
        return self._connector.connector_id

    def items(self) -> Iterator[SourceItem | Gap]:
        for item in self._connector.items():
            if isinstance(item, Gap):
                yield item
            else:
                yield replace(item, load=partial(_loaded, item, self._rule))


def _loaded(item: SourceItem, rule: Rule) -> Iterator[SourceDocument]:
    for document in item.load():
        yield _marked(document, rule)


def _marked(document: SourceDocument, rule: Rule) -> SourceDocument:
    if not rule(document):
        return document
    return replace(document, metadata={**document.metadata, QUARANTINED: True})
