"""Interface of a connector: a source that lists its items with a version and loads the requested ones.

A connector does not know the indexes. It yields items in any order; a sync compares their versions with the stored
ones, loads the changed items, and deletes those the source no longer lists.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_agentrag.errors import UnreadableSourceError, UsageError
from langchain_agentrag.metadata import short_repr

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from langchain_core.documents import Document

    from langchain_agentrag.types import SourceDocument

_log = logging.getLogger(__name__)


class NotIndexableError(UnreadableSourceError):
    """An item turned out on loading not to be text, such as a binary file: skipped, not failed."""


@dataclass(frozen=True, slots=True)
class SourceItem:
    """One item of a source.

    Attributes:
        key: Stable name within the connector.
        version: An item with an equal version is unchanged and not loaded; one with None is always loaded.
        load: Loads the item. It may return several documents, or none when it holds no text.
        size: Approximate characters of the item that are in memory already.
    """

    key: str
    version: str | None
    load: Callable[[], Iterable[SourceDocument]]
    size: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """An item that cannot or should not be indexed.

    Attributes:
        key: Its name. One that ends with "/" is a folder that could not be listed: nothing below it counts as deleted.
        reason: The reason, for the report.
        skipped: Whether it was skipped on purpose (True) or failed (False).
    """

    key: str
    reason: str
    skipped: bool


def check_connector(connector: object) -> BaseConnector:
    """Return a connector unchanged.

    Raises:
        UsageError: it is something else, such as the path of a folder.
    """
    if isinstance(connector, BaseConnector):
        return connector
    remedy = "pass a connector, such as FileSystemConnector(folder)"
    if isinstance(connector, str | os.PathLike):
        remedy = f"pass FileSystemConnector({os.fspath(connector)!r}) for a folder, or the connector of another source"
    raise UsageError(f"{short_repr(connector)} is no connector: {remedy}.")


class BaseConnector(ABC):
    """A source of documents.

    It also has the methods of a LangChain document loader, without inheriting from `BaseLoader`, whose import takes
    longer than a small search.

    Attributes:
        agent_id: Owner of all documents of this source, or None for shared.
    """

    agent_id: str | None = None

    @property
    @abstractmethod
    def connector_id(self) -> str:
        """Name of this source, equal in every process; a sync deletes only documents with this name."""

    @abstractmethod
    def items(self) -> Iterator[SourceItem | Gap]:
        """List all items of the source.

        Raises:
            ConnectorError: the source cannot be listed; nothing is deleted then.
        """

    def lazy_load(self) -> Iterator[Document]:
        """Yield the LangChain documents of all items; unreadable items are logged and skipped."""
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
            except Exception as error:  # noqa: BLE001  one unreadable item must not end the run
                _log.warning("Cannot load %s: %s", item.key, error)

    def load(self) -> list[Document]:
        """Return the LangChain documents of all items."""
        return list(self.lazy_load())

    async def alazy_load(self) -> AsyncIterator[Document]:
        """Like `lazy_load`, in a worker thread."""
        documents = self.lazy_load()
        while (document := await asyncio.to_thread(next, documents, None)) is not None:
            yield document

    async def aload(self) -> list[Document]:
        """Like `load`, in a worker thread."""
        return await asyncio.to_thread(self.load)
