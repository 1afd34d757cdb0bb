"""Who owns the items of a namespace: said once when a store is made, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langchain_agentrag.errors import ScopeError
from langchain_agentrag.langchain.identity import caller, check_identity
from langchain_agentrag.scope import check_agent_id

Namespace = tuple[str, ...]

AgentOf = Callable[[Namespace], str | None]
"""Owner of a namespace; also asked for the beginning of one."""


class Owners:
    """The owner of each namespace.

    Args:
        agent_id: One agent for all.
        agent_id_key: The agent that each run names under this key.
        agent_of: The agent of a namespace.
        shared: Whether items may be shared: all of them, or those that agent_of gives None for.

    Raises:
        ScopeError: not exactly one way was given.
    """

    def __init__(
        self, agent_id: str | None, agent_id_key: str | None, agent_of: AgentOf | None, *, shared: bool
    ) -> None:
        check_identity(agent_id, agent_id_key)
        ways = [agent_id is not None, agent_id_key is not None, agent_of is not None]
        if sum(ways) + (shared and agent_of is None) != 1:
            raise ScopeError(
                "A HybridStore needs one owner for its items: agent_id='…', agent_id_key='…' for the agent each run "
                "names, agent_of=function of the namespace, or shared=True for items that every agent may see."
            )
        self._agent, self._key, self._agent_of, self._shared = agent_id, agent_id_key, agent_of, shared

    def __repr__(self) -> str:
        if self._agent is not None:
            return f"agent_id={self._agent!r}"
        if self._key is not None:
            return f"agent_id_key={self._key!r}"
        return f"shared={self._shared}" if self._agent_of is None else f"agent_of={self._agent_of!r}"

    def of(self, namespace: Namespace) -> str | None:
        """The owner of a namespace; None for shared.

        Raises:
            ScopeError: nobody is said to own it.
        """
        if self._agent_of is None:
            return caller(self._agent, self._key, "error")
        try:
            owner = check_agent_id(self._agent_of(namespace))
        except ScopeError:
            raise
        except Exception as error:  # a caller's function may raise anything; each means that it does not say
            raise ScopeError(
                f"agent_of() does not say who owns {namespace!r}: {error!r}. {_REMEDY}"
            ) from error
        if owner is None and not self._shared:
            raise ScopeError(f"agent_of() gave no owner for {namespace!r}. {_REMEDY}")
        return owner

    def of_patterns(self, patterns: Sequence[Namespace]) -> tuple[str | None, Namespace]:
        """Owner of what is looked for by patterns, and the longest beginning without a "*" that they share in."""
        plain = [pattern[: pattern.index("*")] if "*" in pattern else pattern for pattern in patterns]
        longest = max(plain, key=len, default=())
        return self.of(longest), longest


_REMEDY = (
    "Name a namespace that tells its agent, or let agent_of raise for those it does not know; with shared=True, None "
    "stands for shared."
)
