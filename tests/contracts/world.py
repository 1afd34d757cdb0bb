"""A store next to its plain-Python model: every answer is compared, with the model and with a store of its own.

`World` is what the state machine drives, what the scenario of the mutants drives, and where an observation that differs
becomes an `AssertionError`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from langchain_agentrag import Analyzer, Chunking, DualIndexer, HashingEmbeddings, SourceDocument
from langchain_agentrag.agent.recorder import MemoryRecorder
from langchain_agentrag.connectors.memory import MemoryTable, Turn
from langchain_agentrag.embedding import background_cosine, resolve_embedder
from langchain_agentrag.errors import InvalidQueryError, ScopeError
from langchain_agentrag.filters import match
from langchain_agentrag.langgraph import HybridStore
from langchain_agentrag.langgraph.items import StoreItemRecord, item_id, new_item
from langchain_agentrag.scope import resolve_owner
from langchain_agentrag.types import DocumentEntry, Hit
from tests.contracts.reference import ReferenceStore, Window, filter_view

CHUNKING = Chunking(size=40)  # small, so that ordinary test texts make several chunks
ANALYZER = Analyzer()
START = datetime(2026, 3, 2, 12, tzinfo=UTC)  # the clock stands still between ticks
_TWINS = 6  # stores kept open per world; a search that repeats needs no new one


def fresh_folder() -> Path:
    """A new folder in memory where there is such a place: a store syncs every write to disk."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="agentrag-test-", dir=shared if shared.is_dir() else None))


class World:
    """One store, its model, and for every observer a store that holds only what that observer may see.

    Args:
        options: Of `DualIndexer`, for the store under test; twins take them too.
        twins: Whether searches are also compared with fresh stores.
    """

    def __init__(self, *, twins: bool = True, dim: int = 16, **options: Any) -> None:
        self.folder = fresh_folder()
        self._embeddings = HashingEmbeddings(dim)
        self.now, self._expired = START, Counter[str | None]()
        self._removed_from: set[str | None] = set()  # owners of whom something was deleted or replaced
        self._options = {"chroma": "auto", "clock": lambda: self.now, **options}
        embedder = resolve_embedder(self._embeddings)
        background = background_cosine(embedder)
        self.model = ReferenceStore(embedder, background, ANALYZER, CHUNKING)
        self.indexer = self._open(self.folder / "store")
        self._twins: OrderedDict[tuple[str, ...], DualIndexer] | None = OrderedDict() if twins else None
        self._twin_count = 0
        self._recorded: dict[str, dict[tuple[str, str], str]] = {}
        self._ever: dict[str | None, set[str]] = defaultdict(set)  # every text an owner ever had
        self.searches = 0

    def _open(self, folder: Path) -> DualIndexer:
        return DualIndexer(folder, self._embeddings, chunking=CHUNKING, analyzer=ANALYZER, **self._options)

    def close(self) -> None:
        self.indexer.close()
        self._table.engine.dispose()
        for twin in (self._twins or {}).values():
            twin.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def reopen(self) -> None:
        self.indexer.close()
        self.indexer = self._open(self.folder / "store")

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, agent: str | None, documents: Sequence[SourceDocument]) -> None:
        """Index documents on behalf of an agent, or of nobody."""
        owned = [
            replace(doc, agent_id=resolve_owner(agent, doc.metadata.get("agent_id") or doc.agent_id))
            for doc in documents
        ]
        unknown = self.model.unknown_texts(owned)
        before = {(doc.agent_id, doc.doc_id) for doc in self.everything()}
        self._removed_from |= {owner for owner, _ in before if owner in {doc.agent_id for doc in owned}}
        report = self._face(agent).index_documents(documents)
        self._remember(owned)
        after = {(doc.agent_id, doc.doc_id) for doc in self.everything()}
        assert report.added == len(after - before), report
        assert report.deleted == len(before - after), report
        assert not report.failed
        # what only somebody else has embedded must be embedded again: a report is not to tell of others' texts
        assert report.embedded >= unknown, report

    def tick(self, hours: int) -> None:
        """Time goes by, and what expires in it is gone."""
        self.now += timedelta(hours=hours)
        before = Counter(doc.agent_id for doc in self.everything())
        self.model.expire(self.now)
        self._expired += before - Counter(doc.agent_id for doc in self.everything())

    def sweep(self) -> None:
        """Nothing can be seen of it, except that no more than what had expired was removed."""
        report = self.indexer.expire()
        assert report.deleted <= self._expired.total(), report
        assert self.indexer.expire().deleted == 0
        self._removed_from |= self._expired.keys()
        self._expired.clear()

    def sweep_own(self, owner: str | None) -> None:
        """A store of one owner removes and counts what has expired of that owner, and nothing else."""
        items = self._items(owner, self.indexer)
        assert items.sweep_ttl() <= self._expired[owner]
        assert items.sweep_ttl() == 0
        self._removed_from.add(owner)
        del self._expired[owner]

    def delete(
        self,
        owner: str | None,
        doc_ids: Iterable[str] | None,
        where: object = None,
        window: Window = (None, None),
        session: str | None = None,
        *,
        erase: bool = False,
    ) -> None:
        """Delete or erase by ids, by filter, by time, by session, or by what all agree on."""
        ids = None if doc_ids is None else list(doc_ids)
        wanted = {doc.doc_id for doc in self.model.owned(owner)}
        if ids is not None:
            wanted &= set(ids)
        if session is not None:
            where = {"$and": [where or {}, {"session": session}]}
        if where is not None or window != (None, None):
            wanted &= set(self.model.matching(owner, where, window))
        face = self._face(owner)
        remove = face.erase if erase else face.delete
        report = remove(ids, filter=where, session=session, after=window[0], before=window[1])
        for doc_id in wanted:
            self.model.remove(owner, doc_id)
        assert report.deleted == len(wanted), report
        if wanted:
            self._removed_from.add(owner)
        if erase:  # nothing that anybody deleted waits any longer
            stats = self.indexer.stats()
            assert (stats.unpurged, stats.unpurged_since) == (0, None)
            self._removed_from.clear()

    # -- LangGraph's store over the same store ------------------------------------------------------------------------

    def keep(self, agent: str | None, namespace: tuple[str, ...], key: str, value: dict[str, Any]) -> None:
        """Put an item on behalf of an agent, or of everybody."""
        self._removed_from.add(agent)
        self._items(agent, self.indexer).put(namespace, key, value)
        matching = self.model.matching(agent, {"doc_id": item_id(namespace, key)})
        known = (
            StoreItemRecord.from_metadata(self.model.read(agent, matching[0]).metadata).created if matching else None
        )
        item = new_item(namespace, key, value, ["$"], now=self.now, ttl=None, created=known)
        self._remember([replace(item.to_document(), agent_id=agent)])

    def drop(self, agent: str | None, namespace: tuple[str, ...], key: str) -> None:
        self._removed_from.add(agent)
        self._items(agent, self.indexer).delete(namespace, key)
        self.model.remove(agent, item_id(namespace, key))

    def recall(self, agent: str | None, prefix: tuple[str, ...], query: str | None) -> None:
        """Every item of the owner under the prefix and no other, in the order of a store that holds nothing else."""
        store = self._items(agent, self.indexer)
        items = store.search(prefix, query=query, limit=100)
        records = [
            StoreItemRecord.from_metadata(doc.metadata)
            for doc in self.model.owned(agent)
            if doc.doc_id.startswith("item:")
        ]
        under = [item for item in records if item.namespace[: len(prefix)] == prefix]
        expected = sorted((item.namespace, item.key, repr(item.value)) for item in under)
        assert sorted((item.namespace, item.key, repr(item.value)) for item in items) == expected
        assert store.list_namespaces() == sorted({item.namespace for item in records})
        for item in under:
            assert store.get(item.namespace, item.key).value == item.value
        if self._twins is not None:
            alone = self._items(agent, self.twin(agent)).search(prefix, query=query, limit=100)
            assert [(item.dict(), item.score) for item in items] == [(item.dict(), item.score) for item in alone]

    def _items(self, agent: str | None, indexer: DualIndexer) -> HybridStore:
        return HybridStore(indexer, agent_id=agent, shared=agent is None)

    # -- the recorder -------------------------------------------------------------------------------------------------

    def record(self, agent: str, session: str, entry_id: str, text: str) -> None:
        """Record what an agent says; what is known already stays as it was."""
        self._removed_from.add(agent)
        recorder = MemoryRecorder(self.indexer, self._table)
        turn = Turn(session=session, entry_id=entry_id, role="assistant", text=text, time=self.now)
        new = recorder.record(agent, [turn])
        assert recorder.problems == ()
        entries = {(entry.session, entry.entry_id): entry for entry in recorder.table.read(agent)}
        known = self._recorded.setdefault(agent, {})
        assert new == ((session, entry_id) not in known)
        if new:
            known[session, entry_id] = text
            if (document := recorder.table.document(agent, entries[session, entry_id])) is not None:
                self._remember([document])
        assert {place: entry.text for place, entry in entries.items()} == known
        # what was shown to an agent was shared or its own at the time
        texts = self._ever[None] | self._ever[agent]
        assert all(any(part in whole for whole in texts) for part in self.indexer.recent_passages.to(agent))

    def _remember(self, documents: Iterable[SourceDocument]) -> None:
        self.model.put_all(list(documents))
        for doc in documents:
            self._ever[doc.agent_id].add(doc.text)

    @cached_property
    def _table(self) -> MemoryTable:
        return MemoryTable(f"sqlite:///{self.folder / 'memory.db'}")

    def unrecord(self, agent: str, session: str) -> None:
        """Forget a session of an agent, in the table and the store."""
        deleted = MemoryRecorder(self.indexer, self._table).forget(agent, session=session)
        known = self._recorded.setdefault(agent, {})
        gone = [place for place in known if place[0] == session]
        assert deleted == len(gone)
        for place in gone:
            del known[place]
        for doc in self.model.owned(agent):
            if doc.metadata.get("session") == session and doc.metadata.get("type") in {"dialogue", "tool_call"}:
                self.model.remove(agent, doc.doc_id)

    def forget(self, agent: str) -> None:
        owned = self.model.owned(agent)
        report = self._face(agent).forget()
        self.model.forget(agent)
        assert report.deleted == len(owned)

    # -- observing ------------------------------------------------------------------------------------------------

    def search(
        self,
        agent: str | None,
        query: str,
        k: int = 5,
        *,
        mode: str = "hybrid",
        fusion: str = "adaptive",
        weights: tuple[float, float] | None = None,
        where: object = None,
        window: Window = (None, None),
        recency: timedelta | None = None,
        quarantined: bool = False,
    ) -> list[Hit]:
        """Search, and compare with the model and with a store of nothing but what the agent may see."""
        options = {"mode": mode, "fusion": fusion, "weights": weights, "filter": where, "recency": recency}
        options |= {"after": window[0], "before": window[1], "quarantined": quarantined}
        hits = self._face(agent).search(query, k, **options)
        notes = [note for note in hits.degraded if not note.startswith("filter: ")]
        assert notes == []
        assert not hits or hits.degraded == (), hits.degraded
        expected = self.model.search(
            query,
            k,
            agent=agent,
            where=where,
            mode=mode,
            fusion=fusion,
            weights=weights,
            window=window,
            recency=recency,
            now=self.now,
            quarantined=quarantined,
        )
        label = f"search of {agent!r} for {query!r}, k={k}, {options}"
        _same(list(hits), expected, f"{label}, against the model")
        if self._twins is not None:
            twin = self.twin(agent, quarantined=quarantined)
            alone = (twin if agent is None else twin.for_agent(agent)).search(query, k, **options)
            _same(list(hits), list(alone), f"{label}, against a store of its own")
            assert hits.degraded == alone.degraded, label
            if self.searches % 3 == 0:
                self._second_stage(agent, query, k, options)
        self.searches += 1
        return list(hits)

    def hunt(self, document: SourceDocument, agent: str | None, mode: str = "hybrid") -> None:
        """Ask for the very words of a quarantined document: it is found only when asked for, by who may see it."""
        place = (document.agent_id, document.doc_id)
        for quarantined in (False, True):
            hits = self.search(agent, document.text, 100, mode=mode, quarantined=quarantined)
            may = quarantined and document.agent_id in {None, agent}
            is_found = place in {(hit.agent_id, hit.doc_id) for hit in hits}
            # words that are only stop words find nothing by keyword
            assert is_found == may or (may and mode == "keyword"), f"{agent!r}, {document}, {hits}"

    def _second_stage(self, agent: str | None, query: str, k: int, options: dict[str, Any]) -> None:
        """The later stages and the trace, too, are those of a store with nothing but what the agent may see."""
        turn = self.searches // 3
        more: dict[str, object] = {**options, "explain": True}
        more |= [
            {"collapse": 0.5},
            {"neighbours": 1},
            {"diversity": 0.4, "collapse": True, "neighbours": 2},
            {"history": ["退款 alpha", "数据库"]},
        ][turn % 3]
        twin = self.twin(agent, quarantined=options["quarantined"])
        hits = self._face(agent).search(query, k, **more)
        alone = (twin if agent is None else twin.for_agent(agent)).search(query, k, **more)
        _same(list(hits), list(alone), f"search of {agent!r} for {query!r}, {more}, against a store of its own")
        assert (hits.trace, hits.searched) == (alone.trace, alone.searched)
        for dropped in hits.trace.dropped if hits.trace else ():
            assert dropped.agent_id in {None, agent}

    def read(self, agent: str | None, doc_id: str, chunk_id: int = 0, before: int = 0, after: int = 0) -> None:
        document = self.model.read(agent, doc_id)
        chunks = [] if document is None else self.model.spans(document)
        face = self._face(agent)
        if document is None or chunk_id >= len(chunks):
            with pytest.raises(InvalidQueryError) as refused:
                face.read(doc_id, chunk_id, before=before, after=after)
            if document is None:  # no word on whether somebody else has it
                with pytest.raises(InvalidQueryError) as absent:
                    face.read("no such id", chunk_id)
                assert str(refused.value) == str(absent.value).replace("'no such id'", repr(doc_id))
            return
        passage = face.read(doc_id, chunk_id, before=before, after=after)
        first, last = max(0, chunk_id - before), min(len(chunks) - 1, chunk_id + after)
        assert passage.text == document.text[chunks[first].start : chunks[last].end]
        assert (passage.first_chunk, passage.last_chunk, passage.total_chunks) == (first, last, len(chunks))
        assert passage.agent_id == document.agent_id
        assert passage.metadata == document.metadata

    def get(self, agent: str | None, doc_ids: list[str]) -> None:
        document = [documents for doc_id in doc_ids if (documents := self.model.read(agent, doc_id))]
        documents = self._face(agent).get(doc_ids)
        assert [(doc.agent_id, doc.doc_id, doc.text, doc.metadata) for doc in documents] == [
            (doc.agent_id, doc.doc_id, doc.text, doc.metadata) for doc in document
        ]

    def passages(self, agent: str | None, doc_ids: list[str] | None, where: object) -> None:
        """The passages an agent may list, its own before the shared ones, with their vectors, and how many there are."""
        owners = [None] if agent is None else [agent, None]
        documents = [document for owner in owners for document in self.model.owned(owner)]
        expected = [
            (document.agent_id, document.doc_id, chunk.chunk_id, chunk.text)
            for document in documents
            if document is self.model.read(agent, document.doc_id) and (doc_ids is None or document.doc_id in doc_ids)
            for chunk in self.model.spans(document)
            if match(where, filter_view(document, chunk))
        ]
        face = self._face(agent)
        found = face.passages(doc_ids, filter=where, vectors=True)
        assert [(one.agent_id, one.doc_id, one.chunk_id, one.text) for one in found] == expected
        assert all(one.vector is not None and len(one.vector) for one in found)
        if doc_ids is None:
            assert face.count(filter=where) == len(expected)

    def stats(self, agent: str | None) -> None:
        """An agent's counts are of what it may see; the administrator's of everything."""
        visible = self.everything() if agent is None else self.model.visible(agent)
        stats = self._face(agent).stats()
        assert stats.documents == len(visible)
        assert stats.chunks == sum(len(self.model.spans(doc)) for doc in visible)
        assert stats.shared_documents == sum(doc.agent_id is None for doc in visible)
        assert stats.agents == len({doc.agent_id for doc in visible} - {None})
        if agent is not None:
            assert stats.bytes_on_disk == 0
            if agent not in self._removed_from:  # what others, or a keeper of shared documents, deleted does not show
                assert (stats.unpurged, stats.unpurged_since) == (0, None)
            own = [doc for doc in visible if doc.agent_id == agent]
            assert stats.unindexed <= sum(len(self.model.spans(doc)) for doc in own) + self._expired[agent] * 8
            assert (stats.model is None) is (stats.dimension is None) is (not visible)

    def list_documents(self, agent: str | None, limit: int, *, own: bool = False, where: Any = None) -> None:
        """The pages of a list hold exactly the visible documents, each once, with its owner and its chunks."""
        owners = [agent] if own or agent is None else [None, agent]
        ids = {(owner, doc_id) for owner in owners for doc_id in self.model.matching(owner, where)}
        visible = [doc for doc in self.model.visible(agent) if (doc.agent_id, doc.doc_id) in ids]
        listed: list[DocumentEntry] = []
        while True:
            page, total = self.indexer.list_documents(
                agent_id=agent, filter=where, own=own, limit=limit, offset=len(listed)
            )
            assert total == len(visible)
            listed += page
            if len(page) < limit:
                break
        chunks = {(doc.agent_id, doc.doc_id): len(self.model.spans(doc)) for doc in visible}
        assert {(entry.agent_id, entry.doc_id): entry.chunks for entry in listed} == chunks
        assert len(listed) == len(visible)

    def verify(self) -> None:
        report = self.indexer.verify()
        assert report.ok, report.problems
        assert report.documents == len(self.everything())

    def refuse_empty_agent(self) -> None:
        """The empty id is nobody: no call takes it."""
        calls = [
            lambda: self.indexer.for_agent(""),
            lambda: self.indexer.search("x", agent_id=""),
            lambda: self.indexer.index_documents(["x"], ""),
            lambda: self.indexer.delete("x", agent_id=""),
            lambda: self.indexer.read("x", agent_id=""),
            lambda: self.indexer.stats(""),
            lambda: self.indexer.forget_agent(""),
            lambda: self.indexer.index_documents([SourceDocument("x", "x", {"agent_id": ""})]),
        ]
        for call in calls:
            with pytest.raises(ScopeError):
                call()

    def everything(self) -> list[SourceDocument]:
        return self.model.all()

    # -- twins ----------------------------------------------------------------------------------------------------

    def twin(self, agent: str | None, *, quarantined: bool = False) -> DualIndexer:
        """A store built fresh from what the agent may see, in the same document order.

        Args:
            agent: The agent; None for nobody.
            quarantined: Whether what is quarantined is in it.
        """
        assert self._twins is not None
        visible = self.model.visible(agent, quarantined=quarantined)
        key = tuple(map(repr, visible))
        if key not in self._twins:
            self._twin_count += 1
            twin = self._open(self.folder / f"twin-{self._twin_count}")
            twin.index_documents(visible)
            self._twins[key] = twin
            while len(self._twins) > _TWINS:
                _, old = self._twins.popitem(last=False)
                old.close()
                shutil.rmtree(old.path, ignore_errors=True)
        self._twins.move_to_end(key)
        return self._twins[key]

    def _face(self, agent: str | None) -> Any:
        """The view of an agent; the store itself for nobody."""
        return self.indexer if agent is None else self.indexer.for_agent(agent)


def _same(actual: list[Hit], expected: list[Hit], label: str) -> None:
    """Same hits, same order, same scores to the last bit, same explanations, same everything."""
    places = [(hit.agent_id, hit.doc_id, hit.chunk_id, hit.score) for hit in actual]
    assert places == [(hit.agent_id, hit.doc_id, hit.chunk_id, hit.score) for hit in expected], label
    for one, other in zip(actual, expected, strict=True):
        assert one == other, label
