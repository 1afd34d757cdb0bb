"""Retrieval limits of an agent and when it should stop: `RetrievalBudget`, and the `RetrievalHistory` of a run.

Both are immutable. A history grows by executed calls with their passages; `RetrievalBudget.plan` decides of each next
call whether to execute it, answer from an earlier one, or refuse it. Calls of one step are planned in their order and
each counts those before it, so that parallel calls get no more than sequential ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from langchain_agentrag.agent.retrieval_calls import CallKey, Kind, RetrievalCall
from langchain_agentrag.errors import UsageError

Limit = Literal["searches", "reads", "characters", "seconds", "idle"]

_LIMIT_OF_KIND: Mapping[Kind, Limit] = {"search": "searches", "read": "reads"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits; None for no limit.

    Attributes:
        searches: Searches that are executed.
        reads: Passages that are opened.
        characters: Characters of all results of searching and reading.
        seconds: Time spent in the model and the retrieval tools; waiting for a person does not count.
    """

    searches: int | None = None
    reads: int | None = None
    characters: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("searches", "reads", "characters"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise UsageError(f"{name}={value!r} must be an integer, 0 or more, or None for no limit.")
        _check_number("seconds", self.seconds, 0, math.inf)


@dataclass(frozen=True, slots=True)
class RetrievalBudget:
    """Retrieval limits of one run and of one conversation.

    Attributes:
        searches, reads, characters, seconds: Limits of one run; see `Limits`.
        conversation: Limits of all runs of a conversation together.
        overlap: Share of common hits (Jaccard: intersection over union) from which two searches in a row count as
            equal.
        patience: Calls in a row without a new passage after which retrieval ends.
    """

    searches: int | None = 12
    reads: int | None = 24
    characters: int | None = 100_000
    seconds: float | None = None
    conversation: Limits = field(default_factory=Limits)
    overlap: float = 0.8
    patience: int = 4

    def __post_init__(self) -> None:
        _ = self.run
        if not isinstance(self.conversation, Limits):
            raise UsageError(f"conversation={self.conversation!r} must be Limits(…); Limits() for no limit.")
        if self.overlap is None:
            raise UsageError("overlap=None must be a number from 0 to 1; 1 for exactly the same passages.")
        _check_number("overlap", self.overlap, 0, 1)
        if isinstance(self.patience, bool) or not isinstance(self.patience, int) or self.patience < 1:
            raise UsageError(f"patience={self.patience!r} must be an integer, 1 or more.")

    @property
    def run(self) -> Limits:
        """Limits of a run."""
        return Limits(self.searches, self.reads, self.characters, self.seconds)

    @property
    def timed(self) -> bool:
        """Whether time is limited."""
        return self.seconds is not None or self.conversation.seconds is not None

    def closed(self, history: RetrievalHistory) -> dict[Kind, Limit]:
        """Return the kinds of calls that are no longer allowed, with the limit that was reached."""
        reached = {name for name, maximum, used in self._limits(history) if used >= maximum}
        if history.idle >= self.patience:
            reached.add("idle")
        closed: dict[Kind, Limit] = {}
        for kind, own_limit in _LIMIT_OF_KIND.items():
            limit = next((name for name in (own_limit, "characters", "seconds", "idle") if name in reached), None)
            if limit is not None:
                closed[kind] = limit
        return closed

    def left(self, history: RetrievalHistory) -> dict[str, int]:
        """Return how many searches, reads and characters are left, of those that are limited."""
        left: dict[str, int] = {}
        for name, maximum, used in self._limits(history):
            if name != "seconds":
                left[name] = max(0, min(left.get(name, maximum), maximum - used))
        return left

    def _limits(self, history: RetrievalHistory) -> Iterator[tuple[str, Any, Any]]:
        """Yield name, maximum and used amount of each limit of the run and the conversation."""
        for limits, usage in ((self.run, history.run), (self.conversation, history.conversation)):
            for name in ("searches", "reads", "characters", "seconds"):
                if (maximum := getattr(limits, name)) is not None:
                    yield name, maximum, getattr(usage, name)

    def plan(self, history: RetrievalHistory, calls: Sequence[CallKey]) -> list[Decision]:
        """Decide what to do with each call of a step, in their order."""
        executed: set[CallKey] = set()
        decisions = []
        for key in calls:
            closed, earlier = self.closed(history), history.find(key)
            if key.kind in closed:
                decisions.append(Decision("over", limit=closed[key.kind]))
            elif earlier is not None:
                decisions.append(Decision("repeat", earlier=earlier))
                history = replace(history, idle=history.idle + 1)
            elif key in executed:
                decisions.append(Decision("twin"))
            else:
                decisions.append(Decision("make"))
                executed.add(key)
                history = history.with_usage(key.kind)
        return decisions

    def same_as(self, history: RetrievalHistory, passage_ids: Sequence[str]) -> RetrievalCall | None:
        """Return the previous search if these hits overlap with its hits, else None; no hits overlap with nothing."""
        previous = next((call for call in reversed(history.calls) if call.kind == "search"), None)
        if previous is None or not passage_ids:
            return None
        ids, previous_ids = set(passage_ids), set(previous.passage_ids)
        return previous if len(ids & previous_ids) >= self.overlap * len(ids | previous_ids) else None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a call.

    Attributes:
        action: "make": execute it. "repeat": answer from an earlier call of the run. "twin": refer to an equal call of
            the same step. "over": refuse it, a limit is reached. Tool messages store these values.
        earlier: The earlier call, of "repeat".
        limit: The limit, of "over".
    """

    action: Literal["make", "repeat", "twin", "over"]
    earlier: RetrievalCall | None = None
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Amounts that were used so far; see `Limits`."""

    searches: int = 0
    reads: int = 0
    characters: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RetrievalHistory:
    """Retrieval calls of a run, and the usage of the run and its conversation.

    Attributes:
        question: The question of the run.
        run, conversation: What they used.
        calls: Executed calls of the run.
        idle: Calls in a row that returned no new passage.
        refused_calls: Calls after the budget was used up.
        coverage: Per part of the question, how much of it the passages cover; see `sufficiency`.
        last_message_id: Id of the last model message whose calls were added.
    """

    question: str = ""
    run: Usage = field(default_factory=Usage)
    conversation: Usage = field(default_factory=Usage)
    calls: tuple[RetrievalCall, ...] = ()
    idle: int = 0
    refused_calls: int = 0
    coverage: tuple[float, ...] = ()
    last_message_id: str = ""

    def new_run(self, question: str) -> RetrievalHistory:
        """Return the history of a new run in the same conversation."""
        return RetrievalHistory(question, conversation=self.conversation, last_message_id=self.last_message_id)

    def find(self, key: CallKey) -> RetrievalCall | None:
        """Return the call of this run with this key, or None."""
        return next((call for call in self.calls if call.key == key), None)

    def has_new(self, kind: Kind, passage_ids: Iterable[str]) -> bool:
        """Return whether no call of this kind has returned one of these passages in this run."""
        return not set(passage_ids) <= {
            passage_id for call in self.calls if call.kind == kind for passage_id in call.passage_ids
        }

    def with_call(
        self, call: RetrievalCall, characters: int, seconds: float, *, same: bool = False
    ) -> RetrievalHistory:
        """Return the history with an executed call; `same` if it found the same passages as the previous search."""
        new = self.has_new(call.kind, call.passage_ids) and not same
        return replace(
            self.with_usage(call.kind, characters, seconds),
            calls=(*self.calls, replace(call, number=len(self.calls) + 1)),
            idle=0 if new else self.idle + 1,
        )

    def with_usage(self, kind: Kind | None = None, characters: int = 0, seconds: float = 0.0) -> RetrievalHistory:
        """Return the history with the usage of one call, or of something else for a `kind` of None."""
        run, conversation = (
            Usage(
                usage.searches + (kind == "search"),
                usage.reads + (kind == "read"),
                usage.characters + characters,
                usage.seconds + seconds,
            )
            for usage in (self.run, self.conversation)
        )
        return replace(self, run=run, conversation=conversation)

    def as_json(self) -> dict[str, Any]:
        """Return the history as JSON-safe values."""
        return {
            "question": self.question,
            "run": asdict(self.run),
            "conversation": asdict(self.conversation),
            "calls": [call.as_json() for call in self.calls],
            "idle": self.idle,
            "refused": self.refused_calls,
            "told": list(self.coverage),
            "settled": self.last_message_id,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> RetrievalHistory:
        """Return the history that `as_json` wrote; an empty one for None."""
        if not stored:
            return cls()
        return cls(
            question=stored["question"],
            run=Usage(**stored["run"]),
            conversation=Usage(**stored["conversation"]),
            calls=tuple(map(RetrievalCall.from_json, stored["calls"])),
            idle=stored["idle"],
            refused_calls=stored["refused"],
            coverage=tuple(stored["told"]),
            last_message_id=stored["settled"],
        )


def _check_number(name: str, value: object, low: float, high: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        upper = "" if high == math.inf else f" to {high:g}"
        raise UsageError(f"{name}={value!r} must be a number from {low:g}{upper}.")
