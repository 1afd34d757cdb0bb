"""Items of LangGraph's store as documents: where they stand, what of them is searched, and back again. Pure.

An item becomes one document of its owner. Its id is `item:` and the JSON of namespace and key; labels of a namespace
are joined by ".", which no label may contain, so `("agent1",)` is no beginning of `("agent10",)` and no character of
a label means anything. The value is kept whole in the metadata, as JSON with dates, Decimal and bytes besides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self

from langgraph.store.base import InvalidNamespaceError, get_text_at_path, tokenize_path

from langchain_agentrag.errors import InvalidDocumentError
from langchain_agentrag.filters import And, Condition, Filter, Or
from langchain_agentrag.metadata import normalise, shown
from langchain_agentrag.text.sentences import says_something
from langchain_agentrag.types import Section, SourceDocument

TYPE = "item"
"""`type` of a document that is an item."""

WHOLE = "$"
"""Path of the whole value."""

Namespace = tuple[str, ...]

_REFRESHED = (
    0.01  # share of its time to live that a read may leave unrenewed: a write costs more than it is worth
)


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item with what the store knows of it.

    Attributes:
        namespace: Labels.
        key: Key in the namespace.
        value: The value.
        created: When it was first put.
        updated: When it was last put.
        fields: Paths that are searched; empty for none.
        ttl: Minutes it lives after it was last used, or None.
        expires: When it ends, or None.
    """

    namespace: Namespace
    key: str
    value: dict[str, Any]
    created: datetime
    updated: datetime
    fields: tuple[str, ...]
    ttl: float | None = None
    expires: datetime | None = None

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> Self:
        """The item a document's metadata tells of."""
        return cls(
            namespace=tuple(metadata["namespace"].split(".")),
            key=metadata["key"],
            value=metadata["value"],
            created=metadata["created_at"],
            updated=metadata["time"],
            fields=tuple(metadata["fields"]),
            ttl=metadata.get("ttl"),
            expires=metadata.get("expires_at"),
        )

    @property
    def doc_id(self) -> str:
        """Id of its document."""
        return item_id(self.namespace, self.key)

    def used(self, now: datetime) -> StoredItem | None:
        """The item with its time to live begun anew, or None when that would change next to nothing."""
        if self.ttl is None or self.expires is None:
            return None
        renewed = now + timedelta(minutes=self.ttl)
        gained = (renewed - self.expires) / timedelta(minutes=self.ttl) if self.ttl else 0.0
        return replace(self, expires=renewed) if gained > _REFRESHED else None

    def document(self) -> SourceDocument:
        """Its document; one with an empty text when nothing of it is to be searched.

        Raises:
            InvalidDocumentError: the value holds something that has no stored form.
        """
        texts = [text for text in searched_texts(self.value, self.fields) if says_something(text)]
        metadata: dict[str, Any] = {
            "type": TYPE,
            "namespace": path_of(self.namespace),
            "key": self.key,
            "value": self.value,
            "created_at": self.created,
            "time": self.updated,
            "fields": list(self.fields),
            "searched": bool(texts),
        }
        if self.expires is not None:
            metadata |= {"ttl": self.ttl, "expires_at": self.expires}
        text, sections = _joined(texts)
        return SourceDocument(self.doc_id, text, metadata, sections=sections)


def new_item(
    namespace: Namespace,
    key: str,
    value: Mapping[str, Any],
    fields: Sequence[str],
    *,
    now: datetime,
    ttl: float | None,
    created: datetime | None,
) -> StoredItem:
    """The item that a put makes.

    Raises:
        InvalidDocumentError: the value is no mapping or holds what cannot be stored, or the time to live is no number.
    """
    if not isinstance(value, Mapping):
        raise InvalidDocumentError(
            f"Cannot put {shown(value)} under {key!r}: the value of an item is a mapping. Pass a dict."
        )
    kept: dict[str, Any] = normalise({"value": value})["value"]  # what a get will give
    try:
        expires = None if ttl is None else now + timedelta(minutes=ttl)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidDocumentError(
            f"Cannot put {key!r} with ttl={ttl!r}: it is a number of minutes, or None for no end."
        ) from error
    return StoredItem(namespace, key, kept, created or now, now, tuple(fields), ttl, expires)


# -- places -------------------------------------------------------------------------------------------------------


def check_labels(labels: Sequence[object]) -> Namespace:
    """The namespace, or a pattern of one, as a tuple.

    Raises:
        InvalidNamespaceError: a label is no text, is empty, or holds "." or NUL.
    """
    for label in labels:
        if not isinstance(label, str) or not label or "." in label or "\x00" in label:
            raise InvalidNamespaceError(
                f"Invalid namespace label {label!r} in {labels!r}: labels are texts, not empty, without '.' and NUL."
            )
    return tuple(labels)  # type: ignore[arg-type]


def path_of(namespace: Namespace) -> str:
    """The namespace as one text."""
    return ".".join(namespace)


def item_id(namespace: Namespace, key: str) -> str:
    """Id of the document of an item; no two items share one."""
    return f"{_written(path_of(namespace))[:-1]},{_quoted(key)}]"


def beginnings(prefix: Namespace) -> tuple[str, ...]:
    """How the ids of all items under a namespace begin."""
    if not prefix:
        return ("item:[",)
    whole = _written(path_of(prefix))[:-1]
    return f"{whole},", f"{whole[:-1]}."


def place_of(doc_id: str) -> Namespace:
    """Namespace of an item, from the id of its document."""
    path: str = json.loads(doc_id.removeprefix("item:"))[0]
    return tuple(path.split("."))


def is_under(prefix: Namespace) -> Filter:
    """Filter that keeps searchable items under a namespace."""
    parts: list[Filter] = [Condition("type", "$eq", TYPE), Condition("searched", "$eq", operand=True)]
    if prefix:
        path = path_of(prefix)
        below = And((Condition("namespace", "$gte", f"{path}."), Condition("namespace", "$lt", f"{path}/")))
        parts.append(Or((Condition("namespace", "$eq", path), below)))
    return And(tuple(parts))


def _written(path: str) -> str:
    return f"item:[{_quoted(path)}]"


def _quoted(text: str) -> str:
    """The text as JSON; a lone surrogate, which no UTF-8 store can hold, as its escape."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace").decode("utf-8")


# -- what is searched ---------------------------------------------------------------------------------------------


def searched_texts(value: Mapping[str, Any], fields: Sequence[str]) -> list[str]:
    """Texts that the paths lead to; each is searched on its own, as LangGraph embeds them."""
    texts: list[str] = []
    for path in fields:
        found = (
            ["\n".join(_lines(value, ()))] if path == WHOLE else get_text_at_path(value, tokenize_path(path))
        )
        texts += [text.encode("utf-8", "replace").decode("utf-8") for text in found]
    return texts


def _lines(value: object, path: tuple[str, ...]) -> Iterator[str]:
    """A value as text that reads well and embeds better than JSON: one line per leaf, with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _lines(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _lines(item, path)
    elif value is not None:
        yield f"{'.'.join(path)}: {value.isoformat() if isinstance(value, datetime) else value}"


def _joined(texts: Sequence[str]) -> tuple[str, tuple[Section, ...]]:
    """The texts as one, each a section that no passage leaves."""
    sections, reached = [], 0
    for text in texts:
        sections.append(Section(reached, reached + len(text), joinable=False))
        reached += len(text) + 1
    return "\n".join(texts), tuple(sections) if len(texts) > 1 else ()
