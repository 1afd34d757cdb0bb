"""Every wrong implementation of a protocol, and what tries to kill it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from langchain_agentrag import Analyzer
from tests.contracts.reference import MemoryConnector, MemoryKeywords, MemoryVectors
from tests.contracts.reference_fusion import reference_fusion
from tests.mutants import suites, wrong_indexes, wrong_sources
from tests.mutants.wrong_rules import FILTERS, FUSIONS, WrongRule, evaluated, right_leaf, right_node
from tests.mutants.wrong_sources import MutantSource

Kill = Callable[[], str | None]


def _filter_kill(leaf: Any, node: Any) -> str | None:
    return suites.filter_form(lambda where: evaluated(where, leaf, node))


def _fusion_kill(name: str, rule: Any) -> str | None:
    return suites.fusion_rule(WrongRule(name, rule), partial(reference_fusion, name))


def _source(kind: type[MemoryConnector]) -> type[MutantSource]:
    return type(kind.__name__, (MutantSource,), {"kind": kind})


def _kinds(module: ModuleType, right: type) -> list[type]:
    """The wrong ones among a module's classes, in the order they are written."""
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, right) and kind is not right
    ]


def all_forms() -> dict[tuple[str, str], Kill]:
    """(protocol, mutant) -> the suite that must reject it."""
    kills: dict[tuple[str, str], Kill] = {}
    kills |= {
        ("keyword index", kind.__name__): partial(suites.keyword_index, kind)
        for kind in _kinds(wrong_indexes, MemoryKeywords)
    }
    kills["keyword index", "loses its writes"] = partial(
        suites.keyword_index, MemoryKeywords, lambda _: MemoryKeywords()
    )
    kills |= {
        ("vector index", kind.__name__): partial(suites.vector_index, kind)
        for kind in _kinds(wrong_indexes, MemoryVectors)
    }
    kills["vector index", "loses its writes"] = partial(suites.vector_index, MemoryVectors, lambda _: MemoryVectors())
    kills |= {
        ("connector", kind.__name__): partial(suites.connector, _source(kind))
        for kind in _kinds(wrong_sources, MemoryConnector)
    }
    kills |= {("analyzer", kind.__name__): partial(suites.analyzer, kind) for kind in _kinds(wrong_sources, Analyzer)}
    kills |= {("filter", name): partial(_filter_kill, *parts) for name, parts in FILTERS.items()}
    kills |= {("fusion", name): partial(_fusion_kill, *parts) for name, parts in FUSIONS.items()}
    return kills


def unharmed() -> dict[str, Kill]:
    """The same harness around implementations without a mistake: nothing may be killed."""
    return {
        "keyword index": partial(suites.keyword_index, MemoryKeywords),
        "vector index": partial(suites.vector_index, MemoryVectors),
        "connector": partial(suites.connector, MutantSource),
        "analyzer": partial(suites.analyzer, Analyzer),
        "filter": partial(_filter_kill, right_leaf, right_node),
        **{
            f"fusion {name}": partial(_fusion_kill, name, partial(reference_fusion, name))
            for name in ("adaptive", "convex", "rrf", "dbsf", "relative")
        },
    }
