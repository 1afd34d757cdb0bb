"""What every tool of ours is to an `AgentWorkflow`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from llama_index.core.tools import FunctionTool, ToolOutput


class WorkflowTool(FunctionTool):
    """A tool that a workflow hands its context, which it does to a `FunctionTool` only.

    Whoever takes the function out of it gets `call` or `acall`, so that nothing goes past them.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """`call`."""
        return self.call(*args, **kwargs)

    @property
    def fn(self) -> Callable[..., Any]:
        """The tool as a function."""
        return self.call

    @property
    def async_fn(self) -> Callable[..., Awaitable[Any]]:
        """The tool as an asynchronous function."""
        return self.acall

    @property
    def real_fn(self) -> Callable[..., Any]:
        """The asynchronous one: agents that write code are given it, and run it in an event loop."""
        return self.acall
