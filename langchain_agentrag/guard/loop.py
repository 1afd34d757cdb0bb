"""Agent loop with a budget: run a policy and its tools until there is an answer or a limit is reached."""

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
from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.agent.tool_arguments import Language, detect_language
from langchain_agentrag.errors import UsageError
from langchain_agentrag.guard.operations import AgentOperations
from langchain_agentrag.guard.task import (
    Act,
    Answer,
    Budget,
    EventKind,
    Observation,
    RunResult,
    Situation,
    Step,
    Stopped,
    TaskEvent,
    TaskState,
    advance,
    is_valid_cost,
)
from langchain_agentrag.guard.tool_rules import GuardedTool, Outcome
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.timeouts import CallTimeoutError, run_with_timeout

__all__ = ["Act", "Answer", "Budget", "Observation", "RunResult", "Situation", "Step", "arun_agent", "run_agent"]

logger = logging.getLogger(__name__)

Policy = Callable[[Situation], Any]
Tools = Mapping[str, Callable[..., Any]]

_MAX_CYCLE = 4
"""Longest cycle of calls that is recognized as a loop."""


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
    """Run a policy until it answers or the budget is used up; it always ends.

    What the policy or a tool raises ends in the result, never in an exception.

    Args:
        policy: Gets a `Situation`, returns an `Act` or an `Answer`.
        tools: Functions by name, called with the arguments by name. What they raise becomes an observation.
        question: The task in words.
        budget: Limits of the run; `Budget()` by default.
        operations: Operations of the agent, required with `guarded` tools.
        guarded: Those of the tools that have side effects; see `Operations`.
        task: Id of the task, the scope of its operations. Running it again under the same id repeats no guarded call.
            A random one by default.
        cancelled: Called between calls; True ends the run.
        on_event: Called with each event of the task.
        language: Language of the final message; by default that of the question.

    Raises:
        UsageError: a guarded tool is not among the tools, or `operations` is missing.
    """
    run = _Run(policy, tools, question, budget, operations, guarded, task, cancelled, on_event, language)
    loop = run.loop()
    call, value, error = next(loop), None, None
    while True:
        try:
            value, error = run_with_timeout(run.seconds_left(), call.run, "agentrag-run"), None
        except Exception as raised:  # noqa: BLE001  a policy or tool may raise anything
            error = raised
        try:
            call = loop.throw(error) if error is not None else loop.send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def arun_agent(policy: Policy, tools: Tools, question: str, **options: Any) -> RunResult:  # noqa: ANN401
    """Run `run_agent` on an event loop; takes the same options.

    Policy and tools may be asynchronous; those that are not run in threads. Closing the event loop waits for such a
    thread, also for one that this run no longer waits for.
    """
    run = _Run(policy, tools, question, **options)
    loop = run.loop()
    call, value = next(loop), None
    error: Exception | None
    while True:
        try:
            value, error = await asyncio.wait_for(call.arun(), run.seconds_left()), None
        except TimeoutError as raised:
            left = run.seconds_left()
            error = CallTimeoutError() if left is not None and left <= 0 else raised
        except Exception as raised:  # noqa: BLE001
            error = raised
        try:
            call = loop.throw(error) if error is not None else loop.send(value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class _Call:
    """Call of the policy or a tool: the loop yields it to `run_agent` or `arun_agent`, which send back its result."""

    run: Callable[[], Any]
    arun: Callable[[], Awaitable[Any]]


_Loop = Generator[_Call, Any, RunResult]


@dataclass
class _Run:
    """One run of the agent loop, independent of how its calls are waited for; see `run_agent`."""

    policy: Policy
    tools: Tools
    question: str
    budget: Budget | None = None
    operations: AgentOperations | None = None
    guarded: Iterable[GuardedTool] = ()
    task: str | None = None
    cancelled: Callable[[], bool] = lambda: False
    on_event: Callable[[TaskEvent], None] = lambda _: None
    language: Language | None = None

    def __post_init__(self) -> None:
        self._guarded = {tool.name: tool for tool in self.guarded}
        missing = sorted(self._guarded.keys() - self.tools.keys())
        if missing:
            raise UsageError(f"The guarded tool {missing[0]!r} is not among the tools {sorted(self.tools)}.")
        if self._guarded and self.operations is None:
            raise UsageError(f"The tools {sorted(self._guarded)} are guarded: pass operations=… of an agent.")
        self._budget = self.budget or Budget()
        self._state = TaskState(self.task or uuid.uuid4().hex)
        self._events: list[TaskEvent] = []
        self._steps: list[Step] = []
        self._start = time.monotonic()

    def seconds_left(self) -> float | None:
        if self._budget.seconds is None:
            return None
        return self._budget.seconds - (time.monotonic() - self._start)

    def loop(self) -> _Loop:
        while True:
            stopped = self._stop_reason()
            if stopped is not None:
                return (yield from self._stop(stopped))
            try:
                decision = yield self._policy_call(must_answer=False)
            except CallTimeoutError:
                return self._end("failed", "seconds")
            except Exception as error:
                logger.exception("the policy of task %s failed", self._state.task)
                return self._end("failed", "policy", reason=f"{type(error).__name__}: {error}")
            result = self._result_of(decision)
            if result is not None:
                return result
            if not (yield from self._act(decision)):
                return self._end("failed", "seconds")

    def _result_of(self, decision: object) -> RunResult | None:
        """Return the result of the run when a decision ends it, else record the call as planned and return None."""
        if not isinstance(decision, Act | Answer) or not is_valid_cost(decision.cost):
            reason = f"it decided {short_repr(decision)}, which is no Act or Answer with a cost of 0 or more"
            return self._end("failed", "policy", reason=reason)
        if isinstance(decision, Answer):
            return self._end("succeeded", "answered", answer=str(decision.text), cost=decision.cost)
        if self.cancelled():
            return self._end("cancelled", "cancelled", cost=decision.cost)
        self._emit("planned", str(decision.tool), decision.cost)
        return None

    def _stop_reason(self) -> Stopped | None:
        left, budget = self.seconds_left(), self._budget
        if self.cancelled():
            return "cancelled"
        if left is not None and left <= 0:
            return "seconds"
        if budget.cost is not None and self._state.cost >= budget.cost:
            return "cost"
        if self._repeats_itself():
            return "loop"
        return "steps" if self._state.step >= budget.steps else None

    def _repeats_itself(self) -> bool:
        """Return whether the last calls are a repeated cycle with the same results."""
        calls = [(step.tool, step.arguments, step.observation) for step in self._steps]
        for length in range(1, _MAX_CYCLE + 1):
            tail = calls[-length * self._budget.repeats :]
            if len(tail) == length * self._budget.repeats and tail[length:] == tail[:-length]:
                return True
        return False

    def _stop(self, stopped: Stopped) -> _Loop:
        """End the run; after a loop or when only the steps are used up, the policy may answer once more."""
        if stopped == "cancelled":
            return self._end("cancelled", stopped)
        if stopped in {"steps", "loop"}:
            try:
                decision = yield self._policy_call(must_answer=True)
            except Exception as error:  # noqa: BLE001
                logger.warning("the policy of task %s had no last answer: %s", self._state.task, error)
            else:
                if isinstance(decision, Answer) and is_valid_cost(decision.cost):
                    return self._end("succeeded", stopped, answer=str(decision.text), cost=decision.cost)
        return self._end("failed", stopped)

    def _policy_call(self, *, must_answer: bool) -> _Call:
        budget = self._budget
        situation = Situation(
            self.question,
            tuple(self._steps),
            max(0, budget.steps - self._state.step),
            self.seconds_left(),
            None if budget.cost is None else max(0.0, budget.cost - self._state.cost),
            must_answer,
        )
        return _Call(lambda: self.policy(situation), lambda: _call_async(self.policy, situation))

    def _act(self, decision: Act) -> Generator[_Call, Any, bool]:
        """Call the tool and record the step; False when the time was over first."""
        start = time.monotonic()
        try:
            arguments = canonical(dict(decision.arguments))
            value = yield self._tool_call(decision)
        except CallTimeoutError:
            return False
        except Exception as error:  # noqa: BLE001  a tool may raise anything
            logger.warning("the tool %s of task %s failed: %s", decision.tool, self._state.task, error)
            arguments = str(decision.arguments)
            value = Observation(f"{type(error).__name__}: {error}", ok=False)
        observation = value if isinstance(value, Observation) else Observation(value)
        if not is_valid_cost(observation.cost):
            text = f"the tool says that it cost {short_repr(observation.cost)}"
            observation = Observation(text, ok=False)
        content = _as_text(observation.content)
        self._emit("executed", "ok" if observation.ok else "error", observation.cost)
        seconds = time.monotonic() - start
        self._steps.append(Step(self._state.step, decision.tool, arguments, content, observation.ok, seconds))
        self._emit("observed")
        return True

    def _tool_call(self, decision: Act) -> _Call:
        if decision.tool not in self.tools:
            raise UsageError(f"there is no tool {decision.tool!r}; the tools are {', '.join(sorted(self.tools))}")
        function, guarded = self.tools[decision.tool], self._guarded.get(decision.tool)
        arguments = dict(decision.arguments)
        if guarded is None or self.operations is None:
            return _Call(lambda: function(**arguments), lambda: _call_async(function, **arguments))
        operations, scope = self.operations, self._state.task

        def run() -> Observation:
            return _observation_of(operations.call(guarded, arguments, lambda valid: function(**valid), scope=scope))

        async def arun() -> Observation:
            return _observation_of(
                await operations.acall(guarded, arguments, lambda valid: _call_async(function, **valid), scope=scope)
            )

        return _Call(run, arun)

    def _emit(self, kind: EventKind, detail: str = "", cost: float = 0.0) -> None:
        event = self._state.next(kind, detail, cost)
        self._state = advance(self._state, event)
        self._events.append(event)
        self.on_event(event)

    def _end(
        self,
        kind: Literal["succeeded", "failed", "cancelled"],
        stopped: Stopped,
        *,
        answer: str = "",
        reason: str = "",
        cost: float = 0.0,
    ) -> RunResult:
        self._emit(kind, reason or stopped, cost)
        steps = tuple(self._steps)
        language = self.language or detect_language(self.question)
        message = final_message(language, self.question, stopped, answer, steps, reason)
        seconds = time.monotonic() - self._start
        return RunResult(self._state, stopped, answer, message, steps, tuple(self._events), seconds)


def _observation_of(outcome: Outcome) -> Observation:
    result = outcome.result if isinstance(outcome.result, Observation) else Observation(outcome.result)
    if outcome.status == "done":
        return result
    if outcome.status == "replayed":
        return Observation(f"{outcome.message}\n{_as_text(outcome.result)}")
    return Observation(outcome.message, ok=False)


async def _call_async(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
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


_MAX_STEPS_SHOWN = 5
_MAX_ARGUMENTS = 120  # characters
_MAX_OBSERVATION = 200
_MAX_TEXT = 1_000  # of the question and of the last observation


def final_message(
    language: Language, question: str, stopped: str, answer: str, steps: Sequence[Step], reason: str = ""
) -> str:
    """Return the message for the user at the end of a run: the answer, or what was done and why there is none.

    Args:
        language: Language of the message.
        question: The task in words.
        stopped: What ended the run; see `RunResult`.
        answer: The answer; "" for none.
        steps: Steps done.
        reason: Details about the end.
    """
    messages = load_messages("guard", "loop", language)
    if answer and stopped == "answered":
        return answer
    why = messages[stopped].format(n=len(steps), why=reason) if stopped in messages else stopped
    if answer:
        return f"{answer}\n{messages['note'].format(why=why)}"
    lines = [messages["none"].format(question=_one_line(question, _MAX_TEXT), why=why)]
    if not steps:
        return "\n".join([*lines, messages["nothing"]])
    shown = steps[-_MAX_STEPS_SHOWN:]
    left = messages["left"].format(shown=len(shown)) if len(shown) < len(steps) else ""
    lines.append(messages["done"].format(n=len(steps), left=left))
    lines += [
        messages["step"].format(
            number=step.number,
            tool=step.tool,
            arguments=_one_line(step.arguments, _MAX_ARGUMENTS),
            mark="" if step.ok else messages["failed"],
            observation=_one_line(step.observation, _MAX_OBSERVATION),
        )
        for step in shown
    ]
    if len(steps[-1].observation) > _MAX_OBSERVATION:
        observation = _one_line(steps[-1].observation, _MAX_TEXT)
        lines.append(messages["last"].format(observation=observation))
    return "\n".join(lines)


def _one_line(text: str, max_chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"
