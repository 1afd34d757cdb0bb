"""Guarded tools: risk levels, rules, argument validation, and the outcome of a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.errors import UsageError
from langchain_agentrag.guard.validation import ArgumentError, ArgumentSchema, ValidatedArguments

RiskName = Literal["read", "low", "medium", "high"]
"""`read`: changes nothing · `low`: easily undone · `medium`: others see it, or it costs · `high`: cannot be undone."""

RISKS: tuple[RiskName, ...] = get_args(RiskName)
Status = Literal["done", "replayed", "invalid", "refused", "running", "needs_reconcile", "not_done"]
Risk = RiskName | Callable[[Mapping[str, Any]], RiskName]
Approval = Callable[["Proposal"], Any]


class NothingDone(Exception):  # noqa: N818  (a report of the tool, not an error of this package)
    """Raised by a tool that is certain to have changed nothing: the operation may run again."""


@dataclass(frozen=True, slots=True)
class ToolRule:
    """Rule for the calls of a tool.

    Attributes:
        risk: Risk level, or a function of the arguments that returns it.
        timeout: Seconds after which the outcome counts as unknown; None waits.
        repeatable: Whether each call of the model is an operation of its own, also with the same arguments.
    """

    risk: Risk = "high"
    timeout: float | None = None
    repeatable: bool = False

    def __post_init__(self) -> None:
        if not callable(self.risk):
            risk_level(self.risk)
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"timeout={self.timeout!r} must be a number of seconds above 0, or None.")


class GuardedTool:
    """Tool with a rule and an argument schema.

    Args:
        name: Name of the tool.
        schema: JSON Schema of its arguments.
        rule: Rule for its calls.
        check: Returns errors in arguments that no schema can express; called with valid ones, before the tool is.

    Raises:
        UsageError: the schema is invalid.
        MissingExtraError: jsonschema is not installed (extra `guard`).
    """

    def __init__(
        self,
        name: str,
        schema: Mapping[str, Any] | ArgumentSchema,
        rule: ToolRule,
        check: Callable[[dict[str, Any]], Sequence[ArgumentError]] | None = None,
    ) -> None:
        self.name, self.rule = name, rule
        self._schema = schema if isinstance(schema, ArgumentSchema) else ArgumentSchema(schema)
        self._check = check

    def validate_arguments(self, arguments: object, language: Language, *, repair: bool) -> ValidatedArguments:
        """Validate arguments with the schema and the check; see `ArgumentSchema.validate`."""
        validated = self._schema.validate(arguments, language, repair=repair)
        if self._check is None or validated.errors:
            return validated
        return ValidatedArguments(validated.arguments, tuple(self._check(validated.arguments)))

    def with_defaults(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with the schema's defaults filled in."""
        return self._schema.with_defaults(arguments)


@dataclass(frozen=True, slots=True)
class Proposal:
    """Call that waits for approval."""

    principal: str
    tool: str
    arguments: dict[str, Any]
    risk: str
    scope: str
    operation_id: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a call.

    Attributes:
        status: `done` and `replayed` have a result; `invalid`, `refused` and `not_done` changed nothing; `running` and
            `needs_reconcile` may have changed something.
        message: Text for the model, in the language of `Operations`; "" when `done`.
        result: Result of the call, or the recorded one of the call it repeats (as JSON keeps it).
        operation_id: Id of the record; "" where there is none.
        errors: Errors in the arguments, when `invalid`.
        arguments: Arguments as the tool got them.
    """

    status: Status
    message: str = ""
    result: Any = None
    operation_id: str = ""
    errors: tuple[ArgumentError, ...] = ()
    arguments: Mapping[str, Any] | None = None


def risk_level(risk: str) -> int:
    """Return the rank of a risk level, 0 for `read`.

    Raises:
        UsageError: there is no such level.
    """
    if risk not in RISKS:
        raise UsageError(f"There is no level of risk {risk!r}: the levels are {', '.join(RISKS)}.")
    return RISKS.index(risk)
