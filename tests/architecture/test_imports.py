"""Every module can be imported without a warning, also with Python's optimisations."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "langchain_agentrag"

# Warnings are errors where our code causes them; those of libraries about themselves are not ours to avoid.
IMPORT_ALL = """
import importlib, pkgutil, warnings
warnings.filterwarnings("error", module="langchain_agentrag")
import langchain_agentrag
for module in pkgutil.walk_packages(langchain_agentrag.__path__, "langchain_agentrag."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except Exception as error:
            print(f"{module.name}: {error!r}")
"""


@pytest.mark.parametrize("flags", [(), ("-O",), ("-OO",)], ids=" ".join)
def test_every_module_is_imported_without_a_warning(flags: tuple[str, ...]):
    command = [sys.executable, *flags, "-c", IMPORT_ALL]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_no_source_compiles_with_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in PACKAGE.rglob("*.py"):
            compile(path.read_text(encoding="utf-8"), str(path), "exec")
