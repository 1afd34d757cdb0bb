"""On whose behalf a LangChain call is made: bound beforehand, or taken from the run, never from the model.

A wrapper may drop the run's configuration on the way (`ContextualCompressionRetriever`, `MultiQueryRetriever` do). An
identity that is to come from the run and does not arrive is therefore an error, or shared documents only where the
owner of the code said so. There is no default agent to fall back to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig, ensure_config

from langchain_agentrag.errors import ScopeError
from langchain_agentrag.scope import check_agent_id

WhenMissing = Literal["error", "shared"]
"""What a call without identity does: fail, or see shared documents only."""

_CONFIG: ContextVar[RunnableConfig | None] = ContextVar("agentrag_config", default=None)


@contextmanager
def calling(config: RunnableConfig | None) -> Iterator[None]:
    """Make a call's own configuration visible within it; LangChain shows a retriever only that of the run around it."""
    token = _CONFIG.set(ensure_config(config))
    try:
        yield
    finally:
        _CONFIG.reset(token)


def check_identity(agent_id: str | None, agent_id_key: str | None) -> None:
    """Refuse an identity that is both bound and taken from the run: one of them would be somebody's default.

    Raises:
        ScopeError: both were given, or the agent id is invalid.
    """
    check_agent_id(agent_id)
    if agent_id is not None and agent_id_key is not None:
        raise ScopeError(
            f"agent_id={agent_id!r} and agent_id_key={agent_id_key!r} were both given: bind one agent, or take it from "
            "each run. A bound agent is no default for runs that name none."
        )
    if agent_id_key == "":
        raise ScopeError("agent_id_key must name a key of the run's `configurable` or context, not be empty.")


def caller(
    agent_id: str | None,
    agent_id_key: str | None,
    missing: WhenMissing,
    config: RunnableConfig | None = None,
) -> str | None:
    """The agent of this call, or None for shared documents only.

    Args:
        agent_id: The bound agent.
        agent_id_key: Key of `configurable`, or of a LangGraph run's context, that holds the agent.
        missing: What to do when the key is not there.
        config: The call's configuration; taken from the surrounding run when None.

    Raises:
        ScopeError: no agent arrived, or `configurable` and context name two.
    """
    if agent_id_key is None:
        return agent_id
    configured = _CONFIG.get() if config is None else ensure_config(config)
    configurable = (ensure_config() if configured is None else configured).get("configurable") or {}
    found = {
        value for value in (configurable.get(agent_id_key), _context_value(agent_id_key)) if value is not None
    }
    if len(found) > 1:
        raise ScopeError(
            f"The run's configurable and its context name different agents under {agent_id_key!r}: nothing was read."
        )
    if found:
        return check_agent_id(found.pop())
    if missing == "shared":
        return None
    raise ScopeError(
        f"No agent arrived under {agent_id_key!r}: pass config={{'configurable': {{{agent_id_key!r}: …}}}} or a "
        "context. A wrapper between may have dropped it; bind the agent with for_agent(…) inside such a wrapper. To "
        "let callers without identity see shared documents, set when_missing='shared'."
    )


def _context_value(key: str) -> Any:
    """What a LangGraph run's context holds under a key; None outside of a run."""
    if "langgraph.runtime" not in sys.modules:  # nobody can be inside a run then
        return None
    from langgraph.runtime import get_runtime

    try:
        context = get_runtime().context
    except Exception:  # noqa: BLE001  each version has its own way to say that this is no graph's run
        return None
    return context.get(key) if isinstance(context, Mapping) else getattr(context, key, None)
