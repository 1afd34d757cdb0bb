"""The errors of the package.

::

    AgentRagError
    ├── UsageError (also ValueError)      the caller asked for something that cannot be
    │   ├── InvalidDocumentError          a document, its id, text or metadata
    │   ├── InvalidQueryError             k, weights, mode, options of a search
    │   ├── FilterError                   a filter that cannot be parsed
    │   ├── TaskEventError                an event that does not fit the state of a task
    │   └── ScopeError                    an agent id that is invalid or reaches too far
    ├── EnvironmentFailure                something around the package is missing or failing
    │   ├── MissingExtraError (also ImportError)   an optional dependency is not installed
    │   ├── EmbeddingError                the embedding model failed or answered nonsense
    │   ├── ConnectorError                a source cannot be reached or listed
    │   └── UnreadableSourceError         one item of a source cannot be read
    └── StoreError                        the folder on disk
        ├── NotAStoreError                the folder holds something else
        ├── StoreMismatchError            another model, analyzer or format than it was built with
        ├── StoreLockedError (also TimeoutError)   another process is writing
        ├── StoreClosedError              used after close(), or in a forked child
        └── RetrievalError                no leg of a search could answer

Every message says what was attempted, the value, the rule and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AgentRagError(Exception):
    """Root of every error the package raises on purpose."""


class UsageError(AgentRagError, ValueError):
    """The caller asked for something that cannot be; nothing was written."""


class InvalidDocumentError(UsageError):
    """A document cannot be stored: its id, text or metadata breaks a rule."""


class InvalidQueryError(UsageError):
    """A search was asked for with impossible options."""


class FilterError(UsageError):
    """A filter cannot be parsed; the message shows the part and the known operators."""


class TaskEventError(UsageError):
    """An event does not fit the state of a task; nothing changed.

    Attributes:
        reason: "other task", "stale", "early", "ended", "impossible" or "other step".
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class ScopeError(UsageError):
    """An agent id is invalid, or an operation would reach beyond its agent."""


class EnvironmentFailure(AgentRagError):  # noqa: N818  (a branch of the tree, never raised itself)
    """Something around the package is missing or failing."""


class MissingExtraError(EnvironmentFailure, ImportError):
    """An optional dependency is not installed.

    Attributes:
        feature: What was attempted, as a noun ("PDF files").
        extra: The extra of this distribution that brings it ("files").
    """

    def __init__(self, feature: str, extra: str) -> None:
        self.feature, self.extra = feature, extra
        super().__init__(
            f"{feature}: an optional dependency is not installed. "
            f'Install it with: pip install "langchain-agentrag[{extra}]"'
        )


class EmbeddingError(EnvironmentFailure):
    """The embedding model failed, or returned the wrong number, shape or values."""


class ConnectorError(EnvironmentFailure):
    """A source cannot be reached or listed at all; nothing was deleted on its account."""


class UnreadableSourceError(EnvironmentFailure):
    """One item of a source cannot be read; reported in the sync report, never fatal."""


class StoreError(AgentRagError):
    """Something is wrong with the folder on disk."""


class NotAStoreError(StoreError):
    """The folder exists but holds something else than a store."""


class StoreMismatchError(StoreError):
    """The store was built with another embedding model, analyzer or format."""


class StoreLockedError(StoreError, TimeoutError):
    """Another process kept the write lock for longer than the time-out."""


class StoreClosedError(StoreError):
    """The store was used after `close()` or inside a forked child process."""


class RetrievalError(StoreError):
    """No leg of a search could answer; the causes are named in the message."""


@contextmanager
def native_errors(what: str, action: str) -> Iterator[None]:
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
