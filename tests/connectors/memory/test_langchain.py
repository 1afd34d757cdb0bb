"""Memory that LangChain wrote, on real servers: `SQLChatMessageHistory` and its relatives, `RedisChatMessageHistory`."""

from __future__ import annotations

import json
import uuid
import warnings
from datetime import UTC, datetime

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, message_to_dict
from sqlalchemy import create_engine, text

from langchain_agentrag import AgentMemoryConnector
from tests.connectors.memory.conftest import read, texts_by_role

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from langchain_community.chat_message_histories import RedisChatMessageHistory, SQLChatMessageHistory

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::langchain_core._api.LangChainDeprecationWarning"
)

CALL = {"name": "search_orders", "args": {"query": "退款", "limit": 3}, "id": "c1"}
MESSAGES = [
    SystemMessage("You are a shop assistant"),
    HumanMessage("订单 A-1042 的退款怎么办？"),
    AIMessage("", tool_calls=[CALL]),
    ToolMessage("七天之内可以退款", tool_call_id="c1"),
    AIMessage([{"type": "text", "text": "Refunds take seven days."}]),
]
TEXTS_BY_ROLE = [
    ("user", "订单 A-1042 的退款怎么办？"),
    ("search_orders", 'search_orders(query="退款", limit=3)\n→ 七天之内可以退款'),
    ("assistant", "Refunds take seven days."),
]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/history.db"
    return request.getfixturevalue("postgres_url" if request.param == "postgresql" else "mariadb_url")


@pytest.fixture
def engine(url):
    engine = create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def history(engine):
    """A writer of histories in a table of its own."""
    name = f"message_store_{uuid.uuid4().hex[:8]}"

    def write(session: str, messages) -> SQLChatMessageHistory:
        history = SQLChatMessageHistory(session, table_name=name, connection=engine)
        history.add_messages(messages)
        return history

    write.table = name
    yield write
    with engine.begin() as connection:
        connection.execute(text(f"drop table if exists {name}"))


class TestSQL:
    def test_what_the_library_wrote_is_read(self, history, engine):
        history("会话 1", MESSAGES)
        documents = read(engine, table=history.table)
        assert texts_by_role(documents) == TEXTS_BY_ROLE
        assert {document.metadata["session"] for document in documents} == {"会话 1"}

    def test_only_what_changed_is_read_again(self, history, engine, indexer):
        history("s", MESSAGES)
        written = history("t", MESSAGES[:2])
        connector = AgentMemoryConnector(engine, agent_id="a", table=history.table)
        assert indexer.sync(connector).added == 4
        again = indexer.sync(connector)
        assert (again.added, again.updated, again.deleted, again.unchanged) == (0, 0, 0, 4)
        history("t", MESSAGES[2:3])
        assert (indexer.sync(connector).added, indexer.stats("a").documents) == (1, 5)
        history("t", MESSAGES[3:4])  # the result of the call
        report = indexer.sync(connector)
        assert (report.added, report.updated) == (0, 1)
        written.clear()
        assert (indexer.sync(connector).deleted, indexer.stats("a").documents) == (2, 3)

    def test_sessions_that_a_collation_takes_for_one_are_two(self, history, engine):
        for session in ("a", "A", "a ", "á"):
            history(session, [HumanMessage(f"<{session}>")])
        mapped = AgentMemoryConnector(engine, agent_id=lambda session: session.id, table=history.table)
        text_by_agent = {document.metadata["agent_id"]: document.page_content for document in mapped.load()}
        assert text_by_agent == {session: f"<{session}>" for session in ("a", "A", "a ", "á")}

    def test_a_function_that_finds_no_agent_is_told_what_a_session_has(self, history, engine, indexer):
        history("lina:会话 1", MESSAGES[1:2])
        for function, problem in (
            (lambda session: session.agent_id, "returned no agent"),
            (lambda session: session.session_id, "failed with AttributeError"),
        ):
            report = indexer.sync(AgentMemoryConnector(engine, agent_id=function, table=history.table))
            reason = report.failed[0].reason
            assert (report.added, problem in reason) == (0, True)
            assert "id='lina:会话 1'" in reason
            assert "agent_id=None" in reason
            assert "backend='langchain-sql', metadata with no keys, whose records name no agent" in reason
        by_id = AgentMemoryConnector(engine, agent_id=lambda s: s.id.partition(":")[0], table=history.table)
        assert indexer.sync(by_id).added == 1
        assert indexer.stats("lina").documents == 1

    def test_rows_that_are_spoilt_are_reported_and_the_others_taken(self, history, engine, indexer):
        history("s", MESSAGES)
        with engine.begin() as connection:
            for spoilt in ("{broken", "null", '{"content": "x"}', ""):
                row = {"session": "s", "message": spoilt}
                connection.execute(
                    text(f"insert into {history.table} (session_id, message) values (:session, :message)"), row
                )
        report = indexer.sync(AgentMemoryConnector(engine, agent_id="a", table=history.table))
        assert (report.added, len(report.failed)) == (3, 1)
        assert "entry 6" in report.failed[0].reason
        assert indexer.sync(AgentMemoryConnector(engine, agent_id="a", table=history.table)).deleted == 0

    def test_null_content_and_null_sessions_are_read(self, history, engine):
        history("s", [])
        raw = {"type": "ai", "data": {"content": None, "tool_calls": [CALL]}}
        with engine.begin() as connection:
            row = {"message": json.dumps(raw)}
            connection.execute(text(f"insert into {history.table} (session_id, message) values (null, :message)"), row)
        assert texts_by_role(read(engine, table=history.table)) == [
            ("search_orders", 'search_orders(query="退款", limit=3)')
        ]

    def test_many_sessions_are_read_in_order(self, history, engine):
        for number in range(30):
            history(f"s{number % 7}", [HumanMessage(f"{number}")])
        texts = {}
        for document in read(engine, table=history.table):
            texts.setdefault(document.metadata["session"], []).append(int(document.text))
        assert texts == {f"s{n}": list(range(n, 30, 7)) for n in range(7)}


def test_the_table_of_langchain_postgres_is_read_with_its_times(postgres_url):
    """`PostgresChatMessageHistory`: a UUID, JSONB and a time with a zone."""
    engine, name = create_engine(postgres_url), f"chat_{uuid.uuid4().hex[:8]}"
    session = str(uuid.uuid4())
    moment = datetime(2024, 5, 1, 4, tzinfo=UTC)
    with engine.begin() as connection:
        connection.execute(text(
            f"create table {name} (id serial primary key, session_id uuid not null, message jsonb not null, "
            "created_at timestamptz not null default now())"))  # fmt: skip
        for message in MESSAGES:
            row = {"session": session, "message": json.dumps(message_to_dict(message)), "moment": moment}
            connection.execute(
                text(
                    f"insert into {name} (session_id, message, created_at) values (:session, cast(:message as jsonb), :moment)"
                ),
                row,
            )
    documents = read(engine, table=name)
    turns = texts_by_role(documents)
    assert [turns[0], turns[2]] == [TEXTS_BY_ROLE[0], TEXTS_BY_ROLE[2]]
    assert turns[1][1] == 'search_orders(limit=3, query="退款")\n→ 七天之内可以退款'  # JSONB sorts the names
    assert {(d.metadata["session"], d.metadata["time"]) for d in documents} == {(session, moment)}
    with engine.begin() as connection:
        connection.execute(text(f"drop table {name}"))
    engine.dispose()


def test_columns_of_ones_own_reach_the_function_and_the_metadata(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/own.db")
    with engine.begin() as connection:
        connection.execute(
            text(
                "create table chats (id integer primary key, session_id text, message text, tenant text, agent_id text)"
            )
        )
        for tenant, agent in (("甲", "a"), ("乙", "b")):
            row = {"m": json.dumps(message_to_dict(HumanMessage(f"{tenant} 的话"))), "t": tenant, "a": agent}
            connection.execute(
                text("insert into chats (session_id, message, tenant, agent_id) values ('s', :m, :t, :a)"), row
            )
    documents = AgentMemoryConnector(engine, agent_id=lambda s: f"{s.agent_id}/{s.metadata['tenant']}").load()
    assert {(d.metadata["agent_id"], d.metadata["tenant"], d.page_content) for d in documents} == {
        ("a/甲", "甲", "甲 的话"),
        ("b/乙", "乙", "乙 的话"),
    }
    assert texts_by_role(read(engine, agent_id="a")[:1]) == [("user", "甲 的话")]


@pytest.fixture
def client(redis_url):
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
        yield client
        client.flushdb()


def json_server(url):
    """langchain-redis needs RedisJSON, which servers of a distribution lack: strings of a real one stand for its documents."""
    import redis

    class Commands:
        def __init__(self, client):
            self.client = client

        def get(self, key):
            return json.loads(self.client.get(key))

    class WithJson(redis.Redis):
        def type(self, name):
            return b"ReJSON-RL"

        def json(self):
            return Commands(self)

    return WithJson.from_url(url)


class TestRedis:
    def test_what_the_library_wrote_is_read_oldest_first(self, redis_url, client):
        RedisChatMessageHistory("会话:1", url=redis_url).add_messages(MESSAGES)
        for source in (redis_url, client):
            documents = read(source)
            assert texts_by_role(documents) == TEXTS_BY_ROLE
            assert {document.metadata["session"] for document in documents} == {"会话:1"}

    def test_a_prefix_of_ones_own_is_taken_literally(self, redis_url, client):
        for prefix in ("chat*[1]:", "chatx1:"):
            RedisChatMessageHistory(prefix, url=redis_url, key_prefix=prefix).add_messages(MESSAGES[1:2])
        assert {d.metadata["session"] for d in read(client, prefix="chat*[1]:")} == {"chat*[1]:"}
        assert read(client) == []

    def test_reading_again_changes_nothing_and_what_is_cleared_goes(self, redis_url, client, indexer):
        history = RedisChatMessageHistory("s", url=redis_url)
        history.add_messages(MESSAGES[:3])
        connector = AgentMemoryConnector(redis_url, agent_id="a")
        assert indexer.sync(connector).added == 2
        history.add_messages(MESSAGES[3:])
        report = indexer.sync(connector)
        assert (report.added, report.updated) == (1, 1)
        assert indexer.sync(connector).unchanged == 3
        history.clear()
        assert (indexer.sync(connector).deleted, indexer.stats("a").documents) == (3, 0)

    def test_keys_of_other_things_are_passed_over(self, redis_url, client):
        client.set("message_store:x", "text")
        client.rpush("message_store:y", "no json", "[1]")
        client.rpush("queue", json.dumps({"job": 1}))
        client.sadd("message_store:z", "member")
        client.hset("h", "k", "v")
        RedisChatMessageHistory("s", url=redis_url).add_messages(MESSAGES[1:2])
        assert texts_by_role(read(client)) == TEXTS_BY_ROLE[:1]

    def test_a_message_that_is_spoilt_is_reported(self, redis_url, client, indexer):
        RedisChatMessageHistory("s", url=redis_url).add_messages(MESSAGES)
        client.rpush("message_store:s", "{broken")
        report = indexer.sync(AgentMemoryConnector(client, agent_id="a"))
        assert (report.added, len(report.failed)) == (3, 1)

    def test_documents_of_langchain_redis_are_read_in_the_order_of_their_times(self, redis_url, client):
        server = json_server(redis_url)
        for number, message in enumerate(reversed(MESSAGES)):
            data = {"content": message.content, "additional_kwargs": message.additional_kwargs, "type": message.type}
            if message.type == "ai" and message.tool_calls:
                call = {"id": "c1", "function": {"name": "search_orders", "arguments": json.dumps(CALL["args"])}}
                data["additional_kwargs"] = {"tool_calls": [call]}
            if message.type == "tool":
                data |= {"tool_call_id": message.tool_call_id, "status": message.status}
            stored = {"type": message.type, "message_id": f"{number}", "data": data, "session_id": "会话:1"}
            server.set(f"chat:会话:1:{number:026}", json.dumps(stored | {"timestamp": 1714536000.5 - number}))
        server.set("other:1", json.dumps({"type": "human", "data": {}, "session_id": "x"}))
        documents = read(server)
        server.close()
        assert texts_by_role(documents) == TEXTS_BY_ROLE
        assert {document.metadata["session"] for document in documents} == {"会话:1"}
        assert documents[-1].metadata["time"] == datetime(2024, 5, 1, 4, 0, 0, 500_000, tzinfo=UTC)

    def test_a_server_that_does_not_answer_deletes_nothing(self, redis_url, client, indexer):
        from langchain_agentrag.errors import ConnectorError

        with pytest.raises(ConnectorError, match="Check that it runs"):
            indexer.sync(AgentMemoryConnector("unix:///nowhere/at/all", agent_id="a"))
