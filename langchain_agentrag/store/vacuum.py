"""VACUUM of Chroma's SQLite database, which overwrites deleted rows. Also a script, see `vacuum_segments`.

Imports the standard library only: the script runs in an interpreter without site packages.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

_BUSY_SECONDS = 10.0


def vacuum_segments(path: Path) -> set[str]:
    """Vacuum a Chroma database in a process of its own and return the ids of its segments.

    SQLite's file locks do not work between two SQLite libraries of one process, and Chroma brings its own: a search
    running in this process would read pages while they move, and report a malformed database.

    Raises:
        OSError: The database is in use or unreadable.
    """
    if not sys.executable or getattr(sys, "frozen", False):  # there is no interpreter to start
        return set(_vacuum(path))
    command = [sys.executable, "-I", "-S", __file__, str(path)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  (our own script)
    if completed.returncode:
        raise OSError(completed.stderr.strip().rpartition("\n")[2])
    return set(completed.stdout.split())


def _vacuum(path: str | Path) -> list[str]:
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        segments = [str(segment) for (segment,) in connection.execute("SELECT id FROM segments")]
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("VACUUM")
    return segments


if __name__ == "__main__":
    sys.stdout.write("\n".join(_vacuum(sys.argv[1])))
