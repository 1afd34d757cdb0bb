"""Run code in a new Python process, in which nothing is imported yet."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    """Run Python code and return what it prints; fails when it fails."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
