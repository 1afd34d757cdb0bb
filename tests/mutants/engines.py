"""Every fault of the engine, and what tries to kill it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.mutants import faults_of_indexes, faults_of_quarantine, faults_of_scope, faults_of_time, suites
from tests.mutants.faults import FAULTS, ON_CHROMA

__all__ = ["ON_CHROMA", "all_faults", "faults_of_indexes", "faults_of_quarantine", "faults_of_scope", "faults_of_time"]


def all_faults() -> dict[tuple[str, str], Callable[[], str | None]]:
    """("engine", fault) -> what tries to kill it."""
    return {("engine", title): partial(suites.engine, make, **options) for title, (make, options) in FAULTS.items()}
