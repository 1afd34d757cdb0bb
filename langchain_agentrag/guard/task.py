"""The state of a task as a pure function of its events.

::

    planning ──planned──▶ executing ──executed──▶ observing ──observed──▶ planning
        └──succeeded──▶ succeeded          any of the three ──failed──▶ failed, ──cancelled──▶ cancelled

Events of a task are numbered 1, 2, 3 …, and each step's events carry its number. An event that is late, early, of
another task or step, or impossible where the task stands is refused and changes nothing: what several processes report,
in whatever order, leads to one state or to an error, never to a wrong state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from langchain_agentrag.errors import TaskEventError, UsageError

Phase = Literal["planning", "executing", "observing", "succeeded", "failed", "cancelled"]
Kind = Literal["planned", "executed", "observed", "succeeded", "failed", "cancelled"]

ENDED: frozenset[Phase] = frozenset({"succeeded", "failed", "cancelled"})
"""Phases that nothing leaves."""

_MOVES: dict[tuple[Phase, Kind], Phase] = {
    ("planning", "planned"): "executing",
    ("executing", "executed"): "observing",
    ("observing", "observed"): "planning",
    ("planning", "succeeded"): "succeeded",
    **{(phase, "failed"): "failed" for phase in ("planning", "executing", "observing")},
    **{(phase, "cancelled"): "cancelled" for phase in ("planning", "executing", "observing")},
}


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Something that happened to a task.

    Attributes:
        task: The task.
        number: Its place among the task's events, from 1.
        kind: What happened.
        step: The step it belongs to, from 1: for `planned` the one that begins, else the one under way.
        detail: The tool planned, the outcome, the answer, or the reason.
        cost: What it cost, 0 or more, in whatever unit the caller counts.
    """

    task: str
    number: int
    kind: Kind
    step: int
    detail: str = ""
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskState:
    """Where a task stands.

    Attributes:
        task: The task.
        phase: See the picture above.
        number: Of the last event; 0 before the first.
        step: Steps begun.
        detail: Of the last event.
        cost: Of all events.
    """

    task: str
    phase: Phase = "planning"
    number: int = 0
    step: int = 0
    detail: str = ""
    cost: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether nothing can happen to it any more."""
        return self.phase in ENDED

    def next(self, kind: Kind, detail: str = "", cost: float = 0.0) -> TaskEvent:
        """The event of this kind that would come next."""
        return TaskEvent(self.task, self.number + 1, kind, self.step + (kind == "planned"), detail, cost)


def advance(state: TaskState, event: TaskEvent) -> TaskState:
    """The state after an event.

    Raises:
        TaskEventError: the event does not fit; its `reason` says why. The state stays as it was.
        UsageError: the cost is no number of 0 or more.
    """
    reason = _misfit(state, event)
    if reason is not None:
        raise TaskEventError(
            reason,
            f"The event {event.number} ({event.kind}, step {event.step}) of task {event.task!r} does not fit task "
            f"{state.task!r}, which is {state.phase} after event {state.number} in step {state.step}: {reason}.",
        )
    if (
        isinstance(event.cost, bool)
        or not isinstance(event.cost, int | float)
        or not 0 <= event.cost < math.inf
    ):
        raise UsageError(f"An event costs {event.cost!r}: a cost is a number of 0 or more.")
    return replace(
        state,
        phase=_MOVES[state.phase, event.kind],
        number=event.number,
        step=event.step,
        detail=event.detail,
        cost=state.cost + event.cost,
    )


def replayed(task: str, events: Iterable[TaskEvent]) -> TaskState:
    """The state of a task after its events, in order.

    Raises:
        TaskEventError: one of them does not fit.
    """
    state = TaskState(task)
    for event in events:
        state = advance(state, event)
    return state


def _misfit(state: TaskState, event: TaskEvent) -> str | None:
    if event.task != state.task:
        return "other task"
    if event.number <= state.number:
        return "stale"
    if event.number > state.number + 1:
        return "early"
    if state.ended:
        return "ended"
    if (state.phase, event.kind) not in _MOVES:
        return "impossible"
    return None if event.step == state.step + (event.kind == "planned") else "other step"
