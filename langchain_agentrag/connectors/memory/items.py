"""Items of a LangGraph store as documents: not what was said, but what was noted down. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from langchain_agentrag.connectors.memory.turns import document_id, storable
from langchain_agentrag.types import SourceDocument

_LABELS: Final = frozenset({"kind", "type", "id", "schema"})
"""Fields that say what a value is and not what it tells."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One item of a store.

    Attributes:
        namespace: Its segments.
        key: Its key in the namespace.
        value: What is stored.
        created: When it was made.
        updated: When it was changed last.
        expires: When it ends, or None.
    """

    namespace: tuple[str, ...]
    key: str
    value: Mapping[str, Any]
    created: datetime | None = None
    updated: datetime | None = None
    expires: datetime | None = None


def item_document(item: StoredItem, source: str, agent_id: str | None) -> SourceDocument | None:
    """An item as a document, or None when it holds no text.

    A value with one text is that text; one with several reads `field: text`, a line each.
    """
    told = list(_told(item.value, ()))
    labelled = [(path, text) for path, text in told if path[-1:] != () and path[-1] not in _LABELS]
    shown = labelled or told
    text = shown[0][1] if len(shown) == 1 else "\n".join(f"{'.'.join(path)}: {text}" for path, text in shown)
    if not text.strip():
        return None
    namespace = ".".join(item.namespace)
    metadata: dict[str, Any] = {"type": "item", "namespace": namespace, "key": item.key, "value": item.value}
    times = {"time": item.updated, "created_at": item.created, "expires_at": item.expires}
    metadata |= {name: moment for name, moment in times.items() if moment is not None}
    doc_id = storable(document_id(source, namespace, item.key))
    return SourceDocument(doc_id, storable(text), metadata, agent_id)


def _told(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Texts and numbers in a value with the way to them."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _told(inner, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _told(inner, path)
    elif value is not None and not isinstance(value, bytes):
        text = str(value)
        if text.strip():
            yield path, text
