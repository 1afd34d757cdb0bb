"""What a model is told about an operation that was not simply carried out. English and Chinese."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.agent.canonical_json import operation_id as derived_id
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import AgentRagError, ScopeError, UsageError
from langchain_agentrag.guard.operation_log import Operation, OperationFile, State, Wanted
from langchain_agentrag.guard.timing import OutOfTimeError, within
from langchain_agentrag.guard.tool_rules import (
    Approval,
    GuardedTool,
    NothingDone,
    Outcome,
    Proposal,
    RiskName,
    Status,
    level,
)
from langchain_agentrag.guard.validation import Problem
from langchain_agentrag.scope import check_agent_id

logger = logging.getLogger(__name__)

_LONGEST_SHOWN_ERROR = 500

_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "invalid": "{tool} was not called, the arguments are wrong: {problems}. Correct them and call again.",
        "risk": "{tool} was not called: its risk is “{risk}”, and you may go up to “{most}” only. Do not call it "
        "again; say what you would do and let a person decide.",
        "rejected": "{tool} was not called: it was not approved{reason}. Do not repeat the call; go on without it, or "
        "ask.",
        "undeclared": "{tool} was not called: it is not among the tools you may use here. Go on without it.",
        "replayed": "[{tool} was already carried out with these arguments at {when}; it was not done again. This is "
        "the result of that time.]",
        "running": "{tool} is being carried out with these arguments right now (operation {id}, since {when}). Do not "
        "call it again; go on with something else.",
        "needs_reconcile": "It is unknown whether {tool} took effect ({error}; operation {id}, begun {when}). It may "
        "have happened, so it is not done a second time, and calling it again will not help. Check with a reading "
        "tool whether it happened, or tell the user that operation {id} has to be looked into.",
        "not_done": "{tool} did nothing: {error}. You may correct the call and make it again.",
        "reused": "{tool} was not called: {error}",
        "unable": "{tool} was not called: {error}",
        "because": ": {why}",
        "no_reason": "no result arrived",
    },
    "zh": {
        "invalid": "没有调用 {tool}，参数有误：{problems}。请改正后重新调用。",
        "risk": "没有调用 {tool}：它的风险级别是“{risk}”，而你最高只能用到“{most}”。"
        "不要再次调用；请说明你打算做什么，由人来决定。",
        "rejected": "没有调用 {tool}：操作没有得到批准{reason}。不要重复这个调用；请换一种做法继续，或者询问用户。",
        "undeclared": "没有调用 {tool}：它不在这里允许使用的工具之内。请不用它继续。",
        "replayed": "[{tool} 已于 {when} 以同样的参数执行过，这次没有重复执行。以下是当时的结果。]",
        "running": "{tool} 正在以同样的参数执行（操作 {id}，开始于 {when}）。不要再次调用，请先做别的事。",
        "needs_reconcile": "不知道 {tool} 是否已经生效（{error}；操作 {id}，开始于 {when}）。"
        "它可能已经执行，所以不会再执行第二次，再次调用也没有用。"
        "请用查询类工具核实它是否已经生效，或告诉用户需要核查操作 {id}。",
        "not_done": "{tool} 没有做任何事：{error}。可以改正后重新调用。",
        "reused": "没有调用 {tool}：{error}",
        "unable": "没有调用 {tool}：{error}",
        "because": "：{why}",
        "no_reason": "没有收到结果",
    },
}


class OperationReplies:
    """The texts in one language."""

    def __init__(self, language: Language) -> None:
        self._words = _WORDS[language]
        self._join = "；" if language == "zh" else "; "

    def invalid(self, tool: str, problems: Sequence[Problem]) -> str:
        """The arguments break the schema."""
        told = self._join.join(problem.message for problem in problems)
        return self._words["invalid"].format(tool=tool, problems=told.rstrip(".。"))

    def too_risky(self, tool: str, risk: str, most: str) -> str:
        """The call goes beyond what was delegated."""
        return self._words["risk"].format(tool=tool, risk=risk, most=most)

    def rejected(self, tool: str, why: str) -> str:
        """Somebody was asked, and said no."""
        reason = self._words["because"].format(why=why) if why else ""
        return self._words["rejected"].format(tool=tool, reason=reason)

    def undeclared(self, tool: str) -> str:
        """Nobody said how dangerous the tool is."""
        return self._words["undeclared"].format(tool=tool)

    def not_done(self, tool: str, why: str) -> str:
        """The tool said that nothing happened."""
        return self._words["not_done"].format(tool=tool, error=why)

    def unable(self, tool: str, why: str) -> str:
        """The call could not be made."""
        return self._words["unable"].format(tool=tool, error=why)

    def about(self, operation: Operation) -> str:
        """What stands against another execution, or where the result comes from."""
        kind = {"done": "replayed", "in_flight": "running"}.get(operation.state, "needs_reconcile")
        error = operation.error[:_LONGEST_SHOWN_ERROR] or self._words["no_reason"]
        when = operation.started.strftime("%Y-%m-%d %H:%M:%S UTC")
        return self._words[kind].format(
            tool=operation.tool, id=operation.operation_id, when=when, error=error
        )


_LONGEST_ERROR = 1_000
_STATUS: dict[State, Status] = {"done": "replayed", "in_flight": "running"}


class Rules(Protocol):
    """What a call needs of `Operations`."""

    approval: Approval | None
    approve_from: RiskName
    durable_from: RiskName
    replies: OperationReplies
    file: OperationFile


class PlannedCall:
    """A call whose arguments are valid and whose risk is within what was delegated.

    Args:
        rules: Of all calls.
        wanted: What it is recorded as.
        arguments: As the tool gets them.
        paused_by: Exceptions that mean "not begun".
    """

    def __init__(
        self,
        rules: Rules,
        wanted: Wanted,
        arguments: dict[str, Any],
        paused_by: tuple[type[BaseException], ...],
    ) -> None:
        self.arguments = arguments
        self._rules, self._wanted, self._paused_by = rules, wanted, paused_by
        self._attempt = ""

    def standing(self) -> Outcome | None:
        """The answer of a record that is there already: nobody is asked to approve what will not be done."""
        found = self._found()
        if found is None:
            return None
        self._wanted.check_same(found)
        return None if found.state == "not_done" else self._answer(found)

    def asked(self, approval: Approval | None) -> Any:  # noqa: ANN401
        """What the approval says, maybe later; True where none is needed."""
        wanted = self._wanted
        ask = approval or self._rules.approval
        if ask is None or level(wanted.risk) < level(self._rules.approve_from):
            return True
        return ask(
            Proposal(
                wanted.principal, wanted.tool, self.arguments, wanted.risk, wanted.scope, wanted.operation_id
            )
        )

    def decided(self, said: object) -> Outcome | None:
        """The refusal, unless the approval said True."""
        if said is True:
            return None
        return Outcome(
            "refused", self._rules.replies.rejected(self._wanted.tool, said if isinstance(said, str) else "")
        )

    def begin(self) -> Outcome | None:
        """Write the call down as begun; the answer when another one was faster."""
        durable = level(self._wanted.risk) >= level(self._rules.durable_from)
        begun = self._rules.file.begin(self._wanted, durable=durable)
        if isinstance(begun, Operation):
            return self._answer(begun)
        self._attempt = begun
        return None

    def withdraw(self) -> None:
        """Take back a call that was begun and never made."""
        if self._attempt:
            self._end("not_done", error="cancelled before it was made")

    def succeeded(self, result: object) -> Outcome:
        """Record the result."""
        self._end("done", result=_as_json(result))
        return self._outcome("done", "", result)

    def failed(self, error: BaseException) -> Outcome:
        """Record a call that raised.

        Raises:
            BaseException: the error itself, where it is no business of the model: a pause, a cancellation, an exit.
        """
        if isinstance(error, self._paused_by):
            self._end("not_done", error=_told(error))
            raise error
        if isinstance(error, NothingDone):
            self._end("not_done", error=_told(error))
            return self._outcome("not_done", self._rules.replies.not_done(self._wanted.tool, str(error)))
        cut_off = isinstance(error, TimeoutError | asyncio.CancelledError)  # a thread of the tool's may go on
        self._end("needs_reconcile", error=_told(error), going_on=cut_off)
        if not isinstance(error, Exception):
            raise error
        logger.warning("the outcome of operation %s is unknown", self._wanted.operation_id, exc_info=error)
        return self._now()

    def given_up(self, why: str) -> Outcome:
        """Stop waiting for a call that goes on; should it still end, that is written down."""
        if self._rules.file.settle(self._wanted, self._attempt, "needs_reconcile", error=why, going_on=True):
            logger.warning("operation %s: %s; its outcome is unknown", self._wanted.operation_id, why)
        return self._now()

    def _end(
        self, state: State, *, result: str | None = None, error: str = "", going_on: bool = False
    ) -> None:
        """Write down how the attempt ended; where that fails the record stays `in_flight`: unknown, never repeated."""
        file, wanted = self._rules.file, self._wanted
        try:
            if not file.settle(wanted, self._attempt, state, result=result, error=error, going_on=going_on):
                logger.warning("operation %s ended as %s after it was reconciled", wanted.operation_id, state)
        except AgentRagError:
            logger.exception("how operation %s ended could not be written down", wanted.operation_id)
        finally:
            file.ended(self._attempt)

    def _found(self) -> Operation | None:
        return self._rules.file.find(self._wanted.principal, self._wanted.operation_id)

    def _now(self) -> Outcome:
        found = self._found()
        if found is None:  # forgotten meanwhile
            return self._outcome(
                "needs_reconcile", self._rules.replies.unable(self._wanted.tool, "its record is gone")
            )
        return self._answer(found)

    def _answer(self, found: Operation) -> Outcome:
        """What a call is told when its operation has a record."""
        status = _STATUS.get(found.state, "needs_reconcile")
        return self._outcome(status, self._rules.replies.about(found), found.result)

    def _outcome(self, status: Status, message: str, result: object = None) -> Outcome:
        return Outcome(status, message, result, self._wanted.operation_id, arguments=self.arguments)


class UnrecordedCall(PlannedCall):
    """A call that changes nothing: it is made each time, and an error says so."""

    def __init__(
        self, rules: Rules, tool: str, arguments: dict[str, Any], paused_by: tuple[type[BaseException], ...]
    ) -> None:
        super().__init__(rules, Wanted("", "", tool, "", "", "read"), arguments, paused_by)

    def begin(self) -> Outcome | None:
        """Nothing is written down."""
        return None

    def given_up(self, why: str) -> Outcome:
        """No answer in time."""
        return self._outcome("not_done", self._rules.replies.not_done(self._wanted.tool, why))

    def failed(self, error: BaseException) -> Outcome:
        """No answer.

        Raises:
            BaseException: the error itself, where it is no business of the model.
        """
        if isinstance(error, self._paused_by) or not isinstance(error, Exception):
            raise error
        logger.warning("the tool %s failed", self._wanted.tool, exc_info=error)
        return self.given_up(_told(error))

    def _end(
        self, state: State, *, result: str | None = None, error: str = "", going_on: bool = False
    ) -> None:
        """Nothing is written down."""


def _told(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "the time was over"
    return f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]


def _as_json(result: object) -> str:
    """The result as JSON, or as text where JSON has no such thing. It never fails, as the call has happened."""
    try:
        return json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        try:
            return json.dumps(str(result))
        except Exception:  # noqa: BLE001  any object's __str__ may raise anything
            return "null"


class Operations:
    """The operations of all agents, kept in one SQLite file; `for_agent` gives the part that belongs to one.

    Args:
        path: The file; made when it is not there.
        max_risk: The highest level delegated to the agents, or a function that says it for each.
        approval: Asked with a `Proposal` before calls of the level `approve_from` or above: True, False, or the reason
            for a no. May be asynchronous where the call is.
        approve_from: Level from which approval is needed.
        durable_from: Level from which a record also survives a power failure, at the price of a disk flush before the
            call (milliseconds). The death of the process, by whatever signal, loses none at any level.
        language: Language of the messages.
        repair: Whether arguments in the wrong notation ("5" for 5) are put right where nothing is lost.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_risk: RiskName | Callable[[str], RiskName] = "medium",
        approval: Approval | None = None,
        approve_from: RiskName = "high",
        durable_from: RiskName = "high",
        language: Language = "en",
        repair: bool = True,
    ) -> None:
        if not callable(max_risk):
            level(max_risk)
        self.max_risk, self.approval, self.repair = max_risk, approval, repair
        level(approve_from), level(durable_from)  # refuses what is none
        self.approve_from, self.durable_from = approve_from, durable_from
        self.language: Language = language
        self.replies = OperationReplies(language)
        self.file = OperationFile(Path(path))

    def for_agent(self, principal: str) -> AgentOperations:
        """The operations of one agent.

        Raises:
            ScopeError: the id is no agent's; without one nothing with side effects is done.
        """
        return AgentOperations(self, principal)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def __enter__(self) -> Operations:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AgentOperations:
    """Operations of one agent: it sees, repeats and settles its own only."""

    def __init__(self, operations: Operations, principal: str) -> None:
        if check_agent_id(principal) is None:
            raise ScopeError(
                "Calls with side effects need an agent: name the one on whose behalf they are made."
            )
        self._all, self._file, self._principal = operations, operations.file, principal

    def call(
        self,
        tool: GuardedTool,
        arguments: object,
        execute: Callable[[dict[str, Any]], Any],
        *,
        scope: str,
        operation_id: str | None = None,
        approval: Approval | None = None,
        paused_by: tuple[type[BaseException], ...] = (),
    ) -> Outcome:
        """Make a call, unless something stands against it.

        Args:
            tool: The tool.
            arguments: What the model wrote.
            execute: Makes the call; what it raises counts as an unknown outcome, except `NothingDone`.
            scope: The task within which an equal call is the same operation.
            operation_id: An id of the caller's instead of the derived one; it stands for one operation for ever.
            approval: Instead of that of `Operations`.
            paused_by: Exceptions of `execute` that mean "not begun, will be called again"; they are raised again.

        Raises:
            UsageError: the scope is empty, or the id belongs to another operation.
            StoreError: the call could not be written down; it was not made.
        """
        planned = self._planned(tool, arguments, scope, operation_id, paused_by)
        if isinstance(planned, Outcome):
            return planned
        against = planned.decided(planned.asked(approval)) or planned.begin()
        if against is not None:
            return against
        try:
            return within(tool.rule.timeout, lambda: _execute(planned, execute))
        except OutOfTimeError as error:
            return planned.given_up(str(error))

    async def acall(
        self,
        tool: GuardedTool,
        arguments: object,
        execute: Callable[[dict[str, Any]], Awaitable[Any]],
        *,
        scope: str,
        operation_id: str | None = None,
        approval: Approval | None = None,
        paused_by: tuple[type[BaseException], ...] = (),
    ) -> Outcome:
        """`call` without blocking the event loop; a call that is cancelled has an unknown outcome."""
        planned = await asyncio.to_thread(self._planned, tool, arguments, scope, operation_id, paused_by)
        if isinstance(planned, Outcome):
            return planned
        said = planned.asked(approval)
        against = planned.decided(await said if inspect.isawaitable(said) else said) or await _begun(planned)
        if against is not None:
            return against
        try:
            result = await asyncio.wait_for(execute(planned.arguments), tool.rule.timeout)
        except BaseException as error:  # noqa: BLE001  cancelled, too
            return planned.failed(error)
        return await asyncio.shield(asyncio.to_thread(planned.succeeded, result))

    def get(self, operation_id: str) -> Operation | None:
        """The agent's record of an id, or None."""
        return self._file.find(self._principal, operation_id)

    def unresolved(self) -> list[Operation]:
        """The agent's operations whose outcome is unknown, or that are under way; oldest first."""
        return self._file.unsettled(self._principal)

    def reconcile(
        self,
        operation_id: str,
        outcome: Literal["done", "not_done", "unknown"],
        *,
        result: Any = None,  # noqa: ANN401
        note: str = "",
        attempts: int | None = None,
        executing: bool = False,
    ) -> Operation:
        """Say what really happened; for the program around the agent or a person, never for the model.

        Args:
            operation_id: The operation.
            outcome: `done`: it happened, and equal calls get `result`; `not_done`: it did not, and may run again;
                `unknown`: still nobody knows, only the note is kept.
            result: What the tool would have answered; JSON.
            note: How you know.
            attempts: `attempts` of the record you looked at. With it, what you say is refused when somebody else has
                settled that attempt and begun another one meanwhile; pass it wherever two may reconcile at once.
            executing: Settle it even though its process seems to be alive.

        Raises:
            UsageError: the agent has no such operation, its outcome is known, it may still be executed, or was begun
                again since you looked.
        """
        states: dict[str, State] = {"done": "done", "not_done": "not_done", "unknown": "needs_reconcile"}
        if outcome not in states:
            raise UsageError(f"reconcile(…, {outcome!r}): say 'done', 'not_done' or 'unknown'.")
        text = canonical(result) if outcome == "done" else None
        return self._file.reconcile(
            self._principal,
            operation_id,
            states[outcome],
            result=text,
            note=note,
            attempts=attempts,
            force=executing,
        )

    def forget(self, *, before: datetime | None = None, unresolved: bool = False) -> int:
        """Delete the agent's records, so that equal calls are new operations; how many were deleted.

        `DualIndexer.forget_agent` knows nothing of this file: whoever forgets an agent calls both.

        Args:
            before: Only those that last changed before this time (timezone-aware).
            unresolved: Also those whose outcome is unknown: such a call can then happen a second time.
        """
        if before is not None and before.tzinfo is None:
            raise UsageError(f"before={before!r} has no timezone: pass an aware datetime.")
        seconds = None if before is None else before.timestamp()
        return self._file.forget(self._principal, seconds, unsettled=unresolved)

    def _planned(
        self,
        tool: GuardedTool,
        arguments: object,
        scope: str,
        operation_id: str | None,
        paused_by: tuple[type[BaseException], ...],
    ) -> PlannedCall | Outcome:
        """The call to be made, or the answer to one that is not."""
        if not isinstance(scope, str) or not scope:
            raise UsageError(f"scope={scope!r} must name the task that the call of {tool.name!r} belongs to.")
        canonical(scope)  # half a surrogate pair is refused here
        rules = self._all
        checked = tool.checked(arguments, rules.language, repair=rules.repair)
        if checked.problems:
            message = rules.replies.invalid(tool.name, checked.problems)
            return Outcome("invalid", message, problems=checked.problems)
        risk = tool.rule.risk(checked.arguments) if callable(tool.rule.risk) else tool.rule.risk
        most = rules.max_risk(self._principal) if callable(rules.max_risk) else rules.max_risk
        if level(risk) > level(most):
            return Outcome("refused", rules.replies.too_risky(tool.name, risk, most))
        if risk == "read":
            return UnrecordedCall(self._all, tool.name, checked.arguments, paused_by)
        complete = tool.completed(checked.arguments)
        name = operation_id or derived_id(self._principal, tool.name, complete, scope)
        wanted = Wanted(self._principal, name, tool.name, canonical(complete), scope, risk)
        planned = PlannedCall(rules, wanted, checked.arguments, paused_by)
        return planned.standing() or planned


def _execute(planned: PlannedCall, execute: Callable[[dict[str, Any]], Any]) -> Outcome:
    try:
        result = execute(planned.arguments)
    except BaseException as error:  # noqa: BLE001  whatever it is, the call may have happened
        return planned.failed(error)
    return planned.succeeded(result)


async def _begun(planned: PlannedCall) -> Outcome | None:
    beginning = asyncio.ensure_future(asyncio.to_thread(planned.begin))
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:  # written down by a thread that goes on, and never to be executed

        def withdraw(begun: asyncio.Future[Outcome | None]) -> None:
            if not begun.cancelled() and begun.exception() is None:
                planned.withdraw()

        beginning.add_done_callback(withdraw)
        raise
