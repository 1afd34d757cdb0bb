"""Texts about the retrieval budget for the model: repeated calls, nothing new, what is left, the end of retrieval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from langchain_agentrag.agent.budget import Limit, RetrievalHistory
from langchain_agentrag.agent.prompt_injection import PassageSafety
from langchain_agentrag.agent.retrieval_calls import Kind, RetrievalCall, shorten_line
from langchain_agentrag.agent.tool_arguments import Language, detect_language

_MAX_LISTED = 8  # passages in a list
_MAX_QUESTION = 300  # characters of the question

_TEXTS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "repeated": "You have asked this before: the same as call #{n} ({label}). It was not run again, and it would "
        "find the same. {advice}",
        "duplicate": "Another call of this step asks the same: see its answer.",
        "nothing_new": "No new evidence: these are the passages that call #{n} ({label}) found. {advice}",
        "little_new": "Little new evidence: most of these passages are those that call #{n} ({label}) found.",
        "advice": "Answer from what you have, or change the angle: other words, another language, another part of the "
        "question.",
        "passages": "Found: {passages}",
        "no_passages": "Nothing was found so far: say so.",
        "question": "The question: {question}",
        "uncovered": "No evidence yet for: {parts}",
        "left": "Left: {left}",
        "searches": "{n} searches",
        "reads": "{n} reads",
        "characters": "{n} characters",
        "join": ", ",
        "refused": "Not done: {why}. Answer now from what you have, and say what is missing.",
        "search_refused": "Not done: {why}. You can still read what was found; then answer.",
        "truncated": "[cut here: the characters that may be retrieved are used up]",
        "why_searches": "all searches are used up",
        "why_reads": "all reads are used up",
        "why_characters": "as many characters as may be retrieved were retrieved",
        "why_seconds": "the time for retrieval is over",
        "why_idle": "the last calls brought nothing new",
        "answer_now": "Retrieval is over: {why}. Answer the question now from the passages above, cite them, and say "
        "plainly which part of it they do not answer.",
        "no_more_searches": "Searching is over: {why}. You can still read passages that were found; then answer.",
        "end": "I had to stop searching for an answer to “{question}”: {why}.",
        "end_passages": "This is what was found ({calls} calls):",
        "end_no_passages": "Nothing was found in {calls} calls.",
        "end_uncovered": "Without evidence: {parts}",
        "quote": "“{text}”",
    },
    "zh": {
        "repeated": "这已经问过了：与第 {n} 次调用（{label}）相同。没有再次执行，结果也不会不同。{advice}",
        "duplicate": "同一步中的另一次调用问的是同样的内容：请看它的结果。",
        "nothing_new": "没有新的证据：这些就是第 {n} 次调用（{label}）找到的段落。{advice}",
        "little_new": "新的证据很少：其中大部分段落在第 {n} 次调用（{label}）中已经找到。",
        "advice": "请根据已有内容作答，或者换一个角度：换用别的词、另一种语言，或问题的另一部分。",
        "passages": "已经找到：{passages}",
        "no_passages": "到目前为止什么也没有找到：请如实说明。",
        "question": "原问题：{question}",
        "uncovered": "尚无证据的部分：{parts}",
        "left": "剩余：{left}",
        "searches": "检索 {n} 次",
        "reads": "阅读 {n} 次",
        "characters": "{n} 个字符",
        "join": "，",
        "refused": "没有执行：{why}。请现在就根据已有内容作答，并说明还缺什么。",
        "search_refused": "没有执行：{why}。还可以阅读已经找到的段落，然后作答。",
        "truncated": "[在此截断：可检索的字符数已用完]",
        "why_searches": "检索次数已用完",
        "why_reads": "阅读次数已用完",
        "why_characters": "可检索的字符数已用完",
        "why_seconds": "检索时间已到",
        "why_idle": "最近几次调用没有带来新的内容",
        "answer_now": "检索到此为止：{why}。请现在就根据上面的段落回答问题，注明出处，并明确说明哪一部分没有答案。",
        "no_more_searches": "检索到此为止：{why}。还可以阅读已经找到的段落，然后作答。",
        "end": "关于“{question}”的检索不得不停止：{why}。",
        "end_passages": "已经找到的内容（共 {calls} 次调用）：",
        "end_no_passages": "{calls} 次调用什么也没有找到。",
        "end_uncovered": "没有证据的部分：{parts}",
        "quote": "“{text}”",
    },
}


class BudgetMessages:
    """Texts about the retrieval budget in one language; the end of a run is in the language of its question.

    Args:
        language: "en" or "zh".
    """

    def __init__(self, language: Language) -> None:
        self._language: Language = language
        self._texts = _TEXTS[language]

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
            lines.append(
                self._texts["question"].format(question=shorten_line(history.question, _MAX_QUESTION))
            )
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
        texts = _TEXTS[detect_language(history.question, self._language)]
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
        f"- {safety.name(passage_id)}: {safety.name(text)}"
        for passage_id, text in list(previews.items())[:_MAX_LISTED]
    ]
