"""What a connector is: a source that lists its items with a version and loads those that are asked for.

A connector knows nothing of indexes. It yields items in any order; whoever syncs compares their versions
with what is stored, loads the changed ones, and deletes what the source no longer lists.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_agentrag.errors import UnreadableSourceError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from langchain_core.documents import Document

    from langchain_agentrag.types import SourceDocument

_log = logging.getLogger(__name__)


class NotIndexableError(UnreadableSourceError):
    """An item turned out on reading to be nothing to index, a binary file say: skipped, not failed."""


@dataclass(frozen=True, slots=True)
class SourceItem:
    """One item of a source.

    Attributes:
        key: Stable name within the connector.
        version: Equal versions mean an unchanged item, which is then not loaded; None means always load.
        load: Reads the item. It may give several documents, or none when there is nothing to index in it.
        size: Characters that the item holds in memory already, roughly.
    """

    key: str
    version: str | None
    load: Callable[[], Iterable[SourceDocument]]
    size: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """An item that cannot or should not be indexed.

    Attributes:
        key: Its name. One that ends with "/" is a folder that could not be listed: nothing below it may be
            considered deleted.
        reason: Why, in words for the person who reads the report.
        skipped: Left out on purpose (True), or failed (False).
    """

    key: str
    reason: str
    skipped: bool


class BaseConnector(ABC):
    """A source of documents.

    It also has the methods of a LangChain document loader, without inheriting from `BaseLoader`, whose import
    alone takes longer than a small search.

    Attributes:
        agent_id: Owner of everything this source yields, or None for shared.
    """

    agent_id: str | None = None

    @property
    @abstractmethod
    def connector_id(self) -> str:
        """Name of this source, equal in every process; it decides what a sync may delete."""

    @abstractmethod
    def items(self) -> Iterator[SourceItem | Gap]:
        """Everything the source holds now.

        Raises:
            ConnectorError: the source as a whole cannot be listed; nothing may be deleted then.
        """

    def lazy_load(self) -> Iterator[Document]:
        """LangChain documents of all items, one by one; unreadable items are logged and passed over."""
        from langchain_core.documents import Document

        for item in self.items():
            if isinstance(item, Gap):
                _log.log(logging.INFO if item.skipped else logging.WARNING, "%s: %s", item.key, item.reason)
                continue
            try:
                for document in item.load():
                    metadata = dict(document.metadata) | {"doc_id": document.doc_id}
                    if document.agent_id is not None:
                        metadata["agent_id"] = document.agent_id
                    yield Document(id=document.doc_id, page_content=document.text, metadata=metadata)
            except Exception as error:  # noqa: BLE001  one bad item must not end the run
                _log.warning("%s was not loaded: %s", item.key, error)

    def load(self) -> list[Document]:
        """LangChain documents of all items."""
        return list(self.lazy_load())

    async def alazy_load(self) -> AsyncIterator[Document]:
        """Like `lazy_load`, read in a worker thread."""
        documents = self.lazy_load()
        while (document := await asyncio.to_thread(next, documents, None)) is not None:
            yield document

    async def aload(self) -> list[Document]:
        """Like `load`, read in a worker thread."""
        return await asyncio.to_thread(self.load)
