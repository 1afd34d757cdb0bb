"""Run the tests on every declared Python and on the lowest dependencies: `python -m tests.versions [NAME …]`.

The environment `lowest` is the lowest declared Python with every dependency at its lower bound. `3.12`, `3.13` and so on
are the other declared Pythons with the newest dependencies; what runs this has them already. Each environment imports
every module and runs the unit tests, the standard suites and the documents' examples, without those of the store's files. A
Python that is not on the machine is skipped with a line.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PYPROJECT = ROOT / "pyproject.toml"
LOWEST = "lowest"
LOWEST_SWITCH = "AGENTRAG_LOWEST"
"""Environment variable that is set while tests run on the lowest dependencies."""

NOT_INSTALLED = ("rerank", "sentence-transformers")  # extras that need PyTorch; no test needs them
TESTS = (
    "tests/architecture/test_imports.py",
    "tests/architecture/test_versions.py",
    "tests/docs/test_documents.py",
    *(
        f"tests/{folder}"
        for folder in ("agent", "connectors", "embedding", "guard", "ingest", "langchain", "langgraph")
    ),
    *(f"tests/{folder}" for folder in ("llama_index", "query", "search", "standard", "text")),
)


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    return tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]


def declared_pythons() -> list[str]:
    """Versions of Python named by the classifiers, lowest first: ["3.11", …]."""
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project()["classifiers"]))
    return sorted(named, key=lambda version: int(version.partition(".")[2]))


def requirements(*, extras: Sequence[str] | None = None) -> Iterator[Requirement]:
    """What the package and its extras require of others; `extras` limits it to those."""
    table = project()
    chosen = (
        table["optional-dependencies"]
        if extras is None
        else {name: table["optional-dependencies"][name] for name in extras}
    )
    for line in [*table["dependencies"], *(line for lines in chosen.values() for line in lines)]:
        requirement = Requirement(line)
        if requirement.name != table["name"]:
            yield requirement


def installed_extras() -> list[str]:
    """The extras that the environments have."""
    return [name for name in project()["optional-dependencies"] if name not in NOT_INSTALLED]


def lower_bound(requirement: Requirement) -> str:
    """The version after `>=`."""
    return next(part.version for part in requirement.specifier if part.operator == ">=")


def say(line: str) -> None:
    sys.stdout.write(f"versions: {line}\n")
    sys.stdout.flush()


def prepare(name: str, interpreter: str) -> Path:
    """Create the virtual environment if pyproject.toml changed since, and return its Python."""
    folder = Path(sys.prefix, "versions", name)
    python, stamp = folder / "bin" / "python", folder / "installed"
    digest = hashlib.sha256(PYPROJECT.read_bytes() + interpreter.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return python
    subprocess.run([interpreter, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--prefer-binary"]
    subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True)
    constraints = folder / "constraints.txt"
    pinned = requirements(extras=installed_extras()) if name == LOWEST else ()
    lines = {f"{requirement.name}=={lower_bound(requirement)}\n" for requirement in pinned}
    constraints.write_text("".join(sorted(lines)), encoding="utf-8")
    command = [*pip, "--constraint", str(constraints), "--editable", ".[all]", "--group", "test"]
    subprocess.run(command, check=True, cwd=ROOT)
    stamp.write_text(digest, encoding="utf-8")
    return python


def run_tests(name: str, python: Path) -> bool:
    """Run the tests in an environment; whether they pass."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5", *TESTS]
    environment = {key: value for key, value in os.environ.items() if key != LOWEST_SWITCH}
    environment.setdefault("HYPOTHESIS_PROFILE", "few")
    if name == LOWEST:
        command += ["-W", "ignore::DeprecationWarning"]  # old releases next to new ones
        environment[LOWEST_SWITCH] = "1"
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0


def find_python(version: str) -> str | None:
    """The interpreter of a version; None without one. The shim of a version that is switched off does not run."""
    path = shutil.which(f"python{version}")
    if path is None:
        return None
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if answer.returncode == 0 and answer.stdout.strip() == version else None


def outcome(name: str) -> str:
    """Prepare an environment and run its tests; "passed", "FAILED" or "skipped: …"."""
    version = declared_pythons()[0] if name == LOWEST else name
    interpreter = find_python(version)
    if interpreter is None:
        return f"skipped: no python{version} runs on this machine"
    say(f"{name} with {interpreter}")
    start = time.monotonic()
    try:
        passed = run_tests(name, prepare(name, interpreter))
    except subprocess.CalledProcessError as error:
        return f"FAILED to install: {error}"
    return f"{'passed' if passed else 'FAILED'} in {time.monotonic() - start:.0f} s"


def main(names: Sequence[str]) -> int:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    known = [LOWEST, *(version for version in declared_pythons() if version != here)]
    if unknown := [name for name in names if name not in known]:
        say(f"unknown environment {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    outcomes = {name: outcome(name) for name in names or known}
    for name, line in outcomes.items():
        say(f"{name} {line}")
    return int(any(line.startswith("FAILED") for line in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
