"""Time on the LlamaIndex faces."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from llama_index.core.base.llms.types import ChatMessage

from langchain_agentrag import SourceDocument
from langchain_agentrag.errors import InvalidQueryError, UsageError
from langchain_agentrag.llama_index import (
    AgentQueryEngine,
    HybridMemoryBlock,
    HybridRetriever,
    HybridVectorStore,
    as_query_engine_tool,
)

NOON = dt.datetime(2026, 3, 10, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


@pytest.fixture
def diary(indexer):
    indexer.index_documents(
        [SourceDocument(f"day{n}", "滤网 filter E1102", {"time": NOON - n * DAY, "session": "s"}) for n in range(5)]
        + [SourceDocument("undated", "滤网 filter E1102")]
    )
    return indexer


def names(nodes: list) -> set[str]:
    return {one.node.ref_doc_id or one.node.node_id for one in nodes}


@pytest.mark.parametrize("query", ["滤网", "filter", "E1102 滤网"])
def test_a_retriever_and_its_engine_keep_to_a_range(query, diary):
    bound = HybridRetriever(diary, 9, before=NOON)
    inside = bound.within(after=NOON - 2 * DAY)
    assert names(inside.retrieve(query)) == {"day1", "day2"}
    assert names(asyncio.run(inside.aretrieve(query))) == {"day1", "day2"}
    assert names(inside.within(before="2030-01-01").retrieve(query)) == {"day1", "day2"}  # narrowed, never widened
    assert names(AgentQueryEngine.from_args(inside).query(query).source_nodes) == {"day1", "day2"}
    with pytest.raises(InvalidQueryError, match="after"):
        HybridRetriever(diary, after="soon")


def test_recency_puts_the_newer_of_equals_first_and_explains_it(diary):
    nodes = HybridRetriever(diary, 3, recency=DAY, now=NOON).retrieve("滤网 x")
    assert [one.node.ref_doc_id or one.node.node_id for one in nodes] == ["day0", "day1", "day2"]


def test_a_vector_store_searches_and_deletes_in_a_range(diary):
    store = HybridVectorStore(diary, after=NOON - 2 * DAY)
    nodes = store.as_index().as_retriever(similarity_top_k=9, vector_store_query_mode="hybrid").retrieve("滤网")
    assert names(nodes) == {"day0", "day1", "day2"}
    store.delete_nodes(session="s", before=NOON - 3 * DAY)
    assert {document.doc_id for document in diary.get()} == {"day0", "day1", "day2", "day3", "undated"}


def test_a_tool_takes_a_range_where_it_is_dated_and_only_there(diary):
    retriever = HybridRetriever(diary, 9, before=NOON)
    dated, plain = as_query_engine_tool(retriever, dated=True), as_query_engine_tool(retriever)
    assert names(dated.call(query="滤网", after="2026-03-08T12:00:00Z").raw_output) == {"day1", "day2"}
    assert names(asyncio.run(dated.acall(query="滤网", before="2026-03-07")).raw_output) == {"day4"}
    assert len(dated.call("滤网").raw_output) == 4
    assert list(dated.metadata.get_parameters_dict()["properties"]) == ["query", "after", "before"]
    with pytest.raises(InvalidQueryError, match="one argument"):
        plain.call(query="滤网", after="2026-03-08")
    with pytest.raises(UsageError, match="7d"):
        dated.call(query="滤网", after="recently")


def test_memories_expire(indexer):
    block = HybridMemoryBlock(indexer=indexer, agent_id="a", ttl=dt.timedelta(days=30))
    asyncio.run(block.aput([ChatMessage(role="user", content="密码 is 7741")], session_id="s"))
    remaining = indexer.get(agent_id="a")[0].metadata["expires_at"] - dt.datetime.now(dt.UTC)
    assert dt.timedelta(days=29) < remaining <= dt.timedelta(days=30)
    with pytest.raises(ValueError, match="ttl"):
        HybridMemoryBlock(indexer=indexer, agent_id="a", ttl=dt.timedelta(0))


def test_a_message_keeps_the_zone_it_names(indexer):
    time = "2026-03-10T20:00:00+08:00"
    block = HybridMemoryBlock(indexer=indexer, agent_id="a", k=9, half_life=DAY)
    message = ChatMessage(role="user", content="滤网", additional_kwargs={"timestamp": time})
    asyncio.run(block.aput([message], session_id="s"))
    ask = [ChatMessage(role="user", content="滤网?")]
    for since, until, expected in (
        (NOON, None, True),
        (NOON + DAY, None, False),
        (None, NOON, False),
        ("2026-03-10", "2026-03-11", True),
    ):
        assert ("滤网" in asyncio.run(block.aget(ask, session_id="s", since=since, until=until))) is expected
