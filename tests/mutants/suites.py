"""The contract suites as plain calls: a mutant is put where an implementation goes, and the first check to fail kills it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from langchain_agentrag import DualIndexer, HashingEmbeddings
from langchain_agentrag.errors import AgentRagError
from langchain_agentrag.testing.conformance import OK, outcomes
from langchain_agentrag.testing.indexes import KeywordIndexConformance, VectorIndexConformance
from tests.contracts.analyzer import AnalyzerContract
from tests.contracts.connector import ConnectorContract
from tests.contracts.filter_form import FilterContract
from tests.contracts.fusion_rule import FusionContract
from tests.contracts.scenario import live
from tests.contracts.world import World, fresh_folder


def killer_of_form(suite: type, fixtures: Mapping[str, Any]) -> str | None:
    """Name of the first check of a suite that rejects what the fixtures hold; None when it lives."""
    for name, check in _checks(suite, fixtures):
        try:
            check()
        except Exception:  # a crash rejects as well as an assertion
            return name
        except pytest.fail.Exception:
            return name
    return None


def _checks(suite: type, fixtures: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], None]]]:
    for name, method in vars(suite).items():
        if not name.startswith("test_"):
            continue
        wanted = method.__code__.co_varnames[1 : method.__code__.co_argcount]
        arguments = {key: fixtures[key] for key in wanted if key in fixtures}
        for values in _parameters(method):
            yield (
                name,
                lambda method=method, values=values, arguments=arguments: method(suite(), **arguments, **values),
            )


def _parameters(method: Any) -> Iterator[dict[str, Any]]:
    tables = []
    for mark in getattr(method, "pytestmark", ()):
        names = mark.args[0] if not isinstance(mark.args[0], str) else mark.args[0].split(",")
        rows = [row if len(names) > 1 else (row,) for row in mark.args[1]]
        tables.append([dict(zip(names, row, strict=True)) for row in rows])
    for combination in itertools.product(*tables):
        yield {key: value for row in combination for key, value in row.items()}


def _killer_of_index(suite: type, make: Callable[[], Any], reopen: Callable[[Any], Any]) -> str | None:
    bound = type("Bound", (suite,), {"make_index": lambda _: make(), "reopen": lambda _, index: reopen(index)})
    failed = [name for name, outcome in outcomes(bound()).items() if outcome != OK]
    return failed[0] if failed else None


def keyword_index(make: Callable[[], Any], reopen: Callable[[Any], Any] = lambda index: index) -> str | None:
    return _killer_of_index(KeywordIndexConformance, make, reopen)


def vector_index(make: Callable[[], Any], reopen: Callable[[Any], Any] = lambda index: index) -> str | None:
    return _killer_of_index(VectorIndexConformance, make, reopen)


def analyzer(make: Callable[[], Any]) -> str | None:
    return killer_of_form(AnalyzerContract, {"make": make})


def filter_form(compiled: Callable[[object], set[int]]) -> str | None:
    return killer_of_form(FilterContract, {"compiled": compiled})


def fusion_rule(rule: Any, oracle: Any) -> str | None:
    return killer_of_form(FusionContract, {"rule": rule, "oracle": oracle})


def connector(source: Callable[..., Any]) -> str | None:
    folder = fresh_folder()
    try:
        return killer_of_form(ConnectorContract, _Fresh(source, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Fresh(dict[str, Any]):
    """Fixtures of the connector suite: a store of its own for every check."""

    def __init__(self, source: Any, folder: Any) -> None:
        super().__init__(source=source, indexer=None)
        self._folder, self._count = folder, 0

    def __getitem__(self, key: str) -> Any:
        if key != "indexer":
            return super().__getitem__(key)
        self._count += 1
        return DualIndexer(self._folder / str(self._count), HashingEmbeddings(8), chroma="auto")


def engine(patched: Callable[[], AbstractContextManager[Any]], **options: Any) -> str | None:
    """Let the engine live the scenario with a fault built in; the model knows nothing of the fault.

    Only an observation kills, or an error the engine raises on purpose: a fault that does not fit the engine any more
    shall not pass for one that was noticed.
    """
    world = World(twins=False, **options)
    try:
        with patched():
            live(world)
    except (AssertionError, AgentRagError, pytest.fail.Exception) as error:
        return _place(error)
    finally:
        world.close()
    return None


_PLACES = ("refuse_empty_agent", "assert_isolated", "assert_consistent")
_WORLD = ("search", "put", "delete", "forget", "read", "get", "stats", "verify", "reopen")


def _place(error: BaseException) -> str:
    """The observation that noticed it."""
    names = []
    trace = error.__traceback__
    while trace is not None:
        names.append((trace.tb_frame.f_code.co_filename.rpartition("/")[2], trace.tb_frame.f_code.co_name))
        trace = trace.tb_next
    for file, name in names:
        if name in _PLACES or (file == "world.py" and name in _WORLD):
            return name
    return names[-1][1]
