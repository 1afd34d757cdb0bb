"""Task of an agent: its state machine, and the decisions, steps, budget and result of a run.

::

    planning ──planned──▶ executing ──executed──▶ observing ──observed──▶ planning
        └──succeeded──▶ succeeded          any of the three ──failed──▶ failed, ──cancelled──▶ cancelled

Events of a task are numbered 1, 2, 3 …, and each step's events carry its number. An event that is late, early, of
another task or step, or impossible in the current phase is refused and changes nothing: the reports of several
processes, in whatever order, lead to one state or to an error, never to a wrong state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from langchain_agentrag.errors import TaskEventError, UsageError

Phase = Literal["planning", "executing", "observing", "succeeded", "failed", "cancelled"]
EventKind = Literal["planned", "executed", "observed", "succeeded", "failed", "cancelled"]
Stopped = Literal["answered", "steps", "seconds", "cost", "loop", "cancelled", "policy"]

_TRANSITIONS: dict[tuple[Phase, EventKind], Phase] = {
    ("planning", "planned"): "executing",
    ("executing", "executed"): "observing",
    ("observing", "observed"): "planning",
    ("planning", "succeeded"): "succeeded",
    **{(phase, "failed"): "failed" for phase in ("planning", "executing", "observing")},
    **{(phase, "cancelled"): "cancelled" for phase in ("planning", "executing", "observing")},
}


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Event of a task.

    Attributes:
        task: Id of the task.
        number: Position among the task's events, from 1.
        kind: Kind of the event.
        step: The step it belongs to, from 1: for `planned` the one that begins, else the current one.
        detail: The tool planned, the outcome, the answer, or the reason.
        cost: Cost, 0 or more, in whatever unit the caller counts.
    """

    task: str
    number: int
    kind: EventKind
    step: int
    detail: str = ""
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskState:
    """State of a task after some events.

    Attributes:
        task: Id of the task.
        phase: See the diagram above.
        number: Of the last event; 0 before the first.
        step: Steps begun.
        detail: Of the last event.
        cost: Sum over all events.
    """

    task: str
    phase: Phase = "planning"
    number: int = 0
    step: int = 0
    detail: str = ""
    cost: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether no event can follow."""
        return self.phase in {"succeeded", "failed", "cancelled"}

    def next(self, kind: EventKind, detail: str = "", cost: float = 0.0) -> TaskEvent:
        """Return the event of a kind that would come next."""
        return TaskEvent(self.task, self.number + 1, kind, self.step + (kind == "planned"), detail, cost)


def advance(state: TaskState, event: TaskEvent) -> TaskState:
    """Return the state after an event.

    Raises:
        TaskEventError: the event does not fit; its `reason` says why. The state stays as it was.
        UsageError: the cost is not a finite number of 0 or more.
    """
    reason = _rejection_reason(state, event)
    if reason is not None:
        raise TaskEventError(
            reason,
            f"The event {event.number} ({event.kind}, step {event.step}) of task {event.task!r} does not fit task "
            f"{state.task!r}, which is {state.phase} after event {state.number} in step {state.step}: {reason}.",
        )
    if not is_valid_cost(event.cost):
        raise UsageError(f"An event costs {event.cost!r}: a cost is a number of 0 or more.")
    return replace(
        state,
        phase=_TRANSITIONS[state.phase, event.kind],
        number=event.number,
        step=event.step,
        detail=event.detail,
        cost=state.cost + event.cost,
    )


def _rejection_reason(state: TaskState, event: TaskEvent) -> str | None:
    if event.task != state.task:
        return "other task"
    if event.number <= state.number:
        return "stale"
    if event.number > state.number + 1:
        return "early"
    if state.ended:
        return "ended"
    if (state.phase, event.kind) not in _TRANSITIONS:
        return "impossible"
    return None if event.step == state.step + (event.kind == "planned") else "other step"


@dataclass(frozen=True, slots=True)
class Act:
    """Decision to call a tool; `cost` is that of deciding."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Decision that the task is done; `cost` is that of deciding."""

    text: str
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What a tool may return instead of a plain value, to report the cost of the call or that it failed."""

    content: Any
    cost: float = 0.0
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a tool.

    Attributes:
        number: From 1.
        tool: Name of the tool.
        arguments: Arguments as canonical JSON.
        observation: Result or error as text.
        ok: Whether the call succeeded.
        seconds: Duration.
    """

    number: int
    tool: str
    arguments: str
    observation: str
    ok: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a run.

    Attributes:
        steps: Calls of tools.
        seconds: Wall time. A decision or call that is running when it is over is no longer waited for.
        cost: Sum of all costs. A cost is known afterwards, so the last step may exceed it.
        repeats: How often the same calls with the same results may follow each other, alone or as a cycle of up to
            four, before that counts as a loop.
    """

    steps: int = 20
    seconds: float | None = None
    cost: float | None = None
    repeats: int = 3

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("repeats", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name}={value!r} must be a whole number, {least} or more.")
        for name in ("seconds", "cost"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise UsageError(f"{name}={value!r} must be a number above 0, or None for no limit.")


@dataclass(frozen=True, slots=True)
class Situation:
    """Input of a policy.

    Attributes:
        question: The task in words.
        steps: Steps done so far.
        steps_left, seconds_left, cost_left: Rest of the budget; None where there is no limit.
        must_answer: Whether only an `Answer` is accepted now.
    """

    question: str
    steps: tuple[Step, ...]
    steps_left: int
    seconds_left: float | None
    cost_left: float | None
    must_answer: bool


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run.

    Attributes:
        state: Final state of the task: succeeded, failed or cancelled; with steps and cost.
        stopped: What ended the run.
        answer: Answer of the policy; "" without one.
        message: Text for the user: the answer, or what was done and why there is no answer.
        steps: Steps done.
        events: Events of the task; `functools.reduce(advance, events, TaskState(task))` is `state`.
        seconds: Wall time.
    """

    state: TaskState
    stopped: Stopped
    answer: str
    message: str
    steps: tuple[Step, ...]
    events: tuple[TaskEvent, ...]
    seconds: float


def is_valid_cost(value: object) -> bool:
    """Return whether a value is a finite number of 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
