"""Errors of the native libraries below the legs, as ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_agentrag.errors import StoreError


@contextmanager
def translated(what: str, action: str) -> Iterator[None]:
    """Whatever a native library raises, as a `StoreError` with its cause.

    Args:
        what: Whose index it is, "Chroma" or "The keyword index".
        action: What was attempted, a verb phrase.

    Raises:
        StoreError: anything was raised, be it by the native part.
    """
    try:
        yield
    except (StoreError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a Rust panic arrives as PanicException, which is no Exception
        raise StoreError(
            f"{what} could not {action}: {type(error).__name__}: {error}. "
            "The catalog still holds everything; run repair() to rebuild the index."
        ) from error
