"""Checks for your own continuous integration, on your own store: agents are kept apart, and nothing has drifted.

    from langchain_agentrag.testing import assert_consistent, assert_isolated

    def test_our_store():
        with DualIndexer("our/store") as indexer:
            assert_consistent(indexer)
            assert_isolated(indexer)

Both read only, take a bounded time on a store of any size, and choose what they look at by a seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from langchain_agentrag.isolation import IsolationCheck
from langchain_agentrag.store.verify import check_chunks, verify

if TYPE_CHECKING:
    from langchain_agentrag.indexer import DualIndexer
    from langchain_agentrag.store.store import Store
    from langchain_agentrag.text import Analyzer

__all__ = ["assert_consistent", "assert_isolated"]

_SHOWN = 20


def assert_isolated(
    indexer: DualIndexer, agents: Iterable[str] | None = None, *, sample: int = 200, seed: int = 0
) -> None:
    """Fail when anything of one agent reaches another.

    Texts are drawn from what the agents have. Other agents, agents whose ids look alike, and callers without an id
    search for them word for word, in all modes, with filters that reach for more, and read them by address. What they
    are shown must be shared or their own, refusals must not tell a document that exists from one that does not,
    counts must be of what they may see, and keyword scores must not depend on anything else.

    Args:
        indexer: The store.
        agents: Agents to check; None for all that have documents.
        sample: Most pairs of a caller and a text; each takes about eight calls.
        seed: Of the choice; another one looks elsewhere.

    Raises:
        AssertionError: something leaked; the message names what reached whom, and quotes no text.
    """
    check = IsolationCheck(indexer, *_engine(indexer), agents, sample=sample, seed=seed)
    _fail("Agents are not kept apart", check.run())


def assert_consistent(indexer: DualIndexer, *, sample: int | None = 2_000, seed: int = 0) -> None:
    """Fail when an index differs from the catalog, or the catalog from itself.

    Every row must be in both legs and nothing else; of the sampled chunks, the text must be what the document holds at
    its place, the terms what the analyzer gives, the vector finite and of the right length, in the catalog and in
    Chroma, and the keyword leg must find and count them as the catalog does.

    Args:
        indexer: The store.
        sample: Most chunks to look at per agent; None for all.
        seed: Of the choice.

    Raises:
        AssertionError: the message lists the problems, and quotes no text.
        StoreLockedError: a writer was busy for longer than the time-out.
    """
    store, analyzer = _engine(indexer)
    problems = [*verify(store).problems, *check_chunks(store, analyzer, sample, seed)]
    _fail("The store is not consistent; repair() rebuilds both indexes", problems)


def _engine(indexer: DualIndexer) -> tuple[Store, Analyzer]:
    return indexer._store, indexer._analyzer  # noqa: SLF001  checks look behind the facade; nobody else should


def _fail(what: str, found: list[str]) -> None:
    if found:
        more = f"\n… and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        listed = "\n".join(f"- {problem}" for problem in found[:_SHOWN])
        raise AssertionError(f"{what} ({len(found)} findings):\n{listed}{more}")
