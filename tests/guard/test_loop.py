"""`run_agent`: a loop that always ends, with something useful to say."""

from __future__ import annotations

import asyncio
import time
from functools import reduce

import pytest

from langchain_agentrag import DualIndexer, GuardedTool, Operations, ToolRule
from langchain_agentrag.errors import UsageError
from langchain_agentrag.guard.loop import arun_agent, run_agent
from langchain_agentrag.guard.task import Act, Answer, Budget, Observation, TaskState, advance

QUESTION = "E1102 上次是怎么修好的？"


def script(*decisions):
    """A policy that follows a script; the last decision again and again."""
    left = list(decisions)

    def policy(situation):
        decision = left.pop(0) if len(left) > 1 else left[0]
        return decision(situation) if callable(decision) else decision

    return policy


def echo(**arguments):
    return arguments


@pytest.fixture(params=["sync", "async"])
def run(request):
    """Both drivers of the same loop."""
    if request.param == "sync":
        return run_agent
    return lambda *args, **options: asyncio.run(arun_agent(*args, **options))


def test_an_answer_ends_the_run(run):
    result = run(script(Act("echo", {"q": "退款"}), lambda s: Answer(s.steps[0].observation)), {"echo": echo}, QUESTION)
    assert (result.state.phase, result.stopped) == ("succeeded", "answered")
    assert result.answer == result.message == '{"q": "退款"}'
    assert [event.kind for event in result.events] == ["planned", "executed", "observed", "succeeded"]
    assert reduce(advance, result.events, TaskState(result.state.task)) == result.state


def test_two_hops_over_a_real_store(run, tmp_path):
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents(["E1102：更换八毫米快插接头", "快插接头在 B2 柜"])

        def search(query):
            return indexer.search(query, k=1)[0].text

        policy = script(
            Act("search", {"query": "E1102"}),
            lambda s: Act("search", {"query": s.steps[0].observation[-4:] + " 柜"}),
            lambda s: Answer(f"在{s.steps[1].observation[-4:]}"),
        )
        result = run(policy, {"search": search}, QUESTION)
    assert "B2" in result.answer


@pytest.mark.parametrize(("language", "words"), [("en", "steps are used up"), ("zh", "个步骤已经用完")])
def test_the_budget_of_steps_ends_with_a_useful_message(run, language, words):
    counter = iter(range(100))
    policy = script(lambda s: Act("echo", {"n": next(counter), "text": "冷却液"}))
    result = run(policy, {"echo": echo}, QUESTION, budget=Budget(steps=7), language=language)
    assert (result.state.phase, result.stopped, len(result.steps)) == ("failed", "steps", 7)
    assert words in result.message
    assert QUESTION in result.message
    assert "冷却液" in result.message
    assert result.message.count("→") == 5


def test_the_policy_is_called_once_more_for_a_final_answer(run):
    situations = []

    def policy(situation):
        situations.append((situation.must_answer, situation.steps_left))
        return Answer("probably the filter") if situation.must_answer else Act("echo", {"n": len(situations)})

    result = run(policy, {"echo": echo}, QUESTION, budget=Budget(steps=2))
    assert (result.state.phase, result.stopped, result.answer) == ("succeeded", "steps", "probably the filter")
    assert result.message.startswith("probably the filter\n")
    assert situations == [(False, 2), (False, 1), (True, 0)]


@pytest.mark.parametrize("circle", [1, 2, 3, 4])
def test_an_agent_that_goes_in_circles_is_stopped(run, circle):
    decisions = [Act("echo", {"n": n}) for n in range(circle)]
    numbers = iter(range(1000))
    result = run(lambda s: decisions[next(numbers) % circle], {"echo": echo}, QUESTION, budget=Budget(steps=100))
    assert (result.stopped, len(result.steps)) == ("loop", 3 * circle)
    assert "同样的调用反复" in result.message  # the question is Chinese


def test_the_same_call_with_another_notation_is_the_same(run):
    notations = iter([{"a": 1, "b": 2}, {"b": 2, "a": 1.0}, {"a": 1.0, "b": 2.0}, {"b": 2, "a": 1}])
    result = run(lambda s: Act("count", next(notations)), {"count": lambda a, b: "same"}, QUESTION)
    assert (result.stopped, len(result.steps)) == ("loop", 3)


def test_asking_again_until_something_changes_is_no_loop(run):
    states = iter(["waiting"] * 2 + ["ready"] + ["waiting"] * 2 + ["ready"])
    policy = script(*[Act("poll")] * 6, Answer("done"))
    assert run(policy, {"poll": lambda: next(states)}, QUESTION).stopped == "answered"


def test_costs_are_summed_and_end_the_run(run):
    numbers = iter(range(100))
    policy = script(lambda s: Act("buy", {"n": next(numbers)}, cost=0.5))
    tools = {"buy": lambda n: Observation(f"bought {n}", cost=1.0)}
    result = run(policy, tools, QUESTION, budget=Budget(cost=4.0))
    assert (result.stopped, len(result.steps), result.state.cost) == ("cost", 3, 4.5)


@pytest.mark.parametrize("who", ["tool", "policy"])
def test_nobody_is_waited_for_beyond_the_time(run, who):
    def slow(*_):
        time.sleep(2)
        return Answer("late")

    policy = slow if who == "policy" else script(Act("slow"))
    began = time.monotonic()
    result = run(policy, {"slow": slow}, QUESTION, budget=Budget(seconds=0.1))
    assert (result.state.phase, result.stopped) == ("failed", "seconds")
    if run is run_agent:  # an event loop waits for its threads when it is closed
        assert time.monotonic() - began < 1.9


def test_what_a_tool_raises_is_an_observation(run):
    def broken():
        raise ConnectionError("断线了")

    result = run(
        script(Act("broken"), Act("ghost"), Act("echo", {"n": {1}}), Answer("ok")),
        {"broken": broken, "echo": echo},
        QUESTION,
    )
    assert result.stopped == "answered"
    assert [step.ok for step in result.steps] == [False, False, False]
    assert "断线了" in result.steps[0].observation
    assert "broken, echo" in result.steps[1].observation


@pytest.mark.parametrize("decision", [None, "search for it", 7, Act("echo", cost=-1), Answer("x", cost=float("nan"))])
def test_a_decision_that_is_none_ends_the_run(run, decision):
    result = run(lambda s: decision, {"echo": echo}, QUESTION)
    assert (result.state.phase, result.stopped) == ("failed", "policy")
    assert "no Act or Answer" in result.message


def test_a_policy_that_fails_ends_the_run(run):
    def policy(situation):
        raise KeyError("model")

    result = run(policy, {}, QUESTION)
    assert (result.stopped, "KeyError" in result.message) == ("policy", True)


def test_a_tool_whose_cost_is_nonsense_is_an_observation(run):
    result = run(script(Act("buy"), Answer("ok")), {"buy": lambda: Observation("x", cost=float("nan"))}, QUESTION)
    assert (result.steps[0].ok, result.stopped) == (False, "answered")


def test_a_run_can_be_cancelled(run):
    calls = []
    policy = script(lambda s: Act("note", {"n": len(calls)}))
    result = run(policy, {"note": lambda n: calls.append(n) or n}, QUESTION, cancelled=lambda: len(calls) >= 3)
    assert (result.state.phase, result.stopped, len(calls)) == ("cancelled", "cancelled", 3)


def test_events_are_emitted_as_they_happen(run):
    messages = []
    result = run(script(Act("echo"), Answer("x")), {"echo": echo}, QUESTION, on_event=messages.append)
    assert tuple(messages) == result.events


def test_guarded_tools_are_called_once_per_task(run, tmp_path):
    sent = []

    def send(to):
        sent.append(to)
        if to == "broken":
            raise ConnectionError("the line went dead")
        return f"sent to {to}"

    guarded = GuardedTool("send", {"properties": {"to": {"type": "string"}}, "required": ["to"]}, ToolRule("low"))
    with Operations(tmp_path / "o") as operations:
        mine = operations.for_agent("lina")
        for _ in range(2):
            policy = script(
                Act("send", {"to": "a"}), Act("send", {"to": "broken"}), Act("send", {"too": "b"}), Answer("x")
            )
            result = run(policy, {"send": send}, QUESTION, operations=mine, guarded=[guarded], task="order 7")
        other = run(
            script(Act("send", {"to": "a"}), Answer("x")), {"send": send}, QUESTION, operations=mine, guarded=[guarded]
        )
        unknown = mine.unresolved()
    assert sent == ["a", "broken", "a"]
    assert result.steps[0].observation.endswith("sent to a")
    assert [step.ok for step in result.steps] == [True, False, False]
    assert "did you mean to?" in result.steps[2].observation
    assert len(unknown) == 1
    assert other.steps[0].observation == "sent to a"


def test_a_guarded_tool_needs_its_operations(tmp_path):
    guarded = GuardedTool("send", {}, ToolRule("low"))
    with pytest.raises(UsageError, match="operations"):
        run_agent(script(Answer("x")), {"send": echo}, QUESTION, guarded=[guarded])
    with Operations(tmp_path / "o") as operations, pytest.raises(UsageError, match="not among"):
        run_agent(script(Answer("x")), {}, QUESTION, guarded=[guarded], operations=operations.for_agent("a"))


async def test_policies_and_tools_may_be_asynchronous():
    async def policy(situation):
        await asyncio.sleep(0)
        return Answer(situation.steps[0].observation) if situation.steps else Act("look", {"at": "冷却液"})

    async def look(at):
        await asyncio.sleep(0)
        return f"{at}：B2"

    assert (await arun_agent(policy, {"look": look}, QUESTION)).answer == "冷却液：B2"


@pytest.mark.parametrize(
    "budget",
    [
        {"steps": 0},
        {"steps": True},
        {"steps": 1.5},
        {"repeats": 1},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"cost": -1},
        {"cost": float("inf")},
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(budget):
    with pytest.raises(UsageError):
        Budget(**budget)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_end_is_explained(language):
    from langchain_agentrag.guard.loop import final_message

    ends = ("steps", "seconds", "cost", "loop", "cancelled", "policy")
    messages = {final_message(language, QUESTION, stopped, "", [], "no model") for stopped in ends}
    assert len(messages) == len(ends)
    assert all(QUESTION in message for message in messages)
    assert sum("no model" in message for message in messages) == 1
