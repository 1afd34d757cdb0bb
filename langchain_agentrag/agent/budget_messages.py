"""Texts about the retrieval budget for the model: repeated calls, nothing new, what is left, the end of retrieval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from langchain_agentrag.agent.budget import Limit, RetrievalHistory
from langchain_agentrag.agent.messages import load_messages
from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.agent.retrieval_calls import Kind, RetrievalCall, shorten_line
from langchain_agentrag.agent.tool_arguments import Language, detect_language

_MAX_LISTED = 8  # passages in a list
_MAX_QUESTION = 300  # characters of the question


class BudgetMessages:
    """Texts about the retrieval budget in one language; the end of a run is in the language of its question.

    Args:
        language: "en" or "zh".
    """

    def __init__(self, language: Language) -> None:
        self._language: Language = language
        self._texts = load_messages("agent", "budget", language)

    def repeated_call(self, call: RetrievalCall) -> str:
        """Return the answer to a call that repeats an earlier one, with the passages of a search."""
        if call.kind != "search":
            return self._texts["repeated"].format(n=call.number, label=call.label, advice="").strip()
        return self._with_passages(self._about("repeated", call), [call])

    def duplicate_call(self) -> str:
        """Return the answer to a call that another call of the same step equals."""
        return self._texts["duplicate"]

    def nothing_new(self, previous: RetrievalCall, history: RetrievalHistory) -> str:
        """Return the answer in place of passages that are all known, when the previous search found the same."""
        return self._with_passages(self._about("nothing_new", previous), history.calls)

    def little_new(self, previous: RetrievalCall) -> str:
        """Return the note beside passages most of which the previous search found."""
        return f"{self._about('little_new', previous)} {self._texts['advice']}"

    def refused_call(self, kind: Kind, closed: Mapping[Kind, Limit]) -> str:
        """Return the answer to a call past a limit."""
        name = "search_refused" if kind == "search" and "read" not in closed else "refused"
        return self._texts[name].format(why=self._texts[f"why_{closed[kind]}"])

    def truncated(self) -> str:
        """Return the mark at the end of a result that was cut."""
        return self._texts["truncated"]

    def status(self, history: RetrievalHistory, uncovered: Sequence[str], left: Mapping[str, int]) -> str:
        """Return the lines beside a result that keep a model on track: question, uncovered parts, what is left."""
        lines = []
        if history.question:
            lines.append(self._texts["question"].format(question=shorten_line(history.question, _MAX_QUESTION)))
        if uncovered:
            lines.append(self._texts["uncovered"].format(parts=_quote(uncovered, self._texts)))
        if left:
            amounts = self._texts["join"].join(self._texts[name].format(n=n) for name, n in left.items())
            lines.append(self._texts["left"].format(left=amounts))
        return "\n".join(f"[{line}]" for line in lines)

    def instruction(self, closed: Mapping[Kind, Limit]) -> str:
        """Return the instruction for a model whose tools were removed; "" if searching is still allowed."""
        if "search" not in closed:
            return ""
        name = "answer_now" if "read" in closed else "no_more_searches"
        return self._texts[name].format(why=self._texts[f"why_{closed['search']}"])

    def end_of_run(self, history: RetrievalHistory, limit: Limit, uncovered: Sequence[str]) -> str:
        """Return the last message of a run whose model went on calling, in the language of the question."""
        texts = load_messages("agent", "budget", detect_language(history.question, self._language))
        question = shorten_line(history.question, _MAX_QUESTION)
        lines = [texts["end"].format(question=question, why=texts[f"why_{limit}"])]
        passages = _list_passages(history.calls)
        name = "end_passages" if passages else "end_no_passages"
        lines += [texts[name].format(calls=len(history.calls)), *passages]
        if uncovered:
            lines.append(texts["end_uncovered"].format(parts=_quote(uncovered, texts)))
        return "\n".join(lines)

    def _about(self, name: str, call: RetrievalCall) -> str:
        return self._texts[name].format(n=call.number, label=call.label, advice=self._texts["advice"])

    def _with_passages(self, text: str, calls: Iterable[RetrievalCall]) -> str:
        passages = _list_passages(calls)
        if not passages:
            return f"{text}\n{self._texts['no_passages']}"
        listed = "".join(f"\n{line}" for line in passages)
        return f"{text}\n{self._texts['passages'].format(passages=listed)}"


def _quote(parts: Iterable[str], texts: Mapping[str, str]) -> str:
    return texts["join"].join(texts["quote"].format(text=part) for part in parts)


def _list_passages(calls: Iterable[RetrievalCall]) -> list[str]:
    """Return one line for each passage: those that were read first, then the best of each search."""
    ordered = sorted(calls, key=lambda call: call.kind != "read")
    ranked = [
        (rank, number, passage_id, text)
        for number, call in enumerate(ordered)
        for rank, (passage_id, text) in enumerate(zip(call.passage_ids, call.previews, strict=True))
    ]
    previews: dict[str, str] = {}
    for _, _, passage_id, text in sorted(ranked):
        previews.setdefault(passage_id, text)
    safety = PassageSafety()  # previews are retrieved text too, and have no fence around them
    return [
        f"- {safety.name(passage_id)}: {safety.name(text)}" for passage_id, text in list(previews.items())[:_MAX_LISTED]
    ]
