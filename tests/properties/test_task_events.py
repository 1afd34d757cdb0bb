"""The state of a task: only its own events, in order, lead anywhere."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_agentrag.errors import TaskEventError, UsageError
from langchain_agentrag.guard.task import TaskEvent, TaskState, advance

KINDS = ["planned", "executed", "observed", "succeeded", "failed", "cancelled"]
PATHS = {
    ("planning", "planned"): "executing",
    ("executing", "executed"): "observing",
    ("observing", "observed"): "planning",
    ("planning", "succeeded"): "succeeded",
}


def replay(task: str, events: list[TaskEvent]) -> TaskState:
    return reduce(advance, events, TaskState(task))


@st.composite
def histories(draw) -> list[TaskEvent]:
    """A history that is right, of any length, ended or not."""
    state, events = TaskState("t"), []
    for _ in range(draw(st.integers(0, 20))):
        kinds = {"planning": ["planned", "succeeded"], "executing": ["executed"], "observing": ["observed"]}
        if state.ended:
            break
        kind = draw(st.sampled_from([*kinds[state.phase] * 4, "failed", "cancelled"]))
        event = state.next(kind, draw(st.text(max_size=3)), draw(st.floats(0, 10)))
        state = advance(state, event)
        events.append(event)
    return events


any_event = st.builds(
    TaskEvent,
    task=st.sampled_from(["t", "T", "t "]),
    number=st.integers(-2, 25),
    kind=st.sampled_from(KINDS),
    step=st.integers(-1, 8),
    cost=st.floats(0, 3),
)


@given(histories(), any_event)
def test_an_event_leads_to_the_documented_state_or_is_refused(events, event):
    state = replay("t", events)
    fits = (
        event.task == "t"
        and event.number == len(events) + 1
        and not state.ended
        and ((state.phase, event.kind) in PATHS or event.kind in {"failed", "cancelled"})
        and event.step == state.step + (event.kind == "planned")
    )
    if fits:
        after = advance(state, event)
        assert after.phase == PATHS.get((state.phase, event.kind), event.kind)
        assert (after.number, after.step, after.cost) == (event.number, event.step, state.cost + event.cost)
    else:
        before = replace(state)
        with pytest.raises(TaskEventError):
            advance(state, event)
        assert state == before


@given(histories())
def test_a_history_gives_one_state_and_its_numbers_add_up(events):
    state = replay("t", events)
    assert state == replay("t", events)
    assert state.number == len(events)
    assert state.step == sum(event.kind == "planned" for event in events)
    assert state.cost == pytest.approx(sum(event.cost for event in events))


@given(histories(), st.randoms(use_true_random=False))
def test_events_that_arrive_in_any_order_and_twice_lead_to_the_same_state(events, dice: random.Random):
    """Whoever keeps what is early and drops what is stale comes to the state of the history."""
    arriving = [*events, *dice.sample(events, len(events) // 2)]
    dice.shuffle(arriving)
    state, pending = TaskState("t"), list(arriving)
    for _ in range(len(arriving) + 1):
        early = []
        for event in pending:
            try:
                state = advance(state, event)
            except TaskEventError as error:
                if error.reason != "stale":
                    early.append(event)
        pending = early
    assert not pending
    assert state == replay("t", events)


@given(histories(), any_event)
def test_nothing_happens_after_the_end(events, event):
    state = replay("t", events)
    if not state.ended:
        state = advance(state, state.next("cancelled"))
    with pytest.raises(TaskEventError):
        advance(state, replace(event, task="t", number=state.number + 1))


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (TaskEvent("other", 3, "observed", 1), "other task"),
        (TaskEvent("t", 2, "executed", 1), "stale"),
        (TaskEvent("t", 4, "observed", 1), "early"),
        (TaskEvent("t", 3, "executed", 1), "impossible"),
        (TaskEvent("t", 3, "succeeded", 1), "impossible"),
        (TaskEvent("t", 3, "observed", 2), "other step"),
    ],
)
def test_the_reason_is_named(event, reason):
    state = replay("t", [TaskEvent("t", 1, "planned", 1), TaskEvent("t", 2, "executed", 1)])
    with pytest.raises(TaskEventError, match=reason) as caught:
        advance(state, event)
    assert caught.value.reason == reason


@pytest.mark.parametrize("cost", [-1, float("nan"), float("inf"), True, "1", None])
def test_a_cost_is_a_number(cost):
    with pytest.raises(UsageError, match="cost"):
        advance(TaskState("t"), TaskEvent("t", 1, "planned", 1, cost=cost))
