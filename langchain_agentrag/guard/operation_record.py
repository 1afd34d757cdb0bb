"""What is known about one operation, and whether somebody may still be executing it."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.errors import UsageError

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
