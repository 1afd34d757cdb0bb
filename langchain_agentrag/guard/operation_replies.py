"""What a model is told about an operation that was not simply carried out. English and Chinese."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langchain_agentrag.agent.tool_arguments import Language
from langchain_agentrag.guard.operation_record import Operation
from langchain_agentrag.guard.problems import Problem

_LONGEST_ERROR = 500

_WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "invalid": "{tool} was not called, the arguments are wrong: {problems}. Correct them and call again.",
        "risk": "{tool} was not called: its risk is “{risk}”, and you may go up to “{most}” only. Do not call it "
        "again; say what you would do and let a person decide.",
        "rejected": "{tool} was not called: it was not approved{reason}. Do not repeat the call; go on without it, or "
        "ask.",
        "undeclared": "{tool} was not called: it is not among the tools you may use here. Go on without it.",
        "replayed": "[{tool} was already carried out with these arguments at {when}; it was not done again. This is "
        "the result of that time.]",
        "running": "{tool} is being carried out with these arguments right now (operation {id}, since {when}). Do not "
        "call it again; go on with something else.",
        "needs_reconcile": "It is unknown whether {tool} took effect ({error}; operation {id}, begun {when}). It may "
        "have happened, so it is not done a second time, and calling it again will not help. Check with a reading "
        "tool whether it happened, or tell the user that operation {id} has to be looked into.",
        "not_done": "{tool} did nothing: {error}. You may correct the call and make it again.",
        "reused": "{tool} was not called: {error}",
        "unable": "{tool} was not called: {error}",
        "because": ": {why}",
        "no_reason": "no result arrived",
    },
    "zh": {
        "invalid": "没有调用 {tool}，参数有误：{problems}。请改正后重新调用。",
        "risk": "没有调用 {tool}：它的风险级别是“{risk}”，而你最高只能用到“{most}”。"
        "不要再次调用；请说明你打算做什么，由人来决定。",
        "rejected": "没有调用 {tool}：操作没有得到批准{reason}。不要重复这个调用；请换一种做法继续，或者询问用户。",
        "undeclared": "没有调用 {tool}：它不在这里允许使用的工具之内。请不用它继续。",
        "replayed": "[{tool} 已于 {when} 以同样的参数执行过，这次没有重复执行。以下是当时的结果。]",
        "running": "{tool} 正在以同样的参数执行（操作 {id}，开始于 {when}）。不要再次调用，请先做别的事。",
        "needs_reconcile": "不知道 {tool} 是否已经生效（{error}；操作 {id}，开始于 {when}）。"
        "它可能已经执行，所以不会再执行第二次，再次调用也没有用。"
        "请用查询类工具核实它是否已经生效，或告诉用户需要核查操作 {id}。",
        "not_done": "{tool} 没有做任何事：{error}。可以改正后重新调用。",
        "reused": "没有调用 {tool}：{error}",
        "unable": "没有调用 {tool}：{error}",
        "because": "：{why}",
        "no_reason": "没有收到结果",
    },
}


class OperationReplies:
    """The texts in one language."""

    def __init__(self, language: Language) -> None:
        self._words = _WORDS[language]
        self._join = "；" if language == "zh" else "; "

    def invalid(self, tool: str, problems: Sequence[Problem]) -> str:
        """The arguments break the schema."""
        told = self._join.join(problem.message for problem in problems)
        return self._words["invalid"].format(tool=tool, problems=told.rstrip(".。"))

    def too_risky(self, tool: str, risk: str, most: str) -> str:
        """The call goes beyond what was delegated."""
        return self._words["risk"].format(tool=tool, risk=risk, most=most)

    def rejected(self, tool: str, why: str) -> str:
        """Somebody was asked, and said no."""
        reason = self._words["because"].format(why=why) if why else ""
        return self._words["rejected"].format(tool=tool, reason=reason)

    def undeclared(self, tool: str) -> str:
        """Nobody said how dangerous the tool is."""
        return self._words["undeclared"].format(tool=tool)

    def not_done(self, tool: str, why: str) -> str:
        """The tool said that nothing happened."""
        return self._words["not_done"].format(tool=tool, error=why)

    def unable(self, tool: str, why: str) -> str:
        """The call could not be made."""
        return self._words["unable"].format(tool=tool, error=why)

    def about(self, operation: Operation) -> str:
        """What stands against another execution, or where the result comes from."""
        kind = {"done": "replayed", "in_flight": "running"}.get(operation.state, "needs_reconcile")
        error = operation.error[:_LONGEST_ERROR] or self._words["no_reason"]
        when = operation.started.strftime("%Y-%m-%d %H:%M:%S UTC")
        return self._words[kind].format(
            tool=operation.tool, id=operation.operation_id, when=when, error=error
        )
