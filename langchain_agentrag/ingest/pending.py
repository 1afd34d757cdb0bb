"""What waits to be written: documents that are cut and analysed, removals, and versions of their items."""

from __future__ import annotations

from dataclasses import dataclass, field

from langchain_agentrag.store.protocols import Vectors
from langchain_agentrag.text import Terms
from langchain_agentrag.types import Chunk, SourceDocument

Address = tuple[str | None, str]
"""(owner, doc_id)."""


@dataclass(slots=True)
class Draft:
    """A document that is cut and analysed but not embedded yet."""

    document: SourceDocument
    signature: bytes
    chunks: list[Chunk]
    terms: list[Terms]
    source: str | None
    item: str | None
    vector: Vectors | None = None


@dataclass(slots=True)
class Pending:
    """What the next batch will hold, keyed so that a later document replaces an earlier one of the same address."""

    drafts: dict[Address, Draft] = field(default_factory=dict)
    removes: dict[Address, None] = field(default_factory=dict)
    versions: dict[tuple[str, str], str | None] = field(default_factory=dict)
    gone: list[tuple[str, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.drafts or self.removes or self.versions or self.gone)

    @property
    def addresses(self) -> set[Address]:
        """Addresses of the documents that change."""
        return {*self.drafts, *self.removes}
