"""How dangerous a tool is, how it is guarded, and what can come of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import UsageError
from langchain_agentrag.guard.validation import ArgumentSchema, Checked, Problem

RiskName = Literal["read", "low", "medium", "high"]
"""`read`: changes nothing · `low`: easily undone · `medium`: others see it, or it costs · `high`: cannot be undone."""

RISKS: tuple[RiskName, ...] = get_args(RiskName)
Status = Literal["done", "replayed", "invalid", "refused", "running", "needs_reconcile", "not_done"]
Risk = RiskName | Callable[[Mapping[str, Any]], RiskName]
Approval = Callable[["Proposal"], Any]


class NothingDone(Exception):  # noqa: N818  (a tool's statement, no fault of ours)
    """Raised by a tool that is certain to have changed nothing: the operation may run again."""


@dataclass(frozen=True, slots=True)
class ToolRule:
    """How a tool is guarded.

    Attributes:
        risk: Its level, or a function of the arguments that says it.
        timeout: Seconds after which the outcome counts as unknown; None waits.
        repeatable: Whether each call of the model is an operation of its own, also with arguments it had before.
    """

    risk: Risk = "high"
    timeout: float | None = None
    repeatable: bool = False

    def __post_init__(self) -> None:
        if not callable(self.risk):
            level(self.risk)
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"timeout={self.timeout!r} must be a number of seconds above 0, or None.")


class GuardedTool:
    """A tool under guard.

    Args:
        name: Its name.
        schema: JSON Schema of its arguments.
        rule: How it is guarded.
        check: Finds problems with arguments that no schema can say; called with valid ones, before anything is done.
    """

    def __init__(
        self,
        name: str,
        schema: Mapping[str, Any] | ArgumentSchema,
        rule: ToolRule,
        check: Callable[[dict[str, Any]], Sequence[Problem]] | None = None,
    ) -> None:
        self.name, self.rule = name, rule
        self._schema = schema if isinstance(schema, ArgumentSchema) else ArgumentSchema(schema)
        self._check = check

    def checked(self, arguments: object, language: Language, *, repair: bool) -> Checked:
        """The arguments as the tool is to get them, or what is wrong with them."""
        checked = self._schema.check(arguments, language, repair=repair)
        if self._check is None or checked.problems:
            return checked
        return Checked(checked.arguments, tuple(self._check(checked.arguments)))

    def completed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with the schema's defaults written out."""
        return self._schema.completed(arguments)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A call that is about to be made, as it is put before whoever approves."""

    principal: str
    tool: str
    arguments: dict[str, Any]
    risk: str
    scope: str
    operation_id: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call.

    Attributes:
        status: `done` and `replayed` have a result; `invalid`, `refused` and `not_done` changed nothing; `running` and
            `needs_reconcile` may have changed something.
        message: What to tell the model, in the language of the guard; "" when `done`.
        result: Of the call, or of the one it repeats (as JSON keeps it).
        operation_id: Id of the record; "" where there is none.
        problems: Of the arguments, when `invalid`.
        arguments: As the tool got them.
    """

    status: Status
    message: str = ""
    result: Any = None
    operation_id: str = ""
    problems: tuple[Problem, ...] = ()
    arguments: Mapping[str, Any] | None = None


def level(risk: str) -> int:
    """How high a level of risk is, 0 for `read`.

    Raises:
        UsageError: there is no such level.
    """
    if risk not in RISKS:
        raise UsageError(f"There is no level of risk {risk!r}: the levels are {', '.join(RISKS)}.")
    return RISKS.index(risk)
