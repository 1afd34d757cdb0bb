"""One call of a tool on its way: standing record, approval, begun, and how it ended."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Protocol

from langchain_agentrag.errors import AgentRagError
from langchain_agentrag.guard.operation_log import OperationFile
from langchain_agentrag.guard.operation_record import Operation, State, Wanted
from langchain_agentrag.guard.operation_replies import OperationReplies
from langchain_agentrag.guard.tool_rules import (
    Approval,
    NothingDone,
    Outcome,
    Proposal,
    RiskName,
    Status,
    level,
)

logger = logging.getLogger(__name__)

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
