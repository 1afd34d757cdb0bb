"""Who may see what: the only place where visibility is decided.

An agent id is any non-empty Unicode string, compared exactly, code point by code point: no case folding, no
normalisation, no prefix, no wildcard. `None` stands for *shared*: documents without an owner, and callers without
an identity. A caller without an identity sees shared documents only, never everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from langchain_agentrag.errors import ScopeError

SHARED: None = None
"""Owner of the documents every agent sees."""


def check_agent_id(agent_id: object) -> str | None:
    """The agent id unchanged, or None for shared.

    Raises:
        ScopeError: it is not a string, is empty, or cannot be encoded in UTF-8.
    """
    if agent_id is None:
        return None
    if not isinstance(agent_id, str):
        msg = f"agent_id must be a string or None, got {type(agent_id).__name__}: pass the id as text."
        raise ScopeError(msg)
    if not agent_id:
        msg = "agent_id must not be empty: pass None for shared documents, or the agent's own id."
        raise ScopeError(msg)
    try:
        agent_id.encode("utf-8")
    except UnicodeEncodeError as error:
        msg = f"agent_id {agent_id!r} holds a lone surrogate: pass text that can be encoded in UTF-8."
        raise ScopeError(msg) from error
    return agent_id


@dataclass(frozen=True, slots=True)
class Scope:
    """What one caller may see: shared documents plus at most one agent's own.

    Attributes:
        agent_id: The caller, or None for a caller without identity (shared only).
    """

    agent_id: str | None

    def __post_init__(self) -> None:
        check_agent_id(self.agent_id)

    @property
    def owners(self) -> tuple[str | None, ...]:
        """Owners of the partitions this scope may read, shared first."""
        return (SHARED,) if self.agent_id is None else (SHARED, self.agent_id)

    def admits(self, owner: str | None) -> bool:
        """Whether a document of this owner may be shown to the caller."""
        return owner is None or owner == self.agent_id


def resolve_owner(bound: str | None, claimed: object) -> str | None:
    """Owner of a document whose metadata claims one, given the agent the call is bound to.

    A claim can make a document private where the call named nobody; it can never move it to another agent.

    Args:
        bound: Agent of the call, or None.
        claimed: Value of the document's own `agent_id`, or None when it has none.

    Raises:
        ScopeError: both name an agent and they differ, or the claim is not a valid id.
    """
    owner = check_agent_id(claimed)
    if bound is None or owner is None:
        return bound if owner is None else owner
    if owner != bound:
        msg = (
            f"A document that claims agent_id {owner!r} cannot be stored for agent {bound!r}: "
            "remove the claim, or index it through the agent it belongs to."
        )
        raise ScopeError(msg)
    return bound
