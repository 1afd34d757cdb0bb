"""Memory that LangGraph wrote: agents with every saver, summaries, subgraphs, delta channels; and its stores."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import ExitStack
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from sqlalchemy import create_engine, make_url, text

from langchain_agentrag import AgentMemoryConnector, DualIndexer
from langchain_agentrag.errors import ConnectorError, UsageError
from tests.connectors.memory.conftest import read, texts_by_role
from tests.langchain.scripts import ScriptedModel, calls

TABLES = ["checkpoints", "checkpoint_blobs", "checkpoint_writes", "checkpoint_migrations", "store", "store_migrations"]


def lookup(order: str) -> str:
    """Look an order up."""
    return f"订单 {order}：已发货，承运商顺丰，预计周五送达"


def run(
    saver,
    thread="t",
    agent=None,
    turns=(("A-1042 到哪儿了？", "已经发货了"), ("thank you, when does it arrive?", "On Friday.")),
):
    """A run of a real agent that looks something up in each turn."""
    steps = []
    for number, (_, reply) in enumerate(turns):
        steps += [calls("lookup", number, order="A-1042"), AIMessage(reply)]
    agent_graph = create_agent(ScriptedModel(steps=steps), [lookup], checkpointer=saver)
    config = {"configurable": {"thread_id": thread} | ({"agent_id": agent} if agent else {})}
    for question, _ in turns:
        agent_graph.invoke({"messages": [{"role": "user", "content": question}]}, config)
    return agent_graph


CALLED = ("lookup", 'lookup(order="A-1042")\n→ 订单 A-1042：已发货，承运商顺丰，预计周五送达')
TEXTS_BY_ROLE = [("user", "A-1042 到哪儿了？"), CALLED, ("assistant", "已经发货了"), ("user", "thank you, when does it arrive?"), CALLED, ("assistant", "On Friday.")]  # fmt: skip


def dsn(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture
def clean_postgres(postgres_url):
    yield postgres_url
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        for table in TABLES:
            connection.execute(text(f"drop table if exists {table} cascade"))
    engine.dispose()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def saver(request, tmp_path):
    """A saver, with the URL of its database where it has one."""
    with ExitStack() as stack:
        if request.param == "memory":
            saver, url = InMemorySaver(), None
        elif request.param == "sqlite":
            connection = sqlite3.connect(tmp_path / "checkpoints.db", check_same_thread=False)
            stack.callback(connection.close)
            saver, url = SqliteSaver(connection), f"sqlite:///{tmp_path}/checkpoints.db"
        else:
            url = request.getfixturevalue("clean_postgres")
            saver = stack.enter_context(PostgresSaver.from_conn_string(dsn(url)))
            saver.setup()
        saver.url = url
        yield saver


def connector(saver, **options):
    options = {"agent_id": "planner", "name": "memory"} | options
    return AgentMemoryConnector(saver, **options)


def added_up(state, writes):
    for write in writes:
        state = add_messages(state or [], write)
    return state


class State(TypedDict):
    messages: Annotated[list, add_messages]


class DeltaState(TypedDict):
    messages: Annotated[list, DeltaChannel(added_up, snapshot_frequency=3)]
    plain: Annotated[list, add_messages]


class PlainState(TypedDict):
    chat: Annotated[list, lambda old, new: [*old, *new]]
    topic: str


class TestCheckpoints:
    def test_a_run_of_an_agent_is_read_with_its_calls_and_times(self, saver):
        run(saver)
        sources = [saver] if saver.url is None else [saver, saver.url]
        for source in sources:
            documents = read(source, name="memory", backend="langgraph-checkpoints")
            assert texts_by_role(documents) == TEXTS_BY_ROLE
            times = [document.metadata["time"] for document in documents]
            assert times == sorted(times)
            assert all(moment.utcoffset() is not None for moment in times)
            call = documents[1].metadata
            assert (call["outcome"], call["arguments"], call["session"]) == ("ok", {"order": "A-1042"}, "t")

    def test_reading_again_changes_nothing_and_goes_on_where_it_grew(self, saver, indexer):
        run(saver, turns=[("一", "甲")])
        assert indexer.sync(connector(saver)).added == 3
        again = indexer.sync(connector(saver))
        assert (again.added, again.updated, again.unchanged) == (0, 0, 3)
        run(saver, turns=[("二", "乙")])
        report = indexer.sync(connector(saver))
        assert (report.added, report.updated, report.deleted) == (3, 0, 0)
        run(saver, "another", turns=[("三", "丙")])
        assert indexer.sync(connector(saver)).added == 3
        saver.delete_thread("t")
        assert (indexer.sync(connector(saver)).deleted, indexer.stats("planner").documents) == (6, 3)

    def test_an_unchanged_thread_is_not_decoded(self, saver, indexer, monkeypatch):
        run(saver)
        indexer.sync(connector(saver))
        for method in ("get_tuple", "list"):
            monkeypatch.setattr(type(saver), method, lambda *arguments, **options: pytest.fail("decoded"))
        assert indexer.sync(connector(saver)).unchanged == 6

    def test_what_was_summarised_is_recovered(self, saver):
        summaries = ScriptedModel(steps=[AIMessage("Summary: 客户问过订单")])
        middleware = SummarizationMiddleware(summaries, trigger=("messages", 4), keep=("messages", 2))
        replies = [AIMessage(f"回答 {n}") for n in range(5)]
        agent = create_agent(ScriptedModel(steps=replies), [], middleware=[middleware], checkpointer=saver)
        config = {"configurable": {"thread_id": "t"}}
        for number in range(5):
            state = agent.invoke({"messages": [HumanMessage(f"问题 {number}")]}, config)
        assert len(state["messages"]) < 10
        documents = read(saver, name="memory")
        texts = [document.text for document in documents if "summary" not in document.metadata]
        assert texts == [f"{kind} {n}" for n in range(5) for kind in ("问题", "回答")]
        assert any(document.metadata.get("summary") for document in documents)

    def test_what_was_removed_is_recovered(self, saver):
        agent = run(saver, turns=[("记住口令 4711", "好")])
        config = {"configurable": {"thread_id": "t"}}
        first = agent.get_state(config).values["messages"][0]
        agent.update_state(config, {"messages": [RemoveMessage(id=first.id)]})
        assert "记住口令 4711" not in [m.content for m in agent.get_state(config).values["messages"]]
        assert texts_by_role(read(saver, name="memory"))[0] == ("user", "记住口令 4711")

    def test_each_run_belongs_to_the_agent_its_config_names(self, saver, indexer):
        run(saver, "t", "a", [("甲的口令 4711", "好")])
        run(saver, "t", "A", [("乙的口令 4712", "好")])
        run(saver, "u", None, [("无主的口令 4713", "好")])
        report = indexer.sync(connector(saver, agent_id=lambda session: session.agent_id))
        assert [failure.key for failure in report.failed] == ["u"]
        for agent, code in (("a", "4711"), ("A", "4712")):
            hits = indexer.search("口令", k=9, agent_id=agent, filter={"role": "user"})
            assert [hit.text[-4:] for hit in hits] == [code]
        assert list(indexer.search("口令", k=9)) == []
        with DualIndexer(indexer.path.parent / "second", "hash") as second:
            assert len(second.sync(connector(saver, agent_id="a")).skipped) == 1
            assert {hit.text[-4:] for hit in second.search("口令", k=9, agent_id="a", filter={"role": "user"})} == {
                "4711",
                "4713",
            }

    def test_subgraphs_are_read_once_and_can_have_agents_of_their_own(self, saver):
        def inner(state):
            return {"messages": [AIMessage("内部的想法")]}

        sub = StateGraph(State)
        sub.add_node("think", inner)
        sub.add_edge(START, "think")
        sub.add_edge("think", END)
        graph = StateGraph(State)
        graph.add_node("researcher", sub.compile(checkpointer=True))
        graph.add_edge(START, "researcher")
        graph.add_edge("researcher", END)
        graph.compile(checkpointer=saver).invoke(
            {"messages": [HumanMessage("问")]}, {"configurable": {"thread_id": "t"}}
        )
        assert sorted(texts_by_role(read(saver, name="memory"))) == [("assistant", "内部的想法"), ("user", "问")]
        mapped = connector(saver, agent_id=lambda s: s.namespace[0] if s.namespace else "main").load()
        by_agent = {}
        for document in mapped:
            by_agent.setdefault(document.metadata["agent_id"], set()).add(document.page_content)
        assert by_agent["researcher"] == {"内部的想法", "问"}
        assert "问" in by_agent["main"]

    def test_delta_channels_are_read_whole(self, saver):
        def reply(state):
            return {"messages": [AIMessage(f"回答 {len(state['messages'])}")], "plain": [AIMessage("side")]}

        graph = StateGraph(DeltaState)
        graph.add_node("reply", reply)
        graph.add_edge(START, "reply")
        graph.add_edge("reply", END)
        compiled = graph.compile(checkpointer=saver)
        for number in range(4):
            compiled.invoke({"messages": [HumanMessage(f"问题 {number}")]}, {"configurable": {"thread_id": "t"}})
        texts = [text for role, text in texts_by_role(read(saver, name="memory")) if text != "side"]
        assert texts == [text for n in range(4) for text in (f"问题 {n}", f"回答 {2 * n + 1}")]

    def test_messages_as_plain_dicts_and_without_ids_are_read_once(self, saver):
        graph = StateGraph(PlainState)
        graph.add_node("reply", lambda state: {"chat": [{"role": "assistant", "content": f"re: {len(state['chat'])}"}]})
        graph.add_edge(START, "reply")
        graph.add_edge("reply", END)
        compiled = graph.compile(checkpointer=saver)
        for question in ("一样", "一样"):
            compiled.invoke(
                {"chat": [{"role": "user", "content": question}], "topic": "x"}, {"configurable": {"thread_id": "t"}}
            )
        assert texts_by_role(read(saver, name="memory")) == [
            ("user", "一样"),
            ("assistant", "re: 1"),
            ("user", "一样"),
            ("assistant", "re: 3"),
        ]

    @pytest.mark.model
    def test_it_is_found_by_meaning_and_by_exact_word_in_both_languages(self, tmp_path):
        saver = InMemorySaver()
        run(
            saver,
            "t",
            turns=[
                ("我的包裹什么时候能收到？", "快递周五送达"),
                ("my laptop screen is broken", "Please bring it to the repair desk, ticket RX-77."),
            ],
        )
        with DualIndexer(tmp_path / "store", "local") as indexer:
            indexer.sync(connector(saver))
            for query, word in (
                ("delivery date of my parcel", "包裹"),
                ("RX-77", "RX-77"),
                ("顺丰", "顺丰"),
                ("显示器坏了怎么修", "screen"),
            ):
                hits = indexer.search(query, k=3, agent_id="planner")
                assert any(word in hit.text for hit in hits), (query, [hit.text for hit in hits])
            assert list(indexer.search("RX-77", agent_id="coder")) == []


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    """A store of LangGraph, with the URL of its database where it has one."""
    with ExitStack() as stack:
        url = None
        if request.param == "memory":
            opened = InMemoryStore()
        elif request.param == "sqlite":
            url = f"sqlite:///{tmp_path}/store.db"
            opened = stack.enter_context(SqliteStore.from_conn_string(f"{tmp_path}/store.db"))
            opened.setup()
        else:
            url = request.getfixturevalue("clean_postgres")
            opened = stack.enter_context(PostgresStore.from_conn_string(dsn(url)))
            opened.setup()
        yield opened, url


class TestStores:
    def sources(self, store):
        factory, url = store
        return [factory] if url is None else [factory, url]

    def test_items_are_read_as_text_with_their_value(self, store):
        factory, _ = store
        factory.put(("agent1", "memories"), "k1", {"kind": "Memory", "content": {"content": "用户喜欢杭州的龙井茶"}})
        factory.put(("agent1", "profile"), "k2", {"name": "张三", "city": "Hangzhou", "age": 42, "tags": ["tea", "茶"]})
        factory.put(("agent10",), "k1", {"text": "someone else's"})
        for source in self.sources(store):
            documents = {d.metadata["namespace"]: d for d in read(source, name="memory", backend="langgraph-store")}
            assert documents["agent1.memories"].text == "用户喜欢杭州的龙井茶"
            lines = documents["agent1.profile"].text.splitlines()  # JSONB sorts the names
            assert sorted(lines) == ["age: 42", "city: Hangzhou", "name: 张三", "tags: tea", "tags: 茶"]
            assert documents["agent1.profile"].metadata["value"]["age"] == 42
            assert documents["agent1.profile"].metadata["type"] == "item"
            assert documents["agent10"].metadata["time"].utcoffset() is not None

    def test_namespaces_are_mapped_segment_by_segment(self, store):
        factory, _ = store
        for namespace in (("agent1",), ("agent10",), ("agent1", "x"), ("agent_1",), ("AGENT1",), ("%",)):
            factory.put(namespace, "k", {"text": "/".join(namespace)})
        for source in self.sources(store):
            mapped = AgentMemoryConnector(
                source,
                name="memory",
                backend="langgraph-store",
                agent_id=lambda s: "one" if s.namespace[0] == "agent1" else None,
            )
            assert {document.page_content for document in mapped.load()} == {"agent1", "agent1/x"}

    def test_a_change_is_an_update_and_a_deletion_a_deletion(self, store, indexer):
        factory, _ = store
        for source in self.sources(store):
            memory = AgentMemoryConnector(source, agent_id="planner", name="memory", backend="langgraph-store")
            for number in range(5):
                factory.put(("a",), f"k{number}", {"text": f"第 {number} 条"})
            indexer.sync(memory)
            assert (indexer.sync(memory).unchanged, indexer.stats("planner").documents) == (5, 5)
            factory.put(("a",), "k3", {"text": "改过了"})
            factory.delete(("a",), "k4")
            report = indexer.sync(memory)
            assert (report.updated, report.deleted, report.added) == (1, 1, 0)
            indexer.forget_agent("planner")

    def test_many_items_are_read_in_pages(self, store, monkeypatch):
        from langchain_agentrag.connectors.memory import langgraph_store

        monkeypatch.setattr(langgraph_store, "_PAGE", 7)
        factory, _ = store
        for number in range(30):
            factory.put(("a",), f"k{number}", {"text": f"{number}"})
        for source in self.sources(store):
            assert sorted(
                int(document.text) for document in read(source, name="memory", backend="langgraph-store")
            ) == list(range(30))


@pytest.mark.filterwarnings("ignore:The default datetime adapter:DeprecationWarning")  # of LangGraph's store
def test_reading_a_store_does_not_lengthen_the_life_of_its_items(tmp_path):
    with SqliteStore.from_conn_string(
        f"{tmp_path}/store.db", ttl={"default_ttl": 60, "refresh_on_read": True}
    ) as opened:
        opened.setup()
        opened.put(("a",), "k", {"text": "soon gone"})
        ends = "select expires_at from store"
        before = opened.conn.execute(ends).fetchall()
        opened.conn.execute("update store set expires_at = datetime(expires_at, '-10 minutes')")
        shorter = opened.conn.execute(ends).fetchall()
        assert shorter != before
        read(opened)
        assert opened.conn.execute(ends).fetchall() == shorter
        (document,) = read(f"sqlite:///{tmp_path}/store.db")
        assert document.metadata["expires_at"].utcoffset() is not None
        opened.conn.execute("update store set expires_at = '2001-01-01 00:00:00'")
        opened.conn.commit()
        assert read(f"sqlite:///{tmp_path}/store.db") == []


async def test_an_asynchronous_saver_is_read_from_another_thread_or_by_its_url(tmp_path):
    async with AsyncSqliteSaver.from_conn_string(f"{tmp_path}/checkpoints.db") as saver:
        steps = [calls("lookup", 0, order="A-1042"), AIMessage("已经发货了")]
        agent = create_agent(ScriptedModel(steps=steps), [lookup], checkpointer=saver)
        question = {"messages": [{"role": "user", "content": "A-1042 到哪儿了？"}]}
        await agent.ainvoke(question, {"configurable": {"thread_id": "t"}})
        assert texts_by_role(await asyncio.to_thread(read, saver, name="memory")) == TEXTS_BY_ROLE[:3]
        assert texts_by_role(read(tmp_path / "checkpoints.db")) == TEXTS_BY_ROLE[:3]
        with pytest.raises(ConnectorError, match="another thread"):
            read(saver, name="memory")


def test_reading_a_database_changes_nothing_of_it(tmp_path):
    path = tmp_path / "checkpoints.db"
    connection = sqlite3.connect(path, check_same_thread=False)
    run(SqliteSaver(connection))
    connection.execute("pragma wal_checkpoint(truncate)")
    before = path.read_bytes()
    assert texts_by_role(read(path)) == TEXTS_BY_ROLE
    assert path.read_bytes() == before
    connection.close()


def test_checkpoints_and_store_in_one_database_need_a_backend(tmp_path):
    path = tmp_path / "both.db"
    connection = sqlite3.connect(path, check_same_thread=False)
    run(SqliteSaver(connection))
    with SqliteStore.from_conn_string(str(path)) as opened:
        opened.setup()
        opened.put(("a",), "k", {"text": "记下的"})
    with pytest.raises(UsageError, match=r"'checkpoints' \(langgraph-checkpoints\), 'store' \(langgraph-store\)"):
        read(path)
    assert texts_by_role(read(path, backend="langgraph-checkpoints")) == TEXTS_BY_ROLE
    assert [document.text for document in read(path, backend="langgraph-store")] == ["记下的"]
    connection.close()


def test_the_digest_of_a_message_without_an_id_does_not_change():
    """It is part of document ids, so it must not depend on names in the code."""
    from langchain_agentrag.connectors.memory.langgraph_checkpoints import _content_digest
    from langchain_agentrag.connectors.memory.messages import read_message

    call = {"name": "search", "args": {"q": "退款"}, "id": "c1"}
    message = {"role": "assistant", "content": "稍等", "tool_calls": [call]}
    result = {"role": "tool", "content": "七天", "tool_call_id": "c1", "status": "success"}
    assert _content_digest(read_message(message)) == "d86b5b95"
    assert _content_digest(read_message(result)) == "699f1c5d"
