"""An agent end to end: two hops, search → read → search → read → an answer with its sources, streamed."""

from __future__ import annotations

import asyncio
import os
import re

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_agentrag import AgentRAGToolkit, DualIndexer, FileSystemConnector
from langchain_agentrag.cli.demo import unpack
from tests.fences import without_token
from tests.langchain.scripts import ScriptedModel, calls

QUESTIONS = {
    "zh": {
        "ask": "面板报 E1102 停机，上次是怎么修好的？要换的零件现在放在哪里？",
        "first": "E1102 停机 上次怎么修好",
        "learnt": "八毫米的快插接头",
        "second": "快插接头 8 mm 库存 位置",
        "found": "cabinet B2",
        "answer": "换快插接头，在 cabinet B2 柜里。",
        "sources": ("files/records/交接班记录.txt", "files/records/spare_parts.csv"),
    },
    "en": {
        "ask": "Alarm E1105: what has to be adjusted, and where is a spare one?",
        "first": "E1105",
        "learnt": "接近开关的间隙",
        "second": "spare proximity switch 接近开关 M18 location",
        "found": "cabinet B4",
        "answer": "Adjust the gap of the proximity switch; a spare is in cabinet B4.",
        "sources": ("files/handbook/报警代码.md", "files/records/spare_parts.csv"),
    },
}


@pytest.fixture(scope="module")
def indexer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agent")
    with DualIndexer(folder / "store", "hash") as opened:
        opened.sync(FileSystemConnector(unpack(folder / "files")))
        yield opened


def first_hit(messages) -> dict:
    """Coordinates of the best hit, from what a model reads: the text."""
    doc_id, chunk_id = re.search(r'\[1\] doc_id="([^"]+)" chunk_id=(\d+)', messages[-1].content).groups()
    return {"doc_id": doc_id, "chunk_id": int(chunk_id)}


def script(words) -> ScriptedModel:
    def answer(messages):
        doc_ids = [
            message.artifact[0]["doc_id"] for message in messages if message.type == "tool" and message.name == "read"
        ]
        return AIMessage(words["answer"] + "".join(f" [{doc_id}]" for doc_id in doc_ids))

    return ScriptedModel(
        steps=[
            calls("search", 1, query=words["first"], k="2"),
            lambda messages: calls("read", 2, **first_hit(messages)),
            calls("search", 3, query=words["second"], k=2),
            lambda messages: calls("read", 4, **first_hit(messages)),
            answer,
        ]
    )


def check_trajectory(messages, words):
    """Every argument and every result of the run."""
    kinds = [(message.type, getattr(message, "name", None)) for message in messages]
    tools = [name for kind, name in kinds if kind == "tool"]
    assert tools == ["search", "read", "search", "read"]
    tool_calls = [call for message in messages if message.type == "ai" for call in message.tool_calls]
    answers = [message for message in messages if message.type == "tool"]
    assert [call["id"] for call in tool_calls] == [message.tool_call_id for message in answers]
    assert all(message.status == "success" for message in answers)
    first, opened, second, reread = answers
    assert tool_calls[0]["args"] == {"query": words["first"], "k": "2"}
    assert first.artifact[0]["doc_id"] == words["sources"][0]
    assert 1 <= len(first.artifact) <= 2
    assert all(record["text"] and record["doc_id"] for record in first.artifact + second.artifact)
    assert {name: tool_calls[1]["args"][name] for name in ("doc_id", "chunk_id")} == {
        name: first.artifact[0][name] for name in ("doc_id", "chunk_id")
    }
    assert words["learnt"] in opened.content
    assert opened.artifact[0]["text"] == first.artifact[0]["text"]
    assert tool_calls[2]["args"] == {"query": words["second"], "k": 2}
    assert second.artifact[0]["doc_id"] == words["sources"][1]
    assert words["found"] in reread.content
    for source in words["sources"]:
        assert f"[{source}]" in messages[-1].content


@pytest.mark.parametrize("language", ["zh", "en"])
def test_two_hops_are_searched_read_and_cited(indexer, language):
    words = QUESTIONS[language]
    model = script(words)
    agent = create_agent(model, AgentRAGToolkit(indexer=indexer, language=language).get_tools())
    messages, steps = [], []
    for update in agent.stream({"messages": [("user", words["ask"])]}, stream_mode="updates"):
        for node, change in update.items():
            steps.append(node)
            messages += change["messages"]
    assert steps == ["model", "tools"] * 4 + ["model"]
    assert [tool.name for tool in model.tools] == ["search", "read"]
    check_trajectory(messages, words)


@pytest.mark.parametrize("language", ["zh", "en"])
async def test_the_same_run_asynchronously(indexer, language):
    words = QUESTIONS[language]
    agent = create_agent(script(words), AgentRAGToolkit(indexer=indexer, language=language).get_tools())
    messages = [
        message
        async for update in agent.astream({"messages": [("user", words["ask"])]}, stream_mode="updates")
        for change in update.values()
        for message in change["messages"]
    ]
    check_trajectory(messages, words)


async def test_parallel_calls_of_one_step_are_all_answered(indexer):
    both = AIMessage(
        "",
        tool_calls=[
            {"name": "search", "args": {"query": query}, "id": str(place), "type": "tool_call"}
            for place, query in enumerate(["E1105", "素食 vegetarian", "visitors vest", "差旅 报销"])
        ],
    )
    agent = create_agent(ScriptedModel(steps=[both, AIMessage("ok")]), AgentRAGToolkit(indexer=indexer).get_tools())
    sync = agent.invoke({"messages": ["?"]})["messages"]
    again = create_agent(ScriptedModel(steps=[both, AIMessage("ok")]), AgentRAGToolkit(indexer=indexer).get_tools())
    asynchronous = (await again.ainvoke({"messages": ["?"]}))["messages"]
    contents = [[without_token(m.content) for m in messages if m.type == "tool"] for messages in (sync, asynchronous)]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 4


def test_the_agents_identity_comes_from_the_run_and_a_model_cannot_change_it(tmp_path):
    with DualIndexer(tmp_path / "store", "hash") as indexer:
        indexer.index_documents(["lina 的口令是 7741"], agent_id="lina")
        indexer.index_documents(["otto's password is 9935"], agent_id="otto")
        tools = AgentRAGToolkit(indexer=indexer, agent_id_key="agent_id").get_tools()
        forged = calls("search", query="口令 password", filter={"agent_id": "otto"})
        agent = create_agent(
            ScriptedModel(steps=[calls("search", query="口令 password"), forged, AIMessage("ok")]), tools
        )
        config = {"configurable": {"agent_id": "lina"}}
        plain, narrowed = (m for m in agent.invoke({"messages": ["?"]}, config)["messages"] if m.type == "tool")
        assert "7741" in plain.content
        assert "9935" not in plain.content + narrowed.content
        nobody = create_agent(ScriptedModel(steps=[calls("search", query="口令"), AIMessage("ok")]), tools)
        (refused,) = (m for m in nobody.invoke({"messages": ["?"]})["messages"] if m.type == "tool")
        assert refused.status == "error"
        assert "7741" not in refused.content


def test_a_conversation_goes_on_after_a_checkpoint(indexer):
    saver, config = InMemorySaver(), {"configurable": {"thread_id": "t"}}
    tools = AgentRAGToolkit(indexer=indexer).get_tools()
    first = create_agent(script(QUESTIONS["en"]), tools, checkpointer=saver)
    before = first.invoke({"messages": [("user", QUESTIONS["en"]["ask"])]}, config)["messages"]
    second = create_agent(ScriptedModel(steps=[AIMessage("as I said")]), tools, checkpointer=saver)
    after = second.invoke({"messages": [("user", "again?")]}, config)["messages"]
    assert after[: len(before)] == before
    assert [m.artifact for m in after if m.type == "tool"] == [m.artifact for m in before if m.type == "tool"]


def test_tools_work_inside_a_running_loop(indexer):
    search = AgentRAGToolkit(indexer=indexer).get_tools()[0]

    async def both():
        return search.invoke({"query": "E1105"}), await search.ainvoke({"query": "E1105"})

    first, second = asyncio.run(both())
    assert without_token(first) == without_token(second)


@pytest.mark.enable_socket
@pytest.mark.skipif(
    not os.environ.get("OPENAI_BASE_URL"),
    reason="set OPENAI_BASE_URL (Ollama, DeepSeek …), OPENAI_MODEL and OPENAI_API_KEY, and install langchain-openai",
)
@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_real_model_finds_both_sources(indexer, language):
    openai = pytest.importorskip("langchain_openai")
    model = openai.ChatOpenAI(
        model=os.environ.get("OPENAI_MODEL", "deepseek-chat"), api_key=os.environ.get("OPENAI_API_KEY", "none")
    )
    agent = create_agent(model, AgentRAGToolkit(indexer=indexer, language=language).get_tools())
    question = QUESTIONS[language]["ask"] + " (cite doc_id)"
    messages = agent.invoke({"messages": [("user", question)]}, {"recursion_limit": 30})["messages"]
    assert sum(message.type == "tool" for message in messages) >= 2
    assert QUESTIONS[language]["found"].split()[-1] in messages[-1].content
