"""What pyproject.toml declares about Pythons and dependencies agrees with itself and with what is installed."""

from __future__ import annotations

import os
import sys
import tomllib
from importlib.metadata import version

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.versions import (
    LOWEST_SWITCH,
    PYPROJECT,
    ROOT,
    declared_pythons,
    find_python,
    installed_extras,
    lower_bound,
    project,
    requirements,
)

INSTALLED = sorted({(str(one), one) for one in requirements(extras=installed_extras())})


@pytest.mark.parametrize("requirement", [one for _, one in INSTALLED], ids=[line for line, _ in INSTALLED])
def test_installed_version_is_within_the_bounds(requirement):
    """On the lowest dependencies it is the lower bound itself: what is declared is what was tested."""
    installed = Version(version(requirement.name))
    assert installed in requirement.specifier
    if os.environ.get(LOWEST_SWITCH):
        assert installed == Version(lower_bound(requirement))


def test_every_requirement_has_a_lower_bound_and_the_same_one_everywhere():
    bounds: dict[str, set[str]] = {}
    for requirement in requirements():
        bounds.setdefault(requirement.name, set()).add(str(requirement.specifier))
        assert Version(lower_bound(requirement))
    assert {name: lines for name, lines in bounds.items() if len(lines) > 1} == {}


def test_extra_all_has_every_extra_that_needs_no_pytorch():
    (line,) = project()["optional-dependencies"]["all"]
    assert line == f"{project()['name']}[{','.join(name for name in installed_extras() if name != 'all')}]"


def test_declared_pythons_agree():
    pythons = declared_pythons()
    tool = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]
    assert pythons == [f"3.{minor}" for minor in range(11, 11 + len(pythons))]
    assert project()["requires-python"] == f">={pythons[0]}"
    assert tool["ruff"]["target-version"] == f"py{pythons[0].replace('.', '')}"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"foreach name,{' '.join(f'python{one}' for one in pythons)} python3," in makefile


def test_this_python_is_declared():
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in declared_pythons()
    assert SpecifierSet(project()["requires-python"]).contains(".".join(map(str, sys.version_info[:3])))


def test_an_interpreter_that_does_not_run_is_none(tmp_path, monkeypatch):
    """The shim of a version that is switched off is found and fails; another version may stand under the name."""
    for content in ("#!/bin/sh\nexit 127\n", "#!/bin/sh\necho 2.7\n"):
        (tmp_path / "python3.99").write_text(content)
        (tmp_path / "python3.99").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        assert find_python("3.99") is None
    assert find_python("3.98") is None
