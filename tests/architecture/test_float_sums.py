"""No module adds floats with `sum`; `tests/float_sums.py` checks it while all other tests run."""

from __future__ import annotations

import builtins

import pytest

from tests.float_sums import checked_sum


def add_up_in(module: str, values: list[float]) -> float:
    return eval("sum(values)", {"__name__": module, "values": values})


def test_every_test_runs_with_the_check():
    assert builtins.sum is checked_sum


@pytest.mark.parametrize("values", [[0.1, 0.2], [1, 0.5], [0.0]])
def test_floats_added_by_the_package_are_an_error(values):
    with pytest.raises(AssertionError, match=r"langchain_agentrag\.search\.bm25, line 1"):
        add_up_in("langchain_agentrag.search.bm25", values)


def test_integers_and_other_packages_are_left_alone():
    assert add_up_in("langchain_agentrag.search.bm25", [1, 2]) == 3
    assert add_up_in("langchain_agentrag.search.bm25", []) == 0
    assert add_up_in("langchain_core.tools", [0.5, 0.5]) == 1.0
    assert sum([1, 2], start=3) == 6
