"""Forked processes: what a child inherits of an open store, and whether it can use Chroma.

A child has none of its parent's threads. Locks that they held are never released, and pools wait for them for ever.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from langchain_agentrag.errors import ForkedProcessError


def inherited_store_error(folder: Path, parent: int) -> ForkedProcessError:
    """Return the error for a store that was opened by the parent of this process."""
    return ForkedProcessError(
        f"The store {folder} was opened by process {parent} and used in its forked child {os.getpid()}: open it again "
        "in the child, after the fork (database handles do not survive a fork)."
    )


# -- handles --------------------------------------------------------------------------------------------------------

_open_stores: weakref.WeakSet[Any] = weakref.WeakSet()


def keep_in_children(store: object) -> None:
    """Have a store kept for ever in forked children.

    Destroying it there would close SQLite connections, which changes the memory they share with the parent's, and end
    Chroma's runtime, which waits for threads that do not exist.
    """
    _open_stores.add(store)


def keep_for_ever(inherited: object) -> None:
    """Never destroy an object, not even when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


# -- Chroma ---------------------------------------------------------------------------------------------------------

_PROBE_SECONDS, _PROBE_ROWS = 5.0, 64

_chroma_used = False  # by this package, in this process or a parent: that may have started Chroma's pool of threads
_chroma_usable: bool | None = True  # None in a forked child until it was tried
_chroma_guard = threading.Lock()  # replaced in a child: the parent may hold it while it tries Chroma


def note_chroma_used() -> None:
    """Record that this process uses Chroma: children forked from now on cannot."""
    global _chroma_used  # noqa: PLW0603  (a property of the process)
    _chroma_used = True


def check_chroma_usable() -> None:
    """Check that Chroma would not wait for threads that only the parent process has.

    Chroma fills its graphs with a pool of threads (rayon's) that the first use starts and nothing restarts. Whether the
    parent has used Chroma beside this package is not known, so a child tries it once with a graph of its own.

    Raises:
        ForkedProcessError: It would wait for ever.
    """
    global _chroma_usable  # noqa: PLW0603
    if _chroma_usable is None:
        with _chroma_guard:
            if _chroma_usable is None:
                _chroma_usable = _try_chroma()
    if not _chroma_usable:
        raise ForkedProcessError(
            f"Chroma cannot be used in process {os.getpid()}: it was forked from a process that had used Chroma, whose "
            "threads a fork does not copy: the call would never return. Searches go on with an exact scan; to write, "
            "start the workers with spawn or forkserver, run gunicorn without --preload, or use the store in the "
            "parent only after the workers were forked."
        )


def _try_chroma() -> bool:
    """Whether a graph can be filled, in a child of this process: where it cannot, Chroma keeps the GIL for ever."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork of several threads: it ends or is killed
            process = os.fork()
        if not process:
            try:
                _fill_graph(folder)
                os._exit(0)
            finally:
                os._exit(1)
        deadline = time.monotonic() + _PROBE_SECONDS
        while time.monotonic() < deadline:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return status == 0
            time.sleep(0.02)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return False


def _fill_graph(folder: str) -> None:
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
    collection = client.create_collection("probe", embedding_function=None)
    collection.add(ids=[str(n) for n in range(_PROBE_ROWS)], embeddings=np.eye(_PROBE_ROWS, dtype=np.float32))
    collection.count()


def _release_writer_locks(folder: Path) -> None:
    """Close the copies of tantivy's lock files, which would keep an index locked that the parent is writing to.

    Where the system does not list open files, the parent rebuilds that index once.
    """
    for entry in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):
            path = entry.readlink()
            if path.name == ".tantivy-writer.lock" and folder in path.parents:
                os.close(int(entry.name))


def _after_fork_in_child() -> None:
    global _chroma_usable, _chroma_guard  # noqa: PLW0603
    for store in list(_open_stores):
        keep_for_ever(store)
        _release_writer_locks(store.folder)
    _chroma_guard = threading.Lock()
    if _chroma_used:
        _chroma_usable = False
    elif _chroma_usable and "chromadb_rust_bindings" in sys.modules:
        _chroma_usable = None


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork_in_child)
