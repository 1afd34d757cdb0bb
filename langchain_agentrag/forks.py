"""Locks of the process that a fork leaves usable in the child."""

from __future__ import annotations

import os
import threading


def fork_safe_lock() -> threading.Lock:
    """Return a lock that is free in a forked child.

    A fork copies a lock that another thread holds, but not the thread that would release it. So a fork waits until the
    lock is free. For locks that are held for a moment, and never around a fork.
    """
    lock = threading.Lock()
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
