"""What `sync` takes: connectors, paths, loaders and documents; anything else is told what to pass instead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from llama_index.core import SimpleDirectoryReader
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import TextNode

from langchain_agentrag import DualIndexer, FileSystemConnector, SourceDocument
from langchain_agentrag.errors import ConnectorError, InvalidDocumentError, ScopeError, UsageError
from tests.fakes import MemoryConnector, RecordingEmbeddings


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DualIndexer]:
    with DualIndexer(tmp_path / "store", RecordingEmbeddings()) as indexer:
        yield indexer


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    folder = tmp_path / "资料"
    folder.mkdir()
    (folder / "a.md").write_text("# 报销\n\n出差费用一周内报销。", encoding="utf-8")
    (folder / "b.txt").write_text("The coolant is changed on Fridays.", encoding="utf-8")
    return folder


def counts(report) -> tuple[int, int, int, int]:
    assert report.failed == ()
    return report.added, report.updated, report.deleted, report.unchanged


def ids(indexer: DualIndexer, agent: str | None = None) -> set[str]:
    return {document.doc_id for document in indexer.get(agent_id=agent)}


class Loader(BaseLoader):
    """A LangChain loader of documents without ids."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def lazy_load(self) -> Iterator[Document]:
        yield from (Document(text, metadata={"source": "loader"}) for text in self.texts)


class PageReader(BaseReader):
    """A LlamaIndex reader that must be told what to read."""

    def load_data(self, urls: list[str]) -> list:
        raise AssertionError(urls)


# -- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_the_source_that_its_connector_is(store, papers, kind):
    assert counts(store.sync(kind(papers))) == (2, 0, 0, 0)
    assert ids(store) == {"资料/a.md", "资料/b.txt"}
    assert counts(store.sync(FileSystemConnector(papers))) == (0, 0, 0, 2)
    (papers / "b.txt").unlink()
    assert counts(store.sync(kind(papers))) == (0, 0, 1, 1)
    assert counts(store.sync(kind(papers / "a.md"), name="一个")) == (1, 0, 0, 0)


def test_a_path_may_begin_with_the_home_and_name_an_owner(store, papers, monkeypatch):
    monkeypatch.setenv("HOME", str(papers.parent))
    assert counts(store.sync("~/资料", agent_id="lina", name="papers")) == (2, 0, 0, 0)
    assert (ids(store), ids(store, "lina")) == (set(), {"papers/a.md", "papers/b.txt"})


def test_a_store_within_the_folder_does_not_index_itself(papers):
    with DualIndexer(papers / ".." / "资料" / "index", "hash") as store:
        for _ in range(2):
            store.sync(papers)
            assert ids(store) == {"资料/a.md", "资料/b.txt"}


def test_a_path_that_is_not_there_deletes_nothing(store, papers):
    store.sync(papers)
    with pytest.raises(ConnectorError, match="Cannot list"):
        store.sync(papers / "absent")
    assert len(ids(store)) == 2


# -- loaders ----------------------------------------------------------------------------------------------------------


def test_a_langchain_loader_is_followed_from_sync_to_sync(store):
    assert counts(store.sync(Loader("word a", "word b"), name="pages")) == (2, 0, 0, 0)
    assert counts(store.sync(Loader("word a", "word c"), name="pages")) == (1, 0, 1, 1)


def test_a_llama_index_reader_keeps_its_documents_though_their_ids_are_random(store, papers):
    reader = SimpleDirectoryReader(str(papers), encoding="utf-8")
    first, second = reader.load_data(), reader.load_data()
    assert {document.id_ for document in first}.isdisjoint(document.id_ for document in second)
    assert counts(store.sync(reader, name="files")) == (2, 0, 0, 0)
    assert counts(store.sync(reader, name="files")) == (0, 0, 0, 2)
    named = SimpleDirectoryReader(str(papers), encoding="utf-8", filename_as_id=True)
    assert counts(store.sync(named, name="named")) == (2, 0, 0, 0)
    assert any(doc_id.endswith("b.txt") for doc_id in ids(store)), "an id that is not random stays"


# -- documents ----------------------------------------------------------------------------------------------------------


def test_documents_of_every_kind_are_compared_with_those_of_the_last_sync(store):
    first = [Document("word a", id="a"), TextNode(id_="b", text="word b"), SourceDocument("c", "word c"), "word d"]
    assert counts(store.sync(first, name="notes")) == (4, 0, 0, 0)
    assert counts(store.sync(iter(first), name="notes")) == (0, 0, 0, 4)
    changed = [Document("word a", id="a", metadata={"n": 1}), Document("word b", id="b"), Document("词 c", id="c")]
    assert counts(store.sync((document for document in changed), name="notes")) == (0, 2, 1, 1)
    assert counts(store.sync([Document("word a", id="x")], name="other")) == (1, 0, 0, 0)
    assert counts(store.sync([], name="notes")) == (0, 0, 3, 0)
    assert ids(store) == {"x"}


def test_documents_indexed_otherwise_stay(store):
    store.index_documents([Document("word", id="kept")])
    store.sync([Document("word two", id="a")], name="notes")
    store.sync([], name="notes")
    assert ids(store) == {"kept"}


def test_an_iterable_that_fails_on_the_way_deletes_nothing(store):
    store.sync([Document(f"word {n}", id=str(n)) for n in range(3)], name="notes")

    def broken() -> Iterator[Document]:
        yield Document("word 0", id="0")
        raise OSError("the network is gone")

    with pytest.raises(OSError, match="network"):
        store.sync(broken(), name="notes")
    for wrong in ([Document("word 0", id="0"), 5], [Document("word 0", id="0", metadata={"x": object()})]):
        with pytest.raises(InvalidDocumentError, match=r"index [01]"):
            store.sync(wrong, name="notes")
    assert ids(store) == {"0", "1", "2"}


def test_progress_knows_how_many_documents_a_list_has(store):
    seen = []
    store.sync([Document("word", id=str(n)) for n in range(3)], name="notes", on_progress=seen.append)
    assert (seen[-1].done, seen[-1].total) == (3, 3)


# -- asynchronous -----------------------------------------------------------------------------------------------------


def test_an_asynchronous_iterable_runs_in_its_own_loop_and_does_not_block_it(store):
    threads, ticks = set(), []

    async def documents() -> AsyncIterator[Document]:
        for n in range(20):
            threads.add(threading.get_ident())
            await asyncio.sleep(0.001)
            yield Document(f"word {n}", id=str(n))

    async def ticking() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.001)

    async def main():
        other = asyncio.create_task(ticking())
        try:
            shared = await store.async_sync(documents(), name="notes")
            again = await store.async_sync(documents(), name="notes")
            own = await store.for_agent("lina").async_sync(documents(), name="notes")
            files = await store.async_sync([Document("word", id="x")], name="other")
            pages = await store.async_sync(Loader("word a").alazy_load(), name="pages")
            return [counts(report)[0] for report in (shared, again, own, files, pages)]
        finally:
            other.cancel()

    assert asyncio.run(main()) == [20, 0, 20, 1, 1]
    assert threads == {threading.get_ident()}
    assert len(ticks) > 20

    async def failing() -> AsyncIterator[Document]:
        yield Document("word 0", id="0")
        raise OSError("the network is gone")

    with pytest.raises(OSError, match="network"):
        asyncio.run(store.async_sync(failing(), name="notes"))
    assert len(ids(store)) == 22


def test_a_cancelled_sync_ends_and_deletes_nothing(store):
    async def slow() -> AsyncIterator[Document]:
        yield Document("word 0", id="0")
        await asyncio.sleep(60)

    store.sync([Document(f"word {n}", id=str(n)) for n in range(3)], name="notes")

    async def main() -> None:
        await asyncio.wait_for(store.async_sync(slow(), name="notes"), 0.2)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert ids(store) == {"0", "1", "2"}


# -- owners -----------------------------------------------------------------------------------------------------------


def test_agents_and_shared_sources_of_one_name_are_different_sources(store):
    documents = [Document("word a", id="a"), Document("word b", id="b")]
    lina, otto = store.for_agent("lina"), store.for_agent("otto")
    for target in (store, lina, otto):
        assert counts(target.sync(documents, name="notes")) == (2, 0, 0, 0)
    assert counts(lina.sync(documents[:1], name="notes")) == (0, 0, 1, 1)
    assert counts(otto.sync(documents, name="notes")) == (0, 0, 0, 2)
    store.sync([], name="notes")
    assert (ids(store), ids(store, "lina"), ids(store, "otto")) == (set(), {"a"}, {"a", "b"})
    for agent, other in (("lina", "otto"), ("otto", "lina")):
        hits = store.for_agent(agent).search("word a", k=10)
        assert {hit.agent_id for hit in hits} == {agent}, other


def test_a_document_that_names_its_owner_is_private_and_of_no_other_agent(store):
    mixed = [
        Document("word one", id="a"),
        Document("word two", id="a", metadata={"agent_id": "lina"}),
        Document("word three", id="a", metadata={"agent_id": "otto"}),
    ]
    assert counts(store.sync(mixed, name="notes")) == (3, 0, 0, 0)
    assert counts(store.sync(mixed, name="notes")) == (0, 0, 0, 3)
    assert {hit.text for hit in store.for_agent("lina").search("word", k=9)} == {"word one", "word two"}
    with pytest.raises(ScopeError, match="otto"):
        store.for_agent("lina").sync(mixed, name="mine")
    assert counts(store.sync(mixed[:1], name="notes")) == (0, 0, 2, 1)


def test_forgetting_an_agent_erases_what_a_sync_has_left_of_it(store, tmp_path):
    secret = "a-agent-of-unusual-name"
    store.sync([Document("word", id="d", metadata={"agent_id": secret}), Document("w", id="e")], name="notes")
    store.for_agent(secret).sync([Document("word", id="own-id-of-it")], name="its-own-source")
    store.forget_agent(secret)
    store.close()
    stored = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    for trace in (secret, "own-id-of-it", "its-own-source"):
        assert trace.encode() not in stored, trace


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "remedy"),
    [
        ([Document("a")], {}, r"needs name='…'.*index_documents"),
        (Loader("a"), {}, r"a Loader needs name="),
        (Loader, {"name": "n"}, r"a class, pass an object"),
        (PageReader(), {"name": "n"}, r"PageReader.load_data\(urls=…\) without arguments: call it yourself"),
        (Document("a"), {"name": "n"}, r"single Document: pass a list"),
        (TextNode(text="a"), {"name": "n"}, r"single TextNode: pass a list"),
        ({"a": 1}, {"name": "n"}, r"single dict"),
        ("postgresql://ada:s3cret@host/x", {}, r"not a URL: pass DatabaseConnector"),
        ("https://example.org/page", {}, r"not a URL: .*loader of web pages"),
        ("", {}, r"the working directory is '\.'"),
        (5, {"name": "n"}, r"got a int, which is no source: pass the path of a folder"),
        (None, {}, r"DatabaseConnector\(url"),
        ([], {"name": " "}, r"a name is a text"),
        (MemoryConnector({}), {"name": "n"}, r"pass it to MemoryConnector\(…\)"),
        (MemoryConnector({}), {"agent_id": "lina"}, r"sync\(agent_id=…\) is for paths"),
    ],
)
def test_what_is_no_source_is_told_what_to_pass(store, source, options, remedy):
    store.index_documents([Document("word", id="kept")])
    with pytest.raises(UsageError, match=remedy) as caught:
        store.sync(source, **options)
    assert "s3cret" not in str(caught.value)
    assert ids(store) == {"kept"}


def test_the_synchronous_form_names_the_asynchronous_one(store):
    with pytest.raises(UsageError, match=r"await async_sync\(documents, name=…\)"):
        store.sync(Loader("a").alazy_load(), name="n")
    with pytest.raises(UsageError, match=r"needs name"):
        asyncio.run(store.async_sync(Loader("a").alazy_load()))
