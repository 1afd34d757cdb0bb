"""A real `create_agent` run is remembered as it happens, found by the next question, and by nobody else's."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from datetime import UTC, datetime, timedelta

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ToolRetryMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langchain_agentrag import (
    AgentMemoryConnector,
    AgentRAGToolkit,
    DualIndexer,
    HashingEmbeddings,
    HybridRetriever,
    SourceDocument,
)
from langchain_agentrag.connectors.memory import MemoryTable
from langchain_agentrag.errors import ScopeError, UsageError
from langchain_agentrag.langchain.middleware import MemoryRecorderMiddleware
from langchain_agentrag.testing import assert_isolated
from tests.langchain.scripts import ScriptedModel, calls


@pytest.fixture
def indexer(tmp_path):
    with DualIndexer(tmp_path / "store", HashingEmbeddings(64)) as opened:
        yield opened


@pytest.fixture
def table(tmp_path):
    table = MemoryTable(f"sqlite:///{tmp_path / 'memory.db'}")
    yield table
    table.engine.dispose()


@tool
def stock(part: str) -> str:
    """How many of a part there are. 查库存。"""
    return f"{part}: 14 件，柜 B2" if part != "nothing" else ""


@tool
def broken(part: str) -> str:
    """A tool that fails."""
    raise ValueError(f"no line to the warehouse for {part}")


def run(middleware, steps, question="hi", *, tools=(stock,), config=None, **options):
    agent = create_agent(ScriptedModel(steps=list(steps)), list(tools), middleware=[middleware], **options)
    messages = question if isinstance(question, list) else [("user", question)]
    return agent.invoke({"messages": messages}, config or {"configurable": {"thread_id": "t-1"}})


def texts(indexer, agent="lina", query="E1102 报警 快插接头 stock", **options) -> list[str]:
    return [hit.text for hit in indexer.search(query, 50, agent_id=agent, **options)]


CONVERSATION = [calls("stock", part="快插接头 QX-8"), AIMessage("换快插接头，在 cabinet B2。")]


# -- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_is_found_by_the_next_question(indexer, table, asynchronous):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    agent = create_agent(ScriptedModel(steps=CONVERSATION), [stock], middleware=[recorder])
    run_input = ({"messages": [("user", "报警 E1102 停机了，what now?")]}, {"configurable": {"thread_id": "t-1"}})
    start = datetime.now(UTC)
    if asynchronous:
        asyncio.run(agent.ainvoke(*run_input))
    else:
        agent.invoke(*run_input)
    assert recorder.recorder.problems == ()
    entries = table.read("lina", session="t-1")
    assert [(type(entry).__name__, entry.position) for entry in entries] == [("Turn", 0), ("ToolCall", 1), ("Turn", 2)]
    call = entries[1]
    assert (call.tool, call.arguments, call.result) == (
        "stock",
        {"part": "快插接头 QX-8"},
        "快插接头 QX-8: 14 件，柜 B2",
    )
    assert (call.outcome, call.call_id) == ("ok", "call-1")
    assert 0 < call.duration < 60
    assert start <= entries[0].time <= call.time <= entries[2].time <= datetime.now(UTC)
    for query, role, kind in (
        ("E1102", "user", "dialogue"),
        ("QX-8", "tool", "tool_call"),
        ("cabinet", "assistant", "dialogue"),
    ):
        best = indexer.search(query, 1, agent_id="lina")[0]
        assert (best.metadata["role"], best.metadata["type"]) == (role, kind)
        assert best.metadata["session"] == "t-1"
    for query in ("E1102", "QX-8", "cabinet", "快插接头"):
        assert indexer.search(query, agent_id="otto") == indexer.search(query) == []
    assert_isolated(indexer)
    assert indexer.verify().ok


@pytest.mark.model
@pytest.mark.parametrize(
    ("question", "answer", "query"),
    [
        ("我妈妈对花生过敏，点菜的时候请注意", "好的，记住了", "which food must her mother not eat"),
        ("The product launch is postponed to the first Friday of May", "Noted.", "产品什么时候发布"),
    ],
)
def test_a_run_is_found_by_meaning(tmp_path, table, question, answer, query):
    with DualIndexer(tmp_path / "store", "local") as indexer:
        run(MemoryRecorderMiddleware(indexer, table, agent_id="lina"), [AIMessage(answer)], question)
        run(
            MemoryRecorderMiddleware(indexer, table, agent_id="lina"),
            [AIMessage("done")],
            "Please export the quarterly report as a table",
            config={"configurable": {"thread_id": "t-2"}},
        )
        assert indexer.search(query, 1, agent_id="lina", filter={"role": "user"})[0].text == question
        assert indexer.search(query, agent_id="otto") == []


def test_a_tool_that_fails_is_kept_with_its_error_and_fails_as_before(indexer, table):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    with pytest.raises(ValueError, match="warehouse"):
        run(recorder, [calls("broken", part="QX-8"), AIMessage("x")], tools=[broken])
    call = table.read("lina")[-1]
    assert (call.outcome, call.result) == ("error", "ValueError: no line to the warehouse for QX-8")
    assert "warehouse" in " ".join(texts(indexer, query="warehouse"))
    run(recorder, [calls("stock", wrong="x"), AIMessage("x")])
    assert table.read("lina")[-2].outcome == "error"


@pytest.mark.parametrize("ids", [("other", "same-id"), ("stock", "stock")])
def test_parallel_calls_are_kept_each(indexer, table, ids):
    both = AIMessage(
        "I look both up",
        tool_calls=[
            {"name": "stock", "args": {"part": part}, "id": name, "type": "tool_call"}
            for name, part in zip(ids, ["QX-8", "M18"], strict=True)
        ],
    )
    run(MemoryRecorderMiddleware(indexer, table, agent_id="lina"), [both, AIMessage("done")])
    tool_calls = [entry for entry in table.read("lina") if hasattr(entry, "tool")]
    assert sorted(entry.arguments["part"] for entry in tool_calls) == ["M18", "QX-8"]
    assert all(entry.arguments["part"] in entry.result for entry in tool_calls)
    assert "I look both up" in texts(indexer, query="look both up")


def test_one_call_id_used_again_is_another_call(indexer, table):
    steps = [calls("stock", 1, part="QX-8"), calls("stock", 1, part="M18"), AIMessage("done")]
    run(MemoryRecorderMiddleware(indexer, table, agent_id="lina"), steps)
    assert [entry.arguments["part"] for entry in table.read("lina") if hasattr(entry, "tool")] == ["QX-8", "M18"]


def test_what_is_no_text_is_noted(indexer, table):
    messages = [
        HumanMessage([{"type": "text", "text": "看这个"}, {"type": "image_url", "image_url": {"url": "data:,x"}}])
    ]
    run(MemoryRecorderMiddleware(indexer, table, agent_id="lina"), [AIMessage("一张图")], messages)
    assert "看这个\n[image/图片]" in texts(indexer, query="看这个")


# -- nothing twice ----------------------------------------------------------------------------------------------------


def test_a_conversation_with_a_checkpointer_is_kept_once(indexer, table):
    saver = InMemorySaver()
    model = ScriptedModel(steps=[calls("stock", part="QX-8"), AIMessage("14 件"), AIMessage("in B2")])
    for question in ("how many QX-8?", "where?"):
        # each turn by a process of its own: nothing remembered but the table and the store
        recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
        agent = create_agent(model, [stock], middleware=[recorder], checkpointer=saver)
        for _ in agent.stream(
            {"messages": [("user", question)]}, {"configurable": {"thread_id": "t-1"}}, stream_mode="messages"
        ):
            pass
    written = [getattr(entry, "text", None) or entry.result for entry in table.read("lina")]
    assert written == ["how many QX-8?", "QX-8: 14 件，柜 B2", "14 件", "where?", "in B2"]
    assert indexer.stats("lina").documents == 5


def test_history_that_is_passed_again_is_not_kept_again(indexer, table):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    history = [("user", "first"), ("assistant", "answer one")]
    run(recorder, [AIMessage("answer two")], [*history, ("user", "second")])
    assert [entry.text for entry in table.read("lina")] == ["second", "answer two"]


def test_a_run_that_is_resumed_keeps_its_call_once(indexer, table):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    agent = create_agent(
        ScriptedModel(steps=CONVERSATION),
        [stock],
        middleware=[recorder, HumanInTheLoopMiddleware({"stock": True})],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "t-1"}}
    agent.invoke({"messages": [("user", "E1102?")]}, config)
    assert len(table.read("lina")) == 1  # nothing has come out of the call yet
    agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert [type(entry).__name__ for entry in table.read("lina")] == ["Turn", "ToolCall", "Turn"]


def test_a_tool_that_asks_back_is_kept_when_it_is_done(indexer, table):
    @tool
    def order(part: str) -> str:
        """Orders a part, when somebody says so."""
        return f"{part}: {interrupt('may I?')}"

    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    steps = [calls("order", part="QX-8"), AIMessage("done")]
    agent = create_agent(ScriptedModel(steps=steps), [order], middleware=[recorder], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t-1"}}
    agent.invoke({"messages": [("user", "order QX-8")]}, config)
    assert [type(entry).__name__ for entry in table.read("lina")] == ["Turn"]
    agent.invoke(Command(resume="yes"), config)
    assert [(entry.outcome, entry.result) for entry in table.read("lina") if hasattr(entry, "tool")] == [
        ("ok", "QX-8: yes")
    ]


def test_a_call_that_is_tried_again_is_kept_as_it_ended(indexer, table):
    tries = []

    @tool
    def shaky(part: str) -> str:
        """Fails once."""
        tries.append(part)
        if len(tries) == 1:
            raise ConnectionError("line is down")
        return "there are 14"

    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    agent = create_agent(
        ScriptedModel(steps=[calls("shaky", part="QX-8"), AIMessage("done")]),
        [shaky],
        middleware=[ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False), recorder],
    )
    agent.invoke({"messages": [("user", "?")]}, {"configurable": {"thread_id": "t-1"}})
    assert len(tries) == 2
    tool_calls = [entry for entry in table.read("lina") if hasattr(entry, "tool")]
    assert [(entry.outcome, entry.result) for entry in tool_calls] == [("ok", "there are 14")]
    assert not any("line is down" in text for text in texts(indexer, query="line is down"))


def test_a_connector_on_the_same_table_adds_nothing(indexer, table):
    run(MemoryRecorderMiddleware(indexer, table, agent_id="lina"), CONVERSATION)
    before = {doc.doc_id for doc in indexer.get(filter={"session": "t-1"}, agent_id="lina")}
    report = indexer.sync(AgentMemoryConnector(table, agent_id="lina"))
    assert (report.added, report.deleted, report.failed) == (0, 0, ())
    assert {doc.doc_id for doc in indexer.get(filter={"session": "t-1"}, agent_id="lina")} == before


# -- no echo ----------------------------------------------------------------------------------------------------------

SECRET = "报警 E1102：气压不足，检查八毫米的快插接头，备件放在柜 B2 的第三层抽屉里。"


def plain_tool(indexer):
    @tool
    def look_up(question: str) -> str:
        """A tool of the user's own around the store."""
        return json.dumps([hit.text for hit in indexer.search(question, agent_id="lina")])

    return look_up


def retriever_tool(indexer):
    return create_retriever_tool(HybridRetriever(indexer=indexer, agent_id="lina"), "look_up", "Looks up.")


def labelled_tool(indexer):
    @tool
    def look_up(question: str) -> str:
        """As much about each passage as there is of it, as the tools of langmem write."""
        records = [
            {"namespace": ["memories", "u1"], "key": "629d22da-b7fe-4954-9e28-818be9d08818", "value": {"content": hit.text},
             "created_at": "2026-11-30T02:15:50.035175+00:00", "updated_at": "2026-11-30T02:15:50.035175+00:00", "score": hit.score}
            for hit in indexer.search(question, agent_id="lina")
        ]  # fmt: skip
        return json.dumps(records * 2 + [{"more": "labels " * 40}])

    return look_up


@pytest.mark.parametrize("make", [plain_tool, retriever_tool, labelled_tool])
@pytest.mark.parametrize("searches", [False, True])
def test_what_was_recalled_is_not_kept_again(indexer, table, make, searches):
    indexer.index_documents([SourceDocument("manual", SECRET)], "lina")
    recalling = make(indexer)
    name = next(iter(recalling.args))
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina", searches=searches)
    run(recorder, [calls("look_up", **{name: "E1102"}), AIMessage("ok")], tools=[recalling])
    assert texts(indexer).count(SECRET) == 1
    assert sum("快插接头" in text for text in texts(indexer)) == 1
    tool_calls = [entry for entry in table.read("lina") if hasattr(entry, "tool")]
    assert [(entry.tool, entry.result) for entry in tool_calls] == ([("look_up", None)] if searches else [])


def test_the_tools_of_the_package_are_never_kept(indexer, table):
    indexer.index_documents([SourceDocument("manual", SECRET)], "lina")
    steps = [calls("search", query="E1102"), calls("read", 2, doc_id="manual", chunk_id=0), AIMessage("ok")]
    tools = AgentRAGToolkit(indexer=indexer, agent_id="lina").get_tools()
    run(MemoryRecorderMiddleware(indexer, table, agent_id="lina"), steps, "hi", tools=tools)
    assert [getattr(entry, "tool", None) for entry in table.read("lina")] == [None, None]


def test_a_question_is_not_what_the_search_for_its_answer_finds(indexer, table):
    tools = AgentRAGToolkit(indexer=indexer, agent_id="lina").get_tools()
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    steps = [calls("stock", part="QX-8"), calls("search", 2, query="E1102 怎么修"), AIMessage("ok")]
    result = run(recorder, steps, "E1102 怎么修", tools=[stock, *tools])
    records = result["messages"][-2].artifact
    assert [record["text"] for record in records] == ['stock(part="QX-8")\n→ QX-8: 14 件，柜 B2'] or records == []
    assert "E1102 怎么修" in texts(indexer)


def test_a_question_whose_run_failed_is_found_after_the_next_one(indexer, table):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    with pytest.raises(ValueError, match="warehouse"):
        run(recorder, [calls("broken", part="QX-8")], "first E1102", tools=[broken])
    assert table.read("lina")[0].text == "first E1102"
    run(recorder, [AIMessage("ok")], "second", config={"configurable": {"thread_id": "t-2"}})
    assert "first E1102" in texts(indexer)


def test_tools_that_are_named_are_not_kept(indexer, table):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina", retrieval_tools=["stock"])
    run(recorder, CONVERSATION)
    assert [getattr(entry, "tool", None) for entry in table.read("lina")] == [None, None]
    with pytest.raises(UsageError, match="list"):
        MemoryRecorderMiddleware(indexer, table, agent_id="lina", retrieval_tools="stock")


def test_a_tool_that_quotes_little_is_kept(indexer, table):
    indexer.index_documents([SourceDocument("manual", SECRET)], "lina")

    @tool
    def order(part: str) -> str:
        """Orders."""
        hit = indexer.search("E1102", agent_id="lina")[0]
        return (
            f"Order 20260302-7741 for part {part} was placed with the supplier in Hangzhou, delivery on Friday. " * 2
            + hit.text[:30]
        )

    run(
        MemoryRecorderMiddleware(indexer, table, agent_id="lina"),
        [calls("order", part="QX-8"), AIMessage("ok")],
        tools=[order],
    )
    assert any("7741" in text for text in texts(indexer, query="7741"))


def test_passages_put_into_a_question_are_left_out(indexer, table):
    indexer.index_documents([SourceDocument("manual", SECRET)], "lina")
    context = "\n".join(hit.text for hit in indexer.search("E1102", agent_id="lina"))
    text = f"Use the following context:\n{context}\n\n问题：备件还有几个 QX-8？"
    run(MemoryRecorderMiddleware(indexer, table, agent_id="lina"), [AIMessage("14")], text)
    turn = table.read("lina")[0].text
    assert "问题：备件还有几个 QX-8？" in turn
    assert "第三层抽屉" not in turn
    assert texts(indexer).count(SECRET) == 1


def test_what_other_middleware_puts_in_is_not_kept(indexer, table):
    class Recall(AgentMiddleware):
        def before_model(self, state, runtime):
            return {"messages": [SystemMessage("recalled: 7741"), HumanMessage("context: 7741")]}

    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    agent = create_agent(
        ScriptedModel(steps=[AIMessage("ok")]), [], middleware=[recorder, Recall()], system_prompt="7741"
    )
    agent.invoke({"messages": [SystemMessage("be nice 7741"), ("user", "hello")]}, {"configurable": {"thread_id": "t"}})
    assert [entry.text for entry in table.read("lina")] == ["hello", "ok"]


# -- limits and redaction ---------------------------------------------------------------------------------------------


def test_nothing_secret_is_stored_or_indexed(indexer, table, tmp_path):
    def redact(text):
        return None if "TOP SECRET" in text else re.sub(r"1[3-9]\d{9}", "[电话]", text)

    @tool
    def phone(of: str, more: dict) -> str:
        """Phone number."""
        return "13912345678 is the number"

    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina", redact=redact)
    steps = [calls("phone", of="王 13800138000", more={"list": ["13700137000", 5, None]}), AIMessage("打 13912345678")]
    run(recorder, steps, "我的电话是 13800138000", tools=[phone])
    run(recorder, [AIMessage("fine")], "TOP SECRET plan", config={"configurable": {"thread_id": "t-2"}})
    recorded = " ".join(texts(indexer, query="电话 phone plan"))
    assert recorded.count("[电话]") == 5
    assert [entry.text for entry in table.read("lina", session="t-2")] == ["fine"]
    table.engine.dispose()
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(
                secret in content for secret in (b"13800138000", b"13912345678", b"13700137000", b"TOP SECRET")
            ), path


def test_what_cannot_be_redacted_is_not_kept_and_the_reason_does_not_quote_it(indexer, table, caplog):
    def redact(text):
        raise RuntimeError(f"cannot parse {text}")

    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina", redact=redact)
    result = run(recorder, CONVERSATION, "the password is 7741")
    assert result["messages"][-1].content == "换快插接头，在 cabinet B2。"
    assert table.read("lina") == []
    assert "RuntimeError" in recorder.recorder.problems[0]
    assert "7741" not in caplog.text


def test_redaction_sees_what_will_be_read(indexer, table):
    @tool
    def record(of: str) -> str:
        """A record, escaped as JSON often is."""
        return json.dumps({"name": "张三丰", "room": of})

    recorder = MemoryRecorderMiddleware(
        indexer, table, agent_id="lina", redact=lambda text: text.replace("张三丰", "某人")
    )
    run(recorder, [calls("record", of=json.dumps(["张三丰"])), AIMessage("ok")], tools=[record])
    recorded = " ".join(texts(indexer, query="某人 room"))
    assert recorded.count("某人") == 2
    assert "张三丰" not in recorded + repr(table.read("lina"))


@pytest.mark.parametrize("most", [100, 500, 8_000])
def test_a_long_result_keeps_its_beginning_and_its_end(indexer, table, most):
    @tool
    def dump(text: str) -> str:
        """A long result."""
        return "开头 beginning " + "数据 data " * 20_000 + "结尾 ending"

    run(
        MemoryRecorderMiddleware(indexer, table, agent_id="lina", max_chars=most),
        [calls("dump", text="x"), AIMessage("ok")],
        tools=[dump],
    )
    result = table.read("lina")[1].result
    assert len(result) <= most
    assert result.startswith("开头 begin")
    assert result.endswith("结尾 ending")
    assert "characters left out / 中间略去" in result


# -- whose memory -----------------------------------------------------------------------------------------------------


def test_the_run_names_the_agent(indexer, table):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id_key="agent")
    for agent in ("lina", "otto"):
        secret = f"my code is {'7741' if agent == 'lina' else '1234'}"
        run(recorder, [AIMessage("ok")], secret, config={"configurable": {"thread_id": "t", "agent": agent}})
    assert [entry.text for entry in table.read("lina")] == ["my code is 7741", "ok"]
    assert not any("7741" in text for text in texts(indexer, "otto", "my code 7741"))
    assert not any("1234" in text for text in texts(indexer, "lina", "my code 1234"))


def test_a_run_that_names_no_agent_goes_on_and_is_not_kept(indexer, table, caplog):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id_key="agent")
    assert run(recorder, CONVERSATION)["messages"][-1].content
    assert table.sessions() == []
    assert indexer.stats().documents == 0
    assert "No agent arrived" in recorder.recorder.problems[-1]
    assert "not recorded" in caplog.text


@pytest.mark.parametrize("ways", [{}, {"agent_id": "a", "agent_id_key": "b"}, {"agent_id": ""}])
def test_the_agent_is_never_guessed(indexer, table, ways):
    with pytest.raises(ScopeError):
        MemoryRecorderMiddleware(indexer, table, **ways)


def test_agents_at_work_at_the_same_time_keep_their_own(indexer, table):
    def work(agent: str) -> None:
        recorder = MemoryRecorderMiddleware(indexer, table, agent_id=agent)
        for turn in range(3):
            run(recorder, CONVERSATION, f"{agent} turn {turn}", config={"configurable": {"thread_id": f"t-{turn}"}})
        assert recorder.recorder.problems == ()

    threads = [threading.Thread(target=work, args=(agent,)) for agent in ("lina", "otto", "a%")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for agent in ("lina", "otto", "a%"):
        entries = table.read(agent)
        assert len(entries) == 9
        assert {entry.text for entry in entries if getattr(entry, "role", "") == "user"} == {
            f"{agent} turn {n}" for n in range(3)
        }
        assert indexer.stats(agent).documents == 9
    assert_isolated(indexer)


# -- when it cannot be kept -------------------------------------------------------------------------------------------


def test_a_table_that_cannot_be_reached_does_not_stop_the_agent(indexer, tmp_path, caplog):
    recorder = MemoryRecorderMiddleware(indexer, f"sqlite:///{tmp_path}/missing/folder/memory.db", agent_id="lina")
    assert run(recorder, CONVERSATION)["messages"][-1].content == "换快插接头，在 cabinet B2。"
    assert len(recorder.recorder.problems) == 3
    assert "memory table" in caplog.text


def test_what_could_not_be_indexed_is_indexed_with_the_next_entry(indexer, table, monkeypatch):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    whole = indexer.index_documents

    def failing(*_args, **_options):
        raise OSError("disk is full")

    monkeypatch.setattr(indexer, "index_documents", failing)
    run(recorder, [AIMessage("first answer")], "first question")
    assert len(table.read("lina")) == 2
    assert texts(indexer) == []
    assert "disk is full" in recorder.recorder.problems[-1]
    monkeypatch.setattr(indexer, "index_documents", whole)
    run(recorder, [AIMessage("second answer")], "second question", config={"configurable": {"thread_id": "t-2"}})
    assert len(texts(indexer, query="first second question answer")) == 4


def test_forgetting_deletes_from_the_table_and_the_store(indexer, table):
    recorder = MemoryRecorderMiddleware(indexer, table, agent_id="lina")
    other = MemoryRecorderMiddleware(indexer, table, agent_id="otto")
    indexer.index_documents([SourceDocument("manual", SECRET)], "lina")
    for thread in ("t-1", "t-2"):
        run(recorder, [AIMessage("ok")], f"said in {thread}", config={"configurable": {"thread_id": thread}})
        run(other, [AIMessage("ok")], f"said in {thread}", config={"configurable": {"thread_id": thread}})
    assert recorder.recorder.forget("lina", session="t-1") == 2
    assert {entry.session for entry in table.read("lina")} == {"t-2"}
    assert not any("t-1" in text for text in texts(indexer, query="said in t-1"))
    assert recorder.recorder.forget("lina", before="1 hour") == 0
    soon = (datetime.now(UTC) + timedelta(seconds=1)).replace(tzinfo=None)  # without a zone it is UTC
    assert recorder.recorder.forget("lina", before=soon) == 2
    assert texts(indexer, query="said in E1102") == [SECRET]
    assert len(table.read("otto")) == indexer.stats("otto").documents == 4
