"""Each trap of LangChain's retrieval: it catches what people use today, and not this package."""

from __future__ import annotations

import pytest

from tests.langchain.traps import TRAPS, Trap

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # the peers leave databases open


def name_of(trap: Trap) -> str:
    return f"{trap.number} {trap.rule}"


@pytest.mark.parametrize("trap", TRAPS, ids=name_of)
def test_ours_holds(trap: Trap, tmp_path):
    holds, outcome = trap.ours(tmp_path / "ours")
    assert holds, outcome


@pytest.mark.parametrize("trap", [trap for trap in TRAPS if trap.theirs], ids=name_of)
def test_the_trap_is_real(trap: Trap, tmp_path):
    holds, outcome = trap.theirs(tmp_path / "theirs")
    assert not holds, f"{trap.peer} no longer has this fault: take it out of the table ({outcome})"
