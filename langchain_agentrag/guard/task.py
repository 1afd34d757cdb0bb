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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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


Stopped = Literal["answered", "steps", "seconds", "cost", "loop", "cancelled", "policy"]


@dataclass(frozen=True, slots=True)
class Act:
    """The decision to call a tool; `cost` is that of deciding."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision that the task is done; `cost` is that of deciding."""

    text: str
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What a tool may return instead of a plain value: with what the call cost, or that it failed."""

    content: Any
    cost: float = 0.0
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a tool.

    Attributes:
        number: From 1.
        tool: The tool.
        arguments: Their canonical JSON.
        observation: What came of it, as text.
        ok: Whether it worked.
        seconds: How long it took.
    """

    number: int
    tool: str
    arguments: str
    observation: str
    ok: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Budget:
    """How far a run may go.

    Attributes:
        steps: Calls of tools.
        seconds: Wall time. A decision or call under way is no longer waited for when it is over.
        cost: Sum of all costs. A cost is known afterwards, so the last step may go beyond.
        repeats: How often the same calls with the same results may come one after the other, alone or as a circle of
            up to four, before that counts as a loop.
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
    """What a policy decides on.

    Attributes:
        question: The task.
        steps: What was done so far.
        steps_left, seconds_left, cost_left: What is left of the budget; None where there is no limit.
        must_answer: Whether only an `Answer` counts now.
    """

    question: str
    steps: tuple[Step, ...]
    steps_left: int
    seconds_left: float | None
    cost_left: float | None
    must_answer: bool


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Attributes:
        state: Of the task: succeeded, failed or cancelled; with steps and cost.
        stopped: What ended it.
        answer: Of the policy; "" without one.
        message: For whoever asked: the answer, or what was reached and why there is none.
        steps: What was done.
        events: Of the task, from which `agent.task.replayed` gives `state`.
        seconds: Wall time.
    """

    state: TaskState
    stopped: Stopped
    answer: str
    message: str
    steps: tuple[Step, ...]
    events: tuple[TaskEvent, ...]
    seconds: float


def is_cost(value: object) -> bool:
    """Whether a value can be the cost of something: a finite number, 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
