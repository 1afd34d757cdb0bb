"""What a store takes on disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from langchain_agentrag.errors import NotAStoreError, StoreError


def bytes_of(folder: Path) -> int:
    """Size of a folder's files; those that a writer removes meanwhile do not count."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(place) / name).stat().st_size
    return total


def prepare_folder(folder: Path) -> None:
    """Make a store's folder unless it is there.

    Raises:
        NotAStoreError: it holds something else.
        StoreError: it cannot be made.
    """
    if folder.exists() and not folder.is_dir():
        raise NotAStoreError(
            f"{folder} is a file, not a folder. Pass the folder of a store, or a new folder."
        )
    if folder.is_dir() and not (folder / "catalog.sqlite").exists() and any(folder.iterdir()):
        raise NotAStoreError(
            f"{folder} holds files but no catalog.sqlite, so it is not a store. Pass a new or empty folder."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"Cannot make the store folder {folder}: {error}. Pass a folder that can be written."
        ) from error
