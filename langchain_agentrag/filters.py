r"""Metadata filters: parse and match. `match` is the definition, `store/columnar_cache.py` the bulk form.

| filter                          | matches when                                                             |
|---------------------------------|--------------------------------------------------------------------------|
| `{}`, `None`                    | always                                                                   |
| `{"a": 1, "b": 2}`              | both match                                                               |
| `{"a": 1}`, `{"a": {"$eq": 1}}` | the value is 1                                                           |
| `{"a": [1, 2]}`                 | as `$in`; `{"a": {"$eq": [1, 2]}}` compares a list as a whole            |
| `{"a": None}`                   | the value is None or missing (`$exists` distinguishes them)              |
| `$ne`, `$nin`                   | exactly not `$eq`, not `$in`: also where the key is missing              |
| `$gt $gte $lt $lte`             | the value is of a comparable kind and on that side; several mean between |
| `$between: [low, high]`         | as `$gte` low and `$lte` high                                            |
| `$in: [..]`                     | the value, or an item of a list, equals one of them; [] matches nothing  |
| `$contains: x`                  | a list has an item equal to x, or a text contains the text x             |
| `$icontains: x`                 | a text contains the text x, upper and lower case alike                   |
| `$like: pattern`                | a whole text matches: `%` is any text, `_` one character, `\%` a `%`     |
| `$ilike: pattern`               | the same, upper and lower case alike                                     |
| `$exists: true`                 | the key is present, with any value                                       |
| `$and: [..]`                    | all match; the empty list always does                                    |
| `$or: [..]`                     | one matches; the empty list never does                                   |
| `$not: {..}`                    | does not match; also inside a key: `{"n": {"$not": {"$gt": 3}}}`         |
| `$not: [..]`                    | none of them matches                                                     |

Keys may be paths into nested dicts, `"geo.lat"`; a key with the dot in its name takes precedence. Equality and order
of values are those of `metadata.py`. Anything else in a filter is a `FilterError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeAlias

from langchain_agentrag.errors import FilterError, InvalidDocumentError
from langchain_agentrag.metadata import (
    compare,
    equal,
    fingerprint,
    has_order,
    is_date_text,
    normalise,
    short_repr,
    stored_value,
)
from langchain_agentrag.times import check_time

MAX_DEPTH = 100
"""Deepest nesting of $and, $or and $not."""

MAX_PATTERN = 1_000
"""Longest pattern of $like and $ilike, in characters."""

MAX_CONDITIONS = 20_000
"""Most nodes of one filter; a small dict that contains itself twice per level would have 2**100."""

TIME, EXPIRES = "$time", "$expires"
"""Keys of conditions on a document's time and expiry (see `times`); `parse` refuses such keys."""

ONE_OF = "$one_of"
"""Operator like $in that compares a list as a whole only, for frameworks that do so; `parse` refuses it."""

_NEGATIONS = {"$ne": "$eq", "$nin": "$in"}
_PATTERNS = frozenset({"$like", "$ilike"})
_ORDERINGS = frozenset({"$gt", "$gte", "$lt", "$lte"})
_BOUNDS = ("$gte", "$lte")  # of $between


@dataclass(frozen=True)
class Condition:
    """Leaf of a filter: one operator on one key.

    Attributes:
        key: Metadata key or dotted path.
        op: Operator, such as "$gte".
        operand: Value to compare with, normalised like stored metadata.
        token: Identity of the operand: it differs for 1, 1.0 and True, so that filters can be cache keys.
    """

    key: str
    op: str
    operand: Any = field(compare=False)
    token: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.key, str):
            raise _error(self.key, "is not a metadata key", "Keys must be strings")
        if self.op not in OPERATORS and self.op != ONE_OF:
            raise _unknown_operator(self.op)
        operand = _check_operand(self.op, self.operand)
        object.__setattr__(self, "operand", operand)
        object.__setattr__(self, "token", fingerprint({"v": operand}))

    def test(self, value: object, present: bool) -> bool:  # noqa: FBT001  the pair that `lookup` returns
        """Return whether a value matches; never raises.

        Args:
            value: The metadata value; ignored when the key is missing.
            present: Whether the key is present.
        """
        if self.op == "$exists":
            return bool(present) is self.operand
        negated = self.op in _NEGATIONS
        try:
            result = _TESTS[_NEGATIONS.get(self.op, self.op)](self, stored_value(value) if present else None)
        except Exception:  # noqa: BLE001  foreign objects may raise anything when compared; they equal nothing
            result = False
        return result is not negated

    @cached_property
    def choices(self) -> tuple[frozenset[str], frozenset[int], tuple[Any, ...]]:
        """Operand of $in as texts, integers and the rest: one lookup even for ten thousand ids."""
        texts = frozenset(item for item in self.operand if type(item) is str)
        integers = frozenset(item for item in self.operand if type(item) is int)
        return texts, integers, tuple(item for item in self.operand if type(item) not in {str, int})

    @cached_property
    def pattern(self) -> LikePattern:
        """Operand of $like or $ilike, compiled."""
        return LikePattern(self.operand.lower() if self.op == "$ilike" else self.operand)


class LikePattern:
    """Pattern of SQL's LIKE. Matching takes time proportional to the length of the text: nothing is tried twice.

    Args:
        pattern: `%` stands for any text, `_` for one character, and a backslash makes the next character literal.
    """

    def __init__(self, pattern: str) -> None:
        parts: list[str | None] = []  # literal characters; None for `_`, "" for `%`
        escaped = False
        for character in pattern:
            if escaped or character not in "\\%_":
                parts.append(character)
                escaped = False
            elif character == "\\":
                escaped = True
            else:
                parts.append(None if character == "_" else "")
        self._parts = parts + ["\\"] * escaped  # a backslash at the end is itself

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches."""
        return self._matches_any_character(text) if None in self._parts else self._matches_pieces(text)

    @cached_property
    def _pieces(self) -> list[str]:
        """Literal texts between the `%`."""
        pieces = [""]
        for part in self._parts:
            if part:
                pieces[-1] += part
            else:
                pieces.append("")
        return pieces

    def _matches_pieces(self, text: str) -> bool:
        first, *others = self._pieces
        if not others:
            return text == first
        *middle, last = others
        if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
            return False
        place, end = len(first), len(text) - len(last)
        for piece in middle:  # the leftmost occurrence leaves the most room for the others
            found = text.find(piece, place, end)
            if found < 0:
                return False
            place = found + len(piece)
        return True

    @cached_property
    def _bits(self) -> tuple[dict[str, int], int, int, int]:
        """Character → bits of the places it advances from; the same for any other; loops at `%`; the final place."""
        literal: dict[str, int] = {}
        anything = loops = place = 0
        for part in self._parts:
            if part == "":
                loops |= 1 << place
                continue
            if part is None:
                anything |= 1 << place
            else:
                literal[part] = literal.get(part, 0) | 1 << place
            place += 1
        return {character: bits | anything for character, bits in literal.items()}, anything, loops, 1 << place

    def _matches_any_character(self, text: str) -> bool:
        """The places in the pattern reached after each character, as bits of one integer (Baeza-Yates and Gonnet)."""
        moves, anything, loops, final = self._bits
        reached = 1
        for character in text:
            reached = (reached & moves.get(character, anything)) << 1 | reached & loops
            if not reached:
                return False
        return bool(reached & final)


@dataclass(frozen=True)
class And:
    """All parts match; without parts: always."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Or:
    """At least one part matches; without parts: never."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Not:
    """The part does not match."""

    part: Filter


Filter: TypeAlias = Condition | And | Or | Not
_NODES = (Condition, And, Or, Not)


def parse(where: Mapping[str, Any] | Filter | None, /) -> Filter | None:
    """Parse a filter to a tree, or None when it matches everything.

    Raises:
        FilterError: an unknown operator, an operand of the wrong type, not a mapping, or nesting too deep.
    """
    if where is None:
        return None
    if isinstance(where, _NODES):
        for _ in _walk(where):  # a tree built by hand has the same limits
            pass
        return where
    tree = _Parser().mapping(where, 0)
    return None if tree == And(()) and not where else tree


def match(where: Mapping[str, Any] | Filter | None, /, metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata matches a filter. Raises only for a filter that `parse` refuses."""
    match where if isinstance(where, _NODES) else parse(where):
        case Condition() as condition:
            return condition.test(*lookup(metadata, condition.key))
        case And(parts):
            return all(match(part, metadata) for part in parts)
        case Or(parts):
            return any(match(part, metadata) for part in parts)
        case Not(part):
            return not match(part, metadata)
    return True


def lookup(metadata: Mapping[str, Any], key: str) -> tuple[Any, bool]:
    """Return the value at a key or dotted path, and whether it is present.

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


def filter_keys(where: Filter | None) -> set[str]:
    """Return the metadata keys that a filter tests."""
    return set() if where is None else {node.key for node in _walk(where) if isinstance(node, Condition)}


def wanted_keys(where: Filter | None) -> set[str]:
    """Return the keys that a filter asks for: those of conditions that a document without the key cannot meet.

    `{"a": 1}` asks for a; `{"a": {"$ne": 1}}` and `{"$not": {"a": 1}}` do not.
    """
    keys: set[str] = set()
    stack = [] if where is None else [(where, True)]
    while stack:
        node, wanted = stack.pop()
        if isinstance(node, Condition):
            if node.test(None, present=False) is not wanted:
                keys.add(node.key)
        elif isinstance(node, Not):
            stack.append((node.part, not wanted))
        else:
            stack += [(part, wanted) for part in node.parts]
    return keys


def required_texts(where: Filter) -> frozenset[str] | None:
    """Return texts of which a matching document has at least one, as a metadata value or as its id.

    None where the filter has no such texts: a negation, a comparison, or text that may be a date.
    """
    match where:
        case Condition(key, "$eq" | "$in" | "$one_of" as operator, operand) if key != "agent_id":
            values = [operand] if operator == "$eq" else operand
            only_texts = all(type(value) is str and not is_date_text(value) for value in values)
            return frozenset(values) if only_texts else None
        case And(parts):
            return next((texts for part in parts if (texts := required_texts(part)) is not None), None)
        case Or(parts):
            alternatives = [required_texts(part) for part in parts]
            if None in alternatives:
                return None
            return frozenset(text for texts in alternatives for text in texts or ())
    return None


def conjoin(first: Filter | None, second: Filter | None) -> Filter | None:
    """Return the filter that matches when both do; flat, so repeated calls do not nest."""
    if first is None or second is None:
        return second if first is None else first
    parts = [part for one in (first, second) for part in (one.parts if isinstance(one, And) else (one,))]
    return And(tuple(parts))


def time_range_filter(after: object, before: object, now: datetime | None = None) -> Filter | None:
    """Return the filter for documents with a time in [after, before); None without a bound.

    Args:
        after: A datetime, a date, ISO text, or how long ago ("36h", "7d"); without a zone it is UTC.
        before: The same.
        now: What "36h" is counted back from; the present by default.

    Raises:
        InvalidQueryError: a bound is not a time.
    """
    now = now or datetime.now(UTC)
    bounds = (("after", "$gte", after), ("before", "$lt", before))
    parts: list[Filter] = [
        Condition(TIME, operator, check_time(name, bound, now)) for name, operator, bound in bounds if bound is not None
    ]
    return _join(parts) if parts else None


def _walk(root: Filter) -> Iterator[Filter]:
    """Yield every node of a tree, without recursion."""
    stack: list[tuple[Filter, int]] = [(root, 0)]
    count = 0
    while stack:
        node, depth = stack.pop()
        if not isinstance(node, _NODES):
            raise _error(node, "is not a filter node", "Build the tree from Condition, And, Or and Not")
        count += 1
        _check_limits(depth, count)
        yield node
        children = (node.part,) if isinstance(node, Not) else getattr(node, "parts", ())
        stack += [(part, depth + 1) for part in children]


def _check_limits(depth: int, count: int) -> None:
    if depth > MAX_DEPTH:
        raise FilterError(f"The filter is nested deeper than {MAX_DEPTH} levels of $and, $or and $not: flatten it.")
    if count > MAX_CONDITIONS:
        raise FilterError(f"The filter has more than {MAX_CONDITIONS} conditions: use $in with a list of values.")


class _Parser:
    def __init__(self) -> None:
        self.count = 0

    def mapping(self, where: object, depth: int) -> Filter:
        self.count += 1
        _check_limits(depth, self.count)
        if isinstance(where, _NODES):
            return parse(where) or where
        if not isinstance(where, Mapping):
            rule = "is a function, which an index cannot apply" if callable(where) else "is not a filter"
            raise _error(where, rule, 'Write a dict such as {"type": "manual"} or {"doc_id": {"$in": ["a", "b"]}}')
        return _join([self.entry(key, value, depth) for key, value in where.items()])

    def entry(self, key: object, value: object, depth: int) -> Filter:
        if not isinstance(key, str):
            raise _error(key, "is not a metadata key", "Keys must be strings")
        if key in {"$and", "$or"}:
            if not isinstance(value, list | tuple):
                raise _error({key: value}, f"needs a list for {key}", f'Write {{"{key}": [{{...}}, {{...}}]}}')
            parts = tuple(self.mapping(part, depth + 1) for part in value)
            return And(parts) if key == "$and" else Or(parts)
        if key == "$not":
            if isinstance(value, list | tuple):
                return Not(Or(tuple(self.mapping(part, depth + 1) for part in value)))
            return Not(self.mapping(value, depth + 1))
        if key.startswith("$"):
            raise _unknown_operator(key)
        if isinstance(value, Mapping):
            return self.conditions(key, value, depth)
        return self.leaf(key, "$in" if isinstance(value, list | tuple | set | frozenset) else "$eq", value)

    def conditions(self, key: str, value: Mapping[Any, Any], depth: int) -> Filter:
        """Operators on one key: `{"$gte": 1, "$lte": 3}`."""
        if not value:
            raise _error({key: value}, "has no operator", 'To compare with an empty dict, write {"$eq": {}}')
        parts: list[Filter] = []
        for op, operand in value.items():
            if op == "$not":
                _check_limits(depth + 1, self.count)
                if not isinstance(operand, Mapping):
                    raise _error({key: value}, "needs operators for $not", 'Write {"$not": {"$gt": 3}}')
                parts.append(Not(self.conditions(key, operand, depth + 1)))
            elif op == "$between":
                if not isinstance(operand, list | tuple) or len(operand) != len(_BOUNDS):
                    raise _error({op: operand}, "needs two values for $between", 'Write {"$between": [1, 3]}')
                parts += [self.leaf(key, bound, limit) for bound, limit in zip(_BOUNDS, operand, strict=True)]
            elif isinstance(op, str) and op in OPERATORS:
                parts.append(self.leaf(key, op, operand))
            else:
                raise _unknown_operator(op)
        return _join(parts)

    def leaf(self, key: str, op: str, operand: object) -> Condition:
        self.count += 1
        _check_limits(0, self.count)
        return Condition(key, op, operand)


def _join(parts: list[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _check_operand(op: str, operand: object) -> Any:  # noqa: ANN401  a metadata value
    """Return an operand, normalised; raise FilterError when the operator cannot use it."""
    if op in {"$in", "$nin", ONE_OF} and not isinstance(operand, list | tuple | set | frozenset):
        raise _error({op: operand}, f"needs a list for {op}", f'Write {{"{op}": ["a", "b"]}}')
    try:
        value = normalise({"v": operand})["v"]
    except InvalidDocumentError as error:
        raise FilterError(f"The filter cannot compare with {short_repr(operand)}: {error}") from error
    if op in {"$icontains", *_PATTERNS} and not isinstance(value, str):
        example = "pump" if op == "$icontains" else "pump%"
        raise _error({op: operand}, f"needs text for {op}", f'Write {{"{op}": "{example}"}}')
    if op in _PATTERNS and len(value) > MAX_PATTERN:
        raise _error({op: operand}, f"has a pattern of more than {MAX_PATTERN:,} characters", "Shorten it")
    if op == "$exists" and type(value) is not bool:
        raise _error({op: operand}, "needs a boolean for $exists", 'Write {"$exists": true} or false')
    if op in _ORDERINGS and not has_order(value):
        rule = f"uses {op} with a {type(operand).__name__}, which has no order"
        raise _error({op: operand}, rule, "Compare with a number, a text, a date, a time or a duration")
    return value


def _error(value: object, rule: str, remedy: str) -> FilterError:
    return FilterError(f"Filter part {short_repr(value)} {rule}. {remedy}.")


def _unknown_operator(op: object) -> FilterError:
    known = [*OPERATORS, "$between", "$and", "$or", "$not"]
    close = difflib.get_close_matches(f"${op}".replace("$$", "$").lower(), known, 1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    nested = ' For a nested value write the path, {"geo.lat": 1}; for a whole dict {"geo": {"$eq": {...}}}.'
    if isinstance(op, str) and op.startswith("$"):
        nested = ""
    return FilterError(f"Unknown filter operator {short_repr(op)}. {hint}Known: {' '.join(known)}.{nested}")


def _is_in(condition: Condition, value: object) -> bool:
    if isinstance(value, list) and any(_is_one_of(condition, item) for item in value):
        return True
    return _is_one_of(condition, value)


def _is_one_of(condition: Condition, value: object) -> bool:
    texts, integers, rest = condition.choices
    if type(value) is str:
        return value in texts
    if type(value) is int and value in integers:
        return True
    return any(equal(value, item) for item in (rest if type(value) is int else condition.operand))


def _contains(condition: Condition, value: object) -> bool:
    operand = condition.operand
    if isinstance(value, str):
        return isinstance(operand, str) and operand in value
    return isinstance(value, list) and any(equal(item, operand) for item in value)


def _ordering(accepted: frozenset[int]) -> Callable[[Condition, object], bool]:
    return lambda condition, value: compare(value, condition.operand) in accepted


_TESTS: dict[str, Callable[[Condition, object], bool]] = {
    "$eq": lambda condition, value: equal(value, condition.operand),
    "$gt": _ordering(frozenset({1})),
    "$gte": _ordering(frozenset({0, 1})),
    "$lt": _ordering(frozenset({-1})),
    "$lte": _ordering(frozenset({-1, 0})),
    "$in": _is_in,
    ONE_OF: _is_one_of,
    "$contains": _contains,
    "$icontains": lambda condition, value: isinstance(value, str) and condition.operand.lower() in value.lower(),
    "$like": lambda condition, value: isinstance(value, str) and condition.pattern.matches(value),
    "$ilike": lambda condition, value: isinstance(value, str) and condition.pattern.matches(value.lower()),
}
OPERATORS = (
    *("$eq", "$ne", "$gt", "$gte", "$lt", "$lte"),
    *("$in", "$nin", "$contains", "$icontains", "$like", "$ilike", "$exists"),
)
"""Operators of a condition; `$between` is parsed to two."""
