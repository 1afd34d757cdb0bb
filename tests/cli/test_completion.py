"""Completion, in the shells themselves: what a user sees after pressing TAB."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home without configuration, and `agentrag` on the path."""
    program = tmp_path / "bin" / "agentrag"
    program.parent.mkdir()
    source = "from langchain_agentrag.cli import main; main()"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{source}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "docs").mkdir()
    return {
        **{name: value for name, value in os.environ.items() if name not in {"COLUMNS", "AGENTRAG_STORE"}},
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "ZDOTDIR": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
        "TERM": "dumb",
    }


def run(command: list[str], environment: dict[str, str], tmp_path: Path) -> str:
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs("bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [("agentrag se", "search"), ("agentrag search --mo", "--mode"), ("agentrag search x --mode v", "vector"),
     ("agentrag completion f", "fish")],
)  # fmt: skip
def test_bash(words: str, expected: str, environment: dict[str, str], tmp_path: Path):
    script = f"""
eval "$(agentrag completion bash)"
complete -p agentrag | grep -q _agentrag_completion || exit 9
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE="{words}"
_agentrag_completion agentrag
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    assert run(["bash", "--norc", "-c", script], environment, tmp_path).split() == [expected]


@needs("fish")
@pytest.mark.parametrize(
    ("words", "expected"),
    [("agentrag se", "search"), ("agentrag search --mo", "--mode"), ("agentrag search x --mode v", "vector"),
     ("agentrag completion z", "zsh")],
)  # fmt: skip
def test_fish(words: str, expected: str, environment: dict[str, str], tmp_path: Path):
    script = f"agentrag completion fish | source; complete -C '{words}'"
    lines = run(["fish", "--no-config", "-c", script], environment, tmp_path).splitlines()
    assert [line.split("\t")[0] for line in lines] == [expected]


# zsh completes in its line editor only: a second zsh on a pseudo-terminal types the words and TAB.
ZSH = """
zmodload zsh/zpty
zpty -b inner 'zsh -f -i'
zpty -w inner 'PS1=READY; autoload -Uz compinit; compinit -u; eval "$(agentrag completion zsh)"; print -r -- STA""RTED'
wait_for() { local shown line; repeat 600 { zpty -rt inner line && shown+=$line; [[ $shown == *$1* ]] && return 0; sleep 0.1 }; print -r -- $shown >&2; return 1 }
wait_for STARTED || exit 1
zpty -w -n inner $'WORDS\\t'
wait_for 'EXPECTED' && print FOUND
zpty -d inner
"""


@needs("zsh")
@pytest.mark.parametrize(
    ("words", "expected"),
    [("agentrag sea", "agentrag search"), ("agentrag search --mo", "--mode"),
     ("agentrag search x --mode v", "--mode vector")],
)  # fmt: skip
def test_zsh(words: str, expected: str, environment: dict[str, str], tmp_path: Path):
    script = ZSH.replace("WORDS", words).replace("EXPECTED", expected)
    assert "FOUND" in run(["zsh", "-f", "-c", script], {**environment, "TERM": "xterm"}, tmp_path)
