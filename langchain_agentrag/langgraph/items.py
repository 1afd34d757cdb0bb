"""Items of LangGraph's store as documents: filters, namespaces, owners, stored form.

Filters and namespace patterns work as in LangGraph's stores, not as in `filters`: what one of `InMemoryStore`,
`SqliteStore` and `PostgresStore` takes is taken here. A dict without operators must be contained in the value, "a.b" is
the key "b" of the value of "a", and texts are compared with texts. What cannot be compared does not match.
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
from langchain_agentrag.langchain.identity import check_agent_binding, resolve_agent_id
from langchain_agentrag.metadata import normalise, short_repr
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.text.tokenizer import has_content
from langchain_agentrag.types import Section, SourceDocument

_ORDERINGS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_KNOWN = ("$eq", "$ne", *_ORDERINGS)


def check_filter(where: object) -> None:
    """Check the filter of a search, also where there is no item to apply it to.

    Raises:
        FilterError: it is no dict with texts as keys, or contains an unknown operator.
    """
    if where is None:
        return
    if not isinstance(where, Mapping) or not all(isinstance(key, str) for key in where):
        raise FilterError(
            f'Cannot filter items by {short_repr(where)}: pass a dict such as {{"type": "note"}} or '
            '{"user.age": {"$gte": 18}}.'
        )
    for condition in where.values():
        _check_condition(condition)


def _check_condition(condition: object) -> None:
    if isinstance(condition, list | tuple):
        for part in condition:
            _check_condition(part)
    if not isinstance(condition, dict):
        return
    if _has_operator(condition):
        for name in condition:
            if name not in _KNOWN:
                raise FilterError(
                    f"Unsupported operator: {name}. LangGraph's stores have {' '.join(_KNOWN)}; for more, search the "
                    "store behind it with the filter language of `DualIndexer.search`."
                )
        return
    for part in condition.values():
        _check_condition(part)


def _has_operator(condition: Mapping[Any, object]) -> bool:
    return any(isinstance(key, str) and key.startswith("$") for key in condition)


def matches_filter(value: Mapping[str, Any], where: Mapping[str, Any] | None) -> bool:
    """Whether a value matches a filter that `check_filter` has passed."""
    return all(_matches_value(_value_at(value, key), condition) for key, condition in (where or {}).items())


def _value_at(value: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key, or of a path "a.b" where there is no such key; None without either."""
    if key in value:
        return value[key]
    found: Any = value
    for part in key.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


def _matches_value(value: Any, condition: Any) -> bool:
    if isinstance(condition, dict):
        if _has_operator(condition):
            return all(_compare(value, name, operand) for name, operand in condition.items())
        return isinstance(value, dict) and all(_matches_value(value.get(key), part) for key, part in condition.items())
    if isinstance(condition, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(condition)
            and all(map(_matches_value, value, condition))
        )
    return bool(value == condition)


def _compare(value: Any, name: str, operand: Any) -> bool:
    if name in {"$eq", "$ne"}:
        return bool(value == operand) is (name == "$eq")
    numbers = _as_number(value), _as_number(operand)
    pair = (value, operand) if None in numbers else numbers
    try:
        return bool(_ORDERINGS[name](*pair))
    except TypeError:  # of different types, such as a text and a number, or absent
        return False


def _as_number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def matches_namespace(kind: Literal["prefix", "suffix"], pattern: tuple[str, ...], namespace: tuple[str, ...]) -> bool:
    """Whether a namespace starts ("prefix") or ends ("suffix") with a pattern; "*" stands for any one label.

    Raises:
        ValueError: an unknown kind.
    """
    if kind not in {"prefix", "suffix"}:
        raise ValueError(f"Unsupported match type: {kind}. Namespaces match by 'prefix' or 'suffix'.")
    if len(namespace) < len(pattern):
        return False
    part = namespace[: len(pattern)] if kind == "prefix" else namespace[len(namespace) - len(pattern) :]
    return all(expected in {"*", label} for expected, label in zip(pattern, part, strict=True))


Namespace = tuple[str, ...]

AgentOf = Callable[[Namespace], str | None]
"""Function that returns the owner of a namespace or of a prefix of one."""


class NamespaceOwners:
    """Owner of each namespace.

    Args:
        agent_id: One agent for all namespaces.
        agent_id_key: Key of each run's `configurable` or context that names the agent.
        agent_of: Function from a namespace to its agent.
        shared: Whether items may be shared: all of them, or those for which agent_of returns None.

    Raises:
        ScopeError: not exactly one of these ways is set.
    """

    def __init__(
        self, agent_id: str | None, agent_id_key: str | None, agent_of: AgentOf | None, *, shared: bool
    ) -> None:
        check_agent_binding(agent_id, agent_id_key)
        sources = [agent_id is not None, agent_id_key is not None, agent_of is not None]
        if sum(sources) + (shared and agent_of is None) != 1:
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

    @property
    def known_owners(self) -> list[str | None] | None:
        """The owners that items may have; None when calls or namespaces name them."""
        if self._key is not None or self._agent_of is not None:
            return None
        return [self._agent]

    def owner_of(self, namespace: Namespace) -> str | None:
        """Return the owner of a namespace; None for shared.

        Raises:
            ScopeError: the namespace has no owner.
        """
        if self._agent_of is None:
            return resolve_agent_id(self._agent, self._key, "error")
        try:
            owner = check_agent_id(self._agent_of(namespace))
        except ScopeError:
            raise
        except Exception as error:  # whatever agent_of raises means that it knows no owner
            raise ScopeError(f"agent_of() cannot tell the owner of {namespace!r}: {error!r}. {_REMEDY}") from error
        if owner is None and not self._shared:
            raise ScopeError(f"agent_of() returned no owner for {namespace!r}. {_REMEDY}")
        return owner

    def owner_of_patterns(self, patterns: Sequence[Namespace]) -> tuple[str | None, Namespace]:
        """Return the owner of the namespaces that match prefix patterns, and their longest prefix without a "*"."""
        literal = [pattern[: pattern.index("*")] if "*" in pattern else pattern for pattern in patterns]
        longest = max(literal, key=len, default=())
        return self.owner_of(longest), longest


_REMEDY = (
    "Pass a namespace that identifies its agent, or let agent_of raise for unknown ones; with shared=True, None stands "
    "for shared."
)


ITEM_TYPE = "item"
"""`type` in the metadata of an item's document."""

WHOLE_VALUE = "$"
"""Path that stands for the whole value."""


_MIN_RENEWED_SHARE = 0.01  # of the time to live; a read that would extend it by less writes nothing


@dataclass(frozen=True, slots=True)
class StoreItemRecord:
    """Item of the store with its times and searchable fields.

    Attributes:
        namespace: Labels.
        key: Key in the namespace.
        value: The value.
        created: Time of the first put.
        updated: Time of the last put.
        fields: Paths that are searched; empty for none.
        ttl: Time to live after the last use in minutes, or None.
        expires: Time of expiry, or None.
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
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        """Read an item from the metadata of its document."""
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
        """Id of the item's document."""
        return item_id(self.namespace, self.key)

    def renewed(self, now: datetime) -> StoreItemRecord | None:
        """Return the item with its time to live restarted, or None when that is not worth a write."""
        if self.ttl is None or self.expires is None:
            return None
        expires = now + timedelta(minutes=self.ttl)
        gained = (expires - self.expires) / timedelta(minutes=self.ttl) if self.ttl else 0.0
        return replace(self, expires=expires) if gained > _MIN_RENEWED_SHARE else None

    def to_document(self) -> SourceDocument:
        """Return the item's document; its text is empty when no field is searched.

        Raises:
            InvalidDocumentError: the value contains a type that cannot be stored.
        """
        texts = [text for text in _searchable_texts(self.value, self.fields) if has_content(text)]
        metadata: dict[str, Any] = {
            "type": ITEM_TYPE,
            "namespace": namespace_path(self.namespace),
            "key": self.key,
            "value": self.value,
            "created_at": self.created,
            "time": self.updated,
            "fields": list(self.fields),
            "searched": bool(texts),
        }
        if self.expires is not None:
            metadata |= {"ttl": self.ttl, "expires_at": self.expires}
        text, sections = _join_sections(texts)
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
) -> StoreItemRecord:
    """Create the item of a put.

    Raises:
        InvalidDocumentError: the value is no mapping or contains a type that cannot be stored, or the time to live is
            not a number.
    """
    if not isinstance(value, Mapping):
        raise InvalidDocumentError(
            f"Cannot put {short_repr(value)} under {key!r}: the value of an item must be a mapping. Pass a dict."
        )
    stored: dict[str, Any] = normalise({"value": value})["value"]  # as a get returns it
    try:
        expires = None if ttl is None else now + timedelta(minutes=ttl)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidDocumentError(
            f"Cannot put {key!r} with ttl={ttl!r}: pass a number of minutes, or None for no expiry."
        ) from error
    return StoreItemRecord(namespace, key, stored, created or now, now, tuple(fields), ttl, expires)


# -- namespaces and ids -------------------------------------------------------------------------------------------


def check_labels(labels: Sequence[object]) -> Namespace:
    """Return a namespace, or a pattern of one, as a tuple.

    Raises:
        InvalidNamespaceError: no list or tuple, or a label is not a string, is empty, or contains "." or NUL.
    """
    if not isinstance(labels, list | tuple):
        raise InvalidNamespaceError(f"Invalid namespace {labels!r}: pass a tuple of labels, such as ('users', 'lina').")
    for label in labels:
        if not isinstance(label, str) or not label or "." in label or "\x00" in label:
            raise InvalidNamespaceError(
                f"Invalid namespace label {label!r} in {labels!r}: labels are non-empty strings without '.' and NUL."
            )
    return tuple(labels)


def namespace_path(namespace: Namespace) -> str:
    """Return the labels joined by dots."""
    return ".".join(namespace)


def item_id(namespace: Namespace, key: str) -> str:
    """Return the id of an item's document, unique per namespace and key."""
    return f"item:[{_json_text(namespace_path(namespace))},{_json_text(key)}]"


def id_prefixes(prefix: Namespace) -> tuple[str, ...]:
    """Return the prefixes of the document ids of all items under a namespace."""
    if not prefix:
        return ("item:[",)
    start = f"item:[{_json_text(namespace_path(prefix))}"
    return f"{start},", f"{start[:-1]}."


def namespace_of_id(doc_id: str) -> Namespace:
    """Return the namespace of an item, from the id of its document."""
    path: str = json.loads(doc_id.removeprefix("item:"))[0]
    return tuple(path.split("."))


def namespace_filter(prefix: Namespace) -> Filter:
    """Return the filter of all searchable items under a namespace."""
    parts: list[Filter] = [Condition("type", "$eq", ITEM_TYPE), Condition("searched", "$eq", operand=True)]
    if prefix:
        path = namespace_path(prefix)
        below = And((Condition("namespace", "$gte", f"{path}."), Condition("namespace", "$lt", f"{path}/")))
        parts.append(Or((Condition("namespace", "$eq", path), below)))
    return And(tuple(parts))


def _json_text(text: str) -> str:
    """Return the text as JSON, with lone surrogates, which UTF-8 cannot encode, escaped."""
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace").decode("utf-8")


# -- searchable text ----------------------------------------------------------------------------------------------


def _searchable_texts(value: Mapping[str, Any], fields: Sequence[str]) -> list[str]:
    """Return the texts at the paths; each is searched separately, as LangGraph embeds them."""
    texts: list[str] = []
    for path in fields:
        if path == WHOLE_VALUE:
            extracted = ["\n".join(_leaf_lines(value, ()))]
        else:
            extracted = get_text_at_path(value, tokenize_path(path))
        texts += [text.encode("utf-8", "replace").decode("utf-8") for text in extracted]
    return texts


def _leaf_lines(value: object, path: tuple[str, ...]) -> Iterator[str]:
    """Return a value as lines "path: leaf", which embed better than JSON."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaf_lines(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaf_lines(item, path)
    elif value is not None:
        yield f"{'.'.join(path)}: {value.isoformat() if isinstance(value, datetime) else value}"


def _join_sections(texts: Sequence[str]) -> tuple[str, tuple[Section, ...]]:
    """Join texts by newlines, each as a section of its own, so that no chunk spans two of them."""
    sections, start = [], 0
    for text in texts:
        sections.append(Section(start, start + len(text), joinable=False))
        start += len(text) + 1
    return "\n".join(texts), tuple(sections) if len(texts) > 1 else ()
