"""The filter language of every face: parse it, match it. `match` is the definition; compiled forms agree.

| filter                          | holds when                                                               |
|---------------------------------|--------------------------------------------------------------------------|
| `{}`, `None`                    | always                                                                   |
| `{"a": 1, "b": 2}`              | both hold                                                                |
| `{"a": 1}`, `{"a": {"$eq": 1}}` | the value is 1; a list or dict is compared as a whole                    |
| `{"a": None}`                   | the value is None or there is none (`$exists` tells them apart)          |
| `$ne`, `$nin`                   | exactly not `$eq`, not `$in`: also where the key is missing              |
| `$gt $gte $lt $lte`             | the value is of a comparable kind and on that side; several mean between |
| `$in: [..]`                     | equal to one of them; the empty list finds nothing                       |
| `$contains: x`                  | a list has an item equal to x, or a text contains the text x             |
| `$icontains: x`                 | a text contains the text x, upper and lower case alike                   |
| `$exists: true`                 | the key is there, whatever its value                                     |
| `$and: [..]`                    | all hold; the empty list always holds                                    |
| `$or: [..]`                     | one holds; the empty list never does                                     |
| `$not: {..}`                    | does not hold; also inside a key: `{"n": {"$not": {"$gt": 3}}}`          |

Keys may be paths into nested dicts, `"geo.lat"`; a key that has the dot in its name wins. Which values are
equal or ordered is told in `comparison.py`. Anything else in a filter is a `FilterError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeAlias

from langchain_agentrag.errors import FilterError, InvalidDocumentError
from langchain_agentrag.metadata import (
    equal,
    fingerprint,
    is_instant,
    normalise,
    order,
    plain,
    short_repr,
    sortable,
)

MAX_DEPTH = 100
"""Deepest nesting of $and, $or and $not."""

MAX_CONDITIONS = 20_000
"""Most nodes of one filter; a small dict that holds itself twice per level would otherwise have 2**100."""

TIME, EXPIRES = "$time", "$expires"
"""Keys under which a document's time and expiry are tested (see `moments`); `parse` lets no such key through."""

_NEGATIONS = {"$ne": "$eq", "$nin": "$in"}
_ORDERINGS = frozenset({"$gt", "$gte", "$lt", "$lte"})


@dataclass(frozen=True)
class Condition:
    """A leaf: one operator on one key.

    Attributes:
        key: Metadata key or dotted path.
        op: Operator, such as "$gte".
        operand: What the value is compared with, normalised as stored metadata is.
        token: Identity of the operand: it tells 1, 1.0 and True apart, so that filters can be cache keys.
    """

    key: str
    op: str
    operand: Any = field(compare=False)
    token: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.key, str):
            raise _error(self.key, "is no metadata key", "Keys are strings")
        if self.op not in OPERATORS:
            raise _unknown(self.op)
        operand = _operand(self.op, self.operand)
        object.__setattr__(self, "operand", operand)
        object.__setattr__(self, "token", fingerprint({"v": operand}))

    def test(self, value: object, present: bool) -> bool:  # noqa: FBT001  the pair that `lookup` returns
        """Whether the condition holds for a value; never raises.

        Args:
            value: The metadata value; ignored when absent.
            present: Whether the key is there.
        """
        if self.op == "$exists":
            return bool(present) is self.operand
        negated = self.op in _NEGATIONS
        try:
            found = _TESTS[_NEGATIONS.get(self.op, self.op)](self, plain(value) if present else None)
        except Exception:  # noqa: BLE001  foreign objects may raise anything when compared; they equal nothing
            found = False
        return found is not negated

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether the condition holds for a document's metadata."""
        return self.test(*lookup(metadata, self.key))

    @cached_property
    def choices(self) -> tuple[frozenset[str], frozenset[int], tuple[Any, ...]]:
        """Operand of $in as texts, integers and the rest: a list of ten thousand ids costs one look."""
        texts = frozenset(item for item in self.operand if type(item) is str)
        whole = frozenset(item for item in self.operand if type(item) is int)
        return texts, whole, tuple(item for item in self.operand if type(item) not in {str, int})


@dataclass(frozen=True)
class And:
    """All parts hold; no parts: always."""

    parts: tuple[Filter, ...]

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether it holds for a document's metadata."""
        return all(part.matches(metadata) for part in self.parts)


@dataclass(frozen=True)
class Or:
    """At least one part holds; no parts: never."""

    parts: tuple[Filter, ...]

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether it holds for a document's metadata."""
        return any(part.matches(metadata) for part in self.parts)


@dataclass(frozen=True)
class Not:
    """The part does not hold."""

    part: Filter

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Whether it holds for a document's metadata."""
        return not self.part.matches(metadata)


Filter: TypeAlias = Condition | And | Or | Not
_NODES = (Condition, And, Or, Not)


def parse(where: Mapping[str, Any] | Filter | None, /) -> Filter | None:
    """A filter as a tree, or None when it lets everything through.

    Raises:
        FilterError: an unknown operator, an operand of the wrong type, no mapping, or nesting too deep.
    """
    if where is None:
        return None
    if isinstance(where, _NODES):
        for _ in _walk(where):  # a tree built by hand must keep the same limits
            pass
        return where
    tree = _Parser().mapping(where, 0)
    return None if tree == And(()) and not where else tree


def match(where: Mapping[str, Any] | Filter | None, /, metadata: Mapping[str, Any]) -> bool:
    """Whether metadata passes a filter. Raises only for a filter that `parse` refuses."""
    if where is None:
        return True
    tree = where if isinstance(where, _NODES) else parse(where)
    return tree is None or tree.matches(metadata)


def lookup(metadata: Mapping[str, Any], key: str) -> tuple[Any, bool]:
    """Value at a key or dotted path, and whether it is there.

    At each level the rest of the path is first tried as one key.
    """
    level: Any = metadata
    rest = key
    while isinstance(level, Mapping):
        if rest in level:
            return level[rest], True
        head, dot, rest = rest.partition(".")
        if not dot or head not in level:
            break
        level = level[head]
    return None, False


def keys(where: Filter | None) -> set[str]:
    """Metadata keys a filter asks for."""
    return set() if where is None else {node.key for node in _walk(where) if isinstance(node, Condition)}


def needed_texts(where: Filter) -> frozenset[str] | None:
    """Texts of which a document must hold at least one, as a value of its metadata or as its id, to be kept.

    None where nothing of the kind can be said, such as of a negation, a comparison, or text that may name a date.
    """
    match where:
        case Condition(key, "$eq" | "$in" as operator, operand) if key != "agent_id":
            asked = [operand] if operator == "$eq" else operand
            return (
                frozenset(asked)
                if all(type(text) is str and not is_instant(text) for text in asked)
                else None
            )
        case And(parts):
            return next((texts for part in parts if (texts := needed_texts(part)) is not None), None)
        case Or(parts):
            found = [needed_texts(part) for part in parts]
            return None if None in found else frozenset(text for texts in found for text in texts or ())
    return None


def conjoin(first: Filter | None, second: Filter | None) -> Filter | None:
    """Filter that holds when both do; flat, so joining again and again does not nest."""
    if first is None or second is None:
        return second if first is None else first
    parts = [part for one in (first, second) for part in (one.parts if isinstance(one, And) else (one,))]
    return And(tuple(parts))


def time_filter(after: datetime | None, before: datetime | None) -> Filter | None:
    """Filter that holds for documents with a time, from `after` on and before `before`; None without a bound."""
    parts = [
        Condition(TIME, operator, bound)
        for operator, bound in (("$gte", after), ("$lt", before))
        if bound is not None
    ]
    return _join([*parts]) if parts else None


def _walk(root: Filter) -> Iterator[Filter]:
    """Every node of a tree, without recursion."""
    stack: list[tuple[Filter, int]] = [(root, 0)]
    count = 0
    while stack:
        node, depth = stack.pop()
        if not isinstance(node, _NODES):
            raise _error(node, "is no part of a filter tree", "Build it from Condition, And, Or and Not")
        count += 1
        _limit(depth, count)
        yield node
        inner = (node.part,) if isinstance(node, Not) else getattr(node, "parts", ())
        stack += [(part, depth + 1) for part in inner]


def _limit(depth: int, count: int) -> None:
    if depth > MAX_DEPTH:
        msg = f"The filter is nested deeper than {MAX_DEPTH} levels of $and, $or and $not: flatten it."
        raise FilterError(msg)
    if count > MAX_CONDITIONS:
        msg = f"The filter has more than {MAX_CONDITIONS} conditions: use $in with a list of values."
        raise FilterError(msg)


class _Parser:
    def __init__(self) -> None:
        self.count = 0

    def mapping(self, where: object, depth: int) -> Filter:
        self.count += 1
        _limit(depth, self.count)
        if isinstance(where, _NODES):
            return parse(where) or where
        if not isinstance(where, Mapping):
            raise _error(where, "is no filter", 'Write a dict such as {"type": "manual"}')
        return _join([self.entry(key, value, depth) for key, value in where.items()])

    def entry(self, key: object, value: object, depth: int) -> Filter:
        if not isinstance(key, str):
            raise _error(key, "is no metadata key", "Keys are strings")
        if key in {"$and", "$or"}:
            if not isinstance(value, list | tuple):
                raise _error({key: value}, f"gives {key} no list", f'Write {{"{key}": [{{...}}, {{...}}]}}')
            parts = tuple(self.mapping(part, depth + 1) for part in value)
            return And(parts) if key == "$and" else Or(parts)
        if key == "$not":
            return Not(self.mapping(value, depth + 1))
        if key.startswith("$"):
            raise _unknown(key)
        return (
            self.conditions(key, value, depth) if isinstance(value, Mapping) else self.leaf(key, "$eq", value)
        )

    def conditions(self, key: str, value: Mapping[Any, Any], depth: int) -> Filter:
        """Operators on one key: `{"$gte": 1, "$lte": 3}`."""
        if not value:
            raise _error({key: value}, "has no operator", 'To compare with an empty dict, write {"$eq": {}}')
        parts: list[Filter] = []
        for op, operand in value.items():
            if op == "$not":
                _limit(depth + 1, self.count)
                if not isinstance(operand, Mapping):
                    raise _error({key: value}, "gives $not no operators", 'Write {"$not": {"$gt": 3}}')
                parts.append(Not(self.conditions(key, operand, depth + 1)))
            elif isinstance(op, str) and op in OPERATORS:
                parts.append(self.leaf(key, op, operand))
            else:
                raise _unknown(op)
        return _join(parts)

    def leaf(self, key: str, op: str, operand: object) -> Condition:
        self.count += 1
        _limit(0, self.count)
        return Condition(key, op, operand)


def _join(parts: list[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _operand(op: str, operand: object) -> Any:  # noqa: ANN401  a metadata value
    """Operand of an operator, normalised; refused when the operator cannot use it."""
    if op in {"$in", "$nin"} and not isinstance(operand, list | tuple | set | frozenset):
        raise _error({op: operand}, f"gives {op} no list", f'Write {{"{op}": ["a", "b"]}}')
    try:
        value = normalise({"v": operand})["v"]
    except InvalidDocumentError as error:
        msg = f"The filter cannot compare with {short_repr(operand)}: {error}"
        raise FilterError(msg) from error
    if op == "$icontains" and not isinstance(value, str):
        raise _error({op: operand}, "gives $icontains no text", 'Write {"$icontains": "pump"}')
    if op == "$exists" and type(value) is not bool:
        raise _error({op: operand}, "gives $exists no boolean", 'Write {"$exists": true} or false')
    if op in _ORDERINGS and not sortable(value):
        rule = f"gives {op} a {type(operand).__name__}, which has no order"
        raise _error({op: operand}, rule, "Compare with a number, a text, a date, a time or a duration")
    return value


def _error(value: object, rule: str, remedy: str) -> FilterError:
    return FilterError(f"Filter part {short_repr(value)} {rule}. {remedy}.")


def _unknown(op: object) -> FilterError:
    known = [*OPERATORS, "$and", "$or", "$not"]
    close = difflib.get_close_matches(f"${op}".replace("$$", "$").lower(), known, 1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    nested = (
        ""
        if isinstance(op, str) and op.startswith("$")
        else (' For a nested value write the path, {"geo.lat": 1}; for a whole dict {"geo": {"$eq": {...}}}.')
    )
    return FilterError(f"Unknown filter operator {short_repr(op)}. {hint}Known: {' '.join(known)}.{nested}")


def _is_in(condition: Condition, value: object) -> bool:
    texts, whole, rest = condition.choices
    if type(value) is str:
        return value in texts
    if type(value) is int and value in whole:
        return True
    return any(equal(value, item) for item in (rest if type(value) is int else condition.operand))


def _contains(condition: Condition, value: object) -> bool:
    operand = condition.operand
    if isinstance(value, str):
        return isinstance(operand, str) and operand in value
    return isinstance(value, list) and any(equal(item, operand) for item in value)


def _ordering(accepted: frozenset[int]) -> Callable[[Condition, object], bool]:
    return lambda condition, value: order(value, condition.operand) in accepted


_TESTS: dict[str, Callable[[Condition, object], bool]] = {
    "$eq": lambda condition, value: equal(value, condition.operand),
    "$gt": _ordering(frozenset({1})),
    "$gte": _ordering(frozenset({0, 1})),
    "$lt": _ordering(frozenset({-1})),
    "$lte": _ordering(frozenset({-1, 0})),
    "$in": _is_in,
    "$contains": _contains,
    "$icontains": lambda condition, value: (
        isinstance(value, str) and condition.operand.lower() in value.lower()
    ),
}
OPERATORS = (
    *("$eq", "$ne", "$gt", "$gte", "$lt", "$lte"),
    *("$in", "$nin", "$contains", "$icontains", "$exists"),
)
"""Operators a key may have."""
