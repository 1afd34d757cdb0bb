"""Time that middleware adds to one step of a LangChain agent (one answer of the model and one call of a tool).

    python benchmarks/middleware.py [--steps 60] [--rounds 5]

A scripted model and a tool that take no time are used, so that only the overhead is measured. The same run is made with
and without each middleware, alternating; the figure is the median of the differences, step by step. "an empty one" is
LangChain's own overhead for a middleware that does nothing around a tool.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from pydantic import PrivateAttr

from langchain_agentrag import Operations, RetrievalBudget
from langchain_agentrag.langchain.middleware import RetrievalBudgetMiddleware, ToolGuardMiddleware
from langchain_agentrag.langchain.tools import mark_retrieval

FRESH = iter(range(10**9))


class ClockedModel(BaseChatModel):
    """Calls the tool again and again, each time with another argument, and notes when it was asked."""

    name_of_tool: str
    steps: int
    _call_times: list[float] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "clocked"

    @property
    def call_times(self) -> list[float]:
        return self._call_times

    def bind_tools(self, tools: Any, **kwargs: Any) -> ClockedModel:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self._call_times.append(time.perf_counter())
        if len(self._call_times) > self.steps:
            return ChatResult(generations=[ChatGeneration(message=AIMessage("done"))])
        number = next(FRESH)
        call = {"name": self.name_of_tool, "args": {"to": f"人 {number}", "amount": number}, "id": f"c{number}"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])


@tool
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"{amount} to {to}"


@tool
def look(to: str, amount: int) -> str:
    """Look somebody up."""
    return f"{amount} to {to}"


PASSAGE = (
    "泵站的密封件每三个月更换一次，更换前先关闭进水阀，再把压力降到零。" * 12
    + "The valve closes at 4.5 bar; close it by hand when the alarm E1102 is shown twice within a minute. " * 10
)


@tool
def passages(to: str, amount: int) -> str:
    """Look passages up: about 1,400 characters, half of them Chinese."""
    return f"{amount} to {to}\n{PASSAGE}"


class Empty(AgentMiddleware):
    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(request)


def seconds_per_step(using: BaseTool, middleware: list[AgentMiddleware], steps: int) -> list[float]:
    model = ClockedModel(name_of_tool=using.name, steps=steps)
    agent = create_agent(model, [using], middleware=middleware)
    gc.collect()
    agent.invoke({"messages": [("user", "go")]}, {"recursion_limit": 10 * steps, "configurable": {"thread_id": "t"}})
    return [after - before for before, after in zip(model.call_times, model.call_times[1:], strict=False)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        operations = Operations(Path(folder) / "operations.sqlite", max_risk="high")

        def guard(risk: Any) -> list[AgentMiddleware]:
            return [ToolGuardMiddleware(operations, {"pay": risk}, agent_id="lina")]

        def budget(**options: Any) -> list[AgentMiddleware]:
            # so much that it is never used up: every step is accounted, and the account grows
            ample = RetrievalBudget(searches=10_000, characters=10**9, patience=10_000)
            return [RetrievalBudgetMiddleware(ample, **options)]

        search = mark_retrieval(look.model_copy(), "search")
        long = mark_retrieval(passages, "search")
        kinds: dict[str, tuple[BaseTool, Callable[[], list[AgentMiddleware]]]] = {
            "an empty one": (pay, lambda: [Empty()]),
            "ToolGuardMiddleware, a retrieval tool": (mark_retrieval(look, "search"), lambda: guard("low")),
            "ToolGuardMiddleware, a tool that reads": (pay, lambda: guard("read")),
            "ToolGuardMiddleware, a side effect recorded": (pay, lambda: guard("low")),
            "ToolGuardMiddleware, recorded and flushed to disk": (pay, lambda: guard("high")),
            "RetrievalBudgetMiddleware": (search, budget),
            "RetrievalBudgetMiddleware, passages of 1,400 characters": (long, budget),
            "the same, counting only": (long, lambda: budget(restate=False, sufficiency=None)),
            "RetrievalBudgetMiddleware, counting only": (search, lambda: budget(restate=False, sufficiency=None)),
        }
        differences: dict[str, list[float]] = {name: [] for name in kinds}
        plain: list[float] = []
        for number in range(options.rounds + 1):
            for name, (using, build) in kinds.items():
                without = seconds_per_step(using, [], options.steps)
                with_it = seconds_per_step(using, build(), options.steps)
                if number:  # the first round warms up
                    plain += without
                    differences[name] += [b - a for a, b in zip(without, with_it, strict=True)]
        operations.close()
    print(f"a step without middleware: median {1000 * statistics.median(plain):.2f} ms")
    for name, values in differences.items():
        low, _, high = statistics.quantiles(values, n=4)
        print(
            f"{name:52} {1000 * statistics.median(values):+.2f} ms per step (quartiles {1000 * low:+.2f} "
            f"{1000 * high:+.2f}, {len(values)} steps)"
        )


if __name__ == "__main__":
    main()
