"""Memory that LlamaIndex wrote: a real agent run into every chat store it ships."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("llama_index.core", reason='needs LlamaIndex: pip install "langchain-agentrag[llama-index]"')

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from llama_index.storage.chat_store.redis import RedisChatStore
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from langchain_agentrag import AgentMemoryConnector, DualIndexer
from langchain_agentrag.errors import UsageError
from tests.connectors.memory.conftest import read, texts_by_role

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::pydantic.warnings.PydanticDeprecationWarning"
)


def lookup(order: str) -> str:
    """Look an order up."""
    return f"订单 {order}：已发货，承运商顺丰"


def lookup_call(number: int) -> ChatMessage:
    call = ToolCallBlock(tool_call_id=f"c{number}", tool_name="lookup", tool_kwargs={"order": "A-1042"})
    return ChatMessage(role="assistant", blocks=[call])


async def run(memory, questions=("A-1042 到哪儿了？", "thank you, who carries it?")):
    """A run of a real FunctionAgent that looks something up in each turn."""
    for number, question in enumerate(questions):
        steps = iter(
            [lookup_call(number), ChatMessage(role="assistant", content=f"答复 {number}: it is with SF Express")]
        )
        llm = MockFunctionCallingLLM(
            response_generator=lambda messages, steps=steps, **_: next(steps), is_chat_model=True
        )
        await FunctionAgent(tools=[lookup], llm=llm).run(question, memory=memory)


CALLED = ("lookup", 'lookup(order="A-1042")\n→ 订单 A-1042：已发货，承运商顺丰')
TEXTS_BY_ROLE = [
    ("user", "A-1042 到哪儿了？"), CALLED, ("assistant", "答复 0: it is with SF Express"),
    ("user", "thank you, who carries it?"), CALLED, ("assistant", "答复 1: it is with SF Express"),
]  # fmt: skip


@pytest.fixture
async def engine(tmp_path):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/memory.db")
    yield engine
    await engine.dispose()


def remembering(store, session: str) -> Memory:
    return Memory(session_id=session, sql_store=store, token_limit=30_000)


def stored(engine) -> SQLAlchemyChatStore:
    return SQLAlchemyChatStore("llama_index_memory", async_engine=engine)


class TestSQL:
    async def test_a_run_of_an_agent_is_read_with_its_calls_and_times(self, engine, tmp_path):
        await run(remembering(stored(engine), "会话 1"))
        sources = (f"sqlite+aiosqlite:///{tmp_path}/memory.db", f"sqlite:///{tmp_path}/memory.db", engine)
        for source in (*sources, tmp_path / "memory.db"):
            documents = await asyncio.to_thread(read, source)
            assert texts_by_role(documents) == TEXTS_BY_ROLE
            assert {document.metadata["session"] for document in documents} == {"会话 1"}
            times = [document.metadata["time"] for document in documents]
            assert times == sorted(times)
            assert times[0].utcoffset() is not None

    async def test_archived_messages_are_memory_too_and_not_a_change(self, engine, tmp_path, indexer):
        memory = remembering(stored(engine), "s")
        await run(memory)
        connector = AgentMemoryConnector(tmp_path / "memory.db", agent_id="a")
        assert indexer.sync(connector).added == 6
        await memory.sql_store.archive_oldest_messages("s", 4)
        assert len(await memory.sql_store.get_messages("s")) == 4  # of 8
        report = indexer.sync(connector)
        assert (report.unchanged, report.updated, report.deleted) == (6, 0, 0)

    async def test_reading_again_changes_nothing_and_what_is_deleted_goes(self, engine, tmp_path, indexer):
        store = stored(engine)
        connector = AgentMemoryConnector(f"sqlite:///{tmp_path}/memory.db", agent_id="a")
        await run(remembering(store, "s"))
        await run(remembering(store, "t"))
        assert indexer.sync(connector).added == 12
        assert indexer.sync(connector).unchanged == 12
        await store.delete_messages("s")
        report = indexer.sync(connector)
        assert (report.deleted, report.unchanged, indexer.stats("a").documents) == (6, 6, 6)

    async def test_equal_times_keep_the_order_of_the_rows(self, engine, tmp_path):
        store = stored(engine)
        for number in range(6):
            await store.add_message("s", ChatMessage(role="user", content=f"第 {number} 句"))
        sync = create_engine(f"sqlite:///{tmp_path}/memory.db")
        with sync.begin() as connection:
            connection.execute(text("update llama_index_memory set timestamp = 1714536000000000000"))
        sync.dispose()
        assert [document.text for document in read(tmp_path / "memory.db")] == [f"第 {n} 句" for n in range(6)]

    async def test_a_spoilt_row_is_reported(self, engine, tmp_path, indexer):
        await run(remembering(stored(engine), "s"))
        sync = create_engine(f"sqlite:///{tmp_path}/memory.db")
        with sync.begin() as connection:
            connection.execute(text("update llama_index_memory set data = '{broken' where id = 1"))
        sync.dispose()
        report = indexer.sync(AgentMemoryConnector(tmp_path / "memory.db", agent_id="a"))
        assert (report.added, len(report.failed)) == (5, 1)

    async def test_on_postgres_in_a_schema_of_its_own(self, postgres_url):
        engine = create_async_engine(postgres_url.replace("+psycopg:", "+psycopg_async:"))
        store = SQLAlchemyChatStore("chats", async_engine=engine, db_schema="llama")
        await run(remembering(store, "s"), ["A-1042 到哪儿了？"])
        await engine.dispose()
        documents = await asyncio.to_thread(read, postgres_url, table="llama.chats")
        assert texts_by_role(documents) == TEXTS_BY_ROLE[:3]
        sync = create_engine(postgres_url)
        with sync.begin() as connection:
            connection.execute(text("drop schema llama cascade"))
        sync.dispose()


def dumped(store: SimpleChatStore) -> str:
    """What `SimpleChatStore.persist` writes; with pydantic 2.14 it fails itself."""
    messages = {
        key: [{"role": m.role.value, "additional_kwargs": m.additional_kwargs, "blocks": [b.model_dump(mode="json") for b in m.blocks]} for m in stored]
        for key, stored in store.store.items()
    }  # fmt: skip
    return json.dumps({"store": messages, "class_name": "SimpleChatStore"})


class TestSimpleChatStore:
    async def test_a_run_of_an_agent_is_read_from_the_object_and_from_its_file(self, tmp_path):
        store = SimpleChatStore()
        buffer = ChatMemoryBuffer.from_defaults(token_limit=3000, chat_store=store, chat_store_key="s")
        await run(buffer)
        path = tmp_path / "chat.json"
        path.write_text(dumped(store), encoding="utf-8")
        for source, options in ((store, {"name": "x"}), (buffer, {"name": "x"}), (path, {})):
            documents = read(source, **options)
            assert texts_by_role(documents) == TEXTS_BY_ROLE
            assert {document.metadata["session"] for document in documents} == {"s"}

    def test_two_stores_that_are_only_in_memory_must_be_named(self):
        with pytest.raises(UsageError, match="pass name"):
            AgentMemoryConnector(SimpleChatStore(), agent_id="a")

    def test_pictures_are_noted_and_their_data_is_not_text(self):
        store = SimpleChatStore()
        blocks = [TextBlock(text="这是发票"), ImageBlock(image=b"AAAABBBB", image_mimetype="image/png")]
        store.add_message("s", ChatMessage(role="user", blocks=blocks))
        (document,) = read(store, name="x")
        assert document.text == "这是发票\n[image/图片]"


class TestRedis:
    @pytest.fixture
    def client(self, redis_url):
        import redis

        with redis.Redis.from_url(redis_url) as client:
            client.flushdb()
            yield client
            client.flushdb()

    async def test_a_run_of_an_agent_is_read(self, redis_url, client):
        store = RedisChatStore(redis_url=redis_url)
        await run(ChatMemoryBuffer.from_defaults(token_limit=3000, chat_store=store, chat_store_key="会话:1"))
        await store._aredis_client.aclose()
        store._redis_client.close()
        client.set("other", "x")
        client.rpush("queue", '{"job": 1}')
        for source in (redis_url, client):
            documents = await asyncio.to_thread(read, source)
            assert texts_by_role(documents) == TEXTS_BY_ROLE
            assert {document.metadata["session"] for document in documents} == {"会话:1"}

    def test_histories_of_both_frameworks_need_a_backend(self, redis_url, client, indexer):
        message = {"type": "human", "data": {"content": "from LangChain"}}
        client.lpush("message_store:s", json.dumps(message))
        client.rpush("s", json.dumps({"role": "user", "content": "from LlamaIndex"}))
        with pytest.raises(UsageError, match="of LangChain and of LlamaIndex"):
            indexer.sync(AgentMemoryConnector(redis_url, agent_id="a"))
        assert texts_by_role(read(client, backend="langchain-redis")) == [("user", "from LangChain")]
        assert texts_by_role(read(client, backend="llamaindex-redis")) == [("user", "from LlamaIndex")]


@pytest.mark.model
async def test_it_is_found_by_meaning_and_by_exact_word_in_both_languages(engine, tmp_path):
    await run(remembering(stored(engine), "s"), ("我的包裹到哪儿了？", "my laptop screen RX-77 is broken"))
    with DualIndexer(tmp_path / "store", "local") as indexer:
        indexer.sync(AgentMemoryConnector(tmp_path / "memory.db", agent_id="planner"))
        for query, word in (
            ("where is my parcel", "包裹"),
            ("RX-77", "RX-77"),
            ("顺丰", "顺丰"),
            ("显示器坏了怎么修", "screen"),
        ):
            hits = indexer.search(query, k=3, agent_id="planner")
            assert any(word in hit.text for hit in hits), (query, [hit.text for hit in hits])
        assert list(indexer.search("RX-77", agent_id="coder")) == []
