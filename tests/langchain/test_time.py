"""Time on the LangChain faces and the command line: ranges narrow, expired documents are gone, deletion says whose."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from langchain_agentrag import (
    AgentRAGToolkit,
    DualIndexer,
    HashingEmbeddings,
    HybridRetriever,
    HybridVectorStore,
    SearchTool,
    SourceDocument,
)
from langchain_agentrag.cli.app import app
from langchain_agentrag.errors import InvalidQueryError

NOON = dt.datetime(2026, 3, 10, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
QUERIES = ("E1102", "主轴报警", "E1102 主轴 alarm")


@pytest.fixture
def now() -> list[dt.datetime]:
    return [NOON]


@pytest.fixture
def indexer(tmp_path: Path, now: list[dt.datetime]) -> Iterator[DualIndexer]:
    with DualIndexer(tmp_path / "store", HashingEmbeddings(32), clock=lambda: now[0]) as opened:
        opened.index_documents(
            [
                SourceDocument(
                    f"day{n}",
                    "alarm E1102 主轴报警",
                    {"time": NOON - n * DAY, "type": "tool_call" if n % 2 else "dialogue"},
                )
                for n in range(6)
            ]
            + [SourceDocument("undated", "alarm E1102 主轴报警", {"type": "dialogue"})]
        )
        yield opened


def names(documents: list) -> set[str]:
    return {getattr(one, "id", None) or one.doc_id for one in documents}


@pytest.mark.parametrize("query", QUERIES)
def test_a_retriever_is_bound_to_a_range_that_a_call_can_only_narrow(query: str, indexer: DualIndexer) -> None:
    retriever = HybridRetriever(indexer=indexer, k=9, after=NOON - 3 * DAY, before=NOON)
    assert names(retriever.invoke(query)) == {"day1", "day2", "day3"}
    assert names(retriever.invoke(query, after=NOON - 2 * DAY)) == {"day1", "day2"}
    assert names(retriever.invoke(query, after="2020-01-01", before="2030-01-01")) == {"day1", "day2", "day3"}
    assert names(retriever.invoke(query, after=None, filter={"type": "dialogue"})) == {"day2"}
    assert names(asyncio.run(retriever.ainvoke(query, before=NOON - 2 * DAY))) == {"day3"}
    assert names(retriever.for_agent("lina").invoke(query)) == {"day1", "day2", "day3"}


@pytest.mark.parametrize("query", QUERIES)
def test_a_vector_store_takes_a_range_in_every_search(query: str, indexer: DualIndexer) -> None:
    store = HybridVectorStore(indexer, before=NOON)
    window = {"after": NOON - 2 * DAY}
    expected = {"day1", "day2"}
    assert names(store.similarity_search(query, 9, **window)) == expected
    assert names([document for document, _ in store.similarity_search_with_score(query, 9, **window)]) == expected
    assert names(store.max_marginal_relevance_search(query, 9, **window)) == expected
    assert names(store.similarity_search_by_vector(store.embeddings.embed_query(query), 9, **window)) == expected
    retriever = store.as_retriever(k=9, **window)
    assert names(retriever.invoke(query)) == expected
    assert names(retriever.invoke(query, after="2020-01-01")) == expected
    assert names(retriever.invoke(query, before=NOON - DAY)) == {"day2"}
    assert store.delete(before=NOON - 3 * DAY) is True
    assert names(indexer.get()) == {"day0", "day1", "day2", "day3", "undated"}


@pytest.mark.parametrize("bad", [{"after": "soon"}, {"before": 5}, {"recency": 0}])
def test_what_is_no_time_is_refused_at_once(bad: dict, indexer: DualIndexer) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        HybridRetriever(indexer=indexer, **bad).invoke("E1102")
    with pytest.raises(InvalidQueryError, match=next(iter(bad))):
        HybridVectorStore(indexer).similarity_search("E1102", **bad)


def test_recency_orders_equals_on_the_langchain_faces(indexer: DualIndexer) -> None:
    order = [f"day{n}" for n in range(4)]
    for documents in (
        HybridRetriever(indexer=indexer, k=4, recency=DAY, filter={"doc_id": {"$ne": "undated"}}).invoke(
            "主轴 E1102 x"
        ),
        HybridVectorStore(indexer, recency=DAY, filter={"doc_id": {"$ne": "undated"}}).similarity_search(
            "主轴 E1102 x", 4
        ),
    ):
        assert [one.id for one in documents] == order
    explained = HybridRetriever(indexer=indexer, k=1, recency=DAY, explain=True).invoke("主轴 E1102 x")[0]
    assert explained.metadata["explanation"]["recency"] > 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_model_can_ask_about_a_time(language: str, indexer: DualIndexer) -> None:
    search, _ = AgentRAGToolkit(indexer=indexer, language=language).get_tools()
    properties = search.tool_call_schema.model_json_schema()["properties"]
    assert ("moment" if language == "en" else "时刻") in properties["after"]["description"]

    def doc_ids(**arguments: object) -> set[str]:
        call = {"name": "search", "type": "tool_call", "id": "1", "args": {"query": "E1102 主轴", "k": 9, **arguments}}
        message = search.invoke(call)
        return {record["doc_id"] for record in message.artifact or []}

    assert doc_ids(after="3d", before="1d") == {"day2", "day3"}
    assert doc_ids(since="2026-03-09T20:00:00+08:00") == {"day0", "day1"}
    assert doc_ids(until="2026年3月6日", filter={"type": "tool_call"}) == {"day5"}
    assert doc_ids(after="", before=None) == {f"day{n}" for n in range(6)} | {"undated"}
    complaint = search.invoke({"query": "E1102", "after": "recently"})
    assert "7d" in complaint
    assert "recently" in complaint
    nothing = search.invoke({"query": "E1102", "after": "2030-01-01"})
    assert "2030-01-01" in nothing


def test_a_tool_s_own_range_cannot_be_widened_by_a_model(indexer: DualIndexer) -> None:
    tool = SearchTool(indexer=indexer, options={"before": NOON - 2 * DAY})
    call = {
        "name": "search",
        "type": "tool_call",
        "id": "1",
        "args": {"query": "E1102", "k": 9, "before": "2030-01-01"},
    }
    assert {record["doc_id"] for record in tool.invoke(call).artifact} == {"day3", "day4", "day5"}


def test_an_expired_document_is_gone_from_every_face(indexer: DualIndexer, now: list[dt.datetime]) -> None:
    indexer.for_agent("lina").index_documents([SourceDocument("code", "口令 onetime7741")], ttl=DAY)
    retriever = HybridRetriever(indexer=indexer, agent_id="lina")
    store = HybridVectorStore(indexer, agent_id="lina")
    search, read = AgentRAGToolkit(indexer=indexer, agent_id="lina").get_tools()
    reading = {"doc_id": "code", "chunk_id": 0}
    assert "onetime7741" in str(retriever.invoke("onetime7741"))
    assert "onetime7741" in read.invoke(reading)
    now[0] = NOON + DAY
    results = [
        retriever.invoke("onetime7741"),
        store.similarity_search("onetime7741"),
        store.get_by_ids(["code", "code#0"]),
        search.invoke({"query": "口令"}),
        read.invoke(reading),
        store.record_manager().exists(["code"]),
    ]
    assert "onetime7741" not in str(results)
    assert results[2] == []


# -- the command line -------------------------------------------------------------------------------------------------


class Shell:
    def __init__(self, store: Path) -> None:
        self._store = store

    def __call__(self, command: str, *args: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [command, "--store", str(self._store), *args])
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    def json(self, command: str, *args: str, code: int = 0) -> dict:
        return json.loads(self(command, *args, "--json", code=code))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        today = dt.datetime.now(dt.UTC)
        for agent in (None, "lina"):
            documents = [
                SourceDocument(f"turn{n}", "预算 budget", {"time": today - n * DAY, "session": f"s{n % 2}"})
                for n in range(6)
            ]
            indexer.index_documents(documents, agent)
    with DualIndexer(tmp_path / "store", clock=lambda: today - 9 * DAY) as indexer:
        indexer.index_documents([SourceDocument("old", "预算 budget")], "lina", ttl=DAY)
    return Shell(tmp_path / "store")


def test_the_command_searches_in_a_range(shell: Shell) -> None:
    def doc_ids(*args: str) -> set[str]:
        return {hit["doc_id"] for hit in shell.json("search", "预算", "-k", "20", *args)["hits"]}

    assert doc_ids("--after", "60h") == {"turn0", "turn1", "turn2"}
    assert doc_ids("--before", "84h", "--agent", "lina") == {"turn4", "turn5"}
    hits = shell.json("search", "budget x", "--recency", "2d")["hits"]
    assert [hit["doc_id"] for hit in hits[:2]] == ["turn0", "turn1"]
    assert hits[0]["explanation"]["recency"] > 0
    assert "recent +" in shell("search", "budget x", "--recency", "2d")
    shell("search", "x", "--recency", "often", code=2)
    assert "after" in shell("search", "x", "--after", "often", code=2)


def test_the_command_deletes_by_session_and_time_of_one_owner(shell: Shell) -> None:
    assert "--yes" in shell("delete", "--session", "s0", code=2)  # nobody is there to be asked
    assert shell.json("delete", "--session", "s0", "--agent", "lina", "--yes")["deleted"] == 3
    assert shell.json("delete", "--before", "84h", "--agent", "lina", "-y")["deleted"] == 1
    assert shell.json("delete", "turn1", "absent", "--yes", code=3)["deleted"] == 1  # one is missing
    assert "nothing is named" in shell("delete", "--yes", code=2)
    assert shell.json("stats", "--agent", "lina")["documents"] == 5 + 2
    assert shell.json("expire")["deleted"] == 1
    assert shell.json("expire")["deleted"] == 0
