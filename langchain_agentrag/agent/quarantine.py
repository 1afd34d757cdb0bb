"""Quarantine: stored documents that searches return only on request.

A document is quarantined while its metadata has `quarantined: True`. Other searches do not see it, nor count it in
scores, for its owner as for everybody else. It can be read by its id, and is then shown as a source of low trust. To
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


def is_low_trust(document: SourceDocument) -> bool:
    """Return whether the source of a document has low trust: tool output, web text."""
    return trust_of(document.metadata) == "low"


def has_instructions(document: SourceDocument) -> bool:
    """Return whether a document reads like instructions to a model."""
    return bool(instruction_kinds(document.text))


def quarantined(source: Source, rule: Rule = is_low_trust) -> Source:
    """Return the same documents or connector, with the documents that a rule selects marked as quarantined.

        indexer.index_documents(quarantined(pages))
        indexer.sync(quarantined(connector, has_instructions))

    Args:
        source: Documents of any kind that `index_documents` takes, or a connector. A sync does not write unchanged
            documents, so a new rule holds for new and changed ones.
        rule: Selects documents; `is_low_trust` by default.
    """
    if isinstance(source, BaseConnector):
        return cast("Source", _QuarantiningConnector(source, rule))
    return cast("Source", _mark(as_source_documents(cast("Iterable[Any]", source), None), rule))


class _QuarantiningConnector(BaseConnector):
    def __init__(self, connector: BaseConnector, rule: Rule) -> None:
        self._connector, self._rule, self.agent_id = connector, rule, connector.agent_id

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  any attribute of the connector
        return getattr(self._connector, name)

    @property
    def connector_id(self) -> str:
        return self._connector.connector_id

    def items(self) -> Iterator[SourceItem | Gap]:
        for item in self._connector.items():
            yield item if isinstance(item, Gap) else replace(item, load=partial(self._load, item))

    def _load(self, item: SourceItem) -> Iterator[SourceDocument]:
        yield from _mark(item.load(), self._rule)


def _mark(documents: Iterable[SourceDocument], rule: Rule) -> Iterator[SourceDocument]:
    for document in documents:
        if rule(document):
            yield replace(document, metadata={**document.metadata, QUARANTINED: True})
        else:
            yield document
