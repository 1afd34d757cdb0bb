"""Retrieval budget of one conversation, counted call by call: `RetrievalMeter`."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from langchain_agentrag.agent.budget import RetrievalBudget, RetrievalHistory
from langchain_agentrag.agent.budget_messages import BudgetMessages
from langchain_agentrag.agent.prompt_injection import close_fence
from langchain_agentrag.agent.retrieval_calls import CallKey, Evidence, Kind, RetrievalCall, call_key, extract_evidence
from langchain_agentrag.agent.sufficiency import check_sufficiency, uncovered_parts
from langchain_agentrag.agent.tool_arguments import Language


@dataclass(frozen=True, slots=True)
class SubstituteReply:
    """Answer to a call that is not executed.

    Attributes:
        text: What the model sees.
        ends_run: Whether the run should end with this answer.
    """

    text: str
    ends_run: bool = False


class RetrievalMeter:
    """Counts the retrieval calls of one conversation against a budget. Thread-safe: parallel calls count each other.

    Args:
        budget: The limits; `RetrievalBudget()` by default. Its seconds count the time of the tools alone.
        language: Language of the texts for the model.
        sufficiency: See `RetrievalBudgetMiddleware`.

    Attributes:
        name: Unique name of the meter.
    """

    def __init__(
        self,
        budget: RetrievalBudget | None = None,
        *,
        language: Language = "en",
        sufficiency: Any = "rules",  # noqa: ANN401
    ) -> None:
        self._budget, self._messages = budget or RetrievalBudget(), BudgetMessages(language)
        self._sufficiency = check_sufficiency(sufficiency)
        self._history, self._lock = RetrievalHistory(), threading.Lock()
        self._running: list[CallKey] = []
        self._step = 0
        self.name = uuid.uuid4().hex

    def follows(self, question: str, step: int, *, fresh: bool) -> bool:
        """Begin a new run if the question or the step number shows that there is one; return whether it did.

        Args:
            question: The question of the run.
            step: Number of the agent's step; it only grows within a run.
            fresh: Whether the run is known to be new.
        """
        with self._lock:
            new = fresh or question != self._history.question or step < self._step
            self._step = step
        if new:
            self.begin(question)
        return new

    def begin(self, question: str) -> None:
        """Begin a new run: the usage of the run starts at zero, that of the conversation goes on."""
        with self._lock:
            self._history, self._running = self._history.new_run(question), []

    @property
    def question(self) -> str:
        """The question of the run."""
        return self._history.question

    def before(self, kind: Kind, name: str, arguments: Mapping[str, Any]) -> SubstituteReply | None:
        """Return None if the call is to be executed, which `after` or `failed` must follow; else its answer."""
        key = call_key(kind, name, arguments)
        with self._lock:
            decision = self._budget.plan(self._history, [*self._running, key])[-1]
            if decision.action == "make":
                self._running.append(key)
                return None
            if decision.action == "twin":
                return SubstituteReply(self._messages.duplicate_call())
            if decision.earlier is not None:
                text = self._messages.repeated_call(decision.earlier)
                self._history = replace(self._history.with_usage(characters=len(text)), idle=self._history.idle + 1)
                return SubstituteReply(text)
            # calls that still run may have used up the budget: then the history alone closes nothing yet
            closed = self._budget.closed(self._history) or {kind: decision.limit or "idle"}
            limit = closed.get(kind, decision.limit or "idle")
            self._history = replace(self._history, refused_calls=self._history.refused_calls + 1)
            if self._history.refused_calls == 1:
                return SubstituteReply(self._messages.refused_call(kind, {**closed, kind: limit}))
            text = self._messages.end_of_run(self._history, limit, self._uncovered())
            return SubstituteReply(text, ends_run=True)

    def after(
        self, kind: Kind, name: str, arguments: Mapping[str, Any], content: str, found: object, seconds: float
    ) -> str:
        """Count an executed call and return its result for the model.

        Args:
            kind: As in `before`, and so are the next two.
            name: The tool.
            arguments: As the model passed them.
            content: Result of the tool.
            found: Its records, documents or nodes.
            seconds: How long it took.
        """
        evidence = extract_evidence(content, found)
        coverage = self._history.coverage
        if self._sufficiency is not None and self.question and evidence.texts:
            coverage = self._sufficiency.judge(self.question, evidence.texts, coverage)
        call = RetrievalCall.from_tool_call(kind, name, arguments, evidence)
        with self._lock:
            self._finish(call.key)
            previous = self._budget.same_as(self._history, evidence.passage_ids) if kind == "search" else None
            note = ""
            if previous is not None and not self._history.has_new(kind, evidence.passage_ids):
                content = self._messages.nothing_new(previous, self._history)
            elif previous is not None:
                note = self._messages.little_new(previous)
            left = self._budget.left(self._history).get("characters")
            room = None if left is None else left // (len(self._running) + 1)
            if room is not None and len(content) > room:
                content = f"{close_fence(content[:room])}\n{self._messages.truncated()}"
            history = self._history.with_call(call, 0, seconds, same=previous is not None)
            self._history = replace(history, coverage=coverage)
            calls_left = self._budget.left(self._history)
            calls_left.pop("characters", None)
            status = self._messages.status(self._history, self._uncovered(), calls_left)
            text = "\n".join(part for part in (content, note, status) if part)
            self._history = self._history.with_usage(characters=len(text))
        return text

    def failed(self, kind: Kind, name: str, arguments: Mapping[str, Any], seconds: float) -> None:
        """Count a call that raised: as a call without passages."""
        call = RetrievalCall.from_tool_call(kind, name, arguments, Evidence())
        with self._lock:
            self._finish(call.key)
            self._history = self._history.with_call(call, 0, seconds)

    def _finish(self, key: CallKey) -> None:
        if key in self._running:
            self._running.remove(key)

    def _uncovered(self) -> list[str]:
        return uncovered_parts(self.question, self._history.coverage) if self._sufficiency is not None else []
