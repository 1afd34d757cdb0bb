"""Calls of tools with side effects: checked, written down before they are made, and never made twice.

::

    arguments ──schema──▶ risk ──▶ record? ──none──▶ approval ──▶ in_flight ──call──▶ done
                 │          │        │                  │                      └─────▶ needs_reconcile
              invalid    refused     ├ done: replayed   refused
                                     └ else: running, needs_reconcile

Exactly once cannot be had from outside of the tool; what holds here is *at most once, and whoever asks is told*. A call
that raised, timed out or was killed may have happened: its record says `needs_reconcile`, and nothing but `reconcile`
by the program around the agent, which can look at what really happened, makes it run again.

Two calls are one operation when agent, tool, arguments (`agent/canonical.py`, with the schema's defaults filled in) and
scope are the same. The scope is the task: within it, sending the same message to the same person is done once.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from langchain_agentrag.agent.canonical_json import canonical
from langchain_agentrag.agent.canonical_json import operation_id as derived_id
from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.guard.operation_log import OperationFile
from langchain_agentrag.guard.operation_record import Operation, State, Wanted
from langchain_agentrag.guard.operation_replies import OperationReplies
from langchain_agentrag.guard.planned_call import PlannedCall, UnrecordedCall
from langchain_agentrag.guard.timing import OutOfTimeError, within
from langchain_agentrag.guard.tool_rules import Approval, GuardedTool, Outcome, RiskName, level
from langchain_agentrag.scope import check_agent_id


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
