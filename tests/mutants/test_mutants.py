"""Every mutant is killed; the same harness kills nothing that is sound."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from tests.mutants import suites
from tests.mutants.engines import ON_CHROMA, all_faults
from tests.mutants.forms import all_forms, unharmed

MUTANTS = {**all_forms(), **all_faults()}


@pytest.mark.parametrize("mutant", MUTANTS, ids=" - ".join)
def test_a_wrong_implementation_does_not_survive(mutant):
    assert MUTANTS[mutant]() is not None, "no check of the suite noticed"


@pytest.mark.parametrize("protocol", unharmed())
def test_a_right_implementation_survives(protocol):
    assert unharmed()[protocol]() is None


@pytest.mark.parametrize("options", [{}, ON_CHROMA], ids=["exact", "hnsw"])
def test_the_engine_survives_unharmed(options):
    assert suites.engine(nullcontext, **options) is None


def test_there_are_enough_of_them():
    assert len(MUTANTS) >= 25
