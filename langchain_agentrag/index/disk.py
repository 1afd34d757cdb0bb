"""What a store takes on disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def bytes_of(folder: Path) -> int:
    """Size of a folder's files; those that a writer removes meanwhile do not count."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).stat().st_size
    return total
