"""What a model is told about its retrieval: repeats, nothing new, what is left, the end. English and Chinese."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_agentrag.agent.budget import (
    Asked,
    Call,
    Kind,
    Ledger,
    Limit,
    RetrievalBudget,
    call_of,
    evidence_of,
    full_key,
)
from langchain_agentrag.agent.prompt_injection import PassageSafety, closed
from langchain_agentrag.agent.sufficiency import check_sufficiency, open_parts
from langchain_agentrag.agent.tool_arguments import Language, language_of

_LISTED = 8  # passages that a list of what was found names
_QUESTION = 300

_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "repeat": "You have asked this before: the same as call #{n} ({asked}). It was not run again, and it would "
        "find the same. {advice}",
        "twin": "Another call of this step asks the same: see its answer.",
        "same": "No new evidence: these are the passages that call #{n} ({asked}) found. {advice}",
        "mostly": "Little new evidence: most of these passages are those that call #{n} ({asked}) found.",
        "advice": "Answer from what you have, or change the angle: other words, another language, another part of the "
        "question.",
        "found": "Found: {refs}",
        "nothing": "Nothing was found so far: say so.",
        "question": "The question: {question}",
        "open": "No evidence yet for: {parts}",
        "left": "Left: {left}",
        "searches": "{n} searches",
        "reads": "{n} reads",
        "characters": "{n} characters",
        "join": ", ",
        "over": "Not done: {why}. Answer now from what you have, and say what is missing.",
        "over_search": "Not done: {why}. You can still read what was found; then answer.",
        "cut": "[cut here: the characters that may be retrieved are used up]",
        "why_searches": "all searches are used up",
        "why_reads": "all reads are used up",
        "why_characters": "as many characters as may be retrieved were retrieved",
        "why_seconds": "the time for retrieval is over",
        "why_idle": "the last calls brought nothing new",
        "must": "Retrieval is over: {why}. Answer the question now from the passages above, cite them, and say "
        "plainly which part of it they do not answer.",
        "no_search": "Searching is over: {why}. You can still read passages that were found; then answer.",
        "end": "I had to stop searching for an answer to “{question}”: {why}.",
        "end_found": "This is what was found ({calls} calls):",
        "end_none": "Nothing was found in {calls} calls.",
        "end_open": "Without evidence: {parts}",
        "quote": "“{text}”",
    },
    "zh": {
        "repeat": "这已经问过了：与第 {n} 次调用（{asked}）相同。没有再次执行，结果也不会不同。{advice}",
        "twin": "同一步中的另一次调用问的是同样的内容：请看它的结果。",
        "same": "没有新的证据：这些就是第 {n} 次调用（{asked}）找到的段落。{advice}",
        "mostly": "新的证据很少：其中大部分段落在第 {n} 次调用（{asked}）中已经找到。",
        "advice": "请根据已有内容作答，或者换一个角度：换用别的词、另一种语言，或问题的另一部分。",
        "found": "已经找到：{refs}",
        "nothing": "到目前为止什么也没有找到：请如实说明。",
        "question": "原问题：{question}",
        "open": "尚无证据的部分：{parts}",
        "left": "剩余：{left}",
        "searches": "检索 {n} 次",
        "reads": "阅读 {n} 次",
        "characters": "{n} 个字符",
        "join": "，",
        "over": "没有执行：{why}。请现在就根据已有内容作答，并说明还缺什么。",
        "over_search": "没有执行：{why}。还可以阅读已经找到的段落，然后作答。",
        "cut": "[在此截断：可检索的字符数已用完]",
        "why_searches": "检索次数已用完",
        "why_reads": "阅读次数已用完",
        "why_characters": "可检索的字符数已用完",
        "why_seconds": "检索时间已到",
        "why_idle": "最近几次调用没有带来新的内容",
        "must": "检索到此为止：{why}。请现在就根据上面的段落回答问题，注明出处，并明确说明哪一部分没有答案。",
        "no_search": "检索到此为止：{why}。还可以阅读已经找到的段落，然后作答。",
        "end": "关于“{question}”的检索不得不停止：{why}。",
        "end_found": "已经找到的内容（共 {calls} 次调用）：",
        "end_none": "{calls} 次调用什么也没有找到。",
        "end_open": "没有证据的部分：{parts}",
        "quote": "“{text}”",
    },
}


class BudgetReplies:
    """Texts in one language; the last message, which is for whoever asked, in that of the question.

    Args:
        language: "en" or "zh".
    """

    def __init__(self, language: Language) -> None:
        self._language: Language = language
        self._words = _WORDS[language]

    def repeat(self, call: Call) -> str:
        """Answer to a call that was made before; with what a search found then."""
        text = (
            self._words["repeat"]
            .format(
                n=call.number, asked=call.asked, advice=self._words["advice"] if call.kind == "search" else ""
            )
            .strip()
        )
        return self._with_found(text, [call]) if call.kind == "search" else text

    def twin(self) -> str:
        """Answer to one of two equal calls of a step."""
        return self._words["twin"]

    def same(self, call: Call, ledger: Ledger) -> str:
        """Answer instead of passages that were all found by the search before."""
        text = self._words["same"].format(n=call.number, asked=call.asked, advice=self._words["advice"])
        return self._with_found(text, ledger.calls)

    def mostly(self, call: Call) -> str:
        """Note on passages most of which were found by the search before."""
        return f"{self._words['mostly'].format(n=call.number, asked=call.asked)} {self._words['advice']}"

    def over(self, kind: Kind, closed: Mapping[Kind, Limit]) -> str:
        """Answer to a call that is one too many."""
        word = "over_search" if kind == "search" and "read" not in closed else "over"
        return self._words[word].format(why=self._why(closed[kind]))

    def cut(self) -> str:
        """Where an answer was cut."""
        return self._words["cut"]

    def beside(self, ledger: Ledger, missing: Sequence[str], left: Mapping[str, int]) -> str:
        """What stands beside a result against drift: the question, what is missing, what is left."""
        lines = []
        if ledger.question:
            lines.append(self._words["question"].format(question=_short(ledger.question)))
        if missing:
            lines.append(self._words["open"].format(parts=self._quoted(missing)))
        if left:
            told = self._words["join"].join(self._words[name].format(n=n) for name, n in left.items())
            lines.append(self._words["left"].format(left=told))
        return "\n".join(f"[{line}]" for line in lines)

    def instruction(self, closed: Mapping[Kind, Limit]) -> str:
        """What a model is told when tools are taken from it; "" for nothing."""
        if "search" not in closed:
            return ""
        return self._words["must" if "read" in closed else "no_search"].format(
            why=self._why(closed["search"])
        )

    def end(self, ledger: Ledger, limit: Limit, missing: Sequence[str]) -> str:
        """The last message of a run whose model would not stop, in the language of the question."""
        asked = BudgetReplies(language_of(ledger.question, self._language))
        return asked._end(ledger, limit, missing)

    def _end(self, ledger: Ledger, limit: Limit, missing: Sequence[str]) -> str:
        lines = [self._words["end"].format(question=_short(ledger.question), why=self._why(limit))]
        found = _found(ledger.calls)
        lines.append(self._words["end_found" if found else "end_none"].format(calls=len(ledger.calls)))
        lines += [f"- {ref}: {head}" for ref, head in found]
        if missing:
            lines.append(self._words["end_open"].format(parts=self._quoted(missing)))
        return "\n".join(lines)

    def _with_found(self, text: str, calls: Iterable[Call]) -> str:
        found = _found(calls)
        if not found:
            return f"{text}\n{self._words['nothing']}"
        listed = "".join(f"\n- {ref}: {head}" for ref, head in found)
        return f"{text}\n{self._words['found'].format(refs=listed)}"

    def _why(self, limit: Limit) -> str:
        return self._words[f"why_{limit}"]

    def _quoted(self, parts: Iterable[str]) -> str:
        return self._words["join"].join(self._words["quote"].format(text=part) for part in parts)


def _found(calls: Iterable[Call]) -> list[tuple[str, str]]:
    """The passages of all calls, those that were read first, then the best of each search; as a model may see them."""
    ordered = sorted(calls, key=lambda call: call.kind != "read")
    ranked = [
        (place, number, ref, head)
        for number, call in enumerate(ordered)
        for place, (ref, head) in enumerate(zip(call.refs, call.heads, strict=True))
    ]
    best: dict[str, str] = {}
    for _, _, ref, head in sorted(ranked):
        best.setdefault(ref, head)
    safe = PassageSafety()  # retrieved text is data here too, and a beginning has no fence around it
    return [(safe.name(ref), safe.name(head)) for ref, head in list(best.items())[:_LISTED]]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUESTION else f"{line[: _QUESTION - 1]}…"


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
