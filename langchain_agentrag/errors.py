"""Exceptions of the package, and the translation of native libraries' exceptions.

::

    AgentRagError
    ├── UsageError (also ValueError)      invalid arguments of the caller
    │   ├── InvalidDocumentError          a document, its id, text or metadata
    │   ├── InvalidQueryError             k, weights, mode, options of a search
    │   ├── FilterError                   a filter that cannot be parsed
    │   ├── TaskEventError                an event that is invalid in the state of a task
    │   └── ScopeError                    an invalid agent id, or access beyond the agent
    ├── EnvironmentFailure                something around the package is missing or failing
    │   ├── MissingExtraError (also ImportError)   an optional dependency is not installed
    │   ├── EmbeddingError                the embedding model failed or returned invalid vectors
    │   ├── ConnectorError                a source cannot be reached or listed
    │   └── UnreadableSourceError         one item of a source cannot be read
    └── StoreError                        the folder on disk
        ├── NotAStoreError                the folder is not a store
        ├── StoreMismatchError            built with another model, analyzer or format
        ├── StoreLockedError (also TimeoutError)   another process is writing
        ├── StoreClosedError              used after close()
        │   └── ForkedProcessError        used in a forked child of the process that opened it
        └── RetrievalError                no index of a search could answer

Every message says what was attempted, the value, the rule and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class AgentRagError(Exception):
    """Base class of all exceptions that the package raises."""


class UsageError(AgentRagError, ValueError):
    """Invalid arguments of the caller; nothing was written."""


class InvalidDocumentError(UsageError):
    """A document cannot be stored: its id, text or metadata breaks a rule."""


class InvalidQueryError(UsageError):
    """Invalid options of a search."""


class FilterError(UsageError):
    """A filter cannot be parsed; the message shows the part and the known operators."""


class TaskEventError(UsageError):
    """An event is invalid in the state of a task; nothing changed.

    Attributes:
        reason: "other task", "stale", "early", "ended", "impossible" or "other step".
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class ScopeError(UsageError):
    """An agent id is invalid, or an operation would access data beyond its agent."""


class EnvironmentFailure(AgentRagError):  # noqa: N818  (a base class, never raised itself)
    """Something around the package is missing or failing."""


class MissingExtraError(EnvironmentFailure, ImportError):
    """An optional dependency is not installed.

    Attributes:
        feature: What was attempted, as a noun ("PDF files").
        extra: The extra of this distribution that installs it ("files").
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
    """A source cannot be reached or listed at all; none of its documents were deleted."""


class UnreadableSourceError(EnvironmentFailure):
    """One item of a source cannot be read; reported in the sync report, never fatal."""


class StoreError(AgentRagError):
    """The store's folder cannot be used, or an operation on it failed."""


class NotAStoreError(StoreError):
    """The folder exists but is not a store."""


class StoreMismatchError(StoreError):
    """The store was built with another embedding model, analyzer or format."""


class StoreLockedError(StoreError, TimeoutError):
    """Another process held the write lock for longer than the timeout."""


class StoreClosedError(StoreError):
    """The store was used after `close()`, or while it was being closed."""


class ForkedProcessError(StoreClosedError):
    """A forked child used the store of its parent, or Chroma after its parent had used it."""


class RetrievalError(StoreError):
    """No index of a search could answer; the message contains the causes."""


@contextmanager
def native_errors(component: str, action: str) -> Iterator[None]:
    """Raise everything that a native library raises as a `StoreError` with its cause.

    Args:
        component: "Chroma" or "The keyword index".
        action: What was attempted, a verb phrase.

    Raises:
        StoreError: anything was raised, also by native code.
    """
    try:
        yield
    except (StoreError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a Rust panic is a PanicException, which is not an Exception
        raise StoreError(
            f"{component} could not {action}: {type(error).__name__}: {error}. "
            "The catalog still holds everything; run repair() to rebuild the index."
        ) from error
