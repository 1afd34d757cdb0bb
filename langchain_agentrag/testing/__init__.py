"""Assertions for your own tests and store: agents are isolated, indexes and catalog agree.

    from langchain_agentrag.testing import assert_consistent, assert_isolated

    def test_our_store():
        with DualIndexer("our/store") as indexer:
            assert_consistent(indexer)
            assert_isolated(indexer)

Both only read, and take a bounded time on a store of any size: they check a random sample, chosen by a seed.

The modules beside have conformance suites to inherit from: `search` for retrievers, vector stores and wrappers,
`langgraph` for stores, `indexes` for index backends, `llama_index` for LlamaIndex's classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.isolation_check import IsolationCheck
from langchain_agentrag.store.verify import check_chunks, verify

if TYPE_CHECKING:
    from langchain_agentrag.store.store import Store
    from langchain_agentrag.text import Analyzer

__all__ = ["assert_consistent", "assert_isolated"]

_MAX_LISTED = 20


def assert_isolated(
    indexer: DualIndexer, agents: Iterable[str] | None = None, *, sample: int = 200, seed: int = 0
) -> None:
    """Assert that no agent can see or infer another agent's documents.

    Texts are sampled from the agents' documents. Other agents, agents with similar ids, and callers without an id
    search for them verbatim, in all modes, with filters that ask for more, and read them by id. Results must be shared
    or their own; errors must be equal for existing and absent documents; counts must cover only visible documents;
    keyword scores must not depend on other agents' documents.

    Args:
        indexer: The store.
        agents: Agents to check; None for all that have documents.
        sample: Maximum number of pairs of a caller and a text; each takes about eight calls.
        seed: Seed of the sample.

    Raises:
        AssertionError: something leaked; the message names what reached which agent, without quoting text.
    """
    store, analyzer = _store_and_analyzer(indexer)

    def check() -> list[str]:
        return IsolationCheck(indexer, store, analyzer, agents, sample=sample, seed=seed).run()

    _fail("Agents are not isolated", store.calls.run(check))


def assert_consistent(indexer: DualIndexer, *, sample: int | None = 2_000, seed: int = 0) -> None:
    """Assert that both indexes agree with the catalog, and the catalog with itself.

    Both indexes must hold exactly the rows of the catalog. For sampled chunks, the text must equal the document's text
    at its offsets, the terms must be those of the analyzer, the vector must be finite and of the right length in the
    catalog and in Chroma, and the keyword index must find and count them as the catalog does.

    Args:
        indexer: The store.
        sample: Maximum number of chunks to check per agent; None for all.
        seed: Seed of the sample.

    Raises:
        AssertionError: the message lists the problems, without quoting text.
        StoreLockedError: a writer was busy for longer than the time-out.
    """
    store, analyzer = _store_and_analyzer(indexer)

    def check() -> list[str]:
        return [*verify(store).problems, *check_chunks(store, analyzer, sample, seed)]

    _fail("The store is not consistent; repair() rebuilds both indexes", store.calls.run(check))


def _store_and_analyzer(indexer: DualIndexer) -> tuple[Store, Analyzer]:
    store = check_indexer(indexer, "This check")
    return store._store, store._analyzer  # noqa: SLF001  checks need the internals


def _fail(summary: str, problems: list[str]) -> None:
    if problems:
        more = f"\n… and {len(problems) - _MAX_LISTED} more" if len(problems) > _MAX_LISTED else ""
        lines = "\n".join(f"- {problem}" for problem in problems[:_MAX_LISTED])
        raise AssertionError(f"{summary} ({len(problems)} findings):\n{lines}{more}")
