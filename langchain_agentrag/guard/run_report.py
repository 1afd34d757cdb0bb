"""What is said at the end of a run: the answer, or what was reached and why there is none. English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.guard.run_records import Step

_STEPS_TOLD = 5
_OBSERVATION = 200
_ARGUMENTS = 120
_LAST = 1_000

_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "steps": "all {n} steps are used up",
        "seconds": "the time is over",
        "cost": "the money is used up",
        "loop": "the same calls brought the same results again and again",
        "cancelled": "the run was cancelled",
        "policy": "no decision could be made ({why})",
        "note": "(Answered from what was found until then: {why}.)",
        "none": "There is no answer to “{question}”: {why}.",
        "nothing": "Nothing was done before.",
        "done": "What was done ({n} steps{left}):",
        "left": ", the last {told} of them",
        "step": "{number}. {tool} {arguments} → {mark}{observation}",
        "failed": "failed: ",
        "last": "The last result: {observation}",
    },
    "zh": {
        "steps": "{n} 个步骤已经用完",
        "seconds": "时间已到",
        "cost": "费用已经用完",
        "loop": "同样的调用反复得到同样的结果",
        "cancelled": "运行已被取消",
        "policy": "无法作出决定（{why}）",
        "note": "（根据到此为止找到的内容作答：{why}。）",
        "none": "“{question}”没有得到答案：{why}。",
        "nothing": "在此之前什么都没有做。",
        "done": "已经做过的事（共 {n} 步{left}）：",
        "left": "，以下是最后 {told} 步",
        "step": "{number}. {tool} {arguments} → {mark}{observation}",
        "failed": "失败：",
        "last": "最后的结果：{observation}",
    },
}


def last_words(
    language: Language, question: str, stopped: str, answer: str, steps: Sequence[Step], why: str = ""
) -> str:
    """The message at the end of a run.

    Args:
        language: Its language.
        question: What was asked.
        stopped: What ended the run.
        answer: The answer; "" for none.
        steps: What was done.
        why: More about the end.
    """
    words = _WORDS[language]
    if answer and stopped == "answered":
        return answer
    reason = words[stopped].format(n=len(steps), why=why) if stopped in words else stopped
    if answer:
        return f"{answer}\n{words['note'].format(why=reason)}"
    lines = [words["none"].format(question=_cut(question, _LAST), why=reason)]
    if not steps:
        return "\n".join([*lines, words["nothing"]])
    told = steps[-_STEPS_TOLD:]
    left = words["left"].format(told=len(told)) if len(told) < len(steps) else ""
    lines.append(words["done"].format(n=len(steps), left=left))
    lines += [
        words["step"].format(
            number=step.number,
            tool=step.tool,
            arguments=_cut(step.arguments, _ARGUMENTS),
            mark="" if step.ok else words["failed"],
            observation=_cut(step.observation, _OBSERVATION),
        )
        for step in told
    ]
    if len(steps[-1].observation) > _OBSERVATION:
        lines.append(words["last"].format(observation=_cut(steps[-1].observation, _LAST)))
    return "\n".join(lines)


def _cut(text: str, most: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"
