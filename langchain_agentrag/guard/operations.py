"""Operations: idempotent tool calls with side effects, recorded before they are made and made at most once."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.agent.canonical_json import operation_id as derived_id
from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import AgentRagError, ScopeError, UsageError
from langchain_agentrag.guard.operation_log import Operation, OperationKey, OperationLog, State
from langchain_agentrag.guard.tool_rules import (
    Approval,
    GuardedTool,
    NothingDone,
    Outcome,
    Proposal,
    RiskName,
    Status,
    risk_level,
)
from langchain_agentrag.guard.validation import ArgumentError
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.timeouts import CallTimeoutError, run_with_timeout

logger = logging.getLogger(__name__)

_MAX_ERROR = 1_000  # characters that are recorded
_MAX_ERROR_SHOWN = 500
_STATUS: dict[State, Status] = {"done": "replayed", "in_flight": "running"}


class Operations:
    """Operations of all agents in one SQLite file; `for_agent` returns those of one.

    Args:
        path: The file; created when it does not exist.
        max_risk: Highest risk level the agents may use, or a function of the agent id that returns it.
        approval: Called with a `Proposal` before calls of the level `approve_from` or above; returns True, False, or
            the reason for a no. May be asynchronous where the call is.
        approve_from: Level from which approval is needed.
        durable_from: Level from which a record also survives a power failure, at the price of a disk flush before the
            call (milliseconds). The death of the process, by whatever signal, loses none at any level.
        language: Language of the messages.
        repair: Whether arguments in the wrong notation ("5" for 5) are repaired where nothing is lost.
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
            risk_level(max_risk)  # raises for an unknown one
        risk_level(approve_from)
        risk_level(durable_from)
        self.max_risk, self.approval, self.repair = max_risk, approval, repair
        self.approve_from, self.durable_from = approve_from, durable_from
        self.language: Language = language
        self.replies = OperationReplies(language)
        self.file = OperationLog(Path(path))

    def for_agent(self, principal: str) -> AgentOperations:
        """Return the operations of one agent.

        Raises:
            ScopeError: the agent id is invalid; calls with side effects need one.
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
    """Operations of one agent: it sees, repeats and reconciles its own only."""

    def __init__(self, operations: Operations, principal: str) -> None:
        if check_agent_id(principal) is None:
            raise ScopeError("Calls with side effects need an agent: name the one on whose behalf they are made.")
        self._operations, self._log, self._principal = operations, operations.file, principal

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
        """Make a call, unless it is invalid, refused, or was made before.

        Args:
            tool: The tool.
            arguments: Arguments as the model wrote them.
            execute: Makes the call; what it raises counts as an unknown outcome, except `NothingDone`.
            scope: The task within which an equal call is the same operation.
            operation_id: An id of the caller's instead of the derived one; it stands for one operation for ever.
            approval: Replaces that of `Operations`.
            paused_by: Exceptions of `execute` that mean "not begun, will be called again"; they are raised again.

        Raises:
            UsageError: the scope is empty, or the id belongs to another operation.
            StoreError: the call could not be recorded; it was not made.
        """
        call = self._prepare(tool, arguments, scope, operation_id, paused_by)
        if isinstance(call, Outcome):
            return call
        outcome = call.refusal(call.request_approval(approval)) or call.begin()
        if outcome is not None:
            return outcome
        try:
            return run_with_timeout(tool.rule.timeout, lambda: _execute(call, execute), "agentrag-tool-call")
        except CallTimeoutError as error:
            return call.timed_out(str(error))

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
        call = await asyncio.to_thread(self._prepare, tool, arguments, scope, operation_id, paused_by)
        if isinstance(call, Outcome):
            return call
        decision = call.request_approval(approval)
        outcome = call.refusal(await decision if inspect.isawaitable(decision) else decision)
        outcome = outcome or await _begin_async(call)
        if outcome is not None:
            return outcome
        try:
            result = await asyncio.wait_for(execute(call.arguments), tool.rule.timeout)
        except BaseException as error:  # noqa: BLE001  cancelled, too
            return call.failed(error)
        return await asyncio.shield(asyncio.to_thread(call.succeeded, result))

    def get(self, operation_id: str) -> Operation | None:
        """Return the agent's record of an id, or None."""
        return self._log.find(self._principal, operation_id)

    def unresolved(self) -> list[Operation]:
        """Return the agent's operations whose outcome is unknown or that are being executed, oldest first."""
        return self._log.unresolved(self._principal)

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
        """Record what really happened; for the program around the agent or a person, never for the model.

        Args:
            operation_id: The operation.
            outcome: `done`: it happened, and equal calls get `result`; `not_done`: it did not, and may run again;
                `unknown`: still unknown, only the note is recorded.
            result: What the tool would have returned; JSON.
            note: How you know.
            attempts: `attempts` of the record you looked at. With it, the call is refused when that attempt was
                reconciled and another one begun meanwhile; pass it wherever two may reconcile at once.
            executing: Reconcile it even though its process seems to be alive.

        Raises:
            UsageError: the agent has no such operation, its outcome is known, it may still be executing, or was begun
                again since you looked.
        """
        states: dict[str, State] = {"done": "done", "not_done": "not_done", "unknown": "needs_reconcile"}
        if outcome not in states:
            raise UsageError(f"reconcile(…, {outcome!r}): say 'done', 'not_done' or 'unknown'.")
        return self._log.reconcile(
            self._principal,
            operation_id,
            states[outcome],
            result=canonical(result) if outcome == "done" else None,
            note=note,
            attempts=attempts,
            force=executing,
        )

    def forget(self, *, before: datetime | None = None, unresolved: bool = False) -> int:
        """Delete the agent's records, so that equal calls are new operations, and return their number.

        `DualIndexer.forget_agent` does not touch this file: to forget an agent, call both.

        Args:
            before: Only those that last changed before this time (timezone-aware).
            unresolved: Also those whose outcome is unknown: such a call can then happen a second time.
        """
        if before is not None and before.tzinfo is None:
            raise UsageError(f"before={before!r} has no timezone: pass an aware datetime.")
        seconds = None if before is None else before.timestamp()
        return self._log.forget(self._principal, seconds, unresolved=unresolved)

    def _prepare(
        self,
        tool: GuardedTool,
        arguments: object,
        scope: str,
        operation_id: str | None,
        paused_by: tuple[type[BaseException], ...],
    ) -> _RecordedCall | Outcome:
        """Return the call to make, or the outcome of one that is not made."""
        if not isinstance(scope, str) or not scope:
            raise UsageError(f"scope={scope!r} must name the task that the call of {tool.name!r} belongs to.")
        canonical(scope)  # refuses half a surrogate pair
        operations = self._operations
        validated = tool.validate_arguments(arguments, operations.language, repair=operations.repair)
        if validated.errors:
            message = operations.replies.invalid(tool.name, validated.errors)
            return Outcome("invalid", message, errors=validated.errors)
        risk = tool.rule.risk(validated.arguments) if callable(tool.rule.risk) else tool.rule.risk
        max_risk = operations.max_risk
        max_risk = max_risk(self._principal) if callable(max_risk) else max_risk
        if risk_level(risk) > risk_level(max_risk):
            return Outcome("refused", operations.replies.too_risky(tool.name, risk, max_risk))
        if risk == "read":
            key = OperationKey("", "", tool.name, "", "", risk)
            return _UnrecordedCall(operations, key, validated.arguments, paused_by)
        complete = tool.with_defaults(validated.arguments)
        identity = operation_id or derived_id(self._principal, tool.name, complete, scope)
        key = OperationKey(self._principal, identity, tool.name, canonical(complete), scope, risk)
        call = _RecordedCall(operations, key, validated.arguments, paused_by)
        return call.recorded_outcome() or call


class _RecordedCall:
    """Valid call within the agent's risk level, with its record in the log.

    Args:
        operations: Rules and log.
        key: Identity of its record.
        arguments: Arguments as the tool gets them.
        paused_by: Exceptions that mean "not begun".
    """

    def __init__(
        self,
        operations: Operations,
        key: OperationKey,
        arguments: dict[str, Any],
        paused_by: tuple[type[BaseException], ...],
    ) -> None:
        self.arguments = arguments
        self._operations, self._log, self._replies = operations, operations.file, operations.replies
        self._key, self._paused_by = key, paused_by
        self._attempt = ""

    def recorded_outcome(self) -> Outcome | None:
        """Return the outcome of an existing record, before anybody is asked to approve a call that is not made."""
        operation = self._find()
        if operation is None:
            return None
        self._key.check_matches(operation)
        return None if operation.state == "not_done" else self._outcome_of(operation)

    def request_approval(self, approval: Approval | None) -> Any:  # noqa: ANN401
        """Return the decision or an awaitable of it; True where no approval is needed."""
        key, operations = self._key, self._operations
        ask = approval or operations.approval
        if ask is None or risk_level(key.risk) < risk_level(operations.approve_from):
            return True
        return ask(Proposal(key.principal, key.tool, self.arguments, key.risk, key.scope, key.operation_id))

    def refusal(self, decision: object) -> Outcome | None:
        """Return the refusal, unless the decision is True."""
        if decision is True:
            return None
        reason = decision if isinstance(decision, str) else ""
        return Outcome("refused", self._replies.rejected(self._key.tool, reason))

    def begin(self) -> Outcome | None:
        """Record the call as begun; return the outcome of a record that another call wrote first."""
        durable = risk_level(self._key.risk) >= risk_level(self._operations.durable_from)
        begun = self._log.begin(self._key, durable=durable)
        if isinstance(begun, Operation):
            return self._outcome_of(begun)
        self._attempt = begun
        return None

    def withdraw(self) -> None:
        """Record a call that was begun and cancelled before it was made."""
        if self._attempt:
            self._record("not_done", error="cancelled before it was made")

    def succeeded(self, result: object) -> Outcome:
        """Record the result."""
        self._record("done", result=_to_json(result))
        return self._outcome("done", "", result)

    def failed(self, error: BaseException) -> Outcome:
        """Record a call that raised.

        Raises:
            BaseException: the error itself, where the model must not get it: a pause, a cancellation, an exit.
        """
        text = _error_text(error)
        if isinstance(error, self._paused_by):
            self._record("not_done", error=text)
            raise error
        if isinstance(error, NothingDone):
            self._record("not_done", error=text)
            return self._outcome("not_done", self._replies.not_done(self._key.tool, str(error)))
        cut_off = isinstance(error, TimeoutError | asyncio.CancelledError)  # a thread of the tool's may go on
        self._record("needs_reconcile", error=text, running=cut_off)
        if not isinstance(error, Exception):
            raise error
        logger.warning("the outcome of operation %s is unknown", self._key.operation_id, exc_info=error)
        return self._current_outcome()

    def timed_out(self, reason: str) -> Outcome:
        """Record that the timeout was reached; the call goes on, and its outcome is recorded when it ends."""
        if self._log.record_outcome(self._key, self._attempt, "needs_reconcile", error=reason, running=True):
            logger.warning("operation %s: %s; its outcome is unknown", self._key.operation_id, reason)
        return self._current_outcome()

    def _record(self, state: State, *, result: str | None = None, error: str = "", running: bool = False) -> None:
        """Record how the attempt ended; where that fails the record stays `in_flight`: unknown, never repeated."""
        log, key = self._log, self._key
        try:
            if not log.record_outcome(key, self._attempt, state, result=result, error=error, running=running):
                logger.warning("operation %s ended as %s after it was reconciled", key.operation_id, state)
        except AgentRagError:
            logger.exception("how operation %s ended could not be written down", key.operation_id)
        finally:
            log.end_attempt(self._attempt)

    def _find(self) -> Operation | None:
        return self._log.find(self._key.principal, self._key.operation_id)

    def _current_outcome(self) -> Outcome:
        operation = self._find()
        if operation is None:  # forgotten meanwhile
            message = self._replies.unable(self._key.tool, "its record is gone")
            return self._outcome("needs_reconcile", message)
        return self._outcome_of(operation)

    def _outcome_of(self, operation: Operation) -> Outcome:
        status = _STATUS.get(operation.state, "needs_reconcile")
        return self._outcome(status, self._replies.recorded(operation), operation.result)

    def _outcome(self, status: Status, message: str, result: object = None) -> Outcome:
        return Outcome(status, message, result, self._key.operation_id, arguments=self.arguments)


class _UnrecordedCall(_RecordedCall):
    """Call of a tool that changes nothing: it is made each time and not recorded."""

    def begin(self) -> Outcome | None:
        return None

    def failed(self, error: BaseException) -> Outcome:
        if isinstance(error, self._paused_by) or not isinstance(error, Exception):
            raise error
        logger.warning("the tool %s failed", self._key.tool, exc_info=error)
        return self.timed_out(_error_text(error))

    def timed_out(self, reason: str) -> Outcome:
        return self._outcome("not_done", self._replies.not_done(self._key.tool, reason))

    def _record(self, state: State, *, result: str | None = None, error: str = "", running: bool = False) -> None:
        pass


def _execute(call: _RecordedCall, execute: Callable[[dict[str, Any]], Any]) -> Outcome:
    try:
        result = execute(call.arguments)
    except BaseException as error:  # noqa: BLE001  whatever it is, the call may have happened
        return call.failed(error)
    return call.succeeded(result)


async def _begin_async(call: _RecordedCall) -> Outcome | None:
    beginning = asyncio.ensure_future(asyncio.to_thread(call.begin))
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:  # the thread still records it as begun, though it is never made

        def withdraw(begun: asyncio.Future[Outcome | None]) -> None:
            if not begun.cancelled() and begun.exception() is None:
                call.withdraw()

        beginning.add_done_callback(withdraw)
        raise


def _error_text(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "the time was over"
    return f"{type(error).__name__}: {error}"[:_MAX_ERROR]


def _to_json(result: object) -> str:
    """Return the result as JSON, or as text where JSON has no such thing; never fails, as the call has happened."""
    try:
        return json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        try:
            return json.dumps(str(result))
        except Exception:  # noqa: BLE001  any object's __str__ may raise anything
            return "null"


class OperationReplies:
    """Messages to the model about calls, in one language."""

    def __init__(self, language: Language) -> None:
        self._messages = load_messages("guard", "operations", language)

    def invalid(self, tool: str, errors: Sequence[ArgumentError]) -> str:
        """The arguments are invalid."""
        problems = self._messages["separator"].join(error.message for error in errors)
        return self._messages["invalid"].format(tool=tool, problems=problems.rstrip(".。"))

    def too_risky(self, tool: str, risk: str, max_risk: str) -> str:
        """The risk is above the agent's level."""
        return self._messages["risk"].format(tool=tool, risk=risk, most=max_risk)

    def rejected(self, tool: str, reason: str) -> str:
        """The call was not approved."""
        because = self._messages["because"].format(why=reason) if reason else ""
        return self._messages["rejected"].format(tool=tool, reason=because)

    def undeclared(self, tool: str) -> str:
        """The tool has no rule."""
        return self._messages["undeclared"].format(tool=tool)

    def not_done(self, tool: str, reason: str) -> str:
        """The tool changed nothing."""
        return self._messages["not_done"].format(tool=tool, error=reason)

    def unable(self, tool: str, reason: str) -> str:
        """The call could not be made."""
        return self._messages["unable"].format(tool=tool, error=reason)

    def recorded(self, operation: Operation) -> str:
        """The operation has a record: its result, or why it is not made again."""
        kind = {"done": "replayed", "in_flight": "running"}.get(operation.state, "needs_reconcile")
        error = operation.error[:_MAX_ERROR_SHOWN] or self._messages["no_reason"]
        when = operation.started.strftime("%Y-%m-%d %H:%M:%S UTC")
        return self._messages[kind].format(tool=operation.tool, id=operation.operation_id, when=when, error=error)
