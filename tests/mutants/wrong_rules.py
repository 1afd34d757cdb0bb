"""Wrong filters and fusion rules: each a right one with one mistake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from langchain_agentrag.filters import And, Condition, Filter, Not, Or, lookup, match, parse
from langchain_agentrag.metadata import normalise
from tests.contracts.filter_form import DOCUMENTS
from tests.contracts.reference_fusion import reference_fusion

# -- filters ----------------------------------------------------------------------------------------------------------


def views() -> list[dict[str, Any]]:
    return [{**normalise(document), "agent_id": None, "doc_id": f"d{n}"} for n, document in enumerate(DOCUMENTS)]


def evaluated(where: object, leaf: Callable[[Condition, dict[str, Any]], bool], node: Callable[..., bool]) -> set[int]:
    tree = parse(where)  # type: ignore[arg-type]
    return {place for place, view in enumerate(views()) if tree is None or node(tree, view, leaf)}


def right_leaf(condition: Condition, view: dict[str, Any]) -> bool:
    return match(condition, view)


def right_node(tree: Filter, view: dict[str, Any], leaf: Any) -> bool:
    if isinstance(tree, And | Or):
        return (all if isinstance(tree, And) else any)(right_node(part, view, leaf) for part in tree.parts)
    return not right_node(tree.part, view, leaf) if isinstance(tree, Not) else leaf(tree, view)


def or_drops(place: slice) -> Callable[..., bool]:
    def node(tree, view, leaf):
        if isinstance(tree, Or):
            parts = tree.parts[place] or tree.parts
            return any(node(part, view, leaf) for part in parts)
        if isinstance(tree, And):
            return all(node(part, view, leaf) for part in tree.parts)
        return not node(tree.part, view, leaf) if isinstance(tree, Not) else leaf(tree, view)

    return node


def everything_but(kind: type, wrong: Callable[..., bool]) -> Callable[..., bool]:
    def node(tree, view, leaf):
        if isinstance(tree, kind):
            return wrong(tree, view, leaf, node)
        if isinstance(tree, And | Or):
            return (all if isinstance(tree, And) else any)(node(part, view, leaf) for part in tree.parts)
        return not node(tree.part, view, leaf) if isinstance(tree, Not) else leaf(tree, view)

    return node


def wrong_leaf(op: str, wrong: Callable[[Condition, Any, bool], bool]) -> Callable[[Condition, dict[str, Any]], bool]:
    def leaf(condition, view):
        if condition.op != op:
            return match(condition, view)
        return wrong(condition, *lookup(view, condition.key))

    return leaf


def as_op(op: str) -> Callable[[Condition, Any, bool], bool]:
    return lambda condition, value, present: Condition(condition.key, op, condition.operand).test(value, present)


def _folded(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


FILTERS: dict[str, tuple[Any, Any]] = {
    "OR drops its last branch": (right_leaf, or_drops(slice(0, -1))),
    "OR drops its first branch": (right_leaf, or_drops(slice(1, None))),
    "OR as AND": (right_leaf, everything_but(Or, lambda t, v, leaf, node: all(node(p, v, leaf) for p in t.parts))),
    "AND as OR": (right_leaf, everything_but(And, lambda t, v, leaf, node: any(node(p, v, leaf) for p in t.parts))),
    "NOT matches everything": (right_leaf, everything_but(Not, lambda *_: True)),
    "NOT is ignored": (right_leaf, everything_but(Not, lambda t, v, leaf, node: node(t.part, v, leaf))),
    "equality never matches": (wrong_leaf("$eq", lambda *_: False), right_node),
    "equality folds case": (wrong_leaf("$eq", lambda c, value, _: _folded(value) == _folded(c.operand)), right_node),
    "equality in Python's sense, 1 == True": (wrong_leaf("$eq", lambda c, value, _: value == c.operand), right_node),
    "equality by text, 3 == '3'": (wrong_leaf("$eq", lambda c, value, present: present and str(value) == str(c.operand)), right_node),
    "$ne skips documents without the key": (wrong_leaf("$ne", lambda c, value, present: present and c.test(value, present)), right_node),
    "$in as equality with its first": (
        wrong_leaf("$in", lambda c, value, present: bool(c.operand) and Condition(c.key, "$eq", c.operand[0]).test(value, present)),
        right_node,
    ),
    "$nin matches everything": (wrong_leaf("$nin", lambda *_: True), right_node),
    "$gte as $gt": (wrong_leaf("$gte", as_op("$gt")), right_node),
    "$lt as $lte": (wrong_leaf("$lt", as_op("$lte")), right_node),
    "$gt compares texts": (wrong_leaf("$gt", lambda c, value, present: present and str(value) > str(c.operand)), right_node),
    "$contains looks into texts only": (
        wrong_leaf("$contains", lambda c, value, _: isinstance(value, str) and str(c.operand) in value),
        right_node,
    ),
    "$exists takes None for absent": (
        wrong_leaf("$exists", lambda c, value, present: (present and value is not None) is c.operand),
        right_node,
    ),
    "paths are not followed": (lambda c, view: c.test(view.get(c.key), c.key in view), right_node),
}  # fmt: skip


# -- fusion -----------------------------------------------------------------------------------------------------------


class WrongRule:
    def __init__(self, name: str, rule: Callable[..., dict[str, float]]) -> None:
        self.name, self._rule = name, rule

    def __call__(self, rankings, weights):
        return self._rule(rankings, weights)


def rrf_from_zero(rankings, weights):
    shares = [weight / sum(weights) for weight in weights]
    total: Counter[str] = Counter()
    for share, ranking in zip(shares, rankings, strict=True):
        for rank, (name, _) in enumerate(ranking):
            if share:
                total[name] += share * 60 / (60 + rank)
    return dict(total)


def lone_is_zero(rankings, weights):
    fused = reference_fusion("relative", rankings, weights)
    for ranking in rankings:
        if len({score for _, score in ranking}) == 1:
            for name, _ in ranking:
                fused[name] = min(fused[name], 0.0) if name in fused else 0.0
    return fused


def missing_is_punished(rankings, weights):
    fused = reference_fusion("convex", rankings, weights)
    return {name: score - 0.1 * sum(name not in dict(ranking) for ranking in rankings) for name, score in fused.items()}


def only_common(rankings, weights):
    fused = reference_fusion("convex", rankings, weights)
    return {name: score for name, score in fused.items() if all(name in dict(ranking) for ranking in rankings)}


def equal_weights(name, rankings, weights):
    return reference_fusion(name, rankings, (0.5, 0.5))


FUSIONS: dict[str, tuple[str, Any]] = {
    "weights ignored": ("convex", partial(equal_weights, "convex")),
    "weights ignored by ranks": ("rrf", partial(equal_weights, "rrf")),
    "weights not scaled to one": (
        "convex",
        lambda rankings, weights: {
            name: score * sum(weights) for name, score in reference_fusion("convex", rankings, weights).items()
        },
    ),
    "ranks from 0": ("rrf", rrf_from_zero),
    "a lone match is scaled to zero": ("relative", lone_is_zero),
    "a missing ranking is punished below zero": ("convex", missing_is_punished),
    "only what both rankings found": ("convex", only_common),
    "rankings exchanged": ("convex", lambda rankings, weights: reference_fusion("convex", rankings[::-1], weights)),
}
