"""What is known about one operation, and whether somebody may still be executing it."""

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
"""`in_flight`: begun; `done`: happened, result kept; `needs_reconcile`: nobody knows; `not_done`: may run again."""


COLUMNS = (
    "operation_id, principal, tool, arguments, scope, risk, state, result, error, note, attempt, attempts, "
    "host, pid, started, changed"
)
"""What `operation_of` needs of a row."""

DIED = "the process that executed it died"

RUNNING: set[str] = set()
"""Attempts this process is executing. A random name cannot be another process's, also not of one with our pid."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One record.

    Attributes:
        operation_id: Its id, unique among those of its agent.
        principal: The agent on whose behalf.
        tool: Name of the tool.
        arguments: As the tool got them.
        scope: The task it belongs to.
        risk: Level of risk it was begun with.
        state: See `State`.
        result: What the tool answered, or what `reconcile` said it did; JSON.
        error: Why the outcome is unknown; "" otherwise.
        note: What `reconcile` was told.
        attempts: How often it was begun.
        started: When the last attempt began, in UTC.
        changed: When the record last changed, in UTC.
        executing: Whether somebody may still be at it: its process lives.
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
class Wanted:
    """What a call would be recorded as.

    Attributes:
        arguments: Canonical text, with defaults.
    """

    principal: str
    operation_id: str
    tool: str
    arguments: str
    scope: str
    risk: str

    def check_same(self, found: Operation) -> None:
        """Refuse an id that stands for something else.

        Raises:
            UsageError: the record is of another tool, other arguments or another scope.
        """
        mine = (self.tool, self.arguments, self.scope)
        if mine != (found.tool, canonical(found.arguments), found.scope):
            raise UsageError(
                f"The operation id {self.operation_id!r} belongs to a call of {found.tool!r} with other arguments or "
                "in another scope: an id stands for one operation. Nothing was done."
            )


def executing(row: Any) -> bool:  # noqa: ANN401
    """Whether somebody may still be executing a record; never a wrong no."""
    if row["state"] not in {"in_flight", "needs_reconcile"} or row["pid"] == 0:
        return False
    if row["attempt"] in RUNNING:
        return True
    if row["host"] != socket.gethostname():
        return True
    return row["pid"] != os.getpid() and _alive(row["pid"])


def _alive(pid: int) -> bool:
    if os.name == "nt":  # there, asking for a process this way could end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def operation_of(row: Any) -> Operation:  # noqa: ANN401
    """The record of a row; one that was left behind by a process that died is `needs_reconcile`."""
    busy = executing(row)
    died = row["state"] == "in_flight" and not busy
    return Operation(
        **{
            name: row[name]
            for name in ("operation_id", "principal", "tool", "scope", "risk", "note", "attempts")
        },
        state="needs_reconcile" if died else row["state"],
        arguments=json.loads(row["arguments"]),
        result=None if row["result"] is None else json.loads(row["result"]),
        error=DIED if died else row["error"],
        started=datetime.fromtimestamp(row["started"], UTC),
        changed=datetime.fromtimestamp(row["changed"], UTC),
        executing=busy,
    )


POINTS = (
    "operation-unrecorded",
    "operation-recording",
    "operation-recorded",
    "operation-executed",
    "operation-settling",
    "operation-settled",
)
"""Points at which a test may kill the process (`index/faults.py`), in the order a call reaches them."""

_APPLICATION = 0x41524F50  # "AROP", in the header of the file
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
_UNSETTLED = "state IN ('in_flight', 'needs_reconcile')"


class OperationFile:
    """The records of all agents in one SQLite file, for any number of threads and processes.

    Raises:
        NotAStoreError: the file is something else.
        StoreError: it was written by a newer version, or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._open: sqlite3.Connection | None = None
        with self._used():
            pass

    def close(self) -> None:
        """Close the file; used again, it opens again."""
        with self._lock:
            if self._open is not None and self._pid == os.getpid():
                self._open.close()
            self._open = None

    def find(self, principal: str, operation_id: str) -> Operation | None:
        """An agent's record, or None."""
        dead = ""
        while True:
            with self._used() as connection:
                row = _row(connection, principal, operation_id)
            found = None if row is None else operation_of(row)
            # It may have ended, and been settled, between the read and the look at its process. Once it is known to
            # have ended, what the file says is final.
            if found is None or found.error != DIED or row["attempt"] == dead:
                return found
            dead = row["attempt"]

    def unsettled(self, principal: str) -> list[Operation]:
        """An agent's records whose outcome nobody knows, or that are being executed, oldest first."""
        with self._used() as connection:
            rows = connection.execute(
                f"SELECT operation_id FROM operations WHERE principal = ? AND {_UNSETTLED} "
                "ORDER BY started, operation_id",
                (principal,),
            ).fetchall()
        found = (self.find(principal, row["operation_id"]) for row in rows)
        return [one for one in found if one is not None and one.state in {"in_flight", "needs_reconcile"}]

    def begin(self, wanted: Wanted, *, durable: bool) -> str | Operation:
        """The name of an attempt that may now be executed, or the record that stands against it.

        Args:
            wanted: The operation.
            durable: Whether the record also has to survive a power failure (a disk flush, milliseconds).

        Raises:
            UsageError: the id belongs to another operation of this agent.
        """
        attempt = uuid.uuid4().hex
        failpoint("operation-unrecorded")
        RUNNING.add(attempt)
        try:
            with self._changing(durable=durable) as connection:
                against = _record(connection, wanted, attempt)
                failpoint("operation-recording")
        except BaseException:
            RUNNING.discard(attempt)
            raise
        if against is not None:
            RUNNING.discard(attempt)
            return against
        failpoint("operation-recorded")
        return attempt

    def settle(
        self,
        wanted: Wanted,
        attempt: str,
        state: State,
        *,
        result: str | None = None,
        error: str = "",
        going_on: bool = False,
    ) -> bool:
        """Write down what came of an attempt; False when it was settled otherwise meanwhile.

        What an attempt still says after its time ran out is taken; after `reconcile` nothing is.

        Args:
            wanted: The operation.
            attempt: What `begin` returned.
            state: What came of it.
            result: JSON text of the result.
            error: Why nobody knows.
            going_on: Whether the attempt goes on: its time ran out, but it cannot be stopped.
        """
        failpoint("operation-executed")
        with self._changing(durable=False) as connection:
            changed = connection.execute(
                "UPDATE operations SET state = ?, result = ?, error = ?, pid = iif(?, pid, 0), changed = ? WHERE "
                f"principal = ? AND operation_id = ? AND attempt = ? AND {_UNSETTLED}",
                (state, result, error, going_on, time.time(), wanted.principal, wanted.operation_id, attempt),
            ).rowcount
            failpoint("operation-settling")
        failpoint("operation-settled")
        return bool(changed)

    @staticmethod
    def ended(attempt: str) -> None:
        """Nobody in this process executes the attempt any more."""
        RUNNING.discard(attempt)

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
        """Settle an agent's record by what really happened.

        Raises:
            UsageError: the agent has no such record, its outcome is known, somebody may still be executing it, or it
                was begun again since `attempts`.
        """
        with self._changing(durable=True) as connection:
            row = _row(connection, principal, operation_id)
            if row is None:
                raise UsageError(f"There is no operation {operation_id!r} of this agent to reconcile.")
            found = operation_of(row)
            if found.state not in {"in_flight", "needs_reconcile"}:
                raise UsageError(
                    f"The operation {operation_id!r} is {found.state}: only one whose outcome is unknown is reconciled."
                )
            if attempts not in {None, found.attempts}:
                raise UsageError(
                    f"The operation {operation_id!r} was begun again (attempt {found.attempts}) after you looked at "
                    f"attempt {attempts}: look again."
                )
            if found.executing and not force:
                raise UsageError(
                    f"The operation {operation_id!r} may still be executed by process {row['pid']} on {row['host']}: "
                    "wait for it, or pass executing=True when you know that it is not."
                )
            # A new attempt: what the old one may still say counts no more.
            attempt = row["attempt"] if state == "needs_reconcile" else uuid.uuid4().hex
            connection.execute(
                "UPDATE operations SET state = ?, result = ?, note = ?, attempt = ?, changed = ? WHERE principal = ? "
                "AND operation_id = ?",
                (state, result, note, attempt, time.time(), principal, operation_id),
            )
            changed = _row(connection, principal, operation_id)
        return operation_of(changed)

    def forget(self, principal: str, before: float | None, *, unsettled: bool) -> int:
        """Delete an agent's records, bytes included; how many there were."""
        with self._changing(durable=True) as connection:
            deleted = connection.execute(
                "DELETE FROM operations WHERE principal = ? AND (? IS NULL OR changed < ?) AND (? OR NOT "
                f"{_UNSETTLED})",
                (principal, before, before, unsettled),
            ).rowcount
        with self._used() as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return deleted

    # -- the connection ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _changing(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """One transaction that no other writer can overtake."""
        with self._used() as connection:
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
    def _used(self) -> Iterator[sqlite3.Connection]:
        if self._pid != os.getpid():  # a forked child: neither the lock nor the connection is its own
            self._lock, self._pid, self._open = threading.RLock(), os.getpid(), None
        with self._lock:
            try:
                if self._open is None:
                    self._open = self._connected()
                yield self._open
            except sqlite3.OperationalError as error:
                kind = StoreLockedError if "locked" in str(error) else StoreError
                raise kind(f"The operations in {self._path} could not be used: {error}.") from error
            except sqlite3.DatabaseError as error:
                raise NotAStoreError(f"{self._path} is no file of operations: {error}.") from error

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.row_factory = sqlite3.Row
        try:
            self._check(connection)  # before anything is changed in it
            connection.execute("PRAGMA secure_delete=ON")
            _use_log(connection)
            connection.execute("BEGIN IMMEDIATE")
            if self._check(connection):
                _create(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is still empty; an error when it is something else."""
        # the tables first: whoever makes them at this moment writes the mark in the same transaction
        if not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            return True
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION:
            raise NotAStoreError(f"{self._path} is a database of something else: name another file.")
        if version > _FORMAT:
            raise StoreError(
                f"{self._path} was written by a newer version (format {version}, known {_FORMAT}): update the package."
            )
        return False


def _create(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA.split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {_FORMAT}")


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; SQLite does not wait by itself while another process does the same."""
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _row(connection: sqlite3.Connection, principal: str, operation_id: str) -> Any:  # noqa: ANN401
    return connection.execute(
        f"SELECT {COLUMNS} FROM operations WHERE principal = ? AND operation_id = ?",
        (principal, operation_id),
    ).fetchone()


def _record(connection: sqlite3.Connection, wanted: Wanted, attempt: str) -> Operation | None:
    """Write an operation down as begun; the record that stands against it, or None."""
    row = _row(connection, wanted.principal, wanted.operation_id)
    now, here = time.time(), (socket.gethostname(), os.getpid())
    if row is None:
        connection.execute(
            "INSERT INTO operations(principal, operation_id, tool, arguments, scope, risk, state, attempt, host, pid, "
            "started, changed) VALUES (?, ?, ?, ?, ?, ?, 'in_flight', ?, ?, ?, ?, ?)",
            (
                *(wanted.principal, wanted.operation_id, wanted.tool, wanted.arguments, wanted.scope),
                *(wanted.risk, attempt, *here, now, now),
            ),
        )
        return None
    found = operation_of(row)
    wanted.check_same(found)
    if found.state != "not_done":
        return found
    connection.execute(
        "UPDATE operations SET state = 'in_flight', result = NULL, error = '', attempts = attempts + 1, attempt = ?, "
        "host = ?, pid = ?, risk = ?, started = ?, changed = ? WHERE principal = ? AND operation_id = ?",
        (attempt, *here, wanted.risk, now, now, wanted.principal, wanted.operation_id),
    )
    return None
