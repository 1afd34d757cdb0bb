"""Sources of a sync: a connector, the path of files, a loader of a framework, or documents with a name."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sized
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_agentrag import metadata as codec
from langchain_agentrag.connector import BaseConnector, SourceItem
from langchain_agentrag.errors import UsageError
from langchain_agentrag.ingest.documents import as_source_documents
from langchain_agentrag.lazy_imports import provided
from langchain_agentrag.metadata import short_repr
from langchain_agentrag.scope import check_agent_id
from langchain_agentrag.types import SourceDocument

PATH_CONNECTOR: Final = "connector of a path"
"""Name under which the package provides the connector of files, which is no part of the core."""


def as_connector(source: Any, *, name: str | None, agent_id: str | None, store: Path) -> BaseConnector:  # noqa: ANN401
    """Return the connector of a source, checked before anything is read.

    Args:
        source: A connector; the path of a folder or file; a LangChain loader or a LlamaIndex reader; an iterable of
            documents, as for `index_documents`.
        name: Identity of the source; needed for documents and loaders, and allowed for a path.
        agent_id: Owner of the documents; a connector has its own.
        store: Folder of the store, which no source includes.

    Raises:
        UsageError: it is no source, the name is missing, or the connector has a name of its own.
        ScopeError: the agent id is invalid.
    """
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise UsageError(f"sync(name={name!r}): a name is a text that is not empty.")
    owner = check_agent_id(agent_id)
    if isinstance(source, BaseConnector):
        given = {"name": name, "agent_id": agent_id}
        if extra := [option for option, value in given.items() if value is not None]:
            raise UsageError(
                f"sync({extra[0]}=…) is for paths, loaders and documents: pass it to {type(source).__name__}(…)."
            )
        return source
    if isinstance(source, str | os.PathLike):
        return _path_connector(source, name, owner, store)
    return DocumentsConnector(_documents(source), _required_name(source, name), owner)


def store_within(folder: Path, store: Path) -> list[str]:
    """Return the path of a store within a folder that is indexed: a store must not index itself."""
    folder, store = folder.resolve(), store.resolve()
    return [store.relative_to(folder).as_posix()] if folder != store and store.is_relative_to(folder) else []


def documents_of_loop(documents: AsyncIterable[Any], loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    """Yield the documents of an asynchronous iterable in a worker thread; they are made in the event loop."""
    iterator: AsyncIterator[Any] = aiter(documents)
    end = object()

    async def following() -> Any:  # noqa: ANN401  (a document, or the end)
        return await anext(iterator, end)

    while (document := asyncio.run_coroutine_threadsafe(following(), loop).result()) is not end:
        yield document


class DocumentsConnector(BaseConnector):
    """Documents of the caller's own as a source: each is an item, compared by its content. Can be listed once.

    Args:
        documents: Documents, as for `index_documents`; they are read lazily.
        name: Identity of the source.
        agent_id: Owner of the documents, or None for shared. A document that names an owner is private to it.

    Attributes:
        total: Number of documents, where that is known.
    """

    def __init__(self, documents: Iterable[Any], name: str, agent_id: str | None) -> None:
        self.total = len(documents) if isinstance(documents, Sized) else None
        self._documents = as_source_documents(documents, agent_id)
        self._name, self.agent_id = name, agent_id

    @property
    def connector_id(self) -> str:
        """Name of the source."""
        return f"documents:{self._name}"

    def items(self) -> Iterator[SourceItem]:
        """List the documents.

        Raises:
            InvalidDocumentError: one of them cannot be stored; nothing is deleted then.
        """
        for document in self._documents:
            own = document.agent_id == self.agent_id
            key = document.doc_id if own else f"{document.doc_id}@{document.agent_id}"
            yield SourceItem(key, _version(document), partial(_load, document), len(document.text))


def _load(document: SourceDocument) -> list[SourceDocument]:
    return [document]


def _version(document: SourceDocument) -> str:
    parts = (document.text, codec.fingerprint(document.metadata), document.kind, document.sections)
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _path_connector(path: str | os.PathLike[str], name: str | None, owner: str | None, store: Path) -> BaseConnector:
    if isinstance(path, str) and "://" in path:
        raise UsageError(  # without the text, which may hold a password
            "sync() takes the path of a folder or file, not a URL: pass DatabaseConnector(url, table=…) for a "
            "database, AgentMemoryConnector(url, agent_id=…) for chat histories, or a loader of web pages with name=…."
        )
    if isinstance(path, str) and not path.strip():
        raise UsageError(f"sync({path!r}): pass the path of a folder or file; the working directory is '.'.")
    expanded = Path(path).expanduser()
    excluded = store_within(expanded, store)
    connector: BaseConnector = provided(PATH_CONNECTOR)(expanded, exclude=excluded, agent_id=owner, name=name)
    return connector


def _documents(source: Any) -> Iterable[Any]:  # noqa: ANN401  (see `as_connector`)
    """Return the documents of a loader, or an iterable of documents as it is.

    Raises:
        UsageError: it is neither, or it cannot be read without an event loop or without arguments.
    """
    if isinstance(source, type):
        raise UsageError(f"sync({source.__name__}): this is a class, pass an object of it.")
    for method in ("lazy_load", "load_data"):  # of LangChain's loaders, of LlamaIndex's readers
        if callable(load := getattr(source, method, None)):
            return _loaded(source, method, load)
    if hasattr(source, "__aiter__"):
        raise UsageError("sync() cannot wait for an asynchronous iterable: await async_sync(documents, name=…).")
    if not isinstance(source, Iterable) and not hasattr(source, "page_content"):  # a single one has its own message
        raise UsageError(
            f"sync({short_repr(source)}) got a {type(source).__name__}, which is no source: pass the path of a folder, "
            "a connector such as DatabaseConnector(url, table=…), a loader, or a list of documents with name=…."
        )
    return source  # type: ignore[no-any-return]


def _loaded(source: object, method: str, load: Callable[[], Iterable[Any]]) -> Iterable[Any]:
    """Return the documents of a loader; it is called when they are read.

    Raises:
        UsageError: it needs arguments.
    """
    required = [
        parameter.name
        for parameter in inspect.signature(load).parameters.values()
        if parameter.default is parameter.empty and parameter.kind not in _VARIADIC
    ]
    if required:
        call = f"{type(source).__name__}.{method}({', '.join(f'{name}=…' for name in required)})"
        raise UsageError(f"sync() cannot call {call} without arguments: call it yourself and pass what it returns.")
    return (_with_stable_id(document) for document in load())


def _with_stable_id(document: Any) -> Any:  # noqa: ANN401  (a document of a framework)
    """Return a loaded document; LlamaIndex's random id, which differs in every run, becomes its hash."""
    if _RANDOM_ID.fullmatch(str(getattr(document, "id_", ""))) and hasattr(document, "hash"):
        document.id_ = document.hash
    return document


_RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")  # a uuid4
_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _required_name(source: object, name: str | None) -> str:
    if name is None:
        raise UsageError(
            f"sync() of a {type(source).__name__} needs name='…': it identifies the source, so that the next sync of "
            "the same name deletes what is gone. To add documents and delete none use index_documents(…)."
        )
    return name
