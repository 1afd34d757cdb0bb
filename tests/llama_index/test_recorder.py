"""A real agent of LlamaIndex with a `RecordingMemory`: found by the next question, and by nobody else's."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms.mock import MockFunctionCallingLLM, MockLLM
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.tools import FunctionTool

from langchain_agentrag import DualIndexer, SourceDocument
from langchain_agentrag.connectors.memory import MemoryTable
from langchain_agentrag.errors import ScopeError
from langchain_agentrag.llama_index import HybridRetriever, RecordingMemory, as_query_engine_tool
from langchain_agentrag.testing import assert_isolated

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


@pytest.fixture
def table(tmp_path):
    table = MemoryTable(f"sqlite:///{tmp_path / 'memory.db'}")
    yield table
    table.engine.dispose()


def stock(part: str) -> str:
    """How many of a part there are."""
    return f"{part}: 14 件，柜 B2"


def wanted(tool: str, number: int = 1, **arguments) -> ChatMessage:
    block = ToolCallBlock(tool_call_id=f"c{number}", tool_name=tool, tool_kwargs=arguments)
    return ChatMessage(role="assistant", blocks=[block])


def answer(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", blocks=[TextBlock(text=text)])


def run(memory, question: str, *steps, tools=()):
    """One run of an agent that takes one step per model call."""
    left = list(steps)

    def respond(messages, **_kwargs):
        return left.pop(0)

    async def work():
        llm = MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)
        agent = FunctionAgent(tools=list(tools) or [FunctionTool.from_defaults(stock)], llm=llm)
        return await agent.run(question, memory=memory)

    return asyncio.run(work())


CONVERSATION = (
    "报警 E1102 停机了，what now?",
    wanted("stock", part="快插接头 QX-8"),
    answer("换快插接头，在 cabinet B2。"),
)


@pytest.mark.parametrize(
    "inner", [None, ChatMemoryBuffer.from_defaults, lambda: Memory.from_defaults(session_id="s-1")]
)
def test_a_run_is_found_by_the_next_question(indexer, table, inner):
    options = {} if inner is None else {"memory": inner()}
    memory = RecordingMemory.from_defaults(indexer, table, agent_id="lina", session_id="s-1", **options)
    start = datetime.now(UTC)
    run(memory, *CONVERSATION)
    assert memory.recorder.problems == ()
    first, call, last = table.read("lina", session="s-1")
    assert (first.role, first.text, last.role, last.text) == (
        "user",
        CONVERSATION[0],
        "assistant",
        "换快插接头，在 cabinet B2。",
    )
    assert (call.tool, call.arguments, call.result, call.call_id) == (
        "stock", {"part": "快插接头 QX-8"}, "快插接头 QX-8: 14 件，柜 B2", "c1",
    )  # fmt: skip
    assert start <= first.time <= call.time <= datetime.now(UTC)
    for query, role in (("E1102", "user"), ("QX-8", "tool"), ("cabinet", "assistant")):
        best = indexer.search(query, 1, agent_id="lina")[0]
        assert (best.metadata["role"], best.metadata["session"]) == (role, "s-1")
        assert indexer.search(query, agent_id="otto") == indexer.search(query) == []
    assert_isolated(indexer)


def test_a_question_is_not_what_the_search_for_its_answer_finds(indexer, table):
    texts = []

    def look(query: str) -> str:
        """Looks."""
        texts.extend(hit.text for hit in indexer.search(query, agent_id="lina"))
        return "nothing"

    memory = RecordingMemory.from_defaults(indexer, table, agent_id="lina")
    run(
        memory,
        "E1102 怎么修",
        wanted("look", query="E1102 怎么修"),
        answer("ok"),
        tools=[FunctionTool.from_defaults(look)],
    )
    assert texts == []
    assert indexer.search("E1102", 1, agent_id="lina")[0].text == "E1102 怎么修"


@pytest.mark.model
@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("我妈妈对花生过敏，点菜的时候请注意", "which food must her mother not eat"),
        ("The product launch is postponed to the first Friday of May", "产品什么时候发布"),
    ],
)
def test_a_run_is_found_by_meaning(tmp_path, table, question, query):
    with DualIndexer(tmp_path / "store", "local") as indexer:
        for one in (question, "Please export the quarterly report as a table"):
            run(RecordingMemory.from_defaults(indexer, table, agent_id="lina"), one, answer("ok"))
        assert indexer.search(query, 1, agent_id="lina", filter={"role": "user"})[0].text == question
        assert indexer.search(query, agent_id="otto") == []


def test_the_memory_does_what_it_did(indexer, table):
    plain = Memory.from_defaults(session_id="p")
    memory = RecordingMemory.from_defaults(indexer, table, agent_id="lina", memory=Memory.from_defaults(session_id="s"))
    for one in (plain, memory):
        run(one, *CONVERSATION)
        run(one, "again", answer("ok"))
        one.put(ChatMessage(role="user", content="a sync one"))
    assert memory.session_id == "s"
    messages = [[(m.role, m.content) for m in one.get_all()] for one in (plain, memory)]
    assert messages[0] == messages[1]
    assert [m.content for m in memory.get()] == [m.content for m in plain.get()]
    memory.reset()
    assert memory.get_all() == []
    assert len(table.read("lina")) == 6


def test_turns_that_are_equal_are_kept_each_and_histories_are_not(indexer, table):
    memory = RecordingMemory.from_defaults(indexer, table, agent_id="lina", session_id="s")
    memory.set([ChatMessage(role="user", content="yes"), answer("an old answer")])
    for _ in range(3):
        memory.put(ChatMessage(role="user", content="yes"))
    memory.put(ChatMessage(role="system", content="be nice"))
    assert [entry.text for entry in table.read("lina")] == ["yes"] * 3


def test_a_session_that_goes_on_in_another_process_keeps_nothing_twice(indexer, table):
    inner = Memory.from_defaults(session_id="s")
    for text in ("first", "second", "first"):
        run(RecordingMemory.from_defaults(indexer, table, agent_id="lina", memory=inner), text, answer("ok"))
    assert [entry.text for entry in table.read("lina", session="s")] == ["first", "ok", "second", "ok", "first", "ok"]


def test_a_call_and_its_result_that_come_apart_are_one_entry(indexer, table):
    memory = RecordingMemory.from_defaults(indexer, table, agent_id="lina", session_id="s")
    memory.put(wanted("stock", part="QX-8"))
    assert [(entry.tool, entry.result) for entry in table.read("lina")] == [("stock", None)]
    memory.put(ChatMessage(role="tool", content="14", additional_kwargs={"tool_call_id": "c1"}))
    assert [(entry.tool, entry.result) for entry in table.read("lina")] == [("stock", "14")]
    assert indexer.stats("lina").documents == 1


def test_two_calls_of_one_id_keep_their_results(indexer, table):
    """Some models name a call by its tool, so two calls of a message have one id."""
    memory = RecordingMemory.from_defaults(indexer, table, agent_id="lina", session_id="s")
    parts = [{"part": "QX-8"}, {"part": "快插接头"}]
    blocks = [ToolCallBlock(tool_call_id="stock", tool_name="stock", tool_kwargs=part) for part in parts]
    memory.put(ChatMessage(role="assistant", blocks=blocks))
    for text in ("14", "九件"):
        memory.put(ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": "stock"}))
    recorded = [(entry.arguments["part"], entry.result) for entry in table.read("lina")]
    assert recorded == [("QX-8", "14"), ("快插接头", "九件")]


def test_what_was_recalled_is_not_kept_again(indexer, table):
    secret = "报警 E1102：气压不足，检查八毫米的快插接头，备件放在柜 B2 的第三层抽屉里。"
    indexer.index_documents([SourceDocument("manual", secret)], "lina")
    tool = as_query_engine_tool(HybridRetriever(indexer), agent_id="lina", name="look_up")
    memory = RecordingMemory.from_defaults(indexer, table, agent_id="lina")
    run(memory, "E1102?", wanted("look_up", query="E1102"), answer("ok"), tools=[tool])
    assert [getattr(entry, "tool", "turn") for entry in table.read("lina")] == ["turn", "turn"]
    assert sum("快插接头" in hit.text for hit in indexer.search("快插接头", 50, agent_id="lina")) == 1


def test_redaction_and_limits_hold_here_too(indexer, table):
    memory = RecordingMemory.from_defaults(
        indexer, table, agent_id="lina", redact=lambda text: text.replace("7741", "[code]"), max_chars=200
    )
    run(memory, "code 7741 " + "长文 " * 500, answer("7741 noted"))
    turns = [entry.text for entry in table.read("lina")]
    assert turns[0].startswith("code [code]")
    assert len(turns[0]) <= 200
    assert turns[1] == "[code] noted"
    assert not any("7741" in hit.text for hit in indexer.search("code 7741", 50, agent_id="lina"))


def test_a_table_that_cannot_be_reached_does_not_stop_the_agent(indexer, tmp_path):
    memory = RecordingMemory.from_defaults(indexer, f"sqlite:///{tmp_path}/missing/memory.db", agent_id="lina")
    assert "cabinet B2" in str(run(memory, *CONVERSATION))
    assert memory.recorder.problems


@pytest.mark.parametrize("agent", ["", None, 3])
def test_the_agent_is_never_guessed(indexer, table, agent):
    with pytest.raises((ScopeError, ValueError)):
        RecordingMemory.from_defaults(indexer, table, agent_id=agent)
    with pytest.raises(TypeError):
        RecordingMemory.from_defaults(indexer, table)


def test_a_chat_engine_is_remembered_too(indexer, table):
    memory = RecordingMemory.from_defaults(indexer, table, agent_id="lina", session_id="s")
    SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory).chat("冷却液周五更换")
    assert indexer.search("冷却液", 1, agent_id="lina")[0].metadata["session"] == "s"
