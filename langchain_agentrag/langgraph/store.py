"""`HybridStore`: LangGraph `BaseStore` over a `DualIndexer`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)

from langchain_agentrag.errors import InvalidDocumentError, StoreError, UsageError
from langchain_agentrag.filters import And, Condition, Filter
from langchain_agentrag.indexer import DualIndexer, check_indexer
from langchain_agentrag.langgraph.items import (
    WHOLE_VALUE,
    AgentOf,
    Namespace,
    NamespaceOwners,
    StoreItemRecord,
    check_filter,
    check_labels,
    id_prefixes,
    item_id,
    matches_filter,
    matches_namespace,
    namespace_filter,
    namespace_of_id,
    new_item,
)
from langchain_agentrag.langgraph.joined_writes import JoinedWrites, WriteCall, write_calls
from langchain_agentrag.search.options import SearchOptions, check_request
from langchain_agentrag.store.queries import OwnedDocument, OwnedDocuments
from langchain_agentrag.types import SourceDocument

logger = logging.getLogger(__name__)


class ExpirySweeper:
    """Background thread that deletes expired items at an interval; a failure is logged and retried at the next one.

    Args:
        sweep: Function that deletes expired items and returns their number.
    """

    def __init__(self, sweep: Callable[[], int]) -> None:
        self._sweep = sweep
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, minutes: float) -> None:
        """Start the thread unless it runs.

        Raises:
            UsageError: the interval is not a positive number.
        """
        if not minutes > 0:
            raise UsageError(f"Cannot sweep every {minutes!r} minutes: pass a positive number.")
        if self._thread is None or not self._thread.is_alive():
            self._stopped.clear()
            self._thread = threading.Thread(
                target=self._run, args=(minutes * 60,), daemon=True, name="agentrag-sweeper"
            )
            self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the thread and return whether it ended within `timeout` seconds."""
        self._stopped.set()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            try:
                logger.info("deleted %d expired items", self._sweep())
            except Exception:
                logger.exception("deleting expired items failed; the next sweep tries again")


_RESERVED_OPTIONS = ("filter", "vector", "max_per_document")  # search options that each call sets itself
_ItemKey = tuple[str | None, str]  # owner, doc_id


class HybridStore(BaseStore):
    """LangGraph's `BaseStore` over a `DualIndexer`: `create_agent(…, store=HybridStore(indexer, agent_id="lina"))`.

    Items are private documents of one agent: that agent's `DualIndexer.search` finds them too, no other agent's does.
    The owner is set in one of four ways; a namespace such as `("users", "lina")` alone does not determine it.

    Results and errors equal those of LangGraph's `InMemoryStore`, with these differences:

    - a query searches both indexes, so scores are in [0, 1] and exact words count;
    - a search without a query returns the last put first, as `SqliteStore` and `PostgresStore` do;
    - a namespace exists while it holds an item;
    - filters also take what those two stores take: "a.b", and texts in order; what cannot be compared does not match;
    - the items without a score that fill up a search take part in paging;
    - a put keeps `created_at`; values are returned as JSON gives them (a tuple as a list), but dates and Decimal stay;
    - operations passed to `batch` directly are checked like those of the methods.

    An item is invisible from its expiry on, whether or not a sweep has deleted it from disk. With
    `ttl={"omit_expired": False}` it is readable until a sweep deletes it; a query lists it last, without a score.

    Puts and deletes that wait for each other are joined, those of threads and of tasks: many callers, one commit.

    Args:
        indexer: The store behind it.
        agent_id: The agent that owns every item.
        agent_id_key: Key of each run's `configurable` or context that names the owner.
        agent_of: Function that returns the owner of a namespace, and of the namespace prefix of a search.
        shared: All items are shared: every agent sees them. With agent_of: those for which it returns None.
        fields: Default paths of the values that are searched; each is searched separately.
        ttl: LangGraph's configuration of lifetimes.
        search: Options of every search with a query, such as mode or reranker.

    Raises:
        ScopeError: not exactly one way of setting the owner is used.
        UsageError: `search` contains an option that each call sets itself.
    """

    supports_ttl = True

    def __init__(
        self,
        indexer: DualIndexer,
        *,
        agent_id: str | None = None,
        agent_id_key: str | None = None,
        agent_of: AgentOf | None = None,
        shared: bool = False,
        fields: Sequence[str] = (WHOLE_VALUE,),
        ttl: TTLConfig | None = None,
        search: SearchOptions | None = None,
    ) -> None:
        self._indexer = check_indexer(indexer, "HybridStore")
        self._owners = NamespaceOwners(agent_id, agent_id_key, agent_of, shared=shared)
        self._fields = tuple(fields)
        self.ttl_config = ttl
        self._options: SearchOptions = search or {}
        reserved = [name for name in _RESERVED_OPTIONS if name in self._options]
        if reserved:
            raise UsageError(
                f"search={{{reserved[0]!r}: …}} cannot be given: each call of the store sets it. Leave it out."
            )
        check_request("", 1, agent_id=None, options=self._options)
        self._sweeper = ExpirySweeper(self.sweep_ttl)
        self._writes = JoinedWrites(self._indexer, self._write_calls)

    def __repr__(self) -> str:
        return f"HybridStore({self._indexer!r}, {self._owners!r})"

    # -- methods of BaseStore, which would look for the key "None" ----------------------------------------------------

    def get(self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        """Return an item, or None when there is none."""
        return super().get(namespace, _check_key(key), refresh_ttl=refresh_ttl)

    async def aget(self, namespace: tuple[str, ...], key: str, *, refresh_ttl: bool | None = None) -> Item | None:
        """`get` in a worker thread."""
        return await super().aget(namespace, _check_key(key), refresh_ttl=refresh_ttl)

    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        """Delete an item; an absent one is ignored."""
        super().delete(namespace, _check_key(key))

    async def adelete(self, namespace: tuple[str, ...], key: str) -> None:
        """`delete` in a worker thread."""
        await super().adelete(namespace, _check_key(key))

    # -- LangGraph's abstract methods; its get, put, search, delete and list_namespaces call them ---------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations and return their results in order.

        Reads see the state before the batch. Of several puts of a key the last one is stored.

        Raises:
            InvalidNamespaceError: a namespace is invalid.
            InvalidDocumentError: a value cannot be stored; nothing of the batch is.
            ScopeError: a namespace has no owner.
        """
        ops = list(ops)
        return self._writes.run(ops) if _has_put(ops) else self._read(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch` in a worker thread."""
        ops = list(ops)
        return await (self._writes.arun(ops) if _has_put(ops) else asyncio.to_thread(self._read, ops))

    def _read(self, ops: Sequence[Op]) -> list[Result]:
        batch = _Batch(self._owned_documents)
        results = self._execute_all(ops, batch)
        due = [
            _RenewOp(owner, item)
            for (owner, _), item in batch.reads.items()
            if item.renewed(batch.owned_documents(owner).now) is not None
        ]
        if due:
            try:
                self._writes.run(due)
            except StoreError as error:  # closed meanwhile: what was read is the result
                _log_not_renewed(len(due), error)
        return results

    def _write_calls(self, calls: Sequence[WriteCall]) -> None:
        """Execute the operations of several callers and commit them together; what one of them gets wrong is its own.

        Reads of any of them see the state before all of them.
        """
        joined = _Batch(self._owned_documents)
        executed: list[tuple[WriteCall, list[Result]]] = []
        for call in calls:
            batch = joined.for_next_caller()
            try:
                results = call.run_in_context(self._execute_all, call.ops, batch)
            except Exception as error:  # noqa: BLE001  (whatever it is, its caller gets it)
                call.fail(error)
            else:
                joined.add(batch)
                executed.append((call, results))
        try:
            self._commit(joined)
        except Exception as error:
            if isinstance(error, StoreError) or len(executed) <= 1:  # a locked or full store is so for all of them
                raise
            logger.info("%d writes are repeated one by one: %r", len(executed), error)
            for call, _ in executed:
                write_calls(self._write_calls, [call])
        else:
            for call, results in executed:
                call.succeed(results)

    def _owned_documents(self, owner: str | None) -> OwnedDocuments:
        expired = (self.ttl_config or {}).get("omit_expired") is False
        return self._indexer.owned_documents(owner, expired=expired)

    def _execute_all(self, ops: Sequence[Op | _RenewOp], batch: _Batch) -> list[Result]:
        return [self._execute(op, batch) for op in ops]

    def _execute(self, op: Op | _RenewOp, batch: _Batch) -> Result:
        match op:
            case GetOp():
                return self._get(op, batch)
            case SearchOp():
                return self._search(op, batch)
            case ListNamespacesOp():
                return self._list_namespaces(op, batch)
            case PutOp():
                self._put(op, batch)
                return None
            case _RenewOp():
                self._note_renewal(op, batch)
                return None
        raise ValueError(f"Unknown operation type: {type(op)}")

    # -- reading ------------------------------------------------------------------------------------------------------

    def _get(self, op: GetOp, batch: _Batch) -> Item | None:
        namespace = check_labels(op.namespace)
        owner = self._owners.owner_of(namespace)
        item = self._find_item(owner, namespace, op.key, batch)
        if item is None:
            return None
        if op.refresh_ttl:
            batch.note_read(owner, [item])
        return Item(
            value=item.value, key=item.key, namespace=item.namespace, created_at=item.created, updated_at=item.updated
        )

    @staticmethod
    def _find_item(owner: str | None, namespace: Namespace, key: str, batch: _Batch) -> StoreItemRecord | None:
        documents = batch.owned_documents(owner).find([item_id(namespace, key)])
        return StoreItemRecord.from_metadata(documents[0].metadata) if documents else None

    def _search(self, op: SearchOp, batch: _Batch) -> list[SearchItem]:
        prefix = check_labels(op.namespace_prefix)
        check_filter(op.filter)
        owner = self._owners.owner_of(prefix)
        documents = cache(lambda: _filtered_items(batch.owned_documents(owner), prefix, op.filter))
        if op.query:
            page = self._ranked_page(op, owner, prefix, documents) if op.limit > 0 else []
        else:
            unscored = documents()[op.offset : op.offset + op.limit]
            page = [(StoreItemRecord.from_metadata(document.metadata), None) for document in unscored]
        if op.refresh_ttl:
            batch.note_read(owner, [item for item, _ in page])
        return [
            SearchItem(item.namespace, item.key, item.value, item.created, item.updated, score) for item, score in page
        ]

    def _ranked_page(
        self, op: SearchOp, owner: str | None, prefix: Namespace, documents: Callable[[], list[OwnedDocument]]
    ) -> list[tuple[StoreItemRecord, float | None]]:
        """Return a page of items with scores, best first, then those without, in storage order."""
        parts: list[Filter] = [namespace_filter(prefix), Condition("agent_id", "$eq", owner)]
        if op.filter:
            parts.append(Condition("doc_id", "$in", [document.doc_id for document in documents()]))
        options: SearchOptions = {**self._options, "filter": And(tuple(parts)), "max_per_document": 1}
        hits = self._indexer.search(op.query or "", op.offset + op.limit, agent_id=owner, **options)
        if hits.degraded:
            logger.warning("a search of HybridStore ran without: %s", "; ".join(hits.degraded))
        scored = {hit.doc_id: (StoreItemRecord.from_metadata(hit.metadata), hit.score) for hit in hits}
        ranked: list[tuple[StoreItemRecord, float | None]] = [*scored.values()]
        missing = op.offset + op.limit - len(ranked)
        if missing > 0:
            unscored = [document for document in documents() if document.doc_id not in scored][:missing]
            ranked += [(StoreItemRecord.from_metadata(document.metadata), None) for document in unscored]
        return ranked[op.offset :]

    def _list_namespaces(self, op: ListNamespacesOp, batch: _Batch) -> list[Namespace]:
        patterns = [(condition.match_type, check_labels(condition.path)) for condition in op.match_conditions or ()]
        owner, prefix = self._owners.owner_of_patterns([pattern for kind, pattern in patterns if kind == "prefix"])
        documents = batch.owned_documents(owner).with_prefix(*id_prefixes(prefix))
        namespaces = {
            namespace[: op.max_depth]
            for namespace in {namespace_of_id(document.doc_id) for document in documents}
            if all(matches_namespace(kind, pattern, namespace) for kind, pattern in patterns)
        }
        return sorted(namespaces)[op.offset : op.offset + op.limit]

    # -- writing ------------------------------------------------------------------------------------------------------

    def _put(self, op: PutOp, batch: _Batch) -> None:
        namespace = check_labels(op.namespace)
        if not isinstance(op.key, str):
            raise InvalidDocumentError(f"Cannot put under {op.key!r}: the key of an item must be a string.")
        owner = self._owners.owner_of(namespace)
        item_key = (owner, item_id(namespace, op.key))
        if op.value is None:
            batch.puts[item_key] = None
            return
        if op.index is None:
            fields: Sequence[str] = self._fields
        else:
            fields = [] if op.index is False else op.index
        previous = batch.previous(item_key, lambda: self._find_item(owner, namespace, op.key, batch))
        batch.puts[item_key] = new_item(
            namespace,
            op.key,
            op.value,
            fields,
            now=batch.owned_documents(owner).now,
            ttl=op.ttl,
            created=None if previous is None else previous.created,
        )

    def _commit(self, batch: _Batch) -> None:
        puts: dict[str | None, list[SourceDocument]] = defaultdict(list)
        deletions: dict[str | None, list[str]] = defaultdict(list)
        for (owner, doc_id), item in batch.puts.items():
            if item is None:
                deletions[owner].append(doc_id)
            else:
                puts[owner].append(item.to_document())
        for owner, documents in puts.items():
            self._write(owner, documents)
        for owner, doc_ids in deletions.items():
            self._remove(owner, doc_ids)
        self._renew(batch)

    def _write(self, owner: str | None, documents: Sequence[SourceDocument]) -> None:
        for searched, group in groupby(documents, key=lambda document: document.metadata["searched"]):
            batch = list(group)
            if searched:
                self._indexer.index_documents(batch, owner)
            else:  # documents without text; zero vectors avoid embedding the empty text
                zeros = [0.0] * self._indexer.embedder.dimension
                self._indexer.index_documents(batch, owner, split=False, vectors=[zeros] * len(batch))

    def _remove(self, owner: str | None, doc_ids: list[str]) -> None:
        existing = [document.doc_id for document in self._owned_documents(owner).find(doc_ids)]
        if existing:
            self._indexer.delete(existing, agent_id=owner)

    def _note_renewal(self, op: _RenewOp, batch: _Batch) -> None:
        """Note an item that was read for renewal, as it is now; one that was put or deleted since stays as it is."""
        namespace, key = op.item.namespace, op.item.key
        current = batch.previous((op.owner, op.item.doc_id), lambda: self._find_item(op.owner, namespace, key, batch))
        if current is not None and current.updated == op.item.updated:
            batch.note_read(op.owner, [current])

    def _renew(self, batch: _Batch) -> None:
        """Restart the time to live of items that were read; failures (store busy or read-only) are only logged."""
        renewed: dict[str | None, list[SourceDocument]] = defaultdict(list)
        for (owner, doc_id), item in batch.reads.items():
            extended = item.renewed(batch.owned_documents(owner).now)
            if extended is not None and (owner, doc_id) not in batch.puts:
                renewed[owner].append(extended.to_document())
        for owner, documents in renewed.items():
            try:
                self._write(owner, documents)
            except StoreError as error:
                _log_not_renewed(len(documents), error)

    # -- lifetimes ----------------------------------------------------------------------------------------------------

    def sweep_ttl(self) -> int:
        """Delete expired items and other documents of the store's owner from disk and return their number.

        Where each call or namespace names its owner, those of all owners.
        """
        return self._indexer.expire(owners=self._owners.known_owners).deleted

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Run `sweep_ttl` in a thread every so many minutes (5 by default) until `stop_ttl_sweeper`."""
        configured = (self.ttl_config or {}).get("sweep_interval_minutes")
        self._sweeper.start(sweep_interval_minutes or configured or 5)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the thread and return whether it ended within `timeout` seconds."""
        return self._sweeper.stop(timeout)


@dataclass(frozen=True, slots=True)
class _RenewOp:
    """Operation of the store's own: restart the time to live of an item that was read."""

    owner: str | None
    item: StoreItemRecord


def _log_not_renewed(count: int, error: StoreError) -> None:
    logger.warning("the time to live of %d items was not renewed: %s", count, error)


class _Batch:
    """State of one batch: its snapshots, the last put of each item (None deletes it), and the items read.

    Args:
        open_documents: Opens the snapshot of an owner's documents.
        earlier: Puts of earlier callers that are committed together with this batch.
    """

    def __init__(
        self,
        open_documents: Callable[[str | None], OwnedDocuments],
        earlier: Mapping[_ItemKey, StoreItemRecord | None] | None = None,
    ) -> None:
        self.owned_documents = cache(open_documents)  # one snapshot per owner
        self.puts: dict[_ItemKey, StoreItemRecord | None] = {}
        self.reads: dict[_ItemKey, StoreItemRecord] = {}
        self._earlier = {} if earlier is None else earlier

    def for_next_caller(self) -> _Batch:
        """Return an empty batch with the same snapshots, which puts after this one."""
        return _Batch(self.owned_documents, self.puts)

    def add(self, batch: _Batch) -> None:
        """Add the puts and reads of a later batch."""
        self.puts.update(batch.puts)
        self.reads.update(batch.reads)

    def previous(self, item_key: _ItemKey, find: Callable[[], StoreItemRecord | None]) -> StoreItemRecord | None:
        """Return the item as earlier puts leave it; without one, what `find` returns."""
        for puts in (self.puts, self._earlier):
            if item_key in puts:
                return puts[item_key]
        return find()

    def note_read(self, owner: str | None, items: Iterable[StoreItemRecord]) -> None:
        """Note items whose time to live a read restarts."""
        self.reads.update({(owner, item.doc_id): item for item in items})


def _has_put(ops: Iterable[Op]) -> bool:
    return any(isinstance(op, PutOp) for op in ops)


def _check_key(key: str) -> str:
    """Return a key unchanged.

    Raises:
        UsageError: it is None, which BaseStore would look for as the key "None".
    """
    if key is None:
        raise UsageError("Cannot find an item under the key None: pass the key it was put under.")
    return key


def _filtered_items(
    documents: OwnedDocuments, prefix: Namespace, where: Mapping[str, Any] | None
) -> list[OwnedDocument]:
    """Return the items under a namespace that match a filter, the last put first."""
    items = documents.with_prefix(*id_prefixes(prefix))[::-1]
    items.sort(key=lambda item: item.time, reverse=True)  # stable: of items put together, the last one first
    return [item for item in items if matches_filter(item.metadata["value"], where)] if where else items
