"""A thread that sweeps now and then."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from langchain_agentrag.indexer import DualIndexer
from langchain_agentrag.langgraph.items import (
    WHOLE,
    AgentOf,
    Namespace,
    Owners,
    StoredItem,
    beginnings,
    check_labels,
    is_under,
    item_id,
    matches,
    new_item,
    passes,
    place_of,
)
from langchain_agentrag.search.options import SearchOptions, check_request
from langchain_agentrag.store.queries import OwnedDocument, OwnedDocuments
from langchain_agentrag.types import SourceDocument

logger = logging.getLogger(__name__)


class Sweeper:
    """Calls a function every so often until it is stopped; a failure is logged and tried again at the next turn.

    Args:
        sweep: What to call; it says how much it removed.
    """

    def __init__(self, sweep: Callable[[], int]) -> None:
        self._sweep = sweep
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, minutes: float) -> None:
        """Begin, unless it has begun.

        Raises:
            UsageError: the interval is no positive number.
        """
        if not minutes > 0:
            raise UsageError(f"Cannot sweep every {minutes!r} minutes: pass a positive number.")
        if self._thread is None or not self._thread.is_alive():
            self._ended.clear()
            self._thread = threading.Thread(
                target=self._run, args=(minutes * 60,), daemon=True, name="agentrag-sweeper"
            )
            self._thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """End; whether the thread did within so many seconds."""
        self._ended.set()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            try:
                logger.info("swept %d expired items", self._sweep())
            except Exception:
                logger.exception("a sweep failed; the next one tries again")


_OWN_OPTIONS = ("filter", "vector", "max_per_document")  # of a search, decided here
_Address = tuple[str | None, str]


class HybridStore(BaseStore):
    """LangGraph's `BaseStore` over a `DualIndexer`: `create_agent(…, store=HybridStore(indexer, agent_id="lina"))`.

    Items are private documents of one agent, so `DualIndexer.search` finds them too, and nobody else's agent does. Who
    owns an item is said once, in one of four ways; a namespace such as `("users", "lina")` alone says nothing.

    It answers as LangGraph's `InMemoryStore`, call by call, errors included, but:

    - a query is answered by both legs, so its scores are of [0, 1] and an exact word counts;
    - a namespace exists while it holds an item; namespaces come in the order of their oldest item;
    - the items without a score that fill up a search take part in paging;
    - a put keeps `created_at`; values come back as JSON gives them (a tuple as a list), dates and Decimal kept;
    - operations handed to `batch` directly are checked as those of the methods are.

    An item with a time to live is gone when it has passed, whether or not a sweep has removed it from disk.

    Args:
        indexer: The store behind it.
        agent_id: The agent that owns every item.
        agent_id_key: Key of each run's `configurable` or context that names the owner.
        agent_of: Gives the owner of a namespace, and of the beginning of one that a search names.
        shared: All items are shared: every agent sees them. With agent_of: those it gives None for.
        fields: Paths of the values that are searched where a put does not say; each is searched on its own.
        ttl: LangGraph's configuration of lifetimes.
        search: Options of every search with a query, such as mode or reranker.

    Raises:
        ScopeError: nobody owns the items, or two ways were given.
        UsageError: an option of `search` that the store decides by itself.
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
        fields: Sequence[str] = (WHOLE,),
        ttl: TTLConfig | None = None,
        search: SearchOptions | None = None,
    ) -> None:
        self._indexer = indexer
        self._owners = Owners(agent_id, agent_id_key, agent_of, shared=shared)
        self._fields = tuple(fields)
        self.ttl_config = ttl
        self._options: SearchOptions = search or {}
        decided = [name for name in _OWN_OPTIONS if name in self._options]
        if decided:
            raise UsageError(
                f"search={{{decided[0]!r}: …}} cannot be given: each call of the store decides it."
            )
        check_request("", 1, agent_id=None, options=self._options)
        self._sweeper = Sweeper(self.sweep_ttl)

    def __repr__(self) -> str:
        return f"HybridStore({self._indexer!r}, {self._owners!r})"

    # -- LangGraph's two methods; get, put, search, delete and list_namespaces are made of them -----------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Results of operations, in their order. Reads see the state before; of several puts of a key the last counts.

        Raises:
            InvalidNamespaceError: a namespace is none.
            InvalidDocumentError: a value cannot be stored; nothing of the batch is.
            ScopeError: it is not said who owns a namespace.
        """
        work = _Batch(self._indexer.owned_documents)
        results = [self._answer(op, work) for op in ops]
        self._apply(work)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch` in a worker thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _answer(self, op: Op, work: _Batch) -> Result:
        match op:
            case GetOp():
                return self._get(op, work)
            case SearchOp():
                return self._search(op, work)
            case ListNamespacesOp():
                return self._list(op, work)
            case PutOp():
                self._put(op, work)
                return None
        raise ValueError(f"Unknown operation type: {type(op)}")

    # -- reading ------------------------------------------------------------------------------------------------------

    def _get(self, op: GetOp, work: _Batch) -> Item | None:
        namespace = check_labels(op.namespace)
        found = self._find(self._owners.of(namespace), namespace, op.key, work)
        if found is None:
            return None
        if op.refresh_ttl:
            work.read(self._owners.of(namespace), [found])
        return Item(
            value=found.value,
            key=found.key,
            namespace=found.namespace,
            created_at=found.created,
            updated_at=found.updated,
        )

    @staticmethod
    def _find(owner: str | None, namespace: Namespace, key: str, work: _Batch) -> StoredItem | None:
        found = next(work.owned_documents(owner).find([item_id(namespace, key)]), None)
        return None if found is None else StoredItem.of(found.metadata)

    def _search(self, op: SearchOp, work: _Batch) -> list[SearchItem]:
        prefix = check_labels(op.namespace_prefix)
        owner = self._owners.of(prefix)
        there = _Once(lambda: _passing(work.owned_documents(owner), prefix, op.filter))
        if op.filter:
            there()  # a filter that cannot be applied is an error, whatever is asked for
        if op.query:
            page = self._best(op, owner, prefix, there) if op.limit > 0 else []
        else:
            page = [(StoredItem.of(one.metadata), None) for one in there()[op.offset : op.offset + op.limit]]
        if op.refresh_ttl:
            work.read(owner, [item for item, _ in page])
        return [
            SearchItem(item.namespace, item.key, item.value, item.created, item.updated, score)
            for item, score in page
        ]

    def _best(
        self, op: SearchOp, owner: str | None, prefix: Namespace, there: _Once
    ) -> list[tuple[StoredItem, float | None]]:
        """A page of the items, best first, then those that cannot be scored, in the order they came."""
        parts: list[Filter] = [is_under(prefix), Condition("agent_id", "$eq", owner)]
        if op.filter:
            parts.append(Condition("doc_id", "$in", [one.doc_id for one in there()]))
        options: SearchOptions = {**self._options, "filter": And(tuple(parts)), "max_per_document": 1}
        hits = self._indexer.search(op.query or "", op.offset + op.limit, agent_id=owner, **options)
        if hits.degraded:
            logger.warning("a search of the store went without %s", "; ".join(hits.degraded))
        scored = {hit.doc_id: (StoredItem.of(hit.metadata), hit.score) for hit in hits}
        ranked: list[tuple[StoredItem, float | None]] = [*scored.values()]
        missing = op.offset + op.limit - len(ranked)
        rest = [one for one in there() if one.doc_id not in scored][:missing] if missing > 0 else []
        return [*ranked, *((StoredItem.of(one.metadata), None) for one in rest)][op.offset :]

    def _list(self, op: ListNamespacesOp, work: _Batch) -> list[Namespace]:
        patterns = [(found.match_type, check_labels(found.path)) for found in op.match_conditions or ()]
        owner, start = self._owners.of_patterns([pattern for kind, pattern in patterns if kind == "prefix"])
        places = {
            place_of(shelved.doc_id)
            for shelved in work.owned_documents(owner).with_prefix(*beginnings(start))
        }
        found = {
            place[: op.max_depth]
            for place in places
            if all(matches(kind, pattern, place) for kind, pattern in patterns)
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    # -- writing ------------------------------------------------------------------------------------------------------

    def _put(self, op: PutOp, work: _Batch) -> None:
        namespace = check_labels(op.namespace)
        if not isinstance(op.key, str):
            raise InvalidDocumentError(f"Cannot put under {op.key!r}: the key of an item is a text.")
        owner = self._owners.of(namespace)
        address = (owner, item_id(namespace, op.key))
        if op.value is None:
            work.puts[address] = None
            return
        if op.index is None:
            fields: Sequence[str] = self._fields
        else:
            fields = [] if op.index is False else op.index
        before = self._find(owner, namespace, op.key, work)
        work.puts[address] = new_item(
            namespace,
            op.key,
            op.value,
            fields,
            now=work.owned_documents(owner).now,
            ttl=op.ttl,
            created=None if before is None else before.created,
        )

    def _apply(self, work: _Batch) -> None:
        puts: dict[str | None, list[SourceDocument]] = defaultdict(list)
        gone: dict[str | None, list[str]] = defaultdict(list)
        for (owner, doc_id), item in work.puts.items():
            if item is None:
                gone[owner].append(doc_id)
            else:
                puts[owner].append(item.document())
        for owner, documents in puts.items():
            self._write(owner, documents)
        for owner, doc_ids in gone.items():
            self._remove(owner, doc_ids)
        self._renew(work)

    def _write(self, owner: str | None, documents: Sequence[SourceDocument]) -> None:
        for searched, group in groupby(documents, key=lambda document: document.metadata["searched"]):
            found = list(group)
            if searched:
                self._indexer.index_documents(found, owner)
            else:  # kept in one piece without a text; the zero vector spares the model the empty text
                nothing = [0.0] * self._indexer.embedder.dimension
                self._indexer.index_documents(found, owner, split=False, vectors=[nothing] * len(found))

    def _remove(self, owner: str | None, doc_ids: list[str]) -> None:
        there = [shelved.doc_id for shelved in self._indexer.owned_documents(owner).find(doc_ids)]
        if there:
            self._indexer.delete(there, agent_id=owner)

    def _renew(self, work: _Batch) -> None:
        """Begin the time to live of what was read anew; a store that is busy or read-only answers all the same."""
        renewed: dict[str | None, list[SourceDocument]] = defaultdict(list)
        for (owner, doc_id), item in work.touched.items():
            later = item.used(work.owned_documents(owner).now)
            if later is not None and (owner, doc_id) not in work.puts:
                renewed[owner].append(later.document())
        for owner, documents in renewed.items():
            try:
                self._write(owner, documents)
            except StoreError as error:
                logger.warning("the time to live of %d items was not renewed: %s", len(documents), error)

    # -- lifetimes ----------------------------------------------------------------------------------------------------

    def sweep_ttl(self) -> int:
        """Take what has expired off the disk, items and other documents, whosever they were; how many."""
        return self._indexer.expire().deleted

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> None:
        """Sweep every so many minutes, in a thread, until `stop_ttl_sweeper`; 5 where nothing else is configured."""
        configured = (self.ttl_config or {}).get("sweep_interval_minutes")
        self._sweeper.start(sweep_interval_minutes or configured or 5)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop sweeping; whether the thread has ended within so many seconds."""
        return self._sweeper.stop(timeout)


class _Batch:
    """One batch at work: what it sees, the last put of each address, and what was read."""

    def __init__(self, open_shelf: Callable[[str | None], OwnedDocuments]) -> None:
        self._open, self._shelves = open_shelf, dict[str | None, OwnedDocuments]()
        self.puts: dict[_Address, StoredItem | None] = {}
        self.touched: dict[_Address, StoredItem] = {}

    def owned_documents(self, owner: str | None) -> OwnedDocuments:
        """What the owner has."""
        if owner not in self._shelves:
            self._shelves[owner] = self._open(owner)
        return self._shelves[owner]

    def read(self, owner: str | None, items: Iterable[StoredItem]) -> None:
        """Note items that were read."""
        self.touched.update({(owner, item.doc_id): item for item in items})


class _Once:
    """What a function gives, asked at most once."""

    def __init__(self, read: Callable[[], list[OwnedDocument]]) -> None:
        self._read = read
        self._found: list[OwnedDocument] | None = None

    def __call__(self) -> list[OwnedDocument]:
        if self._found is None:
            self._found = self._read()
        return self._found


def _passing(
    shelf: OwnedDocuments, prefix: Namespace, where: Mapping[str, Any] | None
) -> list[OwnedDocument]:
    """Items under a namespace that pass a filter, those of one namespace together, in the order they came."""
    groups: dict[Namespace, list[OwnedDocument]] = defaultdict(list)
    for shelved in shelf.with_prefix(*beginnings(prefix)):
        groups[place_of(shelved.doc_id)].append(shelved)
    found = [shelved for group in groups.values() for shelved in group]
    return [one for one in found if passes(one.metadata["value"], where)] if where else found
