"""Timeout for blocking calls: result, errors, context variables, and process exit while a call goes on."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading

import pytest

from langchain_agentrag.timeouts import CallTimeoutError, run_with_timeout


@pytest.mark.parametrize("timeout", [None, 30])
def test_the_result_and_the_error_come_through(timeout: float | None):
    assert run_with_timeout(timeout, lambda: 7, "t") == 7
    with pytest.raises(ZeroDivisionError):
        run_with_timeout(timeout, lambda: 1 / 0, "t")
    with pytest.raises(TimeoutError, match="own") as caught:
        run_with_timeout(timeout, _raises, "t")
    assert not isinstance(caught.value, CallTimeoutError)


def _raises() -> None:
    raise TimeoutError("its own")


def test_a_late_call_is_not_waited_for():
    gate = threading.Event()
    with pytest.raises(CallTimeoutError, match=r"longer than 0\.01 s"):
        run_with_timeout(0.01, lambda: gate.wait(60), "t")
    gate.set()
    with pytest.raises(CallTimeoutError):
        run_with_timeout(0, lambda: 7, "t")


@pytest.mark.parametrize("timeout", [None, 30])
def test_the_call_sees_the_context_variables_of_the_caller(timeout: float | None):
    agent = contextvars.ContextVar("agent", default="nobody")
    token = agent.set("lina")
    try:
        assert run_with_timeout(timeout, agent.get, "t") == "lina"
    finally:
        agent.reset(token)


@pytest.mark.parametrize(("seconds", "output"), [(1, "finished"), (600, "")])
def test_a_process_ends_and_lets_a_late_call_finish_that_soon_will(seconds: int, output: str):
    code = (
        "import time\nfrom langchain_agentrag import timeouts\ntimeouts.EXIT_GRACE = 3\n"
        f"def call():\n    time.sleep({seconds}); print('finished', flush=True)\n"
        "try:\n    timeouts.run_with_timeout(0.05, call, 't')\nexcept TimeoutError:\n    pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0
    assert done.stdout.strip() == output
