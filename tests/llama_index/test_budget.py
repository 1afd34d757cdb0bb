"""Retrieval tools of LlamaIndex agents within a budget."""

from __future__ import annotations

import asyncio
import threading

import pytest
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.tools import FunctionTool

from langchain_agentrag import DualIndexer, RetrievalBudget, SourceDocument
from langchain_agentrag.agent.budget import Limits
from langchain_agentrag.agent.retrieval_meter import RetrievalMeter
from langchain_agentrag.llama_index import HybridRetriever, as_query_engine_tool, budgeted_tools
from tests.llama_index.test_guard import calls, done, scripted

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


@pytest.fixture
def search(indexer: DualIndexer):
    indexer.index_documents(
        [SourceDocument("e1102", "E1102 停机：换快插接头"), SourceDocument("parts", "快插接头在 B2 柜")]
    )
    return as_query_engine_tool(HybridRetriever(indexer=indexer, similarity_top_k=1))


def budgeted(search, budget=None, language="zh", **options):
    meter = RetrievalMeter(budget, language=language, **options)
    (tool,) = budgeted_tools([search], meter)
    return tool, meter


async def run(agent, question="E1102 停机怎么修？零件在哪里？", **options):
    handler = agent.run(question, **options)
    outputs = [event.tool_output async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    return outputs, str(await handler)


async def test_an_agent_that_searches_well_sees_open_parts_and_the_remaining_budget(search):
    tool, _ = budgeted(search, RetrievalBudget(searches=3))
    agent = FunctionAgent(
        tools=[tool],
        llm=scripted(calls("search", {"query": "E1102 停机"}), calls("search", {"query": "快插接头 柜"}), done()),
    )
    (first, second), _ = await run(agent)
    assert "[原问题：E1102 停机怎么修？零件在哪里？]" in first.content
    assert "[剩余：检索 2 次" in first.content
    assert "尚无证据的部分" in first.content
    assert "B2" in second.content
    assert second.raw_output[0].node.text


async def test_a_loop_is_ended_by_the_tool_with_what_was_found(search):
    tool, _ = budgeted(search)
    steps = [calls("search", {"query": f"E1102{mark}"}) for mark in ("", " ", "？", "。", "！", "…", "~", ";")]
    agent = FunctionAgent(tools=[tool], llm=scripted(*steps, done()))
    outputs, answer = await run(agent)
    assert len(outputs) == 7
    assert all("第 1 次" in output.content for output in outputs[1:5])
    assert "没有执行" in outputs[5].content
    assert answer == outputs[6].content
    assert "e1102" in answer


async def test_each_run_begins_anew_and_a_conversation_ends_at_its_limit(search):
    tool, _ = budgeted(search, RetrievalBudget(searches=1, conversation=Limits(searches=3)))
    agent = FunctionAgent(tools=[tool], llm=scripted(calls("search", {"query": "E1102"}), done()))
    outputs = [(await run(agent, question))[0][0] for question in ("一？", "二？", "二？", "三？")]
    assert [bool(output.raw_output) and isinstance(output.raw_output, list) for output in outputs] == [True] * 3 + [
        False
    ]
    assert ["[原问题：二？]" in output.content for output in outputs] == [False, True, True, False]
    assert "没有执行" in outputs[3].content


async def test_calls_of_one_step_share_the_budget(search):
    tool, _ = budgeted(search, RetrievalBudget(searches=2))
    step = calls("search", {"query": "E1102"}, {"query": "e1102？"}, {"query": "柜"}, {"query": "停机"})
    outputs, _ = await run(FunctionAgent(tools=[tool], llm=scripted(step, done())))
    assert sum(isinstance(output.raw_output, list) for output in outputs) == 2
    assert len(outputs) == 4


def test_calls_at_once_never_exceed_the_budget(search):
    started, gate = [], threading.Barrier(3)

    def slow_search(query: str) -> str:
        """Search."""
        started.append(query)
        gate.wait(10)
        return f"found {query}"

    tool, meter = budgeted(FunctionTool.from_defaults(slow_search), RetrievalBudget(searches=2), "en")
    outputs = []
    threads = [threading.Thread(target=lambda q=q: outputs.append(tool.call(query=q))) for q in ("a1", "b2")]
    for thread in threads:
        thread.start()
    while len(started) < 2:
        pass
    refused = tool.call(query="c3")
    gate.wait(10)
    for thread in threads:
        thread.join()
    assert "used up" in refused.content
    assert sorted(started) == ["a1", "b2"]
    assert len(outputs) == 2
    assert meter.before("search", "slow_search", {"query": "d"}).ends_run


async def test_what_raises_counts_and_is_raised(search):
    def broken(query: str) -> str:
        """Search."""
        raise ConnectionError("gone")

    tool, _ = budgeted(FunctionTool.from_defaults(broken), RetrievalBudget(searches=2))
    for query in "ab":
        with pytest.raises(ConnectionError):
            await tool.acall(query=query)
    assert "没有执行" in (await tool.acall(query="c")).content
    assert asyncio.iscoroutinefunction(tool.async_fn)
