"""Which values pass a filter of LangGraph's store, and which namespaces a pattern: as its `InMemoryStore` decides.

This is not the filter language of `filters`: operators compare numbers only, a dict without operators is a part that
the value must have, and what cannot be compared is an error. Code that moves from `InMemoryStore` finds the same.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Self

from langgraph.store.base import InvalidNamespaceError, get_text_at_path, tokenize_path

from langchain_agentrag.errors import FilterError, InvalidDocumentError, ScopeError
from langchain_agentrag.filters import And, Condition, Filter, Or
from langchain_agentrag.langchain.identity import caller, check_identity
from langchain_agentrag.metadata import normalise, short_repr
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.text.sentences import has_content
from langchain_agentrag.types import Section, SourceDocument

_ORDERINGS: Mapping[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_KNOWN = ("$eq", "$ne", *_ORDERINGS)


def passes(value: Mapping[str, Any], where: Mapping[str, Any] | None) -> bool:
    """Whether a value passes a filter.

    Raises:
        FilterError: there is no such operator.
        TypeError: an ordering meets something that is no number, or a key that is not there.
        ValueError: an ordering meets a text that is no number.
    """
    return all(_agrees(value.get(key), wanted) for key, wanted in (where or {}).items())


def _agrees(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(key.startswith("$") for key in wanted):
            return all(_compares(found, name, operand) for name, operand in wanted.items())
        return isinstance(found, dict) and all(_agrees(found.get(key), part) for key, part in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(found, list | tuple) and len(found) == len(wanted) and all(map(_agrees, found, wanted))
        )
    return bool(found == wanted)


def _compares(found: Any, name: str, operand: Any) -> bool:
    if name in {"$eq", "$ne"}:
        return bool(found == operand) is (name == "$eq")
    if name not in _ORDERINGS:
        raise FilterError(
            f"Unsupported operator: {name}. LangGraph's store has {' '.join(_KNOWN)}; for more, search the store "
            "behind it with the filter language of `DualIndexer.search`."
        )
    return _ORDERINGS[name](_number(found, name), _number(operand, name))


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"Cannot compare {short_repr(value)} by {name}: operators of LangGraph's store compare numbers only, and "
            "every item under the namespace must have one there. Narrow the namespace, or put numbers."
        ) from error


def matches(kind: Literal["prefix", "suffix"], pattern: tuple[str, ...], namespace: tuple[str, ...]) -> bool:
    """Whether a namespace begins or ends as a pattern says; "*" stands for any one label.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in {"prefix", "suffix"}:
        raise ValueError(f"Unsupported match type: {kind}. Namespaces match by 'prefix' or 'suffix'.")
    if len(namespace) < len(pattern):
        return False
    part = namespace[: len(pattern)] if kind == "prefix" else namespace[len(namespace) - len(pattern) :]
    return all(asked in {"*", label} for asked, label in zip(pattern, part, strict=True))


Namespace = tuple[str, ...]

AgentOf = Callable[[Namespace], str | None]
"""Owner of a namespace; also asked for the beginning of one."""


class Owners:
    """The owner of each namespace.

    Args:
        agent_id: One agent for all.
        agent_id_key: The agent that each run names under this key.
        agent_of: The agent of a namespace.
        shared: Whether items may be shared: all of them, or those that agent_of gives None for.

    Raises:
        ScopeError: not exactly one way was given.
    """

    def __init__(
        self, agent_id: str | None, agent_id_key: str | None, agent_of: AgentOf | None, *, shared: bool
    ) -> None:
        check_identity(agent_id, agent_id_key)
        ways = [agent_id is not None, agent_id_key is not None, agent_of is not None]
        if sum(ways) + (shared and agent_of is None) != 1:
            raise ScopeError(
                "A HybridStore needs one owner for its items: agent_id='…', agent_id_key='…' for the agent each run "
                "names, agent_of=function of the namespace, or shared=True for items that every agent may see."
            )
        self._agent, self._key, self._agent_of, self._shared = agent_id, agent_id_key, agent_of, shared

    def __repr__(self) -> str:
        if self._agent is not None:
            return f"agent_id={self._agent!r}"
        if self._key is not None:
            return f"agent_id_key={self._key!r}"
        return f"shared={self._shared}" if self._agent_of is None else f"agent_of={self._agent_of!r}"

    def of(self, namespace: Namespace) -> str | None:
        """The owner of a namespace; None for shared.

        Raises:
            ScopeError: nobody is said to own it.
        """
        if self._agent_of is None:
            return caller(self._agent, self._key, "error")
        try:
            owner = check_agent_id(self._agent_of(namespace))
        except ScopeError:
            raise
        except Exception as error:  # a caller's function may raise anything; each means that it does not say
            raise ScopeError(
                f"agent_of() does not say who owns {namespace!r}: {error!r}. {_REMEDY}"
            ) from error
        if owner is None and not self._shared:
            raise ScopeError(f"agent_of() gave no owner for {namespace!r}. {_REMEDY}")
        return owner

    def of_patterns(self, patterns: Sequence[Namespace]) -> tuple[str | None, Namespace]:
        """Owner of what is looked for by patterns, and the longest beginning without a "*" that they share in."""
        plain = [pattern[: pattern.index("*")] if "*" in pattern else pattern for pattern in patterns]
        longest = max(plain, key=len, default=())
        return self.of(longest), longest


_REMEDY = (
    "Name a namespace that tells its agent, or let agent_of raise for those it does not know; with shared=True, None "
    "stands for shared."
)


TYPE = "item"
"""`type` of a document that is an item."""

WHOLE = "$"
"""Path of the whole value."""


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
        texts = [text for text in searched_texts(self.value, self.fields) if has_content(text)]
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
            f"Cannot put {short_repr(value)} under {key!r}: the value of an item is a mapping. Pass a dict."
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
