"""Operation log: the records of calls with side effects in one SQLite file."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.errors import NotAStoreError, StoreError, StoreLockedError, UsageError
from langchain_agentrag.store.failpoints import failpoint

State = Literal["in_flight", "done", "needs_reconcile", "not_done"]
"""`in_flight`: begun; `done`: happened, result recorded; `needs_reconcile`: unknown; `not_done`: may run again."""

FAILPOINTS = (
    "operation-unrecorded",
    "operation-recording",
    "operation-recorded",
    "operation-executed",
    "operation-settling",
    "operation-settled",
)
"""Points at which a test may kill the process (`store/failpoints.py`), in the order a call reaches them."""

PROCESS_DIED = "the process that executed it died"

_running_attempts: set[str] = set()
"""Attempts of this process. Their names are random, so another process with the same pid has none of them."""

_COLUMNS = (
    "operation_id, principal, tool, arguments, scope, risk, state, result, error, note, attempt, attempts, "
    "host, pid, started, changed"
)
_UNRESOLVED = "state IN ('in_flight', 'needs_reconcile')"
_UNRESOLVED_STATES = frozenset({"in_flight", "needs_reconcile"})
_APPLICATION_ID = 0x41524F50  # "AROP", in the header of the file
_FORMAT = 1
_BUSY_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE operations(
    principal TEXT NOT NULL, operation_id TEXT NOT NULL,
    tool TEXT NOT NULL, arguments TEXT NOT NULL, scope TEXT NOT NULL, risk TEXT NOT NULL,
    state TEXT NOT NULL, result TEXT, error TEXT NOT NULL DEFAULT '', note TEXT NOT NULL DEFAULT '',
    attempt TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 1,   -- attempt: random, names one execution
    host TEXT NOT NULL, pid INTEGER NOT NULL,                     -- of the process that executes it; 0: none does
    started REAL NOT NULL, changed REAL NOT NULL,                 -- seconds since 1970
    PRIMARY KEY(principal, operation_id)
) WITHOUT ROWID;
CREATE INDEX unsettled ON operations(principal, started) WHERE state IN ('in_flight', 'needs_reconcile');
"""


@dataclass(frozen=True, slots=True)
class Operation:
    """Record of an operation.

    Attributes:
        operation_id: Its id, unique among those of its agent.
        principal: The agent on whose behalf it was called.
        tool: Name of the tool.
        arguments: Arguments as the tool got them, with defaults.
        scope: The task it belongs to.
        risk: Risk level it was begun with.
        state: See `State`.
        result: Result of the tool, or the one passed to `reconcile`; JSON.
        error: Why the outcome is unknown; "" otherwise.
        note: Note passed to `reconcile`.
        attempts: How often it was begun.
        started: When the last attempt began, in UTC.
        changed: When the record last changed, in UTC.
        executing: Whether it may still be running: its process lives.
    """

    operation_id: str
    principal: str
    tool: str
    arguments: dict[str, Any]
    scope: str
    risk: str
    state: State
    result: Any
    error: str
    note: str
    attempts: int
    started: datetime
    changed: datetime
    executing: bool


@dataclass(frozen=True, slots=True)
class OperationKey:
    """Identity of an operation, as it is recorded; `arguments` is canonical JSON with defaults."""

    principal: str
    operation_id: str
    tool: str
    arguments: str
    scope: str
    risk: str

    def check_matches(self, operation: Operation) -> None:
        """Check that the record under this id is of the same call.

        Raises:
            UsageError: it is of another tool, other arguments or another scope.
        """
        recorded = (operation.tool, canonical(operation.arguments), operation.scope)
        if (self.tool, self.arguments, self.scope) != recorded:
            raise UsageError(
                f"The operation id {self.operation_id!r} belongs to a call of {operation.tool!r} with other arguments "
                "or in another scope: an id stands for one operation. Nothing was done."
            )


def operation_from_row(row: Any) -> Operation:  # noqa: ANN401
    """Return the record of a row; one in flight whose process died is `needs_reconcile`."""
    executing = _may_be_executing(row)
    died = row["state"] == "in_flight" and not executing
    return Operation(
        **{name: row[name] for name in ("operation_id", "principal", "tool", "scope", "risk", "note", "attempts")},
        state="needs_reconcile" if died else row["state"],
        arguments=json.loads(row["arguments"]),
        result=None if row["result"] is None else json.loads(row["result"]),
        error=PROCESS_DIED if died else row["error"],
        started=datetime.fromtimestamp(row["started"], UTC),
        changed=datetime.fromtimestamp(row["changed"], UTC),
        executing=executing,
    )


def _may_be_executing(row: Any) -> bool:  # noqa: ANN401
    """Return whether a call may still be running; False only when it certainly is not."""
    if row["state"] not in _UNRESOLVED_STATES or row["pid"] == 0:
        return False
    if row["attempt"] in _running_attempts or row["host"] != socket.gethostname():
        return True
    return row["pid"] != os.getpid() and _process_exists(row["pid"])


def _process_exists(pid: int) -> bool:
    if os.name == "nt":  # os.kill could end the process there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


class OperationLog:
    """Records of all agents in one SQLite file, for any number of threads and processes.

    Raises:
        NotAStoreError: the file is something else.
        StoreError: it was written by a newer version, or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._connection: sqlite3.Connection | None = None
        with self._connected():
            pass

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def find(self, principal: str, operation_id: str) -> Operation | None:
        """Return a record of an agent, or None."""
        dead_attempt = ""
        while True:
            with self._connected() as connection:
                row = _select(connection, principal, operation_id)
            operation = None if row is None else operation_from_row(row)
            # The process may have ended, and its outcome been recorded, after the row was read and before the process
            # was looked up. A row that is read again after that is final.
            if operation is None or operation.error != PROCESS_DIED or row["attempt"] == dead_attempt:
                return operation
            dead_attempt = row["attempt"]

    def unresolved(self, principal: str) -> list[Operation]:
        """Return an agent's records whose outcome is unknown or that are being executed, oldest first."""
        with self._connected() as connection:
            rows = connection.execute(
                f"SELECT operation_id FROM operations WHERE principal = ? AND {_UNRESOLVED} "
                "ORDER BY started, operation_id",
                (principal,),
            ).fetchall()
        operations = (self.find(principal, row["operation_id"]) for row in rows)
        return [one for one in operations if one is not None and one.state in _UNRESOLVED_STATES]

    def begin(self, key: OperationKey, *, durable: bool) -> str | Operation:
        """Record an operation as begun.

        Args:
            key: The operation.
            durable: Whether the record also has to survive a power failure (a disk flush, milliseconds).

        Returns:
            The name of an attempt that may now be executed, or the existing record that forbids it.

        Raises:
            UsageError: the id belongs to another operation of this agent.
        """
        attempt = uuid.uuid4().hex
        failpoint("operation-unrecorded")
        _running_attempts.add(attempt)
        try:
            with self._transaction(durable=durable) as connection:
                existing = _insert_or_restart(connection, key, attempt)
                failpoint("operation-recording")
        except BaseException:
            self.end_attempt(attempt)
            raise
        if existing is not None:
            self.end_attempt(attempt)
            return existing
        failpoint("operation-recorded")
        return attempt

    def record_outcome(
        self,
        key: OperationKey,
        attempt: str,
        state: State,
        *,
        result: str | None = None,
        error: str = "",
        running: bool = False,
    ) -> bool:
        """Record the outcome of an attempt; False when it was reconciled or forgotten meanwhile.

        The outcome of an attempt that ends after its timeout is accepted; after `reconcile` none is.

        Args:
            key: The operation.
            attempt: What `begin` returned.
            state: Its outcome.
            result: JSON text of the result.
            error: Why the outcome is unknown.
            running: Whether the attempt goes on: its timeout was reached, but it cannot be stopped.
        """
        failpoint("operation-executed")
        with self._transaction(durable=False) as connection:
            changed = connection.execute(
                "UPDATE operations SET state = ?, result = ?, error = ?, pid = iif(?, pid, 0), changed = ? WHERE "
                f"principal = ? AND operation_id = ? AND attempt = ? AND {_UNRESOLVED}",
                (state, result, error, running, time.time(), key.principal, key.operation_id, attempt),
            ).rowcount
            failpoint("operation-settling")
        failpoint("operation-settled")
        return bool(changed)

    @staticmethod
    def end_attempt(attempt: str) -> None:
        """Note that this process no longer executes an attempt."""
        _running_attempts.discard(attempt)

    def reconcile(
        self,
        principal: str,
        operation_id: str,
        state: State,
        *,
        result: str | None,
        note: str,
        attempts: int | None,
        force: bool,
    ) -> Operation:
        """Record what really happened to an operation of unknown outcome.

        Raises:
            UsageError: the agent has no such record, its outcome is known, it may still be executing, or it was begun
                again since `attempts`.
        """
        with self._transaction(durable=True) as connection:
            row = _select(connection, principal, operation_id)
            if row is None:
                raise UsageError(f"There is no operation {operation_id!r} of this agent to reconcile.")
            operation = operation_from_row(row)
            if operation.state not in _UNRESOLVED_STATES:
                raise UsageError(
                    f"The operation {operation_id!r} is {operation.state}: only one whose outcome is unknown is "
                    "reconciled."
                )
            if attempts not in {None, operation.attempts}:
                raise UsageError(
                    f"The operation {operation_id!r} was begun again (attempt {operation.attempts}) after you looked "
                    f"at attempt {attempts}: look again."
                )
            if operation.executing and not force:
                raise UsageError(
                    f"The operation {operation_id!r} may still be executed by process {row['pid']} on {row['host']}: "
                    "wait for it, or pass executing=True when you know that it is not."
                )
            # With a new attempt name, the outcome of the old attempt is no longer accepted.
            attempt = row["attempt"] if state == "needs_reconcile" else uuid.uuid4().hex
            connection.execute(
                "UPDATE operations SET state = ?, result = ?, note = ?, attempt = ?, changed = ? WHERE principal = ? "
                "AND operation_id = ?",
                (state, result, note, attempt, time.time(), principal, operation_id),
            )
            changed = _select(connection, principal, operation_id)
        return operation_from_row(changed)

    def forget(self, principal: str, before: float | None, *, unresolved: bool) -> int:
        """Delete an agent's records, bytes included, and return their number."""
        with self._transaction(durable=True) as connection:
            deleted = connection.execute(
                "DELETE FROM operations WHERE principal = ? AND (? IS NULL OR changed < ?) AND (? OR NOT "
                f"{_UNRESOLVED})",
                (principal, before, before, unresolved),
            ).rowcount
        with self._connected() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return deleted

    # -- the connection ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """Write transaction; no other writer gets in between."""
        with self._connected() as connection:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if self._pid != os.getpid():  # a forked child must not use its parent's lock and connection
            self._lock, self._pid, self._connection = threading.RLock(), os.getpid(), None
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                yield self._connection
            except sqlite3.OperationalError as error:
                kind = StoreLockedError if "locked" in str(error) else StoreError
                raise kind(f"The operations in {self._path} could not be used: {error}.") from error
            except sqlite3.DatabaseError as error:
                raise NotAStoreError(f"{self._path} is no file of operations: {error}.") from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        try:
            self._check_format(connection)  # before anything is changed in it
            connection.execute("PRAGMA secure_delete=ON")
            _enable_wal(connection)
            connection.execute("BEGIN IMMEDIATE")
            if self._check_format(connection):
                for statement in _SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {_FORMAT}")
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_format(self, connection: sqlite3.Connection) -> bool:
        """Return whether the file is still empty; raise when it is something else."""
        # the tables first: another process that creates them now sets the ids in the same transaction
        if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            return True
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION_ID:
            raise NotAStoreError(f"{self._path} is a database of something else: name another file.")
        if version > _FORMAT:
            raise StoreError(
                f"{self._path} was written by a newer version (format {version}, known {_FORMAT}): update the package."
            )
        return False


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; SQLite does not wait by itself while another process does the same."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _select(connection: sqlite3.Connection, principal: str, operation_id: str) -> Any:  # noqa: ANN401
    return connection.execute(
        f"SELECT {_COLUMNS} FROM operations WHERE principal = ? AND operation_id = ?", (principal, operation_id)
    ).fetchone()


def _insert_or_restart(connection: sqlite3.Connection, key: OperationKey, attempt: str) -> Operation | None:
    """Record an operation as begun; return the existing record instead when it may not be begun again."""
    row = _select(connection, key.principal, key.operation_id)
    now, process = time.time(), (socket.gethostname(), os.getpid())
    if row is None:
        connection.execute(
            "INSERT INTO operations(principal, operation_id, tool, arguments, scope, risk, state, attempt, host, pid, "
            "started, changed) VALUES (?, ?, ?, ?, ?, ?, 'in_flight', ?, ?, ?, ?, ?)",
            (
                *(key.principal, key.operation_id, key.tool, key.arguments, key.scope),
                *(key.risk, attempt, *process, now, now),
            ),
        )
        return None
    operation = operation_from_row(row)
    key.check_matches(operation)
    if operation.state != "not_done":
        return operation
    connection.execute(
        "UPDATE operations SET state = 'in_flight', result = NULL, error = '', attempts = attempts + 1, attempt = ?, "
        "host = ?, pid = ?, risk = ?, started = ?, changed = ? WHERE principal = ? AND operation_id = ?",
        (attempt, *process, key.risk, now, now, key.principal, key.operation_id),
    )
    return None
