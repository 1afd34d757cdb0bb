"""Faults of the engine: quarantined documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langchain_agentrag.search import cache, engine
from langchain_agentrag.store import commit, visibility
from langchain_agentrag.store.schema import QUARANTINED
from tests.mutants.faults import ON_CHROMA, around, fault


def _whoever_asks(original: Any, self: Any, partition: Any, now: Any, **_: Any) -> Any:
    return original(self, partition, now, quarantined=True)


@fault("what is quarantined is found unasked")
def _() -> Any:
    return around(visibility.PartitionVisibility, "visible", _whoever_asks)


@fault("what is quarantined is found unasked, over HNSW", **ON_CHROMA)
def _() -> Any:
    return around(visibility.PartitionVisibility, "visible", _whoever_asks)


@fault("what is quarantined goes on counting in the scores of the rest")
def _() -> Any:
    def counting(original: Any, self: Any, partition: Any, now: Any, **options: Any) -> Any:
        return replace(
            original(self, partition, now, **options),
            excluded_doc_freqs=original(self, partition, now).excluded_doc_freqs,
        )

    return around(visibility.PartitionVisibility, "visible", counting)


@fault("what is quarantined goes on counting in lengths and numbers")
def _() -> Any:
    def counting(original: Any, self: Any, partition: Any, now: Any, **options: Any) -> Any:
        whole = original(self, partition, now).partition
        return replace(original(self, partition, now, **options), partition=whole)

    return around(visibility.PartitionVisibility, "visible", counting)


@fault("what was released goes on being left out of the counts")
def _() -> Any:
    def never_released(original: Any, connection: Any, put: Any, *rest: Any) -> None:
        if put.document.metadata.get(QUARANTINED) is True:
            original(connection, put, *rest)

    return around(commit, "_store_quarantine", never_released)


@fault("who asks for what is quarantined is shown everybody's")
def _() -> Any:
    def opened(original: Any, self: Any, scope: Any, **options: Any) -> Any:
        if not options.get("quarantined"):
            return original(self, scope, **options)
        owners = (part.owner for part in self._store.catalog.partitions())
        return [living for owner in owners if (living := self._store.visible(owner)) and living.partition.chunks]

    return around(engine.Searcher, "_partitions", opened)


@fault("the answer of who asked is given again to who did not", result_cache=600)
def _() -> Any:
    def the_same(original: Any, self: Any, request: Any, stamp: Any) -> Any:
        return original(self, replace(request, quarantined=False), stamp)

    return around(cache.ResultCache, "ticket", the_same)
