"""`HybridStore` and LangGraph's own store pass `StoreConformance`, and stores with a fault do not."""

from __future__ import annotations

import pytest
from langgraph.store.memory import InMemoryStore

from langchain_agentrag import DualIndexer, HybridStore
from langchain_agentrag.testing.langgraph import StoreConformance


class Stores:
    @pytest.fixture(autouse=True)
    def _indexer(self, tmp_path):
        with DualIndexer(tmp_path / "store", "hash") as self.indexer:
            yield


class TestHybridStore(Stores, StoreConformance):
    def make_store(self, agent_id):
        return HybridStore(self.indexer, agent_id=agent_id)


class TestHybridStoreOfNamespaces(Stores, StoreConformance):
    """The owner is computed from the namespace: all items of this suite are one owner's."""

    owners = False

    def make_store(self, agent_id):
        return HybridStore(self.indexer, shared=True)


class TestHybridStoreOfARun(Stores, StoreConformance):
    """The same, for several fields that are searched each on its own."""

    def make_store(self, agent_id):
        return HybridStore(self.indexer, agent_id=agent_id, fields=("text", "kind"))


class Memory(StoreConformance):
    """LangGraph's store in memory: one per agent, without a text search; `kind` is the class of the store."""

    words = False
    kind: type[InMemoryStore] = InMemoryStore

    def __init__(self):
        self.stores: dict[str, InMemoryStore] = {}

    def make_store(self, agent_id):
        return self.stores.setdefault(agent_id, self.kind())


def failures(suite: type[Memory]) -> set[str]:
    """Names of the tests that fail, each on a fresh instance."""
    failed = set()
    for name in [name for name in vars(StoreConformance) if name.startswith("test_")]:
        try:
            getattr(suite(), name)()
        except Exception:
            failed.add(name.removeprefix("test_"))
    return failed


def test_langgraphs_own_store_fails_only_where_ours_differs_on_purpose():
    """It forgets when an item was made, and lists namespaces that hold nothing; the docstring of `HybridStore` says so."""
    assert failures(Memory) == {
        "a_put_replaces_the_whole_value_and_keeps_its_creation",
        "what_was_deleted_is_gone_at_once",
    }


class OneForAll(Memory):
    def make_store(self, agent_id):
        return super().make_store("all")


class OneForEachCall(Memory):
    def make_store(self, agent_id):
        return self.kind()


class Patched(InMemoryStore):
    def change(self, op, result):
        return result

    def batch(self, ops):
        ops = list(ops)
        return [self.change(op, result) for op, result in zip(ops, super().batch(ops), strict=True)]


def faulty(change) -> type[Memory]:
    return type("Faulty", (Memory,), {"kind": type("Store", (Patched,), {"change": staticmethod(change)})})


@pytest.mark.parametrize(
    ("suite", "caught_by"),
    [
        (OneForAll, {"no_other_agent_reads_finds_or_lists_an_item", "no_other_agent_changes_or_deletes_an_item"}),
        (OneForEachCall, {"another_store_of_the_agent_has_its_items"}),
        (faulty(lambda op, result: [] if getattr(op, "offset", 0) else result), {"pages_hold_each_item_once"}),
        (faulty(lambda op, result: result[:1] if getattr(op, "filter", None) else result), {"filters_compare_values"}),
        (
            faulty(lambda op, result: None if getattr(op, "key", "").isascii() is False else result),
            {"what_was_put_is_returned_as_it_was"},
        ),
    ],
    ids=["one for all agents", "forgets", "no offset", "loses matches", "ASCII keys only"],
)
def test_a_store_with_a_fault_is_caught(suite, caught_by):
    assert failures(suite) - failures(Memory) >= caught_by
