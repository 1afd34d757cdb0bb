"""Gives up the free pages of a SQLite database, with what deleted rows left in them. Also a script, see `vacuumed`.

Nothing but the standard library is imported here: the script runs in an interpreter without site packages.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

_BUSY_SECONDS = 10.0


def vacuumed(path: Path) -> set[str]:
    """Ids of the segments of a Chroma database, after it was vacuumed by a process of its own.

    SQLite's file locks do not hold between two SQLite libraries of one process, and Chroma brings its own. A search
    that is under way in any handle on the database would read pages while they move, and find it malformed.

    Raises:
        OSError: the database is in use or unreadable.
    """
    if not sys.executable or getattr(sys, "frozen", False):  # there is no interpreter to start
        return set(_vacuum(path))
    command = [sys.executable, "-I", "-S", __file__, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own script
    if done.returncode:
        raise OSError(done.stderr.strip().rpartition("\n")[2])
    return set(done.stdout.split())


def _vacuum(path: str | Path) -> list[str]:
    with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as connection:
        segments = [str(segment) for (segment,) in connection.execute("SELECT id FROM segments")]
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("VACUUM")
    return segments


if __name__ == "__main__":
    sys.stdout.write("\n".join(_vacuum(sys.argv[1])))
