"""Work within a time: its answer, its errors, and a process that ends whatever the work does."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from langchain_agentrag.timeouts import run_with_timeout


@pytest.mark.parametrize("timeout", [None, 30])
def test_the_answer_and_the_error_come_through(timeout: float | None):
    assert run_with_timeout(timeout, lambda: 7, "t") == 7
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(timeout, lambda: 1 / 0, "t")
    with pytest.raises(TimeoutError, match="own"):
        run_with_timeout(timeout, _raises, "t")


def _raises() -> None:
    raise TimeoutError("its own")


def test_late_work_is_not_waited_for():
    gate = threading.Event()
    with pytest.raises(TimeoutError):
        run_with_timeout(0.01, lambda: gate.wait(60), "t")
    gate.set()
    with pytest.raises(TimeoutError):
        run_with_timeout(0, lambda: 7, "t")


@pytest.mark.parametrize(("seconds", "said"), [(1, "finished"), (600, "")])
def test_a_process_ends_and_lets_work_finish_that_soon_will(seconds: int, said: str):
    code = (
        "import time\nfrom langchain_agentrag import timeouts\ntimeouts.GRACE = 3\n"
        f"def work():\n    time.sleep({seconds}); print('finished', flush=True)\n"
        "try:\n    timeouts.within(0.05, work, 't')\nexcept TimeoutError:\n    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0
    assert done.stdout.strip() == said
