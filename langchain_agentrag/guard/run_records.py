"""What a run of `run_agent` is made of: decisions, observations, budget, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_agentrag.errors import UsageError
from langchain_agentrag.guard.task import TaskEvent, TaskState

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
