"""Agent of a LangChain call: bound at construction or read from the run's configuration, never from the model.

A wrapper may drop the run's configuration (`ContextualCompressionRetriever`, `MultiQueryRetriever` do). Where the agent
has to come from the run and is missing, the call fails, or sees shared documents only if `when_missing` says so. There
is no default agent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, cast, get_args

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config

from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.langchain.search_options import CALL_OPTIONS
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.search.options import check_option_names

WhenMissing = Literal["error", "shared"]
"""What a run that names no agent does: fail, or see shared documents only."""

_OPTIONS = frozenset({"k", *CALL_OPTIONS})
_CONFIG: ContextVar[RunnableConfig | None] = ContextVar("agentrag_config", default=None)


class ConfiguredRetriever(BaseRetriever):
    """Retriever whose `_get_relevant_documents` can read the configuration of its own call.

    LangChain passes it only the configuration of the surrounding run. A search option in the `configurable` of a call
    or of `with_config` is refused unless it is a configurable field, as LangChain would ignore it.
    """

    def invoke(self, input: str, config: RunnableConfig | None = None, **kwargs: Any) -> list[Document]:  # noqa: A002
        """Return the documents of a query; search options of this call by keyword."""
        self._check_configurable(config)
        with _current_config(config):
            return super().invoke(input, config, **kwargs)

    async def ainvoke(
        self,
        input: str,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """`invoke` without blocking the event loop."""
        self._check_configurable(config)
        with _current_config(config):
            return await super().ainvoke(input, config, **kwargs)

    def with_config(self, config: RunnableConfig | None = None, **kwargs: Any) -> Runnable[str, list[Document]]:
        """Return a retriever with a configuration, such as the agent's; see `configurable_fields` for options.

        Raises:
            UsageError: a key that `RunnableConfig` has not, or `configurable` contains a search option: neither would
                change anything.
        """
        check_option_names(kwargs, RunnableConfig.__annotations__, "with_config()")
        self._check_configurable(cast("RunnableConfig", {**(config or {}), **kwargs}))
        return super().with_config(config, **kwargs)

    def _option(self, name: str) -> Any:
        """Return the value of a search option."""
        return getattr(self, name, None)

    def _check_configurable(self, config: RunnableConfig | None) -> None:
        """Refuse search options in `configurable`, other than their present values, which a configurable field sets.

        Not within a run: what it configures may be meant for others.
        """
        if config is None or getattr(config.get("callbacks"), "parent_run_id", None) is not None:
            return
        for name, value in (config.get("configurable") or {}).items():
            if name in _OPTIONS and self._option(name) != (tuple(value) if isinstance(value, list) else value):
                raise UsageError(
                    f"configurable={{{name!r}: {short_repr(value)}}} would change nothing: {name} is no configurable "
                    f"field of this retriever. Make it one with configurable_fields({name}=ConfigurableField("
                    f"id={name!r})), or pass {name}=… to invoke() or bind()."
                )


@contextmanager
def _current_config(config: RunnableConfig | None) -> Iterator[None]:
    token = _CONFIG.set(ensure_config(config))
    try:
        yield
    finally:
        _CONFIG.reset(token)


def check_agent_binding(agent_id: str | None, agent_id_key: str | None) -> None:
    """Check that an agent is either bound or read from each run, not both: a bound agent would act as a default.

    Raises:
        ScopeError: both are set, the agent id is invalid, or the key is empty.
    """
    check_agent_id(agent_id)
    if agent_id is not None and agent_id_key is not None:
        raise ScopeError(
            f"agent_id={agent_id!r} and agent_id_key={agent_id_key!r} were both given: bind one agent, or take it from "
            "each run. A bound agent is no default for runs that name none."
        )
    if agent_id_key == "":
        raise ScopeError("agent_id_key must name a key of the run's `configurable` or context, not be empty.")


def check_when_missing(when_missing: object) -> None:
    """Check `when_missing`.

    Raises:
        ScopeError: it is no value of `WhenMissing`.
    """
    if when_missing not in get_args(WhenMissing):
        choices = " or ".join(map(repr, get_args(WhenMissing)))
        raise ScopeError(f"when_missing={when_missing!r} must be {choices}.")


def resolve_agent_id(
    agent_id: str | None, agent_id_key: str | None, when_missing: WhenMissing, config: RunnableConfig | None = None
) -> str | None:
    """Return the agent of the current call, or None for shared documents only.

    Args:
        agent_id: The bound agent.
        agent_id_key: Key of `configurable`, or of a LangGraph run's context, that holds the agent.
        when_missing: What to do when the run has no such key.
        config: The call's configuration; None takes that of the surrounding run.

    Raises:
        ScopeError: the run names no agent, or `configurable` and context name different ones.
    """
    if agent_id_key is None:
        return agent_id
    run_config = _CONFIG.get() if config is None else ensure_config(config)
    configurable = (ensure_config() if run_config is None else run_config).get("configurable") or {}
    agents = {configurable.get(agent_id_key), _runtime_context_value(agent_id_key)} - {None}
    if len(agents) > 1:
        raise ScopeError(
            f"The run's configurable and its context name different agents under {agent_id_key!r}: nothing was read."
        )
    if agents:
        return check_agent_id(agents.pop())
    if when_missing == "shared":
        return None
    raise ScopeError(
        f"No agent arrived under {agent_id_key!r}: pass config={{'configurable': {{{agent_id_key!r}: …}}}} or a "
        "context. A wrapper between may have dropped it; bind the agent with for_agent(…) inside such a wrapper. To "
        "let callers without identity see shared documents, set when_missing='shared'."
    )


def _runtime_context_value(key: str) -> Any:
    """Return the value of a key in the context of the current LangGraph run; None outside of a run."""
    if "langgraph.runtime" not in sys.modules:  # without the module no run can be active
        return None
    from langgraph.runtime import get_runtime

    try:
        context = get_runtime().context
    except Exception:  # noqa: BLE001  the exception outside of a graph differs between versions
        return None
    return context.get(key) if isinstance(context, Mapping) else getattr(context, key, None)
