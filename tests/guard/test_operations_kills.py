"""A short profile of the kills; `python -m tests.guard.operations_kills --kills 200` is the long one."""

from __future__ import annotations

import pytest

from tests.guard.operations_kills import run


def test_no_call_is_made_twice_when_processes_are_killed(tmp_path):
    tally = run(10, seed=5, folder=tmp_path)
    assert tally.faults == []
    assert sum(tally.kills.values()) >= 10
    assert len(tally.kills) >= 3, "the kills hit too few places to show anything"
    assert tally.acknowledged


def test_the_count_of_the_kills_can_fail(tmp_path):
    tally = run(40, seed=5, broken=True, folder=tmp_path)
    assert any("took effect 2 times" in fault for fault in tally.faults)


@pytest.mark.slow
def test_no_call_is_made_twice_in_many_kills(tmp_path):
    tally = run(200, seed=1, folder=tmp_path)
    assert tally.faults == []
    assert len(tally.kills) == 9
