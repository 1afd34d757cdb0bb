"""The account of one agent's retrieval where no framework keeps state: `RetrievalMeter`, for tools that ask it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from langchain_agentrag.agent.budget import Asked, Kind, Ledger, RetrievalBudget
from langchain_agentrag.agent.budget_replies import BudgetReplies
from langchain_agentrag.agent.evidence import call_of, evidence_of, full_key
from langchain_agentrag.agent.prompt_injection import closed
from langchain_agentrag.agent.sufficiency import check_sufficiency, open_parts
from langchain_agentrag.agent.tool_arguments import Language


@dataclass(frozen=True, slots=True)
class Answered:
    """What becomes of a call.

    Attributes:
        text: What the model is told instead, or beside the result; "" for a call that is to be made.
        over: Whether retrieval has ended, so that the run should end too.
    """

    text: str
    over: bool = False


class RetrievalMeter:
    """Accounts the retrieval calls of one conversation. Thread-safe: calls that run at once count each other.

    Args:
        budget: The limits; `RetrievalBudget()` by default. Its seconds count the time of the tools alone.
        language: Language of what the model is told.
        sufficiency: See `RetrievalBudgetMiddleware`.

    Attributes:
        name: Tells it from every other.
    """

    def __init__(
        self,
        budget: RetrievalBudget | None = None,
        *,
        language: Language = "en",
        sufficiency: Any = "rules",  # noqa: ANN401
    ) -> None:
        self._budget, self._replies = budget or RetrievalBudget(), BudgetReplies(language)
        self._sufficiency = check_sufficiency(sufficiency)
        self._ledger, self._guard = Ledger(), threading.Lock()
        self._under_way: list[Asked] = []
        self._step = 0
        self.name = uuid.uuid4().hex

    def follows(self, question: str, step: int, *, fresh: bool) -> bool:
        """Begin a run where the question and the number of the agent's step are those of a new one; whether it did.

        Args:
            question: What the run is about.
            step: Of the run; it only ever grows.
            fresh: Whether the run is known to be a new one.
        """
        with self._guard:
            new = fresh or question != self._ledger.question or step < self._step
            self._step = step
        if new:
            self.begin(question)
        return new

    def begin(self, question: str) -> None:
        """A new run: what it may retrieve starts anew, what the conversation may does not."""
        with self._guard:
            self._ledger, self._under_way = self._ledger.begun(question), []

    @property
    def question(self) -> str:
        """What the run is about."""
        return self._ledger.question

    def before(self, kind: Kind, name: str, arguments: Mapping[str, Any]) -> Answered | None:
        """None for a call that is to be made, and then `after` or `failed` follows; else its answer."""
        asked = Asked(kind, full_key(kind, name, arguments))
        with self._guard:
            verdict = self._budget.plan(self._ledger, [*self._under_way, asked])[-1]
            if verdict.what == "make":
                self._under_way.append(asked)
                return None
            if verdict.what == "twin":
                return Answered(self._replies.twin())
            if verdict.of is not None:
                text = self._replies.repeat(verdict.of)
                self._ledger = replace(self._ledger.with_use(len(text)), idle=self._ledger.idle + 1)
                return Answered(text)
            closed_now = self._budget.closed(self._ledger) or {kind: verdict.limit or "idle"}
            limit = closed_now.get(kind, verdict.limit or "idle")
            self._ledger = replace(self._ledger, refused=self._ledger.refused + 1)
            if self._ledger.refused == 1:
                return Answered(self._replies.over(kind, {**closed_now, kind: limit}))
            return Answered(self._replies.end(self._ledger, limit, self._missing()), over=True)

    def after(
        self, kind: Kind, name: str, arguments: Mapping[str, Any], content: str, found: object, seconds: float
    ) -> str:
        """What the model is told of a call that was made.

        Args:
            kind: As before the call, and so are the next two.
            name: The tool.
            arguments: As the model gave them.
            content: What the tool answered.
            found: Its records, documents or nodes.
            seconds: How long it took.
        """
        evidence = evidence_of(content, found)
        told = self._ledger.told
        if self._sufficiency is not None and self.question and evidence.texts:
            told = self._sufficiency.judge(self.question, evidence.texts, told)
        call = call_of(kind, arguments, name, evidence)
        with self._guard:
            self._done(Asked(kind, call.key))
            same = self._budget.same_as(self._ledger, evidence.refs) if kind == "search" else None
            note = ""
            if same is not None and not self._ledger.brings_new(kind, evidence.refs):
                content = self._replies.same(same, self._ledger)
            elif same is not None:
                note = self._replies.mostly(same)
            left = self._budget.left(self._ledger).get("characters")
            if left is not None and len(content) > left // (len(self._under_way) + 1):
                room = left // (len(self._under_way) + 1)
                content = f"{closed(content[:room])}\n{self._replies.cut()}"
            ledger = self._ledger.with_call(call, 0, seconds, same=same is not None)
            self._ledger = replace(ledger, told=told)
            shown = self._budget.left(self._ledger)
            shown.pop("characters", None)
            beside = self._replies.beside(self._ledger, self._missing(), shown)
            text = "\n".join(part for part in (content, note, beside) if part)
            self._ledger = self._ledger.with_use(len(text))
        return text

    def failed(self, kind: Kind, name: str, arguments: Mapping[str, Any], seconds: float) -> None:
        """Account a call that raised: it counts, and brought nothing."""
        call = call_of(kind, arguments, name, evidence_of("", []))
        with self._guard:
            self._done(Asked(kind, call.key))
            self._ledger = self._ledger.with_call(call, 0, seconds)

    def _done(self, asked: Asked) -> None:
        if asked in self._under_way:
            self._under_way.remove(asked)

    def _missing(self) -> list[str]:
        return open_parts(self.question, self._ledger.told) if self._sufficiency is not None else []
