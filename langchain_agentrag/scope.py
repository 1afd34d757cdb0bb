"""Agent ids and access: the only module that decides whose documents a caller may see.

An agent id is any non-empty Unicode string, compared exactly, code point by code point: no case folding, no
normalisation, no prefix, no wildcard. `None` means *shared*: documents without an owner, and callers without
an identity. A caller without an identity sees shared documents only, never everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from langchain_agentrag.errors import ScopeError

SHARED: None = None
"""Owner of the documents every agent sees."""


def check_agent_id(agent_id: object) -> str | None:
    """Return a valid agent id unchanged; None is shared.

    Raises:
        ScopeError: the id is not a string, is empty, or cannot be encoded in UTF-8.
    """
    if agent_id is None:
        return None
    if not isinstance(agent_id, str):
        raise ScopeError(f"agent_id must be a string or None, got {type(agent_id).__name__}: pass the id as text.")
    if not agent_id:
        raise ScopeError("agent_id must not be empty: pass None for shared documents, or the agent's own id.")
    try:
        agent_id.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ScopeError(
            f"agent_id {agent_id!r} contains a lone surrogate: pass text that can be encoded in UTF-8."
        ) from error
    return agent_id


def require_agent_id(agent_id: object, user: str) -> str:
    """Return a valid agent id; `user` is what needs it, for the error message.

    Raises:
        ScopeError: the id is None or invalid.
    """
    checked = check_agent_id(agent_id)
    if checked is None:
        raise ScopeError(f"{user} needs the id of an agent.")
    return checked


@dataclass(frozen=True, slots=True)
class Scope:
    """Documents one caller may see: the shared ones and those of at most one agent.

    Attributes:
        agent_id: The caller, or None for a caller without identity (shared only).
    """

    agent_id: str | None

    def __post_init__(self) -> None:
        check_agent_id(self.agent_id)

    @property
    def owners(self) -> tuple[str | None, ...]:
        """Owners of the partitions that this scope may read, shared first."""
        return (SHARED,) if self.agent_id is None else (SHARED, self.agent_id)

    def admits(self, owner: str | None) -> bool:
        """Return whether the caller may see documents of this owner."""
        return owner is None or owner == self.agent_id


def resolve_owner(bound: str | None, claimed: object) -> str | None:
    """Return the owner of a document from its metadata and the agent of the call.

    The metadata can make a document private when the call has no agent; it can never assign it to another agent.

    Args:
        bound: Agent of the call, or None.
        claimed: `agent_id` in the document's metadata, or None.

    Raises:
        ScopeError: both are agents and differ, or the metadata has no valid id.
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
