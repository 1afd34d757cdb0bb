"""What is said at the end of a run: the answer, or what was reached and why there is none. English and Chinese."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.agent.tool_arguments import Language, detect_language
from langchain_agentrag.errors import UsageError
from langchain_agentrag.guard.operations import AgentOperations
from langchain_agentrag.guard.task import (
    Act,
    Answer,
    Budget,
    Kind,
    Observation,
    RunResult,
    Situation,
    Step,
    Stopped,
    TaskEvent,
    TaskState,
    advance,
    is_cost,
)
from langchain_agentrag.guard.timing import OutOfTimeError, within
from langchain_agentrag.guard.tool_rules import GuardedTool
from langchain_agentrag.metadata import short_repr

logger = logging.getLogger(__name__)

_STEPS_TOLD = 5
_OBSERVATION = 200
_ARGUMENTS = 120
_LAST = 1_000

_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "steps": "all {n} steps are used up",
        "seconds": "the time is over",
        "cost": "the money is used up",
        "loop": "the same calls brought the same results again and again",
        "cancelled": "the run was cancelled",
        "policy": "no decision could be made ({why})",
        "note": "(Answered from what was found until then: {why}.)",
        "none": "There is no answer to “{question}”: {why}.",
        "nothing": "Nothing was done before.",
        "done": "What was done ({n} steps{left}):",
        "left": ", the last {told} of them",
        "step": "{number}. {tool} {arguments} → {mark}{observation}",
        "failed": "failed: ",
        "last": "The last result: {observation}",
    },
    "zh": {
        "steps": "{n} 个步骤已经用完",
        "seconds": "时间已到",
        "cost": "费用已经用完",
        "loop": "同样的调用反复得到同样的结果",
        "cancelled": "运行已被取消",
        "policy": "无法作出决定（{why}）",
        "note": "（根据到此为止找到的内容作答：{why}。）",
        "none": "“{question}”没有得到答案：{why}。",
        "nothing": "在此之前什么都没有做。",
        "done": "已经做过的事（共 {n} 步{left}）：",
        "left": "，以下是最后 {told} 步",
        "step": "{number}. {tool} {arguments} → {mark}{observation}",
        "failed": "失败：",
        "last": "最后的结果：{observation}",
    },
}


def last_words(
    language: Language, question: str, stopped: str, answer: str, steps: Sequence[Step], why: str = ""
) -> str:
    """The message at the end of a run.

    Args:
        language: Its language.
        question: What was asked.
        stopped: What ended the run.
        answer: The answer; "" for none.
        steps: What was done.
        why: More about the end.
    """
    words = _WORDS[language]
    if answer and stopped == "answered":
        return answer
    reason = words[stopped].format(n=len(steps), why=why) if stopped in words else stopped
    if answer:
        return f"{answer}\n{words['note'].format(why=reason)}"
    lines = [words["none"].format(question=_cut(question, _LAST), why=reason)]
    if not steps:
        return "\n".join([*lines, words["nothing"]])
    told = steps[-_STEPS_TOLD:]
    left = words["left"].format(told=len(told)) if len(told) < len(steps) else ""
    lines.append(words["done"].format(n=len(steps), left=left))
    lines += [
        words["step"].format(
            number=step.number,
            tool=step.tool,
            arguments=_cut(step.arguments, _ARGUMENTS),
            mark="" if step.ok else words["failed"],
            observation=_cut(step.observation, _OBSERVATION),
        )
        for step in told
    ]
    if len(steps[-1].observation) > _OBSERVATION:
        lines.append(words["last"].format(observation=_cut(steps[-1].observation, _LAST)))
    return "\n".join(lines)


def _cut(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


__all__ = [
    "Act",
    "Answer",
    "Budget",
    "Observation",
    "RunResult",
    "Situation",
    "Step",
    "arun_agent",
    "run_agent",
]

_LONGEST_CIRCLE = 4  # steps after which an agent that goes in circles is back where it was


Policy = Callable[[Situation], Any]
Tools = Mapping[str, Callable[..., Any]]


def run_agent(
    policy: Policy,
    tools: Tools,
    question: str,
    *,
    budget: Budget | None = None,
    operations: AgentOperations | None = None,
    guarded: Iterable[GuardedTool] = (),
    task: str | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    on_event: Callable[[TaskEvent], None] = lambda _: None,
    language: Language | None = None,
) -> RunResult:
    """Run a policy until it answers or the budget ends; it always ends, and never raises for a tool or the policy.

    Args:
        policy: Gets a `Situation`, returns an `Act` or an `Answer`.
        tools: Functions by name, called with the arguments by name. What they raise becomes an observation.
        question: The task in words.
        budget: How far it may go; `Budget()` by default.
        operations: Of the agent on whose behalf, when there are `guarded` tools.
        guarded: Those of the tools that have side effects (`agent/operations.py`).
        task: Id of the task, the scope of its operations. Running it again under the same id repeats no call that is
            guarded. A random one by default.
        cancelled: Asked between calls; True ends the run.
        on_event: Told each event of the task.
        language: Language of the last message; by default that of the question.

    Raises:
        UsageError: a guarded tool is not among the tools, or there are no operations to guard it with.
    """
    run = _Run(
        policy, tools, question, budget or Budget(), operations, guarded, task, cancelled, on_event, language
    )
    steps = run.steps()
    work, error, value = next(steps), None, None
    while True:
        try:
            value, error = within(run.seconds_left(), work.call), None
        except Exception as raised:  # noqa: BLE001  a policy or tool may raise anything
            error = raised
        try:
            work = steps.throw(error) if error is not None else steps.send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def arun_agent(policy: Policy, tools: Tools, question: str, **options: Any) -> RunResult:  # noqa: ANN401
    """`run_agent` on an event loop: policy and tools may be asynchronous; those that are not run in threads.

    Closing the loop waits for such a thread, also for one that this run no longer waits for.
    """
    options = {"budget": None, "operations": None, "guarded": (), "task": None, "language": None, **options}
    options = {"cancelled": lambda: False, "on_event": lambda _: None, **options}
    budget = options.pop("budget") or Budget()
    run = _Run(policy, tools, question, budget, **options)
    steps = run.steps()
    work, value = next(steps), None
    error: Exception | None
    while True:
        try:
            value, error = await asyncio.wait_for(work.acall(), run.seconds_left()), None
        except TimeoutError as raised:
            over = run.seconds_left()
            error = OutOfTimeError() if over is not None and over <= 0 else raised
        except Exception as raised:  # noqa: BLE001
            error = raised
        try:
            work = steps.throw(error) if error is not None else steps.send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Work:
    """Something that takes time: the loop hands it to its driver and gets the result back."""

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]]


Steps = Generator[_Work, Any, RunResult]


class _Run:
    """One run; `steps` is the loop itself, without saying how its work is waited for."""

    def __init__(
        self,
        policy: Policy,
        tools: Tools,
        question: str,
        budget: Budget,
        operations: AgentOperations | None,
        guarded: Iterable[GuardedTool],
        task: str | None,
        cancelled: Callable[[], bool],
        on_event: Callable[[TaskEvent], None],
        language: Language | None,
    ) -> None:
        self._guarded = {tool.name: tool for tool in guarded}
        missing = sorted(self._guarded.keys() - tools.keys())
        if missing:
            raise UsageError(f"The guarded tool {missing[0]!r} is not among the tools {sorted(tools)}.")
        if self._guarded and operations is None:
            raise UsageError(f"The tools {sorted(self._guarded)} are guarded: pass operations=… of an agent.")
        self._policy, self._tools, self._question, self._budget = policy, tools, question, budget
        self._operations, self._cancelled, self._on_event = operations, cancelled, on_event
        self._language: Language = language or detect_language(question)
        self._state = TaskState(task or uuid.uuid4().hex)
        self._events: list[TaskEvent] = []
        self._done: list[Step] = []
        self._began = time.monotonic()

    def seconds_left(self) -> float | None:
        if self._budget.seconds is None:
            return None
        return self._budget.seconds - (time.monotonic() - self._began)

    def steps(self) -> Steps:
        while True:
            stopped = self._over()
            if stopped is not None:
                return (yield from self._last_answer(stopped))
            try:
                decision = yield self._decide(must_answer=False)
            except OutOfTimeError:
                return self._end("failed", "seconds")
            except Exception as error:
                logger.exception("the policy of task %s failed", self._state.task)
                return self._end("failed", "policy", why=f"{type(error).__name__}: {error}")
            ended = self._ended_by(decision)
            if ended is not None:
                return ended
            if not (yield from self._act(decision)):
                return self._end("failed", "seconds")

    def _ended_by(self, decision: object) -> RunResult | None:
        """The end, when a decision is one, or none at all; a call that was planned otherwise."""
        if not isinstance(decision, Act | Answer) or not is_cost(decision.cost):
            why = f"it decided {short_repr(decision)}, which is no Act or Answer with a cost of 0 or more"
            return self._end("failed", "policy", why=why)
        if isinstance(decision, Answer):
            return self._end("succeeded", "answered", answer=str(decision.text), cost=decision.cost)
        if self._cancelled():
            return self._end("cancelled", "cancelled", cost=decision.cost)
        self._happened("planned", str(decision.tool), decision.cost)
        return None

    def _over(self) -> Stopped | None:
        left, budget = self.seconds_left(), self._budget
        if self._cancelled():
            return "cancelled"
        if left is not None and left <= 0:
            return "seconds"
        if budget.cost is not None and self._state.cost >= budget.cost:
            return "cost"
        if self._in_circles():
            return "loop"
        return "steps" if self._state.step >= budget.steps else None

    def _in_circles(self) -> bool:
        """Whether the last calls are the same few, with the same results, over and over."""
        seen = [(step.tool, step.arguments, step.observation) for step in self._done]
        for length in range(1, _LONGEST_CIRCLE + 1):
            tail = seen[-length * self._budget.repeats :]
            if len(tail) == length * self._budget.repeats and tail[length:] == tail[:-length]:
                return True
        return False

    def _last_answer(self, stopped: Stopped) -> Steps:
        """The end, after one more chance to answer where only steps are used up or the agent went in circles."""
        if stopped == "cancelled":
            return self._end("cancelled", stopped)
        if stopped in {"steps", "loop"}:
            try:
                decision = yield self._decide(must_answer=True)
            except Exception as error:  # noqa: BLE001
                logger.warning("the policy of task %s had no last answer: %s", self._state.task, error)
            else:
                if isinstance(decision, Answer) and is_cost(decision.cost):
                    return self._end("succeeded", stopped, answer=str(decision.text), cost=decision.cost)
        return self._end("failed", stopped)

    def _decide(self, *, must_answer: bool) -> _Work:
        budget = self._budget
        situation = Situation(
            self._question,
            tuple(self._done),
            max(0, budget.steps - self._state.step),
            self.seconds_left(),
            None if budget.cost is None else max(0.0, budget.cost - self._state.cost),
            must_answer,
        )
        return _Work(lambda: self._policy(situation), lambda: _awaited(self._policy, situation))

    def _act(self, decision: Act) -> Generator[_Work, Any, bool]:
        """Call the tool and note what came of it; False when the time was over first."""
        began = time.monotonic()
        try:
            arguments = canonical(dict(decision.arguments))
            value = yield self._call(decision)
        except OutOfTimeError:
            return False
        except Exception as error:  # noqa: BLE001  a tool may raise anything
            logger.warning("the tool %s of task %s failed: %s", decision.tool, self._state.task, error)
            arguments = str(decision.arguments)
            value = Observation(f"{type(error).__name__}: {error}", ok=False)
        observed = value if isinstance(value, Observation) else Observation(value)
        if not is_cost(observed.cost):
            observed = Observation(f"the tool says that it cost {short_repr(observed.cost)}", ok=False)
        content = _as_text(observed.content)
        self._happened("executed", "ok" if observed.ok else "error", observed.cost)
        seconds = time.monotonic() - began
        self._done.append(Step(self._state.step, decision.tool, arguments, content, observed.ok, seconds))
        self._happened("observed")
        return True

    def _call(self, decision: Act) -> _Work:
        if decision.tool not in self._tools:
            raise UsageError(
                f"there is no tool {decision.tool!r}; the tools are {', '.join(sorted(self._tools))}"
            )
        function, guarded = self._tools[decision.tool], self._guarded.get(decision.tool)
        arguments = dict(decision.arguments)
        if guarded is None or self._operations is None:
            return _Work(lambda: function(**arguments), lambda: _awaited(function, **arguments))
        mine, scope = self._operations, self._state.task

        async def later() -> Observation:
            outcome = await mine.acall(
                guarded, arguments, lambda given: _awaited(function, **given), scope=scope
            )
            return _observed(outcome)

        return _Work(
            lambda: _observed(mine.call(guarded, arguments, lambda given: function(**given), scope=scope)),
            later,
        )

    def _happened(self, kind: Kind, detail: str = "", cost: float = 0.0) -> None:
        event = self._state.next(kind, detail, cost)
        self._state = advance(self._state, event)
        self._events.append(event)
        self._on_event(event)

    def _end(
        self,
        kind: Literal["succeeded", "failed", "cancelled"],
        stopped: Stopped,
        *,
        answer: str = "",
        why: str = "",
        cost: float = 0.0,
    ) -> RunResult:
        self._happened(kind, why or stopped, cost)
        done = tuple(self._done)
        message = last_words(self._language, self._question, stopped, answer, done, why)
        seconds = time.monotonic() - self._began
        return RunResult(self._state, stopped, answer, message, done, tuple(self._events), seconds)


def _observed(outcome: Any) -> Observation:  # noqa: ANN401
    """What the policy sees of a guarded call."""
    ok = outcome.status in {"done", "replayed"}
    result = outcome.result if isinstance(outcome.result, Observation) else Observation(outcome.result)
    if outcome.status == "done":
        return result
    text = f"{outcome.message}\n{_as_text(outcome.result)}" if ok else outcome.message
    return Observation(text, ok=ok)


async def _awaited(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    value = await asyncio.to_thread(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _as_text(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)
